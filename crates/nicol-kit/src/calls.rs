//! Scatter and gather: requests to many nodes, and the replies of all of them.

use std::collections::VecDeque;

use nicol_core::fabric::{Fabric, FabricError};

/// Proof that every request of a phase was granted. Only [`Calls::gather`] makes one.
#[must_use = "it is what the next step asks for"]
#[derive(Debug)]
pub struct AllGranted(());

impl AllGranted {
    /// Two phases that ran side by side were both granted.
    pub fn and(self, other: Self) -> Self {
        let Self(()) = other;
        self
    }
}

/// Requests in flight, in the order in which they were sent. `T` says of each what it asked and
/// whom. The buffer is kept from one phase to the next.
pub struct Calls<F: Fabric, T> {
    in_flight: VecDeque<(T, F::Completion)>,
}

impl<F: Fabric, T> Default for Calls<F, T> {
    fn default() -> Self {
        Self { in_flight: VecDeque::new() }
    }
}

impl<F: Fabric, T> Calls<F, T> {
    /// Adds a request that has just been sent.
    pub fn push(&mut self, to: T, reply: F::Completion) {
        self.in_flight.push_back((to, reply));
    }

    /// Whether no request is in flight.
    pub fn is_empty(&self) -> bool {
        self.in_flight.is_empty()
    }

    /// The items that were asked about with each request in flight, in the order of sending.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &T> + Clone {
        self.in_flight.iter().map(|(to, _)| to)
    }

    /// Abandons the replies of the requests that `unwanted` accepts and hands each request to
    /// `abandoned`, the last one first.
    pub fn abandon(&mut self, unwanted: impl Fn(&T) -> bool, mut abandoned: impl FnMut(T)) {
        for index in (0..self.in_flight.len()).rev() {
            if unwanted(&self.in_flight[index].0)
                && let Some((to, reply)) = self.in_flight.swap_remove_back(index)
            {
                drop(reply);
                abandoned(to);
            }
        }
    }

    /// The reply of the request that was sent first; `None` once all have been taken.
    ///
    /// For loops that send some requests again. A phase that only asks uses [`Calls::gather`].
    pub async fn next(&mut self) -> Option<(T, Result<F::Payload, FabricError>)> {
        let (to, reply) = self.in_flight.pop_front()?;
        Some((to, reply.await))
    }

    /// Waits for every reply and hands each to `take`, in the order of sending.
    ///
    /// Never stops early: a request that was granted after another one's refusal has taken locks
    /// that somebody must release. Errors: the first that `take` returned, once all have replied.
    pub async fn gather<E>(
        &mut self,
        mut take: impl FnMut(T, Result<F::Payload, FabricError>) -> Result<(), E>,
    ) -> Result<AllGranted, E> {
        let mut first = None;
        while let Some((to, reply)) = self.in_flight.pop_front() {
            if let Err(error) = take(to, reply.await)
                && first.is_none()
            {
                first = Some(error);
            }
        }
        first.map_or(Ok(AllGranted(())), Err)
    }
}
