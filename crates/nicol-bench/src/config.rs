//! What a benchmark runs: the flags of `nicol bench`, checked where they are used.

use std::sync::Arc;

use nicol_core::faults::{FaultFamilies, FaultPlan, Spared};
use nicol_core::trace::Sink;
use nicol_core::units::Nanos;
use nicol_core::view::ViewError;
use nicol_rt::LogDevice;
use nicol_workload::driver::{Load, RETRY, Retry, RunPlan};

use crate::last_load::LastLoad;
use crate::workloads::WorkloadSpec;

/// The live world's name, for `--on`.
pub const THREADS: &str = "threads";

/// Clients per node where neither the user nor the workload says anything.
const CLIENTS: usize = 64;

/// The length of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// A span of the world's time.
    Time(Nanos),
    /// A number of transactions over all clients.
    Transactions(u64),
}

/// A run: system, workload, world, load and faults. Where a field is an option, `None` takes the
/// world's default.
#[derive(Clone, Debug)]
pub struct BenchConfig {
    pub workload: WorkloadSpec,
    pub system: String,
    /// Settings of the system, as key=value.
    pub settings: Vec<String>,
    /// `threads`, or the name or file of a profile, or a profile for each role or node, such as
    /// `server=liquidio3,client=connectx5`.
    pub on: String,
    /// Nodes that hold shards.
    pub nodes: usize,
    /// Nodes for clients alone; 0: clients run on the nodes that hold shards.
    pub client_nodes: usize,
    /// Copies of each shard.
    pub replicas: usize,
    /// Host engines per node.
    pub host_engines: Option<usize>,
    /// NIC engines per node.
    pub nic_engines: Option<usize>,
    /// Clients per node that has any.
    pub clients: Option<usize>,
    pub length: Option<Length>,
    /// The part before it.
    pub warmup: Option<Nanos>,
    /// Open loop at this rate.
    pub rate: Option<u64>,
    /// Whether clients hold back while most attempts abort. `None`: in live runs that are measured.
    /// Simulated clients are those of the papers, and runs under faults want conflicts.
    pub adaptive_window: Option<bool>,
    pub seed: u64,
    /// Families of faults that are drawn from the seed.
    pub faults: FaultFamilies,
    /// Faults that are given instead, as the replay of a run.
    pub fault_plan: Option<FaultPlan>,
    /// Threads of the live world.
    pub threads: Option<usize>,
    /// Time for which the clients of a live run without faults may be silent; `None`: 30 s.
    pub silence: Option<Nanos>,
    /// The time of a turn of the live world's only thread, if its turns tell the time.
    pub turn: Option<Nanos>,
    /// Whether a history is recorded and judged: in the live world that of a second run.
    /// How long a lease on threads is; the world's default without one.
    pub lease: Option<Nanos>,
    pub recorded_run: bool,
    pub log_device: LogDevice,
    /// Whether simulated log devices call a write durable without syncing it. For negative tests
    /// only.
    #[doc(hidden)]
    pub syncs_nothing: bool,
    /// The sink that records the measured run, if any.
    pub trace: Option<Arc<Sink>>,
    /// Tell what each step of the protocol costs, in a simulated world. Not beside a trace.
    pub steps: bool,
    /// What an earlier run has loaded and later ones may take over.
    pub last_load: Option<Arc<LastLoad>>,
}

/// A view that there cannot be, under the field that asked for it.
pub fn refused_view(error: ViewError) -> anyhow::Error {
    let field = match error {
        ViewError::Nodes(_) => "`nodes`",
        ViewError::Replicas { .. } => "`replicas`",
        ViewError::Engines(_) => "`host_engines`, `nic_engines`",
        ViewError::Placement { .. } => "placement",
    };
    anyhow::Error::new(error).context(field)
}

impl BenchConfig {
    /// `system` under `workload`, on `on`, from `seed`: three nodes, three copies, no faults, and
    /// the world's defaults otherwise.
    pub fn new(system: &str, workload: WorkloadSpec, on: &str, seed: u64) -> Self {
        Self {
            workload,
            system: system.to_owned(),
            settings: Vec::new(),
            on: on.to_owned(),
            nodes: 3,
            client_nodes: 0,
            replicas: 3,
            host_engines: None,
            nic_engines: None,
            clients: None,
            length: None,
            warmup: None,
            rate: None,
            adaptive_window: None,
            seed,
            faults: FaultFamilies::NONE,
            fault_plan: None,
            threads: None,
            silence: None,
            turn: None,
            lease: None,
            recorded_run: true,
            log_device: LogDevice::Memory,
            syncs_nothing: false,
            trace: None,
            steps: false,
            last_load: None,
        }
    }

