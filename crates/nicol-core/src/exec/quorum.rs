//! Waiting for a quorum of several futures of one type, without allocation.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::{JoinAll, join_all};

/// A future whose operation runs to its end even if the future is dropped: only its result is lost.
/// The fabric's completions are such futures. An `async` block is not: dropping it stops it between
/// two steps.
pub trait Detached: Future {}

/// Starts waiting until `needed` of `futures`, of which there are at most `N`, have resolved to an
/// output that `grants` accepts. With `Result::is_ok` every success counts.
///
/// # Panics
/// If there are more than `N` futures: the limit is the caller's to know.
pub fn join_quorum<const N: usize, F, G>(
    futures: impl IntoIterator<Item = F>,
    needed: usize,
    grants: G,
) -> JoinQuorum<F, G, N>
where
    F: Detached + Unpin,
    G: Fn(&F::Output) -> bool,
{
    JoinQuorum { all: join_all(futures), needed, granted: 0, grants }
}

/// Resolves to true once enough futures have granted, and to false once too few are left for that.
/// Await it by reference, `(&mut replies).await`: it keeps the outputs that have come and the
/// futures that have not resolved yet. Awaited again, it takes in what has resolved since.
///
/// Nothing is cancelled: what is pending when the quorum is decided, or when this is dropped, runs
/// to its end ([`Detached`]). [`JoinQuorum::rest`] waits for it.
#[must_use = "futures do nothing unless awaited"]
pub struct JoinQuorum<F: Future, G, const N: usize> {
    all: JoinAll<F, N>,
    needed: usize,
    granted: usize,
    grants: G,
}

impl<F: Future, G, const N: usize> JoinQuorum<F, G, N> {
    /// The outputs that have come so far, each with the place of its future in the order given.
    pub fn outputs(&self) -> impl Iterator<Item = (usize, &F::Output)> {
        let outputs = self.all.outputs.iter().enumerate();
        outputs.filter_map(|(place, output)| Some((place, output.as_ref()?)))
    }

    /// Futures that have granted so far.
    pub const fn granted(&self) -> usize {
        self.granted
    }

    /// Futures that have not resolved yet.
    pub fn pending(&self) -> usize {
        self.all.slots.iter().flatten().count()
    }

    /// Waits for all futures: resolves to every output, those from before the quorum included, in
    /// the order of the futures. A coordinator that goes on at the quorum awaits this in a task of
    /// its own, if it needs the late answers.
    pub fn rest(self) -> JoinAll<F, N> {
        self.all
    }
}

impl<F: Future, G, const N: usize> fmt::Debug for JoinQuorum<F, G, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "JoinQuorum({} of {} granted, {} pending)",
            self.granted,
            self.needed,
            self.pending()
        )
    }
}

impl<F: Future + Unpin, G, const N: usize> Unpin for JoinQuorum<F, G, N> {}

impl<F, G, const N: usize> Future for JoinQuorum<F, G, N>
where
    F: Future + Unpin,
    G: Fn(&F::Output) -> bool,
{
    type Output = bool;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<bool> {
        let Self { all, needed, granted, grants } = &mut *self;
        let mut pending = 0;
        for (slot, output) in all.slots.iter_mut().zip(&mut all.outputs) {
            let Some(future) = slot else { continue };
            match Pin::new(future).poll(context) {
                Poll::Ready(value) => {
                    *granted += usize::from(grants(&value));
                    *output = Some(value);
                    *slot = None;
                }
                Poll::Pending => pending += 1,
            }
        }
        if *granted >= *needed {
            Poll::Ready(true)
        } else if *granted + pending < *needed {
            Poll::Ready(false)
        } else {
            Poll::Pending
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::rc::Rc;
    use std::task::Waker;

    use super::*;

    type Answer = Result<u32, &'static str>;

    /// An operation that somebody else ends, and how many of its futures were dropped.
    #[derive(Clone, Default)]
    struct Operation {
        answer: Rc<RefCell<Option<Answer>>>,
        dropped: Rc<Cell<usize>>,
    }

    impl Drop for Operation {
        fn drop(&mut self) {
            self.dropped.set(self.dropped.get() + 1);
        }
    }

    impl Detached for Operation {}

    impl Future for Operation {
        type Output = Answer;
        fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Answer> {
            self.answer.borrow_mut().take().map_or(Poll::Pending, Poll::Ready)
        }
    }

    fn poll<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
        Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
    }

    type Join = JoinQuorum<Operation, fn(&Answer) -> bool, 8>;

    fn started(needed: usize) -> (Vec<Operation>, Join) {
        let operations: Vec<Operation> = (0..5).map(|_| Operation::default()).collect();
        let grants: fn(&Answer) -> bool = Result::is_ok;
        let join = join_quorum(operations.iter().cloned(), needed, grants);
        (operations, join)
    }

    fn end(operation: &Operation, answer: Answer) {
        *operation.answer.borrow_mut() = Some(answer);
    }

    #[test]
    fn a_quorum_resolves_without_the_late_and_the_late_are_collected() {
        let (operations, mut join) = started(3);
        assert_eq!(poll(&mut join), Poll::Pending);
        end(&operations[4], Ok(4));
        end(&operations[0], Ok(0));
        end(&operations[1], Err("refused"));
        assert_eq!(poll(&mut join), Poll::Pending);
        end(&operations[2], Ok(2));
        assert_eq!(poll(&mut join), Poll::Ready(true));
        let expected = [(0, &Ok(0)), (1, &Err("refused")), (2, &Ok(2)), (4, &Ok(4))];
        assert!(join.outputs().eq(expected));
        assert_eq!((join.granted(), join.pending()), (3, 1));
        assert_eq!(operations[3].dropped.get(), 0, "the late one is not cancelled");
        let mut rest = join.rest();
        assert!(poll(&mut rest).is_pending());
        assert_eq!(operations[3].dropped.get(), 0, "nor while it is collected");
        end(&operations[3], Err("late"));
        let Poll::Ready(all) = poll(&mut rest) else { panic!("all have ended") };
        assert!(all.eq([Ok(0), Err("refused"), Ok(2), Err("late"), Ok(4)]));
    }

    #[test]
    fn a_quorum_that_cannot_be_reached_resolves_at_once() {
        let (operations, mut join) = started(4);
        end(&operations[2], Err("refused"));
        assert_eq!(poll(&mut join), Poll::Pending);
        end(&operations[3], Err("refused"));
        assert_eq!(poll(&mut join), Poll::Ready(false), "three can grant, four are needed");
        assert_eq!(join.pending(), 3);
        end(&operations[0], Ok(0));
        assert_eq!(poll(&mut join), Poll::Ready(false), "the decision stands");
        assert_eq!(join.granted(), 1, "and late answers are taken in");
    }

    #[test]
    fn the_edges_are_decided_without_an_answer() {
        assert_eq!(poll(&mut started(0).1), Poll::Ready(true));
        assert_eq!(poll(&mut started(6).1), Poll::Ready(false));
        let (operations, mut join) = started(5);
        for operation in &operations {
            assert_eq!(poll(&mut join), Poll::Pending);
            end(operation, Ok(1));
        }
        assert_eq!(poll(&mut join), Poll::Ready(true));
    }
}
