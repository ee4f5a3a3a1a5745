//! Futures that wait for nothing.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

/// Polls `future` once and returns what it resolves to, without a task. The caller knows that it
/// waits for nothing.
///
/// # Panics
/// If it waits for something.
// In line, so that the future is made where it runs instead of being copied there.
#[inline(always)]
pub fn at_once<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("what was to be had at once is waited for"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_future_runs_to_its_end_without_a_task() {
        assert_eq!(at_once(async { std::future::ready(3).await + 4 }), 7);
    }

    #[test]
    #[should_panic(expected = "waited for")]
    fn one_that_waits_is_a_bug() {
        at_once(std::future::pending::<()>());
    }
}
