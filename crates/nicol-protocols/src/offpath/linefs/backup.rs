//! A backup: it passes a chunk on, unpacks it, makes it persistent and publishes it.

use std::future::Future;
use std::pin::Pin;

use nicol_core::exec::join_all;
use nicol_core::fabric::{Fabric, FabricError, ReplyTo, Work};
use nicol_core::ids::Side;

use super::compress::unpack;
use super::config::{Alternative, Sabotage};
use super::layout::records;
use super::member::Member;
use super::messages::{Chunk, Done};
use crate::kit::count;

/// A part of what a backup does.
type Part<'a> = Pin<Box<dyn Future<Output = Result<(), FabricError>> + 'a>>;

impl<F: Fabric> Member<F> {
    /// A chunk is in this side's memory. The answer says that it is persistent here, and on every
    /// backup behind this one that the view has.
    pub(super) async fn take(&self, to: ReplyTo, chunk: Chunk) {
        let Self { fabric, node, .. } = self;
        let side = fabric.here().side;
        fabric.access().await;
        let mut bytes = vec![0; chunk.len as usize];
        let read = node.inbox(side).read(node.place_of(side, chunk.slot), &mut bytes);
        let trusts = node.config().sabotage == Sabotage::TrustsChunks;
        if read.is_err() || crc32c::crc32c(&bytes) != chunk.crc && !trusts {
            count(&node.counts.refused);
            return fabric.refuse(to, FabricError::NoResources);
        }
        // [OffPath23 5.1] The chain: the next backup has it while this one unpacks it.
        let breaks = node.config().sabotage == Sabotage::BreaksChain;
        let onward: Part<'_> = Box::pin(async {
            if breaks {
                return Ok(());
            }
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
        let Self { fabric, node, .. } = self;
        let (len, offset) = (chunk.raw as usize, node.place_of(Side::Host, chunk.slot));
        let copies = node.inbox(Side::Host);
        if fabric.here().side == Side::Host {
            // [OffPath23 A3] The WRITE has brought it into persistent memory.
            fabric.persist(copies, offset, len).await?;
            return self.publish_copies(bytes).await;
        }
        let cost = node.config().decompression;
        let raw = unpack(fabric, bytes, len, cost).await.map_err(|_| FabricError::Malformed)?;
        if node.config().alternative == Alternative::A1 {
            // [OffPath23 A1] WRITE it to the host, over path 3.
            let rkey = node.inbox_key(Side::Host).ok_or(FabricError::NoResources)?;
            self.write(fabric.here().node, rkey, offset, &raw).await?;
            fabric.persist(copies, offset, len).await?;
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
        }
        self.publish_copies(&raw).await
    }

    async fn publish_copies(&self, raw: &[u8]) -> Result<(), FabricError> {
        let Self { fabric, node, .. } = self;
        let writes = records(raw).map_err(|_| FabricError::Malformed)?;
        writes.iter().for_each(|_| fabric.work(Work::TableApply));
        fabric.access().await;
        let always = node.config().sabotage == Sabotage::PublishesOld;
        let mut files = node.files();
        writes.iter().for_each(|write| files.publish(write, always));
        Ok(())
    }
}
