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
//! gone or torn. A host that starts again gets the records up to the first that is not whole, read
//! from the file.

mod absent;
mod device;
mod files;
mod folder;
mod format;
mod manifest;
mod marks;
mod queue;
mod reader;
mod tables;

use std::io::{self, Read};
use std::path::PathBuf;
use std::str::FromStr;

pub(crate) use absent::Absent;
pub(crate) use device::serve;
pub(crate) use folder::create;
pub use folder::{LogFile, LogFolder, Run, remove_runs};
pub use format::{
    HEADER_LEN, LEAD, LogFileError, LogHeader, LogRecord, RECORD_BYTES_MAX, RECORD_FRAMING,
};
pub use manifest::{FoundManifest, ListedRun, Manifest};
pub use marks::{Marks, read_marks};
pub(crate) use queue::{LogQueue, Persist, Persisted};
pub use reader::{LogEntry, LogReader, Lost};
pub use tables::{Tables, TablesError, TablesHeader, WrittenTables, read_tables, write_tables};

/// The device that makes a node's writes durable.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum LogDevice {
    /// Memory counts as durable, as if it were battery-backed: the papers' assumption. Without such
    /// memory everything is lost when the process ends.
    #[default]
    Memory,
    /// A file per node. Each launch makes a folder `run-N` of its own.
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
    /// The word with which its checksums begin.
    fn nonce(&self) -> u64;
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// True if there is room for more than was appended. Tries to reserve some if there was none.
    fn has_room(&mut self) -> bool;
    /// Returns when everything appended is durable.
    fn sync(&mut self) -> io::Result<()>;
    /// Cuts off what lies behind the first `len` bytes.
    fn cut(&mut self, len: u64) -> io::Result<()>;
    /// All that was written, from the first byte.
    fn content(&self) -> io::Result<Box<dyn Read + '_>>;
}
