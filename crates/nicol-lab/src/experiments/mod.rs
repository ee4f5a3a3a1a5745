//! The figures and tables of the papers as experiments: `nicol lab`.
//!
//! An experiment turns its options into a [`Table`] of flat rows. It measures points, each a run of
//! a system or a component that is judged where there is something to judge. Points run on as many
//! threads as the options say; rows and their order do not depend on that.

mod about;
mod checkpoint;
mod ladder;
mod page;
mod plot;
mod points;
mod results;
mod table;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::Result;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::command_line::{flag, shell_word};
use nicol_bench::binding::Binding;

pub use about::{About, Extent, Reading, Readings};
pub use checkpoint::Checkpoint;
pub(crate) use checkpoint::digest;
pub(crate) use ladder::{Ladder, TooFewTurns};
pub(crate) use page::page_of;
pub use plot::{Chart, Scale, svg};
pub use points::{Progress, memory_available};
pub use results::{Golden, ensure_can_write, write_atomically, write_atomically_by, write_results};
pub(crate) use table::rounded;
pub use table::{Assumed, Outcome, Table, quoted, shown};

pub(crate) use points::Pool;

/// The full or the quick form of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Form {
    /// The paper's scale, or as much of it as the memory holds.
    Full,
    /// Less data and shorter runs: seconds on four cores. What golden tables hold.
    Quick,
}

impl Form {
    /// Its name in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Quick => "quick",
        }
    }

    /// The first of two values in the full form, the other in the quick one.
    pub(crate) fn of<T: Copy>(self, values: [T; 2]) -> T {
        match self {
            Self::Full => values[0],
            Self::Quick => values[1],
        }
    }
}

/// Options of a run of experiments.
#[derive(Clone, Debug)]
pub struct Options {
    pub form: Form,
    /// The seed of everything random.
    pub seed: u64,
    /// Replaces the SmartNIC's profile: a name or a file.
    pub profile: Option<String>,
    /// Only these of the systems that the experiment compares; all of them without it.
    pub systems: Option<Vec<String>>,
    /// Points at a time.
    pub jobs: usize,
    /// Bytes that points under way may need together.
    pub memory: u64,
}

impl Options {
    /// The part of these options that concerns `experiment` when all are run: the systems that it
    /// compares, and the profile if it has a timing model. `None` if it compares none of the
    /// systems that are asked for.
    pub fn fitting(&self, experiment: &Experiment) -> Option<Self> {
        let compared = |system: &&String| experiment.systems.contains(&system.as_str());
        let systems: Option<Vec<_>> =
            self.systems.as_ref().map(|asked| asked.iter().filter(compared).cloned().collect());
        if systems.as_ref().is_some_and(Vec::is_empty) {
            return None;
        }
        let profile = self.profile.clone().filter(|_| experiment.timed);
        Some(Self { systems, profile, ..self.clone() })
    }

    /// The flags of `nicol lab run` that ask for the same results, as a shell takes them.
    fn flags(&self) -> String {
        let mut flags = match self.form {
            Form::Full => String::new(),
            Form::Quick => format!("{} ", flag("quick")),
        };
        flags += &format!("{} {}", flag("seed"), self.seed);
        let systems = self.systems.as_ref().map(|systems| systems.join(","));
        for (field, value) in [("profile", &self.profile), ("systems", &systems)] {
            if let Some(value) = value {
                flags += &format!(" {} {}", flag(field), shell_word(value));
            }
        }
        flags
    }
}

/// A figure or a table.
pub struct Experiment {
    /// Its name on the command line.
    pub id: &'static str,
    /// The family whose experiment it is: its golden table stands in the family's folder.
    pub family: &'static str,
    pub title: &'static str,
    /// The columns of what it measures, in their order: see [`Experiment::every_column`].
    pub columns: &'static [&'static str],
    pub chart: Chart,
    /// The systems that it compares; none if it measures parts.
    pub systems: &'static [&'static str],
    /// The settings of these systems that it varies.
    pub settings: &'static [&'static str],
    /// Whether it runs on hardware profiles. Otherwise it is exact.
    pub timed: bool,
    pub(crate) run: fn(&Context<'_>) -> Result<Table>,
}

impl Experiment {
    /// The columns of every row, in their order: what is measured, then what binds meanwhile,
    /// unless it has no timing model.
    pub fn every_column(&self) -> Vec<&'static str> {
        let binding = Binding::COLUMNS.iter().filter(|_| self.timed);
        self.columns.iter().chain(binding).copied().collect()
    }
}

/// The surroundings of an experiment: options, points, progress.
pub(crate) struct Context<'a> {
    pub(crate) experiment: &'static Experiment,
    pub(crate) options: &'a Options,
    pub(crate) pool: Pool<'a>,
    pub(crate) checkpoint: &'a Checkpoint,
    /// Points that were kept and not measured again.
    pub(crate) found: AtomicUsize,
}

impl Context<'_> {
    /// The systems to compare: those of the experiment, in its order, that the options ask for.
    pub(crate) fn systems(&self) -> Vec<&'static str> {
        let asked = self.options.systems.as_ref();
        let wanted =
            |system: &&str| asked.is_none_or(|asked| asked.iter().any(|one| one == system));
        self.experiment.systems.iter().copied().filter(wanted).collect()
    }

    /// Measures a point that needs `memory` bytes, unless it is kept. `run` says all
    /// that the result depends on.
    ///
    /// Errors: what `work` says; a point that needs more memory than there is; no place to keep it.
    pub(crate) fn point<R: Serialize + DeserializeOwned>(
        &self,
        run: &str,
        memory: u64,
        work: impl FnOnce() -> Result<R>,
    ) -> Result<R> {
        if let Some(found) = self.checkpoint.find(run) {
            self.found.fetch_add(1, Ordering::Relaxed);
            return Ok(found);
        }
        let found = self.pool.run(memory, work)?;
        self.checkpoint.add(run, &found)?;
        Ok(found)
    }

    pub(crate) fn table(&self) -> Table {
        Table::new(self.experiment)
    }
}

/// A finished experiment, and what it took. The outcome is the same for the same options, whatever
/// the machine; the rest is not.
pub struct Finished {
    pub outcome: Outcome,
    /// The wall-clock time of the experiment.
    pub took: Duration,
    pub points: usize,
    /// Points that were kept: of an interrupted run, or of an experiment before this one.
    pub resumed: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_ask_for_the_same_results() {
        let options = Options {
            form: Form::Quick,
            seed: 7,
            profile: Some("my profile's.toml".into()),
            systems: Some(vec!["xenic".into(), "farm".into()]),
            jobs: 2,
            memory: 0,
        };
        let quoted = r"--quick --seed 7 --profile 'my profile'\''s.toml' --systems xenic,farm";
        assert_eq!(options.flags(), quoted);
        let plain = Options { form: Form::Full, profile: None, systems: None, ..options };
        assert_eq!(plain.flags(), "--seed 7");
    }
}
