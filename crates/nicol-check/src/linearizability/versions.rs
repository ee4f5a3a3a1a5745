//! The decider for histories with versions: near-linear.
//!
//! Versions tell the order of a key's writes, so that each operation has a place: a write that of
//! its version, a read the one behind the write that it saw. The history is linearizable if and
//! only if no operation precedes one of an earlier place, and if the versions that no certain write
//! explains can be given to unsure writes, one each, that were invoked early enough.

use std::collections::BTreeMap;

use super::problem::{NEVER, Op, Problem, Value};
use super::{Anomaly, Found};

/// A version of the key that was written for certain, or read.
#[derive(Clone, Copy, Debug)]
struct Slot {
    value: Value,
    /// The id of a certain write; `None`: an unsure one must have written it, or the load did.
    writer: Option<u64>,
    /// The lowest version that the write may have: that of the slot, except for deletions that
    /// nobody saw but in their effect.
    least: u64,
    /// A read of it.
    read: Option<u64>,
}

struct Slots {
    by_version: BTreeMap<u64, Slot>,
}

/// Can `problem` be decided by versions? A read that found no record need not tell a floor: a scan
/// knows none.
fn applies(problem: &Problem) -> bool {
    let told = |value: &Value| value.version.is_some() || is_floorless(value);
    problem.certain.iter().all(|op| op.value.version.is_some() || is_unplaced(op))
        && problem.recovered.as_ref().is_none_or(|recovered| told(&recovered.value))
}

/// Did this read find no record, and no version that says when?
fn is_unplaced(op: &Op) -> bool {
    !op.writes && is_floorless(&op.value)
}

/// True if there is no record, and nothing that says since when.
fn is_floorless(read: &Value) -> bool {
    read.is_absent() && read.version.is_none()
}

/// Decides `problem`; `None` if its versions do not tell.
pub(crate) fn decide(problem: &Problem) -> Option<Result<(), Found>> {
    if !applies(problem) {
        return None;
    }
    let decided = match problem.initial {
        Some(_) => by_versions(problem),
        None => untold(problem),
    };
    // A deletion of unknown outcome may explain an absence at any place.
    let recovered = problem.recovered.as_ref();
    let guessed = (problem.certain.iter().any(is_unplaced)
        || recovered.is_some_and(|recovered| is_floorless(&recovered.value)))
        && problem.unsure.iter().any(|op| op.value.present != Some(true));
    (decided.is_ok() || !guessed).then_some(decided)
}

/// Where nobody said what was there at first: nothing, or else the lowest version that was read, if
/// no certain write has a lower one.
fn untold(problem: &Problem) -> Result<(), Found> {
    let begun_in = |value: Value| by_versions(&Problem { initial: Some(value), ..problem.clone() });
    let absent = begun_in(Value::ABSENT);
    let (writes, reads): (Vec<&Op>, Vec<&Op>) = problem.certain.iter().partition(|op| op.writes);
    let reads = reads.into_iter().map(|op| op.value);
    let reads = reads.chain(problem.recovered.iter().map(|recovered| recovered.value));
    let first = reads.filter(|read| !read.is_absent()).min_by_key(|read| read.version);
    match first.filter(|first| writes.iter().all(|op| first.version < op.value.version)) {
        Some(first) if absent.is_err() => begun_in(first),
        _ => absent,
    }
}

/// Decides `problem`, whose initial value is told.
fn by_versions(problem: &Problem) -> Result<(), Found> {
    let mut slots = Slots::written(problem)?;
    slots.add_reads(problem)?;
    slots.add_unseen_deletions(problem)?;
    let versions: Vec<u64> = slots.by_version.keys().copied().collect();
    let place = |value: &Value, writes: bool| place(&versions, value, writes);
    let mut places: Vec<usize> =
        problem.certain.iter().map(|op| place(&op.value, op.writes)).collect();
    slots.place_absences(problem, &mut places)?;
    in_order(problem, &places)?;
    if let Some(recovered) = &problem.recovered {
        let own = match is_floorless(&recovered.value) {
            // The last place without a record is behind as much as any.
            true => slots.absences().last().copied().unwrap_or(0),
            false => place(&recovered.value, false),
        };
        if own == 0 {
            return Err(Found::at(Anomaly::WrongPresence, [0, 0]));
        }
        if let Some(at) = recovered.after.iter().find(|at| places[**at] > own) {
            return Err(Found::at(Anomaly::NotLinearizable, [problem.certain[*at].id, 0]));
        }
    }
    slots.explain(problem, &places)
}

