//! The results of a chain's operations, as bytes.

use std::fmt;

use super::OPERATIONS_MAX;
use crate::fabric::FabricError;
use crate::memory::{AccessError, SWAP_WORDS_MAX, WORD};
use crate::wire::{Malformed, Reader, Writer};

/// Status of a reply, or of an operation, that succeeded; its bytes follow.
pub(crate) const STATUS_OK: u16 = 0;
/// Status of a compare-and-swap whose comparison did not hold; the previous words follow.
const STATUS_NOT_SWAPPED: u16 = 0x100;
/// Status of an operation that was skipped.
const STATUS_SKIPPED: u16 = 0x101;

/// The outcome of one operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome<'a> {
    /// It succeeded, with this output: none where it was redirected.
    Done(&'a [u8]),
    /// The comparison did not hold; the previous words, if not redirected.
    NotSwapped(&'a [u8]),
    /// It was conditional and the one before it did not succeed.
    Skipped,
    /// It was refused, and memory is as before.
    Refused(FabricError),
}

impl<'a> Outcome<'a> {
    /// Would a conditional operation after it run?
    pub const fn succeeded(self) -> bool {
        matches!(self, Self::Done(_))
    }

    /// The output, whether or not a comparison held.
    pub const fn bytes(self) -> &'a [u8] {
        match self {
            Self::Done(bytes) | Self::NotSwapped(bytes) => bytes,
            Self::Skipped | Self::Refused(_) => &[],
        }
    }

    /// The output as words: what a pointer, an ALLOCATE or an atomic yields. Missing ones are zero.
    pub fn words(self) -> [u64; SWAP_WORDS_MAX] {
        let mut words = [0; SWAP_WORDS_MAX];
        for (word, bytes) in words.iter_mut().zip(self.bytes().chunks_exact(WORD)) {
            // An exact chunk has as many bytes as the word.
            *word = bytes.try_into().map_or(0, u64::from_le_bytes);
        }
        words
    }
}

/// The outcomes of a chain's operations, in order.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ChainResults<'a> {
    outcomes: [Outcome<'a>; OPERATIONS_MAX],
    count: usize,
}

impl<'a> ChainResults<'a> {
    pub fn parse(payload: &'a [u8]) -> Result<Self, Malformed> {
        let mut results = Self { outcomes: [Outcome::Skipped; OPERATIONS_MAX], count: 0 };
        let mut from = Reader::new(payload);
        while !from.rest().is_empty() {
            let status = from.u16()?;
            let len = from.u32()?;
            let bytes = from.bytes(len as usize)?;
            let next = results.outcomes.get_mut(results.count);
            *next.ok_or(Malformed { what: "more results than a chain has operations" })? =
                match status {
                    STATUS_OK => Outcome::Done(bytes),
                    STATUS_NOT_SWAPPED => Outcome::NotSwapped(bytes),
                    STATUS_SKIPPED => Outcome::Skipped,
                    error => Outcome::Refused(status_error(error, bytes)),
                };
            results.count += 1;
        }
        Ok(results)
    }

    pub fn outcomes(&self) -> &[Outcome<'a>] {
        &self.outcomes[..self.count]
    }

    /// The outcome of operation `index`; one that the target did not answer counts as skipped.
    pub fn outcome(&self, index: usize) -> Outcome<'a> {
        self.outcomes().get(index).copied().unwrap_or(Outcome::Skipped)
    }

    /// The first operation that was refused, and why.
    pub fn refused(&self) -> Option<(usize, FabricError)> {
        self.outcomes().iter().enumerate().find_map(|(index, outcome)| match outcome {
            Outcome::Refused(error) => Some((index, *error)),
            _ => None,
        })
    }
}

impl fmt::Debug for ChainResults<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.outcomes()).finish()
    }
}

/// The record of one operation while its output is appended to a chain's results.
pub(super) struct Record {
    start: usize,
}

impl Record {
    const HEADER: usize = 6;

    pub(super) fn begin(results: &mut Vec<u8>) -> Self {
        let start = results.len();
        results.resize(start + Self::HEADER, 0);
        Self { start }
    }

    /// Ends the record; true if the operation succeeded.
    pub(super) fn end(self, results: &mut Vec<u8>, ran: Option<Result<bool, FabricError>>) -> bool {
        let body = self.start + Self::HEADER;
        let status = match ran {
            Some(Ok(true)) => STATUS_OK,
            Some(Ok(false)) => STATUS_NOT_SWAPPED,
            None => STATUS_SKIPPED,
            Some(Err(error)) => {
                results.truncate(body);
                error_status(error, &mut Writer::new(results))
            }
        };
        let len = (results.len() - body) as u32;
        results[self.start..self.start + 2].copy_from_slice(&status.to_le_bytes());
        results[self.start + 2..body].copy_from_slice(&len.to_le_bytes());
        status == STATUS_OK
    }
}

/// The status that names `error` in a reply, with its details.
pub(crate) fn error_status(error: FabricError, details: &mut Writer<'_>) -> u16 {
    match error {
        FabricError::Unreachable => 1,
        FabricError::TimedOut { .. } => 2,
        FabricError::NoResources => 3,
        FabricError::Malformed => 4,
        FabricError::AccessDenied(AccessError::OutOfBounds { offset, len, size }) => {
            details.u64(offset);
            details.u64(len);
            details.u64(size);
            5
        }
        FabricError::AccessDenied(AccessError::Misaligned { offset }) => {
            details.u64(offset);
            6
        }
        FabricError::AccessDenied(AccessError::Denied { rkey }) => {
            details.u32(rkey);
            7
        }
        FabricError::AccessDenied(AccessError::NotInUse { offset }) => {
            details.u64(offset);
            8
        }
        // Of memory that is gone there is nothing more to say to others.
        FabricError::AccessDenied(AccessError::Lost) => 1,
    }
}

/// The reverse of [`error_status`]; what cannot be read is `Malformed`.
pub(crate) fn status_error(status: u16, details: &[u8]) -> FabricError {
    let mut reader = Reader::new(details);
    let mut access = || {
        Ok::<_, Malformed>(match status {
            5 => AccessError::OutOfBounds {
                offset: reader.u64()?,
                len: reader.u64()?,
                size: reader.u64()?,
            },
            6 => AccessError::Misaligned { offset: reader.u64()? },
            7 => AccessError::Denied { rkey: reader.u32()? },
            _ => AccessError::NotInUse { offset: reader.u64()? },
        })
    };
    match status {
        1 => FabricError::Unreachable,
        3 => FabricError::NoResources,
        5..=8 => access().map_or(FabricError::Malformed, FabricError::AccessDenied),
        _ => FabricError::Malformed,
    }
}
