//! The memory of regions, and how it goes back to the operating system.
#![expect(unsafe_code, reason = "only the system can give whole pages, and take them back")]

use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use zerocopy::FromZeros;

/// Words of the unit in which memory goes back: the page of most machines. Where pages are larger,
/// the system refuses, and the memory is cleared and kept.
const PAGE_WORDS: usize = 4_096 / size_of::<u64>();

/// Words from which on memory is asked of the system. Among those of the allocator, which uses huge
/// pages, each large one that is hardly touched would take one of 2 MB.
const LARGE_WORDS: usize = (1 << 20) / size_of::<u64>();
/// Words from which on it is in huge pages: a few of them.
const HUGE_WORDS: usize = (8 << 20) / size_of::<u64>();

/// Zeroed words that live as long as this.
pub(super) struct Memory {
    words: NonNull<[AtomicU64]>,
    /// Are they pages of the system, and not the allocator's?
    mapped: bool,
}

// SAFETY: It owns its words, as a `Box<[AtomicU64]>` would.
unsafe impl Send for Memory {}
// SAFETY: All that it gives out is `&[AtomicU64]`.
unsafe impl Sync for Memory {}

impl Memory {
    /// So many words for random accesses; `None` if there is not so much address space.
    pub(super) fn new(len: usize) -> Option<Self> {
        let memory = Self::for_stream(len)?;
        if len >= HUGE_WORDS {
            memory.prefer_huge_pages();
        }
        Some(memory)
    }

    /// The same for accesses in order: huge pages would gain nothing.
    pub(super) fn for_stream(len: usize) -> Option<Self> {
        if len < LARGE_WORDS { Self::allocated(len) } else { Self::mapped(len) }
    }

    /// So many words of the allocator.
    fn allocated(len: usize) -> Option<Self> {
        let words = <[AtomicU64]>::new_box_zeroed_with_elems(len).ok()?;
        Some(Self { words: NonNull::from(Box::leak(words)), mapped: false })
    }

    /// So many words from a page's boundary on; `None` if there is not so much address space.
    #[cfg(all(target_os = "linux", not(miri)))]
    pub(super) fn mapped(len: usize) -> Option<Self> {
        use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
        let bytes = len.checked_mul(size_of::<AtomicU64>())?.max(1);
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: A new private mapping, at a place of the system's choice, overlaps nothing.
        let start =
            unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, access, MapFlags::PRIVATE).ok()? };
        let words = NonNull::slice_from_raw_parts(NonNull::new(start)?.cast(), len);
        Some(Self { words, mapped: true })
    }

    #[cfg(all(target_os = "linux", not(miri)))]
    fn prefer_huge_pages(&self) {
        use rustix::mm::{Advice, madvise};
        let (start, bytes) = (self.words.as_ptr().cast(), size_of_val(&**self));
        // SAFETY: The range is a mapping of its own; only the size of its pages may change. A
        // system without huge pages refuses, which costs time and no more.
        let _ = unsafe { madvise(start, bytes, Advice::LinuxHugepage) };
    }

    #[cfg(not(all(target_os = "linux", not(miri))))]
    fn prefer_huge_pages(&self) {}

    /// Are they pages of the system?
    pub(super) const fn is_mapped(&self) -> bool {
        self.mapped
    }

    /// The same where the system is not asked.
    #[cfg(not(all(target_os = "linux", not(miri))))]
    pub(super) fn mapped(len: usize) -> Option<Self> {
        Self::allocated(len)
    }
}

impl Deref for Memory {
    type Target = [AtomicU64];

    #[inline]
    fn deref(&self) -> &[AtomicU64] {
        // SAFETY: The words are initialised (zeros are valid), aligned, and end with `self`.
        unsafe { self.words.as_ref() }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if !self.mapped {
            // SAFETY: `allocated` has leaked a box of these words, and nobody else has them.
            drop(unsafe { Box::from_raw(self.words.as_ptr()) });
            return;
        }
        #[cfg(all(target_os = "linux", not(miri)))]
        {
            let bytes = size_of_val(&**self).max(1);
            // SAFETY: `mapped` has made this mapping, of that length, and no reference is left.
            let unmapped = unsafe { rustix::mm::munmap(self.words.as_ptr().cast(), bytes) };
            debug_assert!(unmapped.is_ok(), "a mapping of its own");
        }
    }
}

/// Sets `words` to zero. Whole pages among them take no memory until they are written again.
pub(super) fn release(words: &[AtomicU64]) {
    let clear = |words: &[AtomicU64]| words.iter().for_each(|w| w.store(0, Ordering::Release));
    let address = words.as_ptr().addr() / size_of::<u64>();
    let before = (address.next_multiple_of(PAGE_WORDS) - address).min(words.len());
    let (before, rest) = words.split_at(before);
    let (pages, behind) = rest.split_at(rest.len() / PAGE_WORDS * PAGE_WORDS);
    clear(before);
    if !pages.is_empty() && !discard(pages) {
        clear(pages);
    }
    clear(behind);
}

/// Has the system take these pages back, which are zeros from then on; whether it did.
#[cfg(all(target_os = "linux", not(miri)))]
fn discard(pages: &[AtomicU64]) -> bool {
    use rustix::mm::{Advice, madvise};
    let start = pages.as_ptr().cast_mut().cast();
    // SAFETY: The range lies inside an allocation that outlives the call, and all of it may be
    // written through `&AtomicU64`, from other threads as well. The allocation is private memory
    // without a file: its pages read as zeros afterwards, as if each word had been stored. Whoever
    // reads a word meanwhile finds the old value or zero.
    unsafe { madvise(start, size_of_val(pages), Advice::LinuxDontNeed) }.is_ok()
}

#[cfg(not(all(target_os = "linux", not(miri))))]
fn discard(_: &[AtomicU64]) -> bool {
    false
}
