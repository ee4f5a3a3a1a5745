//! Results on standard output: tables for people, JSON and CSV for scripts.

use std::borrow::Borrow;
use std::io::{self, ErrorKind, IsTerminal, StdoutLock, Write};
use std::path::Path;

use anyhow::{Context, Result, ensure};

use comfy_table::{ContentArrangement, Table, presets};
use indicatif::ProgressBar;
use nicol_lab::experiments::{ensure_can_write, quoted, shown};
use serde::Serialize;
use serde_json::Value;

use crate::cli::Format;

/// Width of a table that does not go to a terminal, or to one that does not know its own.
const PIPE_WIDTH: u16 = 110;
/// Width below which a terminal's is not believed: some say 0, or 1.
const WIDTH_MIN: u16 = 20;

/// So many of what is called `what`, such as "1 node".
pub fn many(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

/// Standard output whose reader may go away, as `head` does: what can no longer be read is
/// dropped. That is no failure and hides no verdict.
pub struct Out(StdoutLock<'static>);

/// Standard output.
pub fn out() -> Out {
    Out(io::stdout().lock())
}

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.0.write(bytes) {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(bytes.len()),
            written => written,
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self.0.flush() {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
            flushed => flushed,
        }
    }
}

/// Prints `text` as it is.
pub fn print(text: &str) -> Result<()> {
    let mut out = out();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).context("writing to standard output")
}

/// Prints a line for people on standard error. A closed pipe is no failure.
pub fn tell(line: &str) {
    let _unheard = writeln!(io::stderr(), "{line}");
}

/// Prints `value` as one JSON object followed by a newline.
pub fn json(value: &impl Serialize) -> Result<()> {
    let mut out = out();
    serde_json::to_writer_pretty(&mut out, value).context("writing JSON to standard output")?;
    writeln!(out).context("writing to standard output")
}

/// Prints flat rows in the chosen format; `wrap` makes the JSON object that holds them.
pub fn rows(format: Format, rows: &[Value], wrap: impl FnOnce(&[Value]) -> Value) -> Result<()> {
    match format {
        Format::Json => json(&wrap(rows)),
        Format::Csv => csv(rows),
        Format::Table => table(rows),
    }
}

/// That a file can be written at `path`, before hours are spent on what it is for.
pub fn ensure_writable(flag: &str, path: &Path) -> Result<()> {
    let shown = path.display();
    ensure!(!path.is_dir(), "{flag} {shown}: that is a directory; give a file");
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let exists = folder.is_none_or(Path::is_dir);
    ensure!(exists, "{flag} {shown}: there is no such directory; make it, or give another file");
    ensure_can_write(path)
        .with_context(|| format!("{flag} {shown}: give a file that can be written"))
}

/// Prints two columns: a name and a value.
pub fn pairs(pairs: &[(&str, String)]) -> Result<()> {
    let mut table = blank();
    for (name, value) in pairs {
        table.add_row([*name, value.as_str()]);
    }
    writeln!(out(), "{table}").context("writing to standard output")
}

fn blank() -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_BORDERS_ONLY);
    table.set_content_arrangement(ContentArrangement::Dynamic);
    let terminal = table.width().filter(|_| table.is_tty());
    table.set_width(width(terminal));
    table
}

/// The width of a table on a terminal that claims to be so wide, if there is one.
fn width(terminal: Option<u16>) -> u16 {
    terminal.filter(|&width| width >= WIDTH_MIN).unwrap_or(PIPE_WIDTH)
}

fn table(rows: &[Value]) -> Result<()> {
    let columns = columns(rows);
    let rows: Vec<Vec<&Value>> =
        rows.iter().map(|row| columns.iter().map(|column| &row[column]).collect()).collect();
    cells(&columns, &rows)
}

/// Prints a table whose cells are given row by row.
pub fn cells<V: Borrow<Value>>(columns: &[impl ToString], rows: &[Vec<V>]) -> Result<()> {
    let mut table = blank();
    table.set_header(columns.iter().map(ToString::to_string));
    for row in rows {
        table.add_row(row.iter().map(|value| shown(value.borrow())));
    }
    writeln!(out(), "{table}").context("writing to standard output")
}

fn csv(rows: &[Value]) -> Result<()> {
    let mut out = out();
    let columns = columns(rows);
    writeln!(out, "{}", columns.join(",")).context("writing to standard output")?;
    for row in rows {
        let cells: Vec<String> =
            columns.iter().map(|column| quoted(&shown(&row[column]))).collect();
        writeln!(out, "{}", cells.join(",")).context("writing to standard output")?;
    }
    Ok(())
}

/// The union of the rows' names, in the order of first appearance.
fn columns(rows: &[Value]) -> Vec<String> {
    let mut columns = Vec::new();
    for row in rows.iter().filter_map(Value::as_object) {
        for name in row.keys() {
            if !columns.contains(name) {
                columns.push(name.clone());
            }
        }
    }
    columns
}

/// Flattens nested objects to one level, joining names with a dot.
pub fn flat(value: &Value) -> Value {
    fn walk(prefix: &str, value: &Value, into: &mut serde_json::Map<String, Value>) {
        match value {
            Value::Object(fields) => {
                for (name, field) in fields {
                    let path =
                        if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
                    walk(&path, field, into);
                }
            }
            Value::Array(items) => {
                let text = serde_json::to_string(items).unwrap_or_default();
                into.insert(prefix.to_owned(), Value::String(text));
            }
            other => {
                into.insert(prefix.to_owned(), other.clone());
            }
        }
    }
    let mut fields = serde_json::Map::new();
    walk("", value, &mut fields);
    Value::Object(fields)
}

/// A spinner while a command works, on a terminal only.
pub(crate) fn spinner(message: &str) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let spinner = ProgressBar::new_spinner().with_message(message.to_owned());
    spinner.enable_steady_tick(std::time::Duration::from_millis(100));
    spinner
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn nested_objects_become_dotted_columns() {
        let row = flat(&json!({"a": 1, "latency_us": {"p50": 2.5}, "list": [1, 2]}));
        assert_eq!(row, json!({"a": 1, "latency_us.p50": 2.5, "list": "[1,2]"}));
        assert_eq!(columns(&[row]), ["a", "latency_us.p50", "list"]);
    }

    #[test]
    fn a_terminal_without_a_width_gets_a_pipe_s() {
        assert_eq!([Some(0), Some(1), None].map(width), [PIPE_WIDTH; 3]);
        assert_eq!(width(Some(80)), 80);
    }

    #[test]
    fn cells_with_commas_are_quoted() {
        assert_eq!(quoted("a,\"b\""), "\"a,\"\"b\"\"\"");
    }
}
