//! The shared hardware of a node: link, PCIe, packet queues, DMA engine, verb engine.

use nicol_core::ids::Side;
use nicol_core::units::{Bytes, Picos};

use super::card::{CardParts, Way};
use super::{Alone, PerByte, Resource, Slot};
use crate::profile::Profile;

/// The profile's numbers in the form that the event handlers use.
#[derive(Clone, Debug)]
pub struct Hardware {
    wire: PerByte,
    packet_payload: u64,
    packet_overhead: u64,
    packet_minimum: u64,
    lanes: PerByte,
    tlp_payload: u64,
    tlp_overhead: u64,
    doorbell: Picos,
    descriptor: Picos,
    request_interval: Picos,
}

impl Hardware {
    /// The numbers of `profile`.
    pub fn new(profile: &Profile) -> Self {
        Self {
            wire: PerByte::new(profile.link.rate.value),
            packet_payload: profile.link.packet_payload.value.0,
            packet_overhead: profile.link.packet_overhead.value.0,
            packet_minimum: profile.link.packet_minimum.value.0,
            lanes: PerByte::new(profile.pcie.rate.value),
            tlp_payload: profile.pcie.tlp_payload.value.0,
            tlp_overhead: profile.pcie.tlp_overhead.value.0,
            doorbell: profile.pcie.doorbell.value,
            descriptor: profile.pcie.descriptor.value,
            request_interval: profile.dma.request_interval.value,
        }
    }

    /// The time that `payload` bytes, cut into packets, occupy a link.
    pub fn on_wire(&self, payload: u64) -> Picos {
        let whole = self.packets(payload) - 1;
        let last = payload - whole * self.packet_payload;
        let before = whole * (self.packet_payload + self.packet_overhead);
        self.wire.of(Bytes(before + (last + self.packet_overhead).max(self.packet_minimum)))
    }

    /// The latest time after a sender's first bit at which this link must begin with `payload`
    /// bytes. A link that is faster than the sender, which needs `sent`, waits for the last bytes.
    pub fn behind(&self, sent: Picos, payload: u64) -> Picos {
        Picos(sent.0.saturating_sub(self.on_wire(payload).0))
    }

    /// The number of packets that `payload` bytes are on a link.
    #[inline]
    pub fn packets(&self, payload: u64) -> u64 {
        packets(payload, self.packet_payload)
    }

    /// The time that `data` bytes occupy PCIe, cut into transaction-layer packets.
    pub fn on_lanes(&self, data: u64) -> Picos {
        let packets = data.div_ceil(self.tlp_payload).max(1);
        self.lanes.of(Bytes(data + packets * self.tlp_overhead))
    }
}

/// The number of packets for `bytes`, each of which takes `most`.
#[inline]
pub fn packets(bytes: u64, most: u64) -> u64 {
    // Most frames are one packet, and a division takes as long as all the rest.
    if bytes <= most { 1 } else { bytes.div_ceil(most) }
}

/// The direction over PCIe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crossing {
    /// From the host to the NIC.
    ToNic,
    /// From the NIC to the host.
    ToHost,
}

/// The hardware that a node's engines share.
#[derive(Debug, Default)]
pub struct NodeHardware {
    /// The link towards the switch.
    pub link_out: Resource,
    /// Whether only frames from the host's queue have taken it.
    pub link_out_alone: Alone,
    pub link_in: Resource,
    /// PCIe lanes from the host to the NIC.
    pub lanes_to_nic: Resource,
    /// PCIe lanes from the NIC to the host.
    pub lanes_to_host: Resource,
    /// Whether only frames from the link have taken them.
    pub to_host_alone: Alone,
    /// Background transfers from the queues of the NIC over the lanes to the host.
    pub drains: Resource,
    /// The host-to-NIC packet queues' doorbells and descriptors.
    pub queue_to_nic: Resource,
    /// The NIC-to-host packet queues' descriptors.
    pub queue_to_host: Resource,
    /// The DMA engine's request queues.
    pub dma_queues: Vec<Resource>,
    /// The verb engine's packet processing.
    pub card: Resource,
    /// The card's inside, where it is modelled.
    pub inside: Option<Box<CardParts>>,
    /// The log device's channels; none where it takes any number of writes at a time.
    pub log_channels: Vec<Resource>,
}

impl NodeHardware {
    pub fn new(profile: &Profile) -> Self {
        let queues = profile.dma.queues.value as usize;
        let inside = CardParts::new(profile).map(Box::new);
        let channels = profile.persist.channels.as_ref().map_or(0, |channels| channels.value);
        Self {
            dma_queues: vec![Resource::default(); queues],
            inside,
            log_channels: vec![Resource::default(); channels as usize],
            ..Self::default()
        }
    }

    /// Moves a frame through a packet queue and over PCIe; when it has left.
    pub fn cross(
        &mut self,
        hardware: &Hardware,
        way: Crossing,
        now: Picos,
        bytes: u64,
        rings: bool,
    ) -> Slot {
        let mut handling = hardware.descriptor * hardware.packets(bytes);
        let (queue, lanes) = match way {
            Crossing::ToNic => (&mut self.queue_to_nic, &mut self.lanes_to_nic),
            Crossing::ToHost => (&mut self.queue_to_host, &mut self.lanes_to_host),
        };
        if rings && way == Crossing::ToNic {
            handling += hardware.doorbell;
        }
        let queued = queue.reserve(now, handling);
        let Some(card) = &mut self.inside else {
            let slot = lanes.reserve(queued.end, hardware.on_lanes(bytes));
            if matches!(way, Crossing::ToHost) {
                self.drains.yields_to(slot);
            }
            return slot;
        };
        let way = match way {
            Crossing::ToNic => Way::ToUnits,
            Crossing::ToHost => Way::ToMemory,
        };
        let end = card.carry(lanes, Side::Host, way, bytes, queued.end, false);
        Slot { start: queued.end, end }
    }

    /// Drains entries of a NIC's queue to its host, in `span` of the lanes, from `from` on: when
    /// they are there. Messages come first: none waits for a drain, and drains wait for the lanes.
    /// [MINOS24 V-B4] "the hardware dequeues an entry from the vFIFO queue in the background"
    pub fn drain(&mut self, from: Picos, span: Picos) -> Picos {
        let free = self.lanes_to_host.free_at();
        self.drains.reserve(from.max(free), span).end
    }

    /// Admits a vector of `requests` to a DMA queue: it starts at the slot's start, and the next
    /// vector not before its end. Completion latency runs from the start, since vectors do not
    /// lengthen it [Xenic21 3.5].
    pub fn admit_dma(
        &mut self,
        hardware: &Hardware,
        queue: usize,
        now: Picos,
        requests: u64,
    ) -> Slot {
        let queues = self.dma_queues.len();
        self.dma_queues[queue % queues].reserve(now, hardware.request_interval * requests)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_cut_into_packets() {
        let hardware = Hardware::new(&Profile::load("liquidio3").unwrap());
        assert_eq!(hardware.on_wire(1_472), Picos(1_538 * 80));
        assert_eq!(hardware.on_wire(1_473), Picos((1_538 + 84) * 80));
        assert_eq!(hardware.on_wire(80), Picos(146 * 80));
        assert_eq!(hardware.on_wire(1), Picos(84 * 80));
    }
}
