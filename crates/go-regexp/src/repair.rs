//! Text as Go's package regexp reads it.

/// Capacity in bytes that a buffer for repaired text keeps.
const REPAIRED_KEPT_MAX: usize = 64 * 1024;

/// Returns the text as Go's regexp package reads it: unchanged if it is valid UTF-8, else with each invalid byte
/// replaced by U+FFFD. Allocates only in the second case.
pub fn as_characters<'t>(text: &'t [u8], repaired: &'t mut Vec<u8>) -> &'t [u8] {
    if std::str::from_utf8(text).is_ok() {
        return text;
    }
    repaired.clear();
    // One request with a large invalid text must not hold that memory for ever.
    repaired.shrink_to(REPAIRED_KEPT_MAX);
    for chunk in text.utf8_chunks() {
        repaired.extend_from_slice(chunk.valid().as_bytes());
        chunk.invalid().iter().for_each(|_| repaired.extend_from_slice("\u{fffd}".as_bytes()));
    }
    repaired
}

/// Maps an offset in the repaired text to the offset in the original text. O(length).
#[must_use]
#[cold]
pub fn before_repair(text: &[u8], at: usize) -> usize {
    let (mut from, mut to) = (0, 0);
    for chunk in text.utf8_chunks() {
        let (valid, invalid) = (chunk.valid().len(), chunk.invalid().len());
        // Each invalid byte became three bytes of U+FFFD.
        if at < to + valid + 3 * invalid {
            return from + (at - to).min(valid) + (at - to).saturating_sub(valid) / 3;
        }
        from += valid + invalid;
        to += valid + 3 * invalid;
    }
    from
}
