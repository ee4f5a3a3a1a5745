//! What a connection has chosen and queued, apart from its socket.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::connection::clients::{Client, CommandNumber};
use crate::connection::encode::{Protocol, Reply};
use crate::shared::Shared;
use crate::transactions::plan::{PlanBuilder, Watch};

/// The state of one client.
#[derive(Debug)]
pub struct Session {
    /// The connection's id, never reused.
    pub id: u64,
    /// The client as other threads see it, with its names.
    pub client: Arc<Client>,
    /// How it wants its replies.
    pub protocol: Protocol,
    /// May it use the store?
    pub authenticated: bool,
    /// The commands after MULTI.
    pub multi: Option<Multi>,
    /// What WATCH saw.
    pub watches: Vec<Watch>,
    /// Its last command.
    pub last_command: CommandNumber,
}

/// Commands queued after MULTI.
#[derive(Debug, Default)]
pub struct Multi {
    /// The commands.
    pub plan: PlanBuilder,
    /// One was refused: EXEC discards all.
    pub failed: bool,
}

/// What the connection does after a command.
#[derive(Debug, PartialEq, Eq)]
pub enum After {
    /// Go on.
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
}

impl Session {
    /// A new client.
    pub fn new(shared: &Shared, client: Arc<Client>) -> Self {
        Self {
            id: client.id,
            client,
            protocol: Protocol::Resp2,
            authenticated: shared.config.password.is_none(),
            multi: None,
            watches: Vec::new(),
            last_command: CommandNumber::default(),
        }
    }

    /// RESET: as new, but connected.
    pub fn reset(&mut self, shared: &Shared) {
        self.client.reset();
        *self = Self::new(shared, self.client.clone());
    }

    /// Lets other threads see what the client did last, and that it sent something when `active`
    /// says.
    pub fn publish(&self, active: Instant) {
        let queued = self.multi.as_ref().map(|multi| multi.plan.commands());
        self.client.publish(self.protocol, queued, self.last_command, active);
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
        self.reply(out).error(text);
    }
}
