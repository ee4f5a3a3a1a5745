//! `nicol check`: judges a recorded history by the promise that it names.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use nicol_check::history_file::{self, FileContent, HistoryError};
use nicol_check::linearizability::{self, Bound};
use nicol_check::{durability, serializability};
use nicol_core::history::{Operation, Promise};
use serde_json::json;

use crate::cli::{CheckArgs, Format};
use crate::{End, Usage, output};

/// The name that stands for standard input.
const STANDARD_INPUT: &str = "-";

struct Verdict {
    violations: Vec<String>,
    /// Violations that are not spelt out.
    more: usize,
    undecided: Option<String>,
}

impl Verdict {
    /// Does the promise hold? `None`: nobody knows. What is wrong for certain is, whatever else
    /// could not be decided.
    fn held(&self) -> Option<bool> {
        match (self.violations.is_empty(), &self.undecided) {
            (false, _) => Some(false),
            (true, Some(_)) => None,
            (true, None) => Some(true),
        }
    }
}

/// Reads the history and prints the verdict.
pub fn run(args: &CheckArgs) -> Result<End> {
    let content = open(&args.history)?;
    let bound =
        Bound::states(args.states).until(Instant::now() + Duration::from_secs(args.seconds));
    let verdict = judge(&content, bound);
    print(args, &content, &verdict)?;
    Ok(match verdict.held() {
        Some(true) => End::Held,
        Some(false) => End::Failed,
        None => End::Undecided,
    })
}

/// Reads the file, or standard input. What is wrong with its content is the user's to mend, what
/// the system refuses is the environment's.
fn open(path: &Path) -> Result<FileContent> {
    let name = path.display();
    let from: Box<dyn BufRead> = if path.as_os_str() == STANDARD_INPUT {
        Box::new(io::stdin().lock())
    } else {
        Box::new(BufReader::new(File::open(path).with_context(|| format!("cannot open {name}"))?))
    };
    let unusable = || format!("{name} is not a usable history");
    match history_file::read(from) {
        Ok(content) => match not_covered(&content) {
            None => Ok(content),
            Some(why) => Err(Usage(anyhow!(why).context(unusable())).into()),
        },
        Err(error @ HistoryError::Io { .. }) => Err(error).with_context(unusable),
        Err(error) => Err(Usage(anyhow!(error).context(unusable())).into()),
    }
}

/// Why the promise of a history says nothing of one of its operations, or of a crash.
fn not_covered(content: &FileContent) -> Option<String> {
    let history = &content.history;
    if let (Some(crash), false) =
        (history.crashes.first(), matches!(history.promise, Promise::Durable(_)))
    {
        return Some(format!(
            "there is a crash at {}, and '{}' is a promise without crashes: write 'durable:' and a \
             persistency model in the header, or leave out the crash and what was found after it",
            crash.at, history.promise
        ));
    }
    let of_single = matches!(history.promise, Promise::Linearizable | Promise::Durable(_));
    let is_txn = |operation: &&Operation| operation.txn().is_some();
    let found = history.operations.iter().find(is_txn).filter(|_| of_single)?;
    Some(format!(
        "operation {} is a transaction, and '{}' is a promise about single operations: write \
         {} in the header",
        found.id,
        history.promise,
        Promise::OF_TRANSACTIONS.map(|promise| format!("'{promise}'")).join(" or ")
    ))
}

fn judge(content: &FileContent, bound: Bound) -> Verdict {
    let history = &content.history;
    match history.promise {
        Promise::StrictSerializable | Promise::SessionSerializable | Promise::Serializable => {
            let report = serializability::check(history);
            Verdict {
                violations: words(&report.violations),
                more: report.more,
                undecided: report.undecided,
            }
        }
        Promise::Linearizable => {
            let report = linearizability::check(history, bound);
            let undecided = undecided(&report.undecided);
            by_key(words(&report.violations), undecided)
        }
        Promise::Durable(model) => {
            let report = durability::check(history, model, bound);
            let undecided = undecided(&report.undecided);
            by_key(words(&report.violations), undecided)
        }
    }
}

/// The verdict of a checker that lists every violation.
fn by_key(violations: Vec<String>, undecided: Option<String>) -> Verdict {
    Verdict { violations, more: 0, undecided }
}

fn words(violations: &[impl ToString]) -> Vec<String> {
    violations.iter().map(ToString::to_string).collect()
}

/// Why a checker of single keys has not decided all.
fn undecided(keys: &[impl ToString]) -> Option<String> {
    (!keys.is_empty()).then(|| words(keys).join("; "))
}

/// The verdict in a line.
fn in_words(verdict: &Verdict, operations: usize) -> String {
    match (&verdict.undecided, verdict.held()) {
        (Some(why), None) => format!("UNDECIDED: {why}"),
        (Some(why), Some(_)) => format!("NO; and undecided: {why}"),
        (None, Some(false)) => "NO".to_owned(),
        (None, _) if operations == 0 => "yes: there is nothing to judge".to_owned(),
        (None, _) => "yes".to_owned(),
    }
}

fn print(args: &CheckArgs, content: &FileContent, verdict: &Verdict) -> Result<()> {
    let name = args.history.display().to_string();
    let operations = content.history.operations.len();
    let promise = content.history.promise.to_string();
    let mut value = json!({
        "schema": "nicol.check/1",
        "history": name,
        "format": content.schema,
        "promise": promise,
        "transactions": operations,
        "held": verdict.held(),
        "undecided": verdict.undecided,
        "violations": verdict.violations,
        "more_violations": verdict.more,
        "not_told": content.not_told,
    });
    if content.history.promise.is_of_transactions() {
        value["serializable"] = json!(verdict.held());
    }
    match args.format {
        Format::Json => output::json(&value),
        Format::Csv => output::rows(Format::Csv, &[output::flat(&value)], |_| json!(null)),
        Format::Table => {
            let holds = in_words(verdict, operations);
            let mut violations = verdict.violations.clone();
            if verdict.more > 0 {
                violations.push(format!("and {} more", verdict.more));
            }
            let mut rows = vec![
                ("history", name),
                ("operations", operations.to_string()),
                (promise.as_str(), holds),
                ("violations", violations.join("\n")),
                ("not in the file", content.not_told.join("\n")),
            ];
            rows.retain(|(_, value)| !value.is_empty());
            output::pairs(&rows)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_not_called_undecided() {
        let verdict = |violations: &[&str], undecided: Option<&str>| Verdict {
            violations: violations.iter().map(ToString::to_string).collect(),
            more: 0,
            undecided: undecided.map(str::to_owned),
        };
        assert_eq!(in_words(&verdict(&[], None), 7), "yes");
        assert_eq!(in_words(&verdict(&["stale"], None), 7), "NO");
        assert_eq!(in_words(&verdict(&[], Some("key 1")), 7), "UNDECIDED: key 1");
        assert_eq!(in_words(&verdict(&["stale"], Some("key 1")), 7), "NO; and undecided: key 1");
    }
}
