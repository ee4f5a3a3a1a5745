//! A log thread's life: groups, and what crashes leave of them.

use std::collections::VecDeque;
use std::io;

use nicol_core::engine::Transfer;
use nicol_core::fabric::FabricError;
use nicol_core::ids::Side;
use nicol_core::medium::{Medium, MediumCounts, MediumWrite};
use nicol_core::rng::{Purpose, Stream};

use super::queue::{Answer, Ask, LogQueue, Next, Persist};
use super::{Disk, HEADER_LEN, LogEntry, LogReader, LogRecord, RECORD_BYTES_MAX, RECORD_FRAMING};

/// Bytes after which a group is written, even if more persists wait: bounds the buffer.
const GROUP_BYTES_MAX: usize = 4 << 20;

/// Serves groups, until the queue is closed and empty. `done` gets every persist with its result,
/// in order; `failed` is told of the first error.
///
/// A device that has failed once is not tried again: after a failed sync its content is
/// unknown.
pub(crate) fn serve(
    queue: &LogQueue,
    disk: Box<dyn Disk + '_>,
    done: impl FnMut(Persist),
    failed: impl FnMut(&io::Error),
) {
    let mut device = Device::new(disk, done, failed);
    let mut group = VecDeque::new();
    loop {
        match queue.next(&mut group) {
            Next::Closed => return,
            Next::Group => device.write(queue, &mut group),
            Next::Asked(Ask::Crash { seed, keeps_all }) => {
                let counts = device.crash(&mut group, seed, keeps_all);
                queue.answer(Answer::Crashed(counts));
            }
            Next::Asked(Ask::Content) => queue.answer(Answer::Content(device.read_back())),
            Next::Asked(Ask::Switch(to)) => {
                device.switch(to);
                queue.count_bytes(None);
                queue.answer(Answer::Switched);
            }
        }
    }
}

struct Device<'d, N, X> {
    disk: Box<dyn Disk + 'd>,
    writer: GroupWriter,
    /// Bytes of the file whose persists were handed back.
    synced: u64,
    /// True if there is what a crash has left behind them. Where that has holes, no reader finds
    /// what follows.
    unsettled: bool,
    healthy: bool,
    done: N,
    failed: X,
}

impl<'d, N: FnMut(Persist), X: FnMut(&io::Error)> Device<'d, N, X> {
    /// A device whose file holds a header, which is durable.
    fn new(disk: Box<dyn Disk + 'd>, done: N, failed: X) -> Self {
        let (writer, synced) = (GroupWriter::default(), HEADER_LEN as u64);
        Self { disk, writer, synced, unsettled: false, healthy: true, done, failed }
    }

    /// Goes on in another file, of which the header is durable.
    fn switch(&mut self, to: Box<dyn Disk + Send>) {
        (self.disk, self.writer, self.synced) = (to, GroupWriter::default(), HEADER_LEN as u64);
        self.unsettled = false;
    }

    /// Makes a group durable, in parts if it is large, and hands it back.
    fn write(&mut self, queue: &LogQueue, group: &mut VecDeque<Persist>) {
        if self.unsettled {
            // The NIC of a host that is down persists: its records must be found.
            self.settle(&mut |_| ());
        }
        while !group.is_empty() {
            let first = self.writer.sequence;
            let count = self.writer.encode(group, self.disk.nonce());
            self.try_to(|disk, writer| disk.append(&writer.bytes).and_then(|()| disk.sync()));
            if let Some(Ask::Crash { seed, keeps_all }) = queue.crashed_under_way(group) {
                self.writer.sequence = first;
                let counts = self.crash(group, seed, keeps_all);
                queue.answer(Answer::Crashed(counts));
                return;
            }
            self.synced += self.writer.bytes.len() as u64;
            queue.count_bytes(Some(self.writer.bytes.len()));
            for mut persist in group.drain(..count) {
                if !self.healthy || !fits(&persist) {
                    persist.operation.result = Err(FabricError::NoResources);
                }
                (self.done)(persist);
            }
        }
    }

    /// Does something to a device that has not failed before.
    fn try_to(&mut self, act: impl FnOnce(&mut dyn Disk, &GroupWriter) -> io::Result<()>) {
        if self.healthy
            && let Err(error) = act(&mut *self.disk, &self.writer)
        {
            self.healthy = false;
            (self.failed)(&error);
        }
    }

    /// Decides about persists that were not handed back when the host crashed: each one's record is
    /// there, gone or torn. An engine that waits for one still learns that the host is down.
    fn crash(
        &mut self,
        pending: &mut VecDeque<Persist>,
        seed: u64,
        keeps_all: bool,
    ) -> MediumCounts {
        let mut medium = Medium::default();
        for Persist { from, operation, .. } in pending.iter().filter(|persist| fits(persist)) {
            let (label, offset) = place(operation);
            medium.submit((*from, Side::Host), label, offset, &operation.buffer);
        }
        if !keeps_all {
            medium.crash(|_| true, &mut Stream::new(seed, Purpose::Medium, 0));
        }
        let sequence = self.writer.sequence;
        self.writer.encode_left(pending, medium.writes(), self.disk.nonce());
        let synced = self.synced;
        self.try_to(|disk, writer| {
            disk.cut(synced)?;
            disk.append(&writer.bytes)?;
            disk.sync()
        });
        self.writer.sequence = sequence;
        self.unsettled = true;
        for mut persist in pending.drain(..) {
            persist.operation.result = Err(FabricError::Unreachable);
            (self.done)(persist);
        }
        medium.counts()
    }

