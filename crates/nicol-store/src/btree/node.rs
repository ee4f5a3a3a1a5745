//! The tree itself: nodes in an arena, keys to record numbers.

use nicol_core::ids::Key;

/// Entries of a node.
const FANOUT: usize = 32;
/// Entries that every node but the root has at least.
const MIN: usize = FANOUT / 2;
/// Levels of inner nodes: `16^12` leaves are more than an arena of `u32` numbers has.
const LEVELS_MAX: usize = 12;
const NONE: u32 = u32::MAX;

/// A leaf: keys and their records, and its neighbours. An inner node: children, and the lower
/// bounds of their keys (the first child's bound is kept by the parent only).
#[derive(Clone, Debug)]
struct Node {
    keys: [Key; FANOUT],
    slots: [u32; FANOUT],
    len: usize,
    previous: u32,
    next: u32,
}

const BLANK: Node =
    Node { keys: [Key(0); FANOUT], slots: [NONE; FANOUT], len: 0, previous: NONE, next: NONE };

impl Node {
    fn keys(&self) -> &[Key] {
        &self.keys[..self.len]
    }

    fn insert(&mut self, at: usize, key: Key, slot: u32) {
        assert!(self.len < FANOUT, "a full node was split before");
        self.keys.copy_within(at..self.len, at + 1);
        self.slots.copy_within(at..self.len, at + 1);
        (self.keys[at], self.slots[at]) = (key, slot);
        self.len += 1;
    }

    fn remove(&mut self, at: usize) -> (Key, u32) {
        let entry = (self.keys[at], self.slots[at]);
        self.keys.copy_within(at + 1..self.len, at);
        self.slots.copy_within(at + 1..self.len, at);
        self.len -= 1;
        entry
    }

    /// The child whose keys may include `key`.
    fn child(&self, key: Key) -> usize {
        self.keys[1..self.len].partition_point(|bound| *bound <= key)
    }
}

/// A position in the key order: a leaf, and an entry in it or the end behind its last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cursor {
    leaf: u32,
    entry: usize,
}

/// The way from the root to a leaf: inner nodes, and which child was taken.
struct Path {
    steps: [(u32, usize); LEVELS_MAX],
    leaf: u32,
}

/// A B+ tree from keys to record numbers.
#[derive(Clone, Debug)]
pub(super) struct Nodes {
    arena: Vec<Node>,
    vacant: Vec<u32>,
    root: u32,
    /// Levels of inner nodes.
    levels: usize,
}

impl Nodes {
    pub(super) fn new() -> Self {
        Self { arena: vec![BLANK], vacant: Vec::new(), root: 0, levels: 0 }
    }

    fn node(&self, number: u32) -> &Node {
        &self.arena[number as usize]
    }

    fn node_mut(&mut self, number: u32) -> &mut Node {
        &mut self.arena[number as usize]
    }

    fn path(&self, key: Key) -> Path {
        let mut path = Path { steps: [(NONE, 0); LEVELS_MAX], leaf: self.root };
        for level in 0..self.levels {
            let node = self.node(path.leaf);
            let child = node.child(key);
            path.steps[level] = (path.leaf, child);
            path.leaf = node.slots[child];
        }
        path
    }

    /// The record of `key`.
    pub(super) fn find(&self, key: Key) -> Option<u32> {
        let leaf = self.node(self.path(key).leaf);
        leaf.keys().binary_search(&key).ok().map(|entry| leaf.slots[entry])
    }

    /// The first entry whose key is `key` or greater.
    pub(super) fn first_from(&self, key: Key) -> Cursor {
        let leaf = self.path(key).leaf;
        Cursor { leaf, entry: self.node(leaf).keys().partition_point(|other| *other < key) }
    }

