//! BITFIELD: integers of any width in a string.

use std::borrow::Cow;

use super::bitmap::{BAD_OFFSET, BYTES_MAX, TOO_LONG, integer};
use super::errors::SYNTAX;
use super::key_places::KeyPlaces;
use super::number::parse_i64;
use super::spec::{GROW, READ, Run, Spec, as_sent};
use super::string::TYPE;
use crate::connection::encode::Reply;
use crate::transactions::plan::Arg;
use crate::transactions::work::{Stop, Work};

const BAD_TYPE: &[u8] =
    b"ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not \
                          supported but i64 is.";

pub const COMMANDS: &[Spec] = &[
    fields("bitfield", GROW, bitfield::<false>, "Read and change integers in a string"),
    fields("bitfield_ro", READ, bitfield::<true>, "Read integers in a string"),
];

const fn fields(
    name: &'static str,
    flags: &'static [&'static str],
    run: Run,
    summary: &'static str,
) -> Spec {
    Spec::data("bitmap", name, -2, (flags, KeyPlaces::ONE), (as_sent, run), summary)
}

/// The type of an integer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Width {
    signed: bool,
    /// 1 to 64; up to 63 of those without a sign.
    bits: u32,
}

/// What becomes of a result that does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Overflow {
    Wrap,
    Saturate,
    Fail,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Get,
    Set(i64),
    Add(i64),
}

/// One operation on one integer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Field {
    width: Width,
    /// The place of its first bit.
    offset: u64,
    change: Change,
    overflow: Overflow,
}

impl Width {
    fn parse(arg: &Arg<'_>) -> Result<Self, Stop> {
        let (signed, digits) = match arg.bytes {
            [b'i', digits @ ..] => (true, digits),
            [b'u', digits @ ..] => (false, digits),
            _ => return Err(Stop::Error(BAD_TYPE)),
        };
        let bits = parse_i64(digits).and_then(|bits| u32::try_from(bits).ok());
        let bits = bits.filter(|bits| (1..=63 + u32::from(signed)).contains(bits));
        Ok(Self { signed, bits: bits.ok_or(BAD_TYPE)? })
    }

    /// The least and the greatest integer.
    fn range(self) -> (i128, i128) {
        match self.signed {
            true => (-(1 << (self.bits - 1)), (1 << (self.bits - 1)) - 1),
            false => (0, (1 << self.bits) - 1),
        }
    }

    /// The place that an argument names: of a bit, or behind a number sign of the nth integer.
    fn offset(self, arg: &Arg<'_>) -> Result<u64, Stop> {
        let (digits, unit) = match arg.bytes {
            [b'#', digits @ ..] => (digits, i64::from(self.bits)),
            digits => (digits, 1),
        };
        let offset = parse_i64(digits).and_then(|number| number.checked_mul(unit));
        let offset = offset.and_then(|offset| u64::try_from(offset).ok());
        Ok(offset.filter(|offset| offset / 8 < BYTES_MAX).ok_or(BAD_OFFSET)?)
    }

    /// The integer of these bits.
    fn of_bits(self, bits: u64) -> i128 {
        let number = i128::from(bits) & ((1 << self.bits) - 1);
        let negative = self.signed && number >> (self.bits - 1) != 0;
        if negative { number - (1 << self.bits) } else { number }
    }
}

impl Field {
    /// Bytes up to its last bit.
    fn end(&self) -> usize {
        (self.offset + u64::from(self.width.bits)).div_ceil(8) as usize
    }

    fn read(&self, value: &[u8]) -> i128 {
        let mut bits = 0;
        for at in self.offset..self.offset + u64::from(self.width.bits) {
            let byte = value.get((at / 8) as usize).copied().unwrap_or(0);
            bits = bits << 1 | u64::from(byte >> (7 - at % 8) & 1);
        }
        self.width.of_bits(bits)
    }

