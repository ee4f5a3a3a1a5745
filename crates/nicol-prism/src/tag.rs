//! Tags of the replicated registers, and the writers that choose them. [PRISM21 7.1]

use nicol_core::ids::{EngineId, Incarnation, Side, Version};
use nicol_core::view::View;

const ID_BITS: u32 = 24;
const LIFE_BITS: u32 = 10;

/// A version of a block: a timestamp, and the writer that chose it. Tags compare as words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Tag(pub(crate) u64);

impl Tag {
    /// Of what is loaded before the start.
    pub(crate) const LOADED: Self = Self(1);

    /// The tag of timestamp `ts` by `writer`.
    ///
    /// # Panics
    /// After 2^40 timestamps.
    pub(crate) const fn new(ts: u64, writer: Writer) -> Self {
        match Self::try_new(ts, writer) {
            Some(tag) => tag,
            None => panic!("a timestamp has 40 bits"),
        }
    }

    /// The same; `None` after 2^40 timestamps.
    pub(crate) const fn try_new(ts: u64, writer: Writer) -> Option<Self> {
        if ts >> (u64::BITS - ID_BITS) == 0 { Some(Self(ts << ID_BITS | writer.0)) } else { None }
    }

    /// The writer that chose it; of loaded values, the first engine.
    pub(crate) const fn writer(self) -> Writer {
        Writer(self.0 & ((1 << ID_BITS) - 1))
    }

    pub(crate) const fn ts(self) -> u64 {
        self.0 >> ID_BITS
    }

    /// As histories tell it.
    pub(crate) const fn version(self) -> Version {
        Version(self.0)
    }
}

/// A writer: one life of an engine. The choices of its earlier lives are unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Writer(u64);

impl Writer {
    /// `engine` in this life of its side.
    ///
    /// # Panics
    /// If it is no host engine of `view`; if it lives for the 1,024th time.
    pub(crate) fn new(view: &View, engine: EngineId, life: Incarnation) -> Self {
        let Some(index) = view.host_index_of(engine) else { panic!("{engine} is no host engine") };
        assert!(index < 1 << (ID_BITS - LIFE_BITS), "a writer has 14 bits");
        assert!(life.0 < 1 << LIFE_BITS, "a life has 10 bits");
        Self((index as u64) << LIFE_BITS | u64::from(life.0))
    }

    /// The engine, of whichever life; `None` if `view` has none such.
    pub(crate) fn engine(self, view: &View) -> Option<EngineId> {
        let mut hosts = view.engine_ids().filter(|engine| engine.side == Side::Host);
        hosts.nth((self.0 >> LIFE_BITS) as usize)
    }

    /// Whether `view` says that this life of the engine is over. Of a side that was given up the
    /// view has the number of the next life, which may not have begun.
    pub(crate) fn is_over_in(self, view: &View) -> bool {
        self.engine(view).is_none_or(|engine| {
            let known = view.side(engine.node, Side::Host).incarnation;
            self.0 & ((1 << LIFE_BITS) - 1) < u64::from(known.0)
        })
    }
}

/// The name of an operation: its writer, and a number that it never uses again; never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Name(pub(crate) u64);

impl Name {
    /// The operation of this number.
    ///
    /// # Panics
    /// After 2^40 operations.
    pub(crate) const fn new(writer: Writer, number: u64) -> Self {
        assert!(number >> (u64::BITS - ID_BITS) == 0, "a number has 40 bits");
        Self(writer.0 << (u64::BITS - ID_BITS) | number)
    }

    /// Whose operation it is.
    pub(crate) const fn writer(self) -> Writer {
        Writer(self.0 >> (u64::BITS - ID_BITS))
    }
}

/// The tag and the value of `tag | value`.
pub(crate) fn parse(bytes: &[u8]) -> Option<(Tag, &[u8])> {
    let (tag, value) = bytes.split_first_chunk()?;
    Some((Tag(u64::from_le_bytes(*tag)), value))
}

#[cfg(test)]
mod tests {
    use nicol_core::ids::NodeId;
    use nicol_core::view::SideState;

    use super::*;

    fn writer(view: &View, node: u16, life: u32) -> Writer {
        Writer::new(view, EngineId::host(NodeId(node), 1), Incarnation(life))
    }

    #[test]
    fn a_later_timestamp_wins_whoever_chose_it_and_equal_ones_differ_by_writer_and_life() {
        let view = View::new(3, 3, 2, 1).unwrap();
        let writer = |node, life| writer(&view, node, life);
        let (first, later, other) = (writer(0, 1), writer(0, 2), writer(2, 1));
        assert!(Tag::new(2, first) > Tag::new(1, other) && Tag::new(1, first) > Tag::LOADED);
        assert!(Tag::new(1, later) > Tag::new(1, first) && Tag::new(1, other) > Tag::new(1, later));
        assert_eq!(Tag::new(7, other).ts(), 7);
        assert_eq!(Name::new(other, 5).writer(), other);
        assert_ne!(Name::new(other, 5), Name::new(other, 6));
    }

    #[test]
    fn a_name_tells_whether_its_holder_s_life_is_over() {
        let view = View::new(3, 3, 2, 1).unwrap();
        let (first, other) = (writer(&view, 1, 1), writer(&view, 2, 1));
        assert!(!first.is_over_in(&view) && !other.is_over_in(&view));
        let second = Incarnation(2);
        let state = |up| SideState { up, incarnation: second };
        let down = view.with_side(NodeId(1), Side::Host, state(false));
        assert!(first.is_over_in(&down) && !other.is_over_in(&down));
        assert!(!writer(&view, 1, 2).is_over_in(&down), "it is to come");
        let back = down.with_side(NodeId(1), Side::Host, state(true));
        assert!(first.is_over_in(&back) && !writer(&view, 1, 2).is_over_in(&back));
    }
}
