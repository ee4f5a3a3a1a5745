//! What a profile says of NIC cores off the packets' path.

use nicol_core::units::Picos;
use serde::Deserialize;

use super::Cited;

/// `[off_path]`: NIC cores that are an endpoint of the card's switch, beside the host and the wire.
/// They have no DMA engine: they reach their host by verbs, as they reach any other. [Xenic21 3.1]
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OffPath {
    /// One way between the switch and the NIC cores' memory.
    pub latency: Cited<Picos>,
}

/// `[published]`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// A WRITE from another node's host to the host's memory.
    pub host_write: Cited<Picos>,
    /// A WRITE from another node's host to the NIC cores' memory.
    pub nic_write: Option<Cited<Picos>>,
    /// A WRITE from a NIC core to its own host's memory.
    pub own_host_write: Cited<Picos>,
}
