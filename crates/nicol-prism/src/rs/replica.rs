//! A replica's memory in one life of its node.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nicol_core::fabric::Fabric;
use nicol_core::ids::{Incarnation, NodeId, RKey};
use nicol_core::memory::{Access, AccessError, Region};
use nicol_core::units::{Bytes, Nanos};

use super::config::{Blocks, RsConfig, TAG};
use super::layout::{Metadata, buffer};
use crate::messages::Handles;
use crate::pool::{BufferPool, Pointers};
use crate::tag::{Tag, parse};

/// Interval at which a fence asks whether the chains that were under way have ended.
const FENCE_POLL: Nanos = Nanos::from_micros(1);

/// Under which keys clients reach it, and which lives of others it knows.
#[derive(Debug)]
struct Keys {
    /// Of the whole region, and for swapping pointers; once an engine has opened them.
    open: Option<(RKey, RKey)>,
    lives: Vec<Incarnation>,
}

impl Keys {
    /// Learns of a life of `node`; `None` if there is no such node.
    fn learn_of(&mut self, node: NodeId, life: Incarnation) -> Option<()> {
        let known = self.lives.get_mut(node.index())?;
        *known = (*known).max(life);
        Some(())
    }
}

/// Blocks of one node.
#[derive(Debug)]
pub(super) struct Replica {
    region: Arc<Region>,
    pub(super) pool: BufferPool,
    metadata: Metadata,
    config: RsConfig,
    keys: Mutex<Keys>,
}

impl Replica {
    /// One without blocks, in a cluster of so many nodes.
    pub(super) fn new(config: &RsConfig, nodes: usize) -> Self {
        let (metadata, classes) = (Metadata::new(config.sizes), config.classes());
        let first = metadata.of(config.blocks).next_multiple_of(64);
        let region = Arc::new(Region::new(Bytes(first + BufferPool::bytes(&classes))));
        let pointers = Pointers {
            first: metadata.pointer(0),
            stride: metadata.stride(),
            count: config.blocks,
        };
        let mut pool = BufferPool::new(region.clone(), first, &classes, pointers);
        // What a GET writes back has the tag under which it was read.
        pool.share_stamps();
        pool.keep_back(config.recycling.watermark);
        let keys = Keys { open: None, lives: vec![Incarnation::FIRST; nodes] };
        Self { region, pool, metadata, config: config.clone(), keys: Mutex::new(keys) }
    }

    /// Puts a block there before the replica is opened.
    ///
    /// # Panics
    /// If there is no such block, or it is too large.
    pub(super) fn load(&mut self, block: u64, tag: Tag, value: &[u8]) {
        assert!(block < self.config.blocks, "block {block} is not one of {}", self.config.blocks);
        let bytes = buffer(tag, value);
        let addr = self.pool.load(bytes.len() as u64);
        let words = [tag.0, addr, bytes.len() as u64, 0];
        let element = self.metadata.of(block);
        let element =
            (0..).zip(&words[..self.metadata.words()]).map(|(at, word)| (element + at * 8, *word));
        let stored = self.region.write(addr, &bytes);
        let stored =
            element.fold(stored, |so_far, (at, word)| so_far.and(self.region.store(at, word)));
        assert!(stored.is_ok(), "a block lies in its replica's region");
    }

    /// The tag of `block`, and its value into `value`; `None` if it is not there.
    pub(super) fn read(&self, block: u64, value: &mut Vec<u8>) -> Option<Tag> {
        let found = self.try_read(block, value);
        found.ok().flatten()
    }

    fn try_read(&self, block: u64, value: &mut Vec<u8>) -> Result<Option<Tag>, AccessError> {
        let addr = self.region.load(self.metadata.pointer(block))?;
        if addr == 0 {
            return Ok(None);
        }
        let len = match self.config.sizes {
            Blocks::Fixed => TAG + self.config.value_bytes,
            Blocks::Variable => self.region.load(self.metadata.pointer(block) + 8)?,
        };
        let mut bytes = vec![0; len as usize];
        self.region.read(addr, &mut bytes)?;
        Ok(parse(&bytes).map(|(tag, found)| {
            value.clear();
            value.extend_from_slice(found);
            tag
        }))
    }

    /// The handles of this replica's memory, which the first engine that asks opens; `life` is this
    /// node's own.
    pub(super) fn open<F: Fabric>(&self, fabric: &F, node: NodeId, life: Incarnation) -> Handles {
        let keys = &mut *self.keys();
        let (region, pointers) = *keys.open.get_or_insert_with(|| {
            let register = || fabric.register(&self.region, Access::ReadWrite);
            (register(), register())
        });
        self.pool.open(fabric, region);
        keys.lives[node.index()] = life;
        Handles { region, pointers, lists: self.pool.lists().collect(), lives: keys.lives.clone() }
    }

    /// Learns of lives of others.
    pub(super) fn learn(&self, lives: &[Incarnation]) {
        for (known, told) in self.keys().lives.iter_mut().zip(lives) {
            *known = (*known).max(*told);
        }
    }

    /// Learns of a life of `node`: all that a replica does of a fence that is broken on purpose.
    pub(super) fn learn_of(&self, node: NodeId, life: Incarnation) {
        self.keys().learn_of(node, life);
    }

    /// Node `node` rejoins in `life`: revokes the key for swapping pointers. A client that swaps
    /// one from here on has asked for the new key, and has learnt of that life. Resolves when no
    /// chain under the old key is under way.
    pub(super) async fn fence<F: Fabric>(&self, fabric: &F, node: NodeId, life: Incarnation) {
        {
            let keys = &mut *self.keys();
            if keys.learn_of(node, life).is_none() {
                return;
            }
            if let Some((_, pointers)) = &mut keys.open {
                fabric.revoke(*pointers);
                *pointers = fabric.register(&self.region, Access::ReadWrite);
            }
        }
        let mark = fabric.mark_chains();
        while !fabric.have_ended(mark) {
            fabric.sleep_until(fabric.now() + FENCE_POLL).await;
        }
    }

    fn keys(&self) -> MutexGuard<'_, Keys> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
