//! What is done with a command that joins no batch: answered at once, queued after MULTI, refused.

use std::time::{Duration, Instant};

use super::clients::CommandNumber;
use super::parse::Command;
use super::session::{After, Session};
use crate::acl::log::Reason;
use crate::acl::selector::Denied;
use crate::admin;
use crate::commands::errors::{
    arity_error, is_unknown_subcommand, unknown_command, unknown_subcommand,
};
use crate::commands::rights;
use crate::commands::spec::{Action, Admin, InMulti, Spec};
use crate::events::Event;
use crate::shared::{Shared, count};
use crate::slow_log::SlowClient;
use crate::stats::code_of;
use crate::transactions::plan::{COMMANDS_MAX, Op, PlanBuilder};
use crate::transactions::planner::Planner;

/// What a client may say that only listens.
const LISTENING: &[&str] = &[
    "ping",
    "psubscribe",
    "punsubscribe",
    "quit",
    "reset",
    "ssubscribe",
    "subscribe",
    "sunsubscribe",
    "unsubscribe",
];

/// Whether it is a request of a web browser or a proxy: a web page could make a browser write data
/// through it.
pub fn is_http(command: &Command<'_>) -> bool {
    let name = command.arg(0);
    let verbs = [&b"post"[..], b"host:", b"head", b"put", b"options", b"patch", b"connect"];
    verbs.iter().any(|verb| name.eq_ignore_ascii_case(verb))
        || command.is_inline() && command.len() == 3 && command.arg(2).starts_with(b"HTTP/")
}

/// Why the store does not run `command` now: it runs single operations only, or its memory is used
/// up.
pub fn refused(shared: &Shared, spec: &Spec, command: &Command<'_>) -> Option<Vec<u8>> {
    if shared.config.single
        && let Some(text) = spec.single_refusal(command)
    {
        return Some(text);
    }
    shared.refusal(|| spec.may_grow(), || spec.writes()).map(<[u8]>::to_vec)
}

/// What the front has answered to a command.
#[derive(Clone, Copy, Debug)]
pub struct Answered<'a> {
    reply: &'a [u8],
    took: Duration,
    /// It is answered only once transactions have ended.
    submitted: bool,
}

impl<'a> Answered<'a> {
    /// An answer to what the front took up at `begun`.
    pub fn new(reply: &'a [u8], begun: Instant, submitted: bool) -> Self {
        Self { reply, took: begun.elapsed(), submitted }
    }
}

