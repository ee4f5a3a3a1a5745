//! What a workload offers to the driver and to a system that loads its data.

use crate::chance::Stream;
use crate::commit::Procedures;
use crate::ids::{Key, NodeId, ShardId};
use crate::txn::Txn;
use crate::view::ShardMap;

/// A workload: records to load, and transactions to run.
pub trait Workload: Send + Sync + 'static {
    /// Its name on the command line.
    fn name(&self) -> &'static str;

    /// The execution logic of its transactions.
    fn procedures(&self) -> Procedures;

    /// Calls `each` with every initial record of `shard`, in a fixed order, without holding more
    /// than one in memory.
    fn load(&self, shards: &dyn ShardMap, shard: ShardId, each: &mut dyn FnMut(Key, &[u8]));

    /// How many records [`Workload::load`] yields for one shard, at most.
    fn records_per_shard(&self) -> u64;

    /// How many of these stand in ordered tables ([`Key::is_ordered`]), at least.
    fn ordered_per_shard(&self) -> u64 {
        0
    }

    /// How many records a table should have room for beyond the initial ones, per shard.
    fn growth_per_shard(&self) -> u64 {
        0
    }

    /// Of the values that a shard has room for, at most how many have which length: (bytes,
    /// records). A table that keeps long values apart sizes the place for them by it. Short ones,
    /// that any table slot holds, may be left out.
    fn value_lengths(&self) -> Vec<(u32, u64)> {
        Vec::new()
    }

    /// Fills `txn` with the next transaction of a client that runs at `home`; returns its kind,
    /// an index into [`Workload::kinds`].
    fn next(&self, home: NodeId, random: &mut Stream, txn: &mut Txn) -> usize;

    /// Turns `txn`, a piece that has just committed, into the next piece of the same transaction
    /// of `kind`; false, and nothing changed, if that was its last one.
    ///
    /// A chopped transaction is several database transactions that one client runs one after the
    /// other. To the client it is one: its latency is theirs together. [Xenic21 5.3]
    fn next_piece(&self, _kind: usize, _txn: &mut Txn) -> bool {
        false
    }

    /// The names of its transaction types.
    fn kinds(&self) -> &'static [&'static str];

    /// Judges what must hold of the final state whichever transactions committed, so that it can be
    /// asked even if some outcomes are unknown; part of [`Workload::audit`].
    fn audit_state(&self, _state: &mut dyn Records) -> Vec<String> {
        Vec::new()
    }

    /// Judges the final state. Returns one line per violated invariant. `totals` are the driver's
    /// sums over committed transactions of the value that each left in `Txn::output` (eight bytes,
    /// signed little-endian), per kind, if it left one; money conservation is: initial total + these
    /// = final total.
    fn audit(&self, state: &mut dyn Records, totals: &[i128]) -> Vec<String>;
}

/// The records of a cluster that is quiet.
pub trait Records {
    /// The value of `key`, if there is such a record.
    fn read(&mut self, key: Key) -> Option<Vec<u8>>;

    /// Calls `each` with every record, in the order in which they come cheapest: a fraction of the
    /// cost of reading each.
    fn for_each(&mut self, each: &mut dyn FnMut(Key, &[u8]));
}
