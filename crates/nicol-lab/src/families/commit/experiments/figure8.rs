//! Figure 8 of Xenic: throughput against latency of the transaction systems, and their throughput
//! with half the network. [Xenic21 5.2 to 5.5]

use anyhow::Result;
use serde_json::json;

use super::benchmarks::{Benchmark, RETWIS, SMALLBANK, TPCC, TPCC_384, TPCC_NEW_ORDER};
use super::study::{self, Study};
use crate::experiments::{Chart, Context, Experiment, Scale, Table, rounded};

/// The systems of [Xenic21 5.1], and FaRM.
const SYSTEMS: [&str; 6] = ["xenic", "farm", "fasst", "drtm-r", "drtm-h", "drtm-h-nc"];

/// The systems of the comparison in [Xenic21 5.3]: DrTM+R as its authors published it, and as
/// [Xenic21 5.1] runs it.
const SYSTEMS_50G: [&str; 4] = ["xenic", "farm", "drtm-r", "drtm-r-original"];

/// The experiments of this file.
pub(super) static ALL: [Experiment; 5] = [
    figure_8(
        "xenic-fig8a",
        "TPC-C new orders: latency against throughput per server [Xenic21 fig. 8a]",
        |context| load_sweeps(context, &TPCC_NEW_ORDER),
    ),
    figure_8(
        "xenic-fig8b",
        "TPC-C: latency against new orders per server [Xenic21 fig. 8b]",
        |context| load_sweeps(context, &TPCC),
    ),
    Experiment {
        id: "xenic-50g",
        family: "commit",
        title: "TPC-C: new orders per server at the peak, with one 50 Gb/s link [Xenic21 5.3]",
        columns: &["system", "log", "throughput_per_node_per_s"],
        chart: Chart::Bars {
            category: &["system", "log"],
            series: &[],
            y: "throughput_per_node_per_s",
            inside: None,
        },
        systems: &SYSTEMS_50G,
        settings: &[],
        timed: true,
        run: half_the_network,
    },
    figure_8(
        "xenic-fig8c",
        "Retwis: latency against throughput per server [Xenic21 fig. 8c]",
        |context| load_sweeps(context, &RETWIS),
    ),
    figure_8(
        "xenic-fig8d",
        "Smallbank: latency against throughput per server [Xenic21 fig. 8d]",
        |context| load_sweeps(context, &SMALLBANK),
    ),
];

pub(crate) const fn figure_8(
    id: &'static str,
    title: &'static str,
    run: fn(&Context<'_>) -> Result<Table>,
) -> Experiment {
    Experiment {
        id,
        family: "commit",
        title,
        columns: &[
            "system",
            "log",
            "clients",
            "throughput_per_node_per_s",
            "latency_p50_us",
            "latency_p99_us",
            "abort_fraction",
        ],
        chart: Chart::Lines {
            x: "throughput_per_node_per_s",
            y: "latency_p50_us",
            series: &["system", "log"],
            scale: Scale::LogY,
        },
        systems: &SYSTEMS,
        settings: &[],
        timed: true,
        run,
    }
}

fn load_sweeps(context: &Context<'_>, benchmark: &'static Benchmark) -> Result<Table> {
    let of = |system| Study::new(context, benchmark, system);
    let studies = Study::of_each(context.systems(), of)?;
    let sweeps = Study::each(&studies, Study::saturate)?;
    let mut table = context.table();
    study::assume_sweeps(&mut table, context.options.form, &[benchmark]);
    study::assume_log_form(&mut table);
    for (study, points) in studies.iter().zip(sweeps) {
        study.tell_hardware(&mut table)?;
        for point in points {
            let measured = vec![
                json!(study.system()),
                json!(study.log()),
                json!(point.clients),
                rounded(point.throughput, 0),
                rounded(point.p50, 3),
                rounded(point.p99, 3),
                rounded(point.abort_fraction, 5),
            ];
            table.push_bound(measured, &point.binding);
            table.judge(point.violations);
        }
    }
    Ok(table)
}

/// [Xenic21 5.3] Everything as in figure 8b but the link and the number of warehouses.
fn half_the_network(context: &Context<'_>) -> Result<Table> {
    let of = |system| Study::changed(context, &TPCC_384, system, "link.rate=50Gbps");
    let studies = Study::of_each(context.systems(), of)?;
    let sweeps = Study::each(&studies, Study::saturate)?;
    let mut table = context.table();
    study::assume_sweeps(&mut table, context.options.form, &[&TPCC_384]);
    study::assume_log_form(&mut table);
    for (study, points) in studies.iter().zip(sweeps) {
        study.tell_hardware(&mut table)?;
        let peak = study::peak(&points);
        let measured = vec![json!(study.system()), json!(study.log()), rounded(peak.throughput, 0)];
        table.push_bound(measured, &peak.binding);
        points.into_iter().for_each(|point| table.judge(point.violations));
    }
    Ok(table)
}
