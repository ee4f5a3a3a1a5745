//! Checks of a whole table: records, locks, digest, structure.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use nicol_core::ids::{EngineId, Key, Version};

use super::heap::Heap;
use super::layout::{Header, bucket, field};
use super::{BlockRef, RemoteTable, Shape};
use crate::access::load;
use crate::digest;

impl RemoteTable {
    /// Records in the table. Counted in its memory, since one-sided commits insert and delete
    /// without the owner.
    pub fn len(&self) -> u64 {
        let mut records = 0;
        self.each_slot(&mut |address, _| {
            let shape = Shape(load(&self.region, address + field::SHAPE as u64));
            records += u64::from(shape.is_present());
        });
        records + self.strayed()
    }

    /// Returns true if there are no records.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Locked records. Counted in the table's memory, since coordinators lock without the owner.
    pub fn locked_count(&self) -> usize {
        let mut locked = 0;
        self.each_slot(&mut |_, header| locked += usize::from(header.owner().is_some()));
        locked
    }

    /// Calls `each` with every locked record's key and the engine whose transaction holds it. Goes
    /// over every slot: for audits.
    pub fn for_each_locked(&self, each: &mut dyn FnMut(Key, EngineId)) {
        self.each_slot(&mut |address, header| {
            if let Some(owner) = header.owner() {
                each(Key(load(&self.region, address + field::KEY as u64)), owner);
            }
        });
    }

    /// Calls `each` with every record, in the order of the table's memory. Requires that nobody
    /// commits to the table. A record that a crash has left half written, under its writer's lock,
    /// is nobody's to read, and is left out.
    ///
    /// # Panics
    /// If a record stays torn that nobody has locked.
    pub fn for_each(&self, each: &mut dyn FnMut(Key, Version, &[u8])) {
        let writer = self.writer();
        let mut value = Vec::new();
        self.each_slot(&mut |address, header| {
            let key = Key(load(&self.region, address + field::KEY as u64));
            value.clear();
            match self.read_value(key, address, header, &mut value) {
                Some(true) => each(key, header.version(), &value),
                Some(false) => {}
                None => assert!(header.owner().is_some(), "a record of a quiet table is whole"),
            }
        });
        writer.strays.iter().for_each(|(&key, stray)| each(key, stray.version, &stray.value));
    }

    /// A digest of all records that does not depend on their location: that of
    /// [`crate::host_table::HostTable::digest`].
    pub fn digest(&self) -> u64 {
        digest::of_records(|each| self.for_each(each))
    }

    /// Checks every structural invariant; one line for each violation. Requires that nobody commits
    /// to the table.
    pub fn check(&self) -> Vec<String> {
        let writer = self.writer();
        let mut lines = Vec::new();
        let (mut keys, mut chained) = (BTreeSet::new(), BTreeSet::new());
        let (mut blocks, mut reserved) = (0, 0);
        for home in 0..self.geometry.buckets() {
            let at = self.geometry.bucket_offset(home) + bucket::VERSION as u64;
            if !load(&self.region, at).is_multiple_of(2) {
                lines.push(format!("bucket {home}: a change is under way"));
            }
            let mut link = self.link(home);
            while link != 0 {
                if !self.geometry.is_overflow(link) || !chained.insert(link) {
                    lines.push(format!("bucket {home}: wrong link to {link}"));
                    break;
                }
                link = self.link(link);
            }
        }
        let mut used = 0;
        self.each_slot(&mut |address, header| {
            used += 1;
            let key = Key(load(&self.region, address + field::KEY as u64));
            if !keys.insert(key) {
                lines.push(format!("{key:?} stands in two slots"));
            }
            if !self.may_stand(key, address) {
                lines.push(format!("{key:?} stands at {address}, where no walk looks"));
            }
            // What its writer's crash has left half written stays locked.
            let torn = self.read_value(key, address, header, &mut Vec::new()).is_none();
            if torn && header.owner().is_none() {
                lines.push(format!("{key:?} is torn"));
            }
            blocks += self.block_of(address).map_or(0, |block| Heap::cost(block.len));
            if let Some(block) = writer.reserved.get(&key) {
                blocks += Heap::cost(block.len);
                reserved += 1;
                if header.owner().is_none() {
                    lines.push(format!("{key:?} was reserved space and nobody holds its lock"));
                }
            }
        });
        lines.extend(
            writer
                .strays
                .keys()
                .filter(|key| keys.contains(key))
                .map(|key| format!("{key:?} stands in the table and is a stray")),
        );
        let array = self.geometry.bucket_offset(self.geometry.array_buckets());
        let mut overflowed = 0;
        self.each_slot(&mut |address, _| overflowed += u64::from(address >= array));
        let overflow = self.geometry.all_buckets() - self.geometry.array_buckets();
        let counts = [
            ("slots in use", used, self.used()),
            ("slots in chains", overflowed, self.overflowed()),
            ("overflow buckets", chained.len() as u64 + writer.free_buckets(), overflow),
            ("heap bytes", blocks, writer.heap_in_use()),
            ("reserves to holders of locks", reserved, writer.reserved.len() as u64),
            ("reserves", writer.reserved.len() as u64, self.reserved.load(Ordering::Relaxed)),
            ("strays", writer.strays.len() as u64, self.strayed()),
        ];
        for (what, found, counted) in counts {
            if found != counted {
                lines.push(format!("{what}: found {found}, counted {counted}"));
            }
        }
        lines
    }

    fn may_stand(&self, key: Key, address: u64) -> bool {
        let mut found = false;
        self.each_slot_of_home(self.geometry.bucket(key), &mut |slot| {
            found |= slot == address;
            found
        });
        found
    }

    /// Calls `each` with every key that has a slot: the slot's address, and the block of a value
    /// out of line.
    pub fn each_address(&self, each: &mut dyn FnMut(Key, u64, Option<BlockRef>)) {
        self.each_slot(&mut |address, _| {
            let key = Key(load(&self.region, address + field::KEY as u64));
            each(key, address, self.block_of(address));
        });
    }

    /// Visits every slot in use.
    fn each_slot(&self, visit: &mut dyn FnMut(u64, Header)) {
        for bucket in 0..self.geometry.all_buckets() {
            for slot in 0..self.geometry.bucket_slots() {
                let address = self.geometry.slot_offset(bucket, slot);
                if let Some(header) = Header::parse(load(&self.region, address)) {
                    visit(address, header);
                }
            }
        }
    }
}
