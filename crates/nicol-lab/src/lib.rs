//! The laboratory: experiments that reproduce the papers' figures, sweeps of seeds, the museum of
//! planted faults. What runs in them is [`nicol_bench`]'s.
#![forbid(unsafe_code)]

mod command_line;
pub mod decisions;
pub mod experiments;
mod families;
pub mod figures;
pub mod museum;
pub mod replay;
pub mod shrink;
pub mod sweep;
