//! Which alternatives the SoC's memory has space for together.

use anyhow::{Result, ensure};
use nicol_core::units::Bytes;

use super::Description;
use super::description::gigabytes;

/// Shares of all requests may miss so much of them, by rounding.
const ROUNDED: f64 = 1e-9;

/// Those of `ranked` that are built, and those that are left out: each that does not fit into
/// `memory` beside the better ones.
///
/// # Errors
/// If what is built does not take all requests.
pub fn built(
    description: &Description,
    ranked: &[usize],
    memory: Bytes,
) -> Result<(Vec<usize>, Vec<usize>)> {
    let (mut built, mut left_out) = (Vec::new(), Vec::new());
    for &at in ranked {
        built.push(at);
        if description.kept_bytes(&built) > memory.0 {
            built.pop();
            left_out.push(at);
        }
    }
    let takes: f64 = built.iter().map(|at| description.alternatives[*at].share_max).sum();
    ensure!(
        takes >= 1.0 - ROUNDED,
        "[soc_memory]: the SoC has {}, and the alternatives that it has space for take {:.0} % of requests \
         at most: keep less, or raise a share_max",
        gigabytes(memory.0),
        takes * 1e2
    );
    Ok((built, left_out))
}

/// The largest sets of alternatives that fit into `memory` together: all of them, where they do.
pub fn subsets(description: &Description, memory: Bytes) -> impl Iterator<Item = Vec<usize>> {
    let count = description.alternatives.len();
    let fits = move |set: u32| {
        let built: Vec<usize> = (0..count).filter(|at| set >> at & 1 == 1).collect();
        (description.kept_bytes(&built) <= memory.0).then_some(built)
    };
    let all: u32 = (1 << count) - 1;
    // What keeps nothing is in every set.
    let free = (0..count).filter(|at| description.alternatives[*at].keeps.is_empty());
    let free: u32 = free.map(|at| 1 << at).sum();
    let only = fits(all).is_some();
    let sets = if only { all..=all } else { 0..=all };
    sets.filter(move |set| set & free == free).filter_map(move |set| {
        let built = fits(set)?;
        let larger = (0..count).any(|at| set >> at & 1 == 0 && fits(set | 1 << at).is_some());
        (!larger).then_some(built)
    })
}
