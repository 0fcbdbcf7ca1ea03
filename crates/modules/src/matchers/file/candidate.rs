//! From a configured pattern to a path.

use causeway_message::path;
use causeway_pipeline::{Build, Context, Template};

use super::Plan;
use crate::file_server::push_root;

/// An entry of `try_files`.
pub(super) struct Pattern {
    template: Template,
    /// It may hold wildcards: what placeholders bring along is escaped then.
    is_glob: bool,
    /// It ends with a slash, and so means a folder.
    is_folder: bool,
}

impl Pattern {
    pub(super) fn new(written: &str, build: &mut Build<'_>) -> Self {
        Self {
            template: build.template(written),
            is_glob: written.contains(['*', '?', '[', '\\']),
            is_folder: written.ends_with('/'),
        }
    }
}

/// How a pattern is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// To be looked for.
    Tried,
    /// As a path, whether it is there or not: the last one of `first_exist_fallback`.
    Literal,
}

/// Where in a text the parts of a candidate lie: the root, the path below it, and what was split off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Candidate {
    pub(super) root: usize,
    pub(super) end: usize,
    /// The path is a pattern with wildcards.
    pub(super) is_glob: bool,
}

impl Candidate {
    pub(super) fn path<'t>(&self, text: &'t [u8]) -> &'t [u8] {
        &text[..self.end]
    }

    pub(super) fn relative<'t>(&self, text: &'t [u8]) -> &'t [u8] {
        &text[self.root..self.end]
    }

    pub(super) fn remainder<'t>(&self, text: &'t [u8]) -> &'t [u8] {
        &text[self.end..]
    }

    /// Under which is remembered what was found: the path; for a pattern, how much of it is the root, too.
    pub(super) fn key(&self, text: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(self.path(text));
        if self.is_glob {
            // A path with an octet 0 is never looked for.
            out.push(0);
            out.extend_from_slice(&self.root.to_be_bytes());
        }
    }
}

/// Makes a pattern's candidate in `out`; `None` where Caddy has none: only a pattern that ends with a slash means a folder, so
/// that with `{path}` a request for `/folder/` falls through to the next entry.
///
/// The root is taken as it is. DEVIATES from Caddy, which reads wildcards in it too.
pub(super) fn put(
    plan: &Plan,
    pattern: &Pattern,
    form: Form,
    cx: &mut Context,
    out: &mut Vec<u8>,
) -> Option<Candidate> {
    out.clear();
    push_root(&plan.root, cx, out);
    let root = out.len();
    let is_glob = pattern.is_glob && form == Form::Tried;
    cx.with_scratch(|cx, rendered| {
        if is_glob {
            pattern.template.render_values(cx, rendered, |_, value, out| escape(value, out));
        } else {
            pattern.template.render(cx, rendered);
        }
        path::clean(rendered, out);
        if (form == Form::Literal || !rendered.ends_with(b"/")) && out.len() > root + 1 && out.ends_with(b"/") {
            out.pop();
        }
    });
    let mut end = root + split(&out[root..], &plan.splits);
    match form {
        Form::Tried if end > root + 1 && out[end - 1] == b'/' && !pattern.is_folder => return None,
        Form::Literal if pattern.is_folder && out[end - 1] != b'/' => {
            out.insert(end, b'/');
            end += 1;
        }
        _ => {}
    }
    if end == root + 1 && root > 0 {
        // The root itself, without a slash.
        out.remove(root);
        end = root;
    }
    let mut candidate = Candidate { root, end, is_glob: false };
    if is_glob {
        candidate.is_glob = has_wildcard(candidate.relative(out));
        unescape(out, &mut candidate);
    }
    Some(candidate)
}

/// How much of the path comes before the split (Caddy's `split_path`): up to and with the first occurrence of a delimiter, letters
/// in any case, where that ends a component.
fn split(path: &[u8], splits: &[Vec<u8>]) -> usize {
    for split in splits {
        // Caddy looks at the first occurrence of each only. One that ends the path splits nothing off.
        let found = path.windows(split.len().max(1)).position(|part| part.eq_ignore_ascii_case(split));
        if let Some(at) = found
            && path.get(at + split.len()).is_some_and(|&octet| octet == b'/')
        {
            return at + split.len();
        }
    }
    path.len()
}

/// What a placeholder brings along is no wildcard.
fn escape(value: &[u8], out: &mut Vec<u8>) {
    for &octet in value {
        if b"*?[\\".contains(&octet) {
            out.push(b'\\');
        }
        out.push(octet);
    }
}

/// Whether a pattern may match more than one name.
pub(super) fn has_wildcard(pattern: &[u8]) -> bool {
    let mut octets = pattern.iter();
    while let Some(octet) = octets.next() {
        match octet {
            b'\\' => drop(octets.next()),
            b'*' | b'?' | b'[' => return true,
            _ => {}
        }
    }
    false
}

/// Takes the backslashes out of what is not, or no more, a pattern: what was split off, and a path without wildcards.
fn unescape(out: &mut Vec<u8>, candidate: &mut Candidate) {
    let from = if candidate.is_glob { candidate.end } else { candidate.root };
    let (mut to, mut at, mut end) = (from, from, None);
    while at < out.len() {
        if at >= candidate.end {
            end.get_or_insert(to);
        }
        if out[at] == b'\\' && at + 1 < out.len() {
            at += 1;
        }
        out[to] = out[at];
        to += 1;
        at += 1;
    }
    out.truncate(to);
    candidate.end = end.unwrap_or(to);
}
