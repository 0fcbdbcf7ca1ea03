//! Checks that a directory's page sorts by the clicked column, and that file names are shown only as text.
//!
//! The tests rely on this markup: in `<thead>` a link or button for each sort order, `data-sort="name|size|time"`; in
//! `<tbody>` one `<tr class="entry">` per file, whose first `<a>` shows the file's name and links to it.

use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, SystemTime};

use anyhow::{Context, bail};
use serde_json::{Value, json};

use super::devtools::Tab;
use super::{PHONE_WIDTH_MAX, View, origin};

/// Name, size in bytes, and hours since the last change. The three orders and their reverses are all different.
const SORTED: [(&str, usize, u64); 4] =
    [("a.txt", 300, 20), ("b.txt", 100, 10), ("c.txt", 200, 30), ("d.txt", 400, 40)];

/// Names that are harmless as text. Each attacks a place where a page might interpret it: markup, an attribute, a URL's
/// path, query, fragment, escape or scheme, a template, or text direction.
const HOSTILE: [&str; 17] = [
    "plain.txt",
    "<b>x<b>.txt",
    "<img src=x onerror=injected=1>.txt",
    "\"quote'.txt",
    "\" onmouseover=injected=1 x=\".txt",
    "&lt;amp&amp;.txt",
    "%2f.txt",
    "%00.txt",
    "#hash?.txt",
    "?query=1&a=b.txt",
    "javascript:injected=1.txt",
    "back\\slash.txt",
    "{{.Name}} {http.request.uri} ${x}.txt",
    "with  two spaces.txt",
    "invoice\u{202e}fdp.txt",
    "plus+semi;comma,.txt",
    "Grüße-日本-\u{1f600}.txt",
];

/// A condition that is true after any hostile name has run as a script.
const INJECTED: &str = "typeof injected !== 'undefined'";

pub(super) fn fill_sorted(directory: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(directory)?;
    for (name, size, hours) in SORTED {
        let mut file = File::create(directory.join(name))?;
        file.write_all(&vec![b'x'; size])?;
        file.set_modified(SystemTime::now() - Duration::from_secs(hours * 3600))?;
    }
    Ok(())
}

pub(super) fn fill_hostile(directory: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(directory)?;
    for (at, name) in HOSTILE.iter().enumerate() {
        std::fs::write(directory.join(name), content(at)).with_context(|| format!("cannot write {name:?}"))?;
    }
    Ok(())
}

fn content(at: usize) -> String {
    format!("content of file {at}\n")
}

/// The row of one file, as the browser has parsed it.
struct ListingRow {
    name: String,
    href: String,
    /// Its elements with the names of their attributes, in order.
    shape: String,
}

fn rows(tab: &mut Tab<'_>) -> anyhow::Result<Vec<ListingRow>> {
    let found = tab.evaluate(
        "[...document.querySelectorAll('tbody tr.entry')].map(row => { const link = row.querySelector('a'); return { \
         name: link ? link.textContent.trim() : '', href: link ? link.href : '', shape: [...row.querySelectorAll('*')].map(\
         one => one.tagName + '[' + [...one.attributes].map(it => it.name) + ']').join(' ') } })",
    )?;
    let text = |row: &Value, key: &str| row[key].as_str().unwrap_or_default().to_owned();
    let rows = found.as_array().into_iter().flatten();
    Ok(rows
        .map(|row| ListingRow { name: text(row, "name"), href: text(row, "href"), shape: text(row, "shape") })
        .collect())
}

