//! Faults that a world injects: what goes wrong, when, and how often. Drawn from streams of their
//! own.

mod crashes;
mod families;
mod slow;

use serde::{Deserialize, Serialize};

pub use crashes::{Crash, CrashScope, Spared};
pub use families::{FaultFamilies, UnknownFamily};
pub use slow::Slow;

use crate::ids::NodeId;
use crate::rng::{Purpose, Stream};
use crate::units::Nanos;
use crate::view::NodeSet;

/// A cut of the network that heals.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Partition {
    #[serde(rename = "from_ns")]
    pub from: Nanos,
    #[serde(rename = "until_ns")]
    pub until: Nanos,
    /// The nodes of one side of the cut.
    pub side: NodeSet,
    /// Are only frames from `side` to the others lost?
    pub one_way: bool,
}

impl Partition {
    /// Does it stop a frame between these nodes now?
    fn cuts(&self, now: Nanos, from: NodeId, to: NodeId) -> bool {
        let inside = |node| self.side.contains(node);
        let crosses =
            if self.one_way { inside(from) && !inside(to) } else { inside(from) != inside(to) };
        crosses && (self.from..self.until).contains(&now)
    }

    /// Are all of so many nodes on one side of it?
    pub fn parts_nobody(&self, nodes: usize) -> bool {
        let inside = (0..nodes).filter(|node| self.side.contains(NodeId(*node as u16))).count();
        inside == 0 || inside == nodes
    }
}

/// An engine that stands still for a while; what arrives waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stall {
    /// The engine's position in the view, modulo their number.
    pub engine: u32,
    #[serde(rename = "from_ns")]
    pub from: Nanos,
    #[serde(rename = "span_ns")]
    pub span: Nanos,
}

/// The faults of a run. Chances are per frame, in a million; only frames between different nodes
/// are hit. Verbs travel on reliable connections: a lost packet delays them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FaultPlan {
    /// A frame is lost.
    pub loss: u32,
    /// A frame arrives twice.
    pub duplicate: u32,
    /// A frame is overtaken: delayed by up to `reorder_span`.
    pub reorder: u32,
    /// The longest delay of an overtaken frame.
    #[serde(rename = "reorder_span_ns")]
    pub reorder_span: Nanos,
    /// A frame is delayed by a long tail: up to `tail_max`, each doubling half as likely.
    pub tail: u32,
    /// The longest delay of the tail.
    #[serde(rename = "tail_max_ns")]
    pub tail_max: Nanos,
    /// 1 to 64 bits of a frame are flipped.
    pub corrupt: u32,
    /// Cuts of the network.
    pub partitions: Vec<Partition>,
    /// Engines that stand still.
    pub stalls: Vec<Stall>,
    /// Engines that are slow.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub slow: Vec<Slow>,
    /// Nodes, or sides of nodes, that crash.
    pub crashes: Vec<Crash>,
    /// Nothing goes wrong from here on, and what was cut or stalled has healed. Crashes and
    /// restarts come when they say.
    #[serde(rename = "quiet_after_ns")]
    pub quiet_after: Nanos,
}

impl Default for FaultPlan {
    fn default() -> Self {
        Self::none()
    }
}

/// The chance of what always happens.
const CERTAIN: u32 = 1_000_000;

/// The longest that one fault may last: clients that give no sign of life for so long are stuck.
const LONGEST_FAULT: Nanos = Nanos::from_secs(5);

/// The longest run of faults that a plan draws.
const FAULTY_SPAN: Nanos = Nanos::from_millis(20);

/// The shortest cut or pause that is drawn to outlast a lease of a simulated cluster.
pub const LONG_CUT: Nanos = Nanos::from_millis(12);

/// How much longer than [`LONG_CUT`] a pause may be.
const PAUSE_RANGE: Nanos = Nanos::from_millis(100);

