//! The messages by which servers, and clients whose chains go unanswered, find out what has become
//! of transactions: AMB-14c. The others are those of PRISM's systems.

use nicol_core::fabric::Message;
use nicol_core::ids::{Key, NodeId};
use nicol_core::wire::{Malformed, Reader, Writer};

use super::layout::Item;
use crate::tag::Tag;

/// STOCK: asks a server for the writes that are staged at it.
pub(super) const STOCK: u16 = 16;
const STAGED: u16 = 17;

/// Whose transactions a STOCK asks about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Of {
    /// One of the sender's own.
    Txn(Tag),
    /// Those of a node that is gone.
    Node(NodeId),
}

/// STOCK: is answered once no chain is under way any more that might stage something.
pub(super) struct Stock(pub(super) Of);

impl Message for Stock {
    const KIND: u16 = STOCK;

    fn emit(&self, to: &mut Writer<'_>) {
        match self.0 {
            Of::Txn(ts) => {
                to.u8(0);
                to.u64(ts.0);
            }
            Of::Node(node) => {
                to.u8(1);
                to.u64(node.0.into());
            }
        }
    }
}

impl Stock {
    pub(super) fn parse(body: &[u8]) -> Result<Self, Malformed> {
        let mut from = Reader::new(body);
        let (what, number) = (from.u8()?, from.u64()?);
        from.finish()?;
        match (what, u16::try_from(number)) {
            (0, _) => Ok(Self(Of::Txn(Tag(number)))),
            (1, Ok(node)) => Ok(Self(Of::Node(NodeId(node)))),
            _ => Err(Malformed { what: "whose transactions" }),
        }
    }
}

/// A write that is staged, and not yet known to belong to a complete transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StagedWrite {
    pub(super) ts: Tag,
    pub(super) key: Key,
    /// Offset of the buffer in which the write is staged.
    pub(super) offset: u64,
    /// PW and PR that its write check has found, if it has raised PW.
    pub(super) raised: Option<(Tag, Tag)>,
    /// Whether the write check has passed.
    pub(super) passed: bool,
    /// The number of the transaction's writes.
    pub(super) writes: u16,
}

impl StagedWrite {
    pub(super) fn of(item: &Item<'_>, offset: u64) -> Self {
        Self {
            ts: item.ts,
            key: item.key,
            offset,
            raised: item.has_raised().then_some((item.old_pw, item.old_pr)),
            passed: item.has_passed(),
            writes: item.meta.writes(),
        }
    }

    fn emit(&self, to: &mut Writer<'_>) {
        let (old_pw, old_pr) = self.raised.unwrap_or((Tag(0), Tag(0)));
        let words = [self.ts.0, self.key.0, self.offset, old_pw.0, old_pr.0];
        words.iter().for_each(|&word| to.u64(word));
        to.u8(u8::from(self.raised.is_some()));
        to.u8(u8::from(self.passed));
        to.u16(self.writes);
    }

    fn parse(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let (ts, key, offset) = (Tag(from.u64()?), Key(from.u64()?), from.u64()?);
        let marks = (Tag(from.u64()?), Tag(from.u64()?));
        let raised = (from.u8()? != 0).then_some(marks);
        let (passed, writes) = (from.u8()? != 0, from.u16()?);
        Ok(Self { ts, key, offset, raised, passed, writes })
    }
}

/// The outcome of a transaction that a server has ended in its client's place.
pub(super) type Decided = (Tag, bool);

/// STAGED: the answer to a STOCK.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Staged {
    pub(super) writes: Vec<StagedWrite>,
    pub(super) decided: Vec<Decided>,
}

impl Message for Staged {
    const KIND: u16 = STAGED;

    fn emit(&self, to: &mut Writer<'_>) {
        to.u32(self.decided.len() as u32);
        for (ts, committed) in &self.decided {
            to.u64(ts.0);
            to.u8(u8::from(*committed));
        }
        self.writes.iter().for_each(|write| write.emit(to));
    }
}

impl Staged {
    pub(super) fn parse(body: &[u8]) -> Result<Self, Malformed> {
        let mut from = Reader::new(body);
        let mut staged = Self::default();
        for _ in 0..from.u32()? {
            staged.decided.push((Tag(from.u64()?), from.u8()? != 0));
        }
        while !from.rest().is_empty() {
            staged.writes.push(StagedWrite::parse(&mut from)?);
        }
        Ok(staged)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn emitted(message: &impl Message) -> Vec<u8> {
        let mut body = Vec::new();
        message.emit(&mut Writer::new(&mut body));
        body
    }

    #[test]
    fn messages_survive_the_way_and_truncated_ones_are_refused() {
        for of in [Of::Txn(Tag(1 << 40)), Of::Node(NodeId(7))] {
            let body = emitted(&Stock(of));
            assert_eq!(Stock::parse(&body).unwrap().0, of);
            assert!((0..body.len()).all(|len| Stock::parse(&body[..len]).is_err()));
        }
        let raised = StagedWrite {
            ts: Tag(5),
            key: Key(6),
            offset: 64,
            raised: Some((Tag(2), Tag(3))),
            passed: true,
            writes: 2,
        };
        let failed = StagedWrite { raised: None, passed: false, ..raised };
        let staged = Staged { writes: vec![raised, failed], decided: vec![(Tag(9), true)] };
        let body = emitted(&staged);
        assert_eq!(Staged::parse(&body), Ok(staged));
        let whole = [body.len() - 44, body.len() - 88];
        let refused = |len: &usize| Staged::parse(&body[..*len]).is_err();
        assert!((0..body.len()).filter(|len| !whole.contains(len)).all(|len| refused(&len)));
    }
}
