use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use nicol_core::engine::Operation;
use nicol_core::ids::{EngineId, Incarnation, NodeId};
use nicol_core::memory::Region;
use nicol_core::units::Bytes;
use nicol_core::view::View;

use super::super::{LogFolder, LogHeader};
use super::*;

/// A disk that fails after so many bytes, and remembers what it was asked.
struct Small<'a> {
    room: usize,
    file: &'a mut Vec<u8>,
    synced: &'a mut Vec<usize>,
}

const NONCE: u64 = 7;

impl Disk for Small<'_> {
    fn nonce(&self) -> u64 {
        NONCE
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let fits = bytes.len().min(self.room - self.file.len());
        self.file.extend_from_slice(&bytes[..fits]);
        if fits < bytes.len() { Err(io::Error::other("a bad sector")) } else { Ok(()) }
    }

    fn has_room(&mut self) -> bool {
        self.file.len() < self.room
    }

    fn sync(&mut self) -> io::Result<()> {
        self.synced.push(self.file.len());
        Ok(())
    }

    fn cut(&mut self, len: u64) -> io::Result<()> {
        self.file.truncate(len as usize);
        Ok(())
    }

    fn content(&self) -> io::Result<Box<dyn io::Read + '_>> {
        Ok(Box::new(&self.file[..]))
    }
}

const NIC: EngineId = EngineId::nic(NodeId(0), 0);

fn persist(bytes: usize, token: u32) -> Operation {
    let region = Arc::new(Region::new(Bytes(8)));
    let transfer = Transfer::Persist { region, offset: 0, len: bytes as u32 };
    Operation { transfer, buffer: vec![token as u8; bytes], result: Ok(()), token }
}

#[derive(Default)]
struct Served {
    /// Tokens, and whether they are durable.
    results: Vec<(u32, bool)>,
    errors: usize,
    /// Sizes of the file when it was synced.
    synced: Vec<usize>,
    file: Vec<u8>,
}

/// The header of a file.
fn header() -> Vec<u8> {
    let view = View::new(1, 1, 1, 1).unwrap();
    LogHeader { node: NodeId(0), view, life: 1, nonce: NONCE }.emit().to_vec()
}

/// Persists of 200 bytes each.
fn group(tokens: std::ops::Range<u32>) -> VecDeque<Persist> {
    let life = Incarnation::FIRST;
    tokens.map(|token| Persist { from: NIC, life, operation: persist(200, token) }).collect()
}

/// Serves persists of these sizes that wait already.
fn serve_all(room: usize, sizes: &[usize]) -> Served {
    let queue = LogQueue::default();
    let numbered = sizes.iter().zip(0..);
    queue.add((NIC, Incarnation::FIRST), numbered.map(|(&size, number)| persist(size, number)));
    queue.close();
    let mut served = Served { file: header(), ..Served::default() };
    let disk = Small { room, file: &mut served.file, synced: &mut served.synced };
    let done = |Persist { operation, .. }| {
        assert!(operation.result.is_ok() || operation.result == Err(FabricError::NoResources));
        served.results.push((operation.token, operation.result.is_ok()));
    };
    serve(&queue, Box::new(disk), done, |_| served.errors += 1);
    served
}

#[test]
fn persists_that_wait_together_are_synced_together() {
    let Served { results, errors, synced, file } = serve_all(1 << 30, &[8, 0, 100]);
    assert_eq!(results, [(0, true), (1, true), (2, true)]);
    assert_eq!((errors, &synced[..]), (0, &[file.len()][..]));
    // A group ends where it grows beyond its bound.
    let Served { results, synced, .. } = serve_all(1 << 30, &[3 << 20, 3 << 20, 3 << 20]);
    assert_eq!((results.len(), synced.len()), (3, 2));
}

/// A disk with little room, and more once somebody has made some.
struct Crowded {
    room: Arc<AtomicUsize>,
    file: Arc<Mutex<Vec<u8>>>,
}

impl Disk for Crowded {
    fn nonce(&self) -> u64 {
        NONCE
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut file = self.file.lock().unwrap();
        let fits = bytes.len().min(self.room.load(Ordering::SeqCst) - file.len());
        file.extend_from_slice(&bytes[..fits]);
        if fits < bytes.len() { Err(io::Error::from(ErrorKind::StorageFull)) } else { Ok(()) }
    }

    fn has_room(&mut self) -> bool {
        self.file.lock().unwrap().len() + 100 < self.room.load(Ordering::SeqCst)
    }

    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn cut(&mut self, len: u64) -> io::Result<()> {
        self.file.lock().unwrap().truncate(len as usize);
        Ok(())
    }

