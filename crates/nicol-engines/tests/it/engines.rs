//! Engines: what scans see while the tree under them changes, and how long locks are waited for.

use std::sync::Arc;

use nicol_core::ids::{Key, NodeId, ShardId, TableId};
use nicol_core::records::{RecordSource, Records};
use nicol_core::rng::Stream;
use nicol_core::txn::{Execute, KeyRange, ProcedureId, Procedures, Txn, Verdict};
use nicol_core::units::Nanos;
use nicol_core::view::ShardMap;
use nicol_core::workload::Workload;
use nicol_engines::{Cicada, EngineConfig, Node, Protocol, Silo, TicToc, TwoPhaseLocking, Waiting};
use nicol_schedule::FeatureMap;

use crate::cluster::{RUN, Ran, Run, run};

/// Bits of a key below its group's: a group is a prefix, so that leaves part between groups.
const GROUP_BITS: u32 = 24;
/// Of so many groups one is there from the start, and stays.
const STAYS: u64 = 3;

/// Groups of keys that come and go.
struct Groups {
    groups: u64,
    /// Keys of each.
    keys: u64,
    /// What its transactions do.
    kinds: &'static [Kind],
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Inserts the keys of a group, or deletes them.
    ToggleGroup,
    /// The same of one key.
    ToggleKey,
    /// Scans all groups, and outputs how many keys it finds out of their order.
    Scan,
    ScanBackward,
    /// Scans a group and then puts a key of it; outputs 1 if it finds that key by one of the scan
    /// and the read alone.
    PutAfterScan,
}

const NAMES: [&str; 5] = ["toggle_group", "toggle_key", "scan", "scan_backward", "put_after_scan"];

fn key(group: u64, at: u64) -> Key {
    Key::partitioned(TableId::ORDERED, 0, group << GROUP_BITS | at)
}

fn range(groups: std::ops::Range<u64>, backward: bool) -> KeyRange {
    KeyRange { first: key(groups.start, 0), last: key(groups.end, 0), backward, limit: 1_000 }
}

fn finish(txn: &mut Txn, output: usize) -> Verdict {
    txn.output.extend_from_slice(&(output as i64).to_le_bytes());
    Verdict::Commit
}

fn toggle(txn: &mut Txn) -> Verdict {
    for index in 0..txn.entries().len() {
        match txn.entries()[index].present {
            true => txn.delete(index),
            false => txn.put(index, &[7; 8]),
        }
    }
    finish(txn, 0)
}

/// The keys that are found in `range`.
fn found(txn: &mut Txn, range: KeyRange) -> Option<Vec<Key>> {
    let scan = txn.scan(range);
    let found = txn.found(scan)?;
    Some(found.iter().map(|at| txn.entries()[*at as usize].key).collect())
}

fn scan(txn: &mut Txn) -> Verdict {
    let backward = txn.procedure.0 == Kind::ScanBackward as u16;
    let groups = u64::from(txn.args()[0]);
    let Some(keys) = found(txn, range(0..groups, backward)) else { return Verdict::More };
    let follows = |pair: &&[Key]| if backward { pair[1] < pair[0] } else { pair[0] < pair[1] };
    let wrong = keys.windows(2).filter(|pair| !follows(pair)).count();
    finish(txn, wrong)
}

fn put_after_scan(txn: &mut Txn) -> Verdict {
    let (group, at) = (u64::from(txn.args()[0]), u64::from(txn.args()[1]));
    let Some(keys) = found(txn, range(group..group + 1, false)) else { return Verdict::More };
    let key = key(group, at);
    let index = txn.write(key);
    if !txn.entries()[index].fetched {
        return Verdict::More;
    }
    let differs = txn.entries()[index].present != keys.contains(&key);
    txn.put(index, &[8; 8]);
    finish(txn, usize::from(differs))
}

impl RecordSource for Groups {
    fn load(&self, _: &dyn ShardMap, _: ShardId, each: &mut dyn FnMut(Key, &[u8])) {
        for group in (0..self.groups).step_by(STAYS as usize) {
            (0..self.keys).for_each(|at| each(key(group, at), &[7; 8]));
        }
    }

    fn records_per_shard(&self) -> u64 {
        self.groups * self.keys
    }
}

