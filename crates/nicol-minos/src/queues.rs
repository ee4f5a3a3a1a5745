//! Where an engine puts updates: the part of the host's log that it fills, and, offloaded, the
//! vFIFO before the host's memory and the dFIFO before its log. [MINOS24 V-B4]

use std::rc::Rc;
use std::sync::Arc;

use nicol_core::fabric::{Fabric, FabricError};
use nicol_core::ids::Side;
use nicol_core::memory::Region;

use super::config::Faithful;
use super::log::{LOG_SLOTS, Logged, QUEUE_LABEL, Slots};
use super::messages::Inv;
use super::node::Node;
use super::tags::{Tag, mark};
use super::value::Value;

/// An engine's queues and its part of the log.
pub(super) struct Queues<F: Fabric> {
    fabric: F,
    node: Arc<Node>,
    log: Slots,
    /// Its part of the dFIFO, in the offloaded form.
    durable: Option<Slots>,
}

impl<F: Fabric> Queues<F> {
    pub(super) fn new(fabric: &F, node: &Arc<Node>) -> Rc<Self> {
        let (config, here) = (node.config(), fabric.here());
        let label = 1 + u32::from(here.core) + if here.side == Side::Nic { 1 << 8 } else { 0 };
        let bytes = Slots::bytes(LOG_SLOTS, config.value_bytes);
        let slots =
            |region| Slots::new(Arc::new(region), LOG_SLOTS, config.value_bytes, fabric.signal());
        let queue = || slots(Region::for_nic_log(bytes, label | QUEUE_LABEL));
        Rc::new(Self {
            log: slots(Region::for_log(bytes, label)),
            durable: config.offload.then(queue),
            fabric: fabric.clone(),
            node: node.clone(),
        })
    }

    /// Persists an update: into the host's log, or into the dFIFO, which drains there.
    ///
    /// Errors: the log device has failed, for good.
    pub(super) async fn persist(self: &Rc<Self>, inv: &Inv<'_>) -> Result<(), FabricError> {
        let _phase = self.fabric.phase("persist to NVM");
        let record = Logged::Update { key: inv.key, ts: inv.ts, value: inv.value };
        self.persist_record(&record).await?;
        self.fabric.caught_up().await;
        self.node.store().change(inv.key, |record| {
            record.durable_ts = record.durable_ts.max(inv.ts);
        });
        Ok(())
    }

    /// Persists a record of the log.
    pub(super) async fn persist_record(
        self: &Rc<Self>,
        record: &Logged<'_>,
    ) -> Result<(), FabricError> {
        if self.node.config().hooks().promises_early() {
            let (queues, record) = (self.clone(), record.emit());
            self.fabric.spawn(async move {
                let open = queues.node.begin();
                if let Ok(record) = Logged::parse(&record) {
                    let _on_its_way = queues.write_record(&record).await;
                }
                drop(open);
            });
            return Ok(());
        }
        self.write_record(record).await
    }

    async fn write_record(self: &Rc<Self>, record: &Logged<'_>) -> Result<(), FabricError> {
        let written = if self.durable.is_some() {
            self.enqueue_durable(record).await
        } else {
            self.write_to_log(record).await
        };
        if let (Ok(()), Some((key, ts))) = (written, record.update()) {
            mark(&self.fabric, Tag::IsDurable, key, ts);
        }
        written
    }

    async fn write_to_log(&self, record: &Logged<'_>) -> Result<(), FabricError> {
        let slot = self.log.take().await;
        let bytes = self.log.write(&slot, record);
        let offset = self.log.offset(&slot);
        let persisted = self.fabric.persist(self.log.region(), offset, bytes).await;
        self.log.give(slot);
        persisted.map(drop)
    }

    /// Writes an update into the vFIFO; hardware takes it out again.
    pub(super) async fn enqueue_volatile(self: &Rc<Self>, inv: &Inv<'_>, value: &Option<Value>) {
        let _phase = self.fabric.phase("enqueue in the vFIFO");
        let entry = self.node.volatile_queue().enter(&self.fabric).await;
        let bytes = inv.value.map_or(0, <[u8]>::len);
        let filled = self.fabric.fill_queue_entry(bytes).await;
        assert!(filled.is_ok(), "a NIC's own memory lives as long as its engine");
        if self.node.config().errata.queued == Faithful::Fixed {
            // AMB-19: the queue is volatile memory, which the ACK vouches for.
            self.fabric.caught_up().await;
            self.node.store().change(inv.key, |record| {
                record.volatile_ts = record.volatile_ts.max(inv.ts);
            });
        }
        self.node.note_scope(inv);
        let number = self.node.volatile_entries().fill(inv.key, inv.ts, value.clone());
        let queues = self.clone();
        mark(&self.fabric, Tag::Enqueues, inv.key, inv.ts);
        self.fabric.spawn(async move {
            let open = queues.node.begin();
            if queues.drain_volatile(number).await.is_ok() {
                queues.node.volatile_queue().leave(entry, queues.fabric.now());
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
        let bytes = entries.look(number, |update| {
            let newer = store.look(update.key, |record| record.value_ts >= update.ts);
            let bytes = update.value.as_ref().map_or(0, |value| value.len());
            (!newer).then_some(bytes)
        });
        if let Some(Some(bytes)) = bytes {
            self.fabric.drain_queue_entry(bytes).await?;
        }
        let Some(update) = entries.take(number) else { return Ok(()) };
        if bytes == Some(None) {
            mark(&self.fabric, Tag::Drains, update.key, update.ts);
            return Ok(());
        }
        store.change(update.key, |record| {
            // A newer update of this record may have overtaken this one.
            if record.value_ts < update.ts {
                record.land(update.ts, update.value);
                record.volatile_ts = record.volatile_ts.max(update.ts);
            }
        });
        mark(&self.fabric, Tag::Drains, update.key, update.ts);
        Ok(())
    }

    /// Writes a record into the dFIFO, where it is durable; hardware takes it out again and "pushes
    /// it to the host NVM log". Its entry is free once the record is durable there: in between it
    /// would be lost with the power. Entries are pushed side by side.
    ///
    /// Errors: the log device has failed, for good.
    async fn enqueue_durable(self: &Rc<Self>, record: &Logged<'_>) -> Result<(), FabricError> {
        let Some(queue) = &self.durable else { return Err(FabricError::NoResources) };
        let _phase = self.fabric.phase("enqueue in the dFIFO");
        let entry = self.node.durable_queue().enter(&self.fabric).await;
        let slot = queue.take().await;
        let bytes = queue.write(&slot, record);
        let offset = queue.offset(&slot);
        if let Err(error) = self.fabric.persist(queue.region(), offset, bytes).await {
            queue.give(slot);
            self.node.durable_queue().leave(entry, self.fabric.now());
            return Err(error);
        }
        if self.fabric.shares_medium() {
            // The host's log is what has just taken it.
            queue.give(slot);
            self.node.durable_queue().leave(entry, self.fabric.now());
            return Ok(());
        }
        let (queues, record) = (self.clone(), record.emit());
        self.fabric.spawn(async move {
            let open = queues.node.begin();
            let to = queues.log.take().await;
            let offset = queues.log.offset(&to);
            let region = queues.log.region();
            let drained = queues.fabric.dma_write_durable(region, offset, &[&record]).await;
            queues.log.give(to);
            // An entry that the host's log has not taken stays where it is durable.
            if let (Ok(_), Some(queue)) = (drained, &queues.durable) {
                queue.give(slot);
                queues.node.durable_queue().leave(entry, queues.fabric.now());
            }
            drop(open);
        });
        Ok(())
    }
}
