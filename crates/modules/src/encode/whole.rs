//! Compresses content that is in memory as a whole: faster and smaller than piece by piece.
//!
//! gzip comes from libdeflate, which needs all of the content. For responses of equal size it takes about half of
//! zlib's time.

use std::cell::RefCell;

use libdeflater::{CompressionLvl, Compressor};
use zstd::zstd_safe::{self, CCtx};

use super::coding::Coding;
use super::encoder::brotli::Brotli;
use super::encoder::{self, Goal};

/// Compressors that a thread keeps, one for each coding and level. One of gzip has up to 1 MiB, one of zstd at the
/// default level 0.8 MiB.
const KEPT_MAX: usize = 4;

/// A compressor that serves one content after another.
enum Reused {
    Gzip(Compressor),
    Zstd(CCtx<'static>),
}

thread_local! {
    static KEPT: RefCell<Vec<(Coding, Reused)>> = const { RefCell::new(Vec::new()) };
}

/// Returns how many bytes `len` bytes of content have at most when compressed.
pub(super) fn bytes_max(coding: Coding, len: usize) -> usize {
    match coding {
        Coding::Zstd { .. } => zstd_safe::compress_bound(len),
        // Stored blocks: 5 bytes for at least 10 000 bytes of content, as libdeflate makes them, and the header and
        // trailer. Brotli's are smaller.
        Coding::Brotli { .. } | Coding::Gzip { .. } => len + 5 * (len / 5000 + 1) + 64,
    }
}

/// Compresses `content` into `output`, whose length is at least [`bytes_max`]. Returns the bytes written; `None` if the
/// encoder failed, which only a lack of memory causes. Allocates nothing if the thread has done the same before, except
/// for br.
pub(super) fn compress_into(coding: Coding, content: &[u8], output: &mut [u8]) -> Option<usize> {
    match coding {
        Coding::Brotli { level } => {
            let step = Brotli::new(level, Some(content.len())).step(content, output, Goal::Finish)?;
            step.is_done.then_some(step.written)
        }
        Coding::Gzip { level } => with_kept(coding, || Reused::gzip(level), content, output),
        Coding::Zstd { level, checksum } => {
            let new = || Reused::Zstd(encoder::zstd_context(level, checksum));
            with_kept(coding, new, content, output)
        }
    }
}

/// Compresses with the compressor of this coding and level that the thread keeps. Makes it if there is none.
fn with_kept(coding: Coding, new: impl FnOnce() -> Reused, content: &[u8], output: &mut [u8]) -> Option<usize> {
    KEPT.with_borrow_mut(|kept| {
        let at = match kept.iter().position(|(kept, _)| *kept == coding) {
            Some(at) => at,
            None => {
                if kept.len() == KEPT_MAX {
                    kept.remove(0);
                }
                kept.push((coding, new()));
                kept.len() - 1
            }
        };
        match &mut kept[at].1 {
            Reused::Gzip(compressor) => compressor.gzip_compress(content, output).ok(),
            Reused::Zstd(context) => context.compress2(output, content).ok(),
        }
    })
}

/// Compresses `content`. `None` as in [`compress_into`].
pub(crate) fn compressed(coding: Coding, content: &[u8]) -> Option<Vec<u8>> {
    let mut output = vec![0; bytes_max(coding, content.len())];
    let written = compress_into(coding, content, &mut output)?;
    output.truncate(written);
    Some(output)
}

impl Reused {
    fn gzip(level: u32) -> Self {
        // libdeflate reaches zlib's size one level lower.
        let level = match level {
            0..=8 => level.saturating_sub(1).max(1),
            level => level,
        };
        let level = i32::try_from(level).ok().and_then(|level| CompressionLvl::new(level).ok());
        Self::Gzip(Compressor::new(level.unwrap_or_default()))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    // The bound holds for content that does not compress, and the thread's compressors serve one content after another.
    #[test]
    fn any_content_fits_and_round_trips() {
        let mut random = 11u64;
        let noise = Vec::from_iter((0..200_000).map(|_| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 56) as u8
        }));
        let codings = [
            Coding::Gzip { level: 1 },
            Coding::Gzip { level: 5 },
            Coding::Gzip { level: Coding::GZIP_BEST },
            Coding::Zstd { level: 1, checksum: true },
            Coding::Zstd { level: 3, checksum: false },
            Coding::Brotli { level: 0 },
            Coding::Brotli { level: 5 },
        ];
        for len in [0, 1, 100, 4999, 5000, 65_535, 200_000] {
            for content in [&noise[..len], &vec![b'a'; len]] {
                for coding in codings {
                    let coded = compressed(coding, content).expect("it fits");
                    let mut plain = Vec::new();
                    match coding {
                        Coding::Gzip { .. } => {
                            flate2::read::GzDecoder::new(&coded[..]).read_to_end(&mut plain).unwrap();
                        }
                        Coding::Zstd { .. } => plain = zstd::decode_all(&coded[..]).unwrap(),
                        Coding::Brotli { .. } => {
                            brotli::Decompressor::new(&coded[..], 4096).read_to_end(&mut plain).unwrap();
                        }
                    }
                    assert!(plain == content, "{coding:?} {len}");
                }
            }
        }
    }
}
