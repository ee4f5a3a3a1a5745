//! The chains of PRISM-RS, as the paper's section 7.3 prints them.

use nicol_core::chain::{Chain, ChainResults, Data, Outcome, Primitive, Target, scratch};
use nicol_core::fabric::FabricError;
use nicol_core::ids::RKey;
use nicol_core::memory::{Compare, MaskedSwap};

use super::config::{Blocks, RsConfig, TAG};
use super::layout::{Metadata, buffer};
use crate::Faithful;
use crate::messages::{Handles, Unused};
use crate::tag::{Tag, parse};

/// `tmp` of the write phase: the chain's scratch, in which an element of metadata is put together.
const TMP: u64 = scratch(0);
const TMP_ADDR: u64 = scratch(8);

/// The operations of the write phase, by their place in its chain.
mod at {
    pub(super) const ALLOCATE: usize = 1;
    pub(super) const CAS: usize = 2;
    pub(super) const READ_ADDR: usize = 3;
}

/// The READ of a block, which yields `tag | value`.
pub(super) fn read(config: &RsConfig, handles: &Handles, block: u64) -> Chain {
    let pointer = Metadata::new(config.sizes).pointer(block);
    let from = match config.sizes {
        Blocks::Fixed => Target::Indirect(pointer),
        Blocks::Variable => Target::Bounded(pointer),
    };
    let len = (TAG + config.value_bytes) as u32;
    // A GET that may end after this must know of every replica that has rejoined: see
    // `Replica::fence`.
    let rkey = if config.always_write_back { handles.region } else { handles.pointers };
    let mut chain = Chain::default();
    // [PRISM21 7.3 read phase] READ of the metadata array where addr_i is, with the indirect bit.
    chain.push(Primitive::Read { from, len }.under(rkey));
    chain
}

/// The tag and value that [`read`] has brought; `None` if there is no block.
///
/// Errors: why it was refused.
pub(super) fn read_result(reply: &[u8]) -> Result<Option<(Tag, &[u8])>, FabricError> {
    let results = ChainResults::parse(reply).map_err(|_| FabricError::Malformed)?;
    match results.outcome(0) {
        Outcome::Done(bytes) => Ok(parse(bytes)),
        Outcome::Refused(error) => Err(error),
        _ => Err(FabricError::Malformed),
    }
}

/// The chain that writes `value` at `tag` to a block, unless that has a later one.
///
/// # Panics
/// If no buffer of the replica is large enough: the size of blocks is limited.
pub(super) fn write(
    config: &RsConfig,
    handles: &Handles,
    block: u64,
    tag: Tag,
    value: &[u8],
) -> Chain {
    let metadata = Metadata::new(config.sizes);
    let data = buffer(tag, value);
    let Some(list) = handles.lists.iter().find(|list| list.bytes >= data.len() as u64) else {
        panic!("a block of {} bytes has a buffer", value.len());
    };
    let mut element = Vec::from(tag.0.to_le_bytes());
    if config.sizes == Blocks::Variable {
        let words = [0, data.len() as u64, 0];
        element.extend(words.map(u64::to_le_bytes).as_flattened());
    }
    let mut chain = Chain::carrying(data.len());
    let nowhere = RKey::default();
    // [PRISM21 7.3 write phase 1] WRITE t' to tmp.
    let to = Target::At(TMP);
    chain.push(Primitive::Write { to, data: Data::Inline(&element) }.under(nowhere));
    // [PRISM21 7.3 write phase 2] ALLOCATE t'|v', its address redirected to tmp + sizeof(t').
    let allocate = Primitive::Allocate { list: list.key, data: &data };
    chain.push(allocate.under(handles.region).conditional().redirected(TMP_ADDR));
    // [PRISM21 7.3 write phase 3] CAS_GT at tag_i|addr_i with the operand in tmp: written only if
    // t' > tag_i.
    chain.push(swap(config, metadata.of(block)).under(handles.pointers).conditional());
    // DEVIATION [PRISM21 7.3 write phase]: an unconditional READ of the address, because a chain
    // whose CAS fails has allocated a buffer that only its client can report. AMB-12
    if config.faithful == Faithful::Fixed {
        let read = Primitive::Read { from: Target::At(TMP_ADDR), len: 8 };
        chain.push(read.under(nowhere));
    }
    chain
}

/// The CAS of the element at `at`, both of whose operands are in tmp.
fn swap(config: &RsConfig, at: u64) -> Primitive<'static> {
    let (mode, all) = (Compare::Greater, u64::MAX);
    let swap = match config.sizes {
        Blocks::Fixed => MaskedSwap::new(mode, [0; 2], [0; 2]).masked([all, 0], [all; 2]),
        Blocks::Variable => MaskedSwap::new(mode, [0; 4], [0; 4]).masked([all, 0, 0, 0], [all; 4]),
    };
    let target = Target::At(at);
    Primitive::CompareSwap { target, swap, compare_at: Some(TMP), swap_at: Some(TMP) }
}

/// The result of the write phase's chain at one replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Written {
    /// Whether the replica holds this tag or a later one; if not, why.
    pub(super) acknowledged: Result<(), FabricError>,
    /// The buffer that nothing points to any more.
    pub(super) unused: Option<Unused>,
}

/// The results of [`write`] at `tag` to `block`.
pub(super) fn write_result(
    config: &RsConfig,
    reply: &[u8],
    block: u64,
    tag: Tag,
) -> Result<Written, FabricError> {
    let results = ChainResults::parse(reply).map_err(|_| FabricError::Malformed)?;
    let pointer = Metadata::new(config.sizes).pointer(block);
    let unused =
        |[offset, stamp]: [u64; 2]| (offset != 0).then_some(Unused { offset, stamp, pointer });
    // Of a chain as printed nobody learns what it has allocated. AMB-12
    let in_vain = unused([results.outcome(at::READ_ADDR).words()[0], tag.0]);
    let written = |acknowledged, unused| Ok(Written { acknowledged, unused });
    match results.outcome(at::CAS) {
        // "The CAS operation returns the old value of tag_i|addr_i", which is no longer in use.
        done @ Outcome::Done(_) => {
            let [stamp, offset, ..] = done.words();
            written(Ok(()), unused([offset, stamp]))
        }
        Outcome::NotSwapped(_) => written(Ok(()), in_vain),
        Outcome::Refused(error) => written(Err(error), in_vain),
        Outcome::Skipped => match results.outcome(at::ALLOCATE) {
            Outcome::Refused(error) => written(Err(error), in_vain),
            _ => written(Err(FabricError::Malformed), in_vain),
        },
    }
}
