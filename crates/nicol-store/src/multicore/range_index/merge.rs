//! An empty leaf leaves the tree: the leaf beside it gets its keys.

use std::sync::atomic::{Ordering, fence};

use super::{Changed, Node, NodeNumber, OBSOLETE, RangeIndex};

/// Nodes from the root to a leaf, at most. A tree of 64 Mi nodes grows to nine levels.
pub(crate) const LEVELS_MAX: usize = 16;
/// Attempts at one merge: others change nodes near by, seldom for long.
const ATTEMPTS: usize = 8;

/// Nodes that were taken out of the tree, to be freed when no thread reads them any more.
pub(crate) type Obsolete = [Option<NodeNumber>; LEVELS_MAX];

/// The nodes from the root to a leaf, with the versions that they had together.
struct Path {
    nodes: [(u32, u64); LEVELS_MAX],
    len: usize,
}

impl Path {
    fn leaf(&self) -> usize {
        self.len - 1
    }

    /// How deep the lowest node is that is above both leaves. There is none if the tree has got
    /// another root between the two searches.
    fn split(&self, other: &Self) -> Result<usize, Changed> {
        let common = self.nodes.iter().zip(&other.nodes).take_while(|(one, two)| one.0 == two.0);
        common.count().checked_sub(1).ok_or(Changed)
    }
}

/// Which leaf gets the keys of an empty one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Beside {
    Before(u64),
    Behind(u64),
}

/// Nodes that were locked; those that stay as they are get unlocked.
struct Held<'t> {
    tree: &'t RangeIndex,
    nodes: [u32; 2 * LEVELS_MAX],
    len: usize,
}

impl<'t> Held<'t> {
    const fn none(tree: &'t RangeIndex) -> Self {
        Self { tree, nodes: [0; 2 * LEVELS_MAX], len: 0 }
    }

    fn lock(&mut self, (number, version): (u32, u64)) -> Result<(), Changed> {
        self.tree.node(number).lock(version)?;
        self.nodes[self.len] = number;
        self.len += 1;
        Ok(())
    }

    /// Lets go of all, which were changed.
    fn changed(mut self) {
        self.nodes[..self.len].iter().for_each(|node| _ = self.tree.node(*node).changed());
        self.len = 0;
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.nodes[..self.len].iter().for_each(|node| self.tree.node(*node).unlock());
    }
}

impl RangeIndex {
    /// Takes the leaf of `key` out if it is empty, with the nodes above it that nothing else is
    /// under.
    ///
    /// Of its two edges the one goes at which keys part in the lower bit (see [`Node::parting`]): a
    /// leaf of a prefix goes to a neighbour of that prefix, whatever their parents, so that scans
    /// do not meet what is inserted behind another prefix. Only the last leaf of a prefix goes to
    /// another's.
    ///
    /// Where others change the same nodes again and again, it stays: an empty leaf is only memory.
    pub(super) fn take_out(&self, key: u64) -> Obsolete {
        for _ in 0..ATTEMPTS {
            if let Ok(obsolete) = self.try_take_out(key) {
                return obsolete;
            }
        }
        [None; LEVELS_MAX]
    }

    /// The nodes from the root to the leaf of `key`.
    fn path(&self, key: u64) -> Result<Path, Changed> {
        let mut path = Path { nodes: [(0, 0); LEVELS_MAX], len: 0 };
        self.descend(key, false, |node| {
            assert!(path.len < LEVELS_MAX, "a tree of all nodes that there are is not as high");
            path.nodes[path.len] = node;
            path.len += 1;
        })?;
        Ok(path)
    }

    /// The neighbour that gets what the leaf from `low` to `high` has; none of the only leaf.
    const fn beside(low: u64, high: u64) -> Option<Beside> {
        // Above the highest key there is an edge that never goes, as below key 0.
        let behind = high.wrapping_add(1);
        match (low, behind) {
            (0, 0) => None,
            (0, _) => Some(Beside::Behind(behind)),
            (_, 0) => Some(Beside::Before(low - 1)),
            _ if behind.trailing_zeros() <= low.trailing_zeros() => Some(Beside::Behind(behind)),
            _ => Some(Beside::Before(low - 1)),
        }
    }

    fn try_take_out(&self, key: u64) -> Result<Obsolete, Changed> {
        let mut obsolete = [None; LEVELS_MAX];
        let path = self.path(key)?;
        let empty = self.node(path.nodes[path.leaf()].0);
        let (low, high) = (Node::get(&empty.low), Node::get(&empty.high));
        let count = empty.count();
        empty.is_still(path.nodes[path.leaf()].1)?;
        let (0, Some(beside)) = (count, Self::beside(low, high)) else { return Ok(obsolete) };
        let (Beside::Before(neighbour) | Beside::Behind(neighbour)) = beside;
        let other = self.path(neighbour)?;
        let split = path.split(&other)?;
        let mut held = Held::none(self);
        path.nodes[split..path.len].iter().try_for_each(|node| held.lock(*node))?;
        other.nodes[split + 1..other.len].iter().try_for_each(|node| held.lock(*node))?;

        // From here on nothing stands in the way. The empty leaf goes, and what is empty without
        // it.
        let mut level = path.leaf();
        let mut gone = 0;
        while level > split {
            obsolete[gone] = Some(NodeNumber(path.nodes[level].0));
            gone += 1;
            level -= 1;
            let above = self.node(path.nodes[level].0);
            above.remove_at(above.child(low));
            if above.count() > 0 {
                break;
            }
        }
        // What is left of the nodes above it loses its keys.
        for at in (split + 1..=level).rev() {
            let node = self.node(path.nodes[at].0);
            match beside {
                Beside::Behind(_) => node.high.store(low - 1, Ordering::Release),
                Beside::Before(_) => {
                    node.low.store(high + 1, Ordering::Release);
                    let above = self.node(path.nodes[at - 1].0);
                    above.keys[above.child(low)].store(high + 1, Ordering::Release);
                }
            }
        }
        // The neighbour and the nodes above it get them.
        for at in split + 1..other.len {
            let node = self.node(other.nodes[at].0);
            match beside {
                Beside::Before(_) => node.high.store(high, Ordering::Release),
                Beside::Behind(first) => {
                    node.low.store(low, Ordering::Release);
                    let above = self.node(other.nodes[at - 1].0);
                    above.keys[above.child(first)].store(low, Ordering::Release);
                }
            }
        }
        let taker = self.node(other.nodes[other.leaf()].0);
        // As in a split.
        fence(Ordering::SeqCst);
        taker.read_until.fetch_max(Node::get(&empty.read_until), Ordering::SeqCst);
        for node in obsolete.iter().flatten() {
            self.node(node.0).version.fetch_or(OBSOLETE, Ordering::Relaxed);
        }
        held.changed();
        Ok(obsolete)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(nodes: &[u32]) -> Path {
        let mut path = Path { nodes: [(0, 0); LEVELS_MAX], len: nodes.len() };
        nodes.iter().zip(&mut path.nodes).for_each(|(node, place)| *place = (*node, 4));
        path
    }

    #[test]
    fn leaves_under_two_roots_are_looked_for_again() {
        let (old, new) = (path(&[7, 3]), path(&[9, 8, 5]));
        assert!(old.split(&new).is_err() && new.split(&old).is_err());
        assert!(matches!(path(&[9, 7, 3]).split(&new), Ok(0)));
        assert!(matches!(path(&[9, 8, 3]).split(&new), Ok(1)));
    }
}
