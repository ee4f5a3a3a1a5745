//! The inside of a card: units that process requests, PCIe1 and PCIe0 behind them, the memory of
//! the cores beside the path, their DMA engine, and counters of PCIe packets. [OffPath23 2.3, 3, 4]
//!
//! Everything here is a resource that is taken: rates, gains of two paths together and losses of
//! one beside another come from that alone.

use nicol_core::chain::Touch;
use nicol_core::ids::Side;
use nicol_core::units::{BitsPerSec, Bytes, Picos};

use super::{PerByte, Resource};
use crate::chain::Wanted;
use crate::profile::{self, DmaRates, MemoryTimes, Profile};

/// PCIe packets since the start, as the card's counters have them. [OffPath23 3.3]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PciePackets {
    /// With data, between the units and the switch.
    pub inner_data: u64,
    /// Requests to read and completion entries there.
    pub inner_control: u64,
    /// With data, between the switch (or the units) and the host.
    pub outer_data: u64,
    /// Requests to read and completion entries there.
    pub outer_control: u64,
}

/// The costs of an endpoint, in the form that the event handlers use.
#[derive(Clone, Copy, Debug)]
struct End {
    times: MemoryTimes,
    payload: u64,
    post_latency: Picos,
    chain_start: Picos,
    chained: Picos,
    /// One way between the units and the endpoint, beyond that of a card without a switch.
    way: Picos,
}

/// The rate of PCIe lanes, and what each packet adds.
#[derive(Clone, Copy, Debug)]
struct Lanes {
    rate: PerByte,
    overhead: u64,
}

impl Lanes {
    fn new(rate: BitsPerSec, overhead: u64) -> Self {
        Self { rate: PerByte::new(rate), overhead }
    }

    fn span(&self, bytes: u64, payload: u64) -> Picos {
        let packets = bytes.div_ceil(payload).max(1);
        self.rate.of(Bytes(bytes + packets * self.overhead))
    }
}

/// The size from which on transfers block, and their speed then.
#[derive(Clone, Copy, Debug)]
struct Blocking {
    read: u64,
    soc: u64,
    host: u64,
    permille: u64,
}

/// The DMA engine of the cores beside the path.
#[derive(Debug)]
struct Dma {
    rates: DmaRates,
    both: PerByte,
    host_interval: Picos,
    beyond: u64,
    blocked_permille: u64,
    ways: [Resource; 2],
    all: Resource,
}

/// The memory beside the switch, or the host's without DDIO.
#[derive(Debug)]
struct Banks {
    banks: Vec<Resource>,
    interleave: u64,
    read: Picos,
    write: Picos,
    channel: Resource,
    bandwidth: PerByte,
}

impl Banks {
    fn new(memory: &profile::Memory) -> Self {
        Self {
            banks: vec![Resource::default(); memory.banks.value as usize],
            interleave: memory.interleave.value.0,
            read: memory.bank_read.value,
            write: memory.bank_write.value,
            channel: Resource::default(),
            bandwidth: PerByte::new(memory.bandwidth.value),
        }
    }

    /// The time of an access to `bytes` at address `at` that arrives at `from`. Addresses that are
    /// close together are in few banks.
    fn access(&mut self, at: u64, bytes: u64, reads: bool, from: Picos) -> Picos {
        let span = if reads { self.read } else { self.write };
        let (first, last) = (at / self.interleave, (at + bytes.max(1) - 1) / self.interleave);
        let count = self.banks.len() as u64;
        let (mut begins, mut ends) = (from, from);
        // More rows than banks are open one after another, at the channel's rate.
        for row in first..=last.min(first + count - 1) {
            let slot = self.banks[(row % count) as usize].reserve(from, span);
            begins = begins.max(slot.start);
            ends = ends.max(slot.end);
        }
        let slot = self.channel.reserve(begins, self.bandwidth.of(Bytes(bytes)));
        ends.max(slot.start)
    }
}

/// A card, with what is taken of it.
#[derive(Debug)]
pub struct CardParts {
    packet: Picos,
    read_request: u64,
    host: End,
    soc: End,
    within_interval: Picos,
    inner: Option<Lanes>,
    outer: Lanes,
    blocking: Option<Blocking>,
    /// The time at which each unit is free: first the units for both endpoints, then the host's,
    /// then the others.
    units: Vec<Picos>,
    reserved: usize,
    units_busy: Picos,
    reads: [Resource; 2],
    writes: [Resource; 2],
    inner_to_nic: Resource,
    inner_from_nic: Resource,
    soc_memory: Option<Banks>,
    host_memory: Option<Banks>,
    dma: Option<Dma>,
    packets: PciePackets,
}

