//! PUBLISH, SUBSCRIBE and their kin.

use crate::commands::errors::{arity_error, unknown_subcommand, wrong_subcommand};
use crate::connection::parse::Command;
use crate::connection::session::Session;
use crate::pubsub::Scope;
use crate::shared::Shared;

/// SUBSCRIBE, PSUBSCRIBE or SSUBSCRIBE.
pub fn subscribe(
    session: &mut Session,
    shared: &Shared,
    scope: Scope,
    command: &Command<'_>,
    out: &mut Vec<u8>,
) {
    for name in command.args(1) {
        if session.subscriptions.set(scope, name, true) {
            shared.pubsub.subscribe(scope, name, &session.client);
        }
        confirm(session, words(scope).0, Some(name), scope, out);
    }
    session.client.listen(session.subscriptions.counts());
}

/// UNSUBSCRIBE, PUNSUBSCRIBE or SUNSUBSCRIBE: without a name, from all.
pub fn unsubscribe(
    session: &mut Session,
    shared: &Shared,
    scope: Scope,
    command: &Command<'_>,
    out: &mut Vec<u8>,
) {
    let names: Vec<Vec<u8>> = match command.len() {
        1 => session.subscriptions.of(scope).iter().cloned().collect(),
        _ => command.args(1).map(<[u8]>::to_vec).collect(),
    };
    for name in &names {
        if session.subscriptions.set(scope, name, false) {
            shared.pubsub.unsubscribe(scope, name, session.id);
        }
        confirm(session, words(scope).1, Some(name), scope, out);
    }
    if names.is_empty() {
        confirm(session, words(scope).1, None, scope, out);
    }
    session.client.listen(session.subscriptions.counts());
}

/// How subscriptions of a scope are confirmed, and the end of one.
fn words(scope: Scope) -> (&'static [u8], &'static [u8]) {
    match scope {
        Scope::Channels => (b"subscribe", b"unsubscribe"),
        Scope::Patterns => (b"psubscribe", b"punsubscribe"),
        Scope::Shards => (b"ssubscribe", b"sunsubscribe"),
    }
}

/// Tells the client of a change of its subscriptions, and how many it has now.
fn confirm(session: &Session, word: &[u8], name: Option<&[u8]>, scope: Scope, out: &mut Vec<u8>) {
    let [channels, patterns, shards] = session.subscriptions.counts();
    let mut reply = session.reply(out);
    reply.push(3);
    reply.bulk(word);
    reply.bulk_or_null(name);
    reply.integer(match scope {
        Scope::Channels | Scope::Patterns => channels + patterns,
        Scope::Shards => shards,
    } as i64);
}

const HELP: [&str; 14] = [
    "PUBSUB <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "CHANNELS [<pattern>]",
    "    Return the currently active channels matching a <pattern> (default: '*').",
    "NUMPAT",
    "    Return number of subscriptions to patterns.",
    "NUMSUB [<channel> ...]",
    "    Return the number of subscribers for the specified channels, excluding",
    "    pattern subscriptions(default: no channels).",
    "SHARDCHANNELS [<pattern>]",
    "    Return the currently active shard level channels matching a <pattern> (default: '*').",
    "SHARDNUMSUB [<shardchannel> ...]",
    "    Return the number of subscribers for the specified shard level channel(s)",
    "HELP",
    "    Prints this help.",
];

/// PUBSUB.
pub fn tell(session: &Session, shared: &Shared, command: &Command<'_>, out: &mut Vec<u8>) {
    let mut reply = session.reply(out);
    let asked = command.arg(1).to_ascii_lowercase();
    let scope = if asked.starts_with(b"shard") { Scope::Shards } else { Scope::Channels };
    match (asked.as_slice(), command.len()) {
        (b"channels" | b"shardchannels", len @ (2 | 3)) => {
            let names = shared.pubsub.named(scope, (len == 3).then(|| command.arg(2)));
            reply.array(names.len());
            names.iter().for_each(|name| reply.bulk(name));
        }
        (b"numsub" | b"shardnumsub", _) => {
            reply.array(2 * (command.len() - 2));
            for name in command.args(2) {
                reply.bulk(name);
                reply.integer(shared.pubsub.subscribers(scope, name) as i64);
            }
        }
        (b"numpat", 2) => reply.integer(shared.pubsub.len(Scope::Patterns) as i64),
        (b"help", 2) => reply.lines(&HELP),
        (b"channels" | b"shardchannels", _) => reply.error(&wrong_subcommand(command)),
        (b"numpat" | b"help", _) => {
            let name = String::from_utf8_lossy(&asked);
            reply.error(&arity_error(&format!("pubsub|{name}")));
        }
        _ => reply.error(&unknown_subcommand(command)),
    }
}
