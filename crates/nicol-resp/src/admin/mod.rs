//! Commands that need no record: about the connection, its MULTI, and the server.

mod acl;
mod client;
mod command;
mod config;
mod info;
mod login;
mod pubsub;
mod script;
mod server;
mod slowlog;
mod tracking;

pub use acl::note_refusal;

use std::time::{SystemTime, UNIX_EPOCH};

use crate::commands::errors::arity_error;
use crate::commands::number::{NOT_AN_INTEGER, database, parse_i64};
use crate::commands::spec::Admin;
use crate::connection::encode::Reply;
use crate::connection::parse::Command;
use crate::connection::session::{After, Session};
use crate::shared::Shared;
use crate::walks;

/// Answers `command` into `out`.
pub fn answer(
    admin: Admin,
    session: &mut Session,
    shared: &Shared,
    command: &Command<'_>,
    out: &mut Vec<u8>,
) -> After {
    let mut reply = session.reply(out);
    match admin {
        Admin::Acl => return acl::answer(session, shared, command, out),
        Admin::Auth => return login::auth(session, shared, command, out),
        Admin::Client => return client::answer(session, shared, command, out),
        Admin::Cluster => reply.error(b"ERR This instance has cluster support disabled"),
        Admin::Command => command::answer(session, command, out),
        Admin::Config => config::answer(session, shared, command, out),
        Admin::DbSize => reply.integer(shared.keyspace.keys(session.database) as i64),
        Admin::Discard => discard(session, out),
        Admin::Echo => reply.bulk(command.arg(1)),
        Admin::Exec => return exec(session, shared, out),
        Admin::Hello => return login::hello(session, shared, command, out),
        Admin::Info => info::answer(session, shared, command, out),
        Admin::Multi if session.multi.is_some() => {
            reply.error(b"ERR MULTI calls can not be nested");
        }
        Admin::Multi => {
            reply.status("OK");
            session.begin_multi();
        }
        Admin::Monitor => {
            reply.status("OK");
            session.monitor(shared);
        }
        Admin::FlushAll | Admin::FlushDb | Admin::Keys | Admin::RandomKey | Admin::Scan => {
            return begin_walk(admin, session, shared, command, out);
        }
        Admin::Server(whole) => return server::answer(whole, session, shared, command, out),
        Admin::Latency => slowlog::latency(session, shared, command, out),
        Admin::Script => script::answer(session, shared, command, out),
        Admin::SlowLog => slowlog::slowlog(session, shared, command, out),
        Admin::Ping => ping(session, command, out),
        Admin::Publish { sharded } => reply.integer(match sharded {
            true => shared.pubsub.publish_sharded(command.arg(1), command.arg(2)),
            false => shared.pubsub.publish(command.arg(1), command.arg(2)),
        } as i64),
        Admin::PubSub => pubsub::tell(session, shared, command, out),
        Admin::Subscribe(scope) => pubsub::subscribe(session, shared, scope, command, out),
        Admin::Unsubscribe(scope) => pubsub::unsubscribe(session, shared, scope, command, out),
        Admin::Quit => {
            reply.status("OK");
            session.quit(shared);
            return After::Close;
        }
        Admin::Reset => {
            session.reset(shared);
            session.reply(out).status("RESET");
        }
        Admin::Select => select(session, command, out),
        Admin::Time => time(&mut reply),
        Admin::Unwatch => {
            reply.status("OK");
            session.watches.clear();
        }
        Admin::Wait => wait(&mut reply, shared, command),
        Admin::Watch if session.multi.is_some() => {
            reply.error(b"ERR WATCH inside MULTI is not allowed");
        }
        Admin::Watch => return After::Watch,
    }
    After::Go
}

fn begin_walk(
    admin: Admin,
    session: &mut Session,
    shared: &Shared,
    command: &Command<'_>,
    out: &mut Vec<u8>,
) -> After {
    match walks::walk(admin, session, shared, command) {
        Ok(walk) => {
            session.walk = Some(Box::new(walk));
            After::Walk
        }
        Err(text) => {
            session.reply(out).error(text);
            After::Go
        }
    }
}

/// A client that only listens takes no reply but in the form of a message.
fn ping(session: &Session, command: &Command<'_>, out: &mut Vec<u8>) {
    let mut reply = session.reply(out);
    match command.len() {
        1 | 2 if session.only_listens() => {
            reply.array(2);
            reply.bulk(b"pong");
            reply.bulk(command.arg(1));
        }
        1 => reply.status("PONG"),
        2 => reply.bulk(command.arg(1)),
        _ => reply.error(&arity_error("ping")),
    }
}

fn select(session: &mut Session, command: &Command<'_>, out: &mut Vec<u8>) {
    match database(command.arg(1)) {
        Ok(database) => {
            session.database = database;
            session.reply(out).status("OK");
        }
        Err(text) => session.reply(out).error(text),
    }
}

fn time(reply: &mut Reply<'_>) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    reply.array(2);
    reply.bulk(now.as_secs().to_string().as_bytes());
    reply.bulk(now.subsec_micros().to_string().as_bytes());
}

/// A commit has been replicated at every backup before it is answered.
fn wait(reply: &mut Reply<'_>, shared: &Shared, command: &Command<'_>) {
    match (parse_i64(command.arg(1)), parse_i64(command.arg(2))) {
        (Some(_), Some(timeout)) if timeout >= 0 => {
            reply.integer(shared.info.replicas as i64 - 1);
        }
        (Some(_), Some(_)) => reply.error(b"ERR timeout is negative"),
        (Some(_), None) => reply.error(b"ERR timeout is not an integer or out of range"),
        (None, _) => reply.error(NOT_AN_INTEGER),
    }
}

fn discard(session: &mut Session, out: &mut Vec<u8>) {
    match session.discard() {
        true => session.reply(out).status("OK"),
        false => session.reply(out).error(b"ERR DISCARD without MULTI"),
    }
}

fn exec(session: &mut Session, shared: &Shared, out: &mut Vec<u8>) -> After {
    match &session.multi {
        None => session.reply(out).error(b"ERR EXEC without MULTI"),
        Some(multi) if multi.failed => {
            session.discard();
            let text = b"EXECABORT Transaction discarded because of previous errors.";
            session.reply(out).error(text);
        }
        Some(multi) => match shared.refusal(|| multi.may_grow, || multi.plan.writes()) {
            None => return After::Exec,
            Some(why) => {
                session.discard();
                let text = b"EXECABORT Transaction discarded because of: ";
                session.reply(out).error(&[&text[..], why].concat());
            }
        },
    }
    After::Go
}
