//! Chains as bytes.

use super::{Data, OPERATIONS_MAX, Primitive, Step, Target};
use crate::ids::{FreeListKey, RKey};
use crate::memory::{Compare, MaskedSwap};
use crate::wire::{Malformed, Reader, Writer};

/// Bytes before the first operation: the form, and how many operations follow.
const HEADER: usize = 2;
/// Bytes of every operation: code, flags, rkey, address, length. What follows them is operands.
pub(super) const STEP_HEADER: usize = 18;
/// The reply is the output of the one operation, or its error.
pub(super) const FORM_VERB: u8 = 0;
/// The reply has a record per operation.
pub(super) const FORM_CHAIN: u8 = 1;
/// A verb that is executed by what executes chains.
pub(super) const FORM_VERB_LIKE_CHAIN: u8 = 2;
const _: () = assert!(OPERATIONS_MAX <= u8::MAX as usize, "the count is one byte");
/// Bytes that a chain has room for at first, beyond the data that it is said to carry: as many as a
/// PUT of PRISM-KV needs, so that it does not grow.
const ROOM: usize = 256;

mod code {
    pub const READ: u8 = 0;
    pub const WRITE: u8 = 1;
    pub const COMPARE_SWAP: u8 = 2;
    pub const FETCH_ADD: u8 = 3;
    pub const ALLOCATE: u8 = 4;
}

/// An operation's flags. The paper's are the first three and the two of chaining [PRISM21 4.2].
mod flag {
    pub const INDIRECT: u8 = 1 << 0;
    pub const DATA_INDIRECT: u8 = 1 << 1;
    pub const BOUNDED: u8 = 1 << 2;
    pub const CONDITIONAL: u8 = 1 << 3;
    pub const REDIRECT: u8 = 1 << 4;
    /// The swap operand is an address.
    pub const SWAP_INDIRECT: u8 = 1 << 5;
    /// Masks follow the operands; else every bit counts.
    pub const MASKED: u8 = 1 << 6;
    /// The swap operand is the compare operand and does not follow it (the paper's form, AMB-09).
    pub const ONE_OPERAND: u8 = 1 << 7;
}

/// Flags of the paper's header. [PRISM21 4.2]
pub const PAPER_FLAGS: u32 = {
    use flag::*;
    (INDIRECT | DATA_INDIRECT | BOUNDED | CONDITIONAL | REDIRECT).count_ones()
};

/// The flags that an operation may carry.
const fn allowed(code: u8) -> u8 {
    use flag::*;
    match code {
        code::READ => INDIRECT | BOUNDED | CONDITIONAL | REDIRECT,
        code::WRITE => INDIRECT | BOUNDED | DATA_INDIRECT | CONDITIONAL,
        code::COMPARE_SWAP => !BOUNDED,
        code::FETCH_ADD => INDIRECT | CONDITIONAL | REDIRECT,
        _ => CONDITIONAL | REDIRECT,
    }
}

/// A chain under construction, in a buffer that is kept from chain to chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    pub(super) body: Vec<u8>,
}

impl Default for Chain {
    fn default() -> Self {
        Self::carrying(0)
    }
}

impl Chain {
    /// A chain without operations, with room for so many bytes of data to write.
    pub fn carrying(data: usize) -> Self {
        let mut body = Vec::with_capacity(ROOM + data);
        body.extend([FORM_CHAIN, 0]);
        Self { body }
    }

    /// Takes all operations out and keeps the buffer.
    pub fn clear(&mut self) {
        self.body.truncate(HEADER);
        self.body[1] = 0;
    }

    /// Appends an operation. What a target would refuse (a redirected WRITE, a bounded
    /// compare-and-swap, too many bytes) is refused there, as a result.
    ///
    /// # Panics
    /// Beyond [`OPERATIONS_MAX`] operations.
    pub fn push(&mut self, step: Step<'_>) -> &mut Self {
        assert!(self.len() < OPERATIONS_MAX, "a chain has at most {OPERATIONS_MAX} operations");
        self.body[1] += 1;
        step.emit(&mut Writer::new(&mut self.body));
        self
    }

    /// How many operations it has.
    pub fn len(&self) -> usize {
        usize::from(self.body[1])
    }

    /// True if it has no operation. Such a chain is malformed.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<'a> Step<'a> {
    fn flags(&self) -> u8 {
        let when = |set: bool, flag: u8| if set { flag } else { 0 };
        let target = |target| match target {
            Target::At(_) => 0,
            Target::Indirect(_) => flag::INDIRECT,
            Target::Bounded(_) => flag::INDIRECT | flag::BOUNDED,
        };
        let own = match self.primitive {
            Primitive::Read { from, .. } => target(from),
            Primitive::Write { to, data } => {
                target(to) | when(matches!(data, Data::From { .. }), flag::DATA_INDIRECT)
            }
            Primitive::CompareSwap { target: to, swap, compare_at, swap_at } => {
                let same = match (compare_at, swap_at) {
                    (None, None) => swap.compare == swap.swap,
                    (compare_at, swap_at) => compare_at == swap_at,
                };
                target(to)
                    | when(compare_at.is_some(), flag::DATA_INDIRECT)
                    | when(swap_at.is_some() && !same, flag::SWAP_INDIRECT)
                    | when(same, flag::ONE_OPERAND)
                    | when(!swap.is_full(), flag::MASKED)
            }
            Primitive::FetchAdd { target: to, .. } => target(to),
            Primitive::Allocate { .. } => 0,
        };
        let chaining = when(self.conditional, flag::CONDITIONAL);
        own | chaining | when(self.redirect.is_some(), flag::REDIRECT)
    }

