//! The flags of `nicol serve`.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use clap::Args;
use nicol_core::units::Bytes;
use nicol_resp::{Address, ClientCertificates, Policy, SAMPLES_MAX};
use nicol_rt::LogDevice;
use serde::Deserialize;

use super::LogArgs;
use crate::limits;

/// How long a transaction of `nicol serve` may take, in milliseconds: up to an hour.
pub const TRANSACTION_MS: RangeInclusive<u64> = 1..=3_600_000;
/// Keys that may be looked at for each that is evicted.
pub const EVICTION_SAMPLES: RangeInclusive<i64> = 1..=SAMPLES_MAX as i64;
/// Clients that a server may take at a time.
pub const MAX_CLIENTS: RangeInclusive<u64> = 1..=1 << 20;
/// Bytes of logs that a server may let grow before it shortens them.
pub const LOG_BYTES: RangeInclusive<u64> = 65_536..=1 << 50;

/// Whether clients show certificates, in Redis' words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum AuthClients {
    Yes,
    Optional,
    No,
}

impl From<AuthClients> for ClientCertificates {
    fn from(asked: AuthClients) -> Self {
        match asked {
            AuthClients::Yes => Self::Required,
            AuthClients::Optional => Self::Optional,
            AuthClients::No => Self::Ignored,
        }
    }
}

/// `nicol serve`.
#[derive(Debug, Default, Args)]
#[command(allow_negative_numbers = true)]
#[command(after_help = "Then, from another terminal:\n  redis-cli -p 6380 set greeting hello\n  \
    redis-benchmark -p 6380 -t set,get,incr,mset -P 32\n\nThe data is in memory: it is lost \
    when the process ends. With --log-device file:DIR every\nwrite is in a synced file of each \
    backup before it is acknowledged, and the next start with\nthe same DIR reads everything \
    back, whatever --nodes and --replicas were. A torn end of a\nlog is cut. Damage in a log is \
    repaired from the logs of other replicas, which is reported;\nif that is impossible, the \
    start ends with exit code 3 and the names and places. A start also\nends so if DIR has other \
    files, or another server uses it; a full disk refuses writes. While it serves,\nthe logs are merged into \
    saved tables once they are long (--log-bytes).\n\nThe models renf, event \
    and scope of MINOS acknowledge a write before it is in a file: a\ncrash may take it.\n\nThe file \
    of --config has the names of these flags, with underscores: listen = \"127.0.0.1:6379\",\n\
    max_memory = \"4gb\", nodes = 3.\n\nCommands, limits, errors and what differs from Redis: \
    docs/use/redis.md.")]
