//! Procedures: the execution logic of transactions.

use super::{ProcedureId, Txn, Verdict};
use crate::ids::TableId;

/// Execution logic: reads the transaction's values and arguments, sets its writes and output, may
/// add keys. Runs on a host or a NIC core and must be a pure function of the transaction.
/// [Xenic21 4.2.2]
pub type Execute = fn(&mut Txn) -> Verdict;

/// Do the keys of a table count among what a procedure's requests are scheduled by?
pub type Counts = fn(ProcedureId, TableId) -> bool;

/// The procedures of a workload, indexed by [`ProcedureId`].
#[derive(Clone, Debug)]
pub struct Procedures {
    logic: Vec<Execute>,
    counts: Counts,
}

impl Default for Procedures {
    fn default() -> Self {
        Self::new(&[])
    }
}

impl Procedures {
    /// The procedures whose ids are their positions.
    pub fn new(procedures: &[Execute]) -> Self {
        Self { logic: procedures.to_vec(), counts: |_, _| true }
    }

    /// The same, with what their requests are scheduled by: all keys where nobody says (AMB-39).
    pub fn scheduled_by(self, counts: Counts) -> Self {
        Self { counts, ..self }
    }

    /// Do the keys of `table` count among what requests of `procedure` are scheduled by?
    pub fn counts(&self, procedure: ProcedureId, table: TableId) -> bool {
        (self.counts)(procedure, table)
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
        self.logic.get(usize::from(id.0)).copied()
    }
}
