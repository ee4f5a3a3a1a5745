//! The chains of PRISM-TX, as the paper's section 8.2 describes them.

use nicol_core::chain::{Chain, ChainResults, Data, Outcome, Primitive, Step, Target, scratch};
use nicol_core::fabric::FabricError;
use nicol_core::ids::{FreeListKey, Key, RKey};
use nicol_core::memory::{Compare, MaskedSwap};

use super::config::{ReadVersion, Staging, TxConfig};
use super::layout::{HEADER, Item, SLOT, Slot, word};
use crate::messages::Handles;
use crate::tag::Tag;

const ALL: u64 = u64::MAX;
/// The key of what only touches the chain's scratch.
const NOWHERE: RKey = RKey(0);

/// The scratch of write checks that stage their items: TS, then PW and PR as the CAS has found
/// them, which are the marks of an item, and the address of its buffer.
const MARKS: u64 = scratch(0);
const FOUND: u64 = scratch(8);
const BUFFER: u64 = scratch(24);

/// A key's place at its server, and what the chains of a transaction do there.
#[derive(Clone, Copy)]
pub(super) struct At<'a> {
    pub(super) config: &'a TxConfig,
    pub(super) handles: &'a Handles,
    /// The address of the slot.
    pub(super) slot: u64,
}

/// The result of a READ of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found<'a> {
    /// RC: C as it was read, or the item's timestamp.
    pub(super) rc: Tag,
    /// The item's address, where it was read.
    pub(super) addr: Option<u64>,
    /// `None`: the slot has no key.
    pub(super) item: Option<Item<'a>>,
}

/// The result of a read validation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReadCheck {
    /// PR has been raised.
    Raised,
    /// PR was later already, and no transaction has prepared to write.
    NotNeeded,
    /// A transaction has prepared to write at this timestamp, or has written.
    Failed { pw: Tag },
    /// An operation before it in its chain did not succeed, so nothing has changed.
    Skipped,
}

/// The result of a write check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WriteCheck {
    /// PW has been raised from this to the transaction's timestamp; PR was this at that time.
    Raised { old_pw: Tag, old_pr: Tag, staged: u64 },
    /// PW is later. This buffer was allocated in vain; 0: none.
    Failed { pw: Tag, staged: u64 },
    /// There was no buffer, and nothing has changed.
    NotReady,
    /// It has not been made yet, or was skipped, since what came before it in its chain did not
    /// succeed. Nothing has changed.
    Skipped,
}

impl WriteCheck {
    /// The buffer in which the item of the write is staged; 0: none.
    pub(super) const fn staged(self) -> u64 {
        match self {
            Self::Raised { staged, .. } | Self::Failed { staged, .. } => staged,
            Self::NotReady | Self::Skipped => 0,
        }
    }
}

/// The condition under which a check runs that follows others in its chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum When {
    /// Whether or not the operation before it succeeded.
    Always,
    /// If the operation before it has succeeded.
    AfterSuccess,
}

impl When {
    fn of(self, step: Step<'_>) -> Step<'_> {
        match self {
            Self::Always => step,
            Self::AfterSuccess => step.conditional(),
        }
    }
}

/// Operations before the write checks of a chain.
pub(super) const fn mark_operations(staging: Staging) -> usize {
    match staging {
        Staging::AtCommit => 0,
        Staging::AtPrepare => 1,
    }
}

/// Operations of a write check.
pub(super) const fn write_operations(staging: Staging) -> usize {
    match staging {
        Staging::AtCommit => 2,
        Staging::AtPrepare => 4,
    }
}

/// The result of an install.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Installed {
    /// It is there, in place of the item at this address.
    Done { replaced: u64 },
    /// There is this one, of a timestamp that is not earlier. This buffer was allocated in vain; 0:
    /// none, or the client knows it.
    Later { c: Tag, addr: u64, allocated: u64 },
    /// There was no buffer, and nothing has changed.
    NotReady,
}

/// The results of a chain.
///
/// Errors: they are malformed.
pub(super) fn parse(reply: &[u8]) -> Result<ChainResults<'_>, FabricError> {
    ChainResults::parse(reply).map_err(|_| FabricError::Malformed)
}

/// The output of operation `index`; if it was refused, the chain is.
fn output<'a>(results: &ChainResults<'a>, index: usize) -> Result<&'a [u8], FabricError> {
    match results.outcome(index) {
        Outcome::Done(bytes) => Ok(bytes),
        Outcome::Refused(error) => Err(error),
        Outcome::NotSwapped(_) | Outcome::Skipped => Err(FabricError::Malformed),
    }
}

