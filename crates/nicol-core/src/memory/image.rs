//! Pages that a memory shares with its copies until one of them writes there.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::param::page_size;
use zerocopy::IntoBytes;

/// Bytes that are written at a time.
const CHUNK: usize = 1 << 16;
const WORD: usize = size_of::<AtomicU64>();

/// What a memory was when it was copied for the first time, in a file without a name. Nobody writes
/// to it any more: whoever maps it does so privately.
#[derive(Clone)]
pub(super) struct Image(Arc<File>);

impl Image {
    /// An image of these words; `None` if the system has no space for it. Zeros take none.
    pub(super) fn of(words: &[AtomicU64]) -> Option<Self> {
        let file = File::from(memfd_create("nicol", MemfdFlags::CLOEXEC).ok()?);
        file.set_len(size_of_val(words) as u64).ok()?;
        let mut copy = Vec::with_capacity(CHUNK / WORD);
        for (number, chunk) in words.chunks(CHUNK / WORD).enumerate() {
            copy.clear();
            copy.extend(chunk.iter().map(|word| word.load(Ordering::Acquire)));
            if copy.iter().any(|word| *word != 0) {
                file.write_all_at(copy.as_bytes(), (number * CHUNK) as u64).ok()?;
            }
        }
        Some(Self(Arc::new(file)))
    }

    /// Gives `copy`, which maps an image, what was written to `original` since that was mapped to
    /// the same one. `None` if the system does not say what that is.
    pub(super) fn copy_written(original: &[AtomicU64], copy: &[AtomicU64]) -> Option<()> {
        /// Entries that are read at a time.
        const ENTRIES: usize = 1 << 12;
        let page_words = page_size() / WORD;
        let pages = File::open("/proc/self/pagemap").ok()?;
        let first = (original.as_ptr().addr() / page_size()) as u64;
        let mut entries = vec![0_u64; ENTRIES];
        let batches = original.chunks(ENTRIES * page_words).zip(copy.chunks(ENTRIES * page_words));
        for (batch, (from, to)) in batches.enumerate() {
            let entries = &mut entries[..from.len().div_ceil(page_words)];
            let at = (first + (batch * ENTRIES) as u64) * WORD as u64;
            pages.read_exact_at(entries.as_mut_bytes(), at).ok()?;
            let pages = from.chunks(page_words).zip(to.chunks(page_words)).zip(entries);
            for ((from, to), _) in pages.filter(|(_, entry)| is_own(**entry)) {
                for (from, to) in from.iter().zip(to) {
                    to.store(from.load(Ordering::Acquire), Ordering::Relaxed);
                }
            }
        }
        Some(())
    }

    /// The file, to be mapped.
    pub(super) fn file(&self) -> &File {
        &self.0
    }
}

/// Is a page of a private mapping of a file the mapping's own, and not the file's? Linux,
/// admin-guide/mm/pagemap: bit 63 tells that it is in memory, 62 that it is swapped out, 61 that it
/// is a file's.
const fn is_own(entry: u64) -> bool {
    entry >> 62 != 0 && entry >> 61 & 1 == 0
}
