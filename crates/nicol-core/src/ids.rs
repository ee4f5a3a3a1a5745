//! Identities: nodes, engines, shards, keys, versions, transactions.

use std::fmt;

/// A node of the cluster: host and NIC together, numbered from 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u16);

impl NodeId {
    /// Its position among the nodes.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// The number of a [`View`](crate::view::View): later views have higher numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u32);

impl Epoch {
    /// Of the first view.
    pub const FIRST: Self = Self(1);

    /// Of the view after this one.
    ///
    /// # Panics
    /// After 2^32 views.
    pub const fn next(self) -> Self {
        assert!(self.0 < u32::MAX, "a cluster has fewer than 2^32 views");
        Self(self.0 + 1)
    }
}

/// One life of a side of a node, from a start to a crash: each start makes it one higher, so that
/// what an earlier life sent, or is sent, can be told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation(pub u32);

impl Incarnation {
    pub const FIRST: Self = Self(1);

    /// The life after this one.
    ///
    /// # Panics
    /// After 2^32 lives.
    pub const fn next(self) -> Self {
        assert!(self.0 < u32::MAX, "a side starts fewer than 2^32 times");
        Self(self.0 + 1)
    }
}

/// Which side of a node's PCIe boundary an engine runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Side {
    Host,
    /// A NIC core (or, where the profile has none, the host core that polls in its place).
    Nic,
}

impl Side {
    /// The other side of the same node.
    pub const fn other(self) -> Self {
        match self {
            Self::Host => Self::Nic,
            Self::Nic => Self::Host,
        }
    }

    /// Its name in words and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Nic => "nic",
        }
    }
}

/// An engine: the executor of one core of one side of one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EngineId {
    pub node: NodeId,
    /// Host or NIC.
    pub side: Side,
    /// The core's index on that side, from 0.
    pub core: u8,
}

impl EngineId {
    /// The engine of host core `core`.
    pub const fn host(node: NodeId, core: u8) -> Self {
        Self { node, side: Side::Host, core }
    }

    /// The engine of NIC core `core`.
    pub const fn nic(node: NodeId, core: u8) -> Self {
        Self { node, side: Side::Nic, core }
    }

    /// Bits of a node's number: with side and core, a lock word names its owner in 21 bits and
    /// keeps 42 for the record's version.
    pub const NODE_BITS: u32 = 12;

    /// Packs into the 24 bits used on the wire: the node's low byte, its high bits, side, core.
    ///
    /// # Panics
    /// If the node's number needs more than [`EngineId::NODE_BITS`].
    pub const fn pack(self) -> u32 {
        let node = self.node.0 as u32;
        assert!(node >> Self::NODE_BITS == 0, "a node's number has 12 bits");
        (node & 0xff) << 16 | (node >> 8) << 9 | (self.side as u32) << 8 | self.core as u32
    }

    /// The reverse of [`EngineId::pack`]; `None` for a value that no engine packs to.
    pub const fn unpack(packed: u32) -> Option<Self> {
        let high = packed >> 9 & 0x7f;
        if packed >> 24 != 0 || high >> (Self::NODE_BITS - 8) != 0 {
            return None;
        }
        let side = if packed >> 8 & 1 == 0 { Side::Host } else { Side::Nic };
        let node = NodeId((high << 8 | packed >> 16) as u16);
        Some(Self { node, side, core: packed as u8 })
    }
}

impl fmt::Display for EngineId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "n{}.{}{}", self.node.0, self.side.name(), self.core)
    }
}

/// A shard of the key space: which nodes hold it is said by the [`View`](crate::view::View).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardId(pub u16);

/// A table of a workload: the highest byte of a [`Key`].
///
/// Records of tables from [`TableId::PARTITIONED`] on live where their key says
/// ([`Key::partition`]), those of the others where its hash does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableId(pub u8);

impl TableId {
    /// The first placed table.
    pub const PARTITIONED: Self = Self(0x80);
    /// The first ordered table: a placed one whose records a node may scan in the order of their
    /// keys, if its system has ordered tables.
    pub const ORDERED: Self = Self(0xc0);
}

/// A record's key: 8 bits of table, 56 bits within the table; in a placed table these are 16 bits
/// of place and 40 bits within the place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(pub u64);

impl Key {
    /// The number of bits below the table byte.
    pub const ROW_BITS: u32 = 56;

    /// The key of `row` in `table`.
    ///
    /// # Panics
    /// If `row` needs more than 56 bits.
    pub const fn new(table: TableId, row: u64) -> Self {
        assert!(row >> Self::ROW_BITS == 0, "a row is at most 56 bits");
        Self((table.0 as u64) << Self::ROW_BITS | row)
    }

    /// The number of bits below the place, in a placed table.
    pub const PARTITIONED_ROW_BITS: u32 = 40;

    /// The key of `row` at `place` in `table`, a placed one. All keys of a place are in one shard,
    /// whatever their table: a place is a unit of partitioning, such as a warehouse.
    ///
    /// # Panics
    /// If `table` is not a placed one or `row` needs more than 40 bits.
    pub const fn partitioned(table: TableId, partition: u16, row: u64) -> Self {
        assert!(
            table.0 >= TableId::PARTITIONED.0,
            "only a partitioned table's keys name a partition"
        );
        assert!(row >> Self::PARTITIONED_ROW_BITS == 0, "a row of a partition is at most 40 bits");
        Self::new(table, (partition as u64) << Self::PARTITIONED_ROW_BITS | row)
    }

    /// The place, in a placed table; otherwise `None`: the key is placed by its hash.
    pub const fn partition(self) -> Option<u16> {
        if self.table().0 < TableId::PARTITIONED.0 {
            return None;
        }
        Some((self.0 >> Self::PARTITIONED_ROW_BITS) as u16)
    }

