//! What a remote lookup costs in each structure, counted exactly: objects read and round trips.
//! No times, no model. [Xenic21 4.1.4]
//!
//! A table is filled with distinct uniform keys to 90 % of its slots, records in overflow
//! included (AMB-01); then every key is looked up once with the code that a NIC or a remote
//! coordinator runs. An object is a slot, in use or not, since a READ moves either.
//!
//! Robinhood's lookups follow the NIC index's rule (AMB-04): the first read covers d_i + k + 1 slots
//! from the key's home, D_m at most; a second, adjacent one the rest up to D_m; then come the
//! overflow pages, whose address the index entry holds. The hints are those of a warm index: a
//! first pass over all keys, which is not counted, has taught them. Without D_m an insertion's probe
//! may pass thousands of slots, which no table here offers; where the objects stand then does not
//! depend on the order of insertion, so it is computed.

use nicol_core::ids::{Key, Version};
use nicol_core::memory::Region;
use nicol_core::units::Bytes;

use crate::host_table::{
    self, Growth, Home, HostTable, PageRef, Progress, SEGMENT_SLOTS, SlotHash, SlotView,
};
use crate::remote_table::{Design, Geometry, RemoteTable, Step, TableConfig};

/// Slots in use of a hundred.
const OCCUPANCY_PERCENT: u64 = 90;
/// Entries read beyond the known displacement, k. [Xenic21 4.1.3]
const SLACK: u16 = 1;
/// Bytes of the values: their size is of no account here.
const VALUE_BYTES: usize = 8;

/// A structure and its parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Structure {
    /// Xenic's Robinhood table with its NIC index.
    Robinhood {
        /// D_m, if there is a limit.
        displacement_max: Option<u16>,
    },
    /// FaRM's hopscotch table or DrTM+H's chained buckets.
    Remote(Design),
}

/// The structures that Xenic's paper compares.
pub const COMPARED: [Structure; 8] = [
    Structure::Robinhood { displacement_max: Some(8) },
    Structure::Robinhood { displacement_max: Some(16) },
    Structure::Robinhood { displacement_max: Some(32) },
    Structure::Robinhood { displacement_max: None },
    Structure::Remote(Design::Hopscotch { neighbourhood: 8 }),
    Structure::Remote(Design::Chained { bucket: 4 }),
    Structure::Remote(Design::Chained { bucket: 8 }),
    Structure::Remote(Design::Chained { bucket: 16 }),
];

impl Structure {
    /// Its name.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Robinhood { .. } => "robinhood",
            Self::Remote(Design::Hopscotch { .. }) => "hopscotch",
            Self::Remote(Design::Chained { .. }) => "chained",
        }
    }

    /// Its parameter: D_m, H or B; `None` for Robinhood without a limit.
    pub const fn parameter(&self) -> Option<u16> {
        match *self {
            Self::Robinhood { displacement_max } => displacement_max,
            Self::Remote(Design::Hopscotch { neighbourhood }) => Some(neighbourhood),
            Self::Remote(Design::Chained { bucket }) => Some(bucket),
        }
    }
}

/// What the lookups of one structure cost: a row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LookupCost {
    /// The structure.
    pub structure: Structure,
    /// Records in the table, each looked up once.
    pub records: u64,
    /// Slots of the table, without overflow.
    pub slots: u64,
    /// Slots read by all lookups.
    pub objects: u64,
    /// Round trips of all lookups.
    pub roundtrips: u64,
    /// Records that stand in overflow pages or chains.
    pub overflowed: u64,
}

impl LookupCost {
    /// Mean objects read per lookup.
    pub fn objects_read(&self) -> f64 {
        self.objects as f64 / self.records as f64
    }

    /// Mean round trips per lookup.
    pub fn mean_roundtrips(&self) -> f64 {
        self.roundtrips as f64 / self.records as f64
    }

    /// Part of the records that stand in overflow.
    pub fn overflow_fraction(&self) -> f64 {
        self.overflowed as f64 / self.records as f64
    }
}

