//! A listing by a template of the operator: `browse <template file>`.
//!
//! The dot of the template has Caddy's fields of a listing, beside those of `templates`.

use std::io::Read as _;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use causeway_go_template::{CallContext, FunctionError, IntegerType, Object, Signature, Type, Value};

use super::ListingQuery;
use super::list::{Item, Listing, Sort};
use super::page::link;
use super::plain::name;
use crate::human_size;
use crate::open_file::open_nonblocking;
use crate::templates::{DotFields, modified_at};

const NO_PARAMETERS: Signature = Signature::fixed(&[]);

/// A listing for a template.
pub(super) struct ListingFacts {
    pub(super) listing: Listing,
    query: ListingQuery,
}

impl ListingFacts {
    pub(super) fn new(listing: Listing, query: ListingQuery) -> Arc<Self> {
        Arc::new(Self { listing, query })
    }

    /// The directories on the way to this one: the link to each, and its text.
    fn breadcrumbs(&self) -> Value {
        let parts: Vec<_> = self.query.path.trim_end_matches('/').split('/').collect();
        let crumb = |(index, part): (usize, &&str)| {
            let text = if index == 0 && part.is_empty() { "/" } else { part };
            let link = "../".repeat(parts.len() - index - 1);
            Value::map([("Link", Value::from(link)), ("Text", Value::from(text))])
        };
        Value::list(parts.iter().enumerate().map(crumb).collect())
    }
}

fn size(bytes: u64) -> Value {
    Value::Integer(i64::try_from(bytes).unwrap_or(i64::MAX), IntegerType::Int64)
}

fn count(number: usize) -> Value {
    Value::Int(i64::try_from(number).unwrap_or(i64::MAX))
}

impl DotFields for ListingFacts {
    fn field(self: Arc<Self>, name: &str) -> Option<Value> {
        let Self { listing, query } = &*self;
        Some(match name {
            "Name" => match query.path.trim_end_matches('/').rsplit('/').next() {
                None | Some("") => "/".into(),
                Some(name) => name.into(),
            },
            "Path" => query.escaped.as_str().into(),
            "CanGoUp" => (query.path.len() > 1).into(),
            "Items" => {
                let item = |index| Value::Object(Rc::new(ItemValue { facts: Arc::clone(&self), index }));
                Value::list((0..listing.items.len()).map(item).collect())
            }
            "Offset" => count(listing.offset),
            // As in Caddy, 0 if there were fewer items.
            "Limit" => count(query.limit.filter(|limit| *limit <= listing.total() - listing.offset).unwrap_or(0)),
            "NumDirs" => count(listing.directories),
            "NumFiles" => count(listing.files),
            "TotalFileSize" => size(listing.own_bytes),
            "TotalFileSizeFollowingSymlinks" => size(listing.bytes),
            "Sort" => match query.order.sort {
                Sort::Name => "name",
                Sort::NameDirectoriesFirst => "namedirfirst",
                Sort::Size => "size",
                Sort::Time => "time",
            }
            .into(),
            "Order" => if query.order.descending { "desc" } else { "asc" }.into(),
            "Layout" => query.layout.into(),
            _ => return None,
        })
    }

    fn method(&self, name: &str) -> Option<Signature> {
        let is_known = matches!(name, "Breadcrumbs" | "HumanTotalFileSize" | "HumanTotalFileSizeFollowingSymlinks");
        is_known.then_some(NO_PARAMETERS)
    }

    fn invoke(&self, name: &str) -> Value {
        match name {
            "HumanTotalFileSize" => human_size::binary(self.listing.own_bytes).into(),
            "HumanTotalFileSizeFollowingSymlinks" => human_size::binary(self.listing.bytes).into(),
            _ => self.breadcrumbs(),
        }
    }
}

/// The listing alone, as an item's `Tpl`.
struct ListingValue(Arc<ListingFacts>);

impl std::fmt::Debug for ListingValue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ListingValue")
    }
}

impl Object for ListingValue {
    fn type_name(&self) -> &str {
        "*fileserver.browseTemplateContext"
    }

    fn field(&self, name: &str) -> Option<Value> {
        Arc::clone(&self.0).field(name)
    }

    fn method(&self, name: &str) -> Option<Signature> {
        self.0.method(name)
    }

    fn invoke(&self, name: &str, _: &[Value], _: &mut CallContext<'_>) -> Result<Value, FunctionError> {
        Ok(self.0.invoke(name))
    }
}

