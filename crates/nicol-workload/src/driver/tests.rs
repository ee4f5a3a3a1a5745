//! The driver in a fake world.

use std::collections::BTreeSet;
use std::sync::Arc;

use nicol_core::history::{End, Operation};
use nicol_core::units::Nanos;
use nicol_core::view::View;
use nicol_core::workload::Workload;

use super::transactions::spawn_recorded;
use super::*;
use crate::fake::{FakeConfig, FakeEngine, FakeProtocol, Validation};
use crate::smallbank::{Smallbank, SmallbankConfig};

const CLIENTS: u32 = 4;

/// A window of 80 us after 20 us of warm-up.
fn plan(load: Load) -> RunPlan {
    RunPlan {
        seed: 1,
        clients: CLIENTS,
        begin: Nanos::from_micros(10),
        warmup_until: Nanos::from_micros(20),
        stop_at: Nanos::from_micros(100),
        operations_per_client: None,
        load,
        retry: Retry {
            attempts_max: 20,
            full_max: 20,
            first: Nanos(100),
            longest: Nanos(5_000),
            adaptive_window: false,
        },
        record: false,
        history_max: 100_000,
    }
}

struct Setting {
    fabric: FakeEngine,
    protocol: FakeProtocol,
    run: Arc<RunControl>,
}

/// Spawns the plan's clients; attempts take 2 to `2 * step_max` ns.
fn set_up(plan: RunPlan, accounts: u64, step_max: u64, unknown_every: u64) -> Setting {
    let fabric = FakeEngine::new(View::new(1, 1, 1, 1).unwrap());
    let config = SmallbankConfig::paper(1, accounts);
    let workload: Arc<dyn Workload> = Arc::new(Smallbank::new(config));
    let config = FakeConfig { validation: Validation::Everything, step_max, unknown_every };
    let protocol = FakeProtocol::load(&fabric, config, &*workload);
    let run = RunControl::new(plan, workload.kinds());
    spawn_clients(&fabric, &protocol, &workload, &run, 0, plan.clients);
    Setting { fabric, protocol, run }
}

fn finish(setting: &Setting) -> RunResult {
    setting.fabric.run_until(Nanos::from_secs(10));
    assert!(setting.run.finished());
    let result = setting.run.result().clone();
    assert!(result.whole.balance());
    assert!(result.window.balance());
    result
}

#[test]
fn a_closed_loop_fills_the_window_and_ends() {
    let result = finish(&set_up(plan(Load::Closed), 10_000, 500, 0));
    // Four clients, 501 ns an attempt on average, 80 us: about 640 transactions.
    assert!((560..720).contains(&result.window.issued), "{:?}", result.window);
    assert!(result.whole.issued > result.window.issued, "warm-up is counted apart");
    assert_eq!(result.window_length(), Nanos::from_micros(80));
    let latency = result.latency();
    assert_eq!(latency.len(), result.window.committed);
    assert!(latency.min() >= 2);
    assert!((400.0..900.0).contains(&latency.mean()), "{}", latency.mean());
    let committed: u64 = result.kinds.iter().map(|kind| kind.committed_in_window).sum();
    let expected = committed as f64 / 80e-6;
    assert!((result.throughput_per_s() - expected).abs() < 1e-3 * expected);
    assert_eq!(result.overdue, 0);
    assert!(result.history.is_empty());
}

#[test]
fn who_waits_is_told_with_its_operation_and_since_when() {
    let Setting { fabric, run, .. } = set_up(plan(Load::Closed), 10_000, 500, 0);
    assert_eq!((run.waiting(), run.last_sign()), (Vec::new(), None), "nobody has begun");
    fabric.run_until(Nanos::from_micros(50));
    let waiting = run.waiting();
    let mut clients: Vec<u32> = waiting.iter().map(|one| one.client).collect();
    clients.sort_unstable();
    assert_eq!(clients, [0, 1, 2, 3], "attempts take time, and nothing else does");
    for one in &waiting {
        assert!(run.kinds().contains(&one.kind), "{one}");
        assert!((45_000..=50_000).contains(&one.last_sign.0), "{one}");
        assert!(one.since <= one.last_sign && one.attempts > 0, "{one}");
    }
    assert!(waiting.is_sorted_by_key(|one| one.last_sign));
    assert_eq!(run.last_sign(), waiting.last().map(|one| one.last_sign));
    let Waiting { client, kind, .. } = waiting[0];
    let told = waiting[0].to_string();
    assert!(told.starts_with(&format!("client {client} for {kind}, due at ")), "{told}");
    fabric.run_until(Nanos::from_secs(10));
    assert!(run.finished());
    assert_eq!((run.waiting(), run.last_sign()), (Vec::new(), None), "all have ended");
}