    fn write(&self, value: &mut [u8], number: i128) {
        let bits = self.width.bits;
        for at in 0..bits {
            let (place, bit) = (self.offset + u64::from(at), (number >> (bits - 1 - at) & 1) as u8);
            let (byte, shift) = (&mut value[(place / 8) as usize], 7 - place % 8);
            *byte = *byte & !(1 << shift) | bit << shift;
        }
    }

    /// Does what is asked and returns the answer; `None`: the result does not fit, and nothing is
    /// changed.
    fn apply(&self, value: &mut [u8]) -> Option<i128> {
        let old = self.read(value);
        let new = match self.change {
            Change::Get => return Some(old),
            Change::Set(number) if self.width.signed => i128::from(number),
            // Read as a number without a sign.
            Change::Set(number) => i128::from(number as u64),
            Change::Add(number) => old + i128::from(number),
        };
        let (least, greatest) = self.width.range();
        let new = match self.overflow {
            _ if (least..=greatest).contains(&new) => new,
            Overflow::Wrap => self.width.of_bits(new as u64),
            Overflow::Saturate => new.clamp(least, greatest),
            Overflow::Fail => return None,
        };
        self.write(value, new);
        Some(if matches!(self.change, Change::Add(_)) { new } else { old })
    }
}

fn parse<'t>(mut args: &[Arg<'t>]) -> Result<Vec<Field>, Stop> {
    let (mut fields, mut overflow) = (Vec::new(), Overflow::Wrap);
    while let [name, rest @ ..] = args {
        let change: fn(i64) -> Change = match (&*name.bytes.to_ascii_lowercase(), rest) {
            (b"get", [_, _, ..]) => |_| Change::Get,
            (b"set", [_, _, _, ..]) => Change::Set,
            (b"incrby", [_, _, _, ..]) => Change::Add,
            (b"overflow", [how, rest @ ..]) => {
                overflow = match &*how.bytes.to_ascii_lowercase() {
                    b"wrap" => Overflow::Wrap,
                    b"sat" => Overflow::Saturate,
                    b"fail" => Overflow::Fail,
                    _ => return Err(Stop::Error(b"ERR Invalid OVERFLOW type specified")),
                };
                args = rest;
                continue;
            }
            _ => return Err(Stop::Error(SYNTAX)),
        };
        let width = Width::parse(&rest[0])?;
        let offset = width.offset(&rest[1])?;
        let change = match change(0) {
            Change::Get => Change::Get,
            _ => change(integer(&rest[2])?),
        };
        fields.push(Field { width, offset, change, overflow });
        args = &rest[2 + usize::from(change != Change::Get)..];
    }
    Ok(fields)
}

fn bitfield<'t, const READS: bool>(
    work: &mut Work<'t>,
    args: &[Arg<'t>],
    reply: &mut Reply<'_>,
) -> Result<(), Stop> {
    let [key, operations @ ..] = args else { return Err(Stop::Malformed) };
    let fields = parse(operations)?;
    let written = fields.iter().filter(|field| field.change != Change::Get);
    let Some(end) = written.map(Field::end).max() else {
        let found = work.typed(key, &TYPE)?;
        let value = work.value(found).unwrap_or_default();
        reply.array(fields.len());
        fields.iter().for_each(|field| reply.integer(field.read(value) as i64));
        return Ok(());
    };
    if READS {
        return Err(Stop::Error(b"ERR BITFIELD_RO only supports the GET subcommand"));
    }
    let found = work.typed(key, &TYPE)?;
    let len = work.len(found).max(end);
    if len > work.value_max() {
        return Err(Stop::Error(TOO_LONG));
    }
    work.spend_on_value(len)?;
    let mut value = work.take(found);
    value.resize(len, 0);
    reply.array(fields.len());
    for field in &fields {
        match field.apply(&mut value) {
            Some(number) => reply.integer(number as i64),
            None => reply.null(),
        }
    }
    work.change(found, Some(Cow::Owned(value)))
}
