//! Changes that make a right history wrong.

use nicol_core::history::{Effect, End, History, Initial, Key, Loaded, Read, Scan, Write};

use crate::Kind;
use crate::victims::{Pair, Victims, txn, txn_mut};

/// The kinds, with their names.
pub const KINDS: [Kind; 32] = [
    ("two installs of one version", |history, pick| {
        pair(history, pick, |history, pair| {
            let write = txn(&history.operations[pair.writer]).writes[pair.write].clone();
            append_write(history, write)
        })
    }),
    ("an install at the loaded version", |history, pick| {
        let Initial::Listed(loaded) = &history.initial else { return false };
        let key = loaded[pick % loaded.len()].key.clone();
        append_write(history, put(key, 1))
    }),
    ("version 0 installed", |history, _| append_write(history, put(Key::Number(7 << 48), 0))),
    ("a version that nobody installed", |history, pick| {
        read(history, pick, |read| read.present, |read| read.version = Some(1 << 40))
    }),
    ("version 0 read", |history, pick| {
        read(history, pick, |read| read.present, |read| read.version = Some(0))
    }),
    ("a stale read", |history, pick| {
        in_time(history, pick, |history, pair| older(history, pair.reader, pair.read))
    }),
    ("a lookup that misses a record", |history, pick| {
        read(
            history,
            pick,
            |read| read.present,
            |read| {
                (read.present, read.digest) = (false, None);
            },
        )
    }),
    ("a lookup that finds a record that is gone", |history, pick| {
        read(history, pick, |read| !read.present, |read| read.present = true)
    }),
    ("a loaded record missed", |history, pick| {
        let loaded = |read: &Read| read.present && read.version == Some(1);
        read(history, pick, loaded, |read| {
            (read.present, read.version, read.digest) = (false, Some(0), None);
        })
    }),
    ("an absence above a record", |history, pick| {
        read(
            history,
            pick,
            |read| read.present,
            |read| {
                (read.present, read.digest) = (false, None);
                read.version = read.version.map(|version| version + 1);
            },
        )
    }),
    ("wrong bytes read", |history, pick| values(history, pick, false)),
    ("wrong bytes written", |history, pick| values(history, pick, true)),
    ("wrong bytes loaded", |history, pick| {
        let loaded = |read: &Read| read.version == Some(1) && read.digest.is_some();
        let Some((at, read)) = Victims::of(history).read(pick, |_, read| loaded(read)) else {
            return false;
        };
        let key = txn(&history.operations[at]).reads[read].key.clone();
        let Initial::Listed(records) = &mut history.initial else { return false };
        let record = records.iter_mut().find(|record| record.key == key);
        record.map(|record| record.digest = record.digest.map(|digest| !digest)).is_some()
    }),
    ("a writer left out", |history, pick| {
        pair(history, pick, |history, pair| {
            history.operations.remove(pair.writer);
            true
        })
    }),
    ("a read of an aborted write", |history, pick| {
        pair(history, pick, |history, pair| {
            history.operations[pair.writer].end = End::Failed;
            true
        })
    }),
    ("a read of its own write", |history, pick| {
        let victims = Victims::of(history);
        let both = |at: &usize| {
            let operation = &history.operations[*at];
            let txn = txn(operation);
            operation.end == End::Ok
                && txn.writes.first().is_some_and(|write| {
                    write.effect != Effect::Delete
                        && txn.reads.iter().any(|read| read.key == write.key)
                })
        };
        let Some(at) = victims.all(pick).find(both) else { return false };
        let txn = txn_mut(&mut history.operations[at]);
        let write = txn.writes[0].clone();
        let read = txn.reads.iter_mut().find(|read| read.key == write.key);
        read.map(|read| (read.present, read.version, read.digest) = (true, write.version, None))
            .is_some()
    }),
    ("an intermediate read", |history, pick| {
        pair(history, pick, |history, pair| {
            let txn = txn_mut(&mut history.operations[pair.writer]);
            let last = Write { version: Some(1 << 40), ..txn.writes[pair.write].clone() };
            txn.writes.push(last);
            true
        })
    }),
    ("a lost update", |history, pick| {
        let Some(pair) =
            Victims::of(history).pair(pick, |_, reader| !txn(reader).writes.is_empty())
        else {
            return false;
        };
        let key = txn(&history.operations[pair.reader]).reads[pair.read].key.clone();
        let writes = &txn(&history.operations[pair.reader]).writes;
        writes.iter().any(|write| write.key == key) && older(history, pair.reader, pair.read)
    }),
    ("half of what another transaction wrote", |history, pick| fractured(history, pick)),
    ("a read of the future", |history, pick| {
        pair(history, pick, |history, pair| {
            // The reader ran before its writer began.
            move_before(history, pair.reader, pair.writer)
        })
    }),
    ("a writer that began after its reader", |history, pick| {
        in_time(history, pick, |history, pair| {
            let after = history.operations[pair.reader].responded.unwrap_or_default() + 1;
            let fresh = fresh_client(history);
            let writer = &mut history.operations[pair.writer];
            (writer.client, writer.invoked, writer.responded) = (fresh, after, Some(after + 1));
            true
        })
    }),
    ("a client that misses its own write", |history, pick| {
        let own = Victims::of(history).pair(pick, |writer, reader| {
            writer.client == reader.client && writer.sequence < reader.sequence
        });
        own.is_some_and(|pair| older(history, pair.reader, pair.read))
    }),
    ("a deletion that was none", |history, pick| {
        let victims = Victims::of(history);
        let gone = victims.read(pick, |_, read| {
            let of = victims.installer(&read.key, read.version);
            !read.present
                && of.is_some_and(|(at, write)| {
                    txn(&history.operations[at]).writes[write].effect == Effect::Delete
                })
        });
        let Some((at, read)) = gone else { return false };
        let read = &txn(&history.operations[at]).reads[read];
        let Some((writer, write)) = victims.installer(&read.key, read.version) else {
            return false;
        };
        let write = &mut txn_mut(&mut history.operations[writer]).writes[write];
        write.effect = Effect::Put { digest: None };
        true
    }),
    ("a write that was a deletion", |history, pick| {
        pair(history, pick, |history, pair| {
            let write = &mut txn_mut(&mut history.operations[pair.writer]).writes[pair.write];
            write.effect = Effect::Delete;
            true
        })
    }),
    ("a loaded record that was not loaded", |history, pick| {
        let loaded = |read: &Read| read.present && read.version == Some(1);
        let Some((at, read)) = Victims::of(history).read(pick, |_, read| loaded(read)) else {
            return false;
        };
        let key = txn(&history.operations[at]).reads[read].key.clone();
        let Initial::Listed(records) = &mut history.initial else { return false };
        let before = records.len();
        records.retain(|record| record.key != key);
        records.len() < before
    }),
    ("a load of a record that was absent", |history, pick| {
        let absent = |read: &Read| !read.present && read.version == Some(0);
        let Some((at, read)) = Victims::of(history).read(pick, |_, read| absent(read)) else {
            return false;
        };
        let key = txn(&history.operations[at]).reads[read].key.clone();
        let Initial::Listed(records) = &mut history.initial else { return false };
        records.push(Loaded { key, version: 1, digest: None });
        true
    }),
    ("a scan that misses a record", |history, pick| {
        scan(history, pick, 1, |scan| drop(scan.found.remove(0)))
    }),
    ("a scan of a record that nobody wrote", |history, pick| {
        scan(history, pick, 1, |scan| scan.found[0].version = Some(1 << 40))
    }),
    ("a scan out of its range", |history, pick| {
        scan(history, pick, 1, |scan| scan.found[0].key = Key::Number(1))
    }),
    ("a scan that finds a record twice", |history, pick| {
        scan(history, pick, 1, |scan| scan.found.push(scan.found[0].clone()))
    }),
    ("a scan beyond its limit", |history, pick| {
        scan(history, pick, 1, |scan| scan.limit = Some(0))
    }),
    ("an unknown writer that began too late", |history, pick| unknown_too_late(history, pick)),
];

