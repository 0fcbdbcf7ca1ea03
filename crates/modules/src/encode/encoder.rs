//! Encoders that compress content piece by piece. An encoder holds 0.4 MiB (gzip) to tens of megabytes, so a worker's
//! encoders share a budget, and some of them are reused.
//!
//! - `brotli`: the encoder of br

pub(super) mod brotli;

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use flate2::{Compress, Compression, FlushCompress, Status};
use zstd::zstd_safe::{CCtx, CParameter, InBuffer, OutBuffer, ResetDirective, zstd_sys::ZSTD_EndDirective};

use self::brotli::Brotli;
use super::coding::Coding;

/// Memory of a worker's encoders in use. Beyond it responses are not compressed.
const IN_USE_BYTES_MAX: usize = 256 * 1024 * 1024;
/// Memory of the idle encoders that a worker keeps.
const IDLE_BYTES_MAX: usize = 8 * 1024 * 1024;
/// The base 2 logarithm of zstd's window: 128 KiB, as in Caddy. A client needs as much memory for each response.
const ZSTD_WINDOW_LOG: u32 = 17;
/// The base 2 logarithm of the entries of zstd's tables at levels that would have more: as many as the window has
/// bytes.
const ZSTD_TABLE_LOG: u32 = 17;
/// zstd compresses blocks of so many bytes, once it has one.
const ZSTD_BLOCK_BYTES: usize = 128 * 1024;
/// Brotli's blocks, at the levels that have any.
const BROTLI_BLOCK_BYTES: usize = 64 * 1024;
/// The base 2 logarithm of gzip's window, the largest of RFC 1951.
const GZIP_WINDOW_LOG: u8 = 15;

thread_local! {
    static IDLE: RefCell<Vec<Encoder>> = const { RefCell::new(Vec::new()) };
    /// Bytes of this worker's encoders in use. Counted in the encoders' leases, which other threads may drop.
    static IN_USE: Arc<AtomicUsize> = Arc::default();
}

/// A share of the budget of a worker's encoders.
pub(super) struct EncoderLease {
    bytes: usize,
    in_use: Arc<AtomicUsize>,
}

impl EncoderLease {
    /// Reserves the memory of one encoder; `None` if the budget is used up.
    pub(super) fn take(coding: Coding) -> Option<Self> {
        let bytes = memory(coding);
        IN_USE.with(|in_use| {
            // Only this thread adds, so the sum cannot exceed the maximum.
            if in_use.load(Ordering::Relaxed) + bytes > IN_USE_BYTES_MAX {
                return None;
            }
            in_use.fetch_add(bytes, Ordering::Relaxed);
            Some(Self { bytes, in_use: Arc::clone(in_use) })
        })
    }
}