/// Counts `command`, which the front has answered or refused, or which is queued or submitted, and
/// the error that it answered.
pub fn note(
    session: &mut Session,
    shared: &Shared,
    front: usize,
    (spec, command): (Option<&Spec>, &Command<'_>),
    Answered { reply, took, submitted }: Answered<'_>,
) {
    let (is_refused, is_error) = (std::mem::take(&mut session.is_refused), reply.starts_with(b"-"));
    let mut stats = shared.stats.of(front);
    if is_error {
        stats.errors(code_of(reply), 1);
    }
    let Some(spec) = spec else { return };
    let is_front = matches!(spec.action_of(command), Action::Admin(..));
    let words = || command.args(0).collect::<Vec<_>>();
    let place = match is_front && rights::has_subcommands(spec) {
        true => rights::number(spec, &words()),
        false => usize::from(spec.number),
    };
    if is_refused && is_unknown_subcommand(&reply[1..]) {
        // As in Redis, it is no command.
    } else if is_refused {
        stats.rejected((place, 1));
    } else if is_front && !submitted {
        stats.called((place, 1), took);
        if is_error {
            stats.failed((place, 1));
        }
        if shared.stats.slow.is_slow(took) {
            shared.stats.slow.add(took, words().into_iter(), SlowClient::of(&session.client));
        }
    }
}

/// Refuses `command`, of which the client's user may not do what is `denied`.
pub fn deny(
    session: &mut Session,
    shared: &Shared,
    (spec, command): (&Spec, &Command<'_>),
    denied: Denied,
    out: &mut Vec<u8>,
) {
    let words: Vec<_> = command.args(0).collect();
    let number = rights::number(spec, &words);
    let name = rights::name(number);
    session.last_command = CommandNumber(1 + number as u16);
    session.publish(Instant::now());
    let (reason, object) = match denied {
        Denied::Command => (Reason::Command, name.as_bytes()),
        Denied::Key(place) => (Reason::Key, words[place]),
        Denied::Channel(place) => (Reason::Channel, words[place]),
    };
    admin::note_refusal(session, shared, reason, object, &session.user.name);
    let user = String::from_utf8_lossy(&session.user.name);
    let peer = &session.client.peer;
    shared.events.note(Event::CommandDenied, &format_args!("user {user} at {peer}: {name}"));
    let text = match denied {
        Denied::Command => {
            format!("NOPERM this user has no permissions to run the '{name}' command")
        }
        Denied::Channel(_) => "NOPERM this user has no permissions to access one of the channels \
                               used as arguments"
            .into(),
        Denied::Key(_) => "NOPERM this user has no permissions to access one of the keys used as \
                           arguments"
            .into(),
    };
    session.refuse(out, text.as_bytes());
}

/// Executes a command that is no data command, queues one of a MULTI, or answers what is wrong.
pub fn answer(
    session: &mut Session,
    shared: &Shared,
    spec: Option<&'static Spec>,
    command: &Command<'_>,
    batch: &mut PlanBuilder,
    out: &mut Vec<u8>,
) -> After {
    let caches = session.caches.take();
    let after = judge(session, shared, spec, command, batch, out);
    if let Some((paused, time)) = session.pause.take() {
        shared.pause.begin(paused, time);
    }
    // What CLIENT CACHING has said holds for a whole MULTI.
    if session.multi.is_some() {
        session.caches = session.caches.or(caches);
    }
    after
}

fn judge(
    session: &mut Session,
    shared: &Shared,
    spec: Option<&'static Spec>,
    command: &Command<'_>,
    batch: &mut PlanBuilder,
    out: &mut Vec<u8>,
) -> After {
    if is_http(command) {
        count(&shared.counters.protocol_errors, 1);
        return After::Drop;
    }
    let Some(spec) = spec else {
        session.refuse(out, &unknown_command(command));
        return After::Go;
    };
    if !spec.accepts(command.len()) && matches!(spec.action, Action::Admin(Admin::Exec, _)) {
        session.discard();
        let text = "EXECABORT Transaction discarded because of: wrong number of arguments for \
                    'exec' command";
        session.reply(out).error(text.as_bytes());
        return After::Go;
    }
    if !spec.accepts(command.len()) {
        session.refuse(out, &arity_error(spec.name));
        return After::Go;
    }
    if !session.authenticated && !spec.flags.contains(&"no_auth") {
        session.refuse(out, b"NOAUTH Authentication required.");
        return After::Go;
    }
    let names = rights::has_subcommands(spec) && command.len() > 1;
    let subcommand = rights::subcommand(spec, command.arg(1));
    if names && subcommand.is_none() {
        session.refuse(out, &unknown_subcommand(command));
        return After::Go;
    }
    if let Some(denied) = session.denied(spec, command) {
        deny(session, shared, (spec, command), denied, out);
        return After::Go;
    }
    if session.only_listens() && !LISTENING.contains(&spec.name) {
        refuse_listener(session, rights::name(subcommand.unwrap_or(spec.number.into())), out);
        return After::Go;
    }
    session.last_command = match subcommand {
        Some(number) => CommandNumber(1 + number as u16),
        None => spec.command_number(),
    };
    if matches!(spec.action, Action::Admin(Admin::Client, _)) {
        // Before a MULTI that is in progress is taken apart.
        session.publish(Instant::now());
    }
    let at_once = matches!(spec.action, Action::Admin(_, InMulti::AtOnce));
    if session.multi.is_some() && !at_once {
        queue(session, shared, spec, command, out);
        return After::Go;
    }
    if let Some(text) = refused(shared, spec, command) {
        session.refuse(out, &text);
        return After::Go;
    }
    let Action::Admin(admin, _) = spec.action_of(command) else { return After::Go };
    let after = admin::answer(admin, session, shared, command, out);
    if after == After::Watch {
        let max = shared.config.limits.transaction_keys;
        let many = session.watches.len() + command.len() - 1 > max;
        let observed = match many && watched(session, shared, spec, command) > max {
            true => Err(b"ERR too many watched keys".to_vec()),
            false => observe(&shared.planner(session.database), batch, spec, command),
        };
        if let Err(text) = observed {
            session.reply(out).error(&text);
            return After::Go;
        }
    }
    after
}

/// Refuses the command `name` of a client that only listens.
fn refuse_listener(session: &mut Session, name: &str, out: &mut Vec<u8>) {
    let text = format!(
        "ERR Can't execute '{name}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET \
         are allowed in this context"
    );
    session.refuse(out, text.as_bytes());
}

/// The records watched once `command`, a WATCH, has been executed.
fn watched(session: &Session, shared: &Shared, spec: &Spec, command: &Command<'_>) -> usize {
    let mut rows = shared.planner(session.database).rows(spec.keys, command);
    rows.extend(session.watches.iter().map(|watch| watch.row));
    rows.sort_unstable();
    rows.dedup();
    rows.len()
}

/// Whether a subcommand of CLIENT is refused after MULTI.
fn is_immediate(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"kill") || name.eq_ignore_ascii_case(b"reply")
}

/// Queues a command after MULTI. A command without records is answered now and its reply queued.
fn queue(
    session: &mut Session,
    shared: &Shared,
    spec: &'static Spec,
    command: &Command<'_>,
    out: &mut Vec<u8>,
) {
    let limits = &shared.config.limits;
    let Some(mut multi) = session.multi.take() else { return };
    let named = multi.plan.keys() + session.watches.len() + spec.keys.count(command.len());
    let bytes = multi.plan.bytes() + command.bytes();
    let many = named > limits.transaction_keys && {
        let further = shared.planner(session.database).rows(spec.keys, command);
        let watched = session.watches.iter().map(|watch| watch.row);
        multi.plan.records(further.into_iter().chain(watched)) > limits.transaction_keys
    };
    let mut refusal = None;
    if let Some(text) = shared.refusal(|| spec.may_grow(), || spec.writes()) {
        refusal = Some(String::from_utf8_lossy(text).into_owned());
    } else if many {
        refusal = Some(format!("ERR too many keys (limit {} keys)", limits.transaction_keys));
    } else if bytes > limits.transaction_bytes || multi.plan.commands() >= COMMANDS_MAX {
        let max = limits.transaction_bytes;
        refusal = Some(format!("ERR transaction is too large (limit {max} bytes)"));
    } else {
        match spec.action_of(command) {
            Action::Data(..) | Action::Admin(_, InMulti::Planned) => {
                multi.may_grow |= spec.may_grow();
                session.track(shared, spec, command);
                let planner = shared.planner_for(session.database, session.user.rights());
                spec.plan(&planner, &mut multi.plan, command);
            }
            Action::Admin(_, InMulti::Refused) => {
                refusal = Some("ERR Command not allowed inside a transaction".to_owned());
            }
            // They would act now, and EXEC may never come.
            Action::Admin(Admin::Client, _) if is_immediate(command.arg(1)) => {
                let name = String::from_utf8_lossy(command.arg(1)).to_uppercase();
                refusal = Some(format!("ERR CLIENT {name} inside MULTI is not allowed"));
            }
            // A wrong password would not let its client wait.
            Action::Admin(Admin::Hello, _)
                if command.args(2).any(|word| word.eq_ignore_ascii_case(b"auth")) =>
            {
                refusal = Some("ERR HELLO with AUTH inside MULTI is not allowed".to_owned());
            }
            Action::Admin(_, InMulti::Ok) => multi.plan.literal(b"+OK\r\n"),
            Action::Admin(admin, InMulti::AtOnce | InMulti::Queued) => {
                let mut reply = Vec::new();
                // None of these closes, waits or submits.
                let _ = admin::answer(admin, session, shared, command, &mut reply);
                multi.plan.literal(&reply);
                multi.pause = session.pause.take().or(multi.pause);
            }
        }
    }
    session.multi = Some(multi);
    match refusal {
        Some(text) => session.refuse(out, text.as_bytes()),
        None => session.reply(out).status("QUEUED"),
    }
}

/// Adds the keys of `command`, a WATCH, to `batch`.
fn observe(
    planner: &Planner<'_>,
    batch: &mut PlanBuilder,
    spec: &Spec,
    command: &Command<'_>,
) -> Result<(), Vec<u8>> {
    planner.check(spec.name, spec.keys, command)?;
    batch.begin(Op::OBSERVE, false);
    command.args(1).for_each(|key| planner.key(batch, key));
    Ok(())
}