/// Fills `structure` with `records` keys and counts what looking them up costs.
///
/// Cost: about 100 bytes of memory a record, and of the order of a microsecond a record.
///
/// # Panics
/// If `records` is 0.
pub fn measure(structure: Structure, records: u64, seed: u64) -> LookupCost {
    assert!(records > 0, "something is looked up");
    let slots = (records * 100).div_ceil(OCCUPANCY_PERCENT);
    match structure {
        Structure::Robinhood { displacement_max: Some(reach) } => {
            measure_robinhood(structure, reach, slots, records, seed)
        }
        Structure::Robinhood { displacement_max: None } => {
            // One slot a bucket: the geometry's bucket is a uniform home.
            let one = Geometry::new(config(Design::Chained { bucket: 1 }, slots));
            let Tally { objects, roundtrips } =
                unlimited(keys(records, seed).map(|key| one.bucket(key)), slots);
            LookupCost { structure, records, slots, objects, roundtrips, overflowed: 0 }
        }
        Structure::Remote(design) => measure_remote(structure, design, slots, records, seed),
    }
}

/// The keys: distinct, and as good as uniform. SplitMix64's finalizer is a bijection.
fn keys(records: u64, seed: u64) -> impl Iterator<Item = Key> {
    (0..records).map(move |number| {
        let mut bits = number.wrapping_add(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        Key(bits ^ bits >> 31)
    })
}

/// What one lookup, or many, read.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    objects: u64,
    roundtrips: u64,
}

impl Tally {
    fn read(&mut self, objects: u64) {
        self.objects += objects;
        self.roundtrips += 1;
    }
}

/// Reads a range of a region as a remote reader does.
fn fetch(region: &Region, offset: u64, len: usize, into: &mut Vec<u8>) {
    into.resize(len, 0);
    if let Err(error) = region.read(offset, into) {
        panic!("a lookup reads inside the table: {error}");
    }
}

fn config(design: Design, slots: u64) -> TableConfig {
    let overflow_slots = slots / 2 + 64;
    TableConfig { design, slots, overflow_slots, inline: VALUE_BYTES, heap: Bytes(0) }
}

fn measure_remote(
    structure: Structure,
    design: Design,
    slots: u64,
    records: u64,
    seed: u64,
) -> LookupCost {
    let table = RemoteTable::new(Geometry::new(config(design, slots)), records);
    for key in keys(records, seed) {
        table.load(key, &key.0.to_le_bytes());
    }
    let (mut tally, mut bytes) = (Tally::default(), Vec::new());
    for key in keys(records, seed) {
        let mut walk = table.geometry().walk(key);
        loop {
            let span = walk.span();
            tally.read(walk.slots());
            fetch(table.region(), span.offset, span.len, &mut bytes);
            match walk.step(&bytes) {
                Step::Next => {}
                Step::Found(record) => {
                    assert!(record.header.version() == Version(1), "it was loaded once");
                    break;
                }
                Step::Absent(_) | Step::Torn => panic!("a loaded key is found"),
            }
        }
    }
    let Tally { objects, roundtrips } = tally;
    let overflowed = table.overflowed();
    LookupCost { structure, records, slots, objects, roundtrips, overflowed }
}

fn measure_robinhood(
    structure: Structure,
    reach: u16,
    slots: u64,
    records: u64,
    seed: u64,
) -> LookupCost {
    let geometry = host_table::Geometry::new(slots, reach, VALUE_BYTES);
    let table = HostTable::new(geometry, records, Growth::Off);
    for key in keys(records, seed) {
        table.load(key, &key.0.to_le_bytes());
    }
    let hints = vec![0; (geometry.slots() / SEGMENT_SLOTS) as usize];
    let mut nic = HintedLookups { table: &table, reach, hints, bytes: Vec::new() };
    let (mut teaching, mut tally) = (Tally::default(), Tally::default());
    for key in keys(records, seed) {
        nic.lookup(key, &mut teaching);
    }
    for key in keys(records, seed) {
        nic.lookup(key, &mut tally);
    }
    let Tally { objects, roundtrips } = tally;
    let overflowed = table.overflowed();
    LookupCost { structure, records, slots, objects, roundtrips, overflowed }
}