impl FaultPlan {
    /// Refuses chances beyond certainty, delays of no length, and what lasts so long that a run
    /// looks stuck.
    ///
    /// # Errors
    /// The first one, by name, and the remedy.
    pub fn ensure_possible(&self) -> Result<(), String> {
        self.ensure_chances()?;
        let longest = LONGEST_FAULT.0;
        for (name, delay) in
            [("reorder_span_ns", self.reorder_span), ("tail_max_ns", self.tail_max)]
        {
            if delay > LONGEST_FAULT {
                return Err(format!("{name} = {}: give at most {longest}", delay.0));
            }
        }
        for (name, chance, longest, delay) in [
            ("reorder", self.reorder, "reorder_span_ns", self.reorder_span),
            ("tail", self.tail, "tail_max_ns", self.tail_max),
        ] {
            if chance > 0 && delay == Nanos::ZERO {
                return Err(format!(
                    "{name} = {chance}: it delays nothing; give {longest} as well"
                ));
            }
        }
        for Partition { from, until, .. } in &self.partitions {
            if until <= from {
                let (from, until) = (from.0, until.0);
                return Err(format!(
                    "a partition from_ns = {from} until_ns = {until}: it ends before it begins"
                ));
            }
            self.ensure_short("a partition", *from, *until)?;
        }
        for Stall { from, span, .. } in &self.stalls {
            self.ensure_short("a stall", *from, from.saturating_add(*span))?;
        }
        self.slow.iter().try_for_each(Slow::ensure_possible)?;
        let for_ever = self.quiet_after == Nanos::MAX;
        match [("loss", self.loss), ("corrupt", self.corrupt)]
            .iter()
            .find(|(_, chance)| for_ever && *chance == CERTAIN)
        {
            Some((name, chance)) => Err(format!(
                "{name} = {chance}: no frame ever arrives; give less, or quiet_after_ns"
            )),
            None => Ok(()),
        }
    }

    /// What begins at `from` and ends at `until` heals soon, if need be as everything does.
    fn ensure_short(&self, what: &str, from: Nanos, until: Nanos) -> Result<(), String> {
        if until.min(self.quiet_after).since(from) <= LONGEST_FAULT {
            return Ok(());
        }
        Err(format!(
            "{what} from_ns = {} lasts until {}: give at most {} ns, or quiet_after_ns",
            from.0, until.0, LONGEST_FAULT.0
        ))
    }

    fn ensure_chances(&self) -> Result<(), String> {
        let Self { loss, duplicate, reorder, tail, corrupt, .. } = *self;
        let chances = [
            ("loss", loss),
            ("duplicate", duplicate),
            ("reorder", reorder),
            ("tail", tail),
            ("corrupt", corrupt),
        ];
        match chances.iter().find(|(_, chance)| *chance > CERTAIN) {
            Some((name, chance)) => {
                Err(format!("{name} = {chance}: a chance is in a million; give 0 to 1000000"))
            }
            None => Ok(()),
        }
    }

    pub const fn none() -> Self {
        Self {
            loss: 0,
            duplicate: 0,
            reorder: 0,
            reorder_span: Nanos::ZERO,
            tail: 0,
            tail_max: Nanos::ZERO,
            corrupt: 0,
            partitions: Vec::new(),
            stalls: Vec::new(),
            slow: Vec::new(),
            crashes: Vec::new(),
            quiet_after: Nanos::MAX,
        }
    }

    /// Message faults, partitions and stalls by swarm: each family is on with one chance in two.
    /// Ranges: loss to 30 %, duplicates and reordering to 50 % (by up to 50 us), a tail of 2 % to
    /// 1 ms, corruption to 5 %, up to three partitions of 50 us to 2 ms (half of them one-way),
    /// up to four stalls of 10 us to 1 ms. Quiet after 20 ms. A cut
    /// separates some of the first 64 nodes from all others.
    pub fn messages(seed: u64) -> Self {
        let mut rng = Stream::new(seed, Purpose::Faults, 1);
        let mut upto = |per_million: u64| {
            let on = rng.bits() & 1 == 1;
            let drawn = 1 + rng.below(per_million) as u32;
            if on { drawn } else { 0 }
        };
        let (loss, duplicate, reorder) = (upto(300_000), upto(500_000), upto(500_000));
        let (tail, corrupt) = (upto(20_000), upto(50_000));
        let mut plan = Self {
            loss,
            duplicate,
            reorder,
            reorder_span: Nanos::from_micros(50),
            tail,
            tail_max: Nanos::from_millis(1),
            corrupt,
            quiet_after: FAULTY_SPAN,
            ..Self::none()
        };
        let (partitioned, stalled) = (rng.bits() & 1 == 1, rng.bits() & 1 == 1);
        if partitioned {
            plan.add_partitions(&mut rng);
        }
        if stalled {
            plan.add_stalls(&mut rng);
        }
        plan
    }

