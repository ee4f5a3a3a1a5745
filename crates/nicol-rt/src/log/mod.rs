//! Log devices: what makes a node's writes durable.
//!
//! [`LogDevice::File`] keeps a file per node. A thread per node takes all persists that wait,
//! writes them with one write and one fdatasync (group commit: while one group is synced the next
//! one gathers), and only then hands them back to their engines.
//!
//! Persists that wait are bounded by the calls in flight: each belongs to a request that is not
//! answered before.

mod format;

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

pub use format::{
    HEADER_LEN, LogEnd, LogFileError, LogHeader, LogReader, LogRecord, RECORD_BYTES_MAX,
    RECORD_FRAMING, Torn,
};
use nicol_core::engine::{Operation, Transfer};
use nicol_core::fabric::FabricError;
use nicol_core::ids::EngineId;
use nicol_core::view::{Role, View};

/// Bytes after which a group is written, even if more persists wait: bounds the buffer.
const GROUP_BYTES_MAX: usize = 4 << 20;
/// Runs that may share a folder.
const RUNS_MAX: u32 = 1_000_000;

/// What makes a node's writes durable.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum LogDevice {
    /// Memory counts as durable, as if it were battery-backed: the papers' assumption. Without such
    /// memory everything is lost when the process ends.
    #[default]
    Memory,
    /// A file per node. Each launch makes a folder `run-N` of its own, and nothing is deleted.
    File {
        /// Where the folders of the runs are made.
        dir: PathBuf,
    },
}

impl LogDevice {
    /// `memory` or `file`.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::File { .. } => "file",
        }
    }
}

/// `memory`, or `file:` and a folder.
impl FromStr for LogDevice {
    type Err = UnknownLogDevice;

    fn from_str(text: &str) -> Result<Self, UnknownLogDevice> {
        match (text, text.strip_prefix("file:")) {
            ("memory", _) => Ok(Self::Memory),
            (_, Some(dir)) if !dir.is_empty() => Ok(Self::File { dir: PathBuf::from(dir) }),
            _ => Err(UnknownLogDevice(text.to_owned())),
        }
    }
}

/// A text that names no log device.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is no log device: give memory or file:DIR")]
pub struct UnknownLogDevice(pub String);

/// Where a group goes; a file, but in tests.
pub(crate) trait Disk {
    /// Appends `bytes`.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// Returns when everything appended is durable.
    fn sync(&mut self) -> io::Result<()>;
}

/// A node's log file; its errors name it.
#[derive(Debug)]
pub(crate) struct LogFile {
    path: PathBuf,
    file: File,
}

impl Disk for LogFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes).map_err(at(&self.path))
    }

    fn sync(&mut self) -> io::Result<()> {
        self.file.sync_data().map_err(at(&self.path))
    }
}

/// Puts `path` in front of an error.
fn at(path: &Path) -> impl FnOnce(io::Error) -> io::Error + use<'_> {
    move |error| io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// Makes the files of one launch, in a folder of its own, with their headers durable. Errors name
/// the file or folder.
///
/// # Panics
/// If a node that is no server comes before one that is.
pub(crate) fn create(dir: &Path, view: &View) -> io::Result<Vec<LogFile>> {
    fs::create_dir_all(dir).map_err(at(dir))?;
    check_runs(dir)?;
    let run = new_run(dir)?;
    let mut files = Vec::new();
    let mut servers = view.nodes_of(Role::Server).enumerate();
    assert!(servers.all(|(number, node)| node.index() == number), "servers come first");
    // Nodes without a shard have nothing to make durable.
    for node in view.nodes_of(Role::Server) {
        let path = run.join(format!("node-{}.log", node.0));
        // The header holds the seed of the key hash, which clients must not learn.
        let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        let mut file = LogFile { file: made.map_err(at(&path))?, path };
        file.append(&LogHeader { node, view: view.clone() }.emit())?;
        file.file.sync_all().map_err(at(&file.path))?;
        files.push(file);
    }
    // The names must survive as well.
    for folder in [&run, dir] {
        File::open(folder).and_then(|folder| folder.sync_all()).map_err(at(folder))?;
    }
    Ok(files)
}

