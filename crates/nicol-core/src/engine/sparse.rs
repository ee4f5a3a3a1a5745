//! Tables by engine or by node of which most entries are never used.

/// Entries that are made together: few enough that a cluster of thousands costs little where an
/// engine talks to a handful, and a power of two, so that finding one is a shift and a mask.
const PAGE: usize = 32;

/// A table whose entries come into being, page by page, when they are first used.
#[derive(Debug)]
pub(super) struct Sparse<T> {
    pages: Vec<Option<Box<[T; PAGE]>>>,
}

impl<T> Default for Sparse<T> {
    fn default() -> Self {
        Self { pages: Vec::new() }
    }
}

impl<T: Default> Sparse<T> {
    #[inline]
    pub(super) fn entry(&mut self, index: usize) -> &mut T {
        let page = index / PAGE;
        if self.pages.get(page).is_none_or(Option::is_none) {
            self.add(page);
        }
        match &mut self.pages[page] {
            Some(entries) => &mut entries[index % PAGE],
            None => panic!("the page was added"),
        }
    }

    #[cold]
    fn add(&mut self, page: usize) {
        if page >= self.pages.len() {
            self.pages.resize_with(page + 1, || None);
        }
        self.pages[page] = Some(Box::new(std::array::from_fn(|_| T::default())));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pages_in_use_take_memory() {
        let mut table = Sparse::<u64>::default();
        for index in [70_000, 0, 31, 32] {
            *table.entry(index) += index as u64 + 1;
        }
        assert_eq!(
            [70_000, 0, 31, 32, 33].map(|index| *table.entry(index)),
            [70_001, 1, 32, 33, 0]
        );
        assert_eq!(table.pages.iter().flatten().count(), 3);
    }
}
