//! Bits of strings: SETBIT, BITCOUNT, BITOP and their kin.

use std::borrow::Cow;

use super::key_places::KeyPlaces;
use super::number::{NOT_AN_INTEGER, parse_i64};
use super::spec::{GROW, Plan, READ, Run, SLOW_READ, Spec, as_sent};
use super::string::TYPE;
use crate::commands::errors::SYNTAX;
use crate::connection::encode::Reply;
use crate::connection::parse::Command;
use crate::transactions::plan::{Arg, PlanBuilder};
use crate::transactions::planner::Planner;
use crate::transactions::work::{Stop, Work};

const AFTER_FIRST: KeyPlaces = KeyPlaces { first: 2, ..KeyPlaces::ALL };

pub const COMMANDS: &[Spec] = &[
    bits(
        "bitcount",
        -2,
        (SLOW_READ, KeyPlaces::ONE),
        (as_sent, bitcount),
        "Count the bits that are set",
    ),
    bits("bitop", -4, (GROW, AFTER_FIRST), (plan_bitop, bitop), "Combine the bits of strings"),
    bits(
        "bitpos",
        -3,
        (SLOW_READ, KeyPlaces::ONE),
        (as_sent, bitpos),
        "Find the first bit set or clear",
    ),
    bits("getbit", 3, (READ, KeyPlaces::ONE), (as_sent, getbit), "Get a bit of a string"),
    bits("setbit", 4, (GROW, KeyPlaces::ONE), (as_sent, setbit), "Set or clear a bit of a string"),
];

const fn bits(
    name: &'static str,
    arity: i32,
    of: (&'static [&'static str], KeyPlaces),
    how: (Plan, Run),
    summary: &'static str,
) -> Spec {
    Spec::data("bitmap", name, arity, of, how, summary)
}

pub const BAD_OFFSET: &[u8] = b"ERR bit offset is not an integer or out of range";
pub const TOO_LONG: &[u8] = b"ERR string exceeds maximum allowed size (proto-max-bulk-len)";

/// Bytes of the longest string of Redis, whose bits can be named.
pub const BYTES_MAX: u64 = 512 << 20;

pub fn integer(arg: &Arg<'_>) -> Result<i64, Stop> {
    parse_i64(arg.bytes).ok_or(Stop::Error(NOT_AN_INTEGER))
}

/// Reads the place of a bit: of its byte, and how far to shift it.
fn place(arg: &Arg<'_>) -> Result<(usize, u32), Stop> {
    let offset = parse_i64(arg.bytes).and_then(|offset| u64::try_from(offset).ok());
    let offset = offset.filter(|offset| offset / 8 < BYTES_MAX).ok_or(BAD_OFFSET)?;
    Ok(((offset / 8) as usize, 7 - (offset % 8) as u32))
}

fn getbit<'t>(work: &mut Work<'t>, args: &[Arg<'t>], reply: &mut Reply<'_>) -> Result<(), Stop> {
    let [key, offset] = args else { return Err(Stop::Malformed) };
    let (byte, shift) = place(offset)?;
    let found = work.typed(key, &TYPE)?;
    let value = work.value(found).unwrap_or_default();
    reply.integer(value.get(byte).map_or(0, |byte| i64::from(byte >> shift & 1)));
    Ok(())
}

fn setbit<'t>(work: &mut Work<'t>, args: &[Arg<'t>], reply: &mut Reply<'_>) -> Result<(), Stop> {
    let [key, offset, bit] = args else { return Err(Stop::Malformed) };
    let (byte, shift) = place(offset)?;
    let bit = match bit.bytes {
        b"0" => 0,
        b"1" => 1,
        _ => return Err(Stop::Error(b"ERR bit is not an integer or out of range")),
    };
    let found = work.typed(key, &TYPE)?;
    let len = work.len(found).max(byte + 1);
    if len > work.value_max() {
        return Err(Stop::Error(TOO_LONG));
    }
    work.spend_on_value(len)?;
    let mut value = work.take(found);
    value.resize(len, 0);
    reply.integer(i64::from(value[byte] >> shift & 1));
    value[byte] = value[byte] & !(1 << shift) | bit << shift;
    work.change(found, Some(Cow::Owned(value)))
}

