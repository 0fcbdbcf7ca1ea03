//! The request's target and what it is made of.

use std::ops::Range;

use causeway_message::{TargetForm, path};

use super::{Place, Which, head_of, write};
use crate::context::Context;

/// A part of a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::template) enum Part {
    Uri,
    Path,
    File,
    FileBase,
    FileExtension,
    Folder,
    /// A segment, from 0.
    Segment(usize),
    Query,
    PrefixedQuery,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::template) enum Form {
    Plain,
    /// As a value in a query.
    Escaped,
}

/// What a name stands for that began with `uri` or `orig_uri`.
pub(super) fn part_of(name: &str, which: Which) -> Option<Place> {
    let (name, form) = match name.strip_suffix("_escaped") {
        Some(name) => (name, Form::Escaped),
        None => (name, Form::Plain),
    };
    let part = match name {
        "" => Part::Uri,
        ".path" => Part::Path,
        ".path.file" => Part::File,
        ".path.dir" => Part::Folder,
        ".query" => Part::Query,
        ".prefixed_query" => Part::PrefixedQuery,
        ".path.file.base" if which == Which::Current => Part::FileBase,
        ".path.file.ext" if which == Which::Current => Part::FileExtension,
        _ => Part::Segment(name.strip_prefix(".path.")?.parse().ok()?),
    };
    // Caddy has these escaped, and no other.
    let has_form = match which {
        Which::Current => matches!(part, Part::Uri | Part::Path | Part::Query),
        Which::Original => part == Part::File,
    };
    (form == Form::Plain || has_form).then_some(Place::Target(which, part, form))
}

pub(super) fn render(cx: &Context, which: Which, part: Part, form: Form, out: &mut Vec<u8>) {
    let start = out.len();
    let target = head_of(cx, which).target();
    let query = || target.query().filter(|_| target.form() != TargetForm::Asterisk).unwrap_or_default().as_bytes();
    match (part, which, form) {
        (Part::Uri, Which::Original, _) => out.extend_from_slice(target.as_str().as_bytes()),
        (Part::Uri, Which::Current, _) => {
            out.extend_from_slice(target.path().as_bytes());
            // A bare `?` is kept, as Go's URL does.
            if target.form() != TargetForm::Asterisk && target.query().is_some() {
                out.push(b'?');
                out.extend_from_slice(query());
            }
        }
        (Part::Query, ..) => out.extend_from_slice(query()),
        (Part::PrefixedQuery, ..) => {
            if !query().is_empty() {
                out.push(b'?');
                out.extend_from_slice(query());
            }
        }
        // An escaped slash of the request belongs to the last segment, so the path is cut before it is decoded.
        (Part::File, Which::Original, Form::Escaped) => {
            let path = target.path().as_bytes();
            return out.extend_from_slice(&path[range_in(path, part)]);
        }
        (part, Which::Current, _) => out.extend_from_slice(&cx.path()[range_in(cx.path(), part)]),
        (part, Which::Original, _) => {
            // A path with a bad escape is no target, so a head has none.
            let _ = path::decode(target.path(), out);
            let wanted = range_in(&out[start..], part);
            out.truncate(start + wanted.end);
            out.drain(start..start + wanted.start);
        }
    }
    if form == Form::Escaped {
        let plain = out.split_off(start);
        escape_query(&plain, out);
    }
}

/// Where in a path a part of it lies.
pub(super) fn range_in(path: &[u8], part: Part) -> Range<usize> {
    let end = path.len();
    let file = || path.iter().rposition(|&octet| octet == b'/').map_or(0, |slash| slash + 1);
    let dot = |file: usize| path[file..].iter().rposition(|&octet| octet == b'.').map_or(end, |dot| file + dot);
    match part {
        Part::File => file()..end,
        Part::Folder => 0..file(),
        // The last segment that is not empty, even before a slash; Go's `path.Base`.
        Part::FileBase => {
            let trimmed = path.iter().rposition(|&octet| octet != b'/').map_or(end.min(1), |last| last + 1);
            let start = path[..trimmed].iter().rposition(|&octet| octet == b'/').map_or(0, |slash| slash + 1);
            match (start < trimmed, trimmed == end) {
                (true, true) => start..dot(start),
                (true, false) => start..trimmed,
                (false, _) => 0..trimmed,
            }
        }
        Part::FileExtension => dot(file())..end,
        Part::Segment(index) => {
            let mut from = usize::from(path.starts_with(b"/"));
            for _ in 0..index {
                let Some(slash) = path[from..].iter().position(|&octet| octet == b'/') else { return 0..0 };
                from += slash + 1;
            }
            from..path[from..].iter().position(|&octet| octet == b'/').map_or(end, |slash| from + slash)
        }
        Part::Path | Part::Uri | Part::Query | Part::PrefixedQuery => 0..end,
    }
}

/// All values of a key, decoded, with commas between them. An empty pair and
/// one with a `;` or a bad escape do not count, as in Go.
pub(super) fn query_values(query: &str, key: &[u8], out: &mut Vec<u8>) {
    let mut first = true;
    for pair in query.split('&').filter(|pair| !pair.is_empty() && !pair.contains(';')) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let start = out.len();
        if !decode_query(name, out) || out[start..] != *key {
            out.truncate(start);
            continue;
        }
        out.truncate(start);
        if !first {
            out.push(b',');
        }
        if decode_query(value, out) {
            first = false;
        } else {
            out.truncate(start);
        }
    }
}

/// Appends a query's key or value: `+` is a space. False for a bad escape.
fn decode_query(text: &str, out: &mut Vec<u8>) -> bool {
    let start = out.len();
    let spaced = path::decode(text, out).is_ok();
    // A plus that was escaped is one; it is told from the others by where they stand in the raw text.
    if spaced && text.contains('+') {
        out.truncate(start);
        for (number, part) in text.split('+').enumerate() {
            if number > 0 {
                out.push(b' ');
            }
            let _ = path::decode(part, out);
        }
    }
    spaced
}

/// As a query's value is written (Go's `url.QueryEscape`).
fn escape_query(plain: &[u8], out: &mut Vec<u8>) {
    for &octet in plain {
        match octet {
            b' ' => out.push(b'+'),
            _ if octet.is_ascii_alphanumeric() || b"-_.~".contains(&octet) => out.push(octet),
            _ => write(out, format_args!("%{octet:02X}")),
        }
    }
}
