//! Expands a configured pattern to a path.

use causeway_message::path;
use causeway_pipeline::{Build, Context, Template};

use super::FileMatcherPlan;
use crate::file_server::push_root;

/// An entry of `try_files`.
pub(super) struct FilePattern {
    template: Template,
    /// The configured text contains wildcards, so wildcards in placeholder values must be escaped.
    is_glob: bool,
    directory_slash: DirectorySlash,
}

/// When the candidate must be a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DirectorySlash {
    /// The configured text ends with a slash.
    Always,
    Never,
    /// If the expanded text ends with a slash.
    OfText,
}

impl FilePattern {
    /// `of_value`: the pattern is a value of an expression, which ends as the values of its placeholders do.
    pub(super) fn new(written: &str, of_value: bool, build: &mut Build<'_>) -> Self {
        Self {
            template: build.template(written),
            is_glob: written.contains(['*', '?', '[', '\\']),
            directory_slash: match written.ends_with('/') {
                true => DirectorySlash::Always,
                false if of_value => DirectorySlash::OfText,
                false => DirectorySlash::Never,
            },
        }
    }
}

/// How a pattern is expanded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CandidateForm {
    /// To be looked up.
    Tried,
    /// As a literal path that need not exist: the last entry of `first_exist_fallback`.
    Literal,
}

/// A candidate's parts as offsets into its text: the root, the path below it, and the remainder after the split.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Candidate {
    pub(super) root: usize,
    pub(super) end: usize,
    /// The path still contains wildcards.
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

    /// Appends the cache key: its kind, for a glob the length of the root, and the path. The path is last, since it may
    /// have any bytes.
    pub(super) fn key(&self, text: &[u8], out: &mut Vec<u8>) {
        out.push(u8::from(self.is_glob));
        if self.is_glob {
            out.extend_from_slice(&self.root.to_be_bytes());
        }
        out.extend_from_slice(self.path(text));
    }
}

/// Expands a pattern to a candidate in `out`. Returns `None` where Caddy has no candidate: only a pattern that ends
/// with a slash matches a directory, so with `{path}` a request for `/folder/` continues with the next entry. In an
/// expression the pattern is the value of `{path}`, so there such a request matches the directory.
///
/// Wildcards in the root are literal. DEVIATES Caddy, which expands them too.
pub(super) fn put(
    plan: &FileMatcherPlan,
    pattern: &FilePattern,
    form: CandidateForm,
    cx: &mut Context,
    out: &mut Vec<u8>,
) -> Option<Candidate> {
    out.clear();
    push_root(&plan.root, cx, out);
    let root = out.len();
    let is_glob = pattern.is_glob && form == CandidateForm::Tried;
    let is_directory = cx.with_scratch(|cx, rendered| {
        if is_glob {
            pattern.template.render_values(cx, rendered, |_, value, out| escape(value, out));
        } else {
            pattern.template.render(cx, rendered);
        }
        // Resolves dot segments, so that the path cannot lead above the root.
        path::clean(rendered, out);
        if (form == CandidateForm::Literal || !rendered.ends_with(b"/")) && out.len() > root + 1 && out.ends_with(b"/")
        {
            out.pop();
        }
        match pattern.directory_slash {
            DirectorySlash::Always => true,
            DirectorySlash::Never => false,
            DirectorySlash::OfText => rendered.ends_with(b"/"),
        }
    });
    let mut end = root + split(&out[root..], &plan.splits);
    match form {
        CandidateForm::Tried if end > root + 1 && out[end - 1] == b'/' && !is_directory => return None,
        CandidateForm::Literal if is_directory && out[end - 1] != b'/' => {
            out.insert(end, b'/');
            end += 1;
        }
        _ => {}
    }
    if end == root + 1 && root > 0 {
        // The root itself, without its slash.
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

/// Returns the length of the path before the split (Caddy's `split_path`): through the first occurrence of a delimiter,
/// ignoring case, if that ends a component.
fn split(path: &[u8], splits: &[Vec<u8>]) -> usize {
    for split in splits {
        // As in Caddy, only the first occurrence of each delimiter counts. At the end of the path there is no split.
        let found = path.windows(split.len().max(1)).position(|part| part.eq_ignore_ascii_case(split));
        if let Some(at) = found
            && path.get(at + split.len()).is_some_and(|&byte| byte == b'/')
        {
            return at + split.len();
        }
    }
    path.len()
}

/// Appends a placeholder's value, with its wildcards escaped.
fn escape(value: &[u8], out: &mut Vec<u8>) {
    for &byte in value {
        if b"*?[\\".contains(&byte) {
            out.push(b'\\');
        }
        out.push(byte);
    }
}

/// Returns whether a pattern contains an unescaped wildcard.
pub(super) fn has_wildcard(pattern: &[u8]) -> bool {
    let mut bytes = pattern.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' => drop(bytes.next()),
            b'*' | b'?' | b'[' => return true,
            _ => {}
        }
    }
    false
}

/// Removes backslashes from literal text: from the remainder, and from a path without wildcards.
fn unescape(out: &mut Vec<u8>, candidate: &mut Candidate) {
    let from = if candidate.is_glob { candidate.end } else { candidate.root };
    let (mut to, mut at, mut end) = (from, from, None);
    // Works in place; the write position never passes the read position.
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
