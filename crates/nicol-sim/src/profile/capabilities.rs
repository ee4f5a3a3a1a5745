//! What hardware can do, as fields. Code that depends on the hardware asks these, never a profile's
//! name.

use super::Profile;

/// The place where a node's NIC engines run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NicCores {
    /// Nowhere but on cores of the host that stand in for them.
    Host,
    /// On the card, on the path of every packet. [Xenic21 3.1]
    OnPath,
    /// On the card, beside that path, behind its switch. [Xenic21 3.1]
    OffPath,
}

/// The executor of the one-sided operations that reach a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OneSidedBy {
    /// The card, in hardware, if the requester's card posts verbs as well; else software as below.
    Card,
    /// Software on NIC cores, or the cores of a SoC.
    NicCores,
    /// Software on cores of the host.
    HostCores,
}

/// The capabilities that a system may need, as one profile has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    pub nic_cores: NicCores,
    pub one_sided_by: OneSidedBy,
    /// The executor of chains of one-sided operations. [PRISM21 4]
    pub chains_by: OneSidedBy,
    /// Whether there is a log device, because memory by itself is not durable.
    pub log_device: bool,
    /// Whether host and NIC cores reach some memory each as their own. [MINOS24 V-B2]
    pub coherent: bool,
}

impl Profile {
    /// The capabilities that hardware offers to a system.
    pub fn capabilities(&self) -> Capabilities {
        let cores = &self.cores;
        let nic_cores = match (cores.nic_is_separate.value, cores.on_path.value) {
            (false, _) => NicCores::Host,
            (true, true) => NicCores::OnPath,
            (true, false) => NicCores::OffPath,
        };
        let by = |card| match (card, nic_cores) {
            (true, _) => OneSidedBy::Card,
            (false, NicCores::Host) => OneSidedBy::HostCores,
            (false, NicCores::OnPath | NicCores::OffPath) => OneSidedBy::NicCores,
        };
        let verbs = self.verbs.present.value;
        let chains = self.verbs.chains.as_ref().is_none_or(|chains| chains.value);
        let persist = &self.persist;
        let log_device = persist.latency.value.0 + persist.per_kib.value.0 > 0;
        let kept = cores.coherent.as_ref().is_some_and(|kept| kept.value);
        Capabilities {
            nic_cores,
            one_sided_by: by(verbs),
            chains_by: by(verbs && chains),
            log_device,
            coherent: kept || nic_cores == NicCores::Host,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_profiles_can_do_what_their_papers_say() {
        let of = |name| {
            let can = Profile::load(name).unwrap().capabilities();
            (can.nic_cores, can.one_sided_by, can.chains_by)
        };
        use OneSidedBy::{Card, HostCores, NicCores as OnNic};
        assert_eq!(of("liquidio3"), (NicCores::OnPath, OnNic, OnNic));
        assert_eq!(of("connectx5"), (NicCores::Host, Card, Card));
        assert_eq!(of("connectx5-25g"), (NicCores::Host, Card, HostCores));
        assert_eq!(of("connectx5-40g"), (NicCores::Host, Card, HostCores));
        assert_eq!(of("connectx5-40g:verbs.chains=true"), (NicCores::Host, Card, Card));
        assert_eq!(of("bluefield1"), (NicCores::OffPath, Card, Card));
        assert_eq!(of("bluefield1-25g"), (NicCores::OffPath, Card, OnNic));
        assert_eq!(of("stingray"), (NicCores::OffPath, Card, Card));
    }
}
