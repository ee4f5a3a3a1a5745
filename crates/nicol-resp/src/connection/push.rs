//! What a client is sent that answers no request, and how long it may leave it unread.

use std::time::Instant;

use super::{Connection, Life};
use crate::config::Limits;
use crate::pushes::Push;
use crate::shared::Shared;

impl Connection {
    /// Writes a message behind the replies so far, if the client's protocol has a way to say it.
    pub(super) fn push(&mut self, push: &Push) {
        self.session.client.taken(push);
        if self.life == Life::Open {
            let (protocol, listens) = (self.session.protocol, self.session.listens());
            push.write(protocol, listens, &mut self.output);
        }
    }

    /// Tells the client behind its replies what it must forget of them.
    pub(super) fn push_stale(&self, shared: &Shared) {
        if self.session.tracks.is_some() && self.rest.is_empty() {
            shared.tracking.answered(self.session.id);
        }
    }

    /// Whether it has more to read than any client may. `written` bytes were sent just now.
    pub(super) fn is_overrun(&mut self, limits: &Limits, written: usize, now: Instant) -> bool {
        let (unread, listens) = (self.unread(), self.session.listens());
        let (hard, soft) = match (self.session.authenticated, listens) {
            (_, true) => (limits.pubsub.hard_bytes, limits.pubsub.soft_bytes),
            (true, _) => (limits.output_hard_bytes, limits.output_soft_bytes),
            (false, _) => (limits.login_request_bytes, limits.output_soft_bytes),
        };
        match unread > soft {
            // Replies are made as the client asks for them; messages come whether it reads or not.
            true if written > 0 && !listens => self.above_soft = Some(now),
            true => _ = self.above_soft.get_or_insert(now),
            false => self.above_soft = None,
        }
        unread > hard
    }

    /// Whether it has left too much unread for too long.
    pub(super) fn is_slow(&self, limits: &Limits, now: Instant) -> bool {
        let patience = match self.session.listens() {
            true => limits.pubsub.soft_time,
            false => limits.output_soft_time,
        };
        self.above_soft.is_some_and(|since| now.saturating_duration_since(since) >= patience)
    }
}
