//! The index of ordered tables: a B+ tree that many cores change at once.
//!
//! Every node has a version that each change moves on. Readers take no lock: they look at the
//! version before and after. Writers lock the nodes that they change, from the top down, and split
//! full ones on the way, so that a change never goes up again (optimistic lock coupling; Leis et
//! al., DaMoN 2016). The version of a leaf is also what protects a scan from phantoms: nothing was
//! inserted into the leaf while its version is the same. [Silo13 4.6]

use std::hint::spin_loop;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Mutex, OnceLock, PoisonError};

use super::Line;
use super::arena::Place;
use super::prefetch::prefetch;

mod leaf;
mod merge;

pub use leaf::{Inserted, Leaf, Near};
pub(super) use merge::Obsolete;

/// Entries of a node.
pub(super) const FANOUT: usize = 16;
/// Nodes of a chunk; less under Miri, which begins each word by itself.
const CHUNK: usize = if cfg!(miri) { 1 << 5 } else { 1 << 10 };
/// Chunks at most: 64 Mi nodes.
const CHUNKS_MAX: usize = if cfg!(miri) { 1 << 8 } else { 1 << 16 };

/// In a version: the node is being changed.
const LOCKED: u64 = 1;
/// In a version: the node is no part of the tree any more.
const OBSOLETE: u64 = 2;
/// The amount that a change adds to a version.
const STEP: u64 = 4;

/// A node's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeNumber(pub(super) u32);

/// A node: a cache line that is read first, and two each of keys and slots. Its entries are keys
/// with the child from that key on or, in a leaf, with a record's place.
#[derive(Debug, Default)]
#[repr(C, align(64))]
struct Node {
    version: AtomicU64,
    count: AtomicU64,
    is_leaf: AtomicU64,
    /// The lowest and highest key that may stand under it.
    low: AtomicU64,
    high: AtomicU64,
    /// See [`RangeIndex::read_until`].
    read_until: AtomicU64,
    keys: [AtomicU64; FANOUT],
    slots: [AtomicU64; FANOUT],
}

const _: () = assert!(size_of::<Node>() == 5 * 64, "a node has whole cache lines");

/// Another thread has changed the nodes that were read: begin again.
struct Changed;

/// How an insertion into an index ended.
pub(super) enum Insertion {
    /// With what it has changed, if the index is a tree.
    Done(Option<Inserted>),
    /// There is a record of that key already.
    Exists(Place),
    /// There is no more memory.
    Full,
}

const _: () = assert!(Near::NOWHERE.version & OBSOLETE != 0, "such a leaf is never met");

impl Node {
    fn get(word: &AtomicU64) -> u64 {
        word.load(Ordering::Acquire)
    }

    /// Asks for the lines of the node but the last one, which seldom has entries. Their cache
    /// misses overlap.
    #[inline]
    fn prefetch(&self) {
        prefetch(&self.version);
        prefetch(&self.keys[0]);
        prefetch(&self.keys[FANOUT / 2]);
        prefetch(&self.slots[0]);
    }

    /// The version of a node that is part of the tree and is not being changed.
    fn stable(&self) -> Result<u64, Changed> {
        loop {
            let version = Self::get(&self.version);
            if version & OBSOLETE != 0 {
                return Err(Changed);
            }
            if version & LOCKED == 0 {
                return Ok(version);
            }
            spin_loop();
        }
    }

    fn is_still(&self, version: u64) -> Result<(), Changed> {
        if Self::get(&self.version) == version { Ok(()) } else { Err(Changed) }
    }

    /// Locks a node of this version.
    fn lock(&self, version: u64) -> Result<(), Changed> {
        let locked = self.version.compare_exchange(
            version,
            version | LOCKED,
            // Who was not seen to lock sees what was there before that look.
            Ordering::SeqCst,
            Ordering::Relaxed,
        );
        locked.map(|_| ()).map_err(|_| Changed)
    }

    /// Lets go of a node that was changed; returns its new version.
    fn changed(&self) -> u64 {
        let version = (self.version.load(Ordering::Relaxed) & !LOCKED) + STEP;
        self.version.store(version, Ordering::Release);
        version
    }

    /// Lets go of a node that was not changed.
    fn unlock(&self) {
        self.version.fetch_and(!LOCKED, Ordering::Release);
    }

