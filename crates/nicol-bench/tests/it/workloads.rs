//! Workloads of transactions: what is refused, and what is drawn.

use nicol_bench::families::commit::build;
use nicol_bench::workloads::WorkloadSpec;
use nicol_core::ids::NodeId;
use nicol_core::rng::{Purpose, Stream};
use nicol_core::txn::Txn;

#[test]
fn what_means_nothing_is_refused_by_its_flag() {
    let named =
        |name| WorkloadSpec { records: Some(u64::MAX / 2 + 20), ..WorkloadSpec::named(name) };
    let still = WorkloadSpec {
        zipf_percent: Some(0),
        hot_moves: Some(10),
        ..WorkloadSpec::named("ycsb-t")
    };
    for (spec, nodes, words) in [
        (named("ycsb-t"), 2, "give 2^40 per node at most"),
        (named("retwis"), 2, "give 2^40 per node at most"),
        (named("churn"), 2, "give 2^40 per node at most"),
        (named("churn-ordered"), 2, "give 2^40 per node at most"),
        (WorkloadSpec { records: Some(u64::MAX), ..named("churn") }, 1, "give 2^40"),
        (still, 1, "`hot_moves`: of uniform keys none are hot"),
    ] {
        let error = build(&spec, nodes).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains(words), "{}: {error}", spec.name);
    }
}

#[test]
fn zipfian_warehouses_are_drawn_by_their_skew() {
    let most_popular = |zipf_percent| {
        let spec = WorkloadSpec {
            warehouses: Some(20),
            items: Some(10),
            customers: Some(10),
            zipf_percent,
            ..WorkloadSpec::named("tpcc-no")
        };
        let workload = build(&spec, 1).unwrap().workload;
        let (mut random, mut txn) = (Stream::new(1, Purpose::Test, 0), Txn::default());
        let mut drawn = [0; 20];
        for _ in 0..1_000 {
            workload.next(NodeId(0), &mut random, &mut txn);
            drawn[usize::from(txn.entries()[0].key.partition().unwrap())] += 1;
        }
        drawn.into_iter().max().unwrap()
    };
    assert!(most_popular(None) < 90, "uniform warehouses");
    assert!(most_popular(Some(99)) > 200, "zipfian warehouses");
}
