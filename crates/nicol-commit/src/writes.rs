//! LOG and COMMIT: the writes of one shard, as they travel and as they stand in log records.

use nicol_core::fabric::{Fabric, Message};
use nicol_core::ids::{Epoch, Key, ShardId, TxnId, Version};
use nicol_core::txn::{Txn, Write};
use nicol_core::wire::{Malformed, Reader, Writer};
use nicol_kit::{Item, Items};

use super::messages::{ABSENT, COMMIT, LOG, each_key, parse_value};
use super::part::Part;

/// Length that marks a key which is unlocked but not written.
const UNLOCK_ONLY: u32 = u32::MAX - 1;
/// Bit of a length that marks a new record of the coordinator's own, whose key is not locked.
const OWN: u32 = 1 << 30;

/// The shards that a transaction updates, as its LOGs and COMMITs say it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Updated<'a> {
    /// How many they are.
    Counted(u16),
    /// Which they are, all of them in ascending order, and the epoch in which the transaction
    /// began.
    Listed { began: Epoch, shards: &'a [ShardId] },
}

impl Updated<'_> {
    fn part(self, shard: ShardId) -> Part {
        let (shards, listed) = match self {
            Self::Counted(shards) => (shards, false),
            Self::Listed { shards, .. } => (shards.len() as u16, true),
        };
        Part { shard, keys: 0, shards, listed }
    }

    /// Bytes of a LOG or COMMIT of `keys` keys before its writes.
    pub(super) const fn head_len(self, keys: usize) -> usize {
        let list = match self {
            Self::Counted(_) => 0,
            Self::Listed { shards, .. } => size_of::<Epoch>() + 2 * shards.len(),
        };
        size_of::<TxnId>() + Part::len(keys) + list
    }

    /// The list, if it is one.
    fn emit_list(self, to: &mut Writer<'_>) {
        if let Self::Listed { began, shards } = self {
            to.u32(began.0);
            shards.iter().for_each(|shard| to.u16(shard.0));
        }
    }
}

/// A write set of one shard, as LOG and COMMIT carry it and as it stands in a log record.
struct WriteSet<'a> {
    txn: &'a Txn,
    shard: ShardId,
    updated: Updated<'a>,
    keys: &'a [usize],
}

impl WriteSet<'_> {
    fn emit(&self, unlocks: bool, to: &mut Writer<'_>) {
        let mut part = self.updated.part(self.shard);
        to.u64(self.txn.id.0);
        let at = to.position();
        part.emit(self.keys.len(), to);
        self.updated.emit_list(to);
        for &index in self.keys {
            let own = self.txn.entries()[index].own;
            match self.txn.update(index) {
                Some(Write { key, version, value }) => {
                    let len = value.map_or(ABSENT, |value| value.len() as u32);
                    let len = if own { len | OWN } else { len };
                    to.array(&write_head(key, version, len));
                    to.bytes(value.unwrap_or_default());
                }
                None if unlocks && !own => {
                    let key = self.txn.entries()[index].key;
                    to.array(&write_head(key, Version(0), UNLOCK_ONLY));
                }
                None => continue,
            }
            part.keys += 1;
        }
        part.put_keys(at, self.keys.len(), to);
    }
}

/// The opposite of [`write_head`].
#[inline]
fn parse_write_head(from: &mut Reader<'_>) -> Result<(Key, Version, u32), Malformed> {
    let head: [u8; WRITE_HEAD] = from.array()?;
    let (words, rest) = head.as_chunks::<8>();
    let (len, _) = rest.as_chunks::<4>();
    let [key, version] = [words[0], words[1]].map(u64::from_le_bytes);
    Ok((Key(key), Version(version), u32::from_le_bytes(len[0])))
}

/// Bytes of a write before its value.
const WRITE_HEAD: usize = 20;

/// What stands before the value of a write: key, version, length or mark.
fn write_head(key: Key, version: Version, len: u32) -> [u8; WRITE_HEAD] {
    let mut head = [0; WRITE_HEAD];
    head[..8].copy_from_slice(&key.0.to_le_bytes());
    head[8..16].copy_from_slice(&version.0.to_le_bytes());
    head[16..].copy_from_slice(&len.to_le_bytes());
    head
}

/// LOG: a shard's writes for one of its backups. [Xenic21 4.2 step 5]
pub(super) struct Log<'a> {
    pub(super) txn: &'a Txn,
    pub(super) shard: ShardId,
    /// The updates of the transaction.
    pub(super) updated: Updated<'a>,
    pub(super) keys: &'a [usize],
}

impl Message for Log<'_> {
    const KIND: u16 = LOG;

    fn emit(&self, to: &mut Writer<'_>) {
        let Self { txn, shard, updated, keys } = *self;
        WriteSet { txn, shard, updated, keys }.emit(false, to);
    }

    fn keys(&self, each: &mut dyn FnMut(Key)) {
        each_key(self.txn, self.keys, each);
    }
}

