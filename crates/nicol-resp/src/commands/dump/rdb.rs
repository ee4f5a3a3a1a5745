//! Objects as they stand in Redis' files: a type, then lengths and strings.

use super::elements::{Reader, write_length, write_string};
use super::packs::{Elements, intset, listpack, ziplist};
use super::streams::{self, Form};
use crate::commands::float::parse_double;
use crate::commands::kind::Type;
use crate::commands::packed::{elements, pack};
use crate::commands::{hash, list, set, sorted_set, stream, string};
use crate::transactions::work::Stop;

/// Types of objects.
mod of {
    pub const STRING: u8 = 0;
    pub const LIST: u8 = 1;
    pub const SET: u8 = 2;
    /// With scores as texts.
    pub const SORTED_SET_1: u8 = 3;
    pub const HASH: u8 = 4;
    pub const SORTED_SET: u8 = 5;
    pub const LIST_ZIPLIST: u8 = 10;
    pub const SET_INTSET: u8 = 11;
    pub const SORTED_SET_ZIPLIST: u8 = 12;
    pub const HASH_ZIPLIST: u8 = 13;
    pub const LIST_QUICKLIST: u8 = 14;
    pub const HASH_LISTPACK: u8 = 16;
    pub const SORTED_SET_LISTPACK: u8 = 17;
    pub const LIST_QUICKLIST_2: u8 = 18;
    pub const STREAM: u8 = 15;
    pub const STREAM_COUNTED: u8 = 19;
    pub const SET_LISTPACK: u8 = 20;
    pub const STREAM_ACTIVE: u8 = 21;
}

/// The object of a value of type `kind`. Redis reads it whatever the form that it would choose.
pub fn write(kind: &Type, value: &[u8]) -> Result<Vec<u8>, Stop> {
    let mut out = Vec::with_capacity(value.len() + 16);
    let all = |out: &mut Vec<u8>, width: usize| {
        let all = elements(value)?;
        write_length(out, all.len() / width);
        all.iter().for_each(|element| write_string(out, element));
        Ok::<_, Stop>(())
    };
    match kind.number {
        number if number == string::TYPE.number => {
            out.push(of::STRING);
            write_string(&mut out, value);
        }
        number if number == list::TYPE.number => {
            out.push(of::LIST);
            all(&mut out, 1)?;
        }
        number if number == set::TYPE.number => {
            out.push(of::SET);
            all(&mut out, 1)?;
        }
        number if number == hash::TYPE.number => {
            out.push(of::HASH);
            all(&mut out, 2)?;
        }
        number if number == sorted_set::TYPE.number => {
            out.push(of::SORTED_SET);
            let members = sorted_set::parse(value)?;
            write_length(&mut out, members.len());
            // From the greatest on, as Redis: it then inserts each at the head.
            for (score, member) in members.iter().rev() {
                write_string(&mut out, member);
                out.extend_from_slice(&score.to_le_bytes());
            }
        }
        number if number == stream::TYPE.number => {
            out.push(of::STREAM_COUNTED);
            streams::write(&mut out, value)?;
        }
        _ => return Err(Stop::Malformed),
    }
    Ok(out)
}

/// The type and the value of an object, whose strings have `max` bytes at most. `None`: it is not
/// in the format, or of a type that there is not.
pub fn read(object: &[u8], max: usize) -> Option<(&'static Type, Vec<u8>)> {
    let (kind, body) = object.split_first()?;
    let mut from = Reader::new(body, max);
    let read = match *kind {
        of::STRING => (&string::TYPE, from.string()?),
        of::LIST => (&list::TYPE, list_of(from.strings(1)?)?),
        of::LIST_ZIPLIST => (&list::TYPE, list_of(ziplist(&from.string()?)?)?),
        of::LIST_QUICKLIST => {
            let nodes = from.strings(1)?;
            let packs: Option<Vec<_>> = nodes.iter().map(|node| ziplist(node)).collect();
            (&list::TYPE, list_of(packs?.concat())?)
        }
        of::LIST_QUICKLIST_2 => (&list::TYPE, list_of(from.quicklist()?)?),
        of::SET => (&set::TYPE, set_of(from.strings(1)?)?),
        of::SET_INTSET => (&set::TYPE, set_of(intset(&from.string()?)?)?),
        of::SET_LISTPACK => (&set::TYPE, set_of(listpack(&from.string()?)?)?),
        of::HASH => (&hash::TYPE, hash_of(from.strings(2)?)?),
        of::HASH_ZIPLIST => (&hash::TYPE, hash_of(ziplist(&from.string()?)?)?),
        of::HASH_LISTPACK => (&hash::TYPE, hash_of(listpack(&from.string()?)?)?),
        of::SORTED_SET => (&sorted_set::TYPE, sorted_set_of(from.scored(Reader::score)?)?),
        of::SORTED_SET_1 => (&sorted_set::TYPE, sorted_set_of(from.scored(Reader::decimal)?)?),
        of::SORTED_SET_ZIPLIST => {
            (&sorted_set::TYPE, sorted_set_of(paired(ziplist(&from.string()?)?)?)?)
        }
        of::SORTED_SET_LISTPACK => {
            (&sorted_set::TYPE, sorted_set_of(paired(listpack(&from.string()?)?)?)?)
        }
        of::STREAM => (&stream::TYPE, streams::read(&mut from, Form::First)?),
        of::STREAM_COUNTED => (&stream::TYPE, streams::read(&mut from, Form::Counted)?),
        of::STREAM_ACTIVE => (&stream::TYPE, streams::read(&mut from, Form::Active)?),
        _ => return None,
    };
    from.is_over().then_some(read)
}

