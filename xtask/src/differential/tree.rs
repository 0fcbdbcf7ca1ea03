//! The files that both servers serve: names with blanks, percent signs and dots, hidden files, directories with and
//! without an index, links, and precompressed versions. Dates are fixed, so that entity tags and listings are equal in
//! each run.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::{Duration, SystemTime};

use anyhow::Context as _;

/// 2024-02-29 12:00:00 UTC; each file is a minute younger than its predecessor.
const FIRST_DATE: u64 = 1_709_208_000;

const FILES: &[(&str, &str)] = &[
    ("index.html", "<!doctype html><title>home</title>\n"),
    ("a.html", "<p>a\n"),
    ("a.txt", "0123456789abcdefghijklmnopqrstuvwxyz\n"),
    ("b/index.html", "<p>index of b\n"),
    ("b/c.txt", "c in b\n"),
    ("b/.hidden", "hidden in b\n"),
    ("b/d/e.json", "{\"e\":1}\n"),
    (".secret", "secret\n"),
    (".git/config", "[core]\n"),
    ("foo bar.txt", "a blank\n"),
    ("foo%20bar.txt", "a percent sign\n"),
    ("a+b.txt", "a plus sign\n"),
    ("ü.txt", "an umlaut\n"),
    ("q?.txt", "a question mark\n"),
    ("empty.txt", ""),
    ("list/one.txt", "1\n"),
    ("list/two.md", "22\n"),
    ("list/three/deep.css", "p{}\n"),
    ("list/&<x>.txt", "signs of HTML\n"),
    ("x.js", "let x\n"),
    ("x.js.br", "br"),
    ("x.js.gz", "gzip"),
    ("x.js.sha256", "\"abc\""),
    ("data.bin", "\u{0}\u{1}\u{2}\u{3}"),
    ("noext", "no extension\n"),
    ("UPPER.TXT", "UPPER\n"),
    ("x.tar.gz", "tar"),
    ("404.html", "<p>not found\n"),
    ("500.html", "<p>failed\n"),
    ("img.svg", "<svg/>"),
    ("year/2024/05.html", "<p>May\n"),
];

/// Writes the files into the empty directory `root`.
pub(crate) fn plant(root: &Path) -> anyhow::Result<()> {
    for (index, (name, text)) in FILES.iter().enumerate() {
        let path = root.join(name);
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))?;
        }
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        date(&path, FIRST_DATE + 60 * index as u64)?;
    }
    let large: Vec<u8> = (0..200_000_u32).map(|at| b'a' + (at % 26) as u8).collect();
    fs::write(root.join("large.txt"), large)?;
    date(&root.join("large.txt"), FIRST_DATE)?;
    symlink("a.txt", root.join("link.txt"))?;
    symlink("b", root.join("linked"))?;
    symlink("nowhere", root.join("dangling"))?;
    for directory in ["b/d", "b", "list/three", "list", "year/2024", "year", ".git", "."] {
        date(&root.join(directory), FIRST_DATE)?;
    }
    Ok(())
}

fn date(path: &Path, seconds: u64) -> anyhow::Result<()> {
    let date = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
    let file = fs::File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    file.set_modified(date).with_context(|| format!("cannot date {}", path.display()))
}
