//! What a profile says of a card whose inside is modelled: its processing units, the links and the
//! switch behind them, and what each endpoint takes. [OffPath23 2.3, 3]

use nicol_core::ids::Side;
use nicol_core::units::{BitsPerSec, Bytes, Picos};
use serde::Deserialize;

use super::Sourced;

/// `[card]`: the inside of a card, for verbs and messages alike. Without it a card is one queue of
/// packets.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Card {
    /// Processing units: NIC cores that each take one request at a time.
    pub units: Sourced<u64>,
    /// Time of a unit for a packet that touches no memory.
    pub packet: Sourced<Picos>,
    /// Data of one request to read memory over PCIe.
    pub read_request: Sourced<Bytes>,
    /// The costs of a request to the host's memory, and of posting one by its cores.
    pub host: Endpoint,
    /// The same for the cores beside the path; none where there are no such cores.
    pub soc: Option<Endpoint>,
    /// The switch between the units and the endpoints; none where the host is the only one.
    pub switch: Option<Switch>,
    /// The memory of the cores beside the path.
    pub memory: Option<Memory>,
    /// Whether the network writes to the host's last-level cache.
    pub ddio: Sourced<bool>,
    /// The DMA engine of the cores beside the path; without one their DMAs are verbs.
    pub dma: Option<DmaEngine>,
    /// Mechanisms that the study suspects and could not show. [OffPath23 table 3: H, AMB-33]
    pub suspected: Suspected,
}

/// `[card.host]`, `[card.soc]`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Endpoint {
    /// Time of a unit for a READ, beyond that for a packet.
    pub read: Sourced<Picos>,
    /// Time of a unit for a WRITE, beyond that for a packet.
    pub write: Sourced<Picos>,
    /// From one READ of the endpoint's memory to the next, of all units.
    pub read_interval: Sourced<Picos>,
    /// From one WRITE to the endpoint's memory to the next, of all units.
    pub write_interval: Sourced<Picos>,
    /// Data of a full PCIe packet.
    pub tlp_payload: Sourced<Bytes>,
    /// Time of its core to post to the card by MMIO: one request, or one doorbell of several.
    pub doorbell: Sourced<Picos>,
    /// Time of its core per request posted.
    pub post: Sourced<Picos>,
    /// Time of its core to poll a completion.
    pub completed: Sourced<Picos>,
    /// From the doorbell to the card, beyond what `[verbs]` has and the way through the switch.
    pub post_latency: Sourced<Picos>,
    /// The card's time for a doorbell of several requests of one requester, before the first.
    pub chain_start: Sourced<Picos>,
    /// The card's time to fetch each of these requests.
    pub chained: Sourced<Picos>,
}

impl Endpoint {
    /// Whether the last of so many requests leaves sooner with one doorbell, after which the card
    /// fetches them, than with a doorbell each.
    pub fn doorbell_pays(&self, requests: u64) -> bool {
        let fetched = self.chain_start.value + self.chained.value * requests;
        self.doorbell.value + fetched < self.doorbell.value * requests
    }
}

/// `[card.switch]`: PCIe1 leads from the units to the switch, PCIe0 (`[pcie]`) from there to the
/// host. The cores beside the path are at the switch. [OffPath23 2.3]
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Switch {
    /// Rate of PCIe1, each direction.
    pub rate: Sourced<BitsPerSec>,
    /// One pass through the switch and PCIe1, on the way to or from the host.
    pub pass: Sourced<Picos>,
    /// The time that a verb between the endpoints takes of the host's memory controller, which
    /// READs and WRITEs of the card must then wait for.
    pub within_interval: Sourced<Picos>,
}

/// `[card.memory]`: one channel of banks.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Memory {
    /// Banks that work at the same time.
    pub banks: Sourced<u64>,
    /// Bytes after which the next bank follows.
    pub interleave: Sourced<Bytes>,
    /// Time of a bank for a read.
    pub bank_read: Sourced<Picos>,
    /// Time of a bank for a write.
    pub bank_write: Sourced<Picos>,
    /// The rate of the channel.
    pub bandwidth: Sourced<BitsPerSec>,
}

