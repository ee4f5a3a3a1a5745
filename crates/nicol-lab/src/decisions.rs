//! What nodes have decided at run time, as a file: written by `nicol bench --decisions`, shown and
//! replayed by `nicol decisions`. JSON lines: a header with the rules, then a line for each epoch
//! of each node.

use std::collections::BTreeMap;
use std::io::{self, BufRead, Write};

use anyhow::{Context, Result, bail, ensure};
use nicol_core::steering::{Decider, Decisions, Steering};
use serde::{Deserialize, Serialize};

use nicol_bench::settings::value_of;

/// The schema's name, first in the header.
pub const SCHEMA: &str = "nicol.decisions/2";

/// The first line of a file of decisions: the system, and the rules that a replay needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Header {
    pub schema: String,
    pub system: String,
    /// The workload that ran on it.
    pub workload: String,
    pub seed: u64,
    /// The names of the two ways.
    pub ways: [String; 2],
    pub rules: Steering,
}

/// A line after the first: an epoch of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Epoch {
    pub node: u16,
    /// Its end, in nanoseconds of the run.
    pub at_ns: u64,
    /// By way: operations that were counted, in the same time.
    pub samples: [u64; 2],
    /// By way: how long they took together, in nanoseconds.
    pub spent_ns: [u64; 2],
    /// The way from here on, by its name.
    pub way: String,
}

/// An epoch, and whether its decision follows.
#[derive(Clone, Debug, PartialEq)]
pub struct Replayed {
    /// Line of the file, from 1.
    pub line: usize,
    pub epoch: Epoch,
    /// Whether the way changes with it.
    pub switches: bool,
    /// The way that follows from the sums and the rules, if it is another one than the file's.
    pub follows: Option<String>,
}

impl Replayed {
    /// The mean time of an operation by way, in microseconds; none that was not counted.
    pub fn mean_us(&self, way: usize) -> Option<f64> {
        let Epoch { samples, spent_ns, .. } = &self.epoch;
        (samples[way] > 0).then(|| spent_ns[way] as f64 / samples[way] as f64 / 1e3)
    }
}

fn plans_nothing(system: &str) -> String {
    format!(
        "{system} plans nothing at run time: add `reads=planned` to drtm-kv:a4+a5, or \
         `execute_at=planned` to xenic"
    )
}

/// Checks that the system plans at run time under these settings (`key=value`)
///
/// # Errors
/// If not: which do.
pub fn ensure_plans(system: &str, settings: &[String]) -> Result<()> {
    let plans = |key: &str| value_of(settings, key) == Some("planned");
    ensure!(plans("reads") || plans("execute_at"), plans_nothing(system));
    Ok(())
}

/// Writes what the nodes of a run have decided.
///
/// # Errors
/// If the run made no decision, with the settings under which it would; or of the writer.
pub fn write(
    to: &mut dyn Write,
    system: &str,
    workload: &str,
    seed: u64,
    nodes: &[Decisions],
) -> Result<()> {
    let Some(first) = nodes.first() else { bail!(plans_nothing(system)) };
    let header = Header {
        schema: SCHEMA.to_owned(),
        system: system.to_owned(),
        workload: workload.to_owned(),
        seed,
        ways: first.ways.map(str::to_owned),
        rules: first.steering,
    };
    line(to, &header)?;
    for Decisions { node, ways, log, .. } in nodes {
        for record in log {
            let epoch = Epoch {
                node: node.0,
                at_ns: record.at.0,
                samples: record.samples,
                spent_ns: record.spent,
                way: ways[record.way.place()].to_owned(),
            };
            line(to, &epoch)?;
        }
    }
    Ok(())
}

fn line(to: &mut dyn Write, value: &impl Serialize) -> Result<()> {
    serde_json::to_writer(&mut *to, value)?;
    Ok(writeln!(to)?)
}

