//! A model of MINOS in Stateright, of the level of `tla/Minos.tla`, with views, a crash and
//! replays. It takes what differs between the persistency models from the shipped table. It is
//! explored, and it must accept the step traces of the shipped code, and reject those of code that
//! is broken on purpose. [MINOS24 VI]
//!
//! The forms that take minutes are ignored; CONTRIBUTING tells their command.

mod accept;
mod explore;
mod properties;
mod rules;
mod state;

use std::time::Instant;

use nicol_bench::bench::{self, BenchConfig, Length};
use nicol_bench::workloads::WorkloadSpec;
use nicol_core::history::Persistency;
use nicol_core::trace::{Limits, Sink};
use nicol_core::units::Nanos;
use nicol_workload::ycsb::Popularity;

use accept::{Accepted, Traced};
use explore::{CONVERGENCE, Explored, NO_DEADLOCK, Sabotage, Scope, explore};
use rules::Protocol;

const MODELS: [(&str, Persistency); 5] = [
    ("synch", Persistency::Synch),
    ("strict", Persistency::Strict),
    ("renf", Persistency::Renf),
    ("event", Persistency::Event),
    ("scope", Persistency::Scope),
];
/// The places, and whether they are offloaded.
const PLACES: [(&str, bool); 2] = [("minos-b", false), ("minos-o", true)];
/// Transitions of an exploration that is not whole, at most: in the suite, and in the long form.
const SHORT: usize = 40_000;
const LONG: usize = 2_000_000;
/// Transitions that an exploration which is to be whole may take: several times what it takes.
const WHOLE: usize = 1_000_000;
/// Events of a trace, at most.
const EVENTS: u64 = 20_000_000;

/// Explores each model in these places, and prints what was seen. Are the explorations to be whole?
fn each(
    what: &str,
    places: &[(&str, bool)],
    most: usize,
    whole: bool,
    scope_of: impl Fn(Persistency, bool) -> Scope,
) {
    for (place, offload) in places {
        for (model, persistency) in MODELS {
            let name = format!("{what}: {place}:{model}");
            let explored = explore(&scope_of(persistency, *offload), most);
            let explored = explored.unwrap_or_else(|found| panic!("{name}: {found}"));
            let Explored { states, took, is_whole } = explored;
            eprintln!("{name}: {states} states, whole: {is_whole}, {took:.1?}");
            assert!(is_whole || !whole, "{name}: there are more than {most} transitions");
        }
    }
}

#[test]
fn two_concurrent_writes_of_three_nodes_keep_every_condition() {
    each("two writes on three nodes", &PLACES[..1], WHOLE, true, Scope::new);
    each("two writes on three nodes", &PLACES[1..], SHORT, false, Scope::new);
}

#[test]
fn two_concurrent_writes_of_two_nodes_keep_every_condition_at_any_line() {
    let scope_of = |model, offload| Scope { nodes: 2, by_line: true, ..Scope::new(model, offload) };
    each("two writes on two nodes, by line", &PLACES[..1], WHOLE, true, scope_of);
    each("two writes on two nodes, by line", &PLACES[1..], SHORT, false, scope_of);
}

#[test]
fn one_write_survives_the_crash_of_any_node_at_any_line() {
    each("one write and a crash, by line", &PLACES, SHORT, false, |model, offload| Scope {
        writers: &[0],
        crash: true,
        by_line: true,
        ..Scope::new(model, offload)
    });
}

/// The same with more states; two writes with every line a step; and with a crash and INVs that
/// arrive twice, at two nodes and at one.
#[test]
#[ignore = "takes minutes: CONTRIBUTING has the command"]
fn the_model_keeps_every_condition_in_millions_of_states() {
    each("two writes on three nodes", &PLACES, LONG, false, Scope::new);
    let by_line = |model, offload| Scope { by_line: true, ..Scope::new(model, offload) };
    let two = |model, offload| Scope { nodes: 2, ..by_line(model, offload) };
    each("two writes on two nodes, by line", &PLACES, LONG, false, two);
    let one = |model, offload| Scope { writers: &[0], crash: true, ..by_line(model, offload) };
    each("one write and a crash, by line", &PLACES, LONG, false, one);
    each("two writes on three nodes, by line", &PLACES, LONG, false, by_line);
    for (what, writers) in [("two nodes' writes", &[0, 1][..]), ("one node's writes", &[0, 0])] {
        let what = format!("{what}, INVs twice, a crash");
        each(&what, &PLACES, LONG, false, |model, offload| {
            let scope = Scope { writers, crash: true, ..Scope::new(model, offload) };
            Scope { protocol: Protocol { arrivals: Some(2), ..scope.protocol }, ..scope }
        });
    }
}

