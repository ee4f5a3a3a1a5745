//! GEOSEARCH and its relatives: the members within a circle or a box.
//!
//! Cost: the distance of every member is computed.

use std::cmp::Ordering;

use super::place::{Place, distance, unit};
use super::{SYNTAX, answer_place, place};
use crate::commands::float::parse_double;
use crate::commands::number::{NOT_AN_INTEGER, parse_i64};
use crate::commands::sorted_set::{Member, TYPE, members, order, pack, parse};
use crate::connection::encode::Reply;
use crate::transactions::plan::Arg;
use crate::transactions::work::{Stop, Work};

/// Which command searches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// GEOSEARCH.
    Search,
    /// GEOSEARCHSTORE.
    Storing,
    /// GEORADIUS and its relatives.
    Radius,
    /// These with STORE or STOREDIST.
    StoringRadius,
}

impl Form {
    fn stores(self) -> bool {
        matches!(self, Self::Storing | Self::StoringRadius)
    }
}

/// What is searched; lengths are in meters.
#[derive(Clone, Copy, Debug)]
enum Shape {
    Circle(f64),
    Box(f64, f64),
}

impl Shape {
    /// The distance of a place from the centre, if it lies within.
    fn distance(self, centre: Place, place: Place) -> Option<f64> {
        match self {
            Self::Circle(radius) => Some(centre.distance(place)).filter(|away| *away <= radius),
            Self::Box(width, height) => {
                let edge = Place { longitude: centre.longitude, latitude: place.latitude };
                let within =
                    centre.north(place) <= height / 2.0 && edge.distance(place) <= width / 2.0;
                within.then(|| centre.distance(place))
            }
        }
    }
}

/// A search as it was asked for.
#[derive(Debug)]
struct Search {
    centre: Place,
    shape: Shape,
    /// Meters of the unit in which distances are answered.
    unit: f64,
    /// Nearest or farthest first.
    order: Option<Ordering>,
    /// 0: all.
    count: usize,
    any: bool,
    with_place: bool,
    with_distance: bool,
    with_hash: bool,
    /// Distances are stored, not hashes.
    stores_distance: bool,
}

/// Reads the options; an error with a text of its own stands within.
#[derive(Debug, Default)]
struct Options {
    centre: Option<Place>,
    shape: Option<(Shape, f64)>,
    order: Option<Ordering>,
    count: usize,
    any: bool,
    with: [bool; 3],
    stores_distance: bool,
    wrong: Option<Vec<u8>>,
}

fn length(arg: &Arg<'_>, wrong: &'static [u8]) -> Result<f64, Stop> {
    parse_double(arg.bytes).ok_or(Stop::Error(wrong))
}

impl Options {
    /// Takes one option off `rest`; `members` are those that are searched.
    fn take<'a, 't>(
        &mut self,
        option: &Arg<'t>,
        rest: &'a [Arg<'t>],
        members: &[Member<'_>],
        form: Form,
    ) -> Result<&'a [Arg<'t>], Stop> {
        match (option.bytes.to_ascii_lowercase().as_slice(), rest) {
            (b"withdist", _) => self.with[0] = true,
            (b"withhash", _) => self.with[1] = true,
            (b"withcoord", _) => self.with[2] = true,
            (b"any", _) => self.any = true,
            (b"asc", _) => self.order = Some(Ordering::Less),
            (b"desc", _) => self.order = Some(Ordering::Greater),
            (b"count", [count, rest @ ..]) => {
                let count = parse_i64(count.bytes).ok_or(NOT_AN_INTEGER)?;
                self.count = usize::try_from(count)
                    .ok()
                    .filter(|count| *count > 0)
                    .ok_or(&b"ERR COUNT must be > 0"[..])?;
                return Ok(rest);
            }
            (b"storedist", _) if form.stores() => self.stores_distance = true,
            (b"frommember", [member, rest @ ..]) if self.centre.is_none() => {
                let known = members.iter().find(|(_, name)| *name == member.bytes);
                // Where there is no member at all, nothing is found in any case.
                let score = match known {
                    Some((score, _)) => *score,
                    None if members.is_empty() => 0.0,
                    None => return Err(Stop::Error(NO_MEMBER)),
                };
                self.centre = Some(Place::of(score));
                return Ok(rest);
            }
            (b"fromlonlat", [longitude, latitude, rest @ ..]) if self.centre.is_none() => {
                match place(longitude, latitude)? {
                    Ok(place) => self.centre = Some(place),
                    Err(text) => self.wrong = Some(text),
                }
                return Ok(rest);
            }
            (b"byradius", [radius, word, rest @ ..]) if self.shape.is_none() => {
                let radius = length(radius, b"ERR need numeric radius")?;
                if radius < 0.0 {
                    return Err(Stop::Error(b"ERR radius cannot be negative"));
                }
                let unit = unit(word.bytes)?;
                self.shape = Some((Shape::Circle(radius * unit), unit));
                return Ok(rest);
            }
            (b"bybox", [width, height, word, rest @ ..]) if self.shape.is_none() => {
                let width = length(width, b"ERR need numeric width")?;
                let height = length(height, b"ERR need numeric height")?;
                if width < 0.0 || height < 0.0 {
                    return Err(Stop::Error(b"ERR height or width cannot be negative"));
                }
                let unit = unit(word.bytes)?;
                self.shape = Some((Shape::Box(width * unit, height * unit), unit));
                return Ok(rest);
            }
            _ => return Err(Stop::Error(SYNTAX)),
        }
        Ok(rest)
    }
}

const NO_MEMBER: &[u8] = b"ERR could not decode requested zset member";

