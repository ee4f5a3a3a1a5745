//! Figure 7 of AlNiCo: throughput while the hotspot moves.

use anyhow::Result;
use nicol_core::units::Nanos;
use nicol_schedule::WINDOW;
use serde_json::json;

use super::run::{
    ALNICO, ROUND_ROBIN, Run, STATIC_PARTITION, Scheduler, UNWEIGHED, assume_with_feedback,
    slice_ms,
};
use crate::experiments::{Chart, Context, Experiment, Form, Scale, Table, rounded};
use nicol_bench::workloads::WorkloadSpec;

/// Those that the slides show, and AlNiCo without its weights.
const SCHEDULERS: [Scheduler; 4] = [ROUND_ROBIN, STATIC_PARTITION, ALNICO, UNWEIGHED];
/// Skew of YCSB-HOT, times 100: "1.2".
const ZIPF_PERCENT: u8 = 120;
/// By how much less than in the paper time passes between two moves of the hotspot and between two
/// computations of vectors, so that the feedback is as fast beside the hotspot as there.
const SHORTER: [u64; 2] = [20, 400];
/// Time that a hotspot stays in the paper, and the feedback epoch (C2.03)
const HOTSPOT: Nanos = Nanos::from_millis(2_000);
const FEEDBACK_US: u64 = 20_000;
/// Commits per second, about, by which the former is so many transactions.
const COMMITS_PER_S: u64 = 4_000_000;
/// Why the window of aborts is not divided as the times are: a weight of one takes an abort for
/// each worker. With 10 a worker, in the quick form, no feature weighs anything.
const WINDOW_REASON: &str = "aborts that a worker remembers, as in the artifact; not divided as the times are, since \
                             a feature that weighs anything takes an abort for each worker";
/// The factor by which the run is longer than others.
const LONGER: u64 = 5;

/// Throughput over time while the hotspot moves.
pub(super) static ALL: [Experiment; 1] = [Experiment {
    id: "alnico-fig7",
    family: "engine",
    title: "YCSB-HOT: throughput while the hotspot moves [AlNiCo22 fig. 7]",
    columns: &["scheduler", "time_ms", "throughput_per_s"],
    chart: Chart::Lines {
        x: "time_ms",
        y: "throughput_per_s",
        series: &["scheduler"],
        scale: Scale::Linear,
    },
    systems: &["silo"],
    settings: &["scheduler"],
    timed: true,
    run: figure_7,
}];

/// Time that a hotspot stays.
pub(super) fn hotspot(form: Form) -> Nanos {
    Nanos(HOTSPOT.0 / form.of(SHORTER))
}

fn figure_7(context: &Context<'_>) -> Result<Table> {
    let form = context.options.form;
    let shorter = form.of(SHORTER);
    let (hotspot, feedback_us) = (hotspot(form), FEEDBACK_US / shorter);
    let moves = hotspot.0 * COMMITS_PER_S / 1_000_000_000;
    let spec = WorkloadSpec { hot_moves: Some(moves), ..Run::ycsb(form, 50, ZIPF_PERCENT) };
    let run = |scheduler| Run {
        longer: LONGER,
        feedback_us: Some(feedback_us),
        ..Run::new("silo", scheduler, spec.clone())
    };
    let runs: Vec<Run> = SCHEDULERS.into_iter().map(run).collect();
    let points = context.pool.map(&runs, |run| run.run(context))?;
    let mut table = context.table();
    let reason = format!("20 ms (C2.03), divided by {shorter} as the time of a hotspot is");
    assume_with_feedback(context, &mut table, feedback_us, &reason)?;
    let reason = format!(
        "transactions for which a hotspot stays: at {COMMITS_PER_S} per second 2 s, as in the \
         paper, divided by {shorter}"
    );
    table.assume("hotspot", moves, &reason);
    table.assume("window", WINDOW, WINDOW_REASON);
    let slice = slice_ms(context, LONGER);
    for (run, point) in runs.iter().zip(points) {
        for (at, commits) in point.series.iter().enumerate() {
            let measured = vec![
                json!(run.scheduler.row),
                rounded(slice * at as f64, 3),
                rounded(*commits as f64 / slice * 1e3, 0),
            ];
            table.push_bound(measured, &point.binding);
        }
        table.judge(point.violations);
    }
    Ok(table)
}
