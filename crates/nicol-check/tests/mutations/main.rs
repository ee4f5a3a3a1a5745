//! The table of mutations: honest histories are changed in every way that the checkers of single
//! keys must refuse, and in ways that they must accept; so are histories with crashes.
//! `--nocapture` prints it.

mod crashed;
mod honest;
mod kinds;
mod losses;

use nicol_check::durability;
use nicol_check::linearizability::{self, Bound};
use nicol_core::history::Persistency;
use nicol_core::rng::{Purpose, Stream};

const SEEDS: u64 = 40;
const STATES: usize = 200_000;

#[test]
fn every_wrong_change_is_refused_and_every_harmless_one_accepted() {
    println!("{:<46} versions  expected  tried  refused", "change");
    for versions in [true, false] {
        for seed in 0..SEEDS {
            let report = linearizability::check(
                &honest::draw(seed, versions).history,
                Bound::states(STATES),
            );
            assert!(report.holds(), "honest, seed {seed}: {report:?}");
        }
        for &(name, wrong, change) in kinds::KINDS {
            let (mut tried, mut refused) = (0, 0);
            for seed in 0..SEEDS {
                let mut drawn = honest::draw(seed, versions);
                if !change(&mut drawn, &mut Stream::new(seed, Purpose::Test, 2)) {
                    continue;
                }
                let report = linearizability::check(&drawn.history, Bound::states(STATES));
                assert_eq!(report.undecided, [], "{name}, seed {seed}");
                let found = &report.violations;
                assert_eq!(!found.is_empty(), wrong, "{name}, seed {seed}, {versions}: {found:?}");
                (tried, refused) = (tried + 1, refused + usize::from(!found.is_empty()));
            }
            let expected = if wrong { "wrong" } else { "harmless" };
            println!("{name:<46} {versions:>8}  {expected:>8}  {tried:>5}  {refused:>7}");
            let needs_versions =
                name.contains("version") || name.contains("deleted") || name.contains("not found");
            assert!(tried > 0 || !versions && needs_versions, "{name} was never tried");
        }
    }
}

#[test]
fn every_loss_that_a_model_forbids_is_refused_and_every_other_one_accepted() {
    println!("{:<58} versions  model   expected  tried  refused", "change");
    for versions in [true, false] {
        for seed in 0..SEEDS {
            for model in Persistency::ALL {
                let report = durability::check(
                    &crashed::draw(seed, versions).history,
                    model,
                    Bound::states(STATES),
                );
                assert!(report.holds(), "honest, seed {seed}, {model:?}: {report:?}");
            }
        }
        for &(name, models, change) in losses::KINDS {
            for model in Persistency::ALL {
                let (wrong, mut tried, mut refused) = (models.contains(&model), 0, 0);
                for seed in 0..SEEDS {
                    let mut drawn = crashed::draw(seed, versions);
                    if !change(&mut drawn, &mut Stream::new(seed, Purpose::Test, 4)) {
                        continue;
                    }
                    let report = durability::check(&drawn.history, model, Bound::states(STATES));
                    assert_eq!(report.undecided, [], "{name}, seed {seed}");
                    let found = &report.violations;
                    let words = || format!("{name}, seed {seed}, {versions}, {model:?}: {found:?}");
                    assert_eq!(!found.is_empty(), wrong, "{}", words());
                    (tried, refused) = (tried + 1, refused + usize::from(!found.is_empty()));
                }
                let (expected, model) = (if wrong { "wrong" } else { "harmless" }, model.name());
                println!(
                    "{name:<58} {versions:>8}  {model:<6}  {expected:>8}  {tried:>5}  {refused:>7}"
                );
                assert!(tried > 0, "{name} was never tried");
            }
        }
    }
}
