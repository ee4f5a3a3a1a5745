//! Pilaf's messages: how a client learns the server's key, and the RPCs.

use nicol_core::fabric::Message;
use nicol_core::ids::{Key, RKey};
use nicol_core::wire::{Malformed, Reader, Writer};

use crate::kv::name::Name;

/// Client to server: asks which memory it may read.
pub(super) const HELLO: u16 = 1;
/// Client to server: do this.
pub(super) const ASK: u16 = 2;
const KEY: u16 = 3;
const ANSWER: u16 = 4;

/// HELLO: asks where a server's table is.
pub(super) struct Hello;

impl Message for Hello {
    const KIND: u16 = HELLO;

    fn emit(&self, _: &mut Writer<'_>) {}
}

/// The answer to HELLO.
pub(super) struct Opened(pub(super) RKey);

impl Message for Opened {
    const KIND: u16 = KEY;

    fn emit(&self, to: &mut Writer<'_>) {
        to.u32(self.0.0);
    }
}

impl Opened {
    pub(super) fn parse(body: &[u8]) -> Result<Self, Malformed> {
        let mut from = Reader::new(body);
        let rkey = RKey(from.u32()?);
        from.finish().map(|()| Self(rkey))
    }
}

/// The operation that the server's CPU is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What<'a> {
    Put(&'a [u8]),
    Delete,
    Get,
}

/// ASK: has the server's CPU do an operation on a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ask<'a> {
    pub(super) key: &'a [u8],
    pub(super) what: What<'a>,
}

impl Message for Ask<'_> {
    const KIND: u16 = ASK;

    fn emit(&self, to: &mut Writer<'_>) {
        let (code, value) = match self.what {
            What::Put(value) => (0, value),
            What::Delete => (1, &[][..]),
            What::Get => (2, &[][..]),
        };
        to.u8(code);
        to.u32(self.key.len() as u32);
        to.bytes(self.key);
        to.bytes(value);
    }

    fn keys(&self, each: &mut dyn FnMut(Key)) {
        Name::of(self.key).key().into_iter().for_each(each);
    }
}

impl<'a> Ask<'a> {
    pub(super) fn parse(body: &'a [u8]) -> Result<Self, Malformed> {
        let mut from = Reader::new(body);
        let (code, key) = (from.u8()?, from.u32()?);
        let key = from.bytes(key as usize)?;
        let what = match code {
            0 => What::Put(from.rest()),
            1 => What::Delete,
            2 => What::Get,
            _ => return Err(Malformed { what: "no such request" }),
        };
        if key.is_empty() {
            return Err(Malformed { what: "a key without a byte" });
        }
        Ok(Self { key, what })
    }
}

/// The answer: is there a value, and which; of a PUT or DELETE, that it is done.
pub(super) struct Answer<'a>(pub(super) Option<&'a [u8]>);

impl Message for Answer<'_> {
    const KIND: u16 = ANSWER;

    fn emit(&self, to: &mut Writer<'_>) {
        to.u8(u8::from(self.0.is_some()));
        to.bytes(self.0.unwrap_or_default());
    }
}

impl<'a> Answer<'a> {
    pub(super) fn parse(body: &'a [u8]) -> Result<Self, Malformed> {
        let mut from = Reader::new(body);
        let is_there = from.u8()? != 0;
        Ok(Self(is_there.then_some(from.rest())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_survive_the_way_and_truncated_ones_are_refused() {
        for what in [What::Put(b"value"), What::Delete, What::Get] {
            let ask = Ask { key: b"key", what };
            let mut body = Vec::new();
            ask.emit(&mut Writer::new(&mut body));
            assert_eq!(Ask::parse(&body), Ok(ask));
            assert!((0..8).all(|len| Ask::parse(&body[..len]).is_err()));
        }
        assert!(Ask::parse(&[0, 0, 0, 0, 0]).is_err() && Ask::parse(&[3, 1, 0, 0, 0, 9]).is_err());
    }
}