    /// The entry at the cursor or, if it is behind a leaf's last, the next leaf's first; and the
    /// cursor behind it.
    pub(super) fn forward(&self, mut at: Cursor) -> Option<(Key, u32, Cursor)> {
        if at.entry == self.node(at.leaf).len {
            at = Cursor { leaf: self.node(at.leaf).next, entry: 0 };
        }
        let leaf = self.arena.get(at.leaf as usize)?;
        let behind = Cursor { leaf: at.leaf, entry: at.entry + 1 };
        (at.entry < leaf.len).then(|| (leaf.keys[at.entry], leaf.slots[at.entry], behind))
    }

    /// The entry before the cursor, and the cursor at it.
    pub(super) fn backward(&self, mut at: Cursor) -> Option<(Key, u32, Cursor)> {
        if at.entry == 0 {
            let leaf = self.node(at.leaf).previous;
            at = Cursor { leaf, entry: self.arena.get(leaf as usize)?.len };
        }
        let leaf = self.node(at.leaf);
        let entry = at.entry.checked_sub(1)?;
        Some((leaf.keys[entry], leaf.slots[entry], Cursor { leaf: at.leaf, entry }))
    }

    /// Inserts a key that is not there.
    pub(super) fn insert(&mut self, key: Key, record: u32) {
        let path = self.path(key);
        let at = self.node(path.leaf).keys().partition_point(|other| *other < key);
        let mut split = self.insert_into(path.leaf, at, key, record);
        for (parent, child) in path.steps[..self.levels].iter().rev() {
            let Some((bound, right)) = split else { return };
            split = self.insert_into(*parent, child + 1, bound, right);
        }
        let Some((bound, right)) = split else { return };
        assert!(self.levels < LEVELS_MAX, "a tree is at most {LEVELS_MAX} levels high");
        let left = self.root;
        self.root = self.fresh();
        self.levels += 1;
        let root = &mut self.arena[self.root as usize];
        root.insert(0, Key(0), left);
        root.insert(1, bound, right);
    }

    /// Inserts an entry into a node; if it was full, it is split: the new node to its right, and
    /// the lower bound of that one's keys.
    fn insert_into(&mut self, number: u32, at: usize, key: Key, slot: u32) -> Option<(Key, u32)> {
        if self.node(number).len < FANOUT {
            self.node_mut(number).insert(at, key, slot);
            return None;
        }
        let fresh = self.fresh();
        let mut right = BLANK;
        let left = self.node_mut(number);
        right.keys[..FANOUT - MIN].copy_from_slice(&left.keys[MIN..]);
        right.slots[..FANOUT - MIN].copy_from_slice(&left.slots[MIN..]);
        right.len = FANOUT - MIN;
        left.len = MIN;
        (right.previous, right.next) = (number, left.next);
        left.next = fresh;
        if at <= MIN {
            left.insert(at, key, slot);
        } else {
            right.insert(at - MIN, key, slot);
        }
        if let Some(next) = self.arena.get_mut(right.next as usize) {
            next.previous = fresh;
        }
        let bound = right.keys[0];
        *self.node_mut(fresh) = right;
        Some((bound, fresh))
    }

    /// Removes `key`; its record.
    pub(super) fn remove(&mut self, key: Key) -> Option<u32> {
        let path = self.path(key);
        let at = self.node(path.leaf).keys().binary_search(&key).ok()?;
        let (_, record) = self.node_mut(path.leaf).remove(at);
        for level in (0..self.levels).rev() {
            let (parent, child) = path.steps[level];
            if self.node(self.node(parent).slots[child]).len >= MIN {
                return Some(record);
            }
            self.refill(parent, child, level + 1 < self.levels);
        }
        if self.levels > 0 && self.node(self.root).len == 1 {
            let old = self.root;
            self.root = self.node(old).slots[0];
            self.levels -= 1;
            self.vacant.push(old);
        }
        Some(record)
    }

