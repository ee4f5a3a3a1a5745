//! The simulated world passes the suite that every world passes, with and without faults.

use std::sync::Arc;

use nicol_core::cluster::Layout;
use nicol_core::fabric::conformance::Suite;
use nicol_core::faults::FaultPlan;
use nicol_core::units::Nanos;
use nicol_sim::{Profile, RunEnd, SimCluster, SimConfig};

/// Passes the suite; returns how many verbs the NICs gave up.
fn passes(profile: &str, faults: FaultPlan) -> usize {
    let layout = Layout::new(3, 2, 2, 2).unwrap();
    let suite = Suite::new(&layout);
    let profile = Arc::new(Profile::load(profile).unwrap());
    let cluster = SimCluster::new(SimConfig { faults, ..SimConfig::new(layout, profile, 1) });
    cluster.start(&suite);
    let ended = cluster.run_until(&mut |_| suite.finished(), Nanos::from_secs(60));
    assert_eq!(ended, RunEnd::Done);
    assert_eq!(suite.failures(), [""; 0]);
    suite.given_up()
}

#[test]
fn it_conforms_on_every_profile() {
    for profile in Profile::list() {
        assert_eq!(passes(profile, FaultPlan::none()), 0, "{profile}: no verb fails by itself");
    }
}

#[test]
fn it_conforms_under_message_faults() {
    let mut given_up = 0;
    for seed in 0..20 {
        let software = passes("liquidio3", FaultPlan::messages(seed));
        assert_eq!(software, 0, "seed {seed}: calls are sent again until they are answered");
        given_up += passes("connectx5", FaultPlan::messages(seed));
    }
    assert!(given_up > 0, "no NIC ran out of retries");
}
