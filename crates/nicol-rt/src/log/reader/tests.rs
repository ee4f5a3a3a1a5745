use nicol_core::ids::NodeId;
use nicol_core::rng::{Purpose, Stream};
use nicol_core::view::View;

use super::*;

const NONCE: u64 = 0x0bad_cafe_f00d_beef;

fn header() -> LogHeader {
    let view = View::new(3, 2, 1, 2).unwrap().with_hash_seed(0x1234_5678_9abc_def0);
    LogHeader { node: NodeId(1), view, life: 7, nonce: NONCE }
}

/// A file with records in groups; returns it, and where each record begins.
fn file(groups: &[&[&[u8]]]) -> (Vec<u8>, Vec<usize>) {
    let (mut file, mut starts) = (header().emit().to_vec(), Vec::new());
    let mut sequence = 0;
    for group in groups {
        let durable = sequence;
        for bytes in *group {
            sequence += 1;
            starts.push(file.len());
            let engine = EngineId::nic(NodeId(1), sequence as u8 % 2);
            let offset = 8 * sequence;
            let record = LogRecord { sequence, durable, engine, label: 3, offset, bytes };
            record.emit(NONCE, &mut file);
        }
    }
    (file, starts)
}

type Bodies = Vec<(u64, Vec<u8>)>;

/// The bodies that a reader finds, with their numbers; what is lost; the last that was durable.
fn read(file: &[u8]) -> (Bodies, Vec<Lost>, u64) {
    let mut reader = LogReader::open(file).unwrap();
    let (mut bodies, mut lost) = (Vec::new(), Vec::new());
    while let Some(entry) = reader.next().unwrap() {
        match entry {
            LogEntry::Record(record) => {
                assert_eq!((record.label, record.offset), (3, 8 * record.sequence));
                bodies.push((record.sequence, record.bytes.to_vec()));
            }
            LogEntry::Lost(one) => lost.push(one),
        }
    }
    assert!(reader.next().unwrap().is_none(), "the end stays the end");
    let end = reader.offset() as usize;
    assert!(file[end..].iter().all(|byte| *byte == 0), "zeros alone are reserved");
    (bodies, lost, reader.durable())
}

#[test]
fn records_survive_their_file() {
    let (file, _) = file(&[&[b"one", b""], &[&[9; 5_000]]]);
    assert_eq!(LogReader::open(&*file).unwrap().header(), &header());
    let (found, lost, durable) = read(&file);
    let expected = [(1, b"one".to_vec()), (2, Vec::new()), (3, vec![9; 5_000])];
    assert_eq!((found, lost, durable), (expected.to_vec(), Vec::new(), 2));
}

#[test]
fn zeros_to_the_end_are_reserved_and_zeros_before_a_record_are_lost_ones() {
    let (whole, starts) = file(&[&[b"first"], &[b"second"], &[&[b't'; 90]]]);
    for zeros in [1, RECORD_FRAMING - 1, RECORD_FRAMING, 3 * CHUNK + 17] {
        let mut reserved = whole.clone();
        reserved.resize(whole.len() + zeros, 0);
        let mut reader = LogReader::open(&*reserved).unwrap();
        (0..3).for_each(|_| assert!(matches!(reader.next(), Ok(Some(LogEntry::Record(_))))));
        assert!(reader.next().unwrap().is_none());
        assert_eq!(reader.offset(), whole.len() as u64, "{zeros} zeros");
        // The last record did not reach the disk, or the one before it.
        let mut lost_last = reserved.clone();
        lost_last[starts[2]..whole.len()].fill(0);
        let (found, lost, _) = read(&lost_last);
        assert_eq!((found.len(), lost.len()), (2, 0), "{zeros} zeros");
        reserved[starts[1]..starts[2]].fill(0);
        let (found, lost, durable) = read(&reserved);
        assert_eq!((found.len(), lost.len()), (2, 1), "{zeros} zeros");
        assert!(lost[0].is_damage(durable), "the third says that it was durable");
        // What is behind the zeros is not reserved.
        reserved[starts[1]..].fill(0);
        reserved.push(1);
        let expected = Lost { offset: starts[1] as u64, first: 2, records: None, lead: None };
        assert_eq!(read(&reserved).1, [expected], "{zeros} zeros");
    }
}

#[test]
fn a_torn_tail_is_no_damage_wherever_it_is_cut() {
    let (whole, starts) = file(&[&[b"first"], &[&[b's'; 100]]]);
    for cut in starts[1]..whole.len() {
        let (found, lost, durable) = read(&whole[..cut]);
        assert_eq!(found, [(1, b"first".to_vec())], "cut at {cut}");
        assert_eq!(lost.len(), usize::from(cut > starts[1]), "cut at {cut}");
        assert!(lost.iter().all(|lost| !lost.is_damage(durable)), "cut at {cut}");
    }
}