/// Looks every object of a Robinhood table without D_m up, given their homes: in the order of homes,
/// an object stands at home or right behind the one before it.
fn unlimited(homes: impl Iterator<Item = u64>, slots: u64) -> Tally {
    let mut counts = vec![0u16; slots.next_multiple_of(SEGMENT_SLOTS) as usize];
    for home in homes {
        counts[home as usize] += 1;
    }
    let (mut tally, mut free) = (Tally::default(), 0);
    for (segment, homes) in counts.chunks(SEGMENT_SLOTS as usize).enumerate() {
        let (mut displacement, mut objects) = (0, 0);
        for (slot, count) in homes.iter().enumerate().filter(|(_, count)| **count > 0) {
            let home = segment as u64 * SEGMENT_SLOTS + slot as u64;
            free = home.max(free) + u64::from(*count);
            displacement = displacement.max(free - 1 - home);
            objects += u64::from(*count);
        }
        tally.objects += objects * (displacement + u64::from(SLACK) + 1);
        tally.roundtrips += objects;
    }
    tally
}

/// The NIC's lookups of keys that its index does not cache, with the displacement hints of its
/// entries.
struct HintedLookups<'a> {
    table: &'a HostTable,
    reach: u16,
    /// d_i of each segment.
    hints: Vec<u16>,
    bytes: Vec<u8>,
}

impl HintedLookups<'_> {
    /// The table does not grow.
    fn home(&self, key: Key) -> Home {
        self.table.home(SlotHash::of(key), Progress::default())
    }

    fn lookup(&mut self, key: Key, tally: &mut Tally) {
        let segment = self.home(key).segment as usize;
        let first = (self.hints[segment] + SLACK + 1).min(self.reach);
        let displacement = self
            .slots(key, 0, first, tally)
            .or_else(|| (first < self.reach).then(|| self.slots(key, first, self.reach, tally))?)
            .unwrap_or_else(|| {
                self.overflow(key, tally);
                // Says that overflow may hold the segment's objects, as the NIC's lookups do.
                self.reach - 1
            });
        self.hints[segment] = self.hints[segment].max(displacement);
    }

    /// Reads the slots `from..to` behind the key's home; the displacement if the key is there.
    fn slots(&mut self, key: Key, from: u16, to: u16, tally: &mut Tally) -> Option<u16> {
        let count = u64::from(to - from);
        let span = self.table.slots_span(self.home(key), u64::from(from), count);
        tally.read(count);
        fetch(&span.region, span.offset, span.len, &mut self.bytes);
        let found = self.table.parse_slots(&self.bytes).position(|slot| holds(slot, key))?;
        Some(from + found as u16)
    }

    fn overflow(&mut self, key: Key, tally: &mut Tally) {
        // The index entry holds this address: reading it is no round trip.
        let header = self.table.header_span(self.home(key));
        fetch(&header.region, header.offset, header.len, &mut self.bytes);
        let mut page = HostTable::parse_header(&self.bytes).and_then(|header| header.overflow);
        loop {
            let Some(current) = page else { panic!("a loaded key is found") };
            if self.page(key, current, tally) {
                return;
            }
            page = HostTable::parse_page_link(&self.bytes);
        }
    }

    fn page(&mut self, key: Key, page: PageRef, tally: &mut Tally) -> bool {
        let span = self.table.page_span(page);
        fetch(&span.region, span.offset, span.len, &mut self.bytes);
        tally.read(self.table.parse_slots(&self.bytes).count() as u64);
        self.table.parse_slots(&self.bytes).any(|slot| holds(slot, key))
    }
}

