//! `nicol trace`, and `nicol bench --trace`.

use std::fs::File;
use std::io::BufReader;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use nicol_bench::trace::{timeline, write};
use nicol_core::trace::{Limits, Recorded, Sink};
use nicol_core::units::Nanos;
use nicol_lab::experiments::write_atomically_by;
use serde_json::json;

use crate::cli::{BenchArgs, Format, TraceArgs};
use crate::span::seconds;
use crate::{End, environment_or_usage, output};

/// Lists messages.
pub fn run(args: &TraceArgs) -> Result<End> {
    let path = args.trace.display();
    let file = File::open(&args.trace).with_context(|| format!("cannot open {path}"))?;
    let rows = timeline(BufReader::new(file), args.key).with_context(|| path.to_string());
    let rows = rows.map_err(environment_or_usage)?;
    if let (true, Some(key)) = (rows.is_empty(), args.key) {
        output::tell(&format!("no message in {path} is about key {key:#x}"));
        // A table without rows is an empty box; scripts get their empty list.
        if args.format == Format::Table {
            return Ok(End::Held);
        }
    }
    let rows = rows.iter().map(serde_json::to_value).collect::<Result<Vec<_>, _>>()?;
    output::rows(args.format, &rows, |rows| json!({"schema": "nicol.trace/1", "rows": rows}))?;
    Ok(End::Held)
}

/// Where `bench` records, if it is asked to.
pub fn sink(args: &BenchArgs) -> Result<Option<Arc<Sink>>> {
    if args.trace.is_none() {
        return Ok(None);
    }
    ensure!(args.trace_limit > 0, "--trace-limit 0: give at least 1");
    let from = args.trace_from.map(|at| seconds("--trace-from", at, 0.0)).transpose()?;
    let until = args.trace_until.map(|at| seconds("--trace-until", at, 0.0)).transpose()?;
    let window = from.unwrap_or(Nanos::ZERO)..until.unwrap_or(Nanos::MAX);
    ensure!(window.start < window.end, "--trace-until: give a time after --trace-from");
    Ok(Some(Sink::new(Limits { events: args.trace_limit, window })))
}

/// Writes what `bench` has recorded.
pub fn save(args: &BenchArgs, recorded: &Recorded) -> Result<()> {
    let Some(path) = &args.trace else { return Ok(()) };
    write_atomically_by(path, |out| write(out, recorded)).context("--trace")?;
    if let Some(line) = missing(recorded, args.trace_limit) {
        output::tell(&line);
    }
    Ok(())
}

/// What a trace lacks of what may have been expected; `limit`: the events that it had room for.
fn missing(recorded: &Recorded, limit: u64) -> Option<String> {
    if let Some(at) = recorded.full_at {
        return Some(format!(
            "the trace is full: nothing after {:.6} s is in it (--trace-limit {limit}); give a higher limit, \
             or --trace-from and --trace-until",
            at.as_secs_f64()
        ));
    }
    let empty = recorded.tracks.values().all(Vec::is_empty);
    empty.then(|| {
        "the trace is empty: no event of the run is between --trace-from and --trace-until"
            .to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_without_events_or_room_says_so() {
        let empty = Recorded::default();
        assert!(missing(&empty, 5).unwrap().contains("empty"));
        let full = Recorded { full_at: Some(Nanos(2_000)), ..Recorded::default() };
        assert!(
            missing(&full, 5)
                .unwrap()
                .contains("nothing after 0.000002 s is in it (--trace-limit 5)")
        );
    }
}
