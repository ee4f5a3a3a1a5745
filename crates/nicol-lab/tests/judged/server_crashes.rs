//! A server of PRISM's systems dies at every instant at which anything happens on it in a short
//! run, and so between any two accesses of the chains that it executes. What others hold as well is
//! served on, and a replica rejoins them; else it is refused.

use std::collections::BTreeSet;

use nicol_bench::bench::{BenchConfig, Length, run};
use nicol_bench::report::BenchReport;
use nicol_core::faults::{CrashScope, FaultPlan, Partition, Stall};
use nicol_core::ids::{NodeId, Side};
use nicol_core::trace::{Event, Limits, Recorded, Sink, What};
use nicol_core::units::Nanos;
use nicol_core::view::NodeSet;

use crate::client_crashes::{CARD, SOFTWARE, kv, tx};
use crate::support::{crash, few_records, held, short};

/// The server that dies.
const DYING: u16 = 0;

/// What happens on the server of a run in which it lives.
struct Rehearsal {
    /// Every instant at which anything happens there.
    instants: BTreeSet<Nanos>,
    /// Those at which chains and verbs have accessed its memory.
    accesses: BTreeSet<Nanos>,
}

/// Has a card made an access, or has an engine the words that it has asked for?
const fn is_access(event: &Event) -> bool {
    matches!(event.what, What::Access { .. } | What::TransferEnds { .. })
}

impl Rehearsal {
    /// Runs `config`, and looks at what comes before `until`.
    fn of(config: &BenchConfig, until: Nanos) -> Self {
        let sink = Sink::new(Limits::events(1_000_000));
        held(&BenchConfig { trace: Some(sink.clone()), ..config.clone() });
        let Recorded { tracks, .. } = sink.take();
        let of_server = tracks.iter().filter(|(track, _)| track.node() == NodeId(DYING));
        let events: Vec<&Event> =
            of_server.flat_map(|(_, events)| events).filter(|event| event.at < until).collect();
        let accesses = events.iter().filter(|event| is_access(event)).map(|event| event.at);
        Self {
            accesses: accesses.collect(),
            instants: events.iter().map(|event| event.at).collect(),
        }
    }
}

/// A death of the server at `at`, before whatever else happens then.
fn death(scope: CrashScope, at: Nanos, restart_after_us: Option<u64>) -> FaultPlan {
    let mut crash = crash(scope, DYING, 0, restart_after_us);
    crash.at = at;
    FaultPlan { crashes: vec![crash], ..FaultPlan::none() }
}

/// Host engines, and NIC engines, of every node of a cluster of replicated blocks.
const ENGINES: u32 = 2;
/// Another replica, which is slow when the first one dies, and again later.
const SLOW: u16 = 1;
/// The last replica, which lags until then.
const LAGGING: u16 = 2;
/// The node of the clients: those on its first engine begin, those on the second one come later.
const CLIENTS: u16 = 3;

/// Blocks on three replicas, of which any two are a quorum.
fn blocks(system: &str, on: &str) -> BenchConfig {
    BenchConfig {
        settings: vec!["timeout_us=50000".to_owned()],
        client_nodes: 1,
        host_engines: Some(ENGINES as usize),
        nic_engines: Some(ENGINES as usize),
        clients: Some(6),
        length: Some(Length::Transactions(48)),
        ..short(system, few_records(2), on, 1)
    }
}

/// An engine stands still. Nodes are alike: so its place in the view follows.
fn stall(node: u16, side: Side, core: u32, time: (Nanos, Nanos)) -> Stall {
    let engine = (u32::from(node) * 2 + side as u32) * ENGINES + core;
    Stall { engine, from: time.0, span: time.1.since(time.0) }
}

fn cut(node: u16, from: Nanos, until: Nanos) -> Partition {
    Partition { from, until, side: NodeSet::from_iter([NodeId(node)]), one_way: false }
}

