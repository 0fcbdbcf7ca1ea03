//! RFC 9110's vocabulary: what a request and a response are made of, whatever carries them.
//!
//! In reading order:
//! - [`octets`]: which octets a token, a field value and a comma list may hold
//! - [`Method`], [`StatusCode`], [`Version`], [`StreamId`]: the small words
//! - [`KnownName`], [`names`], [`NameRef`], [`FieldName`], [`FieldValue`], [`OwnedValue`]: field names, interned, and values
//! - [`FieldMap`]: fields in order, in one arena
//! - [`Target`], [`path`]: what is asked for
//! - [`Head`], [`ResponseHead`], [`Cookie`]: whole heads
//! - [`Block`], [`BlockMut`], [`Chunk`], [`Home`]: octets that are shared and go home
//! - [`BodyLength`], [`Framing`], [`WaitsFor`]: what a protocol machine and its driver say to each other
//! - [`WriteList`]: what a connection has to write
//!
//! This room never sees a socket, a clock, a task or a lock.

mod chunk;
mod cookie;
mod field;
mod head;
mod list;
mod map;
mod method;
mod name;
pub mod octets;
pub mod path;
mod response;
mod status;
mod target;
mod transfer;
mod version;
mod write_list;

pub use chunk::{Block, BlockMut, Chunk, Home};
pub use cookie::{Cookie, SameSite};
pub use field::{FieldName, FieldValue, NameRef, OwnedValue};
pub use head::Head;
pub use list::List;
pub use map::{FieldFault, FieldMap};
pub use method::Method;
pub use name::{KnownName, names};
pub use response::{EtagKind, ResponseHead};
pub use status::StatusCode;
pub use target::{BadTarget, Target, TargetForm, is_host, is_host_port};
pub use transfer::{BodyLength, Framing, WaitsFor};
pub use version::{StreamId, Version};
pub use write_list::WriteList;
