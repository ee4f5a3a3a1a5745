//! Table 2 of Xenic: what a remote lookup reads, by the structures' own code. [Xenic21 4.1.4]

use anyhow::Result;
use nicol_store::lookup_cost::{COMPARED, Structure, measure};
use nicol_store::nic_index::{FirstRead, HomesPerHint};
use serde_json::json;

use crate::experiments::{Chart, Context, Experiment, Form, Table, rounded};

/// The experiments of this file.
pub(super) static ALL: [Experiment; 1] = [Experiment {
    id: "xenic-table2",
    family: "commit",
    title: "Objects read and round trips of a remote lookup at 90 % [Xenic21 table 2]",
    columns: &[
        "structure",
        "parameter",
        "homes_per_hint",
        "first_read",
        "objects_read",
        "bytes_read",
        "roundtrips",
        "overflow_fraction",
    ],
    chart: Chart::Bars {
        category: &["structure", "parameter", "homes_per_hint", "first_read"],
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

/// The structures of the paper's table; then Xenic's with the longer first read (AMB-04), and with
/// coarser hints (AMB-46).
fn rows() -> Vec<Structure> {
    let mut rows = COMPARED.to_vec();
    let hinted = COMPARED.into_iter().filter(|structure| structure.first_read().is_some());
    rows.extend(hinted.map(|structure| structure.reading(FirstRead::Beyond)));
    for limit in [8, 16, 32] {
        let coarser = [2, 4, 8, 16].into_iter().filter_map(HomesPerHint::new);
        rows.extend(coarser.map(|shared| Structure::robinhood(Some(limit), shared)));
    }
    rows
}

/// Keys of a table.
pub(super) fn keys(form: Form) -> u64 {
    form.of([KEYS, KEYS_QUICK])
}

fn lookups(context: &Context<'_>) -> Result<Table> {
    let keys = keys(context.options.form);
    let seed = context.options.seed;
    let rows = rows();
    let found = context.pool.map(&rows, |structure| {
        context.point(&format!("{structure:?} {keys} {seed}"), keys * BYTES, || {
            let cost = measure(*structure, keys, seed);
            let objects = (cost.objects_read(), cost.bytes_read());
            Ok((objects, cost.mean_roundtrips(), cost.overflow_fraction()))
        })
    })?;
    let mut table = context.table();
    if keys != KEYS {
        table.assume("keys", keys, "the paper has 8 million; the quick form loads less");
    }
    table.assume("occupancy", "90 %", "records in overflow included, AMB-01");
    table.assume("displacement limit", "bounds the probe of an insertion", "AMB-01");
    table.assume("bytes of a value", 8, "a slot of the paper's size is not published");
    table.assume(
        "homes_per_hint",
        1,
        "the default: each home its own d_i of 6 bits reads least, AMB-46; coarser ones follow",
    );
    table.assume(
        "first_read",
        "within",
        "the default: d_i + 1 slots in all, AMB-04; rows with one slot more follow",
    );
    table.assume("robinhood's hints", "warm", "a first pass over all keys has taught them");
    for (structure, (read, roundtrips, overflow_fraction)) in rows.iter().zip(found) {
        let (objects_read, bytes_read) = read;
        table.push(vec![
            json!(structure.name()),
            structure.parameter().map_or_else(|| json!("none"), |value| json!(value)),
            structure.homes_per_hint().map_or_else(|| json!("none"), |homes| json!(homes.get())),
            structure.first_read().map_or_else(|| json!("none"), |read| json!(name(read))),
            rounded(objects_read, 3),
            // Without a limit the positions are computed and nothing is read.
            if bytes_read > 0.0 { rounded(bytes_read, 1) } else { json!("none") },
            rounded(roundtrips, 4),
            rounded(overflow_fraction, 5),
        ]);
    }
    Ok(table)
}

/// As `--set first_read` takes it.
const fn name(first_read: FirstRead) -> &'static str {
    match first_read {
        FirstRead::Within => "within",
        FirstRead::Beyond => "beyond",
    }
}
