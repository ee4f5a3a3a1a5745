//! What must hold of a history before any promise is judged.

use std::collections::BTreeSet;

use nicol_core::history::{Action, Effect, End, History, Operation};

use super::HistoryError;

/// Why a history cannot be judged: one of its operations contradicts itself or others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The operation, by its position in [`History::operations`].
    pub operation: usize,
    pub reason: String,
}

impl Fault {
    /// The same, in a file in which operations stand on `lines`.
    pub(super) fn at_line(self, lines: &[usize]) -> HistoryError {
        HistoryError::line(lines[self.operation], self.reason)
    }
}

/// Checks that ids are unique, that times and outcomes fit one another, and that no client's
/// operations overlap.
///
/// # Errors
/// The first operation that is at fault.
pub fn validate(history: &History) -> Result<(), Fault> {
    let operations = &history.operations;
    let mut ids = BTreeSet::new();
    for (index, operation) in operations.iter().enumerate() {
        let fault = |reason: String| Fault { operation: index, reason };
        if !ids.insert(operation.id) {
            let id = operation.id;
            return Err(fault(format!("operation {id} was recorded before; an id names one")));
        }
        one(operation).map_err(fault)?;
    }
    let mut in_order: Vec<usize> = (0..operations.len()).collect();
    in_order.sort_unstable_by_key(|&index| (operations[index].client, operations[index].sequence));
    for pair in in_order.windows(2) {
        let (before, after) = (&operations[pair[0]], &operations[pair[1]]);
        if before.client == after.client {
            follows(before, after).map_err(|reason| Fault { operation: pair[1], reason })?;
        }
    }
    Ok(())
}

/// Checks that one operation is consistent in itself.
fn one(operation: &Operation) -> Result<(), String> {
    let Operation { id, invoked, responded, end, action, .. } = operation;
    match responded {
        Some(responded) if responded < invoked => {
            return Err(format!(
                "operation {id} ends at {responded}, before its start at {invoked}"
            ));
        }
        None if *end != End::Unknown => {
            return Err(format!(
                "operation {id} has an outcome and no time at which the client learnt it"
            ));
        }
        _ => {}
    }
    let is_told = *end == End::Ok;
    match action {
        Action::Txn(txn) => {
            if txn.writes_more && *end != End::Unknown {
                return Err(format!(
                    "transaction {id}: 'writes_more' is for transactions of unknown outcome"
                ));
            }
            for write in &txn.writes {
                if write.effect == Effect::Unknown && *end == End::Ok {
                    return Err(format!("transaction {id} committed a write that is 'unknown'"));
                }
                if write.effect == Effect::Unknown && write.version.is_some() {
                    return Err(format!("transaction {id}: an unknown write has no version"));
                }
            }
        }
        Action::Scan(scan) if scan.first > scan.last => {
            return Err(format!("scan {id} ends before it begins: 'first' is after 'last'"));
        }
        Action::Get { found, .. } if found.is_some() != is_told => {
            return Err(if is_told {
                format!("get {id} ended well and does not say whether the record was 'present'")
            } else {
                format!("get {id} did not end well and says what it found")
            });
        }
        _ => {}
    }
    Ok(())
}

/// May `after` be the next operation of the client of `before`?
fn follows(before: &Operation, after: &Operation) -> Result<(), String> {
    let (client, sequence) = (after.client, after.sequence);
    if before.sequence == sequence {
        return Err(format!("client {client} has two operations numbered {sequence}"));
    }
    match before.responded {
        None => Err(format!(
            "client {client} goes on after operation {}, which never ended: who takes its place \
             is another client",
            before.id
        )),
        Some(responded) if responded > after.invoked => Err(format!(
            "operation {} of client {client} starts at {}, before its operation {} ended at \
             {responded}: a client's operations do not overlap",
            after.id, after.invoked, before.id
        )),
        Some(_) => Ok(()),
    }
}
