//! What the logs of a cluster that has ended say: which transactions are committed, and what they
//! have written. The same for files and for simulated media. (decision 0025)
//!
//! A transaction is reported as committed once every backup of every shard that it updates has its
//! LOG durable, and its locks are held until then. So:
//!
//! - One whose records cover all its shards, by one replica's log each, is taken as a whole: it was
//!   validated, its locks were held, and nothing that came after it can be there without it.
//! - One of which a shard's record is missing was not reported, and no transaction has read it: it
//!   is left out as a whole. That is certain only where a backup's log that must hold the missing
//!   record is known to be undamaged. Otherwise its outcome is unknown, and the logs are refused.
//! - One that a backup was told to have aborted is left out, whatever is logged of it.

use std::collections::BTreeMap;
use std::fmt;

use nicol_core::ids::{IdMap, NodeId, ShardId, TxnId};
use nicol_core::memory::WORD;
use nicol_core::view::View;
use nicol_core::wire::Reader;

use super::decided::{Decision, Fate, parse_decided};
use super::log::{RecordKind, record_len};
use super::writes::{Writes, WritesHead};
pub use nicol_kit::{Counts, EachWrite, Recovered};

/// Leading bytes of a log record that say whose it is: framing, transaction, shards.
pub const LEAD: usize = 2 * WORD + TXN_AND_PART;
const TXN_AND_PART: usize = 12;

/// A shard's part of a transaction, as the logs show it.
#[derive(Clone, Debug)]
struct Part {
    shard: ShardId,
    /// A bit per backup, in the view's order, whose log has or had the record.
    logged: u8,
    /// Is there a record that can be read?
    intact: bool,
}

/// A transaction of which the logs tell.
#[derive(Clone, Debug, Default)]
struct Known {
    /// Shards that it updates.
    shards: u16,
    /// Which these are, if a record lists them.
    listed: Vec<ShardId>,
    /// A primary has logged its COMMIT.
    committed: bool,
    /// A backup was told that it has aborted.
    aborted: bool,
    parts: Vec<Part>,
}

/// The first look at the logs of all nodes: which records there are.
#[derive(Debug)]
pub struct Logs<'v> {
    view: &'v View,
    txns: BTreeMap<TxnId, Known>,
    /// Per node: lost records of which nobody knows whose they were.
    nameless: Vec<u64>,
    records: u64,
    repaired: u64,
}

/// Which transactions to take.
#[derive(Debug, Default)]
pub struct Decided {
    taken: IdMap<TxnId, ()>,
    /// What was decided.
    pub counts: Counts,
}

/// A record whose checksum fits and that no node writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotARecord;

impl fmt::Display for NotARecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the record is none of a transaction's")
    }
}

impl std::error::Error for NotARecord {}

/// Why the logs do not tell what was acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Undecidable {
    /// Records of this transaction are lost in the log of every replica that had them.
    Transaction(TxnId),
    /// The logs of all backups of this shard have lost records, and nobody knows whose.
    Shard(ShardId),
}

impl fmt::Display for Undecidable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Transaction(txn) => {
                write!(f, "no replica's log has all of what transaction {txn} may have committed")
            }
            Self::Shard(shard) => {
                let shard = shard.0;
                write!(f, "every backup of shard {shard} has lost records, and no log says which")
            }
        }
    }
}

impl std::error::Error for Undecidable {}

/// Whose record it is.
struct Head {
    kind: RecordKind,
    txn: TxnId,
    shard: ShardId,
    shards: u16,
    /// Which these are, if the record lists them and is whole.
    listed: Vec<ShardId>,
}

/// Takes a record out of its framing.
fn unframe(record: &[u8]) -> Result<(RecordKind, &[u8]), NotARecord> {
    let word = |at: usize| -> Option<u64> {
        record.get(at..at + WORD)?.try_into().ok().map(u64::from_le_bytes)
    };
    let head = word(0).ok_or(NotARecord)?;
    let len = head as u32 as usize;
    if record.len() as u64 != record_len(len) || word(record.len() - WORD) != Some(head) {
        return Err(NotARecord);
    }
    let kind = kind_of(word(WORD)).ok_or(NotARecord)?;
    Ok((kind, &record[2 * WORD..2 * WORD + len]))
}

