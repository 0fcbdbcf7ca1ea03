//! A block returns to its lender exactly once, from any thread, and never while a chunk can still read it.
#![allow(missing_docs, reason = "a test")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::thread;

use causeway_message::{Block, BlockMut, Chunk, Home};

/// Counts the blocks that return, and poisons them, so that a later read by a former holder fails the test.
#[derive(Default)]
struct PoisoningHome {
    back: AtomicUsize,
    blocks: Mutex<Vec<Block>>,
}

const POISON: u8 = 0xdd;

impl Home for PoisoningHome {
    fn take_back(&self, block: Block) {
        self.back.fetch_add(1, Ordering::SeqCst);
        // Another thread may still be inside its drop. So the block is poisoned when it is lent again.
        self.blocks.lock().unwrap().push(block);
    }
}

impl PoisoningHome {
    fn pop(&self) -> Option<BlockMut> {
        let block = self.blocks.lock().unwrap().pop()?;
        match block.into_mut() {
            Ok(mut block) => {
                block.as_mut_slice().fill(POISON);
                Some(block)
            }
            Err(block) => {
                self.blocks.lock().unwrap().push(block);
                None
            }
        }
    }
}

fn lender() -> (Arc<PoisoningHome>, Weak<dyn Home>) {
    let lender = Arc::new(PoisoningHome::default());
    let weak: Weak<dyn Home> = Arc::downgrade(&(lender.clone() as Arc<dyn Home>));
    (lender, weak)
}

#[test]
fn a_block_returns_to_its_lender_with_its_last_holder() {
    let (lender, weak) = lender();
    let mut block = Block::new(64, weak).into_mut().unwrap();
    assert!(block.is_unique());
    block.as_mut_slice()[..5].copy_from_slice(b"hello");
    let chunk = block.share(0..5);
    assert!(!block.is_unique());
    let (mut rest, part) = (chunk.clone(), chunk.slice(1..3));
    rest.advance(4);
    drop(chunk);
    drop(block);
    assert_eq!((lender.back.load(Ordering::SeqCst), part.as_slice(), rest.as_slice()), (0, &b"el"[..], &b"o"[..]));
    drop(part);
    drop(rest);
    assert_eq!(lender.back.load(Ordering::SeqCst), 1);
    let block = lender.pop().unwrap();
    assert!(block.as_slice().iter().all(|&byte| byte == POISON));
    let chunk = block.freeze(0..64);
    drop(chunk);
    assert_eq!(lender.back.load(Ordering::SeqCst), 2);
}

#[test]
#[should_panic(expected = "while no chunk shares it")]
fn a_shared_block_is_not_written_to() {
    let (_home, weak) = lender();
    let mut block = Block::new(8, weak).into_mut().unwrap();
    let _chunk = block.share(0..1);
    block.as_mut_slice();
}

#[test]
fn a_block_without_a_lender_is_freed() {
    let (lender, weak) = lender();
    let block = Block::new(8, weak).into_mut().unwrap();
    let chunk = block.freeze(0..8);
    drop(lender);
    assert_eq!(chunk.as_slice(), [0; 8]);
}

#[test]
fn vectors_and_statics_are_chunks_too() {
    let chunk = Chunk::from(b"abc".to_vec());
    assert_eq!(chunk.slice(1..3), Chunk::from_static(b"bc"));
    let mut rest = chunk.clone();
    assert_eq!((rest.split_to(1).as_slice(), rest.as_slice()), (&chunk.as_slice()[..1], &chunk.as_slice()[1..]));
    assert_eq!((rest.split_to(rest.len()).as_slice(), rest.len()), (&chunk.as_slice()[1..], 0));
    assert!(Chunk::default().is_empty());
}

#[test]
fn each_block_returns_once_and_unread_from_many_threads() {
    const ROUNDS: usize = 2000;
    let (lender, weak) = lender();
    let mut lent = 0;
    for round in 0..ROUNDS {
        let mut block = match lender.pop() {
            Some(block) => block,
            None => Block::new(256, weak.clone()).into_mut().unwrap(),
        };
        lent += 1;
        let mark = (round % 200) as u8;
        block.as_mut_slice().fill(mark);
        let chunks: Vec<Chunk> = (0..3).map(|at| block.share(at * 64..at * 64 + 64)).collect();
        let readers: Vec<_> = chunks
            .into_iter()
            .map(|chunk| {
                let read = move || {
                    let copy = chunk.clone();
                    drop(chunk);
                    assert!(copy.as_slice().iter().all(|&byte| byte == mark), "read after the last drop");
                };
                thread::spawn(read)
            })
            .collect();
        drop(block);
        // In every other round the next block is lent while the readers are still running.
        if round % 2 == 0 {
            for reader in readers {
                reader.join().unwrap();
            }
            assert_eq!(lender.back.load(Ordering::SeqCst), lent);
        } else {
            let other = lender.pop();
            lent += usize::from(other.is_some());
            for reader in readers {
                reader.join().unwrap();
            }
            drop(other);
            assert_eq!(lender.back.load(Ordering::SeqCst), lent);
        }
    }
}

/// Bytes that count their drops.
struct Owner(Vec<u8>, Arc<AtomicUsize>);

impl AsRef<[u8]> for Owner {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.1.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn foreign_bytes_are_shared_without_copying_and_dropped_once() {
    let dropped = Arc::new(AtomicUsize::new(0));
    let bytes: Vec<u8> = (0..100).collect();
    let place = bytes.as_ptr();
    let mut chunk = Chunk::from_owner(Owner(bytes, Arc::clone(&dropped)));
    assert_eq!((chunk.len(), chunk.as_slice().as_ptr()), (100, place));
    let first = chunk.split_to(10);
    assert_eq!((first.as_slice(), chunk.as_slice()[0]), (&(0..10).collect::<Vec<u8>>()[..], 10));
    drop(chunk);
    assert_eq!(dropped.load(Ordering::SeqCst), 0);
    thread::spawn(move || assert_eq!(first.slice(3..4).as_slice(), [3])).join().unwrap();
    assert_eq!(dropped.load(Ordering::SeqCst), 1);
    assert!(Chunk::from_owner(Owner(Vec::new(), dropped)).is_empty());
}
