//! How an operation is tried, by a client or in the background, until it ends.

use std::rc::Rc;
use std::sync::Arc;

use nicol_core::fabric::Local;
use nicol_core::units::Nanos;

use super::RunControl;
use super::recorder::{ClientSlot, Ending, Recorder};
use super::session::{Again, Attempted, ClientOperation, Session};
use super::window::Window;

/// Makes attempts at operations, one operation after the other.
pub(super) struct Attempts<F, S: Session> {
    // Before the slot: what an attempt holds is dropped before the attempt is recorded as cut off.
    pub(super) session: S,
    pub(super) slot: ClientSlot<S::Operation>,
    pub(super) fabric: F,
    pub(super) run: Arc<RunControl>,
    pub(super) recorder: Rc<Recorder>,
    /// Which adapts to how attempts end. Operations in the background have none: nobody waits for
    /// them.
    pub(super) window: Option<Rc<Window>>,
}

impl<F: Local, S: Session> Attempts<F, S> {
    /// Must operations end at `now`, even if some are still due? What runs in the background has
    /// been answered: it is executed when the measured time is over, too.
    pub(super) fn must_stop(&self, now: Nanos) -> bool {
        let over = self.window.is_some() && now >= self.run.plan().stop_at;
        over || self.run.stopped() || self.recorder.is_full()
    }

    /// Runs the operation of `kind` that has begun, piece by piece, from `now` to its end, which it
    /// returns.
    pub(super) async fn run(&mut self, kind: usize, mut now: Nanos) -> Nanos {
        let mut ending;
        loop {
            (ending, now) = self.attempts(now).await;
            if ending != Ending::Done {
                break;
            }
            let left = self.slot.operation.left();
            if !self.session.next_piece(kind, &mut self.slot.operation) {
                break;
            }
            self.slot.piece(left);
        }
        self.slot.end(ending, now);
        if ending == Ending::Unknown {
            self.slot.rename();
        }
        now
    }

    /// Retries the operation until it ends.
    async fn attempts(&mut self, mut now: Nanos) -> (Ending, Nanos) {
        let plan = *self.run.plan();
        let mut full = 0;
        for attempts in 1..=plan.retry.attempts_max {
            self.slot.attempt(now);
            let began = now;
            let attempted = self.session.attempt(&mut self.slot.operation).await;
            now = self.fabric.now();
            self.slot.attempted(attempted, now);
            let contended = matches!(attempted, Attempted::Aborted { again: Again::Yes, .. });
            if let Some(window) = &self.window {
                window.attempted(contended);
            }
            match attempted {
                Attempted::Done => return (Ending::Done, now),
                Attempted::Unknown => return (Ending::Unknown, now),
                Attempted::Aborted { again: Again::Refused, .. } => return (Ending::Refused, now),
                Attempted::Aborted { again: Again::Never, .. } => return (Ending::Failed, now),
                Attempted::Aborted { again, .. } => full += u32::from(again == Again::WhenFull),
            }
            if attempts == plan.retry.attempts_max || full >= plan.retry.full_max {
                break;
            }
            if self.must_stop(now) {
                return (Ending::Abandoned, now);
            }
            let wait = plan.retry.wait(attempts, now - began, self.fabric.random());
            self.fabric.sleep_until(now.saturating_add(wait)).await;
            now = self.fabric.now();
            // The end of the run may have come during the wait.
            if self.must_stop(now) {
                return (Ending::Abandoned, now);
            }
            self.slot.operation.rewind();
        }
        (Ending::Failed, now)
    }
}
