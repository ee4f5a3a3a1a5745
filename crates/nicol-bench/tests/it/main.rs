//! Systems of all families as the registry has them. They are compiled in the library alone: its
//! own tests are built without them.

mod committed;
mod last_load;
mod settings;
mod systems;
mod transactions;
mod variation;
mod workloads;
