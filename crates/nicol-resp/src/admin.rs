//! CLIENT, COMMAND, CONFIG and INFO.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use super::address::Address;
use super::client_commands;
use super::commands::{CLIENT, CommandNumber, TABLE, lookup, takes};
use super::parse::Command;
use super::session::{After, Session};
use super::shared::{Counters, InfoLines, Persistence, Shared};
use super::translate::{arity_error, unknown_subcommand};

/// The version of Redis whose commands and texts these are.
pub const COMPATIBLE_VERSION: &str = "7.0.15";

const BAD_NAME: &[u8] = b"ERR Client names cannot contain spaces, newlines or special characters.";

/// Sets the client's name, if it is one.
pub fn set_name(session: &Session, name: &[u8]) -> Result<(), &'static [u8]> {
    if !name.iter().all(u8::is_ascii_graphic) {
        return Err(BAD_NAME);
    }
    session.client.seen().name = name.to_vec();
    Ok(())
}

/// Answers that there is no such subcommand. Fast, and the connection stays: newer clients probe.
fn unknown(session: &Session, command: &Command<'_>, out: &mut Vec<u8>) {
    session.reply(out).error(&unknown_subcommand(command));
}

const CLIENT_HELP: [&str; 11] = [
    "CLIENT <subcommand> [<arg> ...]. Subcommands are:",
    "GETNAME",
    "ID",
    "INFO",
    "KILL <ip:port>",
    "KILL <ID|ADDR|LADDR|TYPE|USER|SKIPME> <value> [...]",
    "LIST [TYPE <type>|ID <id> ...]",
    "NO-EVICT (ON|OFF)",
    "SETINFO <option> <value>",
    "SETNAME <name>",
    "HELP",
];

/// CLIENT.
pub fn client(
    session: &mut Session,
    shared: &Shared,
    command: &Command<'_>,
    out: &mut Vec<u8>,
) -> After {
    let asked = [b"client|", command.arg(1).to_ascii_lowercase().as_slice()].concat();
    let Some(place) = CLIENT.iter().position(|(name, _)| name.as_bytes() == asked) else {
        unknown(session, command, out);
        return After::Go;
    };
    let (name, arity) = &CLIENT[place];
    if !takes(*arity, command.len()) {
        session.reply(out).error(&arity_error(name));
        return After::Go;
    }
    session.last_command = CommandNumber::of_client(place);
    session.publish(Instant::now());
    let done = match *name {
        "client|getname" => {
            let name = session.client.seen().name.clone();
            session.reply(out).bulk_or_null((!name.is_empty()).then_some(&name[..]));
            return After::Go;
        }
        "client|id" => {
            session.reply(out).integer(session.id as i64);
            return After::Go;
        }
        "client|info" => {
            client_commands::info(session, out);
            return After::Go;
        }
        "client|kill" => return client_commands::kill(session, shared, command, out),
        "client|list" => {
            client_commands::list(session, shared, command, out);
            return After::Go;
        }
        "client|no-evict" => set_no_evict(session, command.arg(2)),
        "client|setinfo" => set_info(session, command.arg(2), command.arg(3)),
        "client|setname" => set_name(session, command.arg(2)),
        _ => {
            session.reply(out).lines(&CLIENT_HELP);
            return After::Go;
        }
    };
    match done {
        Ok(()) => session.reply(out).status("OK"),
        Err(text) => session.reply(out).error(text),
    }
    After::Go
}

fn set_no_evict(session: &Session, value: &[u8]) -> Result<(), &'static [u8]> {
    session.client.seen().no_evict = match value.to_ascii_lowercase().as_slice() {
        b"on" => true,
        b"off" => false,
        _ => return Err(b"ERR syntax error"),
    };
    Ok(())
}

fn set_info(session: &Session, option: &[u8], value: &[u8]) -> Result<(), &'static [u8]> {
    let mut seen = session.client.seen();
    let field = match option.to_ascii_lowercase().as_slice() {
        b"lib-name" => &mut seen.library,
        b"lib-ver" => &mut seen.library_version,
        _ => return Err(b"ERR Unrecognized option for CLIENT SETINFO"),
    };
    if !value.iter().all(u8::is_ascii_graphic) {
        return Err(
            b"ERR CLIENT SETINFO values cannot contain spaces, newlines or special characters.",
        );
    }
    *field = value.to_vec();
    Ok(())
}