/// A replica dies at `at`, and rejoins. Of what it has acknowledged the last one has nothing then,
/// and the slow one lacks what came just before. Those that come later read from the first and the
/// last one alone, as soon as those that begin have ended what was under way.
fn lose_replica(config: &BenchConfig, scope: CrashScope, at: Nanos) -> BenchConfig {
    let after = |time: Nanos, micros| time + Nanos::from_micros(micros);
    let mut plan = death(scope, at, Some(20));
    // It has registered and copied long since.
    let rejoined = after(at, 3_000);
    let reads_from = after(rejoined, 50);
    let end = after(reads_from, 1_500);
    plan.stalls.push(stall(CLIENTS, Side::Host, 1, (Nanos::ZERO, reads_from)));
    if config.on == CARD {
        // Cards give up what they cannot write.
        plan.partitions.push(cut(LAGGING, Nanos::ZERO, at));
        plan.partitions.push(cut(SLOW, reads_from, end));
    } else {
        // These engines execute what is sent by those that begin, and others what is sent by those
        // that come later and by the replica that copies. In between, the last one refuses what has
        // waited, but does not execute what is sent again.
        let lagging = |time| stall(LAGGING, Side::Nic, 1, time);
        plan.stalls.push(lagging((Nanos::ZERO, rejoined)));
        plan.stalls.push(lagging((after(rejoined, 28), end)));
        let just_before = Nanos(at.0.saturating_sub(7_000));
        plan.stalls.push(stall(SLOW, Side::Nic, 0, (just_before, rejoined)));
        let slow = |core| stall(SLOW, Side::Nic, core, (reads_from, end));
        plan.stalls.extend((0..ENGINES).map(slow));
    }
    BenchConfig { fault_plan: Some(plan), ..config.clone() }
}

/// The instants at which a replica may die: while those run that begin.
fn deaths_of_replica(config: &BenchConfig) -> BTreeSet<Nanos> {
    let late = lose_replica(config, CrashScope::Node, Nanos::from_millis(6));
    let rehearsal = Rehearsal::of(&late, Nanos::from_millis(1));
    // Each of 24 operations takes two chains of two accesses; some are made at one instant.
    assert!(rehearsal.accesses.len() > 60, "{}", rehearsal.accesses.len());
    rehearsal.instants
}

#[test]
fn a_replica_of_prism_rs_dies_between_any_two_accesses_and_rejoins() {
    let (node, nic) = (CrashScope::Node, CrashScope::Nic);
    for (on, scopes) in [(SOFTWARE, &[node, nic][..]), (CARD, &[node])] {
        let config = blocks("prism-rs", on);
        for at in deaths_of_replica(&config) {
            for &scope in scopes {
                let report = held(&lose_replica(&config, scope, at));
                assert_eq!((report.committed, report.failed), (48, 0), "{on} {scope:?} {at:?}");
            }
        }
    }
}

/// Does the run that `config` says break the system's promise with this planted fault?
fn is_noticed(mut config: BenchConfig, fault: &str) -> bool {
    config.settings.push(format!("sabotage={fault}"));
    run(&config).unwrap().report.check.held_promise == Some(false)
}

#[test]
fn a_replica_that_rejoins_wrongly_is_caught_at_some_death() {
    let (empty, counts, skips) = ("rejoins_empty", "counts_the_dead", "skips_fence");
    for (on, faults) in [(SOFTWARE, &[empty, counts, skips][..]), (CARD, &[empty])] {
        let config = blocks("prism-rs", on);
        let deaths = deaths_of_replica(&config);
        for fault in faults {
            let died = |at: &Nanos| lose_replica(&config, CrashScope::Node, *at);
            assert!(
                deaths.iter().map(died).any(|run| is_noticed(run, fault)),
                "{on}: {fault} is not noticed"
            );
        }
    }
}

/// No answer reaches the first client for so long before the server dies: others see what it never
/// learns of.
const UNANSWERED: Nanos = Nanos::from_micros(40);

