//! Histories in files: JSON lines, the first of which says what the file is.
//! `docs/research/histories.md` describes the format.

mod first;
mod line;
mod loads;
#[cfg(test)]
mod tests;
mod validate;

use std::collections::BTreeMap;
use std::io::{self, BufRead, Read as _, Write};

use nicol_core::history::{
    Action, Crash, History, Initial, Loaded, Operation, Promise, Read, Scan,
};
use serde::{Deserialize, Serialize};

use line::{Line, Parsed};
pub use validate::{Fault, validate};

/// The name of the format in a file's first line.
pub const SCHEMA: &str = "nicol.history/2";
/// Records that a file may load: each is held in memory.
const LOADED_MAX: usize = 1 << 24;
/// Bytes of a line, which is in memory as a whole: some millions of records that were read after a
/// crash.
const LINE_MAX: usize = 1 << 28;
/// The remedy for most bad files.
const REMEDY: &str = "record the history again, or correct the program that wrote it";

/// The origin of a history: for people, nothing is judged by it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    pub system: Option<String>,
    /// The workload that it ran.
    pub workload: Option<String>,
    pub seed: Option<u64>,
}

/// A history that was read from a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileContent {
    pub schema: String,
    pub origin: Origin,
    pub history: History,
    /// The promises that cannot be judged, because the file does not tell enough.
    pub not_told: Vec<&'static str>,
}

/// The first line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    schema: String,
    promise: String,
    /// Lines of operations that follow.
    operations: usize,
    /// The unit of times.
    clock: Clock,
    initial: InitialKind,
    /// Lines of crashes that follow.
    #[serde(default, skip_serializing_if = "is_zero")]
    crashes: usize,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    system: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    workload: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    seed: Option<u64>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference")]
fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// The unit of times.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Clock {
    Ns,
    Us,
    Ms,
}

/// How the initial state is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum InitialKind {
    /// By lines with `"op":"load"`; what they do not name was absent.
    Listed,
    Untold,
}

/// Why a file is not a usable history.
#[derive(Debug, thiserror::Error)]
pub enum HistoryError {
    /// It cannot be read.
    #[error("line {line}: {reason}")]
    Io {
        line: usize,
        /// The system's message.
        reason: io::Error,
    },
    /// It has no first line.
    #[error("the file is empty: the first line must be {{\"schema\":\"{SCHEMA}\", ...}}")]
    Empty,
    /// The first line names another format.
    #[error(
        "line 1: schema '{found}': this version reads {SCHEMA} and {older}; record the history again",
        older = first::SCHEMA
    )]
    Schema { found: String },
    /// A line is not what it should be.
    #[error("line {line}: {reason}; {REMEDY}")]
    Line { line: usize, reason: String },
    /// Lines are missing at its end, or were added.
    #[error(
        "it has {found} {what}, and its first line says {said}: the file was cut short or changed; \
         record the history again"
    )]
    Cut {
        what: &'static str,
        /// The content of the first line.
        said: usize,
        found: usize,
    },
}

impl HistoryError {
    /// Line `line` is not JSON, or not what it should be.
    fn json(line: usize, error: &serde_json::Error) -> Self {
        let (text, column) = (error.to_string(), error.column());
        // The parser sees one line at a time, and would call each of them line 1.
        let what = text.strip_suffix(&format!(" at line 1 column {column}")).unwrap_or(&text);
        Self::Line { line, reason: format!("column {column}: {what}") }
    }

    fn line(line: usize, reason: impl Into<String>) -> Self {
        Self::Line { line, reason: reason.into() }
    }
}

