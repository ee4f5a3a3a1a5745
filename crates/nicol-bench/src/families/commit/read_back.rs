//! Reading back logs of transactions: each is there as a whole, or not at all. (decision 0025)

use anyhow::Result;
use nicol_commit::recovery::Logs;
use nicol_core::ids::{Key, NodeId, Version};

use crate::store::{Damage, LogReading, ReadBack, RunLogs, lost_in_words, scan};

/// Each log is read twice: which records there are, and then what those that count have written.
pub(super) const TRANSACTIONS: LogReading = LogReading { times: 2, read: read_transactions };

fn read_transactions(
    back: &mut ReadBack,
    run: &RunLogs<'_>,
    progress: &mut dyn FnMut(u64),
) -> Result<u64> {
    let (mut damage, mut torn) = (Damage::default(), Damage::default());
    let mut seen = Logs::new(&run.view);
    let mut read = 0;
    for log in &run.logs {
        let each = &mut |node, record: &[u8]| seen.note(node, record).map_err(Into::into);
        let (end, lost) = match &log.header {
            Ok(_) => scan(log, read, progress, each)?,
            Err(why) => {
                damage.add(&log.path, 0, why);
                seen.note_lost(log.node, None);
                continue;
            }
        };
        read += end;
        for (lost, is_damage) in lost {
            if is_damage {
                damage.add(&log.path, lost.offset, &lost_in_words(&lost));
                seen.note_lost(log.node, lost.lead.as_ref().map(|lead| &lead[..]));
            } else {
                torn.add(&log.path, lost.offset, "the end is torn");
            }
        }
    }
    let decided = seen.decide().map_err(|error| {
        damage.0.extend_from_slice(&torn.0);
        run.refusal(&error, &damage)
    })?;
    back.counts.add(&decided.counts);
    back.repaired.extend(damage.0);
    back.torn += torn.0.len();
    for log in run.logs.iter().filter(|log| log.header.is_ok()) {
        let recovered = &mut back.recovered;
        let mut apply = |key: Key, version: Version, value: Option<&[u8]>| {
            recovered.apply(key, version, value);
        };
        let each = &mut |_: NodeId, record: &[u8]| {
            decided.for_each_write(record, &mut apply).map_err(Into::into)
        };
        read += scan(log, read, progress, each)?.0;
    }
    Ok(read)
}