/// What a backup was told, if `record` says that.
fn decisions(record: &[u8]) -> Result<Option<impl Iterator<Item = Decision>>, NotARecord> {
    let (RecordKind::Decisions, body) = unframe(record)? else { return Ok(None) };
    let decisions = parse_decided(body).map_err(|_| NotARecord)?;
    Ok(Some(decisions.iter().collect::<Vec<_>>().into_iter()))
}

/// The writes of a record, and whose they are.
fn parse(record: &[u8]) -> Result<(Head, Writes<&[u8]>), NotARecord> {
    let (kind, body) = unframe(record)?;
    let writes = Writes::parse(body).map_err(|_| NotARecord)?;
    let head = WritesHead::parse(&mut Reader::new(body)).map_err(|_| NotARecord)?;
    let listed = listed(&head).ok_or(NotARecord)?;
    let (txn, shard, shards) = (writes.txn, writes.shard, writes.shards);
    Ok((Head { kind, txn, shard, shards, listed }, writes))
}

/// The shards that a record lists; `None` if they are not in ascending order, or without its own.
fn listed(head: &WritesHead<'_>) -> Option<Vec<ShardId>> {
    let Some((_, listed)) = head.listed else { return Some(Vec::new()) };
    let shards: Vec<ShardId> = listed.iter().collect();
    let ascends = shards.is_sorted_by(|one, other| one < other);
    (ascends && shards.contains(&head.part.shard)).then_some(shards)
}

/// Whose record it was that begins like this.
fn parse_lead(lead: &[u8]) -> Option<Head> {
    let word = |at: usize| -> Option<u64> {
        lead.get(at..at + WORD)?.try_into().ok().map(u64::from_le_bytes)
    };
    let kind = kind_of(word(WORD))?;
    let (txn, shard, shards) = Writes::parse_lead(lead.get(2 * WORD..LEAD)?).ok()?;
    Some(Head { kind, txn, shard, shards, listed: Vec::new() })
}

fn kind_of(word: Option<u64>) -> Option<RecordKind> {
    match word? {
        0 => Some(RecordKind::Log),
        1 => Some(RecordKind::Commit),
        4 => Some(RecordKind::Decisions),
        _ => None,
    }
}

impl<'v> Logs<'v> {
    /// None yet, of a cluster with this view.
    pub fn new(view: &'v View) -> Self {
        let nameless = vec![0; view.nodes()];
        Self { view, txns: BTreeMap::new(), nameless, records: 0, repaired: 0 }
    }

    /// Notes a record that stands in the log of `node`.
    ///
    /// # Errors
    /// If it is none.
    pub fn note(&mut self, node: NodeId, record: &[u8]) -> Result<(), NotARecord> {
        if let Some(decisions) = decisions(record)? {
            // A transaction that a backup refused is aborted, whatever others have logged of it.
            for decision in decisions.filter(|decision| decision.fate == Fate::Aborted) {
                self.txns.entry(decision.txn).or_default().aborted = true;
            }
            self.records += 1;
            return Ok(());
        }
        let (head, _) = parse(record)?;
        self.records += 1;
        self.note_head(node, &head, true)
    }

    /// How many records have been noted.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Notes a record that the log of `node` had for certain and that is lost. `lead` are its
    /// leading bytes ([`LEAD`]), if they can be trusted.
    pub fn note_lost(&mut self, node: NodeId, lead: Option<&[u8]>) {
        let head = lead.and_then(parse_lead);
        let noted = head.is_some_and(|head| self.note_head(node, &head, false).is_ok());
        if let Some(nameless) = self.nameless.get_mut(node.index())
            && !noted
        {
            *nameless += 1;
        }
        self.repaired += 1;
    }

