//! A server's memory: the table and the buffers with the items, in one region.

use std::sync::{Arc, Mutex, PoisonError};

use nicol_core::fabric::Fabric;
use nicol_core::ids::{Incarnation, Key, RKey, Version};
use nicol_core::memory::{Access, AccessError, Region};
use nicol_core::system::TooSmall;
use nicol_core::units::{Bytes, Nanos};

use super::config::{ReadVersion, TxConfig};
use super::layout::{HEADER, Item, Meta, SLOT, Slot, item, slot_at, word};
use super::messages::StagedWrite;
use crate::kv::name::Name;
use crate::messages::{Handles, Unused};
use crate::pool::{BufferPool, Pointers};
use crate::tag::Tag;

/// The memory of a server: slots, buffers, free lists.
pub struct Store {
    region: Arc<Region>,
    pub(super) pool: BufferPool,
    config: TxConfig,
    rkey: Mutex<Option<RKey>>,
}

/// A record, or the absence of one, with its slot and its item's header.
pub(super) struct Stored<'a> {
    pub(super) slot: Slot,
    pub(super) at: u64,
    pub(super) item: Item<'a>,
}

impl Store {
    /// A server's memory for the sizes of `config`, without records.
    pub(super) fn new(config: &TxConfig) -> Self {
        let classes = config.classes();
        let first = slot_at(config.entries).next_multiple_of(64);
        let region = Arc::new(Region::new(Bytes(first + BufferPool::bytes(&classes))));
        let pointers =
            Pointers { first: slot_at(0) + word::ADDR, stride: SLOT, count: config.entries };
        let mut pool = BufferPool::new(region.clone(), first, &classes, pointers);
        pool.keep_back(config.recycling.watermark);
        Self { region, pool, config: config.clone(), rkey: Mutex::default() }
    }

    /// Puts a record there before the server starts.
    ///
    /// # Errors
    /// If no slot is left for it.
    ///
    /// # Panics
    /// If there is no buffer: these are sized for what is loaded.
    pub(super) fn load(&mut self, key: Key, value: &[u8]) -> Result<(), TooSmall> {
        let mut probes = self.probes(key);
        let unused = probes.find(|&at| self.region.load(at + word::ADDR) == Ok(0));
        let at = unused.ok_or(TooSmall { what: "slot", instead: "more entries" })?;
        let mut item = Item::new(Tag::LOADED, key, Some(value), 1);
        item.meta = item.meta.finished();
        let bytes = item.emit();
        let addr = self.pool.load(bytes.len() as u64);
        let loaded = Tag::LOADED.0;
        let words = [(word::PW, loaded), (word::C, loaded), (word::ADDR, addr)];
        let written = self.region.write(addr, &bytes);
        let stored = words.iter().fold(written, |so_far, (word, value)| {
            so_far.and(self.region.store(at + word, *value))
        });
        assert_eq!(stored, Ok(()), "slots and buffers lie in the region");
        Ok(())
    }

    /// The handles of this server's memory for clients. The first engine that asks opens it.
    pub(super) fn open<F: Fabric>(&self, fabric: &F, lives: Vec<Incarnation>) -> Handles {
        let rkey = &mut *self.rkey.lock().unwrap_or_else(PoisonError::into_inner);
        let register = || fabric.register(&self.region, Access::ReadWrite);
        let rkey = *rkey.get_or_insert_with(register);
        self.pool.open(fabric, rkey);
        Handles { region: rkey, pointers: rkey, lists: self.pool.lists().collect(), lives }
    }

    /// The addresses of the slots where `key` may be, in the order of probing.
    pub(super) fn probes(&self, key: Key) -> impl Iterator<Item = u64> + use<> {
        let bytes = key.0.to_be_bytes();
        Name::of(&bytes).probes(self.config.hash, self.config.entries).map(slot_at)
    }

    /// Posts what clients report. A report that names the slot is the writer's own: its transaction
    /// is complete. One that names the slot's pointer comes from the transaction that replaced the
    /// item: it counts once the writer's transaction is complete, because until then the item tells
    /// what has become of that. Returns how many were posted.
    pub(super) fn take_back<F: Fabric>(&self, fabric: &F, reports: &[Unused]) -> usize {
        reports.iter().filter(|report| self.take_back_one(fabric, report)).count()
    }

    fn take_back_one<F: Fabric>(&self, fabric: &F, report: &Unused) -> bool {
        let &Unused { offset, stamp, pointer } = report;
        let own = pointer.is_multiple_of(SLOT);
        let slot = pointer - pointer % SLOT;
        let of_this_use = self.region.load(offset + item::STAMP) == Ok(stamp);
        let (Ok(addr), Ok(meta)) =
            (self.region.load(slot + word::ADDR), self.region.load(offset + item::META))
        else {
            return false;
        };
        let in_place = addr == offset;
        if !of_this_use || !self.pool.is_in_use(offset) {
            return false;
        }
        match (own, in_place) {
            (true, true) => {
                self.finish(offset, Meta(meta));
                false
            }
            (true, false) => self.pool.post_reported(fabric, offset, stamp),
            (false, false) if Meta(meta).is_finished() => {
                self.pool.post_reported(fabric, offset, stamp)
            }
            (false, _) => false,
        }
    }

    /// The item at `offset` will not be asked for any more.
    fn finish(&self, offset: u64, meta: Meta) {
        let stored = self.region.store(offset + item::META, meta.finished().0);
        assert_eq!(stored, Ok(()), "a buffer lies in the region");
    }