/// An entry of the directory.
struct ItemValue {
    facts: Arc<ListingFacts>,
    index: usize,
}

impl ItemValue {
    fn item(&self) -> &Item {
        &self.facts.listing.items[self.index]
    }
}

impl std::fmt::Debug for ItemValue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ItemValue")
    }
}

impl Object for ItemValue {
    fn type_name(&self) -> &str {
        "fileserver.fileInfo"
    }

    fn kind(&self) -> &str {
        "struct"
    }

    fn field(&self, field: &str) -> Option<Value> {
        let item = self.item();
        Some(match field {
            "Name" => name(item).into(),
            "Size" => size(item.len),
            "URL" => link(item).into(),
            "ModTime" => modified_at(item.modified),
            "Mode" => mode_text(item).into(),
            "IsDir" => item.is_directory.into(),
            "IsSymlink" => item.is_symlink.into(),
            "SymlinkPath" => item.leads_to.as_deref().unwrap_or_default().into(),
            "Tpl" => Value::Object(Rc::new(ListingValue(Arc::clone(&self.facts)))),
            _ => return None,
        })
    }

    fn method(&self, name: &str) -> Option<Signature> {
        match name {
            "HasExt" => Some(Signature::variadic(&[Type::String])),
            "HumanModTime" => Some(Signature::fixed(&[Type::String])),
            "HumanSize" => Some(NO_PARAMETERS),
            _ => None,
        }
    }

    fn invoke(&self, method: &str, arguments: &[Value], call: &mut CallContext<'_>) -> Result<Value, FunctionError> {
        let item = self.item();
        match method {
            "HumanSize" => Ok(human_size::binary(item.len).into()),
            "HumanModTime" => match modified_at(item.modified) {
                Value::Object(time) => time.invoke("Format", arguments, call),
                time => Ok(time),
            },
            _ => {
                let name = name(item).to_ascii_lowercase().into_bytes();
                let texts = arguments.iter().filter_map(Value::as_bytes);
                Ok(texts.map(<[u8]>::to_ascii_lowercase).any(|end| name.ends_with(&end)).into())
            }
        }
    }
}

/// The kind and the permissions in Go's notation: `drwxr-xr-x`.
fn mode_text(item: &Item) -> String {
    let kind = match item.mode & libc::S_IFMT {
        libc::S_IFDIR => 'd',
        libc::S_IFLNK => 'L',
        libc::S_IFIFO => 'p',
        libc::S_IFSOCK => 'S',
        libc::S_IFREG => '-',
        _ => 'D',
    };
    let bits = (0_u32..9).rev().zip("rwxrwxrwx".chars());
    let bit = |(bit, letter): (u32, char)| if item.mode & (1 << bit) == 0 { '-' } else { letter };
    std::iter::once(kind).chain(bits.map(bit)).collect()
}

/// Bytes of a template; a longer file is an error.
const TEMPLATE_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// Reads the template. Blocks.
///
/// # Errors
/// In one line, with the file's name.
pub(super) fn read_template(path: &Path) -> Result<Vec<u8>, String> {
    let fault = |error: &dyn std::fmt::Display| format!("browse: the template {}: {error}", path.display());
    let file = open_nonblocking(path).map_err(|error| fault(&error))?;
    let metadata = file.metadata().map_err(|error| fault(&error))?;
    if !metadata.is_file() {
        return Err(fault(&"found another kind of file, expected a regular one"));
    }
    // The file may grow after its length has been read.
    let mut template = Vec::new();
    file.take(TEMPLATE_BYTES_MAX + 1).read_to_end(&mut template).map_err(|error| fault(&error))?;
    if template.len() as u64 > TEMPLATE_BYTES_MAX {
        let length = metadata.len().max(template.len() as u64);
        return Err(fault(&format!("found {length} bytes, expected at most {TEMPLATE_BYTES_MAX}")));
    }
    Ok(template)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Opening a pipe without a writer would occupy the thread for ever.
    #[test]
    fn a_pipe_is_no_template() {
        let path = std::env::temp_dir().join(format!("causeway-browse-pipe-{}", std::process::id()));
        let made = std::process::Command::new("mkfifo").arg(&path).status().unwrap();
        assert!(made.success());
        let read = read_template(&path);
        std::fs::remove_file(&path).unwrap();
        let message = read.expect_err("a pipe");
        assert!(message.ends_with("found another kind of file, expected a regular one"), "{message}");
    }
}
