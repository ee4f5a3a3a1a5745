use super::filled::Hinted;
use super::*;
use crate::host_table::{self, Growth, HostTable, SlotHash};

const RECORDS: u64 = 20_000;

#[test]
fn every_structure_costs_at_least_its_first_read_and_no_more_than_its_bound() {
    for structure in COMPARED {
        let cost = measure(structure, RECORDS, 1);
        assert_eq!(cost.records, RECORDS);
        assert!(cost.roundtrips >= RECORDS, "{structure:?}: a lookup reads");
        let first = match structure {
            Structure::Robinhood { .. } => 1,
            Structure::Remote(_) | Structure::Cached(_) => {
                u64::from(structure.parameter().unwrap())
            }
        };
        assert!(cost.objects >= first * RECORDS, "{structure:?}: {cost:?}");
        let beyond = cost.roundtrips - RECORDS;
        assert!(beyond >= cost.overflowed, "{structure:?}: overflow costs a round trip");
        let unlimited = structure.parameter().is_none();
        assert_eq!(unlimited, cost.overflowed == 0, "{structure:?}: {cost:?}");
    }
}

#[test]
fn chained_buckets_cost_what_counting_keys_per_bucket_says() {
    // The same keys, counted by home bucket: the n-th key of a bucket is ceil(n / B) reads off.
    let design = Design::Chained { bucket: 4 };
    let cost = measure(Structure::Remote(design), RECORDS, 3);
    let geometry = Geometry::new(config(design, cost.slots, VALUE_BYTES));
    let mut homes = vec![0u64; geometry.buckets() as usize];
    let mut roundtrips = 0;
    for key in keys(RECORDS, 3) {
        let home = &mut homes[geometry.bucket(key) as usize];
        *home += 1;
        roundtrips += home.div_ceil(4);
    }
    assert_eq!((cost.roundtrips, cost.objects), (roundtrips, 4 * roundtrips));
    let overflowed: u64 = homes.iter().map(|count| count.saturating_sub(4)).sum();
    assert_eq!(cost.overflowed, overflowed);
}

#[test]
fn a_limit_that_is_never_met_costs_what_none_does() {
    let geometry = host_table::Geometry::new(40_000, 64, VALUE_BYTES);
    let table = HostTable::new(geometry, RECORDS, Growth::Off);
    for key in keys(RECORDS, 5) {
        table.load(key, b"value");
    }
    assert_eq!(table.overflowed(), 0, "half full, it does not overflow");
    let hints = vec![0; geometry.segments() as usize];
    let (homes_per_hint, first_read) = (HomesPerHint::SEGMENT, FirstRead::Beyond);
    let mut nic = Hinted { table, probe_length: 64, homes_per_hint, first_read, hints };
    let mut bytes = Vec::new();
    let (mut teaching, mut tally) = (Tally::default(), Tally::default());
    keys(RECORDS, 5).for_each(|key| nic.lookup(key, &mut teaching, &mut bytes));
    keys(RECORDS, 5).for_each(|key| nic.lookup(key, &mut tally, &mut bytes));
    let homes = keys(RECORDS, 5).map(|key| SlotHash::of(key).base_slot(geometry.slots()));
    let computed = unlimited(homes, geometry.slots(), homes_per_hint, first_read);
    assert_eq!(
        (computed.objects, computed.roundtrips),
        (tally.objects, tally.roundtrips),
        "the table and the computation place the objects alike"
    );
    assert!(teaching.objects < tally.objects, "a cold index reads less, but more often");
}

#[test]
fn a_tighter_limit_reads_less_and_overflows_more() {
    let costs = [8, 16, 32]
        .map(|limit| measure(Structure::robinhood(Some(limit), HomesPerHint::SEGMENT), RECORDS, 2));
    assert!(costs[0].objects < costs[1].objects && costs[1].objects < costs[2].objects);
    assert!(costs[0].overflowed > costs[1].overflowed);
    assert!(costs[1].overflowed > costs[2].overflowed);
    assert!(costs[0].roundtrips > costs[2].roundtrips);
}

#[test]
fn a_finer_hint_reads_less_and_the_first_read_still_suffices() {
    for limit in [None, Some(16)] {
        let costs = [16, 8, 4, 2, 1].map(|homes| {
            let shared = HomesPerHint::new(homes).unwrap();
            measure(Structure::robinhood(limit, shared), RECORDS, 6)
        });
        for pair in costs.windows(2) {
            assert!(pair[1].objects < pair[0].objects, "{limit:?}: {costs:?}");
            assert_eq!(pair[1].roundtrips, pair[0].roundtrips, "{limit:?}: warm hints suffice");
        }
    }
}

#[test]
fn a_first_read_within_the_known_reach_takes_one_slot_less() {
    for limit in [None, Some(16)] {
        let within = Structure::robinhood(limit, HomesPerHint::ONE);
        let [within, beyond] =
            [within, within.reading(FirstRead::Beyond)].map(|it| measure(it, RECORDS, 7));
        assert_eq!(within.roundtrips, beyond.roundtrips, "{limit:?}: warm hints suffice");
        let less = beyond.objects - within.objects;
        match limit {
            None => assert_eq!(less, RECORDS),
            // A read that reaches D_m is cut short either way, and has its rest in a second read.
            Some(_) => assert!(less < RECORDS && less > RECORDS / 2, "{within:?} {beyond:?}"),
        }
    }
}

#[test]
fn a_remembered_address_costs_one_slot() {
    let design = Design::Chained { bucket: 4 };
    let walked = measure(Structure::Remote(design), RECORDS, 4);
    let cached = measure(Structure::Cached(design), RECORDS, 4);
    assert!(cached.roundtrips < walked.roundtrips);
    // The keys of a set of addresses that is too small for them drive each other out: walks.
    assert!(cached.objects < RECORDS + RECORDS / 4, "{cached:?}");
    assert!(cached.objects >= RECORDS, "{cached:?}");
}
