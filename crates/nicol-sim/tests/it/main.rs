//! The simulated world, tested through what it offers.

mod access;
mod broadcast;
mod chain_crashes;
mod chains;
mod checks;
mod conformance;
mod crashes;
mod determinism;
mod moved;
mod off_path;
mod persist;
mod torn;
mod trace;
mod views;
mod world;
