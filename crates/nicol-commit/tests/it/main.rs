//! Every system in the simulated world, judged by the checkers.

mod cluster;
mod crashes;
mod errata;
mod hot_keys;
mod log_forms;
mod overruled;
mod rdma_crashes;
mod recovers;
mod restart;
mod returns;
mod scheduled;
mod sizes;
mod slots;
mod upgrades;
mod validate;
mod ways;
mod xenic;
