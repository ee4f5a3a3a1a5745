//! Histories in files: JSON lines, the first of which says what the file is.

use std::collections::BTreeSet;
use std::io::{self, BufRead, Write};

use nicol_core::history::first::{Event, SCHEMA};
use serde::{Deserialize, Serialize};

/// The first line.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// `nicol.history/1`; set by [`write()`].
    pub schema: String,
    /// The system that ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system: Option<String>,
    /// The workload that it ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload: Option<String>,
    /// The seed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// Lines that follow, so that a file that was cut short does not pass for a whole one; set by
    /// [`write()`]. A history that another program wrote may do without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transactions: Option<usize>,
}

/// Why a file is not a usable history.
#[derive(Debug, thiserror::Error)]
pub enum HistoryError {
    /// It cannot be read.
    #[error("line {line}: {reason}")]
    Io {
        /// The line.
        line: usize,
        /// What the system says.
        reason: io::Error,
    },
    /// It has no first line.
    #[error("the file is empty: the first line must be {{\"schema\":\"{SCHEMA}\"}}")]
    Empty,
    /// The first line is something else.
    #[error("line 1: schema '{0}': this version reads {SCHEMA}; record the history again")]
    Schema(String),
    /// A line is not what it should be.
    #[error("line {line}: {reason}; record the history again")]
    Line {
        /// The line.
        line: usize,
        /// What is wrong, and at which column.
        reason: String,
    },
    /// Lines are missing at its end, or were added.
    #[error(
        "it has {found} transactions, and its first line says {said}: the file was cut short or \
         changed; record the history again"
    )]
    Cut {
        /// What the first line says.
        said: usize,
        /// What there are.
        found: usize,
    },
    /// Two transactions have one id.
    #[error("line {line}: transaction {id} was recorded before; an id names one transaction")]
    Duplicate {
        /// The line.
        line: usize,
        /// The id.
        id: u64,
    },
    /// A transaction ends before it starts.
    #[error("line {line}: transaction {id} ends at {end_ns} ns, before its start at {start_ns} ns")]
    Times {
        /// The line.
        line: usize,
        /// The id.
        id: u64,
        /// Its start.
        start_ns: u64,
        /// Its end.
        end_ns: u64,
    },
}

impl HistoryError {
    /// Line `line` is not JSON, or not what it should be.
    fn line(line: usize, error: &serde_json::Error) -> Self {
        let (text, column) = (error.to_string(), error.column());
        // The parser sees one line at a time, and would call each of them line 1.
        let what = text.strip_suffix(&format!(" at line 1 column {column}")).unwrap_or(&text);
        Self::Line { line, reason: format!("column {column}: {what}") }
    }
}

/// Writes a history. The header's schema and number of transactions are set here.
///
/// # Errors
/// What `out` says.
pub fn write(out: &mut impl Write, header: &Header, events: &[Event]) -> io::Result<()> {
    let transactions = Some(events.len());
    let header = Header { schema: SCHEMA.to_owned(), transactions, ..header.clone() };
    serde_json::to_writer(&mut *out, &header)?;
    out.write_all(b"\n")?;
    for event in events {
        serde_json::to_writer(&mut *out, event)?;
        out.write_all(b"\n")?;
    }
    Ok(())
}

/// Reads a history line by line.
///
/// # Errors
/// The first line that is wrong, by number; lines missing at the end.
pub fn read(from: impl BufRead) -> Result<(Header, Vec<Event>), HistoryError> {
    let mut lines = from.lines().enumerate();
    let Some((_, first)) = lines.next() else { return Err(HistoryError::Empty) };
    let first = first.map_err(|reason| HistoryError::Io { line: 1, reason })?;
    let header: Header =
        serde_json::from_str(&first).map_err(|error| HistoryError::line(1, &error))?;
    if header.schema != SCHEMA {
        return Err(HistoryError::Schema(header.schema));
    }
    let mut events: Vec<Event> = Vec::new();
    let mut ids = BTreeSet::new();
    for (index, text) in lines {
        let line = index + 1;
        let text = text.map_err(|reason| HistoryError::Io { line, reason })?;
        if text.trim().is_empty() {
            continue;
        }
        let event: Event =
            serde_json::from_str(&text).map_err(|error| HistoryError::line(line, &error))?;
        if !ids.insert(event.id) {
            return Err(HistoryError::Duplicate { line, id: event.id });
        }
        let Event { id, start_ns, end_ns, .. } = event;
        if end_ns < start_ns {
            return Err(HistoryError::Times { line, id, start_ns, end_ns });
        }
        events.push(event);
    }
    match header.transactions {
        Some(said) if said != events.len() => Err(HistoryError::Cut { said, found: events.len() }),
        _ => Ok((header, events)),
    }
}

#[cfg(test)]
mod tests {
    use nicol_core::history::first::{End, Read};

    use super::*;

    fn event(id: u64) -> Event {
        let reads = vec![Read { key: 5, version: 1, present: true }];
        Event {
            client: 1,
            id,
            start_ns: 10,
            end_ns: 20,
            end: End::Committed,
            reads,
            writes: vec![],
            unseen_writes: vec![],
        }
    }

    #[test]
    fn a_history_survives_its_file() {
        let unknown = Event { end: End::Unknown, unseen_writes: vec![5, 6], ..event(3) };
        let events = [event(1), event(2), unknown];
        let mut file = Vec::new();
        write(&mut file, &Header { seed: Some(7), ..Header::default() }, &events).unwrap();
        let (header, back) = read(file.as_slice()).unwrap();
        assert_eq!((header.seed, back.as_slice()), (Some(7), events.as_slice()));
    }

    #[test]
    fn a_bad_line_is_named() {
        let mut good = Vec::new();
        write(&mut good, &Header::default(), &[event(1)]).unwrap();
        let text = String::from_utf8(good).unwrap();
        let cases = [
            (String::new(), "empty"),
            ("{\"schema\":\"other/9\"}\n".to_owned(), "other/9"),
            (format!("{text}{{\"client\":1"), "line 3: column 11: EOF"),
            (
                text.lines().next().unwrap().to_owned(),
                "has 0 transactions, and its first line says 1",
            ),
            (format!("{text}{{\"surprise\":1}}\n"), "surprise"),
            (format!("{text}{}", text.lines().nth(1).unwrap()), "recorded before"),
            (text.replace("\"end_ns\":20", "\"end_ns\":2"), "before its start"),
        ];
        for (file, expected) in cases {
            let error = read(file.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(expected), "{error:?} does not say {expected:?}");
        }
    }
}
