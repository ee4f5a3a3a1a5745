//! One-sided reads: along the structure, or to a remembered address.

use std::rc::Rc;

use nicol_core::fabric::{Fabric, FabricError};
use nicol_core::ids::{EngineId, Key, NodeId};
use nicol_core::txn::{Abort, Txn};
use nicol_store::remote_table::{BlockRef, Record, Reread, Span, Step, StoredValue};

use super::context::Context;
use super::open_txn::{AccessRecord, At, Held, Lookup, OpenTxn, ValidationSource};
use crate::survivor::Survivor;

/// READs of one key before it counts as locked: its writer is slow.
const READS_MAX: u32 = 64;

/// Proof that the state of every key is known for which a lookup was started.
#[must_use = "it is a part of the proof that every key was read"]
pub(super) struct AllRead(());

/// The result of a READ.
enum Next {
    /// The key's state is known.
    Done,
    /// Read on, here.
    Read(At),
}

/// The one-sided reads of a host engine's transactions.
pub(super) struct Lookups<F: Fabric>(Rc<Context<F>>);

impl<F: Fabric> Lookups<F> {
    pub(super) fn new(context: &Rc<Context<F>>) -> Self {
        Self(context.clone())
    }

    /// Starts to read the key at `index`, whose primary is another node.
    pub(super) fn start(&self, txn: &Txn, open: &mut OpenTxn<F>, index: usize) {
        let (key, node) = (txn.entries()[index].key, open.accesses[index].node);
        let (at, block) = match self.0.node.address_of(key) {
            Some((address, block)) => (At::Address(address), block),
            None => (At::Bucket(self.0.node.geometry(key).walk(key)), None),
        };
        let done = self.read_at(node, key, at);
        let ahead = block.map(|block| (block, self.read_block(node, key, block)));
        open.lookups.push(Lookup { index, node, at, reads: 1, ahead }, done);
    }

    /// Reads until the state of every key is known that a lookup was started for.
    pub(super) async fn finish(
        &self,
        txn: &mut Txn,
        open: &mut OpenTxn<F>,
    ) -> Result<AllRead, Abort> {
        let mut failure = None;
        // All are under way together; one that must read on goes to the end of the queue.
        while let Some((lookup, read)) = open.lookups.next().await {
            let Lookup { index, node, at, reads, ahead } = lookup;
            let next = match read {
                Ok(bytes) => self.look(txn, open, index, at, bytes.as_ref()),
                Err(error) => Err(self.0.node.failure(open.accesses[index].shard, error)),
            };
            match next {
                Ok(Next::Done) => {}
                // Another key has failed: this one's state is of no use any more.
                Ok(Next::Read(_)) if failure.is_some() => {}
                Ok(Next::Read(_)) if reads == READS_MAX => {
                    failure = Some(Abort::LockConflict { key: txn.entries()[index].key });
                }
                Ok(Next::Read(at)) => {
                    let done = match (at, ahead) {
                        (At::Block { block, .. }, Some((known, done))) if known == block => done,
                        _ => self.read_at(node, txn.entries()[index].key, at),
                    };
                    let lookup = Lookup { index, node, at, reads: reads + 1, ahead: None };
                    open.lookups.push(lookup, done);
                }
                Err(abort) => {
                    failure.get_or_insert(abort);
                }
            }
        }
        failure.map_or(Ok(AllRead(())), Err)
    }

    fn read_at(&self, node: NodeId, key: Key, at: At) -> F::Completion {
        let span = match at {
            At::Address(address) => self.0.node.geometry(key).record_span(address),
            At::Bucket(walk) => walk.span(),
            At::Block { block, .. } => return self.read_block(node, key, block),
        };
        self.0.reach.read(node, key, span)
    }

    fn read_block(&self, node: NodeId, key: Key, block: BlockRef) -> F::Completion {
        // Checked when its slot was read.
        let span = self.0.node.geometry(key).block_span(block);
        self.0.reach.read(node, key, span.unwrap_or(Span { offset: block.offset, len: 0 }))
    }

