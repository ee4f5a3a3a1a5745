//! What a RESP server may be told, and its limits.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use nicol_core::ids::Key;
use nicol_core::txn::{KEYS_MAX, TXN_BYTES_MAX, VALUE_MAX};

use crate::connection::address::Address;
use crate::connection::parse::RequestLimits;
use crate::connection::tls::Tls;
use crate::eviction::SAMPLES;
use crate::eviction::policy::Policy;
use crate::transactions::record::{DATABASES, HEADER_LEN};

/// The version of Redis whose commands and texts these are.
pub const COMPATIBLE_VERSION: &str = "7.0.15";

/// Bytes of the longest RESP key that the record layout and the limits allow.
pub const KEY_BYTES_MAX: usize = 512;
/// Bytes of the longest string: 64 MB, less than a record, which holds the key as well.
pub const VALUE_BYTES_MAX: usize = 64 << 20;
/// Bytes of all elements of a collection that stands in one record: each change writes it anew.
pub const COLLECTION_BYTES_MAX: usize = 1_000_000;
/// Bytes from which on a value is large. Large ones do not count against the bytes of a transaction
/// but against [`LARGE_BYTES_MAX`].
pub const LARGE_BYTES: usize = 1_000_000;
/// Bytes of all large values that a transaction is given, and of those that it writes and answers.
pub const LARGE_BYTES_MAX: usize = 3 * VALUE_BYTES_MAX;
const _: () = assert!(VALUE_BYTES_MAX + KEY_BYTES_MAX + HEADER_LEN <= VALUE_MAX);
/// Arguments that a request may have; their number travels in 16 bits.
pub const ARGUMENTS_MAX: usize = u16::MAX as usize;
/// Bytes of a request; positions in it travel in 32 bits.
pub const REQUEST_BYTES_MAX: usize = 512 << 20;

/// What a client may leave unread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutputLimit {
    /// Bytes beyond which it is closed at once.
    pub hard_bytes: usize,
    /// Bytes beyond which it is closed once it has been above them for `soft_time`.
    pub soft_bytes: usize,
    pub soft_time: Duration,
}

/// Every limit of the front.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections at a time; one more is told so and closed.
    pub clients: usize,
    pub key_bytes: usize,
    pub value_bytes: usize,
    /// Bytes of a request, and so of an argument.
    pub request_bytes: usize,
    /// Arguments of a request.
    pub arguments: usize,
    /// Bytes of an inline request.
    pub inline_bytes: usize,
    /// Bytes of a request before AUTH, and of unread replies.
    pub login_request_bytes: usize,
    /// Arguments of a request before AUTH.
    pub login_arguments: usize,
    /// Bytes of an argument before AUTH.
    pub login_bulk_bytes: usize,
    /// Time to log in.
    pub login_time: Duration,
    /// Unread replies at which a client is closed at once.
    pub output_hard_bytes: usize,
    /// Unread replies beyond which a client's further commands wait until it has read some.
    pub output_soft_bytes: usize,
    /// What a client that has subscribed to something may leave unread.
    pub pubsub: OutputLimit,
    /// Bytes of all clients' buffers: beyond it those with the largest are closed.
    pub client_bytes: usize,
    /// How long a client may stay above [`Limits::output_soft_bytes`] without reading a byte.
    pub output_soft_time: Duration,
    /// Silence after which the kernel probes whether the client still lives.
    pub keepalive: Duration,
    /// Silence after which a client is closed; `None`: never.
    pub idle: Option<Duration>,
    /// Keys of one transaction, watched keys included.
    pub transaction_keys: usize,
    /// Bytes of the arguments of one transaction.
    pub transaction_bytes: usize,
    /// Pipelined commands that become one transaction.
    pub group_commands: usize,
    pub group_keys: usize,
    /// Bytes of the arguments of such a group.
    pub group_bytes: usize,
    /// Attempts of a transaction before the client is told to try again.
    pub attempts: u32,
    /// Time of a transaction, from when the store got it: once it is over no further attempt is
    /// made, and who still waits for one is told that its outcome is unknown. Looked at every
    /// 250 ms.
    pub transaction_time: Duration,
    /// Transactions of one front that the store has at a time; further ones wait in the
    /// front.
    pub in_flight: usize,
    /// Bytes of their arguments.
    pub in_flight_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            clients: 10_000,
            key_bytes: KEY_BYTES_MAX,
            value_bytes: VALUE_BYTES_MAX,
            request_bytes: 72 << 20,
            arguments: ARGUMENTS_MAX,
            inline_bytes: 64 << 10,
            login_request_bytes: 64 << 10,
            login_arguments: 10,
            login_bulk_bytes: 16 << 10,
            login_time: Duration::from_secs(10),
            output_hard_bytes: 80 << 20,
            output_soft_bytes: 1 << 20,
            pubsub: OutputLimit {
                hard_bytes: 32 << 20,
                soft_bytes: 8 << 20,
                soft_time: Duration::from_secs(60),
            },
            client_bytes: usize::MAX,
            output_soft_time: Duration::from_secs(10),
            keepalive: Duration::from_secs(300),
            idle: None,
            transaction_keys: KEYS_MAX,
            transaction_bytes: TXN_BYTES_MAX,
            group_commands: 64,
            group_keys: 256,
            group_bytes: 128 << 10,
            attempts: 64,
            transaction_time: Duration::from_secs(5),
            in_flight: 512,
            in_flight_bytes: 16 << 20,
        }
    }
}

