//! The command line: a contract, since scripts depend on it.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use nicol_bench::bench::THREADS;
use nicol_bench::systems;
use nicol_core::faults::{FaultFamilies, UnknownFamily};
use nicol_core::names::did_you_mean;
use nicol_rt::LogDevice;

mod decisions;
mod foreign;
mod log;
mod museum;
mod pages;
mod plan;
mod serve;
mod workload;

pub use decisions::DecisionsArgs;
pub use foreign::parse;
pub use log::{LogArgs, LogFormat, LogLevel};
pub use museum::MuseumArgs;
pub use pages::explain;
pub use plan::{PlanArgs, PlanFormat};
pub use serve::{AuthClients, EVICTION_SAMPLES, LOG_BYTES, MAX_CLIENTS, ServeArgs, TRANSACTION_MS};
pub use workload::{
    ChoppingArg, DeliveryArg, DistributionArg, FeaturesArg, IndicesArg, KeyFormArg, MixArg,
    ShipArg, StockArg, SuppliersArg, TerminalsArg, WorkloadArgs,
};

/// A distributed, replicated, transactional in-memory store, and the laboratory of its field.
#[derive(Debug, Parser)]
#[command(name = "nicol", version, max_term_width = 100, propagate_version = true)]
#[command(disable_help_subcommand = true, mut_subcommands = pages::fit)]
#[command(after_help = "Exit codes:\n  \
    0    done, and every check held; `serve`: ended by a signal\n  \
    1    a check failed\n  \
    2    bad usage; the message names the input and the remedy\n  \
    3    the environment: a file, a port, a thread\n  \
    4    undecided: no violation was found, and no proof that there is none (`check`)\n  \
    130  interrupted (SIGINT) before all was done; the runs that `sweep` finished held\n  \
    143  asked to end (SIGTERM) before all was done; the runs that `sweep` finished held\n\nFirst steps:\n  \
    nicol bench smallbank\n  nicol serve\n  nicol bench smallbank --on liquidio3 --nodes 6")]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve data to Redis clients from an embedded replicated cluster.
    Serve(ServeArgs),
    /// Run a workload on a system, live or simulated, and judge the result.
    Bench(Box<BenchArgs>),
    /// Run a workload under injected faults for many seeds, and judge each run.
    Sweep(SweepArgs),
    /// Test the checkers: plant every known fault in every system, and show the first run in which
    /// a checker finds it. A fault that no run shows is a failed check.
    Museum(MuseumArgs),
    /// Judge a recorded history by the promise that it names.
    Check(CheckArgs),
    /// List the messages of a recorded trace, for example those about a key.
    Trace(TraceArgs),
    /// Reproduce the figures and tables of the papers.
    Lab(LabArgs),
    /// Compare ways to use the paths of an off-path SmartNIC, and combine them.
    Plan(PlanArgs),
    /// Show the decisions of a run that chooses between two ways, and check them by replay.
    Decisions(DecisionsArgs),
    /// List the systems with their guarantees and worlds.
    Systems(SystemsArgs),
    /// List, show or check the hardware profiles of the simulated world.
    Profiles(ProfilesArgs),
    /// Report this machine's resources and their effect on a run.
    Doctor(FormatArgs),
    /// Explain a command, or one group of its flags, in full.
    Help {
        /// The command, and the group: as in `bench load`.
        #[arg(value_name = "COMMAND")]
        words: Vec<String>,
    },
    /// Print a completion script for a shell.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
}

/// How results are printed on standard output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people.
    #[default]
    Table,
    /// One JSON object.
    Json,
    /// Comma-separated values with a header line.
    Csv,
}

/// A command that only prints.
#[derive(Debug, Args)]
pub struct FormatArgs {
    /// How to print.
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
}

/// Nodes of a cluster unless a flag says otherwise.
const NODES: usize = 3;

