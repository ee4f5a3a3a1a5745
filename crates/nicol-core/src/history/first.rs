//! The types of `nicol.history/1`: transactions with versions only.

use serde::{Deserialize, Serialize};

/// The first line of a history file.
pub const SCHEMA: &str = "nicol.history/1";

/// One read of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Read {
    /// The key.
    pub key: u64,
    /// The version read. For an absent record this is a floor: the read saw the newest install
    /// with a version at or below it, which must be a deletion or none.
    pub version: u64,
    /// Did the record exist?
    pub present: bool,
}

/// One write of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Write {
    /// The key.
    pub key: u64,
    /// The version installed. Version 1 of a key that was never read absent is its initial load.
    pub version: u64,
    /// Was it a deletion?
    pub deleted: bool,
}

/// How a transaction ended, as its client knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// It took effect between start and end.
    Committed,
    /// It had no effect (recorded so that a checker can prove it).
    Aborted,
    /// It took effect at some time after its start, or never.
    Unknown,
}

/// One transaction at the client's edge.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Event {
    /// The client: its transactions do not overlap.
    pub client: u32,
    /// The transaction's id, unique in the history.
    pub id: u64,
    /// When the client issued it, in nanoseconds of the run.
    pub start_ns: u64,
    /// When the client learnt its end.
    pub end_ns: u64,
    /// How it ended.
    pub end: End,
    /// What it read (the versions that VALIDATE or its locks confirmed).
    pub reads: Vec<Read>,
    /// What it installed, or would have.
    pub writes: Vec<Write>,
    /// Keys that it may have written with what the client does not know: it executed elsewhere, and
    /// its outcome is unknown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unseen_writes: Vec<u64>,
}
