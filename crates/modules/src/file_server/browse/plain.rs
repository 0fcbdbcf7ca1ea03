//! The listing as JSON and as text.

use causeway_log_output::{TimeLayout, Zone};
use serde_json::{Value, json};

use super::list::{Item, Listing};
use super::page::link;
use crate::human_size;

/// Go's layout of times in JSON: RFC 3339 with as many decimals as needed.
const TIME_JSON: &str = "2006-01-02T15:04:05.999999999Z07:00";

/// Renders an array of objects with Caddy's keys.
pub(super) fn json(listing: &Listing) -> Vec<u8> {
    let exact = TimeLayout::new(TIME_JSON, Zone::Utc);
    let items: Vec<Value> = listing.items.iter().map(|item| object(item, &exact)).collect();
    let mut bytes = Value::Array(items).to_string().into_bytes();
    bytes.push(b'\n');
    bytes
}

fn object(item: &Item, exact: &TimeLayout) -> Value {
    let mut object = json!({
        "name": name(item),
        "size": item.len,
        "url": link(item),
        "mod_time": exact.text(item.modified),
        "mode": go_mode(item.mode),
        "is_dir": item.is_directory,
        "is_symlink": item.is_symlink,
    });
    if let Some(to) = &item.leads_to {
        object["symlink_path"] = to.as_str().into();
    }
    object
}

/// Converts a Unix mode to Go's `FileMode`, which has bits of its own for the kind of the file and for setuid, setgid
/// and sticky.
fn go_mode(mode: u32) -> u32 {
    let kind = match mode & libc::S_IFMT {
        libc::S_IFDIR => 1 << 31,
        libc::S_IFLNK => 1 << 27,
        libc::S_IFBLK => 1 << 26,
        libc::S_IFCHR => 1 << 26 | 1 << 21,
        libc::S_IFIFO => 1 << 25,
        libc::S_IFSOCK => 1 << 24,
        _ => 0,
    };
    let special = [(libc::S_ISUID, 1 << 23), (libc::S_ISGID, 1 << 22), (libc::S_ISVTX, 1 << 20)];
    let special = special.into_iter().filter(|(bit, _)| mode & bit != 0).fold(0, |all, (_, bit)| all | bit);
    kind | special | mode & 0o777
}

pub(super) fn name(item: &Item) -> String {
    let mut name = String::from_utf8_lossy(&item.name).into_owned();
    if item.is_directory {
        name.push('/');
    }
    name
}

/// Columns of a text are as wide as a multiple of this, the width of a tab.
const TAB: usize = 8;

/// Renders a table whose columns are aligned by tabs, as Go's `tabwriter` does, with the times in one of Go's layouts.
/// Control characters in a name would break it, or the reader's terminal: they become `?`.
pub(super) fn text(listing: &Listing, layout: &str) -> Vec<u8> {
    let long = TimeLayout::new(layout, Zone::Utc);
    let mut rows =
        vec![["Name", "Size", "Modified"].map(str::to_owned), ["----", "----", "--------"].map(str::to_owned)];
    rows.extend(listing.items.iter().map(|item| {
        [name(item).replace(char::is_control, "?"), human_size::binary(item.len), long.text(item.modified)]
    }));
    let chars = |text: &str| text.chars().count();
    // At least one character is between two columns.
    let width = |column: usize| rows.iter().map(|row| chars(&row[column]) + 1).max().unwrap_or(0).next_multiple_of(TAB);
    let widths = [width(0), width(1)];
    let mut out = String::new();
    for [name, size, modified] in &rows {
        for (text, width) in [name, size].into_iter().zip(widths) {
            out.push_str(text);
            out.extend(std::iter::repeat_n('\t', (width - chars(text)).div_ceil(TAB)));
        }
        out.push_str(modified);
        out.push('\n');
    }
    out.into_bytes()
}