impl Slots {
    /// The load and the certain writes.
    fn written(problem: &Problem) -> Result<Self, Found> {
        let mut by_version = BTreeMap::new();
        let mut first = 0;
        if let Some(value) = problem.initial {
            first = value.version.unwrap_or(0);
            by_version.insert(first, Slot { value, writer: Some(0), least: first, read: None });
        }
        for op in problem.certain.iter().filter(|op| op.writes) {
            let version = op.value.version.unwrap_or(0);
            if version < first || version == 0 {
                return Err(Found::at(Anomaly::WriteOrder, [op.id, op.id]));
            }
            let slot = Slot { value: op.value, writer: Some(op.id), least: version, read: None };
            if let Some(Slot { writer, .. }) = by_version.insert(version, slot) {
                let other = writer.unwrap_or(0);
                return Err(Found::at(Anomaly::DuplicateVersion, [other, op.id]));
            }
        }
        Ok(Self { by_version })
    }

    /// The versions that reads returned of records that were there.
    fn add_reads(&mut self, problem: &Problem) -> Result<(), Found> {
        let reads = problem.certain.iter().filter(|op| !op.writes);
        let reads = reads.map(|op| (op.id, op.value));
        let recovered = problem.recovered.iter().map(|recovered| (0, recovered.value));
        for (id, read) in reads.chain(recovered).filter(|(_, value)| !value.is_absent()) {
            let version = read.version.unwrap_or(0);
            let loaded = problem.initial.and_then(|initial| initial.version);
            if loaded.is_some_and(|loaded| version < loaded) {
                return Err(Found::at(Anomaly::UnknownValue, [id, id]));
            }
            let fresh = Slot { value: read, writer: None, least: version, read: Some(id) };
            let slot = self.by_version.entry(version).or_insert(fresh);
            if slot.value.is_absent() {
                return Err(Found::at(Anomaly::WrongPresence, [id, slot.writer.unwrap_or(0)]));
            }
            if !slot.value.may_be(&read) {
                let other = slot.writer.or(slot.read).unwrap_or(0);
                return Err(Found::at(Anomaly::WrongValue, [id, other]));
            }
            slot.value.digest = slot.value.digest.or(read.digest);
            slot.read = Some(id);
        }
        Ok(())
    }

    /// A read found no record where the newest write that is known had put one: somebody unsure has
    /// deleted it in between.
    fn add_unseen_deletions(&mut self, problem: &Problem) -> Result<(), Found> {
        let reads = problem.certain.iter();
        let reads = reads.filter(|op| !op.writes && op.value.is_absent() && !is_unplaced(op));
        let recovered = problem
            .recovered
            .iter()
            .filter(|found| found.value.is_absent() && !is_floorless(&found.value));
        let mut floors: Vec<(u64, u64)> = reads
            .map(|op| (op.value.version.unwrap_or(0), op.id))
            .chain(recovered.map(|found| (found.value.version.unwrap_or(0), 0)))
            .collect();
        floors.sort_unstable();
        // The lowest floor of a gap comes first, and the deletion it asks for serves the others.
        for (floor, id) in floors {
            let newest = self.by_version.range(..=floor).next_back();
            let Some((&version, slot)) = newest else {
                return Err(Found::at(Anomaly::WrongPresence, [id, id]));
            };
            if slot.value.is_absent() {
                continue;
            }
            if version == floor {
                return Err(Found::at(Anomaly::WrongPresence, [id, slot.writer.unwrap_or(0)]));
            }
            let value = Value { version: Some(floor), ..Value::ABSENT };
            let slot = Slot { value, writer: None, least: version + 1, read: Some(id) };
            self.by_version.insert(floor, slot);
        }
        Ok(())
    }

