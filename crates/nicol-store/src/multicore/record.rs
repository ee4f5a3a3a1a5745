//! A record: four words of state, then its value in place.

use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU64, Ordering};

use nicol_core::ids::{Key, Version};

use super::arena::{Place, UNIT};
use super::prefetch::prefetch;

/// Words before the value.
pub(super) const HEADER: usize = 4;

const _: () = assert!(HEADER.is_multiple_of(UNIT), "what stands behind a header has a place");

impl Place {
    /// Where the words of the record at this place begin that are not its header.
    pub const fn inside(self) -> Self {
        Self(self.0 + (HEADER / UNIT) as u32)
    }
}

mod word {
    /// What a protocol keeps: a lock, a version, a timestamp.
    pub(super) const PROTOCOL: usize = 0;
    /// Version, length and presence of the value.
    pub(super) const STATE: usize = 1;
    /// Place of the next record of the chain, and words of the value.
    pub(super) const LINKS: usize = 2;
    pub(super) const KEY: usize = 3;
}

/// The state of a record: one word, so that it is read and changed as a whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// Counts the writes of the key, deletions included; what was loaded has 1.
    pub version: Version,
    /// True if there is a value.
    pub present: bool,
    /// Its bytes.
    pub len: u32,
    /// True if it is on a worker's list of absent records, which are removed if they stay absent.
    pub watched: bool,
}

impl State {
    const LEN_BITS: u32 = 21;
    const FLAGS: u32 = 2;
    const WATCHED: u64 = 2;

    /// As one word.
    ///
    /// # Panics
    /// If the value is longer than 1 MiB.
    pub const fn pack(self) -> u64 {
        assert!(self.len >> Self::LEN_BITS == 0, "a value has 2^20 bytes at most");
        self.version.0 << (Self::LEN_BITS + Self::FLAGS)
            | (self.len as u64) << Self::FLAGS
            | (self.watched as u64) << 1
            | self.present as u64
    }

    /// The reverse of [`State::pack`].
    pub const fn unpack(word: u64) -> Self {
        Self {
            version: Version(word >> (Self::LEN_BITS + Self::FLAGS)),
            present: word & 1 == 1,
            len: (word >> Self::FLAGS) as u32 & ((1 << Self::LEN_BITS) - 1),
            watched: word & Self::WATCHED != 0,
        }
    }
}

/// A record that may change while it is read. The reader must check that it has not, by the
/// protocol of its first word.
#[derive(Clone, Copy, Debug)]
pub struct Record<'s>(pub(super) &'s [AtomicU64]);

impl<'s> Record<'s> {
    /// The word of the protocol.
    pub fn word(self) -> &'s AtomicU64 {
        &self.0[word::PROTOCOL]
    }

    /// The state that it holds.
    pub fn state(self) -> State {
        State::unpack(self.0[word::STATE].load(Ordering::Acquire))
    }

    /// Changes what it holds; its value is written before.
    pub fn set_state(self, state: State) {
        self.0[word::STATE].store(state.pack(), Ordering::Release);
    }

    /// Notes that it is on a worker's list of absent records; returns false if it already was.
    pub fn watch(self) -> bool {
        self.0[word::STATE].fetch_or(State::WATCHED, Ordering::AcqRel) & State::WATCHED == 0
    }

    /// Notes that it is on no worker's list of absent records any more.
    pub fn unwatch(self) {
        self.0[word::STATE].fetch_and(!State::WATCHED, Ordering::AcqRel);
    }

    /// Its key.
    pub fn key(self) -> Key {
        Key(self.0[word::KEY].load(Ordering::Relaxed))
    }

    /// Bytes of the longest value that fits.
    pub fn capacity(self) -> usize {
        (self.0[word::LINKS].load(Ordering::Relaxed) >> 32) as usize * size_of::<u64>()
    }

    /// Copies `len` bytes of the value to the end of `into`.
    pub fn copy_value(self, len: u32, into: &mut Vec<u8>) {
        copy(&self.0[HEADER..], len as usize, into);
    }

    /// Overwrites the value.
    ///
    /// # Panics
    /// If it does not fit.
    pub fn write_value(self, value: &[u8]) {
        assert!(value.len() <= self.capacity(), "a value fits its record");
        overwrite(&self.0[HEADER..], value);
    }

    /// Asks for the lines of the record, up to `words` words after its header.
    #[inline]
    pub(super) fn prefetch(self, words: usize) {
        let end = self.0.len().min(HEADER + words);
        let mut at = 0;
        while at < end {
            prefetch(&self.0[at]);
            at += super::LINE;
        }
    }

    pub(super) fn next(self) -> Place {
        Place(self.0[word::LINKS].load(Ordering::Acquire) as u32)
    }

    /// Only the holder of the chain's lock calls this; the words of the value stay as they are.
    pub(super) fn set_next(self, next: Place) {
        let words = self.0[word::LINKS].load(Ordering::Relaxed) >> 32;
        self.0[word::LINKS].store(words << 32 | u64::from(next.0), Ordering::Release);
    }

    /// Makes a new record of what was given out: absent, of this version.
    pub(super) fn begin(self, key: Key, value_words: usize, protocol: u64, version: Version) {
        self.0[word::KEY].store(key.0, Ordering::Relaxed);
        self.0[word::LINKS].store((value_words as u64) << 32, Ordering::Relaxed);
        self.set_state(State { version, watched: true, ..State::default() });
        self.word().store(protocol, Ordering::Release);
    }

    /// Words of its value.
    pub(super) fn value_words(self) -> usize {
        (self.0[word::LINKS].load(Ordering::Relaxed) >> 32) as usize
    }
}

/// Copies `len` bytes of `words` to the end of `into`.
pub(super) fn copy(words: &[AtomicU64], len: usize, into: &mut Vec<u8>) {
    // Lengths and words are read apart: what does not fit is refused with the version.
    let len = len.min(size_of_val(words));
    let words = &words[..len.div_ceil(size_of::<u64>())];
    into.reserve(size_of_val(words));
    let room = into.spare_capacity_mut().as_chunks_mut::<8>().0;
    assert!(room.len() >= words.len(), "there is room for what is copied");
    for (bytes, word) in room.iter_mut().zip(words) {
        *bytes = word.load(Ordering::Relaxed).to_le_bytes().map(MaybeUninit::new);
    }
    // SAFETY: the loop has written `words.len() * 8` bytes behind the end, since there is room for
    // as many words; `len` are not more.
    unsafe { into.set_len(into.len() + len) };
}

/// Writes `value` into `words`.
pub(super) fn overwrite(words: &[AtomicU64], value: &[u8]) {
    let (whole, rest) = value.as_chunks::<8>();
    for (word, bytes) in words.iter().zip(whole) {
        word.store(u64::from_le_bytes(*bytes), Ordering::Relaxed);
    }
    if !rest.is_empty() {
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        words[whole.len()].store(u64::from_le_bytes(last), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_and_a_value_survive_their_words() {
        for version in [0, 1, 77, (1 << 41) - 1] {
            let state = State {
                version: Version(version),
                present: version % 2 == 1,
                len: 1 << 20,
                watched: version % 3 == 1,
            };
            assert_eq!(State::unpack(state.pack()), state);
        }
        let words: Vec<AtomicU64> = (0..9).map(|_| AtomicU64::new(u64::MAX)).collect();
        let bytes: Vec<u8> = (0..60).collect();
        for len in 0..bytes.len() {
            overwrite(&words, &bytes[..len]);
            let mut read = vec![9];
            copy(&words, len, &mut read);
            assert_eq!(read[1..], bytes[..len]);
        }
    }
}
