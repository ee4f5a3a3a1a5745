//! What protocols of every family are made of: requests to many nodes at once, locks that are taken
//! all or none, messages that are checked once.
//!
//! | a protocol needs | use |
//! |---|---|
//! | to send to several nodes and wait for all of them | [`Calls`], and [`Selection`] for which node gets which keys |
//! | to know the shard of each key of a transaction | [`KeyShards`] |
//! | to know that no node refused | [`AllGranted`], which only [`Calls::gather`] makes |
//! | to lock several records at their owner, all or none | [`lock_all`] |
//! | to remember which nodes may hold locks of a transaction | [`HeldLocks`] |
//! | a message that is checked when it arrives and used later | [`Items`] |
//! | to say that it is not at rest | [`Open`] |
//! | to count what happens, for reports | [`count`], [`counters`] |
//! | the newest write of each key in logs without a common order | [`Recovered`] |
//! | to go on after a round of execution logic | [`Computed`] |
//! | to run procedures of transactions over one record | [`outcome_of`] |
//! | to serve in order those who wait for the same thing | [`WaitingLine`] |
//! | to know whose data a crash has taken, and whose locks only a recovery may release | [`LostNodes`] |
//!
//! Nothing here decides anything: which step comes next, and what a refusal means, stands in the
//! protocol.
#![forbid(unsafe_code)]

mod at_rest;
mod calls;
mod counters;
mod items;
mod locks;
mod lost_nodes;
mod procedures;
mod recovered;
mod selection;
pub mod steering;
mod waiting_line;

pub use at_rest::Open;
pub use calls::{AllGranted, Calls};
pub use counters::{count, counters};
pub use items::{Item, Items};
pub use locks::{HeldLocks, lock_all};
pub use lost_nodes::{LostNodes, VIEW_WAIT, follow_views};
pub use procedures::{Computed, outcome_of};
pub use recovered::{Counts, EachWrite, Recovered};
pub use selection::{KeyShards, Selection};
pub use waiting_line::{LinePlace, WaitingLine};