/// Which system, on what.
#[derive(Clone, Debug, Args)]
pub struct SystemArgs {
    /// The system under test; see `nicol systems`.
    #[arg(long, default_value = "xenic", env = "NICOL_SYSTEM")]
    pub system: String,
    /// Nodes of the cluster [default: 3, or 1 of a system that runs on one server].
    #[arg(long, value_name = "N", env = "NICOL_NODES")]
    pub nodes: Option<usize>,
    /// Copies of each shard, the primary included (f + 1) [default: 3, or one per node if fewer].
    #[arg(long, value_name = "N", env = "NICOL_REPLICAS")]
    pub replicas: Option<usize>,
    /// A setting of the system, as key=value; `--set help` lists them. May be repeated.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub settings: Vec<String>,
}

impl SystemArgs {
    /// Nodes of the cluster.
    pub fn nodes(&self) -> usize {
        let one_server = systems::find(&self.system).is_ok_and(|system| system.one_server);
        self.nodes.unwrap_or(if one_server { 1 } else { NODES })
    }

    /// Copies of each shard.
    pub fn replicas(&self) -> usize {
        replicas(self.replicas, self.nodes())
    }
}

/// Copies of each shard of so many nodes: those `asked` for, else three, as far as there are nodes.
pub fn replicas(asked: Option<usize>, nodes: usize) -> usize {
    asked.unwrap_or(nodes.min(3))
}

/// A list of families of faults; a slip in a name is asked about.
fn families(text: &str) -> Result<FaultFamilies, String> {
    text.parse().map_err(|error: UnknownFamily| {
        format!("{error}{}", did_you_mean(&error.name, FaultFamilies::NAMES))
    })
}

/// `nicol bench`.
#[derive(Debug, Args)]
#[command(allow_negative_numbers = true)]
#[command(after_help = "Examples:\n  nicol bench smallbank\n  \
    nicol bench smallbank --on liquidio3 --nodes 6 --replicas 3 --seed 7 --format json\n  \
    nicol bench ycsb-t --zipf 99 --rate 200000 --history run.jsonl\n  nicol check run.jsonl")]
