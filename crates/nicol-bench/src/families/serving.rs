//! An embedded cluster of a system that runs procedures for a front, such as the RESP server's:
//! what systems that serve a store share, of whichever family.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use anyhow::Result;
use nicol_core::commit::{CommitNode, CommitProtocol};
use nicol_core::engine::Start;
use nicol_core::exec::Signal;
use nicol_core::fabric::{Fabric, HasDoorbell};
use nicol_core::ids::{Key, Side, Version};
use nicol_core::memory::Doorbell;
use nicol_core::serving::{Backend, Done, Request, Response, StoreMemory, Walked};
use nicol_core::system::{SystemNode, load_nodes};
use nicol_core::txn::{Abort, Outcome, Procedures, Txn};
use nicol_core::units::Bytes;
use nicol_rt::{LiveCluster, LogFolder, Mailbox};

use crate::parallel::Threads;
use crate::settings::{ServingMemory, Sizes, SystemConfig};
use crate::store::{Keeper, KeptFolder, Loaded, Pausable, is_out_of_room};
use crate::system::{ServeConfig, Served, System};

/// Requests that wait for one host engine; beyond it the front is told to try again.
const MAILBOX: usize = 65_536;
/// Transactions that one host engine runs at a time.
const IN_FLIGHT_MAX: usize = 256;
/// Arguments up to here go to the NIC with the transaction, which then executes it there.
const SHIPPED_BYTES_MAX: usize = 4_096;

/// Bytes of values that a transaction which waits to be used again keeps at most: several groups of
/// commands (decision 0187).
const KEPT_BYTES_MAX: usize = 512 << 10;

/// Starts a store of the system whose nodes are `N`: with what was read back, or an empty one.
pub(crate) fn serve<N>(mut config: ServeConfig) -> Result<Served>
where
    N: CommitNode + SystemNode<Config: SystemConfig>,
{
    let stored = config.store.take();
    let records = stored.as_ref().map_or(&[][..], |stored| &stored.records);
    let cluster = Arc::new(Cluster::<N>::load(&config, records)?);
    let Some(mut stored) = stored else {
        let world = LiveCluster::launch(&config.live, cluster.clone())?;
        return Ok(Served { backend: cluster, world, keeper: None });
    };
    let (life, view) = (LogFolder::draw_life()?, config.live.view.clone());
    let begun = stored.begin(&view, life);
    let begun = match begun {
        Err(error) if !is_out_of_room(&error) => return Err(error),
        begun => begun,
    };
    let pausable: Arc<dyn Pausable> = cluster.clone();
    let limit = config.log_bytes_max;
    let folder = KeptFolder { stored, life, view, cluster: pausable, limit };
    let (keeper, logs) = Keeper::new(folder, begun);
    let world = match logs.is_empty() {
        true => LiveCluster::launch_without_room(&config.live, cluster.clone())?,
        false => LiveCluster::launch_on(&config.live, cluster.clone(), logs)?,
    };
    Ok(Served { backend: cluster, world, keeper: Some(keeper) })
}

/// Bits of a position of a walk within a node; the node's number stands above them.
const WALK_BITS: u32 = 48;

/// A request on its way to an engine.
struct Job {
    request: Arc<Request>,
    done: Done,
}

struct Cluster<N> {
    nodes: Vec<Arc<N>>,
    gates: Vec<Arc<Gate>>,
    procedures: Procedures,
    memory: Bytes,
    /// Whether the device of the logs has no room.
    out_of_room: AtomicBool,
}

/// Work for a host engine, and whether it may begin.
struct Gate {
    mailbox: Mailbox<Job>,
    paused: AtomicBool,
    /// Transactions begun and not ended.
    running: AtomicUsize,
}

impl Gate {
    fn new() -> Self {
        let (paused, running) = (AtomicBool::new(false), AtomicUsize::new(0));
        Self { mailbox: Mailbox::new(MAILBOX), paused, running }
    }

    /// Takes the next job and counts it; none while it is paused.
    fn begin(&self) -> Option<Job> {
        // Counted first: a thread that pauses and then finds a count of 0 knows that no job begins.
        self.running.fetch_add(1, Ordering::SeqCst);
        let job = if self.paused.load(Ordering::SeqCst) { None } else { self.mailbox.pop() };
        if job.is_none() {
            self.end();
        }
        job
    }

    fn end(&self) {
        self.running.fetch_sub(1, Ordering::SeqCst);
    }
}

