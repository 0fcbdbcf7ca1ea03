//! The files of templates, in one directory.

use std::fs::{self, File, Metadata};
use std::io::{self, Read as _};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::PathBuf;
use std::rc::Rc;
use std::time::SystemTime;

use causeway_go_template::{CallContext, FunctionError, IntegerType, Object, Signature, Value};
use causeway_message::path;

use super::dates;
use super::text::lossy;
use crate::open_file::open_nonblocking;

/// Bytes of a file that a template reads.
const FILE_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// The directory. As in Go's `http.Dir`, a name never leads out of it, except through symbolic links.
pub(super) struct TemplateDirectory(PathBuf);

impl TemplateDirectory {
    /// An empty name is the working directory.
    pub(super) fn at(root: &[u8]) -> Self {
        Self(if root.is_empty() { ".".into() } else { std::ffi::OsStr::from_bytes(root).into() })
    }

    fn path(&self, name: &[u8]) -> Result<PathBuf, FunctionError> {
        if name.contains(&0) {
            return Err("the name of a file has a zero byte".into());
        }
        let mut cleaned = Vec::new();
        path::clean(&[b"/", name].concat(), &mut cleaned);
        let relative = cleaned.strip_prefix(b"/").unwrap_or(&cleaned);
        Ok(self.0.join(std::ffi::OsStr::from_bytes(relative)))
    }

    /// Opens a regular file or a directory. The contents of others, such as a pipe, could have no end.
    fn open(&self, name: &[u8]) -> Result<(File, Metadata), FunctionError> {
        let path = self.path(name)?;
        let opened = open_nonblocking(&path).and_then(|file| {
            let metadata = file.metadata()?;
            if metadata.is_file() || metadata.is_dir() {
                return Ok((file, metadata));
            }
            Err(io::Error::from(io::ErrorKind::InvalidInput))
        });
        opened.map_err(|error| file_error(name, &error))
    }

    pub(super) fn read(&self, name: &[u8], call: &mut CallContext<'_>) -> Result<Vec<u8>, FunctionError> {
        let (file, metadata) = self.open(name)?;
        call.charge_memory(usize::try_from(metadata.len()).unwrap_or(usize::MAX))?;
        let mut bytes = Vec::new();
        let read = file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes);
        read.map_err(|error| file_error(name, &error))?;
        if bytes.len() as u64 > FILE_BYTES_MAX {
            return Err(format!("open {}: a file of more than {FILE_BYTES_MAX} bytes", lossy(name)).into());
        }
        Ok(bytes)
    }

    pub(super) fn has(&self, name: &[u8]) -> bool {
        self.open(name).is_ok()
    }

    pub(super) fn stat(&self, name: &[u8]) -> Result<Value, FunctionError> {
        let (_, metadata) = self.open(name)?;
        let path = self.path(name)?;
        let name = path.file_name().unwrap_or_default().as_bytes().to_vec();
        Ok(Value::Object(Rc::new(FileInfo { name, metadata })))
    }

    /// Returns the names in a directory, sorted; Go's are in the order of the file system.
    pub(super) fn list(&self, name: &[u8], call: &mut CallContext<'_>) -> Result<Value, FunctionError> {
        let (_, metadata) = self.open(name)?;
        if !metadata.is_dir() {
            return Err(format!("{} is not a directory", lossy(name)).into());
        }
        let mut names = Vec::new();
        for entry in fs::read_dir(self.path(name)?).map_err(|error| file_error(name, &error))? {
            let entry = entry.map_err(|error| file_error(name, &error))?.file_name().into_vec();
            call.charge_memory(entry.len() + 64)?;
            names.push(entry);
        }
        names.sort();
        Ok(Value::strings(names))
    }
}

fn file_error(name: &[u8], error: &io::Error) -> FunctionError {
    format!("open {}: {error}", lossy(name)).into()
}

/// Go's `fs.FileInfo`.
#[derive(Debug)]
struct FileInfo {
    name: Vec<u8>,
    metadata: Metadata,
}

impl Object for FileInfo {
    fn type_name(&self) -> &str {
        "*os.fileStat"
    }

    fn method(&self, name: &str) -> Option<Signature> {
        matches!(name, "Name" | "Size" | "IsDir" | "ModTime").then_some(Signature::fixed(&[]))
    }

    fn invoke(&self, name: &str, _: &[Value], _: &mut CallContext<'_>) -> Result<Value, FunctionError> {
        Ok(match name {
            "Name" => self.name.clone().into(),
            "ModTime" => dates::local(self.metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH)),
            "IsDir" => self.metadata.is_dir().into(),
            _ => Value::Integer(i64::try_from(self.metadata.len()).unwrap_or(i64::MAX), IntegerType::Int64),
        })
    }
}
