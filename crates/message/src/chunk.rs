//! Reference-counted bytes that return to their pool when the last holder drops them.
//!
//! ```text
//! pool: Block ──into_mut──► BlockMut (one owner, may write) ──share──► Chunk, Chunk, …
//!   ▲                          │                                        │
//!   └──── Home::take_back ◄────┴──── the last drop, on any thread ──────┘
//! ```
//! A block's memory and its counter are in one `Arc`, allocated once. In addition to the `Arc`'s own count, which
//! frees the memory, there is a count of holders. Exactly one drop decrements it to zero, and that drop passes its
//! `Arc` to the [`Home`]. At that moment another thread may still be inside its own drop and own a second `Arc`
//! reference; [`Block::into_mut`] detects this and returns the block as an error.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering, fence};
use std::sync::{Arc, Weak};

/// The pool that lends blocks and takes them back.
pub trait Home: Send + Sync {
    /// Takes back a block that has no holder left. Called exactly once per [`Block::into_mut`], on the thread that
    /// dropped the last holder; must not block.
    fn take_back(&self, block: Block);
}

struct Storage {
    bytes: BlockMemory,
    holders: AtomicU32,
    home: Option<Weak<dyn Home>>,
}

/// Memory that is ours and writable, or memory that a foreign owner lends.
enum BlockMemory {
    Own(Vec<u8>),
    Foreign(Box<dyn AsRef<[u8]> + Send + Sync>),
}

impl BlockMemory {
    #[inline]
    fn as_slice(&self) -> &[u8] {
        match self {
            Self::Own(bytes) => bytes,
            Self::Foreign(owner) => (**owner).as_ref(),
        }
    }
}

/// An idle block in a pool. Dropping it frees its memory.
pub struct Block {
    storage: Arc<Storage>,
}

impl Block {
    /// Allocates a block of `len` bytes that returns to `home`, or is freed if `home` has been dropped. Two
    /// allocations; later use of the block does not allocate.
    #[must_use]
    pub fn new(len: usize, home: Weak<dyn Home>) -> Self {
        let bytes = BlockMemory::Own(vec![0; len]);
        Self { storage: Arc::new(Storage { bytes, holders: AtomicU32::new(0), home: Some(home) }) }
    }

    /// The block's size in bytes.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.storage.bytes.as_slice().len()
    }

    /// Lends the block out. Returns the block as `Err` while another thread has not yet finished the drop of a former
    /// holder. That lasts a few instructions; the caller takes another block.
    pub fn into_mut(mut self) -> Result<BlockMut, Self> {
        if Arc::get_mut(&mut self.storage).is_none() {
            return Err(self);
        }
        // Relaxed is enough: this thread has the only reference.
        self.storage.holders.store(1, Ordering::Relaxed);
        Ok(BlockMut { held: BlockRef { storage: Some(self.storage) } })
    }
}

impl std::fmt::Debug for Block {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Block({})", self.capacity())
    }
}

/// One holder of a block. `storage` is `Some` until the drop.
struct BlockRef {
    storage: Option<Arc<Storage>>,
}

impl BlockRef {
    fn storage(&self) -> &Storage {
        self.storage.as_ref().expect("held until dropped")
    }

    fn bytes(&self) -> &[u8] {
        self.storage().bytes.as_slice()
    }
}

impl Clone for BlockRef {
    fn clone(&self) -> Self {
        // Relaxed, as in `Arc`: the cloning thread already owns a reference.
        self.storage().holders.fetch_add(1, Ordering::Relaxed);
        Self { storage: self.storage.clone() }
    }
}

impl Drop for BlockRef {
    fn drop(&mut self) {
        let Some(storage) = self.storage.take() else { return };
        if storage.holders.fetch_sub(1, Ordering::Release) != 1 {
            return;
        }
        // Pairs with the releases of the other holders: their reads happen before the home can write to the block.
        fence(Ordering::Acquire);
        if let Some(home) = storage.home.as_ref().and_then(Weak::upgrade) {
            home.take_back(Block { storage });
        }
    }
}

/// A lent block: its one owner reads data into it and shares [`Chunk`]s of it.
pub struct BlockMut {
    held: BlockRef,
}

