//! The memory of regions, and how it goes back to the operating system.
#![expect(unsafe_code, reason = "only the system can give whole pages, and take them back")]

use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use zerocopy::FromZeros;

#[cfg(all(target_os = "linux", not(miri)))]
use super::image::Image;

/// Words of the unit in which memory goes back: the page of most machines. Where pages are larger,
/// the system refuses, and the memory is cleared and kept.
const PAGE_WORDS: usize = 4_096 / size_of::<u64>();

/// Words from which on memory is asked of the system. Among those of the allocator, which uses huge
/// pages, each large one that is hardly touched would take one of 2 MB.
const LARGE_WORDS: usize = (1 << 20) / size_of::<u64>();
/// Words from which on it is in huge pages: a few of them.
const HUGE_WORDS: usize = (8 << 20) / size_of::<u64>();

/// Where a copy of a region has its pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Copies {
    /// In memory of its own.
    #[default]
    Own,
    /// With the original, until one of the two writes to a page. Then that one gets a page of its
    /// own. Neither has huge pages, so that accesses of the live world are slower; those of the
    /// simulated one take the time that its profile says. (decision 0113)
    Shared,
}

/// Zeroed words that live as long as this.
pub(super) struct Memory {
    words: NonNull<[AtomicU64]>,
    /// Are they pages of the system, and not the allocator's?
    mapped: bool,
    /// What its pages are until they are written, if it has been copied with shared pages.
    #[cfg(all(target_os = "linux", not(miri)))]
    image: std::sync::Mutex<Option<Image>>,
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
        Some(Self::over(NonNull::from(Box::leak(words)), false))
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
        Some(Self::over(words, true))
    }

    const fn over(words: NonNull<[AtomicU64]>, mapped: bool) -> Self {
        Self {
            words,
            mapped,
            #[cfg(all(target_os = "linux", not(miri)))]
            image: std::sync::Mutex::new(None),
        }
    }

    /// A copy that shares pages with this one until one of the two writes there; `None` if this is
    /// small, or the system cannot. Nobody may write meanwhile: it might be lost.
    #[cfg(all(target_os = "linux", not(miri)))]
    pub(super) fn share(&self) -> Option<Self> {
        if !self.mapped || self.len() < LARGE_WORDS {
            return None;
        }
        let mut image = self.image();
        let copy = Self::mapped(self.len())?;
        if let Some(image) = &*image {
            copy.map(Some(image))?;
            Image::copy_written(self, &copy)?;
            *copy.image() = Some(image.clone());
        } else {
            let new = Image::of(self)?;
            copy.map(Some(&new))?;
            self.map(Some(&new))?;
            *copy.image() = Some(new.clone());
            *image = Some(new);
        }
        drop(image);
        Some(copy)
    }

    #[cfg(not(all(target_os = "linux", not(miri))))]
    pub(super) fn share(&self) -> Option<Self> {
        None
    }

    #[cfg(all(target_os = "linux", not(miri)))]
    fn image(&self) -> std::sync::MutexGuard<'_, Option<Image>> {
        self.image.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Has these words, which are pages of the system, be those of `image` until they are written,
    /// or zeros without one.
    #[cfg(all(target_os = "linux", not(miri)))]
    fn map(&self, image: Option<&Image>) -> Option<()> {
        use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous};
        let (start, bytes) = (self.words.as_ptr().cast(), size_of_val(&**self));
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let how = MapFlags::PRIVATE | MapFlags::FIXED;
        // SAFETY: The mapping that is replaced is this one's own, as `mapped` has made it. The
        // words stay initialised and at their place for whoever has a reference: zeros are valid,
        // and an image has as many words, which no one writes to or takes away while it is mapped.
        let mapped = unsafe {
            match image {
                Some(image) => mmap(start, bytes, access, how, image.file(), 0),
                None => mmap_anonymous(start, bytes, access, how),
            }
        };
        mapped.ok().map(|_| ())
    }

    /// Sets all words to zero, and gives no memory to those that were never written.
    pub(super) fn wipe(&self) {
        #[cfg(all(target_os = "linux", not(miri)))]
        if self.image().take().is_some() && self.map(None).is_some() {
            return;
        }
        for word in self.iter().filter(|word| word.load(Ordering::Relaxed) != 0) {
            word.store(0, Ordering::Relaxed);
        }
    }

    /// Sets `len` words from place `first` on to zero. Whole pages among them take no memory until
    /// they are written again, unless they were shared.
    pub(super) fn release(&self, first: usize, len: usize) {
        let words = &self[first..first + len];
        #[cfg(all(target_os = "linux", not(miri)))]
        if self.image().is_some() {
            // Given back, they would be the image's again.
            return words.iter().for_each(|word| word.store(0, Ordering::Release));
        }
        release(words);
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
fn release(words: &[AtomicU64]) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Region;
    use crate::units::Bytes;

    #[test]
    fn copies_with_shared_pages_are_as_independent_as_others() {
        const SIZE: u64 = 3 << 20;
        let own = Region::new(Bytes(SIZE));
        let words = || (0..SIZE).step_by(4_096 + 8).skip(1);
        words().for_each(|at| own.store(at, at).unwrap());
        let twice = |memory: Memory| Some((memory.share()?, memory.share()?));
        let shares = Memory::new(SIZE as usize / 8).and_then(twice).is_some();
        assert_eq!(shares, cfg!(all(target_os = "linux", not(miri))), "pages are not shared");
        let first = own.copy_in(Copies::Shared);
        let holds = |region: &Region, other: &[(u64, u64)]| {
            let is = |at| other.iter().find(|(place, _)| *place == at).map_or(at, |(_, now)| *now);
            words().all(|at| region.load(at) == Ok(is(at)))
        };
        assert!(holds(&own, &[]) && holds(&first, &[]) && first.size() == own.size());
        let (a, b) = (4_104, 8_208);
        own.store(a, 1).unwrap();
        first.store(b, 2).unwrap();
        assert!(holds(&own, &[(a, 1)]) && holds(&first, &[(b, 2)]), "neither sees the other's");
        // What has been written since the first copy is in the next, and in a copy's copy.
        let (second, third) = (own.copy_in(Copies::Shared), first.copy_in(Copies::Shared));
        assert!(holds(&second, &[(a, 1)]) && holds(&third, &[(b, 2)]));
        // Given back, pages are zeros, and not what they were when they were copied.
        own.release(0, SIZE).unwrap();
        assert!((0..SIZE).step_by(8).all(|at| own.load(at) == Ok(0)));
        assert!(holds(&second, &[(a, 1)]), "a page that is given back stays where it is shared");
        // Nor does a crash take what is shared from others.
        first.lose();
        drop((own, first));
        assert!(holds(&third, &[(b, 2)]));
    }
}
