//! TATP's transactions, and how often they find what they ask for.

use std::collections::BTreeMap;

use nicol_core::ids::Version;
use nicol_core::rng::Purpose;
use nicol_core::txn::Verdict;

use super::*;

const SUBSCRIBERS: u64 = 20_000;

fn tatp() -> Tatp {
    Tatp::new(TatpConfig { nodes: 1, subscribers_per_node: SUBSCRIBERS, ship: true })
}

fn initial(tatp: &Tatp) -> BTreeMap<Key, Vec<u8>> {
    let mut records = BTreeMap::new();
    for subscriber in 0..tatp.subscribers {
        each_of(subscriber, &mut |key, value| _ = records.insert(key, value.to_vec()));
    }
    records
}

/// Runs `txn` on `records` to its end.
fn run(procedures: &Procedures, txn: &mut Txn, records: &BTreeMap<Key, Vec<u8>>) -> Verdict {
    loop {
        for index in 0..txn.entries().len() {
            let value = records.get(&txn.entries()[index].key).map(Vec::as_slice);
            txn.fetched(index, Version(1), value);
        }
        match procedures.execute(txn) {
            Verdict::More => {}
            ended => return ended,
        }
    }
}

#[test]
fn transactions_find_what_they_ask_for_as_often_as_specified() {
    let (tatp, mut random) = (tatp(), Stream::new(1, Purpose::Test, 0));
    let (procedures, records) = (tatp.procedures(), initial(&tatp));
    let (mut asked, mut found) = ([0_u32; 7], [0_u32; 7]);
    let mut txn = Txn::default();
    for _ in 0..60_000 {
        let kind = tatp.next(NodeId(0), &mut random, &mut txn);
        let committed = run(&procedures, &mut txn, &records) == Verdict::Commit;
        let reads = kind <= 2;
        assert!(committed || !reads, "what only reads always commits");
        asked[kind] += 1;
        found[kind] += u32::from(committed && (!reads || txn.output.len() > 8));
    }
    // [TATP 1.0: 62.5 and 31.25 %]; of new destinations what follows from the specified choices.
    let expected = [1_000, 142, 625, 625, 1_000, 312, 312];
    for kind in 0..7 {
        let share = 1_000 * found[kind] / asked[kind];
        assert!(share.abs_diff(expected[kind]) < 50, "{kind}: {share} of 1000");
    }
}

struct Kept(BTreeMap<Key, Vec<u8>>);

impl Records for Kept {
    fn read(&mut self, key: Key) -> Option<Vec<u8>> {
        self.0.get(&key).cloned()
    }

    fn for_each(&mut self, each: &mut dyn FnMut(Key, &[u8])) {
        self.0.iter().for_each(|(key, value)| each(*key, value));
    }
}

#[test]
fn the_audit_finds_what_is_lost_torn_too_much_or_of_nothing() {
    let tatp = Tatp::new(TatpConfig { nodes: 1, subscribers_per_node: 20, ship: true });
    let whole = initial(&tatp);
    let audit = |records: &BTreeMap<Key, Vec<u8>>, change| {
        tatp.audit(&mut Kept(records.clone()), &[0, 0, 0, 0, 0, change, 0]).join("; ")
    };
    assert_eq!(audit(&whole, 0), "");
    assert!(audit(&whole, 1).contains("forwardings"), "an insertion that left nothing");
    for table in [SUBSCRIBER, ACCESS_INFO, SPECIAL_FACILITY, CALL_FORWARDING, NUMBERS] {
        let key = *whole.keys().find(|key| key.table() == table).unwrap();
        let mut lost = whole.clone();
        lost.remove(&key);
        assert!(!audit(&lost, 0).is_empty(), "{table:?}: lost");
        let mut torn = whole.clone();
        *torn.get_mut(&key).unwrap().last_mut().unwrap() ^= 1;
        // Where a subscriber is may be anything.
        assert_eq!(audit(&torn, 0).is_empty(), table == SUBSCRIBER, "{table:?}: torn");
    }
    let of_nothing = (0..20)
        .flat_map(|one| (0..TYPES).map(move |kind| (one, kind)))
        .find(|asked| !whole.contains_key(&facility_of(asked.0, asked.1)));
    let (subscriber, kind) = of_nothing.unwrap();
    let key = forwarding_of(subscriber, kind, 0);
    let mut more = whole.clone();
    more.insert(key, rows::call_forwarding(key, 3).to_vec());
    assert!(audit(&more, 1).contains("no facility"));
}

#[test]
fn records_are_as_many_as_tables_have_space_for() {
    let tatp = tatp();
    let records = initial(&tatp);
    let of = |table| records.keys().filter(|key| key.table() == table).count() as u64;
    let all = records.len() as u64;
    assert!((10 * SUBSCRIBERS..=tatp.records_per_shard()).contains(&all), "{all}");
    let most = all - of(CALL_FORWARDING) + STARTS * of(SPECIAL_FACILITY);
    assert!(most <= tatp.records_per_shard() + tatp.growth_per_shard(), "{most}");
}

#[test]
fn requests_by_number_are_scheduled_by_what_the_index_leads_to() {
    let (tatp, mut random) = (tatp(), Stream::new(2, Purpose::Test, 0));
    let (procedures, mut txn) = (tatp.procedures(), Txn::default());
    for _ in 0..2_000 {
        let kind = tatp.next(NodeId(0), &mut random, &mut txn);
        let mut keys = Vec::new();
        procedures.features(&txn, &mut |key, write| keys.push((key.table(), write)));
        match kind {
            4 => assert_eq!(keys, [(SUBSCRIBER, true)]),
            5 | 6 => assert_eq!(keys, [(CALL_FORWARDING, true)]),
            _ => assert!(keys.iter().all(|(table, _)| *table != NUMBERS) && !keys.is_empty()),
        }
    }
}

#[test]
fn a_peer_s_nonsense_is_refused() {
    let procedures = tatp().procedures();
    let asked = Asked { subscriber: 3, kind: 1, start: 8, end: 9, data: 0 };
    let mut args = asked.emit();
    for procedure in 0..8 {
        let mut txn = Txn::default();
        for bad in [&args[..3], &[u8::MAX; 15]] {
            txn.reset(ProcedureId(procedure), bad);
            txn.write(subscriber_of(3));
            assert_eq!(procedures.execute(&mut txn), Verdict::Refuse);
        }
        txn.reset(ProcedureId(procedure), &args);
        assert_eq!(procedures.execute(&mut txn), Verdict::Refuse, "no keys");
        txn.write(access_of(3, 0));
        assert_eq!(procedures.execute(&mut txn), Verdict::Refuse, "another key, not fetched");
        txn.fetched(0, Version(1), Some(&[1, 2, 3]));
        assert_eq!(procedures.execute(&mut txn), Verdict::Refuse);
    }
    args[9] = 7;
    assert_eq!(Asked::parse(&args), None, "forwarding starts every eight hours");
}
