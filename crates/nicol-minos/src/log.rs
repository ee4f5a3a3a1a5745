//! The logs of an engine: slots of a region from which updates become durable. [MINOS24 III-B,
//! V-B4]
//!
//! Records may come in any order of their timestamps; whoever applies them checks for obsoleteness.
//! On the node's medium a record is the bytes below. A slot is free again once its record is
//! durable.

use std::cell::RefCell;
use std::sync::Arc;

use nicol_core::exec::Signal;
use nicol_core::ids::Key;
use nicol_core::memory::{Region, WORD};
use nicol_core::units::Bytes;
use nicol_core::wire::{Malformed, Reader};

use super::timestamp::Timestamp;

/// The mark of the dFIFO in the labels of a node's medium.
pub(super) const QUEUE_LABEL: u32 = 1 << 16;

/// Records that an engine persists at a time; further ones wait. More than a node has clients and
/// other nodes' writes per engine in the paper's runs.
pub(super) const LOG_SLOTS: u32 = 256;

/// The content of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Logged<'a> {
    /// An update of a record; `None` removes it.
    Update { key: Key, ts: Timestamp, value: Option<&'a [u8]> },
    /// A [PERSIST]sc, which is persisted as well. [MINOS24 III-C]
    Persist { scope: u64 },
}

impl<'a> Logged<'a> {
    const UPDATE: u64 = 1;
    const REMOVAL: u64 = 2;
    const PERSIST: u64 = 3;
    /// Bytes before a value.
    pub(super) const HEADER: u64 = 32;

    /// Its parts: kind, key or scope, timestamp and length of the value; the value.
    fn parts(&self) -> ([u64; 4], &'a [u8]) {
        let (kind, key, ts, value) = match *self {
            Self::Update { key, ts, value: Some(value) } => (Self::UPDATE, key.0, ts, value),
            Self::Update { key, ts, value: None } => (Self::REMOVAL, key.0, ts, &[][..]),
            Self::Persist { scope } => (Self::PERSIST, scope, Timestamp::NONE, &[][..]),
        };
        ([kind, key, ts.bits(), value.len() as u64], value)
    }

    /// The record as it stands in the log.
    pub(super) fn emit(&self) -> Vec<u8> {
        let (header, value) = self.parts();
        [header.map(u64::to_le_bytes).as_flattened(), value].concat()
    }

    /// The key and the timestamp, if it is an update.
    pub(super) const fn update(&self) -> Option<(Key, Timestamp)> {
        match *self {
            Logged::Update { key, ts, .. } => Some((key, ts)),
            Logged::Persist { .. } => None,
        }
    }

    /// Reads the record at the front of `bytes`.
    pub(super) fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes);
        let [kind, key, ts, len] = reader.u64s()?;
        let (ts, key) = (Timestamp::of_bits(ts), Key(key));
        let value = reader.bytes(usize::try_from(len).unwrap_or(usize::MAX))?;
        match kind {
            Self::UPDATE => Ok(Self::Update { key, ts, value: Some(value) }),
            Self::REMOVAL => Ok(Self::Update { key, ts, value: None }),
            Self::PERSIST => Ok(Self::Persist { scope: key.0 }),
            _ => Err(Malformed { what: "no such log record" }),
        }
    }
}

/// The slots of one region.
#[derive(Debug)]
pub(super) struct Slots {
    region: Arc<Region>,
    slot_bytes: u64,
    free: RefCell<Vec<u32>>,
    freed: Signal,
}

/// A slot in use.
#[derive(Debug)]
pub(super) struct Slot(u32);

impl Slots {
    /// The bytes of `count` slots for values of `value_bytes`.
    pub(super) const fn bytes(count: u32, value_bytes: u64) -> Bytes {
        Bytes(count as u64 * slot_bytes(value_bytes))
    }

    /// The slots of `region`, which has [`Slots::bytes`] of them.
    pub(super) fn new(region: Arc<Region>, count: u32, value_bytes: u64, freed: Signal) -> Self {
        let free = RefCell::new((0..count).rev().collect());
        Self { region, slot_bytes: slot_bytes(value_bytes), free, freed }
    }

    pub(super) fn region(&self) -> &Arc<Region> {
        &self.region
    }

    /// Takes a slot; waits until there is one.
    pub(super) async fn take(&self) -> Slot {
        loop {
            let freed = self.freed.wait();
            let slot = self.free.borrow_mut().pop();
            match slot {
                Some(slot) => return Slot(slot),
                None => freed.await,
            }
        }
    }

    /// The offset of a slot in the region.
    pub(super) const fn offset(&self, slot: &Slot) -> u64 {
        slot.0 as u64 * self.slot_bytes
    }

    /// Writes a record into a slot: its bytes.
    ///
    /// # Panics
    /// If it is larger.
    pub(super) fn write(&self, slot: &Slot, record: &Logged<'_>) -> usize {
        let (header, value) = record.parts();
        let bytes = Logged::HEADER + value.len() as u64;
        assert!(bytes <= self.slot_bytes, "a record fits its slot");
        let offset = self.offset(slot);
        let header = self.region.write(offset, header.map(u64::to_le_bytes).as_flattened());
        let written = header.and_then(|()| self.region.write(offset + Logged::HEADER, value));
        assert!(written.is_ok(), "a slot lies in its region, which its own engine has");
        bytes as usize
    }

    /// Gives a slot back.
    pub(super) fn give(&self, slot: Slot) {
        self.free.borrow_mut().push(slot.0);
        self.freed.notify();
    }
}

const fn slot_bytes(value_bytes: u64) -> u64 {
    (Logged::HEADER + value_bytes).next_multiple_of(WORD as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_again_and_a_damaged_one_is_refused() {
        let (key, ts) = (Key(3), Timestamp::of_bits(99));
        let records = [
            Logged::Update { key, ts, value: Some(b"a value") },
            Logged::Update { key, ts, value: None },
            Logged::Persist { scope: 8 },
        ];
        for record in records {
            let mut bytes = record.emit();
            assert_eq!(Logged::parse(&bytes), Ok(record));
            bytes.extend([0; 5]);
            assert_eq!(Logged::parse(&bytes), Ok(record), "a slot is longer");
            assert!(Logged::parse(&bytes[..Logged::HEADER as usize - 1]).is_err());
            bytes[0] = 9;
            assert!(Logged::parse(&bytes).is_err());
        }
        let mut long = Logged::Update { key, ts, value: Some(b"a value") }.emit();
        long[24] = 200;
        assert!(Logged::parse(&long).is_err(), "a length beyond its slot");
    }
}
