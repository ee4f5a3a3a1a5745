//! LOG and COMMIT: the writes of one shard, as they travel and as they stand in log records.

use nicol_core::fabric::{Fabric, Message};
use nicol_core::ids::{Key, ShardId, TxnId, Version};
use nicol_core::txn::{Txn, Write};
use nicol_core::wire::{Malformed, Reader, Writer};
use nicol_kit::{Item, Items};

use super::messages::{ABSENT, COMMIT, LOG, each_key, parse_value};
use super::part::Part;

/// Length that marks a key which is unlocked but not written.
const UNLOCK_ONLY: u32 = u32::MAX - 1;

/// A write set of one shard, as LOG and COMMIT carry it and as it stands in a log record.
struct WriteSet<'a> {
    txn: &'a Txn,
    shard: ShardId,
    shards: u16,
    keys: &'a [usize],
}

impl WriteSet<'_> {
    fn emit(&self, unlocks: bool, to: &mut Writer<'_>) {
        let mut part = Part { shard: self.shard, keys: 0, shards: self.shards };
        to.u64(self.txn.id.0);
        let at = to.position();
        part.emit(self.keys.len(), to);
        for &index in self.keys {
            match self.txn.update(index) {
                Some(Write { key, version, value }) => {
                    let len = value.map_or(ABSENT, |value| value.len() as u32);
                    to.array(&write_head(key, version, len));
                    to.bytes(value.unwrap_or_default());
                }
                None if unlocks => {
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
    /// How many shards the transaction updates.
    pub(super) shards: u16,
    pub(super) keys: &'a [usize],
}

impl Message for Log<'_> {
    const KIND: u16 = LOG;

    fn emit(&self, to: &mut Writer<'_>) {
        let Self { txn, shard, shards, keys } = *self;
        WriteSet { txn, shard, shards, keys }.emit(false, to);
    }

    fn keys(&self, each: &mut dyn FnMut(Key)) {
        each_key(self.txn, self.keys, each);
    }
}

/// COMMIT: a shard's writes, and the keys that are only unlocked. [Xenic21 4.2 step 6]
pub(super) struct Commit<'a> {
    pub(super) txn: &'a Txn,
    pub(super) shard: ShardId,
    /// How many shards the transaction updates.
    pub(super) shards: u16,
    pub(super) keys: &'a [usize],
}

impl Message for Commit<'_> {
    const KIND: u16 = COMMIT;

    fn emit(&self, to: &mut Writer<'_>) {
        let Self { txn, shard, shards, keys } = *self;
        WriteSet { txn, shard, shards, keys }.emit(true, to);
    }

    fn keys(&self, each: &mut dyn FnMut(Key)) {
        each_key(self.txn, self.keys, each);
    }
}

/// What a LOG or COMMIT does to one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change<'a> {
    Put(&'a [u8]),
    Delete,
    UnlockOnly,
}

impl<'a> Change<'a> {
    /// What it installs, where `None` deletes; `None` if it only unlocks.
    pub(super) fn installed(self) -> Option<Option<&'a [u8]>> {
        match self {
            Self::Put(value) => Some(Some(value)),
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
            len => parse_value(from, len)?.map_or(Change::Delete, Change::Put),
        };
        Ok((key, version, change))
    }

    #[inline]
    fn check(from: &mut Reader<'_>) -> Result<(), Malformed> {
        match parse_write_head(from)? {
            (.., UNLOCK_ONLY) => Ok(()),
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
    writes: Items<B, WriteOf>,
}

impl<'a> Writes<&'a [u8]> {
    /// Parses and checks every write.
    pub(super) fn parse(body: &'a [u8]) -> Result<Self, Malformed> {
        let mut from = Reader::new(body);
        let (txn, part) = Self::parse_head(&mut from)?;
        let writes = Items::parse(body, from, part.keys)?;
        Ok(Self { txn, shard: part.shard, shards: part.shards, writes })
    }

    /// Takes what stands before the writes.
    pub(super) fn parse_head(from: &mut Reader<'a>) -> Result<(TxnId, Part), Malformed> {
        Ok((TxnId(from.u64()?), Part::parse(from)?))
    }

    /// The transaction, the shard and the number of shards, of a body that may be cut behind them.
    pub(super) fn parse_lead(lead: &'a [u8]) -> Result<(TxnId, ShardId, u16), Malformed> {
        let mut from = Reader::new(lead);
        let (txn, part) = (TxnId(from.u64()?), Part::parse_lead(&mut from)?);
        Ok((txn, part.shard, part.shards))
    }

    /// See [`Items::keep`].
    pub(super) fn keep<F: Fabric>(self, fabric: &F) -> Writes<F::Payload> {
        let Self { txn, shard, shards, writes } = self;
        Writes { txn, shard, shards, writes: writes.keep(fabric) }
    }
}

impl<B: AsRef<[u8]>> Writes<B> {
    /// The writes, in the sender's order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Key, Version, Change<'_>)> + Clone {
        self.writes.iter()
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
    use super::*;

    #[test]
    fn a_write_is_passed_exactly_where_it_is_taken() {
        let lens =
            [0, 1, 4, 5, 0xf_ffff, 0x10_0000, 0x10_0001, UNLOCK_ONLY - 1, UNLOCK_ONLY, ABSENT];
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