impl Drop for EncoderLease {
    fn drop(&mut self) {
        self.in_use.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Returns the bytes that an encoder allocates, measured in its use and rounded up.
fn memory(coding: Coding) -> usize {
    const KIB: usize = 1024;
    const MIB: usize = 1024 * KIB;
    match coding {
        Coding::Gzip { .. } => 384 * KIB,
        Coding::Zstd { level: ..=1, .. } => MIB,
        Coding::Zstd { .. } => 1728 * KIB,
        Coding::Brotli { level: 0..=5 } => 3 * MIB,
        Coding::Brotli { level: 6 } => 4 * MIB,
        Coding::Brotli { level: 7 } => 10 * MIB,
        Coding::Brotli { level: 8 } => 18 * MIB,
        Coding::Brotli { .. } => 37 * MIB,
    }
}

/// An encoder in the middle of one body.
pub(super) struct Encoder {
    coding: Coding,
    state: State,
    /// Bytes consumed and not compressed yet.
    held: usize,
    /// `None` for an idle encoder.
    lease: Option<EncoderLease>,
}

enum State {
    Brotli(Brotli),
    Gzip(Compress),
    Zstd(CCtx<'static>),
}

/// The part of the body that a step of an encoder completes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Goal {
    /// Consume input; output may stay in the encoder.
    Consume,
    /// Output everything consumed, so that the client can decode it.
    Flush,
    /// End the body.
    Finish,
}

/// The result of a step.
#[derive(Debug, Clone, Copy)]
pub(super) struct Progress {
    /// Bytes of input consumed.
    pub(super) consumed: usize,
    /// Bytes of output written.
    pub(super) written: usize,
    /// The goal is reached. Otherwise the step is to be repeated with more room.
    pub(super) is_done: bool,
}

impl Encoder {
    /// Takes an idle encoder of the worker, or creates one. `len` is the content's length, if it is known.
    pub(super) fn take(coding: Coding, len: Option<u64>, lease: EncoderLease) -> Self {
        let idle = IDLE.with_borrow_mut(|idle| {
            let at = idle.iter().rposition(|encoder| encoder.coding == coding)?;
            Some(idle.swap_remove(at))
        });
        let mut encoder = idle.unwrap_or_else(|| Self::new(coding, len));
        if let (State::Zstd(context), Some(len)) = (&mut encoder.state, len) {
            // Shorter content gets smaller tables. Fails only in the middle of a body.
            let pledged = context.set_pledged_src_size(Some(len));
            debug_assert!(pledged.is_ok());
        }
        encoder.lease = Some(lease);
        encoder
    }

    fn new(coding: Coding, len: Option<u64>) -> Self {
        let state = match coding {
            Coding::Brotli { level } => {
                let len = len.map(|len| usize::try_from(len).unwrap_or(usize::MAX));
                State::Brotli(Brotli::new(level, len))
            }
            Coding::Gzip { level } => State::Gzip(Compress::new_gzip(Compression::new(level.min(9)), GZIP_WINDOW_LOG)),
            Coding::Zstd { level, checksum } => State::Zstd(zstd_context(level, checksum)),
        };
        Self { coding, state, held: 0, lease: None }
    }

    /// Returns the bytes of content that a step would compress. zstd and br gather a block of content first, and only
    /// copy it.
    pub(super) fn bytes_to_compress(&self, input: usize, goal: Goal) -> usize {
        let block = match self.coding {
            Coding::Gzip { .. } | Coding::Brotli { level: 0 | 1 } => return input,
            Coding::Brotli { .. } => BROTLI_BLOCK_BYTES,
            Coding::Zstd { .. } => ZSTD_BLOCK_BYTES,
        };
        if goal == Goal::Consume && self.held + input < block { 0 } else { self.held + input }
    }

    /// Runs one step. `None` if the encoder failed, which only a lack of memory causes.
    pub(super) fn step(&mut self, input: &[u8], output: &mut [u8], goal: Goal) -> Option<Progress> {
        let work = self.bytes_to_compress(input.len(), goal);
        let step = match &mut self.state {
            State::Brotli(brotli) => brotli.step(input, output, goal)?,
            State::Gzip(compress) => {
                let flush = match goal {
                    Goal::Consume => FlushCompress::None,
                    Goal::Flush => FlushCompress::Sync,
                    Goal::Finish => FlushCompress::Finish,
                };
                let (before_in, before_out) = (compress.total_in(), compress.total_out());
                let status = compress.compress(input, output, flush).ok()?;
                let consumed = (compress.total_in() - before_in) as usize;
                let written = (compress.total_out() - before_out) as usize;
                let is_done = match goal {
                    Goal::Consume => consumed == input.len(),
                    // zlib: a flush is complete when it leaves room in the output.
                    Goal::Flush => written < output.len(),
                    Goal::Finish => status == Status::StreamEnd,
                };
                Progress { consumed, written, is_done }
            }
            State::Zstd(context) => {
                let directive = match goal {
                    Goal::Consume => ZSTD_EndDirective::ZSTD_e_continue,
                    Goal::Flush => ZSTD_EndDirective::ZSTD_e_flush,
                    Goal::Finish => ZSTD_EndDirective::ZSTD_e_end,
                };
                let mut source = InBuffer::around(input);
                let mut target = OutBuffer::around(output);
                let left = context.compress_stream2(&mut target, &mut source, directive).ok()?;
                let is_done = if goal == Goal::Consume { source.pos() == input.len() } else { left == 0 };
                Progress { consumed: source.pos(), written: target.pos(), is_done }
            }
        };
        // An estimate: the encoders do not tell how much they hold.
        self.held = if work == 0 { self.held + step.consumed } else { 0 };
        Some(step)
    }

    /// Returns the encoder to the worker's pool, in any state.
    pub(super) fn recycle(mut self) {
        match &mut self.state {
            // It cannot be reset.
            State::Brotli(_) => return,
            State::Gzip(compress) => compress.reset(),
            State::Zstd(context) => {
                if context.reset(ResetDirective::SessionOnly).is_err() {
                    return;
                }
            }
        }
        self.held = 0;
        self.lease = None;
        IDLE.with_borrow_mut(|idle| {
            let kept: usize = idle.iter().map(|encoder| memory(encoder.coding)).sum();
            if kept + memory(self.coding) <= IDLE_BYTES_MAX {
                idle.push(self);
            }
        });
    }
}

/// Creates a compressor of zstd.
pub(super) fn zstd_context(level: i32, checksum: bool) -> CCtx<'static> {
    let mut context = CCtx::create();
    let parameters = [
        CParameter::CompressionLevel(level),
        CParameter::WindowLog(ZSTD_WINDOW_LOG),
        CParameter::ChecksumFlag(checksum),
    ];
    // Without these, the higher levels have tables for windows of many megabytes.
    let tables = [CParameter::HashLog(ZSTD_TABLE_LOG), CParameter::ChainLog(ZSTD_TABLE_LOG)];
    for parameter in parameters.into_iter().chain(if level > 3 { tables.to_vec() } else { Vec::new() }) {
        // These fail only for values out of libzstd's range.
        let set = context.set_parameter(parameter);
        debug_assert!(set.is_ok());
    }
    context
}
