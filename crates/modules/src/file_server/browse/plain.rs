//! The listing as JSON and as text.

use std::fmt::Write as _;

use causeway_log_output::{TimeLayout, Zone};
use serde_json::{Value, json};

use super::list::{Item, Listing};
use super::page::{TIME_EXACT, human_size, link};

/// Renders an array of objects with Caddy's keys.
pub(super) fn json(listing: &Listing) -> Vec<u8> {
    let exact = TimeLayout::new(TIME_EXACT, Zone::Utc);
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
        "is_dir": item.is_folder,
        "is_symlink": item.is_symlink,
    });
    if let Some(to) = &item.leads_to {
        object["symlink_path"] = to.as_str().into();
    }
    object
}

/// Converts a Unix mode to Go's `FileMode`: the permission bits, and a bit for a folder or a symbolic link.
fn go_mode(mode: u32) -> u32 {
    let kind = match mode & libc::S_IFMT {
        libc::S_IFDIR => 1 << 31,
        libc::S_IFLNK => 1 << 27,
        _ => 0,
    };
    kind | mode & 0o777
}

pub(super) fn name(item: &Item) -> String {
    let mut name = String::from_utf8_lossy(&item.name).into_owned();
    if item.is_folder {
        name.push('/');
    }
    name
}

/// Renders an aligned table, with the times in one of Go's layouts. Control characters in a name would break it, or the reader's
/// terminal: they become `?`.
pub(super) fn text(listing: &Listing, layout: &str) -> Vec<u8> {
    let long = TimeLayout::new(layout, Zone::Utc);
    let rows: Vec<[String; 3]> = listing
        .items
        .iter()
        .map(|item| {
            let name = name(item).replace(char::is_control, "?");
            let size = if item.is_folder { "-".to_owned() } else { human_size(item.len) };
            [name, size, long.text(item.modified)]
        })
        .collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0).max(8);
    let (name_width, size_width) = (width(0), width(1));
    let mut out = String::new();
    let mut line = |name: &str, size: &str, modified: &str| {
        writeln!(out, "{name:name_width$}  {size:>size_width$}  {modified}").expect("writing to a string cannot fail");
    };
    line("Name", "Size", "Modified");
    line("----", "----", "--------");
    for [name, size, modified] in &rows {
        line(name, size, modified);
    }
    out.into_bytes()
}
