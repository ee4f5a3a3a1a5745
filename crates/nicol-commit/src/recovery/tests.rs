use nicol_core::fabric::Message;
use nicol_core::ids::{EngineId, Incarnation, Key, Version};
use nicol_core::rng::{Purpose, Stream};
use nicol_core::wire::Writer;

use super::*;
use crate::decided::Decided;
use crate::log::Tail;

/// A transaction: its number, and a write for each of its shards.
#[derive(Clone, Debug)]
struct Sample {
    id: TxnId,
    shards: Vec<ShardId>,
}

fn sample(number: u64, shards: &[u16]) -> Sample {
    let id = TxnId::new(EngineId::nic(NodeId(0), 0), Incarnation::FIRST, number);
    Sample { id, shards: shards.iter().map(|&shard| ShardId(shard)).collect() }
}

impl Sample {
    fn version(&self) -> Version {
        Version(self.id.sequence())
    }

    /// The record of one of its shards: it writes the key whose number is the shard's.
    fn record(&self, kind: RecordKind, shard: ShardId) -> Vec<u8> {
        let mut body = self.id.0.to_le_bytes().to_vec();
        let part = (self.shards.len() as u32) << 23 | 1 << 12 | u32::from(shard.0);
        body.extend_from_slice(&part.to_le_bytes());
        body.extend_from_slice(&u64::from(shard.0).to_le_bytes());
        body.extend_from_slice(&self.version().0.to_le_bytes());
        body.extend_from_slice(&3_u32.to_le_bytes());
        body.extend_from_slice(b"val");
        let mut record = Vec::new();
        Tail::new(1 << 20).frame(kind, &body, &mut record);
        record
    }
}

fn view(replicas: usize) -> View {
    View::new(3, replicas, 1, 1).unwrap()
}

/// One node's log: whose record each is, and whether it is still whole.
#[derive(Clone, Debug)]
struct Entry {
    sample: usize,
    kind: RecordKind,
    shard: ShardId,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Whole,
    Named,
    Nameless,
}

fn entry(sample: usize, kind: RecordKind, shard: ShardId) -> Entry {
    Entry { sample, kind, shard, state: State::Whole }
}

/// What recovery makes of these logs: which samples it takes.
fn decide(
    view: &View,
    samples: &[Sample],
    logs: &[Vec<Entry>],
) -> Result<(Vec<bool>, Counts), Undecidable> {
    let mut seen = Logs::new(view);
    for (node, log) in logs.iter().enumerate() {
        let node = NodeId(node as u16);
        for Entry { sample, kind, shard, state } in log {
            let record = samples[*sample].record(*kind, *shard);
            match state {
                State::Whole => seen.note(node, &record).unwrap(),
                State::Named => seen.note_lost(node, Some(&record[..LEAD])),
                State::Nameless => seen.note_lost(node, None),
            }
        }
    }
    let decided = seen.decide()?;
    let mut recovered = Recovered::default();
    for (entry, sample) in
        logs.iter().flatten().filter(|e| e.state == State::Whole).map(|e| (e, &samples[e.sample]))
    {
        let mut each = |key, version, value: Option<&[u8]>| recovered.apply(key, version, value);
        decided.for_each_write(&sample.record(entry.kind, entry.shard), &mut each).unwrap();
    }
    let taken: Vec<bool> =
        samples.iter().map(|sample| decided.taken.contains_key(&sample.id)).collect();
    // Of every key the newest write of a transaction that is taken.
    for key in 0..3 {
        let writes = |sample: &Sample| sample.shards.contains(&ShardId(key));
        let newest = samples.iter().zip(&taken).filter(|&(sample, &taken)| taken && writes(sample));
        let newest = newest.map(|(sample, _)| sample.version()).max();
        let found = recovered.get(Key(u64::from(key))).map(|(version, _)| version);
        assert_eq!(found, newest, "key {key}");
    }
    Ok((taken, decided.counts))
}

/// The records of `sample`: those of LOG at all backups, then those of COMMIT; by node.
fn records(view: &View, number: usize, sample: &Sample) -> Vec<(NodeId, Entry)> {
    let logs = sample.shards.iter().flat_map(|&shard| {
        view.backups(shard).map(move |node| (node, entry(number, RecordKind::Log, shard)))
    });
    let commits = sample
        .shards
        .iter()
        .map(|&shard| (view.primary(shard), entry(number, RecordKind::Commit, shard)));
    logs.chain(commits).collect()
}

