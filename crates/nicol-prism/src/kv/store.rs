//! A server's memory: the index and the buffers with the items, in one region.

use std::sync::{Arc, Mutex, PoisonError};

use nicol_core::fabric::Fabric;
use nicol_core::ids::{Incarnation, Key, RKey};
use nicol_core::memory::{Access, AccessError, Region};
use nicol_core::system::TooSmall;
use nicol_core::units::Bytes;

use super::config::{Hash, KvConfig};
use super::layout::{Header, Item, LOADED, RETIRED, SlotForm, retired};
use super::name::Name;
use crate::messages::{Handles, Unused};
use crate::pool::{BufferPool, Pointers};

/// The memory of a server: index, buffers, free lists.
pub struct Store {
    region: Arc<Region>,
    pub(super) pool: BufferPool,
    form: SlotForm,
    entries: u64,
    hash: Hash,
    rkey: Mutex<Option<RKey>>,
}

impl Store {
    /// A server's memory for the sizes of `config`, without records.
    pub(super) fn new(config: &KvConfig) -> Self {
        let (form, classes) = (config.form(), config.classes());
        let first = form.at(config.entries).next_multiple_of(64);
        let region = Arc::new(Region::new(Bytes(first + BufferPool::bytes(&classes))));
        assert_eq!(region.write(RETIRED, &retired()), Ok(()), "it lies before the slots");
        let pointers = Pointers {
            first: form.pointer_at(form.at(0)),
            stride: form.bytes(),
            count: config.entries,
        };
        let mut pool = BufferPool::new(region.clone(), first, &classes, pointers);
        pool.keep_back(config.recycling.watermark);
        let (entries, hash, rkey) = (config.entries, config.hash, Mutex::default());
        Self { region, pool, form, entries, hash, rkey }
    }

    /// Puts a record there before the server starts.
    ///
    /// # Errors
    /// If no slot is left for it.
    ///
    /// # Panics
    /// If there is no buffer: these are sized for what is loaded.
    pub(super) fn load(&mut self, key: Key, value: &[u8]) -> Result<(), TooSmall> {
        let bytes = key.0.to_be_bytes();
        let name = Name::of(&bytes);
        let unused = name
            .probes(self.hash, self.entries)
            .find(|&index| self.region.load(self.form.pointer_at(self.form.at(index))) == Ok(0));
        let index = unused.ok_or(TooSmall { what: "slot", instead: "more entries" })?;
        let item = Item { stamp: LOADED, key: name.bytes(), value: Some(value) }.emit();
        let at = self.pool.load(item.len() as u64);
        let slot = self.form.at(index);
        let mut stored = self.region.write(at, &item);
        let word = |word: usize| slot + 8 * word as u64;
        if let Some(generation) = self.form.generation {
            stored = stored.and_then(|()| self.region.store(word(generation), 1));
        }
        if let Some(bound) = self.form.bound {
            stored = stored.and_then(|()| self.region.store(word(bound), item.len() as u64));
        }
        stored = stored.and_then(|()| self.region.store(word(self.form.pointer), at));
        assert_eq!(stored, Ok(()), "slots and buffers lie in the region");
        Ok(())
    }

    /// Bytes of the index, and of the buffers that are not free.
    pub(super) fn used(&self) -> Bytes {
        Bytes(self.form.at(self.entries) + self.pool.used())
    }

    /// The handles of this server's memory for clients. The first engine that asks opens it.
    pub(super) fn open<F: Fabric>(&self, fabric: &F, lives: Vec<Incarnation>) -> Handles {
        let rkey = &mut *self.rkey.lock().unwrap_or_else(PoisonError::into_inner);
        let register = || fabric.register(&self.region, Access::ReadWrite);
        let rkey = *rkey.get_or_insert_with(register);
        self.pool.open(fabric, rkey);
        Handles { region: rkey, pointers: rkey, lists: self.pool.lists().collect(), lives }
    }

