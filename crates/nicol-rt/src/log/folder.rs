//! The folder of a log device: the process that uses it, and its runs.
//!
//! A run is a folder `run-N` with a log of each node (`node-K.log`), how far they went (`marks`),
//! and, once they are saved, the tables as they were when the run began (`tables-1`, `tables-2`:
//! one is a copy of the other). A file has its name only when its header, or all of it, is durable.
//! The manifest beside the runs says which of these files there must be.

use std::fs::{self, File, TryLockError};
use std::io::{self, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use nicol_core::ids::NodeId;
use nicol_core::view::{Role, View};

use super::files::{at, draw, is_full, make, make_folders, sync_names};
use super::format::LogHeader;
use super::manifest::is_manifest;
use super::reader::LogReader;
use super::tables::{has_tables, is_table};
use super::{Disk, marks};

/// Runs that a folder may see.
const RUNS_MAX: u32 = 1_000_000;
/// The file whose lock belongs to the process that uses the folder.
const LOCK: &str = "lock";

/// The least and the most bytes that are written with zeros ahead of the records; between them it
/// is a quarter of the file. Where a record overwrites what the file has already, a sync writes
/// nothing but its bytes: on ext4 that takes a fraction of the time that a file takes that grows,
/// since the file system's journal is not written.
const RESERVED: [usize; 2] = [16 << 10, 256 << 10];

static ZEROS: [u8; RESERVED[1]] = [0; RESERVED[1]];

/// A node's log file; its errors name it.
#[derive(Debug)]
pub struct LogFile {
    path: PathBuf,
    file: File,
    nonce: u64,
    /// Where the next record goes.
    end: u64,
    /// The file's length: zeros from `end` on.
    len: u64,
    /// Was there no room for them?
    full: bool,
}

impl LogFile {
    /// Writes a header into `file`, which is empty.
    fn begin(path: PathBuf, file: File, header: &LogHeader) -> io::Result<Self> {
        let mut log = Self { path, file, nonce: header.nonce, end: 0, len: 0, full: false };
        log.append(&header.emit())?;
        log.file.sync_all().map_err(at(&log.path))?;
        Ok(log)
    }

    /// The random words in the headers of such files.
    pub fn nonces(logs: &[Self]) -> Vec<u64> {
        logs.iter().map(|log| log.nonce).collect()
    }

    /// Reserves room behind the records. A disk that is full keeps what it has for these.
    fn reserve(&mut self) {
        let [least, most] = RESERVED;
        let wanted = (self.end as usize / 4).clamp(least, most);
        let reserved = self.file.write_all_at(&ZEROS[..wanted], self.end);
        self.full = reserved.as_ref().is_err_and(is_full);
        if reserved.is_ok() {
            self.len = self.end + wanted as u64;
        } else {
            self.len = self.end;
            // It need not succeed: what did find room is zeros, too.
            _ = self.file.set_len(self.end);
        }
    }
}

impl Disk for LogFile {
    fn nonce(&self) -> u64 {
        self.nonce
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, self.end).map_err(at(&self.path))?;
        self.end += bytes.len() as u64;
        if self.end > self.len {
            self.reserve();
        }
        Ok(())
    }

    fn has_room(&mut self) -> bool {
        if self.len <= self.end {
            self.reserve();
        }
        !self.full
    }

    fn sync(&mut self) -> io::Result<()> {
        self.file.sync_data().map_err(at(&self.path))
    }

    fn cut(&mut self, len: u64) -> io::Result<()> {
        (self.end, self.len) = (len, len);
        self.file.set_len(len).map_err(at(&self.path))
    }

    fn content(&self) -> io::Result<Box<dyn Read + '_>> {
        let file = File::open(&self.path).map_err(at(&self.path))?;
        Ok(Box::new(BufReader::new(file)))
    }
}

/// A folder of log files that this process uses, until this is dropped.
#[derive(Debug)]
pub struct LogFolder {
    dir: PathBuf,
    /// The lock ends with the file.
    _lock: File,
}

