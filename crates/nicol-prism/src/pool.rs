//! A server's buffers: its free lists by size, and the daemon's part of recycling. [PRISM21 3.2]
//!
//! A client reports the buffer that a chain of its own has replaced, or has allocated in vain. What
//! nobody reports, because a client or its answer is gone, a scan finds: the alternative that the
//! paper names. Both only end a use ([`BufferUse`]) that no pointer refers to.
//!
//! A report may come late, and twice. The first word of a buffer, its stamp, names the use of which
//! it tells. Between the instant at which a chain pops a buffer and that at which it writes to it,
//! the buffer still has the last use's stamp: a stamp under which it has been posted counts no
//! more. That is right as long as no two uses of a buffer have one stamp. In a pool whose uses may
//! [share stamps](BufferPool::share_stamps) clients report a buffer once, and only a stamp under
//! which a scan has posted counts no more: in the one report of that use, which is still to come.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use nicol_core::fabric::Fabric;
use nicol_core::ids::{FreeListKey, RKey};
use nicol_core::memory::{BufferUse, BufferUses, Buffers, Region, WORD};
use nicol_core::units::Nanos;

use super::messages::{List, Unused};

mod scan;

/// Wait before a scan for buffers that a lost answer has left. By then a chain whose client gave it
/// up, or died, has reached this node or is lost. A chain that is on its way for longer leaks its
/// buffer until the next scan. A scan waits for chains that wait here (`recycling.rs`).
pub(crate) const SCAN_AFTER: Nanos = Nanos::from_millis(5);

/// Buffers of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SizeClass {
    /// Bytes of each, a multiple of eight.
    pub(crate) bytes: u64,
    pub(crate) count: u32,
}

/// The words of a region that may point to a buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pointers {
    /// The first one's offset.
    pub(crate) first: u64,
    /// Bytes from one to the next.
    pub(crate) stride: u64,
    pub(crate) count: u64,
}

#[derive(Debug)]
struct Class {
    size: SizeClass,
    first: u64,
    loaded: u32,
    back: Mutex<Back>,
    /// By buffer: the stamp under which it was last posted.
    posted: Box<[AtomicU64]>,
    /// Buffers of the free list and kept back, when it was last refilled.
    free: AtomicU32,
}

/// Unused buffers that are not posted: the server keeps them to refill the free list. Lowest first.
#[derive(Debug, Default)]
struct Back {
    /// Never used: from the first offset to the end, a buffer after the other.
    fresh: Range<u64>,
    /// Bytes from one of them to the next.
    stride: u64,
    returned: BTreeSet<u64>,
}

impl Back {
    fn len(&self) -> usize {
        let fresh = (self.fresh.end - self.fresh.start).checked_div(self.stride);
        fresh.unwrap_or(0) as usize + self.returned.len()
    }

    fn contains(&self, offset: u64) -> bool {
        self.fresh.contains(&offset) || self.returned.contains(&offset)
    }

    fn insert(&mut self, offset: u64) -> bool {
        !self.fresh.contains(&offset) && self.returned.insert(offset)
    }

    fn pop_first(&mut self) -> Option<u64> {
        let fresh = Some(self.fresh.start).filter(|_| !self.fresh.is_empty());
        let returned = self.returned.first().copied();
        if returned.is_some_and(|returned| fresh.is_none_or(|fresh| returned < fresh)) {
            return self.returned.pop_first();
        }
        self.fresh.start += fresh.map_or(0, |_| self.stride);
        fresh
    }
}

/// The stamp of no use.
const NO_STAMP: u64 = 0;

impl Class {
    fn back(&self) -> MutexGuard<'_, Back> {
        self.back.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn buffer(&self, index: u32) -> u64 {
        self.first + u64::from(index) * self.size.bytes
    }

    fn index_of(&self, offset: u64) -> Option<usize> {
        let index = offset.checked_sub(self.first)? / self.size.bytes;
        (index < u64::from(self.size.count)).then_some(index as usize)
    }

