//! Placeholders of the request target and its parts.

use std::ops::Range;

use causeway_message::{TargetForm, path, query};

use super::{PlaceholderId, Which, head_of};
use crate::context::Context;

/// A part of the request target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::template) enum TargetPart {
    Uri,
    Path,
    File,
    FileBase,
    FileExtension,
    Directory,
    /// A path segment, counted from 0.
    Segment(usize),
    Query,
    PrefixedQuery,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::template) enum TargetEncoding {
    Plain,
    /// Escaped for use as a value in a query.
    Escaped,
}

/// Compiles the rest of a name after `uri` or `orig_uri`.
pub(super) fn part_of(name: &str, which: Which) -> Option<PlaceholderId> {
    let (name, form) = match name.strip_suffix("_escaped") {
        Some(name) => (name, TargetEncoding::Escaped),
        None => (name, TargetEncoding::Plain),
    };
    let part = match name {
        "" => TargetPart::Uri,
        ".path" => TargetPart::Path,
        ".path.file" => TargetPart::File,
        ".path.dir" => TargetPart::Directory,
        ".query" => TargetPart::Query,
        ".prefixed_query" => TargetPart::PrefixedQuery,
        ".path.file.base" if which == Which::Current => TargetPart::FileBase,
        ".path.file.ext" if which == Which::Current => TargetPart::FileExtension,
        _ => TargetPart::Segment(name.strip_prefix(".path.")?.parse().ok()?),
    };
    // Caddy defines only these escaped forms.
    let has_form = match which {
        Which::Current => matches!(part, TargetPart::Uri | TargetPart::Path | TargetPart::Query),
        Which::Original => part == TargetPart::File,
    };
    (form == TargetEncoding::Plain || has_form).then_some(PlaceholderId::Target(which, part, form))
}

pub(super) fn render(cx: &Context, which: Which, part: TargetPart, form: TargetEncoding, out: &mut Vec<u8>) {
    let start = out.len();
    let target = head_of(cx, which).target();
    let query = || target.query().filter(|_| target.form() != TargetForm::Asterisk).unwrap_or_default().as_bytes();
    match (part, which, form) {
        (TargetPart::Uri, Which::Original, _) => out.extend_from_slice(target.as_str().as_bytes()),
        (TargetPart::Uri, Which::Current, _) => {
            out.extend_from_slice(target.path().as_bytes());
            // Keep a bare `?`, as Go's URL does.
            if target.form() != TargetForm::Asterisk && target.query().is_some() {
                out.push(b'?');
                out.extend_from_slice(query());
            }
        }
        (TargetPart::Query, ..) => out.extend_from_slice(query()),
        (TargetPart::PrefixedQuery, ..) => {
            if !query().is_empty() {
                out.push(b'?');
                out.extend_from_slice(query());
            }
        }
        // Cut the raw path, then decode: an escaped slash belongs to the last segment.
        (TargetPart::File, Which::Original, TargetEncoding::Escaped) => {
            let path = target.path().as_bytes();
            return out.extend_from_slice(&path[range_in(path, part)]);
        }
        (part, Which::Current, _) => out.extend_from_slice(&cx.path()[range_in(cx.path(), part)]),
        (part, Which::Original, _) => {
            // Decoding cannot fail here: the parser rejects a target whose path has a bad escape.
            let _ = path::decode(target.path(), out);
            let wanted = range_in(&out[start..], part);
            out.truncate(start + wanted.end);
            out.drain(start..start + wanted.start);
        }
    }
    if form == TargetEncoding::Escaped {
        let plain = out.split_off(start);
        query::encode(&plain, out);
    }
}

/// Returns the byte range of a part within a path.
pub(super) fn range_in(path: &[u8], part: TargetPart) -> Range<usize> {
    let end = path.len();
    let file = || path.iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1);
    // Without a dot the extension is empty, at the end.
    let dot = |file: usize| path[file..].iter().rposition(|&byte| byte == b'.').map_or(end, |dot| file + dot);
    match part {
        TargetPart::File => file()..end,
        TargetPart::Directory => 0..file(),
        // The last segment that is not empty, even if a slash follows it, as Go's `path.Base`.
        TargetPart::FileBase => {
            let trimmed = path.iter().rposition(|&byte| byte != b'/').map_or(end.min(1), |last| last + 1);
            let start = path[..trimmed].iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1);
            match (start < trimmed, trimmed == end) {
                (true, true) => start..dot(start),
                (true, false) => start..trimmed,
                (false, _) => 0..trimmed,
            }
        }
        TargetPart::FileExtension => dot(file())..end,
        TargetPart::Segment(index) => {
            let mut from = usize::from(path.starts_with(b"/"));
            for _ in 0..index {
                let Some(slash) = path[from..].iter().position(|&byte| byte == b'/') else { return 0..0 };
                from += slash + 1;
            }
            from..path[from..].iter().position(|&byte| byte == b'/').map_or(end, |slash| from + slash)
        }
        TargetPart::Path | TargetPart::Uri | TargetPart::Query | TargetPart::PrefixedQuery => 0..end,
    }
}

/// Appends all values of a key, decoded and separated by commas. As in Go, an empty pair, and a pair with a `;` or a
/// bad escape, is skipped.
pub(super) fn query_values(text: &str, key: &[u8], out: &mut Vec<u8>) {
    let mut first = true;
    for (name, value) in query::pairs(text.as_bytes()) {
        let start = out.len();
        // `out` doubles as the buffer of the decoded name.
        if !query::decode(name, out) || out[start..] != *key {
            out.truncate(start);
            continue;
        }
        out.truncate(start);
        if !first {
            out.push(b',');
        }
        if query::decode(value, out) {
            first = false;
        } else {
            out.truncate(start);
        }
    }
}
