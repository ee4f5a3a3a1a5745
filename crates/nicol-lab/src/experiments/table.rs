//! What an experiment found: `nicol.lab/1`.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use nicol_sim::Profile;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Experiment, Form, Options};
use nicol_bench::binding::Binding;

/// The schema's name, first in every object.
pub const SCHEMA: &str = "nicol.lab/1";

/// The value of what is no assumption but a warning, whose reason says of what.
const WARNING: &str = "WARNING";

/// A number or a choice that no source gives, or a warning.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Assumed {
    /// The profile that it stands in; none if the experiment itself assumes it.
    pub profile: Option<String>,
    /// The profile's key, or the name of the assumption.
    pub key: String,
    pub value: String,
    /// Why it was chosen.
    pub reason: String,
}

/// Rows of one experiment.
#[derive(Clone, Debug)]
pub struct Table {
    columns: Vec<&'static str>,
    rows: Vec<Vec<Value>>,
    assumed: Vec<Assumed>,
    profiles: Vec<String>,
    judged: usize,
    violations: Vec<String>,
}

impl Table {
    pub(crate) fn new(experiment: &Experiment) -> Self {
        let (rows, assumed, profiles, violations) = Default::default();
        Self { columns: experiment.every_column(), rows, assumed, profiles, judged: 0, violations }
    }

    /// Adds a row of an experiment with a timing model: what was measured, and what bound
    /// meanwhile.
    ///
    /// # Panics
    /// If it has not a cell for each column.
    pub(crate) fn push_bound(&mut self, measured: Vec<Value>, binding: &Binding) {
        self.push(measured.into_iter().chain(bound(binding)).collect());
    }

    /// Adds a row of an experiment without a timing model.
    ///
    /// # Panics
    /// If it has not a cell for each column.
    pub(crate) fn push(&mut self, row: Vec<Value>) {
        assert!(row.len() == self.columns.len(), "a cell for each column: {row:?}");
        self.rows.push(row);
    }

    /// Says what the experiment itself assumed.
    pub(crate) fn assume(&mut self, key: &str, value: impl ToString, reason: &str) {
        self.assumed.push(Assumed {
            profile: None,
            key: key.to_owned(),
            value: value.to_string(),
            reason: reason.to_owned(),
        });
    }

    /// Adds what the checkers found in a run.
    pub(crate) fn judge(&mut self, violations: Vec<String>) {
        self.judged += 1;
        self.violations.extend(violations);
    }

    /// Says that it ran on `profile`, with all that this assumes.
    pub(crate) fn ran_on(&mut self, profile: &Arc<Profile>) {
        if self.profiles.contains(&profile.name) {
            return;
        }
        self.profiles.push(profile.name.clone());
        self.assumed.extend(profile.assumed().iter().map(|line| Assumed {
            profile: Some(profile.name.clone()),
            key: line.key.clone(),
            value: line.value.clone(),
            reason: line.reason.clone(),
        }));
    }

    /// Warns, once, of what readers must know of `system` on `profile`.
    pub(crate) fn warn(&mut self, profile: &Profile, system: &str, warning: &str) {
        let warning = Assumed {
            profile: Some(profile.name.clone()),
            key: system.to_owned(),
            value: WARNING.to_owned(),
            reason: warning.to_owned(),
        };
        if !self.assumed.contains(&warning) {
            self.assumed.push(warning);
        }
    }
}

/// The cells of [`Binding::COLUMNS`].
fn bound(binding: &Binding) -> [Value; 4] {
    let busiest = binding.busiest.as_ref();
    [
        json!(binding.binds),
        busiest.map_or(Value::Null, |one| json!(format!("{} of {}", one.resource, one.of))),
        busiest.map_or(Value::Null, |one| rounded(one.share, 3)),
        rounded(binding.aborts_per_commit, 4),
    ]
}

/// `value` with so many decimals: more would be noise to a reader.
pub(crate) fn rounded(value: f64, decimals: i32) -> Value {
    let unit = 10f64.powi(decimals);
    Value::from((value * unit).round() / unit)
}

/// A table with what it was run as.
pub struct Outcome {
    experiment: &'static Experiment,
    form: Form,
    seed: u64,
    table: Table,
}

impl Outcome {
    pub(crate) fn new(experiment: &'static Experiment, options: &Options, table: Table) -> Self {
        Self { experiment, form: options.form, seed: options.seed, table }
    }

