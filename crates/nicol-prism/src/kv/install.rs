//! The chain of a PUT: a new buffer, and the swap of the slot's pointer to it. [PRISM21 6.1]

use nicol_core::chain::{
    Chain, ChainResults, Data, Outcome, Primitive, SCRATCH_BYTES, Target, scratch,
};
use nicol_core::fabric::FabricError;
use nicol_core::ids::{FreeListKey, RKey};
use nicol_core::memory::{Compare, MaskedSwap, WORD};

use super::config::{KvConfig, Operands};
use super::layout::{Located, SLOT_WORDS_MAX, SlotWords, bytes_of};

/// Installs an item in a slot.
pub(super) struct Install<'a> {
    pub(super) config: &'a KvConfig,
    pub(super) located: &'a Located,
    pub(super) item: &'a [u8],
    /// Whether the slot gets a key that it did not have. Then any change of the slot stops the
    /// install.
    pub(super) is_claim: bool,
}

/// The result of a chain that installs an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Installed {
    /// The item is installed, instead of the one that this pointer points to; 0: there was none.
    Done { replaced: u64 },
    /// The slot has changed. The chain has allocated this buffer in vain.
    Lost { allocated: u64 },
    /// There was no buffer, and the slot is as it was.
    NotReady,
    /// It was refused, and has perhaps allocated this buffer; 0: none.
    Refused { error: FabricError, allocated: u64 },
}

const _: () = assert!(SLOT_WORDS_MAX * WORD <= SCRATCH_BYTES, "a slot is put together in scratch");

/// The swap of a whole slot of so many words that has not changed at all.
pub(super) fn whole(words: usize, found: SlotWords, new: SlotWords) -> MaskedSwap {
    match (words, found, new) {
        (1, [a, ..], [to, ..]) => MaskedSwap::new(Compare::Equal, [a], [to]),
        (2, [a, b, ..], [to, too, ..]) => MaskedSwap::new(Compare::Equal, [a, b], [to, too]),
        _ => MaskedSwap::new(Compare::Equal, found, new),
    }
}

impl Install<'_> {
    /// The words that the slot is to have, but for the pointer.
    fn template(&self) -> SlotWords {
        let form = self.config.form();
        let mut words = [0; SLOT_WORDS_MAX];
        if let Some(generation) = form.generation {
            // It grows when the slot gets a different object. [PRISM21 6.1, footnote 2]
            let is_new = u64::from(self.is_claim || self.located.words[form.pointer] == 0);
            words[generation] = self.located.words[generation] + is_new;
        }
        if let Some(bound) = form.bound {
            words[bound] = self.item.len() as u64;
        }
        words
    }

    /// The chain: WRITE what the slot is to have besides its pointer to a temporary location, if
    /// anything (AMB-40); ALLOCATE, redirected to where the pointer belongs in there; CAS the slot.
    /// At last, whatever has come of it, READ what was allocated (AMB-12).
    pub(super) fn chain(&self, rkey: RKey, list: FreeListKey) -> Chain {
        let form = self.config.form();
        let tmp = |word: usize| scratch((word * WORD) as u64);
        let mut chain = Chain::carrying(self.item.len());
        if form.words > 1 {
            let staged = bytes_of(&self.template(), form.words);
            let data = Data::Inline(&staged);
            chain.push(Primitive::Write { to: Target::At(tmp(0)), data }.under(rkey));
        }
        // [PRISM21 6.1 PUT 2] ALLOCATE: the item in a new buffer, its address redirected.
        let allocate = Primitive::Allocate { list, data: self.item }.under(rkey);
        chain.push(allocate.conditional().redirected(tmp(form.pointer)));
        // [PRISM21 6.1 PUT 3] CAS: the old address is replaced if it has not changed.
        let (swap, compare_at) = self.swap(tmp(0));
        let target = Target::At(self.located.slot);
        let swap = Primitive::CompareSwap { target, swap, compare_at, swap_at: Some(tmp(0)) };
        chain.push(swap.under(rkey).conditional());
        let from = Target::At(tmp(form.pointer));
        chain.push(Primitive::Read { from, len: WORD as u32 }.under(rkey));
        chain
    }

    /// The CAS of the slot, and the address of its compare operand, unless that is given.
    fn swap(&self, tmp: u64) -> (MaskedSwap, Option<u64>) {
        let form = self.config.form();
        if self.is_claim {
            return (whole(form.words, self.located.words, [0; SLOT_WORDS_MAX]), None);
        }
        let compared = form.generation.unwrap_or(form.pointer);
        let mut mask = [0; SLOT_WORDS_MAX];
        if self.config.operands != Operands::OneUnmasked {
            mask[compared] = u64::MAX;
        }
        let every = [u64::MAX; SLOT_WORDS_MAX];
        let swap = match (form.words, self.located.words) {
            (1, [a, ..]) => MaskedSwap::new(Compare::Equal, [a], [0]).masked([mask[0]], [every[0]]),
            (2, [a, b, ..]) => MaskedSwap::new(Compare::Equal, [a, b], [0; 2])
                .masked([mask[0], mask[1]], [every[0], every[1]]),
            (_, words) => MaskedSwap::new(Compare::Equal, words, [0; 4]).masked(mask, every),
        };
        let two = self.config.operands == Operands::Two;
        (swap, (!two).then_some(tmp))
    }

    /// Reads the chain's answer.
    pub(super) fn outcome<P: AsRef<[u8]>>(&self, answer: &P) -> Installed {
        let Ok(results) = ChainResults::parse(answer.as_ref()) else {
            return Installed::Refused { error: FabricError::Malformed, allocated: 0 };
        };
        let form = self.config.form();
        let staged = usize::from(form.words > 1);
        let (allocate, swap) = (results.outcome(staged), results.outcome(staged + 1));
        let allocated = results.outcome(staged + 2).words()[0];
        match (allocate, swap) {
            (_, Outcome::Done(_)) => Installed::Done { replaced: swap.words()[form.pointer] },
            (_, Outcome::NotSwapped(_)) => Installed::Lost { allocated },
            (Outcome::Refused(FabricError::NoResources), _) => Installed::NotReady,
            (Outcome::Refused(error), _) | (_, Outcome::Refused(error)) => {
                Installed::Refused { error, allocated }
            }
            _ => Installed::Refused { error: FabricError::Malformed, allocated },
        }
    }
}
