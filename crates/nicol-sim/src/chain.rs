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
use nicol_core::units::Picos;

/// The result of an execution: the reply, and an error if there is none.
pub type Ran = (Vec<u8>, Result<(), FabricError>);

/// An access that an execution wants: to memory of a side, at an offset of a region.
pub type Wanted = (Side, u64, Touch);

/// The event that an execution waits for.
#[derive(Clone, Copy, Debug)]
pub enum Next {
    /// This access, or the rest of it.
    Access(Wanted),
    /// The first so many bytes of this long read, whose rest is an access that follows.
    FirstOf(Wanted, u64),
}

/// A verb or chain in execution. What it touches costs time, so others come in between.
pub struct Running {
    future: Pin<Box<dyn Future<Output = Ran>>>,
    wants: Rc<Cell<Option<Next>>>,
}

/// The state of a verb at its target.
#[derive(Debug)]
pub enum Execution {
    /// It has not arrived.
    NotYet,
    /// It is about to make this access to memory of a side.
    Under(Running, Wanted),
    /// It is about to make the first half of a long read, this access, whose rest is made at this
    /// instant.
    Halfway(Running, Picos, Wanted),
    /// It is about to move the bytes of a transfer, to or from memory of a side.
    Moving(Wanted),
    /// The reply is in the operation's buffer: it is not executed again.
    Ended,
}

impl Execution {
    /// The access that a verb or chain makes when it goes on, or half of it.
    pub const fn touches(&self) -> Option<(Side, Touch)> {
        match self {
            Self::Under(_, (side, _, touch)) | Self::Halfway(_, _, (side, _, touch)) => {
                Some((*side, *touch))
            }
            Self::NotYet | Self::Moving(_) | Self::Ended => None,
        }
    }
}

/// The point at which the execution of a verb goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It has just arrived.
    Arrived,
    /// It has made an access.
    Between,
    /// It has made the first half of a long read, whose rest is made at this instant.
    Halfway(Picos),
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
    pub fn step(&mut self) -> ControlFlow<Ran, Next> {
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
struct Card(Rc<Cell<Option<Next>>>);

impl Card {
    async fn wait(&self, next: Next) {
        let mut asked = false;
        poll_fn(|_| {
            if asked {
                return Poll::Ready(());
            }
            asked = true;
            self.0.set(Some(next));
            Poll::Pending
        })
        .await;
    }
}

impl ChainAccess for Card {
    const TEARS: bool = true;

    async fn access_first(
        &self,
        side: Side,
        at: u64,
        first: u64,
        len: u64,
    ) -> Result<(), FabricError> {
        self.wait(Next::FirstOf((side, at, Touch::Fetch(len)), first)).await;
        Ok(())
    }

    async fn access(&self, side: Side, at: u64, touch: Touch) -> Result<(), FabricError> {
        self.wait(Next::Access((side, at, touch))).await;
        Ok(())
    }
}