    pub(super) fn emit(&self, to: &mut Writer<'_>) {
        let position = |target| match target {
            Target::At(at) | Target::Indirect(at) | Target::Bounded(at) => at,
        };
        let (code, at, len) = match self.primitive {
            Primitive::Read { from, len } => (code::READ, position(from), len),
            Primitive::Write { to, data } => {
                let len = match data {
                    Data::Inline(bytes) => bytes.len() as u32,
                    Data::From { len, .. } => len,
                };
                (code::WRITE, position(to), len)
            }
            Primitive::CompareSwap { target, swap, .. } => {
                let mode = match swap.mode() {
                    Compare::Equal => 0,
                    Compare::Greater => 1,
                    Compare::Less => 2,
                };
                (code::COMPARE_SWAP, position(target), mode << 8 | swap.words() as u32)
            }
            Primitive::FetchAdd { target, .. } => (code::FETCH_ADD, position(target), 0),
            Primitive::Allocate { list, data } => {
                (code::ALLOCATE, u64::from(list.0), data.len() as u32)
            }
        };
        let flags = self.flags();
        to.u8(code);
        to.u8(flags);
        to.u32(self.rkey.0);
        to.u64(at);
        to.u32(len);
        if let Some(redirect) = self.redirect {
            to.u64(redirect);
        }
        match self.primitive {
            Primitive::Read { .. } => {}
            Primitive::Write { data: Data::Inline(data), .. }
            | Primitive::Allocate { data, .. } => to.bytes(data),
            Primitive::Write { data: Data::From { at, .. }, .. } => to.u64(at),
            Primitive::FetchAdd { amount, .. } => to.u64(amount),
            Primitive::CompareSwap { swap, compare_at, swap_at, .. } => {
                let words = swap.words();
                emit_operand(to, compare_at, &swap.compare[..words]);
                if flags & flag::ONE_OPERAND == 0 {
                    emit_operand(to, swap_at, &swap.swap[..words]);
                }
                if flags & flag::MASKED != 0 {
                    emit_operand(to, None, &swap.compare_mask[..words]);
                    emit_operand(to, None, &swap.swap_mask[..words]);
                }
            }
        }
    }

    pub(super) fn parse(from: &mut Reader<'a>) -> Result<Self, Malformed> {
        let (code, flags) = (from.u8()?, from.u8()?);
        let rkey = RKey(from.u32()?);
        let (at, len) = (from.u64()?, from.u32()?);
        let has = |flag: u8| flags & flag != 0;
        if flags & !allowed(code) != 0 {
            return Err(Malformed { what: "a flag that its operation does not have" });
        }
        let redirect = if has(flag::REDIRECT) { Some(from.u64()?) } else { None };
        let target = match (has(flag::INDIRECT), has(flag::BOUNDED)) {
            (false, false) => Target::At(at),
            (true, false) => Target::Indirect(at),
            (true, true) => Target::Bounded(at),
            (false, true) => return Err(Malformed { what: "a bound without a pointer" }),
        };
        let primitive = match code {
            code::READ => Primitive::Read { from: target, len },
            code::WRITE if has(flag::DATA_INDIRECT) => {
                Primitive::Write { to: target, data: Data::From { at: from.u64()?, len } }
            }
            code::WRITE => {
                Primitive::Write { to: target, data: Data::Inline(from.bytes(len as usize)?) }
            }
            code::COMPARE_SWAP => parse_swap(from, target, flags, len)?,
            code::FETCH_ADD if len == 0 => Primitive::FetchAdd { target, amount: from.u64()? },
            code::ALLOCATE => {
                let list = u32::try_from(at).map_err(|_| Malformed { what: "a free list" })?;
                let data = from.bytes(len as usize)?;
                Primitive::Allocate { list: FreeListKey(list), data }
            }
            _ => return Err(Malformed { what: "an operation's code" }),
        };
        Ok(Self { primitive, rkey, conditional: has(flag::CONDITIONAL), redirect })
    }
}

fn emit_operand(to: &mut Writer<'_>, at: Option<u64>, words: &[u64]) {
    match at {
        Some(at) => to.u64(at),
        None => words.iter().for_each(|&word| to.u64(word)),
    }
}

/// An operand: its address if `indirect`, else the words, into `words`.
fn parse_operand(
    from: &mut Reader<'_>,
    indirect: bool,
    words: &mut [u64],
) -> Result<Option<u64>, Malformed> {
    if indirect {
        return from.u64().map(Some);
    }
    for word in words {
        *word = from.u64()?;
    }
    Ok(None)
}

fn parse_swap<'a>(
    from: &mut Reader<'_>,
    target: Target,
    flags: u8,
    shape: u32,
) -> Result<Primitive<'a>, Malformed> {
    let mode = match shape >> 8 {
        0 => Compare::Equal,
        1 => Compare::Greater,
        2 => Compare::Less,
        _ => return Err(Malformed { what: "a comparison" }),
    };
    let words = (shape & 0xff) as usize;
    let mut swap = MaskedSwap::of_words(mode, words)?;
    let has = |flag: u8| flags & flag != 0;
    let compare_at = parse_operand(from, has(flag::DATA_INDIRECT), &mut swap.compare[..words])?;
    let mut swap_at = compare_at;
    if !has(flag::ONE_OPERAND) {
        swap_at = parse_operand(from, has(flag::SWAP_INDIRECT), &mut swap.swap[..words])?;
    } else if has(flag::SWAP_INDIRECT) {
        return Err(Malformed { what: "a second address of one operand" });
    } else {
        swap.swap = swap.compare;
    }
    if has(flag::MASKED) {
        parse_operand(from, false, &mut swap.compare_mask[..words])?;
        parse_operand(from, false, &mut swap.swap_mask[..words])?;
    }
    Ok(Primitive::CompareSwap { target, swap, compare_at, swap_at })
}
