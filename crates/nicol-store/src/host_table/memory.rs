//! Memory that grows: regions that are added on demand and never move, and overflow pages in them.

use std::sync::{Arc, OnceLock};

use nicol_core::memory::{Copies, Region};
use nicol_core::units::Bytes;

use super::PageRef;

/// Regions that overflow pages or heap blocks may take.
pub(super) const CHUNKS_MAX: usize = 4_096;
/// Regions of one size before their size doubles, so that memory ends before their number does.
const CHUNKS_PER_SIZE: u32 = 512;

/// Regions added on demand, readable without a lock.
pub(super) struct Chunks(Box<[OnceLock<Arc<Region>>]>);

impl Chunks {
    /// Space for so many regions.
    pub(super) fn new(chunks_max: usize) -> Self {
        Self((0..chunks_max).map(|_| OnceLock::new()).collect())
    }

    pub(super) fn copy_in(&self, pages: Copies) -> Self {
        let copy = |cell: &OnceLock<Arc<Region>>| match cell.get() {
            Some(region) => OnceLock::from(Arc::new(region.copy_in(pages))),
            None => OnceLock::new(),
        };
        Self(self.0.iter().map(copy).collect())
    }

    #[inline]
    pub(super) fn get(&self, chunk: u32) -> Option<&Arc<Region>> {
        self.0.get(chunk as usize)?.get()
    }

    /// Adds a region; only the table's single writer calls it.
    pub(super) fn add(&self, chunk: u32, size: u64) {
        self.set(chunk, Region::new(Bytes(size)));
    }

    /// The same of one whose memory goes back page by page.
    pub(super) fn add_pages(&self, chunk: u32, size: u64) {
        self.set(chunk, Region::of_pages(Bytes(size)));
    }

    fn set(&self, chunk: u32, region: Region) {
        let Some(cell) = self.0.get(chunk as usize) else {
            panic!("memory ends before {} regions do", self.0.len());
        };
        let fresh = cell.set(Arc::new(region)).is_ok();
        assert!(fresh, "a region is added once");
    }

    /// The regions that exist, with their numbers.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &Arc<Region>)> {
        let numbered = self.0.iter().enumerate();
        numbered.filter_map(|(number, cell)| Some((number as u32, cell.get()?)))
    }

    /// Bytes of the regions that exist.
    pub(super) fn bytes(&self) -> u64 {
        self.iter().map(|(_, region)| region.size().0).sum()
    }
}

/// How much larger the region with this number is than the first.
const fn scale(chunk: u32) -> u64 {
    1 << (chunk / CHUNKS_PER_SIZE)
}

/// Hands out overflow pages of one size.
#[derive(Clone, Debug, Default)]
pub(super) struct PageAllocator {
    chunks: u32,
    next: u32,
    end: u32,
    /// Pages taken back; they are empty.
    free: Vec<PageRef>,
}

/// Pages in the first region of overflow pages; see [`scale`] for the others.
const PAGES_PER_CHUNK: u32 = if cfg!(test) { 8 } else { 256 };

impl PageAllocator {
    /// An empty page without a link, and the bytes that were added for it.
    pub(super) fn page(&mut self, chunks: &Chunks, page_bytes: u64) -> (PageRef, u64) {
        if let Some(page) = self.free.pop() {
            return (page, 0);
        }
        let mut added = 0;
        if self.next == self.end {
            self.next = 0;
            self.end = PAGES_PER_CHUNK * scale(self.chunks) as u32;
            added = u64::from(self.end) * page_bytes;
            chunks.add(self.chunks, added);
            self.chunks += 1;
        }
        self.next += 1;
        (PageRef::new(self.chunks - 1, self.next - 1), added)
    }

    /// Frees a page that is empty and no longer linked. Readers that still follow an old link to it
    /// find a changed header.
    pub(super) fn take_back(&mut self, page: PageRef) {
        self.free.push(page);
    }

    /// Pages handed out.
    pub(super) fn in_use(&self) -> u64 {
        let full: u64 = (0..self.chunks).map(|at| u64::from(PAGES_PER_CHUNK) * scale(at)).sum();
        full - u64::from(self.end - self.next) - self.free.len() as u64
    }
}
