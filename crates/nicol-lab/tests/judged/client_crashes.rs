//! A client of PRISM's systems dies between any two of its fabric operations, and while any of them
//! is under way: between any two events of the whole cluster. The others go on, what they read
//! holds, every free list becomes whole, and no lock is held.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use nicol_bench::bench::{BenchConfig, Length, run};
use nicol_bench::report::BenchReport;
use nicol_bench::workloads::WorkloadSpec;
use nicol_core::faults::{CrashScope, FaultPlan};
use nicol_core::ids::{NodeId, ReplyTo, Side};
use nicol_core::trace::{Class, Limits, Recorded, Sink, Track, TransferKind, What};
use nicol_core::units::Nanos;

use crate::support::{crash, held, short};

/// Deaths are not further from one another than so many nanoseconds, and begin and end so many
/// before and after the operations in question.
const APART: u64 = 400;
const AROUND: u64 = 600;

/// Operations of each of two clients, on nodes of their own; the first one dies.
const EACH: u64 = 30;

/// Software on host cores, or a card, executes chains.
pub const SOFTWARE: &str = "connectx5-40g";
pub const CARD: &str = "connectx5-40g:verbs.chains=true";

fn config(system: &str, on: &str, servers: usize, spec: WorkloadSpec) -> BenchConfig {
    BenchConfig {
        nodes: servers,
        replicas: 1,
        client_nodes: 2,
        clients: Some(1),
        host_engines: Some(1),
        nic_engines: Some(1),
        length: Some(Length::Transactions(2 * EACH)),
        ..short(system, spec, on, 1)
    }
}

/// Reads, writes and deletions of few keys of one server.
pub fn kv(on: &str, settings: &[&str]) -> BenchConfig {
    let spec = WorkloadSpec { records: Some(4), ..WorkloadSpec::named("churn") };
    let settings = settings.iter().map(ToString::to_string).collect();
    BenchConfig { settings, ..config("prism-kv", on, 1, spec) }
}

/// Reads and writes of two blocks for each of three replicas.
fn blocks(system: &str, on: &str) -> BenchConfig {
    let spec =
        WorkloadSpec { records: Some(2), value_bytes: Some(40), ..WorkloadSpec::named("ycsb") };
    BenchConfig { replicas: 3, ..config(system, on, 3, spec) }
}

fn rs(on: &str) -> BenchConfig {
    blocks("prism-rs", on)
}

/// Transactions over two of few keys on two servers, some of which write what they have not read.
pub fn tx(on: &str) -> BenchConfig {
    let spec = WorkloadSpec {
        records: Some(3),
        keys: Some(2),
        value_bytes: Some(16),
        zipf_percent: Some(0),
        blind_percent: Some(50),
        ..WorkloadSpec::named("ycsb-t")
    };
    config("prism-tx", on, 2, spec)
}

fn dying(config: &BenchConfig, at: Nanos) -> BenchConfig {
    let mut death = crash(CrashScope::Node, config.nodes as u16, 0, None);
    death.at = at;
    let fault_plan = Some(FaultPlan { crashes: vec![death], ..FaultPlan::none() });
    BenchConfig { fault_plan, ..config.clone() }
}

/// Every fabric operation of the engine of node `client` that was answered, from when it was sent
/// until its answer came: verbs and chains of cards, and messages, as which software gets chains.
fn operations_of(client: NodeId, recorded: &Recorded) -> Vec<Range<Nanos>> {
    let (mut open, mut asked, mut answers) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    let mut all = Vec::new();
    let engines = recorded.tracks.iter().filter_map(|(track, events)| match track {
        Track::Engine(engine) => Some((*engine, events)),
        Track::Hardware(_) => None,
    });
    let engines: Vec<_> = engines.collect();
    // Who has answered what comes before who has got it.
    let others = engines.iter().filter(|(engine, _)| engine.node != client);
    for (engine, event) in others.flat_map(|(engine, events)| events.iter().map(|it| (*engine, it)))
    {
        if let What::Sent { flow, to, class: Class::Reply, request, .. } = event.what
            && to.node == client
        {
            let ReplyTo { request, .. } = request;
            answers.insert(flow, (engine, request.slot, request.sequence));
        }
    }
    let own =
        engines.iter().filter(|(engine, _)| engine.node == client && engine.side == Side::Host);
    for event in own.flat_map(|(_, events)| events.iter()) {
        match event.what {
            What::TransferBegins { id, kind: TransferKind::Verb(_), .. } => {
                open.insert(id, event.at);
            }
            What::TransferEnds { id, .. } => {
                all.extend(open.remove(&id).map(|begun| begun..event.at));
            }
            What::Sent {
                since,
                to,
                class: Class::Request,
                request: ReplyTo { request, .. },
                ..
            } => {
                asked.insert((to, request.slot, request.sequence), since);
            }
            What::Deliver { flow: Some(flow), reply: true, .. } => {
                let asked = answers.get(&flow).and_then(|request| asked.remove(request));
                all.extend(asked.map(|begun| begun..event.at));
            }
            _ => {}
        }
    }
    all
}