/// An exploration that finds nothing is believed once it has found what is broken: every condition,
/// by a model that is broken in one place.
#[test]
fn every_condition_is_seen_to_be_violated() {
    let one = &[0][..];
    for (condition, sabotage, writers) in [
        ("reads are linearizable", Sabotage::ReleasesEarly, one),
        ("2b*, 2c*: glb_volatileTS is everywhere", Sabotage::SkipsAcks, one),
        ("3b*: glb_durableTS is durable everywhere", Sabotage::PersistsNothing, one),
        ("what is promised is durable", Sabotage::PersistsNothing, one),
        ("what has returned is everywhere", Sabotage::SkipsAcks, one),
        ("what has returned is everywhere", Sabotage::SkipsSpins, &[0, 1]),
        ("2a: unlocked records agree", Sabotage::ReleasesEarly, one),
        ("2b*: whoever has all ACKs is not ahead of anybody", Sabotage::SkipsAcks, one),
        ("3a: durable timestamps agree", Sabotage::ReleasesEarly, one),
        ("4b: locks and timestamps are legal", Sabotage::ForgetsVolatileTs, one),
        (CONVERGENCE, Sabotage::AppliesObsolete, &[0, 1]),
        (NO_DEADLOCK, Sabotage::DropsReplays, one),
    ] {
        let crash = sabotage == Sabotage::DropsReplays;
        let whole = Scope::new(Persistency::Synch, false);
        let only = Some(condition);
        // Some are violated between two lines only; ends are too far away for that.
        let by_line = !matches!(sabotage, Sabotage::AppliesObsolete | Sabotage::DropsReplays);
        let scope = Scope { crash, writers, by_line, sabotage, only, ..whole };
        let violated = explore(&scope, WHOLE).err();
        let violated = violated.unwrap_or_else(|| panic!("{condition} holds under {sabotage:?}"));
        eprintln!("{sabotage:?}: {violated}");
        assert!(violated.starts_with(&format!("{condition} after")), "{condition}: {violated}");
    }
}

/// A run as a sweep has it, of 3 nodes and few records, under message faults and, if asked for,
/// crashes.
fn config(system: &str, seed: u64, crashes: bool) -> BenchConfig {
    let workload = WorkloadSpec {
        records: Some(if seed.is_multiple_of(2) { 2 } else { 12 }),
        value_bytes: Some(40),
        popularity: Some(Popularity::Uniform),
        ..WorkloadSpec::named("ycsb")
    };
    let mut config = BenchConfig {
        host_engines: Some(2),
        nic_engines: Some(2),
        clients: Some(6),
        length: Some(Length::Transactions(600)),
        warmup: Some(Nanos::ZERO),
        settings: vec!["timeout_us=500".to_owned()],
        ..BenchConfig::new(system, workload, "minos-snic", seed)
    };
    (config.faults.messages, config.faults.crashes) = (true, crashes);
    config
}

/// Three seeds of four have crashes.
fn has_crashes(seed: u64) -> bool {
    !seed.is_multiple_of(4)
}

/// Runs `config`, and follows the model through its steps.
///
/// Errors: the first step that the model refuses.
///
/// # Panics
/// If the run does, or cannot begin.
fn accepted(config: &BenchConfig, protocol: &Protocol) -> Result<Accepted, String> {
    let sink = Sink::new(Limits::events(EVENTS));
    let traced = BenchConfig { trace: Some(sink.clone()), ..config.clone() };
    bench::run(&traced).unwrap_or_else(|error| panic!("{}: {error}", config.system));
    Traced::of(&sink.take(), config.nodes).accept(protocol, true)
}

