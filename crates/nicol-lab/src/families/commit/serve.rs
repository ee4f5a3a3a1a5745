//! An embedded cluster that runs transactions for a front, such as the RESP server's.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use anyhow::Result;
use nicol_core::commit::{
    Backend, CommitNode, CommitProtocol, Done, Request, Response, StoreMemory,
};
use nicol_core::engine::Start;
use nicol_core::exec::Signal;
use nicol_core::fabric::{Fabric, HasDoorbell};
use nicol_core::ids::Side;
use nicol_core::records::Empty;
use nicol_core::system::{Sequential, SystemNode, load_nodes};
use nicol_core::txn::{Abort, Outcome, Procedures, Txn};
use nicol_core::units::Bytes;
use nicol_rt::{LiveCluster, Mailbox};

use crate::settings::{ServingMemory, Sizes, SystemConfig};
use crate::system::{ServeConfig, Served, System};

/// Requests that wait for one host engine; beyond it the front is told to try again.
const MAILBOX: usize = 65_536;
/// Transactions that one host engine runs at a time.
const IN_FLIGHT_MAX: usize = 256;
/// Arguments up to here go to the NIC with the transaction, which then executes it there.
const SHIPPED_BYTES_MAX: usize = 4_096;

/// Starts an empty store of the system whose nodes are `N`.
pub(super) fn serve<N>(config: &ServeConfig) -> Result<Served>
where
    N: CommitNode + SystemNode<Config: SystemConfig>,
{
    let cluster = Arc::new(Cluster::<N>::empty(config)?);
    let world = LiveCluster::launch(&config.live, &cluster)?;
    Ok(Served { backend: cluster, world })
}

/// A request on its way to an engine.
struct Job {
    request: Arc<Request>,
    done: Done,
}

struct Cluster<N> {
    nodes: Vec<Arc<N>>,
    mailboxes: Vec<Arc<Mailbox<Job>>>,
    procedures: Procedures,
    memory: Bytes,
}

impl<N> Cluster<N>
where
    N: CommitNode + SystemNode<Config: SystemConfig>,
{
    /// Nodes without records.
    fn empty(config: &ServeConfig) -> Result<Self> {
        let (view, source) =
            (&config.live.view, Empty { capacity_per_shard: config.capacity_per_shard });
        let value_bytes = System::SERVED_VALUE_BYTES as usize;
        let sizes = Sizes { source: &source, value_bytes, nic_memory: None };
        let memory = ServingMemory {
            limit: config.memory,
            nodes: view.nodes() as u64,
            replicas: view.replicas() as u64,
            records: config.capacity_per_shard,
        };
        let system = N::Config::published(config.system, &sizes).serving(&memory)?;
        Ok(Self {
            nodes: load_nodes(view, &system, &source, &Sequential),
            mailboxes: view.node_ids().map(|_| Arc::new(Mailbox::new(MAILBOX))).collect(),
            procedures: config.procedures.clone(),
            memory: config.memory,
        })
    }
}

impl<N: CommitNode> Backend for Cluster<N> {
    fn submit(&self, connection: u64, request: Arc<Request>, done: Done) {
        let mailbox = &self.mailboxes[(connection % self.mailboxes.len() as u64) as usize];
        if let Err(job) = mailbox.push(Job { request, done }) {
            let outcome = Outcome::Aborted(Abort::NoResources);
            (job.done)(Response { outcome, output: Vec::new() });
        }
    }

    fn records(&self) -> u64 {
        self.nodes.iter().map(|node| node.records()).sum()
    }

    fn memory(&self) -> StoreMemory {
        let (mut tables, mut indexes, mut logs) = (0, 0, 0);
        for memory in self.nodes.iter().filter_map(|node| node.memory()) {
            tables += memory.tables.0;
            indexes += memory.index.0;
            logs += memory.logs.0;
        }
        let parts =
            [("memory_tables", tables), ("memory_nic_indexes", indexes), ("memory_logs", logs)];
        let parts = parts.map(|(name, bytes)| (name, Bytes(bytes))).to_vec();
        StoreMemory { parts, limit: Some(self.memory) }
    }

    fn is_full(&self) -> bool {
        self.nodes.iter().any(|node| node.is_full())
    }
}

impl<N: CommitNode> Start for Cluster<N> {
    fn start<F: Fabric>(&self, fabric: &F) {
        let here = fabric.here();
        let node = &self.nodes[usize::from(here.node.0)];
        let coordinator = node.start(fabric, &self.procedures);
        let Some(coordinator) = coordinator.filter(|_| here.side == Side::Host) else { return };
        let pump = RequestPump {
            fabric: fabric.clone(),
            coordinator,
            spare: Rc::default(),
            finished: fabric.signal(),
        };
        let mailbox = self.mailboxes[usize::from(here.node.0)].clone();
        fabric.spawn(async move { pump.serve(mailbox).await });
    }
}

/// A host engine's request queue. [Xenic21 4.2: A polls a queue that B fills]
#[derive(Clone)]
struct RequestPump<F, C> {
    fabric: F,
    coordinator: C,
    spare: Rc<RefCell<Vec<Txn>>>,
    finished: Signal,
}

impl<F: Fabric, C: CommitProtocol> RequestPump<F, C> {
    async fn serve(self, mailbox: Arc<Mailbox<Job>>) {
        let doorbell: Arc<dyn HasDoorbell> = mailbox.clone();
        let running = Rc::new(RefCell::new(0));
        loop {
            let seen = doorbell.doorbell().rings();
            while let Some(job) = mailbox.pop() {
                while *running.borrow() >= IN_FLIGHT_MAX {
                    self.finished.wait().await;
                }
                *running.borrow_mut() += 1;
                let (pump, running) = (self.clone(), running.clone());
                self.fabric.spawn(async move {
                    pump.run(job).await;
                    *running.borrow_mut() -= 1;
                    pump.finished.notify();
                });
            }
            self.fabric.wait_for_doorbell(&doorbell, seen).await;
        }
    }

    async fn run(&self, job: Job) {
        let mut txn = self.spare.borrow_mut().pop().unwrap_or_default();
        let request = &*job.request;
        txn.reset(request.procedure, &request.args);
        txn.ship = request.args.len() <= SHIPPED_BYTES_MAX;
        for &key in &request.reads {
            txn.read(key);
        }
        for &key in &request.writes {
            txn.write(key);
        }
        let outcome = self.coordinator.run(&mut txn).await;
        let output = std::mem::take(&mut txn.output);
        (job.done)(Response { outcome, output });
        self.spare.borrow_mut().push(txn);
    }
}
