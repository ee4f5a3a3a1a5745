//! Saved tables: all records of a store at one time, in two files that are copies of each other.
//! A header, then blocks of records, each with its checksum; an empty block ends the file.
//! Little-endian.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use nicol_core::ids::{Key, Version};

use super::files::{at, draw, make, sync_names};
use super::format::{checksum, u32_at, u64_at};

const MAGIC: [u8; 8] = *b"NICOLTAB";
const VERSION: u32 = 1;
/// The files of a run.
const NAMES: [&str; 2] = ["tables-1", "tables-2"];
/// Bytes of records after which a block ends.
const BLOCK_BYTES: usize = 256 << 10;
/// Bytes of the longest block: one more record, of the largest value.
const BLOCK_BYTES_MAX: usize = BLOCK_BYTES + RECORD_FRAMING + nicol_core::txn::VALUE_MAX;

mod header {
    use super::Range;

    pub const MAGIC: Range<usize> = 0..8;
    pub const VERSION: Range<usize> = 8..12;
    pub const HASH_SEED: Range<usize> = 12..20;
    pub const LIFE: Range<usize> = 20..28;
    pub const NONCE: Range<usize> = 28..36;
    pub const CHECKSUM: Range<usize> = 36..40;
    pub const LEN: usize = CHECKSUM.end;
}

mod block {
    use super::Range;

    pub const CHECKSUM: Range<usize> = 0..4;
    pub const LENGTH: Range<usize> = 4..8;
    pub const NUMBER: Range<usize> = 8..16;
    pub const LEN: usize = NUMBER.end;
}

/// Key, version and length before a value.
const RECORD_FRAMING: usize = 20;

/// Whose tables they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TablesHeader {
    /// The seed of the hash that spreads keys over shards.
    pub hash_seed: u64,
    /// The life of a store that they begin or go on with.
    pub life: u64,
}

/// Tables that were saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrittenTables {
    /// Bytes of one of the two files.
    pub bytes: u64,
    /// The random word in both headers.
    pub nonce: u64,
}

/// The size of what was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tables {
    pub header: TablesHeader,
    pub records: u64,
    /// Blocks that were missing or damaged in one file and read from the other one.
    pub repaired: u64,
}

/// Why saved tables cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum TablesError {
    /// The system's error, with the file's name.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// Both files are damaged at the same place.
    #[error(
        "{}: missing or damaged at byte {offset}, as is its copy {}: what stood there is lost; \
         restore one of the two files from a backup, or move the folder that holds all runs away to \
         start empty",
        .paths[0].display(), .paths[1].display()
    )]
    Damaged { paths: [PathBuf; 2], offset: u64 },
}

/// Are tables saved in this run? One of the two is enough: neither has its name before both are
/// durable.
pub(super) fn has_tables(run: &Path) -> bool {
    NAMES.iter().any(|name| run.join(name).exists())
}

/// True of the name, without an extension, of saved tables.
pub(super) fn is_table(stem: &Path) -> bool {
    NAMES.iter().any(|name| stem.file_name().is_some_and(|found| found == *name))
}

/// Saves tables in `run`, durable once this returns.
///
/// # Errors
/// If a file cannot be written; what was written is removed.
pub fn write_tables<'r>(
    run: &Path,
    tables: TablesHeader,
    records: impl Iterator<Item = (Key, Version, &'r [u8])>,
) -> io::Result<WrittenTables> {
    let paths = NAMES.map(|name| run.join(name));
    let new = NAMES.map(|name| run.join(format!("{name}.new")));
    let written = write_new(&new, tables, records);
    if written.is_err() {
        // What cannot be removed is overwritten the next time, and never read.
        new.iter().for_each(|path| drop(fs::remove_file(path)));
    }
    let written = written?;
    for (new, path) in new.iter().zip(&paths) {
        fs::rename(new, path).map_err(at(path))?;
    }
    sync_names(run)?;
    Ok(written)
}