    pub fn experiment(&self) -> &'static Experiment {
        self.experiment
    }

    pub fn form(&self) -> Form {
        self.form
    }

    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// The profiles that it ran on, joined by commas; none if it has no timing model.
    pub fn profile(&self) -> Option<String> {
        let profiles = &self.table.profiles;
        (!profiles.is_empty()).then(|| profiles.join(","))
    }

    /// Runs that were judged.
    pub fn judged(&self) -> usize {
        self.table.judged
    }

    /// The cells of every row, in the order of the experiment's columns.
    pub fn rows(&self) -> &[Vec<Value>] {
        &self.table.rows
    }

    /// The assumptions that the runs of this table rest on.
    pub fn assumed(&self) -> &[Assumed] {
        &self.table.assumed
    }

    /// Warnings about a system on this hardware.
    pub fn warnings(&self) -> impl Iterator<Item = &str> {
        let warnings = self.table.assumed.iter().filter(|line| line.value == WARNING);
        warnings.map(|line| line.reason.as_str())
    }

    /// Violations that the checkers found, in words.
    pub fn violations(&self) -> &[String] {
        &self.table.violations
    }

    /// The object `nicol.lab/1`, a row to a line, so that a change of one row shows as one.
    pub fn json(&self) -> String {
        let table = &self.table;
        let head = [
            ("schema", json!(SCHEMA)),
            ("figure", json!(self.experiment.id)),
            ("title", json!(self.experiment.title)),
            ("form", json!(self.form.name())),
            ("profile", json!(self.profile())),
            ("seed", json!(self.seed)),
            ("check", json!({"judged": table.judged, "violations": table.violations})),
        ];
        let mut text = String::from("{\n");
        for (name, value) in head {
            text.push_str(&format!("  \"{name}\": {value},\n"));
        }
        let assumed = table.assumed.iter().map(|line| {
            object([
                ("profile", &json!(line.profile)),
                ("key", &json!(line.key)),
                ("value", &json!(line.value)),
                ("reason", &json!(line.reason)),
            ])
        });
        text.push_str(&format!("  \"assumed\": {},\n", lines(assumed)));
        let columns = self.experiment.every_column();
        let rows = table.rows.iter().map(|row| object(columns.iter().copied().zip(row)));
        text.push_str(&format!("  \"rows\": {}\n}}\n", lines(rows)));
        text
    }

    /// Reads what [`Outcome::json`] writes, of an experiment that `find` knows by its name.
    ///
    /// # Errors
    /// If it is something else, or of an experiment or with columns that there are not.
    pub fn parse(
        text: &str,
        find: impl FnOnce(&str) -> Result<&'static Experiment>,
    ) -> Result<Self> {
        let file: File =
            serde_json::from_str(text).context("this is no result of an experiment")?;
        ensure!(file.schema == SCHEMA, "its schema is {}, not {SCHEMA}", file.schema);
        let experiment = find(&file.figure)?;
        ensure!(experiment.id == file.figure, "it is a result of {}", file.figure);
        let mut table = Table::new(experiment);
        let columns = experiment.every_column();
        for row in &file.rows {
            ensure!(row.len() == columns.len(), "its columns are not the experiment's");
            let cell = |name: &&str| {
                row.get(*name).cloned().with_context(|| format!("a row lacks the column {name}"))
            };
            table.push(columns.iter().map(cell).collect::<Result<_>>()?);
        }
        table.assumed = file.assumed;
        let names = file.profile.unwrap_or_default();
        table.profiles =
            names.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect();
        table.judged = file.check.judged;
        table.violations = file.check.violations;
        Ok(Self { experiment, form: file.form, seed: file.seed, table })
    }

    /// The rows as comma-separated values under a line of their names.
    pub fn csv(&self) -> String {
        let mut text = self.experiment.every_column().join(",");
        text.push('\n');
        for row in &self.table.rows {
            let cells: Vec<String> = row.iter().map(|cell| quoted(&shown(cell))).collect();
            text.push_str(&cells.join(","));
            text.push('\n');
        }
        text
    }
}

/// A result as it is read.
#[derive(Deserialize)]
struct File {
    schema: String,
    figure: String,
    form: Form,
    profile: Option<String>,
    seed: u64,
    check: FileCheck,
    assumed: Vec<Assumed>,
    rows: Vec<serde_json::Map<String, Value>>,
}

#[derive(Deserialize)]
struct FileCheck {
    judged: usize,
    violations: Vec<String>,
}

/// A flat object on one line.
fn object<'a>(fields: impl IntoIterator<Item = (&'a str, &'a Value)>) -> String {
    let fields: Vec<_> =
        fields.into_iter().map(|(name, value)| format!("\"{name}\": {value}")).collect();
    format!("{{{}}}", fields.join(", "))
}

/// An array with an item to a line.
fn lines(items: impl Iterator<Item = String>) -> String {
    let items: Vec<_> = items.map(|item| format!("    {item}")).collect();
    if items.is_empty() { "[]".to_owned() } else { format!("[\n{}\n  ]", items.join(",\n")) }
}

/// A cell as people and CSV see it.
pub fn shown(cell: &Value) -> String {
    match cell {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// A cell of a CSV file: in quotes where it must be.
pub fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome() -> Outcome {
        let experiment = crate::figures::find("xenic-fig2").unwrap();
        let mut table = Table::new(experiment);
        table.ran_on(&Arc::new(Profile::load("liquidio3").unwrap()));
        table.assume("scale", 5, "with \"quotes\", and commas");
        let binding = Binding::one_at_a_time();
        let row = vec![json!("host"), json!("read, or not"), rounded(1.23456, 3)];
        table.push_bound(row, &binding);
        table.push_bound(vec![json!("nic"), json!("write"), rounded(2.0, 3)], &binding);
        table.judge(vec!["broken".into()]);
        Outcome { experiment, form: Form::Quick, seed: 7, table }
    }

    #[test]
    fn what_is_written_is_read_again() {
        let text = outcome().json();
        assert_eq!(Outcome::parse(&text, crate::figures::find).unwrap().json(), text);
        assert!(text.contains(
            r#"{"source": "host", "operation": "read, or not", "latency_us": 1.235, "binds": "#
        ));
        let names: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(names["profile"], "liquidio3");
        assert_eq!(names["check"]["violations"][0], "broken");
        for (from, to) in [
            ("nicol.lab/1", "nicol.lab/2"),
            ("xenic-fig2", "xenic-fig0"),
            ("\"source\"", "\"origin\""),
        ] {
            assert!(Outcome::parse(&text.replace(from, to), crate::figures::find).is_err(), "{to}");
        }
    }

    #[test]
    fn csv_quotes_what_holds_a_comma() {
        let csv = outcome().csv();
        assert_eq!(
            csv,
            "source,operation,latency_us,binds,busiest,busiest_share,aborts_per_commit\n\
             host,\"read, or not\",1.235,nothing: latency and load,,,0.0\n\
             nic,write,2.0,nothing: latency and load,,,0.0\n"
        );
    }
}
