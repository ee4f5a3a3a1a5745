//! Serializability, strict or not, decided from what operations read and installed. (Adya, 1999)
//!
//! Versions order the installs of each key, so the direct serialization graph is known, not
//! guessed: an edge from each install to the next (ww), from an install to its readers (wr), and
//! from a reader to the next install (rw). Strictness adds an edge from each end to every later
//! start (through a chain of instants) and from each operation to the next one of its client, the
//! order of sessions the latter alone. A key
//! that a scan covers and does not return was absent: an edge from the deletion before it and to
//! the insert after it.
//!
//! The history holds if and only if every read saw what it says and the graph has no cycle. Before
//! it is accepted, its operations are run one after the other in the order that was found.
//!
//! An operation of unknown outcome counts if something that others saw has no other explanation. It
//! then took effect as a whole, at some instant after its start. Where there are several
//! explanations they are searched, with a bound; where the bound is met the report says
//! `undecided`.
//!
//! Cost: linear, plus sorting, where nothing is unknown and no scan can have seen two states.

mod assumed;
mod describe;
mod edges;
mod graph;
mod index;
mod installs;
mod judge;
mod replay;
mod search;
#[cfg(test)]
mod tests;

use std::fmt;

use nicol_core::history::History;

/// Violations that a report spells out.
const SHOWN_MAX: usize = 100;

/// The kind of violation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Anomaly {
    /// Two committed operations installed one version of a key, or one that was loaded.
    DuplicateInstall,
    /// An operation installed or read version 0, which no record has, or installed a version below
    /// that of the loaded record.
    LowVersion,
    /// An operation read what an aborted one wrote (G1a).
    AbortedRead,
    /// An operation read what its writer replaced before it committed (G1b).
    IntermediateRead,
    /// An operation read what it wrote itself later on, or a version above that.
    OwnRead,
    /// An operation read a version that nobody installed.
    UnknownVersion,
    /// An operation read a record that the version it names had deleted, or none where one was.
    WrongPresence,
    /// An operation read another value than the one that was written at this version.
    WrongValue,
    /// A scan returned keys outside its range, twice, out of order or too many.
    WrongScan,
    /// A cycle of overwrites (G0).
    DirtyWrite,
    /// A cycle of overwrites and reads (G1c).
    CircularInformation,
    /// An update was overwritten by an operation that had not seen it.
    LostUpdate,
    /// A cycle with one anti-dependency (G-single): a fractured read, for example.
    ReadSkew,
    /// A cycle with several anti-dependencies (G2): write skew, for example.
    WriteSkew,
    /// A scan did not return a record that was there, or a cycle through such a scan (G2 with
    /// predicates).
    Phantom,
    /// Serializable, but not in the order in which a client issued its operations.
    ClientOrder,
    /// Serializable, but not in an order that agrees with real time: a stale read, for example.
    RealTime,
}

/// One violation, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    pub anomaly: Anomaly,
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
    pub committed: usize,
    pub aborted: usize,
    /// Operations of unknown outcome that took effect, as others show.
    pub unknown_effective: usize,
    /// Other operations of unknown outcome.
    pub unknown: usize,
    pub violations: Vec<Violation>,
    pub more: usize,
    /// Why the history is neither right nor wrong, if it cannot be decided.
    pub undecided: Option<String>,
}

impl Report {
    /// Does the promise hold? False, too, where it could not be decided.
    pub fn held(&self) -> bool {
        self.violations.is_empty() && self.undecided.is_none()
    }

    fn add(&mut self, anomaly: Anomaly, description: String) {
        if self.violations.len() < SHOWN_MAX {
            self.violations.push(Violation { anomaly, description });
        } else {
            self.more += 1;
        }
    }
}

/// Judges a history by its promise: [`Promise::SessionSerializable`] leaves time out of account,
/// [`Promise::Serializable`] time and clients; every other promise is judged as strict
/// serializability.
///
/// [`Promise::SessionSerializable`]: nicol_core::history::Promise::SessionSerializable
/// [`Promise::Serializable`]: nicol_core::history::Promise::Serializable
pub fn check(history: &History) -> Report {
    judge::check(history)
}