/// The direction between memory and the units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// From an endpoint's memory.
    ToUnits,
    /// To an endpoint's memory.
    ToMemory,
}

const fn place(side: Side) -> usize {
    match side {
        Side::Host => 0,
        Side::Nic => 1,
    }
}

impl CardParts {
    /// The card of `profile`, idle; `None` if its inside is not modelled.
    pub fn new(profile: &Profile) -> Option<Self> {
        let card = profile.card.as_ref()?;
        let suspected = &card.suspected;
        let soc_way = profile.off_path.as_ref().map_or(Picos(0), |way| way.latency.value);
        let host = end(card, Side::Host, card.pass());
        let soc = end(card, Side::Nic, soc_way);
        let overhead = profile.pcie.tlp_overhead.value.0;
        let reserved = if card.soc.is_some() { suspected.reserved_units.value as usize } else { 0 };
        Some(Self {
            packet: card.packet.value,
            read_request: card.read_request.value.0,
            host,
            soc,
            within_interval: card.switch.as_ref().map_or(Picos(0), |by| by.within_interval.value),
            inner: card.switch.as_ref().map(|switch| Lanes::new(switch.rate.value, overhead)),
            outer: Lanes::new(profile.pcie.rate.value, overhead),
            blocking: suspected.head_of_line.value.then_some(Blocking {
                read: suspected.read_beyond.value.0,
                soc: suspected.soc_beyond.value.0,
                host: suspected.host_beyond.value.0,
                permille: suspected.blocked_permille.value,
            }),
            units: vec![Picos(0); card.units.value as usize],
            reserved,
            units_busy: Picos(0),
            reads: Default::default(),
            writes: Default::default(),
            inner_to_nic: Resource::default(),
            inner_from_nic: Resource::default(),
            soc_memory: card.memory.as_ref().map(Banks::new),
            host_memory: card.memory.as_ref().filter(|_| !card.ddio.value).map(Banks::new),
            dma: engine(profile, card),
            packets: PciePackets::default(),
        })
    }

    fn end(&self, side: Side) -> &End {
        match side {
            Side::Host => &self.host,
            Side::Nic => &self.soc,
        }
    }

    /// From a doorbell that a core of `side` rings to the card.
    pub fn posted(&self, side: Side) -> Picos {
        let end = self.end(side);
        end.post_latency + end.way
    }

    /// The time that the card takes to fetch each of `count` requests that a core of `side` has
    /// posted, and the time before the first. A single request comes with its doorbell.
    pub fn fetches(&self, side: Side, count: usize) -> (Picos, Picos) {
        let end = self.end(side);
        if count > 1 { (end.chain_start, end.chained) } else { (Picos(0), Picos(0)) }
    }

    /// Takes a unit that may serve the endpoint of `side` for `span`; when it begins.
    fn unit(&mut self, side: Side, from: Picos, span: Picos) -> Picos {
        let shared = self.units.len() - 2 * self.reserved;
        let own = shared + place(side) * self.reserved;
        let (units, reserved) = (&self.units, self.reserved);
        let free = (0..shared).chain(own..own + reserved).min_by_key(|at| units[*at]);
        let unit = &mut self.units[free.unwrap_or_default()];
        let start = from.max(*unit);
        *unit = start + span;
        self.units_busy += span;
        start
    }

    /// A frame's packets pass the units, from or to the endpoint of `side`; when the first does.
    pub fn frame(&mut self, side: Side, packets: u64, from: Picos) -> Picos {
        self.unit(side, from, self.packet * packets)
    }

    /// A requester of `side` has its request processed, with `operands` bytes from its memory; when
    /// it leaves the card.
    pub fn issue(
        &mut self,
        outer: &mut Resource,
        side: Side,
        operands: u64,
        within: bool,
        from: Picos,
    ) -> Picos {
        let start = self.unit(side, from, self.packet);
        if within {
            self.reads[place(Side::Host)].reserve(start, self.within_interval);
            self.writes[place(Side::Host)].reserve(start, self.within_interval);
        }
        if operands == 0 {
            return start;
        }
        let blocked = within && self.blocks_within(side, operands);
        self.carry(outer, side, Way::ToUnits, operands, start, blocked)
    }

