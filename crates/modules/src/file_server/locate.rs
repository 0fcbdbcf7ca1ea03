//! Maps a request's path to a path of the file system, and decides which files are hidden.

use std::borrow::Cow;
use std::os::unix::ffi::OsStrExt as _;

use causeway_message::{StatusCode, path};
use causeway_pipeline::{Build, Context, Fault, Template};

use super::FileServerPlan;
use crate::glob::{Space, glob};

/// The location to look up, as the cache key: the file's path, followed by the expanded placeholders of the configured
/// names (each with a 4-byte length). Owned, so that a job on the file thread pool can hold it.
#[derive(Clone)]
pub(super) struct FilePath {
    key: Vec<u8>,
    path_len: usize,
}

impl FilePath {
    pub(super) fn new(key: &[u8], path_len: usize) -> Self {
        Self { key: key.to_vec(), path_len }
    }

    pub(super) fn key(&self) -> &[u8] {
        &self.key
    }

    pub(super) fn path(&self) -> &[u8] {
        &self.key[..self.path_len]
    }

    /// The hidden patterns and index names for this request. Borrowed if no name contains a placeholder.
    pub(super) fn names<'s>(&self, plan: &'s FileServerPlan) -> Cow<'s, Resolved> {
        plan.names.resolve(&self.key[self.path_len..])
    }
}

/// Appends a request's cache key to `out` and returns the length of its path part.
///
/// # Errors
/// 400 for a path with a zero byte, which no file name can contain.
pub(super) fn key(plan: &FileServerPlan, cx: &mut Context, out: &mut Vec<u8>) -> Result<usize, Fault> {
    push_root(&plan.root, cx, out);
    join(cx.path(), out);
    if out.contains(&0) {
        return Err(Fault::from_status(StatusCode::BAD_REQUEST));
    }
    let path_len = out.len();
    for template in &plan.names.templates {
        let start = out.len();
        out.extend_from_slice(&[0; 4]);
        template.render(cx, out);
        // The length prefix keeps two lists of values with one concatenation distinct.
        let len = u32::try_from(out.len() - start - 4).expect("a context's text is far below 4 GiB");
        out[start..start + 4].copy_from_slice(&len.to_be_bytes());
    }
    Ok(path_len)
}

/// Appends the root, a [`template of a directory`](Build::template_of_directory), without trailing slashes.
pub(crate) fn push_root(root: &Template, cx: &mut Context, out: &mut Vec<u8>) {
    let start = out.len();
    root.render(cx, out);
    if out.len() == start {
        out.push(b'.');
    }
    while out.len() > start && out.last() == Some(&b'/') {
        out.pop();
    }
}

/// Appends the request's decoded path without its trailing slash. Dot segments are resolved first, so that none can
/// lead above the root.
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

/// The configured names: index files of a directory, and patterns of hidden files.
#[derive(Debug)]
pub(super) struct Names {
    hide: Vec<ConfiguredName>,
    index: Vec<ConfiguredName>,
    /// The names with placeholders, which each request expands into its key.
    templates: Vec<Template>,
    /// Resolved at load if no name contains a placeholder.
    fixed: Option<Resolved>,
}

#[derive(Debug)]
enum ConfiguredName {
    Fixed(Vec<u8>),
    /// Index in `templates`.
    Templated(usize),
}

impl Names {
    pub(super) fn build(hide: &[String], index: &[String], build: &mut Build<'_>) -> Self {
        let mut templates = Vec::new();
        let mut name = |written: &String| {
            let template = build.template(written);
            match template.literal() {
                Some(literal) => ConfiguredName::Fixed(literal.as_bytes().to_vec()),
                None => {
                    templates.push(template);
                    ConfiguredName::Templated(templates.len() - 1)
                }
            }
        };
        let (mut hide, index): (Vec<_>, _) =
            (hide.iter().map(&mut name).collect(), index.iter().map(&mut name).collect());
        // Absolute, so that each has a slash and is a path.
        let own = build.own_files().iter().map(|path| absolute(path.as_os_str().as_bytes()));
        hide.extend(own.map(ConfiguredName::Fixed));
        let mut names = Self { hide, index, templates, fixed: None };
        if names.templates.is_empty() {
            names.fixed = Some(names.with(&[]));
        }
        names
    }

    /// Returns the names for a request; `expanded` is the part of its key after the path.
    fn resolve(&self, mut expanded: &[u8]) -> Cow<'_, Resolved> {
        if let Some(fixed) = &self.fixed {
            return Cow::Borrowed(fixed);
        }
        let mut values = Vec::with_capacity(self.templates.len());
        while let Some((len, rest)) = expanded.split_first_chunk() {
            let (value, rest) = rest.split_at(u32::from_be_bytes(*len) as usize);
            values.push(value);
            expanded = rest;
        }
        Cow::Owned(self.with(&values))
    }

    fn with(&self, values: &[&[u8]]) -> Resolved {
        let value = |name: &ConfiguredName| match name {
            ConfiguredName::Fixed(text) => text.clone(),
            ConfiguredName::Templated(number) => values[*number].to_vec(),
        };
        // Caddy: a pattern with a slash is a path, relative to the server's working directory.
        let pattern = |name: &ConfiguredName| {
            let text = value(name);
            if text.contains(&b'/') { absolute(&text) } else { text }
        };
        Resolved { hidden: self.hide.iter().map(pattern).collect(), index: self.index.iter().map(value).collect() }
    }
}

/// The names with all placeholders expanded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Resolved {
    hidden: Vec<Vec<u8>>,
    pub(super) index: Vec<Vec<u8>>,
}

impl Resolved {
    /// Returns whether this path is hidden (Caddy's documentation of `hide`). A pattern without a slash hides every
    /// path with a component that it matches. A pattern with a slash is a path: it hides that path, everything below
    /// it, and every path that it matches as a glob. Components of the root count too.
    pub(super) fn hides(&self, path: &[u8]) -> bool {
        if self.hidden.is_empty() {
            return false;
        }
        let path = absolute(path);
        self.hidden.iter().any(|pattern| {
            if !pattern.contains(&b'/') {
                return path.split(|&byte| byte == b'/').any(|component| glob(pattern, component, Space::Plain));
            }
            // `/a` hides `/a` and `/a/b`, not `/ab`.
            let below = path.strip_prefix(&**pattern).is_some_and(|rest| rest.is_empty() || rest[0] == b'/');
            below || glob(pattern, &path, Space::Plain)
        })
    }
}

/// Makes a path absolute and removes `.`, `..` and trailing slashes. Purely lexical: does not access the files.
pub(crate) fn absolute(path: &[u8]) -> Vec<u8> {
    let mut whole = Vec::new();
    if !path.starts_with(b"/") {
        let directory = std::env::current_dir().unwrap_or_default();
        whole.extend_from_slice(directory.as_os_str().as_bytes());
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
