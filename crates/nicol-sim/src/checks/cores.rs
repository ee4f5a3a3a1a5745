//! What a step of computation takes on a NIC core and on a host core: C1.20, C1.21, C1.23, C1.24.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use nicol_core::engine::Start;
use nicol_core::fabric::{Fabric, Work};
use nicol_core::ids::{EngineId, NodeId, Side};
use nicol_core::units::Nanos;
use nicol_core::view::ViewError;

use super::{CheckLine, cluster};
use crate::{Profile, SimCluster};

/// Steps that are timed together, so that rounding to nanoseconds does not show.
const STEPS: u64 = 1_000;
/// Longer than they take on any core.
const SPAN: Nanos = Nanos::from_millis(10);
/// A copy like those of DPDK's memcpy test: larger than what one message carries.
const COPIED: Work = Work::Copy { bytes: 4_096 };

/// Steps of one kind on one core.
struct Steps {
    side: Side,
    work: Work,
    took_ns: Arc<AtomicU64>,
}

impl Start for Steps {
    fn start<F: Fabric>(&self, fabric: &F) {
        if fabric.here() != (EngineId { node: NodeId(0), side: self.side, core: 0 }) {
            return;
        }
        let (fabric, work, took) = (fabric.clone(), self.work, self.took_ns.clone());
        fabric.clone().spawn(async move {
            let began = fabric.now();
            (0..STEPS).for_each(|_| fabric.work(work));
            took.store(fabric.now().since(began).0, Ordering::Relaxed);
        });
    }
}

/// The time of `work` on a core of `side`, in nanoseconds.
fn step(profile: &Arc<Profile>, side: Side, work: Work) -> Result<f64, ViewError> {
    let steps = Arc::new(Steps { side, work, took_ns: Arc::default() });
    let cluster = SimCluster::new(cluster(profile, 1, 1, 1)?);
    cluster.start(steps.clone());
    cluster.run_until(&mut |_| false, SPAN);
    Ok(steps.took_ns.load(Ordering::Relaxed) as f64 / STEPS as f64)
}

/// Table 1 and the ratio by which threads are normalized. [Xenic21 3.6, 5.6]
pub(super) fn steps(profile: &Arc<Profile>) -> Result<Vec<CheckLine>, ViewError> {
    const NOTE: &str = "all threads busy, as under load; of one busy thread the published ratio is 2.0 \
                        (C1.22), which the model does not have";
    let ratio = |work| -> Result<f64, ViewError> {
        Ok(step(profile, Side::Nic, work)? / step(profile, Side::Host, work)?)
    };
    let (logic, lookup) = (ratio(Work::Execute { keys: 1 })?, ratio(Work::TableLookup)?);
    Ok(vec![
        CheckLine::new("C1.20", "a NIC core's time for logic", (3.26, 3.26), logic, "times")
            .note(NOTE),
        CheckLine::new("C1.21", "a NIC core's time for a lookup", (3.2, 3.4), lookup, "times")
            .note(NOTE),
        CheckLine::new("C1.23", "a NIC core's time to copy", (2.0, 2.0), ratio(COPIED)?, "times"),
        CheckLine::new("C1.24", "power of a NIC thread", (31.0, 31.0), 100.0 / logic, "% of host")
            .note(NOTE),
    ])
}
