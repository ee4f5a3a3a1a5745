//! Procedures: the execution logic of transactions.

use super::{ProcedureId, Txn, Verdict};
use crate::ids::Key;

/// Execution logic: reads the transaction's values and arguments, sets its writes and output, may
/// add keys. Runs on a host or a NIC core and must be a pure function of the transaction.
/// [Xenic21 4.2.2]
pub type Execute = fn(&mut Txn) -> Verdict;

/// Calls back with each key that a request is scheduled by, and whether it is written.
pub type RequestKeys = fn(&Txn, &mut dyn FnMut(Key, bool));

/// True if a transaction is known to write nothing before it has read anything.
pub type OnlyReads = fn(&Txn) -> bool;

/// The knowledge that schedulers get of a workload's transactions.
#[derive(Clone, Copy, Debug)]
pub struct Scheduling {
    /// The keys of a request. They may be other ones than the transaction declares: a procedure's
    /// choice. (AMB-39)
    pub features: RequestKeys,
    /// Does a procedure take so long that cores are reserved for it? (AMB-39)
    pub is_long: fn(ProcedureId) -> bool,
}

impl Scheduling {
    /// By every key that the transaction declares, and by some keys of each range that it scans.
    /// [AlNiCo22, corner cases]
    ///
    /// DEVIATION: those of a range are spread evenly, not drawn: a request has the same features
    /// whenever it is tried.
    pub const DECLARED: Self = Self { features: declared, is_long: |_| false };
}

/// Keys that stand for a range.
const OF_RANGE: u64 = 4;

fn declared(txn: &Txn, each: &mut dyn FnMut(Key, bool)) {
    txn.entries().iter().for_each(|entry| each(entry.key, entry.write));
    for scan in txn.scans() {
        let (first, last) = (scan.range.first.0, scan.range.last.0);
        let span = u128::from(last.saturating_sub(first));
        let stands = |at: u64| first + (span * u128::from(at) / u128::from(OF_RANGE)) as u64;
        (0..OF_RANGE).for_each(|at| each(Key(stands(at)), false));
    }
}

/// The procedures of a workload, indexed by [`ProcedureId`].
#[derive(Clone, Debug)]
pub struct Procedures {
    logic: Vec<Execute>,
    scheduling: Scheduling,
    only_reads: OnlyReads,
}

impl Default for Procedures {
    fn default() -> Self {
        Self::new(&[])
    }
}

impl Procedures {
    /// The procedures whose ids are their positions.
    pub fn new(procedures: &[Execute]) -> Self {
        Self { logic: procedures.to_vec(), scheduling: Scheduling::DECLARED, only_reads: |_| false }
    }

    /// The same, some of which write nothing: `only_reads` tells of which transactions.
    pub fn some_only_read(self, only_reads: OnlyReads) -> Self {
        Self { only_reads, ..self }
    }

    /// Does `txn` write nothing, whatever it reads?
    pub fn only_reads(&self, txn: &Txn) -> bool {
        (self.only_reads)(txn)
    }

    /// The same, with what schedulers are told of them.
    pub fn scheduled_by(self, scheduling: Scheduling) -> Self {
        Self { scheduling, ..self }
    }

    /// Calls `each` with the keys that a request for `txn` is scheduled by.
    pub fn features(&self, txn: &Txn, each: &mut dyn FnMut(Key, bool)) {
        (self.scheduling.features)(txn, each);
    }

    /// Does `procedure` take so long that cores are reserved for it?
    pub fn is_long(&self, procedure: ProcedureId) -> bool {
        (self.scheduling.is_long)(procedure)
    }

    /// Runs the logic of `txn`. An id that is not registered refuses: it came from a peer. So does
    /// a scan by a transaction that is not [`Txn::local`].
    pub fn execute(&self, txn: &mut Txn) -> Verdict {
        txn.begin_round();
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
