//! The hash tables of a shard: one for each hashed table of the workload. (decision 0112)

use std::sync::Arc;

use nicol_core::ids::Key;
use nicol_core::records::RecordSource;

/// Numbers that a table may have.
const NUMBERS: usize = 1 << 8;

/// One `T` for each hash table of a shard: the table itself, its shape, its index.
#[derive(Clone, Debug)]
pub(super) struct ByTable<T> {
    each: Box<[T]>,
    /// By the number of a key's table: its place in `each`. That of the largest for ordered tables,
    /// and for those that the workload does not name.
    places: Arc<[u8; NUMBERS]>,
}

impl<T> ByTable<T> {
    /// The one of the table of `key`; of an ordered key, that of the largest table.
    #[inline]
    pub(super) fn of(&self, key: Key) -> &T {
        match &*self.each {
            [only] => only,
            each => &each[usize::from(self.places[usize::from(key.table().0)])],
        }
    }

    /// The only one; `None` if there are several.
    pub(super) fn only(&self) -> Option<&T> {
        if let [only] = &*self.each { Some(only) } else { None }
    }

    /// The first of them: there is one at least.
    pub(super) fn first(&self) -> &T {
        &self.each[0]
    }

    /// All, in a fixed order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &T> + Clone {
        self.each.iter()
    }

    /// The result of `make` for each.
    pub(super) fn map<U>(&self, make: impl FnMut(&T) -> U) -> ByTable<U> {
        ByTable { each: self.each.iter().map(make).collect(), places: self.places.clone() }
    }

    /// These in the place of the ones here, in their order.
    ///
    /// # Panics
    /// If they are not as many.
    pub(super) fn with<U>(&self, each: Vec<U>) -> ByTable<U> {
        assert!(each.len() == self.each.len(), "there is one for each table");
        ByTable { each: each.into(), places: self.places.clone() }
    }

    /// One alone, which takes all keys.
    pub(super) fn alone(only: T) -> Self {
        Self { each: Box::new([only]), places: Arc::new([0; NUMBERS]) }
    }
}

/// How many rows of which length a hash table must have space for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rows {
    /// Rows at most, those that may come included.
    pub(super) capacity: u64,
    /// May any come?
    pub(super) grow: bool,
    /// Bytes of the longest that a slot ought to hold; as many as the system's slots may, if it is
    /// not known.
    pub(super) value_bytes: Option<usize>,
    /// Of longer ones, at most how many have which length: (bytes, rows).
    pub(super) longer: Vec<(u32, u64)>,
}

/// The hash tables of a shard of `source`.
pub(super) fn tables_of(source: &dyn RecordSource) -> ByTable<Rows> {
    let sizes = source.hashed_tables();
    let largest = sizes.iter().enumerate().max_by_key(|(_, size)| size.records + size.growth);
    let Some((largest, _)) = largest else {
        let hashed = source.records_per_shard() - source.ordered_per_shard();
        return ByTable::alone(Rows {
            capacity: hashed + source.growth_per_shard(),
            grow: true,
            value_bytes: None,
            longer: source.value_lengths(),
        });
    };
    let mut places = [largest as u8; NUMBERS];
    for (place, size) in sizes.iter().enumerate() {
        places[usize::from(size.table.0)] = place as u8;
    }
    let rows = sizes.into_iter().map(|size| Rows {
        capacity: size.records + size.growth,
        grow: size.growth > 0,
        value_bytes: Some(size.value_bytes),
        longer: size.longer,
    });
    ByTable { each: rows.collect(), places: Arc::new(places) }
}

#[cfg(test)]
mod tests {
    use nicol_core::ids::{ShardId, TableId};
    use nicol_core::records::{Empty, TableSize};
    use nicol_core::view::ShardMap;

    use super::*;

    struct Three;

    impl RecordSource for Three {
        fn load(&self, _: &dyn ShardMap, _: ShardId, _: &mut dyn FnMut(Key, &[u8])) {}

        fn records_per_shard(&self) -> u64 {
            108
        }

        fn hashed_tables(&self) -> Vec<TableSize> {
            let grown = TableSize { growth: 7, ..TableSize::fixed(TableId(9), 1, 40) };
            vec![TableSize::fixed(TableId(3), 7, 8), TableSize::fixed(TableId(4), 100, 24), grown]
        }
    }

    #[test]
    fn a_key_is_in_its_own_table_and_an_ordered_one_with_the_largest() {
        let tables = tables_of(&Three);
        let capacity = |table| tables.of(Key::new(table, 5)).capacity;
        assert_eq!([3, 4, 9].map(|table| capacity(TableId(table))), [7, 100, 8]);
        assert_eq!(capacity(TableId::ORDERED), 100);
        assert_eq!(tables.iter().filter(|rows| rows.grow).count(), 1);
        assert!(tables.only().is_none());
    }

    #[test]
    fn a_source_that_names_none_has_one_table_for_all_keys() {
        let tables = tables_of(&Empty { capacity_per_shard: 50 });
        assert_eq!(tables.only().map(|rows| (rows.capacity, rows.value_bytes)), Some((50, None)));
        assert_eq!(tables.of(Key::new(TableId(200), 1)).capacity, 50);
    }
}
