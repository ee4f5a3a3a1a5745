//! `nicol.history/1`: transactions with versions only, read and converted.

use std::io::BufRead;

use nicol_core::history::{
    Action, Effect, End, History, Initial, Key, Operation, Promise, Read, Txn, Write,
};
use serde::Deserialize;

use super::{FileContent, HistoryError, Lines, Origin, validate};

/// The name of the format in a file's first line.
pub(super) const SCHEMA: &str = "nicol.history/1";

/// The facts that this format does not tell.
const NOT_TOLD: [&str; 4] = [
    "what was loaded: of a record that nobody wrote, 'present at version 1' and 'absent' are both \
     believed, if all agree on one of them",
    "ranges read by scans: phantoms are not noticed",
    "digests of values: wrong bytes under a right version are not noticed",
    "each client's own order: it is taken from the times",
];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    #[serde(rename = "schema")]
    _schema: String,
    #[serde(default)]
    system: Option<String>,
    #[serde(default)]
    workload: Option<String>,
    #[serde(default)]
    seed: Option<u64>,
    transactions: usize,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FirstRead {
    key: u64,
    version: u64,
    present: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FirstWrite {
    key: u64,
    version: u64,
    deleted: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum FirstEnd {
    Committed,
    Aborted,
    Unknown,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Event {
    client: u32,
    id: u64,
    start_ns: u64,
    end_ns: u64,
    end: FirstEnd,
    reads: Vec<FirstRead>,
    writes: Vec<FirstWrite>,
    #[serde(default)]
    unseen_writes: Vec<u64>,
}

impl Event {
    fn convert(self) -> Operation {
        let read = |read: FirstRead| Read {
            key: Key::Number(read.key),
            present: read.present,
            version: Some(read.version),
            digest: None,
        };
        let write = |write: FirstWrite| Write {
            key: Key::Number(write.key),
            effect: if write.deleted { Effect::Delete } else { Effect::Put { digest: None } },
            version: Some(write.version),
        };
        let unseen = |key| Write { key: Key::Number(key), effect: Effect::Unknown, version: None };
        let end = match self.end {
            FirstEnd::Committed => End::Ok,
            FirstEnd::Aborted => End::Failed,
            FirstEnd::Unknown => End::Unknown,
        };
        // Only what took effect, or may have, can have written what its client does not know.
        let is_unknown = end == End::Unknown;
        let unseen = self.unseen_writes.into_iter().filter(|_| is_unknown).map(unseen);
        let writes = self.writes.into_iter().map(write).chain(unseen).collect();
        Operation {
            client: self.client,
            sequence: 0,
            id: self.id,
            invoked: self.start_ns,
            responded: Some(self.end_ns),
            end,
            action: Action::Txn(Txn {
                reads: self.reads.into_iter().map(read).collect(),
                writes,
                ..Txn::default()
            }),
        }
    }
}

/// Reads what follows the first line, `header`.
pub(super) fn read(
    header: &str,
    mut lines: Lines<impl BufRead>,
) -> Result<FileContent, HistoryError> {
    let Header { system, workload, seed, transactions, .. } =
        serde_json::from_str(header).map_err(|error| HistoryError::json(1, &error))?;
    let mut operations = Vec::new();
    let mut lines_of = Vec::new();
    while let Some((line, text)) = lines.next()? {
        let event: Event =
            serde_json::from_str(&text).map_err(|error| HistoryError::json(line, &error))?;
        operations.push(event.convert());
        lines_of.push(line);
    }
    if transactions != operations.len() {
        let found = operations.len();
        return Err(HistoryError::Cut { what: "transactions", said: transactions, found });
    }
    // In this format an operation that ended when the next one began came first.
    let mut in_order: Vec<usize> = (0..operations.len()).collect();
    let time = |operation: &Operation| (operation.invoked, operation.responded, operation.id);
    in_order.sort_by_key(|&index| time(&operations[index]));
    for (sequence, &index) in in_order.iter().enumerate() {
        operations[index].sequence = sequence as u64;
    }
    let promise = Promise::StrictSerializable;
    let history = History { promise, initial: Initial::Untold, operations, crashes: Vec::new() };
    validate(&history).map_err(|fault| fault.at_line(&lines_of))?;
    Ok(FileContent {
        schema: SCHEMA.to_owned(),
        origin: Origin { system, workload, seed },
        history,
        not_told: NOT_TOLD.to_vec(),
    })
}