    /// The buffers that may ever have been in use: those before the fresh ones, and those behind.
    fn ever_used(&self) -> [Range<u32>; 2] {
        let fresh = self.back().fresh.clone();
        let index = |offset: u64| self.index_of(offset).map(|index| index as u32);
        match (index(fresh.start), index(fresh.end)) {
            (Some(start), end) if !fresh.is_empty() => {
                let count = self.size.count;
                [0..start, end.unwrap_or(count)..count]
            }
            _ => [0..self.size.count, 0..0],
        }
    }

    /// Notes that the use of the buffer at `offset` with this stamp is over. False if that is
    /// known.
    fn end(&self, offset: u64, stamp: u64) -> bool {
        let posted = self.index_of(offset).map(|index| &self.posted[index]);
        posted.is_some_and(|posted| posted.swap(stamp, Ordering::AcqRel) != stamp)
    }

    /// Returns whether the end of the buffer's use at `offset` with this stamp is what was noted
    /// last, and forgets it.
    fn take_end(&self, offset: u64, stamp: u64) -> bool {
        let posted = self.index_of(offset).map(|index| &self.posted[index]);
        let (is, then) = (Ordering::AcqRel, Ordering::Relaxed);
        posted.is_some_and(|posted| posted.compare_exchange(stamp, NO_STAMP, is, then).is_ok())
    }
}

/// The buffers of one life of a server, behind its table in the same region.
#[derive(Debug)]
pub(crate) struct BufferPool {
    region: Arc<Region>,
    pointers: Pointers,
    classes: Vec<Class>,
    lists: OnceLock<Vec<(FreeListKey, Arc<BufferUses>)>>,
    /// A free list with fewer buffers is refilled; without one, whatever is unused is posted.
    watermark: Option<u32>,
    /// Whether two uses of a buffer may have one stamp.
    shared_stamps: bool,
    /// The value of `turned` when a scan last found nothing.
    clean_at: AtomicU64,
}

impl BufferPool {
    /// Bytes of the buffers of these classes.
    pub(crate) fn bytes(classes: &[SizeClass]) -> u64 {
        classes.iter().map(|class| class.bytes * u64::from(class.count)).sum()
    }

    /// Buffers of these classes, by ascending size, from `first` of `region` on.
    pub(crate) fn new(
        region: Arc<Region>,
        first: u64,
        classes: &[SizeClass],
        pointers: Pointers,
    ) -> Self {
        let mut next = first;
        let classes = classes.iter().map(|&size| {
            let first = next;
            next += size.bytes * u64::from(size.count);
            let posted = (0..size.count).map(|_| AtomicU64::new(NO_STAMP)).collect();
            let free = AtomicU32::new(size.count);
            Class { size, first, loaded: 0, back: Mutex::default(), posted, free }
        });
        let (classes, lists) = (classes.collect(), OnceLock::new());
        Self {
            region,
            pointers,
            classes,
            lists,
            watermark: None,
            shared_stamps: false,
            clean_at: AtomicU64::new(0),
        }
    }

    /// Lets two uses of a buffer have one stamp. Requires that no report comes twice: it could
    /// count twice, if it comes before the next use has written its own stamp.
    pub(crate) fn share_stamps(&mut self) {
        self.shared_stamps = true;
    }

    /// With a watermark, keeps what is unused back, but for twice as many buffers of each size: a
    /// free list that has fewer is [refilled](BufferPool::refill). [PRISM21 6.1]
    pub(crate) fn keep_back(&mut self, watermark: Option<u32>) {
        self.watermark = watermark;
    }

    /// Takes a buffer of at least so many bytes for a record that is loaded before the start.
    ///
    /// # Panics
    /// If there is none: the pool is sized for what is loaded.
    pub(crate) fn load(&mut self, bytes: u64) -> u64 {
        let fits = |class: &&mut Class| class.size.bytes >= bytes;
        let Some(class) = self.classes.iter_mut().find(fits) else {
            panic!("no buffers of {bytes} bytes");
        };
        assert!(class.loaded < class.size.count, "the pool is sized for what is loaded");
        class.loaded += 1;
        class.buffer(class.loaded - 1)
    }

