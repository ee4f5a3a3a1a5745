//! The engine: one core's executor, calls, queues and vectors, the same in both worlds.

mod world;

pub use world::{Charge, Operation, Route, Transfer, Tuning, World};
