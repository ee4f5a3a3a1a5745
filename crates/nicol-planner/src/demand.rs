//! What a request takes of each resource: the closed form of `nicol_sim`'s card, link and cores.

use nicol_core::ids::Side;
use nicol_core::units::{BitsPerSec, Bytes, Picos};
use nicol_sim::Profile;
use nicol_sim::checks::paths::Verb;
use nicol_sim::profile::{Card, Endpoint};

use super::description::{Alternative, Description, Step, Way};

/// A resource of the node whose card is planned for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Resource {
    /// The network towards the node.
    LinkIn,
    /// The network from the node.
    LinkOut,
    /// All processing units of the card.
    Units,
    /// Units that may serve the host.
    UnitsForHost,
    /// Units that may serve the SoC.
    UnitsForSoc,
    /// READs of the host's memory by the card.
    HostReads,
    /// WRITEs to the host's memory by the card.
    HostWrites,
    /// READs of the SoC's memory by the card.
    SocReads,
    /// WRITEs to the SoC's memory by the card.
    SocWrites,
    /// PCIe1, towards the units.
    Pcie1ToNic,
    /// PCIe1, from the units.
    Pcie1FromNic,
    /// PCIe0, towards the card.
    Pcie0ToNic,
    /// PCIe0, towards the host.
    Pcie0ToHost,
    /// Banks of the SoC's memory that the addresses lie in.
    SocBanks,
    /// The channel of the SoC's memory.
    SocMemory,
    /// Requests of the DMA engine.
    DmaRequests,
    /// The DMA engine towards the SoC.
    DmaToSoc,
    /// The DMA engine towards the host.
    DmaToHost,
    /// The DMA engine in both directions.
    DmaBoth,
    /// The card's queues of what cores of the SoC post together, of which it fetches each request.
    SocRequesters,
    /// Messages that the host sends.
    HostMessages,
    HostCores,
    SocCores,
}

impl Resource {
    /// Every resource, in the order of the demands.
    pub const ALL: [Self; 23] = [
        Self::LinkIn,
        Self::LinkOut,
        Self::Units,
        Self::UnitsForHost,
        Self::UnitsForSoc,
        Self::HostReads,
        Self::HostWrites,
        Self::SocReads,
        Self::SocWrites,
        Self::Pcie1ToNic,
        Self::Pcie1FromNic,
        Self::Pcie0ToNic,
        Self::Pcie0ToHost,
        Self::SocBanks,
        Self::SocMemory,
        Self::DmaRequests,
        Self::DmaToSoc,
        Self::DmaToHost,
        Self::DmaBoth,
        Self::SocRequesters,
        Self::HostMessages,
        Self::HostCores,
        Self::SocCores,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::LinkIn => "network in",
            Self::LinkOut => "network out",
            Self::Units => "NIC cores",
            Self::UnitsForHost => "NIC cores for the host",
            Self::UnitsForSoc => "NIC cores for the SoC",
            Self::HostReads => "host memory, READs",
            Self::HostWrites => "host memory, WRITEs",
            Self::SocReads => "SoC memory, READs",
            Self::SocWrites => "SoC memory, WRITEs",
            Self::Pcie1ToNic => "PCIe1 to NIC",
            Self::Pcie1FromNic => "PCIe1 from NIC",
            Self::Pcie0ToNic => "PCIe0 from host",
            Self::Pcie0ToHost => "PCIe0 to host",
            Self::SocBanks => "SoC memory banks",
            Self::SocMemory => "SoC memory channel",
            Self::DmaRequests => "DMA requests",
            Self::DmaToSoc => "DMA to SoC",
            Self::DmaToHost => "DMA to host",
            Self::DmaBoth => "DMA engine",
            Self::SocRequesters => "SoC requesters",
            Self::HostMessages => "host messages",
            Self::HostCores => "host cores",
            Self::SocCores => "SoC cores",
        }
    }
}

/// Picoseconds of each resource that a request takes, and of time from its start to its end.
#[derive(Clone, Debug, PartialEq)]
pub struct Demand {
    /// In the order of [`Resource::ALL`].
    pub takes: [f64; Resource::ALL.len()],
    /// The latency of a request that runs alone.
    pub latency: f64,
    /// Bytes on the network, both ways.
    pub network_bytes: f64,
}