    /// Registers the free lists under `rkey`, by whichever engine comes first.
    ///
    /// # Panics
    /// If the buffers do not lie in the region of `rkey`.
    pub(crate) fn open<F: Fabric>(&self, fabric: &F, rkey: RKey) {
        self.lists.get_or_init(|| {
            let register = |class: &Class| {
                let &Class { size: SizeClass { bytes: size, count }, first, loaded, .. } = class;
                let free = count - loaded;
                let back = free - self.watermark.map_or(free, |mark| free.min(2 * mark));
                *class.back() = Back {
                    fresh: class.buffer(loaded)..class.buffer(loaded + back),
                    stride: size,
                    returned: BTreeSet::new(),
                };
                let buffers = Buffers { rkey, first, size, count, in_use: loaded + back };
                let list = fabric.register_buffers(buffers);
                let uses = list.ok().and_then(|list| Some((list, fabric.buffer_uses(list)?)));
                uses.unwrap_or_else(|| panic!("the buffers lie in the region of their key"))
            };
            self.classes.iter().map(register).collect()
        });
    }

    /// The free lists, by ascending size; none before they are open.
    pub(crate) fn lists(&self) -> impl Iterator<Item = List> {
        let lists = self.lists.get().into_iter().flatten();
        let sizes = self.classes.iter().map(|class| class.size.bytes);
        lists.zip(sizes).map(|(&(key, _), bytes)| List { key, bytes })
    }

    /// Posts what a client reports, as far as it holds: the buffer is in use, still has the word
    /// that it had, and its pointer points elsewhere. Returns how many were posted.
    pub(crate) fn post<F: Fabric>(&self, fabric: &F, reports: &[Unused]) -> usize {
        let load = |at: u64| self.region.load(at).ok();
        let holds = |unused: &&Unused| {
            let &&Unused { offset, stamp, pointer } = unused;
            load(offset) == Some(stamp) && load(pointer).is_some_and(|found| found != offset)
        };
        let found = reports.iter().filter(holds);
        found.filter(|unused| self.post_reported(fabric, unused.offset, unused.stamp)).count()
    }

    /// Posts a buffer whose use with this stamp is over, or keeps it back. False if it is free, or
    /// this is known already.
    pub(crate) fn post_reported<F: Fabric>(&self, fabric: &F, offset: u64, stamp: u64) -> bool {
        self.post_if(fabric, offset, |class, _| match self.shared_stamps {
            true => !class.take_end(offset, stamp),
            false => class.end(offset, stamp),
        })
    }

    /// Posts the buffer in use that a pointer points to: of servers that are broken on purpose.
    pub(crate) fn post_pointed_to<F: Fabric>(&self, fabric: &F, pointer: u64) {
        if let Ok(offset) = self.region.load(pointer)
            && let Ok(stamp) = self.region.load(offset)
        {
            self.post_reported(fabric, offset, stamp);
        }
    }

    /// Posts a buffer whose use a scan has found, or keeps it back. False if that use is over: a
    /// late report may have posted the buffer while the scan went on, and a chain popped it again.
    fn post_found<F: Fabric>(&self, fabric: &F, found: BufferUse) -> bool {
        // Of a chain that has ended before it wrote to the buffer the stamp is an old one.
        let stamp = self.region.load(found.offset).unwrap_or(NO_STAMP);
        self.post_if(fabric, found.offset, |class, in_use| {
            in_use == found && {
                class.end(found.offset, stamp);
                true
            }
        })
    }

    fn post_if<F: Fabric>(
        &self,
        fabric: &F,
        offset: u64,
        ends: impl FnOnce(&Class, BufferUse) -> bool,
    ) -> bool {
        let lists = self.lists.get().into_iter().flatten().zip(&self.classes);
        let mut used =
            lists.filter_map(|((list, uses), class)| Some((list, class, uses.of(offset)?)));
        used.next().is_some_and(|(list, class, in_use)| {
            ends(class, in_use)
                && match self.watermark {
                    Some(_) => class.back().insert(offset),
                    None => fabric.post_buffers(*list, &[offset]).is_ok(),
                }
        })
    }

