//! Traces of runs in both worlds: read back, their slices nest, their flows match, their times
//! never go back; and a traced simulated run computes what the same run computes without.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use nicol_bench::bench::{self, BenchConfig, BenchRun, Length};
use nicol_bench::systems::{self, System};
use nicol_bench::trace::{messages_about, timeline, write};
use nicol_bench::workloads::WorkloadSpec;
use nicol_core::history::{Action, End, History, Key};
use nicol_core::trace::{Limits, Recorded, Sink, Step, Track, What};
use serde_json::Value;

fn config(on: &str, faults: &str) -> BenchConfig {
    let workload = WorkloadSpec { records: Some(200), ..WorkloadSpec::named("smallbank") };
    BenchConfig {
        length: Some(Length::Transactions(300)),
        clients: Some(4),
        host_engines: Some(2),
        nic_engines: Some(2),
        faults: faults.parse().unwrap(),
        ..BenchConfig::new("xenic", workload, on, 1)
    }
}

fn traced(config: &BenchConfig, limit: u64) -> (BenchRun, Recorded) {
    let sink = Sink::new(Limits::events(limit));
    let ran =
        bench::run(&BenchConfig { trace: Some(Arc::clone(&sink)), ..config.clone() }).unwrap();
    (ran, sink.take())
}

fn written(recorded: &Recorded) -> Vec<u8> {
    let mut file = Vec::new();
    write(&mut file, recorded).unwrap();
    file
}

/// What a file has of each kind of event, once all of it was found to be sound.
#[derive(Debug, Default)]
struct Seen {
    events: BTreeMap<String, usize>,
    names: BTreeSet<String>,
}

impl Seen {
    fn count(&self, kind: &str) -> usize {
        self.events.get(kind).copied().unwrap_or_default()
    }
}

fn nanos(event: &Value, field: &str) -> u64 {
    (event[field].as_f64().unwrap() * 1e3).round() as u64
}

/// Reads a file as any reader of the format does.
fn sound(file: &[u8]) -> Seen {
    let trace: Value = serde_json::from_slice(file).unwrap();
    let mut seen = Seen::default();
    let mut clocks: BTreeMap<(u64, u64), [u64; 2]> = BTreeMap::new();
    let mut open: BTreeMap<(u64, u64), usize> = BTreeMap::new();
    let mut tasks: BTreeMap<(String, String), Vec<String>> = BTreeMap::new();
    let mut flows: BTreeMap<String, [Vec<u64>; 2]> = BTreeMap::new();
    for event in trace["traceEvents"].as_array().unwrap() {
        let text = |field: &str| event[field].as_str().unwrap_or_default().to_owned();
        let kind = text("ph");
        *seen.events.entry(kind.clone()).or_default() += 1;
        seen.names.insert(text("name"));
        if kind == "M" {
            continue;
        }
        let thread = (event["pid"].as_u64().unwrap(), event["tid"].as_u64().unwrap());
        let at = nanos(event, "ts");
        // A flow begins with the slice before it; whatever else comes is not before that has ended.
        let [clock, sent] = clocks.entry(thread).or_default();
        let earliest = if kind == "s" { *clock } else { *sent };
        assert!(at >= earliest, "the time of a track goes back: {event} after {earliest}");
        (*clock, *sent) = (at, at.max(*sent));
        let depth = open.entry(thread).or_default();
        match kind.as_str() {
            "B" => *depth += 1,
            "E" => {
                *depth = depth.checked_sub(1).expect("a slice ends that has begun");
                assert!(event.get("name").is_none(), "the last slice ends, whatever its name");
            }
            "X" => {
                *sent = at + nanos(event, "dur");
                assert!(*depth > 0, "a message is sent within a round: {event}");
            }
            "b" => tasks.entry((text("cat"), text("id"))).or_default().push(text("name")),
            "e" => {
                let ended = tasks.get_mut(&(text("cat"), text("id"))).and_then(Vec::pop);
                assert_eq!(ended, Some(text("name")), "slices of a task nest");
            }
            "s" => flows.entry(text("id")).or_default()[0].push(at),
            "f" => {
                assert!(*depth > 0, "a flow ends in a slice");
                flows.entry(text("id")).or_default()[1].push(at);
            }
            "C" | "i" => {}
            other => panic!("an event of kind {other}"),
        }
    }
    assert!(open.values().all(|&depth| depth == 0), "every slice ends");
    assert!(tasks.values().all(Vec::is_empty), "every task ends");
    for (flow, [sent, taken]) in &flows {
        assert_eq!((sent.len(), taken.len()), (1, 1), "flow {flow} has two ends");
        assert!(sent[0] <= taken[0], "flow {flow} arrives after it left");
    }
    seen
}