pub struct BenchArgs {
    /// What to run.
    #[command(flatten)]
    pub workload: WorkloadArgs,
    /// On which system.
    #[command(flatten)]
    pub system: SystemArgs,
    /// `threads` (this machine), or a hardware profile (simulated). Roles or nodes may have
    /// different ones, as in `server=liquidio3,client=connectx5` or `0-1=liquidio3,2=connectx5`.
    #[arg(long, default_value = THREADS, value_name = "threads|PROFILE", env = "NICOL_ON")]
    pub on: String,
    /// Nodes for clients only, besides those that hold shards (0: clients run on the latter).
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub client_nodes: usize,
    /// Use the scale of Xenic's paper unless a flag overrides it: 2,400,000 accounts, 1,000,000
    /// records or 72 warehouses per node. The paper has 6 nodes and 3 replicas. The records must
    /// fit into this machine's memory.
    #[arg(long)]
    pub full_size: bool,
    /// Clients per node with clients, each with one transaction at a time [default: 64; tpcc,
    /// tpcc-no: 10 per warehouse, at most 64].
    #[arg(long, value_name = "N")]
    pub clients: Option<usize>,
    /// Seconds to measure (wall time live; simulated seconds in the simulator) [default: 10 live,
    /// 0.01 simulated].
    #[arg(long, conflicts_with = "transactions", value_name = "S")]
    pub seconds: Option<f64>,
    /// Transactions to run in all, instead of a time: each client runs its part, rounded up.
    #[arg(long, value_name = "N")]
    pub transactions: Option<u64>,
    /// Seconds to run before measuring [default: a tenth of the measured time].
    #[arg(long, value_name = "S")]
    pub warmup: Option<f64>,
    /// Open loop: transactions per second over the whole cluster. Latency is measured from the
    /// intended start.
    #[arg(long, value_name = "PER_SECOND")]
    pub rate: Option<u64>,
    /// Let fewer clients run transactions while most attempts abort. The others wait, which their
    /// latency includes [default: true live, false simulated and under faults].
    #[arg(long, value_name = "true|false")]
    pub adaptive_window: Option<bool>,
    /// The seed of all randomness.
    #[arg(long, default_value_t = 1, env = "NICOL_SEED")]
    pub seed: u64,
    /// Faults to inject: none or messages,crashes,stalls,partitions,pauses,slow. A list with commas
    /// may have any of these; the seed draws what happens when.
    #[arg(long, default_value = "none", value_name = "FAMILIES", value_parser = families)]
    pub faults: FaultFamilies,
    /// Inject the faults of a plan in FILE instead, as a failed `nicol sweep` writes it.
    #[arg(long, value_name = "FILE", conflicts_with = "faults")]
    pub fault_plan: Option<PathBuf>,
    /// Write the history that the checkers judged to FILE, as JSON lines.
    #[arg(long, value_name = "FILE")]
    pub history: Option<PathBuf>,
    /// Write the run-time decisions of all nodes to FILE, for `nicol decisions`.
    #[arg(long, value_name = "FILE")]
    pub decisions: Option<PathBuf>,
    /// Write a trace of the measured run to FILE, for ui.perfetto.dev and `nicol trace`.
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// Events that a trace has at most; later ones are left out.
    #[arg(long, value_name = "N", default_value_t = 500_000, requires = "trace")]
    pub trace_limit: u64,
    /// Trace only from this time of the run on, in seconds.
    #[arg(long, value_name = "S", requires = "trace")]
    pub trace_from: Option<f64>,
    /// Trace only until this time of the run, in seconds.
    #[arg(long, value_name = "S", requires = "trace")]
    pub trace_until: Option<f64>,
    /// Tell what each step of the protocol costs in the measured time of a simulated run: core
    /// time, messages to other nodes, DMA and their bytes, by committed transaction. Waiting costs
    /// nothing.
    #[arg(long, conflicts_with = "trace")]
    pub steps: bool,
    /// Engine threads of the live world [default: one per engine if the cores suffice, else one per
    /// node].
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,
    /// Replace the machine's clock (with `--threads 1`): time advances by N us at each turn of the
    /// thread and skips every wait. The run then repeats step by step, for counting its
    /// instructions; its reported times mean nothing.
    #[arg(long, value_name = "N", requires = "threads")]
    pub turn_us: Option<u64>,
    /// Seconds without progress after which a run on threads is stuck. It then ends, and names the
    /// clients that wait. Any operation or attempt that begins or ends is progress. Not with
    /// --faults [default: 30].
    #[arg(long, value_name = "S")]
    pub stuck_after: Option<f64>,
    /// Milliseconds that a lease of the view service lasts on threads, with faults. A node that
    /// stands still for longer is taken for dead: where threads share cores, 25 may be too short
    /// [default: 500].
    #[arg(long, value_name = "N")]
    pub lease_ms: Option<u64>,
    /// Record and judge no history. A run on threads then has no second run that is recorded. Not
    /// with --faults.
    #[arg(long)]
    pub no_recorded_run: bool,
    /// What makes writes durable on threads: memory or file:DIR. memory counts as battery-backed,
    /// as in the papers. file:DIR is a log per node, synced before a write is acknowledged; each
    /// run creates its own folder in DIR, which is neither deleted nor read back.
    #[arg(long, default_value = "memory", value_name = "memory|file:DIR")]
    pub log_device: LogDevice,
    /// Host engines per node [default: 1 live; the profile's number, simulated].
    #[arg(long, value_name = "N")]
    pub host_engines: Option<usize>,
    /// NIC engines per node [default: 1 live; the profile's number, simulated].
    #[arg(long, value_name = "N")]
    pub nic_engines: Option<usize>,
    /// What is logged.
    #[command(flatten)]
    pub log: LogArgs,
    /// How to print.
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
}