/// The hardware, as demands are computed from it.
pub struct Hardware<'a> {
    profile: &'a Profile,
    client: &'a Profile,
    card: &'a Card,
    mitigated: super::description::Mitigations,
}

/// Bytes of a message's headers in its frame.
const MESSAGE: u64 = 32;

fn ps(span: Picos) -> f64 {
    span.0 as f64
}

fn per_bytes(rate: BitsPerSec, bytes: f64) -> f64 {
    bytes * 8e12 / rate.0 as f64
}

impl<'a> Hardware<'a> {
    /// Of a card whose inside is modelled, and that has a SoC if any alternative takes one; `None`
    /// of another.
    pub fn new(
        profile: &'a Profile,
        client: &'a Profile,
        description: &Description,
    ) -> Option<Self> {
        let card = profile.card.as_ref()?;
        if description.needs_soc() {
            card.soc.as_ref()?;
        }
        Some(Self { profile, client, card, mitigated: description.mitigations })
    }

    /// The capacity of a resource: servers at a time.
    pub fn capacity(&self, resource: Resource, description: &Description) -> f64 {
        let units = self.card.units.value as f64;
        let reserved = self.card.suspected.reserved_units.value as f64;
        match resource {
            Resource::Units => units,
            Resource::UnitsForHost | Resource::UnitsForSoc => units - reserved,
            Resource::HostCores => {
                let there = self.profile.engines(Side::Host) as u64;
                description.host_cores.unwrap_or(there).min(there) as f64
            }
            Resource::SocCores | Resource::SocRequesters => {
                let there = self.profile.engines(Side::Nic) as u64;
                description.soc_cores.unwrap_or(there).min(there) as f64
            }
            Resource::DmaRequests => self.profile.dma.queues.value as f64,
            _ => 1.0,
        }
    }

    /// The demand of a request of `alternative` on each resource.
    pub fn demand(&self, alternative: &Alternative) -> Demand {
        let mut sum =
            Demand { takes: [0.0; Resource::ALL.len()], latency: 0.0, network_bytes: 0.0 };
        let posting = self.posting(alternative);
        // How often a receiver of SENDs takes its steps: once for each of them.
        let mut received = 1.0;
        for step in &alternative.steps {
            match *step {
                Step::Compute { side, ns } => {
                    sum.take(Self::cores(side), ns as f64 * 1e3, received);
                    // A core that has computed looks at what has come before it goes on.
                    let taken = ns as f64 * 1e3 + ps(self.profile.core(side).poll.value);
                    sum.latency += taken * received;
                }
                Step::Operation { way, verb, reply, count, range, .. } => {
                    let inbound = matches!(way, Way::Inbound(_));
                    // Advice 2 and 3: pieces, one after another.
                    let (piece, pieces) = step.cut(self.mitigated.segment);
                    let times = count * pieces as f64 * if inbound { 1.0 } else { received };
                    let one = Operation { verb, bytes: piece, reply, range, posting };
                    let latency = self.operation(&mut sum, way, one, times);
                    sum.latency += latency * times;
                    if inbound {
                        received = if verb == Verb::Send { count } else { 1.0 };
                    }
                }
            }
        }
        sum
    }

    fn end(&self, side: Side) -> &Endpoint {
        self.card.endpoint(side)
    }

    fn way(&self, side: Side) -> f64 {
        match side {
            Side::Host => ps(self.card.pass()),
            Side::Nic => self.profile.off_path.as_ref().map_or(0.0, |way| ps(way.latency.value)),
        }
    }

    fn wire(&self, profile: &Profile, bytes: u64) -> (f64, f64) {
        let link = &profile.link;
        let packets = bytes.div_ceil(link.packet_payload.value.0).max(1);
        let carried = (bytes + packets * link.packet_overhead.value.0) as f64;
        (per_bytes(link.rate.value, carried), carried)
    }

