//! The figures and tables of the papers as experiments: `nicol lab`.
//!
//! An experiment turns its options into a [`Table`] of flat rows. It measures points, each a run of
//! a system or a component that is judged where there is something to judge. Points run on as many
//! threads as the options say; rows and their order do not depend on that.

mod ablations;
mod benchmarks;
mod checkpoint;
mod commit;
mod components;
mod lookups;
mod page;
mod plot;
mod points;
mod results;
mod study;
mod table;
mod threads;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use nicol_core::names::did_you_mean;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

pub use checkpoint::Checkpoint;
pub use page::page;
pub use plot::{Chart, Scale, svg};
pub use points::{Progress, memory_available};
pub use results::{Golden, write_atomically, write_atomically_by, write_results};
pub use table::{Assumed, Outcome, Table, quoted, shown};

use crate::systems::System;
use points::Pool;

/// The profile of systems that run on an on-path SmartNIC.
const ON_PATH: &str = "liquidio3";
/// The profile of systems that use verbs.
const VERBS: &str = "connectx5";

/// How much of a figure to run.
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
    fn of<T: Copy>(self, values: [T; 2]) -> T {
        match self {
            Self::Full => values[0],
            Self::Quick => values[1],
        }
    }
}

/// How to run an experiment.
#[derive(Clone, Debug)]
pub struct Options {
    /// How much.
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
    /// What of these options concerns `experiment` when all of them are run: the systems that it
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
            Form::Quick => "--quick ".to_owned(),
        };
        flags += &format!("--seed {}", self.seed);
        let systems = self.systems.as_ref().map(|systems| systems.join(","));
        for (flag, value) in [("--profile", &self.profile), ("--systems", &systems)] {
            if let Some(value) = value {
                flags += &format!(" {flag} {}", shell_word(value));
            }
        }
        flags
    }
}

/// `text` as one word of a shell.
fn shell_word(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./,:=+@%".contains(&byte);
    if !text.is_empty() && text.bytes().all(plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', "'\\''"))
}

/// A figure or a table.
pub struct Experiment {
    /// Its name on the command line.
    pub id: &'static str,
    /// What it shows.
    pub title: &'static str,
    /// The columns of every row, in their order.
    pub columns: &'static [&'static str],
    /// How it is drawn.
    pub chart: Chart,
    /// The systems that it compares; none if it measures parts.
    pub systems: &'static [&'static str],
    /// The settings of these systems that it varies.
    pub settings: &'static [&'static str],
    /// Does it run on hardware profiles, or is it exact?
    pub timed: bool,
    run: fn(&Context<'_>) -> Result<Table>,
}

impl Experiment {
    /// The systems that it compares, and the settings of theirs that it varies, that are not there:
    /// it refuses to run without them.
    pub fn missing(&self) -> Vec<String> {
        self.missing_of(self.systems)
    }

    /// What of [`Experiment::missing`] these of its systems miss.
    fn missing_of(&self, systems: &[&str]) -> Vec<String> {
        let mut missing = Vec::new();
        for name in systems {
            let Ok(system) = System::find(name) else {
                missing.push((*name).to_owned());
                continue;
            };
            let there = system.settings();
            let lacks = |key: &&&str| there.iter().all(|(name, ..)| name != *key);
            let keys = self.settings.iter().filter(lacks);
            missing.extend(keys.map(|key| format!("{name}'s setting {key}")));
        }
        missing
    }
}

/// Every experiment, in the order of the papers.
pub fn all() -> Vec<&'static Experiment> {
    let families: [&[Experiment]; 5] =
        [&lookups::ALL, &components::ALL, &commit::ALL, &threads::ALL, &ablations::ALL];
    families.into_iter().flatten().collect()
}

/// The experiment called `id`.
///
/// # Errors
/// If there is none: names those that there are.
pub fn find(id: &str) -> Result<&'static Experiment> {
    let all = all();
    match all.iter().find(|experiment| experiment.id == id) {
        Some(experiment) => Ok(experiment),
        None => {
            let ids: Vec<_> = all.iter().map(|experiment| experiment.id).collect();
            let meant = did_you_mean(id, ids.iter().copied());
            bail!("no experiment is called '{id}'{meant}: choose one of {}", ids.join(", "))
        }
    }
}

