//! The scan: it finds the buffers that nobody has reported, while the engine's other work goes on.
//! [PRISM21 3.2]

use std::ops::Range;
use std::sync::atomic::Ordering;

use nicol_core::fabric::Fabric;
use nicol_core::memory::BufferUse;
use nicol_core::units::Nanos;

use super::{BufferPool, Class, Pointers};

/// Words that a scan looks at before the engine's other tasks have their turn: some tens of
/// microseconds.
pub(super) const PIECE: u64 = 4_096;
/// Interval at which a scan asks whether the chains that were under way have ended.
pub(super) const SCAN_POLL: Nanos = Nanos::from_micros(20);

impl BufferPool {
    /// The uses that no pointer refers to: a client has yet to report them, or a chain to install
    /// them, or nobody ever will. Cost: a word per pointer, and per buffer that was ever used.
    pub(crate) fn unreferenced(&self) -> Vec<BufferUse> {
        let mut search = Search::new(self);
        search.pieces(u64::MAX).for_each(|piece| search.look(piece));
        search.found
    }

    /// The same, while the engine's other tasks go on: a use whose pointer was written meanwhile
    /// may be among them.
    async fn unreferenced_meanwhile<F: Fabric>(&self, fabric: &F) -> Vec<BufferUse> {
        let (mut search, mut looked) = (Search::new(self), 0);
        for piece in search.pieces(PIECE) {
            if looked >= PIECE {
                fabric.yield_now().await;
                looked = 0;
            }
            looked += piece.words();
            search.look(piece);
        }
        search.found
    }

    /// The class of the buffer at `offset`, and its number in it.
    fn place_of(&self, offset: u64) -> Option<(usize, usize)> {
        let class = self.classes.partition_point(|class| class.first <= offset).checked_sub(1)?;
        Some((class, self.classes[class].index_of(offset)?))
    }

    /// Posts what nobody has reported: the uses without a pointer that have outlived every chain
    /// which might have installed them. Waits for `after` first. Returns how many. [PRISM21 3.2]
    pub(crate) async fn scan<F: Fabric>(&self, fabric: &F, after: Nanos) -> usize {
        self.scan_but(fabric, after, |_| false).await
    }

    /// The same, but for the buffers that `keep` accepts. It is asked of each before the wait for
    /// chains, and after it before the pointers are looked at again: a buffer that nobody keeps by
    /// then has its pointer already, or never gets one.
    pub(crate) async fn scan_but<F: Fabric>(
        &self,
        fabric: &F,
        after: Nanos,
        keep: impl Fn(u64) -> bool,
    ) -> usize {
        fabric.sleep_until(fabric.now() + after).await;
        let turned = self.turned();
        let mut found = self.unreferenced_meanwhile(fabric).await;
        let unreferenced = found.len();
        found.retain(|unused| !keep(unused.offset));
        if unreferenced == 0 {
            self.clean_at.store(turned, Ordering::Relaxed);
        }
        // What is kept may have to be posted later, and no list turns then that would tell.
        if found.is_empty() {
            return 0;
        }
        let mark = fabric.mark_chains();
        while !fabric.have_ended(mark) {
            fabric.sleep_until(fabric.now() + SCAN_POLL).await;
        }
        // A buffer that had been popped and not written yet is asked about again: what was there
        // before told of its last use.
        found.retain(|unused| !keep(unused.offset));
        // Every chain that has popped one of them has ended: what it has installed has its pointer
        // for as long as this looks, or has been replaced.
        let left = self.unreferenced_meanwhile(fabric).await;
        // Both are in the order of the classes, and within each of the offsets.
        let left = left.iter().filter(|unused| found.binary_search(unused).is_ok());
        left.filter(|unused| self.post_found(fabric, **unused)).count()
    }
}

/// A search for uses that no pointer refers to.
struct Search<'a> {
    pool: &'a BufferPool,
    /// By class and buffer.
    referenced: Vec<Vec<bool>>,
    found: Vec<BufferUse>,
}

/// A part of the memory that a scan looks at without a pause.
enum Piece {
    Pointers(Range<u64>),
    Buffers { class: usize, of: Range<u32> },
}

