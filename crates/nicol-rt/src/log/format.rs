//! The bytes of a log file: a header, then records, each with its checksum. Little-endian.
//!
//! A crash may leave anything behind the last group that was synced: nothing, a part, or later
//! parts without earlier ones. So a reader takes records as long as length, sequence and checksum
//! fit, and calls the rest torn.

use std::io::{self, Read};

use nicol_core::ids::{EngineId, NodeId};
use nicol_core::view::{Role, View, ViewError};

/// The first bytes of every log file.
const MAGIC: [u8; 8] = *b"NICOLLOG";
/// The version that this code writes, and the only one that it reads.
const VERSION: u32 = 2;
/// Bytes of the largest record: more than any log ring holds of one transaction.
pub const RECORD_BYTES_MAX: usize = 64 << 20;

mod header {
    use std::ops::Range;

    pub const MAGIC: Range<usize> = 0..8;
    pub const VERSION: Range<usize> = 8..12;
    /// Node, nodes that hold shards, replicas, host engines, NIC engines.
    pub const LAYOUT: Range<usize> = 12..32;
    pub const HASH_SEED: Range<usize> = 32..40;
    pub const CHECKSUM: Range<usize> = 40..44;
}

/// Bytes of the header.
pub const HEADER_LEN: usize = header::CHECKSUM.end;

mod record {
    use std::ops::Range;

    pub const LENGTH: Range<usize> = 0..4;
    pub const CHECKSUM: Range<usize> = 4..8;
    pub const SEQUENCE: Range<usize> = 8..16;
    pub const ENGINE: Range<usize> = 16..20;
    pub const LABEL: Range<usize> = 20..24;
    pub const OFFSET: Range<usize> = 24..32;
}

/// Bytes of a record besides what it carries.
pub const RECORD_FRAMING: usize = record::OFFSET.end;

/// Whose log it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogHeader {
    /// The node.
    pub node: NodeId,
    /// Its cluster, with the seed of the hash that spreads keys over shards.
    pub view: View,
}

/// Bytes that an engine made durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogRecord<'a> {
    /// Its number in the file, from 1, without gaps.
    pub sequence: u64,
    /// The engine.
    pub engine: EngineId,
    /// The label of the region that the bytes stood in: of a log its name, else 0.
    pub label: u32,
    /// Where they stood in it.
    pub offset: u64,
    /// The bytes.
    pub bytes: &'a [u8],
}

/// Why a file is not a log.
#[derive(Debug, thiserror::Error)]
pub enum LogFileError {
    /// It cannot be read.
    #[error("cannot read the log: {0}")]
    Io(#[from] io::Error),
    /// Its header is damaged or something else.
    #[error("the file is no log of this version: its {0} is wrong")]
    Header(&'static str),
    /// Its header describes an impossible cluster.
    #[error("the log's header is impossible: {0}")]
    View(#[from] ViewError),
}

/// Why reading stopped before the file's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Torn {
    /// The file ends within a record.
    Cut,
    /// A length beyond [`RECORD_BYTES_MAX`].
    Length,
    /// The checksum does not fit.
    Checksum,
    /// The checksum fits, but not here: a record of another place or time.
    Misplaced,
}

/// Where the readable part of a file ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogEnd {
    /// Bytes of the header and of every record before it.
    pub valid_bytes: u64,
    /// What follows, if not the file's end.
    pub torn: Option<Torn>,
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
        let checksum = crc32c::crc32c(&bytes[..header::CHECKSUM.start]);
        bytes[header::CHECKSUM].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    fn parse(bytes: &[u8; HEADER_LEN]) -> Result<Self, LogFileError> {
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
        Ok(Self { node: NodeId(node as u16), view })
    }
}

impl LogRecord<'_> {
    /// Appends the record's bytes.
    ///
    /// # Panics
    /// If it carries more than [`RECORD_BYTES_MAX`].
    pub fn emit(&self, to: &mut Vec<u8>) {
        assert!(self.bytes.len() <= RECORD_BYTES_MAX, "a reader would refuse the record");
        let start = to.len();
        to.extend_from_slice(&(self.bytes.len() as u32).to_le_bytes());
        to.extend_from_slice(&[0; 4]);
        to.extend_from_slice(&self.sequence.to_le_bytes());
        to.extend_from_slice(&self.engine.pack().to_le_bytes());
        to.extend_from_slice(&self.label.to_le_bytes());
        to.extend_from_slice(&self.offset.to_le_bytes());
        assert!(to.len() - start == RECORD_FRAMING, "every field has its place");
        to.extend_from_slice(self.bytes);
        let checksum = checksum(&to[start..]);
        to[start..][record::CHECKSUM].copy_from_slice(&checksum.to_le_bytes());
    }
}