#[test]
fn a_transaction_is_taken_as_a_whole_or_left_out_as_a_whole() {
    let (view, samples) = (view(2), [sample(1, &[0, 1])]);
    let all = records(&view, 0, &samples[0]);
    // Two LOGs, then two COMMITs, in every order in which they may be durable.
    for there in 0_u32..16 {
        let commits_behind_logs = there >> 2 == 0 || there & 3 == 3;
        if !commits_behind_logs {
            continue;
        }
        let mut logs = vec![Vec::new(); 3];
        for (bit, (node, entry)) in all.iter().enumerate() {
            if there >> bit & 1 == 1 {
                logs[node.index()].push(entry.clone());
            }
        }
        let (taken, counts) = decide(&view, &samples, &logs).unwrap();
        assert_eq!(taken, [there & 3 == 3], "records {there:04b}");
        assert_eq!(counts.left_out, u64::from(there == 1 || there == 2));
    }
}

#[test]
fn what_a_backup_was_told_to_drop_is_left_out_whatever_else_is_logged() {
    let (view, samples) = (view(2), [sample(1, &[0, 1]), sample(2, &[0, 1])]);
    let ended = |sample: &Sample, fate| Decision { txn: sample.id, fate };
    let mut body = Vec::new();
    let told = [ended(&samples[0], Fate::Aborted), ended(&samples[1], Fate::Committed)];
    Decided(&told).emit(&mut Writer::new(&mut body));
    let mut decisions = Vec::new();
    Tail::new(1 << 20).frame(RecordKind::Decisions, &body, &mut decisions);
    // Whether it is read before the LOGs or after them.
    for first in [false, true] {
        let mut logs = Logs::new(&view);
        if first {
            logs.note(NodeId(2), &decisions).unwrap();
        }
        for sample in &samples {
            for (shard, backup) in [(0, 1), (1, 2)] {
                let record = sample.record(RecordKind::Log, ShardId(shard));
                logs.note(NodeId(backup), &record).unwrap();
            }
        }
        if !first {
            logs.note(NodeId(2), &decisions).unwrap();
        }
        let decided = logs.decide().unwrap();
        assert_eq!(samples.each_ref().map(|sample| decided.takes(sample.id)), [false, true]);
        assert_eq!((decided.counts.taken, decided.counts.left_out), (1, 1));
        let mut writes = 0;
        decided.for_each_write(&decisions, &mut |_, _, _| writes += 1).unwrap();
        assert_eq!(writes, 0);
    }
    assert!(Logs::new(&view).note(NodeId(2), &decisions[8..]).is_err());
}

#[test]
fn a_lost_record_is_made_up_for_or_refused() {
    let samples = [sample(1, &[0])];
    let logs_with = |view: &View, states: &[State]| {
        let mut logs = vec![Vec::new(); 3];
        for ((node, entry), &state) in records(view, 0, &samples[0]).into_iter().zip(states) {
            logs[node.index()].push(Entry { state, ..entry });
        }
        logs
    };
    use State::{Named, Nameless, Whole};
    // With three replicas: two LOGs, a COMMIT.
    let three = view(3);
    let decide_3 = |states: &[State]| decide(&three, &samples, &logs_with(&three, states));
    for states in [[Named, Whole, Whole], [Nameless, Whole, Whole], [Named, Named, Whole]] {
        assert_eq!(decide_3(&states).unwrap().0, [true], "{states:?}");
    }
    assert_eq!(decide_3(&[Named, Named, Named]), Err(Undecidable::Transaction(samples[0].id)));
    assert_eq!(decide_3(&[Named, Named]), Err(Undecidable::Transaction(samples[0].id)));
    assert_eq!(decide_3(&[Nameless, Nameless]), Err(Undecidable::Shard(ShardId(0))));
    // A record that only one of two backups ever had was not acknowledged, whole or lost.
    assert_eq!(decide_3(&[Named]).unwrap().0, [false]);
    // With two replicas the COMMIT makes up for a LOG that is known to be lost.
    let two = view(2);
    let decide_2 = |states: &[State]| decide(&two, &samples, &logs_with(&two, states));
    assert_eq!(decide_2(&[Named, Whole]).unwrap().0, [true]);
    assert_eq!(decide_2(&[Named]), Err(Undecidable::Transaction(samples[0].id)));
    assert_eq!(decide_2(&[Nameless, Whole]), Err(Undecidable::Shard(ShardId(0))));
}

