//! Every anomaly of single keys is caught under its name, on a hand-made history, and its nearest
//! right neighbour passes.

use nicol_check::durability::{self, Anomaly as Loss};
use nicol_check::linearizability::{self, Anomaly, Bound};
use nicol_core::history::{
    Action, Crash, Effect, End, Found, History, Initial, Key, Loaded, Operation, Persistency, Read,
    Scan, Write,
};

const KEY: Key = Key::Number(7);

/// Builds a history of one key, which was absent at first. Clients are told apart by number; each
/// operation has an interval of time.
#[derive(Clone, Default)]
struct Story {
    history: History,
}

impl Story {
    fn new() -> Self {
        Self { history: History { initial: Initial::Listed(vec![]), ..History::default() } }
    }

    fn loaded(version: u64, digest: u64) -> Self {
        let load = Loaded { key: KEY, version, digest: Some(digest) };
        Self { history: History { initial: Initial::Listed(vec![load]), ..History::default() } }
    }

    fn add(mut self, client: u32, time: (u64, u64), end: End, action: Action) -> Self {
        let operations = &mut self.history.operations;
        let sequence = operations.iter().filter(|other| other.client == client).count() as u64;
        let (id, (invoked, until)) = (operations.len() as u64 + 1, time);
        let responded = Some(until);
        operations.push(Operation { client, sequence, id, invoked, responded, end, action });
        self
    }

    fn put_ended(self, client: u32, time: (u64, u64), end: End, value: (u64, u64)) -> Self {
        let version = (value.0 > 0).then_some(value.0);
        let effect = Effect::Put { digest: Some(value.1) };
        let write = Write { key: KEY, effect, version };
        self.add(client, time, end, Action::Put { write, scope: Some(1) })
    }

    /// A version, 0 for none, and a digest.
    fn put(self, client: u32, time: (u64, u64), value: (u64, u64)) -> Self {
        self.put_ended(client, time, End::Ok, value)
    }

    fn get(self, client: u32, time: (u64, u64), value: (u64, u64)) -> Self {
        let version = (value.0 > 0).then_some(value.0);
        let found = Found { present: true, version, digest: Some(value.1) };
        self.add(client, time, End::Ok, Action::Get { key: KEY, found: Some(found) })
    }

    fn miss(self, client: u32, time: (u64, u64), floor: Option<u64>) -> Self {
        let found = Found { present: false, version: floor, digest: None };
        self.add(client, time, End::Ok, Action::Get { key: KEY, found: Some(found) })
    }

    fn delete(self, client: u32, time: (u64, u64), version: u64) -> Self {
        let version = (version > 0).then_some(version);
        let write = Write { key: KEY, effect: Effect::Delete, version };
        self.add(client, time, End::Ok, Action::Delete { write, scope: Some(1) })
    }

    fn persist(self, client: u32, time: (u64, u64)) -> Self {
        self.add(client, time, End::Ok, Action::Persist { scope: Some(1) })
    }

    fn crash(mut self, at: u64, states: &[Option<(u64, u64)>]) -> Self {
        let read = |state: &Option<(u64, u64)>| Read {
            key: KEY,
            present: state.is_some(),
            version: Some(state.map_or(0, |(version, _)| version)),
            digest: state.map(|(_, digest)| digest),
        };
        self.history.crashes.push(Crash { at, recovered: states.iter().map(read).collect() });
        self
    }

    fn judge(&self) -> Option<Anomaly> {
        let report = linearizability::check(&self.history, Bound::default());
        assert_eq!(report.undecided, []);
        report.violations.first().map(|violation| violation.anomaly)
    }

    fn survives(&self, model: Persistency) -> Option<Loss> {
        let report = durability::check(&self.history, model, Bound::default());
        assert_eq!(report.undecided, []);
        report.violations.first().map(|violation| violation.anomaly)
    }
}