/// Of the whole record but the checksum itself.
fn checksum(bytes: &[u8]) -> u32 {
    let length = crc32c::crc32c(&bytes[record::LENGTH]);
    crc32c::crc32c_append(length, &bytes[record::CHECKSUM.end..])
}

fn u32_at(bytes: &[u8]) -> u32 {
    bytes.try_into().map_or(0, u32::from_le_bytes)
}

fn u64_at(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(0, u64::from_le_bytes)
}

/// Reads a log file record by record. Never takes more memory than one record needs.
#[derive(Debug)]
pub struct LogReader<R> {
    from: R,
    header: LogHeader,
    sequence: u64,
    valid_bytes: u64,
    record: Vec<u8>,
    end: Option<LogEnd>,
}

impl<R: Read> LogReader<R> {
    /// Reads the header.
    ///
    /// # Errors
    /// If it is missing, damaged, of another version or of no possible cluster.
    pub fn open(mut from: R) -> Result<Self, LogFileError> {
        let mut bytes = [0; HEADER_LEN];
        from.read_exact(&mut bytes).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => LogFileError::Header("length"),
            _ => LogFileError::Io(error),
        })?;
        let header = LogHeader::parse(&bytes)?;
        let valid_bytes = HEADER_LEN as u64;
        Ok(Self { from, header, sequence: 0, valid_bytes, record: Vec::new(), end: None })
    }

    /// Whose log it is.
    pub fn header(&self) -> &LogHeader {
        &self.header
    }

    /// Where the readable part ends, once [`LogReader::next`] has returned `None`.
    pub fn end(&self) -> Option<LogEnd> {
        self.end
    }

    /// The next whole record.
    ///
    /// # Errors
    /// If the file cannot be read; what is torn is no error but the end.
    #[expect(clippy::should_implement_trait, reason = "a record borrows the reader's buffer")]
    pub fn next(&mut self) -> io::Result<Option<LogRecord<'_>>> {
        if self.end.is_some() {
            return Ok(None);
        }
        let torn = match self.fill()? {
            Found::Record(engine) => return Ok(Some(self.take(engine))),
            Found::Nothing => None,
            Found::Torn(torn) => Some(torn),
        };
        self.end = Some(LogEnd { valid_bytes: self.valid_bytes, torn });
        Ok(None)
    }

    /// Reads what comes next into the buffer and judges it.
    fn fill(&mut self) -> io::Result<Found> {
        self.record.clear();
        self.read(RECORD_FRAMING)?;
        if self.record.is_empty() {
            return Ok(Found::Nothing);
        }
        if self.record.len() < RECORD_FRAMING {
            return Ok(Found::Torn(Torn::Cut));
        }
        let length = u32_at(&self.record[record::LENGTH]) as usize;
        if length > RECORD_BYTES_MAX {
            return Ok(Found::Torn(Torn::Length));
        }
        self.read(length)?;
        if self.record.len() < RECORD_FRAMING + length {
            return Ok(Found::Torn(Torn::Cut));
        }
        if u32_at(&self.record[record::CHECKSUM]) != checksum(&self.record) {
            return Ok(Found::Torn(Torn::Checksum));
        }
        let engine = EngineId::unpack(u32_at(&self.record[record::ENGINE]))
            .filter(|&engine| engine.node == self.header.node)
            .filter(|&engine| self.header.view.index_of(engine).is_some());
        let follows = u64_at(&self.record[record::SEQUENCE]) == self.sequence + 1;
        Ok(engine.filter(|_| follows).map_or(Found::Torn(Torn::Misplaced), Found::Record))
    }

    /// Appends up to `len` bytes to the buffer, as many as there are.
    fn read(&mut self, len: usize) -> io::Result<()> {
        (&mut self.from).take(len as u64).read_to_end(&mut self.record).map(|_| ())
    }

    fn take(&mut self, engine: EngineId) -> LogRecord<'_> {
        self.sequence += 1;
        self.valid_bytes += self.record.len() as u64;
        LogRecord {
            sequence: self.sequence,
            engine,
            label: u32_at(&self.record[record::LABEL]),
            offset: u64_at(&self.record[record::OFFSET]),
            bytes: &self.record[RECORD_FRAMING..],
        }
    }
}

