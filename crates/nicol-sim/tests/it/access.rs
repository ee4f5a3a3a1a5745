//! Access points to shared memory: where engines of a simulated node interleave, and what it costs.

use std::sync::{Arc, Mutex};

use nicol_core::engine::Start;
use nicol_core::fabric::Fabric;
use nicol_core::ids::Side;
use nicol_core::units::Nanos;
use nicol_core::view::View;
use nicol_sim::{Profile, RunEnd, SimCluster, SimConfig};

const STEPS: usize = 4;

/// Both host engines write their core's number and the time into one list, step by step.
struct Steps {
    with_points: bool,
    list: Arc<Mutex<Vec<(u8, u64)>>>,
}

impl Start for Steps {
    fn start<F: Fabric>(&self, fabric: &F) {
        if fabric.here().side == Side::Nic {
            return;
        }
        let (fabric, list, with_points) = (fabric.clone(), self.list.clone(), self.with_points);
        fabric.clone().spawn(async move {
            for _ in 0..STEPS {
                if with_points {
                    fabric.access().await;
                }
                list.lock().unwrap().push((fabric.here().core, fabric.now().0));
            }
        });
    }
}

fn steps(profile: Profile, with_points: bool) -> Vec<(u8, u64)> {
    let view = View::new(1, 1, 2, 1).unwrap();
    let cluster = SimCluster::new(SimConfig::new(view, Arc::new(profile), 1));
    let list = Arc::default();
    cluster.start(Arc::new(Steps { with_points, list: Arc::clone(&list) }));
    assert_eq!(cluster.settle(Nanos::from_millis(1)), RunEnd::Done);
    list.lock().unwrap().clone()
}

const TEXT: &str = include_str!("../../../../profiles/liquidio3.toml");

fn plain() -> Profile {
    Profile::parse("liquidio3", TEXT).unwrap()
}

#[test]
fn engines_interleave_at_access_points_and_nowhere_else() {
    let cores = |with_points| -> Vec<u8> {
        steps(plain(), with_points).into_iter().map(|(core, _)| core).collect()
    };
    assert_eq!(cores(true), [0, 1, 0, 1, 0, 1, 0, 1]);
    assert_eq!(cores(false), [0, 0, 0, 0, 1, 1, 1, 1]);
}

#[test]
fn an_access_costs_what_the_profile_says_and_no_poll() {
    let times = |profile: Profile| -> Vec<u64> {
        steps(profile, true).into_iter().filter(|(core, _)| *core == 0).map(|(_, at)| at).collect()
    };
    // One poll of 10 ns begins the first round.
    assert_eq!(times(plain()), [50, 90, 130, 170], "by default a line of another core: 40 ns");
    let stated =
        "[work]\naccess = { value = \"100ns\", source = \"assumed\", reason = \"a test\" }";
    let own = Profile::parse("own", &TEXT.replace("[work]", stated)).unwrap();
    assert_eq!(times(own), [110, 210, 310, 410]);
}
