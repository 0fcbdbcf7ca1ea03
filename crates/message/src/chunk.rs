//! Octets that several hold and that go home when the last one lets go.
//!
//! ```text
//! pool: Block ──into_mut──► BlockMut (one owner, may write) ──share──► Chunk, Chunk, …
//!   ▲                          │                                        │
//!   └──── Home::take_back ◄────┴── the last of them, on whatever thread ┘
//! ```
//! The block's memory and its count lie in one `Arc`, made once. Beside the `Arc`'s own count, which frees the memory, there is
//! a count of holders: exactly one drop takes it to zero, and that one hands its `Arc` to the home. Another thread may still be
//! on its way out of its own drop then; [`Block::into_mut`] sees that and answers with the block.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering, fence};
use std::sync::{Arc, Weak};

/// Where blocks come from and go back to.
pub trait Home: Send + Sync {
    /// Takes a block that nobody holds any more. Called exactly once for each time a block was lent, on the thread of
    /// whoever let go last; must not wait.
    fn take_back(&self, block: Block);
}

struct Storage {
    octets: Octets,
    holders: AtomicU32,
    home: Option<Weak<dyn Home>>,
}

/// Memory of our own, which may be written to, or what somebody else holds.
enum Octets {
    Own(Vec<u8>),
    Foreign(Box<dyn AsRef<[u8]> + Send + Sync>),
}

impl Octets {
    #[inline]
    fn as_slice(&self) -> &[u8] {
        match self {
            Self::Own(octets) => octets,
            Self::Foreign(owner) => (**owner).as_ref(),
        }
    }
}

/// A block at rest, in a pool. Dropping it frees its memory.
pub struct Block {
    storage: Arc<Storage>,
}

impl Block {
    /// A block of `len` octets that goes back to `home`; where that is gone, the block is freed. Two allocations, the only
    /// ones of its life.
    #[must_use]
    pub fn new(len: usize, home: Weak<dyn Home>) -> Self {
        let octets = Octets::Own(vec![0; len]);
        Self { storage: Arc::new(Storage { octets, holders: AtomicU32::new(0), home: Some(home) }) }
    }

    /// How many octets it has.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.storage.octets.as_slice().len()
    }

    /// Lends the block out. `Err` with the block while another thread has not yet left the drop of a former holder: a
    /// matter of instructions; take another block.
    pub fn into_mut(mut self) -> Result<BlockMut, Self> {
        if Arc::get_mut(&mut self.storage).is_none() {
            return Err(self);
        }
        self.storage.holders.store(1, Ordering::Relaxed);
        Ok(BlockMut { held: Held { storage: Some(self.storage) } })
    }
}

impl std::fmt::Debug for Block {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Block({})", self.capacity())
    }
}

/// One holder of a block. `storage` is there until the drop.
struct Held {
    storage: Option<Arc<Storage>>,
}

impl Held {
    fn storage(&self) -> &Storage {
        self.storage.as_ref().expect("held until dropped")
    }

    fn octets(&self) -> &[u8] {
        self.storage().octets.as_slice()
    }
}

impl Clone for Held {
    fn clone(&self) -> Self {
        // Relaxed as in `Arc`: whoever clones holds one already.
        self.storage().holders.fetch_add(1, Ordering::Relaxed);
        Self { storage: self.storage.clone() }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let Some(storage) = self.storage.take() else { return };
        if storage.holders.fetch_sub(1, Ordering::Release) != 1 {
            return;
        }
        // Pairs with the other holders' releases: their reads are over before the home sees the block.
        fence(Ordering::Acquire);
        if let Some(home) = storage.home.as_ref().and_then(Weak::upgrade) {
            home.take_back(Block { storage });
        }
    }
}

/// A lent block: one owner reads into it and hands out [`Chunk`]s of it.
pub struct BlockMut {
    held: Held,
}