    fn note_head(&mut self, node: NodeId, head: &Head, intact: bool) -> Result<(), NotARecord> {
        let shard = head.shard;
        if usize::from(shard.0) >= self.view.shard_ids().count() || head.shards == 0 {
            return Err(NotARecord);
        }
        let backup = self.view.backups(shard).position(|backup| backup == node);
        let logged = match (head.kind, backup) {
            (RecordKind::Log, Some(rank)) => 1 << rank,
            // A backup may have come to lead the shard, and a primary may have a LOG, too. (AMB-50)
            (RecordKind::Commit | RecordKind::Log, _)
                if self.view.replicas_of(shard).contains(&node) =>
            {
                0
            }
            _ => return Err(NotARecord),
        };
        let known = self.txns.entry(head.txn).or_default();
        if known.shards != 0 && known.shards != head.shards {
            return Err(NotARecord);
        }
        if !known.listed.is_empty() && !head.listed.is_empty() && known.listed != head.listed {
            return Err(NotARecord);
        }
        if known.listed.is_empty() {
            known.listed.clone_from(&head.listed);
        }
        known.shards = head.shards;
        known.committed |= head.kind == RecordKind::Commit;
        match known.parts.iter_mut().find(|part| part.shard == shard) {
            Some(part) => {
                part.logged |= logged;
                part.intact |= intact;
            }
            None => known.parts.push(Part { shard, logged, intact }),
        }
        Ok(())
    }

    /// Decides about every transaction.
    ///
    /// # Errors
    /// What was acknowledged may be lost.
    pub fn decide(self) -> Result<Decided, Undecidable> {
        let counts = Counts { records: self.records, repaired: self.repaired, ..Counts::default() };
        let mut decided = Decided { counts, ..Decided::default() };
        let lost_everywhere = self.view.shard_ids().find(|&shard| {
            let mut backups = self.view.backups(shard);
            let some = self.view.backups(shard).next().is_some();
            some && backups.all(|backup| self.is_nameless(backup))
        });
        if let Some(shard) = lost_everywhere {
            return Err(Undecidable::Shard(shard));
        }
        for (&txn, known) in &self.txns {
            let intact = known.parts.iter().filter(|part| part.intact).count();
            if known.aborted {
                decided.counts.left_out += u64::from(!known.parts.is_empty());
            } else if intact == usize::from(known.shards) {
                decided.taken.insert(txn, ());
                decided.counts.taken += 1;
            } else if !known.committed && self.was_not_acknowledged(known) {
                decided.counts.left_out += 1;
            } else {
                return Err(Undecidable::Transaction(txn));
            }
        }
        Ok(decided)
    }

    /// Takes every transaction, complete or not: for negative tests only.
    #[doc(hidden)]
    pub fn take_all(self) -> Decided {
        let taken = self.txns.keys().map(|&txn| (txn, ())).collect();
        Decided { taken, ..Decided::default() }
    }

    /// Is it certain that an incomplete transaction was never acknowledged? An acknowledged one is
    /// in the log of every backup of all its shards.
    fn was_not_acknowledged(&self, known: &Known) -> bool {
        let never_there = |part: &Part| {
            let mut backups = self.view.backups(part.shard).enumerate();
            backups.any(|(rank, node)| part.logged & 1 << rank == 0 && !self.is_nameless(node))
        };
        // Of a shard without any sign, an undamaged log of a backup says that it had no record,
        // whatever is lost of the others: every shard has one, or `decide` would have refused.
        let one_has_no_sign = known.parts.len() < usize::from(known.shards);
        known.parts.iter().any(never_there) || one_has_no_sign
    }

    fn is_nameless(&self, node: NodeId) -> bool {
        self.nameless.get(node.index()).is_some_and(|&lost| lost > 0)
    }
}

impl Decided {
    /// Is this transaction taken?
    pub fn takes(&self, txn: TxnId) -> bool {
        self.taken.contains_key(&txn)
    }

    /// Calls `each` with what `record` installs, if its transaction is taken; `None` deletes.
    ///
    /// # Errors
    /// If it is no record.
    pub fn for_each_write(&self, record: &[u8], each: EachWrite<'_>) -> Result<(), NotARecord> {
        if decisions(record)?.is_some() {
            return Ok(());
        }
        let (head, writes) = parse(record)?;
        if self.taken.contains_key(&head.txn) {
            writes.installs().for_each(|(key, version, value)| each(key, version, value));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