#[test]
fn a_flipped_bit_loses_one_record_and_is_damage_if_it_was_durable() {
    let (whole, starts) = file(&[&[&[b'a'; 70], &[b'b'; 70]], &[b"third"]]);
    for bit in 8 * HEADER_LEN..8 * whole.len() {
        let mut bad = whole.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        let (found, lost, durable) = read(&bad);
        let hit = starts.iter().filter(|&&start| start <= bit / 8).count() as u64;
        let expected: Vec<u64> = (1..=3).filter(|&sequence| sequence != hit).collect();
        let numbers: Vec<u64> = found.iter().map(|&(sequence, _)| sequence).collect();
        assert_eq!(numbers, expected, "bit {bit}");
        assert_eq!(lost.len(), 1, "bit {bit}: {lost:?}");
        assert_eq!((lost[0].first, lost[0].offset), (hit, starts[hit as usize - 1] as u64));
        assert_eq!(lost[0].is_damage(durable), hit < 3, "bit {bit}");
        // Its writer is known, unless the head or the lead itself is hit.
        let named = bit / 8 >= starts[hit as usize - 1] + RECORD_FRAMING + LEAD;
        assert_eq!(lost[0].lead.is_some(), named, "bit {bit}");
        assert!(lost[0].lead.is_none_or(|lead| lead == [b'a' + hit as u8 - 1; LEAD]));
    }
    for bit in 0..8 * HEADER_LEN {
        let mut bad = whole.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        assert!(LogReader::open(&*bad).is_err(), "bit {bit} of the header");
    }
    assert!(LogReader::open(&whole[..HEADER_LEN - 1]).is_err());
}

#[test]
fn a_whole_record_of_another_time_file_or_node_is_none() {
    let engine = EngineId::nic(NodeId(1), 0);
    let other_node = EngineId::nic(NodeId(0), 0);
    for (sequence, engine, nonce) in
        [(1, engine, NONCE), (3, engine, NONCE), (2, other_node, NONCE), (2, engine, NONCE + 1)]
    {
        let (mut file, starts) = file(&[&[b"first"]]);
        let end = file.len();
        let bytes = b"stale";
        let record = LogRecord { sequence, durable: 1, engine, label: 3, offset: 16, bytes };
        record.emit(nonce, &mut file);
        let (found, lost, _) = read(&file);
        assert_eq!((found.len(), starts.len()), (1, 1));
        let expected = Lost { offset: end as u64, first: 2, records: None, lead: None };
        assert_eq!(lost, [expected]);
    }
}

#[test]
fn a_hostile_length_takes_no_memory() {
    let (mut long, _) = file(&[]);
    long.extend_from_slice(&[0xff; 2 * RECORD_FRAMING]);
    let (found, lost, _) = read(&long);
    assert_eq!((found.len(), lost.len(), lost[0].records), (0, 1, None));
    let (mut empty, _) = file(&[]);
    let engine = EngineId::nic(NodeId(1), 0);
    let bytes = &[1; 1_000];
    LogRecord { sequence: 1, durable: 0, engine, label: 0, offset: 8, bytes }
        .emit(NONCE, &mut empty);
    empty.truncate(HEADER_LEN + RECORD_FRAMING + 50);
    assert_eq!(read(&empty).1[0].lead, Some([1; LEAD]));
}

/// A disk that loses any part of what was not synced: whatever it leaves, what was synced is read,
/// nothing is called damage, and nothing is read that was not written.
#[test]
fn what_a_crash_leaves_of_the_last_group_is_never_damage() {
    for seed in 0..3_000 {
        let rng = &mut Stream::new(seed, Purpose::Medium, 0);
        let body = |rng: &mut Stream| vec![rng.bits() as u8; rng.below(1_500) as usize];
        let synced: Vec<Vec<u8>> = (0..rng.below(4)).map(|_| body(rng)).collect();
        let last: Vec<Vec<u8>> = (0..1 + rng.below(5)).map(|_| body(rng)).collect();
        let slices = |group: &[Vec<u8>]| group.iter().map(Vec::clone).collect::<Vec<_>>();
        let all: Vec<Vec<u8>> = [slices(&synced), slices(&last)].concat();
        let refs: Vec<&[u8]> = all.iter().map(Vec::as_slice).collect();
        let (first, second) = refs.split_at(synced.len());
        let (mut file, starts) = file(&[first, second]);
        let durable_bytes = starts[synced.len()];
        for line in file[durable_bytes..].chunks_mut(512) {
            match rng.below(3) {
                0 => line.fill(0),
                1 => line.fill(rng.bits() as u8),
                _ => {}
            }
        }
        if rng.below(2) == 0 {
            file.truncate(durable_bytes + rng.below((file.len() - durable_bytes) as u64) as usize);
        }
        let (found, lost, durable) = read(&file);
        assert!(lost.iter().all(|lost| !lost.is_damage(durable)), "seed {seed}: {lost:?}");
        for sequence in 1..=synced.len() as u64 {
            assert!(found.iter().any(|&(number, _)| number == sequence), "seed {seed}");
        }
        for (sequence, bytes) in found {
            assert_eq!(bytes, all[sequence as usize - 1], "seed {seed}");
        }
    }
}