    fn count(&self) -> usize {
        // What is read while the node changes may be anything that was ever there, and is dropped.
        (Self::get(&self.count) as usize).min(FANOUT)
    }

    fn holds(&self, key: u64) -> bool {
        Self::get(&self.low) <= key && key <= Self::get(&self.high)
    }

    /// How many entries have a key that is `early`, as all before them have. Nothing here depends
    /// on a branch: which way a key goes is what a machine predicts worst.
    #[inline]
    fn search(&self, early: impl Fn(u64) -> bool) -> usize {
        let count = self.count();
        let is_early = |at: usize| (at < count) & early(Self::get(&self.keys[at & (FANOUT - 1)]));
        let mut found = 0;
        let mut half = FANOUT / 2;
        while half > 0 {
            found += half * usize::from(is_early(found + half - 1));
            half /= 2;
        }
        // The halves add up to one less than there are entries.
        found + usize::from(is_early(found))
    }

    /// How many entries have a key below `key`.
    fn below(&self, key: u64) -> usize {
        self.search(|other| other < key)
    }

    /// The position of the child that has `key`.
    fn child(&self, key: u64) -> usize {
        self.search(|other| other <= key).saturating_sub(1)
    }

    /// Where the keys of a full leaf part most: before the one that differs from its neighbour in
    /// the highest bit, the last of several. The second half begins with the lowest key of that
    /// prefix. Keys of one prefix, such as a district's orders, then get leaves of their own, and
    /// what is inserted behind them does not look like a change to scans of the keys that follow.
    /// Silo's trees have a layer for each prefix instead. [Silo13 4.6]
    fn parting(&self) -> (usize, u64) {
        let key = |at: usize| Self::get(&self.keys[at]);
        let differ = |at: &usize| (key(*at) ^ key(*at - 1)).checked_ilog2().unwrap_or_default();
        let middle = (1..FANOUT).max_by_key(differ).unwrap_or(FANOUT / 2);
        (middle, key(middle) >> differ(&middle) << differ(&middle))
    }

    fn entry(&self, at: usize) -> (u64, u64) {
        (Self::get(&self.keys[at]), Self::get(&self.slots[at]))
    }

    fn set_entry(&self, at: usize, (key, slot): (u64, u64)) {
        self.keys[at].store(key, Ordering::Release);
        self.slots[at].store(slot, Ordering::Release);
    }

    fn set_count(&self, count: usize) {
        self.count.store(count as u64, Ordering::Release);
    }

    fn insert_at(&self, at: usize, entry: (u64, u64)) {
        let count = self.count();
        for place in (at..count).rev() {
            self.set_entry(place + 1, self.entry(place));
        }
        self.set_entry(at, entry);
        self.set_count(count + 1);
    }

    fn remove_at(&self, at: usize) {
        let count = self.count();
        for place in at + 1..count {
            self.set_entry(place - 1, self.entry(place));
        }
        self.set_count(count - 1);
    }
}

#[cold]
fn new_chunk() -> Box<[Node]> {
    (0..CHUNK).map(|_| Node::default()).collect()
}

/// The tree. All keys are in it; its root has every key from 0 to the highest.
#[derive(Debug)]
pub(super) struct RangeIndex {
    chunks: Box<[OnceLock<Box<[Node]>>]>,
    root: AtomicU64,
    spare: Line<Spare>,
}

/// Nodes that no tree has.
#[derive(Debug, Default)]
struct Spare {
    /// The first that was never given out.
    next: AtomicUsize,
    free: Mutex<Vec<u32>>,
}

impl RangeIndex {
    pub(super) fn new() -> Self {
        let tree = Self {
            chunks: (0..CHUNKS_MAX).map(|_| OnceLock::new()).collect(),
            root: AtomicU64::new(0),
            spare: Line::default(),
        };
        let root = tree.allocate(true, (0, u64::MAX));
        assert!(root == Some(0), "the first node is the root");
        tree
    }

    pub(super) fn bytes(&self) -> u64 {
        let chunks = self.chunks.iter().filter(|chunk| chunk.get().is_some()).count();
        (chunks * CHUNK * size_of::<Node>()) as u64
    }