/// `nicol sweep`.
#[derive(Debug, Args)]
#[command(allow_negative_numbers = true)]
#[command(
    after_help = "A failing seed prints the command that replays it, and the commands that list all its messages. As a\n\
    table (--format) it also prints the last messages about the key in question.\n\nExample:\n  \
    nicol sweep smallbank --on liquidio3,connectx5 --seeds 0..1000\n\nA seed draws the transactions, \
    the message faults and, one time in eight, a log of a few records and\nan index of a few \
    objects; `--set log_bytes=N` or `index_objects=N` overrides that.\n\nThe workload and --system may be \
    lists with commas, or `all`."
)]
pub struct SweepArgs {
    /// What to run.
    #[command(flatten)]
    pub workload: WorkloadArgs,
    /// On which system.
    #[command(flatten)]
    pub system: SystemArgs,
    /// Worlds, separated by commas: profiles, or `threads`.
    #[arg(long, default_value = "liquidio3,connectx5", value_name = "WORLDS")]
    #[arg(value_delimiter = ',')]
    pub on: Vec<String>,
    /// Nodes for clients only, besides those that hold shards (0: clients run on the latter).
    /// `--system all` leaves out systems whose clients cannot run on other nodes.
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub client_nodes: usize,
    /// Host engines per node [default: 2 simulated, 1 live; for a system of one server 4, or 2
    /// live].
    #[arg(long, value_name = "N")]
    pub host_engines: Option<usize>,
    /// NIC engines per node [default: 2 simulated, 1 live; for a system of one server 1].
    #[arg(long, value_name = "N")]
    pub nic_engines: Option<usize>,
    /// Seeds, as FROM..TO (TO is not included).
    #[arg(long, default_value = "0..100", value_name = "FROM..TO")]
    pub seeds: String,
    /// Transactions per seed.
    #[arg(long, default_value_t = 2_000, value_name = "N")]
    pub transactions: u64,
    /// Seeds to run in parallel [default: the machine's cores].
    #[arg(long, value_name = "N")]
    pub jobs: Option<usize>,
    /// Families of faults that a seed draws from: a list with commas of messages, crashes,
    /// stalls, partitions, pauses and slow.
    #[arg(long, default_value = "messages", value_name = "FAMILIES", value_parser = families)]
    pub faults: FaultFamilies,
    /// Write to DIR the smallest fault plan that still fails (simulated). The replay command names
    /// it, and the fewest operations that still fail.
    #[arg(long, value_name = "DIR")]
    pub shrink: Option<PathBuf>,
    /// Keep the histories of failed runs in DIR, for `nicol check`. A run on threads cannot be
    /// replayed.
    #[arg(long, value_name = "DIR")]
    pub histories: Option<PathBuf>,
    /// Fail unless each abort reason and outcome was seen. Once in the whole sweep is enough.
    #[arg(long)]
    pub require_coverage: bool,
    /// How to print.
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
}

/// `nicol lab`.
#[derive(Debug, Args)]
pub struct LabArgs {
    /// What to do.
    #[command(subcommand)]
    pub action: LabAction,
}

/// What `nicol lab` can do.
#[derive(Debug, Subcommand)]
pub enum LabAction {
    /// List the experiments with their columns.
    List(FormatArgs),
    /// Run experiments and judge every point.
    Run(LabRunArgs),
    /// Describe a figure: what the paper measured, load and scale here, assumptions, readings.
    Show {
        /// The experiment; see `nicol lab list`.
        id: String,
        /// Say also what limits each row of the results that `lab run --out DIR` wrote.
        #[arg(long, value_name = "DIR")]
        results: Option<PathBuf>,
        #[command(flatten)]
        format: FormatArgs,
    },
    /// Write the results in DIR to one self-contained HTML page.
    Report {
        /// The folder that `nicol lab run --out DIR` wrote to.
        dir: PathBuf,
        /// The page [default: report.html in DIR].
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
    },
}

/// `nicol lab run`.
#[derive(Debug, Args)]
#[command(allow_negative_numbers = true)]
#[command(after_help = "Examples:\n  nicol lab run xenic-fig2\n  \
    nicol lab run xenic-fig8d --quick --out results --format csv\n  \
    nicol lab run xenic-fig8a xenic-table3 --out results\n  \
    nicol lab run --all --quick --golden crates/nicol-lab/golden")]