/// What an experiment runs in.
struct Context<'a> {
    experiment: &'static Experiment,
    options: &'a Options,
    pool: Pool<'a>,
    checkpoint: &'a Checkpoint,
    /// Points that were kept and not measured again.
    found: AtomicUsize,
}

impl Context<'_> {
    fn on_path(&self) -> &str {
        self.options.profile.as_deref().unwrap_or(ON_PATH)
    }

    /// The systems to compare: those of the experiment, in its order, that the options ask for.
    fn systems(&self) -> Vec<&'static str> {
        let asked = self.options.systems.as_ref();
        let wanted =
            |system: &&str| asked.is_none_or(|asked| asked.iter().any(|one| one == system));
        self.experiment.systems.iter().copied().filter(wanted).collect()
    }

    /// Measures a point that needs `memory` bytes, unless it is kept. `run` says all
    /// that the result depends on.
    ///
    /// Errors: what `work` says; a point that needs more memory than there is; no place to keep it.
    fn point<R: Serialize + DeserializeOwned>(
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

    fn table(&self) -> Table {
        Table::new(self.experiment.columns)
    }
}

/// A finished experiment, and what it took. The outcome is the same for the same options, whatever
/// the machine; the rest is not.
pub struct Finished {
    /// What was found.
    pub outcome: Outcome,
    /// Wall-clock time.
    pub took: Duration,
    /// Points measured.
    pub points: usize,
    /// Points that were kept: of an interrupted run, or of an experiment before this one.
    pub resumed: usize,
}

