//! A digest that is equal for equal records, whatever the table's structure.

use nicol_core::ids::{Key, Version};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// A digest of the records that `for_each` passes to its argument, independent of their order.
pub(crate) fn of_records(for_each: impl FnOnce(&mut dyn FnMut(Key, Version, &[u8]))) -> u64 {
    let mut digest = 0u64;
    for_each(&mut |key, version, value| {
        let record = xxh3_64_with_seed(value, key.0 ^ version.0.rotate_left(32));
        digest = digest.wrapping_add(record);
    });
    digest
}
