//! How long a closed loop is measured: until each client has had its turn several times, in the
//! mean.
//!
//! All clients begin at once, and how long a transaction takes depends on what executes it and on
//! how many others there are: a time that is long for one configuration is the first turn in
//! another. So every run says by itself whether its time was long enough, and where it was not, it
//! is repeated with more. The time is a function of the configuration, so that two tables that name
//! the same one have the same numbers.

use anyhow::Result;
use nicol_core::units::Nanos;

use crate::experiments::{Table, TooFewTurns};
use nicol_bench::config::{BenchConfig, Length};
use nicol_bench::report::BenchReport;

/// Transactions of each client in the measured time, in the mean, at least.
const TURNS: u64 = 16;
/// The warm-up is such a part of the measured time: at least four turns.
const WARM_UP_PART: u64 = 4;
/// A run that was too short says roughly how long it should have been; this many sixteenths more.
const MORE: u64 = 3;
/// A run with hardly a transaction says nothing about its time: the next is not more times as long.
const GROWTH_MAX: u64 = 16;
/// The longest measured time. Beyond it, something else is wrong.
const LONGEST: Nanos = Nanos::from_millis(200);

/// The measured time, and the warm-up before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Windows {
    measured: Nanos,
}

impl Windows {
    /// `config` with these times.
    pub(super) fn of(self, config: &BenchConfig) -> BenchConfig {
        BenchConfig {
            length: Some(Length::Time(self.measured)),
            warmup: Some(Nanos(self.measured.0 / WARM_UP_PART)),
            ..config.clone()
        }
    }
}

/// The report of `run` with as long a time as `clients` need for [`TURNS`] transactions each in the
/// mean, but not less than `least`.
///
/// # Errors
/// If a run fails, or [`LONGEST`] is not enough.
pub(super) fn measure(
    clients: usize,
    least: Nanos,
    run: impl Fn(Windows) -> Result<BenchReport>,
) -> Result<BenchReport> {
    let needed = TURNS * clients as u64;
    let mut measured = least;
    loop {
        let report = run(Windows { measured })?;
        if report.committed >= needed {
            return Ok(report);
        }
        if measured >= LONGEST {
            let took_effect = report.committed;
            return Err(TooFewTurns(format!(
                "{took_effect} transactions of {clients} clients took effect in {measured:?}, fewer \
                 than {TURNS} each"
            ))
            .into());
        }
        measured = longer(measured, needed, report.committed).min(LONGEST);
    }
}

/// The next time, where `committed` transactions took effect in `measured` of `needed`.
fn longer(measured: Nanos, needed: u64, committed: u64) -> Nanos {
    let times = (needed * (16 + MORE)).div_ceil(committed.max(1)).min(GROWTH_MAX * 16);
    Nanos(measured.0 * times / 16)
}

/// For how long at least, in words.
pub(super) fn words(least: Nanos) -> String {
    format!("{} us, or until {TURNS} transactions of each client", least.0 / 1_000)
}

/// Says in `table` for how long its rows were measured.
pub(super) fn assume(table: &mut Table, least: Nanos) {
    let reason = "simulated; whichever is longer, in the mean; the published length is not given";
    table.assume("measured time", words(least), reason);
    table.assume("warm-up", format!("1/{WARM_UP_PART} of the measured time"), "simulated");
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    /// The rows of a golden table.
    fn golden(figure: &str) -> Vec<Value> {
        let file = format!("{}/golden/prism/{figure}.json", env!("CARGO_MANIFEST_DIR"));
        let table: Value = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
        table["rows"].as_array().unwrap().clone()
    }

    /// The paper's figures and those beyond it name some configurations twice: PRISM's systems on
    /// the testbed's software, and the baselines. How long they were measured must not show.
    #[test]
    fn tables_that_name_the_same_configuration_agree() {
        let mut compared = 0;
        for figure in ["3", "4", "6", "7", "9", "10"].map(|number| format!("prism-fig{number}")) {
            let rows = golden(&figure);
            for beyond in golden(&format!("{figure}-executors")) {
                if !["software", "verbs"].contains(&beyond["executor"].as_str().unwrap()) {
                    continue;
                }
                let same = |row: &&Value| {
                    ["system", "clients", "zipf"]
                        .iter()
                        .all(|name| row.get(name) == beyond.get(name))
                };
                let Some(row) = rows.iter().find(same) else { continue };
                for (name, value) in row.as_object().unwrap() {
                    let (Some(one), Some(other)) = (value.as_f64(), beyond[name].as_f64()) else {
                        continue;
                    };
                    let differs = (one - other).abs() / one.max(other).max(f64::MIN_POSITIVE);
                    assert!(differs <= 0.05, "{figure}: {row} and {beyond} differ in {name}");
                }
                compared += 1;
            }
        }
        // Two systems: at least with 1, 88 and 352 clients (1, 44 and 176 of blocks) in three of
        // four figures, or uniform and zipf 0.99.
        assert!(compared >= 3 * 6 + 2 * 4, "{compared}");
    }

    #[test]
    fn a_run_that_was_too_short_says_how_long_the_next_is() {
        let us = Nanos::from_micros;
        assert_eq!(longer(us(160), 100, 50), us(380), "twice as long, and a little more");
        assert_eq!(longer(us(160), 100, 100), us(190));
        assert_eq!(longer(us(100), 5_632, 3), us(1_600), "not from three of thousands");
        assert_eq!(longer(us(100), 5_632, 0), us(1_600), "nor from none");
        // Until the time is enough at a constant rate: it is after one more.
        assert!((1..100).all(|committed| longer(us(160), 100, committed) > us(160)));
    }
}
