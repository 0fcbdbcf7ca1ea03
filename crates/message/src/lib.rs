//! The vocabulary of RFC 9110: the parts of a request and a response, independent of the protocol version that
//! carries them.
//!
//! In reading order:
//! - [`syntax`]: the bytes that a token, a field value and a comma-separated list may hold
//! - [`Method`], [`StatusCode`], [`Version`], [`StreamId`]: the small types
//! - [`KnownName`], [`names`], [`NameRef`], [`FieldName`], [`FieldValue`], [`OwnedValue`], [`FieldLine`]: interned
//!   field names, values, and both
//! - [`FieldMap`]: an ordered list of fields in one arena
//! - [`Target`], [`path`], [`query`]: the request target, percent-decoding, path cleaning and the pairs of a query
//! - [`Head`], [`ResponseHead`], [`Cookie`], [`HTTP_DATE_SECONDS_END`]: whole heads, and the end of their dates
//! - [`Block`], [`BlockMut`], [`Chunk`], [`Home`]: reference-counted buffers that return to their pool
//! - [`ServerEvent`], [`ClientEvent`], [`Handled`], [`OpenError`], [`BodyLength`], [`Framing`], [`WaitsFor`]: the types
//!   that a protocol machine and its driver exchange
//! - [`WriteList`]: the queue of bytes that a connection has to write
//!
//! This crate uses no socket, clock, task or lock.

mod chunk;
mod cookie;
mod events;
mod field;
mod head;
mod list;
mod map;
mod method;
mod name;
pub mod path;
pub mod query;
mod response;
mod status;
pub mod syntax;
mod target;
mod transfer;
mod version;
mod write_list;

pub use chunk::{Block, BlockMut, Chunk, Home};
pub use cookie::{Cookie, SameSite, cookies};
pub use events::{ClientEvent, Handled, OpenError, Scheme, ServerEvent};
pub use field::{FieldLine, FieldName, FieldValue, NameRef, OwnedValue};
pub use head::Head;
pub use list::List;
pub use map::{ContentLengthError, FieldMap};
pub use method::Method;
pub use name::{KnownName, names};
pub use response::{EtagKind, HTTP_DATE_SECONDS_END, ResponseHead};
pub use status::StatusCode;
pub use target::{Target, TargetError, TargetForm, is_host, is_host_port};
pub use transfer::{BodyLength, Framing, WaitsFor};
pub use version::{StreamId, Version};
pub use write_list::WriteList;
