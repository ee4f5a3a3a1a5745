//! INFO.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::config::COMPATIBLE_VERSION;
use crate::connection::address::Address;
use crate::connection::parse::Command;
use crate::connection::session::Session;
use crate::pubsub::Scope;
use crate::shared::{InfoLines, Shared};
use crate::stats::CommandStats;
use crate::transactions::record::{DATABASES, Database};

/// INFO.
pub fn answer(session: &Session, shared: &Shared, command: &Command<'_>, out: &mut Vec<u8>) {
    let mut text = String::new();
    let wanted: Vec<_> = command.args(1).map(<[u8]>::to_ascii_lowercase).collect();
    for (title, lines) in sections(shared) {
        let extra = matches!(title.as_str(), "Commandstats" | "Latencystats");
        let all = |word: &Vec<u8>| match word.as_slice() {
            b"all" | b"everything" => true,
            word => word == b"default" && !extra,
        };
        let named = |word: &Vec<u8>| *word == title.to_ascii_lowercase().as_bytes() || all(word);
        if wanted.is_empty() && !extra || wanted.iter().any(named) {
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
    let blocked = shared.clients.all().values().filter(|client| client.waits()).count();
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
                ("blocked_clients", blocked.to_string()),
                ("tracking_clients", shared.tracking.counts().0.to_string()),
                ("maxclients", shared.config.limits.clients.to_string()),
            ]),
        ),
        ("Memory".to_owned(), own(memory(shared))),
        ("Persistence".to_owned(), persistence(shared)),
        ("Stats".to_owned(), own(statistics(shared))),
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
    if let Some((user, system)) = (shared.info.cpu)() {
        let seconds = |time: Duration| format!("{:.6}", time.as_secs_f64());
        let lines = vec![("used_cpu_sys", seconds(system)), ("used_cpu_user", seconds(user))];
        all.push(("CPU".to_owned(), own(lines)));
    }
    let commands = super::slowlog::costs(shared);
    all.push(("Commandstats".to_owned(), commands.iter().map(command_line).collect()));
    let errors = shared.stats.errors();
    let errors = errors
        .by_code
        .iter()
        .map(|(code, count)| (format!("errorstat_{}", printable(code)), format!("count={count}")));
    all.push(("Errorstats".to_owned(), errors.collect()));
    all.push(("Latencystats".to_owned(), commands.iter().filter_map(latency_line).collect()));
    all.extend(shared.info.sections.as_ref().map(|more| more()).unwrap_or_default());
    all.push(("Keyspace".to_owned(), keyspace(shared)));
    all
}

fn command_line((name, stats): (&&'static str, &CommandStats)) -> (String, String) {
    let CommandStats { calls, total, rejected, failed, .. } = stats;
    let micros = total.as_micros();
    let each = if *calls > 0 { micros as f64 / *calls as f64 } else { 0.0 };
    let line = format!(
        "calls={calls},usec={micros},usec_per_call={each:.2},rejected_calls={rejected},\
         failed_calls={failed}"
    );
    (format!("cmdstat_{name}"), line)
}

/// A code that would break its line or its name is shown without what does.
fn printable(code: &[u8]) -> String {
    let safe = |byte: &u8| match byte {
        b'!'..=b'~' if *byte != b':' => char::from(*byte),
        _ => '_',
    };
    code.iter().map(safe).collect()
}

/// Nothing of a command that was only refused.
fn latency_line((name, stats): (&&'static str, &CommandStats)) -> Option<(String, String)> {
    let at = |quantile| stats.times.value_at_quantile(quantile);
    let line = format!("p50={}.000,p99={}.000,p99.9={}.000", at(0.5), at(0.99), at(0.999));
    (stats.calls > 0).then(|| (format!("latency_percentiles_usec_{name}"), line))
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
    lines.extend(shared.used_memory().map(|bytes| ("used_memory", bytes.to_string())));
    lines.extend(resident.map(|bytes| ("used_memory_rss", bytes.to_string())));
    lines.push(("maxmemory", shared.max_memory().unwrap_or(0).to_string()));
    lines.push(("maxmemory_policy", shared.eviction.policy().name().into()));
    let (scripts, bytes) = shared.scripts.counts();
    lines.push(("number_of_cached_scripts", scripts.to_string()));
    lines.push(("used_memory_scripts", bytes.to_string()));
    lines.push(("memory_access_times", shared.eviction.bytes().to_string()));
    lines.push(("mem_clients_normal", clients.to_string()));
    lines.push(("used_memory_startup", shared.info.process_bytes.to_string()));
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

fn statistics(shared: &Shared) -> Vec<(&'static str, String)> {
    let c = &shared.counters;
    let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed).to_string();
    vec![
        ("total_connections_received", get(&c.accepted)),
        ("total_commands_processed", get(&c.commands)),
        ("instantaneous_ops_per_sec", shared.stats.rate.per_second().to_string()),
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
        ("total_error_replies", shared.stats.errors().all.to_string()),
        ("protocol_errors", get(&c.protocol_errors)),
        ("login_failures", get(&c.login_failures)),
        ("client_output_buffer_limit_disconnections", get(&c.slow_closed)),
        ("evicted_clients", get(&c.evicted)),
        ("expired_keys", get(&c.expired)),
        ("evicted_keys", get(&c.evicted_keys)),
        ("keyspace_hits", get(&c.hits)),
        ("keyspace_misses", get(&c.misses)),
        ("pubsub_channels", shared.pubsub.len(Scope::Channels).to_string()),
        ("pubsub_patterns", shared.pubsub.len(Scope::Patterns).to_string()),
        ("pubsubshard_channels", shared.pubsub.len(Scope::Shards).to_string()),
        ("tracking_total_keys", shared.tracking.counts().1.to_string()),
    ]
}

/// Where the server listens, as INFO of Redis 7.2 says it.
fn listener(address: &Address) -> String {
    match address.ip() {
        Some(ip) => format!("name=tcp,bind={ip},port={}", address.port()),
        None => format!("name=unix,bind={}", address.path_text()),
    }
}