impl HasDoorbell for Gate {
    fn doorbell(&self) -> &Doorbell {
        self.mailbox.doorbell()
    }
}

impl<N> Cluster<N>
where
    N: CommitNode + SystemNode<Config: SystemConfig>,
{
    /// Nodes with these records.
    fn load(config: &ServeConfig, records: &[(Key, Version, Box<[u8]>)]) -> Result<Self> {
        let view = &config.live.view;
        let source = Loaded::new(records, view, config.capacity_per_shard);
        let value_bytes = System::SERVED_VALUE_BYTES as usize;
        let sizes = Sizes { source: &source, value_bytes, nic_memory: None, live: true };
        let memory = ServingMemory {
            limit: config.memory,
            nodes: view.nodes() as u64,
            replicas: view.replicas() as u64,
            records: config.capacity_per_shard,
        };
        let system = N::Config::published(config.system, &sizes).serving(&memory)?;
        let copies = records.len() as u64 * view.replicas() as u64;
        Ok(Self {
            nodes: load_nodes(view, &system, &source, &Threads(copies))?,
            gates: view.node_ids().map(|_| Arc::new(Gate::new())).collect(),
            procedures: config.procedures.clone(),
            memory: config.memory,
            out_of_room: AtomicBool::new(false),
        })
    }
}

impl<N: CommitNode> Pausable for Cluster<N> {
    fn pause(&self, paused: bool) {
        for gate in &self.gates {
            gate.paused.store(paused, Ordering::SeqCst);
            gate.doorbell().ring();
        }
    }

    fn refuse_writes(&self, refused: bool) {
        self.out_of_room.store(refused, Ordering::Relaxed);
    }

    fn is_quiet(&self) -> bool {
        self.gates.iter().all(|gate| gate.running.load(Ordering::SeqCst) == 0)
            && self.nodes.iter().all(|node| node.is_settled())
    }
}

impl<N: CommitNode> Backend for Cluster<N> {
    fn submit(&self, connection: u64, request: Arc<Request>, done: Done) {
        if self.is_out_of_room() && !request.writes.is_empty() {
            let outcome = Outcome::Aborted(Abort::NoResources);
            return done(Response { outcome, output: Vec::new() });
        }
        let gate = &self.gates[(connection % self.gates.len() as u64) as usize];
        if let Err(job) = gate.mailbox.push(Job { request, done }) {
            let outcome = Outcome::Aborted(Abort::NoResources);
            (job.done)(Response { outcome, output: Vec::new() });
        }
    }

    fn walk(&self, from: u64, keys: &mut Vec<Key>) -> Walked {
        let (number, within) = (from >> WALK_BITS, from & ((1 << WALK_BITS) - 1));
        let Some(node) = self.nodes.get(number as usize) else { return Walked::End };
        match node.walk(within, keys) {
            Walked::Until(next) => Walked::Until(number << WALK_BITS | next),
            Walked::End if number as usize + 1 < self.nodes.len() => {
                Walked::Until((number + 1) << WALK_BITS)
            }
            ended => ended,
        }
    }

    fn walk_position(&self, draw: u64) -> u64 {
        let scaled = u128::from(draw) * self.nodes.len() as u128;
        let (number, within) = ((scaled >> 64) as usize, scaled as u64);
        (number as u64) << WALK_BITS | self.nodes[number].walk_position(within)
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

    fn is_out_of_room(&self) -> bool {
        self.out_of_room.load(Ordering::Relaxed)
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
        let gate = self.gates[usize::from(here.node.0)].clone();
        fabric.spawn(async move { pump.serve(gate).await });
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
    async fn serve(self, gate: Arc<Gate>) {
        let doorbell: Arc<dyn HasDoorbell> = gate.clone();
        let running = Rc::new(RefCell::new(0));
        loop {
            let seen = doorbell.doorbell().rings();
            while let Some(job) = gate.begin() {
                while *running.borrow() >= IN_FLIGHT_MAX {
                    self.finished.wait().await;
                }
                *running.borrow_mut() += 1;
                let (pump, gate, running) = (self.clone(), gate.clone(), running.clone());
                self.fabric.spawn(async move {
                    pump.run(job).await;
                    gate.end();
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
        if txn.values().capacity() <= KEPT_BYTES_MAX {
            self.spare.borrow_mut().push(txn);
        }
    }
}