impl BlockMut {
    /// The block's size in bytes.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.held.bytes().len()
    }

    /// All bytes of the block, written or not.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        self.held.bytes()
    }

    /// Whether no chunk shares the block, so that it may be written.
    #[must_use]
    pub fn is_unique(&mut self) -> bool {
        self.held.storage.as_mut().is_some_and(|storage| Arc::get_mut(storage).is_some())
    }

    /// All bytes of the block, mutable.
    ///
    /// # Panics
    /// While a chunk shares the block; check [`BlockMut::is_unique`] first.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // `get_mut` succeeds only if no chunk holds a reference, so no reader can see the write.
        let storage = self.held.storage.as_mut().and_then(Arc::get_mut);
        match &mut storage.expect("a block is written only while no chunk shares it").bytes {
            BlockMemory::Own(bytes) => bytes,
            BlockMemory::Foreign(_) => unreachable!("a block's memory is its own"),
        }
    }

    /// Makes a chunk of this range without copying. The block cannot be written until the chunk is dropped.
    ///
    /// # Panics
    /// If the range exceeds the block.
    #[must_use]
    pub fn share(&self, range: Range<usize>) -> Chunk {
        assert!(range.start <= range.end && range.end <= self.capacity(), "a range of the block");
        Chunk { source: ChunkSource::Held(self.held.clone()), from: range.start, to: range.end }
    }

    /// Turns the block into a chunk of this range.
    ///
    /// # Panics
    /// If the range exceeds the block.
    #[must_use]
    pub fn freeze(self, range: Range<usize>) -> Chunk {
        assert!(range.start <= range.end && range.end <= self.capacity(), "a range of the block");
        Chunk { source: ChunkSource::Held(self.held), from: range.start, to: range.end }
    }
}

impl std::fmt::Debug for BlockMut {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "BlockMut({})", self.capacity())
    }
}

/// A range of immutable bytes: of a pool's block, of a vector, of a foreign owner, or static. A clone increments a
/// counter and does not copy.
#[derive(Clone)]
pub struct Chunk {
    source: ChunkSource,
    from: usize,
    to: usize,
}

#[derive(Clone)]
enum ChunkSource {
    Static(&'static [u8]),
    Held(BlockRef),
}

impl Chunk {
    /// A chunk of static bytes; no counter.
    #[must_use]
    pub const fn from_static(bytes: &'static [u8]) -> Self {
        Self { source: ChunkSource::Static(bytes), from: 0, to: bytes.len() }
    }

    /// Wraps `owner` without copying: two allocations. `owner` is dropped with the last chunk, on any thread. The
    /// slice that it lends must keep its length and contents.
    ///
    /// Use it to put another crate's shared bytes into a response. For a short slice a copy is cheaper.
    #[must_use]
    pub fn from_owner(owner: impl AsRef<[u8]> + Send + Sync + 'static) -> Self {
        let to = owner.as_ref().len();
        let bytes = BlockMemory::Foreign(Box::new(owner));
        let storage = Arc::new(Storage { bytes, holders: AtomicU32::new(1), home: None });
        Self { source: ChunkSource::Held(BlockRef { storage: Some(storage) }), from: 0, to }
    }

    /// The bytes of the range.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        match &self.source {
            ChunkSource::Static(bytes) => &bytes[self.from..self.to],
            ChunkSource::Held(held) => &held.bytes()[self.from..self.to],
        }
    }

    /// Length in bytes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.to - self.from
    }

    /// Whether the length is zero.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.from == self.to
    }

    /// Makes a chunk of a part of this one; it holds the block on its own.
    ///
    /// # Panics
    /// If the range exceeds the chunk.
    #[must_use]
    pub fn slice(&self, range: Range<usize>) -> Self {
        assert!(range.start <= range.end && range.end <= self.len(), "a range of the chunk");
        Self { source: self.source.clone(), from: self.from + range.start, to: self.from + range.end }
    }

    /// Removes the first `count` bytes and returns them as a chunk of their own.
    ///
    /// # Panics
    /// If there are fewer bytes.
    #[must_use]
    pub fn split_to(&mut self, count: usize) -> Self {
        if count == self.len() {
            // Taking all of it needs no second reference.
            return std::mem::take(self);
        }
        let first = self.slice(0..count);
        self.advance(count);
        first
    }

    /// Removes the first `count` bytes from the range.
    ///
    /// # Panics
    /// If there are fewer bytes.
    pub fn advance(&mut self, count: usize) {
        assert!(count <= self.len(), "at most the bytes that are left");
        self.from += count;
    }
}

impl From<Vec<u8>> for Chunk {
    /// Takes the vector over: one allocation for the counter, no copy. The last chunk frees the memory.
    fn from(bytes: Vec<u8>) -> Self {
        let to = bytes.len();
        let bytes = BlockMemory::Own(bytes);
        let storage = Arc::new(Storage { bytes, holders: AtomicU32::new(1), home: None });
        Self { source: ChunkSource::Held(BlockRef { storage: Some(storage) }), from: 0, to }
    }
}

impl Default for Chunk {
    fn default() -> Self {
        Self::from_static(b"")
    }
}

impl PartialEq for Chunk {
    fn eq(&self, other: &Self) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl Eq for Chunk {}

impl std::fmt::Debug for Chunk {
    /// Shows the length only: a body may be a secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Chunk({})", self.len())
    }
}