/// A range of bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bits {
    first: usize,
    /// Behind the last one.
    end: usize,
}

impl Bits {
    /// The bits from `first` to `last` of a value of `len` bytes, where negative places count from
    /// the end; in units of bytes or bits.
    fn range(first: i64, last: i64, len: usize, in_bits: bool) -> Self {
        let total = if in_bits { len as i64 * 8 } else { len as i64 };
        let from_end = |at: i64| if at < 0 { at.saturating_add(total).max(0) } else { at };
        let (first, last) = (from_end(first), from_end(last).min(total - 1));
        if first > last {
            return Self { first: 0, end: 0 };
        }
        let unit = if in_bits { 1 } else { 8 };
        Self { first: first as usize * unit, end: (last as usize + 1) * unit }
    }

    /// The byte at `place` of `value` without the bits outside.
    fn masked(self, value: &[u8], place: usize) -> u8 {
        let above = self.first.saturating_sub(place * 8).min(8) as u32;
        let below = (place * 8 + 8).saturating_sub(self.end).min(8) as u32;
        let mask = (0xff_u16 >> above) as u8 & (0xff_u16 << below) as u8;
        value[place] & mask
    }

    /// The places of its bytes.
    fn bytes(self) -> std::ops::Range<usize> {
        self.first / 8..self.end.div_ceil(8)
    }
}

/// Reads BYTE or BIT: whether the range is in bits.
fn unit(word: Option<&Arg<'_>>) -> Result<bool, Stop> {
    match word.map(|word| word.bytes.to_ascii_lowercase()).as_deref() {
        None | Some(b"byte") => Ok(false),
        Some(b"bit") => Ok(true),
        Some(_) => Err(Stop::Error(SYNTAX)),
    }
}

fn bitcount<'t>(work: &mut Work<'t>, args: &[Arg<'t>], reply: &mut Reply<'_>) -> Result<(), Stop> {
    let (key, options) = args.split_first().ok_or(Stop::Malformed)?;
    let found = work.typed(key, &TYPE)?;
    let Some(value) = work.value(found) else {
        reply.integer(0);
        return Ok(());
    };
    let bits = match options {
        [] => Bits { first: 0, end: value.len() * 8 },
        [first, last, rest @ ..] if rest.len() < 2 => {
            let (first, last) = (integer(first)?, integer(last)?);
            if first < 0 && last < 0 && first > last {
                reply.integer(0);
                return Ok(());
            }
            Bits::range(first, last, value.len(), unit(rest.first())?)
        }
        _ => return Err(Stop::Error(SYNTAX)),
    };
    let ones = bits.bytes().map(|place| bits.masked(value, place).count_ones());
    reply.integer(ones.map(i64::from).sum());
    Ok(())
}

