//! The messages and the verbs of a trace file, one after the other.

use std::collections::{BTreeMap, BTreeSet};
use std::io::BufRead;

use anyhow::{Context, Result, ensure};
use serde::Serialize;

use super::lines::{Args, Line};
use super::{FIRST, LAST};

/// A message of a trace, or a one-sided operation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MessageRow {
    pub sent_us: f64,
    /// The time at which it was taken, or a one-sided operation was complete; `None` if it was not.
    pub taken_us: Option<f64>,
    pub from: String,
    pub to: String,
    pub message: String,
    /// Bytes of its body.
    pub bytes: u64,
    /// The request that it is, repeats or answers.
    pub request: String,
    /// Faults that struck its frame; "taken twice" if it was.
    pub faults: String,
}

/// The messages and one-sided operations about `key`, in the order of sending: those that name it,
/// and the replies to those. All of them without a key.
///
/// # Errors
/// If `input` cannot be read, or is not a trace that [`write`](super::write) wrote.
pub fn timeline(input: impl BufRead, key: Option<u64>) -> Result<Vec<MessageRow>> {
    let mut found = Found { key: key.map(|key| key.to_string()), ..Found::default() };
    let mut lines = input.lines();
    let first = lines.next().transpose().context("reading the trace")?;
    ensure!(first.as_deref() == Some(FIRST), "not a trace of a run");
    for (number, line) in lines.enumerate() {
        let line = line.context("reading the trace")?;
        let text = line.trim_end_matches(',');
        if text == LAST {
            return Ok(found.rows());
        }
        if text.is_empty() {
            continue;
        }
        let line: Line = serde_json::from_str(text)
            .with_context(|| format!("line {}: not an event of a trace", number + 2))?;
        found.take(line);
    }
    anyhow::bail!("the trace has no end: it was cut off")
}

#[derive(Default)]
struct Found {
    key: Option<String>,
    sent: Vec<Line>,
    taken: BTreeMap<String, Vec<f64>>,
    faults: BTreeMap<String, Vec<String>>,
    /// Requests about the key.
    requests: BTreeSet<String>,
    /// Verbs under way: their places in `sent`, by id.
    under_way: BTreeMap<String, usize>,
    /// The times at which verbs were complete, by their places in `sent`.
    complete: BTreeMap<usize, f64>,
}

/// The category of slices that are DMAs, persists and verbs.
const TRANSFER: Option<&str> = Some("transfer");

impl Found {
    fn take(&mut self, line: Line) {
        if line.cat.as_deref() == TRANSFER {
            return self.take_transfer(line);
        }
        let Some(args) = &line.args else { return };
        match (line.ph.as_str(), &args.flow, &args.frame) {
            ("X", Some(_), _) => {
                if let (Some(request), true) = (&args.request, self.names_key(args)) {
                    self.requests.insert(request.clone());
                }
                self.sent.push(line);
            }
            ("B", Some(flow), _) => self.taken.entry(flow.clone()).or_default().push(line.ts),
            ("i", _, Some(frame)) => {
                let fault = line.name.trim_start_matches("frame ").to_owned();
                self.faults.entry(frame.clone()).or_default().push(fault);
            }
            _ => {}
        }
    }

    /// Of transfers, those to another node are kept: the verbs.
    fn take_transfer(&mut self, line: Line) {
        let Some(id) = line.id.clone() else { return };
        let to = line.args.as_ref().and_then(|args| args.to.as_ref());
        match (line.ph.as_str(), to) {
            ("b", Some(_)) => {
                self.under_way.insert(id, self.sent.len());
                self.sent.push(line);
            }
            ("e", _) => {
                let place = self.under_way.remove(&id);
                self.complete.extend(place.map(|place| (place, line.ts)));
            }
            _ => {}
        }
    }

    fn names_key(&self, args: &Args) -> bool {
        match (&self.key, &args.keys) {
            (Some(key), Some(keys)) => keys.contains(key),
            (Some(_), None) => false,
            (None, _) => true,
        }
    }

    fn rows(self) -> Vec<MessageRow> {
        let about = |args: &Args| {
            self.names_key(args)
                || args.request.as_ref().is_some_and(|request| self.requests.contains(request))
        };
        let mut rows: Vec<MessageRow> = self
            .sent
            .iter()
            .enumerate()
            .filter_map(|(place, line)| Some((place, line, line.args.as_ref()?)))
            .filter(|(_, _, args)| about(args))
            .map(|(place, line, args)| self.row(place, line, args))
            .collect();
        rows.sort_by(|one, other| one.sent_us.total_cmp(&other.sent_us));
        rows
    }

    fn row(&self, place: usize, line: &Line, args: &Args) -> MessageRow {
        let flow = args.flow.as_deref().unwrap_or_default();
        let frame = flow.split('.').next().unwrap_or_default();
        let taken = self.taken.get(flow).map_or(&[][..], Vec::as_slice);
        let mut faults = self.faults.get(frame).cloned().unwrap_or_default();
        if taken.len() > 1 {
            faults.push("taken twice".to_owned());
        }
        MessageRow {
            sent_us: line.ts,
            taken_us: taken.iter().chain(self.complete.get(&place)).copied().min_by(f64::total_cmp),
            from: args.from.clone().unwrap_or_default(),
            to: args.to.clone().unwrap_or_default(),
            message: line.name.trim_start_matches("send ").to_owned(),
            bytes: args.bytes.unwrap_or_default(),
            request: args.request.clone().unwrap_or_default(),
            faults: faults.join(", "),
        }
    }
}
