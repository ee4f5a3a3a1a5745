//! A backup: it passes a chunk on, unpacks it, makes it persistent and publishes it.

use std::future::Future;
use std::pin::Pin;

use nicol_core::exec::join_all;
use nicol_core::fabric::{Fabric, FabricError, ReplyTo, Work};
use nicol_core::ids::Side;
use nicol_kit::count;

use super::compress::{Cost, unpack};
use super::config::Alternative;
use super::layout::records;
use super::member::Member;
use super::messages::{Chunk, Done};
use super::node::add_time;

/// A part of what a backup does.
type Part<'a> = Pin<Box<dyn Future<Output = Result<(), FabricError>> + 'a>>;

impl<F: Fabric> Member<F> {
    /// A chunk is in this side's memory. The answer says that it is persistent here, and on every
    /// backup behind this one that the view has.
    pub(super) async fn take(&self, to: ReplyTo, chunk: Chunk) {
        let Self { fabric, node, memory, .. } = self;
        let side = fabric.here().side;
        let _phase = fabric.phase("backup: take the chunk");
        fabric.access().await;
        if !node.state().admits(&chunk) {
            return fabric.refuse(to, FabricError::NoResources);
        }
        let mut bytes = vec![0; chunk.len as usize];
        let read = memory.inbox(side).read(memory.place_of(side, chunk.slot), &mut bytes);
        if read.is_err() || crc32c::crc32c(&bytes) != chunk.crc {
            count(&node.counts.refused);
            return fabric.refuse(to, FabricError::NoResources);
        }
        // [OffPath23 5.1] The chain: the next backup has it while this one unpacks it.
        let onward: Part<'_> = Box::pin(async {
            self.pass_on(&chunk, &bytes).await.map(drop).map_err(|_| FabricError::Unreachable)
        });
        let kept: Part<'_> = Box::pin(self.keep(&chunk, &bytes));
        let mut parts = join_all::<2, _>([onward, kept]).await;
        match parts.find_map(Result::err) {
            None => fabric.reply(to, &Done),
            Some(error) => fabric.refuse(to, error),
        }
    }

    /// Makes a chunk persistent in the host's memory, and then readable.
    async fn keep(&self, chunk: &Chunk, bytes: &[u8]) -> Result<(), FabricError> {
        let Self { fabric, node, memory, .. } = self;
        let (len, offset) = (chunk.raw as usize, memory.place_of(Side::Host, chunk.slot));
        let (copies, times) = (memory.inbox(Side::Host), &node.counts.times);
        if fabric.here().side == Side::Host {
            // [OffPath23 A3] The WRITE has brought it into persistent memory, packed if it is.
            let began = fabric.now();
            fabric.persist(copies, offset, bytes.len()).await?;
            add_time(&times.persist, fabric, began);
            if node.config().host_compresses {
                let raw = self.decompress(bytes, len, Cost::HOST_DECOMPRESSION).await?;
                return self.publish_copies(chunk, &raw).await;
            }
            return self.publish_copies(chunk, bytes).await;
        }
        let unpacked = match node.config().packs(Side::Nic) {
            true => Some(self.decompress(bytes, len, node.config().decompression).await?),
            false => None,
        };
        let raw = unpacked.as_deref().unwrap_or(bytes);
        if raw.len() != len {
            return Err(FabricError::Malformed);
        }
        let began = fabric.now();
        if node.config().alternative == Alternative::A1 {
            // [OffPath23 A1] WRITE it to the host, over path 3.
            let rkey = memory.inbox_key(Side::Host).ok_or(FabricError::NoResources)?;
            self.write(fabric.here().node, rkey, offset, raw).await?;
            add_time(&times.land, fabric, began);
            let began = fabric.now();
            fabric.persist(copies, offset, len).await?;
            add_time(&times.persist, fabric, began);
        } else {
            // [OffPath23 A2] Write it to the host by DMA, over path 3*.
            let pieces = raw.chunks(self.piece()).enumerate();
            let posted: Vec<_> = pieces
                .map(|(number, bytes)| {
                    let offset = offset + (number * self.piece()) as u64;
                    fabric.dma_write_durable(copies, offset, &[bytes])
                })
                .collect();
            let mut done = Ok(());
            for written in posted {
                done = done.and(written.await.map(drop));
            }
            done?;
            add_time(&times.land, fabric, began);
        }
        self.publish_copies(chunk, raw).await
    }

    async fn decompress(
        &self,
        bytes: &[u8],
        len: usize,
        cost: Cost,
    ) -> Result<Vec<u8>, FabricError> {
        let began = self.fabric.now();
        let raw = unpack(&self.fabric, bytes, len, cost).await;
        add_time(&self.node.counts.times.unpack, &self.fabric, began);
        raw.map_err(|_| FabricError::Malformed)
    }

    /// Makes a chunk readable, unless another head has been promoted meanwhile: it may not have it.
    async fn publish_copies(&self, chunk: &Chunk, raw: &[u8]) -> Result<(), FabricError> {
        let Self { fabric, node, .. } = self;
        let writes = records(raw).map_err(|_| FabricError::Malformed)?;
        let _phase = fabric.phase("backup: publish");
        let began = fabric.now();
        writes.iter().for_each(|_| fabric.work(Work::TableApply));
        fabric.access().await;
        add_time(&node.counts.times.publish, fabric, began);
        let mut state = node.state();
        if !state.admits(chunk) {
            return Err(FabricError::NoResources);
        }
        state.publish(&writes);
        Ok(())
    }
}
