//! The messages that only the baselines send; the others are those of the commit family.

use nicol_core::fabric::{Message, RequestId};
use nicol_core::ids::{Key, RKey, TxnId};
use nicol_core::txn::{Txn, VALUE_MAX};
use nicol_core::wire::{Malformed, Reader, Writer};
use nicol_kit::{Item, Items};

use crate::messages::{LOG, Validate, each_key, parse_count};
use crate::writes::Writes;

/// Coordinator to primary: lock keys at the versions read.
pub(super) const LOCK: u16 = 15;
/// Coordinator to primary: take space for values whose keys are locked.
pub(super) const RESERVE: u16 = 17;
/// Host engine to host engine: which memory may I reach?
pub(super) const HELLO: u16 = 16;

/// Coordinator to backup: every backup has logged a transaction. AMB-44
pub(super) const LOG_ACK: u16 = 18;

/// LOG_ACK: of this transaction, and of all that this engine has logged before `oldest`.
#[derive(Clone, Copy)]
pub(super) struct LogAck {
    pub(super) txn: TxnId,
    pub(super) oldest: TxnId,
}

impl Message for LogAck {
    const KIND: u16 = LOG_ACK;

    fn emit(&self, to: &mut Writer<'_>) {
        to.u64(self.txn.0);
        to.u64(self.oldest.0);
    }
}

impl LogAck {
    pub(super) fn parse(body: &[u8]) -> Result<Self, Malformed> {
        let mut from = Reader::new(body);
        let (txn, oldest) = (TxnId(from.u64()?), TxnId(from.u64()?));
        from.finish()?;
        Ok(Self { txn, oldest })
    }
}

/// LOCK: the keys to lock, with what was read of them.
pub(super) struct Lock<'a> {
    pub(super) txn: &'a Txn,
    pub(super) keys: &'a [usize],
}

impl Message for Lock<'_> {
    const KIND: u16 = LOCK;

    fn emit(&self, to: &mut Writer<'_>) {
        to.u64(self.txn.id.0);
        Validate { txn: self.txn, began: None, keys: self.keys }.emit(to);
    }

    fn keys(&self, each: &mut dyn FnMut(Key)) {
        each_key(self.txn, self.keys, each);
    }
}

/// RESERVE: keys that the transaction has locked, with the bytes of their new values.
pub(super) struct Reserve<'a> {
    pub(super) txn: &'a Txn,
    pub(super) keys: &'a [usize],
}

impl Message for Reserve<'_> {
    const KIND: u16 = RESERVE;

    fn emit(&self, to: &mut Writer<'_>) {
        to.u64(self.txn.id.0);
        to.u16(self.keys.len() as u16);
        for &index in self.keys {
            let value = self.txn.update(index).and_then(|write| write.value);
            to.u64(self.txn.entries()[index].key.0);
            to.u32(value.map_or(0, <[u8]>::len) as u32);
        }
    }

    fn keys(&self, each: &mut dyn FnMut(Key)) {
        each_key(self.txn, self.keys, each);
    }
}

/// A key of a RESERVE, and the bytes of its new value.
pub(super) struct ReservationOf;

impl Item for ReservationOf {
    type Of<'a> = (Key, usize);

    fn parse(from: &mut Reader<'_>) -> Result<(Key, usize), Malformed> {
        match (Key(from.u64()?), from.u32()? as usize) {
            (key, len) if len <= VALUE_MAX => Ok((key, len)),
            _ => Err(Malformed { what: "a value longer than the limit" }),
        }
    }
}

/// A parsed RESERVE.
#[derive(Clone, Copy)]
pub(super) struct ReserveRequest<B> {
    pub(super) txn: TxnId,
    reservations: Items<B, ReservationOf>,
}

impl<'a> ReserveRequest<&'a [u8]> {
    /// Parses and checks every key.
    pub(super) fn parse(body: &'a [u8]) -> Result<Self, Malformed> {
        let mut from = Reader::new(body);
        let txn = TxnId(from.u64()?);
        let count = parse_count(&mut from)?;
        Ok(Self { txn, reservations: Items::parse(body, from, count)? })
    }

    /// The keys and the bytes of their values, in the sender's order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Key, usize)> + Clone {
        self.reservations.iter()
    }
}

/// The header of a message in a message log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LetterHead {
    pub(super) letter: Letter,
    /// What it asks, or answers.
    pub(super) request: RequestId,
}

/// The kind of a message in a message log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Letter {
    /// A request of this kind.
    Request(u16),
    /// An answer.
    Answer,
    /// The request was malformed.
    Refusal,
}

impl LetterHead {
    pub(super) fn emit(&self, to: &mut Writer<'_>) {
        let (class, kind) = match self.letter {
            Letter::Request(kind) => (0, kind),
            Letter::Answer => (1, 0),
            Letter::Refusal => (2, 0),
        };
        to.u16(class);
        to.u16(kind);
        to.u16(self.request.slot);
        to.u32(self.request.sequence);
    }

    /// Parses a message of a message log; also returns its body.
    pub(super) fn parse(message: &[u8]) -> Result<(Self, &[u8]), Malformed> {
        let mut from = Reader::new(message);
        let letter = match (from.u16()?, from.u16()?) {
            (0, kind) => Letter::Request(kind),
            (1, 0) => Letter::Answer,
            (2, 0) => Letter::Refusal,
            _ => return Err(Malformed { what: "an unknown class of message" }),
        };
        let request = RequestId { slot: from.u16()?, sequence: from.u32()? };
        Ok((Self { letter, request }, from.rest()))
    }
}

