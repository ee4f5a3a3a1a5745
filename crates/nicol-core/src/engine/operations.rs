//! An engine's transfers: DMA, persists, and verbs. They are gathered and submitted together, or
//! made at once where memory is shared.

use std::cell::RefCell;
use std::sync::Arc;

use super::completions::{Completion, Token};
use super::site::Site;
use super::sparse::Sparse;
use super::stats::count;
use super::world::{land, len_of};
use super::{Charge, DoorbellBatch, Operation, Transfer, World};
use crate::fabric::FabricError;
use crate::ids::NodeId;
use crate::memory::{Region, WORD};

/// Operations gathered for one submission.
#[derive(Debug, Default)]
struct Batches {
    dma_reads: Vec<Operation>,
    dma_writes: Vec<Operation>,
    persists: Vec<Operation>,
    /// Fillings of queue entries.
    fills: Vec<Operation>,
    /// By node.
    verbs: Sparse<Vec<Operation>>,
    /// The nodes for which verbs wait.
    posted: Vec<NodeId>,
}

/// The operations that one engine has gathered.
#[derive(Debug, Default)]
pub(super) struct Operations(RefCell<Batches>);

impl Operations {
    /// Starts a transfer to the other side's memory, or makes it at once where memory is shared.
    pub(super) fn start<W: World>(
        &self,
        site: &Site<W>,
        transfer: Transfer,
        buffer: Vec<u8>,
    ) -> Completion {
        let mut operation = Operation { transfer, buffer, result: Ok(()), token: 0 };
        let is_dma =
            !matches!(operation.transfer, Transfer::Persist { .. } | Transfer::Fill { .. });
        if is_dma {
            count_dma(site, operation.reads(), operation.dma_bytes());
            if let Some(region) = operation.region() {
                site.world().regions().adopt(region, site.here().side.other());
            }
        }
        if W::SHARED_MEMORY && is_dma {
            return self.make_at_once(site, operation);
        }
        let (token, completion) = site.completions().open();
        operation.token = token.0;
        if let Some(trace) = site.trace() {
            trace.transfer_begins(site.now(), &operation);
        }
        let mut batches = self.0.borrow_mut();
        let limit = site.world().tuning().dma_vector;
        let batch = match operation.transfer {
            Transfer::DmaRead { .. } | Transfer::DmaTouch { reads: true, .. } => {
                &mut batches.dma_reads
            }
            Transfer::DmaWrite { .. } | Transfer::DmaTouch { .. } => &mut batches.dma_writes,
            Transfer::Fill { .. } => &mut batches.fills,
            _ => &mut batches.persists,
        };
        batch.push(operation);
        // [Xenic21 4.3.1] A vector is submitted when it fills, or at the end of the round.
        if is_dma && batch.len() >= limit {
            submit(site, batch);
        }
        completion
    }

    /// Starts a DMA write of some parts, which is then made durable where that is asked for.
    // In line, so that parts whose lengths the caller knows are single stores.
    #[inline(always)]
    pub(super) fn write<W: World>(
        &self,
        site: &Site<W>,
        (to, offset): (&Arc<Region>, u64),
        parts: &[&[u8]],
        durable: bool,
    ) -> Completion {
        let world = site.world();
        let must_persist = durable && !world.memory_is_durable();
        if site.transfers_at_once() && !must_persist && !to.is_lost() {
            count_dma(site, false, len_of(parts) as u64);
            world.regions().adopt(to, site.here().side.other());
            let landed = land(to, offset, parts).map_err(FabricError::AccessDenied);
            return match landed {
                Ok(()) => site.done(),
                Err(error) => Completion::ready(Err(error)),
            };
        }
        self.start_write(site, (to, offset), parts, durable)
    }

    /// Starts a DMA write that is not made at once.
    #[inline(never)]
    fn start_write<W: World>(
        &self,
        site: &Site<W>,
        (to, offset): (&Arc<Region>, u64),
        parts: &[&[u8]],
        durable: bool,
    ) -> Completion {
        let mut buffer = site.pool().take();
        for part in parts {
            if !buffer.len().is_multiple_of(WORD) {
                buffer.resize(buffer.len().next_multiple_of(WORD), 0);
            }
            buffer.extend_from_slice(part);
        }
        self.start(site, Transfer::DmaWrite { region: to.clone(), offset, durable }, buffer)
    }

