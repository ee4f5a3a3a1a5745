//! What the log devices of a cluster hold after everything has ended. (decision 0025)

use nicol_core::ids::NodeId;
use nicol_core::medium::MediumWrite;
use nicol_core::records::RecordSource;
use nicol_core::system::ReadBack;
use nicol_core::view::View;

use crate::recovery::{Logs, Recovered};

/// What was loaded, and over it the transactions of which the media hold all parts.
///
/// Errors: what was acknowledged may be lost, in words.
pub(super) fn read_back(
    view: &View,
    source: &dyn RecordSource,
    media: &[(NodeId, Vec<MediumWrite>)],
) -> Result<ReadBack, String> {
    let mut recovered = Recovered::loaded(view, source);
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
    Ok(recovered.into_owned())
}
