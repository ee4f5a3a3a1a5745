//! What a figure is: what the paper measured, what is run here, and by which readings.

use anyhow::{Context as _, Result};
use nicol_sim::Profile;
use serde_json::{Value, json};

use super::{Experiment, Form};

/// The readings of papers, of which a figure names those that it rests on.
const AMBIGUITIES: &str = include_str!("../../../../docs/research/ambiguities.md");

/// The description of a figure, apart from its rows.
#[derive(Clone, Debug)]
pub struct About {
    /// The load and the scale that the paper measured, as far as it says.
    pub paper: &'static str,
    /// Load and scale here.
    pub scale: Vec<Extent>,
    /// The profiles that it runs on unless another is asked for; none without a timing model.
    pub profiles: &'static [&'static str],
    /// The readings that it rests on.
    pub readings: Readings,
    /// Parts of the paper's figure that this one lacks.
    pub left_out: &'static [&'static str],
}

/// A part of the load or the scale.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extent {
    pub what: &'static str,
    /// In the full form.
    pub full: String,
    /// In the quick form.
    pub quick: String,
}

impl Extent {
    /// The value of `what` in both forms.
    pub(crate) fn of(what: &'static str, value: impl Fn(Form) -> String) -> Self {
        Self { what, full: value(Form::Full), quick: value(Form::Quick) }
    }

    /// A value that is the same in both forms.
    pub(crate) fn same(what: &'static str, value: impl ToString) -> Self {
        Self::of(what, |_| value.to_string())
    }
}

/// Entries of `docs/research/ambiguities.md`.
#[derive(Clone, Copy, Debug)]
pub enum Readings {
    /// These, by their ids.
    These(&'static [&'static str]),
    /// All of a paper's section, called so.
    Section(&'static str),
}

/// An entry: its id, and what is open and how it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    pub id: &'static str,
    pub text: &'static str,
}

impl Readings {
    /// The entries.
    ///
    /// # Errors
    /// One that is not there, or an empty section.
    pub fn entries(self) -> Result<Vec<Reading>> {
        match self {
            Self::These(ids) => ids.iter().map(|id| entry(id)).collect(),
            Self::Section(name) => {
                let (_, section) = AMBIGUITIES
                    .split_once(&format!("\n## {name}\n"))
                    .with_context(|| format!("there are no readings of {name}"))?;
                let section = section.split("\n## ").next().unwrap_or_default();
                let ids = section.split("\n### ").skip(1).filter_map(|entry| entry.lines().next());
                ids.map(entry).collect()
            }
        }
    }
}

fn entry(id: &str) -> Result<Reading> {
    let entries = AMBIGUITIES.split("\n### ").skip(1);
    let of = |entry: &'static str| {
        let (id, text) = entry.split_once('\n')?;
        Some(Reading { id, text: text.split("\n## ").next().unwrap_or_default().trim() })
    };
    let found = entries.filter_map(of).find(|reading| reading.id == id);
    found.with_context(|| format!("docs/research/ambiguities.md has no {id}"))
}

impl About {
    /// All of it about `experiment` as the object `nicol.lab.figure/1`.
    ///
    /// # Errors
    /// A profile or a reading that is not there.
    pub fn json(&self, experiment: &Experiment) -> Result<Value> {
        let scale = self
            .scale
            .iter()
            .map(|one| json!({"what": one.what, "full": one.full, "quick": one.quick}));
        let mut assumed = Vec::new();
        for name in self.profiles {
            for line in Profile::load(name)?.assumed() {
                assumed.push(json!({
                    "profile": name, "key": line.key, "value": line.value, "reason": line.reason,
                }));
            }
        }
        let readings = self.readings.entries()?.into_iter();
        Ok(json!({
            "schema": "nicol.lab.figure/1",
            "figure": experiment.id,
            "title": experiment.title,
            "columns": experiment.every_column(),
            "systems": experiment.systems,
            "settings": experiment.settings,
            "paper": self.paper,
            "scale": scale.collect::<Vec<_>>(),
            "profiles": self.profiles,
            "assumed": assumed,
            "readings": readings.map(|one| json!({"id": one.id, "text": one.text}))
                .collect::<Vec<_>>(),
            "left_out": self.left_out,
        }))
    }
}