    /// The bytes of the item of slot `index`, if there is one.
    fn item(&self, index: u64) -> Result<Vec<u8>, AccessError> {
        let at = self.region.load(self.form.pointer_at(self.form.at(index)))?;
        if at == 0 {
            return Ok(Vec::new());
        }
        let lengths = self.region.load(at + 8)?;
        let key = lengths & u64::from(u32::MAX);
        let is_live = Header::of_lengths(lengths) == Header::Live;
        let value = if is_live { lengths >> 32 } else { 0 };
        let mut bytes = vec![0; KvConfig::item_bytes(key, value) as usize];
        self.region.read(at, &mut bytes)?;
        Ok(bytes)
    }

    /// Calls `each` with every item, deleted ones included, and the index of its slot; once quiet.
    pub(super) fn for_each(&self, each: &mut dyn FnMut(u64, &Item<'_>)) {
        for index in 0..self.entries {
            let bytes = self.item(index).unwrap_or_default();
            if let Some(item) =
                Item::parse(&bytes).ok().flatten().filter(|item| !item.key.is_empty())
            {
                each(index, &item);
            }
        }
    }

    /// The index of the slot whose pointer is at `pointer`, if its key was deleted, for all that
    /// the CPU can tell: the item may be replaced meanwhile.
    pub(super) fn deleted_at(&self, pointer: u64) -> Option<u64> {
        let index = self.form.index_of(pointer, self.entries)?;
        let at = self.region.load(pointer).ok().filter(|at| *at > RETIRED)?;
        let lengths = self.region.load(at + 8).ok()?;
        (Header::of_lengths(lengths) == Header::Deleted).then_some(index)
    }

    /// The index of the slot that `unused` gives back: its pointer still leads to that item.
    pub(super) fn given_back(&self, unused: &Unused) -> Option<u64> {
        let &Unused { offset, stamp, pointer } = unused;
        let index = self.form.index_of(pointer, self.entries)?;
        let is_there = self.region.load(pointer) == Ok(offset) && offset > RETIRED;
        (is_there && self.region.load(offset) == Ok(stamp)).then_some(index)
    }

    /// The slots of deleted keys that are not free yet.
    pub(super) fn deleted(&self) -> impl Iterator<Item = u64> {
        let pointers = (0..self.entries).map(|index| self.form.pointer_at(self.form.at(index)));
        pointers.filter_map(|pointer| self.deleted_at(pointer))
    }

    /// Slots that end a search, and free slots that do not.
    #[cfg(test)]
    pub(super) fn free(&self) -> [u64; 2] {
        let pointer = |index| self.region.load(self.form.pointer_at(self.form.at(index)));
        let with = |at| (0..self.entries).filter(|&index| pointer(index) == Ok(at)).count() as u64;
        [with(0), with(RETIRED)]
    }

    /// Reads the value of `key` into `value`; false if there is none. Once quiet.
    pub(super) fn read(&self, key: &[u8], value: &mut Vec<u8>) -> bool {
        value.clear();
        for index in Name::of(key).probes(self.hash, self.entries) {
            let bytes = self.item(index).unwrap_or_default();
            match Item::parse(&bytes) {
                Ok(Some(item)) if item.key == key => {
                    value.extend_from_slice(item.value.unwrap_or_default());
                    return item.value.is_some();
                }
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => return false,
            }
        }
        false
    }

    /// Checks that a search finds every item, and no key twice; once quiet.
    ///
    /// # Panics
    /// If not.
    pub(super) fn check(&self) {
        self.for_each(&mut |index, item| {
            let name = Name::of(item.key);
            let mut probes = name.probes(self.hash, self.entries);
            let first = probes.find(|&probe| {
                let bytes = self.item(probe).unwrap_or_default();
                let found = Item::parse(&bytes).ok().flatten();
                found.is_none_or(|found| found.key == item.key)
            });
            assert_eq!(first, Some(index), "a search for {:?} ends elsewhere", item.key);
        });
    }
}