#[test]
fn anomalies_with_versions_have_their_names() {
    let two = || Story::new().put(1, (0, 10), (1, 11)).put(1, (20, 30), (2, 22));
    let cases = [
        (Anomaly::StaleRead, two().get(2, (40, 50), (1, 11)), two().get(2, (25, 50), (1, 11))),
        (
            Anomaly::NewOldInversion,
            two().get(2, (22, 24), (2, 22)).get(3, (25, 26), (1, 11)),
            two().get(2, (22, 24), (1, 11)).get(3, (25, 26), (2, 22)),
        ),
        (
            Anomaly::ReadFromTheFuture,
            two().get(2, (12, 15), (2, 22)),
            two().get(2, (12, 20), (2, 22)),
        ),
        (
            Anomaly::WriteOrder,
            Story::new().put(1, (0, 10), (2, 22)).put(2, (11, 20), (1, 11)),
            Story::new().put(1, (0, 10), (2, 22)).put(2, (10, 20), (1, 11)),
        ),
        (
            Anomaly::DuplicateVersion,
            Story::new().put(1, (0, 10), (1, 11)).put(2, (0, 10), (1, 22)),
            Story::new().put(1, (0, 10), (1, 11)).put(2, (0, 10), (2, 22)),
        ),
        (Anomaly::WrongValue, two().get(2, (40, 50), (2, 11)), two().get(2, (40, 50), (2, 22))),
        (Anomaly::WrongPresence, two().miss(2, (40, 50), Some(2)), two().miss(2, (0, 5), Some(0))),
        (Anomaly::UnknownValue, two().get(2, (40, 50), (3, 33)), two().get(2, (40, 50), (2, 22))),
        (
            Anomaly::FailedRead,
            two().put_ended(3, (0, 9), End::Failed, (3, 33)).get(2, (40, 50), (3, 33)),
            two().put_ended(3, (0, 9), End::Unknown, (3, 33)).get(2, (40, 50), (3, 33)),
        ),
    ];
    for (anomaly, wrong, right) in cases {
        assert_eq!(wrong.judge(), Some(anomaly));
        assert_eq!(right.judge(), None, "the neighbour of {anomaly:?}");
    }
}

#[test]
fn a_deleted_record_does_not_come_back() {
    let deleted = || Story::new().put(1, (0, 10), (1, 11)).delete(1, (20, 30), 2);
    assert_eq!(deleted().miss(2, (40, 50), Some(2)).judge(), None);
    assert_eq!(deleted().get(2, (40, 50), (1, 11)).judge(), Some(Anomaly::StaleRead));
    assert_eq!(deleted().get(2, (40, 50), (2, 11)).judge(), Some(Anomaly::WrongPresence));
    // Without versions as well.
    let deleted = || Story::new().put(1, (0, 10), (0, 11)).delete(1, (20, 30), 0);
    assert_eq!(deleted().miss(2, (40, 50), None).judge(), None);
    assert_eq!(deleted().get(2, (40, 50), (0, 11)).judge(), Some(Anomaly::NotLinearizable));
}

#[test]
fn a_client_reads_its_own_writes_within_an_instant() {
    let wrote = || Story::loaded(1, 11).put(1, (0, 10), (2, 22));
    assert_eq!(wrote().get(1, (10, 20), (1, 11)).judge(), Some(Anomaly::StaleRead));
    assert_eq!(wrote().get(2, (10, 20), (1, 11)).judge(), None, "another client's overlaps");
    for value in [11, 33] {
        // Different values are judged by clusters, repeated ones by search.
        let wrote = || {
            let story = Story::loaded(1, 11).put(1, (0, 10), (0, 22)).get(1, (10, 20), (0, 11));
            story.put(3, (90, 99), (0, value))
        };
        assert_eq!(wrote().judge(), Some(Anomaly::NotLinearizable));
    }
}

#[test]
fn an_unknown_write_explains_one_version_once() {
    let unknown = |version| Story::loaded(1, 11).put_ended(1, (0, 10), End::Unknown, (version, 22));
    assert_eq!(unknown(0).judge(), None, "it need not happen");
    assert_eq!(unknown(0).get(2, (90, 95), (2, 22)).judge(), None, "it may happen late");
    assert_eq!(unknown(3).get(2, (90, 95), (2, 22)).judge(), Some(Anomaly::UnknownValue));
    let twice = unknown(0).get(2, (20, 25), (2, 22)).put(2, (30, 35), (3, 33));
    assert_eq!(twice.clone().judge(), None);
    assert_eq!(twice.get(2, (90, 95), (4, 22)).judge(), Some(Anomaly::UnknownValue));
    // Of two that could explain a version, each is tried.
    let either = |read| {
        let both = unknown(0).put_ended(3, (50, 60), End::Unknown, (0, 22));
        both.get(2, (20, 25), (2, 22)).put(2, (30, 35), (3, 33)).get(2, read, (4, 22))
    };
    assert_eq!(either((90, 95)).judge(), None);
    assert_eq!(either((40, 45)).judge(), Some(Anomaly::ReadFromTheFuture));
    // The same without versions: seen, overwritten, and seen again.
    let again = Story::loaded(1, 11).put_ended(1, (0, 10), End::Unknown, (0, 22));
    let again = again.get(2, (20, 25), (0, 22)).put(2, (30, 35), (0, 33));
    assert_eq!(again.clone().judge(), None);
    assert_eq!(again.get(2, (90, 95), (0, 22)).judge(), Some(Anomaly::NotLinearizable));
}

