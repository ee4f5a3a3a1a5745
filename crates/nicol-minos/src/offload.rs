//! The SmartNIC of MINOS-O: figure 8, which is figure 2 without write locks, on coherent metadata,
//! with a vFIFO before the host's memory and a dFIFO before its log. [MINOS24 V]

use std::rc::Rc;

use nicol_core::fabric::{Fabric, FabricError};

use super::config::Faithful;
use super::log::Logged;
use super::member::Member;
use super::messages::Inv;
use super::received::Received;
use super::tags::Tag;
use super::value::Value;
use super::write::Write;

impl<F: Fabric> Member<F> {
    /// A client-write from line 9 on: the host has done lines 4 to 8.
    pub(super) async fn offloaded_write(self: Rc<Self>, write: Rc<Write>) {
        let open = self.node.begin();
        self.look_up();
        // [MINOS24 fig. 8 line 10] Has it become obsolete? Instead of under a WRLock, "it directly
        // checks whether the write is obsolete".
        if let Some(newer) = self.obsolete(&write.inv()).await {
            // [MINOS24 fig. 8 line 16, step c] handleObsolete.
            self.handle_obsolete(&write, newer).await;
            // [MINOS24 fig. 8 lines 20, 21]
            self.release_rd_lock(write.key, write.ts()).await;
            self.return_to_client(&write);
            return self.end(&write, open);
        }
        // [MINOS24 fig. 8 line 11, step b] INV to every follower.
        self.pass_inv(&write);
        // [MINOS24 fig. 8 line 12] Enqueue the update in the vFIFO.
        self.enqueue_volatile(&write.inv(), &write.value).await;
        // [MINOS24 fig. 8 lines 18 to 22, steps d, e, f] Enqueue it in the dFIFO, and so on.
        self.complete(&write).await;
        self.end(&write, open);
    }

    /// An INV: "all the operations are performed in the SmartNIC. The host is not invoked."
    pub(super) async fn follow_offloaded(self: &Rc<Self>, received: &Received) {
        // [MINOS24 fig. 8 line 26] INV for key k with TS_WR; rejected for want of resources.
        let inv = received.inv();
        self.look_up();
        if self.has_had(&inv).await {
            return self.acknowledge_again(received).await;
        }
        if self.node.volatile_queue().is_full() {
            return self.reject(received);
        }
        // [MINOS24 fig. 8 line 27] Is it obsolete?
        if let Some(newer) = self.obsolete(&inv).await {
            // [MINOS24 fig. 8 lines 28 to 30, steps h, i]
            return self.acknowledge_obsolete(received, newer).await;
        }
        // [MINOS24 fig. 8 line 31] Snatch RDLock.
        self.snatch_rd_lock(&inv).await;
        // [MINOS24 fig. 8 line 34] Enqueue the update in the vFIFO.
        self.enqueue_volatile(&inv, &received.value).await;
        // [MINOS24 fig. 8 lines 39, 40, steps j, k] Enqueue it in the dFIFO, ACK.
        self.acknowledge(received).await;
    }

    /// Writes an update into the vFIFO; hardware takes it out again.
    async fn enqueue_volatile(self: &Rc<Self>, inv: &Inv<'_>, value: &Option<Value>) {
        let _phase = self.fabric.phase("enqueue in the vFIFO");
        let entry = self.node.volatile_queue().enter(&self.fabric).await;
        let bytes = inv.value.map_or(0, <[u8]>::len);
        let filled = self.fabric.fill_queue_entry(bytes).await;
        assert!(filled.is_ok(), "a NIC's own memory lives as long as its engine");
        if self.config().errata.queued == Faithful::Fixed {
            // AMB-19: the queue is volatile memory, which the ACK vouches for.
            self.fabric.caught_up().await;
            self.node.store().change(inv.key, |record| {
                record.volatile_ts = record.volatile_ts.max(inv.ts);
            });
        }
        self.node.note_scope(inv);
        let (member, number) =
            (self.clone(), self.node.volatile_entries().fill(inv.key, inv.ts, value.clone()));
        self.mark(Tag::Enqueues, inv.key, inv.ts);
        self.fabric.spawn(async move {
            let open = member.node.begin();
            if member.drain_volatile(number).await.is_ok() {
                member.node.volatile_queue().leave(entry);
            }
            drop(open);
        });
    }

    /// "When the hardware dequeues an entry from the vFIFO queue, it checks for obsoleteness before
    /// updating the LLC."
    ///
    /// Errors: the host has crashed. The entry stays in the queue, for the host's next life.
    async fn drain_volatile(&self, number: u64) -> Result<(), FabricError> {
        let (entries, store) = (self.node.volatile_entries(), self.node.store());
        let hooks = self.hooks();
        let bytes = entries.look(number, |update| {
            let newer = store.look(update.key, |record| record.value_ts >= update.ts);
            let bytes = update.value.as_ref().map_or(0, |value| value.len());
            (!hooks.is_obsolete(newer)).then_some(bytes)
        });
        if let Some(Some(bytes)) = bytes {
            self.fabric.drain_queue_entry(bytes).await?;
        }
        let Some(update) = entries.take(number) else { return Ok(()) };
        if bytes == Some(None) {
            self.mark(Tag::Drains, update.key, update.ts);
            return Ok(());
        }
        store.change(update.key, |record| {
            // A newer update of this record may have overtaken this one.
            if !hooks.is_obsolete(record.value_ts >= update.ts) {
                record.land(update.ts, update.value);
                record.volatile_ts = record.volatile_ts.max(update.ts);
            }
        });
        self.mark(Tag::Drains, update.key, update.ts);
        Ok(())
    }

    /// Writes a record into the dFIFO, where it is durable; hardware takes it out again and "pushes
    /// it to the host NVM log". Its entry is free once the record is durable there: in between it
    /// would be lost with the power. Entries are pushed side by side.
    ///
    /// Errors: the log device has failed, for good.
    pub(super) async fn enqueue_durable(
        self: &Rc<Self>,
        record: &Logged<'_>,
    ) -> Result<(), FabricError> {
        let Some(queue) = &self.durable_queue else { return Err(FabricError::NoResources) };
        let _phase = self.fabric.phase("enqueue in the dFIFO");
        let entry = self.node.durable_queue().enter(&self.fabric).await;
        let slot = queue.take().await;
        let bytes = queue.write(&slot, record);
        let offset = queue.offset(&slot);
        if let Err(error) = self.fabric.persist(queue.region(), offset, bytes).await {
            queue.give(slot);
            self.node.durable_queue().leave(entry);
            return Err(error);
        }
        if self.fabric.shares_medium() {
            // The host's log is what has just taken it.
            queue.give(slot);
            self.node.durable_queue().leave(entry);
            return Ok(());
        }
        let (member, record) = (self.clone(), record.emit());
        self.fabric.spawn(async move {
            let open = member.node.begin();
            let to = member.log.take().await;
            let offset = member.log.offset(&to);
            let region = member.log.region();
            let drained = member.fabric.dma_write_durable(region, offset, &[&record]).await;
            member.log.give(to);
            // An entry that the host's log has not taken stays where it is durable.
            if let (Ok(_), Some(queue)) = (drained, &member.durable_queue) {
                queue.give(slot);
                member.node.durable_queue().leave(entry);
            }
            drop(open);
        });
        Ok(())
    }
}