#[test]
fn a_simulated_run_computes_the_same_with_a_trace_and_without() {
    for faults in ["none", "messages"] {
        let config = config("liquidio3", faults);
        let plain = bench::run(&config).unwrap().report;
        let (ran, recorded) = traced(&config, 10_000_000);
        assert_eq!(ran.report.trace_digest, plain.trace_digest);
        assert_eq!(ran.report.committed, plain.committed);
        assert_eq!(recorded.full_at, None);
        let seen = sound(&written(&recorded));
        for kind in ["B", "E", "X", "b", "e", "s", "f", "C"] {
            assert!(seen.count(kind) > 100, "{faults}: {kind}: {seen:?}");
        }
        assert_eq!(seen.count("s"), seen.count("f"));
        assert!(seen.count("s") <= seen.count("X"));
        let messages = ["Execute", "send Log", "DMA write", "round"];
        let coordinator = ["step 1: at the NIC", "step 2: EXECUTE", "step 5: LOG"];
        let server = ["server: EXECUTE", "server: LOG", "server: COMMIT", "apply the log"];
        for name in [&messages[..], &coordinator, &server].concat() {
            assert!(seen.names.contains(name), "{faults}: no {name:?} in {:?}", seen.names);
        }
        let lost = seen.names.contains("frame lost") || seen.names.contains("frame cut off");
        assert_eq!(lost, faults == "messages", "{:?}", seen.names);
    }
}

#[test]
fn a_live_run_is_traced() {
    for faults in ["none", "messages"] {
        let config = BenchConfig { threads: Some(2), ..config("threads", faults) };
        let (ran, recorded) = traced(&config, 10_000_000);
        assert!(ran.report.check.held());
        let seen = sound(&written(&recorded));
        for kind in ["B", "E", "X", "b", "e", "s", "f", "C"] {
            assert!(seen.count(kind) > 100, "{faults}: {kind}: {seen:?}");
        }
    }
}

#[test]
fn a_full_trace_is_sound_and_says_since_when_it_is_full() {
    let (_, recorded) = traced(&config("liquidio3", "none"), 5_000);
    assert!(recorded.full_at.is_some());
    let events: usize = recorded.tracks.values().map(Vec::len).sum();
    assert!((4_900..=5_000).contains(&events), "{events} events: the ends of slices count as well");
    sound(&written(&recorded));
}

#[test]
fn a_timeline_has_the_messages_about_a_key_and_their_replies() {
    let (_, recorded) = traced(&config("liquidio3", "messages"), 10_000_000);
    let file = written(&recorded);
    let all = timeline(&file[..], None).unwrap();
    let text = String::from_utf8(file.clone()).unwrap();
    let named = text.split("\"keys\":[\"").nth(1).unwrap().split('"').next().unwrap();
    let about = timeline(&file[..], Some(named.parse().unwrap())).unwrap();
    assert!(!about.is_empty() && about.len() < all.len() / 4, "{} of {}", about.len(), all.len());
    assert!(about.iter().any(|row| row.message == "Execute"), "{about:?}");
    assert!(about.iter().any(|row| row.message.ends_with("Reply")), "{about:?}");
    assert!(about.is_sorted_by_key(|row| row.sent_us));
    assert!(all.iter().any(|row| row.taken_us.is_none() && !row.faults.is_empty()));
    assert!(timeline(&file[..], Some(u64::MAX)).unwrap().is_empty());
    let verbs = ["READ", "WRITE", "CAS"];
    assert!(all.iter().all(|row| !verbs.contains(&&*row.message)), "NICs of Xenic post no verbs");
    let cut = &file[..file.len() / 2];
    assert!(timeline(cut, None).is_err(), "a file that was cut off is refused");
    assert!(timeline(&b"{}"[..], None).is_err(), "so is another file");
}

