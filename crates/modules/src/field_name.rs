//! Field names as Caddy shows them.

/// Length of a field name that fits without an allocation.
const NAME_BYTES: usize = 64;

/// Passes a field name in Go's canonical form: `content-type` becomes `Content-Type`. Allocates only for an unusually
/// long name.
pub(crate) fn canonical(name: &str, take: impl FnOnce(&str)) {
    let (mut short, mut long) = ([0; NAME_BYTES], Vec::new());
    let text = match short.get_mut(..name.len()) {
        Some(text) => text,
        None => {
            long.resize(name.len(), 0);
            &mut long[..]
        }
    };
    let mut is_first = true;
    for (to, byte) in text.iter_mut().zip(name.bytes()) {
        *to = if is_first { byte.to_ascii_uppercase() } else { byte.to_ascii_lowercase() };
        is_first = byte == b'-';
    }
    // A name is ASCII, and the letters' cases do not change that.
    if let Ok(name) = std::str::from_utf8(text) {
        take(name);
    }
}
