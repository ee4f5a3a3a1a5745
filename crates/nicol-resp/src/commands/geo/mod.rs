//! Places on earth: sorted sets whose scores are geohashes of 52 bits.

mod place;
mod radius;
mod search;

pub use self::radius::stored;

use self::place::{Place, coordinate, distance, unit};
use super::float::{NOT_A_FLOAT, parse_double};
use super::key_places::KeyPlaces;
use super::sorted_set::{Adding, Scored, TYPE, add_all, members};
use super::spec::{GROW, Plan, Run, SLOW_READ, Spec, as_sent, into_first};
use crate::commands::errors::SYNTAX;
use crate::connection::encode::Reply;
use crate::transactions::plan::Arg;
use crate::transactions::work::{Found, Stop, Work};

pub const COMMANDS: &[Spec] = &[
    geo("geoadd", -5, (GROW, KeyPlaces::ONE), (as_sent, geoadd), "Add members with places"),
    geo("geodist", -4, (SLOW_READ, KeyPlaces::ONE), (as_sent, geodist), "Get a distance"),
    geo("geohash", -2, (SLOW_READ, KeyPlaces::ONE), (as_sent, geohash), "Get places as geohashes"),
    geo("geopos", -2, (SLOW_READ, KeyPlaces::ONE), (as_sent, geopos), "Get coordinates"),
    geo(
        "georadius",
        -6,
        (GROW, KeyPlaces::ONE),
        (radius::plan, radius::run),
        "Get or store the members within a circle",
    ),
    geo(
        "georadius_ro",
        -6,
        (SLOW_READ, KeyPlaces::ONE),
        (radius::plan, radius::run),
        "Get the members within a circle",
    ),
    geo(
        "georadiusbymember",
        -5,
        (GROW, KeyPlaces::ONE),
        (radius::plan, radius::run),
        "Get or store the members within a circle around one of them",
    ),
    geo(
        "georadiusbymember_ro",
        -5,
        (SLOW_READ, KeyPlaces::ONE),
        (radius::plan, radius::run),
        "Get the members within a circle around one of them",
    ),
    geo(
        "geosearch",
        -7,
        (SLOW_READ, KeyPlaces::ONE),
        (as_sent, search::geosearch),
        "Get the members within a circle or a box",
    ),
    geo(
        "geosearchstore",
        -8,
        (GROW, KeyPlaces::TWO),
        (into_first, search::geosearchstore),
        "Store the members within a circle or a box",
    ),
];

const fn geo(
    name: &'static str,
    arity: i32,
    of: (&'static [&'static str], KeyPlaces),
    how: (Plan, Run),
    summary: &'static str,
) -> Spec {
    Spec::data("geo", name, arity, of, how, summary)
}

/// Reads a longitude and a latitude. Errors: the text that the command answers.
fn place(longitude: &Arg<'_>, latitude: &Arg<'_>) -> Result<Result<Place, Vec<u8>>, Stop> {
    let degrees = |arg: &Arg<'_>| parse_double(arg.bytes).ok_or(Stop::Error(NOT_A_FLOAT));
    let place = Place { longitude: degrees(longitude)?, latitude: degrees(latitude)? };
    let wrong = || {
        let Place { longitude, latitude } = place;
        format!("ERR invalid longitude,latitude pair {longitude:.6},{latitude:.6}").into_bytes()
    };
    Ok(if place.is_valid() { Ok(place) } else { Err(wrong()) })
}

fn geoadd<'t>(work: &mut Work<'t>, args: &[Arg<'t>], reply: &mut Reply<'_>) -> Result<(), Stop> {
    let (key, mut args) = args.split_first().ok_or(Stop::Malformed)?;
    let mut adding = Adding::default();
    while let [option, rest @ ..] = args {
        match option.bytes.to_ascii_lowercase().as_slice() {
            b"nx" => adding.new_only = true,
            b"xx" => adding.present_only = true,
            b"ch" => adding.changed = true,
            _ => break,
        }
        args = rest;
    }
    let (triples, rest) = args.as_chunks::<3>();
    if !rest.is_empty() || adding.new_only && adding.present_only {
        return Err(Stop::Error(SYNTAX));
    }
    let mut given = Vec::with_capacity(triples.len());
    for [longitude, latitude, member] in triples {
        match place(longitude, latitude)? {
            Ok(place) => given.push((place.hash() as f64, member.bytes)),
            Err(text) => {
                reply.error(&text);
                return Ok(());
            }
        }
    }
    if given.is_empty() {
        return Err(Stop::Error(SYNTAX));
    }
    add_all(work, key, adding, given, reply)
}

/// The places of members.
fn places<'w>(work: &'w Work<'_>, found: Found, lookups: usize) -> Result<Scored<'w>, Stop> {
    Ok(Scored::new(members(work, found)?, lookups))
}

fn geopos<'t>(work: &mut Work<'t>, args: &[Arg<'t>], reply: &mut Reply<'_>) -> Result<(), Stop> {
    let (key, names) = args.split_first().ok_or(Stop::Malformed)?;
    let found = work.typed(key, &TYPE)?;
    let places = places(work, found, names.len())?;
    reply.array(names.len());
    for name in names {
        match places.score(name.bytes).map(Place::of) {
            Some(place) => answer_place(place, reply),
            None => reply.null_array(),
        }
    }
    Ok(())
}

fn answer_place(place: Place, reply: &mut Reply<'_>) {
    reply.array(2);
    for degrees in [place.longitude, place.latitude] {
        reply.decimal(&coordinate(degrees));
    }
}

fn geohash<'t>(work: &mut Work<'t>, args: &[Arg<'t>], reply: &mut Reply<'_>) -> Result<(), Stop> {
    let (key, names) = args.split_first().ok_or(Stop::Malformed)?;
    let found = work.typed(key, &TYPE)?;
    let places = places(work, found, names.len())?;
    reply.array(names.len());
    for name in names {
        let letters = places.score(name.bytes).map(|score| Place::of(score).letters());
        reply.bulk_or_null(letters.as_deref().map(str::as_bytes));
    }
    Ok(())
}

fn geodist<'t>(work: &mut Work<'t>, args: &[Arg<'t>], reply: &mut Reply<'_>) -> Result<(), Stop> {
    let [key, one, other, rest @ ..] = args else { return Err(Stop::Malformed) };
    let meters = match rest {
        [] => 1.0,
        [word] => unit(word.bytes)?,
        _ => return Err(Stop::Error(SYNTAX)),
    };
    let found = work.typed(key, &TYPE)?;
    let places = places(work, found, 2)?;
    let [one, other] = [one, other].map(|name| places.score(name.bytes).map(Place::of));
    match one.zip(other) {
        Some((one, other)) => reply.bulk(distance(one.distance(other) / meters).as_bytes()),
        None => reply.null(),
    }
    Ok(())
}