/// COMMIT: a shard's writes, and the keys that are only unlocked. [Xenic21 4.2 step 6]
pub(super) struct Commit<'a> {
    pub(super) txn: &'a Txn,
    pub(super) shard: ShardId,
    /// The updates of the transaction.
    pub(super) updated: Updated<'a>,
    pub(super) keys: &'a [usize],
}

impl Message for Commit<'_> {
    const KIND: u16 = COMMIT;

    fn emit(&self, to: &mut Writer<'_>) {
        let Self { txn, shard, updated, keys } = *self;
        WriteSet { txn, shard, updated, keys }.emit(true, to);
    }

    fn keys(&self, each: &mut dyn FnMut(Key)) {
        each_key(self.txn, self.keys, each);
    }
}

/// The action of a LOG or COMMIT on one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change<'a> {
    Put(&'a [u8]),
    /// A new record of the coordinator's own, whose key is not locked.
    Insert(&'a [u8]),
    Delete,
    UnlockOnly,
}

impl<'a> Change<'a> {
    /// What it installs, where `None` deletes; `None` if it only unlocks.
    pub(super) fn installed(self) -> Option<Option<&'a [u8]>> {
        match self {
            Self::Put(value) | Self::Insert(value) => Some(Some(value)),
            Self::Delete => Some(None),
            Self::UnlockOnly => None,
        }
    }
}

/// A write of a LOG or COMMIT: the key, the version that it installs, and what it does.
pub(super) struct WriteOf;

impl Item for WriteOf {
    type Of<'a> = (Key, Version, Change<'a>);

    #[inline]
    fn parse<'a>(from: &mut Reader<'a>) -> Result<Self::Of<'a>, Malformed> {
        let (key, version, len) = parse_write_head(from)?;
        let change = match len {
            UNLOCK_ONLY => Change::UnlockOnly,
            ABSENT => Change::Delete,
            len if len & OWN != 0 => {
                parse_value(from, len ^ OWN)?.map_or(Change::Delete, Change::Insert)
            }
            len => parse_value(from, len)?.map_or(Change::Delete, Change::Put),
        };
        Ok((key, version, change))
    }

    #[inline]
    fn check(from: &mut Reader<'_>) -> Result<(), Malformed> {
        match parse_write_head(from)? {
            (.., UNLOCK_ONLY | ABSENT) => Ok(()),
            (.., len) if len & OWN != 0 => parse_value(from, len ^ OWN).map(drop),
            (.., len) => parse_value(from, len).map(drop),
        }
    }
}

/// A parsed LOG or COMMIT.
#[derive(Clone, Copy)]
pub(super) struct Writes<B> {
    pub(super) txn: TxnId,
    pub(super) shard: ShardId,
    /// How many shards the transaction updates.
    pub(super) shards: u16,
    /// The epoch in which it began, if the message lists its shards.
    pub(super) began: Option<Epoch>,
    writes: Items<B, WriteOf>,
}

/// What stands before the writes of a LOG or COMMIT.
pub(super) struct WritesHead<'a> {
    pub(super) txn: TxnId,
    pub(super) part: Part,
    /// The epoch in which the transaction began, and the shards that it updates.
    pub(super) listed: Option<(Epoch, ListedShards<'a>)>,
}

/// The shards that a LOG or COMMIT lists, as they stand in its body. A COMMIT that only unlocks
/// keys lists its own not.
#[derive(Clone, Copy)]
pub(super) struct ListedShards<'a>(&'a [u8]);

impl ListedShards<'_> {
    pub(super) fn iter(self) -> impl Iterator<Item = ShardId> {
        let (shards, _) = self.0.as_chunks();
        shards.iter().map(|shard| ShardId(u16::from_le_bytes(*shard)))
    }
}

impl<'a> WritesHead<'a> {
    /// Takes it.
    pub(super) fn parse(from: &mut Reader<'a>) -> Result<Self, Malformed> {
        let (txn, part) = (TxnId(from.u64()?), Part::parse(from)?);
        let mut listed = None;
        if part.listed {
            let began = Epoch(from.u32()?);
            listed = Some((began, ListedShards(from.bytes(2 * usize::from(part.shards))?)));
        }
        Ok(Self { txn, part, listed })
    }
}

impl<'a> Writes<&'a [u8]> {
    /// Parses and checks every write.
    pub(super) fn parse(body: &'a [u8]) -> Result<Self, Malformed> {
        let mut from = Reader::new(body);
        let WritesHead { txn, part, listed } = WritesHead::parse(&mut from)?;
        let writes = Items::parse(body, from, part.keys)?;
        let began = listed.map(|(began, _)| began);
        Ok(Self { txn, shard: part.shard, shards: part.shards, began, writes })
    }

    /// The transaction, the shard and the number of shards, of a body that may be cut behind them.
    pub(super) fn parse_lead(lead: &'a [u8]) -> Result<(TxnId, ShardId, u16), Malformed> {
        let mut from = Reader::new(lead);
        let (txn, part) = (TxnId(from.u64()?), Part::parse_lead(&mut from)?);
        Ok((txn, part.shard, part.shards))
    }