fn bitpos<'t>(work: &mut Work<'t>, args: &[Arg<'t>], reply: &mut Reply<'_>) -> Result<(), Stop> {
    let [key, bit, options @ ..] = args else { return Err(Stop::Malformed) };
    let wanted = match integer(bit)? {
        0 => false,
        1 => true,
        _ => return Err(Stop::Error(b"ERR The bit argument must be 1 or 0.")),
    };
    let found = work.typed(key, &TYPE)?;
    let Some(value) = work.value(found) else {
        reply.integer(if wanted { -1 } else { 0 });
        return Ok(());
    };
    let (bits, has_end) = match options {
        [] => (Bits::range(0, -1, value.len(), false), false),
        [first] => (Bits::range(integer(first)?, -1, value.len(), false), false),
        [first, last, rest @ ..] if rest.len() < 2 => {
            let first = integer(first)?;
            let in_bits = unit(rest.first())?;
            (Bits::range(first, integer(last)?, value.len(), in_bits), true)
        }
        _ => return Err(Stop::Error(SYNTAX)),
    };
    let is_wanted = |at: &usize| (value[at / 8] >> (7 - at % 8) & 1 == 1) == wanted;
    // Bytes without a bit that is wanted are passed over whole.
    let empty = if wanted { 0 } else { 0xff };
    let mut places = bits.bytes().filter(|place| value[*place] != empty).flat_map(|place| {
        (bits.first.max(place * 8)..bits.end.min(place * 8 + 8)).filter(is_wanted)
    });
    match places.next() {
        Some(place) => reply.integer(place as i64),
        // Behind the end of a string stand zeros, if the client has given no end.
        None if !wanted && !has_end && bits.end > bits.first => reply.integer(bits.end as i64),
        None => reply.integer(-1),
    }
    Ok(())
}

/// BITOP: its operation stands behind the keys, the first of which is written.
fn plan_bitop(
    planner: &Planner<'_>,
    plan: &mut PlanBuilder,
    spec: &'static Spec,
    command: &Command<'_>,
) -> Result<(), Vec<u8>> {
    let name = command.arg(1).to_ascii_lowercase();
    let operation = match &*name {
        b"and" => b'&',
        b"or" => b'|',
        b"xor" => b'^',
        b"not" => b'!',
        _ => return Err(SYNTAX.to_vec()),
    };
    if operation == b'!' && command.len() != 4 {
        return Err(b"ERR BITOP NOT must be called with a single source key.".to_vec());
    }
    spec.begin(plan);
    planner.key(plan, command.arg(2));
    command.args(3).for_each(|key| planner.source(plan, key));
    plan.plain(&[operation]);
    Ok(())
}

fn bitop<'t>(work: &mut Work<'t>, args: &[Arg<'t>], reply: &mut Reply<'_>) -> Result<(), Stop> {
    let [to, keys @ .., operation] = args else { return Err(Stop::Malformed) };
    let &[operation] = operation.bytes else { return Err(Stop::Malformed) };
    let mut values = Vec::with_capacity(keys.len());
    for key in keys {
        let found = work.typed(key, &TYPE)?;
        work.spend(work.len(found))?;
        values.push(work.contents(found));
    }
    let len = values.iter().map(|value| value.len()).max().unwrap_or(0);
    let (first, others) = values.split_first().ok_or(Stop::Malformed)?;
    let mut result = first.to_vec();
    result.resize(len, 0);
    for other in others {
        let padded = other.iter().copied().chain(std::iter::repeat(0));
        for (byte, other) in result.iter_mut().zip(padded) {
            *byte = match operation {
                b'&' => *byte & other,
                b'|' => *byte | other,
                _ => *byte ^ other,
            };
        }
    }
    if operation == b'!' {
        result.iter_mut().for_each(|byte| *byte = !*byte);
    }
    reply.integer(len as i64);
    let to = work.find(to)?;
    work.put_new(to, &TYPE, result)
}

#[cfg(test)]
mod tests {
    use super::Bits;

    #[test]
    fn ranges_of_bits_are_cut_to_the_value() {
        let range = |first, last, in_bits| {
            let Bits { first, end } = Bits::range(first, last, 3, in_bits);
            first..end
        };
        assert_eq!((range(0, -1, false), range(1, 1, false)), (0..24, 8..16));
        assert_eq!((range(5, 30, true), range(-2, -1, true)), (5..24, 22..24));
        assert_eq!((range(-1, -2, false), range(3, 9, false)), (0..0, 0..0));
        let bits = Bits { first: 3, end: 13 };
        let value = [0xff, 0xff, 0xff];
        assert_eq!([0, 1].map(|place| bits.masked(&value, place)), [0b0001_1111, 0b1111_1000]);
        assert_eq!(bits.bytes(), 0..2);
    }
}
