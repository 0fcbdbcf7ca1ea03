//! Clean paths as Caddy compares and rewrites them.

use causeway_message::path::{clean, is_clean, remove_dot_segments};

/// The treatment of consecutive slashes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Slashes {
    Merged,
    /// The configured text contains consecutive slashes itself.
    Kept,
}

impl Slashes {
    /// Returns the treatment in a path that is compared with this configured text.
    pub(crate) fn asked_by(text: &[u8]) -> Self {
        if text.windows(2).any(|pair| pair == b"//") { Self::Kept } else { Self::Merged }
    }
}

/// Appends the path with dot segments resolved (Caddy's `CleanPath`). Unlike in RFC 3986, a trailing dot segment leaves
/// no trailing slash.
pub(crate) fn clean_as_caddy(path: &[u8], slashes: Slashes, out: &mut Vec<u8>) {
    if is_clean(path) {
        out.extend_from_slice(path);
        return;
    }
    let before = out.len();
    match slashes {
        Slashes::Merged => clean(path, out),
        Slashes::Kept => remove_dot_segments(path, out),
    }
    if out.len() > before + 1 && out.ends_with(b"/") && !path.ends_with(b"/") {
        out.pop();
    }
}
