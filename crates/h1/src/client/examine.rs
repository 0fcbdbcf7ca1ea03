//! What an answer's head means: for its request, where the content ends, whether another request may follow.

use causeway_message::{BodyLength, ResponseHead, StatusCode, Version};

use crate::fault::HeadFault;
use crate::framing::{Options, body_length};

/// What of a request decides how its answer is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    Content,
    /// HEAD: no content.
    Head,
    /// Another protocol, by Upgrade.
    Switch,
    /// A tunnel, by CONNECT.
    Connect,
}

/// What an answer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// One before the answer.
    Informational,
    /// The other protocol begins behind it.
    Switch,
    Final {
        /// [`BodyLength::None`] where it is complete.
        body: BodyLength,
        /// Content of unknown length is not chunked.
        until_close: bool,
        /// Another request may follow.
        keep: bool,
    },
}

pub(super) fn examine(head: &ResponseHead, version: Version, asked: Asked) -> Result<Answer, HeadFault> {
    let (status, fields) = (head.status(), head.fields());
    let is_10 = version == Version::Http10;
    if status == StatusCode::SWITCHING_PROTOCOLS {
        // RFC 9110 §7.8: never unasked. Who believes one takes the next answer for a tunnel's octets.
        return if asked == Asked::Switch && !is_10 { Ok(Answer::Switch) } else { Err(HeadFault::Switch) };
    }
    if status.is_informational() {
        return Ok(Answer::Informational);
    }
    // RFC 9112 §6.3: whatever such an answer says of a length is ignored.
    if asked == Asked::Connect && matches!(status.as_u16(), 200..300) {
        return Ok(Answer::Switch);
    }
    let declared = body_length(fields, is_10)?;
    let is_bare = asked == Asked::Head || status.forbids_content();
    let (body, until_close) = match declared {
        _ if is_bare => (BodyLength::None, false),
        BodyLength::Sized(0) => (BodyLength::None, false),
        BodyLength::Sized(octets) => (BodyLength::Sized(octets), false),
        BodyLength::Unknown => (BodyLength::Unknown, false),
        BodyLength::None => (BodyLength::Unknown, true),
    };
    Ok(Answer::Final { body, until_close, keep: Options::of(fields).keep(is_10) && !until_close })
}