/// A run in a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    pub number: u32,
    pub path: PathBuf,
    /// Are its tables saved?
    pub has_tables: bool,
}

impl LogFolder {
    /// Opens a folder that no other process may use, for a store that is read back.
    ///
    /// # Errors
    /// If it cannot be made, or another process uses it; they name the folder or file.
    pub fn open(dir: &Path) -> io::Result<Self> {
        Self::open_with(dir, File::try_lock)
    }

    /// Opens a folder that others may use as well if they do not read it back.
    fn open_shared(dir: &Path) -> io::Result<Self> {
        Self::open_with(dir, File::try_lock_shared)
    }

    fn open_with(dir: &Path, lock: fn(&File) -> Result<(), TryLockError>) -> io::Result<Self> {
        make_folders(dir)?;
        let path = dir.join(LOCK);
        let file = make(&path).map_err(at(&path))?;
        let used = || {
            let text = "another process uses this folder; end it, or give another folder";
            io::Error::new(io::ErrorKind::ResourceBusy, text)
        };
        lock(&file).map_err(|error| match error {
            TryLockError::WouldBlock => at(dir)(used()),
            TryLockError::Error(error) => at(&path)(error),
        })?;
        Ok(Self { dir: dir.to_owned(), _lock: file })
    }

    /// A random number for the life of a store; 0 stands for none.
    ///
    /// # Errors
    /// If the system has no random numbers.
    pub fn draw_life() -> io::Result<u64> {
        draw().map(|drawn| drawn.max(1))
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Its runs, oldest first.
    ///
    /// # Errors
    /// If the folder cannot be read.
    pub fn runs(&self) -> io::Result<Vec<Run>> {
        let mut runs = Vec::new();
        for entry in fs::read_dir(&self.dir).map_err(at(&self.dir))? {
            let path = entry.map_err(at(&self.dir))?.path();
            if let Some(number) = numbered::<u32>(&path, "run-").filter(|_| path.is_dir()) {
                let has_tables = has_tables(&path);
                runs.push(Run { number, path, has_tables });
            }
        }
        runs.sort_by_key(|run| run.number);
        Ok(runs)
    }

    /// A file or folder, beside `runs` or in one of them, that is none of a store's, if there is
    /// one.
    ///
    /// # Errors
    /// If a folder cannot be read.
    pub fn stranger(&self, runs: &[Run]) -> io::Result<Option<PathBuf>> {
        let stranger_in = |dir: &Path, own: fn(&Path) -> bool| -> io::Result<Option<PathBuf>> {
            for entry in fs::read_dir(dir).map_err(at(dir))? {
                let path = entry.map_err(at(dir))?.path();
                if !own(&path) {
                    return Ok(Some(path));
                }
            }
            Ok(None)
        };
        let of_folder = |path: &Path| {
            path.file_name().is_some_and(|name| name == LOCK)
                || is_manifest(path)
                || path.is_dir() && numbered::<u32>(path, "run-").is_some()
        };
        if let Some(stranger) = stranger_in(&self.dir, of_folder)? {
            return Ok(Some(stranger));
        }
        for run in runs {
            if let Some(stranger) = stranger_in(&run.path, is_of_run)? {
                return Ok(Some(stranger));
            }
        }
        Ok(None)
    }

    /// Makes the folder of the next run.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn new_run(&self) -> io::Result<Run> {
        let mut number = self.runs()?.last().map_or(1, |run| run.number.saturating_add(1));
        while number <= RUNS_MAX {
            let run = self.dir.join(format!("run-{number}"));
            match fs::create_dir(&run) {
                // Another benchmark.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
                made => {
                    made.map_err(at(&run))?;
                    sync_names(&self.dir)?;
                    return Ok(Run { number, path: run, has_tables: false });
                }
            }
        }
        let full = io::Error::other(format!("{RUNS_MAX} runs were there already"));
        Err(at(&self.dir)(full))
    }

