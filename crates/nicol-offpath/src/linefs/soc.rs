//! The primary's SoC: it fetches a chunk of its host's log, compresses and replicates it.

use nicol_core::fabric::{Fabric, FabricError, OneSided, ReplyTo};
use nicol_core::ids::Side;
use nicol_kit::count;

use super::compress::{Cost, pack};
use super::config::Alternative;
use super::member::{Gone, Member, Replicated};
use super::messages::{Chunk, Done, Submit};
use super::node::add_time;

impl<F: Fabric> Member<F> {
    /// [OffPath23 A1, A2] Replicates what the host has put into a slot of its log, and acknowledges
    /// the log. Without an answer the host waits: it learns from a view that this side is lost.
    pub(super) async fn submit(&self, to: ReplyTo, submit: Submit) {
        match self.fetch(&submit).await {
            Err(error) => self.fabric.refuse(to, error),
            Ok(raw) => match self.compress_and_replicate(&submit, &raw).await {
                Ok(_replicated) => self.fabric.reply(to, &Done),
                Err(Gone) => self.fabric.refuse(to, FabricError::Unreachable),
            },
        }
    }

    /// The bytes of a slot of the host's log: by RDMA (A1), or by the card's DMA engine (A2).
    async fn fetch(&self, submit: &Submit) -> Result<Vec<u8>, FabricError> {
        let Self { fabric, node, memory, .. } = self;
        let rkey = memory.log_key().ok_or(FabricError::NoResources)?;
        let _phase = fabric.phase("SoC: fetch the chunk");
        let (offset, len) = (memory.offset_in_log(submit.slot), submit.len as usize);
        let began = fabric.now();
        let starts = (0..len).step_by(self.piece().min(len.max(1)));
        let posted: Vec<_> = starts
            .map(|from| {
                let (offset, len) = (offset + from as u64, self.piece().min(len - from));
                if node.config().alternative == Alternative::A1 {
                    // [OffPath23 A1] READ the chunk of the host, over path 3.
                    let len = len as u32;
                    fabric.one_sided(fabric.here().node, OneSided::Read { rkey, offset, len })
                } else {
                    // [OffPath23 A2] Fetch the chunk of the host by DMA, over path 3*.
                    fabric.dma_read(memory.log(), offset, len)
                }
            })
            .collect();
        let mut raw = Vec::with_capacity(len);
        let mut done = Ok(());
        for piece in posted {
            match piece.await {
                Ok(bytes) => raw.extend(bytes.as_ref()),
                Err(error) => done = done.and(Err(error)),
            }
        }
        add_time(&node.counts.times.fetch, fabric, began);
        done.map(|()| raw)
    }

    async fn compress_and_replicate(
        &self,
        submit: &Submit,
        raw: &[u8],
    ) -> Result<Replicated, Gone> {
        let config = self.node.config();
        // [OffPath23 A1, A2] Compress.
        let packed = match config.packs(Side::Nic) {
            true => Some(self.compress(raw, config.compression).await),
            false => None,
        };
        let sent = packed.as_deref().unwrap_or(raw);
        // [OffPath23 A1, A2] Write it to the SoC of the next backup, over path 2.
        let (len, crc) = (sent.len() as u32, crc32c::crc32c(sent));
        let Submit { slot, len: raw, way } = submit.clone();
        self.pass_on(&Chunk { slot, raw, len, crc, way }, sent).await
    }

    /// Compresses a chunk on this core.
    pub(super) async fn compress(&self, raw: &[u8], cost: Cost) -> Vec<u8> {
        let Self { fabric, node, .. } = self;
        let _phase = fabric.phase("compress");
        let began = fabric.now();
        let packed = pack(fabric, raw, cost).await.bytes;
        add_time(&node.counts.times.pack, fabric, began);
        count(&node.counts.packed_chunks);
        node.counts.packed(raw.len(), packed.len());
        packed
    }
}