/// No collection is empty.
fn list_of(all: Elements) -> Option<Vec<u8>> {
    (!all.is_empty()).then(|| pack(&all))
}

/// Whether there is one, and none is there twice.
fn are_distinct<'a>(names: impl Iterator<Item = &'a Vec<u8>>) -> bool {
    let mut names: Vec<_> = names.collect();
    names.sort_unstable();
    !names.is_empty() && names.windows(2).all(|pair| pair[0] != pair[1])
}

fn set_of(all: Elements) -> Option<Vec<u8>> {
    are_distinct(all.iter()).then(|| pack(&all))
}

fn hash_of(all: Elements) -> Option<Vec<u8>> {
    let whole = all.len().is_multiple_of(2) && are_distinct(all.iter().step_by(2));
    whole.then(|| pack(&all))
}

fn sorted_set_of(all: Vec<(f64, Vec<u8>)>) -> Option<Vec<u8>> {
    let numbers = all.iter().all(|(score, _)| !score.is_nan());
    if !numbers || !are_distinct(all.iter().map(|(_, member)| member)) {
        return None;
    }
    let mut members: Vec<_> = all.iter().map(|(score, member)| (*score, &member[..])).collect();
    members.sort_by(sorted_set::order);
    Some(sorted_set::pack(&members))
}

/// Members, each with its score behind it.
fn paired(all: Elements) -> Option<Vec<(f64, Vec<u8>)>> {
    let (pairs, rest) = all.as_chunks::<2>();
    let pair = |[member, score]: &[Vec<u8>; 2]| Some((parse_double(score)?, member.clone()));
    if rest.is_empty() { pairs.iter().map(pair).collect() } else { None }
}

#[cfg(test)]
mod tests {
    use nicol_core::rng::{Purpose, Stream};

    use super::*;

    const MAX: usize = 1 << 20;

    #[test]
    fn values_come_back_and_damaged_objects_are_never_taken_for_longer_ones() {
        let long = vec![b'x'; 20_000];
        let texts = [&b"a"[..], b"-7", b"300", b"70000", b"5000000000", b"", &long, b"01"];
        let scores = [&b"m"[..], &1.5_f64.to_le_bytes(), b"n", &2.0_f64.to_le_bytes()];
        let values = [
            (&string::TYPE, b"10".to_vec()),
            (&string::TYPE, Vec::new()),
            (&list::TYPE, pack(&texts)),
            (&set::TYPE, pack(&texts)),
            (&hash::TYPE, pack(&texts)),
            (&sorted_set::TYPE, pack(&scores)),
        ];
        let mut random = Stream::new(3, Purpose::Test, 0);
        for (kind, value) in values {
            let object = write(kind, &value).unwrap();
            let (found, read_back) = read(&object, MAX).unwrap();
            assert_eq!((found.name, &read_back), (kind.name, &value));
            for _ in 0..2_000 {
                let mut damaged = object.clone();
                let at = random.below(damaged.len() as u64) as usize;
                damaged[at] = random.bits() as u8;
                damaged.truncate(damaged.len() - random.below(3) as usize);
                if let Some((kind, value)) = read(&damaged, MAX) {
                    assert!(value.len() < 3 * object.len() + 64 || kind.number == 0);
                }
            }
        }
        assert!(read(&[of::LIST, 0], MAX).is_none(), "no list is empty");
        assert!(read(&[of::SET, 2, 1, b'a', 1, b'a'], MAX).is_none(), "a member twice");
        assert!(read(&[of::SORTED_SET_1, 1, 1, b'a', 2, b'1', b'5'], MAX).is_some());
    }
}