fn put(key: Key, version: u64) -> Write {
    Write { key, effect: Effect::Put { digest: None }, version: Some(version) }
}

fn fresh_client(history: &History) -> u32 {
    history.operations.iter().map(|operation| operation.client).max().unwrap_or(0) + 1
}

/// A committed transaction more, by a client of its own, with one write.
fn append_write(history: &mut History, write: Write) -> bool {
    let client = fresh_client(history);
    let Some(mut operation) = history.operations.first().cloned() else { return false };
    (operation.client, operation.id, operation.end) = (client, u64::MAX, End::Ok);
    (operation.invoked, operation.responded) = (0, Some(1 << 50));
    let added = txn_mut(&mut operation);
    *added = nicol_core::history::Txn { writes: vec![write], ..Default::default() };
    history.operations.push(operation);
    true
}

fn pair(history: &mut History, pick: usize, change: fn(&mut History, Pair) -> bool) -> bool {
    let found = Victims::of(history).pair(pick, |_, _| true);
    found.is_some_and(|pair| change(history, pair))
}

fn in_time(history: &mut History, pick: usize, change: fn(&mut History, Pair) -> bool) -> bool {
    let found = Victims::of(history).pair_in_time(pick);
    found.is_some_and(|pair| change(history, pair))
}

/// Changes a committed read that passes a test.
fn read(
    history: &mut History,
    pick: usize,
    test: fn(&Read) -> bool,
    change: fn(&mut Read),
) -> bool {
    let found = Victims::of(history).read(pick, |_, read| test(read));
    let Some((at, read)) = found else { return false };
    change(&mut txn_mut(&mut history.operations[at]).reads[read]);
    true
}

