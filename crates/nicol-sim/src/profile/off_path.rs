//! What a profile says of NIC cores off the packets' path.

use nicol_core::units::Picos;
use serde::Deserialize;

use super::Sourced;

/// `[off_path]`: NIC cores that are an endpoint of the card's switch, beside the host and the wire.
/// They have no DMA engine: they reach their host by verbs, as they reach any other. [Xenic21 3.1]
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OffPath {
    /// One way between the switch and the NIC cores' memory.
    pub latency: Sourced<Picos>,
}

/// `[published]`: values of this very hardware to which its checks are held.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// A WRITE from another node's host to the host's memory.
    pub host_write: Sourced<Picos>,
    /// A WRITE from another node's host to the NIC cores' memory.
    pub nic_write: Option<Sourced<Picos>>,
    /// A WRITE from a NIC core to its own host's memory.
    pub own_host_write: Sourced<Picos>,
}

#[cfg(test)]
mod tests {
    use crate::Profile;

    #[test]
    fn only_cores_off_the_path_of_a_card_with_verbs_may_have_a_way_of_their_own() {
        for (change, there) in [
            ("cores.on_path=true", false),
            ("cores.nic_is_separate=false", false),
            ("verbs.present=false", false),
            ("off_path.latency=1us", true),
        ] {
            let loaded = Profile::load(&format!("bluefield1:{change}"));
            let refused = loaded.as_ref().err().map(ToString::to_string).unwrap_or_default();
            assert_eq!(loaded.is_ok(), there, "{change}: {refused}");
            assert_eq!(refused.contains("[off_path]: needs nic_is_separate"), !there, "{refused}");
        }
        assert!(Profile::load("liquidio3").unwrap().off_path.is_none());
    }
}
