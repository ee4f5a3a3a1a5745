//! DECIDED: a coordinator tells a backup how transactions have ended that it has LOGs of. (decision
//! 0101) As it travels, it stands in the backup's log, behind the records of those LOGs.

use nicol_core::fabric::Message;
use nicol_core::ids::TxnId;
use nicol_core::wire::{Malformed, Reader, Writer};
use nicol_kit::{Item, Items};

use super::messages::DECIDED;

/// How a transaction has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Aborted,
    Committed,
    /// All its backups know that it is committed: none need remember it.
    KnownToAll,
}

/// How a transaction has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Decision {
    pub(super) txn: TxnId,
    pub(super) fate: Fate,
}

impl Decision {
    /// Bytes that it takes.
    const LEN: usize = 9;

    /// How many fit into a log record whose body has at most `body_max` bytes: one at least, since
    /// no log is smaller than that.
    pub(super) const fn most(body_max: usize) -> usize {
        let most = body_max.saturating_sub(2) / Self::LEN;
        if most == 0 { 1 } else { most }
    }
}

impl Item for Decision {
    type Of<'a> = Self;

    fn parse(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let txn = TxnId(from.u64()?);
        let fate = match from.u8()? {
            0 => Fate::Aborted,
            1 => Fate::Committed,
            2 => Fate::KnownToAll,
            _ => return Err(Malformed { what: "how a transaction has ended" }),
        };
        Ok(Self { txn, fate })
    }
}

/// DECIDED.
pub(super) struct Decided<'a>(pub(super) &'a [Decision]);

impl Message for Decided<'_> {
    const KIND: u16 = DECIDED;

    fn emit(&self, to: &mut Writer<'_>) {
        to.u16(self.0.len() as u16);
        for decision in self.0 {
            to.u64(decision.txn.0);
            to.u8(decision.fate as u8);
        }
    }
}

/// The decisions of a DECIDED, all of which are checked.
pub(super) fn parse_decided(body: &[u8]) -> Result<Items<&[u8], Decision>, Malformed> {
    let mut from = Reader::new(body);
    let count = from.u16()?;
    Items::parse(body, from, count)
}

/// The decisions of a log record. Panics if it cannot be parsed, as
/// [`logged`](crate::log::logged) does.
pub(super) fn decisions_of(body: &[u8]) -> impl Iterator<Item = Decision> {
    match parse_decided(body) {
        Ok(decisions) => decisions.iter().collect::<Vec<_>>().into_iter(),
        Err(malformed) => panic!("a record of decisions cannot be parsed any more: {malformed}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decisions_arrive_as_they_were_told_and_no_others() {
        let told = [(7, Fate::Committed), (u64::MAX, Fate::Aborted), (8, Fate::KnownToAll)];
        let told = told.map(|(txn, fate)| Decision { txn: TxnId(txn), fate });
        let mut body = Vec::new();
        Decided(&told).emit(&mut Writer::new(&mut body));
        assert_eq!(decisions_of(&body).collect::<Vec<_>>(), told);
        for len in 0..body.len() {
            assert!(parse_decided(&body[..len]).is_err(), "{len} bytes");
        }
        *body.last_mut().unwrap() = 3;
        assert!(parse_decided(&body).is_err(), "neither committed nor aborted");
        assert_eq!((Decision::most(0), Decision::most(40), Decision::most(290)), (1, 4, 32));
    }
}
