//! A front as the thread that runs it sees it: it waits, and takes turns.

use std::io::ErrorKind;
use std::sync::atomic::Ordering;
use std::task::Waker;
use std::time::{Duration, Instant};

use nicol_core::serving::{EventLoop, Turn};

use super::{Front, SWEEP};

impl EventLoop for Front {
    fn wait(&mut self, limit: Duration) {
        let waits = limit > Duration::ZERO && self.again.is_empty() && self.mailbox.prepare_sleep();
        let timeout = if waits { self.timeout().min(limit) } else { Duration::ZERO };
        if let Err(error) = self.poll.poll(&mut self.events, Some(timeout)) {
            self.broken |= error.kind() != ErrorKind::Interrupted;
        }
        if waits {
            self.mailbox.woken();
        }
    }

    fn turn(&mut self) -> Turn {
        // With its event descriptor broken, no connection can be served any more.
        if self.broken {
            return Turn::Ended;
        }
        // Before what clients ask for now: a message that was published before stands before its
        // reply, and who was closed before is not answered.
        self.push();
        self.close_killed();
        let mut worked = self.handle_events();
        for slot in std::mem::take(&mut self.again) {
            self.drive(slot);
        }
        worked |= self.go_on();
        let now = Instant::now();
        self.shared.eviction.tick(now.saturating_duration_since(self.shared.started));
        if now >= self.sweep_at {
            self.sweep(now);
            self.sweep_at = now + SWEEP;
        }
        if self.shared.stop.load(Ordering::SeqCst) {
            let by = *self.stop_by.get_or_insert(now + self.shared.config.drain);
            let is_dead = self.shared.is_dead.load(Ordering::SeqCst);
            if self.drained() || is_dead || now >= by {
                return Turn::Ended;
            }
        }
        if worked { Turn::Worked } else { Turn::Idle }
    }

    fn waker(&self) -> Waker {
        self.mailbox.clone().into()
    }
}
