//! INFO.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::connection::address::Address;
use crate::connection::parse::Command;
use crate::connection::session::Session;
use crate::shared::{COMPATIBLE_VERSION, Counters, InfoLines, Shared};
use crate::transactions::record::{DATABASES, Database};

/// INFO.
pub fn answer(session: &Session, shared: &Shared, command: &Command<'_>, out: &mut Vec<u8>) {
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
                ("blocked_clients", "0".into()),
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
    all.extend(shared.info.sections.as_ref().map(|more| more()).unwrap_or_default());
    all.push(("Keyspace".to_owned(), keyspace(shared)));
    all
}

/// A line of each database that holds keys.
fn keyspace(shared: &Shared) -> InfoLines {
    let databases = (0..DATABASES).filter_map(|number| Database::new(number as i64));
    let line = |database| {
        let (keys, expires) = (shared.keyspace.keys(database), shared.keyspace.expiring(database));
        let line = format!("keys={keys},expires={expires},avg_ttl=0");
        (keys > 0).then(|| (format!("db{}", database.number()), line))
    };
    databases.filter_map(line).collect()
}

/// The store's own count of its memory, by parts, and what the system says of the process. Without
/// either there is no line: a 0 would be wrong.
fn memory(shared: &Shared) -> Vec<(&'static str, String)> {
    let store = shared.backend.memory();
    let mut lines = Vec::new();
    let resident = (shared.info.resident)();
    let clients = shared.client_bytes.load(Ordering::Relaxed);
    let counted = Some(store.used().0 + clients).filter(|_| !store.parts.is_empty());
    let used = counted.or(resident);
    lines.extend(used.map(|bytes| ("used_memory", bytes.to_string())));
    lines.extend(resident.map(|bytes| ("used_memory_rss", bytes.to_string())));
    lines.push(("maxmemory", store.limit.map_or(0, |limit| limit.0).to_string()));
    lines.push(("maxmemory_policy", "noeviction".into()));
    lines.push(("mem_clients_normal", clients.to_string()));
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
        ("evicted_clients", get(&c.evicted)),
    ]
}

/// Where the server listens, as INFO of Redis 7.2 says it.
fn listener(address: &Address) -> String {
    match address.ip() {
        Some(ip) => format!("name=tcp,bind={ip},port={}", address.port()),
        None => format!("name=unix,bind={}", address.path_text()),
    }
}