    /// Takes lanes for `bytes` between the units and memory of `side`; how long they take.
    fn lanes(
        &self,
        sum: &mut Demand,
        side: Side,
        to_nic: bool,
        bytes: u64,
        count: f64,
        slow: f64,
    ) -> f64 {
        if bytes == 0 {
            return 0.0;
        }
        let packets = bytes.div_ceil(self.end(side).tlp_payload.value.0);
        let carried = (bytes + packets * self.profile.pcie.tlp_overhead.value.0) as f64;
        let inner =
            self.card.switch.as_ref().map_or(0.0, |by| per_bytes(by.rate.value, carried)) * slow;
        sum.take(if to_nic { Resource::Pcie1ToNic } else { Resource::Pcie1FromNic }, inner, count);
        if side == Side::Nic {
            return inner;
        }
        let outer = per_bytes(self.profile.pcie.rate.value, carried) * slow;
        sum.take(if to_nic { Resource::Pcie0ToNic } else { Resource::Pcie0ToHost }, outer, count);
        inner.max(outer)
    }

    fn unit(&self, sum: &mut Demand, side: Side, span: f64, count: f64) {
        sum.take(Resource::Units, span, count);
        let own = if side == Side::Host { Resource::UnitsForHost } else { Resource::UnitsForSoc };
        sum.take(own, span, count);
    }

    /// An access of the card to memory of `side`; how long it takes.
    fn access(&self, sum: &mut Demand, side: Side, one: Operation, count: f64, slow: f64) -> f64 {
        let (times, reads) = (self.card.memory_times(side), one.verb == Verb::Read);
        let (held, interval) = match reads {
            true => (times.read, times.read_interval),
            false => (times.write, times.write_interval),
        };
        self.unit(sum, side, ps(self.card.packet.value) + ps(held), count);
        let memory = match (side, reads) {
            (Side::Host, true) => Resource::HostReads,
            (Side::Host, false) => Resource::HostWrites,
            (Side::Nic, true) => Resource::SocReads,
            (Side::Nic, false) => Resource::SocWrites,
        };
        sum.take(memory, ps(interval), count);
        let mut banked = 0.0;
        if let (Side::Nic, Some(memory)) = (side, &self.card.memory) {
            let span = ps(if reads { memory.bank_read.value } else { memory.bank_write.value });
            let row = memory.interleave.value.0;
            let copies = self.mitigated.replicate_hot.max(1);
            let rows =
                one.range.map_or(u64::MAX, |range| range.div_ceil(row).saturating_mul(copies));
            let banks = rows.min(memory.banks.value).max(1) as f64;
            // Of few rows that are not full, the fullest binds.
            let fullest = one.range.filter(|_| copies == 1).map_or(1.0 / banks, |range| {
                (row.min(range) as f64 / range as f64).max(1.0 / banks)
            });
            let opened = one.bytes.div_ceil(row).min(memory.banks.value) as f64;
            sum.take(Resource::SocBanks, span * fullest * opened, count);
            sum.take(
                Resource::SocMemory,
                per_bytes(memory.bandwidth.value, one.bytes as f64),
                count,
            );
            banked = span;
        }
        let lanes = self.lanes(sum, side, reads, one.bytes, count, slow);
        let read = if reads { ps(self.profile.verbs.read_latency.value) } else { 0.0 };
        let ways = if reads { 2.0 } else { 1.0 };
        lanes.max(read + self.way(side)) + banked + self.way(side) * (ways - 1.0)
    }

    /// The factor by which a transfer that blocks slows the lanes.
    fn blocked(&self, limit: u64, bytes: u64) -> f64 {
        let suspected = &self.card.suspected;
        let blocks = suspected.head_of_line.value && bytes > limit;
        if blocks { suspected.blocked_permille.value as f64 / 1e3 } else { 1.0 }
    }

    /// Time of a core of `side` to post one verb and to poll its completion.
    fn posted(&self, side: Side) -> f64 {
        let end = self.end(side);
        ps(end.post.value) + ps(end.completed.value) + ps(end.doorbell.value)
    }

    /// The way in which the SoC posts for `alternative`. Advice 4 batches its doorbells only, not
    /// those of the host.
    fn posting(&self, alternative: &Alternative) -> Posting {
        let batch = self.mitigated.doorbell_batch.max(1);
        match alternative.steps[0].own_side() {
            None => Posting::Gathered(batch),
            Some(_) => Posting::Together(alternative.group(batch)),
        }
    }

