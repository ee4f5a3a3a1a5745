//! What the fronts share: configuration, backend, counters.

use std::hash::{BuildHasher, RandomState};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::acl::Users;
use crate::clock::Clock;
use crate::commands::errors::OUT_OF_MEMORY;
use crate::config::ServerConfig;
use crate::connection::address::Address;
use crate::connection::blocked::Blocked;
use crate::connection::clients::Clients;
use crate::events::Events;
use crate::eviction::Eviction;
use crate::logins::Logins;
use crate::memory_limit::MemoryLimit;
use crate::monitors::Monitors;
use crate::notices::Notices;
use crate::pause::Pause;
use crate::pubsub::PubSub;
use crate::scripts::registry::Scripts;
use crate::stats::Stats;
use crate::tracking::Tracking;
use crate::transactions::planner::Planner;
use crate::transactions::record::{DATABASES, Database};
use crate::transactions::sizes::ChosenSizes;
use nicol_core::ids::Key;
use nicol_core::serving::Backend;

/// Lines of one section of INFO: name and value.
pub type InfoLines = Vec<(String, String)>;

/// How the store behind the front outlives its process.
#[derive(Clone)]
pub struct Persistence {
    /// The folder in which it is kept.
    pub dir: String,
    /// True if every write is durable before it is acknowledged.
    pub synced: bool,
    /// What INFO tells of it.
    pub lines: Arc<dyn Fn() -> InfoLines + Send + Sync>,
}

/// What INFO, HELLO, CONFIG and WAIT say about the store behind the front.
#[derive(Clone)]
pub struct ServerInfo {
    pub version: String,
    /// Identifies this run: 40 hexadecimal digits.
    pub run_id: String,
    pub nodes: usize,
    /// Copies of each record, the primary's included.
    pub replicas: usize,
    /// Reads the bytes that the process has in memory; `None` where the system does not say.
    pub resident: fn() -> Option<u64>,
    /// Bytes that the process had in memory before it served, beside what the store counts: its
    /// code, its threads.
    pub process_bytes: u64,
    /// Reads the time that the process has had on cores: its own, and the kernel's for it.
    pub cpu: fn() -> Option<(Duration, Duration)>,
    /// Asks the program to end, for SHUTDOWN; `None`: that is not up to clients.
    pub shutdown: Option<fn()>,
    /// How it outlives the process; `None`: nothing does.
    pub persistence: Option<Persistence>,
    /// The file with its flags, which CONFIG REWRITE changes.
    pub config_file: Option<PathBuf>,
    /// Sections that the store adds to INFO: title and lines.
    #[expect(clippy::type_complexity, reason = "one callback, named by its field")]
    pub sections: Option<Arc<dyn Fn() -> Vec<(String, InfoLines)> + Send + Sync>>,
}

