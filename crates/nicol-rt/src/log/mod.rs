//! Log devices: what makes a node's writes durable.
//!
//! [`LogDevice::File`] keeps a file per node. A thread per node takes all persists that wait,
//! writes them with one write and one fdatasync (group commit: while one group is synced the next
//! one gathers), and only then hands them back to their engines.
//!
//! Persists that wait are bounded by the calls in flight: each belongs to a request that is not
//! answered before.
//!
//! A crash of the host decides about every persist that was not handed back: its record is whole,
//! gone or torn. Whoever starts the host again gets the records up to the first that is not whole,
//! read from the file.

mod device;
mod format;
mod queue;

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

pub(crate) use device::serve;
pub use format::{
    HEADER_LEN, LogEnd, LogFileError, LogHeader, LogReader, LogRecord, RECORD_BYTES_MAX,
    RECORD_FRAMING, Torn,
};
use nicol_core::view::{Role, View};
pub(crate) use queue::{LogQueue, Persist, Persisted};

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
    /// Cuts off what lies behind the first `len` bytes.
    fn cut(&mut self, len: u64) -> io::Result<()>;
    /// All that was written, from the first byte.
    fn content(&self) -> io::Result<Box<dyn Read + '_>>;
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

    fn cut(&mut self, len: u64) -> io::Result<()> {
        self.file.set_len(len).map_err(at(&self.path))
    }

    fn content(&self) -> io::Result<Box<dyn Read + '_>> {
        let file = File::open(&self.path).map_err(at(&self.path))?;
        Ok(Box::new(BufReader::new(file)))
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
        let made = OpenOptions::new().append(true).create_new(true).mode(0o600).open(&path);
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