impl Piece {
    fn words(&self) -> u64 {
        match self {
            Self::Pointers(of) => of.end - of.start,
            Self::Buffers { of, .. } => u64::from(of.end - of.start),
        }
    }
}

impl<'a> Search<'a> {
    fn new(pool: &'a BufferPool) -> Self {
        let none = |class: &Class| vec![false; class.size.count as usize];
        Self { pool, referenced: pool.classes.iter().map(none).collect(), found: Vec::new() }
    }

    /// All there is to look at, pointers first, in pieces of at most so many words.
    fn pieces(&self, most: u64) -> impl Iterator<Item = Piece> + use<> {
        let cut = move |Range { start, end }: Range<u64>| {
            let starts = (start..end).step_by(usize::try_from(most).unwrap_or(usize::MAX));
            starts.map(move |start| start..end.min(start.saturating_add(most)))
        };
        let used = self.pool.classes.iter().map(Class::ever_used).enumerate();
        let used = used.flat_map(|(class, parts)| parts.map(|part| (class, part)));
        let buffers = used.collect::<Vec<_>>().into_iter().flat_map(move |(class, part)| {
            let cut = cut(u64::from(part.start)..u64::from(part.end));
            cut.map(move |of| Piece::Buffers { class, of: of.start as u32..of.end as u32 })
        });
        cut(0..self.pool.pointers.count).map(Piece::Pointers).chain(buffers)
    }

    fn look(&mut self, piece: Piece) {
        match piece {
            Piece::Pointers(of) => self.look_at_pointers(of),
            Piece::Buffers { class, of } => self.look_at_buffers(class, of),
        }
    }

    fn look_at_pointers(&mut self, of: Range<u64>) {
        let Pointers { first, stride, .. } = self.pool.pointers;
        let pointers = of.filter_map(|index| self.pool.region.load(first + index * stride).ok());
        for (class, buffer) in pointers.filter_map(|pointer| self.pool.place_of(pointer)) {
            self.referenced[class][buffer] = true;
        }
    }

    fn look_at_buffers(&mut self, class: usize, of: Range<u32>) {
        let Some((_, uses)) = self.pool.lists.get().and_then(|lists| lists.get(class)) else {
            return;
        };
        let (referenced, class) = (&self.referenced[class], &self.pool.classes[class]);
        let back = class.back();
        let is_nobody_s = |found: &BufferUse| {
            let is_referenced = class.index_of(found.offset).is_some_and(|index| referenced[index]);
            !is_referenced && !back.contains(found.offset)
        };
        self.found.extend(uses.among(of).filter(is_nobody_s));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use nicol_core::memory::Region;
    use nicol_core::units::Bytes;

    use super::super::SizeClass;
    use super::*;

    #[test]
    fn a_search_looks_at_every_pointer_and_every_buffer_that_was_used_once() {
        let classes =
            [SizeClass { bytes: 8, count: 10 }, SizeClass { bytes: 16, count: 3 }].to_vec();
        let pointers = Pointers { first: 0, stride: 8, count: 5 };
        let pool = BufferPool::new(Arc::new(Region::new(Bytes(256))), 64, &classes, pointers);
        let class = &pool.classes[0];
        class.back().fresh = class.buffer(4)..class.buffer(8);
        let pieces = |most: u64| -> Vec<String> {
            let told = |piece| match piece {
                Piece::Pointers(of) => format!("pointers {of:?}"),
                Piece::Buffers { class, of } => format!("class {class}: {of:?}"),
            };
            Search::new(&pool).pieces(most).map(told).collect()
        };
        let whole = ["pointers 0..5", "class 0: 0..4", "class 0: 8..10", "class 1: 0..3"];
        assert_eq!(pieces(u64::MAX), whole);
        let cut = ["pointers 0..3", "pointers 3..5", "class 0: 0..3", "class 0: 3..4"];
        assert_eq!(pieces(3), [&cut[..], &whole[2..]].concat());
        // To the end there may be fresh ones, too.
        class.back().fresh = class.buffer(4)..class.buffer(10);
        assert_eq!(pieces(9), [&whole[..2], &whole[3..]].concat());
    }
}
