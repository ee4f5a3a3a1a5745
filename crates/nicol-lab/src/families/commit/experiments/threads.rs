//! Table 3 of Xenic: the fewest threads that keep a system near its peak. [Xenic21 5.6]

use anyhow::{Result, ensure};
use nicol_core::ids::Side;
use serde_json::json;

use super::benchmarks::{Benchmark, RETWIS, SMALLBANK, TPCC_NEW_ORDER_FEWER_ITEMS};
use super::study::{self, Point, Study};
use crate::experiments::{Chart, Context, Experiment, Form, Table, rounded};
use nicol_bench::binding::Binding;

/// The experiments of this file.
pub(super) static ALL: [Experiment; 1] = [Experiment {
    id: "xenic-table3",
    family: "commit",
    title: "Fewest threads that keep 95 % of the peak throughput [Xenic21 table 3]",
    columns: &["benchmark", "system", "log", "host_threads", "nic_threads", "normalized_threads"],
    chart: Chart::Bars {
        category: &["benchmark"],
        series: &["system", "log"],
        y: "normalized_threads",
        inside: None,
    },
    systems: &["xenic", "drtm-h", "fasst"],
    settings: &[],
    timed: true,
    run: fewest_threads,
}];

/// The benchmarks of the table; the quick form has one.
const BENCHMARKS: [&[&Benchmark]; 2] =
    [&[&TPCC_NEW_ORDER_FEWER_ITEMS, &RETWIS, &SMALLBANK], &[&RETWIS]];
/// How many threads are added or taken away at once.
const STEP: [usize; 2] = [1, 8];

/// Of the peak throughput, what fewer threads must keep, in percent. [Xenic21 5.6]
const KEPT_PERCENT: f64 = 95.0;
/// Power of a NIC thread by Coremark, where a host thread has 1. [Xenic21 5.6], C1.24
const COREMARK_RATIO: f64 = 0.31;

/// The result of the search for one system under one benchmark.
struct Fewest {
    host: usize,
    nic: usize,
    binding: Binding,
    points: Vec<Point>,
}

/// The benchmarks of `form`, in words.
pub(super) fn words(form: Form) -> String {
    let names: Vec<&str> = form.of(BENCHMARKS).iter().map(|benchmark| benchmark.name).collect();
    format!("{}; threads in steps of {}", names.join(", "), form.of(STEP))
}

fn fewest_threads(context: &Context<'_>) -> Result<Table> {
    let form = context.options.form;
    let (benchmarks, step) = (form.of(BENCHMARKS), form.of(STEP));
    let mut studies = Vec::new();
    for benchmark in benchmarks {
        let of = |system| Study::new(context, benchmark, system);
        studies.extend(Study::of_each(context.systems(), of)?);
    }
    if form == Form::Quick {
        studies.retain(Study::is_as_compared);
    }
    let found = Study::each(&studies, |study| search(study, step))?;
    let mut table = context.table();
    study::assume_sweeps(&mut table, form, benchmarks);
    study::assume_log_form(&mut table);
    if form == Form::Quick {
        let reason = "the full form counts every thread, has TPC-C's new orders and Smallbank, and \
                      both forms of LOG";
        table.assume("threads", format!("in steps of {step}"), reason);
    }
    table.assume("power of a NIC thread", COREMARK_RATIO, "Coremark, C1.24");
    table.assume(
        "search",
        "bisection, again below half of what it finds if that keeps it, too",
        "throughput is taken to fall with every thread that is taken away; host threads first, \
         then NIC threads with those host threads; clients stay as at the peak",
    );
    for (study, fewest) in studies.iter().zip(found) {
        study.tell_hardware(&mut table)?;
        let measured = vec![
            json!(study.benchmark().name),
            json!(study.system()),
            json!(study.log()),
            json!(fewest.host),
            json!(fewest.nic),
            rounded(fewest.host as f64 + fewest.nic as f64 * COREMARK_RATIO, 2),
        ];
        table.push_bound(measured, &fewest.binding);
        fewest.points.into_iter().for_each(|point| table.judge(point.violations));
    }
    Ok(table)
}

/// The peak, then the fewest host threads, then the fewest NIC threads beside them, each a multiple
/// of `step` or all that there are.
fn search(study: &Study<'_>, step: usize) -> Result<Fewest> {
    let mut points = study.saturate()?;
    let peak = study::peak(&points).clone();
    let needed = peak.throughput * KEPT_PERCENT / 100.0;
    let mut fewer = study.clone();
    let mut keeps = |fewer: &Study<'_>| -> Result<bool> {
        let point = fewer.at(peak.clients)?;
        let kept = point.throughput >= needed;
        points.push(point);
        Ok(kept)
    };
    let steps = |side| study.profile().engines(side).div_ceil(step);
    let threads = |side, steps: usize| (steps * step).min(study.profile().engines(side));
    let host = least(steps(Side::Host), |steps| {
        fewer.host_engines = Some(threads(Side::Host, steps));
        keeps(&fewer)
    })?;
    let host = threads(Side::Host, host);
    fewer.host_engines = Some(host);
    let nic = if study.uses_nic_threads() {
        let nic = least(steps(Side::Nic), |steps| {
            fewer.nic_engines = Some(threads(Side::Nic, steps));
            keeps(&fewer)
        })?;
        threads(Side::Nic, nic)
    } else {
        0
    };
    // With the fewest of both, which is kept if it was asked about.
    fewer.nic_engines = Some(nic).filter(|_| study.uses_nic_threads());
    let binding = fewer.at(peak.clients)?.binding;
    Ok(Fewest { host, nic, binding, points })
}

/// The least number of `1..=most` for which `holds` is true, by bisection: it is true for `most`,
/// and taken to be so for every number above one for which it is true. Since noise may dip into a
/// plateau far above the least, half of what is found is asked about, too, and the search goes on
/// below it.
fn least(most: usize, mut holds: impl FnMut(usize) -> Result<bool>) -> Result<usize> {
    ensure!(most > 0, "the profile has no such thread");
    let mut high = most;
    loop {
        let mut low = 1;
        while low < high {
            let middle = low.midpoint(high);
            if holds(middle)? {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        let half = high / 2;
        if half == 0 || !holds(half)? {
            return Ok(high);
        }
        high = half;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_that_holds_is_found_without_asking_about_all() {
        for most in 1..=32 {
            for wanted in 1..=most {
                let mut asked = 0;
                let found = least(most, |threads| {
                    asked += 1;
                    Ok(threads >= wanted)
                });
                assert_eq!(found.unwrap(), wanted);
                assert!(asked <= 6, "{asked} questions for {most}");
            }
        }
    }

    #[test]
    fn a_dip_far_above_the_least_does_not_matter() {
        let found = least(32, |threads| Ok(threads >= 5 && threads != 16));
        assert_eq!(found.unwrap(), 5);
    }
}
