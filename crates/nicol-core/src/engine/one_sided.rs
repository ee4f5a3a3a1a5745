//! [`OneSidedOps`] for engines.

use std::sync::Arc;

use super::calls::ONE_SIDED_KIND;
use super::{Completion, Engine, World};
use crate::chain::Encoded;
use crate::fabric::{FabricError, Local, OneSided, OneSidedOps, Timeout};
use crate::ids::{EngineId, FreeListKey, NodeId, RKey, Side};
use crate::memory::{Access, AccessError, BufferUses, Buffers, ChainMark, Region};

impl<W: World> OneSidedOps for Engine<W> {
    fn register(&self, region: &Arc<Region>, access: Access) -> RKey {
        let world = &self.0.world;
        world.regions().register(region.clone(), access, self.0.here.side, || world.draw_rkey())
    }

    fn revoke(&self, rkey: RKey) -> bool {
        self.0.world.regions().revoke(rkey)
    }

    fn register_buffers(&self, buffers: Buffers) -> Result<FreeListKey, AccessError> {
        let world = &self.0.world;
        world.regions().register_buffers(buffers, || world.draw_rkey())
    }

    fn post_buffers(&self, list: FreeListKey, offsets: &[u64]) -> Result<(), AccessError> {
        self.0.world.regions().post_buffers(list, offsets)
    }

    fn buffer_uses(&self, list: FreeListKey) -> Option<Arc<BufferUses>> {
        self.0.world.regions().buffer_uses(list)
    }

    fn mark_chains(&self) -> ChainMark {
        self.0.world.regions().mark_chains()
    }

    fn have_ended(&self, mark: ChainMark) -> bool {
        self.0.world.regions().have_ended(mark)
    }

    fn buffers_ready(&self, list: FreeListKey) -> usize {
        self.0.world.regions().buffers_ready(list)
    }

    fn one_sided(&self, node: NodeId, operation: OneSided<'_>) -> Completion {
        self.post_one_sided(node, operation, matches!(operation, OneSided::Chain(_)))
    }

    fn one_sided_like_chain(&self, node: NodeId, operation: OneSided<'_>) -> Completion {
        self.post_one_sided(node, operation, true)
    }
}

impl<W: World> Engine<W> {
    /// Posts an operation; with `like_chain` a verb is executed by what executes chains at `node`.
    fn post_one_sided(
        &self,
        node: NodeId,
        operation: OneSided<'_>,
        like_chain: bool,
    ) -> Completion {
        if let Some(trace) = &self.0.trace {
            trace.describe_one_sided(&operation);
        }
        if self.view().node(node).is_none() {
            return Completion::ready(Err(FabricError::Unreachable));
        }
        if self.0.world.card_executes(node, like_chain) {
            let mut body = self.0.pool.take();
            Encoded::emit(operation, like_chain, &mut body);
            return self.post_verb(node, body);
        }
        let view = self.view();
        let engines = view.engines(node, Side::Nic);
        let target = EngineId::nic(node, view.peer_of(self.0.here, node, engines));
        let timeout = Timeout::After(self.0.world.tuning().one_sided_timeout);
        let mut emit = |body: &mut Vec<u8>| Encoded::emit(operation, like_chain, body);
        self.request(target, ONE_SIDED_KIND, &mut emit, timeout, None)
    }
}
