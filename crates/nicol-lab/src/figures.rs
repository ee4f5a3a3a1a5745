//! The experiments of all families: found by name, run, judged.

use std::path::Path;
use std::sync::atomic::AtomicUsize;
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use nicol_core::names::did_you_mean;

use crate::experiments::{
    About, Checkpoint, Context, Experiment, Finished, Options, Outcome, Pool, Progress, page_of,
};
use crate::families::{commit, engine, minos, offpath, prism};
use nicol_bench::refused::refuse;
use nicol_bench::systems;

/// The systems that `experiment` compares and the settings that it varies which do not exist.
/// Without them it refuses to run.
pub fn missing(experiment: &Experiment) -> Vec<String> {
    missing_of(experiment, experiment.systems)
}

/// The systems of [`missing`] that these compared ones lack.
fn missing_of(experiment: &Experiment, compared: &[&str]) -> Vec<String> {
    let mut missing = Vec::new();
    for name in compared {
        let Ok(system) = systems::find(name) else {
            missing.push((*name).to_owned());
            continue;
        };
        let there = (system.settings)(system.name);
        let lacks = |key: &&&str| there.iter().all(|row| row.key != **key);
        let keys = experiment.settings.iter().filter(lacks);
        missing.extend(keys.map(|key| format!("{name}'s setting {key}")));
    }
    missing
}

/// Every experiment, in the order of the papers.
pub fn all() -> Vec<&'static Experiment> {
    commit::experiments::all()
        .chain(prism::experiments::all())
        .chain(minos::experiments::all())
        .chain(offpath::experiments::all())
        .chain(engine::experiments::all())
        .collect()
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

/// The description of `experiment`, apart from its rows.
///
/// # Errors
/// If its family says nothing of it.
pub fn about(experiment: &Experiment) -> Result<About> {
    let families = [
        commit::experiments::about,
        prism::experiments::about,
        minos::experiments::about,
        offpath::experiments::about,
        engine::experiments::about,
    ];
    let found = families.into_iter().find_map(|about| about(experiment.id));
    found.with_context(|| format!("nothing is said of {}", experiment.id))
}

/// One HTML page of all results in `folder` and of what interrupted runs left there; `None` if it
/// holds neither.
///
/// # Errors
/// If a result cannot be read.
pub fn page(folder: &Path) -> Result<Option<String>> {
    page_of(folder, &all())
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
    ensure!(options.jobs > 0, refuse("jobs", 0, "", "give at least 1"));
    ensure!(
        experiment.timed || options.profile.is_none(),
        refuse(
            "profile",
            "",
            format!("{} has no timing model, so that no profile matters", experiment.id),
            "leave it out"
        )
    );
    for system in options.systems.iter().flatten() {
        ensure!(
            experiment.systems.contains(&system.as_str()),
            refuse(
                "systems",
                system,
                "",
                match experiment.systems {
                    [] => format!("{} compares none", experiment.id),
                    some => format!("{} compares {}", experiment.id, some.join(", ")),
                }
            )
        );
    }
    let pool = Pool::new(options.jobs, options.memory, progress);
    let context = Context { experiment, options, pool, checkpoint, found: AtomicUsize::new(0) };
    let missing = missing_of(experiment, &context.systems());
    ensure!(
        missing.is_empty(),
        "{} needs what is not there: {}; what is there: nicol systems, nicol bench with `settings` help",
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
    use std::collections::BTreeSet;
    use std::process;
    use std::sync::atomic::{AtomicBool, Ordering};

    use crate::experiments::{Extent, Form, Reading};
    use nicol_bench::binding::Binding;

    use super::*;
    use crate::families::commit::experiments::benchmarks::SMALLBANK;
    use crate::families::commit::experiments::figure8::figure_8;
    use crate::families::commit::experiments::study::Study;

    #[test]
    fn an_experiment_says_which_systems_and_settings_it_lacks() {
        let experiment = Experiment {
            systems: &["xenic", "nonsuch"],
            settings: &["execute_at", "nonsense", "aggregation"],
            ..figure_8("id", "title", |_| bail!("it is refused before it runs"))
        };
        assert_eq!(missing(&experiment), ["xenic's setting nonsense", "nonsuch"]);
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
            let binding = Binding::one_at_a_time();
            found.into_iter().for_each(|square| table.push_bound(vec![square.into(); 7], &binding));
            Ok(table)
        },
        ..figure_8("interrupted", "squares", |_| bail!("another one runs"))
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
                let study = Study::new(context, &SMALLBANK, system)?;
                study.tell_hardware(&mut table)?;
            }
            Ok(table)
        },
        ..figure_8("placed", "where systems run", |_| bail!("another one runs"))
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

    /// The figure's page names the hardware that the figure ran on when its golden table was made.
    #[test]
    fn every_figure_says_what_it_is() {
        for experiment in all() {
            let id = experiment.id;
            let about = about(experiment).unwrap();
            assert!(!about.paper.is_empty() && !about.scale.is_empty(), "{id}");
            let empty = |one: &Extent| one.full.is_empty() || one.quick.is_empty();
            assert!(!about.scale.iter().any(empty), "{id}");
            let readings = about.readings.entries().unwrap();
            let whole = |one: &Reading| one.text.contains("Open:") && one.text.contains("Nicol:");
            assert!(!readings.is_empty() && readings.iter().all(whole), "{id}: {readings:?}");
            assert_eq!(about.profiles.is_empty(), !experiment.timed, "{id}");
            let json = about.json(experiment).unwrap();
            assert_eq!(json["assumed"].as_array().unwrap().is_empty(), !experiment.timed, "{id}");
            let folder = format!("{}/golden/{}", env!("CARGO_MANIFEST_DIR"), experiment.family);
            // A new figure has its table a little later.
            let Ok(golden) = std::fs::read_to_string(format!("{folder}/{id}.json")) else {
                continue;
            };
            let golden: serde_json::Value = serde_json::from_str(&golden).unwrap();
            let ran_on = golden["profile"].as_str().unwrap_or_default().split(',');
            let ran_on: BTreeSet<_> = ran_on
                .filter_map(|name| name.split(':').next())
                .filter(|name| !name.is_empty())
                .collect();
            assert_eq!(about.profiles.iter().copied().collect::<BTreeSet<_>>(), ran_on, "{id}");
        }
    }

    #[test]
    fn every_experiment_has_an_id_of_its_own() {
        for (at, experiment) in all().iter().enumerate() {
            let first = all().iter().position(|other| other.id == experiment.id);
            assert_eq!(first, Some(at), "{}", experiment.id);
        }
    }
}
