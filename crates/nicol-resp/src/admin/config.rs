//! CONFIG.

use crate::commands::errors::{SYNTAX, arity_error, unknown_subcommand};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::{fs, io};

use crate::commands::glob::matches;
use crate::commands::number::parse_i64;
use crate::connection::parse::Command;
use crate::connection::session::Session;
use crate::eviction::SAMPLES_MAX;
use crate::eviction::policy::{Policy, UnknownPolicy};
use crate::notices::Chosen;
use crate::scripts::meter::TIME_MAX;
use crate::shared::{Persistence, Shared};
use crate::transactions::record::DATABASES;
use crate::transactions::sizes::{self, ALIASES, NAMES};
use nicol_core::serving::Walked;

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
        b"set" if command.len() > 3 && command.len().is_multiple_of(2) => {
            match set(shared, command) {
                Ok(()) => reply.status("OK"),
                Err(text) => reply.error(text.as_bytes()),
            }
        }
        b"set" if command.len() > 3 => reply.error(SYNTAX),
        b"set" => reply.error(&arity_error("config|set")),
        b"resetstat" if command.len() == 2 => {
            shared.stats.reset();
            shared.counters.reset();
            reply.status("OK");
        }
        b"rewrite" if command.len() == 2 => match rewrite(shared) {
            Ok(()) => reply.status("OK"),
            Err(text) => reply.error(text.as_bytes()),
        },
        b"rewrite" => reply.error(&arity_error("config|rewrite")),
        b"help" => {
            let lines = [
                "CONFIG <subcommand> [<arg> ...]. Subcommands are:",
                "GET <pattern> ...",
                "SET <name> <value> ...",
                "    Of slowlog-log-slower-than, slowlog-max-len, latency-monitor-threshold,",
                "    notify-keyspace-events, maxmemory (no more than at the start; 0: as at the",
                "    start), maxmemory-policy, maxmemory-samples, lfu-log-factor, lfu-decay-time,",
                "    min-replicas-to-write, and the sizes beyond which Redis holds a value in",
                "    another form.",
                "RESETSTAT",
                "REWRITE",
                "    Write what was set into the file of --config, as far as that can hold it.",
                "HELP",
            ];
            reply.lines(&lines);
        }
        _ => reply.error(&unknown_subcommand(command)),
    }
}

fn settings(shared: &Shared) -> Vec<(&'static str, String)> {
    let limits = &shared.config.limits;
    let eviction = &shared.eviction;
    let kept = shared.info.persistence.as_ref();
    let load = |number: &AtomicU64| number.load(Ordering::Relaxed).to_string();
    let slower_than = shared.stats.slow.threshold_us.load(Ordering::Relaxed);
    let mut all = vec![
        ("appendfsync", fsync(kept).into()),
        ("appendonly", if kept.is_some() { "yes" } else { "no" }.into()),
        ("daemonize", "no".into()),
        ("bind", shared.address.ip().map_or(String::new(), |ip| ip.to_string())),
        ("databases", DATABASES.to_string()),
        ("dir", kept.map_or(String::new(), |kept| kept.dir.clone())),
        ("busy-reply-threshold", TIME_MAX.as_millis().to_string()),
        ("lua-time-limit", TIME_MAX.as_millis().to_string()),
        ("latency-monitor-threshold", load(&shared.stats.spikes.threshold_ms)),
        ("maxclients", limits.clients.to_string()),
        ("maxmemory", shared.max_memory().unwrap_or(0).to_string()),
        ("maxmemory-clients", client_bytes(limits.client_bytes)),
        ("min-replicas-to-write", load(&shared.min_replicas)),
        ("min-slaves-to-write", load(&shared.min_replicas)),
        ("maxmemory-policy", eviction.policy().name().into()),
        ("maxmemory-samples", eviction.samples.load(Ordering::Relaxed).to_string()),
        ("lfu-decay-time", eviction.lfu_decay_minutes.load(Ordering::Relaxed).to_string()),
        ("lfu-log-factor", eviction.lfu_log_factor.load(Ordering::Relaxed).to_string()),
        ("notify-keyspace-events", shared.notices.text()),
        ("port", shared.address.port().to_string()),
        ("proto-max-bulk-len", limits.value_bytes.to_string()),
        ("replicaof", String::new()),
        ("save", String::new()),
        ("slaveof", String::new()),
        ("slowlog-log-slower-than", slower_than.to_string()),
        ("slowlog-max-len", load(&shared.stats.slow.max)),
        ("tcp-keepalive", limits.keepalive.as_secs().to_string()),
        ("nicol-transaction-ms", limits.transaction_time.as_millis().to_string()),
        ("timeout", limits.idle.map_or(0, |idle| idle.as_secs()).to_string()),
        ("unixsocket", shared.address.path_text()),
    ];
    let sizes = NAMES.iter().map(|(name, _)| *name).chain(ALIASES.map(|(name, _)| name));
    all.extend(
        sizes.filter_map(|name| Some((name, shared.sizes.get(sizes::place(name)?).to_string()))),
    );
    all
}