/// LOG, its body framed before.
pub(super) struct FramedLog<'a>(pub(super) &'a [u8]);

impl Message for FramedLog<'_> {
    const KIND: u16 = LOG;

    fn emit(&self, to: &mut Writer<'_>) {
        to.bytes(self.0);
    }

    fn keys(&self, each: &mut dyn FnMut(Key)) {
        logged_keys(self.0, each);
    }
}

/// The keys that a framed LOG installs, for traces.
pub(super) fn logged_keys(body: &[u8], each: &mut dyn FnMut(Key)) {
    let writes = Writes::parse(body);
    writes.iter().flat_map(|writes| writes.keys()).for_each(each);
}

/// An answer as it came. Its kind says nothing.
pub(super) struct AsItCame<'a>(pub(super) &'a [u8]);

impl Message for AsItCame<'_> {
    const KIND: u16 = LOG;

    fn emit(&self, to: &mut Writer<'_>) {
        to.bytes(self.0);
    }
}

/// HELLO: the handles of the asking engine, to which answers are written one-sidedly.
pub(super) struct Hello(pub(super) Option<RemoteHandles>);

impl Message for Hello {
    const KIND: u16 = HELLO;

    fn emit(&self, to: &mut Writer<'_>) {
        if let Some(handles) = self.0 {
            handles.emit(to);
        }
    }
}

pub(super) fn parse_hello(body: &[u8]) -> Result<Option<RemoteHandles>, Malformed> {
    if body.is_empty() { Ok(None) } else { parse_handles(body).map(Some) }
}

/// The memory of a node that one host engine of another may reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RemoteHandles {
    /// The primary shard's table.
    pub(super) table: RKey,
    /// The log ring that this engine alone writes.
    pub(super) ring: RKey,
    /// The message log that this engine alone writes, if there are any.
    pub(super) messages: Option<RKey>,
}

impl Message for RemoteHandles {
    const KIND: u16 = 0;

    fn emit(&self, to: &mut Writer<'_>) {
        to.u32(self.table.0);
        to.u32(self.ring.0);
        if let Some(messages) = self.messages {
            to.u32(messages.0);
        }
    }
}

/// Parses what a node may be reached at.
pub(super) fn parse_handles(body: &[u8]) -> Result<RemoteHandles, Malformed> {
    let mut from = Reader::new(body);
    let (table, ring) = (RKey(from.u32()?), RKey(from.u32()?));
    let messages = if from.rest().is_empty() { None } else { Some(RKey(from.u32()?)) };
    from.finish()?;
    Ok(RemoteHandles { table, ring, messages })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reserve_request_names_keys_and_lengths() {
        let mut txn = Txn::default();
        txn.id = TxnId(99);
        for key in 1..4 {
            let index = txn.write(Key(key));
            txn.put(index, &vec![0; 1_000 * key as usize]);
        }
        let mut body = Vec::new();
        Reserve { txn: &txn, keys: &[0, 2] }.emit(&mut Writer::new(&mut body));
        let request = ReserveRequest::parse(&body).unwrap();
        assert_eq!(request.txn, txn.id);
        assert_eq!(request.iter().collect::<Vec<_>>(), [(Key(1), 1_000), (Key(3), 3_000)]);
        for len in 0..body.len() {
            assert!(ReserveRequest::parse(&body[..len]).is_err(), "the first {len} bytes are none");
        }
        body.push(0);
        assert!(ReserveRequest::parse(&body).is_err(), "nothing follows");
        let Some(last) = body.len().checked_sub(2) else { panic!("a body has bytes") };
        body.pop();
        body[last] = 5;
        assert!(ReserveRequest::parse(&body).is_err(), "no value is as long as that");
    }

    #[test]
    fn what_is_reachable_survives_the_wire() {
        let (table, ring) = (RKey(7), RKey(u32::MAX));
        for messages in [None, Some(RKey(0)), Some(RKey(9))] {
            let handles = RemoteHandles { table, ring, messages };
            let mut bytes = Vec::new();
            Hello(Some(handles)).emit(&mut Writer::new(&mut bytes));
            assert_eq!(parse_hello(&bytes), Ok(Some(handles)));
            assert!(parse_hello(&bytes[1..]).is_err());
            bytes.push(0);
            assert!(parse_handles(&bytes).is_err());
        }
        assert_eq!(parse_hello(&[]), Ok(None));
    }

    #[test]
    fn a_letter_s_head_is_parsed_only_as_it_was_written() {
        let request = RequestId { slot: 513, sequence: 70_000 };
        for letter in [Letter::Request(LOCK), Letter::Answer, Letter::Refusal] {
            let head = LetterHead { letter, request };
            let mut bytes = Vec::new();
            head.emit(&mut Writer::new(&mut bytes));
            let len = bytes.len();
            bytes.extend_from_slice(b"body");
            assert_eq!(LetterHead::parse(&bytes), Ok((head, &b"body"[..])));
            for short in 0..len {
                assert!(LetterHead::parse(&bytes[..short]).is_err(), "{short} bytes");
            }
            bytes[0] = 3;
            assert!(LetterHead::parse(&bytes).is_err());
        }
    }
}
