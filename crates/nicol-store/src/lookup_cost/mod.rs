//! The exact cost of a remote lookup in each structure: objects read and round trips. No times and
//! no model. [Xenic21 4.1.4]
//!
//! A table is filled with distinct uniform keys to 90 % of its slots, records in overflow
//! included (AMB-01); then every key is looked up once with the code that a NIC or a remote
//! coordinator runs. An object is a slot, in use or not, since a READ moves either.
//!
//! Robinhood's lookups follow the NIC index's rule: the first read covers what [`FirstRead`] says
//! (AMB-04); a second, adjacent one the rest up to D_m; then come the overflow pages, whose address
//! the index entry holds. How many homes share a d_i is a parameter (AMB-46). The hints are those
//! of a warm index, taught by a first pass over all keys, which is not counted. Without D_m an
//! insertion's probe may pass thousands of slots, which no table here supports. Since the positions
//! then do not depend on the order of insertion, they are computed.

mod filled;

use nicol_core::ids::Key;

use crate::host_table::SEGMENT_SLOTS;
use crate::nic_index::{FirstRead, HomesPerHint};
use crate::remote_table::{Design, Geometry};
pub use filled::Filled;
use filled::config;

/// Slots in use of a hundred.
const OCCUPANCY_PERCENT: u64 = 90;
/// Entries read beyond the known displacement, k. [Xenic21 4.1.3]
const SLACK: u16 = 1;
/// Bytes of the values that [`measure`] fills a table with: objects and round trips do not depend
/// on them.
const VALUE_BYTES: usize = 8;

/// A structure and its parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Structure {
    /// Xenic's Robinhood table with its NIC index.
    Robinhood {
        /// D_m, if there is a limit.
        displacement_max: Option<u16>,
        /// How many homes share a d_i.
        homes_per_hint: HomesPerHint,
        /// The range that the first read covers.
        first_read: FirstRead,
    },
    /// FaRM's hopscotch table or DrTM+H's chained buckets.
    Remote(Design),
    /// The same, read by a coordinator that remembers where records stand.
    Cached(Design),
}

/// The structures that Xenic's paper compares.
pub const COMPARED: [Structure; 8] = [
    Structure::robinhood(Some(8), HomesPerHint::ONE),
    Structure::robinhood(Some(16), HomesPerHint::ONE),
    Structure::robinhood(Some(32), HomesPerHint::ONE),
    Structure::robinhood(None, HomesPerHint::ONE),
    Structure::Remote(Design::Hopscotch { neighbourhood: 8 }),
    Structure::Remote(Design::Chained { bucket: 4 }),
    Structure::Remote(Design::Chained { bucket: 8 }),
    Structure::Remote(Design::Chained { bucket: 16 }),
];

impl Structure {
    /// Xenic's table with this D_m, hints of this granularity, and a first read of d_i + k entries.
    pub const fn robinhood(displacement_max: Option<u16>, homes_per_hint: HomesPerHint) -> Self {
        Self::Robinhood { displacement_max, homes_per_hint, first_read: FirstRead::Within }
    }

    /// The same with this first read; a structure without hints stays as it is.
    pub const fn reading(self, first_read: FirstRead) -> Self {
        match self {
            Self::Robinhood { displacement_max, homes_per_hint, .. } => {
                Self::Robinhood { displacement_max, homes_per_hint, first_read }
            }
            Self::Remote(_) | Self::Cached(_) => self,
        }
    }

    /// The range that the first read covers; `None` for structures without hints.
    pub const fn first_read(&self) -> Option<FirstRead> {
        match *self {
            Self::Robinhood { first_read, .. } => Some(first_read),
            Self::Remote(_) | Self::Cached(_) => None,
        }
    }

    /// How many homes share a d_i; `None` for structures without hints.
    pub const fn homes_per_hint(&self) -> Option<HomesPerHint> {
        match *self {
            Self::Robinhood { homes_per_hint, .. } => Some(homes_per_hint),
            Self::Remote(_) | Self::Cached(_) => None,
        }
    }

