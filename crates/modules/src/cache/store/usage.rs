//! Statistics of a store.

/// The result of a lookup, for the metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lookup {
    /// A fresh response was served.
    Hit,
    /// A stale response was served.
    Stale,
    /// The key has no response.
    UriMiss,
    /// The key has responses to other requests only.
    VaryMiss,
    /// The request's directives required the origin.
    Request,
    /// The response was stale.
    Expired,
}

impl Lookup {
    /// All results.
    pub const ALL: [Self; 6] = [Self::Hit, Self::Stale, Self::UriMiss, Self::VaryMiss, Self::Request, Self::Expired];

    /// The result's name in the metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Hit => "hit",
            Self::Stale => "stale",
            Self::UriMiss => "uri_miss",
            Self::VaryMiss => "vary_miss",
            Self::Request => "request",
            Self::Expired => "expired",
        }
    }
}

/// Statistics of the caches of a process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Memory in use, in bytes.
    pub bytes: usize,
    /// The bound on it.
    pub bytes_max: usize,
    /// Stored responses.
    pub responses: usize,
    /// Keys that were dropped because of the bound.
    pub evicted: u64,
    /// Files in directories.
    pub files: usize,
    /// Their bytes on the disk.
    pub file_bytes: u64,
    /// Lookups by their result, in the order of [`Lookup::ALL`].
    pub lookups: [u64; Lookup::ALL.len()],
}

impl Usage {
    /// Adds the numbers of another store.
    pub(in crate::cache) fn add(&mut self, other: &Self) {
        let Self { bytes, bytes_max, responses, evicted, files, file_bytes, lookups } = self;
        *bytes += other.bytes;
        *bytes_max += other.bytes_max;
        *responses += other.responses;
        *evicted += other.evicted;
        *files += other.files;
        *file_bytes += other.file_bytes;
        lookups.iter_mut().zip(other.lookups).for_each(|(sum, more)| *sum += more);
    }
}
