//! The checker of serializability against trying every order, on tiny random histories.
//!
//! `cargo xtask histories` tries 100,000 others; `NICOL_TINY_HISTORIES` says how many, and
//! `NICOL_TINY_SEED` begins elsewhere.

mod reference;
mod tiny;

use nicol_check::history_file::validate;
use nicol_check::serializability;
use nicol_core::history::{Action, End, History, Initial};
use nicol_core::rng::{Purpose, Stream};

fn number(name: &str, default: u64) -> u64 {
    let value = std::env::var(name).ok();
    value.map_or(default, |value| value.parse().expect("a whole number"))
}

/// What the histories had in them.
#[derive(Debug, Default)]
struct Seen {
    right: u64,
    wrong: u64,
    effective_unknown: u64,
    aborted: u64,
    scans: u64,
    changed_and_right: u64,
}

impl Seen {
    fn count(&mut self, history: &History, changed: bool, holds: bool) {
        self.right += u64::from(holds);
        self.wrong += u64::from(!holds);
        self.changed_and_right += u64::from(holds && changed);
        let any = |test: &dyn Fn(&End, &Action) -> bool| {
            let mut operations = history.operations.iter();
            u64::from(operations.any(|operation| test(&operation.end, &operation.action)))
        };
        self.aborted += any(&|end, _| *end == End::Failed);
        let scans = |action: &Action| matches!(action, Action::Txn(txn) if !txn.scans.is_empty());
        self.scans += any(&|end, action| *end == End::Ok && scans(action));
    }
}

/// Serializability is judged by versions: has every committed write one?
fn has_versions(history: &History) -> bool {
    history.operations.iter().filter(|operation| operation.end == End::Ok).all(|operation| {
        matches!(&operation.action, Action::Txn(txn) if
            txn.writes.iter().all(|write| write.version.is_some()))
    })
}

/// Prints the history on which the checker panics.
struct PrintedOnPanic<'h>(u64, &'h History);

impl Drop for PrintedOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("history {}: {:#?}", self.0, self.1);
        }
    }
}

#[test]
fn the_checker_agrees_with_trying_every_order() {
    agree(number("NICOL_TINY_HISTORIES", 34_000), number("NICOL_TINY_SEED", 0));
}

#[test]
#[ignore = "`cargo xtask histories` runs it, in release"]
fn the_checker_agrees_on_a_hundred_thousand_histories() {
    agree(number("NICOL_TINY_HISTORIES", 100_000), number("NICOL_TINY_SEED", 1));
}

fn agree(histories: u64, seed: u64) {
    let mut random = Stream::new(seed, Purpose::Test, 0);
    let mut seen = Seen::default();
    for number in 0..histories {
        let chances = if number % 4 == 3 { tiny::KNOTTED } else { tiny::PLAIN };
        let mut history = tiny::honest(chances, &mut random);
        if number % 5 == 4 {
            history.initial = Initial::Untold;
        }
        let changes = random.below(4).min(random.below(4));
        (0..changes).for_each(|_| tiny::change(&mut history, &mut random));
        if validate(&history).is_err() || !has_versions(&history) {
            assert!(changes > 0, "an honest history is one: {history:#?}");
            continue;
        }
        let holds = reference::holds(&history);
        assert!(holds || changes > 0, "history {number} happened: {history:#?}");
        let printed = PrintedOnPanic(number, &history);
        let report = serializability::check(&history);
        std::mem::forget(printed);
        assert_eq!(report.undecided, None, "history {number}: {history:#?}");
        assert_eq!(report.held(), holds, "history {number}: {history:#?}\n{report:#?}");
        seen.effective_unknown += u64::from(report.unknown_effective > 0);
        seen.count(&history, changes > 0, holds);
    }
    let Seen { right, wrong, effective_unknown, aborted, scans, changed_and_right } = seen;
    let least = [right, wrong, effective_unknown, aborted, scans, changed_and_right];
    assert!(least.iter().all(|count| *count > histories / 50), "too one-sided: {seen:?}");
    println!("{histories} histories: {seen:?}");
}
