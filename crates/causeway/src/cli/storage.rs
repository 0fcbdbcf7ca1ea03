//! `storage export` and `storage import`: everything in a storage as a tar archive, with keys as names.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::{Component, Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context as _, bail};
use causeway::server::{data_directory_in, open_storage};
use causeway_certs::{Durability, SharedStorage, Storage};
use clap::{Args, Subcommand};
use tar::{Archive, Builder, EntryType, Header};

use super::output;
use super::replace::{FileMode, replace_file};
use super::source::{self, ConfigFlags};

/// The largest value that is imported: a thousand times a certificate.
const VALUE_BYTES_MAX: u64 = 16 << 20;

#[derive(Subcommand)]
pub(crate) enum StorageCommand {
    /// Write everything in the storage of a configuration to a tar archive
    Export(Export),
    /// Write everything in a tar archive to the storage of a configuration
    Import(Import),
}

#[derive(Args)]
pub(crate) struct Export {
    #[command(flatten)]
    config: ConfigFlags,
    /// The archive; `-` writes to standard output
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
}

#[derive(Args)]
pub(crate) struct Import {
    #[command(flatten)]
    config: ConfigFlags,
    /// The archive; `-` reads standard input
    #[arg(short, long, value_name = "FILE")]
    input: PathBuf,
}

impl StorageCommand {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        match self {
            Self::Export(export) => export.run(),
            Self::Import(import) => import.run(),
        }
    }
}

impl Export {
    fn run(self) -> anyhow::Result<()> {
        let storage = storage(&self.config)?;
        let file_name = self.output.display();
        let place = place(&*storage);
        // In memory first: an earlier archive is replaced only by a whole one.
        let mut archive = Vec::new();
        let count = pack(&*storage, &mut archive)?;
        if count == 0 {
            // Most likely the wrong storage: a user's default one is another than the server's.
            bail!("{place}: found no values, expected the storage of a server that has run");
        }
        if self.output.as_os_str() == "-" {
            io::stdout().lock().write_all(&archive).context("standard output")?;
        } else {
            // It holds private keys.
            replace_file(&self.output, &archive, FileMode::Private)
                .with_context(|| format!("--output: {file_name}"))?;
        }
        output::note(&format!("Exported {count} values from {place}"));
        Ok(())
    }
}

impl Import {
    fn run(self) -> anyhow::Result<()> {
        let is_stdin = self.input.as_os_str() == "-";
        if is_stdin && self.config.config.as_deref().is_some_and(|path| path.as_os_str() == "-") {
            bail!("found --config - and --input -, expected standard input for one of them");
        }
        let storage = storage(&self.config)?;
        let file_name = self.input.display();
        let count = if is_stdin {
            unpack(&*storage, io::stdin().lock()).context("standard input")?
        } else {
            let file = File::open(&self.input).with_context(|| format!("--input: {file_name}"))?;
            unpack(&*storage, file).with_context(|| format!("--input: {file_name}"))?
        };
        output::print(&format!("Imported {count} values into {}", place(&*storage)))
    }
}

fn storage(config: &ConfigFlags) -> anyhow::Result<SharedStorage> {
    let source = config.read()?;
    let adapted = source.adapt()?;
    source::warn(&adapted.warnings);
    let data = data_directory_in(&|name| source.environment.get(name));
    let storage = open_storage(&adapted.json, &source::registry(&source.environment), &data);
    storage.map_err(|error| source::explain(&source.document, &adapted, &error))
}

/// Where a storage is: its directory, or its server with the prefix of its keys.
fn place(storage: &dyn Storage) -> String {
    storage.location("").trim_end_matches('/').to_owned()
}

/// Writes all values to an archive and returns their number.
fn pack(storage: &dyn Storage, out: impl Write) -> anyhow::Result<usize> {
    let mut keys = storage.list("")?;
    keys.sort();
    let mut archive = Builder::new(BufWriter::new(out));
    let mut count = 0;
    for key in keys {
        // A server may remove values meanwhile.
        let (Some(value), Some(modified)) = (storage.load(&key)?, storage.modified(&key)?) else { continue };
        let mut header = Header::new_gnu();
        header.set_entry_type(EntryType::Regular);
        header.set_mode(0o600);
        header.set_size(value.len() as u64);
        header.set_mtime(modified.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs());
        archive.append_data(&mut header, &key, &*value)?;
        count += 1;
    }
    archive.into_inner()?.flush()?;
    Ok(count)
}

/// Stores all values of an archive and returns their number.
fn unpack(storage: &dyn Storage, input: impl Read) -> anyhow::Result<usize> {
    let mut count = 0;
    for entry in Archive::new(BufReader::new(input)).entries()? {
        let mut entry = entry?;
        let path = entry.path()?.into_owned();
        let name = path.display();
        match entry.header().entry_type() {
            EntryType::Regular | EntryType::Continuous => {}
            EntryType::Directory => continue,
            kind => bail!("{name}: found an entry of the kind {kind:?}, expected files only"),
        }
        let Some(key) = key(&path) else { bail!("{name}: found a path that leads out of the storage, or no UTF-8") };
        // Locks belong to running processes.
        if key.starts_with("locks/") {
            continue;
        }
        if entry.size() > VALUE_BYTES_MAX {
            bail!("{name}: found {} bytes, expected {VALUE_BYTES_MAX} at most", entry.size());
        }
        let mut value = Vec::new();
        entry.read_to_end(&mut value)?;
        storage.store(&key, &value, Durability::Flushed)?;
        count += 1;
    }
    Ok(count)
}

/// Returns the key of an entry; `None` for one that would be outside of the storage.
fn key(path: &Path) -> Option<String> {
    let mut parts = Vec::new();
    for component in path.components() {
        match component {
            Component::Normal(part) => parts.push(part.to_str()?),
            Component::CurDir => {}
            Component::Prefix(_) | Component::RootDir | Component::ParentDir => return None,
        }
    }
    Some(parts.join("/")).filter(|key| !key.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys() {
        for (path, want) in [
            ("a/b.crt", Some("a/b.crt")),
            ("./a//b.crt", Some("a/b.crt")),
            ("/etc/passwd", None),
            ("a/../../b", None),
            ("..", None),
            (".", None),
            ("", None),
        ] {
            assert_eq!(key(Path::new(path)).as_deref(), want, "{path}");
        }
    }
}