    fn content(&self) -> io::Result<Box<dyn io::Read + '_>> {
        Ok(Box::new(io::Cursor::new(self.file.lock().unwrap().clone())))
    }
}

#[test]
fn persists_wait_while_a_disk_is_full_and_go_on_when_there_is_room() {
    let queue = LogQueue::default();
    let room = Arc::new(AtomicUsize::new(1_000));
    let file = Arc::new(Mutex::new(header()));
    let disk = Crowded { room: room.clone(), file: file.clone() };
    let durable = Mutex::new(Vec::new());
    let wait = |what: &dyn Fn() -> bool| {
        let started = std::time::Instant::now();
        while !what() {
            assert!(started.elapsed().as_secs() < 20, "nothing happens");
            std::thread::yield_now();
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let done = |Persist { operation, .. }: Persist| {
                durable.lock().unwrap().push((operation.token, operation.result.is_ok()));
            };
            let failed = |error: &io::Error| panic!("a full disk has not failed: {error}");
            serve(&queue, Box::new(disk), done, failed);
        });
        let life = (NIC, Incarnation::FIRST);
        queue.add(life, [persist(300, 0)].into_iter());
        wait(&|| durable.lock().unwrap().len() == 1);
        assert_eq!(queue.full(), None);
        // It does not fit; neither does what waits behind it, although that is small.
        queue.add(life, [persist(2_000, 1), persist(8, 2)].into_iter());
        wait(&|| queue.full().is_some());
        assert_eq!(durable.lock().unwrap().len(), 1);
        room.store(10_000, Ordering::SeqCst);
        wait(&|| durable.lock().unwrap().len() == 3 && queue.full().is_none());
        // Room that is too scarce is told before a record finds none.
        room.store(file.lock().unwrap().len() + 350, Ordering::SeqCst);
        queue.add(life, [persist(250, 3)].into_iter());
        wait(&|| durable.lock().unwrap().len() == 4 && queue.full().is_some());
        room.store(10_000, Ordering::SeqCst);
        wait(&|| queue.full().is_none());
        // What waits when the device ends was not made durable.
        room.store(file.lock().unwrap().len(), Ordering::SeqCst);
        queue.add(life, [persist(8, 4)].into_iter());
        wait(&|| queue.full().is_some());
        queue.close();
    });
    let expected = [(0, true), (1, true), (2, true), (3, true), (4, false)];
    assert_eq!(durable.into_inner().unwrap(), expected);
    let found: Vec<_> = [300, 2_000, 8, 250].map(Some).to_vec();
    assert_eq!(entries(&file.lock().unwrap()), found);
}

#[test]
fn an_error_is_a_result_and_ends_the_device() {
    let sizes = [GROUP_BYTES_MAX, GROUP_BYTES_MAX, 8, 8];
    let Served { results, errors, synced, file } = serve_all(6 << 20, &sizes);
    assert_eq!(results, [(0, true), (1, false), (2, false), (3, false)]);
    assert_eq!((errors, synced.len()), (1, 1), "nothing is tried after an error");
    // What was acknowledged is there, and the torn rest is seen as such.
    assert_eq!(entries(&file), [Some(GROUP_BYTES_MAX), None]);
}

/// The sizes of the records that a reader finds; `None` where one is torn.
fn entries(file: &[u8]) -> Vec<Option<usize>> {
    let mut reader = LogReader::open(file).unwrap();
    let mut entries = Vec::new();
    while let Some(entry) = reader.next().unwrap() {
        entries.push(match entry {
            LogEntry::Record(record) => Some(record.bytes.len()),
            LogEntry::Lost(lost) => {
                assert!(!lost.is_damage(1), "it was not synced");
                None
            }
        });
    }
    entries
}