/// A card executes one-sided operations, or software of the target does: a timeline has them alike.
#[test]
fn a_timeline_has_the_one_sided_operations_about_a_key() {
    for on in ["connectx5", "threads"] {
        let config = BenchConfig { system: "drtm-r".to_owned(), ..config(on, "none") };
        let threads = (on == "threads").then_some(2);
        let nics = (on == "connectx5").then_some(2);
        let config = BenchConfig { threads, nic_engines: nics, ..config };
        let (_, recorded) = traced(&config, 10_000_000);
        let file = written(&recorded);
        sound(&file);
        let text = String::from_utf8(file.clone()).unwrap();
        let line = text.lines().find(|line| line.contains("CAS") && line.contains("\"keys\":["));
        let line = line.unwrap_or_else(|| panic!("{on}: no CAS names its key"));
        let key = line.split("\"keys\":[\"").nth(1).unwrap().split('"').next().unwrap();
        let about = timeline(&file[..], Some(key.parse().unwrap())).unwrap();
        for verb in ["READ", "CAS"] {
            let row = about.iter().find(|row| row.message == verb);
            let row = row.unwrap_or_else(|| panic!("{on}: no {verb} in {about:?}"));
            assert!(row.taken_us.is_some_and(|taken| taken > row.sent_us), "{on}: {row:?}");
            assert!(row.to.starts_with('n') && row.to != row.from, "{on}: {row:?}");
        }
        let all = timeline(&file[..], None).unwrap();
        assert!(about.len() < all.len() / 4, "{on}: {} of {}", about.len(), all.len());
    }
}

/// A short run of `system` on the first profile that has what it needs.
fn run_of(system: &System) -> BenchConfig {
    let accepts = |spec: &WorkloadSpec| (system.accepts)(system, spec).is_ok();
    let spec = ["smallbank", "ycsb"].map(WorkloadSpec::named).into_iter().find(accepts);
    let workload = WorkloadSpec { records: Some(60), ..spec.unwrap() };
    let on = system.worlds().unwrap().into_iter().find(|world| *world != "threads").unwrap();
    let config = BenchConfig {
        length: Some(Length::Transactions(200)),
        clients: Some(4),
        ..BenchConfig::new(system.name, workload, on, 1)
    };
    if !system.one_server {
        return config;
    }
    // Cores that share records send no messages but those of a scheduler.
    let settings = vec!["scheduler=alnico".to_owned()];
    BenchConfig { nodes: 1, replicas: 1, client_nodes: 1, settings, ..config }
}

/// The keys that were written, each of which another node has heard of.
fn written_keys(history: &History) -> BTreeSet<u64> {
    let acknowledged = history.operations.iter().filter(|operation| operation.end == End::Ok);
    let writes = acknowledged.flat_map(|operation| match &operation.action {
        Action::Put { write, .. } | Action::Delete { write, .. } => std::slice::from_ref(write),
        Action::Txn(txn) => &txn.writes,
        _ => &[],
    });
    let number = |key: &Key| match key {
        Key::Number(number) => *number,
        Key::Bytes(bytes) => panic!("a workload's key has eight bytes, not {bytes:?}"),
    };
    writes.map(|write| number(&write.key)).collect()
}

