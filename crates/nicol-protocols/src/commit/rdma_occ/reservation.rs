//! Space for values out of line, reserved by their primaries before the transaction is logged: what
//! has been logged must be stored everywhere.
//!
//! Not from the papers, whose values have one size. Asked together with validation, once execution
//! has said how long the values are, and only for those that take a block of the primary's heap
//! ([`Geometry::takes_block`]): an inserted one beyond the inline limit, or one that grows or
//! shrinks into blocks of another size. A reservation belongs to the lock, and goes with it when
//! the transaction aborts. Backups are not asked: they store whatever was reserved
//! (`nicol_store::remote_table`, module `reservation`).
//!
//! [`Geometry::takes_block`]: nicol_store::remote_table::Geometry::takes_block

use nicol_core::fabric::{Fabric, OneSided, ReplyTo, Work};
use nicol_core::txn::{Abort, Txn};
use nicol_core::wire::Malformed;

use super::host::{Held, Host, Open, Sent, ValidationSource, Verb};
use super::messages::{Reserve, ReserveRequest};
use crate::commit::messages::ValidateReply;

impl<F: Fabric> Host<F> {
    /// Must space be reserved for the write to the key at `index`? Of keys that are locked, so that
    /// what was read of them is what stands there.
    fn needs_reservation(&self, txn: &Txn, index: usize) -> bool {
        if txn.entries()[index].key.is_ordered() {
            return false;
        }
        let Some(new) = txn.update(index).and_then(|write| write.value) else { return false };
        let old = txn.value(index).map(<[u8]>::len);
        self.node.geometry().takes_block(old, new.len()) && !self.installs_unlocked()
    }

    /// Has the owners take locks for theirs that were taken by CAS on keys that need space, which
    /// is the owners' to give: WRITEs the transaction's id to their slots.
    pub(super) async fn hand_over(&self, txn: &Txn, open: &mut Open<F>) -> Result<(), Abort> {
        for (index, access) in open.accesses.iter().enumerate() {
            let ValidationSource::Header { address, .. } = access.source else { continue };
            if access.held == Held::BySwap && self.needs_reservation(txn, index) {
                let rkey = self.known_handles(access.node).table;
                let offset = self.node.geometry().holder_address(address);
                let bytes = &txn.id.0.to_le_bytes();
                let write = OneSided::Write { rkey, offset, bytes };
                let done = self.fabric.one_sided(access.node, write);
                open.writes.push(Verb { index, done });
            }
        }
        let mut failure = None;
        let mut writes = std::mem::take(&mut open.writes);
        for Verb { index, done } in writes.drain(..) {
            match done.await {
                Ok(_) => open.accesses[index].held = Held::ByOwner,
                Err(error) => failure = Some(Abort::Fabric(error)),
            }
        }
        open.writes = writes;
        failure.map_or(Ok(()), Err)
    }

    /// Takes space in this node's own shard.
    pub(super) fn reserve_here(&self, txn: &Txn, open: &Open<F>) -> Result<(), Abort> {
        for (index, entry) in txn.entries().iter().enumerate() {
            if self.is_here(open.accesses[index].node) && self.needs_reservation(txn, index) {
                let len = txn.update(index).and_then(|write| write.value).map_or(0, <[u8]>::len);
                self.fabric.work(Work::TableLookup);
                if !self.node.primary().replica.table.reserve(entry.key, txn.id, len) {
                    return Err(Abort::NoResources);
                }
            }
        }
        Ok(())
    }

    /// Asks the other primaries; what they answer is a verdict like that of a VALIDATE.
    pub(super) fn request_reservations(&self, txn: &Txn, open: &mut Open<F>) {
        if !(0..open.accesses.len()).any(|index| self.needs_reservation(txn, index)) {
            return;
        }
        for node in self.fabric.view().node_ids().filter(|&node| !self.is_here(node)) {
            if open.select(node, |index, _| self.needs_reservation(txn, index)) {
                let reply = self.ask(node, &Reserve { txn, keys: &open.keys });
                open.calls.push(Sent { to: node, reply });
            }
        }
    }

    /// RESERVE: for every value or, once the transaction gives its locks back, for none. One that
    /// comes behind its transaction's ABORT finds no lock, and takes nothing.
    pub(super) fn serve_reserve(&self, body: &[u8], reply_to: ReplyTo) -> Result<(), Malformed> {
        let request = ReserveRequest::parse(body)?;
        self.refuse_foreign(request.iter().map(|(key, _)| key))?;
        let granted = request.iter().all(|(key, len)| {
            self.fabric.work(Work::TableLookup);
            self.node.primary().replica.table.reserve(key, request.txn, len)
        });
        let verdict = if granted { Ok(()) } else { Err(Abort::NoResources) };
        self.answer(reply_to, &ValidateReply(verdict));
        Ok(())
    }
}