fn new_run(dir: &Path) -> io::Result<PathBuf> {
    for number in 1..=RUNS_MAX {
        let run = dir.join(format!("run-{number}"));
        match fs::create_dir(&run) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => return made.map(|()| run.clone()).map_err(at(&run)),
        }
    }
    let full = io::Error::other(format!("{RUNS_MAX} runs are there already; remove some"));
    Err(at(dir)(full))
}

/// Refuses a folder in which an earlier run's file has no header of its own any more: whoever
/// damaged it may damage the next one too, and its owner must learn of it while the other replicas'
/// files are still there. What follows the headers is not read.
fn check_runs(dir: &Path) -> io::Result<()> {
    for run in fs::read_dir(dir).map_err(at(dir))? {
        let run = run.map_err(at(dir))?.path();
        if !run.is_dir() || numbered(&run, "run-").is_none() {
            continue;
        }
        for file in fs::read_dir(&run).map_err(at(&run))? {
            let path = file.map_err(at(&run))?.path();
            if path.extension().is_some_and(|extension| extension == "log")
                && let Some(node) = numbered(&path.with_extension(""), "node-")
            {
                check_file(&path, node).map_err(at(&path))?;
            }
        }
    }
    Ok(())
}

fn check_file(path: &Path, node: u32) -> io::Result<()> {
    let file = File::open(path)?;
    // A launch that crashed may have left less than a header: nobody was served by it.
    if file.metadata()?.len() < HEADER_LEN as u64 {
        return Ok(());
    }
    let wrong = match LogReader::open(file) {
        Ok(reader) if u32::from(reader.header().node.0) == node => return Ok(()),
        Ok(reader) => format!("the file is the log of node {}", reader.header().node.0),
        Err(error) => error.to_string(),
    };
    let text = format!("{wrong}; move its folder away to start with another");
    Err(io::Error::new(io::ErrorKind::InvalidData, text))
}

/// The number behind `prefix` that is the rest of a file's name.
fn numbered(path: &Path, prefix: &str) -> Option<u32> {
    path.file_name()?.to_str()?.strip_prefix(prefix)?.parse().ok()
}

/// Persists on their way to a node's log thread.
#[derive(Debug, Default)]
pub(crate) struct LogQueue {
    waiting: Mutex<Waiting>,
    filled: Condvar,
}

#[derive(Debug, Default)]
struct Waiting {
    persists: VecDeque<Persist>,
    closed: bool,
}

/// A persist and the engine that waits for it.
#[derive(Debug)]
pub(crate) struct Persist {
    pub(crate) from: EngineId,
    pub(crate) operation: Operation,
}

impl LogQueue {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues persists of one engine.
    pub(crate) fn add(&self, from: EngineId, operations: impl Iterator<Item = Operation>) {
        let mut waiting = self.lock();
        let idle = waiting.persists.is_empty();
        waiting.persists.extend(operations.map(|operation| Persist { from, operation }));
        drop(waiting);
        if idle {
            self.filled.notify_one();
        }
    }

    /// No more persists will come: the thread ends once it has made durable what waits.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.filled.notify_one();
    }

    /// Swaps all that waits with the empty `into`; false if there will be nothing any more.
    fn take(&self, into: &mut VecDeque<Persist>) -> bool {
        assert!(into.is_empty(), "the last group is finished");
        let mut waiting = self.lock();
        while waiting.persists.is_empty() && !waiting.closed {
            waiting = self.filled.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
        std::mem::swap(&mut waiting.persists, into);
        !into.is_empty()
    }
}

/// Persists on their way back to an engine.
#[derive(Debug, Default)]
pub(crate) struct Persisted {
    any: AtomicBool,
    operations: Mutex<Vec<Operation>>,
}

impl Persisted {
    fn lock(&self) -> MutexGuard<'_, Vec<Operation>> {
        self.operations.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves an operation; the engine's thread is to be woken afterwards.
    pub(crate) fn leave(&self, operation: Operation) {
        self.lock().push(operation);
        self.any.store(true, Ordering::SeqCst);
    }

    /// Is there something to take?
    pub(crate) fn any(&self) -> bool {
        self.any.load(Ordering::SeqCst)
    }

    /// Moves all of them to `into`.
    pub(crate) fn take(&self, into: &mut VecDeque<Operation>) {
        if self.any.load(Ordering::Relaxed) {
            let mut operations = self.lock();
            self.any.store(false, Ordering::SeqCst);
            into.extend(operations.drain(..));
        }
    }
}

