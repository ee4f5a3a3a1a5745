//! Waiting for several futures of one type, without allocation.

use std::array;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Starts waiting for all of `futures`, of which there are at most `N`.
///
/// # Panics
/// If there are more than `N`: the limit is the caller's to know.
pub fn join_all<const N: usize, F>(futures: impl IntoIterator<Item = F>) -> JoinAll<F, N>
where
    F: Future + Unpin,
{
    let mut slots: [Option<F>; N] = array::from_fn(|_| None);
    let mut len = 0;
    for future in futures {
        assert!(len < N, "more futures than the join's capacity of {N}");
        slots[len] = Some(future);
        len += 1;
    }
    JoinAll { slots, outputs: array::from_fn(|_| None), len }
}

/// Resolves to every output, in the order of the futures. Never gives up on a late one.
#[derive(Debug)]
#[must_use = "futures do nothing unless awaited"]
pub struct JoinAll<F: Future, const N: usize> {
    pub(super) slots: [Option<F>; N],
    pub(super) outputs: [Option<F::Output>; N],
    len: usize,
}

impl<F: Future + Unpin, const N: usize> Unpin for JoinAll<F, N> {}

impl<F: Future + Unpin, const N: usize> Future for JoinAll<F, N> {
    type Output = std::iter::Flatten<array::IntoIter<Option<F::Output>, N>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let join = &mut *self;
        let mut pending = false;
        for (slot, output) in join.slots.iter_mut().zip(&mut join.outputs).take(join.len) {
            if let Some(future) = slot {
                match Pin::new(future).poll(context) {
                    Poll::Ready(value) => {
                        *output = Some(value);
                        *slot = None;
                    }
                    Poll::Pending => pending = true,
                }
            }
        }
        if pending {
            return Poll::Pending;
        }
        let outputs = std::mem::replace(&mut join.outputs, array::from_fn(|_| None));
        Poll::Ready(outputs.into_iter().flatten())
    }
}