#[test]
fn every_system_names_its_phases_and_the_keys_of_its_messages() {
    let mut silent = Vec::new();
    for system in systems::all() {
        let (ran, recorded) = traced(&run_of(system), 10_000_000);
        let name = system.name;
        assert!(ran.report.check.held(), "{name}: {:?}", ran.report.check.violations);
        let happened = || recorded.tracks.values().flatten().map(|event| event.what);
        let phase =
            |what| if let What::PhaseBegins { name, .. } = what { Some(name) } else { None };
        let phases: BTreeSet<&str> = happened().filter_map(phase).collect();
        let about = |what| if let What::About(key) = what { Some(key.0) } else { None };
        let named: BTreeSet<u64> = happened().filter_map(about).collect();
        let written = written_keys(&ran.history);
        let unnamed = written.difference(&named).count();
        let first = *written.first().unwrap();
        let rows = messages_about(&recorded, first).unwrap().len();
        if phases.len() < 2 || unnamed > 0 || rows == 0 {
            let all = written.len();
            silent
                .push(format!("{name}: {phases:?}, {unnamed} of {all} keys unnamed, {rows} rows"));
        }
    }
    assert!(silent.is_empty(), "{silent:#?}");
}

/// The steps of MINOS in a run of 300 operations on `on`, in their order.
fn steps(system: &str, on: &str) -> Vec<(Track, Step)> {
    let workload = WorkloadSpec { records: Some(2), ..WorkloadSpec::named("ycsb") };
    let threads = (on == "threads").then_some(2);
    let config = BenchConfig { workload, system: system.to_owned(), threads, ..config(on, "none") };
    let plain = bench::run(&config).unwrap().report;
    let (ran, recorded) = traced(&config, 10_000_000);
    assert_eq!(ran.report.trace_digest, plain.trace_digest);
    assert!(sound(&written(&recorded)).names.contains("line 11: INV"));
    let told = recorded.tracks.iter().flat_map(|(&track, events)| {
        events.iter().filter_map(move |event| match event.what {
            What::Step { step, place, .. } => Some((place, (track, step))),
            _ => None,
        })
    });
    let told: BTreeMap<u64, (Track, Step)> = told.collect();
    assert!((0..told.len() as u64).eq(told.keys().copied()), "{on}: each has a place of its own");
    told.into_values().collect()
}

/// Of a write with an INV, the lines of figure 2 or 8 at its coordinator, in their order.
#[test]
fn a_traced_run_tells_of_the_steps_that_writes_take() {
    let host = [
        "line 4: TS_WR",
        "lines 8, 31: Snatch RDLock",
        "lines 9, 32: WRLock",
        "line 11: INV",
        "lines 12, 34: update",
        "lines 13, 15, 35, 36: release WRLock",
        "Persist",
        "spin until all ACK_C",
        "release RDLock",
        "VAL",
        "return",
    ];
    let offloaded = [
        "line 4: TS_WR",
        "lines 8, 31: Snatch RDLock",
        "line 11: INV",
        "lines 12, 34: enqueue in vFIFO",
        "Persist",
        "spin until all ACK_C",
        "return",
        "release RDLock",
        "VAL",
    ];
    for (system, lines) in [("minos-b:synch", &host[..]), ("minos-o:synch", &offloaded)] {
        for on in ["minos-snic", "threads"] {
            let told = steps(system, on);
            let invited = told.iter().filter(|(_, step)| step.name == "line 11: INV");
            let mut writes = 0;
            for (track, invited) in invited {
                let own = told.iter().filter(|(at, step)| {
                    let write = (step.key, step.stamp) == (invited.key, invited.stamp);
                    write && at.node() == track.node()
                });
                let own: Vec<&str> = own.map(|(_, step)| step.name).collect();
                let mut rest = own.iter();
                let all = lines.iter().all(|line| rest.any(|told| told == line));
                assert!(all, "{system} on {on}: {own:?}");
                writes += 1;
            }
            assert!(writes > 50, "{system} on {on}: {writes}");
        }
    }
}