/// A shard that no log has a record of is enough: what else is lost of the transaction does not
/// matter, since it was not acknowledged.
#[test]
fn a_lost_record_of_what_was_not_logged_everywhere_refuses_nothing() {
    for replicas in [2, 3] {
        let (view, samples) = (view(replicas), [sample(1, &[0, 1]), sample(2, &[2])]);
        let mut logs = vec![Vec::new(); 3];
        for (node, there) in records(&view, 0, &samples[0]) {
            if there.shard == ShardId(0) && there.kind == RecordKind::Log {
                logs[node.index()].push(Entry { state: State::Named, ..there });
            }
        }
        for (node, there) in records(&view, 1, &samples[1]) {
            logs[node.index()].push(there);
        }
        let (taken, counts) = decide(&view, &samples, &logs).unwrap();
        assert_eq!((taken, counts.left_out), (vec![false, true], 1), "{replicas} replicas");
        // Unless a log that may have had the other shard's record has lost one of nobody knows who.
        let backups: Vec<NodeId> = view.backups(ShardId(1)).collect();
        for backup in backups {
            logs[backup.index()]
                .push(Entry { state: State::Nameless, ..entry(0, RecordKind::Log, ShardId(1)) });
        }
        assert!(decide(&view, &samples, &logs).is_err(), "{replicas} replicas");
    }
}

/// Draws transactions at any point of their way, and damage; returns them, who was acknowledged,
/// and the logs.
fn draw(rng: &mut Stream, view: &View, damaged: u64) -> (Vec<Sample>, Vec<bool>, Vec<Vec<Entry>>) {
    let mut samples = Vec::new();
    let mut acknowledged = Vec::new();
    let mut logs = vec![Vec::new(); 3];
    for number in 0..6 {
        let shards: Vec<u16> = (0..3).filter(|_| rng.below(2) == 0).collect();
        if shards.is_empty() {
            continue;
        }
        let sample = sample(number + 1, &shards);
        let all = records(view, samples.len(), &sample);
        let log_count = all.len() - sample.shards.len();
        let whole = rng.below(3) > 0;
        acknowledged.push(whole);
        for (index, (node, entry)) in all.into_iter().enumerate() {
            let there = match whole {
                true => index < log_count || rng.below(2) == 0,
                false => index < log_count - 1 && rng.below(2) == 0,
            };
            if there {
                logs[node.index()].push(entry);
            }
        }
        samples.push(sample);
    }
    for _ in 0..damaged {
        let node = if damaged == 1 { 1 } else { rng.below(3) as usize };
        if logs[node].is_empty() {
            continue;
        }
        let at = rng.below(logs[node].len() as u64) as usize;
        logs[node][at].state = if rng.below(2) == 0 { State::Named } else { State::Nameless };
    }
    (samples, acknowledged, logs)
}

#[test]
fn nothing_acknowledged_is_lost_and_nothing_appears_half_whatever_is_damaged() {
    let (mut refused, mut repaired) = (0, 0);
    for seed in 0..20_000 {
        let rng = &mut Stream::new(seed, Purpose::Workload, 0);
        let view = view(2 + seed as usize % 2);
        let damaged = seed / 2 % 4;
        let (samples, acknowledged, logs) = draw(rng, &view, damaged);
        match decide(&view, &samples, &logs) {
            Ok((taken, counts)) => {
                for (sample, (taken, acknowledged)) in taken.iter().zip(&acknowledged).enumerate() {
                    assert!(taken | !acknowledged, "seed {seed}: {:?} is lost", samples[sample]);
                }
                repaired += counts.repaired;
            }
            Err(error) => {
                // With three replicas one damaged log never matters.
                let matters = damaged > 1 || damaged == 1 && view.replicas() == 2;
                assert!(matters, "seed {seed}: {error}");
                refused += 1;
            }
        }
    }
    assert!(refused > 1_000 && repaired > 1_000, "{refused} refused, {repaired} repaired");
}

#[test]
fn what_no_node_writes_is_no_record() {
    let view = view(3);
    let good = sample(1, &[0]).record(RecordKind::Log, ShardId(0));
    let node = view.backups(ShardId(0)).next().unwrap();
    assert_eq!(Logs::new(&view).note(node, &good), Ok(()));
    assert_eq!(Logs::new(&view).note(view.primary(ShardId(0)), &good), Ok(()));
    let two = self::view(2);
    assert_eq!(Logs::new(&two).note(NodeId(2), &good), Err(NotARecord), "no replica");
    let message = sample(1, &[0]).record(RecordKind::Message, ShardId(0));
    for bad in [&good[..good.len() - 8], &good[..8], &[], &message] {
        assert_eq!(Logs::new(&view).note(node, bad), Err(NotARecord));
    }
    let beyond = sample(1, &[3]).record(RecordKind::Log, ShardId(3));
    assert_eq!(Logs::new(&view).note(node, &beyond), Err(NotARecord));
}
