//! Certificates in storage and in memory: where they come from, how they are kept fresh, and which one a name is answered with.
//!
//! In reading order, which is the way of a certificate:
//! - `load`: certificates that the operator has, as files or text
//! - `authority`: our own authority, which signs the others
//! - `keeper`: obtains what a configuration wants, and renews it
//! - `certificate`: one with its key, checked; `pem`: how both are written
//! - `store`: the hand that picks one in a handshake
//! - `storage`: the folder that all of it outlives the process in, laid out as Caddy's
//!
//! This room knows no configuration text and no connection. Nothing here may run on a worker but [`Store::find`].

mod authority;
mod certificate;
mod error;
mod keeper;
mod load;
mod pem;
mod storage;
mod store;

pub use authority::{Authority, AuthoritySpec, PairFiles};
pub use certificate::Certificate;
pub use error::Error;
pub use keeper::{Keeper, KeyKind, Managed, Wanted};
pub use load::{Source, load};
pub use storage::FileStorage;
pub use store::Store;

#[cfg(test)]
mod tests;
