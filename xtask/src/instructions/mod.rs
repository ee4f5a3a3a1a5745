//! `cargo xtask instructions`: what a transaction, or a single operation, costs in executed
//! instructions, by callgrind.
//!
//! A cost is the difference of two runs of `nicol bench` that differ in length, so that loading,
//! starting and stopping cancel out. Only what a world itself executes is counted: the engine
//! thread of the live one, the event loop of the simulated one. The live world runs on one thread,
//! by a clock of turns (`--turn-us`): under callgrind, where everything takes fifty times as long,
//! waits that go by the machine's clock would otherwise end after fewer steps, and counts would
//! vary.

mod blessed;
mod callgrind;

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

use blessed::{Blessed, Verdict};
use callgrind::Executed;

/// What to do with the counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counts {
    /// Measure everything and show how it stands.
    Show,
    /// Measure everything and write it down.
    Bless,
    /// Measure what the gate measures, and fail where it has grown.
    Check,
}

/// A workload of a system, at a size that loads in seconds under callgrind.
struct Case {
    name: &'static str,
    system: &'static str,
    /// The workload, and its flags.
    flags: &'static [&'static str],
    /// The transactions of a short and of a long run.
    lengths: [u64; 2],
    /// Does the gate measure it?
    checked: bool,
    /// Is it measured in the simulated world as well?
    simulated: bool,
}

/// Of transactions.
const fn of_transactions(name: &'static str, flags: &'static [&'static str]) -> Case {
    Case { name, system: "xenic", flags, lengths: [3_000, 9_000], checked: false, simulated: true }
}

/// YCSB's own generator: so flat that counts are of operations, and not of those that meet on the
/// hottest record and are tried again.
const FLAT: [&str; 2] = ["--zipf-over", "10000000000"];

/// Of one kind of operation on a server of PRISM-KV, 512 B values.
const fn of_prism_kv(name: &'static str, flags: &'static [&'static str]) -> Case {
    Case {
        name,
        system: "prism-kv",
        flags,
        lengths: [1_000, 3_000],
        checked: true,
        simulated: false,
    }
}

const CASES: [Case; 6] = [
    Case { checked: true, ..of_transactions("smallbank", &["smallbank", "--records", "10000"]) },
    of_transactions("ycsb-t", &["ycsb-t", "--records", "10000", FLAT[0], FLAT[1]]),
    of_transactions("retwis", &["retwis", "--records", "10000", FLAT[0], FLAT[1]]),
    of_transactions(
        "tpcc",
        &["tpcc", "--warehouses", "2", "--items", "1000", "--customers", "100"],
    ),
    of_prism_kv(
        "prism-get",
        &[
            "ycsb",
            "--read-percent",
            "100",
            "--records",
            "1000",
            "--value-bytes",
            "512",
            "--nodes",
            "1",
            FLAT[0],
            FLAT[1],
        ],
    ),
    of_prism_kv(
        "prism-put",
        &[
            "ycsb",
            "--read-percent",
            "0",
            "--records",
            "1000",
            "--value-bytes",
            "512",
            "--nodes",
            "1",
            FLAT[0],
            FLAT[1],
        ],
    ),
];

/// A world, with the flags that choose it and the function that is the world.
struct World {
    name: &'static str,
    flags: &'static [&'static str],
    within: &'static str,
}

const LIVE: &str = "live";
const WORLDS: [World; 2] = [
    World {
        name: LIVE,
        flags: &["--on", "threads", "--threads", "1", "--turn-us", "20", "--no-recorded-run"],
        within: "nicol_rt::thread::drive",
    },
    World {
        name: "simulated",
        flags: &["--on", "liquidio3"],
        within: "nicol_bench::simulated::simulate",
    },
];

/// What a transaction costs.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Cost {
    /// Instructions in the program itself.
    own: f64,
    /// Instructions in the machine's libraries.
    libraries: f64,
    /// Events of the kernel, in the simulated world.
    events: Option<f64>,
}

impl Cost {
    fn total(&self) -> f64 {
        self.own + self.libraries
    }
}