/// `[card.dma]`: what the engine moves; requests and latencies are `[dma]`'s.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DmaEngine {
    /// In one direction, by transfers up to `measured_to`.
    pub way: Sourced<BitsPerSec>,
    /// In one direction, by larger transfers; without it, as by the smaller ones.
    pub large: Option<Sourced<BitsPerSec>>,
    pub both: Sourced<BitsPerSec>,
    /// The time that a DMA takes of the host's memory controller, which READs of the card must then
    /// wait for.
    pub host_interval: Sourced<Picos>,
    /// A transfer of more bytes moves as slowly as `[card.suspected]` says.
    pub stalls_beyond: Sourced<Bytes>,
    /// The largest transfer for which the rate of one direction was published.
    pub measured_to: Sourced<Bytes>,
}

/// `[card.suspected]`: named mechanisms, each of which may be switched off.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Suspected {
    /// Units that serve one endpoint only, of each endpoint: no others of several endpoints.
    pub reserved_units: Sourced<u64>,
    /// Whether the switch holds the units up. If not, the host's intervals are those of
    /// `direct_read` and `direct_write`.
    pub switch_stalls: Sourced<bool>,
    /// From one READ of the host's memory to the next without a switch.
    pub direct_read: Sourced<Picos>,
    /// From one WRITE to the host's memory to the next without a switch.
    pub direct_write: Sourced<Picos>,
    /// What a READ of memory takes of the times that were measured where the card had half of its
    /// PCIe, by a thousand: 1,000 where they hold for any machine. (AMB-56)
    pub read_limit_permille: Option<Sourced<u64>>,
    /// Whether a READ holds a unit up for less time if the memory is beside the switch. If not, it
    /// takes what the host's takes.
    pub near_memory: Sourced<bool>,
    /// Whether the memory beside the switch takes WRITEs more slowly, since it has few channels. If
    /// not, they take as long as the host's do without a switch. [OffPath23 3.2: one channel, and
    /// four of the host]
    pub few_channels: Sourced<bool>,
    /// Whether a transfer with too many PCIe packets blocks the unit's queue.
    pub head_of_line: Sourced<bool>,
    /// READs of the memory beside the switch block beyond this.
    pub read_beyond: Sourced<Bytes>,
    /// Transfers between the endpoints block beyond this, if the cores beside the path ask.
    pub soc_beyond: Sourced<Bytes>,
    /// Transfers between the endpoints block beyond this, if the host asks.
    pub host_beyond: Sourced<Bytes>,
    /// Time on the lanes of what blocks, for what takes 1000 otherwise.
    pub blocked_permille: Sourced<u64>,
    /// Whether the DMA engine is slower than PCIe. If not, it moves what PCIe moves, at the card's
    /// rate.
    pub weak_dma: Sourced<bool>,
}

/// The card's times to reach an endpoint's memory, with each suspected mechanism on or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryTimes {
    /// Time of a unit for a READ, beyond that for a packet.
    pub read: Picos,
    /// Time of a unit for a WRITE, beyond that for a packet.
    pub write: Picos,
    /// From one READ to the next, of all units.
    pub read_interval: Picos,
    /// From one WRITE to the next, of all units.
    pub write_interval: Picos,
}

/// The direction of a DMA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DmaRates {
    small: BitsPerSec,
    large: BitsPerSec,
    small_to: Bytes,
    /// In both directions together.
    pub both: BitsPerSec,
}

impl DmaRates {
    /// In one direction, by transfers of so many bytes.
    pub fn way(&self, bytes: Bytes) -> BitsPerSec {
        if bytes > self.small_to { self.large } else { self.small }
    }
}

