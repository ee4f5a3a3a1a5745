//! What a connection has chosen and queued, apart from its socket.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::acl::selector::Denied;
use crate::acl::user::User;
use crate::commands::spec::Spec;
use crate::connection::clients::{Client, CommandNumber};
use crate::connection::encode::{Protocol, Reply};
use crate::connection::parse::Command;
use crate::pause::Paused;
use crate::pubsub::{Scope, Subscriptions};
use crate::shared::Shared;
use crate::tracking::Choice;
use crate::transactions::plan::{PlanBuilder, Watch};
use crate::transactions::record::Database;
use crate::walks::Walk;

/// The state of one client.
#[derive(Debug)]
pub struct Session {
    /// The connection's id, never reused.
    pub id: u64,
    /// The client as other threads see it, with its names.
    pub client: Arc<Client>,
    /// How it wants its replies.
    pub protocol: Protocol,
    /// The database that its commands are for.
    pub database: Database,
    /// Who it is; the default user until it has logged in.
    pub user: Arc<User>,
    /// The changes of users that it knows of.
    user_changes: u64,
    /// True if it may use the store.
    pub authenticated: bool,
    /// The commands after MULTI.
    pub multi: Option<Multi>,
    /// The database before the MULTI whose commands are under way.
    before_exec: Option<Database>,
    pub watches: Vec<Watch>,
    /// The pause that it has asked for, until it begins.
    pub pause: Option<(Paused, Duration)>,
    /// Of which of its reads it keeps what they answer; `None`: of none.
    pub tracks: Option<Choice>,
    /// What it says of the next command, or of the MULTI that is next or under way.
    pub caches: Option<bool>,
    /// Whether it is answered.
    pub answers: Answers,
    /// It sees every command.
    pub monitors: bool,
    /// What it has subscribed to.
    pub subscriptions: Subscriptions,
    /// Its command that goes over all keys, while that is under way.
    pub walk: Option<Box<Walk>>,
    pub last_command: CommandNumber,
    /// Its command was refused, and not executed.
    pub is_refused: bool,
}

/// Whether a client is answered: CLIENT REPLY.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Answers {
    #[default]
    On,
    /// Not to its next command.
    SkipNext,
    Off,
}

/// Commands queued after MULTI.
#[derive(Debug, Default)]
pub struct Multi {
    /// The database before MULTI: a SELECT among the commands is undone if they are not executed.
    pub database: Database,
    pub plan: PlanBuilder,
    /// One was refused: EXEC discards all.
    pub failed: bool,
    /// One may need more memory.
    pub may_grow: bool,
    /// A pause that begins with EXEC.
    pub pause: Option<(Paused, Duration)>,
}

/// What the connection does after a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    Go,
    /// Answer only after a while.
    Wait(Duration),
    /// Send what was answered and close.
    Close,
    /// Close without an answer.
    Drop,
    /// Submit what MULTI queued.
    Exec,
    /// Submit the observation in the batch.
    Watch,
    /// Begin the session's walk.
    Walk,
}

impl After {
    /// Whether the command is answered only once transactions have ended.
    pub fn submits(self) -> bool {
        matches!(self, Self::Exec | Self::Watch | Self::Walk)
    }
}

impl Session {
    pub fn new(shared: &Shared, client: Arc<Client>) -> Self {
        let user_changes = shared.users.changes();
        let user = shared.users.default_user();
        Self {
            id: client.id,
            client,
            protocol: Protocol::Resp2,
            database: Database::default(),
            authenticated: user.takes_any(),
            user,
            user_changes,
            multi: None,
            before_exec: None,
            watches: Vec::new(),
            pause: None,
            tracks: None,
            caches: None,
            answers: Answers::On,
            monitors: false,
            subscriptions: Subscriptions::default(),
            walk: None,
            last_command: CommandNumber::default(),
            is_refused: false,
        }
    }

    /// RESET: as new, but connected.
    pub fn reset(&mut self, shared: &Shared) {
        self.stop_tracking(shared);
        self.leave(shared);
        self.client.reset();
        *self = Self::new(shared, self.client.clone());
    }

    /// Whether it has subscribed to anything.
    pub fn listens(&self) -> bool {
        !self.subscriptions.is_empty()
    }

    /// Whether it is told of what others do.
    pub fn is_told(&self) -> bool {
        self.monitors || self.listens()
    }

    /// Whether it may do nothing but listen: in version 2 of the protocol messages look as replies
    /// do.
    pub fn only_listens(&self) -> bool {
        self.protocol == Protocol::Resp2 && self.listens()
    }

