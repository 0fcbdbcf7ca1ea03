//! Patterns with a `%`, which are compared in escaped space where they have one.
//!
//! As Caddy does it: pattern and raw path are walked side by side, and what the path has to offer is written down, escaped where
//! the pattern says so and decoded elsewhere. That text is then compared with the pattern as a glob. A wildcard takes all up to the
//! first octet that equals the one behind it.

use causeway_message::path::{self, hex};

use super::lower;
use crate::glob::{Space, glob};

/// Where the walk writes; kept by the caller, so that nothing is allocated.
pub(super) struct Scratch {
    offered: Vec<u8>,
    pattern: Vec<u8>,
    /// Both in small letters.
    lowered: [Vec<u8>; 2],
}

impl Scratch {
    pub(super) const EMPTY: Self = Self { offered: Vec::new(), pattern: Vec::new(), lowered: [Vec::new(), Vec::new()] };
}

/// Whether a raw path matches. Letters count in any case.
pub(super) fn matches(pattern: &[u8], path: &[u8], scratch: &mut Scratch) -> bool {
    let Scratch { offered, pattern: globbed, lowered: [lower_offered, lower_globbed] } = scratch;
    offered.clear();
    if !walk(pattern, path, offered) {
        return false;
    }
    // A run in escaped space is a run by now.
    globbed.clear();
    let mut rest = pattern;
    while let Some(at) = memchr::memmem::find(rest, b"%*") {
        globbed.extend_from_slice(&rest[..at]);
        rest = &rest[at + 1..];
    }
    globbed.extend_from_slice(rest);
    if offered.is_ascii() {
        return glob(globbed, offered, Space::AnyCase);
    }
    lower(offered, lower_offered);
    lower(globbed, lower_globbed);
    glob(lower_globbed, lower_offered, Space::AnyCase)
}

/// False when the path cannot match.
fn walk(pattern: &[u8], path: &[u8], offered: &mut Vec<u8>) -> bool {
    let (mut p, mut t) = (0, 0);
    while let (Some(&wanted), Some(&first)) = (pattern.get(p), path.get(t)) {
        let (escape, plain) = match escape(&path[t..]) {
            // The cursor stands on its last octet from here on: also for a wildcard, as in Caddy.
            Some(octet) => {
                t += 2;
                (&path[t - 2..=t], octet)
            }
            None => (&[][..], first),
        };
        match wanted {
            b'%' if pattern.len() >= p + 3 && pattern[p + 1] != b'*' => {
                offered.extend_from_slice(escape);
                t += 1;
                p += 2;
            }
            b'%' | b'*' => {
                p += usize::from(wanted == b'%');
                let rest = &path[t..];
                let end = match pattern.get(p + 1) {
                    None => Some(rest.len()),
                    Some(behind) => rest.iter().position(|octet| octet.eq_ignore_ascii_case(behind)),
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
    if path::decode(rest, offered).is_err() {
        offered.extend_from_slice(rest);
    }
    true
}

/// The octet that an escape at the start stands for.
fn escape(path: &[u8]) -> Option<u8> {
    let [b'%', high, low, ..] = *path else { return None };
    Some(hex(high)? << 4 | hex(low)?)
}