    /// The places of reads at which there is no record, in their order.
    fn absences(&self) -> Vec<usize> {
        let slots = self.by_version.values().enumerate();
        let absent = slots.filter(|(_, slot)| slot.value.is_absent());
        absent.map(|(number, _)| 2 * (number + 1) + 1).collect()
    }

    /// Gives each read that found no record and has no version the first place that is behind all
    /// that precedes it, and at which there is no record: a later one would allow less.
    fn place_absences(&self, problem: &Problem, places: &mut [usize]) -> Result<(), Found> {
        let certain = &problem.certain;
        if !certain.iter().any(is_unplaced) {
            return Ok(());
        }
        let absent = self.absences();
        let mut ended: Vec<usize> = (0..certain.len()).collect();
        ended.sort_by_key(|at| certain[*at].responded);
        let mut ended = ended.into_iter().peekable();
        let (mut highest, mut of_client) = (0, BTreeMap::new());
        for (at, op) in certain.iter().enumerate() {
            while let Some(before) = ended.next_if(|at| certain[*at].responded < op.invoked) {
                highest = highest.max(places[before]);
            }
            let own = of_client.entry(op.client).or_insert(0);
            if is_unplaced(op) {
                let least = highest.max(*own);
                let place = absent[absent.partition_point(|place| *place < least)..].first();
                places[at] = *place.ok_or(Found::at(Anomaly::WrongPresence, [op.id, op.id]))?;
            }
            *own = places[at].max(*own);
        }
        Ok(())
    }

    /// Gives each version that no certain write explains to an unsure one.
    fn explain(&self, problem: &Problem, places: &[usize]) -> Result<(), Found> {
        let unexplained: Vec<(usize, &Slot)> = self
            .by_version
            .iter()
            .enumerate()
            .filter(|(_, (_, slot))| slot.writer.is_none())
            .map(|(number, (_, slot))| (2 * (number + 1), slot))
            .collect();
        if unexplained.is_empty() {
            return Ok(());
        }
        let earliest = earliest_places(problem, places);
        let fits = |at: usize, slot: &Slot| {
            let write = &problem.unsure[at].value;
            let version = write.version;
            let highest = slot.value.version.unwrap_or(0);
            write.may_be(&slot.value)
                && version.is_none_or(|version| (slot.least..=highest).contains(&version))
        };
        let may =
            |at: usize, (place, slot): (usize, &Slot)| fits(at, slot) && earliest[at] <= place;
        let mut taken: Vec<Option<usize>> = vec![None; problem.unsure.len()];
        for wanted in 0..unexplained.len() {
            let mut asked = vec![false; problem.unsure.len()];
            let edge = |slot: usize, at: usize| may(at, unexplained[slot]);
            if !augment(wanted, &edge, &mut asked, &mut taken) {
                let (place, slot) = unexplained[wanted];
                let late = (0..asked.len()).find(|at| fits(*at, slot) && earliest[*at] > place);
                return Err(unexplained_read(problem, slot, late));
            }
        }
        Ok(())
    }
}

/// Twice the position of a value's slot among the slots' `versions`, and one more for a read of it.
fn place(versions: &[u64], value: &Value, writes: bool) -> usize {
    let version = value.version.unwrap_or(0);
    2 * versions.partition_point(|slot| *slot <= version) + usize::from(!writes)
}

/// Names what is wrong with a version that nothing explains. `late`: an unsure write of its value
/// that was asked for too late.
fn unexplained_read(problem: &Problem, slot: &Slot, late: Option<usize>) -> Found {
    let read = slot.read.unwrap_or(0);
    let version = slot.value.version;
    let refused = problem.failed.iter().find(|op| {
        op.value.may_be(&slot.value)
            && (op.value.version.is_none() && op.value.digest.is_some()
                || op.value.version == version)
    });
    match (late, refused) {
        (Some(at), _) => Found::at(Anomaly::ReadFromTheFuture, [read, problem.unsure[at].id]),
        (None, Some(op)) => Found::at(Anomaly::FailedRead, [read, op.id]),
        (None, None) => Found::at(Anomaly::UnknownValue, [read, read]),
    }
}