/// COMMAND.
pub fn command(session: &Session, command: &Command<'_>, out: &mut Vec<u8>) {
    let mut reply = session.reply(out);
    let named = || command.args(2).map(lookup);
    match command.arg(1).to_ascii_lowercase().as_slice() {
        b"" if command.len() == 1 => {
            reply.array(TABLE.len());
            TABLE.iter().for_each(|spec| spec.describe(&mut reply));
        }
        b"count" if command.len() == 2 => reply.integer(TABLE.len() as i64),
        b"count" => reply.error(&arity_error("command|count")),
        b"info" if command.len() == 2 => {
            reply.array(TABLE.len());
            TABLE.iter().for_each(|spec| spec.describe(&mut reply));
        }
        b"info" => {
            reply.array(command.len() - 2);
            for spec in named() {
                match spec {
                    Some(spec) => spec.describe(&mut reply),
                    None => reply.null(),
                }
            }
        }
        b"docs" => {
            let all = command.len() == 2;
            let specs: Vec<_> =
                if all { TABLE.iter().collect() } else { named().flatten().collect() };
            reply.map(specs.len());
            for spec in specs {
                reply.bulk(spec.name.as_bytes());
                spec.document(&mut reply);
            }
        }
        b"list" if command.len() == 2 => {
            reply.array(TABLE.len());
            TABLE.iter().for_each(|spec| reply.bulk(spec.name.as_bytes()));
        }
        b"help" => {
            let lines = [
                "COMMAND <subcommand> [<arg> ...]. Subcommands are:",
                "(no subcommand)",
                "COUNT",
                "DOCS [<name> ...]",
                "INFO [<name> ...]",
                "LIST",
                "HELP",
            ];
            session.reply(out).lines(&lines);
        }
        _ => unknown(session, command, out),
    }
}