impl Card {
    /// The times of requests to the memory of `side`.
    pub fn memory_times(&self, side: Side) -> MemoryTimes {
        let of = |end: &Endpoint| MemoryTimes {
            read: end.read.value,
            write: end.write.value,
            read_interval: end.read_interval.value,
            write_interval: end.write_interval.value,
        };
        let suspected = &self.suspected;
        let permille = suspected.read_limit_permille.as_ref().map_or(1_000, |limit| limit.value);
        let limited = |times: MemoryTimes| {
            let part = |span: Picos| Picos(span.0 * permille / 1_000);
            let (read, read_interval) = (part(times.read), part(times.read_interval));
            MemoryTimes { read, read_interval, ..times }
        };
        let mut host = of(&self.host);
        if !suspected.switch_stalls.value {
            host.read_interval = suspected.direct_read.value;
            host.write_interval = suspected.direct_write.value;
        }
        let (Side::Nic, Some(soc)) = (side, &self.soc) else { return limited(host) };
        let mut soc = of(soc);
        if !suspected.near_memory.value {
            (soc.read, soc.read_interval) = (host.read, host.read_interval);
        }
        if !suspected.few_channels.value {
            soc.write_interval = suspected.direct_write.value;
        }
        limited(soc)
    }

    /// The rates of its DMA engine: those of PCIe, which is `pcie`, unless the engine is suspected
    /// to be slower. `None` without an engine.
    pub fn dma_rates(&self, pcie: BitsPerSec) -> Option<DmaRates> {
        let engine = self.dma.as_ref()?;
        let small_to = engine.measured_to.value;
        Some(match self.suspected.weak_dma.value {
            true => {
                let small = engine.way.value;
                let large = engine.large.as_ref().map_or(small, |large| large.value);
                DmaRates { small, large, small_to, both: engine.both.value }
            }
            false => DmaRates { small: pcie, large: pcie, small_to, both: BitsPerSec(2 * pcie.0) },
        })
    }

    /// The endpoint of `side`; the host's if there is no other.
    pub fn endpoint(&self, side: Side) -> &Endpoint {
        match (&self.soc, side) {
            (Some(soc), Side::Nic) => soc,
            _ => &self.host,
        }
    }

    /// One pass between the units and the host beyond that of a card without a switch.
    pub fn pass(&self) -> Picos {
        self.switch.as_ref().map_or(Picos(0), |switch| switch.pass.value)
    }

    /// The error in it as a whole: a key, and what to write.
    pub(super) fn wrong(&self, off_path: bool) -> Option<(&'static str, &'static str)> {
        let reserved = self.suspected.reserved_units.value;
        let parts = self.soc.is_some() && self.switch.is_some() && self.memory.is_some();
        let any = self.soc.is_some() || self.switch.is_some() || self.memory.is_some();
        let endpoints = [Some(&self.host), self.soc.as_ref()];
        let payloads = endpoints.into_iter().flatten().all(|end| end.tlp_payload.value.0 > 0);
        let banks = |memory: &Memory| memory.banks.value > 0 && memory.interleave.value.0 > 0;
        let rules = [
            (self.units.value > 0, "units", "give at least 1"),
            (self.read_request.value.0 > 0, "read_request", "give at least 1B"),
            (payloads, "tlp_payload", "give at least 1B"),
            (
                2 * reserved < self.units.value,
                "reserved_units",
                "leave units that serve both endpoints",
            ),
            (
                any == parts && parts == off_path && (parts || self.dma.is_none()),
                "[card]",
                "needs [card.soc], [card.switch], [card.memory] and [off_path] together, or none \
                 of them and no [card.dma]",
            ),
            (
                self.memory.as_ref().is_none_or(banks),
                "banks",
                "give at least one bank, and an interleave of 1B or more",
            ),
        ];
        rules.into_iter().find(|(holds, ..)| !holds).map(|(_, key, what)| (key, what))
    }
}
