//! Table 2 of Xenic: what a remote lookup reads, by the structures' own code. [Xenic21 4.1.4]

use anyhow::Result;
use nicol_store::lookup_cost::{COMPARED, measure};
use serde_json::json;

use crate::experiments::{Chart, Context, Experiment, Table, rounded};

/// The experiments of this file.
pub(super) static ALL: [Experiment; 1] = [Experiment {
    id: "xenic-table2",
    family: "commit",
    title: "Objects read and round trips of a remote lookup at 90 % [Xenic21 table 2]",
    columns: &["structure", "parameter", "objects_read", "roundtrips", "overflow_fraction"],
    chart: Chart::Bars {
        category: &["structure", "parameter"],
        series: &[],
        y: "objects_read",
        inside: Some("roundtrips"),
    },
    systems: &[],
    settings: &[],
    timed: false,
    run: lookups,
}];

/// Keys of the paper.
const KEYS: u64 = 8_000_000;
/// Keys of the quick form.
const KEYS_QUICK: u64 = 400_000;
/// Memory per key: a slot of the table, its share of overflow, hints.
const BYTES: u64 = 120;

fn lookups(context: &Context<'_>) -> Result<Table> {
    let keys = context.options.form.of([KEYS, KEYS_QUICK]);
    let seed = context.options.seed;
    let found = context.pool.map(&COMPARED, |structure| {
        context.point(&format!("{structure:?} {keys} {seed}"), keys * BYTES, || {
            let cost = measure(*structure, keys, seed);
            Ok((cost.objects_read(), cost.mean_roundtrips(), cost.overflow_fraction()))
        })
    })?;
    let mut table = context.table();
    if keys != KEYS {
        table.assume("keys", keys, "the paper has 8 million; the quick form loads less");
    }
    table.assume("occupancy", "90 %", "records in overflow included, AMB-01");
    table.assume("displacement limit", "bounds the probe of an insertion", "AMB-01");
    table.assume("robinhood's hints", "warm", "a first pass over all keys has taught them");
    for (structure, (objects_read, roundtrips, overflow_fraction)) in COMPARED.iter().zip(found) {
        table.push(vec![
            json!(structure.name()),
            structure.parameter().map_or_else(|| json!("none"), |value| json!(value)),
            rounded(objects_read, 3),
            rounded(roundtrips, 4),
            rounded(overflow_fraction, 5),
        ]);
    }
    Ok(table)
}