/// Clicks each column's header twice. Both directions must appear, in either order.
pub(super) fn check_sorting(tab: &mut Tab<'_>, view: View, complaints: &mut Vec<String>) -> anyhow::Result<()> {
    for key in ["name", "size", "time"] {
        let ascending = ascending(key);
        let mut seen = Vec::new();
        for _ in 0..2 {
            let inner = format!("thead [data-sort={key}] :is(a, button)");
            if !tab.click(&inner)? && !tab.click(&format!("thead [data-sort={key}]"))? {
                break;
            }
            tab.follow(Duration::from_secs(3))?;
            seen.push(rows(tab)?.into_iter().map(|row| row.name).collect::<Vec<_>>());
        }
        // A narrow page may omit columns other than the name.
        if seen.is_empty() && key != "name" && view.width < PHONE_WIDTH_MAX {
            continue;
        }
        let descending: Vec<&str> = ascending.iter().rev().copied().collect();
        let right = seen.len() == 2 && seen.contains(&owned(&ascending)) && seen.contains(&owned(&descending));
        if !right {
            complaints.push(format!("two clicks on data-sort={key} show {seen:?}, want {ascending:?} and its reverse"));
        }
    }
    Ok(())
}

fn ascending(key: &str) -> Vec<&'static str> {
    let mut files = SORTED.to_vec();
    match key {
        "size" => files.sort_by_key(|(_, size, _)| *size),
        "time" => files.sort_by_key(|(_, _, hours)| std::cmp::Reverse(*hours)),
        _ => files.sort_by_key(|(name, ..)| *name),
    }
    files.into_iter().map(|(name, ..)| name).collect()
}

fn owned(names: &[&str]) -> Vec<String> {
    names.iter().map(ToString::to_string).collect()
}

/// Checks that every hostile name is text, that its row has the plain file's markup, and that its link returns the
/// file.
pub(super) fn check_names(tab: &mut Tab<'_>, _: View, complaints: &mut Vec<String>) -> anyhow::Result<()> {
    let rows = rows(tab)?;
    if rows.len() != HOSTILE.len() {
        complaints.push(format!("{} rows for {} files", rows.len(), HOSTILE.len()));
    }
    let plain = rows.iter().find(|row| row.name == HOSTILE[0]).map_or("", |row| &row.shape).to_owned();
    let home = tab.evaluate("location.href")?.as_str().unwrap_or_default().to_owned();
    for (at, name) in HOSTILE.iter().enumerate() {
        let Some(row) = rows.iter().find(|row| row.name == *name) else {
            complaints.push(format!("no row says {name:?}"));
            continue;
        };
        if row.shape != plain {
            complaints.push(format!("{name:?} changes its row's markup: {} instead of {plain}", row.shape));
        }
        match fetch(&row.href, origin(&home)) {
            Ok(body) if body == content(at) => {}
            Ok(body) => complaints.push(format!("{name:?} leads to {}, which holds {body:?}", row.href)),
            Err(error) => complaints.push(format!("{name:?}: {error:#}")),
        }
    }
    // Hover over every link, to trigger injected handlers.
    tab.evaluate("document.querySelectorAll('a').forEach(it => it.dispatchEvent(new MouseEvent('mouseover')))")?;
    if tab.evaluate(INJECTED)? == json!(true) {
        complaints.push("a file name ran as a script".into());
    }
    Ok(())
}

/// Requests a link, as resolved by the browser, on a plain socket: a page's policy may forbid fetching, and the browser
/// might show or download the file or guess its type.
fn fetch(href: &str, home: &str) -> anyhow::Result<String> {
    let Some(path) = href.strip_prefix(home).filter(|path| path.starts_with('/')) else {
        bail!("leads away, to {href}")
    };
    let path = path.split('#').next().unwrap_or_default();
    let authority = home.rsplit("://").next().unwrap_or_default();
    let mut stream = TcpStream::connect(authority).with_context(|| format!("cannot connect to {authority}"))?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {authority}\r\nConnection: close\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer.split_once("\r\n\r\n").context("no head in the answer")?;
    let status = head.split(' ').nth(1).unwrap_or_default();
    if status != "200" {
        bail!("{href}: status {status}");
    }
    Ok(body.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_order_is_taken_for_another() {
        let mut orders: Vec<Vec<&str>> = ["name", "size", "time"].map(ascending).to_vec();
        let reverses: Vec<Vec<&str>> = orders.iter().map(|order| order.iter().rev().copied().collect()).collect();
        orders.extend(reverses);
        let count = orders.len();
        orders.sort();
        orders.dedup();
        assert_eq!(orders.len(), count);
    }
}