#[test]
fn a_scan_is_judged_key_by_key() {
    let scan = |found: Vec<Read>, limit| {
        let (first, last) = (Key::Number(0), Key::Number(9));
        let scan = Scan { first, last, backward: false, limit, found };
        Story::new().put(1, (0, 10), (0, 11)).add(2, (20, 30), End::Ok, Action::Scan(scan))
    };
    let read = |key, digest| Read {
        key: Key::Number(key),
        present: true,
        version: None,
        digest: Some(digest),
    };
    assert_eq!(scan(vec![read(7, 11)], None).judge(), None);
    assert_eq!(scan(vec![], None).judge(), Some(Anomaly::NotLinearizable), "it missed the record");
    assert_eq!(scan(vec![read(7, 12)], None).judge(), Some(Anomaly::UnknownValue));
    // One that stopped before the key says nothing of it.
    let other =
        || Write { key: Key::Number(3), effect: Effect::Put { digest: Some(1) }, version: None };
    let stopped = scan(vec![read(3, 1)], Some(1));
    let stopped = stopped.add(3, (0, 5), End::Ok, Action::Put { write: other(), scope: None });
    assert_eq!(stopped.judge(), None);
}

#[test]
fn a_search_that_meets_its_bound_is_undecided() {
    let mut story = Story::loaded(1, 1);
    for client in 0..12 {
        story = story.put(client, (0, 100), (0, u64::from(client % 3)));
    }
    // Nobody wrote it: every order must be tried to know.
    story = story.get(50, (50, 100), (0, 77));
    let report = linearizability::check(&story.history, Bound::states(10));
    assert_eq!((report.violations.len(), report.undecided.len()), (0, 1));
    assert!(!report.holds() && report.undecided[0].to_string().contains("10 configurations"));
    assert_eq!(story.judge(), Some(Anomaly::NotLinearizable));
}

#[test]
fn equal_writes_of_unknown_outcome_are_tried_once() {
    // 24 writes of two values may each come at any of 24 reads, which see the values by turns.
    let mut story = Story::new();
    for client in 0..24 {
        story = story.put_ended(client, (0, 1), End::Unknown, (0, 1 + u64::from(client % 2)));
    }
    for read in 0..24 {
        story = story.get(100, (10 * read + 10, 10 * read + 15), (0, 1 + read % 2));
    }
    let report = linearizability::check(&story.history, Bound::states(100));
    assert!(report.holds(), "{report:?}");
    let once_more = story.get(100, (900, 905), (0, 1));
    let report = linearizability::check(&once_more.history, Bound::states(1_000));
    assert_eq!(report.violations.len(), 1, "there are 24 writes only: {report:?}");
}

#[test]
fn a_search_ends_when_its_time_is_over() {
    let mut story = Story::loaded(1, 1);
    for client in 0..16 {
        story = story.put(client, (0, 100), (0, u64::from(client)));
        story = story.get(100 + client, (0, 100), (0, u64::from(client)));
    }
    story = story.get(50, (50, 100), (0, 77)).delete(51, (0, 100), 0);
    let over = std::time::Instant::now();
    let report = linearizability::check(&story.history, Bound::default().until(over));
    assert_eq!((report.violations.len(), report.undecided.len()), (0, 1));
}

/// A write that was acknowledged and read, one that was acknowledged, one whose scope was
/// persisted.
fn before_crash() -> [Story; 3] {
    let wrote = || Story::loaded(1, 11).put(1, (0, 10), (2, 22));
    [wrote().get(2, (20, 30), (2, 22)), wrote(), wrote().persist(1, (40, 50))]
}

