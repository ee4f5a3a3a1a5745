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

use super::features::{FEATURES, Features};

/// Left-over requests between two clusters, by a hundred of the smaller one, that fuse them.
const FUSE_PERCENT: usize = 20;

/// Who executes which requests of a batch, by their positions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// By worker.
    pub clusters: Vec<Vec<usize>>,
    /// After these.
    pub residual: Vec<usize>,
}

/// Clusters that were fused with others lead to the one that they are in.
fn root(fused: &[usize], mut cluster: usize) -> usize {
    while fused[cluster] != cluster {
        cluster = fused[cluster];
    }
    cluster
}

/// Plans `batch` for `workers` workers.
///
/// Cost: three passes over the features of the batch.
pub fn plan(batch: &[Features], workers: usize) -> Plan {
    // Spot and cluster: a feature belongs to the cluster of the first request that has it.
    let mut owner = [usize::MAX; FEATURES];
    let mut members: Vec<Vec<usize>> = Vec::new();
    let mut between: Vec<(usize, Vec<usize>)> = Vec::new();
    for (position, request) in batch.iter().enumerate() {
        let mut met: Vec<usize> = Features::of(request.touched())
            .map(|feature| owner[feature])
            .filter(|owner| *owner != usize::MAX)
            .collect();
        met.sort_unstable();
        met.dedup();
        let cluster = match met[..] {
            [] => {
                members.push(Vec::new());
                members.len() - 1
            }
            [one] => one,
            _ => {
                between.push((position, met));
                continue;
            }
        };
        members[cluster].push(position);
        Features::of(request.touched()).for_each(|feature| owner[feature] = cluster);
    }
    // Fuse.
    let mut fused: Vec<usize> = (0..members.len()).collect();
    let mut shared = vec![0_usize; members.len()];
    let mut residual = Vec::new();
    for (position, met) in between {
        let mut roots: Vec<usize> = met.iter().map(|cluster| root(&fused, *cluster)).collect();
        roots.sort_unstable();
        roots.dedup();
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
    fn clusters_with_much_between_them_become_one() {
        let mut batch: Vec<Features> = (0..20).map(|at| request(&[at % 2])).collect();
        batch.extend((0..10).map(|_| request(&[0, 1])));
        let plan = plan(&batch, 2);
        let largest = plan.clusters.iter().map(Vec::len).max().unwrap();
        assert!(largest + plan.residual.len() == 30 && largest > 20, "{plan:?}");
    }
}
