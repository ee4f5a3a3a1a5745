//! The messages of PRISM's systems: how a client learns what it may reach, and reports buffers.

use nicol_core::fabric::Message;
use nicol_core::ids::{FreeListKey, Incarnation, RKey};
use nicol_core::wire::{Malformed, Reader, Writer};

/// Client to server: asks which memory it may reach.
pub(crate) const HELLO: u16 = 1;
const HANDLES: u16 = 2;
/// Client to server: buffers that are not used any more.
pub(crate) const UNUSED: u16 = 3;
const DONE: u16 = 4;
/// A server that has come back to another one: count me as this life, and let me copy.
pub(crate) const REJOIN: u16 = 5;

/// HELLO: asks for a server's [`Handles`].
pub(crate) struct Hello;

impl Message for Hello {
    const KIND: u16 = HELLO;

    fn emit(&self, _to: &mut Writer<'_>) {}
}

/// A free list and the bytes of its buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct List {
    pub(crate) key: FreeListKey,
    pub(crate) bytes: u64,
}

/// The handles by which clients reach a server's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Handles {
    /// The key of the whole region, for reading and for allocating.
    pub(crate) region: RKey,
    /// The key of the same region for swapping pointers: another one whenever a replica has
    /// rejoined.
    pub(crate) pointers: RKey,
    /// Free lists by ascending size of their buffers.
    pub(crate) lists: Vec<List>,
    /// By node: the newest life that the server knows of it; its own is the one that answers.
    pub(crate) lives: Vec<Incarnation>,
}

impl Message for Handles {
    const KIND: u16 = HANDLES;

    fn emit(&self, to: &mut Writer<'_>) {
        to.u32(self.region.0);
        to.u32(self.pointers.0);
        to.u16(self.lists.len() as u16);
        for list in &self.lists {
            to.u32(list.key.0);
            to.u64(list.bytes);
        }
        self.lives.iter().for_each(|life| to.u32(life.0));
    }
}

impl Handles {
    /// Parses those of a server in a cluster of so many nodes.
    pub(crate) fn parse(body: &[u8], nodes: usize) -> Result<Self, Malformed> {
        let mut from = Reader::new(body);
        let (region, pointers) = (RKey(from.u32()?), RKey(from.u32()?));
        let count = from.u16()?;
        let mut lists = Vec::new();
        for _ in 0..count {
            lists.push(List { key: FreeListKey(from.u32()?), bytes: from.u64()? });
        }
        let mut lives = Vec::with_capacity(nodes);
        for _ in 0..nodes {
            lives.push(Incarnation(from.u32()?));
        }
        from.finish()?;
        Ok(Self { region, pointers, lists, lives })
    }
}

/// REJOIN: the life of the sender that begins.
pub(crate) struct Rejoin(pub(crate) Incarnation);

impl Message for Rejoin {
    const KIND: u16 = REJOIN;

    fn emit(&self, to: &mut Writer<'_>) {
        to.u32(self.0.0);
    }
}

impl Rejoin {
    pub(crate) fn parse(body: &[u8]) -> Result<Self, Malformed> {
        let mut from = Reader::new(body);
        let life = Incarnation(from.u32()?);
        from.finish().map(|()| Self(life))
    }
}

/// A buffer that nothing points to any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unused {
    pub(crate) offset: u64,
    /// The first word that was written to it, which names its use.
    pub(crate) stamp: u64,
    /// The address of the pointer that pointed to it, or was to.
    pub(crate) pointer: u64,
}

impl Unused {
    const BYTES: usize = 24;
}

/// Buffers at a server that perhaps nobody can report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Suspicion {
    /// Every unused buffer is reported.
    #[default]
    None,
    /// One that was replaced, and whose stamp nobody has read.
    Unseen,
    /// Those allocated by a chain that went unanswered. The chain may still wait for its turn
    /// there.
    Unanswered,
}

impl Suspicion {
    const ALL: [Self; 3] = [Self::None, Self::Unseen, Self::Unanswered];
}

/// UNUSED: what is not used any more of a server's memory in this life of it, and what may be.
pub(crate) struct Report<'a> {
    pub(crate) life: Incarnation,
    pub(crate) suspects: Suspicion,
    pub(crate) unused: &'a [Unused],
}

impl Message for Report<'_> {
    const KIND: u16 = UNUSED;

    fn emit(&self, to: &mut Writer<'_>) {
        to.u8(life_bits(self.life) << 2 | self.suspects as u8);
        for unused in self.unused {
            to.u64(unused.offset);
            to.u64(unused.stamp);
            to.u64(unused.pointer);
        }
    }
}

/// The bits by which a report names a life: nothing waits for 64 lives.
const fn life_bits(life: Incarnation) -> u8 {
    (life.0 % 64) as u8
}

/// Parses an UNUSED that is told to a server in its life `here`: what it suspects, and the buffers.
/// Those of another life are left out: what stands where they were is something else by now.
pub(crate) fn parse_report(
    body: &[u8],
    here: Incarnation,
) -> Result<(Suspicion, Vec<Unused>), Malformed> {
    let mut from = Reader::new(body);
    let first = from.u8()?;
    let suspects = Suspicion::ALL.get(usize::from(first & 3));
    let suspects = suspects.ok_or(Malformed { what: "a suspicion" })?;
    let mut unused = Vec::with_capacity(from.rest().len() / Unused::BYTES);
    while !from.rest().is_empty() {
        let (offset, stamp, pointer) = (from.u64()?, from.u64()?, from.u64()?);
        unused.push(Unused { offset, stamp, pointer });
    }
    unused.retain(|_| first >> 2 == life_bits(here));
    Ok((*suspects, unused))
}

/// The answer to a request that has none.
pub(crate) struct Done;

impl Message for Done {
    const KIND: u16 = DONE;

    fn emit(&self, _to: &mut Writer<'_>) {}
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
        let lists = [5, 6].map(|key| List { key: FreeListKey(key), bytes: 64 }).to_vec();
        let lives = vec![Incarnation(1), Incarnation(7)];
        let handles = Handles { region: RKey(3), pointers: RKey(4), lists, lives };
        let body = emitted(&handles);
        assert_eq!(Handles::parse(&body, 2), Ok(handles));
        assert!((0..body.len()).all(|len| Handles::parse(&body[..len], 2).is_err()));
        assert!(Handles::parse(&body, 1).is_err(), "of a larger cluster");
        let unused = [Unused { offset: 1, stamp: 2, pointer: 3 }];
        let (here, suspects) = (Incarnation(7), Suspicion::Unanswered);
        let body = emitted(&Report { life: here, suspects, unused: &unused });
        assert_eq!(parse_report(&body, here), Ok((suspects, unused.to_vec())));
        let whole = |len: usize| parse_report(&body[..len], here);
        assert!((0..body.len()).all(|len| len == 1 || whole(len).is_err()));
        // What an earlier life had is not looked for in a later one.
        assert_eq!(parse_report(&body, Incarnation(8)), Ok((suspects, Vec::new())));
        assert!(parse_report(&[7 << 2 | 3], here).is_err(), "no such suspicion");
    }
}