impl Search {
    /// Reads what follows the key of `members`. `Err` within: the text that the command answers.
    fn parse(
        mut args: &[Arg<'_>],
        members: &[Member<'_>],
        form: Form,
    ) -> Result<Result<Self, Vec<u8>>, Stop> {
        let mut options = Options::default();
        while let [option, rest @ ..] = args {
            args = options.take(option, rest, members, form)?;
            if let Some(text) = options.wrong.take() {
                return Ok(Err(text));
            }
        }
        let (name, storing) = match form {
            Form::Search | Form::Radius => ("GEOSEARCH", ""),
            Form::Storing => ("GEOSEARCHSTORE", "GEOSEARCHSTORE"),
            Form::StoringRadius => ("GEOSEARCHSTORE", "STORE option in GEORADIUS"),
        };
        if form.stores() && options.with.contains(&true) {
            let options = "WITHDIST, WITHHASH and WITHCOORD options";
            return Ok(Err(format!("ERR {storing} is not compatible with {options}").into_bytes()));
        }
        let Some(centre) = options.centre else {
            let text =
                format!("ERR exactly one of FROMMEMBER or FROMLONLAT can be specified for {name}");
            return Ok(Err(text.into_bytes()));
        };
        let Some((shape, unit)) = options.shape else {
            let text = format!("ERR exactly one of BYRADIUS and BYBOX can be specified for {name}");
            return Ok(Err(text.into_bytes()));
        };
        if options.any && options.count == 0 {
            return Ok(Err(b"ERR the ANY argument requires COUNT argument".to_vec()));
        }
        let nearest = options.count > 0 && !options.any && options.order.is_none();
        let order = if nearest { Some(Ordering::Less) } else { options.order };
        let Options { count, any, with, stores_distance, .. } = options;
        let [with_distance, with_hash, with_place] = with;
        Ok(Ok(Self {
            centre,
            shape,
            unit,
            order,
            count,
            any,
            with_place,
            with_distance,
            with_hash,
            stores_distance,
        }))
    }

    /// The members within, with their distances in the search's unit.
    fn run<'a>(&self, members: &[Member<'a>]) -> Vec<(f64, Member<'a>)> {
        let within = members.iter().filter_map(|member| {
            let away = self.shape.distance(self.centre, Place::of(member.0))?;
            Some((away / self.unit, *member))
        });
        let most = if self.count == 0 { usize::MAX } else { self.count };
        let mut all: Vec<_> = within.take(if self.any { most } else { usize::MAX }).collect();
        let nearer = |one: &(f64, Member<'_>), other: &(f64, Member<'_>)| {
            one.0.partial_cmp(&other.0).unwrap_or(Ordering::Equal)
        };
        match self.order {
            Some(Ordering::Greater) => all.sort_by(|one, other| nearer(other, one)),
            Some(_) => all.sort_by(nearer),
            None => {}
        }
        all.truncate(most);
        all
    }
}

pub fn geosearch<'t>(
    work: &mut Work<'t>,
    args: &[Arg<'t>],
    reply: &mut Reply<'_>,
) -> Result<(), Stop> {
    let (key, args) = args.split_first().ok_or(Stop::Malformed)?;
    find(work, key, args, Form::Search, reply)
}

/// Answers the members of `key` that `args` ask for.
pub fn find<'t>(
    work: &mut Work<'t>,
    key: &Arg<'t>,
    args: &[Arg<'t>],
    form: Form,
    reply: &mut Reply<'_>,
) -> Result<(), Stop> {
    let found = work.typed(key, &TYPE)?;
    let members = members(work, found)?;
    let search = match Search::parse(args, &members, form)? {
        Ok(search) => search,
        Err(text) => {
            reply.error(&text);
            return Ok(());
        }
    };
    let all = search.run(&members);
    let parts = [search.with_distance, search.with_hash, search.with_place];
    let parts = 1 + parts.iter().filter(|part| **part).count();
    reply.array(all.len());
    for (away, (score, member)) in all {
        work.spend(member.len())?;
        if parts > 1 {
            reply.array(parts);
        }
        reply.bulk(member);
        if search.with_distance {
            reply.bulk(distance(away).as_bytes());
        }
        if search.with_hash {
            reply.integer(score as i64);
        }
        if search.with_place {
            answer_place(Place::of(score), reply);
        }
    }
    Ok(())
}

pub fn geosearchstore<'t>(
    work: &mut Work<'t>,
    args: &[Arg<'t>],
    reply: &mut Reply<'_>,
) -> Result<(), Stop> {
    let [to, from, args @ ..] = args else { return Err(Stop::Malformed) };
    store(work, (to, from), args, Form::Storing, reply)
}

/// Stores the members of the second key that `args` ask for as the first; answers their number.
pub fn store<'t>(
    work: &mut Work<'t>,
    (to, from): (&Arg<'t>, &Arg<'t>),
    args: &[Arg<'t>],
    form: Form,
    reply: &mut Reply<'_>,
) -> Result<(), Stop> {
    let from = work.typed(from, &TYPE)?;
    let old = work.contents(from);
    let members = parse(&old)?;
    let search = match Search::parse(args, &members, form)? {
        Ok(search) => search,
        Err(text) => {
            reply.error(&text);
            return Ok(());
        }
    };
    let all = search.run(&members);
    let mut kept: Vec<Member<'_>> = Vec::with_capacity(all.len());
    for (away, (score, member)) in all {
        kept.push((if search.stores_distance { away } else { score }, member));
    }
    kept.sort_by(order);
    reply.integer(kept.len() as i64);
    let to = work.find(to)?;
    work.put_new(to, &TYPE, pack(&kept))
}
