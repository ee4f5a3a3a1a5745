//! Figure 7 of AlNiCo: throughput while the hotspot moves.

use anyhow::Result;
use serde_json::json;

use super::run::{Run, assume, slice_ms};
use crate::experiments::{Chart, Context, Experiment, Scale, Table, rounded};
use crate::workloads::WorkloadSpec;

/// Those that the slides show.
const SCHEDULERS: [&str; 3] = ["round-robin", "static-partition", "alnico"];
/// Skew of YCSB-HOT, times 100: "1.2".
const ZIPF_PERCENT: u8 = 120;
/// Transactions for which a hotspot stays: several of them in a run.
const MOVES: [u64; 2] = [20_000, 3_000];
/// How often longer the run is than others.
const LONGER: u64 = 5;

/// The experiment.
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

fn figure_7(context: &Context<'_>) -> Result<Table> {
    let form = context.options.form;
    let spec =
        WorkloadSpec { hot_moves: Some(form.of(MOVES)), ..Run::ycsb(form, 50, ZIPF_PERCENT) };
    let run = |scheduler| Run { longer: LONGER, ..Run::new("silo", scheduler, spec.clone()) };
    let runs: Vec<Run> = SCHEDULERS.into_iter().map(run).collect();
    let points = context.pool.map(&runs, |run| run.run(context))?;
    let mut table = context.table();
    assume(context, &mut table)?;
    let reason = "transactions for which a hotspot stays; the paper moves it every 2 s";
    table.assume("hotspot", form.of(MOVES), reason);
    let slice = slice_ms(context, LONGER);
    for (run, point) in runs.iter().zip(points) {
        for (at, commits) in point.series.iter().enumerate() {
            table.push(vec![
                json!(run.scheduler),
                rounded(slice * at as f64, 3),
                rounded(*commits as f64 / slice * 1e3, 0),
            ]);
        }
        table.judge(point.violations);
    }
    Ok(table)
}