    /// The workload, with the number of the run's transactions if that is known: up to one more for
    /// each client than its share.
    pub(crate) fn sized_workload(&self) -> WorkloadSpec {
        let mut spec = self.workload.clone();
        if let Some(Length::Transactions(count)) = self.length {
            let clients = self.nodes_with_clients() * self.clients_per_node();
            spec.transactions.get_or_insert(count + clients as u64);
        }
        spec
    }

    /// Clients per node, by the workload where the user says nothing.
    pub(crate) fn clients_per_node(&self) -> usize {
        let most = self.workload.terminals_per_node().unwrap_or(CLIENTS);
        self.clients.unwrap_or(CLIENTS.min(most))
    }

    pub fn nodes_with_clients(&self) -> usize {
        if self.client_nodes > 0 { self.client_nodes } else { self.nodes }
    }

    /// The faults of the run. Those that are drawn leave a replica of every shard, unless they take
    /// everything down, or nodes come back with their data, as `returns` says.
    pub fn drawn_faults(&self, returns: bool) -> FaultPlan {
        let drawn = || {
            let drawn = self.faults.draw(self.seed);
            if returns {
                return drawn;
            }
            let engines = self.host_engines.zip(self.nic_engines);
            drawn.sparing(&Spared {
                nodes: self.nodes + self.client_nodes,
                holding: self.nodes,
                backups: self.replicas.saturating_sub(1),
                engines: engines.map(|(host, nic)| host + nic),
            })
        };
        self.fault_plan.clone().unwrap_or_else(drawn)
    }

    /// How long a lease on threads is.
    pub(crate) fn live_lease(&self) -> Nanos {
        self.lease.unwrap_or(nicol_rt::LEASE)
    }

    /// Whether it runs on this machine's threads.
    pub fn is_live(&self) -> bool {
        self.on == THREADS
    }

    /// Whether any fault is injected.
    pub fn is_faulty(&self) -> bool {
        self.fault_plan.is_some() || self.faults.any()
    }

    /// The text for a run whose history is not judged.
    pub(crate) fn unjudged(&self) -> Option<String> {
        let unjudged = "no history was recorded: isolation was not judged";
        (!self.recorded_run).then(|| unjudged.to_owned())
    }

    /// The text for the partitions of a given plan that part nobody.
    pub(crate) fn vain_partitions(&self) -> impl Iterator<Item = String> {
        let nodes = self.nodes + self.client_nodes;
        let given = self.fault_plan.iter().flat_map(|plan| &plan.partitions);
        given.filter(move |cut| cut.parts_nobody(nodes)).map(move |cut| {
            format!(
                "a partition from_ns = {} parts nobody: its side names none of the {nodes} nodes, or all",
                cut.from.0
            )
        })
    }

    fn has_adaptive_window(&self) -> bool {
        self.adaptive_window.unwrap_or(self.defaults_to_window())
    }

    pub fn defaults_to_window(&self) -> bool {
        self.is_live() && !self.is_faulty()
    }

    pub(crate) fn load(&self) -> Load {
        self.rate.map_or(Load::Closed, |per_second| Load::Open { per_second })
    }

    /// The plan of a run of `length` for so many clients.
    pub(crate) fn plan(
        &self,
        length: Length,
        warmup: Nanos,
        clients_per_node: usize,
        record: bool,
    ) -> RunPlan {
        let clients = (clients_per_node * self.nodes_with_clients()) as u64;
        let (warmup, stop_at, transactions) = match length {
            Length::Time(span) => (warmup, warmup + span, None),
            Length::Transactions(count) => (Nanos::ZERO, Nanos::MAX, Some(count.div_ceil(clients))),
        };
        RunPlan {
            seed: self.seed,
            clients: clients as u32,
            begin: Nanos::ZERO,
            warmup_until: warmup,
            stop_at,
            operations_per_client: transactions,
            load: self.load(),
            retry: Retry { adaptive_window: self.has_adaptive_window(), ..RETRY },
            record,
            history_max: usize::MAX,
        }
    }
}
