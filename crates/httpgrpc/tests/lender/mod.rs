//! A block pool that counts the blocks in use.
#![allow(dead_code, reason = "each test uses some of it")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};

use causeway_message::{Block, BlockMut, Chunk, Home};

const BLOCK_BYTES: usize = 32 * 1024;

#[derive(Default)]
struct Shelf {
    blocks: Mutex<Vec<Block>>,
    out: AtomicUsize,
}

impl Home for Shelf {
    fn take_back(&self, block: Block) {
        self.out.fetch_sub(1, Ordering::Relaxed);
        self.blocks.lock().unwrap().push(block);
    }
}

#[derive(Default)]
pub(crate) struct Lender(Arc<Shelf>);

impl Lender {
    pub(crate) fn take(&self) -> BlockMut {
        self.0.out.fetch_add(1, Ordering::Relaxed);
        let block = self.0.blocks.lock().unwrap().pop();
        let lender: Weak<Shelf> = Arc::downgrade(&self.0);
        block.unwrap_or_else(|| Block::new(BLOCK_BYTES, lender)).into_mut().expect("it has one owner")
    }

    /// Returns a chunk in its own block.
    pub(crate) fn chunk(&self, bytes: &[u8]) -> Chunk {
        let mut block = self.take();
        block.as_mut_slice()[..bytes.len()].copy_from_slice(bytes);
        block.freeze(0..bytes.len())
    }

    /// Returns the number of blocks in use.
    pub(crate) fn out(&self) -> usize {
        self.0.out.load(Ordering::Relaxed)
    }
}

pub(crate) fn from_hex(hex: &str) -> Vec<u8> {
    let digit = |byte: u8| (byte as char).to_digit(16).expect("a digit") as u8;
    hex.as_bytes().chunks(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
}

pub(crate) fn framed(message: &[u8]) -> Vec<u8> {
    let mut out = vec![0];
    out.extend_from_slice(&(message.len() as u32).to_be_bytes());
    out.extend_from_slice(message);
    out
}

/// Encodes a length-delimited field.
pub(crate) fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![number << 3 | 2];
    let mut len = bytes.len();
    while len >= 128 {
        out.push(len as u8 | 128);
        len >>= 7;
    }
    out.push(len as u8);
    out.extend_from_slice(bytes);
    out
}

pub(crate) fn header(number: u8, key: &str, values: &[&str]) -> Vec<u8> {
    let values: Vec<u8> = values.iter().flat_map(|value| field(2, value.as_bytes())).collect();
    field(number, &[field(1, key.as_bytes()), values].concat())
}
