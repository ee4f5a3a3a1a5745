//! A one-sided operation as it travels: a verb, or a chain.

use super::encode::{FORM_CHAIN, FORM_VERB, FORM_VERB_LIKE_CHAIN, STEP_HEADER};
use super::{Data, OPERATIONS_MAX, Primitive, Step, Target};
use crate::fabric::OneSided;
use crate::memory::{Compare, MaskedSwap};
use crate::wire::{Malformed, Reader, Writer};

/// A verb or a chain as it travels.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Encoded<'a> {
    /// Does the reply have a record per operation?
    pub(crate) is_chain: bool,
    /// True if it is executed by what executes chains.
    pub(crate) like_chain: bool,
    pub(crate) count: usize,
    steps: Reader<'a>,
}

impl<'a> Encoded<'a> {
    /// Appends `operation` to `body`. With `like_chain` a verb is executed by what executes chains.
    pub(crate) fn emit(operation: OneSided<'_>, like_chain: bool, body: &mut Vec<u8>) {
        let at = |offset| Target::At(offset);
        let (primitive, rkey) = match operation {
            OneSided::Chain(chain) => return body.extend_from_slice(&chain.body),
            OneSided::Read { rkey, offset, len } => {
                (Primitive::Read { from: at(offset), len }, rkey)
            }
            OneSided::Write { rkey, offset, bytes } => {
                (Primitive::Write { to: at(offset), data: Data::Inline(bytes) }, rkey)
            }
            OneSided::CompareSwap { rkey, offset, expected, new } => {
                let swap = MaskedSwap::new(Compare::Equal, [expected], [new]);
                (Primitive::compare_swap(at(offset), swap), rkey)
            }
            OneSided::FetchAdd { rkey, offset, amount } => {
                (Primitive::FetchAdd { target: at(offset), amount }, rkey)
            }
        };
        body.extend_from_slice(&[if like_chain { FORM_VERB_LIKE_CHAIN } else { FORM_VERB }, 1]);
        primitive.under(rkey).emit(&mut Writer::new(body));
    }

    /// Checks the header. Operations are checked as they are taken.
    pub(crate) fn parse(body: &'a [u8]) -> Result<Self, Malformed> {
        let mut steps = Reader::new(body);
        let (form, count) = (steps.u8()?, usize::from(steps.u8()?));
        let (is_chain, like_chain) = match (form, count) {
            (FORM_VERB, 1) => (false, false),
            (FORM_VERB_LIKE_CHAIN, 1) => (false, true),
            (FORM_CHAIN, 1..=OPERATIONS_MAX) => (true, true),
            _ => return Err(Malformed { what: "a chain's header" }),
        };
        Ok(Self { is_chain, like_chain, count, steps })
    }

    /// Takes the next operation; after the last one nothing may follow.
    pub(crate) fn next_step(&mut self) -> Result<Step<'a>, Malformed> {
        Step::parse(&mut self.steps)
    }

    /// The operation of a verb, after which nothing may follow.
    pub(crate) fn only_step(mut self) -> Result<Step<'a>, Malformed> {
        let step = self.next_step()?;
        self.steps.finish()?;
        Ok(step)
    }

    pub(crate) fn check(mut self) -> Result<(), Malformed> {
        for _ in 0..self.count {
            self.next_step()?;
        }
        self.steps.finish()
    }

    /// Bytes of operands: what the packets carry besides their headers.
    pub(crate) fn operand_bytes(&self) -> usize {
        self.steps.rest().len().saturating_sub(self.count * STEP_HEADER)
    }
}
