//! Starting and stopping the front.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use mio::{Interest, Poll, Waker};
use nicol_core::rng::{Purpose, Stream};
use nicol_core::serving::{EventLoop, Walked};

use crate::acl::Users;
use crate::config::{ServerConfig, StartError};
use crate::connection::address::Address;
use crate::connection::front::{Front, LISTENER, WAKER};
use crate::connection::mailbox::Mailbox;
use crate::connection::socket::{self, SocketFile, listen};
use crate::connection::tls::Tls;
use crate::eviction::policy::Policy;
use crate::shared::{Counters, ServerInfo, Shared};
use crate::wait_group::{WaitGroup, WaitGuard};
use nicol_core::serving::Backend;

/// Fronts that make sense on any machine.
pub const FRONTS_MAX: usize = 64;

/// A RESP server.
#[derive(Debug)]
pub struct Server;

impl Server {
    /// Would a server with this configuration start now? For those who have long work to do before
    /// they start it.
    ///
    /// # Errors
    /// As [`Server::start`], but for threads that the system refuses.
    pub fn check(config: &ServerConfig) -> Result<(), StartError> {
        check(config, &users(config)?)?;
        let refused = |reason| StartError::Io { listen: config.listen.clone(), reason };
        socket::check(&config.listen).map_err(refused)
    }

    /// Starts a server over `backend`, each front on a thread of its own.
    ///
    /// # Errors
    /// A limit out of range; an address that is not the loopback without a password; a password
    /// that is empty, or longer than AUTH takes; the socket; a thread that the system refuses.
    pub fn start(
        config: ServerConfig,
        backend: Arc<dyn Backend>,
        info: ServerInfo,
    ) -> Result<ServerHandle, StartError> {
        Self::start_with(config, backend, info, |number, front| {
            let builder = std::thread::Builder::new().name(format!("resp-{number}"));
            builder.spawn(move || front.run()).map(drop)
        })
    }

    /// Starts a server over `backend`, whose fronts run where `attach` puts them: it gets the
    /// number of each and its event loop.
    ///
    /// # Errors
    /// As [`Server::start`], and those of `attach`.
    pub fn start_on(
        config: ServerConfig,
        backend: Arc<dyn Backend>,
        info: ServerInfo,
        mut attach: impl FnMut(usize, Box<dyn EventLoop>) -> io::Result<()>,
    ) -> Result<ServerHandle, StartError> {
        Self::start_with(config, backend, info, |number, front| attach(number, Box::new(front)))
    }

    fn start_with(
        config: ServerConfig,
        backend: Arc<dyn Backend>,
        info: ServerInfo,
        place: impl FnMut(usize, Front) -> io::Result<()>,
    ) -> Result<ServerHandle, StartError> {
        let users = users(&config)?;
        check(&config, &users)?;
        let unlisted = || backend.walk(0, &mut Vec::new()) == Walked::Unable;
        if config.eviction != Policy::default() && unlisted() {
            return Err(StartError::Eviction(config.eviction));
        }
        let listen = config.listen.clone();
        start(config, backend, (info, users), place)
            .map_err(|reason| StartError::Io { listen, reason })
    }
}

fn users(config: &ServerConfig) -> Result<Users, StartError> {
    Users::new(config.password.as_deref(), config.acl_file.as_deref())
}

fn check(config: &ServerConfig, users: &Users) -> Result<(), StartError> {
    config.limits.check()?;
    if config.threads == 0 || config.threads > FRONTS_MAX {
        return Err(StartError::Threads(config.threads));
    }
    match &config.password {
        _ if users.default_user().takes_any()
            && config.listen.ip().is_some_and(|ip| !ip.is_loopback())
            && !config.tls.as_ref().is_some_and(Tls::identifies_clients) =>
        {
            Err(StartError::Unprotected(config.listen.clone()))
        }
        None => Ok(()),
        Some(password) => match (password.len(), config.limits.login_bulk_bytes) {
            (len, max) if len == 0 || len > max => Err(StartError::Password { len, max }),
            _ => Ok(()),
        },
    }
}

fn start(
    config: ServerConfig,
    backend: Arc<dyn Backend>,
    (info, users): (ServerInfo, Users),
    mut place: impl FnMut(usize, Front) -> io::Result<()>,
) -> io::Result<ServerHandle> {
    let (mut listener, file) = listen(&config.listen)?;
    let address = listener.address()?;
    let threads = config.threads;
    let shared = Arc::new(Shared::new(config, backend, info, users, address.clone()));
    let mut polls = Vec::new();
    for _ in 0..threads {
        let poll = Poll::new()?;
        let mailbox = Arc::new(Mailbox::new(Waker::new(poll.registry(), WAKER)?));
        polls.push((poll, mailbox));
    }
    polls[0].0.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
    let mailboxes: Vec<_> = polls.iter().map(|(_, mailbox)| mailbox.clone()).collect();
    let fronts = Arc::<WaitGroup>::default();
    // If a front finds no place, dropping the handle stops those that have one.
    let handle =
        ServerHandle { shared: shared.clone(), mailboxes, fronts: fronts.clone(), _file: file };
    let mut listener = Some(listener);
    for (index, (poll, mailbox)) in polls.into_iter().enumerate() {
        // Jitter only has to differ between fronts and nodes.
        let seed = u64::from(std::process::id()) << 16 | u64::from(address.port());
        let random = Stream::new(seed, Purpose::Protocol, index as u32);
        let peers = handle.mailboxes.clone();
        let (listener, guard) = (listener.take(), WaitGuard::on(&fronts));
        let mut front = Front::new(shared.clone(), mailbox, peers, listener, poll, random, guard);
        if index == 0 {
            front.expect_expiry(&shared.config.expiring);
        }
        place(index, front)?;
    }
    Ok(handle)
}

/// A running server. Dropping it stops it and waits.
pub struct ServerHandle {
    shared: Arc<Shared>,
    mailboxes: Vec<Arc<Mailbox>>,
    fronts: Arc<WaitGroup>,
    /// Removed behind the last reply.
    _file: Option<SocketFile>,
}

impl ServerHandle {
    /// Where it listens, with the real port.
    pub fn address(&self) -> &Address {
        &self.shared.address
    }

    pub fn counters(&self) -> &Counters {
        &self.shared.counters
    }

    pub fn counter(&self, which: impl Fn(&Counters) -> &AtomicU64) -> u64 {
        which(&self.shared.counters).load(Ordering::Relaxed)
    }

    /// Stops taking connections and commands; transactions in progress are answered. Returns at
    /// once, see [`ServerHandle::join`]. May be called twice, and from any thread.
    pub fn stop(&self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        for mailbox in &self.mailboxes {
            mailbox.wake();
        }
    }

    /// Stops as [`ServerHandle::stop`] does, over a store that answers nothing any more: nobody who
    /// waits for a reply gets one.
    pub fn abandon(&self) {
        self.shared.is_dead.store(true, Ordering::SeqCst);
        self.stop();
    }

    /// Waits until the server has stopped, for whatever reason.
    ///
    /// # Errors
    /// The number of fronts that panicked, if any did.
    pub fn join(self) -> Result<(), usize> {
        let panicked = self.fronts.wait();
        if panicked == 0 { Ok(()) } else { Err(panicked) }
    }
}

impl Drop for ServerHandle {
    fn drop(&mut self) {
        self.stop();
        // A panic was printed by its thread; there is nobody left to tell.
        let _ = self.fronts.wait();
    }
}