/// Measures with the release build in `nicol`.
pub fn run(root: &Path, nicol: &Path, counts: Counts) -> Result<()> {
    if !callgrind::is_installed()? {
        ensure!(counts == Counts::Check, "valgrind is not installed: it counts the instructions");
        println!("instructions are not counted: valgrind is not installed");
        return Ok(());
    }
    let stands = Blessed::load(root)?;
    let mut measured = Blessed::here();
    let mut grown = Vec::new();
    println!(
        "{:<10} {:<10} {:>10} {:>10} {:>10} {:>10} {:>12}  against the blessed",
        "workload", "world", "instr/txn", "in nicol", "libraries", "events/txn", "instr/event"
    );
    for case in CASES.iter().filter(|case| counts != Counts::Check || case.checked) {
        for world in WORLDS.iter().filter(|world| case.simulated || world.name == LIVE) {
            let cost = measure(nicol, case, world)?;
            let run = format!("{}-{}", case.name, world.name);
            measured.set(&run, cost);
            let verdict = stands.compare(&run, &cost);
            show(case.name, world.name, &cost, &verdict);
            grown.extend(refused(&run, &verdict));
        }
    }
    match counts {
        Counts::Bless => measured.save(root),
        Counts::Check if !grown.is_empty() => bail!(
            "{}\nIf that is what it takes: cargo xtask instructions --bless, and say so in the \
             commit",
            grown.join("\n")
        ),
        Counts::Show | Counts::Check => Ok(()),
    }
}

/// Why the gate refuses a count.
fn refused(run: &str, verdict: &Verdict) -> Option<String> {
    match verdict {
        Verdict::Grew(how) => Some(format!("{run}: {how}")),
        Verdict::Missing => Some(format!("{run}: no count is blessed")),
        Verdict::Held(_) | Verdict::Fell(_) | Verdict::Unknown(_) => None,
    }
}

fn measure(nicol: &Path, case: &Case, world: &World) -> Result<Cost> {
    let run = |transactions: u64| -> Result<(Executed, u64, Option<u64>)> {
        let length = transactions.to_string();
        let words = ["--system", case.system, "--seed", "1", "--format", "json"];
        let length = ["--transactions", &length];
        let args = ["bench"].iter().chain(case.flags).chain(&words).chain(world.flags);
        let args = args.chain(&length);
        let args: Vec<String> = args.map(|word| (*word).to_owned()).collect();
        let (executed, report) = callgrind::run(nicol, &args, world.within)?;
        let committed = report["committed"].as_u64().context("the report has no 'committed'")?;
        Ok((executed, committed, report["events"].as_u64()))
    };
    let (short, long) = (run(case.lengths[0])?, run(case.lengths[1])?);
    ensure!(long.1 > short.1, "{}: a longer run commits no more transactions", case.name);
    let per = |short: u64, long: u64, transactions: u64| {
        (long as f64 - short as f64) / transactions as f64
    };
    let transactions = long.1 - short.1;
    Ok(Cost {
        own: per(short.0.own, long.0.own, transactions),
        libraries: per(short.0.libraries, long.0.libraries, transactions),
        events: short.2.zip(long.2).map(|(short, long)| per(short, long, transactions)),
    })
}

fn show(workload: &str, world: &str, cost: &Cost, verdict: &Verdict) {
    let events = cost.events.map_or("-".to_owned(), |events| format!("{events:.1}"));
    let each = cost.events.map_or("-".to_owned(), |events| format!("{:.0}", cost.total() / events));
    let verdict = match verdict {
        Verdict::Held(change) => format!("{change:+.1} %"),
        Verdict::Fell(change) => format!("{change:+.1} %: bless it, so that it stays there"),
        Verdict::Grew(how) => format!("GREW: {how}"),
        Verdict::Unknown(why) => why.clone(),
        Verdict::Missing => "no count is blessed".to_owned(),
    };
    println!(
        "{workload:<10} {world:<10} {:>10.0} {:>10.0} {:>10.0} {events:>10} {each:>12}  {verdict}",
        cost.total(),
        cost.own,
        cost.libraries,
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_that_is_gone_from_the_file_is_refused() {
        assert!(refused("smallbank-live", &Verdict::Missing).is_some());
        assert!(refused("smallbank-live", &Verdict::Grew("by much".to_owned())).is_some());
        assert!(refused("smallbank-live", &Verdict::Unknown("arm".to_owned())).is_none());
        assert!(refused("smallbank-live", &Verdict::Held(1.0)).is_none());
    }
}
