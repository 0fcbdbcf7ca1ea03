//! What a worker remembers of a file.

use std::borrow::Cow;
use std::sync::Arc;

use causeway_message::Chunk;
use causeway_pipeline::FileSlice;

use super::disk::{self, File, Seen};
use crate::fresh::{Cost, Costly};

/// What an entry takes up beside its content, roughly.
const ENTRY_OCTETS: usize = 256;

/// A file, ready to be answered with.
pub(super) struct Entry {
    pub(super) main: Version,
    /// Its compressed versions, by the coding's number.
    pub(super) sides: Box<[(usize, Version)]>,
    /// What the file system said of them.
    pub(super) seen: Arc<Seen>,
    pub(super) content_type: Option<Cow<'static, str>>,
    /// Seconds since 1970, and as a field value.
    pub(super) modified: Option<(u64, Box<str>)>,
}

/// Content with what names it.
pub(super) struct Version {
    pub(super) content: Content,
    /// Octets of content.
    pub(super) len: u64,
    pub(super) etag: Option<Box<[u8]>>,
}

pub(super) enum Content {
    Small(Chunk),
    Large(FileSlice),
}

impl From<Box<File>> for Entry {
    /// On the worker: the chunks' counts are its own.
    fn from(file: Box<File>) -> Self {
        Self {
            main: file.main.into(),
            sides: file.sides.into_iter().map(|(coding, version)| (coding, version.into())).collect(),
            seen: Arc::new(file.seen),
            content_type: file.content_type,
            modified: file.modified,
        }
    }
}

impl From<disk::Version> for Version {
    fn from(version: disk::Version) -> Self {
        let (content, len) = match version.content {
            disk::Content::Small(octets) => {
                let len = octets.len() as u64;
                (Content::Small(Chunk::from(octets)), len)
            }
            disk::Content::Large(file, len) => (Content::Large(FileSlice { file, at: 0, len }), len),
        };
        Self { content, len, etag: version.etag }
    }
}

impl Costly for Entry {
    fn cost(&self) -> Cost {
        let mut cost = Cost { octets: ENTRY_OCTETS, open: 0 };
        for version in std::iter::once(&self.main).chain(self.sides.iter().map(|(_, version)| version)) {
            match &version.content {
                Content::Small(chunk) => cost.octets += chunk.len(),
                Content::Large(_) => cost.open += 1,
            }
        }
        cost
    }
}