/// A path that gives `slot` a write, taking others' where these find another one. (Kuhn, 1955)
fn augment(
    slot: usize,
    edge: &impl Fn(usize, usize) -> bool,
    asked: &mut [bool],
    taken: &mut [Option<usize>],
) -> bool {
    // The path so far: a slot, and the write that it is asking the owner of.
    let mut path: Vec<(usize, usize)> = Vec::new();
    let mut current = slot;
    let mut from = 0;
    loop {
        match (from..taken.len()).find(|at| !asked[*at] && edge(current, *at)) {
            Some(at) => {
                asked[at] = true;
                path.push((current, at));
                match taken[at] {
                    Some(owner) => (current, from) = (owner, 0),
                    None => {
                        path.into_iter().for_each(|(slot, at)| taken[at] = Some(slot));
                        return true;
                    }
                }
            }
            None => match path.pop() {
                Some((slot, at)) => (current, from) = (slot, at + 1),
                None => return false,
            },
        }
    }
}

/// No operation precedes one of an earlier place.
fn in_order(problem: &Problem, places: &[usize]) -> Result<(), Found> {
    let certain = &problem.certain;
    let mut ended: Vec<usize> = (0..certain.len()).collect();
    ended.sort_by_key(|at| certain[*at].responded);
    let mut ended = ended.into_iter().peekable();
    let mut highest: Option<usize> = None;
    let mut of_client: BTreeMap<u32, usize> = BTreeMap::new();
    let higher = |one: Option<usize>, other: usize| match one {
        Some(one) if places[one] >= places[other] => Some(one),
        _ => Some(other),
    };
    for (at, op) in certain.iter().enumerate() {
        while let Some(before) = ended.next_if(|at| certain[*at].responded < op.invoked) {
            highest = higher(highest, before);
        }
        let own = of_client.get(&op.client).copied();
        for before in [highest, own].into_iter().flatten() {
            if places[before] > places[at] && Problem::precedes(&certain[before], op) {
                return Err(classify(&certain[before], op, places[before] / 2 == places[at] / 2));
            }
        }
        if let Some(highest) = higher(own, at) {
            of_client.insert(op.client, highest);
        }
    }
    Ok(())
}

fn classify(before: &Op, after: &Op, same: bool) -> Found {
    let anomaly = match (before.writes, after.writes) {
        (false, true) if same => Anomaly::ReadFromTheFuture,
        (_, true) => Anomaly::WriteOrder,
        (true, false) => Anomaly::StaleRead,
        (false, false) => Anomaly::NewOldInversion,
    };
    Found::at(anomaly, [before.id, after.id])
}

/// For each unsure write, the earliest place that it may have: not before what precedes it.
fn earliest_places(problem: &Problem, places: &[usize]) -> Vec<usize> {
    let certain = &problem.certain;
    let mut ended: Vec<usize> = (0..certain.len()).collect();
    ended.sort_by_key(|at| certain[*at].responded);
    let mut ended = ended.into_iter().peekable();
    let mut highest = 0;
    // The highest place that each client has reached by each of its operations.
    let mut reached: BTreeMap<u32, Vec<(u64, usize)>> = BTreeMap::new();
    for (op, place) in certain.iter().zip(places) {
        let own = reached.entry(op.client).or_default();
        let before = own.last().map_or(0, |(_, highest)| *highest);
        own.push((op.sequence, before.max(*place)));
    }
    let earliest = |op: &Op| {
        debug_assert_eq!(op.responded, NEVER, "an unsure write never ends");
        while let Some(before) = ended.next_if(|at| certain[*at].responded < op.invoked) {
            highest = highest.max(places[before]);
        }
        let own = reached.get(&op.client).map_or(&[][..], Vec::as_slice);
        let before = own.partition_point(|(sequence, _)| *sequence < op.sequence);
        before.checked_sub(1).map_or(highest, |last| own[last].1.max(highest))
    };
    problem.unsure.iter().map(earliest).collect()
}
