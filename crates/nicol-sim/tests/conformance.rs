//! The simulated world passes the suite that every world passes, with and without faults.

use std::sync::Arc;

use nicol_core::cluster::Layout;
use nicol_core::fabric::conformance::Suite;
use nicol_core::units::Nanos;
use nicol_sim::{FaultPlan, Profile, RunEnd, SimCluster, SimConfig};

fn passes(profile: &str, faults: FaultPlan) {
    let layout = Layout::new(3, 2, 2, 2).unwrap();
    let suite = Suite::new(&layout);
    let profile = Arc::new(Profile::load(profile).unwrap());
    let cluster = SimCluster::new(SimConfig { faults, ..SimConfig::new(layout, profile, 1) });
    cluster.start(&suite);
    let ended = cluster.run_until(&mut |_| suite.finished(), Nanos::from_secs(60));
    assert_eq!(ended, RunEnd::Done);
    assert_eq!(suite.failures(), [""; 0]);
}

#[test]
fn it_conforms_on_every_profile() {
    for profile in Profile::list() {
        passes(profile, FaultPlan::none());
    }
}

#[test]
fn it_conforms_under_message_faults() {
    for seed in 0..20 {
        // Not on connectx5: its verbs are retried by the NIC and then fail as unreachable, a fault
        // that the suite would have to accept from everyone.
        passes("liquidio3", FaultPlan::messages(seed));
    }
}