/// A value that CONFIG SET has read.
#[derive(Clone, Debug)]
enum Value {
    Number(i64),
    Notices(Chosen),
    /// Bytes that may be used; 0: as many as at the start.
    Memory(u64),
    /// A size, by its place.
    Size(usize, u32),
    /// What it is already.
    Same,
    Policy(Policy),
}

/// Reads the value of a setting that can be changed; `None`: it cannot. Errors: what is wrong.
fn read(shared: &Shared, name: &str, text: &[u8]) -> Option<Result<Value, String>> {
    let number = |least: i64| {
        let number = parse_i64(text).filter(|value| *value >= least);
        number.map(Value::Number).ok_or_else(|| format!("give a number of {least} or more"))
    };
    let within = |least: u32, most: u32| {
        let range = i64::from(least)..=i64::from(most);
        let number = parse_i64(text).filter(|value| range.contains(value));
        number.map(Value::Number).ok_or_else(|| format!("give a number from {least} to {most}"))
    };
    Some(match name {
        "maxmemory-policy" => policy(shared, text).map(Value::Policy),
        "maxmemory-samples" => within(1, SAMPLES_MAX),
        "lfu-decay-time" | "lfu-log-factor" => within(0, i32::MAX as u32),
        "slowlog-log-slower-than" => number(-1),
        "slowlog-max-len"
        | "latency-monitor-threshold"
        | "min-replicas-to-write"
        | "min-slaves-to-write" => number(0),
        "notify-keyspace-events" => Chosen::parse(text)
            .map(Value::Notices)
            .ok_or_else(|| "Invalid event class character. Use 'Ag$lshzxeKEtmdn'.".to_owned()),
        "maxmemory" => memory(shared, text),
        _ => {
            let place = sizes::place(name)?;
            let size = parse_i64(text).and_then(|size| u32::try_from(size).ok());
            size.map(|size| Value::Size(place, size))
                .ok_or_else(|| "give a number from 0 to 4294967295".to_owned())
        }
    })
}

const IMMUTABLE: &str = "can't set immutable config: it is given at the start of the server";

/// Why the limit cannot be lowered, or the policy chosen.
const EVICTS: &str = "only at the limit of the start keys are evicted: with a policy that evicts \
                      maxmemory stays as it was given there (CONFIG SET maxmemory 0)";

/// A limit of memory, in Redis' units. Errors: it is above that of the start.
fn memory(shared: &Shared, text: &[u8]) -> Result<Value, String> {
    let bytes = memory_size(text).ok_or("argument must be a memory value")?;
    match shared.backend.memory().limit {
        _ if bytes > 0 && shared.eviction.policy().order.is_some() => Err(EVICTS.into()),
        Some(most) if bytes > most.0 => Err(format!(
            "the server was started with {most}: start it with more --max-memory",
            most = most.0
        )),
        _ => Ok(Value::Memory(bytes)),
    }
}

/// `100`, `100b`, `10k`, `10kb`, ...: a k is a thousand and a kb 1,024, as in Redis.
fn memory_size(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?.to_ascii_lowercase();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let unit = match &text[digits..] {
        "" | "b" => 1,
        "k" => 1_000,
        "kb" => 1 << 10,
        "m" => 1_000_000,
        "mb" => 1 << 20,
        "g" => 1_000_000_000,
        "gb" => 1 << 30,
        _ => return None,
    };
    text[..digits].parse::<u64>().ok()?.checked_mul(unit)
}

/// Reads a policy that this store can follow.
fn policy(shared: &Shared, text: &[u8]) -> Result<Policy, String> {
    let policy: Policy =
        String::from_utf8_lossy(text).parse().map_err(|e: UnknownPolicy| e.to_string())?;
    let evicts = policy.order.is_some();
    if evicts && shared.memory_limit.get().is_some() {
        return Err(EVICTS.into());
    }
    match evicts && shared.backend.walk(0, &mut Vec::new()) == Walked::Unable {
        true => Err("this store does not list its keys: nothing can be evicted".into()),
        false => Ok(policy),
    }
}