    /// True if it is a key of an ordered table.
    pub const fn is_ordered(self) -> bool {
        self.table().0 >= TableId::ORDERED.0
    }

    pub const fn table(self) -> TableId {
        TableId((self.0 >> Self::ROW_BITS) as u8)
    }

    /// The row within the table, a place included.
    pub const fn row(self) -> u64 {
        self.0 & ((1 << Self::ROW_BITS) - 1)
    }
}

/// A record's version. Installs move it forward; a version is never reused for a key, not even
/// over a deletion (see `nicol_store::host_table`, the segment's floor).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(pub u64);

impl Version {
    /// The version after this one.
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// A transaction: the coordinator's engine, its life, and a sequence number of that life.
/// [Xenic21 4.2 (1)]
///
/// From the highest bit: the packed engine in 24 bits, of which it leaves three free; those and the
/// next five are the life, counted from the first and modulo 256, as far as frames tell lives
/// apart; then the sequence number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TxnId(pub u64);

impl TxnId {
    const SEQUENCE_BITS: u32 = 35;
    /// Where the low bits of the life stand, and how many there are.
    const LIFE: (u32, u32) = (Self::SEQUENCE_BITS, 5);
    /// Where its high bits stand: those that [`EngineId::pack`] leaves free.
    const LIFE_HIGH: u32 = 40 + 13;
    /// The same, as a mask.
    const LIFE_HIGH_MASK: u64 = 0b111 << Self::LIFE_HIGH;

    /// The `sequence`-th transaction of life `incarnation` of `engine`; sequences start at 1 so
    /// that no id is 0. They begin again after 2^35, nine hours at a million a second: by then the
    /// transactions of the first ones have long ended.
    ///
    /// # Panics
    /// If `sequence` is 0.
    pub const fn new(engine: EngineId, incarnation: Incarnation, sequence: u64) -> Self {
        assert!(sequence != 0, "sequences start at 1");
        let sequence = (sequence - 1) % ((1 << Self::SEQUENCE_BITS) - 1) + 1;
        let life = (incarnation.0 - Incarnation::FIRST.0) as u64 & 0xff;
        let (at, bits) = Self::LIFE;
        let life = (life >> bits) << Self::LIFE_HIGH | (life & ((1 << bits) - 1)) << at;
        Self((engine.pack() as u64) << 40 | life | sequence)
    }

    /// The engine that coordinates it.
    pub const fn engine(self) -> Option<EngineId> {
        EngineId::unpack(((self.0 & !Self::LIFE_HIGH_MASK) >> 40) as u32)
    }

    /// Its number among those of that engine's life.
    pub const fn sequence(self) -> u64 {
        self.0 & ((1 << Self::SEQUENCE_BITS) - 1)
    }
}

impl fmt::Display for TxnId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sequence = self.sequence();
        match self.engine() {
            Some(engine) => write!(f, "{engine}#{sequence}"),
            None => write!(f, "?#{sequence}"),
        }
    }
}

/// A key to a registered region. Drawn from the operating system's random source in the live
/// world, from the seed in the simulated one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RKey(pub u32);

/// A key to a free list of buffers, drawn like an [`RKey`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FreeListKey(pub u32);

/// A hasher for ids in maps that are never iterated: multiplies and folds, the same in every run.
#[derive(Clone, Copy, Debug, Default)]
pub struct IdHasher(u64);

impl std::hash::Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks();
        for word in words {
            self.write_u64(u64::from_le_bytes(*word));
        }
        if !rest.is_empty() {
            let mut word = [0; 8];
            word[..rest.len()].copy_from_slice(rest);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u64(&mut self, word: u64) {
        // The odd constant nearest to 2^64 divided by the golden ratio spreads consecutive ids.
        let product = u128::from(self.0 ^ word) * 0x9e37_79b9_7f4a_7c15;
        self.0 = (product >> 64) as u64 ^ product as u64;
    }
}

/// Names a request of one engine to another, for superseding it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestId {
    /// The call slot towards that engine.
    pub slot: u16,
    /// The use of that slot; 0 is none.
    pub sequence: u32,
}

impl RequestId {
    pub const NONE: Self = Self { slot: 0, sequence: 0 };
}

/// Where a reply goes. It may travel in messages, so that a third party replies (multi-hop).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyTo {
    /// The engine that waits.
    pub engine: EngineId,
    /// The request it waits for.
    pub request: RequestId,
}

/// A map by id with a deterministic hash: reuses its memory, must not be iterated.
pub type IdMap<K, V> = std::collections::HashMap<K, V, std::hash::BuildHasherDefault<IdHasher>>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_names_one_transaction_of_one_life_and_its_engine() {
        let engines = [EngineId::host(NodeId(0), 0), EngineId::nic(NodeId(4_095), 254)];
        let mut ids = std::collections::BTreeSet::new();
        for engine in engines {
            for life in [1, 2, 32, 33, 64, 255, 256] {
                for sequence in [1, 2, (1 << 35) - 1] {
                    let id = TxnId::new(engine, Incarnation(life), sequence);
                    assert_eq!((id.engine(), id.sequence()), (Some(engine), sequence));
                    assert!(ids.insert(id), "{id} of life {life}");
                }
            }
        }
        let first = |sequence| TxnId::new(engines[0], Incarnation::FIRST, sequence);
        assert_eq!(first(7).0, 7, "the first life's ids are as narrow as they can be");
        assert_eq!(first(1 << 35), first(1), "and begin again, but never at 0");
    }
}
