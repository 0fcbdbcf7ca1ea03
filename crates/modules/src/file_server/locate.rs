//! From a request's path to a path of the file system, and what is hidden there.

use std::borrow::Cow;
use std::os::unix::ffi::OsStrExt as _;

use causeway_message::{StatusCode, path};
use causeway_pipeline::{Build, Context, Fault, Template};

use super::Site;
use crate::glob::{Space, glob};

/// Where to look, for the blocking pool: the key under which what is found is remembered. It begins with the file's path; behind
/// that stand what the placeholders of the configured names gave.
#[derive(Clone)]
pub(super) struct Place {
    key: Vec<u8>,
    path_len: usize,
}

impl Place {
    pub(super) fn new(key: &[u8], path_len: usize) -> Self {
        Self { key: key.to_vec(), path_len }
    }

    pub(super) fn key(&self) -> &[u8] {
        &self.key
    }

    pub(super) fn path(&self) -> &[u8] {
        &self.key[..self.path_len]
    }

    /// What may be there and what may not.
    pub(super) fn names<'s>(&self, site: &'s Site) -> Cow<'s, Resolved> {
        site.names.resolve(&self.key[self.path_len..])
    }
}

/// Makes a request's key in `out`; answers how much of it is the path.
///
/// # Errors
/// 400 for a path with an octet 0, which no file's name can hold.
pub(super) fn key(site: &Site, cx: &mut Context, out: &mut Vec<u8>) -> Result<usize, Fault> {
    push_root(&site.root, cx, out);
    join(cx.path(), out);
    if out.contains(&0) {
        return Err(Fault::status(StatusCode::BAD_REQUEST));
    }
    let path_len = out.len();
    for template in &site.names.live {
        let start = out.len();
        out.extend_from_slice(&[0; 4]);
        template.render(cx, out);
        let len = u32::try_from(out.len() - start - 4).expect("a context's text is far below 4 GiB");
        out[start..start + 4].copy_from_slice(&len.to_be_bytes());
    }
    Ok(path_len)
}

/// Puts a root behind `out`, without slashes at its end. Caddy: a placeholder without a value is the present folder.
pub(crate) fn push_root(root: &Template, cx: &mut Context, out: &mut Vec<u8>) {
    let start = out.len();
    match root.literal() {
        Some(literal) => out.extend_from_slice(literal.as_bytes()),
        None => root.render_values(cx, out, |_, value, out| {
            out.extend_from_slice(if value.is_empty() { b"." } else { value });
        }),
    }
    if out.len() == start {
        out.push(b'.');
    }
    while out.len() > start && out.last() == Some(&b'/') {
        out.pop();
    }
}

/// Puts the request's decoded path behind the root: dot segments are resolved before, so that none is left to climb. A slash at
/// the end goes.
fn join(decoded: &[u8], out: &mut Vec<u8>) {
    if path::is_clean(decoded) {
        out.extend_from_slice(decoded);
    } else {
        path::clean(decoded, out);
    }
    if out.len() > 1 && out.last() == Some(&b'/') {
        out.pop();
    }
}

/// What is configured of names: files that a folder is shown by, and patterns of what is not shown.
#[derive(Debug)]
pub(super) struct Names {
    hide: Vec<Name>,
    index: Vec<Name>,
    /// Those with placeholders, which each request renders into its key.
    live: Vec<Template>,
    /// When there are none.
    fixed: Option<Resolved>,
}

#[derive(Debug)]
enum Name {
    Fixed(Vec<u8>),
    /// By number in `live`.
    Live(usize),
}

impl Names {
    pub(super) fn build(hide: &[String], index: &[String], build: &mut Build<'_>) -> Self {
        let mut live = Vec::new();
        let mut name = |written: &String| {
            let template = build.template(written);
            match template.literal() {
                Some(literal) => Name::Fixed(literal.as_bytes().to_vec()),
                None => {
                    live.push(template);
                    Name::Live(live.len() - 1)
                }
            }
        };
        let (hide, index) = (hide.iter().map(&mut name).collect(), index.iter().map(&mut name).collect());
        let mut names = Self { hide, index, live, fixed: None };
        if names.live.is_empty() {
            names.fixed = Some(names.with(&[]));
        }
        names
    }

    /// The names, those with placeholders taken from the end of a key.
    fn resolve(&self, mut live: &[u8]) -> Cow<'_, Resolved> {
        if let Some(fixed) = &self.fixed {
            return Cow::Borrowed(fixed);
        }
        let mut values = Vec::with_capacity(self.live.len());
        while let Some((len, rest)) = live.split_first_chunk() {
            let (value, rest) = rest.split_at(u32::from_be_bytes(*len) as usize);
            values.push(value);
            live = rest;
        }
        Cow::Owned(self.with(&values))
    }

    fn with(&self, values: &[&[u8]]) -> Resolved {
        let value = |name: &Name| match name {
            Name::Fixed(text) => text.clone(),
            Name::Live(number) => values[*number].to_vec(),
        };
        // Caddy: a pattern with a slash is a path, from the folder on that the server runs in.
        let pattern =
            |name: &Name| Some(value(name)).map(|text| if text.contains(&b'/') { absolute(&text) } else { text });
        Resolved {
            hidden: self.hide.iter().filter_map(pattern).collect(),
            index: self.index.iter().map(value).collect(),
        }
    }
}

/// The names as a request has them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Resolved {
    hidden: Vec<Vec<u8>>,
    pub(super) index: Vec<Vec<u8>>,
}

impl Resolved {
    /// Whether this path is hidden (Caddy's documentation of `hide`): without a slash a pattern hides whatever has a component of
    /// that name, with one it hides a path, all below it, and what it matches as a glob. Components of the root count too.
    pub(super) fn hides(&self, path: &[u8]) -> bool {
        if self.hidden.is_empty() {
            return false;
        }
        let path = absolute(path);
        self.hidden.iter().any(|pattern| {
            if !pattern.contains(&b'/') {
                return path.split(|&octet| octet == b'/').any(|component| glob(pattern, component, Space::Plain));
            }
            let below = path.strip_prefix(&**pattern).is_some_and(|rest| rest.is_empty() || rest[0] == b'/');
            below || glob(pattern, &path, Space::Plain)
        })
    }
}

/// The path from the file system's root on, without `.`, `..` and slashes at its end; nothing is looked at.
fn absolute(path: &[u8]) -> Vec<u8> {
    let mut whole = Vec::new();
    if !path.starts_with(b"/") {
        let folder = std::env::current_dir().unwrap_or_default();
        whole.extend_from_slice(folder.as_os_str().as_bytes());
        whole.push(b'/');
    }
    whole.extend_from_slice(path);
    let mut out = Vec::with_capacity(whole.len());
    path::clean(&whole, &mut out);
    if out.len() > 1 && out.last() == Some(&b'/') {
        out.pop();
    }
    out
}