#[test]
fn an_open_loop_keeps_its_rate_below_saturation() {
    let load = Load::Open { per_second: 1_000_000 };
    let result = finish(&set_up(plan(load), 10_000, 100, 0));
    assert_eq!(result.window.issued, 80);
    assert_eq!(result.whole.issued, 90);
    assert_eq!(result.overdue, 0);
}

#[test]
fn an_open_loop_charges_a_slow_system_for_its_queue() {
    // Attempts of 10 us on average, four clients: 0.4 a microsecond against one due.
    let load = Load::Open { per_second: 1_000_000 };
    let result = finish(&set_up(plan(load), 10_000, 10_000, 0));
    assert_eq!(result.whole.issued + result.overdue, 90, "what was due is issued or overdue");
    assert!(result.overdue > 30, "{}", result.overdue);
    let slowest = result.latency().max();
    assert!(slowest > 30_000, "latency counts from when it was due: {slowest}");
}

#[test]
fn a_fixed_number_of_transactions_is_run() {
    let mut plan = plan(Load::Closed);
    plan.stop_at = Nanos::MAX;
    plan.operations_per_client = Some(100);
    let result = finish(&set_up(plan, 10_000, 500, 0));
    assert_eq!(result.whole.issued, 400);
    assert!(result.window_length() > Nanos::from_micros(20));
    assert!(result.throughput_per_s() > 1e6);
}

#[test]
fn clients_work_in_bursts_and_those_of_a_crash_leave_their_share_to_the_others() {
    let plan = RunPlan {
        stop_at: Nanos::MAX,
        clients: 2 * CLIENTS,
        operations_per_client: Some(100),
        record: true,
        ..plan(Load::Closed)
    };
    let workload: Arc<dyn Workload> = Arc::new(Smallbank::new(SmallbankConfig::paper(1, 10_000)));
    let run = RunControl::new(plan, workload.kinds());
    run.work_in(Bursts::new(&[0, 200, 400].map(Nanos::from_micros), 802));
    let settings = [0, CLIENTS].map(|first| {
        let setting = set_up(RunPlan { clients: CLIENTS, ..plan }, 10_000, 500, 0);
        setting.fabric.crash();
        spawn_clients(&setting.fabric, &setting.protocol, &workload, &run, first, CLIENTS);
        setting
    });
    for at in 0..150 {
        settings.iter().for_each(|setting| setting.fabric.run_until(Nanos::from_micros(at)));
    }
    // Half of the clients are on an engine that crashes between two bursts.
    settings[0].fabric.crash();
    settings[1].fabric.run_until(Nanos::from_secs(1));
    assert!(run.finished());
    let result = run.result();
    assert_eq!((result.whole.issued, result.whole.unknown), (802, 0));
    let done = |micros: std::ops::Range<u64>| {
        let within = move |operation: &&Operation| micros.contains(&(operation.invoked / 1_000));
        let done = |operation: &&Operation| operation.end == End::Ok;
        result.history.iter().filter(within).filter(done)
    };
    let clients = |micros| done(micros).map(|operation| operation.client).collect::<BTreeSet<_>>();
    assert_eq!(clients(0..100).len(), 8, "both engines' clients");
    assert_eq!(clients(200..1_000), (4..8).collect());
    assert_eq!((done(100..200).count(), done(300..400).count()), (0, 0), "nobody works between");
    let refused = result.whole.refused as usize;
    assert!(done(200..300).count() + refused >= 267 && done(400..1_000).count() + refused >= 268);
}

#[test]
fn retries_are_bounded_and_aborts_counted() {
    let mut plan = plan(Load::Closed);
    plan.clients = 16;
    plan.retry.attempts_max = 2;
    // Fifty customers, two of them hot.
    let result = finish(&set_up(plan, 50, 500, 0));
    assert!(result.whole.failed > 0, "{:?}", result.whole);
    assert!(result.whole.aborts[1] > 2 * result.whole.failed, "every failure aborted twice");
    assert!(result.whole.attempts <= 2 * result.whole.issued);
}

/// Attempts per operation that took effect, where so many clients contend for fifty customers.
fn attempts_per_commit(clients: u32, adaptive_window: bool) -> f64 {
    let mut plan = plan(Load::Closed);
    plan.clients = clients;
    plan.retry.adaptive_window = adaptive_window;
    plan.stop_at = Nanos::from_millis(1);
    let result = finish(&set_up(plan, 50, 500, 0));
    let Counts { attempts, committed, .. } = result.whole;
    assert!(committed > 1_000, "{:?}", result.whole);
    attempts as f64 / committed as f64
}

#[test]
fn more_clients_than_the_records_can_serve_wait_instead_of_aborting() {
    let (all, fewer) = (attempts_per_commit(128, false), attempts_per_commit(128, true));
    assert!(fewer < 3.0, "{fewer} attempts a commit");
    assert!(all > 2.0 * fewer, "{all} attempts a commit without a window, {fewer} with one");
}

