//! DrTM-KV's messages: how a client learns what it may read, gets and puts.

use nicol_core::fabric::Message;
use nicol_core::ids::{Key, RKey};
use nicol_core::wire::{Malformed, Reader, Writer};

use super::layout::ValueAddress;

/// Client to server: asks which memory it may read.
pub(super) const HELLO: u16 = 1;
/// Client to server: the value of this key.
pub(super) const GET: u16 = 2;
/// Client to server: write this value.
pub(super) const PUT: u16 = 3;
const KEYS: u16 = 4;
const ANSWER: u16 = 5;

/// HELLO: asks where a server's index and values are.
pub(super) struct Hello;

impl Message for Hello {
    const KIND: u16 = HELLO;

    fn emit(&self, _: &mut Writer<'_>) {}
}

/// The answer to HELLO: the keys of index and values, and of the values that the SoC keeps if
/// clients READ these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Keys {
    pub(super) index: RKey,
    pub(super) values: RKey,
    pub(super) kept: Option<RKey>,
}

impl Message for Keys {
    const KIND: u16 = KEYS;

    fn emit(&self, to: &mut Writer<'_>) {
        to.u32(self.index.0);
        to.u32(self.values.0);
        self.kept.iter().for_each(|kept| to.u32(kept.0));
    }
}

impl Keys {
    pub(super) fn parse(body: &[u8]) -> Result<Self, Malformed> {
        let mut from = Reader::new(body);
        let (index, values) = (RKey(from.u32()?), RKey(from.u32()?));
        let kept = if from.rest().is_empty() { None } else { Some(RKey(from.u32()?)) };
        from.finish().map(|()| Self { index, values, kept })
    }
}

/// GET: asks the SoC for the value of a key.
pub(super) struct Get(pub(super) Key);

impl Message for Get {
    const KIND: u16 = GET;

    fn emit(&self, to: &mut Writer<'_>) {
        to.u64(self.0.0);
    }

    fn keys(&self, each: &mut dyn FnMut(Key)) {
        each(self.0);
    }
}

impl Get {
    pub(super) fn parse(body: &[u8]) -> Result<Self, Malformed> {
        let mut from = Reader::new(body);
        let key = Key(from.u64()?);
        from.finish().map(|()| Self(key))
    }
}

/// PUT: has the server write a value.
pub(super) struct Put<'a> {
    pub(super) key: Key,
    pub(super) value: &'a [u8],
}

impl Message for Put<'_> {
    const KIND: u16 = PUT;

    fn emit(&self, to: &mut Writer<'_>) {
        to.u64(self.key.0);
        to.bytes(self.value);
    }

    fn keys(&self, each: &mut dyn FnMut(Key)) {
        each(self.key);
    }
}

impl<'a> Put<'a> {
    pub(super) fn parse(body: &'a [u8]) -> Result<Self, Malformed> {
        let mut from = Reader::new(body);
        let key = Key(from.u64()?);
        Ok(Self { key, value: from.rest() })
    }
}

/// The answer to GET or PUT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer<'a> {
    /// There is no such record.
    Absent,
    /// Its value; of a PUT, that it is done.
    Value(&'a [u8]),
    /// The address of its value, for the client to READ. [OffPath23 5.2, A5]
    At(ValueAddress),
}

impl Message for Answer<'_> {
    const KIND: u16 = ANSWER;

    fn emit(&self, to: &mut Writer<'_>) {
        match self {
            Self::Absent => to.u8(0),
            Self::Value(value) => {
                to.u8(1);
                to.bytes(value);
            }
            Self::At(address) => {
                to.u8(2);
                to.u64(address.word());
            }
        }
    }
}

impl<'a> Answer<'a> {
    pub(super) fn parse(body: &'a [u8]) -> Result<Self, Malformed> {
        let mut from = Reader::new(body);
        match from.u8()? {
            0 => from.finish().map(|()| Self::Absent),
            1 => Ok(Self::Value(from.rest())),
            2 => {
                let address =
                    ValueAddress::of(from.u64()?).ok_or(Malformed { what: "an address" })?;
                from.finish().map(|()| Self::At(address))
            }
            _ => Err(Malformed { what: "no such answer" }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_survive_the_way_and_truncated_ones_are_refused() {
        let address = ValueAddress { extent: 3, version: 9 };
        for answer in [Answer::Absent, Answer::Value(b"value"), Answer::At(address)] {
            let mut body = Vec::new();
            answer.emit(&mut Writer::new(&mut body));
            assert_eq!(Answer::parse(&body), Ok(answer));
        }
        assert!(Answer::parse(&[]).is_err() && Answer::parse(&[2, 1]).is_err());
        assert!(
            Answer::parse(&[2, 0, 0, 0, 0, 0, 0, 0, 0]).is_err() && Answer::parse(&[3]).is_err()
        );
    }
}
