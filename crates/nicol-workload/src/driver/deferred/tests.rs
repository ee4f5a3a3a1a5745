//! Clients every other operation of which is deferred.

use std::sync::Arc;

use nicol_core::history::End;
use nicol_core::rng::Stream;
use nicol_core::view::View;

use super::super::schedule::{Load, Retry};
use super::super::session::{Attempted, HistoryEntry};
use super::super::{Recorder, RunControl, RunPlan, RunResult, spawn};
use super::*;
use crate::fake::FakeEngine;

const KINDS: &[&str] = &["waited for", "deferred"];
const DEFERRED: usize = 1;

/// Takes a microsecond for an operation that is waited for, and a given time for a deferred one.
struct EveryOther {
    fabric: FakeEngine,
    deferred: Nanos,
    last: usize,
}

#[derive(Default)]
struct Operation {
    kind: usize,
}

impl ClientOperation for Operation {
    fn rewind(&mut self) {}

    fn history_entry(&self, _: End) -> Option<HistoryEntry> {
        None
    }
}

impl Session for EveryOther {
    type Operation = Operation;

    fn next(&mut self, _: &mut Stream, operation: &mut Operation) -> usize {
        self.last = 1 - self.last;
        operation.kind = self.last;
        self.last
    }

    async fn attempt(&self, operation: &mut Operation) -> Attempted {
        let takes = if operation.kind == DEFERRED { self.deferred } else { Nanos::from_micros(1) };
        self.fabric.sleep_until(self.fabric.now() + takes).await;
        Attempted::Done
    }

    fn deferred(&self) -> Option<usize> {
        Some(DEFERRED)
    }
}

/// Runs two clients for so long, whose deferred operations take so long.
fn run(span: Nanos, deferred: Nanos) -> (RunResult, Nanos) {
    let plan = RunPlan {
        seed: 1,
        clients: 2,
        begin: Nanos::ZERO,
        warmup_until: Nanos::ZERO,
        stop_at: span,
        operations_per_client: None,
        load: Load::Closed,
        retry: Retry {
            attempts_max: 1,
            full_max: 1,
            first: Nanos(1),
            longest: Nanos(1),
            adaptive_window: false,
        },
        record: false,
        history_max: 1,
    };
    let fabric = FakeEngine::new(View::new(1, 1, 1, 1).unwrap());
    let run = RunControl::new(plan, KINDS);
    let session = |_, _| EveryOther { fabric: fabric.clone(), deferred, last: 0 };
    spawn(&fabric, &Recorder::new(&run), 0..2, session);
    fabric.run_until(span);
    assert!(!run.finished(), "the background goes on");
    fabric.run_until(Nanos::from_secs(10));
    assert!(run.finished());
    let result = run.result().clone();
    assert!(result.whole.balance() && result.window.balance());
    let end = result.last_end;
    (result, end)
}

#[test]
fn clients_go_on_at_once_and_all_that_was_answered_is_executed() {
    let span = Nanos::from_micros(100);
    let (result, end) = run(span, Nanos::from_micros(3));
    let [waited_for, deferred] = &result.kinds[..] else { panic!("two kinds") };
    assert_eq!(waited_for.committed, 200, "two clients, each with one after the other");
    let answers = deferred.answers.histogram();
    assert_eq!((answers.len(), answers.max()), (200, 1), "each was answered at once");
    assert_eq!(deferred.committed, 200, "whenever that was");
    assert_eq!(
        end,
        Nanos::from_micros(3 * 200),
        "one after the other, long after the measured time"
    );
    assert!((32..=34).contains(&deferred.committed_in_window), "throughput is what was executed");
    assert!(deferred.latency.histogram().max() > 500_000, "from when it was due");
    let all = result.latency();
    assert_eq!((all.len(), all.max()), (200, 1_000), "what clients wait for");
}

#[test]
fn clients_wait_for_a_place_where_the_background_does_not_keep_up() {
    let (result, _) = run(Nanos::from_millis(5), Nanos::from_micros(10));
    let [waited_for, deferred] = &result.kinds[..] else { panic!("two kinds") };
    let answers = deferred.answers.histogram();
    assert_eq!(answers.len(), deferred.committed, "none is lost");
    assert!(answers.max() > 9_000, "as long as one takes in the background: {}", answers.max());
    let answered_at_once = WAITING_MAX as u64;
    let later = deferred.committed - answered_at_once;
    assert!((300..=510).contains(&later), "as many as the background takes: {later}");
    assert!(waited_for.committed.abs_diff(deferred.committed) <= 2);
}

#[test]
fn a_run_that_is_stopped_begins_nothing_that_waits() {
    let fabric = FakeEngine::new(View::new(1, 1, 1, 1).unwrap());
    let plan = RunPlan {
        seed: 1,
        clients: 1,
        begin: Nanos::ZERO,
        warmup_until: Nanos::ZERO,
        stop_at: Nanos::from_secs(1),
        operations_per_client: None,
        load: Load::Closed,
        retry: super::super::RETRY,
        record: false,
        history_max: 1,
    };
    let run: Arc<RunControl> = RunControl::new(plan, KINDS);
    let deferred = Nanos::from_micros(10);
    let session = |_, _| EveryOther { fabric: fabric.clone(), deferred, last: 0 };
    spawn(&fabric, &Recorder::new(&run), 0..1, session);
    fabric.run_until(Nanos::from_micros(105));
    run.stop();
    fabric.run_until(Nanos::from_micros(120));
    assert!(run.finished());
    let result = run.result();
    assert_eq!(result.kinds[DEFERRED].committed, 11);
    assert!(result.kinds[DEFERRED].answers.histogram().len() > 100);
    assert!(result.whole.balance());
}
