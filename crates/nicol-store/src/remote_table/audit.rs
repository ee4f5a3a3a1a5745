//! Going over a whole table that is at rest: every record, and the structure's invariants.

use std::collections::BTreeSet;
use std::sync::MutexGuard;
use std::sync::atomic::Ordering;

use nicol_core::ids::{Key, Version};

use super::RemoteTable;
use super::heap::Heap;
use super::layout::{Header, bucket, field};
use super::writer::Writer;
use crate::access::load;

/// A table to which nobody commits; its owner's writer is kept out.
pub(super) struct Audit<'t> {
    table: &'t RemoteTable,
    writer: MutexGuard<'t, Writer>,
}

/// The counts over the slots in use.
#[derive(Default)]
struct Counts {
    used: u64,
    overflowed: u64,
    reserved: u64,
    heap_bytes: u64,
    keys: BTreeSet<Key>,
}

impl<'t> Audit<'t> {
    /// Waits for the writer, and keeps it out until dropped.
    pub(super) fn of(table: &'t RemoteTable) -> Self {
        Self { table, writer: table.writer() }
    }

    /// Calls `each` with every record, in the order of the table's memory.
    pub(super) fn for_each(&self, each: &mut dyn FnMut(Key, Version, &[u8])) {
        let table = self.table;
        let mut value = Vec::new();
        table.each_slot(&mut |address, header| {
            let key = Key(load(&table.region, address + field::KEY as u64));
            value.clear();
            match table.read_value(key, address, header, &mut value) {
                Some(true) => each(key, header.version(), &value),
                Some(false) => {}
                None => assert!(header.owner().is_some(), "a record of a quiet table is whole"),
            }
        });
        self.writer.strays.iter().for_each(|(&key, stray)| each(key, stray.version, &stray.value));
    }

    /// Checks every structural invariant; one line for each violation.
    pub(super) fn check(&self) -> Vec<String> {
        let mut lines = Vec::new();
        let chained = self.check_links(&mut lines);
        let mut counts = Counts::default();
        self.table.each_slot(&mut |address, header| {
            self.check_slot(address, header, &mut counts, &mut lines);
        });
        for key in self.writer.strays.keys().filter(|key| counts.keys.contains(key)) {
            lines.push(format!("{key:?} stands in the table and is a stray"));
        }
        self.check_counts(chained, &counts, &mut lines);
        lines
    }

    /// Checks the head of every bucket; returns how many buckets the chains have.
    fn check_links(&self, lines: &mut Vec<String>) -> u64 {
        let (table, geometry) = (self.table, &self.table.geometry);
        let mut chained = BTreeSet::new();
        for home in 0..geometry.buckets() {
            let at = geometry.bucket_offset(home) + bucket::VERSION as u64;
            if !load(&table.region, at).is_multiple_of(2) {
                lines.push(format!("bucket {home}: a change is under way"));
            }
            let mut link = table.link(home);
            while link != 0 {
                if !geometry.is_overflow(link) || !chained.insert(link) {
                    lines.push(format!("bucket {home}: wrong link to {link}"));
                    break;
                }
                link = table.link(link);
            }
        }
        chained.len() as u64
    }

    fn check_slot(
        &self,
        address: u64,
        header: Header,
        counts: &mut Counts,
        lines: &mut Vec<String>,
    ) {
        let table = self.table;
        let key = Key(load(&table.region, address + field::KEY as u64));
        counts.used += 1;
        counts.overflowed += u64::from(table.is_in_chain(address));
        if !counts.keys.insert(key) {
            lines.push(format!("{key:?} stands in two slots"));
        }
        if !self.may_stand(key, address) {
            lines.push(format!("{key:?} stands at {address}, where no walk looks"));
        }
        // What its writer's crash has left half written stays locked.
        let torn = table.read_value(key, address, header, &mut Vec::new()).is_none();
        if torn && header.owner().is_none() {
            lines.push(format!("{key:?} is torn"));
        }
        counts.heap_bytes += table.block_of(address).map_or(0, |block| Heap::cost(block.len));
        if let Some(block) = self.writer.reserved.get(&key) {
            counts.heap_bytes += Heap::cost(block.len);
            counts.reserved += 1;
            if header.owner().is_none() {
                lines.push(format!("{key:?} was reserved space and nobody holds its lock"));
            }
        }
    }

    fn check_counts(&self, chained: u64, counts: &Counts, lines: &mut Vec<String>) {
        let (table, writer) = (self.table, &*self.writer);
        let overflow = table.geometry.all_buckets() - table.geometry.array_buckets();
        let reserved = writer.reserved.len() as u64;
        let counts = [
            ("slots in use", counts.used, table.used()),
            ("slots in chains", counts.overflowed, table.overflowed()),
            ("overflow buckets", chained + writer.free_buckets(), overflow),
            ("heap bytes", counts.heap_bytes, writer.heap_in_use()),
            ("reserves to holders of locks", counts.reserved, reserved),
            ("reserves", reserved, table.reserved.load(Ordering::Relaxed)),
            ("strays", writer.strays.len() as u64, table.strayed()),
        ];
        for (what, found, counted) in counts {
            if found != counted {
                lines.push(format!("{what}: found {found}, counted {counted}"));
            }
        }
    }

    fn may_stand(&self, key: Key, address: u64) -> bool {
        let mut found = false;
        self.table.each_slot_of_home(self.table.geometry.bucket(key), &mut |slot| {
            found |= slot == address;
            found
        });
        found
    }
}
