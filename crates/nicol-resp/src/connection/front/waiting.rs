//! Transactions of clients: begun, answered, and begun again for a client whose pop waits.

use std::cmp::Reverse;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::Front;
use crate::connection::blocked::Waiter;
use crate::connection::{Blocking, Connection, Life, Waiting};
use crate::pause::Paused;
use crate::transactions::news;
use crate::transactions::output::OutputHead;
use crate::transactions::plan::Planned;
use crate::transactions::{End, Ended};

/// What an attempt of a pop has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Attempt {
    /// Something, or an error: it is answered.
    Done,
    Nothing,
    /// A value of another type, at a key that it waits for.
    OtherType,
}

impl Attempt {
    fn of(end: &End, attempts: u32) -> Self {
        let End::Committed(output) = end else { return Self::Done };
        match OutputHead::parse(output) {
            Some((_, b"*-1\r\n" | b"$-1\r\n" | b"_\r\n")) => Self::Nothing,
            // At its first attempt that is an error; a client that waits is passed over.
            Some((_, replies))
                if attempts > 1
                    && replies.starts_with(b"-WRONGTYPE")
                    && !news::ends_wait(output) =>
            {
                Self::OtherType
            }
            _ => Self::Done,
        }
    }
}

impl Front {
    /// Begins a transaction of the connection in place `slot`. One that may wait is announced
    /// before, so that it misses no change.
    pub(super) fn begin(&mut self, slot: usize, planned: Planned) {
        let Some(Some(connection)) = self.connections.get_mut(slot) else { return };
        connection.waiting = Waiting::Transaction;
        connection.submitted = Instant::now();
        let id = connection.session.id;
        if let Some((time, turn)) = planned.waits() {
            let request = planned.request();
            let rows: Vec<_> = request.writes.iter().chain(&request.reads).copied().collect();
            let mailbox = self.mailbox.clone();
            self.shared.blocked.enter(&rows, turn, &Waiter { mailbox, slot, connection: id });
            let until = Instant::now().checked_add(time).filter(|_| time > Duration::ZERO);
            let kept = planned.clone();
            connection.blocking = Some(Blocking {
                planned: kept,
                rows,
                turn,
                until,
                woken: false,
                ends: None,
                attempts: 1,
            });
            if let Some(at) = until {
                self.timers.push(Reverse((at, slot, id)));
            }
        }
        self.transactions.begin(slot, id, planned);
    }

    /// Answers the clients whose transactions have ended, and lets them go on.
    pub(super) fn deliver(&mut self) {
        let shared = self.shared.clone();
        while let Some(Ended { slot, connection: id, planned, end }) =
            self.transactions.take_ended()
        {
            let Some(connection) = self.served(slot, id) else { continue };
            connection.waiting = Waiting::Input;
            if let Some(walk) = &mut connection.session.walk {
                walk.took(&planned, end, &shared);
                self.walk_on(slot);
                continue;
            }
            let attempts = connection.blocking.as_ref().map_or(0, |blocking| blocking.attempts);
            let attempt = if attempts == 0 { Attempt::Done } else { Attempt::of(&end, attempts) };
            if attempt != Attempt::Done {
                self.keep_waiting(slot, attempt, &end);
                continue;
            }
            if let End::Committed(output) = &end
                && attempts > 0
            {
                news::note(&shared, connection.front, output);
            }
            connection.end(&planned, end, &shared);
            self.wait_no_longer(slot);
            self.push();
            self.drive(slot);
        }
    }

    /// The client in place `slot`, if it is still this one.
    pub(super) fn served(&mut self, slot: usize, id: u64) -> Option<&mut Connection> {
        self.connection(slot).filter(|connection| connection.session.id == id)
    }

    /// An attempt of a pop has found nothing for it.
    fn keep_waiting(&mut self, slot: usize, attempt: Attempt, end: &End) {
        let shared = self.shared.clone();
        let Some(connection) = self.connection(slot) else { return };
        let id = connection.session.id;
        let is_gone = connection.ended || connection.ending;
        let Some(blocking) = &mut connection.blocking else { return };
        if attempt == Attempt::OtherType {
            shared.blocked.pass(&blocking.rows, blocking.turn, id);
        }
        if let End::Committed(output) = end
            && let Some(last) = news::settled(output)
        {
            blocking.planned.settle(last);
        }
        connection.waiting = Waiting::Blocked;
        connection.session.client.block(true);
        if is_gone {
            // As Redis does: what is popped for it would be lost.
            connection.life = Life::Dead;
            self.touched.push(slot);
        } else if blocking.until.is_some_and(|until| Instant::now() >= until) {
            self.time_out(slot);
        } else if let Some(with_error) = blocking.ends {
            self.give_up(slot, with_error);
        } else if std::mem::take(&mut blocking.woken) {
            self.try_again(slot);
        }
    }