    /// The report of an item that was replaced in `slot`; `None` if there was none.
    pub(super) fn replaced(&self, slot: u64, offset: u64) -> Option<Unused> {
        let stamp = self.region.load(offset + item::STAMP).ok().filter(|_| offset != 0)?;
        Some(Unused { offset, stamp, pointer: slot + word::ADDR })
    }

    /// The transaction of a staged write is complete: posts its buffer unless it is in place.
    pub(super) fn complete<F: Fabric>(&self, fabric: &F, write: &StagedWrite) {
        if let Some(at) = self.find(write.key) {
            let report = Unused { offset: write.offset, stamp: write.ts.0, pointer: at };
            self.take_back_one(fabric, &report);
        }
    }

    /// Posts the unreported buffers of complete transactions. Returns how many.
    pub(super) async fn scan<F: Fabric>(&self, fabric: &F, after: Nanos) -> usize {
        let is_open = |offset: u64| {
            let meta = self.region.load(offset + item::META);
            meta.is_ok_and(|meta| !Meta(meta).is_finished()) && !self.pool.is_over(offset)
        };
        self.pool.scan_but(fabric, after, is_open).await
    }

    /// The address of the slot of `key`.
    pub(super) fn find(&self, key: Key) -> Option<u64> {
        for at in self.probes(key) {
            let addr = self.region.load(at + word::ADDR).ok()?;
            if addr == 0 {
                return None;
            }
            if self.item_header(addr)?.key == key {
                return Some(at);
            }
        }
        None
    }

    fn item_header(&self, addr: u64) -> Option<Item<'static>> {
        let mut bytes = [0; HEADER as usize];
        self.region.read(addr, &mut bytes).ok()?;
        let item = Item::parse(&bytes).ok().flatten()?;
        let Item { stamp, ts, old_pw, old_pr, key, meta, .. } = item;
        Some(Item { stamp, ts, old_pw, old_pr, key, meta, value: None })
    }

    /// The writes of transactions that are not known to be complete, by timestamp. Cost: a word per
    /// buffer.
    pub(super) fn staged(&self, wanted: impl Fn(Tag) -> bool) -> Vec<StagedWrite> {
        let mut staged = Vec::new();
        self.pool.for_each_use(&mut |offset| {
            let header = self.item_header(offset).filter(|_| !self.pool.is_over(offset));
            let open = header.filter(|item| !item.meta.is_finished() && wanted(item.ts));
            staged.extend(open.map(|item| StagedWrite::of(&item, offset)));
        });
        staged.sort_unstable_by_key(|write| (write.ts, write.key));
        staged
    }

    /// Calls `each` with every key that has a slot; once quiet.
    pub(super) fn for_each(&self, each: &mut dyn FnMut(&Stored<'_>)) {
        for index in 0..self.config.entries {
            // A slot that no key has costs a look at its address.
            let at = slot_at(index);
            let mut bytes = Vec::new();
            if let Ok(Some(stored)) = self.stored(at, &mut bytes) {
                each(&stored);
            }
        }
    }

    fn stored<'a>(
        &self,
        at: u64,
        bytes: &'a mut Vec<u8>,
    ) -> Result<Option<Stored<'a>>, AccessError> {
        let addr = self.region.load(at + word::ADDR)?;
        if addr == 0 {
            return Ok(None);
        }
        let meta = Meta(self.region.load(addr + item::META)?);
        bytes.resize(HEADER as usize + meta.value().unwrap_or_default(), 0);
        self.region.read(addr, bytes)?;
        let load = |word: u64| self.region.load(at + word).map(Tag);
        let slot = Slot { pw: load(word::PW)?, pr: load(word::PR)?, c: load(word::C)?, addr };
        let item = Item::parse(bytes).ok().flatten();
        Ok(item.map(|item| Stored { slot, at, item }))
    }

    /// Reads the value of `key` into `value`, and the version; `None` if there is no record. Once
    /// quiet.
    pub(super) fn read(&self, key: Key, value: &mut Vec<u8>) -> Option<Version> {
        value.clear();
        let mut bytes = Vec::new();
        let stored = self.stored(self.find(key)?, &mut bytes).ok().flatten()?;
        value.extend_from_slice(stored.item.value?);
        Some(stored.item.ts.version())
    }

    /// The keys that no transaction can read, as they are: somebody has prepared to write them, at
    /// the timestamp beside each, and has neither done so nor given up. Once quiet there are none.
    pub(super) fn unreadable(&self) -> Vec<(Key, Tag)> {
        let mut unreadable = Vec::new();
        self.for_each(&mut |Stored { slot, item, .. }| {
            let rc = match self.config.read_version {
                ReadVersion::Buffer => item.ts,
                ReadVersion::SlotFirst | ReadVersion::SlotLast => slot.c.max(item.ts),
            };
            if rc < slot.pw {
                unreadable.push((item.key, slot.pw));
            }
        });
        unreadable
    }

    /// Checks that a search finds every key where it is, and that no timestamp is later than one
    /// that it must not exceed; once quiet.
    ///
    /// # Panics
    /// If not.
    pub(super) fn check(&self) {
        self.for_each(&mut |Stored { slot, at, item }| {
            assert_eq!(
                self.find(item.key),
                Some(*at),
                "a search for {:?} ends elsewhere",
                item.key
            );
            assert!(item.ts <= slot.c, "{:?} has a later item than C says", item.key);
            assert!(slot.c <= slot.pw, "nobody has prepared what {:?} holds", item.key);
        });
    }
}
