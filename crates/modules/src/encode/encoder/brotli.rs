//! An encoder of Brotli. The crate's encoders cannot be reset, so each content has a new one.

use brotli::enc::StandardAlloc;
use brotli::enc::encode::{BrotliEncoderOperation, BrotliEncoderParameter, BrotliEncoderStateStruct};

use super::{Goal, Progress};

/// The base 2 logarithm of the window: 256 KiB. The client needs as much memory, and the encoder twice of it. Not below
/// 17: the crate's encoders then search a hundred times longer.
const WINDOW_LOG: u32 = 18;

/// An encoder for one content.
pub(in crate::encode) struct Brotli(Box<BrotliEncoderStateStruct<StandardAlloc>>);

impl Brotli {
    /// Creates an encoder for content of `len` bytes, if the length is known.
    pub(in crate::encode) fn new(level: u32, len: Option<usize>) -> Self {
        let mut state = BrotliEncoderStateStruct::new(StandardAlloc::default());
        state.set_parameter(BrotliEncoderParameter::BROTLI_PARAM_QUALITY, level);
        state.set_parameter(BrotliEncoderParameter::BROTLI_PARAM_LGWIN, WINDOW_LOG);
        if let Some(len) = len {
            // A larger hint than the window would select tables of many megabytes.
            let hint = u32::try_from(len).unwrap_or(u32::MAX).min(1 << WINDOW_LOG);
            state.set_parameter(BrotliEncoderParameter::BROTLI_PARAM_SIZE_HINT, hint);
        }
        Self(Box::new(state))
    }

    /// As [`super::Encoder::step`].
    pub(in crate::encode) fn step(&mut self, input: &[u8], output: &mut [u8], goal: Goal) -> Option<Progress> {
        let operation = match goal {
            Goal::Consume => BrotliEncoderOperation::BROTLI_OPERATION_PROCESS,
            Goal::Flush => BrotliEncoderOperation::BROTLI_OPERATION_FLUSH,
            Goal::Finish => BrotliEncoderOperation::BROTLI_OPERATION_FINISH,
        };
        let (mut left, mut consumed) = (input.len(), 0);
        let (mut room, mut written) = (output.len(), 0);
        let is_ok = self.0.compress_stream(
            operation,
            &mut left,
            input,
            &mut consumed,
            &mut room,
            output,
            &mut written,
            &mut None,
            &mut |_, _, _, _| (),
        );
        let is_done = match goal {
            Goal::Consume => left == 0,
            Goal::Flush => left == 0 && !self.0.has_more_output(),
            Goal::Finish => self.0.is_finished(),
        };
        is_ok.then_some(Progress { consumed, written, is_done })
    }
}