    /// Takes what a READ of the key at `index` brought.
    fn look(
        &self,
        txn: &mut Txn,
        open: &mut OpenTxn<F>,
        index: usize,
        at: At,
        bytes: &[u8],
    ) -> Result<Next, Abort> {
        let key = txn.entries()[index].key;
        let geometry = self.0.node.geometry(key);
        match at {
            At::Address(address) => match geometry.reread(key, address, bytes) {
                Reread::Found(record) => self.found(txn, open, index, at, record),
                Reread::Torn(writer) => self.read_again(key, writer, at),
                Reread::Moved => {
                    self.0.node.forget_address(key);
                    Ok(Next::Read(At::Bucket(geometry.walk(key))))
                }
            },
            At::Bucket(mut walk) => match walk.step(bytes) {
                Step::Found(record) => {
                    self.0.node.remember_address(key, record.address);
                    let again = At::Bucket(geometry.walk(key));
                    self.found(txn, open, index, again, record)
                }
                Step::Next => Ok(Next::Read(At::Bucket(walk))),
                Step::Torn(writer) => self.read_again(key, writer, At::Bucket(walk)),
                Step::Absent(absence) => {
                    let (address, version) =
                        (absence.bucket_version_address, absence.bucket_version);
                    open.accesses[index].source =
                        ValidationSource::BucketVersion { address, version };
                    txn.fetched(index, absence.floor, None);
                    Ok(Next::Done)
                }
            },
            At::Block { block, version, source } => {
                match geometry.parse_block(key, version, bytes) {
                    Some(value) => {
                        self.0.node.remember_block(key, block);
                        open.accesses[index].source = source;
                        txn.fetched(index, version, Some(value));
                        Ok(Next::Done)
                    }
                    None => Ok(Next::Read(At::Bucket(geometry.walk(key)))),
                }
            }
        }
    }

    /// Reads `key` again, which was being written under the lock of `writer`; unless a crash has
    /// cut that off.
    fn read_again(&self, key: Key, writer: Option<EngineId>, at: At) -> Result<Next, Abort> {
        let again = Abort::LockConflict { key };
        match self.0.node.conflict(key, writer.map(|engine| engine.node), again) {
            awaits @ Abort::AwaitsRecovery { .. } => Err(awaits),
            _ => Ok(Next::Read(at)),
        }
    }

    /// Takes a record that was found; `again` is where to look if it is in the owner's hands.
    fn found(
        &self,
        txn: &mut Txn,
        open: &mut OpenTxn<F>,
        index: usize,
        again: At,
        record: Record<'_>,
    ) -> Result<Next, Abort> {
        let AccessRecord { held, .. } = open.accesses[index];
        if record.header.is_locked() && held == Held::No {
            return match record.header.owner() {
                // It would fail validation, or its lock: better now. (AMB-34)
                Some(holder) => {
                    let key = txn.entries()[index].key;
                    let conflict = Abort::LockConflict { key };
                    Err(self.0.node.conflict(key, Some(holder.node), conflict))
                }
                None => Ok(Next::Read(again)),
            };
        }
        let geometry = self.0.node.geometry(txn.entries()[index].key);
        let (address, unlocked) = (record.address, record.unlocked());
        let version = record.header.version();
        let inline = !matches!(record.stored, StoredValue::OutOfLine(_));
        let source = ValidationSource::Header { address, unlocked, inline };
        match record.stored {
            StoredValue::Absent => txn.fetched(index, version, None),
            StoredValue::Inline(value) => txn.fetched(index, version, Some(value)),
            StoredValue::OutOfLine(block) if geometry.block_span(block).is_some() => {
                return Ok(Next::Read(At::Block { block, version, source }));
            }
            StoredValue::OutOfLine(_) => return Err(Abort::Fabric(FabricError::Malformed)),
        }
        open.accesses[index].source = source;
        Ok(Next::Done)
    }
}