pub struct LabRunArgs {
    /// The experiment; see `nicol lab list`. Several experiments print a summary, and share the
    /// points that they have in common.
    #[arg(required_unless_present = "all", value_name = "ID")]
    pub ids: Vec<String>,
    /// Run every experiment, and print a summary.
    #[arg(long, conflicts_with = "ids")]
    pub all: bool,
    /// Use less data and shorter runs: seconds on four cores instead of minutes.
    #[arg(long)]
    pub quick: bool,
    /// Write ID.json, ID.csv and the plot ID.svg to DIR. After an interruption the same command
    /// resumes from the points in DIR.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// The seed of all randomness.
    #[arg(long, default_value_t = 1, env = "NICOL_SEED")]
    pub seed: u64,
    /// The SmartNIC's profile, a name or a file [default: liquidio3].
    #[arg(long, value_name = "NAME")]
    pub profile: Option<String>,
    /// Run only these of the experiment's systems, separated by commas.
    #[arg(long, value_name = "SYSTEMS", value_delimiter = ',')]
    pub systems: Option<Vec<String>>,
    /// Points to run in parallel; results do not depend on it [default: the machine's cores].
    #[arg(long, value_name = "N")]
    pub jobs: Option<usize>,
    /// Compare each result with the golden table FAMILY/ID.json in DIR, byte by byte. A
    /// difference is a failed check.
    #[arg(long, value_name = "DIR")]
    pub golden: Option<PathBuf>,
    /// Write the golden tables instead of comparing.
    #[arg(long, requires = "golden")]
    pub bless: bool,
    /// How to print.
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
}

/// `nicol check`.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// The history, as `nicol bench --history` writes it; `-` is standard input.
    pub history: PathBuf,
    /// Configurations that the search of a key without versions visits at most, 200 bytes each.
    #[arg(long, value_name = "N", default_value_t = nicol_check::linearizability::STATES_MAX)]
    pub states: usize,
    /// Seconds after which a search that has no result is undecided.
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u64).range(..=1_000_000))]
    pub seconds: u64,
    /// How to print.
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
}

/// `nicol trace`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  nicol bench smallbank --on liquidio3 --transactions 200 \
    --trace run.trace.json\n  nicol trace run.trace.json --key 0x100000000000011\n\nThe file also opens in \
    https://ui.perfetto.dev.")]
pub struct TraceArgs {
    /// The trace, as `nicol bench --trace` writes it.
    pub trace: PathBuf,
    /// List only messages about KEY (a number, also in hexadecimal with 0x, as violations name it)
    /// and the replies to those.
    #[arg(long, value_name = "KEY", value_parser = key)]
    pub key: Option<u64>,
    /// How to print.
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
}

/// A key as violations name it.
fn key(text: &str) -> Result<u64, String> {
    let number = text.strip_prefix("Key(").and_then(|rest| rest.strip_suffix(')')).unwrap_or(text);
    let parsed = match number.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => number.parse(),
    };
    parsed.map_err(|_| "write a number, as in 17 or 0x11".to_owned())
}

/// `nicol systems`.
#[derive(Debug, Args)]
pub struct SystemsArgs {
    /// What to do; without it, `list`.
    #[command(subcommand)]
    pub action: Option<SystemsAction>,
    /// How to print.
    #[arg(long, value_enum, default_value_t, global = true)]
    pub format: Format,
}

/// What `nicol systems` can do.
#[derive(Debug, Subcommand)]
pub enum SystemsAction {
    /// List the systems.
    List,
    /// Tell what a system promises and survives, where it runs, and which workloads it takes.
    Show {
        /// The system.
        #[arg(value_name = "NAME")]
        name: String,
    },
}

/// `nicol profiles`.
#[derive(Debug, Args)]
pub struct ProfilesArgs {
    /// What to do.
    #[command(subcommand)]
    pub action: ProfilesAction,
}

/// What `nicol profiles` can do.
#[derive(Debug, Subcommand)]
pub enum ProfilesAction {
    /// List the profiles.
    List(FormatArgs),
    /// Print a profile with the source of every value.
    Show {
        /// A profile's name, or a file.
        name: String,
        /// How to print: the file itself, or its values one by one, each with a name that ends in
        /// its unit.
        #[arg(long, value_enum, default_value_t)]
        format: Format,
    },
    /// Rerun the component measurements on a profile and compare them with the published ones. A
    /// line that differs by more than 10 %, unless other published values contradict it, is a
    /// failed check.
    Check {
        /// A profile's name or a file; all built-in ones without it.
        name: Option<String>,
        /// How to print.
        #[arg(long, value_enum, default_value_t)]
        format: Format,
    },
}
