//! Feature vectors: which of 512 features a request touches, and which it writes. [AlNiCo22, vectors I]

use nicol_core::ids::{Key, TableId};
use nicol_core::txn::Txn;
use nicol_core::wire::{Malformed, Reader, Writer};

/// Features. (C2.03)
pub const FEATURES: usize = 512;
const WORDS: usize = FEATURES / 64;

/// An odd factor whose product spreads neighbouring keys over the high bits: 2^64 by the golden
/// ratio.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// A set of features.
pub type Plane = [u64; WORDS];

/// What a request touches: a plane of everything, and one of what it writes. (AMB-23)
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features {
    /// Read or written.
    pub touched: Plane,
    /// Written.
    pub written: Plane,
}

impl Features {
    /// Adds a feature.
    pub fn add(&mut self, feature: usize, write: bool) {
        let bit = 1 << (feature % 64);
        self.touched[feature / 64] |= bit;
        if write {
            self.written[feature / 64] |= bit;
        }
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
        match stray {
            true => Err(Malformed { what: "a feature that is written and not touched" }),
            false => Ok(features),
        }
    }
}

/// Which features the keys of each table have: disjoint ones, in proportion to the shares that the
/// workload gives. [AlNiCo22, requirements]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeatureMap {
    /// By table: the first feature, and how many.
    tables: Vec<(TableId, usize, usize)>,
}

impl FeatureMap {
    /// The map of tables with these shares. Without any, all keys share all features.
    ///
    /// # Panics
    /// If there are more tables than features.
    pub fn new(shares: &[(TableId, u32)]) -> Self {
        assert!(shares.len() <= FEATURES, "a table has a feature at least");
        let all: u64 = shares.iter().map(|(_, share)| u64::from((*share).max(1))).sum();
        let free = (FEATURES - shares.len()) as u64;
        let mut first = 0;
        let mut tables = Vec::new();
        for &(table, share) in shares {
            let count = 1 + (u64::from(share.max(1)) * free / all) as usize;
            tables.push((table, first, count));
            first += count;
        }
        assert!(first <= FEATURES, "shares are rounded down");
        Self { tables }
    }

    /// The feature of `key`: by a hash that mixes, within those of its table. (AMB-38)
    pub fn feature(&self, key: Key) -> usize {
        let mixed = (key.0 ^ key.0 >> 31).wrapping_mul(SPREAD) >> 32;
        let of_table = self.tables.iter().find(|(table, ..)| *table == key.table());
        let (first, count) = of_table.map_or((0, FEATURES), |&(_, first, count)| (first, count));
        first + mixed as usize % count
    }

    /// The features of the keys that `txn` declares, as far as `counts` says of a table that it does.
    /// Of ranges some keys of each stand for all.
    pub fn features(&self, txn: &Txn, counts: impl Fn(TableId) -> bool) -> Features {
        let mut features = Features::default();
        for entry in txn.entries().iter().filter(|entry| counts(entry.key.table())) {
            features.add(self.feature(entry.key), entry.write);
        }
        for scan in txn.scans().iter().filter(|scan| counts(scan.range.first.table())) {
            let (first, last) = (scan.range.first.0, scan.range.last.0);
            let stands =
                |at: u64| first + ((u128::from(last - first) * u128::from(at)) >> 2) as u64;
            (0..4).for_each(|at| features.add(self.feature(Key(stands(at))), false));
        }
        features
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_have_features_of_their_own_in_proportion() {
        let (small, large) = (TableId(1), TableId(2));
        let map = FeatureMap::new(&[(small, 10), (large, 90)]);
        let of = |table| {
            let features: std::collections::BTreeSet<usize> =
                (0..20_000).map(|row| map.feature(Key::new(table, row))).collect();
            features
        };
        let (few, many) = (of(small), of(large));
        assert!(few.is_disjoint(&many) && few.len() == 52 && many.len() == 460);
        assert_eq!(FeatureMap::new(&[]).feature(Key::new(small, 5)) / FEATURES, 0);
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
