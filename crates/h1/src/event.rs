//! The events of HTTP/1.1's machines: those of every version, with this version's fault.

use crate::error::ProtocolError;

/// An event of [`Server`](crate::Server).
pub type Event = causeway_message::ServerEvent<ProtocolError>;
/// The result of one [`Server::handle_bytes`](crate::Server::handle_bytes) call.
pub type Handled = causeway_message::Handled<Event>;
/// An event of [`Client`](crate::Client).
pub type ClientEvent = causeway_message::ClientEvent<ProtocolError>;
/// The result of one [`Client::handle_bytes`](crate::Client::handle_bytes) call.
pub type ClientHandled = causeway_message::Handled<ClientEvent>;