/// What happens while a client executes some of its fabric operations, if it lives.
struct Rehearsal {
    /// The operations, in the order of their beginnings.
    operations: Vec<Range<Nanos>>,
    /// From before the first one until after the last: an instant between any two events, and more
    /// where a card executes chains meanwhile, of which no event tells.
    instants: Vec<Nanos>,
}

impl Rehearsal {
    /// Runs `config` with a client that dies long after its end.
    fn of(config: &BenchConfig, operations: Range<usize>) -> Self {
        let sink = Sink::new(Limits::events(1_000_000));
        let mut config = dying(config, Nanos::from_secs(9));
        config.trace = Some(sink.clone());
        assert!(run(&config).unwrap().report.check.held());
        let recorded = sink.take();
        let mut all = operations_of(NodeId(config.nodes as u16), &recorded);
        all.sort_unstable_by_key(|operation| operation.start);
        let operations = all[operations].to_vec();
        let first = operations[0].start.0 - AROUND;
        let last = operations.iter().map(|operation| operation.end.0 + AROUND).max().unwrap();
        let events = recorded.tracks.values().flatten().map(|event| event.at.0);
        let times: BTreeSet<u64> = events.filter(|at| (first..last).contains(at)).collect();
        let times: Vec<u64> = times.into_iter().collect();
        let between = times.windows(2).flat_map(|pair| {
            let (span, parts) = (pair[1] - pair[0], (pair[1] - pair[0]).div_ceil(APART));
            (0..parts).map(move |part| Nanos(pair[0] + (span * (2 * part + 1)).div_ceil(2 * parts)))
        });
        Self { operations, instants: between.collect() }
    }

    /// How many operations are under way at `at`.
    fn under_way(&self, at: Nanos) -> usize {
        self.operations.iter().filter(|operation| operation.contains(&at)).count()
    }
}

/// Lets a client die at each instant of some of its operations; `seen` looks at each run.
fn die_everywhere(
    config: &BenchConfig,
    operations: Range<usize>,
    mut seen: impl FnMut(&BenchReport),
) {
    let rehearsal = Rehearsal::of(config, operations);
    let mut between = 0;
    for &at in &rehearsal.instants {
        let report = held(&dying(config, at));
        let committed = report.committed + report.refused;
        assert!(committed >= EACH, "{at:?}: the other client goes on: {committed}");
        assert_eq!(report.failed, 0, "{at:?}");
        between += u64::from(rehearsal.under_way(at) == 0);
        seen(&report);
    }
    let deaths_within =
        |span: &Range<Nanos>| rehearsal.instants.iter().filter(|at| span.contains(at)).count();
    // While each operation is sent, executed and unanswered; and between it and the next.
    for operation in &rehearsal.operations {
        assert!(deaths_within(operation) >= 4, "{operation:?}");
    }
    let mut until = rehearsal.operations[0].end;
    for operation in &rehearsal.operations {
        let gap = until..operation.start;
        assert!(gap.is_empty() || deaths_within(&gap) > 0, "{gap:?}");
        until = until.max(operation.end);
    }
    assert!(between >= 2, "{between}");
}

#[test]
fn a_client_of_prism_kv_dies_between_any_two_events() {
    let reused = ["deleted=reused", "reuse=generation"];
    for (on, settings, operations) in
        [(SOFTWARE, &reused[..], 4..9), (CARD, &[], 4..12), (CARD, &reused, 4..16)]
    {
        let mut found = 0;
        die_everywhere(&kv(on, settings), operations, |report| {
            found += report.counters["prism_kv"]["found"];
        });
        assert!(found > 0, "{on}: some client dies with a buffer in its hands");
    }
}

#[test]
fn a_client_of_prism_rs_dies_between_any_two_events() {
    for (on, operations) in [(SOFTWARE, 12..18), (CARD, 12..27)] {
        let mut found = 0;
        die_everywhere(&rs(on), operations, |report| found += report.counters["prism_rs"]["found"]);
        assert!(found > 0, "{on}: some client dies with a buffer in its hands");
    }
}

/// What it has locked is released, or the other client would not go on.
#[test]
fn a_client_of_abdlock_dies_between_any_two_events() {
    for (system, on) in [("abdlock", CARD), ("abdlock-software", SOFTWARE)] {
        die_everywhere(&blocks(system, on), 12..24, |_| {});
    }
}

#[test]
fn a_client_of_prism_tx_dies_between_any_two_events() {
    for (on, operations) in [(SOFTWARE, 4..10), (CARD, 4..20)] {
        let mut recovered = 0;
        die_everywhere(&tx(on), operations, |report| {
            recovered += report.counters["prism_tx"]["recovered"];
        });
        assert!(recovered > 0, "{on}: some client dies with transactions that it has prepared");
    }
}

#[test]
fn what_the_dead_leave_is_missed_where_nobody_looks() {
    for whole in [kv(CARD, &[]), rs(CARD)] {
        let rehearsal = Rehearsal::of(&whole, 12..24);
        let settings = vec!["sabotage=forgets_the_dead".to_owned()];
        let broken = BenchConfig { settings, ..whole };
        let mut instants = rehearsal.instants.iter();
        let noticed = |at: &Nanos| !run(&dying(&broken, *at)).unwrap().report.check.held();
        assert!(instants.any(noticed), "{}: nobody misses a buffer", broken.system);
    }
}
