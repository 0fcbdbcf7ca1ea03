//! Targets in origin form (RFC 9112 §3.2.1).

use causeway_message::Target;

/// Appends the path and the query of a target, without its scheme and authority.
pub(crate) fn put_origin_form(target: Target<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(target.path().as_bytes());
    if let Some(query) = target.query() {
        out.push(b'?');
        out.extend_from_slice(query.as_bytes());
    }
}