/// Changes a committed scan that found as many records.
fn scan(history: &mut History, pick: usize, found: usize, change: fn(&mut Scan)) -> bool {
    let victims = Victims::of(history);
    let at = victims.pick(pick, |operation| {
        operation.end == End::Ok
            && txn(operation).scans.first().is_some_and(|scan| scan.found.len() >= found)
    });
    let Some(at) = at else { return false };
    change(&mut txn_mut(&mut history.operations[at]).scans[0]);
    true
}

/// Lets a read see the version before; false if there is none.
fn older(history: &mut History, at: usize, read: usize) -> bool {
    let victims = Victims::of(history);
    let before = &txn(&history.operations[at]).reads[read];
    let version = before.version.map(|version| version - 1);
    let there = version == Some(1) || victims.installer(&before.key, version).is_some();
    if !there || version == Some(0) {
        return false;
    }
    let read = &mut txn_mut(&mut history.operations[at]).reads[read];
    (read.version, read.digest) = (version, None);
    true
}

/// Flips the digest of a read, or of the write that it saw.
fn values(history: &mut History, pick: usize, of_write: bool) -> bool {
    let victims = Victims::of(history);
    let told = victims.all(pick).find_map(|step| {
        let pair = victims.pair(step, |_, _| true)?;
        let read = &txn(&history.operations[pair.reader]).reads[pair.read];
        let write = &txn(&history.operations[pair.writer]).writes[pair.write];
        let known = matches!(write.effect, Effect::Put { digest: Some(_) });
        (known && read.digest.is_some()).then_some(pair)
    });
    let Some(pair) = told else { return false };
    let reader = &mut txn_mut(&mut history.operations[pair.reader]).reads[pair.read];
    let digest = reader.digest.map(|digest| !digest);
    if of_write {
        let writer = txn_mut(&mut history.operations[pair.writer]);
        writer.writes[pair.write].effect = Effect::Put { digest };
    } else {
        reader.digest = digest;
    }
    true
}

/// Lets a reader of two keys that one transaction wrote see the older version of one.
fn fractured(history: &mut History, pick: usize) -> bool {
    let victims = Victims::of(history);
    let found = victims.all(pick).find_map(|step| {
        let Pair { writer, reader, read, .. } =
            victims.pair(step, |writer, _| txn(writer).writes.len() > 1)?;
        let reads = &txn(&history.operations[reader]).reads;
        let other = reads.iter().enumerate().position(|(other, one)| {
            let of = victims.installer(&one.key, one.version).map(|(of, _)| of);
            other != read && one.present && of == Some(writer)
        });
        other.map(|other| (reader, other))
    });
    found.is_some_and(|(reader, read)| older(history, reader, read))
}

/// Lets the operation at `reader` have ended before that at `writer` began.
fn move_before(history: &mut History, reader: usize, writer: usize) -> bool {
    let Some(before) = history.operations[writer].invoked.checked_sub(1) else { return false };
    let fresh = fresh_client(history);
    let operation = &mut history.operations[reader];
    operation.client = fresh;
    (operation.invoked, operation.responded) = (before, Some(before));
    true
}

/// A writer that somebody read from becomes one of unknown outcome that began after the reader.
fn unknown_too_late(history: &mut History, pick: usize) -> bool {
    let Some(pair) = Victims::of(history).pair(pick, |_, _| true) else { return false };
    let after = history.operations[pair.reader].responded.unwrap_or_default() + 1;
    let fresh = fresh_client(history);
    let writer = &mut history.operations[pair.writer];
    (writer.client, writer.end) = (fresh, End::Unknown);
    (writer.invoked, writer.responded) = (after, None);
    true
}
