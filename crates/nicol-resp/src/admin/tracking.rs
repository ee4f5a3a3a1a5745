//! CLIENT TRACKING and its kin.

use std::sync::Arc;

use crate::commands::errors::SYNTAX;
use crate::commands::number::parse_i64;
use crate::connection::clients::Client;
use crate::connection::parse::Command;
use crate::connection::session::Session;
use crate::shared::Shared;
use crate::tracking::{Choice, Mode};

const NOBODY: &[u8] = b"ERR The client ID you want redirect to does not exist";
const TWO_REDIRECTS: &[u8] = b"ERR A client can only redirect to a single other client";
const BAD_ID: &[u8] = b"ERR Invalid client ID";
const PREFIX_ALONE: &[u8] = b"ERR PREFIX option requires BCAST mode to be enabled";
const OTHER_BROADCAST: &[u8] = b"ERR You can't switch BCAST mode on/off before disabling tracking \
                                 for this client, and then re-enabling it with a different mode.";
const CHOICE_OF_BROADCAST: &[u8] = b"ERR OPTIN and OPTOUT are not compatible with BCAST";
const BOTH_CHOICES: &[u8] = b"ERR You can't specify both OPTIN mode and OPTOUT mode";
const OTHER_CHOICE: &[u8] =
    b"ERR You can't switch OPTIN/OPTOUT mode before disabling tracking for \
                              this client, and then re-enabling it with a different mode.";
const NO_CHOICE: &[u8] = b"ERR CLIENT CACHING can be called only when the client is in tracking \
                           mode with OPTIN or OPTOUT mode enabled";
const NOT_OPT_IN: &[u8] =
    b"ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode.";
const NOT_OPT_OUT: &[u8] =
    b"ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.";

/// CLIENT TRACKING.
pub fn set(session: &mut Session, shared: &Shared, command: &Command<'_>) -> Result<(), Vec<u8>> {
    match command.arg(2).to_ascii_lowercase().as_slice() {
        b"on" => {
            let (mode, in_place) = mode(session, shared, command)?;
            session.tracks = Some(mode.choice);
            session.client.seen().tracks = true;
            shared.tracking.start(&session.client, mode, in_place.as_ref());
            Ok(())
        }
        b"off" => {
            options(shared, command)?;
            session.stop_tracking(shared);
            Ok(())
        }
        _ => Err(SYNTAX.into()),
    }
}

/// What the options of CLIENT TRACKING say.
#[derive(Debug, Default)]
struct Options {
    broadcasts: bool,
    opt_in: bool,
    opt_out: bool,
    no_loop: bool,
    prefixes: Vec<Vec<u8>>,
    in_place: Option<Arc<Client>>,
}

fn options(shared: &Shared, command: &Command<'_>) -> Result<Options, Vec<u8>> {
    let (mut options, mut at) = (Options::default(), 3);
    while at < command.len() {
        match command.arg(at).to_ascii_lowercase().as_slice() {
            b"bcast" => options.broadcasts = true,
            b"optin" => options.opt_in = true,
            b"optout" => options.opt_out = true,
            b"noloop" => options.no_loop = true,
            b"redirect" if at + 1 < command.len() => {
                at += 1;
                if options.in_place.is_some() {
                    return Err(TWO_REDIRECTS.into());
                }
                let id = parse_i64(command.arg(at)).ok_or(BAD_ID)?;
                let client = shared.clients.all().get(&(id as u64)).cloned();
                options.in_place = Some(client.ok_or(NOBODY)?);
            }
            b"prefix" if at + 1 < command.len() => {
                at += 1;
                options.prefixes.push(command.arg(at).to_vec());
            }
            _ => return Err(SYNTAX.into()),
        }
        at += 1;
    }
    Ok(options)
}

