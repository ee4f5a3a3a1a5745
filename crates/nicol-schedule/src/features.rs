//! Feature vectors: which of 512 features a request touches, and which it writes. [AlNiCo22,
//! vectors I]

use std::ops::Range;

use nicol_core::ids::{Key, TableId};
use nicol_core::records::RecordSource;
use nicol_core::txn::{Procedures, Txn};
use nicol_core::wire::{Malformed, Reader, Writer};
pub use nicol_store::feature_counters::{FEATURES, Plane};
use nicol_store::feature_counters::{FeatureList, Touches};

/// An odd factor whose product spreads neighbouring keys over the high bits: 2^64 by the golden
/// ratio.
pub(super) const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// The features of a request: a plane of all, and one of those that it writes. (AMB-23)
#[derive(Clone, Copy, Debug, Default)]
pub struct Features {
    touched: Plane,
    written: Plane,
    /// The same one by one.
    list: FeatureList,
}

impl PartialEq for Features {
    fn eq(&self, other: &Self) -> bool {
        (self.touched, self.written) == (other.touched, other.written)
    }
}

impl Eq for Features {}

impl Features {
    pub fn add(&mut self, feature: usize, write: bool) {
        let (word, bit) = (feature / 64, 1 << (feature % 64));
        if self.touched[word] & bit == 0 {
            self.list.push(feature, write);
        } else if write {
            self.list.write(feature);
        }
        self.touched[word] |= bit;
        if write {
            self.written[word] |= bit;
        }
    }

    /// The features that are read or written.
    pub const fn touched(&self) -> &Plane {
        &self.touched
    }

    /// Those of them that are written.
    pub const fn written(&self) -> &Plane {
        &self.written
    }

    /// How many features there are.
    pub fn count(&self) -> u32 {
        self.touched.iter().map(|word| word.count_ones()).sum()
    }

    /// As counters want them. Where reads do not matter, all are `all_written`.
    pub const fn touches(&self, all_written: bool) -> Touches<'_> {
        let written = if all_written { &self.touched } else { &self.written };
        Touches { touched: &self.touched, written, listed: self.list.get(), all_written }
    }

    /// The features of a plane, in their order.
    pub fn of(plane: &Plane) -> impl Iterator<Item = usize> {
        plane.iter().enumerate().flat_map(|(word, bits)| {
            let mut left = *bits;
            std::iter::from_fn(move || {
                let bit = left.trailing_zeros() as usize;
                left &= left.wrapping_sub(1);
                (bit < 64).then_some(64 * word + bit)
            })
        })
    }

    pub(super) fn emit(&self, to: &mut Writer<'_>) {
        self.touched.iter().chain(&self.written).for_each(|word| to.u64(*word));
    }

    pub(super) fn parse(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let mut features = Self::default();
        for word in features.touched.iter_mut().chain(&mut features.written) {
            *word = from.u64()?;
        }
        let stray = features.written.iter().zip(&features.touched).any(|(w, t)| w & !t != 0);
        if stray {
            return Err(Malformed { what: "a feature that is written and not touched" });
        }
        let is_written = |feature: usize| features.written[feature / 64] >> (feature % 64) & 1 == 1;
        for feature in Self::of(&features.touched) {
            features.list.push(feature, is_written(feature));
        }
        Ok(features)
    }
}

/// Which features the keys of each table have: disjoint ones, in proportion to the shares that the
/// workload gives. [AlNiCo22, requirements]
#[derive(Clone, Debug)]
pub struct FeatureMap {
    /// By table: the first feature, and how many.
    tables: Vec<Share>,
    number: fn(Key) -> u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Share {
    table: TableId,
    first: usize,
    count: usize,
}

/// The entry for tables that have none.
const OTHERS: TableId = TableId(0);

impl FeatureMap {
    /// The map of what `source` loads. Without shares, all keys share all features.
    pub fn of(source: &dyn RecordSource) -> Self {
        Self::new(&source.feature_shares(), source.feature_number())
    }