    /// Takes a core of `side` for `count` verbs, and what the card takes to fetch those that share
    /// a doorbell.
    fn post(&self, sum: &mut Demand, side: Side, posting: Posting, count: f64) {
        let end = self.end(side);
        let core = Self::cores(side);
        sum.take(core, ps(end.post.value) + ps(end.completed.value), count);
        let posting = if side == Side::Nic { posting } else { Posting::Gathered(1) };
        for (turns, verbs) in posting.turns(count) {
            sum.take(core, ps(end.doorbell.value), turns);
            // One alone comes with its doorbell.
            if verbs > 1 {
                let fetched = ps(end.chain_start.value) + ps(end.chained.value) * verbs as f64;
                sum.take(Resource::SocRequesters, fetched, turns);
            }
        }
    }

    fn cores(side: Side) -> Resource {
        if side == Side::Host { Resource::HostCores } else { Resource::SocCores }
    }

    /// Takes what `count` operations take; how long one takes.
    fn operation(&self, sum: &mut Demand, way: Way, one: Operation, count: f64) -> f64 {
        match way {
            Way::Inbound(side) if one.verb == Verb::Send => self.message(sum, side, one, count),
            Way::Inbound(side) => self.inbound(sum, side, one, count),
            Way::Outbound(side) => self.outbound(sum, side, one, count),
            Way::Within(side) => self.within(sum, side, one, count),
            Way::Dma => self.dma(sum, one, count),
        }
    }

    fn inbound(&self, sum: &mut Demand, side: Side, one: Operation, count: f64) -> f64 {
        let beyond = self.card.suspected.read_beyond.value.0;
        let slow = if side == Side::Nic && one.verb == Verb::Read {
            self.blocked(beyond, one.bytes)
        } else {
            1.0
        };
        let memory = self.access(sum, side, one, count, slow);
        let header = self.profile.verbs.header.value.0;
        let (there, back) = match one.verb {
            Verb::Read => (header, header + one.bytes),
            _ => (header + one.bytes, header),
        };
        // What is written leaves with its request; what is read lands at who has asked.
        let landing = if one.verb == Verb::Read { self.client_lanes(one.bytes) } else { 0.0 };
        self.network(sum, there, back, count) + memory + landing + self.client_verb()
    }

    /// Takes the network for bytes there and back; how long both take.
    fn network(&self, sum: &mut Demand, there: u64, back: u64, count: f64) -> f64 {
        let (inwards, arriving) = self.wire(self.profile, there);
        let (outwards, leaving) = self.wire(self.profile, back);
        sum.take(Resource::LinkIn, inwards, count);
        sum.take(Resource::LinkOut, outwards, count);
        sum.network_bytes += (arriving + leaving) * count;
        let slowest = |bytes| self.wire(self.client, bytes).0.max(self.wire(self.profile, bytes).0);
        slowest(there) + slowest(back) + 2.0 * ps(self.client.link.latency.value)
    }

    /// The time for which `bytes` occupy another machine's lanes.
    fn client_lanes(&self, bytes: u64) -> f64 {
        let pcie = &self.client.pcie;
        let inside = self.client.card.as_ref().map(|card| &card.host.tlp_payload);
        let payload = inside.unwrap_or(&pcie.tlp_payload).value.0;
        let carried = bytes + bytes.div_ceil(payload) * pcie.tlp_overhead.value.0;
        per_bytes(pcie.rate.value, carried as f64)
    }

    /// The demand of a verb on another machine's card and core.
    fn client_verb(&self) -> f64 {
        let verbs = &self.client.verbs;
        let core = ps(verbs.doorbell.value) + ps(verbs.post.value) + ps(verbs.completed.value);
        let cards =
            2.0 * ps(verbs.card_latency.value) + 2.0 * ps(self.profile.verbs.card_latency.value);
        core + cards + ps(verbs.post_latency.value) + ps(verbs.completion_latency.value)
    }