    /// Takes memory for `bytes` of further nodes, as far as there are so many.
    pub(super) fn reserve(&self, bytes: u64) {
        let first = self.spare.0.next.load(Ordering::Relaxed) / CHUNK;
        let chunks = bytes.div_ceil((CHUNK * size_of::<Node>()) as u64) as usize;
        for chunk in self.chunks.iter().skip(first).take(chunks) {
            chunk.get_or_init(new_chunk);
        }
    }

    fn node(&self, number: u32) -> &Node {
        let (chunk, at) = (number as usize / CHUNK, number as usize % CHUNK);
        match self.chunks[chunk].get() {
            Some(nodes) => &nodes[at],
            None => panic!("a number is one of a node that was given out"),
        }
    }

    /// A node without entries for the keys `low` to `high`.
    fn allocate(&self, is_leaf: bool, (low, high): (u64, u64)) -> Option<u32> {
        let freed = self.spare.0.free.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let number = match freed {
            Some(number) => number as usize,
            None => self.spare.0.next.fetch_add(1, Ordering::Relaxed),
        };
        if number / CHUNK >= CHUNKS_MAX {
            return None;
        }
        self.chunks[number / CHUNK].get_or_init(new_chunk);
        let node = self.node(number as u32);
        node.set_count(0);
        node.is_leaf.store(u64::from(is_leaf), Ordering::Relaxed);
        node.low.store(low, Ordering::Relaxed);
        node.high.store(high, Ordering::Relaxed);
        node.read_until.store(0, Ordering::Relaxed);
        // A version of an earlier use is never met again.
        let version = (node.version.load(Ordering::Relaxed) & !(LOCKED | OBSOLETE)) + STEP;
        node.version.store(version, Ordering::Release);
        Some(number as u32)
    }

    /// Gives a node back that [`RangeIndex::remove`] took out and no thread reads any more.
    pub(super) fn free(&self, node: NodeNumber) {
        self.spare.0.free.lock().unwrap_or_else(PoisonError::into_inner).push(node.0);
    }

    /// The way to the leaf of `key`; `visit` is told each node of it, with its version. With
    /// `splits`, no node on it is full, but for want of nodes.
    fn descend(
        &self,
        key: u64,
        splits: bool,
        mut visit: impl FnMut((u32, u64)),
    ) -> Result<Near, Changed> {
        let mut at = self.root.load(Ordering::Acquire) as u32;
        let mut version = self.node(at).stable()?;
        let mut parent: Option<(u32, u64)> = None;
        if self.root.load(Ordering::Acquire) as u32 != at {
            return Err(Changed);
        }
        loop {
            let node = self.node(at);
            if !node.holds(key) {
                return Err(Changed);
            }
            if splits && node.count() == FANOUT {
                self.split(parent, (at, version))?;
                return Err(Changed);
            }
            visit((at, version));
            if Node::get(&node.is_leaf) == 1 {
                node.is_still(version)?;
                return Ok(Near { leaf: at, version });
            }
            let child = node.entry(node.child(key)).1 as u32;
            node.is_still(version)?;
            self.node(child).prefetch();
            let child_version = self.node(child).stable()?;
            node.is_still(version)?;
            parent = Some((at, version));
            (at, version) = (child, child_version);
        }
    }

    /// Splits a full node in two. Its parent, if it has one, is not full.
    fn split(&self, parent: Option<(u32, u64)>, at: (u32, u64)) -> Result<(), Changed> {
        let node = self.node(at.0);
        let above = parent.map(|(number, version)| (self.node(number), version));
        if let Some((above, version)) = above {
            above.lock(version)?;
        }
        if node.lock(at.1).is_err() {
            above.inspect(|(above, _)| above.unlock());
            return Err(Changed);
        }
        let is_leaf = Node::get(&node.is_leaf) == 1;
        let (middle, first) = match is_leaf {
            true => node.parting(),
            false => (FANOUT / 2, node.entry(FANOUT / 2).0),
        };
        let right = self.allocate(is_leaf, (first, Node::get(&node.high)));
        let root = match (above, right) {
            (None, Some(_)) => self.allocate(false, (0, u64::MAX)),
            _ => None,
        };
        let (Some(right), true) = (right, above.is_some() || root.is_some()) else {
            panic!("{} nodes suffice", CHUNKS_MAX * CHUNK);
        };
        let other = self.node(right);
        for from in middle..FANOUT {
            other.set_entry(from - middle, node.entry(from));
        }
        other.set_count(FANOUT - middle);
        // A scan says until when it has read before it looks whether the node is locked.
        fence(Ordering::SeqCst);
        other.read_until.store(Node::get(&node.read_until), Ordering::Release);
        node.set_count(middle);
        node.high.store(first - 1, Ordering::Release);
        match (above, root) {
            (Some((above, _)), _) => {
                above.insert_at(above.child(Node::get(&node.low)) + 1, (first, right.into()));
                above.changed();
            }
            (None, Some(root)) => {
                let top = self.node(root);
                top.insert_at(0, (0, at.0.into()));
                top.insert_at(1, (first, right.into()));
                self.root.store(root.into(), Ordering::Release);
            }
            (None, None) => {}
        }
        node.changed();
        Ok(())
    }

