//! Messages that are checked once, at the edge, and used afterwards without a way to fail.

use std::marker::PhantomData;

use nicol_core::fabric::Fabric;
use nicol_core::wire::{Malformed, Reader};

/// An element that a message repeats: a key with its flags, a write, and so on.
pub trait Item {
    /// The item, borrowed from the message's body.
    type Of<'a>;

    /// Takes one off `from` and checks it.
    fn parse<'a>(from: &mut Reader<'a>) -> Result<Self::Of<'a>, Malformed>;

    /// Passes one and checks it: accepts exactly what [`Item::parse`] takes. For items of which a
    /// check costs less than the item.
    #[inline]
    fn check(from: &mut Reader<'_>) -> Result<(), Malformed> {
        Self::parse(from).map(drop)
    }
}

/// The items at the end of a message's body, all of which have been checked.
///
/// `B` holds the body: a slice while the message is being delivered, a pooled buffer for a task
/// that outlives the delivery ([`Items::keep`]). There is no other way to make one than
/// [`Items::parse`], so that code that has one need not check again.
pub struct Items<B, I> {
    body: B,
    start: usize,
    count: u16,
    item: PhantomData<fn() -> I>,
}

impl<B: Clone, I> Clone for Items<B, I> {
    fn clone(&self) -> Self {
        Self { body: self.body.clone(), start: self.start, count: self.count, item: PhantomData }
    }
}

impl<B: Copy, I> Copy for Items<B, I> {}

impl<'a, I: Item> Items<&'a [u8], I> {
    /// Checks `count` items, which are all that is left of `body` at `from`.
    #[inline]
    pub fn parse(body: &'a [u8], mut from: Reader<'a>, count: u16) -> Result<Self, Malformed> {
        let start = body.len() - from.rest().len();
        for _ in 0..count {
            I::check(&mut from)?;
        }
        from.finish()?;
        Ok(Self { body, start, count, item: PhantomData })
    }

    /// The same in a pooled buffer, for a task that outlives the delivery.
    pub fn keep<F: Fabric>(self, fabric: &F) -> Items<F::Payload, I> {
        let Self { body, start, count, item } = self;
        Items { body: fabric.keep(body), start, count, item }
    }
}

impl<B: AsRef<[u8]>, I: Item> Items<B, I> {
    /// The items, in the sender's order.
    pub fn iter(&self) -> impl Iterator<Item = I::Of<'_>> + Clone {
        let mut from = Reader::new(&self.body.as_ref()[self.start..]);
        (0..self.count).map_while(move |_| I::parse(&mut from).ok())
    }

    /// The whole body of the message.
    pub fn body(&self) -> &[u8] {
        self.body.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Byte;

    impl Item for Byte {
        type Of<'a> = u8;

        fn parse(from: &mut Reader<'_>) -> Result<u8, Malformed> {
            match from.u8()? {
                255 => Err(Malformed { what: "a byte" }),
                byte => Ok(byte),
            }
        }
    }

    fn parse(body: &[u8], count: u16) -> Result<Items<&[u8], Byte>, Malformed> {
        let mut from = Reader::new(body);
        from.u8()?;
        Items::parse(body, from, count)
    }

    #[test]
    fn every_item_is_checked_and_none_is_left() {
        let items = parse(&[7, 1, 2, 3], 3).unwrap();
        assert_eq!(items.iter().collect::<Vec<_>>(), [1, 2, 3]);
        assert_eq!(items.body(), [7, 1, 2, 3]);
        assert!(parse(&[7, 1, 2, 255], 3).is_err(), "the last one is wrong");
        assert!(parse(&[7, 1, 2], 3).is_err(), "one is missing");
        assert!(parse(&[7, 1, 2, 3, 4], 3).is_err(), "one is left");
    }
}
