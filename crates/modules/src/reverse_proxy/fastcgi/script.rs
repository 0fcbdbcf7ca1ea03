//! Divides a path into the script's and the rest, which CGI calls path info (RFC 3875 §3.3).
//!
//! A mistake here executes a file that is no script, so the rules are Caddy's exactly: the path is percent-decoded once
//! and cleaned, a delimiter is compared byte by byte with ASCII's case ignored, and a path that selects another script
//! in its encoded form is refused.

use causeway_message::{StatusCode, path};
use causeway_pipeline::{Build, BuildError, Call, Fault, Reason};

use crate::clean_path::{Slashes, clean_as_caddy};

/// `split_path`: the delimiters, in lower case. The first one that occurs in a path ends its script.
pub(super) struct Splits(Box<[Box<[u8]>]>);

/// The parts of a request's path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ScriptPath<'p> {
    /// The path up to and including the delimiter; the whole path without one.
    pub(super) document: &'p [u8],
    /// As `document`. Empty without delimiters: the root itself is the script.
    pub(super) script: &'p [u8],
    /// The rest.
    pub(super) info: &'p [u8],
}

impl Splits {
    pub(super) fn build(written: Vec<String>, build: &mut Build<'_>) -> Result<Self, BuildError> {
        for (index, split) in written.iter().enumerate() {
            // Case is ignored for ASCII only, so another letter could be compared in one case and not in the other.
            if !split.is_ascii() {
                let (found, expected) = (split.clone(), "ASCII characters");
                return build.at(format!("[{index}]"), |build| Err(build.refuse(found, expected)));
            }
        }
        Ok(Self(written.into_iter().map(|split| split.to_ascii_lowercase().into_bytes().into()).collect()))
    }

    /// Appends the call's path to `decoded`, decoded and cleaned. The others are empty buffers.
    ///
    /// # Errors
    /// 400 for a zero byte, and for a path whose encoded form selects another script.
    pub(super) fn decode(
        &self,
        call: &Call,
        decoded: &mut Vec<u8>,
        [spare, encoded]: [&mut Vec<u8>; 2],
    ) -> Result<(), Fault> {
        let request = call.request();
        let raw = request.path();
        if !raw.contains(&b'%') {
            clean_as_caddy(raw, Slashes::Merged, decoded);
            return Ok(());
        }
        path::decode(raw, spare).map_err(|_| illegal("found a bad percent-escape in the path"))?;
        clean_as_caddy(spare, Slashes::Merged, decoded);
        spare.clear();
        // PHP and the C library end a name there, so the file would be another one than the one that was checked.
        if decoded.contains(&0) {
            return Err(illegal("found a zero byte in the path"));
        }
        // Matchers may compare the encoded path, in which `%2f` and `%2e` neither separate nor go up.
        clean_as_caddy(raw, Slashes::Merged, encoded);
        path::decode(encoded, spare).map_err(|_| illegal("found a bad percent-escape in the path"))?;
        let selects_same = self.divide(spare).document == self.divide(decoded).document;
        if selects_same { Ok(()) } else { Err(illegal("the encoded and the decoded path select different scripts")) }
    }

    pub(super) fn divide<'p>(&self, path: &'p [u8]) -> ScriptPath<'p> {
        match self.end(path) {
            // Caddy: without delimiters the whole path is path info.
            Some(0) => ScriptPath { document: b"", script: b"", info: path },
            Some(end) => ScriptPath { document: &path[..end], script: &path[..end], info: &path[end..] },
            None => ScriptPath { document: path, script: path, info: b"" },
        }
    }

    fn end(&self, path: &[u8]) -> Option<usize> {
        if self.0.is_empty() {
            return Some(0);
        }
        let find = |split: &[u8]| {
            let at = path.windows(split.len()).position(|part| part.eq_ignore_ascii_case(split))?;
            Some(at + split.len())
        };
        self.0.iter().filter(|split| !split.is_empty()).find_map(|split| find(split))
    }
}

#[cold]
fn illegal(message: &'static str) -> Fault {
    Fault { status: StatusCode::BAD_REQUEST, reason: Reason::Text(message.into()) }
}