impl At<'_> {
    /// The READ of a key: its slot's metadata, and what it points to, `len` bytes of it.
    pub(super) fn read(self, len: u64) -> Chain {
        let rkey = self.handles.region;
        let slot = Primitive::Read { from: Target::At(self.slot), len: SLOT as u32 }.under(rkey);
        let from = Target::Indirect(self.slot + word::ADDR);
        let item = Primitive::Read { from, len: len as u32 }.under(rkey);
        let mut chain = Chain::default();
        match self.config.read_version {
            // DEVIATION [PRISM21 8.2 execution]: the buffer's timestamp is not the key's C once an
            // abort has raised that, and C must not be later than what was read. AMB-14b
            ReadVersion::SlotFirst => chain.push(slot).push(item.conditional()),
            ReadVersion::SlotLast => chain.push(item).push(slot.conditional()),
            ReadVersion::Buffer => chain.push(item),
        };
        chain
    }

    /// The result of [`At::read`]
    pub(super) fn found(self, reply: &[u8]) -> Result<Found<'_>, FabricError> {
        let results = parse(reply)?;
        let (slot, item) = match self.config.read_version {
            ReadVersion::SlotFirst => (Some(0), 1),
            ReadVersion::SlotLast => (Some(1), 0),
            ReadVersion::Buffer => (None, 0),
        };
        let slot = match slot {
            Some(at) => Some(Slot::parse(output(&results, at)?)),
            None => None,
        };
        let slot = slot.transpose().map_err(|_| FabricError::Malformed)?;
        let item = Item::parse(output(&results, item)?).map_err(|_| FabricError::Malformed)?;
        let own = item.map_or(Tag(0), |item| item.ts);
        let rc = slot.map_or(own, |slot| slot.c.max(own));
        // An item that was read after its address may be a later one.
        let is_there = |slot: &Slot| item.is_some_and(|item| item.ts <= slot.c);
        let slot = slot.filter(|_| self.config.read_version == ReadVersion::SlotFirst);
        let addr = slot.filter(is_there).map(|slot| slot.addr);
        Ok(Found { rc, addr, item })
    }

    /// The chain that gives an unused slot to `key`, without a record. `stamp` names the attempt.
    pub(super) fn claim(self, list: FreeListKey, key: Key, stamp: Tag) -> Chain {
        let data = Item::claim(stamp, key).emit();
        let rkey = self.handles.region;
        let mut chain = Chain::default();
        let allocate = Primitive::Allocate { list, data: &data }.under(rkey);
        chain.push(allocate.redirected(scratch(8)));
        // A slot has no C before it has a key: 0 | 0 becomes 0 | addr.
        let swap = MaskedSwap::new(Compare::Equal, [0; 2], [0; 2]);
        let target = Target::At(self.slot + word::C);
        let swap =
            Primitive::CompareSwap { target, swap, compare_at: None, swap_at: Some(scratch(0)) };
        chain.push(swap.under(rkey).conditional());
        chain.push(Primitive::Read { from: Target::At(scratch(8)), len: 8 }.under(NOWHERE));
        chain
    }

    /// The result of [`At::claim`]
    pub(super) fn claimed(self, reply: &[u8]) -> Result<Installed, FabricError> {
        let results = parse(reply)?;
        let allocated = results.outcome(2).words()[0];
        installed(&results, 1, Some(0), allocated)
    }

    /// [PRISM21 8.2 read validation] CAS: if RC|TS > PW|PR, PR := TS. Appends one operation.
    pub(super) fn check_read(self, chain: &mut Chain, when: When, rc: Tag, ts: Tag) {
        let operand = [rc.0, ts.0];
        let swap = MaskedSwap::new(Compare::Greater, operand, operand);
        let target = Target::At(self.slot + word::PW);
        let swap = Primitive::compare_swap(target, swap).under(self.handles.pointers);
        chain.push(when.of(swap));
    }

    /// The result of the [`At::check_read`] at operation `at`: "the client can distinguish the two
    /// using the value returned".
    pub(super) fn read_checked(
        self,
        results: &ChainResults<'_>,
        at: usize,
        rc: Tag,
    ) -> Result<ReadCheck, FabricError> {
        match results.outcome(at) {
            Outcome::Done(_) => Ok(ReadCheck::Raised),
            found @ Outcome::NotSwapped(_) => {
                let pw = Tag(found.words()[0]);
                Ok(if pw <= rc { ReadCheck::NotNeeded } else { ReadCheck::Failed { pw } })
            }
            Outcome::Refused(error) => Err(error),
            Outcome::Skipped => Ok(ReadCheck::Skipped),
        }
    }

    /// Appends the operations that the write checks of a chain need before them: TS as the first
    /// word of their marks. There are [`mark_operations`] of them.
    pub(super) fn begin_writes(self, chain: &mut Chain, when: When, ts: Tag) {
        if self.config.staging == Staging::AtPrepare {
            let data = &ts.0.to_le_bytes();
            let mark = Primitive::Write { to: Target::At(MARKS), data: Data::Inline(data) };
            chain.push(when.of(mark.under(NOWHERE)));
        }
    }

    /// [PRISM21 8.2 write validation] CAS: if TS > PW, PW := TS; then PR is looked at. Appends
    /// [`write_operations`].
    ///
    /// `item` is what will be installed: where writes are staged it goes along. `told`: when it is
    /// told what was found; of the last one of a chain always, which tells of the one before it
    /// that has failed, too: nothing that follows that is made, so that the scratch is as it has
    /// left it. AMB-12
    pub(super) fn check_write(
        self,
        chain: &mut Chain,
        when: When,
        list: FreeListKey,
        item: &Item<'_>,
        told: When,
    ) {
        let (rkey, ts) = (self.handles.region, item.ts.0);
        let target = Target::At(self.slot + word::PW);
        if self.config.staging == Staging::AtCommit {
            let swap = MaskedSwap::new(Compare::Greater, [ts], [ts]);
            let swap = Primitive::compare_swap(target, swap);
            chain.push(when.of(swap.under(self.handles.pointers)));
            let from = Target::At(self.slot + word::PR);
            chain.push(Primitive::Read { from, len: 8 }.under(rkey).conditional());
            return;
        }
        // DEVIATION [PRISM21 8.2 write validation]: the item is allocated here, and PW and PR as
        // the CAS has found them are written to it, so that the servers can end the transaction of
        // a client that dies. The CAS returns PR with PW, of one instant: PR need not be read
        // again. AMB-14c
        let data = &item.emit();
        let allocate = Primitive::Allocate { list, data }.under(rkey);
        chain.push(allocate.conditional().redirected(BUFFER));
        let swap = MaskedSwap::new(Compare::Greater, [ts, 0], [ts, 0]).masked([ALL, 0], [ALL, 0]);
        let swap = Primitive::compare_swap(target, swap).under(self.handles.pointers);
        chain.push(swap.conditional().redirected(FOUND));
        let data = Data::From { at: MARKS, len: 24 };
        let mark = Primitive::Write { to: Target::Indirect(BUFFER), data }.under(rkey);
        chain.push(mark.conditional());
        let found = Primitive::Read { from: Target::At(FOUND), len: 24 }.under(NOWHERE);
        chain.push(told.of(found));
    }

    /// The result of the [`At::check_write`] whose first operation is `at`.
    pub(super) fn write_checked(
        self,
        results: &ChainResults<'_>,
        at: usize,
    ) -> Result<WriteCheck, FabricError> {
        let first = results.outcome(at);
        if first == Outcome::Skipped {
            return Ok(WriteCheck::Skipped);
        }
        if self.config.staging == Staging::AtCommit {
            let pw = Tag(first.words()[0]);
            return match first {
                Outcome::Done(_) => {
                    let pr = output(results, at + 1).map(|_| results.outcome(at + 1).words()[0])?;
                    Ok(WriteCheck::Raised { old_pw: pw, old_pr: Tag(pr), staged: 0 })
                }
                Outcome::NotSwapped(_) => Ok(WriteCheck::Failed { pw, staged: 0 }),
                Outcome::Refused(error) => Err(error),
                Outcome::Skipped => Err(FabricError::Malformed),
            };
        }
        let own = results.outcome(at + 3);
        let last = results.outcomes().len().saturating_sub(1);
        let found = if own.succeeded() { own } else { results.outcome(last) };
        let [old_pw, old_pr, staged, _] = found.words();
        let (old_pw, old_pr) = (Tag(old_pw), Tag(old_pr));
        match (first, results.outcome(at + 1)) {
            (_, Outcome::Done(_)) => Ok(WriteCheck::Raised { old_pw, old_pr, staged }),
            (_, Outcome::NotSwapped(_)) => Ok(WriteCheck::Failed { pw: old_pw, staged }),
            (Outcome::Refused(FabricError::NoResources), _) => Ok(WriteCheck::NotReady),
            (Outcome::Refused(error), _) | (_, Outcome::Refused(error)) => Err(error),
            _ => Err(FabricError::Malformed),
        }
    }

    /// [PRISM21 8.2 commit] Installs `item`, which is staged at this address, if TS > C; or, where
    /// writes are not staged, by the chain of PRISM-RS [PRISM21 7.3].
    pub(super) fn install(self, list: FreeListKey, item: &Item<'_>, staged: u64) -> Chain {
        let ts = item.ts.0;
        let target = Target::At(self.slot + word::C);
        let mut chain = Chain::default();
        let (mode, mask) = (Compare::Greater, [ALL, 0]);
        if self.config.staging == Staging::AtPrepare {
            let swap = MaskedSwap::new(mode, [ts, 0], [ts, staged]).masked(mask, [ALL, ALL]);
            let swap = Primitive::compare_swap(target, swap);
            chain.push(swap.under(self.handles.pointers));
            return chain;
        }
        let data = &ts.to_le_bytes();
        let tmp = Primitive::Write { to: Target::At(scratch(0)), data: Data::Inline(data) };
        chain.push(tmp.under(NOWHERE));
        let data = &item.emit();
        let allocate = Primitive::Allocate { list, data }.under(self.handles.region);
        chain.push(allocate.conditional().redirected(scratch(8)));
        let swap = MaskedSwap::new(mode, [0; 2], [0; 2]).masked(mask, [ALL, ALL]);
        let tmp = Some(scratch(0));
        let swap = Primitive::CompareSwap { target, swap, compare_at: tmp, swap_at: tmp };
        chain.push(swap.under(self.handles.pointers).conditional());
        chain
    }

    /// The result of [`At::install`]
    pub(super) fn installed(self, reply: &[u8]) -> Result<Installed, FabricError> {
        let results = parse(reply)?;
        match self.config.staging {
            Staging::AtPrepare => installed(&results, 0, None, 0),
            // Of a chain as printed nobody learns what it has allocated. AMB-12
            Staging::AtCommit => installed(&results, 2, Some(1), 0),
        }
    }

    /// CAS: if TS > C, C := TS.
    pub(super) fn bump(self, ts: Tag) -> Chain {
        let swap = MaskedSwap::new(Compare::Greater, [ts.0], [ts.0]);
        let mut chain = Chain::default();
        let target = Target::At(self.slot + word::C);
        chain.push(Primitive::compare_swap(target, swap).under(self.handles.pointers));
        chain
    }

    /// A chain that reads C of the slot.
    pub(super) fn read_c(self) -> Chain {
        let from = Target::At(self.slot + word::C);
        let mut chain = Chain::default();
        chain.push(Primitive::Read { from, len: 8 }.under(self.handles.region));
        chain
    }
}

