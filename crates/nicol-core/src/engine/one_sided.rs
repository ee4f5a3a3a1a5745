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
        let world = self.world();
        world
            .regions()
            .register(region.clone(), access, self.site().here().side, || world.draw_rkey())
    }

    fn revoke(&self, rkey: RKey) -> bool {
        self.world().regions().revoke(rkey)
    }

    fn register_buffers(&self, buffers: Buffers) -> Result<FreeListKey, AccessError> {
        let world = self.world();
        world.regions().register_buffers(buffers, || world.draw_rkey())
    }

    fn post_buffers(&self, list: FreeListKey, offsets: &[u64]) -> Result<(), AccessError> {
        self.world().regions().post_buffers(list, offsets)
    }

    fn buffer_uses(&self, list: FreeListKey) -> Option<Arc<BufferUses>> {
        self.world().regions().buffer_uses(list)
    }

    fn mark_chains(&self) -> ChainMark {
        self.world().regions().mark_chains()
    }

    fn have_ended(&self, mark: ChainMark) -> bool {
        self.world().regions().have_ended(mark)
    }

    fn buffers_ready(&self, list: FreeListKey) -> usize {
        self.world().regions().buffers_ready(list)
    }

    fn one_sided(&self, node: NodeId, operation: OneSided<'_>) -> Completion {
        post(self, node, operation, matches!(operation, OneSided::Chain(_)))
    }

    fn one_sided_like_chain(&self, node: NodeId, operation: OneSided<'_>) -> Completion {
        post(self, node, operation, true)
    }
}

/// Posts an operation; with `like_chain` a verb is executed by what executes chains at `node`.
fn post<W: World>(
    engine: &Engine<W>,
    node: NodeId,
    operation: OneSided<'_>,
    like_chain: bool,
) -> Completion {
    let (site, view) = (engine.site(), engine.view());
    if let Some(trace) = site.trace() {
        trace.describe_one_sided(&operation);
    }
    if view.node(node).is_none() {
        return Completion::ready(Err(FabricError::Unreachable));
    }
    if site.world().card_executes(node, like_chain) {
        let mut body = site.pool().take();
        Encoded::emit(operation, like_chain, &mut body);
        return engine.0.operations.post_verb(site, node, body);
    }
    let engines = view.engines(node, Side::Nic);
    let target = EngineId::nic(node, view.peer_of(site.here(), node, engines));
    let timeout = Timeout::After(site.world().tuning().one_sided_timeout);
    let mut emit = |body: &mut Vec<u8>| Encoded::emit(operation, like_chain, body);
    engine.request(target, ONE_SIDED_KIND, &mut emit, timeout, None)
}