impl ServerInfo {
    /// One node, one replica, memory use not known.
    pub fn new(version: &str, run_id: &str) -> Self {
        let (version, run_id) = (version.to_owned(), run_id.to_owned());
        let (persistence, sections) = (None, None);
        Self {
            version,
            run_id,
            nodes: 1,
            replicas: 1,
            resident: || None,
            process_bytes: 0,
            cpu: || None,
            shutdown: None,
            persistence,
            config_file: None,
            sections,
        }
    }
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// Counters since the server started.
        #[derive(Debug, Default)]
        pub struct Counters { $($(#[$doc])* pub $name: AtomicU64,)* }

        impl Counters {
            /// Sets all to 0, but for the connections that there are.
            pub(crate) fn reset(&self) {
                $(if stringify!($name) != "connected" {
                    self.$name.store(0, Ordering::Relaxed);
                })*
            }
        }
    };
}

counters! {
    /// Connections now.
    connected,
    /// Connections accepted.
    accepted,
    /// Connections refused because there were too many.
    rejected,
    /// Commands processed.
    commands,
    /// Bytes read.
    input_bytes,
    /// Bytes written.
    output_bytes,
    /// Transactions submitted, retries not counted.
    transactions,
    /// Transactions that went along with another one, as a part of it.
    joined,
    /// Transactions submitted again after an abort.
    retries,
    /// Transactions given up after an abort.
    aborted,
    /// Transactions whose outcome is unknown.
    unknown,
    /// Transactions refused because the memory is used up.
    out_of_memory,
    /// Requests that were not well formed.
    protocol_errors,
    /// Wrong passwords.
    login_failures,
    /// Connections closed because of unread replies.
    slow_closed,
    /// Connections closed because the buffers of all take too much memory.
    evicted,
    /// Keys deleted to make room.
    evicted_keys,
    /// Keys that commands read and that were there.
    hits,
    /// Keys that commands read and that were not there.
    misses,
    /// Keys freed since their time was over.
    expired,
    /// EXECs refused because a watched key had changed.
    watch_failures,
}

/// Adds `amount` to a counter.
pub fn count(counter: &AtomicU64, amount: u64) {
    counter.fetch_add(amount, Ordering::Relaxed);
}

/// The keys of each database, counted.
#[derive(Debug)]
pub struct Keyspace {
    keys: [AtomicI64; DATABASES],
    expiring: [AtomicI64; DATABASES],
}

impl Keyspace {
    /// With the keys that there are at the start.
    fn new(keys: [u64; DATABASES]) -> Self {
        let expiring = [const { AtomicI64::new(0) }; DATABASES];
        Self { keys: keys.map(|keys| AtomicI64::new(keys as i64)), expiring }
    }

    /// Keys of `database`: those that it had at the start, and what the transactions committed
    /// since have added. A transaction is counted once it is answered; of one whose outcome is
    /// unknown it is not known what it has added.
    pub fn keys(&self, database: Database) -> u64 {
        // Below 0 only if the outcome of a transaction that inserted was unknown.
        self.keys[database.place()].load(Ordering::Relaxed).max(0) as u64
    }

    /// A transaction has inserted so many keys more than it has deleted.
    pub fn grow(&self, database: Database, keys: i64) {
        self.keys[database.place()].fetch_add(keys, Ordering::Relaxed);
    }

    /// Rows of `database` that hold a key which will expire, as far as the active expiry knows.
    pub fn expiring(&self, database: Database) -> u64 {
        self.expiring[database.place()].load(Ordering::Relaxed).max(0) as u64
    }

    /// So many rows more, all in the database of `row`, hold a key which will expire.
    pub fn expires(&self, row: Key, rows: i64) {
        if let Some(database) = Database::of(row) {
            self.expiring[database.place()].fetch_add(rows, Ordering::Relaxed);
        }
    }
}

/// The state that all fronts share.
pub struct Shared {
    pub config: ServerConfig,
    pub backend: Arc<dyn Backend>,
    /// What is behind it.
    pub info: ServerInfo,
    /// Where it listens, with the real port.
    pub address: Address,
    pub counters: Counters,
    pub clients: Clients,
    /// Set once to stop.
    pub stop: AtomicBool,
    /// Set before that where the store answers nothing any more.
    pub is_dead: AtomicBool,
    /// When the server started.
    pub started: Instant,
    pub next_connection: AtomicU64,
    /// The seed of the next command's draws.
    next_seed: AtomicU64,
    pub keyspace: Keyspace,
    pub blocked: Blocked,
    clock: Clock,
    pub logins: Logins,
    pub users: Users,
    /// The scripts that EVALSHA finds.
    pub scripts: Scripts,
    pub tracking: Tracking,
    pub pubsub: PubSub,
    pub notices: Notices,
    pub monitors: Monitors,
    pub pause: Pause,
    pub events: Events,
    pub stats: Stats,
    /// What is evicted once the memory is used up.
    pub eviction: Eviction,
    /// Bytes of all clients' buffers.
    pub client_bytes: AtomicU64,
    pub memory_limit: MemoryLimit,
    /// Copies beside the primary's without which nothing is written.
    pub min_replicas: AtomicU64,
    pub sizes: ChosenSizes,
}

impl Shared {
    /// The state of a server that starts now.
    pub fn new(
        config: ServerConfig,
        backend: Arc<dyn Backend>,
        info: ServerInfo,
        users: Users,
        address: Address,
    ) -> Self {
        let (keyspace, stats) = (Keyspace::new(config.keys), Stats::new(config.threads));
        let limit = backend.memory().limit.map(|limit| limit.0);
        let eviction = Eviction::new(config.eviction, config.eviction_samples, limit);
        Self {
            config,
            backend,
            info,
            address,
            keyspace,
            blocked: Blocked::default(),
            counters: Counters::default(),
            clients: Clients::default(),
            stop: AtomicBool::new(false),
            is_dead: AtomicBool::new(false),
            started: Instant::now(),
            next_connection: AtomicU64::new(1),
            clock: Clock::start(),
            next_seed: AtomicU64::new(RandomState::new().hash_one(0_u64)),
            logins: Logins::default(),
            users,
            scripts: Scripts::default(),
            tracking: Tracking::default(),
            pubsub: PubSub::default(),
            notices: Notices::default(),
            monitors: Monitors::default(),
            pause: Pause::default(),
            events: Events::default(),
            stats,
            eviction,
            client_bytes: AtomicU64::new(0),
            memory_limit: MemoryLimit::default(),
            min_replicas: AtomicU64::new(0),
            sizes: ChosenSizes::default(),
        }
    }

