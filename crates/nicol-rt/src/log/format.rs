//! The bytes of a log file: a header, then records. Little-endian.
//!
//! A record has two checksums: one of its head and its first bytes ([`LEAD`]), which say whose it
//! is, and one of all it carries. It names the last record that was durable when it was written, so
//! that a reader can tell damage from what a crash has torn. Both checksums begin with a random
//! word of the file's header: what a client has stored never looks like a record.

use std::io;

use nicol_core::ids::{EngineId, NodeId};
use nicol_core::view::{Role, View, ViewError};

/// The first bytes of every log file.
const MAGIC: [u8; 8] = *b"NICOLLOG";
/// The version that this code writes, and the only one that it reads.
const VERSION: u32 = 3;
/// Bytes of the largest record: more than any log ring holds of one transaction.
pub const RECORD_BYTES_MAX: usize = 80 << 20;

mod header {
    use std::ops::Range;

    pub const MAGIC: Range<usize> = 0..8;
    pub const VERSION: Range<usize> = 8..12;
    /// Node, nodes that hold shards, replicas, host engines, NIC engines.
    pub const LAYOUT: Range<usize> = 12..32;
    pub const HASH_SEED: Range<usize> = 32..40;
    pub const LIFE: Range<usize> = 40..48;
    pub const NONCE: Range<usize> = 48..56;
    pub const CHECKSUM: Range<usize> = 56..60;
}

/// Bytes of the header.
pub const HEADER_LEN: usize = header::CHECKSUM.end;

pub(super) mod record {
    use std::ops::Range;

    pub const HEAD_CHECKSUM: Range<usize> = 0..4;
    pub const LENGTH: Range<usize> = 4..8;
    pub const CHECKSUM: Range<usize> = 8..12;
    pub const ENGINE: Range<usize> = 12..16;
    pub const SEQUENCE: Range<usize> = 16..24;
    pub const DURABLE: Range<usize> = 24..32;
    pub const OFFSET: Range<usize> = 32..40;
    pub const LABEL: Range<usize> = 40..44;
}

/// Bytes of a record besides what it carries.
pub const RECORD_FRAMING: usize = record::LABEL.end;

/// Leading bytes of what a record carries that have a checksum of their own, with the head.
pub const LEAD: usize = 32;

/// Whose log it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogHeader {
    pub node: NodeId,
    /// Its cluster, with the seed of the hash that spreads keys over shards.
    pub view: View,
    /// The life of the store that this log belongs to; 0: of none, the log will not be read back.
    pub life: u64,
    /// A random word with which every checksum of the file begins.
    pub nonce: u64,
}

/// Bytes that an engine made durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogRecord<'a> {
    /// Its number in the file, from 1, without gaps.
    pub sequence: u64,
    /// The number of the last record that was durable when this one was written.
    pub durable: u64,
    pub engine: EngineId,
    /// The label of the region that the bytes stood in: of a log its name, else 0.
    pub label: u32,
    /// Where they stood in it.
    pub offset: u64,
    pub bytes: &'a [u8],
}