#[test]
fn a_log_goes_on_in_another_file() {
    let dir = std::env::temp_dir().join(format!("nicol-switch-{}", std::process::id()));
    let folder = LogFolder::open(&dir).unwrap();
    let view = View::new(1, 1, 1, 1).unwrap();
    let [mut first, mut second] = [(); 2].map(|()| {
        let run = folder.new_run().unwrap();
        folder.create_logs(&run.path, &view, 1).unwrap()
    });
    let (queue, life) = (LogQueue::default(), (NIC, Incarnation::FIRST));
    let (mut tokens, first) = (Vec::new(), first.remove(0));
    std::thread::scope(|scope| {
        let tokens = &mut tokens;
        let done = |done: Persist| tokens.push(done.operation.token);
        scope.spawn(|| serve(&queue, Box::new(first), done, |_| {}));
        queue.add(life, [persist(8, 0), persist(16, 1)].into_iter());
        while queue.bytes() == 0 {
            std::thread::yield_now();
        }
        assert!(queue.switch(Box::new(second.remove(0))));
        assert_eq!(queue.bytes(), 0);
        queue.add(life, [persist(24, 2)].into_iter());
        queue.close();
    });
    assert_eq!(tokens, [0, 1, 2]);
    let read = |run: &str| entries(&std::fs::read(dir.join(run).join("node-0.log")).unwrap());
    assert_eq!((read("run-1"), read("run-2")), (vec![Some(8), Some(16)], vec![Some(24)]));
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn what_no_reader_would_take_is_refused_alone() {
    let Served { results, errors, file, .. } = serve_all(1 << 30, &[8, RECORD_BYTES_MAX + 1, 8]);
    assert_eq!(results, [(0, true), (1, false), (2, true)]);
    assert_eq!(errors, 0);
    assert_eq!(entries(&file), [Some(8), Some(8)]);
}

/// A device that has handed three records back and has three under way when its host crashes,
/// and what it reads back afterwards.
fn crashed(seed: u64, keeps_all: bool) -> (MediumCounts, Vec<MediumWrite>) {
    let mut file = header();
    let (mut synced, mut results) = (Vec::new(), Vec::new());
    let disk = Small { room: 1 << 20, file: &mut file, synced: &mut synced };
    let queue = LogQueue::default();
    let done = |Persist { operation, .. }| results.push((operation.token, operation.result));
    let mut device = Device::new(Box::new(disk), done, |_: &_| ());
    device.write(&queue, &mut group(1..4));
    let counts = device.crash(&mut group(4..7), seed, keeps_all);
    let writes = device.read_back();
    // The next life goes on behind the last whole record.
    device.write(&queue, &mut group(7..8));
    let after = device.read_back();
    assert_eq!((after.len(), &after[..writes.len()]), (writes.len() + 1, &writes[..]));
    assert!(results[..3].iter().all(|(_, result)| result.is_ok()));
    assert!(results[3..6].iter().all(|(_, result)| *result == Err(FabricError::Unreachable)));
    (counts, writes)
}

/// A NIC goes on while its host is down, and what it persists then is durable as well.
#[test]
fn what_is_handed_back_while_the_host_is_down_is_there_when_it_starts() {
    for seed in 0..200 {
        let (mut file, mut synced, mut results) = (header(), Vec::new(), Vec::new());
        let disk = Small { room: 1 << 20, file: &mut file, synced: &mut synced };
        let queue = LogQueue::default();
        let done = |done: Persist| results.push((done.operation.token, done.operation.result));
        let mut device = Device::new(Box::new(disk), done, |_: &_| ());
        device.write(&queue, &mut group(1..4));
        device.crash(&mut group(4..7), seed, false);
        device.write(&queue, &mut group(7..9));
        device.write(&queue, &mut group(9..10));
        let found = device.read_back();
        let acknowledged = results.iter().filter(|(_, result)| result.is_ok());
        let acknowledged: Vec<u8> = acknowledged.map(|(token, _)| *token as u8).collect();
        assert_eq!(acknowledged, [1, 2, 3, 7, 8, 9]);
        for token in acknowledged {
            let there = found.iter().any(|write| write.bytes == [token; 200]);
            assert!(there, "seed {seed}: {token} is lost");
        }
    }
}

#[test]
fn a_crash_keeps_what_was_handed_back_and_the_rest_whole_lost_or_torn() {
    let (mut sum, mut by_length) = (MediumCounts::default(), [0; 7]);
    for seed in 0..200 {
        let (counts, writes) = crashed(seed, false);
        assert_eq!(counts.whole + counts.lost + counts.torn, 3);
        sum.add(&counts);
        by_length[writes.len()] += 1;
        for (number, write) in (1..).zip(&writes) {
            assert_eq!((write.sequence, write.bytes.clone()), (number, vec![number as u8; 200]));
        }
        assert!(writes.len() >= 3 && writes.len() as u64 <= 3 + counts.whole);
    }
    assert!([sum.whole, sum.lost, sum.torn, sum.reordered].iter().all(|&n| n > 30), "{sum:?}");
    assert!(by_length[3..].iter().all(|&runs| runs > 3), "{by_length:?}");
    let (counts, writes) = crashed(1, true);
    assert_eq!((counts, writes.len()), (MediumCounts::default(), 6), "kept on purpose");
}