/// The mode that CLIENT TRACKING ON asks for.
fn mode(
    session: &Session,
    shared: &Shared,
    command: &Command<'_>,
) -> Result<(Mode, Option<Arc<Client>>), Vec<u8>> {
    let Options { broadcasts, opt_in, opt_out, no_loop, mut prefixes, in_place } =
        options(shared, command)?;
    if !broadcasts && !prefixes.is_empty() {
        return Err(PREFIX_ALONE.into());
    }
    let old = shared.tracking.mode(session.id).map(|(mode, _)| mode);
    let was = old.as_ref().map(|mode| mode.choice);
    if was.is_some_and(|was| (was == Choice::Broadcast) != broadcasts) {
        return Err(OTHER_BROADCAST.into());
    }
    if broadcasts && (opt_in || opt_out) {
        return Err(CHOICE_OF_BROADCAST.into());
    }
    if opt_in && opt_out {
        return Err(BOTH_CHOICES.into());
    }
    if opt_in && was == Some(Choice::OptOut) || opt_out && was == Some(Choice::OptIn) {
        return Err(OTHER_CHOICE.into());
    }
    let kept = old.map(|mode| mode.prefixes).unwrap_or_default();
    let meet = |one: &[u8], other: &[u8]| one.starts_with(other) || other.starts_with(one);
    for (place, prefix) in prefixes.iter().enumerate() {
        let before = kept.iter().map(|other| (other, "an existing prefix"));
        let beside = prefixes[place + 1..].iter().map(|other| (other, "another provided prefix"));
        if let Some((other, what)) = before.chain(beside).find(|(other, _)| meet(prefix, other)) {
            let [prefix, other] = [prefix, other].map(|text| String::from_utf8_lossy(text));
            let text = format!(
                "ERR Prefix '{prefix}' overlaps with {what} '{other}'. Prefixes for a single client \
                 must not overlap."
            );
            return Err(text.into());
        }
    }
    prefixes.extend(kept);
    let choice = match (broadcasts, opt_in, opt_out) {
        (true, ..) => Choice::Broadcast,
        (_, true, _) => Choice::OptIn,
        (.., true) => Choice::OptOut,
        _ => Choice::All,
    };
    let redirect = in_place.as_ref().map(|client| client.id);
    Ok((Mode { choice, no_loop, prefixes, redirect }, in_place))
}

/// CLIENT CACHING: what is kept of the next command's reply.
pub fn set_caching(session: &mut Session, value: &[u8]) -> Result<(), Vec<u8>> {
    let choice = session.tracks.filter(|c| matches!(c, Choice::OptIn | Choice::OptOut));
    let choice = choice.ok_or(NO_CHOICE)?;
    session.caches = match (value.to_ascii_lowercase().as_slice(), choice) {
        (b"yes", Choice::OptIn) => Some(true),
        (b"yes", _) => return Err(NOT_OPT_IN.into()),
        (b"no", Choice::OptOut) => Some(false),
        (b"no", _) => return Err(NOT_OPT_OUT.into()),
        _ => return Err(SYNTAX.into()),
    };
    Ok(())
}

/// CLIENT TRACKINGINFO.
pub fn tell(session: &Session, shared: &Shared, out: &mut Vec<u8>) {
    let (mode, is_broken) = shared.tracking.mode(session.id).unzip();
    let mut flags = vec![if mode.is_some() { "on" } else { "off" }];
    if let Some(mode) = &mode {
        let caches = session.caches;
        match mode.choice {
            Choice::All => {}
            Choice::OptIn => {
                flags.extend(["optin"].into_iter().chain(caches.map(|_| "caching-yes")))
            }
            Choice::OptOut => {
                flags.extend(["optout"].into_iter().chain(caches.map(|_| "caching-no")))
            }
            Choice::Broadcast => flags.push("bcast"),
        }
        flags.extend(mode.no_loop.then_some("noloop"));
        flags.extend(is_broken.filter(|broken| *broken).map(|_| "broken_redirect"));
    }
    let mut reply = session.reply(out);
    reply.map(3);
    reply.bulk(b"flags");
    reply.set(flags.len());
    flags.iter().for_each(|flag| reply.bulk(flag.as_bytes()));
    reply.bulk(b"redirect");
    reply.integer(redirect(mode.as_ref()));
    reply.bulk(b"prefixes");
    let prefixes = mode.map(|mode| mode.prefixes).unwrap_or_default();
    reply.array(prefixes.len());
    prefixes.iter().for_each(|prefix| reply.bulk(prefix));
}

/// What CLIENT GETREDIR answers: who is told in its place, 0: nobody, -1: it keeps no copies.
pub fn redirect(mode: Option<&Mode>) -> i64 {
    mode.map_or(-1, |mode| mode.redirect.map_or(0, |id| id as i64))
}