    /// The map of tables with these shares, whose keys have these numbers.
    ///
    /// # Panics
    /// If there are more tables than features.
    pub fn new(shares: &[(TableId, u32)], number: fn(Key) -> u64) -> Self {
        assert!(shares.len() <= FEATURES, "a table has a feature at least");
        let all: u64 = shares.iter().map(|(_, share)| u64::from(*share)).sum();
        let part = |share: u32| (u64::from(share) * FEATURES as u64 / all.max(1)) as usize;
        let mut counts: Vec<usize> = shares.iter().map(|(_, share)| part(*share).max(1)).collect();
        while counts.iter().sum::<usize>() > FEATURES {
            let largest = counts.iter_mut().max();
            *largest.expect("tables that take too much are there") -= 1;
        }
        let mut first = 0;
        let mut tables = Vec::new();
        for (&(table, _), count) in shares.iter().zip(counts) {
            tables.push(Share { table, first, count });
            first += count;
        }
        Self { tables, number }
    }

    fn share(&self, table: TableId) -> Share {
        let of = |table| self.tables.iter().find(|share| share.table == table);
        let all = Share { table: OTHERS, first: 0, count: FEATURES };
        of(table).or_else(|| of(OTHERS)).copied().unwrap_or(all)
    }

    /// The feature of `key`, within those of its table: keys with successive numbers have different
    /// features as long as there are enough, and those further apart are mixed, whatever their
    /// stride. (AMB-38)
    pub fn feature(&self, key: Key) -> usize {
        let Share { first, count, .. } = self.share(key.table());
        let (number, count) = ((self.number)(key), count as u64);
        let shift = (number / count).wrapping_mul(SPREAD) >> 32;
        first + ((number % count + shift) % count) as usize
    }

    /// The position of the table of `key` among those that have a share.
    pub fn table(&self, key: Key) -> Option<usize> {
        self.tables.iter().position(|share| share.table == key.table())
    }

    /// The features of each table, tables without a share together.
    pub fn tables(&self) -> impl Iterator<Item = Range<usize>> {
        let all = self.tables.is_empty().then_some(0..FEATURES);
        let shares = self.tables.iter().map(|share| share.first..share.first + share.count);
        shares.chain(all)
    }

    /// The features that a request for `txn` has.
    pub fn features(&self, txn: &Txn, procedures: &Procedures) -> Features {
        let mut features = Features::default();
        procedures.features(txn, &mut |key, write| features.add(self.feature(key), write));
        features
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_have_features_of_their_own_in_proportion() {
        let (small, large) = (TableId(1), TableId(2));
        let map = FeatureMap::new(&[(small, 10), (large, 90)], Key::row);
        let of = |table| {
            let features: std::collections::BTreeSet<usize> =
                (0..20_000).map(|row| map.feature(Key::new(table, row))).collect();
            features
        };
        let (few, many) = (of(small), of(large));
        assert!(few.is_disjoint(&many) && few.len() == 51 && many.len() == 460);
        assert!(map.tables().eq([0..51, 51..511]));
        assert_eq!(FeatureMap::new(&[], Key::row).tables().last(), Some(0..FEATURES));
        let tiny: Vec<_> = (1..=60).map(|table| (TableId(table), u32::from(table == 1))).collect();
        assert_eq!(FeatureMap::new(&tiny, Key::row).tables().last(), Some(511..512));
    }

    #[test]
    fn few_keys_never_share_a_feature_and_no_stride_makes_many_share_one() {
        let map = FeatureMap::new(&[(TableId(1), 20), (TableId(0), 492)], Key::row);
        let feature = |row| map.feature(Key::new(TableId(1), row));
        for from in [0, 40, 4_000] {
            let features: std::collections::BTreeSet<usize> =
                (from..from + 20).map(feature).collect();
            assert_eq!(features.len(), 20);
        }
        let mut counts = [0; 20];
        (0..2_000).for_each(|at| counts[feature(20 * at)] += 1);
        assert!(counts.iter().all(|count| (60..150).contains(count)), "{counts:?}");
        assert!(map.feature(Key::new(TableId(9), 3)) >= 20, "a table without a share");
    }

    #[test]
    fn features_survive_the_way_and_a_stray_write_is_refused() {
        let mut features = Features::default();
        [0, 63, 64, 511].iter().for_each(|feature| features.add(*feature, feature % 2 == 0));
        assert_eq!(Features::of(&features.touched).collect::<Vec<_>>(), [0, 63, 64, 511]);
        let mut body = Vec::new();
        features.emit(&mut Writer::new(&mut body));
        assert_eq!(Features::parse(&mut Reader::new(&body)), Ok(features));
        body[127] = 1;
        assert!(Features::parse(&mut Reader::new(&body)).is_err());
        assert!(Features::parse(&mut Reader::new(&body[..100])).is_err());
    }
}