/// A log thread's life: groups, until the queue is closed and empty. `done` gets every persist with
/// its result, in order; `failed` is told of the first error.
///
/// A device that has failed once is not tried again: after a failed sync nobody knows what is on
/// it.
pub(crate) fn serve(
    queue: &LogQueue,
    mut disk: impl Disk,
    mut done: impl FnMut(Persist),
    mut failed: impl FnMut(&io::Error),
) {
    let mut writer = GroupWriter::default();
    let mut group = VecDeque::new();
    let mut healthy = true;
    while queue.take(&mut group) {
        while !group.is_empty() {
            let count = writer.encode(&group);
            if healthy {
                let written = disk.append(&writer.bytes).and_then(|()| disk.sync());
                if let Err(error) = written {
                    healthy = false;
                    failed(&error);
                }
            }
            for mut persist in group.drain(..count) {
                let fits = persist.operation.buffer.len() <= RECORD_BYTES_MAX;
                if !healthy || !fits {
                    persist.operation.result = Err(FabricError::NoResources);
                }
                done(persist);
            }
        }
    }
}

#[derive(Debug, Default)]
struct GroupWriter {
    bytes: Vec<u8>,
    sequence: u64,
}

impl GroupWriter {
    /// Encodes the first records of `group`, at least one; returns how many.
    fn encode(&mut self, group: &VecDeque<Persist>) -> usize {
        self.bytes.clear();
        for (count, Persist { from, operation }) in group.iter().enumerate() {
            if self.bytes.len() >= GROUP_BYTES_MAX {
                return count;
            }
            let Transfer::Persist { offset, .. } = operation.transfer else {
                panic!("the log device persists, and nothing else");
            };
            if operation.buffer.len() > RECORD_BYTES_MAX {
                continue;
            }
            self.sequence += 1;
            let (sequence, bytes) = (self.sequence, &operation.buffer[..]);
            LogRecord { sequence, engine: *from, offset, bytes }.emit(&mut self.bytes);
        }
        group.len()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use nicol_core::ids::NodeId;
    use nicol_core::memory::Region;
    use nicol_core::units::Bytes;

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

    impl Disk for Small<'_> {
        fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
            let fits = bytes.len().min(self.room - self.file.len());
            self.file.extend_from_slice(&bytes[..fits]);
            if fits < bytes.len() { Err(Self::full()) } else { Ok(()) }
        }

        fn sync(&mut self) -> io::Result<()> {
            self.synced.push(self.file.len());
            Ok(())
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

    /// Serves persists of these sizes that wait already.
    fn serve_all(room: usize, sizes: &[usize]) -> Served {
        let queue = LogQueue::default();
        let numbered = sizes.iter().zip(0..);
        queue.add(NIC, numbered.map(|(&size, number)| persist(size, number)));
        queue.close();
        let view = View::new(1, 1, 1, 1).unwrap();
        let header = LogHeader { node: NodeId(0), view }.emit().to_vec();
        let mut served = Served { file: header, ..Served::default() };
        let disk = Small { room, file: &mut served.file, synced: &mut served.synced };
        let done = |Persist { operation, .. }| {
            assert!(operation.result.is_ok() || operation.result == Err(FabricError::NoResources));
            served.results.push((operation.token, operation.result.is_ok()));
        };
        serve(&queue, disk, done, |_| served.errors += 1);
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
        let mut reader = LogReader::open(&*file).unwrap();
        assert_eq!(reader.next().unwrap().unwrap().bytes.len(), GROUP_BYTES_MAX);
        assert!(reader.next().unwrap().is_none());
        let end = reader.end().unwrap();
        assert_eq!((end.valid_bytes, end.torn), (synced[0] as u64, Some(Torn::Cut)));
    }

    #[test]
    fn what_no_reader_would_take_is_refused_alone() {
        let Served { results, errors, file, .. } =
            serve_all(1 << 30, &[8, RECORD_BYTES_MAX + 1, 8]);
        assert_eq!(results, [(0, true), (1, false), (2, true)]);
        assert_eq!(errors, 0);
        let mut reader = LogReader::open(&*file).unwrap();
        while reader.next().unwrap().is_some() {}
        assert_eq!(reader.end(), Some(LogEnd { valid_bytes: file.len() as u64, torn: None }));
    }
}
