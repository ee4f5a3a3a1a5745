//! What a connection has chosen and queued, apart from its socket.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::encode::{Protocol, Reply};
use super::plan::{PlanBuilder, Watch};
use super::shared::Shared;

/// The state of one client.
#[derive(Debug)]
pub struct Session {
    /// The connection's id, never reused.
    pub id: u64,
    /// Where the client is.
    pub peer: SocketAddr,
    /// Where it reached the server.
    pub local: SocketAddr,
    /// How it wants its replies.
    pub protocol: Protocol,
    /// May it use the store?
    pub authenticated: bool,
    /// CLIENT SETNAME.
    pub name: Vec<u8>,
    /// CLIENT SETINFO LIB-NAME.
    pub library: Vec<u8>,
    /// CLIENT SETINFO LIB-VER.
    pub library_version: Vec<u8>,
    /// CLIENT NO-EVICT: remembered for CLIENT INFO; nothing is evicted here.
    pub no_evict: bool,
    /// The commands after MULTI.
    pub multi: Option<Multi>,
    /// What WATCH saw.
    pub watches: Vec<Watch>,
    /// When the client connected.
    pub since: Instant,
    /// Its last command's name.
    pub last_command: &'static str,
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
    pub fn new(shared: &Shared, id: u64, peer: SocketAddr, local: SocketAddr) -> Self {
        Self {
            id,
            peer,
            local,
            protocol: Protocol::Resp2,
            authenticated: shared.config.password.is_none(),
            name: Vec::new(),
            library: Vec::new(),
            library_version: Vec::new(),
            no_evict: false,
            multi: None,
            watches: Vec::new(),
            since: Instant::now(),
            last_command: "NULL",
        }
    }

    /// RESET: as new, but connected.
    pub fn reset(&mut self, shared: &Shared) {
        let since = self.since;
        *self = Self::new(shared, self.id, self.peer, self.local);
        self.since = since;
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
