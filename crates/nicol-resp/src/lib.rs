//! The RESP front of `nicol serve`: Redis clients in, Nicol transactions out.
//!
//! A front (`front`), on a thread of its own or on that of engines, reads requests from
//! non-blocking sockets, groups the data commands that a connection has pipelined into one
//! transaction ([`plan`], `translate`), submits it to a [`Backend`] and writes the replies in
//! order. The commands themselves run inside the engines, in one registered procedure
//! (`procedure`), over records that hold RESP keys by hash (`record`). A MULTI/EXEC is one
//! transaction; the keys of a WATCH are in its read set with the versions seen, so that an EXEC
//! commits only if none of them has changed.
//!
//! DEVIATIONS from Redis 7.0 (`docs/use/redis.md` tells users):
//! - a store of single operations ([`ServerConfig::single`]) takes GET, plain SET, and DEL and
//!   EXISTS of one key, and refuses every other data command and MULTI in words;
//! - one database, and strings only; SCAN, KEYS, RANDOMKEY, FLUSHDB and FLUSHALL are refused, since
//!   the store does not list its keys; DBSIZE counts keys, those that expired and are not freed yet
//!   too, and may miss those of a transaction whose outcome was unknown;
//! - OBJECT ENCODING says how Redis would hold a value that was SET, whatever has been done to it
//!   since, and OBJECT REFCOUNT is 1; OBJECT IDLETIME and FREQ are refused, since no time of access
//!   is kept;
//! - INCRBYFLOAT counts in exact decimals of 17 places up to 10^20;
//! - in a MULTI, commands without records (PING, TIME, CLIENT ...) run when they are queued, and
//!   AUTH, HELLO and CLIENT KILL are refused;
//! - an EXEC whose watched key was absent may also be refused because a neighbour of it was
//!   deleted, and one whose watched key had expired before the WATCH because its memory was freed;
//! - a key that a group of commands both creates and deletes, or that is set with a time that is
//!   over, was never there for another client's WATCH to see; commands of several clients form a
//!   group where they wait for the same key (`joined`);
//! - a transaction's time is that of its submission: of two that run at the same time, the one that
//!   commits later may still see a key that the other found expired.
#![forbid(unsafe_code)]

mod address;
mod admin;
mod backend;
mod client_commands;
mod clients;
mod commands;
mod completions;
mod config;
mod connection;
mod deadlines;
pub mod encode;
mod expiry;
mod front;
mod gate;
mod in_flight;
mod inline;
mod joined;
mod local;
mod number;
mod object;
pub mod parse;
pub mod plan;
mod procedure;
mod reaper;
mod record;
mod roll;
mod server;
mod session;
mod shared;
mod single;
mod socket;
mod strings;
mod submit;
mod translate;

pub use address::{Address, AddressError};
pub use backend::{Backend, Done, Request, Response};
pub use config::{KEY_BYTES_MAX, Limits, ServerConfig, StartError, VALUE_BYTES_MAX};
pub use plan::PROCEDURE;
pub use record::{TABLE, first_deadline, row};
pub use server::{FRONTS_MAX, Server, ServerHandle};
pub use shared::{Counters, InfoLines, Persistence, ServerInfo};

/// The procedures that the engines of a RESP store must have registered.
pub fn procedures() -> nicol_core::txn::Procedures {
    nicol_core::txn::Procedures::new(&[procedure::execute])
}