    /// Posts buffers that were kept back to the free lists that have too few.
    pub(crate) fn refill<F: Fabric>(&self, fabric: &F) {
        let Some(watermark) = self.watermark.map(|mark| mark.max(1) as usize) else { return };
        for ((list, _), class) in self.lists.get().into_iter().flatten().zip(&self.classes) {
            let ready = fabric.buffers_ready(*list);
            let mut back = class.back();
            class.free.store((ready + back.len()) as u32, Ordering::Relaxed);
            if ready >= watermark || back.len() == 0 {
                continue;
            }
            let count = (2 * watermark - ready).min(back.len());
            let offsets: Vec<u64> = std::iter::from_fn(|| back.pop_first()).take(count).collect();
            let posted = fabric.post_buffers(*list, &offsets);
            assert_eq!(posted, Ok(()), "what is kept back is nobody's");
        }
    }

    /// Bytes of the buffers that were in use when the free lists were last refilled.
    pub(crate) fn used(&self) -> u64 {
        let used = |class: &Class| {
            class.size.bytes * u64::from(class.size.count - class.free.load(Ordering::Relaxed))
        };
        self.classes.iter().map(used).sum()
    }

    /// Whether a size had no buffer when the free lists were last refilled.
    pub(crate) fn is_short(&self) -> bool {
        let is_short =
            |class: &Class| class.size.count > 0 && class.free.load(Ordering::Relaxed) == 0;
        self.classes.iter().any(is_short)
    }

    /// Whether as many buffers are in use as were loaded, and no more. If records neither come nor
    /// go, that is so once everything is reported. Cost: a word per buffer.
    pub(crate) fn is_as_loaded(&self) -> bool {
        let lists = self.lists.get().into_iter().flatten();
        let in_use = lists
            .zip(&self.classes)
            .map(|((_, uses), class)| uses.iter().count() - class.back().len());
        let in_use: usize = in_use.sum();
        let loaded: usize = self.classes.iter().map(|class| class.loaded as usize).sum();
        in_use == loaded || self.lists.get().is_none()
    }

    /// Whether the buffer at `offset` is in use, and not kept back.
    pub(crate) fn is_in_use(&self, offset: u64) -> bool {
        let lists = self.lists.get().into_iter().flatten();
        lists
            .zip(&self.classes)
            .any(|((_, uses), class)| uses.of(offset).is_some() && !class.back().contains(offset))
    }

    /// Whether the buffer at `offset` still holds what its last use left. Its present use, if there
    /// is one, has not written to it then.
    pub(crate) fn is_over(&self, offset: u64) -> bool {
        let class =
            |class: &Class| Some(class.posted[class.index_of(offset)?].load(Ordering::Acquire));
        let posted = self.classes.iter().find_map(class);
        posted.is_some_and(|posted| self.region.load(offset) == Ok(posted))
    }

    /// Calls `each` with the offset of every buffer that is in use. Cost: a word per buffer.
    pub(crate) fn for_each_use(&self, each: &mut dyn FnMut(u64)) {
        for (_, uses) in self.lists.get().into_iter().flatten() {
            uses.iter().for_each(|found| each(found.offset));
        }
    }

    /// Uses that have begun or ended so far.
    pub(crate) fn turned(&self) -> u64 {
        self.lists.get().into_iter().flatten().map(|(_, uses)| uses.turned()).sum()
    }

    /// Whether nothing was allocated or posted since a scan last found nothing.
    pub(crate) fn is_clean(&self) -> bool {
        self.clean_at.load(Ordering::Relaxed) == self.turned()
    }

    /// Buffers that a pointer refers to although they are free: there must be none. A pool that
    /// nobody has opened yet has no lists, and nothing to recycle.
    pub(crate) fn dangling(&self) -> usize {
        if self.lists.get().is_none() {
            return 0;
        }
        let Pointers { first, stride, count } = self.pointers;
        let pointers = (0..count).filter_map(|index| self.region.load(first + index * stride).ok());
        let lists = || self.lists.get().into_iter().flatten();
        let is_kept = |at: &u64| self.classes.iter().any(|class| class.back().contains(*at));
        let is_free = |at: &u64| lists().all(|(_, uses)| uses.of(*at).is_none()) || is_kept(at);
        // What lies before the pointers is no buffer: nothing, or a slot that is free.
        pointers.filter(|at| *at != 0 && *at >= first && is_free(at)).count()
    }
}

const _: () = assert!(WORD == 8, "pointers and stamps are words");

#[cfg(test)]
mod tests;
