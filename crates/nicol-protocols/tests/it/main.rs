//! Every system in the simulated world, judged by the checkers.

mod cluster;
mod errata;
mod restart;
mod sizes;
mod slots;
mod ways;
mod xenic;