    fn outbound(&self, sum: &mut Demand, side: Side, one: Operation, count: f64) -> f64 {
        self.unit(sum, side, ps(self.card.packet.value), count);
        self.post(sum, side, one.posting, count);
        let header = self.profile.verbs.header.value.0;
        let writes = one.verb == Verb::Write;
        let lanes = self.lanes(sum, side, writes, one.bytes, count, 1.0);
        let (out, back) =
            if writes { (header + one.bytes, header) } else { (header, header + one.bytes) };
        // Memory of the other machine is written, or read: then its bytes follow its answer's
        // first.
        let (remote, half) =
            (self.client_lanes(one.bytes), ps(self.client.verbs.read_latency.value) / 2.0);
        let remote = if writes { remote } else { half + remote.max(half) };
        remote
            + self.network(sum, back, out, count)
            + lanes
            + self.client_verb()
            + 2.0 * self.way(side)
    }

    fn within(&self, sum: &mut Demand, asker: Side, one: Operation, count: f64) -> f64 {
        let suspected = &self.card.suspected;
        let limit = if asker == Side::Nic {
            suspected.soc_beyond.value.0
        } else {
            suspected.host_beyond.value.0
        };
        let slow = self.blocked(limit, one.bytes);
        self.unit(sum, asker, ps(self.card.packet.value), count);
        self.post(sum, asker, one.posting, count);
        let shared = self.card.switch.as_ref().map_or(0.0, |by| ps(by.within_interval.value));
        sum.take(Resource::HostReads, shared, count);
        sum.take(Resource::HostWrites, shared, count);
        let own = self.lanes(sum, asker, one.verb == Verb::Write, one.bytes, count, slow);
        let memory = self.access(sum, asker.other(), one, count, slow);
        let verbs = &self.profile.verbs;
        let card = 4.0 * ps(verbs.card_latency.value) + ps(verbs.post_latency.value);
        let ends = ps(verbs.completion_latency.value) + ps(self.end(asker).post_latency.value);
        own + memory + card + ends + 2.0 * self.way(asker) + self.posted(asker)
    }

    fn dma(&self, sum: &mut Demand, one: Operation, count: f64) -> f64 {
        let rates = self.card.dma_rates(self.profile.pcie.rate.value);
        let (Some(engine), Some(rates)) = (&self.card.dma, rates) else {
            return self.within(sum, Side::Nic, one, count);
        };
        let dma = &self.profile.dma;
        let reads = one.verb == Verb::Read;
        let slow = self.blocked(engine.stalls_beyond.value.0, one.bytes);
        sum.take(Resource::DmaRequests, ps(dma.request_interval.value), count);
        let moved = per_bytes(rates.way(Bytes(one.bytes)), one.bytes as f64) * slow;
        sum.take(if reads { Resource::DmaToSoc } else { Resource::DmaToHost }, moved, count);
        sum.take(Resource::DmaBoth, per_bytes(rates.both, one.bytes as f64) * slow, count);
        // Its bytes cross PCIe0 between the host's verbs.
        let pcie = &self.profile.pcie;
        let packets = one.bytes.div_ceil(pcie.tlp_payload.value.0).max(1);
        let carried = (one.bytes + packets * pcie.tlp_overhead.value.0) as f64;
        let lanes = if reads { Resource::Pcie0ToNic } else { Resource::Pcie0ToHost };
        let crossed = per_bytes(pcie.rate.value, carried);
        sum.take(lanes, crossed, count);
        let memory = if reads { Resource::HostReads } else { Resource::HostWrites };
        sum.take(memory, ps(engine.host_interval.value), count);
        let vector = self.mitigated.doorbell_batch.clamp(1, dma.vector.value.max(1));
        sum.take(Resource::SocCores, ps(dma.completed.value), count);
        for (turns, requests) in one.posting.turns(count) {
            let submissions = requests.div_ceil(vector) as f64;
            sum.take(Resource::SocCores, ps(dma.submit.value) * submissions, turns);
        }
        let latency = if reads { &dma.read_latency } else { &dma.write_latency };
        // Its bytes have moved in the first half of it, unless they take longer.
        let half = ps(latency.value) / 2.0;
        half.max(moved).max(crossed) + half + ps(dma.submit.value) + ps(dma.completed.value)
    }

