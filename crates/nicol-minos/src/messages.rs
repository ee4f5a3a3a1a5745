//! Messages, by the names of Table I. Those of the scope model carry the scope.

use nicol_core::fabric::Message;
use nicol_core::ids::Key;
use nicol_core::wire::{Malformed, Reader, Writer};

use super::model::Memory;
use super::timestamp::Timestamp;

pub(super) const INV: u16 = 1;
pub(super) const ACK: u16 = 2;
pub(super) const ACK_C: u16 = 3;
pub(super) const ACK_P: u16 = 4;
pub(super) const VAL: u16 = 5;
pub(super) const VAL_C: u16 = 6;
pub(super) const VAL_P: u16 = 7;
pub(super) const PERSIST: u16 = 8;
pub(super) const SCOPE_VAL_P: u16 = 9;
pub(super) const REJECT: u16 = 10;
pub(super) const SHIP: u16 = 24;
pub(super) const MAY_FORGET: u16 = 26;
pub(super) const FORGET: u16 = 27;

/// The number of a scope that stands for no scope.
pub(super) const NO_SCOPE: u64 = 0;

/// INV, [INV]sc: the new value, which invalidates the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Inv<'a> {
    /// The write's number at the engine that sends this.
    pub(super) write: u64,
    /// The view in which it was sent.
    pub(super) epoch: u64,
    pub(super) key: Key,
    pub(super) ts: Timestamp,
    pub(super) scope: u64,
    /// Whether the receiver may already have it, from another view or another sender.
    pub(super) again: bool,
    /// `None` removes the record.
    pub(super) value: Option<&'a [u8]>,
}

impl<'a> Inv<'a> {
    const AGAIN: u8 = 1;
    const HAS_VALUE: u8 = 2;

    /// Reads what [`Message::emit`] wrote.
    pub(super) fn parse(body: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(body);
        let [write, epoch, key, ts, scope] = reader.u64s()?;
        let flags = reader.u8()?;
        if flags & !(Self::AGAIN | Self::HAS_VALUE) != 0 {
            return Err(Malformed { what: "unknown flags of an INV" });
        }
        let value = (flags & Self::HAS_VALUE != 0).then(|| reader.rest());
        if value.is_none() {
            reader.finish()?;
        }
        let (key, ts) = (Key(key), Timestamp::of_bits(ts));
        Ok(Self { write, epoch, key, ts, scope, again: flags & Self::AGAIN != 0, value })
    }
}

impl Message for Inv<'_> {
    const KIND: u16 = INV;

    fn emit(&self, to: &mut Writer<'_>) {
        for word in [self.write, self.epoch, self.key.0, self.ts.bits(), self.scope] {
            to.u64(word);
        }
        let again = if self.again { Self::AGAIN } else { 0 };
        to.u8(again | if self.value.is_some() { Self::HAS_VALUE } else { 0 });
        to.bytes(self.value.unwrap_or_default());
    }

    fn name() -> &'static str {
        "INV"
    }

    fn keys(&self, each: &mut dyn FnMut(Key)) {
        each(self.key);
    }
}

/// A message of so many words.
macro_rules! words {
    ($(#[$doc:meta] $name:ident = $kind:ident $shown:literal { $($field:ident),+ } $keys:expr;)+) => {$(
        #[$doc]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) struct $name {
            $(pub(super) $field: u64,)+
        }

        impl $name {
            /// Reads what [`Message::emit`] wrote.
            pub(super) fn parse(body: &[u8]) -> Result<Self, Malformed> {
                let mut reader = Reader::new(body);
                let message = Self { $($field: reader.u64()?,)+ };
                reader.finish()?;
                Ok(message)
            }
        }

        impl Message for $name {
            const KIND: u16 = $kind;

            fn emit(&self, to: &mut Writer<'_>) {
                $(to.u64(self.$field);)+
            }

            fn name() -> &'static str {
                $shown
            }

            fn keys(&self, each: &mut dyn FnMut(Key)) {
                let named: fn(&Self) -> Option<u64> = $keys;
                named(self).into_iter().map(Key).for_each(each);
            }
        }
    )+};
}

