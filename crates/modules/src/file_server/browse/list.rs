//! What is in a folder, in which order.

use std::cmp::Ordering;
use std::fs;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::MetadataExt as _;
use std::time::SystemTime;

use super::{Asked, Browse};
use crate::file_server::disk::of_octets;
use crate::file_server::locate::Resolved;

/// By what a listing is sorted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Sort {
    Name,
    #[default]
    NameFoldersFirst,
    Size,
    Time,
}

/// By what, and whether from its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Order {
    pub(super) sort: Sort,
    pub(super) descending: bool,
}

impl Order {
    /// Takes one of Caddy's words; false for another.
    pub(super) fn set(&mut self, word: &str) -> bool {
        match word {
            "name" => self.sort = Sort::Name,
            "namedirfirst" => self.sort = Sort::NameFoldersFirst,
            "size" => self.sort = Sort::Size,
            "time" => self.sort = Sort::Time,
            "asc" => self.descending = false,
            "desc" => self.descending = true,
            _ => return false,
        }
        true
    }

    /// Folders have no size to be sorted by: they come first, by name, as in Caddy.
    fn compare(self, a: &Item, b: &Item) -> Ordering {
        let by_name = || a.folded.cmp(&b.folded).then_with(|| a.name.cmp(&b.name));
        let order = match self.sort {
            Sort::Name => by_name(),
            Sort::NameFoldersFirst => b.is_folder.cmp(&a.is_folder).then_with(by_name),
            Sort::Size => match (a.is_folder, b.is_folder) {
                (false, false) => a.len.cmp(&b.len).then_with(by_name),
                _ => b.is_folder.cmp(&a.is_folder).then_with(by_name),
            },
            Sort::Time => a.modified.cmp(&b.modified).then_with(by_name),
        };
        if self.descending { order.reverse() } else { order }
    }
}

/// One thing in a folder.
pub(super) struct Item {
    /// As the file system has it; not always UTF-8.
    pub(super) name: Vec<u8>,
    folded: String,
    pub(super) len: u64,
    pub(super) modified: SystemTime,
    /// Permission and kind, as `stat` says them.
    pub(super) mode: u32,
    pub(super) is_folder: bool,
    pub(super) is_symlink: bool,
    /// Where a link leads, when that is to be shown.
    pub(super) leads_to: Option<String>,
}

/// A folder's content, sorted and cut.
pub(super) struct Listing {
    pub(super) items: Vec<Item>,
    /// How many there are of each, the cut ones included.
    pub(super) folders: usize,
    pub(super) files: usize,
    pub(super) octets: u64,
    /// The newest change in it, or of it.
    pub(super) modified: SystemTime,
}

impl Listing {
    /// Reads the folder. What cannot be looked at (it went meanwhile, a link leads nowhere) is shown as what the folder
    /// itself knows of it, or left out.
    pub(super) fn read(folder: &[u8], names: &Resolved, browse: &Browse, asked: &Asked) -> std::io::Result<Self> {
        let mut listing = Self {
            items: Vec::new(),
            folders: 0,
            files: 0,
            octets: 0,
            modified: fs::metadata(of_octets(folder))?.modified()?,
        };
        let mut path = folder.to_vec();
        path.push(b'/');
        let folder_len = path.len();
        for entry in fs::read_dir(of_octets(folder))? {
            if listing.items.len() == browse.files_max {
                break;
            }
            let Ok(entry) = entry else { continue };
            path.truncate(folder_len);
            path.extend_from_slice(entry.file_name().as_bytes());
            if names.hides(&path) {
                continue;
            }
            let Some(item) = item(&entry, browse.reveal_symlinks) else { continue };
            listing.modified = listing.modified.max(item.modified);
            if item.is_folder {
                listing.folders += 1;
            } else {
                listing.files += 1;
                listing.octets = listing.octets.saturating_add(item.len);
            }
            listing.items.push(item);
        }
        listing.items.sort_unstable_by(|a, b| asked.order.compare(a, b));
        listing.items.drain(..asked.offset.min(listing.items.len()));
        listing.items.truncate(asked.limit.unwrap_or(usize::MAX));
        Ok(listing)
    }

    /// How many there are, the cut ones included.
    pub(super) fn total(&self) -> usize {
        self.folders + self.files
    }
}

fn item(entry: &fs::DirEntry, reveal_symlinks: bool) -> Option<Item> {
    let own = entry.metadata().ok()?;
    let is_symlink = own.is_symlink();
    let metadata = if is_symlink { fs::metadata(entry.path()).unwrap_or(own) } else { own };
    let leads_to = if is_symlink && reveal_symlinks {
        fs::read_link(entry.path()).ok().map(|to| to.to_string_lossy().into_owned())
    } else {
        None
    };
    let name = entry.file_name().into_vec();
    Some(Item {
        folded: String::from_utf8_lossy(&name).to_lowercase(),
        name,
        len: metadata.len(),
        modified: metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH),
        mode: metadata.mode(),
        is_folder: metadata.is_dir(),
        is_symlink,
        leads_to,
    })
}