fn holds(slot: SlotView<'_>, key: Key) -> bool {
    matches!(slot, SlotView::Record { key: found, .. } if found == key)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORDS: u64 = 20_000;

    #[test]
    #[cfg_attr(miri, ignore = "single-threaded, and slow to interpret")]
    fn every_structure_costs_at_least_its_first_read_and_no_more_than_its_bound() {
        for structure in COMPARED {
            let cost = measure(structure, RECORDS, 1);
            assert_eq!(cost.records, RECORDS);
            assert!(cost.roundtrips >= RECORDS, "{structure:?}: a lookup reads");
            let first = match structure {
                Structure::Robinhood { .. } => 2,
                Structure::Remote(_) => u64::from(structure.parameter().unwrap()),
            };
            assert!(cost.objects >= first * RECORDS, "{structure:?}: {cost:?}");
            let beyond = cost.roundtrips - RECORDS;
            assert!(beyond >= cost.overflowed, "{structure:?}: overflow costs a round trip");
            let unlimited = structure.parameter().is_none();
            assert_eq!(unlimited, cost.overflowed == 0, "{structure:?}: {cost:?}");
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "single-threaded, and slow to interpret")]
    fn chained_buckets_cost_what_counting_keys_per_bucket_says() {
        // The same keys, counted by home bucket: the n-th key of a bucket is ceil(n / B) reads off.
        let design = Design::Chained { bucket: 4 };
        let cost = measure(Structure::Remote(design), RECORDS, 3);
        let geometry = Geometry::new(config(design, cost.slots));
        let mut homes = vec![0u64; geometry.buckets() as usize];
        let mut roundtrips = 0;
        for key in keys(RECORDS, 3) {
            let home = &mut homes[geometry.bucket(key) as usize];
            *home += 1;
            roundtrips += home.div_ceil(4);
        }
        assert_eq!((cost.roundtrips, cost.objects), (roundtrips, 4 * roundtrips));
        let overflowed: u64 = homes.iter().map(|count| count.saturating_sub(4)).sum();
        assert_eq!(cost.overflowed, overflowed);
    }

    #[test]
    #[cfg_attr(miri, ignore = "single-threaded, and slow to interpret")]
    fn a_limit_that_is_never_met_costs_what_none_does() {
        let geometry = host_table::Geometry::new(40_000, 64, VALUE_BYTES);
        let table = HostTable::new(geometry, RECORDS, Growth::Off);
        for key in keys(RECORDS, 5) {
            table.load(key, b"value");
        }
        assert_eq!(table.overflowed(), 0, "half full, it does not overflow");
        let hints = vec![0; (geometry.slots() / SEGMENT_SLOTS) as usize];
        let mut nic = HintedLookups { table: &table, reach: 64, hints, bytes: Vec::new() };
        let (mut teaching, mut tally) = (Tally::default(), Tally::default());
        keys(RECORDS, 5).for_each(|key| nic.lookup(key, &mut teaching));
        keys(RECORDS, 5).for_each(|key| nic.lookup(key, &mut tally));
        let homes = keys(RECORDS, 5).map(|key| SlotHash::of(key).base_slot(geometry.slots()));
        let computed = unlimited(homes, geometry.slots());
        assert_eq!(
            (computed.objects, computed.roundtrips),
            (tally.objects, tally.roundtrips),
            "the table and the computation place the objects alike"
        );
        assert!(teaching.objects < tally.objects, "a cold index reads less, but more often");
    }

    #[test]
    #[cfg_attr(miri, ignore = "single-threaded, and slow to interpret")]
    fn a_tighter_limit_reads_less_and_overflows_more() {
        let costs = [8, 16, 32].map(|limit| {
            measure(Structure::Robinhood { displacement_max: Some(limit) }, RECORDS, 2)
        });
        assert!(costs[0].objects < costs[1].objects && costs[1].objects < costs[2].objects);
        assert!(costs[0].overflowed > costs[1].overflowed);
        assert!(costs[1].overflowed > costs[2].overflowed);
        assert!(costs[0].roundtrips > costs[2].roundtrips);
    }
}
