//! Figures 3 and 4 of PRISM: PRISM-KV and Pilaf under a growing load. [PRISM21 6.2]

use anyhow::Result;
use nicol_workload::ycsb::{Mix, Popularity};

use super::closed_loop::{
    CHART, CLIENTS, COLUMNS, RECORDS, Run, assume_clients, assume_cores, assume_time, row, sweep,
};
use super::load::Point;
use super::testbed::Testbed;
use crate::experiments::{Context, Experiment, Table};
use nicol_bench::workloads::WorkloadSpec;

const SYSTEMS: &[&str] = &["prism-kv", "pilaf", "pilaf-software"];

/// The experiments of this file.
pub(super) static ALL: [Experiment; 2] = [
    Experiment {
        id: "prism-fig3",
        family: "prism",
        title: "PRISM-KV and Pilaf, YCSB C: reads [PRISM21 fig. 3]",
        columns: COLUMNS,
        chart: CHART,
        systems: SYSTEMS,
        settings: &["hash"],
        timed: true,
        run: |context| throughput_and_latency(context, Mix::C),
    },
    Experiment {
        id: "prism-fig4",
        family: "prism",
        title: "PRISM-KV and Pilaf, YCSB A: half writes [PRISM21 fig. 4]",
        columns: COLUMNS,
        chart: CHART,
        systems: SYSTEMS,
        settings: &["hash"],
        timed: true,
        run: |context| throughput_and_latency(context, Mix::A),
    },
];

/// [PRISM21 6.2]: uniform accesses.
fn throughput_and_latency(context: &Context<'_>, mix: Mix) -> Result<Table> {
    let ladder = context.options.form.of(CLIENTS);
    let on = &Testbed::new(context)?;
    let found = sweep(context, &context.systems(), &ladder, |&system, clients| {
        measure(context, (system, mix), on, clients)
    })?;
    let mut table = context.table();
    on.assume(&mut table);
    assume(context, &mut table);
    for (system, clients, point) in found {
        table.push_bound(row(system, clients, &point), &point.binding);
        table.judge(point.violations);
    }
    Ok(table)
}

/// A run of a system under uniform accesses. [PRISM21 6.2]
pub(super) fn measure(
    context: &Context<'_>,
    (system, mix): (&str, Mix),
    on: &Testbed,
    clients: usize,
) -> Result<Point> {
    let spec = WorkloadSpec {
        mix: Some(mix),
        popularity: Some(Popularity::Uniform),
        ..WorkloadSpec::named("ycsb")
    };
    let what = format!("{system} with {clients} clients on {}", on.name);
    let settings = &["hash=collision-free"];
    Run { system, settings, on, clients, spec, what }.measure(context)
}

/// Notes the assumptions of these figures.
pub(super) fn assume(context: &Context<'_>, table: &mut Table) {
    assume_time(context, table);
    let reason = "the paper has 8 million; accesses are uniform";
    table.assume("records", context.options.form.of(RECORDS), reason);
    assume_cores(table);
    assume_clients(table);
    context.options.form.of(CLIENTS).assume(table, "clients of the whole experiment");
}
