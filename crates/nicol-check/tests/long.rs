//! Long histories of one key that tell no versions are decided within a small bound: the search
//! hardly branches where operations overlap by chance.

use nicol_check::linearizability::{self, Bound, Report};
use nicol_core::history::{
    Action, Effect, End, Found, History, Initial, Key, Loaded, Operation, Write,
};
use nicol_core::rng::{Purpose, Stream};

const OPERATIONS: u64 = 20_000;
/// Configurations: a few for each operation, where a search that branches needs millions.
const STATES: usize = 60_000;
const KEY: Key = Key::Number(1);

/// What clients do.
struct Load {
    clients: u32,
    /// Values that puts draw from; 0: each puts one of its own.
    values: u64,
    /// The longest that an operation lasts.
    longest: u64,
}

/// An honest history: half reads; 2 % of the writes are deletions and 2 % are of unknown outcome,
/// of which half took effect, some long after they were asked for. Each operation takes effect at
/// an instant of its interval.
fn honest(load: &Load, seed: u64) -> History {
    let mut random = Stream::new(seed, Purpose::Test, 0);
    let mut operations: Vec<(u64, Operation)> = Vec::new();
    // A client whose write never ended is followed by another one.
    let mut newcomer = load.clients;
    for first in 0..load.clients {
        let (mut client, mut time) = (first, random.below(10));
        for sequence in 0..OPERATIONS / u64::from(load.clients) {
            let id = operations.len() as u64 + 1;
            let span = 1 + random.below(load.longest);
            let reads = random.below(2) == 0;
            let unknown = !reads && random.below(50) == 0;
            let takes_effect = match (unknown, random.below(2)) {
                (true, 0) => None,
                (true, _) => Some(time + random.below(span * 4)),
                (false, _) => Some(time + random.below(span + 1)),
            };
            let digest = if load.values == 0 { id } else { random.below(load.values) };
            let write = |effect| Write { key: KEY, effect, version: None };
            let action = match (reads, random.below(50)) {
                (true, _) => Action::Get { key: KEY, found: None },
                (false, 0) => Action::Delete { write: write(Effect::Delete), scope: None },
                (false, _) => {
                    let effect = Effect::Put { digest: Some(digest) };
                    Action::Put { write: write(effect), scope: None }
                }
            };
            let end = if unknown { End::Unknown } else { End::Ok };
            let responded = (!unknown).then_some(time + span);
            let invoked = time;
            let operation = Operation { client, sequence, id, invoked, responded, end, action };
            operations.push((takes_effect.unwrap_or(u64::MAX), operation));
            time += span + 1 + random.below(3);
            if unknown {
                (client, newcomer) = (newcomer, newcomer + 1);
            }
        }
    }
    operations.sort_by_key(|(takes_effect, operation)| (*takes_effect, operation.id));
    let mut digest = Some(0);
    for (takes_effect, operation) in &mut operations {
        match &mut operation.action {
            Action::Get { found, .. } => {
                *found = Some(Found { present: digest.is_some(), version: None, digest });
            }
            Action::Put { write, .. } | Action::Delete { write, .. }
                if *takes_effect != u64::MAX =>
            {
                digest = match write.effect {
                    Effect::Put { digest } => digest,
                    _ => None,
                };
            }
            _ => {}
        }
    }
    let loaded = Loaded { key: KEY, version: 1, digest: Some(0) };
    let operations = operations.into_iter().map(|(_, operation)| operation).collect();
    History { initial: Initial::Listed(vec![loaded]), operations, ..History::default() }
}

fn judged(history: &History) -> Report {
    linearizability::check(history, Bound::states(STATES))
}

#[test]
fn right_ones_with_deletions_and_unknown_outcomes_are_decided() {
    for (clients, values, longest) in [(64, 0, 5), (64, 0, 50), (8, 0, 50)] {
        let report = judged(&honest(&Load { clients, values, longest }, 7));
        let words =
            || format!("{clients} clients, {values} values, {longest}: {:?}", report.undecided);
        assert!(report.holds(), "{}", words());
    }
}

#[test]
fn a_read_that_is_late_is_found_in_a_long_one() {
    for seed in 0..3 {
        let mut history = honest(&Load { clients: 16, values: 0, longest: 5 }, seed);
        // A read returns what the first put wrote, ten thousand operations later.
        let puts = |operation: &Operation| match &operation.action {
            Action::Put { write: Write { effect: Effect::Put { digest }, .. }, .. } => *digest,
            _ => None,
        };
        let old = history.operations.iter().find_map(puts);
        let late =
            history.operations.iter_mut().skip(10_000).find_map(|one| match &mut one.action {
                Action::Get { found, .. } => Some(found),
                _ => None,
            });
        *late.unwrap() = Some(Found { present: true, version: None, digest: old });
        let report = judged(&history);
        assert_eq!(report.violations.len(), 1, "seed {seed}: {:?}", report.undecided);
    }
}
