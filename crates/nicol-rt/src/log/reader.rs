//! Reading a log file: records, and what is wrong between them.
//!
//! Where something is wrong the reader looks for the next head whose checksum fits. What lies
//! before it is lost. If a later record says that it was durable, the file is damaged; else a crash
//! has torn what was never acknowledged. Zeros up to the file's end are what was reserved for
//! records to come.

use std::io::{self, Read};

use nicol_core::ids::EngineId;

use super::format::{
    HEADER_LEN, LEAD, LogFileError, LogHeader, LogRecord, RECORD_BYTES_MAX, RECORD_FRAMING,
    checksum, head_checksum, record, u32_at, u64_at,
};

/// Bytes read at a time, and passed before they are dropped.
const CHUNK: usize = 1 << 20;

/// An element of a log file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogEntry<'a> {
    Record(LogRecord<'a>),
    Lost(Lost),
}

/// Records that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost {
    /// Where in the file.
    pub offset: u64,
    /// The number of the first one.
    pub first: u64,
    /// How many; unknown at the file's end.
    pub records: Option<u64>,
    /// The leading bytes of what the only one carries, if its head is whole.
    pub lead: Option<[u8; LEAD]>,
}

impl Lost {
    /// True if it was durable, and so damaged since, if the last record that was durable is this
    /// one. What was not has been torn by a crash.
    pub const fn is_damage(&self, durable: u64) -> bool {
        self.first <= durable
    }
}

/// Reads a log file record by record. Takes little more memory than the largest record needs.
#[derive(Debug)]
pub struct LogReader<R> {
    window: Window<R>,
    header: LogHeader,
    /// The number of the last record, whole or lost.
    sequence: u64,
    durable: u64,
    /// Are the bytes that were passed in search of the next head zeros, all of them?
    only_zeros: bool,
    /// Where the entries end, once that is known.
    end: Option<u64>,
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
        let window = Window { from, bytes: Vec::new(), at: 0, offset: HEADER_LEN as u64 };
        Ok(Self { window, header, sequence: 0, durable: 0, only_zeros: true, end: None })
    }

    /// Whose log it is.
    pub fn header(&self) -> &LogHeader {
        &self.header
    }

    /// The number of the last record that is known to have been durable, by what was read so far.
    pub fn durable(&self) -> u64 {
        self.durable
    }

    /// Where in the file the next entry begins, or would begin.
    pub fn offset(&self) -> u64 {
        self.end.unwrap_or(self.window.offset)
    }

    /// The next entry.
    ///
    /// # Errors
    /// If the file cannot be read; damage is no error but an entry.
    #[expect(clippy::should_implement_trait, reason = "a record borrows the reader's buffer")]
    pub fn next(&mut self) -> io::Result<Option<LogEntry<'_>>> {
        if self.end.is_some() {
            return Ok(None);
        }
        let (offset, first) = (self.window.offset, self.sequence + 1);
        let Some(head) = self.next_head()? else {
            self.end = Some(if self.only_zeros { offset } else { self.window.offset });
            let lost = Lost { offset, first, records: None, lead: None };
            return Ok((!self.only_zeros).then_some(LogEntry::Lost(lost)));
        };
        if head.sequence > first {
            // The record itself comes with the next call.
            self.sequence = head.sequence - 1;
            let records = Some(head.sequence - first);
            return Ok(Some(LogEntry::Lost(Lost { offset, first, records, lead: None })));
        }
        self.sequence = head.sequence;
        let whole = self.window.fill(RECORD_FRAMING + head.len)?;
        let len = self.window.rest().len().min(RECORD_FRAMING + head.len);
        let nonce = self.header.nonce;
        self.window.pass(len);
        let bytes = &self.window.passed(len)[RECORD_FRAMING..];
        if !whole || checksum(nonce, bytes) != head.checksum {
            let mut lead = [0; LEAD];
            let known = bytes.len().min(LEAD);
            lead[..known].copy_from_slice(&bytes[..known]);
            let lost = Lost { offset, first, records: Some(1), lead: Some(lead) };
            return Ok(Some(LogEntry::Lost(lost)));
        }
        self.durable = self.durable.max(head.durable);
        let Head { engine, sequence, durable, label, offset, .. } = head;
        let record = LogRecord { sequence, durable, engine, label, offset, bytes };
        Ok(Some(LogEntry::Record(record)))
    }

    /// Goes to the next record whose head can be believed, and reads its head; to the end if there
    /// is none.
    fn next_head(&mut self) -> io::Result<Option<Head>> {
        // Each record that is passed takes at least its framing.
        let start = self.window.offset;
        self.only_zeros = true;
        loop {
            self.window.fill(RECORD_FRAMING + LEAD)?;
            let rest = self.window.rest();
            let zeros = rest.iter().take_while(|byte| **byte == 0).count();
            if rest.len() < RECORD_FRAMING {
                self.only_zeros &= zeros == rest.len();
                let len = rest.len();
                self.window.pass(len);
                return Ok(None);
            }
            let passed = (self.window.offset - start) / RECORD_FRAMING as u64;
            let expected = self.sequence + 1..=self.sequence + 1 + passed;
            if let Some(head) = Head::parse(rest, &expected, &self.header) {
                return Ok(Some(head));
            }
            self.only_zeros &= zeros > 0;
            // A head is no more than zeros at its start: it has a number.
            self.window.pass(zeros.saturating_sub(RECORD_FRAMING - 1).max(1));
        }
    }
}