    /// Makes the logs of a run with their headers durable, one for each server of `view`.
    ///
    /// # Errors
    /// If one cannot be made.
    ///
    /// # Panics
    /// If a node that is no server comes before one that is.
    pub fn create_logs(&self, run: &Path, view: &View, life: u64) -> io::Result<Vec<LogFile>> {
        let mut servers = view.nodes_of(Role::Server).enumerate();
        assert!(servers.all(|(number, node)| node.index() == number), "servers come first");
        let mut files = Vec::new();
        // Nodes without a shard have nothing to make durable.
        for node in view.nodes_of(Role::Server) {
            let new = run.join(format!("node-{}.new", node.0));
            let file = make(&new).map_err(at(&new))?;
            let header = LogHeader { node, view: view.clone(), life, nonce: draw()? };
            files.push(LogFile::begin(new, file, &header)?);
        }
        // Only now, so that a process that is killed seldom leaves some of them without the others.
        for file in &mut files {
            let path = file.path.with_extension("log");
            fs::rename(&file.path, &path).map_err(at(&path))?;
            file.path = path;
        }
        sync_names(run)?;
        Ok(files)
    }
}

impl Run {
    /// The logs of its nodes, by node.
    ///
    /// # Errors
    /// If the folder cannot be read.
    pub fn logs(&self) -> io::Result<Vec<(NodeId, PathBuf)>> {
        let mut logs = Vec::new();
        for entry in fs::read_dir(&self.path).map_err(at(&self.path))? {
            let path = entry.map_err(at(&self.path))?.path();
            if path.extension().is_some_and(|extension| extension == "log")
                && let Some(node) = numbered(&path.with_extension(""), "node-")
            {
                logs.push((NodeId(node), path));
            }
        }
        logs.sort();
        Ok(logs)
    }
}

/// Removes runs, the oldest first, so that those that are left are the latest whatever happens.
///
/// # Errors
/// If one cannot be removed.
pub fn remove_runs<'r>(runs: impl Iterator<Item = &'r Run>) -> io::Result<()> {
    for run in runs {
        fs::remove_dir_all(&run.path).map_err(at(&run.path))?;
    }
    Ok(())
}

/// Creates the log files of one launch, in a folder of its own. They will not be read back.
///
/// # Errors
/// If a file cannot be made; if the folder holds a store, or a damaged log: its owner must
/// learn of the damage before a new log is begun. What follows the headers is not read.
pub(crate) fn create(dir: &Path, view: &View) -> io::Result<(LogFolder, Vec<LogFile>)> {
    let folder = LogFolder::open_shared(dir)?;
    for run in folder.runs()? {
        if run.has_tables {
            return Err(holds_a_store(&run.path));
        }
        for (node, path) in run.logs()? {
            check_file(&path, node)?;
        }
    }
    let run = folder.new_run()?;
    let files = folder.create_logs(&run.path, view, 0)?;
    Ok((folder, files))
}

fn holds_a_store(path: &Path) -> io::Error {
    let text = "this belongs to a store that 'nicol serve' reads back; give another folder";
    at(path)(io::Error::new(io::ErrorKind::InvalidData, text))
}

fn check_file(path: &Path, node: NodeId) -> io::Result<()> {
    let wrong = match LogReader::open(File::open(path).map_err(at(path))?) {
        Ok(reader) if reader.header().node != node => {
            format!("the file is the log of node {}", reader.header().node.0)
        }
        Ok(reader) if reader.header().life != 0 => return Err(holds_a_store(path)),
        Ok(_) => return Ok(()),
        Err(error) => error.to_string(),
    };
    let text = format!("{wrong}; move its folder away to start with another");
    Err(at(path)(io::Error::new(io::ErrorKind::InvalidData, text)))
}