/// The word that a chain of one operation has yielded, whether or not a comparison held.
pub(super) fn only_word(reply: &[u8]) -> Result<u64, FabricError> {
    let results = parse(reply)?;
    match results.outcome(0) {
        found @ (Outcome::Done(_) | Outcome::NotSwapped(_)) => Ok(found.words()[0]),
        Outcome::Refused(error) => Err(error),
        Outcome::Skipped => Err(FabricError::Malformed),
    }
}

/// The result of the swap of `C | addr` at `swap`, after an ALLOCATE at `allocate`.
fn installed(
    results: &ChainResults<'_>,
    swap: usize,
    allocate: Option<usize>,
    allocated: u64,
) -> Result<Installed, FabricError> {
    let [c, addr, ..] = results.outcome(swap).words();
    match results.outcome(swap) {
        Outcome::Done(_) => Ok(Installed::Done { replaced: addr }),
        Outcome::NotSwapped(_) => Ok(Installed::Later { c: Tag(c), addr, allocated }),
        Outcome::Refused(error) => Err(error),
        Outcome::Skipped => match allocate.map(|at| results.outcome(at)) {
            Some(Outcome::Refused(FabricError::NoResources)) => Ok(Installed::NotReady),
            Some(Outcome::Refused(error)) => Err(error),
            _ => Err(FabricError::Malformed),
        },
    }
}

/// Bytes of a READ that only wants to know whose slot it is.
pub(super) const KEY_ONLY: u64 = HEADER;