fn write_new<'r>(
    paths: &[PathBuf; 2],
    tables: TablesHeader,
    records: impl Iterator<Item = (Key, Version, &'r [u8])>,
) -> io::Result<WrittenTables> {
    let mut files = Vec::new();
    for path in paths {
        files.push((path, BufWriter::new(make(path).map_err(at(path))?)));
    }
    let nonce = draw()?;
    let mut bytes = 0;
    let mut put = |part: &[u8]| -> io::Result<()> {
        bytes += part.len() as u64;
        files.iter_mut().try_for_each(|(path, file)| file.write_all(part).map_err(at(path)))
    };
    put(&emit_header(tables, nonce))?;
    let (mut number, mut current) = (0, Vec::new());
    for (key, version, value) in records {
        current.extend_from_slice(&key.0.to_le_bytes());
        current.extend_from_slice(&version.0.to_le_bytes());
        current.extend_from_slice(&(value.len() as u32).to_le_bytes());
        current.extend_from_slice(value);
        if current.len() >= BLOCK_BYTES {
            put(&emit_block(number, &current, nonce))?;
            number += 1;
            current.clear();
        }
    }
    if !current.is_empty() {
        put(&emit_block(number, &current, nonce))?;
        number += 1;
    }
    put(&emit_block(number, &[], nonce))?;
    for (path, file) in files {
        let file = file.into_inner().map_err(io::IntoInnerError::into_error);
        file.and_then(|file| file.sync_all()).map_err(at(path))?;
    }
    Ok(WrittenTables { bytes, nonce })
}

fn emit_header(tables: TablesHeader, nonce: u64) -> [u8; header::LEN] {
    let mut bytes = [0; header::LEN];
    bytes[header::MAGIC].copy_from_slice(&MAGIC);
    bytes[header::VERSION].copy_from_slice(&VERSION.to_le_bytes());
    bytes[header::HASH_SEED].copy_from_slice(&tables.hash_seed.to_le_bytes());
    bytes[header::LIFE].copy_from_slice(&tables.life.to_le_bytes());
    bytes[header::NONCE].copy_from_slice(&nonce.to_le_bytes());
    let sum = checksum(0, &bytes[..header::CHECKSUM.start]);
    bytes[header::CHECKSUM].copy_from_slice(&sum.to_le_bytes());
    bytes
}

fn parse_header(bytes: &[u8]) -> Option<(TablesHeader, u64)> {
    let whole = bytes.len() == header::LEN
        && bytes[header::MAGIC] == MAGIC
        && u32_at(&bytes[header::VERSION]) == VERSION
        && u32_at(&bytes[header::CHECKSUM]) == checksum(0, &bytes[..header::CHECKSUM.start]);
    let (hash_seed, life) = (u64_at(&bytes[header::HASH_SEED]), u64_at(&bytes[header::LIFE]));
    whole.then(|| (TablesHeader { hash_seed, life }, u64_at(&bytes[header::NONCE])))
}