    /// Refills a child that has too few entries from a neighbour, or merges the two.
    fn refill(&mut self, parent: u32, child: usize, inner: bool) {
        let right_at = child.max(1);
        let (left, right) =
            (self.node(parent).slots[right_at - 1], self.node(parent).slots[right_at]);
        if inner {
            // Its lower bound comes along when an entry changes sides.
            self.node_mut(right).keys[0] = self.node(parent).keys[right_at];
        }
        if self.node(left).len + self.node(right).len <= FANOUT {
            return self.merge(parent, right_at, left, right);
        }
        if child == right_at {
            let last = self.node(left).len - 1;
            let (key, slot) = self.node_mut(left).remove(last);
            self.node_mut(right).insert(0, key, slot);
        } else {
            let (key, slot) = self.node_mut(right).remove(0);
            let end = self.node(left).len;
            self.node_mut(left).insert(end, key, slot);
        }
        self.node_mut(parent).keys[right_at] = self.node(right).keys[0];
    }

    fn merge(&mut self, parent: u32, right_at: usize, left: u32, right: u32) {
        let from = std::mem::replace(self.node_mut(right), BLANK);
        let into = self.node_mut(left);
        let end = into.len + from.len;
        into.keys[into.len..end].copy_from_slice(from.keys());
        into.slots[into.len..end].copy_from_slice(&from.slots[..from.len]);
        into.len = end;
        into.next = from.next;
        if let Some(next) = self.arena.get_mut(from.next as usize) {
            next.previous = left;
        }
        self.node_mut(parent).remove(right_at);
        self.vacant.push(right);
    }

    fn fresh(&mut self) -> u32 {
        if let Some(number) = self.vacant.pop() {
            self.arena[number as usize] = BLANK;
            return number;
        }
        self.arena.push(BLANK);
        (self.arena.len() - 1) as u32
    }

    /// Checks the structure; calls `each` with every entry, in order.
    pub(super) fn check(&self, lines: &mut Vec<String>, each: &mut dyn FnMut(Key, u32)) {
        let mut walk = Check { nodes: self, lines, seen: 0, last_leaf: NONE };
        walk.visit(self.root, 0, Key(0), None, each);
        let (seen, last) = (walk.seen, walk.last_leaf);
        if self.node(last).next != NONE {
            lines.push("the last leaf has a next one".to_owned());
        }
        if seen + self.vacant.len() != self.arena.len() {
            lines.push(format!("{seen} nodes and {} vacant ones", self.vacant.len()));
        }
    }
}

struct Check<'a> {
    nodes: &'a Nodes,
    lines: &'a mut Vec<String>,
    seen: usize,
    last_leaf: u32,
}

impl Check<'_> {
    /// Visits a node whose keys are `low` or greater and less than `high`.
    fn visit(
        &mut self,
        number: u32,
        level: usize,
        low: Key,
        high: Option<Key>,
        each: &mut dyn FnMut(Key, u32),
    ) {
        self.seen += 1;
        let node = self.nodes.node(number);
        let leaf = level == self.nodes.levels;
        let least = match (number == self.nodes.root, leaf) {
            (true, true) => 0,
            (true, false) => 2,
            (false, _) => MIN,
        };
        if node.len < least {
            self.lines.push(format!("node {number} has {} entries", node.len));
        }
        // An inner node's first bound is its parent's.
        let keys = if leaf { node.keys() } else { &node.keys()[1..] };
        let inside = |key: &Key| *key >= low && high.is_none_or(|high| *key < high);
        if !keys.iter().all(inside) || !keys.is_sorted_by(|one, other| one < other) {
            self.lines.push(format!("node {number}: keys out of order"));
        }
        if leaf {
            if node.previous != self.last_leaf {
                self.lines.push(format!("leaf {number} is linked to another"));
            }
            if let Some(previous) = self.nodes.arena.get(self.last_leaf as usize)
                && previous.next != number
            {
                self.lines.push(format!("leaf {number} is not its neighbour's next"));
            }
            self.last_leaf = number;
            node.keys().iter().zip(node.slots).for_each(|(key, slot)| each(*key, slot));
            return;
        }
        for child in 0..node.len {
            let low = if child == 0 { low } else { node.keys[child] };
            let high = if child + 1 < node.len { Some(node.keys[child + 1]) } else { high };
            self.visit(node.slots[child], level + 1, low, high, each);
        }
    }
}
