//! CONFIG.

use crate::commands::errors::{arity_error, unknown_subcommand};
use crate::commands::glob::matches;
use crate::connection::parse::Command;
use crate::connection::session::Session;
use crate::shared::{Persistence, Shared};
use crate::transactions::record::DATABASES;

/// CONFIG.
pub fn answer(session: &Session, shared: &Shared, command: &Command<'_>, out: &mut Vec<u8>) {
    let mut reply = session.reply(out);
    match command.arg(1).to_ascii_lowercase().as_slice() {
        b"get" if command.len() > 2 => {
            let values = settings(shared);
            let chosen: Vec<_> = values
                .iter()
                .filter(|(name, _)| {
                    command.args(2).any(|p| matches(&p.to_ascii_lowercase(), name.as_bytes()))
                })
                .collect();
            reply.map(chosen.len());
            for (name, value) in chosen {
                reply.bulk(name.as_bytes());
                reply.bulk(value.as_bytes());
            }
        }
        b"get" => reply.error(&arity_error("config|get")),
        b"set" => reply.error(b"ERR CONFIG SET is not supported: settings are given at the start"),
        b"help" => {
            let lines =
                ["CONFIG <subcommand> [<arg> ...]. Subcommands are:", "GET <pattern> ...", "HELP"];
            reply.lines(&lines);
        }
        _ => reply.error(&unknown_subcommand(command)),
    }
}

fn settings(shared: &Shared) -> Vec<(&'static str, String)> {
    let limits = &shared.config.limits;
    let kept = shared.info.persistence.as_ref();
    vec![
        ("appendfsync", fsync(kept).into()),
        ("appendonly", if kept.is_some() { "yes" } else { "no" }.into()),
        ("bind", shared.address.ip().map_or(String::new(), |ip| ip.to_string())),
        ("databases", DATABASES.to_string()),
        ("dir", kept.map_or(String::new(), |kept| kept.dir.clone())),
        ("maxclients", limits.clients.to_string()),
        ("maxmemory", shared.backend.memory().limit.map_or(0, |limit| limit.0).to_string()),
        ("maxmemory-clients", client_bytes(limits.client_bytes)),
        ("maxmemory-policy", "noeviction".into()),
        ("port", shared.address.port().to_string()),
        ("proto-max-bulk-len", limits.value_bytes.to_string()),
        ("save", String::new()),
        ("tcp-keepalive", limits.keepalive.as_secs().to_string()),
        ("nicol-transaction-ms", limits.transaction_time.as_millis().to_string()),
        ("timeout", limits.idle.map_or(0, |idle| idle.as_secs()).to_string()),
        ("unixsocket", shared.address.path_text()),
    ]
}

/// A limit in bytes; 0: there is none, as Redis says it.
fn client_bytes(limit: usize) -> String {
    if limit == usize::MAX { "0".into() } else { limit.to_string() }
}

/// When writes are durable, in Redis' word that comes closest.
fn fsync(kept: Option<&Persistence>) -> &'static str {
    match kept {
        Some(kept) if kept.synced => "always",
        // Soon, but a crash may come first.
        Some(_) => "everysec",
        None => "no",
    }
}