impl Limits {
    /// The limits of a request from a client that has or has not authenticated.
    pub fn request(&self, authenticated: bool) -> RequestLimits {
        match authenticated {
            true => RequestLimits {
                request_bytes: self.request_bytes,
                arguments: self.arguments,
                bulk_bytes: self.request_bytes,
                inline_bytes: self.inline_bytes,
                authenticated,
            },
            false => RequestLimits {
                request_bytes: self.login_request_bytes,
                arguments: self.login_arguments,
                bulk_bytes: self.login_bulk_bytes,
                inline_bytes: self.inline_bytes.min(self.login_request_bytes),
                authenticated,
            },
        }
    }

    /// The first limit that is out of the range that layouts and the core allow.
    pub fn check(&self) -> Result<(), StartError> {
        let bounds = [
            ("clients", self.clients, 1, 1 << 20),
            ("key_bytes", self.key_bytes, 1, KEY_BYTES_MAX),
            ("value_bytes", self.value_bytes, 1, VALUE_BYTES_MAX),
            ("request_bytes", self.request_bytes, 64, REQUEST_BYTES_MAX),
            ("arguments", self.arguments, 1, ARGUMENTS_MAX),
            ("inline_bytes", self.inline_bytes, 1, REQUEST_BYTES_MAX),
            ("login_request_bytes", self.login_request_bytes, 64, REQUEST_BYTES_MAX),
            ("login_arguments", self.login_arguments, 1, ARGUMENTS_MAX),
            ("transaction_keys", self.transaction_keys, 1, KEYS_MAX),
            ("transaction_bytes", self.transaction_bytes, 1, TXN_BYTES_MAX),
            ("group_commands", self.group_commands, 1, KEYS_MAX),
            ("group_keys", self.group_keys, 1, self.transaction_keys),
            ("group_bytes", self.group_bytes, 1, self.transaction_bytes),
            ("attempts", self.attempts as usize, 1, 1 << 20),
            ("in_flight", self.in_flight, 1, 1 << 20),
        ];
        for (name, value, min, max) in bounds {
            if value < min || value > max {
                return Err(StartError::Limit { name, value, min, max });
            }
        }
        Ok(())
    }
}

/// A RESP server.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Where to listen; port 0 takes a free one. A socket in the file system is its owner's only.
    pub listen: Address,
    /// The password that AUTH asks for. Needed to listen anywhere but on the loopback and in the
    /// file system.
    pub password: Option<String>,
    /// Where users are kept, as ACL SAVE writes them.
    pub acl_file: Option<PathBuf>,
    /// What clients at an address and a port must speak, if it is TLS. In the file system they
    /// speak without.
    pub tls: Option<Tls>,
    /// Fronts, 1 to 64. One serves several 100,000 pipelined operations a second.
    pub threads: usize,
    /// The seed of the hash from RESP keys to rows: the same on every node, forever.
    pub hash_seed: u64,
    /// Does the store run single operations only, each on one record? Its front takes no others,
    /// and makes no groups of commands over several keys.
    pub single: bool,
    pub limits: Limits,
    /// What is evicted once the memory of the store is used up. The store must list its keys.
    pub eviction: Policy,
    /// Keys that are looked at for each that is evicted, 1 to 64.
    pub eviction_samples: u32,
    /// Keys that the store holds, by database.
    pub keys: [u64; DATABASES],
    /// Rows of the store that hold a key which expires, and when the first one does, in
    /// milliseconds of Unix time.
    pub expiring: Vec<(i64, Key)>,
    /// How long a stopping server waits for transactions in progress and unread replies.
    pub drain: Duration,
}

impl ServerConfig {
    /// The defaults, on `listen`.
    pub fn new(listen: Address) -> Self {
        Self {
            listen,
            password: None,
            acl_file: None,
            tls: None,
            threads: 1,
            hash_seed: 0,
            single: false,
            limits: Limits::default(),
            eviction: Policy::default(),
            eviction_samples: SAMPLES,
            keys: [0; DATABASES],
            expiring: Vec::new(),
            drain: Duration::from_secs(5),
        }
    }
}

/// Why a file of users was not read or written.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    #[error("{}:{line}: {why}", file.display())]
    Line { file: PathBuf, line: usize, why: String },
    #[error("{}: {reason}", file.display())]
    Io { file: PathBuf, reason: io::Error },
}

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A password is missing.
    #[error(
        "{0} is not the loopback: give a password, or TLS that asks clients for certificates, or \
             listen on 127.0.0.1 or unix:PATH"
    )]
    Unprotected(Address),
    /// A password that protects nothing, or that no client could give.
    #[error("the password has {len} bytes: give 1 to {max}, or no password at all")]
    Password {
        /// Its bytes.
        len: usize,
        /// The most: what a client may send before it has logged in.
        max: usize,
    },
    /// The file of users is not there, or wrong.
    #[error("{0}")]
    Acl(FileError),
    /// Two places say what the default user's password is.
    #[error(
        "{} gives the user 'default' other passwords: remove its line there, or give no password \
             elsewhere",
        file.display()
    )]
    AclPassword { file: PathBuf },
    /// The number of fronts.
    #[error("{0} fronts: give 1 to 64")]
    Threads(usize),
    /// A policy of eviction over a store that does not list its keys.
    #[error("{0} needs a store that lists its keys, and this one does not: give noeviction")]
    Eviction(Policy),
    /// A limit out of range.
    #[error("limit {name} = {value}: give {min} to {max}")]
    Limit { name: &'static str, value: usize, min: usize, max: usize },
    /// The socket, or a thread.
    #[error(
        "cannot serve on {listen}: {reason}; give another {}",
        listen.path().map_or("address or port", |_| "path")
    )]
    Io {
        listen: Address,
        /// The system's message.
        reason: std::io::Error,
    },
}
