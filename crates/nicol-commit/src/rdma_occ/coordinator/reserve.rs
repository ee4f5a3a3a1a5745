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

use std::rc::Rc;

use nicol_core::fabric::Fabric;
use nicol_core::txn::{Abort, Txn};
use nicol_kit::AllGranted;

use super::context::Context;
use super::open_txn::{Held, OpenTxn, ValidationSource};
use crate::rdma_occ::messages::Reserve;
use crate::survivor::Survivor;

/// The space that one host engine's transactions reserve.
pub(super) struct Reservations<F: Fabric>(Rc<Context<F>>);

impl<F: Fabric> Reservations<F> {
    pub(super) fn new(context: &Rc<Context<F>>) -> Self {
        Self(context.clone())
    }

    /// Must space be reserved for the write to the key at `index`? Of keys that are locked, so that
    /// what was read of them is what stands there.
    fn needs_reservation(&self, txn: &Txn, index: usize) -> bool {
        if txn.entries()[index].key.is_ordered() {
            return false;
        }
        let Some(new) = txn.update(index).and_then(|write| write.value) else { return false };
        let old = txn.value(index).map(<[u8]>::len);
        self.0.node.geometry(txn.entries()[index].key).takes_block(old, new.len())
    }

    /// Has the owners take locks for theirs that were taken by CAS on keys that need space, which
    /// is the owners' to give: WRITEs the transaction's id to their slots.
    pub(super) async fn hand_over(
        &self,
        txn: &Txn,
        open: &mut OpenTxn<F>,
    ) -> Result<AllGranted, Abort> {
        let OpenTxn { accesses, writes, .. } = open;
        for (index, access) in accesses.iter().enumerate() {
            let ValidationSource::Header { address, .. } = access.source else { continue };
            if access.held == Held::BySwap && self.needs_reservation(txn, index) {
                let key = txn.entries()[index].key;
                let offset = self.0.node.geometry(key).holder_address(address);
                let id = txn.id.0.to_le_bytes();
                writes.push(index, self.0.reach.write(access.node, key, offset, &id));
            }
        }
        let take = |index: usize, written: Result<F::Payload, _>| {
            written.map_err(|error| self.0.node.failure(accesses[index].shard, error))?;
            accesses[index].held = Held::ByOwner;
            Ok(())
        };
        writes.gather(take).await
    }

    /// Takes space in this node's own shard.
    pub(super) fn reserve_here(&self, txn: &Txn, open: &OpenTxn<F>) -> Result<(), Abort> {
        for (index, entry) in txn.entries().iter().enumerate() {
            if open.accesses[index].here && self.needs_reservation(txn, index) {
                let len = txn.update(index).and_then(|write| write.value).map_or(0, <[u8]>::len);
                self.0.owner.reserve(entry.key, txn.id, len)?;
            }
        }
        Ok(())
    }

    /// Asks the other primaries; what they answer is a verdict like that of a VALIDATE.
    pub(super) fn request(&self, txn: &Txn, open: &mut OpenTxn<F>) {
        let mut last = None;
        let wanted = |index: usize, here: bool| !here && self.needs_reservation(txn, index);
        while let Some(shard) = open.next_shard(last, |index, access| wanted(index, access.here)) {
            let reply = self.0.rpc.ask(self.0.primary(shard), &Reserve { txn, keys: &open.keys });
            open.calls.push(shard, reply);
            last = Some(shard);
        }
    }
}