/// Writes a history, times in nanoseconds.
///
/// # Errors
/// What `out` says.
pub fn write(out: &mut impl Write, origin: &Origin, history: &History) -> io::Result<()> {
    let Origin { system, workload, seed } = origin.clone();
    let (initial, loaded) = match &history.initial {
        Initial::Untold => (InitialKind::Untold, &[][..]),
        Initial::Listed(loaded) => (InitialKind::Listed, loaded.as_slice()),
    };
    let header = Header {
        schema: SCHEMA.to_owned(),
        promise: history.promise.to_string(),
        operations: history.operations.len(),
        clock: Clock::Ns,
        initial,
        crashes: history.crashes.len(),
        system,
        workload,
        seed,
    };
    let mut emit = |line: &dyn erased::Emit| {
        line.emit(&mut *out)?;
        out.write_all(b"\n")
    };
    emit(&header)?;
    loaded.iter().try_for_each(|loaded| emit(&Line::of_loaded(loaded)))?;
    history.operations.iter().try_for_each(|operation| emit(&Line::of_operation(operation)))?;
    history.crashes.iter().try_for_each(|crash| emit(&Line::of_crash(crash)))
}

/// Serializable values as objects.
mod erased {
    use std::io::{self, Write};

    use serde::Serialize;

    pub(super) trait Emit {
        fn emit(&self, out: &mut dyn Write) -> io::Result<()>;
    }

    impl<T: Serialize> Emit for T {
        fn emit(&self, out: &mut dyn Write) -> io::Result<()> {
            serde_json::to_writer(out, self).map_err(io::Error::from)
        }
    }
}

/// Reads a history, of this format or `nicol.history/1`.
///
/// # Errors
/// The first line that is wrong, by number, and what helps.
pub fn read(from: impl BufRead) -> Result<FileContent, HistoryError> {
    read_up_to(from, LINE_MAX)
}

/// [`read`], of lines of up to `longest` bytes.
fn read_up_to(from: impl BufRead, longest: usize) -> Result<FileContent, HistoryError> {
    let mut lines = Lines { from, line: 0, longest };
    let (_, header) = lines.next()?.ok_or(HistoryError::Empty)?;
    let named: serde_json::Value =
        serde_json::from_str(&header).map_err(|error| HistoryError::json(1, &error))?;
    match named.get("schema").and_then(serde_json::Value::as_str) {
        Some(SCHEMA) => {}
        Some(first::SCHEMA) => return first::read(&header, lines),
        other => {
            let found = other.unwrap_or_default().to_owned();
            return Err(HistoryError::Schema { found });
        }
    }
    let header: Header =
        serde_json::from_str(&header).map_err(|error| HistoryError::json(1, &error))?;
    let promise: Promise =
        header.promise.parse().map_err(|reason: String| HistoryError::line(1, reason))?;
    let (body, lines_of) = read_lines(&header, lines)?;
    let Body { mut loaded, untold, operations, mut crashes } = body;
    loads::infer(&mut loaded, &untold, &operations, &crashes)?;
    crashes.sort_by_key(|crash| crash.at);
    let initial = match header.initial {
        InitialKind::Listed => Initial::Listed(loaded),
        InitialKind::Untold => Initial::Untold,
    };
    let history = History { promise, initial, operations, crashes };
    validate(&history).map_err(|fault| fault.at_line(&lines_of))?;
    let Header { schema, system, workload, seed, .. } = header;
    let not_told = not_told(&history);
    Ok(FileContent { schema, origin: Origin { system, workload, seed }, history, not_told })
}

/// The facts that a history lacks and its promise is about.
fn not_told(history: &History) -> Vec<&'static str> {
    let mut missing = Vec::new();
    if history.initial == Initial::Untold {
        missing.push(
            "what was loaded: of a record that nobody wrote, 'present at version 1' and 'absent' \
             are both believed, if all agree on one of them",
        );
    }
    let reads = || {
        history.operations.iter().flat_map(|operation| {
            let (reads, scans): (&[Read], &[Scan]) = match &operation.action {
                Action::Txn(txn) => (&txn.reads, &txn.scans),
                Action::Scan(scan) => (&[], std::slice::from_ref(scan)),
                _ => (&[], &[]),
            };
            let found = scans.iter().flat_map(|scan| &scan.found);
            let got = match &operation.action {
                Action::Get { found, .. } => found.map(|found| (found.present, found.digest)),
                _ => None,
            };
            reads.iter().chain(found).map(|read| (read.present, read.digest)).chain(got)
        })
    };
    let digests = reads().any(|(_, digest)| digest.is_some());
    if !digests && reads().any(|(present, _)| present) {
        missing.push("digests of values: wrong bytes under a right version are not noticed");
    }
    missing
}

