//! Reading back logs of updates of single records. (decision 0040)

use anyhow::Result;
use nicol_core::ids::{Key, NodeId, Version};
use nicol_minos::logged_update;

use crate::store::{Damage, LogReading, ReadBack, RunLogs, lost_in_words, scan};

/// Each node's log has everything that was acknowledged: of each key the newest update counts, in
/// whichever log it stands.
pub(super) const UPDATES: LogReading = LogReading { times: 1, read: read_updates };

fn read_updates(
    back: &mut ReadBack,
    run: &RunLogs<'_>,
    progress: &mut dyn FnMut(u64),
) -> Result<u64> {
    let (mut damage, mut whole, mut read) = (Damage::default(), 0, 0);
    for log in &run.logs {
        if let Err(why) = &log.header {
            damage.add(&log.path, 0, why);
            continue;
        }
        let (recovered, counts) = (&mut back.recovered, &mut back.counts);
        let each = &mut |_: NodeId, record: &[u8]| {
            counts.records += 1;
            let apply = &mut |key: Key, version: Version, value: Option<&[u8]>| {
                counts.taken += 1;
                recovered.apply(key, version, value);
            };
            logged_update(record, apply).map_err(Into::into)
        };
        let (end, lost) = scan(log, read, progress, each)?;
        read += end;
        let damaged = lost.iter().filter(|(_, is_damage)| *is_damage);
        damaged
            .clone()
            .for_each(|(lost, _)| damage.add(&log.path, lost.offset, &lost_in_words(lost)));
        whole += usize::from(damaged.count() == 0);
        back.torn += lost.iter().filter(|(_, is_damage)| !is_damage).count();
    }
    if whole == 0 {
        let why = "no node's log has everything that was acknowledged";
        return Err(run.refusal(&why, &damage));
    }
    back.repaired.extend(damage.0);
    Ok(read)
}
