//! Shared by both differential tests: pseudo-random numbers, content that can be verified, and a connection of a
//! machine to a stream.
#![allow(dead_code, missing_docs, unreachable_pub, reason = "each test file uses a part of it")]

use std::io::IoSlice;

use causeway_message::WriteList;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, ReadHalf, WriteHalf};
use tokio::sync::mpsc;

/// Pseudo-random numbers, reproducible from a seed.
#[derive(Clone)]
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 20) as usize % bound
    }

    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    /// Mostly small, sometimes large.
    pub fn size(&mut self) -> usize {
        let bound = [1, 10, 1000, 20_000, 60_000][self.below(5)];
        self.below(bound)
    }
}

/// The content of exchange number `seed`, `len` bytes.
pub fn content(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 + at / 256 + seed * 7) as u8).collect()
}

/// Reads and writes concurrently, so that neither side blocks on a peer that does not read.
pub struct Wire {
    pieces: mpsc::UnboundedReceiver<Vec<u8>>,
    write: WriteHalf<DuplexStream>,
}

impl Wire {
    pub fn new(io: DuplexStream, mut random: Random) -> Self {
        let (mut read, write): (ReadHalf<_>, _) = tokio::io::split(io);
        let (send, pieces) = mpsc::unbounded_channel();
        tokio::task::spawn_local(async move {
            loop {
                let mut piece = vec![0; [1, 9, 100, 16_384, 40_000][random.below(5)]];
                match read.read(&mut piece).await {
                    Ok(len @ 1..) => piece.truncate(len),
                    _ => return,
                }
                if send.send(piece).is_err() {
                    return;
                }
            }
        });
        Self { pieces, write }
    }

    /// Reads a piece; returns `false` at the end.
    pub async fn read(&mut self, input: &mut Vec<u8>) -> bool {
        let piece = self.pieces.recv().await;
        input.extend_from_slice(piece.as_deref().unwrap_or_default());
        piece.is_some()
    }

    /// Writes all queued bytes; returns `false` if the stream is closed.
    pub async fn write(&mut self, out: &mut WriteList) -> bool {
        while !out.is_empty() {
            let mut slices = [IoSlice::new(b""); 8];
            let used = out.slices(&mut slices);
            let bytes: Vec<u8> = slices[..used].iter().flat_map(|slice| slice.iter().copied()).collect();
            if self.write.write_all(&bytes).await.is_err() {
                return false;
            }
            out.advance(bytes.len());
        }
        true
    }
}
