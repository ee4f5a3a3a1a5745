//! A chain that the target's card executes, from one access to memory to the next.

use std::cell::Cell;
use std::fmt;
use std::future::{Future, poll_fn};
use std::ops::ControlFlow;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use nicol_core::chain::{ChainAccess, Touch, run};
use nicol_core::fabric::FabricError;
use nicol_core::ids::Side;
use nicol_core::memory::RegionTable;

/// What an execution came to: the reply, and whether there is one.
pub type Ran = (Vec<u8>, Result<(), FabricError>);

/// An access that an execution wants: to memory of a side, at an offset of a region.
pub type Wanted = (Side, u64, Touch);

/// A verb or chain in execution. What it touches costs time, so others come in between.
pub struct Running {
    future: Pin<Box<dyn Future<Output = Ran>>>,
    wants: Rc<Cell<Option<Wanted>>>,
}

impl Running {
    /// The request `body`, before its first step.
    pub fn new(body: Vec<u8>, regions: Rc<RegionTable>) -> Self {
        let wants = Rc::<Cell<_>>::default();
        let card = Card(wants.clone());
        let future = Box::pin(async move {
            let mut reply = Vec::new();
            let ran = run(&body, &regions, &card, &mut reply).await;
            (reply, ran)
        });
        Self { future, wants }
    }

    /// Makes the access that was wanted, if any, and goes on to the next one, of memory of a side,
    /// or to the end.
    pub fn step(&mut self) -> ControlFlow<Ran, Wanted> {
        match self.future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(ran) => ControlFlow::Break(ran),
            Poll::Pending => match self.wants.take() {
                Some(access) => ControlFlow::Continue(access),
                None => panic!("an execution waits for memory only"),
            },
        }
    }
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running").finish_non_exhaustive()
    }
}

/// The card's way to memory: the execution stops, and goes on when it is stepped again.
struct Card(Rc<Cell<Option<Wanted>>>);

impl ChainAccess for Card {
    async fn access(&self, side: Side, at: u64, touch: Touch) -> Result<(), FabricError> {
        let mut asked = false;
        poll_fn(|_| {
            if asked {
                return Poll::Ready(Ok(()));
            }
            asked = true;
            self.0.set(Some((side, at, touch)));
            Poll::Pending
        })
        .await
    }
}