pub struct ServeArgs {
    /// Configuration file (TOML, see below); flags and NICOL_* variables take precedence.
    #[arg(long, value_name = "FILE", env = "NICOL_CONFIG")]
    pub config: Option<PathBuf>,
    /// The system. For GET, SET, DEL and EXISTS of one key also prism-kv and those of MINOS, such
    /// as minos-b:synch; `nicol systems show NAME` says of each whether it serves [default: xenic].
    #[arg(long, value_name = "SYSTEM", env = "NICOL_SYSTEM")]
    pub system: Option<String>,
    /// Nodes of the embedded cluster [default: 3, or 1 of a system that keeps one copy].
    #[arg(long, value_name = "N", env = "NICOL_NODES")]
    pub nodes: Option<usize>,
    /// Copies of each shard, the primary included [default: 3, or the number of nodes if lower, or
    /// 1 of a system that keeps one copy].
    #[arg(long, value_name = "N", env = "NICOL_REPLICAS")]
    pub replicas: Option<usize>,
    /// Where to listen: ADDRESS:PORT or HOST:PORT, or unix:PATH for a socket in the file system, to
    /// which only its owner may connect. Non-loopback addresses require a password or clients'
    /// certificates. A socket that a killed server has left is replaced [default: 127.0.0.1:6380].
    #[arg(long, value_name = "ADDR", env = "NICOL_LISTEN")]
    pub listen: Option<Address>,
    /// Password that clients must give with AUTH. Other users of the machine can see flags: rather
    /// give it in NICOL_PASSWORD or in the file of --config.
    #[arg(
        long,
        alias = "requirepass",
        value_name = "PASSWORD",
        env = "NICOL_PASSWORD",
        hide_env_values = true
    )]
    pub password: Option<String>,
    /// File of users, as ACL SAVE writes it: a line "user NAME RULES" each. It must exist, and may
    /// be empty.
    #[arg(long, alias = "aclfile", value_name = "FILE", env = "NICOL_ACL_FILE")]
    pub acl_file: Option<PathBuf>,
    /// The server's certificate in PEM, then the intermediate ones: clients at an address and a
    /// port must speak TLS. Needs --tls-key-file.
    #[arg(long, value_name = "FILE", env = "NICOL_TLS_CERT_FILE")]
    pub tls_cert_file: Option<PathBuf>,
    /// The private key of the certificate, in PEM.
    #[arg(long, value_name = "FILE", env = "NICOL_TLS_KEY_FILE")]
    pub tls_key_file: Option<PathBuf>,
    /// The authorities that sign clients' certificates, in PEM: a client must show one.
    #[arg(long, value_name = "FILE", env = "NICOL_TLS_CA_CERT_FILE")]
    pub tls_ca_cert_file: Option<PathBuf>,
    /// Whether clients must show a certificate [default: yes with --tls-ca-cert-file]
    #[arg(long, value_name = "yes|optional|no", env = "NICOL_TLS_AUTH_CLIENTS")]
    pub tls_auth_clients: Option<AuthClients>,
    /// Records that each shard is expected to hold [default: 1000000]. Tables grow beyond it; only
    /// those of prism-kv do not, which answers -OOM then.
    #[arg(long, value_name = "N", env = "NICOL_RECORDS")]
    pub records: Option<u64>,
    /// Memory for the data of all nodes: bytes, or a number with kb, mb or gb. Once it is used up,
    /// keys are evicted by --max-memory-policy, or commands that need more are answered with -OOM
    /// [default: three quarters of what is free].
    #[arg(long, alias = "maxmemory", value_name = "SIZE", env = "NICOL_MAX_MEMORY")]
    #[arg(value_parser = limits::size)]
    pub max_memory: Option<Bytes>,
    /// Which keys are evicted once the memory is used up: allkeys-lru, allkeys-lfu, allkeys-random,
    /// volatile-lru, volatile-lfu, volatile-random, volatile-ttl, or noeviction [default:
    /// noeviction].
    #[arg(long, alias = "maxmemory-policy", value_name = "POLICY")]
    #[arg(env = "NICOL_MAX_MEMORY_POLICY")]
    pub max_memory_policy: Option<Policy>,
    /// Keys that are looked at for each that is evicted [default: 5].
    #[arg(long, alias = "maxmemory-samples", value_name = "N", env = "NICOL_MAX_MEMORY_SAMPLES")]
    #[arg(value_parser = clap::value_parser!(u32).range(EVICTION_SAMPLES))]
    pub max_memory_samples: Option<u32>,
    /// Memory for the buffers of all clients, beside --max-memory: beyond it the clients with the
    /// largest are closed [default: an eighth of --max-memory].
    #[arg(long, alias = "maxmemory-clients", value_name = "SIZE")]
    #[arg(env = "NICOL_MAX_CLIENT_MEMORY", value_parser = limits::size)]
    pub max_client_memory: Option<Bytes>,
    /// Clients at a time; the next one is told so and closed [default: 10000].
    #[arg(long, alias = "maxclients", value_name = "N", env = "NICOL_MAX_CLIENTS")]
    #[arg(value_parser = clap::value_parser!(u64).range(MAX_CLIENTS))]
    pub max_clients: Option<u64>,
    /// Milliseconds after which a transaction without an outcome is answered with -UNKNOWN: it may
    /// or may not take effect. Checked every 250 ms [default: 5000].
    #[arg(long, value_name = "MS", env = "NICOL_TRANSACTION_MS")]
    #[arg(value_parser = clap::value_parser!(u64).range(TRANSACTION_MS))]
    pub transaction_ms: Option<u64>,
    /// What makes writes durable: memory (nothing survives the process) or file:DIR (a log per
    /// node, read back at the next start) [default: memory].
    #[arg(long, value_name = "memory|file:DIR", env = "NICOL_LOG_DEVICE")]
    pub log_device: Option<LogDevice>,
    /// Bytes of all logs together from which on they are merged into saved tables. During the merge
    /// new logs are written; once they have as many bytes too, commands wait for its end. DIR needs
    /// room for twice these bytes, a few MB more, and four copies of the records [default:
    /// 1073741824].
    #[arg(long, value_name = "BYTES", env = "NICOL_LOG_BYTES")]
    #[arg(value_parser = clap::value_parser!(u64).range(LOG_BYTES))]
    pub log_bytes: Option<u64>,
    /// Engine threads [default: half of the machine's cores].
    #[arg(long, value_name = "N", env = "NICOL_THREADS")]
    pub threads: Option<usize>,
    /// What is logged.
    #[command(flatten)]
    pub log: LogArgs,
}