    /// Draws one to three partitions.
    fn add_partitions(&mut self, rng: &mut Stream) {
        for _ in 0..1 + rng.below(3) {
            let from = Nanos(rng.below(FAULTY_SPAN.0 * 9 / 10));
            let until = from + Nanos(50_000 + rng.below(1_950_000));
            let (side, one_way) = (NodeSet::of_words([rng.bits()]), rng.bits() & 1 == 1);
            self.partitions.push(Partition { from, until, side, one_way });
        }
    }

    /// Draws a cut that outlasts a lease (10 ms simulated), with one chance in two: of 12 to 24 ms,
    /// in the first 2 ms.
    fn add_long_cut(&mut self, rng: &mut Stream) {
        if rng.bits() & 1 == 0 {
            return;
        }
        let from = Nanos(rng.below(FAULTY_SPAN.0 / 10));
        let until = from + LONG_CUT + Nanos(rng.below(LONG_CUT.0));
        let (side, one_way) = (NodeSet::of_words([rng.bits()]), rng.bits() & 1 == 1);
        self.partitions.push(Partition { from, until, side, one_way });
        self.quiet_after = self.quiet_after.max(until);
    }

    /// Draws one to four stalls.
    fn add_stalls(&mut self, rng: &mut Stream) {
        for _ in 0..1 + rng.below(4) {
            let engine = rng.bits() as u32;
            let from = Nanos(rng.below(FAULTY_SPAN.0 * 9 / 10));
            let span = Nanos(10_000 + rng.below(990_000));
            self.stalls.push(Stall { engine, from, span });
        }
    }

    /// Draws one or two pauses that outlast a lease: of 12 to 112 ms, the shorter the likelier, in
    /// the first 2 ms.
    fn add_pauses(&mut self, rng: &mut Stream) {
        for _ in 0..1 + rng.below(2) {
            let engine = rng.bits() as u32;
            let from = Nanos(rng.below(FAULTY_SPAN.0 / 10));
            let longest = PAUSE_RANGE.0 >> rng.below(4);
            let span = LONG_CUT + Nanos(rng.below(longest));
            self.stalls.push(Stall { engine, from, span });
            self.quiet_after = self.quiet_after.max(from + span);
        }
    }

    /// May a frame between nodes be lost, doubled, late or damaged?
    pub fn touches_messages(&self) -> bool {
        self.loss > 0
            || self.duplicate > 0
            || self.reorder > 0
            || self.tail > 0
            || self.corrupt > 0
            || !self.partitions.is_empty()
            || !self.crashes.is_empty()
    }
}

/// How often each fault struck.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultCounts {
    /// Frames lost at random.
    pub lost: u64,
    /// Frames that arrived twice.
    pub duplicated: u64,
    pub reordered: u64,
    /// Frames delayed by the tail.
    pub delayed: u64,
    pub corrupted: u64,
    /// Frames stopped by a partition.
    pub cut: u64,
    /// Rounds put off by a stall.
    pub stalled: u64,
    /// Frames and verbs for a crashed side.
    pub dead: u64,
    /// Verbs sent again by the NIC.
    pub verb_retries: u64,
}

impl FaultCounts {
    /// Adds what another engine counted.
    pub const fn add(&mut self, other: &Self) {
        self.lost += other.lost;
        self.duplicated += other.duplicated;
        self.reordered += other.reordered;
        self.delayed += other.delayed;
        self.corrupted += other.corrupted;
        self.cut += other.cut;
        self.stalled += other.stalled;
        self.dead += other.dead;
        self.verb_retries += other.verb_retries;
    }

    /// The counts since `earlier`.
    pub const fn since(&self, earlier: &Self) -> Self {
        Self {
            lost: self.lost - earlier.lost,
            duplicated: self.duplicated - earlier.duplicated,
            reordered: self.reordered - earlier.reordered,
            delayed: self.delayed - earlier.delayed,
            corrupted: self.corrupted - earlier.corrupted,
            cut: self.cut - earlier.cut,
            stalled: self.stalled - earlier.stalled,
            dead: self.dead - earlier.dead,
            verb_retries: self.verb_retries - earlier.verb_retries,
        }
    }