    /// Repeats `work` until no other thread has changed the nodes that it read.
    fn until_unchanged<T>(work: impl Fn() -> Result<T, Changed>) -> T {
        loop {
            if let Ok(done) = work() {
                return done;
            }
            spin_loop();
        }
    }

    /// What `look` finds in the leaf in which `key` stands, or would stand. Begins at `near`, and
    /// leaves there where it has ended.
    #[inline]
    fn in_leaf<T>(&self, key: u64, near: &mut Near, look: impl Fn(&Node) -> T) -> T {
        let leaf = self.node(near.leaf);
        if Node::get(&leaf.version) == near.version && leaf.holds(key) {
            let found = look(leaf);
            if leaf.is_still(near.version).is_ok() {
                return found;
            }
        }
        let (found, way) = Self::until_unchanged(|| {
            let way = self.descend(key, false, |_| ())?;
            let leaf = self.node(way.leaf);
            let found = look(leaf);
            leaf.is_still(way.version)?;
            Ok((found, way))
        });
        *near = way;
        found
    }

    /// The place of the record of `key`.
    pub(super) fn find(&self, key: u64, near: &mut Near) -> Option<Place> {
        self.in_leaf(key, near, |leaf| {
            let at = leaf.below(key);
            let found = if at < leaf.count() { leaf.entry(at) } else { (!key, 0) };
            (found.0 == key).then_some(Place(found.1 as u32))
        })
    }

    /// The leaf in which `key` stands, or would stand. Begins at `near`, and leaves there where it
    /// has ended.
    pub(super) fn leaf_of(&self, key: u64, near: &mut Near) -> Leaf {
        let (entries, count, low, high) = self.in_leaf(key, near, |leaf| {
            let mut entries = [(0, Place::NONE); FANOUT];
            let count = leaf.count();
            for (at, entry) in entries[..count].iter_mut().enumerate() {
                let (key, slot) = leaf.entry(at);
                *entry = (key, Place(slot as u32));
            }
            (entries, count, Node::get(&leaf.low), Node::get(&leaf.high))
        });
        let (node, version) = (NodeNumber(near.leaf), near.version);
        Leaf { node, version, low, high, count, entries }
    }

    /// True if nothing has changed in a leaf since it had `version`.
    pub(super) fn is_unchanged(&self, node: NodeNumber, version: u64) -> bool {
        Node::get(&self.node(node.0).version) == version
    }

    /// Notes that a leaf was read until `timestamp`: what is inserted there later is later.
    pub(super) fn read_until(&self, node: NodeNumber, timestamp: u64) {
        self.node(node.0).read_until.fetch_max(timestamp, Ordering::SeqCst);
    }

    /// Until when the leaf of `key` was read.
    pub(super) fn was_read_until(&self, key: u64, near: &mut Near) -> u64 {
        self.in_leaf(key, near, |leaf| leaf.read_until.load(Ordering::SeqCst))
    }

