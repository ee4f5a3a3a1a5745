//! Clients whose command goes over all keys, a transaction at a time.

use std::cmp::Reverse;
use std::time::Instant;

use super::Front;
use crate::connection::{Connection, Waiting};
use crate::shared::Shared;
use crate::slow_log::SlowClient;
use crate::walks::Next;

impl Front {
    /// Lets the walk of the client in place `slot` go on, if it has one.
    pub(super) fn walk_on(&mut self, slot: usize) {
        let shared = self.shared.clone();
        let Some(connection) = self.connection(slot) else { return };
        let Some(walk) = &mut connection.session.walk else { return };
        let id = connection.session.id;
        match walk.next(&shared) {
            Next::Begin(planned) => {
                connection.waiting = Waiting::Transaction;
                self.transactions.begin(slot, id, planned);
            }
            Next::Later => {
                connection.waiting = Waiting::Turn;
                self.timers.push(Reverse((Instant::now(), slot, id)));
            }
            Next::Ended => {
                connection.waiting = Waiting::Input;
                connection.end_walk(&shared);
                self.drive(slot);
            }
        }
    }
}

impl Connection {
    /// Answers the command whose walk has ended.
    fn end_walk(&mut self, shared: &Shared) {
        let Some(walk) = self.session.walk.take() else { return };
        let before = self.output.len();
        walk.answer(&mut self.session.reply(&mut self.output));
        self.hush(before);
        let (begun, place, words) = &walk.asked;
        let took = begun.elapsed();
        shared.stats.of(self.front).called((*place, 1), took);
        shared.stats.spikes.note(took);
        if shared.stats.slow.is_slow(took) {
            shared.stats.slow.add(
                took,
                words.iter().map(Vec::as_slice),
                SlowClient::of(&self.session.client),
            );
        }
    }
}
