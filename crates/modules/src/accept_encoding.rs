//! Chooses a coding by the request's `Accept-Encoding` (RFC 9110 §12.5.3), as Caddy does: the coding with the highest
//! weight; ties go to the one that the configuration prefers, then to the first in the request. A coding that the
//! request does not name is never chosen, and `*` names none.

use causeway_message::syntax::trim_ows;
use causeway_message::{FieldMap, names};

/// Returns the best coding. `offered` looks a coding's name up: its value, and its preference (higher is better);
/// `None` if it is not offered. A WebSocket handshake gets no coding. Does not allocate.
pub(crate) fn choose<T>(fields: &FieldMap, mut offered: impl FnMut(&[u8]) -> Option<(T, usize)>) -> Option<T> {
    if fields.get(names::SEC_WEBSOCKET_KEY).is_some_and(|key| !key.is_empty()) {
        return None;
    }
    let mut best: Option<((u32, usize), T)> = None;
    for value in fields.get_all(names::ACCEPT_ENCODING) {
        for item in value.split(|&byte| byte == b',') {
            let (name, weight) = weight(item);
            let Some((coding, preference)) = offered(name) else { continue };
            // A strictly greater rank is required, so the first in the request wins a tie.
            let rank = (weight, preference);
            if weight > 0 && best.as_ref().is_none_or(|(best, _)| rank > *best) {
                best = Some((rank, coding));
            }
        }
    }
    best.map(|(_, coding)| coding)
}

/// Parses a coding's name and its weight in units of 1/100 000. As in Caddy, the weight counts only if it is the first
/// parameter and valid; else it is 1.
pub(crate) fn weight(item: &[u8]) -> (&[u8], u32) {
    const WHOLE: u32 = 100_000;
    let mut parts = item.split(|&byte| byte == b';').map(trim_ows);
    let name = parts.next().unwrap_or_default();
    let weight = parts.next().and_then(|parameter| match parameter {
        [b'q' | b'Q', b'=', weight @ ..] => std::str::from_utf8(weight).ok()?.parse::<f32>().ok(),
        _ => None,
    });
    let weight = weight.filter(|weight| (0.0..=1.0).contains(weight));
    (name, weight.map_or(WHOLE, |weight| (weight * WHOLE as f32) as u32))
}
