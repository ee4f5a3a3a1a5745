//! Figure 8 of Xenic: throughput against latency of the transaction systems. [Xenic21 5.2 to 5.5]

use anyhow::Result;
use serde_json::json;

use super::benchmarks::{Benchmark, RETWIS, SMALLBANK};
use super::study::{self, Study};
use super::table::rounded;
use super::{Chart, Context, Experiment, Scale, Table};

/// The systems of [Xenic21 5.1], and FaRM.
const SYSTEMS: [&str; 6] = ["xenic", "farm", "fasst", "drtm-r", "drtm-h", "drtm-h-nc"];

const COLUMNS: &[&str] = &[
    "system",
    "clients",
    "throughput_per_node_per_s",
    "latency_p50_us",
    "latency_p99_us",
    "abort_fraction",
];
const CHART: Chart = Chart::Lines {
    x: "throughput_per_node_per_s",
    y: "latency_p50_us",
    series: &["system"],
    scale: Scale::LogY,
};

/// The experiments of this file.
pub(super) static ALL: [Experiment; 2] = [
    Experiment {
        id: "xenic-fig8c",
        title: "Retwis: latency against throughput per server [Xenic21 fig. 8c]",
        columns: COLUMNS,
        chart: CHART,
        systems: &SYSTEMS,
        timed: true,
        run: |context| load_sweeps(context, &RETWIS),
    },
    Experiment {
        id: "xenic-fig8d",
        title: "Smallbank: latency against throughput per server [Xenic21 fig. 8d]",
        columns: COLUMNS,
        chart: CHART,
        systems: &SYSTEMS,
        timed: true,
        run: |context| load_sweeps(context, &SMALLBANK),
    },
];

fn load_sweeps(context: &Context<'_>, benchmark: &'static Benchmark) -> Result<Table> {
    let studies: Vec<Study<'_>> = context
        .systems()
        .into_iter()
        .map(|system| Study::new(context, benchmark, system))
        .collect::<Result<_>>()?;
    let sweeps = context.pool.map(&studies, Study::saturate)?;
    let mut table = context.table();
    study::assume(&mut table, context.options.form, &[benchmark]);
    for (study, points) in studies.iter().zip(sweeps) {
        table.ran_on(study.profile());
        for point in points {
            table.push(vec![
                json!(study.system()),
                json!(point.clients),
                rounded(point.throughput, 0),
                rounded(point.p50, 3),
                rounded(point.p99, 3),
                rounded(point.abort_fraction, 5),
            ]);
            table.judge(point.violations);
        }
    }
    Ok(table)
}
