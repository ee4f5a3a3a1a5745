//! A table's accesses to its own memory, which lie inside its regions by construction.

use nicol_core::memory::{Region, Words};

#[inline]
pub(crate) fn load(region: &Region, offset: u64) -> u64 {
    match region.load(offset) {
        Ok(word) => word,
        Err(error) => panic!("a table's own access failed: {error}"),
    }
}

#[inline]
pub(crate) fn store(region: &Region, offset: u64, word: u64) {
    if let Err(error) = region.store(offset, word) {
        panic!("a table's own access failed: {error}");
    }
}

/// Words that are checked once and accessed often.
#[inline]
pub(crate) fn words(region: &Region, offset: u64, len: u64) -> Words<'_> {
    match region.words(offset, len) {
        Ok(words) => words,
        Err(error) => panic!("a table's own access failed: {error}"),
    }
}

/// Compares and swaps; whether it took place.
pub(crate) fn swap(region: &Region, offset: u64, expected: u64, new: u64) -> bool {
    match region.compare_swap(offset, expected, new) {
        Ok(found) => found == expected,
        Err(error) => panic!("a table's own access failed: {error}"),
    }
}

pub(crate) fn read(region: &Region, offset: u64, into: &mut [u8]) {
    if let Err(error) = region.read(offset, into) {
        panic!("a table's own access failed: {error}");
    }
}

pub(crate) fn write(region: &Region, offset: u64, bytes: &[u8]) {
    if let Err(error) = region.write(offset, bytes) {
        panic!("a table's own access failed: {error}");
    }
}