    /// Adds the record of `key` at `place`, which `begin` begins, unless there is one already. No
    /// other of this key is added or taken out meanwhile. Begins at `near`, and leaves there where
    /// it has ended.
    pub(super) fn insert(
        &self,
        (key, place): (u64, Place),
        near: &mut Near,
        begin: impl FnOnce() -> Option<()>,
    ) -> Insertion {
        if self.spare.0.next.load(Ordering::Relaxed) + 64 > CHUNK * CHUNKS_MAX {
            return Insertion::Full;
        }
        let (leaf, way) = match self.lock_near(key, *near) {
            Ok(leaf) => (leaf, *near),
            Err(Changed) => Self::until_unchanged(|| {
                let way = self.descend(key, true, |_| ())?;
                let leaf = self.node(way.leaf);
                leaf.lock(way.version)?;
                Ok((leaf, way))
            }),
        };
        *near = way;
        let at = leaf.below(key);
        if at < leaf.count() && leaf.entry(at).0 == key {
            let found = Place(leaf.entry(at).1 as u32);
            leaf.unlock();
            return Insertion::Exists(found);
        }
        if begin().is_none() {
            leaf.unlock();
            return Insertion::Full;
        }
        leaf.insert_at(at, (key, place.0.into()));
        near.version = leaf.changed();
        let (node, before, after) = (NodeNumber(way.leaf), way.version, near.version);
        Insertion::Done(Some(Inserted { node, before, after }))
    }

    /// Locks the leaf `near` if it is as it was, `key` stands there and it is not full.
    fn lock_near(&self, key: u64, near: Near) -> Result<&Node, Changed> {
        let leaf = self.node(near.leaf);
        if Node::get(&leaf.version) != near.version {
            return Err(Changed);
        }
        // If these are not of one instant, the version has changed and the lock fails.
        let fits = leaf.holds(key) && leaf.count() < FANOUT;
        if !fits {
            return Err(Changed);
        }
        leaf.lock(near.version)?;
        Ok(leaf)
    }

    /// Takes the record of `key` at `place` out, if it is there. The second result are nodes that
    /// are empty now and were taken out with it.
    pub(super) fn remove(&self, key: u64, place: Place) -> (bool, Obsolete) {
        let left = Self::until_unchanged(|| {
            let way = self.descend(key, false, |_| ())?;
            let leaf = self.node(way.leaf);
            leaf.lock(way.version)?;
            let at = leaf.below(key);
            if at == leaf.count() || leaf.entry(at) != (key, place.0.into()) {
                leaf.unlock();
                return Ok(None);
            }
            leaf.remove_at(at);
            let left = leaf.count();
            leaf.changed();
            Ok(Some(left))
        });
        match left {
            Some(0) => (true, self.take_out(key)),
            left => (left.is_some(), Obsolete::default()),
        }
    }

    /// Calls `each` with every entry. Requires that no other thread changes the tree.
    pub(super) fn for_each(&self, each: &mut dyn FnMut(Place)) {
        let mut from = Some(0);
        let mut near = Near::NOWHERE;
        while let Some(key) = from {
            let leaf = self.leaf_of(key, &mut near);
            leaf.entries().iter().for_each(|(_, place)| each(*place));
            from = leaf.high.checked_add(1);
        }
    }
    /// The nodes of the tree. Requires that no other thread changes it.
    ///
    /// # Panics
    /// If the children of a node do not share its keys among them in their order.
    #[cfg(test)]
    pub(super) fn check(&self) -> usize {
        let mut nodes = 0;
        let mut left = vec![(self.root.load(Ordering::Acquire) as u32, (0, u64::MAX))];
        while let Some((number, range)) = left.pop() {
            let node = self.node(number);
            nodes += 1;
            assert!(node.stable().is_ok(), "a node of the tree is part of it");
            assert_eq!((Node::get(&node.low), Node::get(&node.high)), range);
            let entries: Vec<(u64, u64)> = (0..node.count()).map(|at| node.entry(at)).collect();
            assert!(entries.is_sorted_by(|one, two| one.0 < two.0));
            if Node::get(&node.is_leaf) == 1 {
                assert!(entries.iter().all(|(key, _)| node.holds(*key)));
                continue;
            }
            assert_eq!(entries.first().map(|(key, _)| *key), Some(range.0));
            let ends = entries.iter().skip(1).map(|(key, _)| key - 1).chain([range.1]);
            left.extend(
                entries.iter().zip(ends).map(|(entry, high)| (entry.1 as u32, (entry.0, high))),
            );
        }
        nodes
    }
}