impl BlockMut {
    /// How many octets it has.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.held.octets().len()
    }

    /// All its octets, what was read and what was not.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        self.held.octets()
    }

    /// Whether no chunk of it is out, so that it may be written to.
    #[must_use]
    pub fn is_unique(&mut self) -> bool {
        self.held.storage.as_mut().is_some_and(|storage| Arc::get_mut(storage).is_some())
    }

    /// All its octets, to write.
    ///
    /// # Panics
    /// While a chunk of it is out: ask [`BlockMut::is_unique`] first.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        let storage = self.held.storage.as_mut().and_then(Arc::get_mut);
        match &mut storage.expect("a block is written to while nobody else holds it").octets {
            Octets::Own(octets) => octets,
            Octets::Foreign(_) => unreachable!("a block's memory is its own"),
        }
    }

    /// A chunk of these octets, without copying; the block stays where it is, and is not written to before the chunk is
    /// gone.
    ///
    /// # Panics
    /// When the range passes the end of the block.
    #[must_use]
    pub fn share(&self, range: Range<usize>) -> Chunk {
        assert!(range.start <= range.end && range.end <= self.capacity(), "a range of the block");
        Chunk { source: Source::Held(self.held.clone()), from: range.start, to: range.end }
    }

    /// The block as a chunk of these octets.
    ///
    /// # Panics
    /// When the range passes the end of the block.
    #[must_use]
    pub fn freeze(self, range: Range<usize>) -> Chunk {
        assert!(range.start <= range.end && range.end <= self.capacity(), "a range of the block");
        Chunk { source: Source::Held(self.held), from: range.start, to: range.end }
    }
}

impl std::fmt::Debug for BlockMut {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "BlockMut({})", self.capacity())
    }
}

/// A range of octets that do not change: of a pool's block, of a vector, or of the program itself. Cloning it counts, it does not
/// copy.
#[derive(Clone)]
pub struct Chunk {
    source: Source,
    from: usize,
    to: usize,
}

#[derive(Clone)]
enum Source {
    Static(&'static [u8]),
    Held(Held),
}

impl Chunk {
    /// Octets of the program itself; nothing is counted.
    #[must_use]
    pub const fn from_static(octets: &'static [u8]) -> Self {
        Self { source: Source::Static(octets), from: 0, to: octets.len() }
    }

    /// What `owner` holds, without copying: two allocations for the count. It is dropped with the last holder, on whatever thread
    /// that is. What it lends must stay as long as it was and not change.
    ///
    /// A kind of shared octets of another crate comes into an answer this way; for a few of them a copy costs less.
    #[must_use]
    pub fn from_owner(owner: impl AsRef<[u8]> + Send + Sync + 'static) -> Self {
        let to = owner.as_ref().len();
        let octets = Octets::Foreign(Box::new(owner));
        let storage = Arc::new(Storage { octets, holders: AtomicU32::new(1), home: None });
        Self { source: Source::Held(Held { storage: Some(storage) }), from: 0, to }
    }

    /// The octets.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        match &self.source {
            Source::Static(octets) => &octets[self.from..self.to],
            Source::Held(held) => &held.octets()[self.from..self.to],
        }
    }

    /// How many octets.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.to - self.from
    }

    /// None at all.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.from == self.to
    }

    /// A part of it, held on its own.
    ///
    /// # Panics
    /// When the range passes the end.
    #[must_use]
    pub fn slice(&self, range: Range<usize>) -> Self {
        assert!(range.start <= range.end && range.end <= self.len(), "a range of the chunk");
        Self { source: self.source.clone(), from: self.from + range.start, to: self.from + range.end }
    }

    /// Takes the first `count` octets off, to be held on their own.
    ///
    /// # Panics
    /// When there are fewer.
    #[must_use]
    pub fn split_to(&mut self, count: usize) -> Self {
        if count == self.len() {
            return std::mem::take(self);
        }
        let first = self.slice(0..count);
        self.advance(count);
        first
    }

    /// Drops the first `count` octets from view.
    ///
    /// # Panics
    /// When there are fewer.
    pub fn advance(&mut self, count: usize) {
        assert!(count <= self.len(), "at most what is there");
        self.from += count;
    }
}

impl From<Vec<u8>> for Chunk {
    /// Takes the vector over: one allocation for the count, no copy. Its memory is freed with the last holder.
    fn from(octets: Vec<u8>) -> Self {
        let to = octets.len();
        let octets = Octets::Own(octets);
        let storage = Arc::new(Storage { octets, holders: AtomicU32::new(1), home: None });
        Self { source: Source::Held(Held { storage: Some(storage) }), from: 0, to }
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
    /// The length only: a body may be a secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Chunk({})", self.len())
    }
}