    /// The counts with their names, for reports.
    pub const fn named(&self) -> [(&'static str, u64); 9] {
        [
            ("lost", self.lost),
            ("duplicated", self.duplicated),
            ("reordered", self.reordered),
            ("delayed", self.delayed),
            ("corrupted", self.corrupted),
            ("cut", self.cut),
            ("stalled", self.stalled),
            ("dead", self.dead),
            ("verb_retries", self.verb_retries),
        ]
    }
}

/// The fate of one frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameFault {
    /// Extra delay of the frame; `None` if it is lost.
    pub arrives: Option<Nanos>,
    /// Extra delay of a second copy.
    pub again: Option<Nanos>,
    /// Bits to flip in the first copy.
    pub flips: u32,
}

/// A plan in execution.
#[derive(Debug)]
pub struct Faults {
    plan: FaultPlan,
    rng: Stream,
    /// How often each fault struck.
    pub counts: FaultCounts,
}

impl Faults {
    /// Starts `plan` with the faults' own stream of `seed` and `owner`. Owner 1 is the plan's own.
    pub fn new(plan: FaultPlan, seed: u64, owner: u32) -> Self {
        let rng = Stream::new(seed, Purpose::Faults, owner);
        Self { plan, rng, counts: FaultCounts::default() }
    }

    /// True if the route from one node to another is cut now.
    pub fn is_cut(&self, now: Nanos, from: NodeId, to: NodeId) -> bool {
        now < self.plan.quiet_after
            && self.plan.partitions.iter().any(|cut| cut.cuts(now, from, to))
    }

    /// Does a cut separate `node` from what stands outside of all nodes?
    pub fn cuts_off(&self, now: Nanos, node: NodeId) -> bool {
        now < self.plan.quiet_after
            && self
                .plan
                .partitions
                .iter()
                .any(|cut| cut.side.contains(node) && (cut.from..cut.until).contains(&now))
    }

    /// Does a random loss strike?
    pub fn strikes(&mut self, now: Nanos) -> bool {
        now < self.plan.quiet_after && self.plan.loss > 0 && self.rng.bernoulli(self.plan.loss)
    }

    /// Decides about a frame on the wire between two nodes.
    pub fn judge(&mut self, now: Nanos, from: NodeId, to: NodeId) -> FrameFault {
        let mut fault = FrameFault { arrives: Some(Nanos::ZERO), again: None, flips: 0 };
        if now >= self.plan.quiet_after || !self.plan.touches_messages() {
            return fault;
        }
        if self.is_cut(now, from, to) {
            self.counts.cut += 1;
            return FrameFault { arrives: None, ..fault };
        }
        if self.strikes(now) {
            self.counts.lost += 1;
            return FrameFault { arrives: None, ..fault };
        }
        fault.arrives = Some(self.delay());
        if self.plan.duplicate > 0 && self.rng.bernoulli(self.plan.duplicate) {
            self.counts.duplicated += 1;
            let late = Nanos(1 + self.rng.below(self.plan.reorder_span.0.max(10_000)));
            fault.again = Some(late + self.delay());
        }
        if self.plan.corrupt > 0 && self.rng.bernoulli(self.plan.corrupt) {
            self.counts.corrupted += 1;
            fault.flips = 1 + self.rng.below(64) as u32;
        }
        fault
    }

    fn delay(&mut self) -> Nanos {
        let mut delay = Nanos::ZERO;
        if self.plan.reorder > 0 && self.rng.bernoulli(self.plan.reorder) {
            self.counts.reordered += 1;
            delay += Nanos(1 + self.rng.below(self.plan.reorder_span.0.max(1)));
        }
        if self.plan.tail > 0 && self.rng.bernoulli(self.plan.tail) {
            self.counts.delayed += 1;
            // Each doubling is half as likely: the tail is long and thin.
            let halvings = self.rng.bits().leading_zeros().min(10);
            let longest = self.plan.tail_max.0 >> (10 - halvings);
            delay += Nanos(1 + self.rng.below(longest.max(1)));
        }
        delay
    }

    /// Flips `count` bits of a frame.
    pub fn flip(&mut self, frame: &mut [u8], count: u32) {
        let bits = frame.len() as u64 * 8;
        if bits == 0 {
            return;
        }
        for _ in 0..count {
            let bit = self.rng.below(bits);
            frame[(bit / 8) as usize] ^= 1 << (bit % 8);
        }
    }

