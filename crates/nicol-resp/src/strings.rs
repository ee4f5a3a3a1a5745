//! GETRANGE, SETRANGE, INCRBYFLOAT and RENAME over the records of a transaction.

use std::borrow::Cow;

use super::encode::Reply;
use super::number::{Decimal, NOT_AN_INTEGER, NotADecimal, parse_i64};
use super::plan::{Arg, Op};
use super::procedure::{Stop, TOO_LONG, Work};

const NOT_A_FLOAT: &[u8] = b"ERR value is not a valid float";
const TOO_LARGE: &[u8] = b"ERR increment would produce NaN or Infinity";

/// The bytes from `first` to `last` of a value of `len` bytes, where negative positions count from
/// its end.
fn range(first: i64, last: i64, len: usize) -> std::ops::Range<usize> {
    let len = len as i64;
    if first < 0 && last < 0 && first > last {
        return 0..0;
    }
    let from_start = |at: i64| if at < 0 { at.saturating_add(len).max(0) } else { at };
    let (first, last) = (from_start(first), from_start(last).min(len - 1));
    if first > last { 0..0 } else { first as usize..last as usize + 1 }
}

impl<'t> Work<'t> {
    /// The length of a value; of none, 0.
    pub(super) fn len(&mut self, key: &Arg<'t>) -> Result<usize, Stop> {
        let slot = self.slot(key)?;
        Ok(self.slots[slot].value.as_ref().map_or(0, |value| value.len()))
    }

    pub(super) fn get_range(
        &mut self,
        key: &Arg<'t>,
        bounds: [&[u8]; 2],
        reply: &mut Reply<'_>,
    ) -> Result<(), Stop> {
        let [Some(first), Some(last)] = bounds.map(parse_i64) else {
            reply.error(NOT_AN_INTEGER);
            return Ok(());
        };
        let slot = self.slot(key)?;
        let value = self.slots[slot].value.as_deref().unwrap_or_default();
        let range = range(first, last, value.len());
        self.spend(range.len())?;
        reply.bulk(&self.slots[slot].value.as_deref().unwrap_or_default()[range]);
        Ok(())
    }

    pub(super) fn set_range(
        &mut self,
        key: &Arg<'t>,
        offset: &[u8],
        patch: &[u8],
        reply: &mut Reply<'_>,
    ) -> Result<(), Stop> {
        let Some(offset) = parse_i64(offset) else {
            reply.error(NOT_AN_INTEGER);
            return Ok(());
        };
        if offset < 0 {
            reply.error(b"ERR offset is out of range");
            return Ok(());
        }
        let slot = self.slot(key)?;
        let len = self.slots[slot].value.as_ref().map_or(0, |value| value.len());
        if patch.is_empty() {
            reply.integer(len as i64);
            return Ok(());
        }
        let end = (offset as usize).saturating_add(patch.len());
        if end > self.plan.value_max {
            reply.error(TOO_LONG);
            return Ok(());
        }
        self.spend(end.max(len))?;
        let mut value = self.slots[slot].value.take().unwrap_or(Cow::Borrowed(&[])).into_owned();
        value.resize(end.max(len), 0);
        value[end - patch.len()..end].copy_from_slice(patch);
        reply.integer(value.len() as i64);
        self.change(slot, Some(Cow::Owned(value)))
    }

    pub(super) fn add_float(
        &mut self,
        key: &Arg<'t>,
        amount: &[u8],
        reply: &mut Reply<'_>,
    ) -> Result<(), Stop> {
        let slot = self.slot(key)?;
        let current = self.slots[slot].value.as_deref().map_or(Ok(Decimal::ZERO), Decimal::parse);
        let sum = match (current, Decimal::parse(amount)) {
            (Ok(current), Ok(amount)) => current.checked_add(amount),
            (Err(NotADecimal::Malformed), _) | (_, Err(NotADecimal::Malformed)) => {
                reply.error(NOT_A_FLOAT);
                return Ok(());
            }
            (Err(NotADecimal::TooLarge), _) | (_, Err(NotADecimal::TooLarge)) => None,
        };
        let Some(sum) = sum else {
            reply.error(TOO_LARGE);
            return Ok(());
        };
        let text = sum.to_string().into_bytes();
        reply.bulk(&text);
        self.store(slot, Cow::Owned(text))
    }

    pub(super) fn rename(
        &mut self,
        op: Op,
        from: &Arg<'t>,
        to: &Arg<'t>,
        reply: &mut Reply<'_>,
    ) -> Result<(), Stop> {
        let (from, to) = (self.slot(from)?, self.slot(to)?);
        if self.slots[from].value.is_none() {
            reply.error(b"ERR no such key");
            return Ok(());
        }
        let refused = op == Op::RenameNx && self.slots[to].value.is_some();
        if from != to && !refused {
            self.spend(self.slots[from].value.as_ref().map_or(0, |value| value.len()))?;
            let (value, expires) = (self.slots[from].value.take(), self.slots[from].expires);
            self.replace(from, None, None)?;
            self.replace(to, value, expires)?;
        }
        match op {
            Op::Rename => reply.status("OK"),
            _ => reply.integer(i64::from(!refused)),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::range;

    #[test]
    fn ranges_are_cut_to_the_value() {
        let cases = [
            ((0, -1), 0..5),
            ((1, 3), 1..4),
            ((-3, -2), 2..4),
            ((-100, 100), 0..5),
            ((4, 2), 0..0),
            ((5, 9), 0..0),
            ((-1, -2), 0..0),
            ((i64::MIN, i64::MAX), 0..5),
            ((i64::MAX, i64::MIN), 0..0),
        ];
        for ((first, last), expected) in cases {
            assert_eq!(range(first, last, 5), expected, "{first} {last}");
        }
        assert_eq!(range(0, -1, 0), 0..0);
    }
}