#[test]
fn each_model_protects_what_it_says() {
    use Persistency::{Event, Renf, Scope, Strict, Synch};
    let losing = [
        [Strict, Synch, Renf].as_slice(),
        [Strict, Synch].as_slice(),
        [Strict, Synch, Scope].as_slice(),
    ];
    for (story, losing) in before_crash().into_iter().zip(losing) {
        for model in Persistency::ALL {
            let lost = story.clone().crash(100, &[Some((1, 11))]);
            let expected = losing.contains(&model).then_some(Loss::Lost);
            assert_eq!(lost.survives(model), expected, "{model:?}");
            let kept = story.clone().crash(100, &[Some((2, 22))]);
            assert_eq!(kept.survives(model), None, "{model:?}");
        }
    }
    let lost = before_crash()[1].clone().crash(100, &[Some((1, 11))]);
    let report = durability::check(&lost.history, Event, Bound::default());
    assert_eq!(report.acknowledged_lost, 1, "a permitted loss is counted");
}

#[test]
fn what_is_recovered_was_written_and_does_not_come_back() {
    let wrote = || Story::loaded(1, 11).put(1, (0, 10), (2, 22));
    for model in Persistency::ALL {
        let never = wrote().crash(100, &[Some((3, 33))]);
        assert_eq!(never.survives(model), Some(Loss::NeverWritten), "{model:?}");
        let refused = wrote().put_ended(2, (0, 10), End::Failed, (3, 33));
        let refused = refused.crash(100, &[Some((3, 33))]);
        assert_eq!(refused.survives(model), Some(Loss::Refused), "{model:?}");
        let unknown = wrote().put_ended(2, (0, 10), End::Unknown, (3, 33));
        assert_eq!(unknown.crash(100, &[Some((3, 33))]).survives(model), None, "{model:?}");
        let split = wrote().crash(100, &[Some((2, 22)), Some((1, 11))]);
        assert_eq!(split.survives(model), Some(Loss::ReplicasDisagree), "{model:?}");
        let torn = wrote().crash(100, &[Some((2, 23))]);
        assert_eq!(torn.survives(model), Some(Loss::NeverWritten), "{model:?}");
        // A second crash brings back what the first one had left behind.
        let twice = wrote().crash(100, &[Some((2, 22))]);
        let again = twice.clone().crash(200, &[Some((1, 11))]);
        assert!(again.survives(model).is_some(), "{model:?}: an older value came back");
        let wrote = twice.put(1, (110, 120), (3, 33)).crash(200, &[Some((2, 22))]);
        let weak = matches!(model, Persistency::Renf | Persistency::Scope | Persistency::Event);
        assert_eq!(wrote.survives(model), (!weak).then_some(Loss::Lost), "{model:?}");
    }
    let old = Story::loaded(1, 11).put(1, (0, 10), (2, 22)).put(1, (20, 30), (3, 33));
    let old = old.crash(100, &[Some((3, 33))]).crash(200, &[Some((2, 22))]);
    assert_eq!(old.survives(Persistency::Event), Some(Loss::Resurrected));
}

#[test]
fn what_follows_a_crash_begins_with_what_it_left() {
    let recovered = || Story::loaded(1, 11).put(1, (0, 10), (2, 22)).crash(100, &[Some((2, 22))]);
    assert_eq!(recovered().get(1, (110, 120), (2, 22)).survives(Persistency::Strict), None);
    let stale = recovered().get(1, (110, 120), (1, 11)).survives(Persistency::Strict);
    assert!(matches!(stale, Some(Loss::NotLinearizable(_))), "{stale:?}");
    // A key that nobody looked at may be either.
    let unseen = || Story::loaded(1, 11).put(1, (0, 10), (2, 22)).crash(100, &[]);
    for value in [(1, 11), (2, 22)] {
        assert_eq!(unseen().get(1, (110, 120), value).survives(Persistency::Event), None);
    }
}

