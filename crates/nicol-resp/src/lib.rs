//! The RESP front of `nicol serve`: Redis clients in, Nicol transactions out.
//!
//! The way of a SET, from the socket to the store and back:
//!
//! 1. `connection/front.rs`, the event loop of one thread, reads the socket into the connection's
//!    buffer, and `connection/parse.rs` finds the request there, once.
//! 2. `commands/`, the table, names what the request is. The plan function of its line (`plan_set`
//!    in `commands/string.rs`) reads the options and adds the command to the connection's plan
//!    ([`plan`]), beside others that were pipelined with it.
//! 3. `transactions/`, whose type `Transactions` owns a plan from here to its end, submits it to
//!    the [`Backend`] once no other of this front holds its records (`lock_table.rs`) and the store
//!    has room (`in_flight.rs`).
//! 4. An engine runs `transactions/procedure.rs`, which calls the run function of the line (`set`
//!    in `commands/string.rs`) over the keys of the transaction (`work.rs`), in records by hash
//!    (`record.rs`), and writes the reply.
//! 5. The outcome returns through `connection/mailbox.rs`. `Transactions` tries again, splits or
//!    ends the transaction, and the front writes the replies in order.
//!
//! What needs no record (PING, CLIENT, INFO ...) is answered in step 2 by `admin/`, and what goes
//! over all keys (SCAN, FLUSHDB ...) is many transactions, which `walks/` makes. A MULTI/EXEC is
//! one; the keys of a WATCH are in its read set with the versions seen, so that an EXEC commits
//! only if none of them has changed.
//!
//! DEVIATIONS from Redis 7.0 (`docs/use/redis.md` tells users):
//! - a store of single operations ([`ServerConfig::single`]) takes GET, plain SET, and DEL and
//!   EXISTS of one key, and refuses every other data command and MULTI in words;
//! - a hash, list, set or sorted set stands in one record and has a value's limit;
//! - KEYS, RANDOMKEY, FLUSHDB and FLUSHALL are many transactions (`walks/`), and refused in a
//!   MULTI, as is SCAN;
//! - DBSIZE counts keys, those that expired and are not freed yet too, and may miss those of a
//!   transaction whose outcome was unknown;
//! - OBJECT ENCODING says how Redis would hold a value that was SET, whatever has been done to it
//!   since, and OBJECT REFCOUNT is 1; OBJECT IDLETIME and FREQ are answered as of when the
//!   command was read, and not to scripts;
//! - CLIENT TRACKING may tell of more than has changed (`tracking.rs`);
//! - INCRBYFLOAT refuses hexadecimal numbers;
//! - ACL LIST, ACL GETUSER and the file of users show the rules of commands as they were given, as
//!   Redis 7.2 does;
//! - in a MULTI, commands without records (PING, TIME, CLIENT ...) run when they are queued, and
//!   AUTH, HELLO with AUTH, CLIENT KILL, CLIENT REPLY and SUBSCRIBE are refused;
//! - an EXEC whose watched key was absent may also be refused because a neighbour of it was
//!   deleted, and one whose watched key had expired before the WATCH because its memory was freed;
//! - a key that a group of commands both creates and deletes, or that is set with a time that is
//!   over, was never there for another client's WATCH to see; commands of several clients form a
//!   group where they wait for the same key (`transactions/joined.rs`);
//! - the times of commandstats, SLOWLOG and LATENCY go from submission to answer: commands of a
//!   group are answered together; SLOWLOG shows options as they were planned, not as they were
//!   sent;
//! - a transaction's time is that of its submission: of two that run at the same time, the one that
//!   commits later may still see a key that the other found expired.
#![forbid(unsafe_code)]

mod acl;
mod admin;
mod clock;
mod commands;
mod config;
mod connection;
mod events;
mod eviction;
mod logins;
mod memory_limit;
mod monitors;
mod notices;
mod pause;
mod pubsub;
mod pushes;
mod scripts;
mod server;
mod shared;
mod slow_log;
mod stats;
mod tracking;
mod transactions;
mod wait_group;
mod walks;

pub use config::{KEY_BYTES_MAX, Limits, OutputLimit, ServerConfig, StartError, VALUE_BYTES_MAX};
pub use connection::address::{Address, AddressError};
pub use connection::tls::{ClientCertificates, Tls, TlsError, TlsFiles};
pub use connection::{encode, parse};
pub use eviction::policy::{Policy, UnknownPolicy};
pub use eviction::{SAMPLES, SAMPLES_MAX};
pub use nicol_core::serving::{Backend, Done, Request, Response};
pub use server::{FRONTS_MAX, Server, ServerHandle};
pub use shared::{Counters, InfoLines, Persistence, ServerInfo};
pub use transactions::plan;
pub use transactions::plan::PROCEDURE;
pub use transactions::record::{DATABASES, Database, first_deadline, key_count, row};

/// The procedures that the engines of a RESP store must have registered.
pub fn procedures() -> nicol_core::txn::Procedures {
    nicol_core::txn::Procedures::new(&[transactions::procedure::execute])
}

/// The operation of the command `name` in a plan, and whether it writes its keys.
pub fn operation(name: &str) -> Option<(plan::Op, bool)> {
    let spec = commands::lookup(name.as_bytes())?;
    Some((plan::Op::command(spec.number), spec.writes()))
}
