//! The marks of a run: how many records of each log have been durable, as far as it was noted.
//!
//! A log tells of itself what was durable, up to its last record. Where its end is cut off, or an
//! older copy took its place, that is not enough: the marks beside the logs say how far they went.
//! They are noted a few times a second, without a sync: they survive the process, and what they
//! miss of its last instant is what a crash may tear.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::files::{at, make};
use super::format::{checksum, u32_at, u64_at};

/// The file's name, in the folder of a run.
pub(super) const NAME: &str = "marks";
/// Bytes of a number, and of a checksum.
const WORD: usize = 8;
const SUM: usize = 4;

/// The file, while its run goes on.
#[derive(Debug)]
pub struct Marks {
    path: PathBuf,
    file: File,
    nonce: u64,
    /// The numbers noted last, and how often any were.
    noted: Vec<u64>,
    count: u64,
}

impl Marks {
    /// Makes the marks of a run whose logs have these nonces: nothing is durable yet.
    ///
    /// # Errors
    /// If the file cannot be made.
    ///
    /// # Panics
    /// If there are no logs.
    pub fn create(run: &Path, logs: &[u64]) -> io::Result<Self> {
        let path = run.join(NAME);
        let file = make(&path).map_err(at(&path))?;
        let mut marks = Self { nonce: logs[0], noted: vec![0; logs.len()], path, file, count: 0 };
        // Both halves: later notes overwrite them, and need no more room.
        (0..2).try_for_each(|_| marks.write())?;
        marks.file.sync_all().map_err(at(&marks.path))?;
        Ok(marks)
    }

    /// Notes how many records of each log are durable.
    ///
    /// Cost: a write of a few bytes where a number has changed; nothing else.
    ///
    /// # Errors
    /// If it cannot be written; what was noted before is still there.
    pub fn note(&mut self, durable: &[u64]) -> io::Result<()> {
        if self.noted == durable {
            return Ok(());
        }
        self.noted.clear();
        self.noted.extend_from_slice(durable);
        self.write()
    }

    /// Writes over the older half.
    fn write(&mut self) -> io::Result<()> {
        self.count += 1;
        let words = std::iter::once(self.count).chain(self.noted.iter().copied());
        let mut bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
        let sum = checksum(self.nonce, &bytes);
        bytes.extend_from_slice(&sum.to_le_bytes());
        let offset = self.count % 2 * bytes.len() as u64;
        self.file.write_all_at(&bytes, offset).map_err(at(&self.path))
    }
}

/// The marks in `run`, of so many logs, of which `nonce` is the first one's; `None` if they are
/// missing or damaged.
///
/// # Errors
/// If the file is there and cannot be read.
pub fn read_marks(run: &Path, nonce: u64, logs: usize) -> io::Result<Option<Vec<u64>>> {
    let path = run.join(NAME);
    let bytes = match fs::read(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        read => read.map_err(at(&path))?,
    };
    let len = (1 + logs) * WORD;
    let parse = |half: &[u8]| {
        let (words, sum) = half.split_at_checked(len)?;
        let words: Vec<u64> = words.chunks_exact(WORD).map(u64_at).collect();
        (u32_at(sum) == checksum(nonce, &half[..len])).then_some(words)
    };
    let newest = bytes.chunks(len + SUM).filter_map(parse).max();
    Ok(newest.map(|words| words[1..].to_vec()))
}