    fn blocks_within(&self, asker: Side, bytes: u64) -> bool {
        let limit = |blocking: &Blocking| match asker {
            Side::Nic => blocking.soc,
            Side::Host => blocking.host,
        };
        self.blocking.as_ref().is_some_and(|blocking| bytes > limit(blocking))
    }

    /// Whether the READ of `bytes` of memory of `side` blocks its unit. `asker` is the requester's
    /// side if it is of the same node.
    fn blocks(&self, side: Side, asker: Option<Side>, bytes: u64) -> bool {
        match asker {
            Some(asker) => self.blocks_within(asker, bytes),
            None => {
                let blocking = self.blocking.as_ref().filter(|_| side == Side::Nic);
                blocking.is_some_and(|blocking| bytes > blocking.read)
            }
        }
    }

    /// Moves `bytes` between the units and memory of `side`; when the last one is there.
    pub fn carry(
        &mut self,
        outer: &mut Resource,
        side: Side,
        way: Way,
        bytes: u64,
        from: Picos,
        blocked: bool,
    ) -> Picos {
        let payload = self.end(side).payload;
        let packets = bytes.div_ceil(payload);
        let requests = if way == Way::ToUnits { bytes.div_ceil(self.read_request) } else { 0 };
        let permille = self.blocking.as_ref().filter(|_| blocked).map_or(1_000, |by| by.permille);
        let slower = |span: Picos| Picos(span.0 * permille / 1_000);
        let (mut start, mut last) = (from, from);
        if let Some(inner) = &self.inner {
            let lane = match way {
                Way::ToUnits => &mut self.inner_to_nic,
                Way::ToMemory => &mut self.inner_from_nic,
            };
            let slot = lane.reserve(from, slower(inner.span(bytes, payload)));
            (start, last) = (slot.start, slot.end);
            self.packets.inner_data += packets;
            self.packets.inner_control += requests;
        }
        if side == Side::Host {
            let slot = outer.reserve(start, slower(self.outer.span(bytes, payload)));
            last = last.max(slot.end);
            self.packets.outer_data += packets;
            self.packets.outer_control += requests;
        }
        last
    }

    /// The time of an access to address `at` of memory of `side`, begun at `from`. If `first` of
    /// its request, it also takes the unit's time for the packet. `asker` is the requester's side
    /// if it is of the same node.
    pub fn access(
        &mut self,
        outer: &mut Resource,
        (side, at, touch): Wanted,
        latency: Picos,
        asker: Option<Side>,
        first: bool,
        from: Picos,
    ) -> Picos {
        let end = *self.end(side);
        let (reads, bytes) = match touch {
            Touch::Fetch(bytes) | Touch::Atomic(bytes) => (true, bytes),
            Touch::Store(bytes) => (false, bytes),
        };
        let packet = if first { self.packet } else { Picos(0) };
        if bytes == 0 {
            return self.unit(side, from, packet);
        }
        let held = if reads { end.times.read } else { end.times.write };
        let start = self.unit(side, from, packet + held);
        let arrives = if reads {
            self.reads[place(side)].reserve(start, end.times.read_interval).start
                + Picos(latency.0 / 2)
                + end.way
        } else {
            let slot = self.writes[place(side)].reserve(start, end.times.write_interval);
            let blocked = asker.is_some_and(|asker| self.blocks_within(asker, bytes));
            self.carry(outer, side, Way::ToMemory, bytes, slot.start, blocked) + end.way
        };
        let memory = match side {
            Side::Host => &mut self.host_memory,
            Side::Nic => &mut self.soc_memory,
        };
        match memory {
            Some(banks) => banks.access(at, bytes, reads, arrives),
            None => arrives,
        }
    }

