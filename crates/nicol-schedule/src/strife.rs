//! Strife (SIGMOD '20): a batch is clustered by what its requests share, and each cluster is
//! executed by one worker; what lies between clusters comes after them all.
//!
//! | step | what |
//! |---|---|
//! | spot | requests that share nothing with one another begin clusters |
//! | cluster | a request that meets one cluster joins it; one that meets several is left over |
//! | fuse | clusters between which many are left over become one |
//! | allocate | the largest cluster goes to the worker that has least |
//! | residual | what is left over, once the clusters are done, in turn |
//!
//! DEVIATION [Strife20 3]: keys are features here, as the scheduler sees nothing else; and
//! concurrency control stays on, since scheduling is advice.
//!
//! DEVIATION [AlNiCo artifact]: the server forms the batches, where clients drive its emulation;
//! planning costs three passes over the batch's keys, in the profile's time for a key each.

use super::features::{FEATURES, Features};

/// Left-over requests between two clusters, by a hundred of the smaller one, that fuse them.
const FUSE_PERCENT: usize = 20;

/// The worker of each request of a batch, by position.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    pub clusters: Vec<Vec<usize>>,
    pub residual: Vec<usize>,
}

/// Clusters that were fused with others lead to the one that they are in.
fn root(fused: &[usize], mut cluster: usize) -> usize {
    while fused[cluster] != cluster {
        cluster = fused[cluster];
    }
    cluster
}

/// The clusters that own features of `request`, each once, as `root` calls them.
fn met(request: &Features, owner: &[usize; FEATURES], root: impl Fn(usize) -> usize) -> Vec<usize> {
    let owners = Features::of(request.touched()).map(|feature| owner[feature]);
    let mut met: Vec<usize> = owners.filter(|owner| *owner != usize::MAX).map(root).collect();
    met.sort_unstable();
    met.dedup();
    met
}

/// Plans `batch` for `workers` workers: no two of them have requests of clusters that share a
/// feature.
///
/// Cost: three passes over the features of the batch.
pub fn plan(batch: &[Features], workers: usize) -> Plan {
    // Spot and cluster: a feature belongs to the cluster of the first request that has it.
    let mut owner = [usize::MAX; FEATURES];
    let mut members: Vec<Vec<usize>> = Vec::new();
    let mut between = Vec::new();
    for (position, request) in batch.iter().enumerate() {
        let cluster = match met(request, &owner, |cluster| cluster)[..] {
            [] => {
                members.push(Vec::new());
                members.len() - 1
            }
            [one] => one,
            _ => {
                between.push(position);
                continue;
            }
        };
        members[cluster].push(position);
        Features::of(request.touched()).for_each(|feature| owner[feature] = cluster);
    }
    // Fuse. What a left-over request shares is looked at again: of its features that had no cluster
    // others may have come to one meanwhile.
    let mut fused: Vec<usize> = (0..members.len()).collect();
    let mut shared = vec![0_usize; members.len()];
    let mut residual = Vec::new();
    for position in between {
        let mut roots = met(&batch[position], &owner, |cluster| root(&fused, cluster));
        let first = roots[0];
        if roots.len() > 1 {
            let least = roots.iter().map(|root| members[*root].len()).min().unwrap_or_default();
            shared[first] += 1;
            if 100 * shared[first] < FUSE_PERCENT * least {
                residual.push(position);
                continue;
            }
            for other in roots.split_off(1) {
                fused[other] = first;
                let moved = std::mem::take(&mut members[other]);
                members[first].extend(moved);
            }
            shared[first] = 0;
        }
        members[first].push(position);
        Features::of(batch[position].touched()).for_each(|feature| owner[feature] = first);
    }
    // Allocate.
    members.retain(|cluster| !cluster.is_empty());
    members.sort_by_key(|cluster| std::cmp::Reverse(cluster.len()));
    let mut clusters = vec![Vec::new(); workers];
    for cluster in members {
        let least = (0..workers).min_by_key(|worker| clusters[*worker].len()).unwrap_or_default();
        clusters[least].extend(cluster);
    }
    Plan { clusters, residual }
}

#[cfg(test)]
mod tests {
    use nicol_core::rng::{Purpose, Stream};

    use super::*;

    fn request(features: &[usize]) -> Features {
        let mut request = Features::default();
        features.iter().for_each(|feature| request.add(*feature, true));
        request
    }

    #[test]
    fn every_request_is_planned_once_and_clusters_share_nothing() {
        let mut batch: Vec<Features> =
            (0..300).map(|at| request(&[at % 6 * 10, at % 6 * 10 + 1 + at / 6 % 4])).collect();
        batch.push(request(&[0, 10]));
        let plan = plan(&batch, 4);
        let mut planned: Vec<usize> =
            plan.clusters.iter().flatten().chain(&plan.residual).copied().collect();
        planned.sort_unstable();
        assert!(planned.into_iter().eq(0..batch.len()));
        assert_eq!(plan.residual, [300], "what lies between two clusters");
        let worker_of = |position: usize| {
            plan.clusters.iter().position(|cluster| cluster.contains(&position)).unwrap()
        };
        assert!((0..300).all(|at| worker_of(at) == worker_of(at % 6)));
        assert!(plan.clusters.iter().all(|cluster| cluster.len() >= 50));
    }

    #[test]
    fn what_joins_two_clusters_shares_nothing_with_a_third() {
        // The third request lies between the clusters of the first two, and the fourth begins one
        // of its own by what only the third has.
        let mut batches = vec![vec![vec![0], vec![1], vec![0, 1, 2], vec![2]]];
        let mut random = Stream::new(4, Purpose::Test, 0);
        for _ in 0..400 {
            let (of, most) = (2 + random.below(40), 1 + random.below(5));
            let mut some = || (0..=random.below(most)).map(|_| random.below(of) as usize).collect();
            batches.push((0..60).map(|_| some()).collect());
        }
        for batch in batches {
            let requests: Vec<Features> = batch.iter().map(|features| request(features)).collect();
            let plan = plan(&requests, 4);
            let all: usize = plan.clusters.iter().map(Vec::len).sum();
            assert_eq!(all + plan.residual.len(), batch.len());
            let mut owner = [usize::MAX; FEATURES];
            for (worker, cluster) in plan.clusters.iter().enumerate() {
                for feature in cluster.iter().flat_map(|position| &batch[*position]) {
                    let before = std::mem::replace(&mut owner[*feature], worker);
                    assert!([usize::MAX, worker].contains(&before), "{feature} in {batch:?}");
                }
            }
        }
    }

    #[test]
    fn clusters_with_much_between_them_become_one() {
        let mut batch: Vec<Features> = (0..20).map(|at| request(&[at % 2])).collect();
        batch.extend((0..10).map(|_| request(&[0, 1])));
        let plan = plan(&batch, 2);
        let largest = plan.clusters.iter().map(Vec::len).max().unwrap();
        assert!(largest + plan.residual.len() == 30 && largest > 20, "{plan:?}");
    }
}
