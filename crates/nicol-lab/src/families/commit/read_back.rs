//! What the log devices of a simulated cluster hold after a crash of everything. (decision 0025)

use nicol_core::ids::{NodeId, Version};
use nicol_core::medium::MediumWrite;
use nicol_core::records::RecordSource;
use nicol_core::view::View;
use nicol_protocols::commit::recovery::{Logs, Recovered};

use crate::family::ReadBack;

/// What was loaded, and over it the transactions of which the media hold all parts.
///
/// Errors: what was acknowledged may be lost, in words.
pub(super) fn read_back(
    view: &View,
    source: &dyn RecordSource,
    media: &[(NodeId, Vec<MediumWrite>)],
) -> Result<ReadBack, String> {
    let mut recovered = Recovered::default();
    for shard in view.shard_ids() {
        let mut load = |key, value: &[u8]| recovered.apply(key, Version(1), Some(value));
        source.load(view, shard, &mut load);
    }
    // The device's checksums tell what is torn.
    let mut records = Vec::new();
    for (node, writes) in media {
        records.extend(writes.iter().filter(|write| write.intact).map(|write| (*node, write)));
    }
    let mut seen = Logs::new(view);
    for (node, write) in &records {
        seen.note(*node, &write.bytes).map_err(|error| error.to_string())?;
    }
    let decided = seen.decide().map_err(|error| error.to_string())?;
    for (_, write) in &records {
        let mut apply = |key, version, value: Option<&[u8]>| recovered.apply(key, version, value);
        decided.for_each_write(&write.bytes, &mut apply).map_err(|error| error.to_string())?;
    }
    let owned = recovered.iter().map(|(key, version, value)| {
        let value = value.map(<[u8]>::to_vec);
        (key, (version, value))
    });
    Ok(owned.collect())
}
