//! Memory that other engines, nodes or threads may touch: regions, their keys, doorbells.

mod atomic;
mod buffers;
mod doorbell;
#[cfg(all(target_os = "linux", not(miri)))]
mod image;
mod pages;
mod region;
mod seqlock;
mod swap;
mod table;
#[cfg(test)]
mod tests;

pub use buffers::{BufferUse, BufferUses, Buffers, CHAINS_MAX, ChainMark, Entered};
pub use doorbell::Doorbell;
pub use pages::Copies;
pub use region::{AccessError, Region, WORD, Words, halves};
pub use swap::{Compare, MaskedSwap, SWAP_WORDS_MAX, Swapped};
pub use table::{Access, RegionTable, Registered};