    /// A key that the client waits for has changed.
    pub(super) fn unblock(&mut self, slot: usize, id: u64) {
        let Some(connection) = self.served(slot, id) else { return };
        let Some(blocking) = &mut connection.blocking else { return };
        match connection.waiting {
            Waiting::Blocked => self.try_again(slot),
            // Its attempt may have come before the change.
            _ => blocking.woken = true,
        }
    }

    /// The client's wait is ended by another one.
    pub(super) fn end_wait(&mut self, slot: usize, id: u64, with_error: bool) {
        let Some(connection) = self.served(slot, id) else { return };
        let Some(blocking) = &mut connection.blocking else { return };
        match connection.waiting {
            Waiting::Blocked => self.give_up(slot, with_error),
            // Its attempt may still find something.
            _ => blocking.ends = Some(with_error),
        }
    }

    /// A pause holds up the next command of the connection in place `slot`.
    pub(super) fn postpone(&mut self, slot: usize) {
        let Some(connection) = self.connection(slot) else { return };
        connection.waiting = Waiting::Postponed;
        connection.session.client.postpone(true);
        let id = connection.session.id;
        self.postponed.push((slot, id));
    }

    /// Lets the commands go on that a pause has held up, as far as it does not any more.
    pub(super) fn resume(&mut self) {
        if self.postponed.is_empty() || self.shared.pause.now() == Some(Paused::All) {
            return;
        }
        let shared = self.shared.clone();
        for (slot, id) in std::mem::take(&mut self.postponed) {
            let Some(connection) = self.served(slot, id) else { continue };
            if connection.is_paused(&shared) {
                self.postponed.push((slot, id));
            } else {
                connection.waiting = Waiting::Input;
                connection.session.client.postpone(false);
                self.drive(slot);
            }
        }
    }

    fn try_again(&mut self, slot: usize) {
        let now = self.shared.unix_ms();
        let Some(connection) = self.connection(slot) else { return };
        let Some(blocking) = &mut connection.blocking else { return };
        blocking.attempts += 1;
        let (id, planned) = (connection.session.id, blocking.planned.at(now));
        connection.waiting = Waiting::Transaction;
        connection.submitted = Instant::now();
        self.transactions.begin(slot, id, planned);
    }

    /// A timer of a client has gone off: a pause is over, or a wait.
    pub(super) fn go_off(&mut self, slot: usize, id: u64, now: Instant) {
        let Some(connection) = self.served(slot, id) else { return };
        let until = connection.blocking.as_ref().and_then(|blocking| blocking.until);
        match connection.waiting {
            Waiting::Pause => {
                connection.waiting = Waiting::Input;
                self.drive(slot);
            }
            Waiting::Turn => self.walk_on(slot),
            Waiting::Blocked if until.is_some_and(|until| now >= until) => self.time_out(slot),
            _ => {}
        }
    }

    /// Answers a client whose time is over with nothing.
    fn time_out(&mut self, slot: usize) {
        self.give_up(slot, false);
    }

    /// Answers a client that waits no longer with nothing, or with an error.
    fn give_up(&mut self, slot: usize, with_error: bool) {
        let shared = self.shared.clone();
        let Some(connection) = self.connection(slot) else { return };
        connection.waiting = Waiting::Input;
        let before = connection.output.len();
        let mut reply = connection.session.reply(&mut connection.output);
        match with_error {
            true => {
                reply.error(b"UNBLOCKED client unblocked via CLIENT UNBLOCK");
                shared.stats.of(connection.front).errors(b"UNBLOCKED", 1);
            }
            false => reply.null_array(),
        }
        connection.hush(before);
        if let Some(blocking) = &connection.blocking {
            connection.note_calls(&blocking.planned, 1, Duration::ZERO, &shared);
        }
        self.wait_no_longer(slot);
        self.drive(slot);
    }

    /// The client in place `slot` leaves the queues in which it waits, if it does.
    pub(super) fn wait_no_longer(&mut self, slot: usize) {
        let shared = self.shared.clone();
        let Some(connection) = self.connection(slot) else { return };
        let id = connection.session.id;
        if connection.blocking.is_some() {
            connection.session.client.block(false);
        }
        if let Some(Blocking { rows, turn, .. }) = connection.blocking.take()
            && !shared.is_dead.load(Ordering::SeqCst)
        {
            shared.blocked.leave(&rows, turn, id);
        }
    }
}
