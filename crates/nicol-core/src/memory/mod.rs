//! Memory that other engines, nodes or threads may touch: regions, their keys, doorbells.

mod doorbell;
mod region;
mod table;

pub use doorbell::Doorbell;
pub use region::{AccessError, Region, WORD};
pub use table::{Access, RegionTable};
