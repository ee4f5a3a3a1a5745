//! A served store that outlives its process: what was read back, in words, and what INFO tells.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use anyhow::{Context, Result};
use nicol_bench::store::{Found, Keeper, Kept, Stored};
use nicol_bench::systems::System;
use nicol_core::ids::Key;
use nicol_resp::{DATABASES, Database, InfoLines, Persistence, first_deadline, key_count};

use crate::output;
use crate::output::spinner;

/// Opens the folder of a store of `system`, reads it back, and tells what was found.
pub fn open(dir: &Path, system: &System) -> Result<Stored> {
    let reading = system.logs.with_context(|| format!("{} keeps no log", system.name))?;
    let spinner = spinner("reading back");
    let stored = Stored::open(dir, reading, &mut |done, total| {
        if let Some(percent) = (100 * done).checked_div(total) {
            spinner.set_message(format!("reading back: {percent} % of the logs"));
        }
    });
    spinner.finish_and_clear();
    let stored = stored?;
    for line in in_words(dir, &stored.found) {
        output::tell(&line);
        tracing::info!("{line}");
    }
    for what in &stored.found.repaired {
        tracing::warn!(what = %what, "repaired from other files");
    }
    Ok(stored)
}

/// Rows that hold a key which expires, and when the first one does.
pub fn expiring(stored: &Stored) -> Vec<(i64, Key)> {
    stored.values().filter_map(|(key, value)| Some((first_deadline(value)?, key))).collect()
}

/// Keys of each database.
pub fn keys(stored: &Stored) -> [u64; DATABASES] {
    let mut keys = [0; DATABASES];
    for (row, record) in stored.values() {
        if let Some(database) = Database::of(row) {
            keys[database.place()] += key_count(record) as u64;
        }
    }
    keys
}

fn in_words(dir: &Path, found: &Found) -> Vec<String> {
    let Found { records, in_tables, log_bytes, counts, repaired, torn, time } = found;
    if *in_tables == 0 && *log_bytes == 0 {
        return vec![format!("{}: nothing to read back", dir.display())];
    }
    let mut lines = vec![format!(
        "{}: read back {records} records in {:.2} s: {in_tables} from saved tables, {} transactions \
         from {:.1} MB of logs; left out {} that were not acknowledged, cut {torn} torn ends",
        dir.display(),
        time.as_secs_f64(),
        counts.taken,
        *log_bytes as f64 / 1e6,
        counts.left_out,
    )];
    lines.extend(repaired.iter().map(|what| format!("repaired from other files: {what}")));
    lines
}

/// What the front tells of how the store is kept; `synced`: every write before it is acknowledged.
pub fn persistence(keeper: &Keeper, found: Found, synced: bool) -> Persistence {
    let kept = keeper.kept();
    let lines = Arc::new(move || lines(&kept(), &found));
    Persistence { dir: keeper.dir().display().to_string(), synced, lines }
}

fn lines(kept: &Kept, found: &Found) -> InfoLines {
    let status = if kept.failure.is_some() { "err" } else { "ok" };
    let seconds = |time: Duration| time.as_secs().to_string();
    let saved_at = kept.saved_at.and_then(|at| at.duration_since(UNIX_EPOCH).ok());
    let took = if kept.saves > 0 { seconds(kept.took) } else { "-1".to_owned() };
    let under_way = if kept.under_way { "1" } else { "0" };
    [
        ("aof_rewrite_in_progress", under_way.to_owned()),
        ("aof_last_rewrite_time_sec", took),
        ("aof_last_bgrewrite_status", status.to_owned()),
        // A log that cannot be written for any other reason ends the server.
        ("aof_last_write_status", if kept.full { "err" } else { "ok" }.to_owned()),
        ("aof_current_size", (kept.table_bytes + kept.log_bytes).to_string()),
        ("aof_base_size", kept.table_bytes.to_string()),
        ("rdb_bgsave_in_progress", under_way.to_owned()),
        ("rdb_last_save_time", saved_at.map_or("0".to_owned(), seconds)),
        ("rdb_last_bgsave_status", status.to_owned()),
        ("nicol_tables_saved", kept.saves.to_string()),
        ("nicol_last_pause_us", kept.paused.as_micros().to_string()),
        ("nicol_held_ms", kept.held.as_millis().to_string()),
        ("nicol_log_bytes", kept.log_bytes.to_string()),
        ("nicol_read_back_records", found.records.to_string()),
        ("nicol_read_back_ms", found.time.as_millis().to_string()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .to_vec()
}
