//! The case studies of the off-path study (OSDI '23): systems that use the paths of a card.
#![forbid(unsafe_code)]

pub mod drtm_kv;
pub mod linefs;
