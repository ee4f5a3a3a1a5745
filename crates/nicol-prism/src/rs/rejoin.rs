//! A replica that has come back without its blocks.
//!
//! The paper's replicas fail for good. Here one that restarts may count in quorums again once it
//! has copied every block from f + 1 others, and once nobody counts what its last life
//! acknowledged: a PUT that was under way when it crashed could otherwise end with fewer copies
//! than f + 1.
//!
//! 1. REJOIN to the others. Each notes the new life, and takes back the key under which clients
//!    swap its pointers ([`Replica::fence`]): a client that swaps one there later has said HELLO
//!    since, and learnt of the new life.
//! 2. Copy each block from f + 1 that have answered: the most recent tag.
//! 3. Serve.
//!
//! A PUT that counts an acknowledgement of the last life has f others. One of them is among the f +
//! 1 of the copy: either it had the block before the copy, which then has it too, or its
//! acknowledgement came under the new key, so that the client knows of the new life and counts the
//! last one no more.

use std::sync::Arc;

use nicol_core::exec::join_all;
use nicol_core::fabric::{Fabric, FabricError, OneSided, Timeout};
use nicol_core::ids::{EngineId, NodeId, ShardId};
use nicol_core::units::Nanos;
use nicol_core::view::REPLICAS_MAX;

use super::chains;
use super::node::Node;
use super::replica::Replica;
use crate::messages::{Handles, Rejoin};

/// How long a REJOIN waits for its answer.
const REJOIN_TIMEOUT: Nanos = Nanos::from_millis(2);
/// How long the next attempt waits after a failed one: at first, and at most.
const WAIT_FIRST: Nanos = Nanos::from_micros(200);
const WAIT_MOST: Nanos = Nanos::from_micros(6_400);

/// Another replica, ready to be copied from.
type Source = (NodeId, Handles);

/// Copies what `node` replicates, and lets it serve: as soon as enough others are there, however
/// long that takes.
pub(super) async fn rejoin<F: Fabric>(fabric: F, node: Arc<Node>) {
    let mut wait = WAIT_FIRST;
    loop {
        let mut replica = Replica::new(node.config(), fabric.view().nodes());
        if copy(&fabric, &node, &mut replica).await.is_ok() {
            return node.serve_again(replica);
        }
        fabric.sleep_until(fabric.now() + wait).await;
        wait = Nanos((wait.0 * 2).min(WAIT_MOST.0));
    }
}

/// Copies every block into `replica`.
///
/// Errors: too few others have answered.
async fn copy<F: Fabric>(
    fabric: &F,
    node: &Arc<Node>,
    replica: &mut Replica,
) -> Result<(), FabricError> {
    let view = fabric.view().clone();
    let held: Vec<ShardId> =
        view.shard_ids().filter(|&shard| view.replicas_of(shard).contains(&node.id())).collect();
    let mut others: Vec<NodeId> =
        held.iter().flat_map(|&shard| view.replicas_of(shard)).copied().collect();
    others.sort_unstable();
    others.dedup();
    others.retain(|other| *other != node.id());
    let sources = fence(fabric, &others).await;
    sources.iter().for_each(|(_, handles)| replica.learn(&handles.lives));
    for shard in held {
        let replicas = view.replicas_of(shard);
        let needed = replicas.len() / 2 + 1;
        let near = sources.iter().filter(|(source, _)| replicas.contains(source));
        let near: Vec<&Source> = near.take(needed).collect();
        if near.len() < needed {
            return Err(FabricError::Unreachable);
        }
        for block in node.blocks_of(shard) {
            copy_block(fabric, node, replica, &near, block).await?;
        }
    }
    Ok(())
}

/// REJOIN to every one of `others`; those that have answered.
async fn fence<F: Fabric>(fabric: &F, others: &[NodeId]) -> Vec<Source> {
    let rejoin = Rejoin(fabric.incarnation());
    let timeout = Timeout::After(REJOIN_TIMEOUT);
    let ask = |other: &NodeId| fabric.call(EngineId::host(*other, 0), &rejoin, timeout);
    let asked: Vec<F::Completion> = others.iter().map(ask).collect();
    let nodes = fabric.view().nodes();
    let mut sources = Vec::new();
    for (other, answer) in others.iter().zip(asked) {
        let handles = answer.await.ok().and_then(|body| Handles::parse(body.as_ref(), nodes).ok());
        sources.extend(handles.map(|handles| (*other, handles)));
    }
    sources
}

/// Copies the most recent version of `block` among `sources`.
async fn copy_block<F: Fabric>(
    fabric: &F,
    node: &Arc<Node>,
    replica: &mut Replica,
    sources: &[&Source],
    block: u64,
) -> Result<(), FabricError> {
    let read = |(source, handles): &&Source| {
        let chain = chains::read(node.config(), handles, block);
        fabric.one_sided(*source, OneSided::Chain(&chain))
    };
    let (mut newest, mut value) = (None, Vec::new());
    for reply in join_all::<REPLICAS_MAX, _>(sources.iter().map(read)).await {
        let reply = reply?;
        let Some((tag, bytes)) = chains::read_result(reply.as_ref())? else { continue };
        if newest.is_none_or(|newest| newest < tag) {
            newest = Some(tag);
            value.clear();
            value.extend_from_slice(bytes);
        }
    }
    if let Some(tag) = newest {
        replica.load(block, tag, &value);
    }
    Ok(())
}