/// The server dies for good at `at`.
fn lose_server(config: &BenchConfig, scope: CrashScope, at: Nanos) -> BenchConfig {
    let (nodes, all) = (config.nodes as u16, (config.nodes + config.client_nodes) as u16);
    let others = (0..all).filter(|node| *node != nodes).map(NodeId);
    let from = Nanos(at.0.saturating_sub(UNANSWERED.0));
    let cut = Partition { from, until: at, side: NodeSet::from_iter(others), one_way: true };
    let plan = FaultPlan { partitions: vec![cut], ..death(scope, at, None) };
    BenchConfig { fault_plan: Some(plan), ..config.clone() }
}

/// Lets the server die at each instant of a run in which it makes at least so many accesses; `seen`
/// looks at each run.
fn die_everywhere(
    config: &BenchConfig,
    scope: CrashScope,
    accesses: usize,
    mut seen: impl FnMut(&BenchReport),
) {
    let dying = |at| lose_server(config, scope, at);
    let rehearsal = Rehearsal::of(&dying(Nanos::from_secs(9)), Nanos::from_millis(2));
    let made = rehearsal.accesses.len();
    assert!(made >= accesses, "{} on {}: {made}", config.system, config.on);
    rehearsal.instants.into_iter().for_each(|at| seen(&held(&dying(at))));
}

/// What a server holds is lost with its machine, or with the engines alone that execute chains.
const LOSSES: [(&str, CrashScope); 3] =
    [(SOFTWARE, CrashScope::Node), (SOFTWARE, CrashScope::Nic), (CARD, CrashScope::Node)];

/// The server of a half of the records dies everywhere, and is missed.
fn lose_half(config: &BenchConfig, scope: CrashScope, accesses: usize) {
    let (mut unknown, mut refused, mut committed) = (0, 0, 0);
    die_everywhere(config, scope, accesses, |report| {
        unknown += report.unknown;
        refused += report.abort_reasons["shard_unavailable"];
        committed += report.committed;
    });
    let seen = [unknown, refused, committed];
    assert!(seen.iter().all(|&seen| seen > 20), "{} on {}: {seen:?}", config.system, config.on);
}

#[test]
fn a_server_of_prism_kv_dies_between_any_two_accesses() {
    for (on, scope) in LOSSES {
        let length = Some(Length::Transactions(40));
        lose_half(&BenchConfig { nodes: 2, length, ..kv(on, &[]) }, scope, 60);
    }
}

/// PUTs are messages, which its engines serve; GETs are READs.
#[test]
fn a_server_of_pilaf_dies_between_any_two_accesses() {
    for (system, on) in [("pilaf", CARD), ("pilaf-software", SOFTWARE)] {
        let length = Some(Length::Transactions(40));
        let (system, settings) = (system.to_owned(), Vec::new());
        let config = BenchConfig { system, settings, nodes: 2, length, ..kv(on, &[]) };
        lose_half(&config, CrashScope::Node, 20);
    }
}

#[test]
fn a_server_of_prism_tx_dies_between_any_two_accesses() {
    for (on, scope) in LOSSES {
        lose_half(&BenchConfig { length: Some(Length::Transactions(20)), ..tx(on) }, scope, 60);
    }
}

/// Blocks of ABDLOCK, whose replicas do not come back.
fn locked(system: &str, on: &str) -> BenchConfig {
    let length = Some(Length::Transactions(24));
    BenchConfig { client_nodes: 2, clients: Some(2), length, ..blocks(system, on) }
}

/// The others are a quorum, and what the dead one has locked holds up nobody.
#[test]
fn a_replica_of_abdlock_dies_between_any_two_accesses() {
    for (system, on) in [("abdlock", CARD), ("abdlock-software", SOFTWARE)] {
        die_everywhere(&locked(system, on), CrashScope::Node, 60, |report| {
            assert_eq!((report.committed, report.failed, report.unknown), (24, 0, 0), "{on}");
        });
    }
    let config = locked("abdlock-software", SOFTWARE);
    let late = lose_server(&config, CrashScope::Node, Nanos::from_secs(9));
    let deaths = Rehearsal::of(&late, Nanos::from_millis(2)).instants;
    let died = |at: &Nanos| lose_server(&config, CrashScope::Node, *at);
    assert!(
        deaths.iter().map(died).any(|run| is_noticed(run, "small_quorum")),
        "a quorum of one is not noticed"
    );
}