fn emit_block(number: u64, records: &[u8], nonce: u64) -> Vec<u8> {
    let mut bytes = vec![0; block::LEN];
    bytes[block::LENGTH].copy_from_slice(&(records.len() as u32).to_le_bytes());
    bytes[block::NUMBER].copy_from_slice(&number.to_le_bytes());
    bytes.extend_from_slice(records);
    let sum = checksum(nonce, &bytes[block::CHECKSUM.end..]);
    bytes[block::CHECKSUM].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// Reads the tables saved in `run` with this nonce and calls `each` with every record, in the order
/// in which they were written. What is damaged in one file, or cannot be read, or is of other
/// tables, is read from the other one.
///
/// # Errors
/// If at one place both files are damaged or cannot be read, or one cannot be opened.
pub fn read_tables(
    run: &Path,
    nonce: u64,
    each: &mut dyn FnMut(Key, Version, &[u8]),
) -> Result<Tables, TablesError> {
    let mut copies = Copies::open(NAMES.map(|name| run.join(name)))?;
    let header_of = |bytes: &[u8]| parse_header(bytes).filter(|(_, found)| *found == nonce);
    copies.read(0, |file, bytes| {
        Ok(read_at(file, 0, header::LEN, bytes)? && header_of(bytes).is_some())
    })?;
    let (header, _) = header_of(&copies.bytes).ok_or_else(|| copies.damaged(0))?;
    let (mut offset, mut records) = (header::LEN as u64, 0);
    for number in 0.. {
        copies.read(offset, |file, bytes| read_block(file, offset, number, nonce, bytes))?;
        let body = &copies.bytes[block::LEN..];
        if body.is_empty() {
            break;
        }
        records += for_each_record(body, each).ok_or_else(|| copies.damaged(offset))?;
        offset += copies.bytes.len() as u64;
    }
    Ok(Tables { header, records, repaired: copies.repaired })
}

/// The files of which one is a copy of the other, as far as they are there.
struct Copies {
    paths: [PathBuf; 2],
    /// How the file ranks, its name, and the file.
    files: Vec<(usize, PathBuf, File)>,
    /// The content that was read last.
    bytes: Vec<u8>,
    repaired: u64,
}

impl Copies {
    fn open(paths: [PathBuf; 2]) -> io::Result<Self> {
        let mut files = Vec::new();
        for (rank, path) in paths.iter().enumerate() {
            match File::open(path) {
                Ok(file) => files.push((rank, path.clone(), file)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(at(path)(error)),
            }
        }
        Ok(Self { paths, files, bytes: Vec::new(), repaired: 0 })
    }

    /// Reads what stands at `offset` from the first file in which it can be read and is `whole`.
    fn read(
        &mut self,
        offset: u64,
        whole: impl Fn(&File, &mut Vec<u8>) -> io::Result<bool>,
    ) -> Result<(), TablesError> {
        let mut unreadable = None;
        for (rank, path, file) in &self.files {
            match whole(file, &mut self.bytes).map_err(at(path)) {
                Ok(true) => {
                    self.repaired += u64::from(*rank > 0);
                    return Ok(());
                }
                Ok(false) => {}
                // A disk says so of a sector that has gone bad: the copy is on others.
                Err(error) => unreadable = Some(unreadable.unwrap_or(error)),
            }
        }
        Err(unreadable.map_or_else(|| self.damaged(offset), TablesError::Io))
    }

    fn damaged(&self, offset: u64) -> TablesError {
        TablesError::Damaged { paths: self.paths.clone(), offset }
    }
}

/// Reads a block with its head; false if it is damaged.
fn read_block(
    file: &File,
    offset: u64,
    number: u64,
    nonce: u64,
    bytes: &mut Vec<u8>,
) -> io::Result<bool> {
    if !read_at(file, offset, block::LEN, bytes)? {
        return Ok(false);
    }
    let length = u32_at(&bytes[block::LENGTH]) as usize;
    if length > BLOCK_BYTES_MAX || u64_at(&bytes[block::NUMBER]) != number {
        return Ok(false);
    }
    Ok(read_at(file, offset, block::LEN + length, bytes)?
        && u32_at(&bytes[block::CHECKSUM]) == checksum(nonce, &bytes[block::CHECKSUM.end..]))
}

/// Reads `len` bytes in place of those in `bytes`; false if the file ends before.
fn read_at(file: &File, offset: u64, len: usize, bytes: &mut Vec<u8>) -> io::Result<bool> {
    bytes.resize(len, 0);
    match file.read_exact_at(bytes, offset) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        read => read.map(|()| true),
    }
}

fn for_each_record(mut body: &[u8], each: &mut dyn FnMut(Key, Version, &[u8])) -> Option<u64> {
    let mut records = 0;
    while !body.is_empty() {
        let (framing, rest) = body.split_at_checked(RECORD_FRAMING)?;
        let (key, version) = (Key(u64_at(&framing[..8])), Version(u64_at(&framing[8..16])));
        let (value, rest) = rest.split_at_checked(u32_at(&framing[16..]) as usize)?;
        each(key, version, value);
        body = rest;
        records += 1;
    }
    Some(records)
}

#[cfg(test)]
mod tests;