    /// Makes a DMA in memory that both sides share. What the log device must take is not complete
    /// before it has.
    fn make_at_once<W: World>(&self, site: &Site<W>, mut operation: Operation) -> Completion {
        let pending = operation.persists().then(|| site.completions().open());
        if let Some((token, _)) = &pending {
            operation.token = token.0;
        }
        if let Some(trace) = site.trace() {
            trace.transfer_begins(site.now(), &operation);
        }
        operation.execute_local();
        let landed = self.landed(site, operation);
        if let (Some(trace), Some(landed)) = (site.trace(), &landed) {
            trace.transfer_ends(site.now(), landed);
        }
        let result = landed.map(|done| done.result.map(|()| site.pool().payload(done.buffer)));
        match (pending, result) {
            (None, Some(result)) => Completion::ready(result),
            (Some((token, completion)), Some(result)) => {
                site.completions().resolve(token, result);
                completion
            }
            (Some((_, completion)), None) => completion,
            (None, None) => panic!("only a durable write goes on to the log device"),
        }
    }

    /// Sends a durable write that has landed on to the log device, if there is one to wait for;
    /// gives back what is complete.
    pub(super) fn landed<W: World>(
        &self,
        site: &Site<W>,
        mut operation: Operation,
    ) -> Option<Operation> {
        let Transfer::DmaWrite { region, offset, durable: true } = &operation.transfer else {
            return Some(operation);
        };
        if site.world().memory_is_durable() || operation.result.is_err() {
            return Some(operation);
        }
        let (region, offset, len) = (region.clone(), *offset, operation.buffer.len() as u32);
        operation.transfer = Transfer::Persist { region, offset, len };
        self.0.borrow_mut().persists.push(operation);
        None
    }

    /// Posts the verb or chain `buffer` to the NIC of `node`.
    pub(super) fn post_verb<W: World>(
        &self,
        site: &Site<W>,
        node: NodeId,
        buffer: Vec<u8>,
    ) -> Completion {
        let (Token(token), completion) = site.completions().open();
        let operation = Operation { transfer: Transfer::Verbs, buffer, result: Ok(()), token };
        count(&site.counters().verbs, u64::from(operation.verbs()));
        if let Some(trace) = site.trace() {
            trace.verb_begins(site.now(), &operation, node);
        }
        let batches = &mut *self.0.borrow_mut();
        let batch = batches.verbs.entry(node.index());
        if batch.is_empty() {
            batches.posted.push(node);
        }
        batch.push(operation);
        if batch.len() >= site.world().tuning().doorbell_batch.limit(site.here().side) {
            ring_doorbells(site.world(), node, batch);
        }
        completion
    }

    /// Submits whatever the round has gathered.
    pub(super) fn flush<W: World>(&self, site: &Site<W>) {
        let batches = &mut *self.0.borrow_mut();
        submit(site, &mut batches.dma_reads);
        submit(site, &mut batches.dma_writes);
        for batch in [&mut batches.fills, &mut batches.persists] {
            if !batch.is_empty() {
                site.world().submit(batch);
            }
        }
        if batches.posted.is_empty() {
            return;
        }
        batches.posted.sort_unstable();
        for node in batches.posted.drain(..) {
            ring_doorbells(site.world(), node, batches.verbs.entry(node.index()));
        }
    }
}

fn count_dma<W: World>(site: &Site<W>, reads: bool, bytes: u64) {
    let counters = site.counters();
    let counter = if reads { &counters.dma_reads } else { &counters.dma_writes };
    count(counter, 1);
    count(&counters.dma_bytes, bytes);
}

/// Submits a vector of DMAs.
fn submit<W: World>(site: &Site<W>, batch: &mut Vec<Operation>) {
    if batch.is_empty() {
        return;
    }
    count(&site.counters().dma_vectors, 1);
    site.world().charge(Charge::DmaSubmitted { requests: batch.len() as u32 });
    site.world().submit(batch);
    assert!(batch.is_empty(), "the world takes the whole vector");
}

/// Posts a batch with one doorbell, or with as many as there are operations if that is sooner.
fn ring_doorbells(world: &impl World, node: NodeId, batch: &mut Vec<Operation>) {
    let adapts = world.tuning().doorbell_batch == DoorbellBatch::Adaptive;
    if !adapts || batch.len() < 2 || world.doorbell_pays(batch.len()) {
        return ring_doorbell(world, node, batch);
    }
    let mut alone = Vec::with_capacity(1);
    for operation in batch.drain(..) {
        alone.push(operation);
        ring_doorbell(world, node, &mut alone);
    }
}

fn ring_doorbell(world: &impl World, node: NodeId, batch: &mut Vec<Operation>) {
    if batch.is_empty() {
        return;
    }
    let operations = batch.iter().map(Operation::verbs).sum();
    world.charge(Charge::VerbsPosted { operations });
    world.post(node, batch);
    assert!(batch.is_empty(), "the world takes the whole batch");
}