/// True of a log or a saved table, and of one that was being made when its process ended.
fn is_of_run(path: &Path) -> bool {
    let stem = path.with_extension("");
    let is_log = numbered::<u16>(&stem, "node-").is_some();
    let has_extension = |wanted: &str| path.extension().is_some_and(|found| found == wanted);
    let is_marks = path.file_name().is_some_and(|name| name == marks::NAME);
    is_log && (has_extension("log") || has_extension("new")) || is_table(&stem) || is_marks
}

/// The number behind `prefix` that is the rest of a file's name.
fn numbered<N: FromStr>(path: &Path, prefix: &str) -> Option<N> {
    path.file_name()?.to_str()?.strip_prefix(prefix)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use nicol_core::ids::EngineId;

    use super::super::{LogEntry, LogRecord};
    use super::*;

    #[test]
    fn folders_are_made_with_those_above_them_and_a_file_in_the_way_is_named() {
        let dir = std::env::temp_dir().join(format!("nicol-folders-{}", std::process::id()));
        let _gone = fs::remove_dir_all(&dir);
        for _ in 0..2 {
            drop(LogFolder::open(&dir.join("one/two")).unwrap());
        }
        fs::write(dir.join("file"), "").unwrap();
        let told = LogFolder::open(&dir.join("file/two")).unwrap_err().to_string();
        assert!(told.contains(&dir.join("file").display().to_string()), "{told}");
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn a_run_comes_after_all_others_or_is_refused() {
        let dir = std::env::temp_dir().join(format!("nicol-runs-{}", std::process::id()));
        let _gone = fs::remove_dir_all(&dir);
        let folder = LogFolder::open(&dir).unwrap();
        fs::create_dir(dir.join("run-7")).unwrap();
        assert_eq!(folder.new_run().unwrap().path, dir.join("run-8"));
        fs::create_dir(dir.join(format!("run-{}", u32::MAX))).unwrap();
        let told = folder.new_run().unwrap_err().to_string();
        assert!(told.contains("1000000 runs"), "{told}");
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn records_are_written_over_zeros_and_found_again() {
        let dir = std::env::temp_dir().join(format!("nicol-reserved-{}", std::process::id()));
        let folder = LogFolder::open(&dir).unwrap();
        let run = folder.new_run().unwrap();
        let view = View::new(1, 1, 1, 1).unwrap();
        let mut log = folder.create_logs(&run.path, &view, 1).unwrap().remove(0);
        let path = run.path.join("node-0.log");
        let len = || path.metadata().unwrap().len();
        let mut sizes = vec![len()];
        for sequence in 1..=2_000 {
            let mut bytes = Vec::new();
            let engine = EngineId::host(NodeId(0), 0);
            let body = vec![sequence as u8; sequence as usize % 900];
            let (durable, bytes_of) = (sequence - 1, &body[..]);
            LogRecord { sequence, durable, engine, label: 0, offset: 0, bytes: bytes_of }
                .emit(log.nonce(), &mut bytes);
            log.append(&bytes).unwrap();
            log.sync().unwrap();
            sizes.push(len());
        }
        assert!(sizes.is_sorted());
        let grown = sizes.windows(2).filter(|pair| pair[0] < pair[1]).count();
        assert!((1..100).contains(&grown), "it grew {grown} times, not with each record");
        let read = || {
            let mut reader = LogReader::open(File::open(&path).unwrap()).unwrap();
            let mut records = 0;
            while let Some(entry) = reader.next().unwrap() {
                assert!(matches!(entry, LogEntry::Record(_)), "{entry:?}");
                records += 1;
            }
            (records, reader.offset())
        };
        let (records, end) = read();
        assert_eq!((records, end), (2_000, log.end));
        assert!(end < len());
        // What is cut off is gone, and what follows stands where it stood.
        log.cut(end - 10).unwrap();
        log.append(&[1; 10]).unwrap();
        assert_eq!((log.end, log.len > log.end), (end, true));
        drop(folder);
        fs::remove_dir_all(&dir).unwrap();
    }
}