#[test]
fn clients_that_wait_for_their_turn_end_with_the_run() {
    let mut plan = plan(Load::Closed);
    plan.clients = 128;
    plan.retry.adaptive_window = true;
    let result = finish(&set_up(plan, 50, 500, 0));
    let Counts { issued, attempts, abandoned, .. } = result.whole;
    assert!(abandoned > 64, "most clients wait when the run ends: {:?}", result.whole);
    assert!(attempts + abandoned > issued);
}

#[test]
fn refusals_and_unknowns_are_final() {
    let mut plan = plan(Load::Closed);
    plan.record = true;
    let result = finish(&set_up(plan, 10_000, 500, 10));
    assert!(result.whole.unknown > 20, "{:?}", result.whole);
    let unknown = result.history.iter().filter(|event| event.end == End::Unknown);
    assert_eq!(unknown.count() as u64, result.whole.unknown);
    assert_eq!(result.history.len() as u64, result.whole.attempts);
    // Payments out of accounts that were amalgamated before.
    assert!(result.whole.refused > 0, "{:?}", result.whole);
    assert_eq!(result.whole.refused, result.whole.aborts[3], "a refusal is not tried again");
    let mut open = BTreeSet::new();
    for operation in &result.history {
        assert!(!open.contains(&operation.client), "it is another client's: {operation:?}");
        if operation.end == End::Unknown {
            open.insert(operation.client);
        }
    }
    let last = result.whole.refused + result.whole.failed + result.whole.abandoned;
    assert_eq!(result.whole.attempts, result.whole.issued + result.whole.aborted() - last);
}

#[test]
fn a_crash_leaves_unknown_attempts_behind() {
    let mut plan = plan(Load::Closed);
    plan.record = true;
    let setting = set_up(plan, 10_000, 500, 0);
    setting.fabric.run_until(Nanos::from_micros(50));
    assert!(!setting.run.finished());
    setting.fabric.crash();
    let result = finish(&setting);
    assert!(result.whole.unknown > 0, "{:?}", result.whole);
    let unknown = |operation: &&Operation| operation.end == End::Unknown;
    assert_eq!(result.history.iter().filter(unknown).count() as u64, result.whole.unknown);
    let mut unknown = result.history.iter().filter(unknown);
    assert!(unknown.all(|operation| operation.responded.is_none()), "nobody was told");
}

#[test]
fn a_client_dropped_before_it_ran_has_ended() {
    let setting = set_up(plan(Load::Closed), 10_000, 500, 0);
    setting.fabric.crash();
    assert_eq!(finish(&setting).whole, Counts::default());
}

#[test]
fn a_stop_ends_the_run_early() {
    let mut plan = plan(Load::Closed);
    plan.stop_at = Nanos::from_secs(1);
    let setting = set_up(plan, 10_000, 500, 0);
    setting.fabric.run_until(Nanos::from_micros(50));
    setting.run.stop();
    let result = finish(&setting);
    assert!(result.last_end < Nanos::from_micros(52), "{}", result.last_end);
    assert!(result.stopped);
    assert!(result.window_length() < Nanos::from_micros(32), "{}", result.window_length());
}

#[test]
fn a_full_history_ends_the_run_and_says_so() {
    let mut plan = plan(Load::Closed);
    plan.record = true;
    plan.history_max = 100;
    let result = finish(&set_up(plan, 10_000, 500, 0));
    assert!(result.history_full);
    // The attempts under way when it filled up are still recorded.
    assert!((100..100 + CLIENTS as usize).contains(&result.history.len()));
}

#[test]
fn engines_that_share_a_run_are_merged() {
    let mut plan = plan(Load::Closed);
    plan.clients = 2 * CLIENTS;
    let setting = set_up(RunPlan { clients: CLIENTS, ..plan }, 10_000, 500, 0);
    setting.fabric.crash();
    let workload: Arc<dyn Workload> = Arc::new(Smallbank::new(SmallbankConfig::paper(1, 10_000)));
    let run = RunControl::new(plan, workload.kinds());
    let recorders = [Recorder::new(&run), Recorder::new(&run)];
    for number in 0..plan.clients {
        let recorder = &recorders[number as usize % 2];
        let clients = number..number + 1;
        spawn_recorded(&setting.fabric, &setting.protocol, &workload, recorder, clients);
    }
    setting.fabric.run_until(Nanos::from_secs(1));
    assert!(run.finished());
    let result = run.result();
    assert!(result.window.issued > 1_100, "{:?}", result.window);
    assert_eq!(result.latency().len(), result.window.committed);
    assert!(result.kinds.iter().any(|kind| kind.total != 0));
}