    fn message(&self, sum: &mut Demand, side: Side, one: Operation, count: f64) -> f64 {
        let core = self.profile.core(side);
        let (asked, answered) = (one.bytes + MESSAGE, one.reply + MESSAGE);
        let packets =
            |bytes: u64| bytes.div_ceil(self.profile.link.packet_payload.value.0).max(1) as f64;
        let copied = per_bytes(core.copy.value, (one.bytes + one.reply) as f64);
        let served = ps(core.packet_received.value) * packets(asked)
            + ps(core.packet_sent.value) * packets(answered)
            + ps(core.message_received.value)
            + ps(core.message_sent.value)
            + copied;
        sum.take(Self::cores(side), served, count);
        let units = ps(self.card.packet.value) * (packets(asked) + packets(answered));
        self.unit(sum, side, units, count);
        if side == Side::Host {
            let sent = ps(self.profile.pcie.descriptor.value) * packets(answered);
            sum.take(Resource::HostMessages, sent, count);
        }
        let lanes = self.lanes(sum, side, false, asked, count, 1.0)
            + self.lanes(sum, side, true, answered, count, 1.0);
        let network = self.network(sum, asked, answered, count);
        let own = &self.client.host_core;
        let client = self.client_lanes(asked)
            + self.client_lanes(answered)
            + per_bytes(own.copy.value, (one.bytes + one.reply) as f64)
            + ps(own.packet_sent.value) * packets(asked)
            + ps(own.packet_received.value) * packets(answered)
            + ps(own.message_sent.value)
            + ps(own.message_received.value);
        let both = [self.profile, self.client];
        let pcie =
            both.map(|one| ps(one.pcie.to_nic_latency.value) + ps(one.pcie.to_host_latency.value));
        let waits = |one: &Profile| one.two_sided.as_ref().map_or(0.0, |parts| ps(parts.latency()));
        let slower = match (side, &self.profile.two_sided) {
            (Side::Nic, Some(parts)) => {
                let software = ps(parts.polling.value) + ps(parts.scheduling.value);
                software * (self.profile.cores.nic_slowdown_permille.value as f64 / 1e3 - 1.0)
            }
            _ => 0.0,
        };
        let software = both.into_iter().map(waits).sum::<f64>() + slower;
        served
            + client
            + pcie.into_iter().sum::<f64>()
            + software
            + network
            + lanes
            + 2.0 * self.way(side)
    }
}

/// One operation of a step.
#[derive(Clone, Copy)]
struct Operation {
    verb: Verb,
    bytes: u64,
    reply: u64,
    range: Option<u64>,
    posting: Posting,
}

/// The way in which a core of the SoC posts the operations of its requests.
#[derive(Clone, Copy)]
enum Posting {
    /// So many requests take each of their turns together.
    Together(u64),
    /// Requests come by SEND: a busy core has as many of them in a round as share a doorbell.
    Gathered(u64),
}

impl Posting {
    /// For a step that a request takes `count` times: how often so many operations are posted at
    /// once, by request.
    fn turns(self, count: f64) -> [(f64, u64); 3] {
        match self {
            Self::Gathered(batch) => [(count / batch as f64, batch), (0.0, 0), (0.0, 0)],
            Self::Together(group) => {
                let by_request = 1.0 / group as f64;
                // Of a count of 2.5, a group of 3 has two turns of 3, and one of 1 or of 2.
                let last = count.fract() * group as f64;
                let (fewer, more) = (1.0 - last.fract(), last.fract());
                let (least, some) = (last as u64, f64::from(u8::from(last >= 1.0)));
                [
                    (count.trunc() * by_request, group),
                    (fewer * some * by_request, least),
                    (more * by_request, least + 1),
                ]
            }
        }
    }
}

impl Demand {
    fn take(&mut self, resource: Resource, span: f64, count: f64) {
        self.takes[resource as usize] += span * count;
    }

    /// The demand on `resource`.
    pub fn of(&self, resource: Resource) -> f64 {
        self.takes[resource as usize]
    }
}
