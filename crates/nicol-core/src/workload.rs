//! What a workload of transactions offers to the driver.

use crate::ids::NodeId;
use crate::records::{RecordSource, Records};
use crate::rng::Stream;
use crate::txn::{Procedures, Txn};

/// A workload of the commit family: records to load, and transactions to run.
pub trait Workload: RecordSource + 'static {
    /// Its name on the command line.
    fn name(&self) -> &'static str;

    /// The execution logic of its transactions.
    fn procedures(&self) -> Procedures;

    /// Fills `txn` with the next transaction of a client that runs at `home`; returns its kind,
    /// an index into [`Workload::kinds`].
    fn next(&self, home: NodeId, random: &mut Stream, txn: &mut Txn) -> usize;

    /// The same of the client of this number, where a workload tells them apart.
    fn next_of(&self, _client: u32, home: NodeId, random: &mut Stream, txn: &mut Txn) -> usize {
        self.next(home, random, txn)
    }

    /// May the execution of a transaction of `kind` write keys that [`Workload::next`] does not
    /// name? If it was executed elsewhere and its outcome is unknown, its client cannot tell which.
    fn adds_keys(&self, _kind: usize) -> bool {
        false
    }

    /// Turns `txn`, a piece that has just committed, into the next piece of the same transaction
    /// of `kind`; false, and nothing changed, if that was its last one.
    ///
    /// A chopped transaction is several database transactions that one client runs one after the
    /// other. To the client it is one: its latency is theirs together. [Xenic21 5.3]
    fn next_piece(&self, _kind: usize, _txn: &mut Txn) -> bool {
        false
    }

    /// The kind whose transactions a client hands over and does not wait for, if there is one: they
    /// are queued, answered at once, and executed in the background.
    fn deferred(&self) -> Option<usize> {
        None
    }

    /// The names of its transaction types.
    fn kinds(&self) -> &'static [&'static str];

    /// Judges what must hold of the final state whichever transactions committed, so that it can be
    /// asked even if some outcomes are unknown; part of [`Workload::audit`].
    fn audit_state(&self, _state: &mut dyn Records) -> Vec<String> {
        Vec::new()
    }

    /// Judges the records that are [known](Records::is_known) after crashes, whichever transactions
    /// committed: what must hold of them although others are missing.
    fn audit_survivors(&self, _state: &mut dyn Records) -> Vec<String> {
        Vec::new()
    }

    /// Judges the final state. Returns one line per violated invariant. `totals` are the driver's
    /// sums over committed transactions of the value that each left in `Txn::output` (eight bytes,
    /// signed little-endian), per kind, if it left one; money conservation is: initial total +
    /// these = final total.
    fn audit(&self, state: &mut dyn Records, totals: &[i128]) -> Vec<String>;
}