    /// See [`Items::keep`].
    pub(super) fn keep<F: Fabric>(self, fabric: &F) -> Writes<F::Payload> {
        let Self { txn, shard, shards, began, writes } = self;
        Writes { txn, shard, shards, began, writes: writes.keep(fabric) }
    }
}

impl<B: AsRef<[u8]>> Writes<B> {
    /// The writes, in the sender's order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Key, Version, Change<'_>)> + Clone {
        self.writes.iter()
    }

    /// The keys of new records of the coordinator's own, which are not locked.
    pub(super) fn inserts(&self) -> impl Iterator<Item = Key> + Clone {
        let inserts = self.iter().filter(|(.., change)| matches!(change, Change::Insert(_)));
        inserts.map(|(key, ..)| key)
    }

    /// The keys, those included that are only unlocked.
    pub(super) fn keys(&self) -> impl Iterator<Item = Key> + Clone {
        self.iter().map(|(key, ..)| key)
    }

    /// What is installed, without the keys that are only unlocked; `None` deletes.
    pub(super) fn installs(&self) -> impl Iterator<Item = (Key, Version, Option<&[u8]>)> + Clone {
        self.iter().filter_map(|(key, version, change)| Some((key, version, change.installed()?)))
    }

    /// The whole message, as it is logged.
    pub(super) fn body(&self) -> &[u8] {
        self.writes.body()
    }
}

#[cfg(test)]
mod tests {
    use nicol_core::txn::ProcedureId;

    use super::*;

    #[test]
    fn a_log_counts_or_lists_the_shards_of_its_transaction() {
        let mut txn = Txn::default();
        txn.reset(ProcedureId(0), &[]);
        txn.id = TxnId(5);
        txn.write(Key(1));
        txn.fetched(0, Version(3), None);
        txn.put(0, b"value");
        let shards = [ShardId(2), ShardId(4), ShardId(4_095)];
        let listed = Updated::Listed { began: Epoch(9), shards: &shards };
        for (updated, began) in [(Updated::Counted(3), None), (listed, Some(Epoch(9)))] {
            let mut body = Vec::new();
            let log = Log { txn: &txn, shard: ShardId(4), updated, keys: &[0] };
            log.emit(&mut Writer::new(&mut body));
            assert_eq!(body.len(), updated.head_len(1) + WRITE_HEAD + 5);
            let Ok(parsed) = Writes::parse(&body) else { panic!("{updated:?} is parsed") };
            assert_eq!((parsed.shard, parsed.shards, parsed.began), (ShardId(4), 3, began));
            assert_eq!(parsed.keys().collect::<Vec<_>>(), [Key(1)]);
            let Ok(head) = WritesHead::parse(&mut Reader::new(&body)) else { panic!("a head") };
            let told = head.listed.map(|(_, listed)| listed.iter().collect::<Vec<_>>());
            assert_eq!(told, began.map(|_| shards.to_vec()));
            assert_eq!(Writes::parse_lead(&body[..12]).unwrap(), (TxnId(5), ShardId(4), 3));
            for len in 0..body.len() {
                assert!(Writes::parse(&body[..len]).is_err(), "{len} bytes of {updated:?}");
            }
            // A COMMIT where it has locked and updates nothing.
            txn.id = TxnId(6);
            txn.write(Key(2));
            let commit = Commit { txn: &txn, shard: ShardId(5), updated, keys: &[1] };
            let mut body = Vec::new();
            commit.emit(&mut Writer::new(&mut body));
            assert!(matches!(Writes::parse(&body), Ok(only) if only.installs().count() == 0));
            txn.id = TxnId(5);
        }
    }

    #[test]
    fn a_write_is_passed_exactly_where_it_is_taken() {
        let own = [OWN, OWN | 4, OWN | 0x10_0000, OWN | 0x10_0001, OWN | 1 << 31];
        let lens = [0, 1, 4, 5, 0xf_ffff, 0x10_0000, 0x10_0001, UNLOCK_ONLY - 1, UNLOCK_ONLY];
        let lens = lens.into_iter().chain([ABSENT]).chain(own);
        let mut taken = 0;
        for len in lens {
            for behind in [0, 1, 4, 5, 0xf_ffff, 0x10_0000, 0x10_0001] {
                let mut bytes = write_head(Key(7), Version(9), len).to_vec();
                bytes.resize(WRITE_HEAD + behind, 1);
                for cut in [0, 1, WRITE_HEAD] {
                    let bytes = &bytes[..bytes.len() - cut.min(bytes.len())];
                    let (mut parsed, mut checked) = (Reader::new(bytes), Reader::new(bytes));
                    let ends = WriteOf::parse(&mut parsed).map(drop);
                    assert_eq!(WriteOf::check(&mut checked), ends, "{len} {behind} {cut}");
                    taken += u32::from(ends.is_ok());
                    assert!(ends.is_err() || parsed.rest() == checked.rest(), "{len} {behind}");
                }
            }
        }
        assert!(taken > 50, "{taken} were taken");
    }
}