    /// Until when engine `index` of `count` does nothing, because it stands still or is slow, if it
    /// does nothing now.
    #[inline]
    pub fn stalled_until(&self, now: Nanos, index: usize, count: usize) -> Option<Nanos> {
        if self.plan.stalls.is_empty() && self.plan.slow.is_empty() {
            return None;
        }
        let slow = self.plan.slow.iter().filter(|slow| slow.engine as usize % count == index);
        let rests = slow.filter_map(|slow| slow.rests_until(now, self.plan.quiet_after)).max();
        self.stands_still_until(now, index, count).max(rests)
    }

    /// Until when engine `index` of `count` stands still, if it does now. One that is slow does
    /// not.
    pub fn stands_still_until(&self, now: Nanos, index: usize, count: usize) -> Option<Nanos> {
        let quiet = self.plan.quiet_after;
        let ends = self.plan.stalls.iter().filter(|stall| stall.engine as usize % count == index);
        ends.map(|stall| (stall.from, stall.from.saturating_add(stall.span).min(quiet)))
            .filter(|(from, until)| (*from..*until).contains(&now))
            .map(|(_, until)| until)
            .max()
    }

    pub const fn plan(&self) -> &FaultPlan {
        &self.plan
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_that_never_heals_is_refused_by_name() {
        let plan = |text: &str| serde_json::from_str::<FaultPlan>(text).unwrap().ensure_possible();
        for (text, word) in [
            (r#"{"loss":1000001}"#, "loss"),
            (r#"{"corrupt":1000000}"#, "quiet_after_ns"),
            (r#"{"tail_max_ns":5000000001}"#, "tail_max_ns"),
            (r#"{"reorder":1}"#, "reorder_span_ns"),
            (r#"{"tail":1,"reorder_span_ns":5}"#, "tail_max_ns"),
            (r#"{"stalls":[{"engine":0,"from_ns":0,"span_ns":18446744073709551615}]}"#, "a stall"),
            (
                r#"{"partitions":[{"from_ns":9,"until_ns":9,"side":[1],"one_way":false}]}"#,
                "before it begins",
            ),
            (
                r#"{"partitions":[{"from_ns":0,"until_ns":6000000000,"side":[1],"one_way":true}]}"#,
                "quiet_after_ns",
            ),
        ] {
            let error = plan(text).unwrap_err();
            assert!(error.contains(word), "{text}: {error}");
        }
        let healed = r#"{"loss":1000000,"quiet_after_ns":1000,
            "stalls":[{"engine":0,"from_ns":0,"span_ns":18446744073709551615}]}"#;
        assert_eq!(plan(healed), Ok(()));
        for seed in 0..200 {
            assert_eq!(FaultPlan::messages(seed).ensure_possible(), Ok(()), "seed {seed}");
        }
    }

    #[test]
    fn the_swarm_turns_each_family_on_about_half_the_time() {
        let plans: Vec<_> = (0..200).map(FaultPlan::messages).collect();
        let on = |family: fn(&FaultPlan) -> bool| plans.iter().filter(|plan| family(plan)).count();
        for family in [
            (|plan| plan.loss > 0) as fn(&FaultPlan) -> bool,
            |plan| plan.duplicate > 0,
            |plan| plan.reorder > 0,
            |plan| plan.tail > 0,
            |plan| plan.corrupt > 0,
            |plan| !plan.partitions.is_empty(),
            |plan| !plan.stalls.is_empty(),
        ] {
            assert!((70..130).contains(&on(family)));
        }
        assert!(plans.iter().all(|plan| plan.loss <= 300_000 && plan.corrupt <= 50_000));
    }

    #[test]
    fn a_one_way_partition_cuts_one_way_and_heals() {
        let cut = Partition {
            from: Nanos(10),
            until: Nanos(20),
            side: NodeSet::from_iter([NodeId(0)]),
            one_way: true,
        };
        let plan = FaultPlan { partitions: vec![cut], ..FaultPlan::none() };
        let faults = Faults::new(plan, 1, 0);
        let (a, b) = (NodeId(0), NodeId(1));
        assert!(faults.is_cut(Nanos(10), a, b) && faults.is_cut(Nanos(19), a, b));
        assert!(!faults.is_cut(Nanos(15), b, a));
        assert!(!faults.is_cut(Nanos(9), a, b) && !faults.is_cut(Nanos(20), a, b));
    }
}