#[test]
fn what_is_acknowledged_after_a_crash_may_have_come_before_it_or_after() {
    let model = Persistency::Strict;
    for versions in [true, false] {
        let version = |version| if versions { version } else { 0 };
        let asked = || Story::loaded(1, 11).put(1, (0, 200), (version(2), 22));
        let kept = |state| asked().crash(100, &[Some(state)]);
        // It was lost and sent again, or it survived and only its acknowledgement was late.
        for state in [(1, 11), (2, 22)] {
            let read = kept(state).get(2, (210, 220), (version(2), 22));
            assert_eq!(read.survives(model), None, "{versions}: after {state:?}");
        }
        // A newer write took its place before the crash.
        let replaced = asked().put(2, (10, 20), (version(3), 33)).crash(100, &[Some((3, 33))]);
        let replaced = replaced.get(2, (210, 220), (version(3), 33));
        assert_eq!(replaced.survives(model), None, "{versions}");
        // A read that was under way tells nothing.
        let read = Story::loaded(1, 11).put(1, (0, 10), (version(2), 22));
        let read = read.get(2, (20, 110), (version(2), 22)).crash(100, &[Some((1, 11))]);
        assert_eq!(read.survives(Persistency::Renf), None, "{versions}");
    }
    let lost = Story::loaded(1, 11).put(1, (0, 200), (2, 22)).crash(100, &[Some((1, 11))]);
    let lost = lost.get(2, (210, 220), (1, 11)).survives(model);
    assert!(matches!(lost, Some(Loss::NotLinearizable(Anomaly::StaleRead))), "{lost:?}");
}

#[test]
fn an_unknown_initial_value_is_taken_for_any_that_was_read() {
    let unseen = || Story::loaded(1, 11).put(1, (0, 10), (0, 22)).crash(100, &[]);
    let wrote = || unseen().put(1, (110, 120), (0, 33)).get(2, (110, 115), (0, 33));
    for early in [11, 22] {
        let right = wrote().get(3, (111, 115), (0, early));
        assert_eq!(right.survives(Persistency::Event), None, "{early}");
        let both = right.get(4, (111, 115), (0, 33 - early));
        assert!(both.survives(Persistency::Event).is_some(), "{early} and its neighbour");
    }
    let late = wrote().get(3, (121, 125), (0, 11)).survives(Persistency::Event);
    assert!(late.is_some(), "it was overwritten");
}

#[test]
fn a_scan_that_misses_a_record_that_nobody_else_touched_is_wrong() {
    let (first, last) = (Key::Number(0), Key::Number(9));
    let scan = |limit| Scan {
        first: first.clone(),
        last: last.clone(),
        backward: false,
        limit,
        found: vec![],
    };
    let story = |limit| Story::loaded(1, 11).add(1, (0, 10), End::Ok, Action::Scan(scan(limit)));
    assert!(story(None).judge().is_some());
    assert!(story(Some(1)).judge().is_some());
    assert_eq!(story(Some(0)).judge(), None, "it asked for nothing");
}

#[test]
fn an_unknown_write_that_was_seen_before_a_crash_does_not_come_again_after_it() {
    for versions in [true, false] {
        let version = |version| if versions { version } else { 0 };
        let unknown = || Story::loaded(1, 11).put_ended(1, (0, 10), End::Unknown, (0, 22));
        let replaced = |story: Story| story.put(2, (30, 35), (version(3), 33));
        let seen = replaced(unknown().get(2, (20, 25), (version(2), 22)));
        let again = |story: Story| {
            let story = story.crash(100, &[Some((3, 33))]);
            story.get(3, (110, 115), (version(4), 22)).survives(Persistency::Renf)
        };
        assert!(again(seen.clone()).is_some(), "{versions}");
        assert_eq!(again(replaced(unknown())), None, "{versions}: nobody had seen it");
        let two = seen.put_ended(4, (0, 10), End::Unknown, (0, 22));
        assert_eq!(again(two), None, "{versions}: one of each");
        // What the crash lost may come again, if the model permits the loss.
        let lost = unknown().get(2, (20, 25), (version(2), 22)).crash(100, &[Some((1, 11))]);
        let lost = lost.get(3, (110, 115), (version(2), 22));
        assert_eq!(lost.survives(Persistency::Event), None, "{versions}");
        assert_eq!(lost.survives(Persistency::Renf), Some(Loss::Lost), "{versions}");
    }
}

