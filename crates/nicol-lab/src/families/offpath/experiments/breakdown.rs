//! Figure 13 (a): where the time of a chunk goes, and the hosts' cores'. [OffPath23 5.1]

use anyhow::Result;
use nicol_core::units::Nanos;
use nicol_offpath::linefs::{Alternative, LineFsConfig};
use serde_json::json;

use super::alternative_of;
use super::files::{HALF, HALF_TOLD, Load, SYSTEMS, assume, run};
use crate::experiments::{Chart, Context, Experiment, Table, rounded};
use nicol_bench::families::offpath::ALTERNATIVES;

/// The experiment of this file.
pub(super) static BREAKDOWN: Experiment = Experiment {
    id: "offpath-fig13a",
    family: "offpath",
    title: "Replicating files: time of a chunk, and of hosts for 8 MB, by part [OffPath23 fig. 13]",
    columns: &["alternative", "account", "part", "us"],
    chart: Chart::Bars {
        category: &["account", "part"],
        series: &["alternative"],
        y: "us",
        inside: None,
    },
    systems: SYSTEMS,
    settings: &[],
    timed: true,
    run: by_part,
};

/// The parts of a chunk's time on the primary, and on a backup, in order.
const PRIMARY: [&str; 6] = ["fetch", "pack", "write", "acknowledge", "publish", "whole"];
const BACKUP: [&str; 4] = ["unpack", "land", "persist", "publish"];

/// A3 as it is, and with a host that compresses as well: what the study leaves out for its cost.
fn by_part(context: &Context<'_>) -> Result<Table> {
    let window = context.options.form.of([Nanos::from_millis(10), Nanos::from_millis(4)]);
    let mut points = Vec::new();
    for (name, alternative) in ALTERNATIVES.iter().filter(|one| context.systems().contains(&one.0))
    {
        let told = alternative_of(name);
        let paper = LineFsConfig::paper(*alternative);
        // One chunk at a time: parts of several would wait for each other.
        let config = LineFsConfig { slots: 1, ..paper };
        let load = Load { config, clients: 1, content: HALF, window };
        points.push((told.to_owned(), load.clone()));
        if *alternative == Alternative::A3 {
            let config = LineFsConfig { host_compresses: true, ..load.config };
            points.push((format!("{told}, compressed"), Load { config, ..load }));
        }
    }
    let found = context.pool.map(&points, |(_, load)| run(context, load))?;
    let mut table = context.table();
    assume(context, &mut table, HALF_TOLD)?;
    let reason = "parts of a chunk overlap: a backup passes it on before it unpacks it";
    table.assume("account", "of a chunk on the primary and on the first backup", reason);
    let reason = "of all three hosts, simulated; the study shows it for 8 MB";
    table.assume("hosts, 8 MB", "time of cores by what they are charged for", reason);
    for ((name, _), point) in points.iter().zip(found) {
        let [primary, backup] = &point.parts;
        let parts = [("primary", primary, &PRIMARY[..]), ("backup", backup, &BACKUP[..])];
        for (account, times, names) in parts {
            for part in names {
                let us = times.get(*part).copied().unwrap_or_default();
                let measured = vec![json!(name), json!(account), json!(part), rounded(us, 2)];
                table.push_bound(measured, &point.binding);
            }
        }
        for (cause, us) in point.host_us.iter().filter(|(_, us)| **us > 0.0) {
            let measured = vec![json!(name), json!("hosts, 8 MB"), json!(cause), rounded(*us, 1)];
            table.push_bound(measured, &point.binding);
        }
        table.judge(point.violations);
    }
    Ok(table)
}