/// Runs `experiment`, telling `progress` whenever a point starts or ends. What is `kept` is not
/// measured again, and what is measured is kept.
///
/// # Errors
/// If the options do not fit the experiment, a profile or the machine's memory.
pub fn run(
    experiment: &'static Experiment,
    options: &Options,
    checkpoint: &Checkpoint,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<Finished> {
    ensure!(options.jobs > 0, "--jobs 0: give at least 1");
    ensure!(
        experiment.timed || options.profile.is_none(),
        "--profile: {} has no timing model, so that no profile matters",
        experiment.id
    );
    for system in options.systems.iter().flatten() {
        ensure!(
            experiment.systems.contains(&system.as_str()),
            "--systems {system}: {} compares {}",
            experiment.id,
            if experiment.systems.is_empty() {
                "none".into()
            } else {
                experiment.systems.join(", ")
            }
        );
    }
    let pool = Pool::new(options.jobs, options.memory, progress);
    let context = Context { experiment, options, pool, checkpoint, found: AtomicUsize::new(0) };
    let missing = experiment.missing_of(&context.systems());
    ensure!(
        missing.is_empty(),
        "{} needs what is not there: {}; what is there: nicol systems, nicol bench --set help",
        experiment.id,
        missing.join(", ")
    );
    let started = Instant::now();
    let table = (experiment.run)(&context)?;
    let took = started.elapsed();
    let (points, resumed) = (context.pool.points(), context.found.into_inner());
    Ok(Finished { outcome: Outcome::new(experiment, options, table), took, points, resumed })
}

#[cfg(test)]
mod tests {
    use std::process;
    use std::sync::atomic::AtomicBool;

    use super::*;

    #[test]
    fn an_experiment_says_which_systems_and_settings_it_lacks() {
        let experiment = Experiment {
            systems: &["xenic", "nonsuch"],
            settings: &["execute_at", "nonsense", "aggregation"],
            ..commit::figure_8("id", "title", |_| bail!("it is refused before it runs"))
        };
        assert_eq!(experiment.missing(), ["xenic's setting nonsense", "nonsuch"]);
    }

    static FAILS: AtomicBool = AtomicBool::new(true);
    static INTERRUPTED: Experiment = Experiment {
        run: |context| {
            let squares = |from: u64, to: u64| {
                context.pool.map(&(from..to).collect::<Vec<_>>(), |&number| {
                    context.point(&number.to_string(), 0, || Ok(number * number))
                })
            };
            let mut found = squares(0, 3)?;
            ensure!(!FAILS.load(Ordering::Relaxed), "interrupted");
            found.extend(squares(3, 5)?);
            let mut table = context.table();
            found.into_iter().for_each(|square| table.push(vec![square.into(); 6]));
            Ok(table)
        },
        ..commit::figure_8("interrupted", "squares", |_| bail!("another one runs"))
    };

    #[test]
    fn an_interrupted_run_is_gone_on_with() {
        let folder = std::env::temp_dir().join(format!("nicol-interrupted-{}", process::id()));
        let options = Options {
            form: Form::Quick,
            seed: 1,
            profile: None,
            systems: Some(Vec::new()),
            jobs: 2,
            memory: 0,
        };
        let open = || Checkpoint::open(&folder, &["interrupted".to_owned()], &options).unwrap();
        let run = || run(&INTERRUPTED, &options, &open(), &|_| ());
        assert_eq!(run().err().unwrap().to_string(), "interrupted");
        FAILS.store(false, Ordering::Relaxed);
        let finished = run().unwrap();
        assert_eq!((finished.points, finished.resumed), (2, 3));
        let squares: Vec<_> = finished.outcome.rows().iter().map(|row| row[0].clone()).collect();
        assert_eq!(squares, [0, 1, 4, 9, 16]);
        assert_eq!(run().unwrap().resumed, 5, "all that was measured");
        open().forget().unwrap();
        assert_eq!(run().unwrap().resumed, 0, "what is finished is measured anew");
        std::fs::remove_dir_all(&folder).unwrap();
    }

    static PLACED: Experiment = Experiment {
        run: |context| {
            let mut table = context.table();
            for system in ["xenic", "xenic", "drtm-h"] {
                let study = study::Study::new(context, &benchmarks::SMALLBANK, system)?;
                study.tell_hardware(&mut table)?;
            }
            Ok(table)
        },
        ..commit::figure_8("placed", "where systems run", |_| bail!("another one runs"))
    };

    /// [Xenic21 4.3.4]
    #[test]
    fn a_figure_on_hardware_where_offloading_gains_nothing_says_so_once() {
        let warnings = |profile: &str| -> Vec<String> {
            let options = Options {
                form: Form::Quick,
                seed: 1,
                profile: Some(profile.to_owned()),
                systems: None,
                jobs: 1,
                memory: 0,
            };
            let finished = run(&PLACED, &options, &Checkpoint::default(), &|_| ()).unwrap();
            finished.outcome.warnings().map(str::to_owned).collect()
        };
        assert_eq!(warnings("liquidio3"), [""; 0]);
        let slow = warnings("bluefield1");
        assert!(slow.len() == 1 && slow[0].contains("saves no latency"), "{slow:?}");
        let none = warnings("connectx5");
        assert!(none.len() == 1 && none[0].contains("has no NIC cores"), "{none:?}");
    }

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

    #[test]
    fn options_for_all_experiments_reach_those_that_they_concern() {
        let options = Options {
            form: Form::Quick,
            seed: 1,
            profile: Some("liquidio3".into()),
            systems: None,
            jobs: 1,
            memory: 0,
        };
        let fitting = |options: &Options, id| options.fitting(find(id).unwrap());
        assert_eq!(fitting(&options, "xenic-table2").unwrap().profile, None, "it has no timing");
        assert!(fitting(&options, "xenic-fig2").unwrap().profile.is_some());
        let options =
            Options { systems: Some(vec!["xenic".into(), "drtm-r-original".into()]), ..options };
        assert!(fitting(&options, "xenic-fig2").is_none(), "it compares no systems");
        let systems = |id| fitting(&options, id).unwrap().systems.unwrap();
        assert_eq!(systems("xenic-fig8a"), ["xenic"]);
        assert_eq!(systems("xenic-50g"), ["xenic", "drtm-r-original"]);
    }

    #[test]
    fn every_experiment_has_an_id_of_its_own() {
        for (at, experiment) in all().iter().enumerate() {
            let first = all().iter().position(|other| other.id == experiment.id);
            assert_eq!(first, Some(at), "{}", experiment.id);
        }
    }
}
