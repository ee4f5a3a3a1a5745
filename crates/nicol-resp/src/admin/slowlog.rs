//! SLOWLOG and LATENCY.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use crate::commands::errors::{arity_error, unknown_subcommand};
use crate::commands::number::{NOT_AN_INTEGER, parse_i64};
use crate::commands::rights;
use crate::connection::encode::Reply;
use crate::connection::parse::Command;
use crate::connection::session::Session;
use crate::shared::Shared;
use crate::stats::CommandStats;

/// Entries of SLOWLOG GET where the client does not say how many.
const ENTRIES: usize = 10;
/// The one kind of spike that is watched.
const EVENT: &[u8] = b"command";

/// SLOWLOG.
pub fn slowlog(session: &Session, shared: &Shared, command: &Command<'_>, out: &mut Vec<u8>) {
    let mut reply = session.reply(out);
    let log = &shared.stats.slow;
    match (command.arg(1).to_ascii_lowercase().as_slice(), command.len()) {
        (b"get", 2) => entries(&mut reply, shared, ENTRIES),
        (b"get", 3) => match parse_i64(command.arg(2)) {
            Some(-1) => entries(&mut reply, shared, usize::MAX),
            Some(count @ 0..) => entries(&mut reply, shared, count as usize),
            Some(_) => reply.error(b"ERR count should be greater than or equal to -1"),
            None => reply.error(NOT_AN_INTEGER),
        },
        (b"len", 2) => reply.integer(log.len() as i64),
        (b"reset", 2) => {
            log.clear();
            reply.status("OK");
        }
        (b"help", 2) => reply.lines(&[
            "SLOWLOG <subcommand> [<arg> ...]. Subcommands are:",
            "GET [<count>]",
            "    The slowest commands, the newest first (default: 10, -1 mean all).",
            "LEN",
            "RESET",
            "HELP",
        ]),
        (name @ (b"get" | b"len" | b"reset" | b"help"), _) => {
            reply.error(&arity_error(&format!("slowlog|{}", String::from_utf8_lossy(name))));
        }
        _ => reply.error(&unknown_subcommand(command)),
    }
}

fn entries(reply: &mut Reply<'_>, shared: &Shared, count: usize) {
    let newest = shared.stats.slow.newest(count);
    reply.array(newest.len());
    for slow in newest {
        reply.array(6);
        reply.integer(slow.id as i64);
        reply.integer(slow.at as i64);
        reply.integer(slow.took.as_micros() as i64);
        reply.array(slow.words.len());
        slow.words.iter().for_each(|word| reply.bulk(word));
        reply.bulk(slow.client.address.endpoint().as_bytes());
        reply.bulk(&slow.client.name);
    }
}

/// LATENCY.
pub fn latency(session: &Session, shared: &Shared, command: &Command<'_>, out: &mut Vec<u8>) {
    let mut reply = session.reply(out);
    let spikes = &shared.stats.spikes;
    let named = |place: usize| command.args(place).any(|name| name.eq_ignore_ascii_case(EVENT));
    match (command.arg(1).to_ascii_lowercase().as_slice(), command.len()) {
        (b"histogram", _) => histograms(&mut reply, shared, command),
        (b"latest", 2) => {
            let kept = spikes.kept();
            reply.array(usize::from(!kept.is_empty()));
            if let Some((at, millis)) = kept.back() {
                reply.array(4);
                reply.bulk(EVENT);
                reply.integer(*at as i64);
                reply.integer(*millis as i64);
                reply.integer(spikes.max_ms.load(Ordering::Relaxed) as i64);
            }
        }
        (b"history", 3) => {
            let kept = spikes.kept();
            let shown = if named(2) { kept.len() } else { 0 };
            reply.array(shown);
            for (at, millis) in kept.iter().take(shown) {
                reply.array(2);
                reply.integer(*at as i64);
                reply.integer(*millis as i64);
            }
        }
        (b"doctor", 2) => reply.verbatim_as(b"txt", doctor(shared).as_bytes()),
        (b"reset", len) => {
            let reset = (len == 2 || named(2)) && spikes.reset();
            reply.integer(i64::from(reset));
        }
        (b"help", 2) => reply.lines(&[
            "LATENCY <subcommand> [<arg> ...]. Subcommands are:",
            "DOCTOR",
            "    Say how long the slowest commands took, and what to look at.",
            "HISTOGRAM [<command> ...]",
            "    How long commands took, in microseconds.",
            "HISTORY command",
            "LATEST",
            "RESET [command]",
            "HELP",
        ]),
        (name @ (b"latest" | b"history" | b"doctor" | b"help"), _) => {
            reply.error(&arity_error(&format!("latency|{}", String::from_utf8_lossy(name))));
        }
        _ => reply.error(&unknown_subcommand(command)),
    }
}

/// What LATENCY DOCTOR says.
fn doctor(shared: &Shared) -> String {
    let spikes = &shared.stats.spikes;
    let threshold = spikes.threshold_ms.load(Ordering::Relaxed);
    let kept = spikes.kept();
    if threshold == 0 {
        return "Nothing is watched: CONFIG SET latency-monitor-threshold MILLISECONDS keeps the \
                times of commands that take as long.\n"
            .into();
    }
    if kept.is_empty() {
        return format!("No command took {threshold} ms since the last reset.\n");
    }
    let sum: u64 = kept.iter().map(|(_, millis)| millis).sum();
    format!(
        "1. command: {} seconds with commands of {threshold} ms or more (average {} ms, longest {} \
         ms). SLOWLOG GET shows the slowest; commands over large collections, scripts and large \
         transactions hold up others.\n",
        kept.len(),
        sum / kept.len() as u64,
        spikes.max_ms.load(Ordering::Relaxed)
    )
}

/// What commands and subcommands have cost, by their names.
pub fn costs(shared: &Shared) -> BTreeMap<&'static str, CommandStats> {
    let all = shared.stats.commands().into_iter();
    all.map(|(number, stats)| (rights::name(number), stats)).collect()
}

fn histograms(reply: &mut Reply<'_>, shared: &Shared, command: &Command<'_>) {
    let all = costs(shared);
    // A name stands for its subcommands, too.
    let names: Vec<String> =
        command.args(2).map(|name| String::from_utf8_lossy(name).to_ascii_lowercase()).collect();
    let is_of = |name: &str, wanted: &String| {
        name.strip_prefix(wanted.as_str())
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('|'))
    };
    let wanted = |name: &str| command.len() == 2 || names.iter().any(|wanted| is_of(name, wanted));
    let shown: Vec<_> =
        all.iter().filter(|(name, stats)| wanted(name) && stats.calls > 0).collect();
    reply.map(shown.len());
    for (name, stats) in shown {
        reply.bulk(name.as_bytes());
        histogram(reply, stats);
    }
}

/// In steps of powers of two: how many calls took no longer.
fn histogram(reply: &mut Reply<'_>, stats: &CommandStats) {
    let mut steps: Vec<(u64, u64)> = Vec::new();
    for bound in (0..40).map(|power| 1_u64 << power) {
        let count = stats.times.count_between(0, bound);
        if count > steps.last().map_or(0, |(_, count)| *count) {
            steps.push((bound, count));
        }
    }
    reply.map(2);
    reply.bulk(b"calls");
    reply.integer(stats.calls as i64);
    reply.bulk(b"histogram_usec");
    reply.map(steps.len());
    for (bound, count) in steps {
        reply.integer(bound as i64);
        reply.integer(count as i64);
    }
}
