//! Loads whose lines tell no version: a store that numbers its writes need not number what it began
//! with.

use std::collections::BTreeMap;

use nicol_core::history::{Action, Crash, End, Key, Loaded, Operation, Read, Write};

use super::HistoryError;

/// The lowest versions of a key that anybody tells.
#[derive(Clone, Copy, Default)]
struct Lowest {
    read: Option<u64>,
    /// Of writes that took effect or may have.
    written: Option<u64>,
}

/// Gives the loads that stand at the positions and on the lines `untold` the version that the
/// history lets them have: the lowest that was read, if no write has one as low; else one below the
/// writes'. Where nobody tells a version it is 1.
///
/// # Errors
/// The line of a load for which the first write leaves no version.
pub(super) fn infer(
    loaded: &mut [Loaded],
    untold: &BTreeMap<usize, usize>,
    operations: &[Operation],
    crashes: &[Crash],
) -> Result<(), HistoryError> {
    if untold.is_empty() {
        return Ok(());
    }
    let lowest = lowest(operations, crashes);
    for (&position, &line) in untold {
        let Lowest { read, written } =
            lowest.get(&loaded[position].key).copied().unwrap_or_default();
        let version = match (read, written) {
            (None, None) => 1,
            (Some(read), None) => read,
            (Some(read), Some(written)) if read < written => read,
            (_, Some(written)) => written.saturating_sub(1),
        };
        if version == 0 {
            let reason = "a load without 'version', and the first version of its key is 1 at most: \
                          give the load one, below those of all writes";
            return Err(HistoryError::line(line, reason));
        }
        loaded[position].version = version;
    }
    Ok(())
}

fn lowest<'h>(operations: &'h [Operation], crashes: &'h [Crash]) -> BTreeMap<&'h Key, Lowest> {
    let mut lowest = BTreeMap::<&Key, Lowest>::new();
    let lower = |into: &mut Option<u64>, version: u64| {
        *into = Some(into.map_or(version, |lowest| lowest.min(version)));
    };
    let mut read = |reads: &'h [Read]| {
        for Read { key, present, version, .. } in reads {
            if let Some(version) = version.filter(|_| *present) {
                lower(&mut lowest.entry(key).or_default().read, version);
            }
        }
    };
    crashes.iter().for_each(|crash| read(&crash.recovered));
    for operation in operations.iter().filter(|operation| operation.end != End::Failed) {
        match &operation.action {
            Action::Txn(txn) => {
                read(&txn.reads);
                txn.scans.iter().for_each(|scan| read(&scan.found));
            }
            Action::Scan(scan) => read(&scan.found),
            _ => {}
        }
    }
    for operation in operations.iter().filter(|operation| operation.end != End::Failed) {
        let writes: &[Write] = match &operation.action {
            Action::Txn(txn) => &txn.writes,
            Action::Put { write, .. } | Action::Delete { write, .. } => std::slice::from_ref(write),
            Action::Get { key, found: Some(found) } => {
                if let Some(version) = found.version.filter(|_| found.present) {
                    lower(&mut lowest.entry(key).or_default().read, version);
                }
                &[]
            }
            Action::Get { .. } | Action::Scan(_) | Action::Persist { .. } => &[],
        };
        for Write { key, version, .. } in writes {
            if let Some(version) = version {
                lower(&mut lowest.entry(key).or_default().written, *version);
            }
        }
    }
    lowest
}
