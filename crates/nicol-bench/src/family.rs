//! What the harness asks of a family of systems. It knows no family itself: each brings its
//! clients' operations, what they record, its promise and its checker.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use anyhow::Result;
use nicol_core::fabric::Fabric;
use nicol_core::history::{History, Promise};
use nicol_core::ids::NodeId;
use nicol_core::medium::MediumWrite;
use nicol_core::records::{RecordSource, Records};
use nicol_core::system::{ReadBack, SystemNode};
use nicol_core::units::{Bytes, Nanos};
use nicol_core::view::View;
use nicol_workload::driver::{RunControl, RunResult};
use serde_json::{Map, Value};

use crate::config::BenchConfig;
use crate::report::Promised;
use crate::settings::EngineSettings;

/// A family of systems, on one type of node.
pub(crate) trait Family: Sized + 'static {
    type Node: SystemNode;
    type Workload: Send + Sync + 'static;

    /// Why an attempt of a client may fail: names, in the order of the driver's counts,
    /// [`ABORTS_MAX`](nicol_workload::driver::ABORTS_MAX) of them at most.
    const ABORTS: &'static [&'static str];

    /// Builds the workload and the system's configuration, for NICs with `nic_memory` where that is
    /// known.
    ///
    /// Errors: a flag or a setting that does not fit, by name.
    fn build(config: &BenchConfig, nic_memory: Option<Bytes>) -> Result<Built<Self>>;

    /// Starts one engine of `node`, and there the clients of these numbers: none but on host
    /// engines.
    fn start<F: Fabric>(
        node: &Arc<Self::Node>,
        fabric: &F,
        workload: &Arc<Self::Workload>,
        run: &Arc<RunControl>,
        clients: Range<u32>,
    );

    /// Violations in the final state, whichever operations took effect: one line per violated
    /// invariant of the workload.
    fn invariants(
        workload: &Self::Workload,
        state: &mut dyn Records,
        result: &RunResult,
    ) -> Vec<String>;

    /// Violations in the records that crashes have left, whichever operations took effect.
    fn invariants_of_survivors(
        _workload: &Self::Workload,
        _state: &mut dyn Records,
    ) -> Vec<String> {
        Vec::new()
    }

    /// Violations in the records that were read back, whichever operations took effect.
    fn invariants_of_read_back(
        _workload: &Self::Workload,
        _state: &mut dyn Records,
    ) -> Vec<String> {
        Vec::new()
    }

    /// The verdict of the checker of the history's promise.
    fn judge(history: &History) -> Judged;

    /// The family's fields of a report, from what the nodes have counted.
    fn report(_counters: &Counters) -> Addition {
        Addition::default()
    }
}

/// The family's part in judging a run, with the family's types behind it.
pub(crate) trait Judge: Send + Sync {
    /// See [`Family::ABORTS`].
    fn aborts(&self) -> &'static [&'static str];
    /// See [`Family::invariants`].
    fn invariants(&self, state: &mut dyn Records, result: &RunResult) -> Vec<String>;
    /// See [`Family::invariants_of_survivors`].
    fn invariants_of_survivors(&self, state: &mut dyn Records) -> Vec<String>;
    /// See [`Family::invariants_of_read_back`].
    fn invariants_of_read_back(&self, state: &mut dyn Records) -> Vec<String>;
    /// See [`Family::judge`].
    fn judge(&self, history: &History) -> Judged;
    /// See [`Family::report`].
    fn report(&self, counters: &Counters) -> Addition;
    /// See [`SystemNode::read_back`].
    fn read_back(
        &self,
        view: &View,
        source: &dyn RecordSource,
        media: &[(NodeId, Vec<MediumWrite>)],
    ) -> Option<Result<ReadBack, String>>;
}

/// That of a family.
pub(crate) struct JudgeOf<Y: Family> {
    pub(crate) workload: Arc<Y::Workload>,
    pub(crate) system: <Y::Node as SystemNode>::Config,
}

impl<Y: Family> Judge for JudgeOf<Y> {
    fn aborts(&self) -> &'static [&'static str] {
        Y::ABORTS
    }

    fn invariants(&self, state: &mut dyn Records, result: &RunResult) -> Vec<String> {
        Y::invariants(&self.workload, state, result)
    }

    fn invariants_of_survivors(&self, state: &mut dyn Records) -> Vec<String> {
        Y::invariants_of_survivors(&self.workload, state)
    }

    fn invariants_of_read_back(&self, state: &mut dyn Records) -> Vec<String> {
        Y::invariants_of_read_back(&self.workload, state)
    }

    fn judge(&self, history: &History) -> Judged {
        Y::judge(history)
    }

    fn report(&self, counters: &Counters) -> Addition {
        Y::report(counters)
    }

    fn read_back(
        &self,
        view: &View,
        source: &dyn RecordSource,
        media: &[(NodeId, Vec<MediumWrite>)],
    ) -> Option<Result<ReadBack, String>> {
        Y::Node::read_back(&self.system, view, source, media)
    }
}

/// A checker's verdict on a history.
#[derive(Debug, Default)]
pub(crate) struct Judged {
    /// Violations, or why that cannot be decided.
    pub(crate) wrong: Vec<String>,
    /// Acknowledged writes that came after what a crash of everything left, permitted or not, as
    /// far as versions tell. `None` unless the promise is durability.
    pub(crate) acknowledged_lost: Option<u64>,
}

impl Judged {
    /// The findings on a promise that says nothing of crashes of everything.
    pub(crate) fn of(wrong: Vec<String>) -> Self {
        Self { wrong, acknowledged_lost: None }
    }
}

/// The counts of the nodes of a cluster together, by group and name.
pub(crate) type Counters = BTreeMap<&'static str, BTreeMap<&'static str, u64>>;

/// The fields that a family adds to a report.
#[derive(Clone, Debug, Default)]
pub(crate) struct Addition {
    /// Fields of the JSON object.
    pub(crate) fields: Map<String, Value>,
    /// Lines of the table: titles and texts.
    pub(crate) lines: Vec<(&'static str, String)>,
    /// Notes that a reader needs before the numbers.
    pub(crate) warnings: Vec<String>,
}

/// A configuration with its parts built.
pub(crate) struct Built<Y: Family> {
    pub(crate) workload: Arc<Y::Workload>,
    pub(crate) system: <Y::Node as SystemNode>::Config,
    /// The facts about both that the harness needs.
    pub(crate) outline: Outline,
}

/// The facts about a workload and a system, of whatever family, that the harness needs.
pub(crate) struct Outline {
    pub name: &'static str,
    /// The names of its operations.
    pub(crate) kinds: &'static [&'static str],
    /// The promise of the system as it is set, and what that is of.
    pub(crate) promised: Promised,
    /// Its promise besides as long as no host crashes, whatever NICs do.
    pub(crate) while_hosts_live: Option<Promise>,
    pub(crate) source: Arc<dyn RecordSource>,
    /// Bytes of a value that stand in a table slot.
    pub(crate) value_bytes: usize,
    /// Settings of the system's engines.
    pub(crate) engine: EngineSettings,
    /// See [`SystemConfig::longest_wait`](crate::settings::SystemConfig::longest_wait).
    pub(crate) longest_wait: Nanos,
    /// Warnings that a reader needs before the numbers.
    pub(crate) warnings: Vec<String>,
}
