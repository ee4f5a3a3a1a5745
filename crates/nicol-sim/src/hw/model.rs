//! What the event handlers need to know of one node's hardware.

use std::sync::Arc;

use nicol_core::engine::Tuning;
use nicol_core::ids::{EngineId, Side};
use nicol_core::units::{Nanos, Picos};

use super::Hardware;
use crate::profile::{Card, OneSidedBy, Profile, TwoSided};

/// The hardware of a node: its profile, and the numbers of it that are asked for at every event.
/// Nodes of one cluster may differ.
#[derive(Debug)]
pub struct NodeModel {
    pub profile: Arc<Profile>,
    /// Settings of its engines.
    pub tuning: Tuning,
    pub hardware: Hardware,
    pub nic_is_separate: bool,
    pub on_path: bool,
    /// One way between the card's switch and the host, where its inside is modelled.
    pub host_way: Picos,
    /// One way between the card's switch and NIC cores off the path; none where there are none.
    pub off_path: Picos,
    /// The same for a frame from such a core: a host's way out comes on top. [Xenic21 3.1]
    pub off_path_out: Picos,
    /// The same for a frame to such a core: a host's way in comes on top. [Xenic21 3.1]
    pub off_path_in: Picos,
    pub queue_frames: u64,
    pub wire_latency: Picos,
    pub to_nic_latency: Picos,
    /// From the NIC to the handling of a frame by software on the host.
    pub to_host_latency: Picos,
    pub host_latency: Nanos,
    pub nic_latency: Nanos,
}

impl NodeModel {
    /// The numbers of `profile`.
    pub fn new(profile: &Arc<Profile>, tuning: Tuning) -> Self {
        let off_path = profile.off_path.as_ref().map(|way| way.latency.value);
        let pcie = &profile.pcie;
        let two_sided = profile.two_sided.as_ref().map_or(Picos(0), TwoSided::latency);
        let to_host_latency = pcie.to_host_latency.value + two_sided;
        let host_way = profile.card.as_ref().map_or(Picos(0), Card::pass);
        Self {
            tuning,
            hardware: Hardware::new(profile),
            nic_is_separate: profile.cores.nic_is_separate.value,
            on_path: profile.cores.on_path.value,
            host_way,
            off_path: off_path.unwrap_or_default(),
            off_path_out: off_path.map_or(Picos(0), |way| way + pcie.to_nic_latency.value),
            off_path_in: off_path.map_or(Picos(0), |way| way + to_host_latency + slower(profile)),
            queue_frames: profile.link.queue_frames.value,
            wire_latency: profile.link.latency.value,
            to_nic_latency: pcie.to_nic_latency.value + host_way,
            to_host_latency: to_host_latency + host_way,
            host_latency: profile.within.host_latency.value.to_nanos_up(),
            nic_latency: profile.within.nic_latency.value.to_nanos_up(),
            profile: profile.clone(),
        }
    }

    /// The memory in which an engine of the node works: stand-ins for NIC engines work in the
    /// host's.
    pub fn memory_of(&self, engine: EngineId) -> Side {
        if self.nic_is_separate { engine.side } else { Side::Host }
    }

    /// The side with which what the node's card executes goes down: without NIC cores, the host.
    pub fn card_side(&self) -> Side {
        if self.nic_is_separate { Side::Nic } else { Side::Host }
    }

    /// Whether its card has an engine for verbs.
    pub fn has_verbs(&self) -> bool {
        self.profile.verbs.present.value
    }

    /// Whether its card executes chains as well as plain verbs. [PRISM21 4.2]
    pub fn runs_chains(&self) -> bool {
        self.profile.capabilities().chains_by == OneSidedBy::Card
    }

    /// Whether transfers to the other side's memory are verbs, for want of a DMA engine.
    pub fn transfers_by_verbs(&self) -> bool {
        let engine = self.profile.card.as_ref().is_some_and(|card| card.dma.is_some());
        self.profile.off_path.is_some() && !engine
    }

    /// Whether memory of `side` is that of NIC cores off the path.
    pub fn is_off_path(&self, side: Side) -> bool {
        side == Side::Nic && self.profile.off_path.is_some()
    }

    /// One way between the card's switch and memory of `side`, beyond what verbs' latencies have.
    pub fn beyond_switch(&self, side: Side) -> Picos {
        if side == Side::Nic { self.off_path } else { self.host_way }
    }

    /// Whether memory is durable by itself.
    pub fn memory_is_durable(&self) -> bool {
        let persist = &self.profile.persist;
        persist.latency.value == Picos(0) && persist.per_kib.value == Picos(0)
    }
}

/// The time by which software on the cores beside the path takes a message later than on the host,
/// where the card's inside is modelled. Elsewhere their latencies are published as they are.
fn slower(profile: &Profile) -> Picos {
    let software = profile.two_sided.as_ref().filter(|_| profile.card.is_some());
    let software = software.map_or(0, |parts| parts.polling.value.0 + parts.scheduling.value.0);
    Picos(software * profile.cores.nic_slowdown_permille.value.saturating_sub(1_000) / 1_000)
}