    /// Its name.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Robinhood { .. } => "robinhood",
            Self::Remote(Design::Hopscotch { .. }) => "hopscotch",
            Self::Remote(Design::Chained { .. }) => "chained",
            Self::Cached(Design::Hopscotch { .. }) => "hopscotch+addresses",
            Self::Cached(Design::Chained { .. }) => "chained+addresses",
        }
    }

    /// Its parameter: D_m, H or B; `None` for Robinhood without a limit.
    pub const fn parameter(&self) -> Option<u16> {
        match *self {
            Self::Robinhood { displacement_max, .. } => displacement_max,
            Self::Remote(design) | Self::Cached(design) => Some(match design {
                Design::Hopscotch { neighbourhood } => neighbourhood,
                Design::Chained { bucket } => bucket,
            }),
        }
    }
}

/// The cost of lookups in one structure: a row of the table.
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
    /// Bytes read by all lookups, with the heads of buckets and the links of pages; 0 where nothing
    /// was read.
    pub bytes: u64,
    /// Records that stand in overflow pages or chains.
    pub overflowed: u64,
}

impl LookupCost {
    /// Mean objects read per lookup.
    pub fn objects_read(&self) -> f64 {
        self.objects as f64 / self.records as f64
    }

    /// Mean bytes read per lookup.
    pub fn bytes_read(&self) -> f64 {
        self.bytes as f64 / self.records as f64
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
    let slots = slots_for(records);
    if let Structure::Robinhood { displacement_max: None, homes_per_hint, first_read } = structure {
        // One slot a bucket: the geometry's bucket is a uniform home.
        let one = Geometry::new(config(Design::Chained { bucket: 1 }, slots, VALUE_BYTES));
        let homes = keys(records, seed).map(|key| one.bucket(key));
        let tally = unlimited(homes, slots, homes_per_hint, first_read);
        return tally.cost(structure, records, 0);
    }
    let mut filled = Filled::new(structure, records, VALUE_BYTES, seed);
    filled.teach();
    filled.cost()
}

/// Slots of a table for so many records.
const fn slots_for(records: u64) -> u64 {
    (records * 100).div_ceil(OCCUPANCY_PERCENT)
}

/// The keys: distinct and practically uniform. SplitMix64's finalizer is a bijection.
pub fn keys(records: u64, seed: u64) -> impl Iterator<Item = Key> {
    (0..records).map(move |number| {
        let mut bits = number.wrapping_add(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        Key(bits ^ bits >> 31)
    })
}

/// The reads of one lookup, or of many.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    objects: u64,
    roundtrips: u64,
    bytes: u64,
}

impl Tally {
    fn read(&mut self, objects: u64, bytes: usize) {
        self.objects += objects;
        self.roundtrips += 1;
        self.bytes += bytes as u64;
    }

    fn cost(self, structure: Structure, records: u64, overflowed: u64) -> LookupCost {
        let Self { objects, roundtrips, bytes } = self;
        let slots = slots_for(records);
        LookupCost { structure, records, slots, objects, roundtrips, bytes, overflowed }
    }
}

/// Looks every object of a Robinhood table without D_m up, given their homes: in the order of
/// homes, an object stands at home or right behind the one before it.
fn unlimited(
    homes: impl Iterator<Item = u64>,
    slots: u64,
    homes_per_hint: HomesPerHint,
    first_read: FirstRead,
) -> Tally {
    let mut counts = vec![0u16; slots.next_multiple_of(SEGMENT_SLOTS) as usize];
    for home in homes {
        counts[home as usize] += 1;
    }
    let (mut tally, mut free) = (Tally::default(), 0);
    let shared = usize::from(homes_per_hint.get());
    for (group, homes) in counts.chunks(shared).enumerate() {
        let (mut displacement, mut objects) = (0u64, 0);
        for (slot, count) in homes.iter().enumerate().filter(|(_, count)| **count > 0) {
            let home = (group * shared + slot) as u64;
            free = home.max(free) + u64::from(*count);
            displacement = displacement.max(free - 1 - home);
            objects += u64::from(*count);
        }
        // Without a limit no read is cut short.
        let read = first_read.entries(displacement as u16, SLACK, u16::MAX);
        tally.objects += objects * u64::from(read);
        tally.roundtrips += objects;
    }
    tally
}

#[cfg(test)]
mod tests;