/// CONFIG SET: all of its values, or none and the reason.
fn set(shared: &Shared, command: &Command<'_>) -> Result<(), String> {
    let mut found: Vec<(String, Value)> = Vec::new();
    for place in (2..command.len()).step_by(2) {
        let name = String::from_utf8_lossy(command.arg(place)).to_ascii_lowercase();
        let refused = |why: &str| {
            format!("ERR CONFIG SET failed (possibly related to argument '{name}') - {why}")
        };
        let text = command.arg(place + 1);
        let known = || settings(shared).into_iter().find(|(known, _)| *known == name);
        let value = match read(shared, &name, text).map_or_else(|| Err(known()), Ok) {
            Ok(value) => value.map_err(|why| refused(&why))?,
            Err(Some((_, now))) if now.as_bytes().eq_ignore_ascii_case(text) => Value::Same,
            Err(Some(_)) => return Err(refused(IMMUTABLE)),
            Err(None) => {
                let text = "ERR Unknown option or number of arguments for CONFIG SET";
                return Err(format!("{text} - '{name}'"));
            }
        };
        if found.iter().any(|(known, _)| *known == name) {
            return Err(refused("duplicate parameter"));
        }
        found.push((name, value));
    }
    for (name, value) in found {
        let stats = &shared.stats;
        match (name.as_str(), value) {
            (_, Value::Policy(policy)) => shared.eviction.choose(policy),
            ("maxmemory-samples", Value::Number(value)) => {
                shared.eviction.samples.store(value as u32, Ordering::Relaxed);
            }
            ("lfu-decay-time", Value::Number(value)) => {
                shared.eviction.lfu_decay_minutes.store(value as u32, Ordering::Relaxed);
            }
            ("lfu-log-factor", Value::Number(value)) => {
                shared.eviction.lfu_log_factor.store(value as u32, Ordering::Relaxed);
            }
            (_, Value::Notices(chosen)) => shared.notices.choose(chosen),
            (_, Value::Memory(bytes)) => shared.memory_limit.set(bytes),
            (_, Value::Size(place, size)) => shared.sizes.set(place, size),
            (_, Value::Same) => {}
            ("slowlog-log-slower-than", Value::Number(value)) => {
                stats.slow.threshold_us.store(value, Ordering::Relaxed);
            }
            ("min-replicas-to-write" | "min-slaves-to-write", Value::Number(value)) => {
                shared.min_replicas.store(value as u64, Ordering::Relaxed);
            }
            ("slowlog-max-len", Value::Number(value)) => {
                stats.slow.max.store(value as u64, Ordering::Relaxed);
            }
            (_, Value::Number(value)) => {
                stats.spikes.threshold_ms.store(value as u64, Ordering::Relaxed);
            }
        }
    }
    Ok(())
}

/// CONFIG REWRITE: the file of --config holds what has been set. Errors: there is no file, it has
/// no place for a setting that has been changed, or the system refuses.
fn rewrite(shared: &Shared) -> Result<(), String> {
    let file = shared.info.config_file.as_ref();
    let file = file.ok_or("ERR The server is running without a config file")?;
    let now = settings(shared);
    let lost: Vec<_> = UNKEPT
        .iter()
        .filter(|(name, first)| now.iter().any(|(known, value)| known == name && value != first))
        .map(|(name, _)| *name)
        .chain(shared.memory_limit.get().map(|_| "maxmemory"))
        .chain(shared.sizes.changed())
        .collect();
    if !lost.is_empty() {
        return Err(format!(
            "ERR Rewriting config file: it has no place for {}: set it anew after each start, or \
             set it back",
            lost.join(", ")
        ));
    }
    let eviction = &shared.eviction;
    let lines = [
        ("max_memory_policy", format!("\"{}\"", eviction.policy().name())),
        ("max_memory_samples", eviction.samples.load(Ordering::Relaxed).to_string()),
    ];
    write_lines(file, &lines)
        .map_err(|error| format!("ERR Rewriting config file: {}: {error}", file.display()))
}

/// Settings that the file of --config has no place for, and their values at the start.
const UNKEPT: [(&str, &str); 7] = [
    ("latency-monitor-threshold", "0"),
    ("lfu-decay-time", "1"),
    ("lfu-log-factor", "10"),
    ("min-replicas-to-write", "0"),
    ("notify-keyspace-events", ""),
    ("slowlog-log-slower-than", "10000"),
    ("slowlog-max-len", "128"),
];

/// Gives each setting its value in a file of lines `name = value`: in its line, or in a new one.
/// A crash leaves the old file or the new one.
fn write_lines(file: &Path, settings: &[(&str, String)]) -> io::Result<()> {
    let mut lines: Vec<_> = fs::read_to_string(file)?.lines().map(str::to_owned).collect();
    // What stands behind a table's name belongs to the table.
    let top = lines.iter().position(|line| line.trim_start().starts_with('['));
    let top = top.unwrap_or(lines.len());
    for (name, value) in settings {
        let is_its =
            |line: &String| line.split_once('=').is_some_and(|(known, _)| known.trim() == *name);
        let line = format!("{name} = {value}");
        match lines[..top].iter().position(is_its) {
            Some(place) => lines[place] = line,
            None => lines.insert(top, line),
        }
    }
    let mut new = file.as_os_str().to_owned();
    new.push(".new");
    fs::write(&new, lines.join("\n") + "\n")?;
    fs::File::open(&new)?.sync_all()?;
    fs::rename(&new, file)
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
