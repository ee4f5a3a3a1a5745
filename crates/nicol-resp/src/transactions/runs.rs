//! Sequences in which neighbours are mostly equal: the commands of pipelines.

/// Things in their order, equal neighbours counted. Without any, one of them has the count 0.
#[derive(Clone, Debug)]
pub struct Runs<T> {
    earlier: Vec<(T, usize)>,
    last: (T, usize),
}

impl<T: Default> Default for Runs<T> {
    fn default() -> Self {
        Self { earlier: Vec::new(), last: (T::default(), 0) }
    }
}

impl<T: Copy + PartialEq> Runs<T> {
    /// Adds `count` times the same thing at the end.
    pub fn push(&mut self, one: T, count: usize) {
        if self.last.0 == one {
            self.last.1 += count;
        } else {
            let run = std::mem::replace(&mut self.last, (one, count));
            self.earlier.push(run);
        }
    }

    /// Each run of equal things with its length, in order.
    pub fn iter(&self) -> impl Iterator<Item = (T, usize)> {
        self.earlier.iter().chain([&self.last]).copied()
    }
}
