//! What the coordinator and the server of one host engine share.

use std::rc::Rc;

use nicol_core::fabric::Fabric;

use super::local_log::LocalLog;
use super::log_acks::Acknowledged;
use super::owner::Owner;
use super::reach::Reach;
use super::rpc::Rpc;

/// One host engine of a node.
pub(super) struct HostEngine<F: Fabric> {
    /// This node's own shard: its keys are read, locked and installed in local memory.
    pub(super) owner: Rc<dyn Owner>,
    /// The log of the shards that this engine backs up.
    pub(super) log: Rc<LocalLog<F>>,
    /// Which records of what it applies may be truncated.
    pub(super) acknowledged: Rc<Acknowledged>,
    /// Other nodes' memory.
    pub(super) reach: Rc<Reach<F>>,
    /// Other nodes' engines.
    pub(super) rpc: Rc<Rpc<F>>,
}

impl<F: Fabric> Clone for HostEngine<F> {
    fn clone(&self) -> Self {
        let Self { owner, log, acknowledged, reach, rpc } = self;
        Self {
            owner: owner.clone(),
            log: log.clone(),
            acknowledged: acknowledged.clone(),
            reach: reach.clone(),
            rpc: rpc.clone(),
        }
    }
}