    /// The time at which the card has the result of an access made at `now`.
    pub fn fetched(
        &mut self,
        outer: &mut Resource,
        side: Side,
        touch: Touch,
        latency: Picos,
        asker: Option<Side>,
        now: Picos,
    ) -> Picos {
        let (Touch::Fetch(bytes) | Touch::Atomic(bytes)) = touch else { return now };
        if bytes == 0 {
            return now;
        }
        let blocked = self.blocks(side, asker, bytes);
        let last = self.carry(outer, side, Way::ToUnits, bytes, now, blocked);
        last.max(now + Picos(latency.0 - latency.0 / 2) + self.end(side).way)
    }

    /// A response of `bytes` lands in memory of its requester, of `side`, with its completion.
    pub fn land(
        &mut self,
        outer: &mut Resource,
        side: Side,
        bytes: u64,
        within: bool,
        from: Picos,
    ) -> Picos {
        let blocked = within && self.blocks_within(side, bytes);
        self.packets.inner_control += u64::from(self.inner.is_some());
        self.packets.outer_control += u64::from(side == Side::Host);
        let landed = match bytes {
            0 => from,
            _ => self.carry(outer, side, Way::ToMemory, bytes, from, blocked),
        };
        landed + self.end(side).way
    }

    /// A vector of `requests` DMAs of `bytes` together passes the engine, towards the NIC or the
    /// host; when the last byte has.
    pub fn dma(&mut self, to_nic: bool, requests: u64, bytes: u64, from: Picos) -> Picos {
        let Some(dma) = &mut self.dma else { return from };
        let (way, memory) = match to_nic {
            true => (&mut dma.ways[0], &mut self.reads[0]),
            false => (&mut dma.ways[1], &mut self.writes[0]),
        };
        memory.reserve(from, dma.host_interval * requests);
        let blocked = self.blocking.is_some() && bytes / requests.max(1) > dma.beyond;
        let permille = if blocked { dma.blocked_permille } else { 1_000 };
        let slower = |span: Picos| Picos(span.0 * permille / 1_000);
        let each = Bytes(bytes / requests.max(1));
        let rate = PerByte::new(dma.rates.way(each));
        let slot = way.reserve(from, slower(rate.of(Bytes(bytes))));
        let both = dma.all.reserve(slot.start, slower(dma.both.of(Bytes(bytes))));
        self.packets.outer_data += bytes.div_ceil(self.host.payload);
        slot.end.max(both.end)
    }

    pub const fn packets(&self) -> PciePackets {
        self.packets
    }

    /// The time that each kind of part was taken until `now`, and the number of such parts.
    pub fn busy(&self, now: Picos) -> Vec<(&'static str, Picos, usize)> {
        let ahead = self.units.iter().fold(0, |sum, unit| sum + unit.0.saturating_sub(now.0));
        let units = Picos(self.units_busy.0.saturating_sub(ahead));
        let mut parts = vec![
            ("card_units", units, self.units.len()),
            ("card_host_reads", self.reads[0].busy(now), 1),
            ("card_host_writes", self.writes[0].busy(now), 1),
        ];
        if self.inner.is_some() {
            parts.push(("pcie1_to_nic", self.inner_to_nic.busy(now), 1));
            parts.push(("pcie1_from_nic", self.inner_from_nic.busy(now), 1));
            parts.push(("card_soc_reads", self.reads[1].busy(now), 1));
            parts.push(("card_soc_writes", self.writes[1].busy(now), 1));
        }
        if let Some(memory) = &self.soc_memory {
            parts.push(("soc_memory", memory.channel.busy(now), 1));
        }
        if let Some(dma) = &self.dma {
            parts.push(("soc_dma", dma.all.busy(now), 1));
        }
        parts
    }
}

fn end(card: &profile::Card, side: Side, way: Picos) -> End {
    let endpoint = card.endpoint(side);
    End {
        times: card.memory_times(side),
        payload: endpoint.tlp_payload.value.0,
        post_latency: endpoint.post_latency.value,
        chain_start: endpoint.chain_start.value,
        chained: endpoint.chained.value,
        way,
    }
}

fn engine(profile: &Profile, card: &profile::Card) -> Option<Dma> {
    let dma = card.dma.as_ref()?;
    let rates = card.dma_rates(profile.pcie.rate.value)?;
    Some(Dma {
        rates,
        both: PerByte::new(rates.both),
        host_interval: dma.host_interval.value,
        beyond: dma.stalls_beyond.value.0,
        blocked_permille: card.suspected.blocked_permille.value,
        ways: Default::default(),
        all: Resource::default(),
    })
}