/// Reads a file and replays the decisions of each node from the first on.
///
/// # Errors
/// What is no such file, with its line.
pub fn replay(from: impl BufRead) -> Result<(Header, Vec<Replayed>)> {
    let mut lines = from.lines().enumerate();
    let header = lines.next().map(|(_, line)| line).transpose()?.unwrap_or_default();
    let header: Header = serde_json::from_str(&header).with_context(|| {
        format!("line 1: no header of {SCHEMA}, as a run writes it for `decisions`")
    })?;
    ensure!(header.schema == SCHEMA, "line 1: schema {:?}: this reads {SCHEMA}", header.schema);
    let mut deciders: BTreeMap<u16, Decider> = BTreeMap::new();
    let mut replayed = Vec::new();
    for (at, text) in lines {
        let epoch = one(&header, text).with_context(|| format!("line {}", at + 1))?;
        let decider = deciders.entry(epoch.node).or_insert_with(|| Decider::new(header.rules));
        let before = decider.way();
        let way = decider.decide(epoch.samples, epoch.spent_ns);
        let name = &header.ways[way.place()];
        let follows = (*name != epoch.way).then(|| name.clone());
        replayed.push(Replayed { line: at + 1, epoch, switches: way != before, follows });
    }
    Ok((header, replayed))
}

fn one(header: &Header, text: io::Result<String>) -> Result<Epoch> {
    let epoch: Epoch = serde_json::from_str(&text?).context("no epoch of a node")?;
    let [first, second] = &header.ways;
    ensure!(
        epoch.way == *first || epoch.way == *second,
        "way {:?}: the header's ways are {first} and {second}",
        epoch.way
    );
    Ok(epoch)
}

#[cfg(test)]
mod tests {
    use nicol_core::ids::NodeId;
    use nicol_core::steering::Record;
    use nicol_core::units::Nanos;

    use super::*;

    #[test]
    fn a_file_replays_and_a_changed_one_names_the_line() {
        let mut decider = Decider::new(Steering::DEFAULT);
        let mut record = |at: u64, spent: [u64; 2]| {
            let samples = [32, 32];
            Record { at: Nanos(at), samples, spent, way: decider.decide(samples, spent) }
        };
        let spent = [[3_200, 1_600], [3_200, 1_600], [3_200, 1_600], [9_900, 1_600]];
        let log = spent.into_iter().zip(1..).map(|(spent, at)| record(at, spent)).collect();
        let decisions =
            Decisions { node: NodeId(2), ways: ["host", "nic"], steering: Steering::DEFAULT, log };
        let mut file = Vec::new();
        write(&mut file, "xenic", "smallbank", 1, &[decisions]).unwrap();
        let (header, replayed) = replay(&file[..]).unwrap();
        assert_eq!((header.system.as_str(), replayed.len()), ("xenic", 4));
        assert!(replayed.iter().all(|one| one.follows.is_none()));
        let switches: Vec<bool> = replayed.iter().map(|one| one.switches).collect();
        assert_eq!(switches, [false, false, true, false]);
        assert_eq!(replayed[0].mean_us(1), Some(0.05));

        let text = String::from_utf8(file).unwrap();
        let changed = text.replacen("[3200,1600]", "[3200,3300]", 1);
        let (_, replayed) = replay(changed.as_bytes()).unwrap();
        let wrong: Vec<usize> =
            replayed.iter().filter(|one| one.follows.is_some()).map(|one| one.line).collect();
        assert_eq!(wrong, [4], "the switch does not follow any more");
        for (from, to, says) in [
            ("nicol.decisions/2", "nicol.decisions/1", "line 1"),
            ("\"way\":\"nic\"", "\"way\":\"soc\"", "line 4: way \"soc\""),
            ("{\"node\"", "\"node\"", "line 2: no epoch"),
            (text.as_str(), "", "line 1: no header"),
        ] {
            let error = format!("{:#}", replay(text.replacen(from, to, 1).as_bytes()).unwrap_err());
            assert!(error.contains(says), "{error}");
        }
        let none = write(&mut Vec::new(), "pilaf", "ycsb", 1, &[]).unwrap_err().to_string();
        assert!(none.contains("execute_at=planned"), "{none}");
    }
}
