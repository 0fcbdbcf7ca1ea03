//! Patterns with a `%`, which are compared with the escaped path at that position.
//!
//! As in Caddy, the pattern and the raw path are walked in parallel, and the path's bytes are collected: escaped where
//! the pattern has an escape, decoded elsewhere. The collected text is then matched with the pattern as a glob. In the
//! walk a wildcard takes everything up to the first byte that equals the pattern byte after it.

use causeway_message::path;

use super::lower;
use crate::glob::{Space, glob};
use crate::rewrite::escape::escaped_at;

/// Work buffers of the walk. The caller keeps them, so that matching does not allocate.
pub(super) struct Scratch {
    offered: Vec<u8>,
    pattern: Vec<u8>,
    /// The collected text and the pattern, in lower case.
    lowered: [Vec<u8>; 2],
}

impl Scratch {
    pub(super) const EMPTY: Self = Self { offered: Vec::new(), pattern: Vec::new(), lowered: [Vec::new(), Vec::new()] };
}

/// Returns whether a raw path matches. Ignores the case of letters.
pub(super) fn matches(pattern: &[u8], path: &[u8], scratch: &mut Scratch) -> bool {
    let Scratch { offered, pattern: globbed, lowered: [lower_offered, lower_globbed] } = scratch;
    offered.clear();
    if !walk(pattern, path, offered) {
        return false;
    }
    // The walk has handled `%*`: for the glob it is a plain `*`.
    globbed.clear();
    let mut rest = pattern;
    while let Some(at) = memchr::memmem::find(rest, b"%*") {
        globbed.extend_from_slice(&rest[..at]);
        rest = &rest[at + 1..];
    }
    globbed.extend_from_slice(rest);
    // The glob ignores the case of ASCII letters itself.
    if offered.is_ascii() {
        return glob(globbed, offered, Space::AnyCase);
    }
    lower(offered, lower_offered);
    lower(globbed, lower_globbed);
    glob(lower_globbed, lower_offered, Space::AnyCase)
}

/// Collects the path's bytes in `offered`. Returns false if the path cannot match.
fn walk(pattern: &[u8], path: &[u8], offered: &mut Vec<u8>) -> bool {
    let (mut p, mut t) = (0, 0);
    while let (Some(&wanted), Some(&first)) = (pattern.get(p), path.get(t)) {
        let (escape, plain) = match escaped_at(path, t) {
            // `t` now points to the last byte of the escape, also for a wildcard, as in Caddy.
            Some(byte) => {
                t += 2;
                (&path[t - 2..=t], byte)
            }
            None => (&[][..], first),
        };
        match wanted {
            // An escape in the pattern: keep the path's escape as it is.
            b'%' if pattern.len() >= p + 3 && pattern[p + 1] != b'*' => {
                offered.extend_from_slice(escape);
                t += 1;
                p += 2;
            }
            // A wildcard, `*` or `%*`: decode its text unless it is in escaped form.
            b'%' | b'*' => {
                p += usize::from(wanted == b'%');
                let rest = &path[t..];
                let end = match pattern.get(p + 1) {
                    None => Some(rest.len()),
                    Some(next) => rest.iter().position(|byte| byte.eq_ignore_ascii_case(next)),
                };
                let Some(end) = end else { return false };
                if wanted == b'%' {
                    offered.extend_from_slice(&rest[..end]);
                } else if path::decode(&rest[..end], offered).is_err() {
                    return false;
                }
                t += end;
            }
            _ => {
                offered.push(plain);
                t += 1;
            }
        }
        p += 1;
    }
    let rest = &path[t.min(path.len())..];
    // The rest of the path, if it has valid escapes, is compared decoded.
    if path::decode(rest, offered).is_err() {
        offered.extend_from_slice(rest);
    }
    true
}
