//! The events of HTTP/2's machines: those of every version, with this version's faults.

use causeway_message::StatusCode;

use crate::error::ErrorCode;

/// An event of [`Server`](crate::Server). A fault is the status of the error response.
pub type Event = causeway_message::ServerEvent<StatusCode>;
/// The result of one [`Server::handle_bytes`](crate::Server::handle_bytes) call.
pub type Handled = causeway_message::Handled<Event>;
/// An event of [`Client`](crate::Client). A fault is the error code of the frame that ended the stream or the
/// connection.
pub type ClientEvent = causeway_message::ClientEvent<ErrorCode>;
/// The result of one [`Client::handle_bytes`](crate::Client::handle_bytes) call.
pub type ClientHandled = causeway_message::Handled<ClientEvent>;
