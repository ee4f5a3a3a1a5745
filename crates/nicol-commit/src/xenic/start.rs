//! How the engines of a node start.

use std::sync::Arc;

use nicol_core::commit::CommitNode;
use nicol_core::fabric::Fabric;
use nicol_core::ids::{EngineId, Key, Side};
use nicol_core::serving::Walked;
use nicol_core::txn::Procedures;
use nicol_core::view::View;
use nicol_kit::follow_views;
use nicol_store::host_table::WalkPosition;

use super::broken::service;
use super::config::Recovery;
use super::copier::Copier;
use super::host::HostCoordinator;
use super::host::log_acks::LogAcks;
use super::host::trees::HostService;
use super::host::worker::Worker;
use super::nic::Nic;
use super::node::Node;
use super::recoverer::Recoverer;
use super::scheduled::{Submitter, serve};
use crate::log_worker::apply_log;

impl CommitNode for Node {
    type Coordinator<F: Fabric> = Submitter<F>;

    const SCANS: bool = true;

    /// What has committed is in the host's table or, until the host has applied it, locked or
    /// pinned in the NIC's index. The index is looked at first: what leaves it then is in the
    /// table.
    ///
    /// Only the shard that was its own from the start is walked, so none once it leads others; and
    /// only one with one hash table, as a served store has it.
    fn walk(&self, from: u64, keys: &mut Vec<Key>) -> Walked {
        let life = self.newest();
        if !life.lives().is_first() || life.inherited().are_any() {
            return Walked::Unable;
        }
        let Some((table, index)) = self.only_table() else { return Walked::Unable };
        let at = WalkPosition::from_word(from);
        let Some(range) = at.range(table) else { return Walked::End };
        let mut name = |key: Key| {
            if !key.is_ordered() {
                keys.push(key);
            }
        };
        index.for_each_busy(range, &mut name);
        match at.step(table, &mut name) {
            Some(next) => Walked::Until(next.word()),
            None => Walked::End,
        }
    }

    fn walk_position(&self, draw: u64) -> u64 {
        self.only_table().map_or(0, |(table, _)| WalkPosition::at_share(table, draw).word())
    }

    /// Starts Xenic on one engine of `node`: a NIC engine serves; a host engine applies logs and
    /// gets a coordinator.
    fn start<F: Fabric>(
        self: &Arc<Self>,
        fabric: &F,
        procedures: &Procedures,
    ) -> Option<Submitter<F>> {
        let here = fabric.here();
        assert!(here.node == self.id(), "an engine starts with its own node's memory");
        self.lives().keep_procedures(procedures);
        match here.side {
            Side::Nic => {
                let nic = Nic::new(fabric, self, procedures);
                let follower = self.clone();
                fabric.spawn(follow_views(fabric.clone(), move |view| follower.learn(view)));
                if here.core == 0 && self.config().recovery == Recovery::Prepared {
                    fabric.spawn(Recoverer::new(fabric, self).run());
                    fabric.spawn(Copier::new(fabric, self).run());
                }
                let service = service(fabric, nic, self.config());
                serve(fabric, self.schedule(), service, None);
                None
            }
            Side::Host => {
                let acks = LogAcks::new(fabric.clone());
                for core in logs_of(fabric.view(), here) {
                    let (node, acks) = (self.clone(), acks.clone());
                    let log = node.log(core).clone();
                    let worker = Worker { fabric: fabric.clone(), node, acks, core };
                    fabric.spawn(apply_log(fabric.clone(), log, worker));
                }
                fabric.spawn(acks.clone().send_overdue());
                let service = HostService::new(fabric.clone(), self.clone());
                let (fabric, node) = (fabric.clone(), self.clone());
                let coordinator = HostCoordinator::new(fabric, procedures.clone(), node, acks);
                let (fabric, schedule) = (coordinator.fabric(), self.schedule());
                serve(fabric, schedule, service, Some(&coordinator));
                Some(match schedule {
                    Some(shared) => Submitter::scheduled(fabric, shared, procedures),
                    None => Submitter::here(coordinator),
                })
            }
        }
    }
}

/// The NIC cores whose logs `host` applies.
fn logs_of(view: &View, host: EngineId) -> impl Iterator<Item = u8> + use<> {
    let (hosts, nics) = (view.engines(host.node, Side::Host), view.engines(host.node, Side::Nic));
    (usize::from(host.core)..nics).step_by(hosts).map(|nic| nic as u8)
}