    /// It listens to nothing any more, and sees no commands of others.
    pub fn leave(&mut self, shared: &Shared) {
        let subscriptions = std::mem::take(&mut self.subscriptions);
        for scope in Scope::ALL {
            for name in subscriptions.of(scope) {
                shared.pubsub.unsubscribe(scope, name, self.id);
            }
        }
        self.client.listen([0; 3]);
        if std::mem::take(&mut self.monitors) {
            shared.monitors.remove(self.id);
            self.client.seen().monitors = false;
        }
    }

    /// It sees every command from now on.
    pub fn monitor(&mut self, shared: &Shared) {
        self.monitors = true;
        self.client.seen().monitors = true;
        shared.monitors.add(&self.client);
    }

    /// It leaves: nobody counts it any more, though its connection is closed a little later.
    pub fn quit(&mut self, shared: &Shared) {
        self.leave(shared);
        self.client.leave();
    }

    /// It keeps no copies any more.
    pub fn stop_tracking(&mut self, shared: &Shared) {
        if self.tracks.take().is_some() {
            self.client.seen().tracks = false;
            shared.tracking.stop(self.id);
        }
        self.caches = None;
    }

    /// Notes which keys of `command` it is about to read and will keep.
    pub fn track(&self, shared: &Shared, spec: &Spec, command: &Command<'_>) {
        let keeps = match self.tracks {
            None | Some(Choice::Broadcast) => false,
            Some(Choice::All) => true,
            Some(Choice::OptIn) => self.caches == Some(true),
            Some(Choice::OptOut) => self.caches != Some(false),
        };
        // What a script does with its keys nobody knows: it may read them.
        if !keeps || !spec.flags.contains(&"readonly") && !spec.is_script() {
            return;
        }
        let planner = shared.planner(self.database);
        for place in spec.keys.of(command.len(), |place| command.arg(place)).iter() {
            let key = command.arg(place);
            shared.tracking.reads(self.id, planner.row(key), key);
        }
    }

    /// It is `user` from now on.
    pub fn log_in(&mut self, user: Arc<User>) {
        self.client.seen().user = user.name.clone();
        self.user = user;
        self.authenticated = true;
    }

    /// Learns what its user may do now, if a user has changed. One that is gone may do nothing.
    pub fn refresh_user(&mut self, shared: &Shared) {
        let changes = shared.users.changes();
        if changes == self.user_changes {
            return;
        }
        self.user_changes = changes;
        match shared.users.get(&self.user.name) {
            Some(user) => self.user = user,
            None => (self.user, self.authenticated) = (shared.users.default_user(), false),
        }
    }

    /// What of `command` its user may not do.
    pub fn denied(&self, spec: &Spec, command: &Command<'_>) -> Option<Denied> {
        if self.user.is_free() {
            return None;
        }
        self.user.check(spec, &command.args(0).collect::<Vec<_>>()).err()
    }

    /// MULTI: the commands that follow are queued.
    pub fn begin_multi(&mut self) {
        let database = self.database;
        self.multi = Some(Multi { database, ..Multi::default() });
    }

    /// EXEC: what was queued, to be executed.
    pub fn take_multi(&mut self) -> Option<Multi> {
        let multi = self.multi.take();
        self.before_exec = multi.as_ref().map(|multi| multi.database);
        multi
    }

    /// What EXEC took was not executed: nor was a SELECT in it.
    pub fn undo_select(&mut self) {
        self.database = self.before_exec.take().unwrap_or(self.database);
    }

    /// DISCARD: forgets what was queued and watched; whether there was a MULTI.
    pub fn discard(&mut self) -> bool {
        let Some(multi) = self.multi.take() else { return false };
        self.database = multi.database;
        self.watches.clear();
        true
    }

    /// Lets other threads see what the client did last, and that it sent something when `active`
    /// says.
    pub fn publish(&self, active: Instant) {
        let queued = self.multi.as_ref().map(|multi| multi.plan.commands());
        let database = self.database.number();
        self.client.publish((self.protocol, database), queued, self.last_command, active);
    }

    /// A reply in the client's protocol at the end of `out`.
    pub fn reply<'a>(&self, out: &'a mut Vec<u8>) -> Reply<'a> {
        Reply::new(out, self.protocol)
    }

    /// Answers with an error; in a MULTI it spoils the transaction.
    pub fn refuse(&mut self, out: &mut Vec<u8>, text: &[u8]) {
        if let Some(multi) = &mut self.multi {
            multi.failed = true;
        }
        self.is_refused = true;
        self.reply(out).error(text);
    }
}
