//! The simulated world passes the suite that every world passes, with and without faults.

use std::sync::Arc;

use nicol_conformance::Suite;
use nicol_core::faults::{FaultPlan, Partition};
use nicol_core::ids::{NodeId, Side};
use nicol_core::units::Nanos;
use nicol_core::view::{NodeSet, View};
use nicol_sim::{Profile, RunEnd, SimCluster, SimConfig};

/// Passes the suite; returns how many verbs the NICs gave up.
fn passes(profile: &str, faults: FaultPlan) -> usize {
    let profile = Arc::new(Profile::load(profile).unwrap());
    let view = View::new(3, 2, 2, profile.engines(Side::Nic).min(2)).unwrap();
    let suite = Suite::new(&view);
    let cluster = SimCluster::new(SimConfig { faults, ..SimConfig::new(view, profile, 1) });
    cluster.start(Arc::new(suite.clone()));
    let ended = cluster.run_until(&mut |_| suite.finished(), Nanos::from_secs(60));
    assert_eq!(ended, RunEnd::Done);
    assert_eq!(suite.failures(), [""; 0]);
    assert!(suite.lost_additions() > 0, "engines interleave at access points");
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
    for seed in 0..20 {
        let software = passes("liquidio3", FaultPlan::messages(seed));
        assert_eq!(software, 0, "seed {seed}: calls are sent again until they are answered");
        passes("connectx5", FaultPlan::messages(seed));
        passes("bluefield1", FaultPlan::messages(seed));
    }
}

#[test]
fn it_conforms_where_the_network_is_cut_for_longer_than_a_nic_retries() {
    // Cut for 2 ms of every 3 ms: 8 attempts 100 us apart end before that. Random plans give a
    // verb up once in ten seeds, and which seeds do changes with every step of the suite.
    let partitions = (0..200)
        .map(|cut| {
            let from = Nanos::from_millis(3 * cut);
            let until = from + Nanos::from_millis(2);
            let side = NodeSet::from_iter([NodeId(cut as u16 % 3)]);
            Partition { from, until, side, one_way: cut % 2 == 1 }
        })
        .collect();
    let plan = FaultPlan { partitions, ..FaultPlan::none() };
    assert_eq!(passes("liquidio3", plan.clone()), 0, "calls are sent again until answered");
    assert!(passes("connectx5", plan) > 0, "no NIC ran out of retries");
}

#[test]
fn it_conforms_where_every_node_has_other_hardware() {
    // On the path, with verbs and without NIC cores, and off the path with both: a one-sided
    // operation is executed by whatever its target has, if the requester can ask that.
    let names = ["liquidio3", "connectx5", "bluefield1"];
    let profiles: Vec<_> =
        names.iter().map(|name| Arc::new(Profile::load(name).unwrap())).collect();
    for faults in [FaultPlan::none(), FaultPlan::messages(3)] {
        let view = View::new(3, 2, 2, 2).unwrap();
        let suite = Suite::new(&view);
        let config = SimConfig::mixed(view, profiles.clone(), 1);
        let cluster = SimCluster::new(SimConfig { faults, ..config });
        cluster.start(Arc::new(suite.clone()));
        let ended = cluster.run_until(&mut |_| suite.finished(), Nanos::from_secs(60));
        assert_eq!(ended, RunEnd::Done);
        assert_eq!(suite.failures(), [""; 0]);
        assert!(cluster.report().stats.verbs > 0, "cards executed some");
    }
}