/// CONFIG.
pub fn config(session: &Session, shared: &Shared, command: &Command<'_>, out: &mut Vec<u8>) {
    let mut reply = session.reply(out);
    match command.arg(1).to_ascii_lowercase().as_slice() {
        b"get" if command.len() > 2 => {
            let values = settings(shared);
            let chosen: Vec<_> = values
                .iter()
                .filter(|(name, _)| {
                    command.args(2).any(|p| glob(&p.to_ascii_lowercase(), name.as_bytes()))
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
            session.reply(out).lines(&lines);
        }
        _ => unknown(session, command, out),
    }
}

fn settings(shared: &Shared) -> Vec<(&'static str, String)> {
    let limits = &shared.config.limits;
    let kept = shared.info.persistence.as_ref();
    vec![
        ("appendfsync", fsync(kept).into()),
        ("appendonly", if kept.is_some() { "yes" } else { "no" }.into()),
        ("bind", shared.address.ip().map_or(String::new(), |ip| ip.to_string())),
        ("databases", "1".into()),
        ("dir", kept.map_or(String::new(), |kept| kept.dir.clone())),
        ("maxclients", limits.clients.to_string()),
        ("maxmemory", shared.backend.memory().limit.map_or(0, |limit| limit.0).to_string()),
        ("maxmemory-policy", "noeviction".into()),
        ("port", shared.address.port().to_string()),
        ("proto-max-bulk-len", limits.value_bytes.to_string()),
        ("save", String::new()),
        ("tcp-keepalive", limits.keepalive.as_secs().to_string()),
        ("nicol-transaction-ms", limits.transaction_time.as_millis().to_string()),
        ("timeout", limits.idle.map_or(0, |idle| idle.as_secs()).to_string()),
        ("unixsocket", path(&shared.address)),
    ]
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

/// The path listened at; nothing where there is none.
fn path(address: &Address) -> String {
    address.path().map_or(String::new(), |path| path.display().to_string())
}

/// Where the server listens, as INFO of Redis 7.2 says it.
fn listener(address: &Address) -> String {
    match address.ip() {
        Some(ip) => format!("name=tcp,bind={ip},port={}", address.port()),
        None => format!("name=unix,bind={}", path(address)),
    }
}

/// Does `text` match `pattern`, where `*` stands for anything and `?` for one byte? In time
/// proportional to the product of the lengths: only the last star is ever tried again.
fn glob(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t, mut star) = (0, 0, None);
    while t < text.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(byte) if *byte == b'?' || *byte == text[t] => {
                p += 1;
                t += 1;
            }
            _ => match star {
                Some((at, from)) => {
                    star = Some((at, from + 1));
                    p = at + 1;
                    t = from + 1;
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|byte| *byte == b'*')
}

/// INFO.
pub fn info(session: &Session, shared: &Shared, command: &Command<'_>, out: &mut Vec<u8>) {
    let mut text = String::new();
    let wanted: Vec<_> = command.args(1).map(<[u8]>::to_ascii_lowercase).collect();
    for (title, lines) in sections(shared) {
        let all = |word: &Vec<u8>| matches!(word.as_slice(), b"all" | b"default" | b"everything");
        let named = |word: &Vec<u8>| *word == title.to_ascii_lowercase().as_bytes() || all(word);
        if wanted.is_empty() || wanted.iter().any(named) {
            if !text.is_empty() {
                text.push_str("\r\n");
            }
            let _ = write!(text, "# {title}\r\n");
            for (name, value) in lines {
                let _ = write!(text, "{name}:{value}\r\n");
            }
        }
    }
    session.reply(out).verbatim(&text);
}

fn sections(shared: &Shared) -> Vec<(String, InfoLines)> {
    let c = &shared.counters;
    let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed).to_string();
    let own = |lines: Vec<(&str, String)>| -> InfoLines {
        lines.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    };
    let uptime = shared.started.elapsed().as_secs();
    let mut all = vec![
        (
            "Server".to_owned(),
            own(vec![
                ("redis_version", COMPATIBLE_VERSION.into()),
                ("nicol_version", shared.info.version.clone()),
                ("redis_mode", "standalone".into()),
                ("os", std::env::consts::OS.into()),
                ("arch_bits", usize::BITS.to_string()),
                ("process_id", std::process::id().to_string()),
                ("run_id", shared.info.run_id.clone()),
                ("tcp_port", shared.address.port().to_string()),
                ("listener0", listener(&shared.address)),
                ("uptime_in_seconds", uptime.to_string()),
                ("uptime_in_days", (uptime / 86_400).to_string()),
                ("front_threads", shared.config.threads.to_string()),
            ]),
        ),
        (
            "Clients".to_owned(),
            own(vec![
                ("connected_clients", get(&c.connected)),
                ("maxclients", shared.config.limits.clients.to_string()),
            ]),
        ),
        ("Memory".to_owned(), own(memory(shared))),
        ("Persistence".to_owned(), persistence(shared)),
        ("Stats".to_owned(), own(statistics(&shared.counters))),
        (
            "Replication".to_owned(),
            own(vec![
                ("role", "master".into()),
                ("connected_slaves", (shared.info.replicas.saturating_sub(1)).to_string()),
                ("cluster_nodes", shared.info.nodes.to_string()),
                ("replicas_per_record", shared.info.replicas.to_string()),
            ]),
        ),
    ];
    let keyspace = match shared.key_count() {
        0 => Vec::new(),
        keys => {
            let expires = shared.expiring.load(Ordering::Relaxed);
            own(vec![("db0", format!("keys={keys},expires={expires},avg_ttl=0"))])
        }
    };
    all.extend(shared.info.sections.as_ref().map(|more| more()).unwrap_or_default());
    all.push(("Keyspace".to_owned(), keyspace));
    all
}

/// The store's own count of its memory, by parts, and what the system says of the process. Without
/// either there is no line: a 0 would be wrong.
fn memory(shared: &Shared) -> Vec<(&'static str, String)> {
    let store = shared.backend.memory();
    let mut lines = Vec::new();
    let resident = (shared.info.resident)();
    let used = Some(store.used().0).filter(|_| !store.parts.is_empty()).or(resident);
    lines.extend(used.map(|bytes| ("used_memory", bytes.to_string())));
    lines.extend(resident.map(|bytes| ("used_memory_rss", bytes.to_string())));
    lines.push(("maxmemory", store.limit.map_or(0, |limit| limit.0).to_string()));
    lines.push(("maxmemory_policy", "noeviction".into()));
    lines.extend(store.parts.into_iter().map(|(part, bytes)| (part, bytes.0.to_string())));
    lines
}

/// `loading` is always 0: clients are served only after everything has been read back.
fn persistence(shared: &Shared) -> InfoLines {
    let kept = shared.info.persistence.as_ref();
    let enabled = if kept.is_some() { "1" } else { "0" };
    let mut lines = vec![
        ("loading".to_owned(), "0".to_owned()),
        ("aof_enabled".to_owned(), enabled.to_owned()),
    ];
    lines.extend(kept.map(|kept| (kept.lines)()).unwrap_or_default());
    lines
}

fn statistics(c: &Counters) -> Vec<(&'static str, String)> {
    let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed).to_string();
    vec![
        ("total_connections_received", get(&c.accepted)),
        ("total_commands_processed", get(&c.commands)),
        ("total_net_input_bytes", get(&c.input_bytes)),
        ("total_net_output_bytes", get(&c.output_bytes)),
        ("rejected_connections", get(&c.rejected)),
        ("transactions_submitted", get(&c.transactions)),
        ("transactions_joined", get(&c.joined)),
        ("transactions_retried", get(&c.retries)),
        ("transactions_aborted", get(&c.aborted)),
        ("transactions_unknown", get(&c.unknown)),
        ("transactions_out_of_memory", get(&c.out_of_memory)),
        ("watch_failures", get(&c.watch_failures)),
        ("protocol_errors", get(&c.protocol_errors)),
        ("login_failures", get(&c.login_failures)),
        ("client_output_buffer_limit_disconnections", get(&c.slow_closed)),
    ]
}

#[cfg(test)]
mod tests {
    use super::glob;

    #[test]
    fn patterns_match_as_a_reader_expects() {
        let yes = [("*", "save"), ("save", "save"), ("s?ve", "save"), ("*m*y", "maxmemory")];
        assert!(yes.iter().all(|(p, t)| glob(p.as_bytes(), t.as_bytes())));
        let no = [("", "save"), ("sav", "save"), ("save?", "save"), ("*x", "save")];
        assert!(!no.iter().any(|(p, t)| glob(p.as_bytes(), t.as_bytes())));
    }
}
