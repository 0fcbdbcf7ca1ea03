//! Checks a response's head against its request: where the content ends, and whether another request may follow.

use causeway_message::{BodyLength, ResponseHead, StatusCode, Version};

use crate::error::ProtocolError;
use crate::framing::{ConnectionOptions, body_length};

/// The kind of a request, as far as it decides how its response is parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestKind {
    Content,
    /// HEAD: the response has no content.
    Head,
    /// A protocol switch, by Upgrade.
    Switch {
        /// HEAD: if the switch is declined, the response has no content.
        is_head: bool,
    },
    /// A tunnel, by CONNECT.
    Connect,
}

/// The kind of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResponseKind {
    /// An interim response.
    Interim,
    /// The other protocol begins after this head.
    Switch,
    Final {
        /// [`BodyLength::None`] if the response is complete.
        body: BodyLength,
        /// The content has neither a length nor chunks and ends with the connection.
        until_close: bool,
        /// Another request may follow.
        is_persistent: bool,
    },
}

pub(super) fn examine(
    head: &ResponseHead,
    version: Version,
    request_kind: RequestKind,
) -> Result<ResponseKind, ProtocolError> {
    let (status, fields) = (head.status(), head.fields());
    let is_http_1_0 = version == Version::Http10;
    if status == StatusCode::SWITCHING_PROTOCOLS {
        // RFC 9110 §7.8: only on request. A client that accepted any 101 would take the next response for tunnel
        // bytes.
        return if matches!(request_kind, RequestKind::Switch { .. }) && !is_http_1_0 {
            Ok(ResponseKind::Switch)
        } else {
            Err(ProtocolError::Switch)
        };
    }
    if status.is_informational() {
        return Ok(ResponseKind::Interim);
    }
    // RFC 9112 §6.3: the framing fields of such a response are ignored.
    if request_kind == RequestKind::Connect && matches!(status.as_u16(), 200..300) {
        return Ok(ResponseKind::Switch);
    }
    let declared = body_length(fields, is_http_1_0)?;
    // RFC 9112 §6.3: these responses have no content, even if a framing field declares a length.
    let is_head = matches!(request_kind, RequestKind::Head | RequestKind::Switch { is_head: true });
    let is_bare = is_head || status.forbids_content();
    let (body, until_close) = match declared {
        _ if is_bare => (BodyLength::None, false),
        BodyLength::Sized(0) => (BodyLength::None, false),
        BodyLength::Sized(bytes) => (BodyLength::Sized(bytes), false),
        BodyLength::Unknown => (BodyLength::Unknown, false),
        BodyLength::None => (BodyLength::Unknown, true),
    };
    Ok(ResponseKind::Final {
        body,
        until_close,
        is_persistent: ConnectionOptions::of(fields).is_persistent(is_http_1_0) && !until_close,
    })
}
