//! The sorted entries of a directory.

use std::cmp::Ordering;
use std::fs;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::MetadataExt as _;
use std::time::SystemTime;

use super::{Browse, ListingQuery};
use crate::file_server::disk::of_bytes;
use crate::file_server::locate::Resolved;

/// The sort key of a listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Sort {
    Name,
    #[default]
    NameDirectoriesFirst,
    Size,
    Time,
}

/// Sort key and direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Order {
    pub(super) sort: Sort,
    pub(super) descending: bool,
}

impl Order {
    /// Applies one of Caddy's words for the key. Returns false for an unknown word.
    pub(super) fn set_key(&mut self, word: &str) -> bool {
        self.sort = match word {
            "name" => Sort::Name,
            "namedirfirst" => Sort::NameDirectoriesFirst,
            "size" => Sort::Size,
            "time" => Sort::Time,
            _ => return false,
        };
        true
    }

    /// Applies one of Caddy's words for the direction. Returns false for an unknown word.
    pub(super) fn set_direction(&mut self, word: &str) -> bool {
        self.descending = match word {
            "asc" => false,
            "desc" => true,
            _ => return false,
        };
        true
    }

    /// Compares two items. When sorting by size, directories have none: they sort first, by name, as in Caddy.
    fn compare(self, a: &Item, b: &Item) -> Ordering {
        let by_name = || a.folded.cmp(&b.folded).then_with(|| a.name.cmp(&b.name));
        let order = match self.sort {
            Sort::Name => by_name(),
            Sort::NameDirectoriesFirst => b.is_directory.cmp(&a.is_directory).then_with(by_name),
            Sort::Size => match (a.is_directory, b.is_directory) {
                (false, false) => a.len.cmp(&b.len).then_with(by_name),
                _ => b.is_directory.cmp(&a.is_directory).then_with(by_name),
            },
            Sort::Time => a.modified.cmp(&b.modified).then_with(by_name),
        };
        if self.descending { order.reverse() } else { order }
    }
}

/// One entry of a directory.
pub(super) struct Item {
    /// As the file system stores it; not always UTF-8.
    pub(super) name: Vec<u8>,
    folded: String,
    pub(super) len: u64,
    /// The length of a symbolic link itself; of others, as `len`.
    own_len: u64,
    pub(super) modified: SystemTime,
    /// Permissions and file type, as in `st_mode`.
    pub(super) mode: u32,
    pub(super) is_directory: bool,
    pub(super) is_symlink: bool,
    /// The target of a symbolic link, if the configuration reveals it.
    pub(super) leads_to: Option<String>,
}

/// A directory's entries, sorted, after `offset` and `limit`.
pub(super) struct Listing {
    pub(super) items: Vec<Item>,
    /// Number of entries that are left out before the first item.
    pub(super) offset: usize,
    /// Number of directories and of files before `offset` and `limit` are applied.
    pub(super) directories: usize,
    pub(super) files: usize,
    /// The size of all files, and the same without following symbolic links.
    pub(super) bytes: u64,
    pub(super) own_bytes: u64,
    /// The latest modification time of the directory and its entries.
    pub(super) modified: SystemTime,
}

impl Listing {
    /// Reads the directory. An entry that cannot be inspected (removed during the read, or a dangling link) is shown
    /// with its own metadata, or omitted if that is unavailable too. Blocks.
    pub(super) fn read(
        directory: &[u8],
        names: &Resolved,
        browse: &Browse,
        query: &ListingQuery,
    ) -> std::io::Result<Self> {
        let mut listing = Self {
            items: Vec::new(),
            offset: 0,
            directories: 0,
            files: 0,
            bytes: 0,
            own_bytes: 0,
            modified: fs::metadata(of_bytes(directory))?.modified()?,
        };
        let mut path = directory.to_vec();
        path.push(b'/');
        let directory_len = path.len();
        for entry in fs::read_dir(of_bytes(directory))? {
            // Bounds time and memory, so it also bounds the totals.
            if listing.items.len() == browse.files_max {
                break;
            }
            let Ok(entry) = entry else { continue };
            path.truncate(directory_len);
            path.extend_from_slice(entry.file_name().as_bytes());
            if names.hides(&path) {
                continue;
            }
            let Some(item) = item(&entry, browse.reveal_symlinks) else { continue };
            listing.modified = listing.modified.max(item.modified);
            if item.is_directory {
                listing.directories += 1;
            } else {
                listing.files += 1;
                listing.bytes = listing.bytes.saturating_add(item.len);
                listing.own_bytes = listing.own_bytes.saturating_add(item.own_len);
            }
            listing.items.push(item);
        }
        // Sort everything first: `offset` and `limit` refer to the sorted list.
        listing.items.sort_unstable_by(|a, b| query.order.compare(a, b));
        // As in Caddy, an offset beyond the last entry is ignored.
        if query.offset <= listing.items.len() {
            listing.offset = query.offset;
            listing.items.drain(..query.offset);
        }
        listing.items.truncate(query.limit.unwrap_or(usize::MAX));
        Ok(listing)
    }

    /// Number of entries before `offset` and `limit` are applied.
    pub(super) fn total(&self) -> usize {
        self.directories + self.files
    }
}

fn item(entry: &fs::DirEntry, reveal_symlinks: bool) -> Option<Item> {
    let own = entry.metadata().ok()?;
    let (is_symlink, own_len) = (own.is_symlink(), own.len());
    // As in Caddy, a link has its target's size, and its own time and permissions.
    let target = if is_symlink { fs::metadata(entry.path()).ok() } else { None };
    let target = target.as_ref().unwrap_or(&own);
    let leads_to = if is_symlink && reveal_symlinks {
        fs::read_link(entry.path()).ok().map(|to| to.to_string_lossy().into_owned())
    } else {
        None
    };
    let name = entry.file_name().into_vec();
    Some(Item {
        // Folded once here, not in every comparison.
        folded: String::from_utf8_lossy(&name).to_lowercase(),
        name,
        len: target.len(),
        own_len,
        modified: own.modified().unwrap_or(SystemTime::UNIX_EPOCH),
        mode: own.mode(),
        is_directory: target.is_dir(),
        is_symlink,
        leads_to,
    })
}