    /// Bytes in use: the store's own count, the clients' buffers and the process; where the store
    /// does not count, what the system says. `None`: nobody knows.
    pub fn used_memory(&self) -> Option<u64> {
        let store = self.backend.memory();
        let clients = self.client_bytes.load(Ordering::Relaxed);
        let all = store.used().0 + clients + self.info.process_bytes + self.eviction.bytes();
        Some(all).filter(|_| !store.parts.is_empty()).or_else(|| (self.info.resident)())
    }

    /// Bytes that may be in use; `None`: the machine's.
    pub fn max_memory(&self) -> Option<u64> {
        self.memory_limit.get().or_else(|| self.backend.memory().limit.map(|limit| limit.0))
    }

    /// Whether more memory is in use than CONFIG SET allows.
    fn exceeds_memory(&self) -> bool {
        self.memory_limit.is_exceeded(|| self.used_memory().unwrap_or(0))
    }

    /// Why commands of which one may grow, or writes, are refused now; `None`: they are not.
    ///
    /// Cost: two loads where CONFIG SET has set no such limit.
    pub fn refusal(
        &self,
        may_grow: impl FnOnce() -> bool,
        writes: impl FnOnce() -> bool,
    ) -> Option<&'static [u8]> {
        let copies = self.info.replicas.saturating_sub(1) as u64;
        if self.exceeds_memory() && may_grow() {
            Some(OUT_OF_MEMORY)
        } else if self.min_replicas.load(Ordering::Relaxed) > copies && writes() {
            Some(b"NOREPLICAS Not enough good replicas to write.")
        } else {
            None
        }
    }

    /// Milliseconds of Unix time, by which keys expire.
    pub fn unix_ms(&self) -> i64 {
        self.clock.unix_ms()
    }

    /// Adds commands of a user with these rights on keys of `database` to plans, as of now.
    pub fn planner_for<'a>(&'a self, database: Database, rights: &'a [u8]) -> Planner<'a> {
        let mut planner = self.planner(database).scripted(&self.scripts, rights);
        planner.spares = self.exceeds_memory();
        planner.is_watched = !self.monitors.is_off();
        planner
    }

    /// Adds commands on keys of `database` to plans, as of now.
    pub fn planner(&self, database: Database) -> Planner<'_> {
        Planner::new(database, self.config.hash_seed, &self.config.limits, self.clock)
            .with_accesses(&self.eviction)
            .seeded(self.next_seed.fetch_add(1, Ordering::Relaxed))
    }
}
