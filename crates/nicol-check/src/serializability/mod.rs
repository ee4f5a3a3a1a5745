//! Strict serializability, decided from what transactions read and installed. (Adya, 1999)
//!
//! Versions order the installs of each key, so the direct serialization graph is known, not guessed:
//! an edge from each install to the next (ww), from an install to whoever read it (wr), from a
//! reader to whoever installed next (rw), and from each end to every later start (real time, through
//! a chain of instants). The history is strictly serializable if and only if every read saw what it
//! says and the graph has no cycle. Cost: linear, plus sorting.

mod graph;
mod installs;

use std::fmt;

use graph::{EdgeKind, Graph, Step};
use installs::{Installs, Observed};
use nicol_core::history::first::{End, Event};

/// Violations that a report spells out.
const SHOWN_MAX: usize = 100;

/// What kind of wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Anomaly {
    /// Two committed transactions installed one version of a key.
    DuplicateInstall,
    /// A transaction read what an aborted one wrote (G1a).
    AbortedRead,
    /// A transaction read a version that nobody installed.
    UnknownVersion,
    /// A transaction read a record that the version it names had deleted, or none where one was.
    WrongPresence,
    /// A cycle of overwrites (G0).
    DirtyWrite,
    /// A cycle of overwrites and reads (G1c).
    CircularInformation,
    /// An update was overwritten by a transaction that had not seen it.
    LostUpdate,
    /// A cycle with one anti-dependency (G-single): a fractured read, for example.
    ReadSkew,
    /// A cycle with several anti-dependencies (G2): write skew, for example.
    WriteSkew,
    /// Serializable, but not in an order that agrees with real time: a stale read, for example.
    RealTime,
}

/// One violation, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// What kind.
    pub anomaly: Anomaly,
    /// What happened.
    pub description: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.anomaly, self.description)
    }
}

/// The checker's verdict.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Transactions that committed.
    pub committed: usize,
    /// Transactions that aborted.
    pub aborted: usize,
    /// Transactions of unknown outcome that took effect, as others show.
    pub unknown_effective: usize,
    /// Other transactions of unknown outcome.
    pub unknown: usize,
    /// The first violations.
    pub violations: Vec<Violation>,
    /// Violations beyond those.
    pub more: usize,
}

impl Report {
    fn add(&mut self, anomaly: Anomaly, description: String) {
        if self.violations.len() < SHOWN_MAX {
            self.violations.push(Violation { anomaly, description });
        } else {
            self.more += 1;
        }
    }
}

/// Judges a history. An initial record has version 1; a transaction of unknown outcome counts if
/// another one saw its effect, and then ends at no known time. Where such a transaction may have
/// written what nobody knows, reads of that key that nothing else explains prove nothing.
pub fn check(events: &[Event]) -> Report {
    let mut report = Report::default();
    let installs = Installs::new(events, &mut report);
    let effective = installs.effective(events);
    for (event, effective) in events.iter().zip(&effective) {
        match (event.end, effective) {
            (End::Committed, _) => report.committed += 1,
            (End::Aborted, _) => report.aborted += 1,
            (End::Unknown, true) => report.unknown_effective += 1,
            (End::Unknown, false) => report.unknown += 1,
        }
    }
    let installs = installs.without(events, &effective);
    let mut graph = Graph::new(events.len());
    installs.overwrites(&mut graph);
    for (reader, event) in events.iter().enumerate().filter(|&(index, _)| effective[index]) {
        for read in &event.reads {
            let observed = installs.observe(events, read);
            match observed {
                Observed::Initial { next } | Observed::Unseen { next } => {
                    graph.maybe(reader, next, EdgeKind::Anti, read.key);
                }
                Observed::Install { writer, next } => {
                    graph.edge(writer, reader, EdgeKind::Reads, read.key);
                    graph.maybe(reader, next, EdgeKind::Anti, read.key);
                }
                Observed::Wrong(anomaly, what) => {
                    report.add(anomaly, format!("transaction {} {what}", event.id));
                }
            }
        }
    }
    graph.real_time(events, &effective);
    for cycle in graph.cycles() {
        report.add(classify(&cycle), describe(&cycle, events));
    }
    report
}

fn classify(cycle: &[Step]) -> Anomaly {
    let count = |kind| cycle.iter().filter(|step| step.kind == kind).count();
    if count(EdgeKind::RealTime) > 0 {
        return Anomaly::RealTime;
    }
    match (count(EdgeKind::Anti), count(EdgeKind::Reads)) {
        (0, 0) => Anomaly::DirtyWrite,
        (0, _) => Anomaly::CircularInformation,
        (1, _) => {
            let same_key = cycle.iter().all(|step| step.key == cycle[0].key);
            let overwrites = count(EdgeKind::Overwrites) > 0;
            if same_key && overwrites { Anomaly::LostUpdate } else { Anomaly::ReadSkew }
        }
        _ => Anomaly::WriteSkew,
    }
}

fn describe(cycle: &[Step], events: &[Event]) -> String {
    let steps: Vec<String> = cycle
        .iter()
        .map(|step| {
            let (from, to) = (&events[step.from], &events[step.to]);
            let key = step.key;
            match step.kind {
                EdgeKind::Overwrites => {
                    format!("{} installed key {key:#x}, then {} overwrote it", from.id, to.id)
                }
                EdgeKind::Reads => format!("{} read key {key:#x} from {}", to.id, from.id),
                EdgeKind::Anti => {
                    format!("{} read key {key:#x} before {} installed it", from.id, to.id)
                }
                EdgeKind::RealTime => format!(
                    "{} ended at {} ns before {} began at {} ns",
                    from.id, from.end_ns, to.id, to.start_ns
                ),
            }
        })
        .collect();
    steps.join("; ")
}

#[cfg(test)]
mod tests;
