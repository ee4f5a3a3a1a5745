//! Procedures: the execution logic of transactions.

use super::{ProcedureId, Txn, Verdict};

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

    /// Runs the logic of `txn`. An id that is not registered refuses: it came from a peer. So does
    /// a scan by a transaction that is not [`Txn::local`].
    pub fn execute(&self, txn: &mut Txn) -> Verdict {
        let verdict = match self.get(txn.procedure) {
            Some(execute) => execute(txn),
            None => Verdict::Refuse,
        };
        if txn.scans_in_vain() { Verdict::Refuse } else { verdict }
    }

    fn get(&self, id: ProcedureId) -> Option<Execute> {
        self.0.get(usize::from(id.0)).copied()
    }
}