/// What stands where a record may stand.
enum Found {
    Record(EngineId),
    Nothing,
    Torn(Torn),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> LogHeader {
        let view = View::new(3, 2, 1, 2).unwrap().with_hash_seed(0x1234_5678_9abc_def0);
        LogHeader { node: NodeId(1), view }
    }

    fn file(bodies: &[&[u8]]) -> Vec<u8> {
        let mut file = header().emit().to_vec();
        for (number, bytes) in bodies.iter().enumerate() {
            let sequence = number as u64 + 1;
            let engine = EngineId::nic(NodeId(1), number as u8 % 2);
            LogRecord { sequence, engine, label: 3, offset: 8 * sequence, bytes }.emit(&mut file);
        }
        file
    }

    /// The bodies that a reader finds, and where it stops.
    fn read(file: &[u8]) -> (Vec<Vec<u8>>, LogEnd) {
        let mut reader = LogReader::open(file).unwrap();
        let mut bodies = Vec::new();
        while let Some(record) = reader.next().unwrap() {
            assert_eq!((record.label, record.offset), (3, 8 * record.sequence));
            bodies.push(record.bytes.to_vec());
        }
        assert!(reader.next().unwrap().is_none(), "the end stays the end");
        (bodies, reader.end().unwrap())
    }

    #[test]
    fn records_survive_their_file() {
        let bodies: [&[u8]; 3] = [b"one", b"", &[9; 5_000]];
        let file = file(&bodies);
        assert_eq!(LogReader::open(&*file).unwrap().header(), &header());
        let (found, end) = read(&file);
        assert_eq!(found, bodies);
        assert_eq!(end, LogEnd { valid_bytes: file.len() as u64, torn: None });
    }

    #[test]
    fn a_torn_tail_ends_the_log_wherever_it_is_cut() {
        let whole = file(&[b"first", b"second"]);
        let second = HEADER_LEN + RECORD_FRAMING + 5;
        for cut in second..whole.len() {
            let (found, end) = read(&whole[..cut]);
            assert_eq!(found, [b"first"], "cut at {cut}");
            let torn = (cut > second).then_some(Torn::Cut);
            assert_eq!(end, LogEnd { valid_bytes: second as u64, torn }, "cut at {cut}");
        }
    }

    #[test]
    fn a_flipped_bit_ends_the_log_before_it() {
        let whole = file(&[b"first", b"second"]);
        let second = HEADER_LEN + RECORD_FRAMING + 5;
        for bit in 0..8 * (whole.len() - second) {
            let mut bad = whole.clone();
            bad[second + bit / 8] ^= 1 << (bit % 8);
            let (found, end) = read(&bad);
            assert_eq!(found, [b"first"], "bit {bit}");
            assert!(end.torn.is_some(), "bit {bit}");
        }
        for bit in 0..8 * HEADER_LEN {
            let mut bad = whole.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(LogReader::open(&*bad).is_err(), "bit {bit} of the header");
        }
        assert!(LogReader::open(&whole[..HEADER_LEN - 1]).is_err());
    }

    #[test]
    fn a_whole_record_of_another_time_or_node_ends_the_log() {
        let engine = EngineId::nic(NodeId(1), 0);
        for (sequence, engine) in [(1, engine), (3, engine), (2, EngineId::nic(NodeId(0), 0))] {
            let mut file = file(&[b"first"]);
            LogRecord { sequence, engine, label: 3, offset: 0, bytes: b"stale" }.emit(&mut file);
            let (found, end) = read(&file);
            assert_eq!(found, [b"first"]);
            assert_eq!(end.torn, Some(Torn::Misplaced));
        }
    }

    #[test]
    fn a_hostile_length_takes_no_memory() {
        let mut long = file(&[]);
        long.extend_from_slice(&u32::MAX.to_le_bytes());
        long.extend_from_slice(&[0; RECORD_FRAMING]);
        assert_eq!(read(&long).1.torn, Some(Torn::Length));
        let mut empty = file(&[]);
        empty.extend_from_slice(&(RECORD_BYTES_MAX as u32).to_le_bytes());
        empty.extend_from_slice(&[0; RECORD_FRAMING]);
        assert_eq!(read(&empty).1.torn, Some(Torn::Cut));
    }
}
