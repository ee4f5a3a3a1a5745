//! What a client is sent that answers no request, what is kept from it, and how long it may leave
//! it unread.

use std::time::Instant;

use super::session::Answers;
use super::{Connection, Life};
use crate::commands::lookup;
use crate::commands::rights::{self, Categories};
use crate::commands::spec::{Action, Admin, Spec};
use crate::config::Limits;
use crate::pause::Paused;
use crate::pushes::Push;
use crate::scripts::flags::Flags;
use crate::scripts::shebang;
use crate::shared::Shared;

impl Connection {
    /// Takes back what was answered since the output had `before` bytes, if it is not wanted.
    pub(super) fn hush(&mut self, before: usize) {
        if self.silent {
            self.output.truncate(before);
        }
    }

    /// Whether the command that the parser holds must wait for the end of a pause.
    pub(super) fn is_paused(&self, shared: &Shared) -> bool {
        let Some(paused) = shared.pause.now() else { return false };
        let command = self.parser.command(&self.input[self.consumed..]);
        // What is wrong with it is answered at once.
        let known = lookup(command.arg(0)).filter(|spec| spec.accepts(command.len()));
        let Some(spec) = known else { return false };
        let writes = match spec.action {
            Action::Admin(Admin::Publish { .. }, _) => true,
            Action::Data(..) if spec.is_script() => {
                !spec.flags.contains(&"readonly") && may_write(shared, spec, command.arg(1))
            }
            // As Redis, where it may change the estimate that the value holds.
            _ if spec.name == "pfcount" => true,
            Action::Admin(Admin::Exec, _) => {
                self.session.multi.as_ref().is_some_and(|multi| multi.plan.writes())
            }
            _ => spec.writes(),
        };
        paused == Paused::All || writes
    }

    /// Whether the command that the parser holds is answered whatever CLIENT REPLY said before:
    /// CLIENT REPLY ON, and what tells of subscriptions.
    pub(super) fn speaks(&self) -> bool {
        if self.session.answers == Answers::On && !self.silent {
            return true;
        }
        let command = self.parser.command(&self.input[self.consumed..]);
        let is = |place, word: &[u8]| command.arg(place).eq_ignore_ascii_case(word);
        lookup(command.arg(0)).is_some_and(|spec| match spec.action {
            Action::Admin(Admin::Subscribe(_) | Admin::Unsubscribe(_), _) => true,
            Action::Admin(Admin::Client, _) => is(1, b"reply") && is(2, b"on"),
            _ => false,
        })
    }

    /// Shows the command that the parser holds to those who see all. Those for administrators are
    /// not shown, nor are passwords.
    pub(super) fn show(&self, shared: &Shared) {
        if shared.monitors.is_off() {
            return;
        }
        let command = self.parser.command(&self.input[self.consumed..]);
        let Some(spec) = lookup(command.arg(0)).filter(|spec| spec.accepts(command.len())) else {
            return;
        };
        let words: Vec<&[u8]> = command.args(0).collect();
        let categories = rights::categories(rights::number(spec, &words));
        let is_secret = Categories::named(b"admin").is_some_and(|admin| categories.meets(admin));
        let is_allowed = self.session.authenticated || spec.flags.contains(&"no_auth");
        if is_secret || !is_allowed || self.session.denied(spec, &command).is_some() {
            return;
        }
        let passwords = match spec.name {
            "auth" => 1,
            "hello" => {
                let auth = words.iter().position(|word| word.eq_ignore_ascii_case(b"auth"));
                auth.map_or(words.len(), |place| place + 1)
            }
            _ => words.len(),
        };
        let hidden = (passwords..words.len()).map(|_| &b"(redacted)"[..]);
        let shown = words[..passwords.min(words.len())].iter().copied().chain(hidden);
        shared.monitors.show(self.session.database, Some(&self.session.client.peer), shown);
    }

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
        let (unread, listens) = (self.unread(), self.session.is_told());
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
        let patience = match self.session.is_told() {
            true => limits.pubsub.soft_time,
            false => limits.output_soft_time,
        };
        self.above_soft.is_some_and(|since| now.saturating_duration_since(since) >= patience)
    }
}

/// Whether a script that a client sends or names may write.
fn may_write(shared: &Shared, spec: &Spec, named: &[u8]) -> bool {
    let flags = match spec.name {
        "eval" => shebang::of_script(named).ok(),
        "evalsha" => shared.scripts.find(named).map(|script| script.flags),
        _ => None,
    };
    !flags.is_some_and(Flags::only_reads)
}
