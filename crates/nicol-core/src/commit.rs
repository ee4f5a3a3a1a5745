//! The `commit` family: what every transactional system offers to a workload.

use crate::txn::{Outcome, ProcedureId, Txn, Verdict};

/// Execution logic: reads the transaction's values and arguments, sets its writes and output, may
/// add keys. Runs on a host or a NIC core and must be a pure function of the transaction.
/// [Xenic21 4.2.2]
pub type Execute = fn(&mut Txn) -> Verdict;

/// The procedures of a workload, indexed by [`ProcedureId`].
#[derive(Clone, Debug, Default)]
pub struct Procedures(Vec<Execute>);

impl Procedures {
    /// The procedures whose ids are their positions.
    pub fn new(procedures: &[Execute]) -> Self {
        Self(procedures.to_vec())
    }

    /// Runs the logic of `txn`. An id that is not registered refuses: it came from a peer.
    pub fn execute(&self, txn: &mut Txn) -> Verdict {
        match self.get(txn.procedure) {
            Some(execute) => execute(txn),
            None => Verdict::Refuse,
        }
    }

    fn get(&self, id: ProcedureId) -> Option<Execute> {
        self.0.get(usize::from(id.0)).copied()
    }
}

/// A coordinator on one host engine: runs transactions to their end, many at a time.
pub trait CommitProtocol: Clone + 'static {
    /// Runs `txn` once, without retries. On commit its entries hold the versions read and its
    /// updates the versions installed.
    #[expect(async_fn_in_trait, reason = "futures stay on the polling thread that made them")]
    async fn run(&self, txn: &mut Txn) -> Outcome;
}