impl Workload for Groups {
    fn name(&self) -> &'static str {
        "groups"
    }

    fn procedures(&self) -> Procedures {
        const LOGIC: [Execute; 5] = [toggle, toggle, scan, scan, put_after_scan];
        const SCANS: [u16; 2] = [Kind::Scan as u16, Kind::ScanBackward as u16];
        Procedures::new(&LOGIC).some_only_read(|txn| SCANS.contains(&txn.procedure.0))
    }

    fn next(&self, _: NodeId, random: &mut Stream, txn: &mut Txn) -> usize {
        let kind = self.kinds[random.below(self.kinds.len() as u64) as usize];
        let group = random.below(self.groups / STAYS) * STAYS + 1 + random.below(STAYS - 1);
        let at = random.below(self.keys);
        let args = match kind {
            Kind::PutAfterScan => [group as u8, at as u8],
            _ => [self.groups as u8, 0],
        };
        txn.reset(ProcedureId(kind as u16), &args);
        txn.local = true;
        match kind {
            Kind::ToggleGroup => (0..self.keys).for_each(|at| _ = txn.write(key(group, at))),
            Kind::ToggleKey => _ = txn.write(key(group, at)),
            Kind::Scan | Kind::ScanBackward | Kind::PutAfterScan => {}
        }
        kind as usize
    }

    fn adds_keys(&self, kind: usize) -> bool {
        kind == Kind::PutAfterScan as usize
    }

    fn kinds(&self) -> &'static [&'static str] {
        &NAMES
    }

    fn audit(&self, _: &mut dyn Records, totals: &[i128]) -> Vec<String> {
        let wrong = NAMES.iter().zip(totals).filter(|(_, total)| **total != 0);
        wrong.map(|(name, total)| format!("{name}: {total} keys are wrong")).collect()
    }
}

/// On six cores, with epochs that last as long as a few accesses.
fn ran<P: Protocol>(groups: Groups, waiting: Waiting, seed: u64) -> Ran
where
    Node<P>: nicol_core::commit::CommitNode + nicol_core::system::SystemNode<Config = EngineConfig>,
{
    stalled::<P>(groups, waiting, (Nanos::from_micros(2), 4_000), seed)
}

/// The same, whose steps suffer stalls up to so long ones.
fn stalled<P: Protocol>(
    groups: Groups,
    waiting: Waiting,
    (stall, transactions): (Nanos, u64),
    seed: u64,
) -> Ran
where
    Node<P>: nicol_core::commit::CommitNode + nicol_core::system::SystemNode<Config = EngineConfig>,
{
    let config = EngineConfig {
        epoch: Nanos::from_micros(1),
        stall,
        waiting,
        ..EngineConfig::published(8, FeatureMap::of(&groups))
    };
    let how = Run {
        on: "innova2",
        nodes: 1,
        replicas: 1,
        engines: 6,
        nic_engines_at_most: 1,
        clients_per_node: 12,
        transactions,
        ..RUN
    };
    run::<Node<P>>(&how, &config, Arc::new(groups), seed)
}

/// What is wrong with runs on so many seeds.
fn wrong(name: &str, seeds: u64, ran: impl Fn(u64) -> Ran) -> Vec<String> {
    let mut wrong = Vec::new();
    for seed in 0..seeds {
        let Ran { counts, leaked, anomalies, wrong: of_state, .. } = ran(seed);
        assert!(counts.committed > 3_000, "{name}, seed {seed}: {counts:?}");
        assert_eq!(leaked, 0, "{name}, seed {seed}");
        // Of an order that need not agree with time not every history can be judged.
        let of_state = of_state.into_iter().filter(|what| !what.starts_with("not judged"));
        let first = anomalies.into_iter().take(1).chain(of_state);
        wrong.extend(first.map(|what| format!("{name}, seed {seed}: {what}")));
    }
    wrong
}

#[test]
fn a_scan_of_the_past_meets_no_key_twice_when_an_empty_leaf_leaves_the_tree() {
    let kinds = &[Kind::ToggleGroup, Kind::Scan, Kind::ScanBackward];
    let ran = |seed| ran::<Cicada>(Groups { groups: 12, keys: 9, kinds }, Waiting::NoWait, seed);
    assert_eq!(wrong("cicada", 4, ran), [""; 0]);
}

#[test]
fn what_others_put_into_a_record_that_a_scan_s_own_transaction_has_made_is_no_phantom() {
    let kinds = &[Kind::ToggleKey, Kind::ToggleKey, Kind::PutAfterScan];
    let groups = || Groups { groups: 3, keys: 3, kinds };
    let mut all = wrong("silo", 6, |seed| ran::<Silo>(groups(), Waiting::NoWait, seed));
    all.extend(wrong("tictoc", 6, |seed| ran::<TicToc>(groups(), Waiting::NoWait, seed)));
    all.extend(wrong("cicada", 6, |seed| ran::<Cicada>(groups(), Waiting::NoWait, seed)));
    for waiting in [Waiting::NoWait, Waiting::WaitDie] {
        let ran = |seed| ran::<TwoPhaseLocking>(groups(), waiting, seed);
        all.extend(wrong(&format!("2pl, {waiting:?}"), 6, ran));
    }
    assert_eq!(all, [""; 0]);
}

#[test]
fn who_waits_for_a_holder_that_stalls_for_long_has_not_waited_for_ever() {
    let kinds = &[Kind::ToggleGroup, Kind::ToggleKey];
    let groups = Groups { groups: 3, keys: 3, kinds };
    let stalls = (Nanos::from_millis(10), 48);
    let ran = stalled::<TwoPhaseLocking>(groups, Waiting::WaitDie, stalls, 1);
    assert!(ran.held(), "{ran:#?}");
}
