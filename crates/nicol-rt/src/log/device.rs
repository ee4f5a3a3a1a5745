//! A log thread's life: groups, and what crashes leave of them.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};

use nicol_core::engine::Transfer;
use nicol_core::fabric::FabricError;
use nicol_core::ids::Side;
use nicol_core::medium::{Medium, MediumCounts, MediumWrite};
use nicol_core::rng::{Purpose, Stream};

use super::files::is_full;
use super::queue::{Answer, Ask, LogQueue, Next, Persist};
use super::{Disk, HEADER_LEN, LogEntry, LogReader, LogRecord, RECORD_BYTES_MAX, RECORD_FRAMING};

/// Bytes after which a group is written, even if more persists wait: bounds the buffer.
const GROUP_BYTES_MAX: usize = 4 << 20;

/// Serves groups, until the queue is closed and empty. `done` gets every persist with its result,
/// in order; `failed` is told of the first error.
///
/// A device that has failed once is not tried again: after a failed sync its content is
/// unknown. One that is full is: persists wait until there is room, and what a part of a group took
/// is given back.
pub(crate) fn serve(
    queue: &LogQueue,
    disk: Box<dyn Disk + '_>,
    done: impl FnMut(Persist),
    failed: impl FnMut(&io::Error),
) {
    let mut device = Device::new(disk, done, failed);
    device.look_for_room(queue);
    let mut group = VecDeque::new();
    loop {
        match queue.next(&mut group) {
            Next::Closed => return,
            Next::Group => device.write(queue, &mut group),
            Next::Look => device.look_for_room(queue),
            Next::Asked(Ask::Crash { seed, keeps_all }) => {
                let counts = device.crash(&mut group, seed, keeps_all);
                queue.answer(Answer::Crashed(counts));
            }
            Next::Asked(Ask::Content) => queue.answer(Answer::Content(device.read_back())),
            Next::Asked(Ask::Switch(to)) => {
                device.switch(to);
                queue.begin_file();
                device.look_for_room(queue);
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
    /// Was there no room when it was tried last?
    was_full: bool,
    done: N,
    failed: X,
}

impl<'d, N: FnMut(Persist), X: FnMut(&io::Error)> Device<'d, N, X> {
    /// A device whose file holds a header, which is durable.
    fn new(disk: Box<dyn Disk + 'd>, done: N, failed: X) -> Self {
        let (writer, synced) = (GroupWriter::default(), HEADER_LEN as u64);
        Self {
            disk,
            writer,
            synced,
            unsettled: false,
            healthy: true,
            was_full: false,
            done,
            failed,
        }
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
            let mut appended = self.append(queue);
            while appended == Appended::NoRoom && queue.wait_for_room() {
                appended = self.append(queue);
            }
            if let Some(Ask::Crash { seed, keeps_all }) = queue.crashed_under_way(group) {
                self.writer.sequence = first;
                let counts = self.crash(group, seed, keeps_all);
                queue.answer(Answer::Crashed(counts));
                return;
            }
            if appended == Appended::Durable {
                self.synced += self.writer.bytes.len() as u64;
                queue.count_durable(self.writer.bytes.len(), self.writer.sequence);
            } else {
                self.writer.sequence = first;
            }
            for mut persist in group.drain(..count) {
                if appended != Appended::Durable || !fits(&persist) {
                    persist.operation.result = Err(FabricError::NoResources);
                }
                (self.done)(persist);
            }
        }
    }

    /// Appends what is encoded and makes it durable.
    fn append(&mut self, queue: &LogQueue) -> Appended {
        let (synced, mut full) = (self.synced, None);
        self.try_to(|disk, writer| match disk.append(&writer.bytes).and_then(|()| disk.sync()) {
            Err(error) if is_full(&error) => {
                full = Some(error.to_string());
                disk.cut(synced)
            }
            done => done,
        });
        if !self.healthy {
            return Appended::Failed;
        }
        if full.is_some() {
            self.tell_room(queue, full);
            return Appended::NoRoom;
        }
        self.look_for_room(queue);
        Appended::Durable
    }

    /// Says whether there is room for what may come next: where there is none for zeros ahead of
    /// the records, there is soon none for records.
    fn look_for_room(&mut self, queue: &LogQueue) {
        let why = || io::Error::from(ErrorKind::StorageFull).to_string();
        let full = (!self.disk.has_room()).then(why);
        self.tell_room(queue, full);
    }

    fn tell_room(&mut self, queue: &LogQueue, full: Option<String>) {
        if full.is_some() || self.was_full {
            self.was_full = full.is_some();
            queue.set_full(full);
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

/// The result of appending bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Appended {
    Durable,
    /// There is no room for them, and nothing of them is left.
    NoRoom,
    /// The device has failed, now or before.
    Failed,
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
mod tests;