/// The model of a system.
fn protocol_of(system: &str) -> Protocol {
    let (place, model) = system.split_once(':').expect("a place and a model");
    let persistency = MODELS.iter().find(|(name, _)| *name == model).expect("a model").1;
    Protocol::new(persistency, place == "minos-o")
}

/// Runs every system on these seeds, and prints what was accepted.
fn accept_all(seeds: std::ops::Range<u64>) {
    for (place, _) in PLACES {
        for (model, _) in MODELS {
            let (system, began) = (format!("{place}:{model}"), Instant::now());
            let mut all = Accepted::default();
            for seed in seeds.clone() {
                let one =
                    accepted(&config(&system, seed, has_crashes(seed)), &protocol_of(&system));
                let one = one.unwrap_or_else(|why| panic!("{system}, seed {seed}: {why}"));
                all.records += one.records;
                all.steps += one.steps;
                all.states = all.states.max(one.states);
            }
            eprintln!("{system}, seeds {seeds:?}: {all:?}, {:.1?}", began.elapsed());
            assert!(all.steps as u64 > 1_000 * (seeds.end - seeds.start), "{system}: {all:?}");
        }
    }
}

#[test]
fn the_model_accepts_the_step_traces_of_a_sweep() {
    accept_all(0..6);
}

#[test]
#[ignore = "takes minutes: CONTRIBUTING has the command"]
fn the_model_accepts_the_step_traces_of_a_thousand_seeds() {
    accept_all(0..1_000);
}

/// Two survivors replayed a write over and over, each because of the other's replay, while the
/// third node did not answer: hundreds of replays were under way.
#[test]
fn a_write_is_replayed_by_an_engine_once_at_a_time() {
    for system in ["minos-b:synch", "minos-b:strict"] {
        let one = accepted(&config(system, 27, true), &protocol_of(system));
        let one = one.unwrap_or_else(|why| panic!("{system}: {why}"));
        assert!(one.steps < 50_000, "{system}: {one:?}");
    }
}

/// A host persisted into the dFIFO as it recovered when its NIC crashed, and gave an entry back
/// that nobody had any more.
#[test]
fn a_nic_may_crash_while_its_host_persists_what_it_has_copied() {
    for system in ["minos-o:event", "minos-o:scope"] {
        let one = accepted(&config(system, 63, true), &protocol_of(system));
        one.unwrap_or_else(|why| panic!("{system}: {why}"));
    }
}

/// Faults of the shipped code, a system that has each, and whether it takes crashes to see it.
const BROKEN: [(&str, &str, bool); 8] = [
    ("releases_early", "minos-b:synch", false),
    ("forgets_follower", "minos-b:synch", false),
    ("skips_spins", "minos-b:synch", false),
    ("acks_before_persist", "minos-o:synch", false),
    ("applies_obsolete", "minos-b:event", false),
    ("reads_through_locks", "minos-b:renf", false),
    ("resurrects", "minos-b:synch", true),
    ("replays_as_new", "minos-b:synch", true),
];

/// A trace that the model refuses is of code that is broken: the same seed is accepted without the
/// fault.
#[test]
fn the_model_rejects_the_step_traces_of_what_is_broken() {
    for (sabotage, system, crashes) in BROKEN {
        let protocol = protocol_of(system);
        let broken = |seed| {
            let mut config = config(system, seed, crashes);
            config.settings.push(format!("sabotage={sabotage}"));
            accepted(&config, &protocol).err().map(|why| (seed, why))
        };
        let refused = (0..20).find_map(broken);
        let (seed, why) = refused.unwrap_or_else(|| panic!("{sabotage} is accepted"));
        eprintln!("{sabotage}, seed {seed}: {}", why.lines().next().unwrap_or_default());
        let whole = accepted(&config(system, seed, crashes), &protocol);
        assert!(whole.is_ok(), "{sabotage}, seed {seed}: {whole:?}");
    }
}