/// Why a file is not a log.
#[derive(Debug, thiserror::Error)]
pub enum LogFileError {
    /// It cannot be read.
    #[error("cannot read the log: {0}")]
    Io(#[from] io::Error),
    /// Its header is damaged or something else.
    #[error("the file is no log of this version: its {0} is wrong (bytes 0 to {HEADER_LEN})")]
    Header(&'static str),
    /// Its header describes an impossible cluster.
    #[error("the log's header is impossible: {0}")]
    View(#[from] ViewError),
}

impl LogHeader {
    /// The header's bytes.
    pub fn emit(&self) -> [u8; HEADER_LEN] {
        use nicol_core::ids::Side;
        let mut bytes = [0; HEADER_LEN];
        bytes[header::MAGIC].copy_from_slice(&MAGIC);
        bytes[header::VERSION].copy_from_slice(&VERSION.to_le_bytes());
        let view = &self.view;
        let (hosts, nics) = (view.engines_most(Side::Host), view.engines_most(Side::Nic));
        let servers = view.nodes_of(Role::Server).count();
        let counts = [usize::from(self.node.0), servers, view.replicas(), hosts, nics];
        for (field, count) in bytes[header::LAYOUT].chunks_exact_mut(4).zip(counts) {
            field.copy_from_slice(&(count as u32).to_le_bytes());
        }
        bytes[header::HASH_SEED].copy_from_slice(&view.hash_seed().to_le_bytes());
        bytes[header::LIFE].copy_from_slice(&self.life.to_le_bytes());
        bytes[header::NONCE].copy_from_slice(&self.nonce.to_le_bytes());
        let checksum = crc32c::crc32c(&bytes[..header::CHECKSUM.start]);
        bytes[header::CHECKSUM].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    pub(super) fn parse(bytes: &[u8; HEADER_LEN]) -> Result<Self, LogFileError> {
        if bytes[header::MAGIC] != MAGIC {
            return Err(LogFileError::Header("first word"));
        }
        if u32_at(&bytes[header::VERSION]) != VERSION {
            return Err(LogFileError::Header("version"));
        }
        if u32_at(&bytes[header::CHECKSUM]) != crc32c::crc32c(&bytes[..header::CHECKSUM.start]) {
            return Err(LogFileError::Header("checksum"));
        }
        let mut counts = bytes[header::LAYOUT].chunks_exact(4).map(|field| u32_at(field) as usize);
        let mut next = || counts.next().unwrap_or_default();
        let (node, nodes, replicas, hosts, nics) = (next(), next(), next(), next(), next());
        let view = View::new(nodes, replicas, hosts, nics)?
            .with_hash_seed(u64_at(&bytes[header::HASH_SEED]));
        if node >= nodes {
            return Err(LogFileError::Header("node"));
        }
        let (life, nonce) = (u64_at(&bytes[header::LIFE]), u64_at(&bytes[header::NONCE]));
        Ok(Self { node: NodeId(node as u16), view, life, nonce })
    }
}

impl LogRecord<'_> {
    /// Appends the record's bytes, for a file with this nonce.
    ///
    /// # Panics
    /// If it carries more than [`RECORD_BYTES_MAX`].
    pub fn emit(&self, nonce: u64, to: &mut Vec<u8>) {
        assert!(self.bytes.len() <= RECORD_BYTES_MAX, "a reader would refuse the record");
        let start = to.len();
        to.extend_from_slice(&[0; 4]);
        to.extend_from_slice(&(self.bytes.len() as u32).to_le_bytes());
        to.extend_from_slice(&checksum(nonce, self.bytes).to_le_bytes());
        to.extend_from_slice(&self.engine.pack().to_le_bytes());
        to.extend_from_slice(&self.sequence.to_le_bytes());
        to.extend_from_slice(&self.durable.to_le_bytes());
        to.extend_from_slice(&self.offset.to_le_bytes());
        to.extend_from_slice(&self.label.to_le_bytes());
        assert!(to.len() - start == RECORD_FRAMING, "every field has its place");
        to.extend_from_slice(self.bytes);
        let checksum = head_checksum(nonce, &to[start..]);
        to[start..][record::HEAD_CHECKSUM].copy_from_slice(&checksum.to_le_bytes());
    }
}

/// Of a record's head but the checksum itself, and of the first bytes behind it, as many of
/// [`LEAD`] as there are.
pub(super) fn head_checksum(nonce: u64, record: &[u8]) -> u32 {
    let end = record.len().min(RECORD_FRAMING + LEAD);
    checksum(nonce, &record[record::HEAD_CHECKSUM.end..end])
}

/// Of `bytes`, in a file with this nonce.
pub(super) fn checksum(nonce: u64, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&nonce.to_le_bytes()), bytes)
}

pub(super) fn u32_at(bytes: &[u8]) -> u32 {
    bytes.try_into().map_or(0, u32::from_le_bytes)
}

pub(super) fn u64_at(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(0, u64::from_le_bytes)
}