    /// The records that a new life of the host finds.
    fn read_back(&mut self) -> Vec<MediumWrite> {
        let mut writes = Vec::new();
        self.settle(&mut |record| {
            let LogRecord { sequence, engine, label, offset, bytes, .. } = record;
            let bytes = bytes.to_vec();
            writes.push(MediumWrite { sequence, engine, label, offset, bytes, intact: true });
        });
        writes
    }

    /// Calls `each` with the records up to the first that is not whole. What follows them is cut
    /// off.
    fn settle(&mut self, each: &mut dyn FnMut(LogRecord<'_>)) {
        let (mut valid, mut sequence) = (self.synced, self.writer.sequence);
        self.try_to(|disk, _| {
            let mut reader = LogReader::open(disk.content()?).map_err(io::Error::other)?;
            sequence = 0;
            loop {
                valid = reader.offset();
                let Some(LogEntry::Record(record)) = reader.next()? else { break };
                sequence = record.sequence;
                each(record);
            }
            drop(reader);
            disk.cut(valid)?;
            disk.sync()
        });
        if self.healthy {
            (self.synced, self.writer.sequence) = (valid, sequence);
            self.unsettled = false;
        }
    }
}

/// May a record be so large?
fn fits(persist: &Persist) -> bool {
    persist.operation.buffer.len() <= RECORD_BYTES_MAX
}

/// The label and the offset of what an operation persists.
fn place(operation: &nicol_core::engine::Operation) -> (u32, u64) {
    let Transfer::Persist { region, offset, .. } = &operation.transfer else {
        panic!("the log device persists, and nothing else");
    };
    (region.label(), *offset)
}

#[derive(Debug, Default)]
struct GroupWriter {
    bytes: Vec<u8>,
    /// Of the last record.
    sequence: u64,
}

impl GroupWriter {
    /// Encodes the first records of `group`, at least one; returns how many.
    fn encode(&mut self, group: &VecDeque<Persist>, nonce: u64) -> usize {
        self.bytes.clear();
        // Each group is synced before the next one is written.
        let durable = self.sequence;
        for (count, persist) in group.iter().enumerate() {
            if self.bytes.len() >= GROUP_BYTES_MAX {
                return count;
            }
            if fits(persist) {
                self.emit(persist, durable, nonce);
            }
        }
        group.len()
    }

    /// Encodes what a crash leaves of the records of `pending`, which `left` numbers from 1: zeros
    /// where one is lost, and a checksum that does not fit where one is torn.
    fn encode_left(&mut self, pending: &VecDeque<Persist>, left: &[MediumWrite], nonce: u64) {
        self.bytes.clear();
        let durable = self.sequence;
        let mut written = 0;
        for (number, persist) in (1..).zip(pending.iter().filter(|persist| fits(persist))) {
            let start = self.bytes.len();
            self.emit(persist, durable, nonce);
            match left.iter().find(|write| write.sequence == number) {
                None => self.bytes[start..].fill(0),
                Some(write) => {
                    self.bytes[start + RECORD_FRAMING..].copy_from_slice(&write.bytes);
                    written = self.bytes.len();
                }
            }
        }
        // Nothing marks the end of what is lost behind everything else.
        self.bytes.truncate(written);
    }

    fn emit(&mut self, Persist { from, operation, .. }: &Persist, durable: u64, nonce: u64) {
        let (label, offset) = place(operation);
        self.sequence += 1;
        let (sequence, bytes) = (self.sequence, &operation.buffer[..]);
        let record = LogRecord { sequence, durable, engine: *from, label, offset, bytes };
        record.emit(nonce, &mut self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use nicol_core::engine::Operation;
    use nicol_core::ids::{EngineId, Incarnation, NodeId};
    use nicol_core::memory::Region;
    use nicol_core::units::Bytes;
    use nicol_core::view::View;

    use super::super::{LogFolder, LogHeader};
    use super::*;

    /// A disk that is full after so many bytes, and remembers what it was asked.
    struct Small<'a> {
        room: usize,
        file: &'a mut Vec<u8>,
        synced: &'a mut Vec<usize>,
    }

    impl Small<'_> {
        fn full() -> io::Error {
            io::Error::from(io::ErrorKind::StorageFull)
        }
    }

    const NONCE: u64 = 7;

    impl Disk for Small<'_> {
        fn nonce(&self) -> u64 {
            NONCE
        }

        fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
            let fits = bytes.len().min(self.room - self.file.len());
            self.file.extend_from_slice(&bytes[..fits]);
            if fits < bytes.len() { Err(Self::full()) } else { Ok(()) }
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

    #[test]
    fn a_full_disk_is_a_result_and_ends_the_device() {
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
            folder.create_logs(&run, &view, 1).unwrap()
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
        let Served { results, errors, file, .. } =
            serve_all(1 << 30, &[8, RECORD_BYTES_MAX + 1, 8]);
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
                assert_eq!(
                    (write.sequence, write.bytes.clone()),
                    (number, vec![number as u8; 200])
                );
            }
            assert!(writes.len() >= 3 && writes.len() as u64 <= 3 + counts.whole);
        }
        assert!([sum.whole, sum.lost, sum.torn, sum.reordered].iter().all(|&n| n > 30), "{sum:?}");
        assert!(by_length[3..].iter().all(|&runs| runs > 3), "{by_length:?}");
        let (counts, writes) = crashed(1, true);
        assert_eq!((counts, writes.len()), (MediumCounts::default(), 6), "kept on purpose");
    }
}
