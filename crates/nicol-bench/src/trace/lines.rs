//! The lines of a trace file.

use nicol_core::trace::Track;
use nicol_core::units::Nanos;
use serde::{Deserialize, Serialize};

use super::{process, thread};

/// One event of a trace file, in the JSON trace-event format.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Line {
    /// None at the end of a slice: Perfetto looks for an open one of that very name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cat: Option<String>,
    /// Its kind, as the format calls it.
    pub(super) ph: String,
    pub(super) ts: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) dur: Option<f64>,
    pub(super) pid: u32,
    pub(super) tid: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) id: Option<String>,
    /// A flow ends at the slice around it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) bp: Option<String>,
    /// The scope of an instant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) s: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) args: Option<Args>,
}

/// Further arguments of an event.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Args {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) value: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) from: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) to: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) class: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) flow: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) frame: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) request: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) keys: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) stamp: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) view: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) life: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) duplicate: Option<bool>,
}

impl Line {
    pub(super) fn new(name: &str, ph: &str, track: Track, at: Nanos) -> Self {
        Self {
            name: name.to_owned(),
            cat: None,
            ph: ph.to_owned(),
            ts: micros(at),
            dur: None,
            pid: process(track),
            tid: thread(track),
            id: None,
            bp: None,
            s: None,
            args: None,
        }
    }
}

/// The format counts microseconds.
pub(super) fn micros(at: Nanos) -> f64 {
    at.0 as f64 / 1e3
}