words! {
    /// ACK: the update is in volatile and in durable memory.
    Ack = ACK "ACK" { write, epoch } |_| None;
    /// VAL: every node has it in both.
    Val = VAL "VAL" { key, ts } |val| Some(val.key);
    /// [PERSIST]sc: persist all writes of a scope.
    Persist = PERSIST "PERSIST" { write, epoch, scope } |_| None;
    /// [VAL_P]sc: every node has persisted all of a scope.
    ScopeValP = SCOPE_VAL_P "[VAL_P]sc" { scope } |_| None;
    /// A SmartNIC has no resources for an INV: send it again later. [MINOS24 V-B1]
    Reject = REJECT "REJECT" { write, epoch } |_| None;
}

/// A message with the body of another one.
macro_rules! bodies {
    ($(#[$doc:meta] $name:ident = $kind:ident $shown:literal of $body:ident;)+) => {$(
        #[$doc]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) struct $name(pub(super) $body);

        impl Message for $name {
            const KIND: u16 = $kind;

            fn emit(&self, to: &mut Writer<'_>) {
                self.0.emit(to);
            }

            fn name() -> &'static str {
                $shown
            }

            fn keys(&self, each: &mut dyn FnMut(Key)) {
                self.0.keys(each);
            }
        }
    )+};
}

bodies! {
    /// ACK_C: the update is in volatile memory.
    AckC = ACK_C "ACK_C" of Ack;
    /// ACK_P: it is in durable memory; or, with the number of a PERSIST, all of a scope.
    AckP = ACK_P "ACK_P" of Ack;
    /// VAL_C: every node has it in volatile memory.
    ValC = VAL_C "VAL_C" of Val;
    /// VAL_P: every node has it in durable memory.
    ValP = VAL_P "VAL_P" of Val;
}

/// The memory that an ACK or a VAL of this kind vouches for; `None` of another message.
pub(super) const fn vouched_for(kind: u16) -> Option<Memory> {
    match kind {
        ACK | VAL => Some(Memory::Both),
        ACK_C | VAL_C => Some(Memory::Volatile),
        ACK_P | VAL_P => Some(Memory::Durable),
        _ => None,
    }
}

/// The kind of the VAL that vouches for `memory`.
pub(super) const fn val_kind(memory: Memory) -> u16 {
    match memory {
        Memory::Both => VAL,
        Memory::Volatile => VAL_C,
        Memory::Durable => VAL_P,
    }
}

/// The answer to a message that would be one-way on a reliable route.
pub(super) struct Received;

impl Message for Received {
    const KIND: u16 = 11;

    fn emit(&self, _: &mut Writer<'_>) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    fn emitted<M: Message>(message: &M) -> Vec<u8> {
        let mut body = Vec::new();
        message.emit(&mut Writer::new(&mut body));
        body
    }

    #[test]
    fn an_inv_survives_the_wire_and_what_is_none_is_refused() {
        let (key, ts) = (Key(7), Timestamp::of_bits(9));
        for (value, again) in [(Some(&b"value"[..]), false), (Some(b""), true), (None, true)] {
            let inv = Inv { write: 1, epoch: 2, key, ts, scope: 5, again, value };
            let body = emitted(&inv);
            assert_eq!(Inv::parse(&body), Ok(inv));
            for len in 0..41 {
                assert!(Inv::parse(&body[..len]).is_err());
            }
        }
        let inv = Inv { write: 1, epoch: 2, key, ts, scope: 5, again: false, value: None };
        let mut body = emitted(&inv);
        body.push(0);
        assert!(Inv::parse(&body).is_err(), "bytes behind a removal");
        body[40] = 4;
        assert!(Inv::parse(&body).is_err(), "a flag that there is not");
    }

    #[test]
    fn short_messages_survive_the_wire() {
        let persist = Persist { write: 3, epoch: 4, scope: 5 };
        assert_eq!(Persist::parse(&emitted(&persist)), Ok(persist));
        assert!(Persist::parse(&emitted(&persist)[1..]).is_err());
        assert!(Ack::parse(&emitted(&persist)).is_err(), "trailing bytes");
    }
}
