//! What a world measures around a run.

use std::time::Duration;

use nicol_core::engine::EngineStats;
use nicol_core::ids::NodeId;
use nicol_core::medium::MediumWrite;
use nicol_core::units::Nanos;
use nicol_core::view::View;
use nicol_sim::Spending;
use nicol_workload::driver::Waiting;

use crate::befell::ByKind;
use crate::binding::Resource;
use crate::milestones::Milestones;
use crate::toll::Toll;
use crate::trace::StepCost;

/// Clients that a report of a stuck run names; more are counted.
const WAITING_SHOWN: usize = 5;

/// A world's measurements around a run.
pub(crate) struct Measured {
    pub(crate) stats: EngineStats,
    pub(crate) resources: Vec<Resource>,
    /// Only the simulator knows.
    pub(crate) core_time: Vec<Spending>,
    /// The costs of steps in the measured time, if they were asked for, and from when on they are
    /// missing for want of room.
    pub(crate) steps: (Vec<StepCost>, Option<Nanos>),
    /// The CPU time of the servers' threads, where clients had threads of their own.
    pub(crate) server_cpu: Option<Duration>,
    pub(crate) settled: bool,
    /// The reason if clients did not end: who waits, and since when.
    pub(crate) stuck: Option<String>,
    pub(crate) simulated: Option<Simulated>,
    /// The content of the log devices by node, if one crash has taken down everything.
    pub(crate) media: Option<Vec<(NodeId, Vec<MediumWrite>)>>,
    /// The effects of its faults.
    pub(crate) befell: ByKind,
    /// The toll that they may take.
    pub(crate) toll: Toll,
    /// The changes of its membership, and the last view.
    pub(crate) membership: (Milestones, View),
    /// The time that starting every engine took.
    pub(crate) started_s: f64,
    pub(crate) wall_s: f64,
}

/// Measurements that only the simulator has.
pub(crate) struct Simulated {
    pub(crate) time: Nanos,
    pub(crate) events: u64,
    pub(crate) digest: u64,
}

/// The text for a run that is stuck: why it was given up, and the clients that wait.
pub(crate) fn waits_in_words(why: &str, waiting: &[Waiting]) -> String {
    let who = match waiting.len() {
        0 => return format!("work is stuck: {why}: no client has an operation under way"),
        1 => "1 client waits".to_owned(),
        clients => format!("{clients} clients wait"),
    };
    let shown: Vec<String> = waiting.iter().take(WAITING_SHOWN).map(ToString::to_string).collect();
    let more = match waiting.len().saturating_sub(WAITING_SHOWN) {
        0 => String::new(),
        more => format!("; and {more} more"),
    };
    format!("work is stuck: {why}: {who}: {}{more}", shown.join("; "))
}