#[test]
fn a_value_without_a_digest_is_one_value() {
    let untold_digest = |story: Story| {
        let mut story = story;
        for operation in &mut story.history.operations {
            if let Action::Put { write, .. } = &mut operation.action {
                write.effect = Effect::Put { digest: None };
            }
        }
        if let Initial::Listed(loaded) = &mut story.history.initial {
            loaded.iter_mut().for_each(|loaded| loaded.digest = None);
        }
        story
    };
    for version in [0, 1] {
        for story in [Story::loaded(1, 11), Story::new().put(1, (0, 10), (version, 11))] {
            let story = untold_digest(story).get(2, (20, 30), (version, 55));
            assert_eq!(story.clone().get(2, (40, 50), (version, 55)).judge(), None);
            assert!(story.clone().get(2, (40, 50), (version, 66)).judge().is_some());
            let written = untold_digest(story.put(1, (32, 35), (2 * version, 66)));
            assert_eq!(written.get(2, (40, 50), (2 * version, 66)).judge(), None);
        }
    }
}

#[test]
fn versions_count_also_where_not_every_operation_tells_one() {
    let story = |second| {
        let story = Story::new().put(1, (0, 10), (5, 11)).get(2, (12, 15), (0, 11));
        story.put(1, (20, 30), (second, 22))
    };
    for second in [0, 6] {
        assert_eq!(story(second).judge(), None);
    }
    assert!(story(4).judge().is_some(), "a later write has a lower version");
    assert!(story(0).get(2, (40, 50), (3, 22)).judge().is_some(), "and is read at one");
    assert!(story(6).get(2, (40, 50), (7, 22)).judge().is_some(), "or at another one");
}

#[test]
fn what_was_there_at_first_is_one_state_whoever_tells_it() {
    for versions in [true, false] {
        let version = |version| if versions { version } else { 0 };
        let untold =
            || Story { history: History { initial: Initial::Untold, ..History::default() } };
        let record = |story: Story, time| story.get(1, time, (version(5), 55));
        for floor in [None, Some(0), Some(3)].map(|floor| floor.filter(|_| versions)) {
            let absent = untold().miss(1, (0, 10), floor);
            assert_eq!(absent.judge(), None);
            assert_eq!(record(untold(), (20, 30)).judge(), None);
            assert!(record(absent.clone(), (20, 30)).judge().is_some(), "nobody wrote it");
            let put = absent.put_ended(2, (12, 15), End::Unknown, (0, 55));
            assert_eq!(record(put, (20, 30)).judge(), None);
        }
        let deleted = record(untold(), (20, 30)).miss(1, (40, 50), versions.then_some(9));
        assert!(deleted.judge().is_some(), "nobody deleted it");
    }
}

#[test]
fn nothing_comes_behind_the_highest_version() {
    let story = |version| Story::loaded(version, 11).put(1, (0, 10), (0, 22));
    assert_eq!(story(u64::MAX - 1).get(2, (20, 30), (u64::MAX, 22)).judge(), None);
    for read in [5, u64::MAX] {
        assert!(story(u64::MAX).get(2, (20, 30), (read, 22)).judge().is_some(), "{read}");
    }
}

#[test]
fn a_scan_that_returns_what_it_was_not_asked_for_is_wrong() {
    let read = |key| Read { key: Key::Number(key), present: true, version: Some(1), digest: None };
    let scan = |keys: &[u64], limit, backward| {
        let found = keys.iter().map(|key| read(*key)).collect();
        let scan = Scan { first: Key::Number(5), last: Key::Number(9), backward, limit, found };
        let load = |key| Loaded { key: Key::Number(key), version: 1, digest: None };
        let initial = Initial::Listed([3, 6, 7].map(load).to_vec());
        let story = Story { history: History { initial, ..History::default() } };
        story.add(1, (0, 10), End::Ok, Action::Scan(scan))
    };
    assert_eq!(scan(&[6, 7], None, false).judge(), None);
    assert_eq!(scan(&[7, 6], Some(2), true).judge(), None);
    let wrong = [
        scan(&[3, 6, 7], None, false),
        scan(&[3], Some(1), false),
        scan(&[6, 6, 7], None, false),
        scan(&[7, 6], None, false),
        scan(&[6, 7], None, true),
        scan(&[6, 7], Some(1), false),
        scan(&[6, 7], Some(0), false),
    ];
    for story in wrong {
        assert_eq!(story.judge(), Some(Anomaly::WrongScan), "{:?}", story.history.operations);
        let loss = Some(Loss::NotLinearizable(Anomaly::WrongScan));
        assert_eq!(story.crash(100, &[]).survives(Persistency::Strict), loss);
    }
}
