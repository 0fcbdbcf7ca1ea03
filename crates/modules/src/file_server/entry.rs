//! A cached file.

use std::borrow::Cow;
use std::sync::Arc;

use causeway_message::Chunk;
use causeway_pipeline::FileSlice;

use super::disk::{self, File, FileStamps};
use super::generated::{GeneratedCodings, GeneratedVariant};
use crate::fresh::{Cost, Costly};

/// Estimated overhead of an entry in bytes, in addition to its content.
const ENTRY_BYTES: usize = 256;

/// A file with everything that its responses need.
pub(super) struct FileEntry {
    pub(super) main: FileVariant,
    /// Its compressed variants, each with the index of its coding.
    pub(super) sidecars: Box<[(usize, FileVariant)]>,
    /// One variant for each coding that the server makes; none if the file is not eligible.
    pub(super) generated: Box<[GeneratedVariant]>,
    /// The metadata at the last lookup, for revalidation.
    pub(super) seen: Arc<FileStamps>,
    pub(super) content_type: Option<Cow<'static, str>>,
    /// Last-Modified in seconds since 1970, and as a field value.
    pub(super) modified: Option<(u64, Box<str>)>,
}

/// The content of the file or of one compressed variant, with its entity tag.
pub(super) struct FileVariant {
    pub(super) content: FileContent,
    /// Length of the content in bytes.
    pub(super) len: u64,
    pub(super) etag: Option<Box<[u8]>>,
}

pub(super) enum FileContent {
    Small(Chunk),
    Large(FileSlice),
}

impl FileEntry {
    /// Returns whether a file that would be sent from its descriptor has changed since it was opened. One system call
    /// for each variant that is not in memory. Content in memory always matches its length and validators.
    pub(super) fn has_changed(&self) -> bool {
        self.variants().any(|variant| match &variant.content {
            FileContent::Small(_) => false,
            FileContent::Large(slice) => slice.file.has_changed(),
        })
    }

    /// The file itself, then its compressed variants.
    fn variants(&self) -> impl Iterator<Item = &FileVariant> {
        std::iter::once(&self.main).chain(self.sidecars.iter().map(|(_, variant)| variant))
    }

    /// Runs on the worker, so that no other thread touches the chunks' reference counts.
    pub(super) fn new(file: Box<File>, generated: &GeneratedCodings) -> Self {
        let main = FileVariant::from(file.main);
        Self {
            generated: generated.of(&main, file.content_type.as_deref()),
            main,
            sidecars: file.sidecars.into_iter().map(|(coding, variant)| (coding, variant.into())).collect(),
            seen: Arc::new(file.seen),
            content_type: file.content_type,
            modified: file.modified,
        }
    }
}

impl From<disk::DiskVariant> for FileVariant {
    fn from(variant: disk::DiskVariant) -> Self {
        let (content, len) = match variant.content {
            disk::DiskContent::Small(bytes) => {
                let len = bytes.len() as u64;
                (FileContent::Small(Chunk::from(bytes)), len)
            }
            // The length at the time of opening, to which the validators belong.
            disk::DiskContent::Large(file) => {
                let len = file.opened().len;
                (FileContent::Large(FileSlice { file, at: 0, len }), len)
            }
        };
        Self { content, len, etag: variant.etag }
    }
}

impl Costly for FileEntry {
    fn cost(&self) -> Cost {
        let mut cost = Cost { bytes: ENTRY_BYTES, open: 0 };
        for variant in self.variants() {
            match &variant.content {
                FileContent::Small(chunk) => cost.bytes += chunk.len(),
                // Its bytes stay in the page cache; only the descriptor counts.
                FileContent::Large(_) => cost.open += 1,
            }
        }
        // A variant is shorter than the file. Its bytes count from the start, since it is made while the entry is
        // cached.
        if let FileContent::Small(chunk) = &self.main.content {
            cost.bytes += self.generated.len() * (ENTRY_BYTES + chunk.len());
        }
        cost
    }
}