/// The head of a record.
struct Head {
    len: usize,
    checksum: u32,
    engine: EngineId,
    sequence: u64,
    durable: u64,
    label: u32,
    offset: u64,
}

impl Head {
    /// The head at the start of `bytes`, if it is one of this file with such a sequence.
    fn parse(
        bytes: &[u8],
        expected: &std::ops::RangeInclusive<u64>,
        header: &LogHeader,
    ) -> Option<Self> {
        let sequence = u64_at(&bytes[record::SEQUENCE]);
        let len = u32_at(&bytes[record::LENGTH]) as usize;
        if !expected.contains(&sequence) || len > RECORD_BYTES_MAX {
            return None;
        }
        let lead = bytes.len().min(RECORD_FRAMING + len.min(LEAD));
        if head_checksum(header.nonce, &bytes[..lead]) != u32_at(&bytes[record::HEAD_CHECKSUM]) {
            return None;
        }
        let engine = EngineId::unpack(u32_at(&bytes[record::ENGINE]))
            .filter(|&engine| engine.node == header.node)
            .filter(|&engine| header.view.index_of(engine).is_some())?;
        Some(Self {
            len,
            checksum: u32_at(&bytes[record::CHECKSUM]),
            engine,
            sequence,
            durable: u64_at(&bytes[record::DURABLE]),
            label: u32_at(&bytes[record::LABEL]),
            offset: u64_at(&bytes[record::OFFSET]),
        })
    }
}

/// A part of a file.
#[derive(Debug)]
struct Window<R> {
    from: R,
    bytes: Vec<u8>,
    at: usize,
    /// Where in the file `at` is.
    offset: u64,
}

impl<R: Read> Window<R> {
    /// Reads until so many bytes are there; false if the file ends before.
    fn fill(&mut self, len: usize) -> io::Result<bool> {
        while self.bytes.len() - self.at < len {
            if self.at >= CHUNK {
                self.bytes.drain(..self.at);
                self.at = 0;
            }
            let read = (&mut self.from).take(CHUNK as u64).read_to_end(&mut self.bytes)?;
            if read == 0 {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn rest(&self) -> &[u8] {
        &self.bytes[self.at..]
    }

    fn pass(&mut self, len: usize) {
        self.at += len;
        self.offset += len as u64;
    }

    /// The `len` bytes that were passed last.
    fn passed(&self, len: usize) -> &[u8] {
        &self.bytes[self.at - len..self.at]
    }
}

#[cfg(test)]
mod tests;