#[derive(Default)]
struct Body {
    loaded: Vec<Loaded>,
    /// The loads without a version, by position, and their lines.
    untold: BTreeMap<usize, usize>,
    operations: Vec<Operation>,
    crashes: Vec<Crash>,
}

/// Reads everything behind the first line; also returns the line of each operation.
fn read_lines(
    header: &Header,
    mut lines: Lines<impl BufRead>,
) -> Result<(Body, Vec<usize>), HistoryError> {
    let mut body = Body::default();
    let mut lines_of = Vec::new();
    let mut loaded_at = BTreeMap::new();
    while let Some((line, text)) = lines.next()? {
        let parsed: Line =
            serde_json::from_str(&text).map_err(|error| HistoryError::json(line, &error))?;
        match parsed.parse().map_err(|reason| HistoryError::line(line, reason))? {
            Parsed::Operation(operation) => {
                body.operations.push(operation);
                lines_of.push(line);
            }
            Parsed::Crash(crash) => body.crashes.push(crash),
            Parsed::Loaded(..) if header.initial == InitialKind::Untold => {
                let reason = "a load, although line 1 says that the initial state is untold";
                return Err(HistoryError::line(line, reason));
            }
            Parsed::Loaded(loaded, told) => {
                for record in loaded {
                    if let Some(before) = loaded_at.insert(record.key.clone(), line) {
                        let reason = format!("a record that line {before} loads as well");
                        return Err(HistoryError::line(line, reason));
                    }
                    if !told {
                        body.untold.insert(body.loaded.len(), line);
                    }
                    body.loaded.push(record);
                }
                if body.loaded.len() > LOADED_MAX {
                    let reason = format!(
                        "more than {LOADED_MAX} loaded records: list only those that operations \
                         name or scans cover"
                    );
                    return Err(HistoryError::line(line, reason));
                }
            }
        }
    }
    let counts = [
        ("operations", header.operations, body.operations.len()),
        ("crashes", header.crashes, body.crashes.len()),
    ];
    match counts.into_iter().find(|(_, said, found)| said != found) {
        Some((what, said, found)) => Err(HistoryError::Cut { what, said, found }),
        None => Ok((body, lines_of)),
    }
}

/// The lines of a file that are not blank, by number.
struct Lines<R> {
    from: R,
    line: usize,
    /// Bytes of a line, at most.
    longest: usize,
}

impl<R: BufRead> Lines<R> {
    fn next(&mut self) -> Result<Option<(usize, String)>, HistoryError> {
        loop {
            self.line += 1;
            let line = self.line;
            let mut text = Vec::new();
            let most = self.longest as u64 + 1;
            let read = self.from.by_ref().take(most).read_until(b'\n', &mut text);
            read.map_err(|reason| HistoryError::Io { line, reason })?;
            if text.is_empty() {
                return Ok(None);
            }
            if text.pop_if(|last| *last == b'\n').is_none() && text.len() > self.longest {
                let longest = self.longest;
                let reason = format!("longer than {longest} bytes: a history is JSON lines");
                return Err(HistoryError::line(line, reason));
            }
            let text =
                String::from_utf8(text).map_err(|_| HistoryError::line(line, "not UTF-8"))?;
            if !text.trim().is_empty() {
                return Ok(Some((line, text)));
            }
        }
    }
}
