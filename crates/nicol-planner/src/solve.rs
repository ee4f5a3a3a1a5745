//! Rates of alternatives together: greedily in their order, and the best that there is.

/// A small linear programme: rates at most, of which each takes of every resource.
#[derive(Clone, Debug)]
pub struct Programme {
    /// By alternative and resource, per unit of rate.
    pub takes: Vec<Vec<f64>>,
    pub capacity: Vec<f64>,
    /// By alternative: its share of all requests at most.
    pub share_max: Vec<f64>,
}

/// The share of a resource below which the rest counts as nothing.
const EXHAUSTED: f64 = 1e-9;

impl Programme {
    /// The rate of `alternative` alone, whatever its share may be, and the resource that binds.
    pub fn alone(&self, alternative: usize) -> (f64, usize) {
        let bounds = self.takes[alternative].iter().zip(&self.capacity).enumerate();
        let bounds = bounds.filter(|(_, (takes, _))| **takes > 0.0);
        let bounds = bounds.map(|(resource, (takes, capacity))| (capacity / takes, resource));
        bounds.fold((f64::INFINITY, 0), |least, one| if one.0 < least.0 { one } else { least })
    }

    /// The same with these alternatives only: the others take no requests.
    pub fn among(&self, built: &[usize]) -> Self {
        let mut some = self.clone();
        for (at, share) in some.share_max.iter_mut().enumerate() {
            if !built.contains(&at) {
                *share = 0.0;
            }
        }
        some
    }

    /// Rates in the order of `ranked`: each as much as the resources leave, the next with what is
    /// left. [OffPath23 4.2: step 3]
    ///
    /// The first ones begin together where the first may not take all requests: each with its
    /// share, the last of them with what is left of all requests. A share of at most s is a rate of
    /// at most s / (1 - s) times that of all others, so of what then is left those that are limited
    /// take after what they are limited by.
    pub fn greedy(&self, ranked: &[usize]) -> Vec<f64> {
        let mut rates = vec![0.0; self.takes.len()];
        let mut left = self.capacity.clone();
        let limited = |at: &&usize| self.share_max[**at] < 1.0;
        let (after, first): (Vec<&usize>, Vec<&usize>) = ranked.iter().partition(limited);
        let alone = first.into_iter().chain(after).map(|at| vec![(*at, 1.0)]);
        for parts in std::iter::once(self.together(ranked)).chain(alone) {
            let of = |resource: usize| -> f64 {
                parts.iter().map(|(at, share)| share * self.takes[*at][resource]).sum()
            };
            let takes: Vec<f64> = (0..left.len()).map(of).collect();
            let mut rate = f64::INFINITY;
            for (takes, left) in takes.iter().zip(&left) {
                if *takes > 0.0 {
                    rate = rate.min((left / takes).max(0.0));
                }
            }
            if let [(at, _)] = parts[..]
                && self.share_max[at] < 1.0
            {
                let (all, share): (f64, _) = (rates.iter().sum(), self.share_max[at]);
                rate = rate.min(((all * share - rates[at]) / (1.0 - share)).max(0.0));
            }
            parts.iter().for_each(|(at, share)| rates[*at] += share * rate);
            for ((left, takes), all) in left.iter_mut().zip(&takes).zip(&self.capacity) {
                if *takes > 0.0 {
                    *left -= takes * rate;
                }
                if *left < EXHAUSTED * all {
                    *left = 0.0;
                }
            }
        }
        rates
    }

    /// The first of `ranked` that together take all requests, each with its share; none if all of
    /// them do not.
    fn together(&self, ranked: &[usize]) -> Vec<(usize, f64)> {
        let (mut parts, mut open) = (Vec::new(), 1.0_f64);
        for &at in ranked {
            let share = self.share_max[at].min(open);
            parts.push((at, share));
            open -= share;
            if open < EXHAUSTED {
                return parts;
            }
        }
        Vec::new()
    }

    /// The rates with the greatest sum, each times what it is `worth`: the simplex method with
    /// Bland's rule, on so few rows that nothing faster is needed.
    pub fn best(&self, worth: &[f64]) -> Vec<f64> {
        let count = self.takes.len();
        // Scaled so that a rate of 1 exhausts what the alternative takes most of.
        let scale: Vec<f64> = (0..count).map(|at| self.alone(at).0).collect();
        let mut rows: Vec<Vec<f64>> = Vec::new();
        for (resource, capacity) in self.capacity.iter().enumerate() {
            let row = (0..count).map(|at| self.takes[at][resource] * scale[at] / capacity);
            rows.push(row.chain([1.0]).collect());
        }
        for (at, share) in self.share_max.iter().enumerate().filter(|(_, share)| **share < 1.0) {
            // rate <= share * sum of all rates
            let row = (0..count).map(|other| {
                let own = if other == at { 1.0 } else { 0.0 };
                (own - share) * scale[other] / scale[at]
            });
            rows.push(row.chain([0.0]).collect());
        }
        let gain: Vec<f64> = scale.iter().zip(worth).map(|(rate, worth)| rate * worth).collect();
        let solved = simplex(&rows, &gain);
        solved.into_iter().zip(scale).map(|(rate, scale)| rate * scale).collect()
    }
}

/// Maximizes `gain . x` for `x >= 0` where each row says `row . x <= its last element`, none of
/// which is negative.
fn simplex(rows: &[Vec<f64>], gain: &[f64]) -> Vec<f64> {
    const ROUNDS_MAX: usize = 1_000;
    const ZERO: f64 = 1e-12;
    let (count, slack) = (gain.len(), rows.len());
    let width = count + slack + 1;
    let mut table: Vec<Vec<f64>> = Vec::with_capacity(slack);
    for (at, row) in rows.iter().enumerate() {
        let mut line = vec![0.0; width];
        line[..count].copy_from_slice(&row[..count]);
        line[count + at] = 1.0;
        line[width - 1] = row[count];
        table.push(line);
    }
    let most = gain.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
    let mut goal = vec![0.0; width];
    goal.iter_mut().zip(gain).for_each(|(goal, gain)| *goal = -gain / most);
    let mut basis: Vec<usize> = (count..count + slack).collect();
    for _ in 0..ROUNDS_MAX {
        let Some(enters) = (0..width - 1).find(|at| goal[*at] < -1e-9) else { break };
        let ratio = |row: usize| {
            (table[row][enters] > ZERO).then(|| table[row][width - 1] / table[row][enters])
        };
        let candidates = (0..slack).filter_map(|row| Some((ratio(row)?, basis[row], row)));
        let Some((_, _, leaves)) = candidates.min_by(|a, b| {
            (a.0, a.1).partial_cmp(&(b.0, b.1)).unwrap_or(std::cmp::Ordering::Equal)
        }) else {
            break;
        };
        let pivot = table[leaves][enters];
        table[leaves].iter_mut().for_each(|cell| *cell /= pivot);
        let line = table[leaves].clone();
        let others =
            table.iter_mut().enumerate().filter(|(row, _)| *row != leaves).map(|(_, row)| row);
        for row in others.chain([&mut goal]) {
            let factor = row[enters];
            row.iter_mut().zip(&line).for_each(|(cell, of)| *cell -= factor * of);
        }
        basis[leaves] = enters;
    }
    let mut solved = vec![0.0; count];
    for (row, variable) in basis.iter().enumerate().filter(|(_, variable)| **variable < count) {
        solved[*variable] = table[row][width - 1].max(0.0);
    }
    solved
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// All mixes of shares in steps of `1 / steps`, and the greatest rate among them: independent
    /// of the simplex method.
    pub(crate) fn exhaustive(programme: &Programme, steps: usize) -> f64 {
        fn walk(
            programme: &Programme,
            shares: &mut Vec<f64>,
            left: usize,
            steps: usize,
            best: &mut f64,
        ) {
            if shares.len() + 1 == programme.takes.len() {
                shares.push(left as f64 / steps as f64);
                *best = best.max(rate(programme, shares));
                shares.pop();
                return;
            }
            for part in 0..=left {
                shares.push(part as f64 / steps as f64);
                walk(programme, shares, left - part, steps, best);
                shares.pop();
            }
        }
        fn rate(programme: &Programme, shares: &[f64]) -> f64 {
            let allowed =
                shares.iter().zip(&programme.share_max).all(|(share, most)| *share <= most + 1e-9);
            let of = |resource: usize| -> f64 {
                shares
                    .iter()
                    .zip(&programme.takes)
                    .map(|(share, takes)| share * takes[resource])
                    .sum()
            };
            let bounds = programme.capacity.iter().enumerate();
            let bounds = bounds.map(|(at, capacity)| capacity / of(at).max(1e-30));
            if allowed { bounds.fold(f64::INFINITY, f64::min) } else { 0.0 }
        }
        let mut best = 0.0;
        walk(programme, &mut Vec::new(), steps, steps, &mut best);
        best
    }

    /// Numbers from 0 up to below 1, the same each time.
    pub(crate) struct Draws(pub(crate) u64);

    impl Draws {
        pub(crate) fn next(&mut self) -> f64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (self.0 >> 40) as f64 / (1u64 << 24) as f64
        }
    }

    fn drawn(draws: &mut Draws) -> Programme {
        let count = 2 + (draws.next() * 3.0) as usize;
        let resources = 3 + (draws.next() * 5.0) as usize;
        let mut take = || if draws.next() < 0.4 { 0.0 } else { draws.next() };
        let mut takes: Vec<Vec<f64>> =
            (0..count).map(|_| (0..resources).map(|_| take()).collect()).collect();
        takes.iter_mut().for_each(|takes| takes[0] += 0.05);
        let mut share_max = vec![1.0; count];
        if draws.next() < 0.5 {
            share_max[0] = 0.1 + 0.8 * draws.next();
        }
        Programme { takes, capacity: vec![1.0; resources], share_max }
    }

    #[test]
    fn the_best_mix_of_200_programmes_is_that_of_an_exhaustive_search() {
        let mut draws = Draws(7);
        let (mut losses, mut regretted) = (0, 0);
        for number in 0..200 {
            let programme = drawn(&mut draws);
            let equal = vec![1.0; programme.takes.len()];
            let best: f64 = programme.best(&equal).iter().sum();
            let searched = exhaustive(&programme, 40);
            assert!(
                best >= searched * (1.0 - 1e-6),
                "{number}: {best} of {searched}: {programme:?}"
            );
            assert!(searched >= best * 0.90, "{number}: {best} of {searched}: {programme:?}");
            let mut ranked: Vec<usize> = (0..programme.takes.len()).collect();
            ranked.sort_by(|a, b| programme.alone(*b).0.total_cmp(&programme.alone(*a).0));
            let greedy: f64 = programme.greedy(&ranked).iter().sum();
            assert!(greedy <= best * (1.0 + 1e-6), "{number}: {greedy} of {best}");
            losses += usize::from(greedy < best * 0.99);
            regretted += usize::from(greedy < best * 0.90);
        }
        assert!(
            losses > 0 && regretted > 0,
            "greedy is not always the best: {losses}, {regretted}"
        );
    }

    #[test]
    fn where_all_shares_are_limited_the_first_ones_begin_together() {
        let mut draws = Draws(9);
        for _ in 0..200 {
            let mut programme = drawn(&mut draws);
            let count = programme.takes.len();
            let least = 1.0 / count as f64;
            let share = |_| least + (0.99 - least) * draws.next();
            programme.share_max = (0..count).map(share).collect();
            let best: f64 = programme.best(&vec![1.0; count]).iter().sum();
            let rates = programme.greedy(&(0..count).collect::<Vec<_>>());
            let all: f64 = rates.iter().sum();
            assert!(all > 0.0 && all <= best * (1.0 + 1e-6), "{all} of {best}: {programme:?}");
            for (rate, most) in rates.iter().zip(&programme.share_max) {
                assert!(*rate <= most * all * (1.0 + 1e-9), "{rates:?}: {programme:?}");
            }
            let takes = |resource: usize| -> f64 {
                rates.iter().zip(&programme.takes).map(|(rate, takes)| rate * takes[resource]).sum()
            };
            assert!((0..programme.capacity.len()).all(|at| takes(at) < 1.0 + 1e-6));
        }
        let programme = Programme {
            takes: vec![vec![1.0], vec![2.0], vec![1.0]],
            capacity: vec![1.0],
            share_max: vec![0.5, 0.5, 0.9],
        };
        assert_eq!(programme.greedy(&[0, 1, 2]), [1.0 / 3.0, 1.0 / 3.0, 0.0]);
    }

    /// The first alternative has its share, however much the others could take.
    #[test]
    fn a_limited_share_that_is_ranked_first_is_taken_before_what_follows_it() {
        let programme = Programme {
            takes: vec![vec![1.0, 0.0], vec![1.0, 1.0]],
            capacity: vec![1.0, 4.0],
            share_max: vec![0.5, 1.0],
        };
        assert_eq!(programme.greedy(&[0, 1]), [0.5, 0.5]);
        assert_eq!(programme.greedy(&[1, 0]), [0.0, 1.0]);
        let mut draws = Draws(5);
        for number in 0..200 {
            let mut programme = drawn(&mut draws);
            programme.share_max[0] = 0.1 + 0.8 * draws.next();
            let ranked: Vec<usize> = (0..programme.takes.len()).collect();
            let (rates, equal) = (programme.greedy(&ranked), vec![1.0; ranked.len()]);
            let all: f64 = rates.iter().sum();
            let share = rates[0] / all;
            assert!(share > 1e-3 && share <= programme.share_max[0] + 1e-9, "{number}: {rates:?}");
            assert!(all <= programme.best(&equal).iter().sum::<f64>() * (1.0 + 1e-6), "{number}");
        }
    }

    #[test]
    fn a_resource_that_is_taken_is_not_given_again() {
        let programme = Programme {
            takes: vec![vec![1.0, 0.0], vec![1.0, 2.0]],
            capacity: vec![1.0, 1.0],
            share_max: vec![1.0, 1.0],
        };
        assert_eq!(programme.greedy(&[0, 1]), [1.0, 0.0]);
        assert_eq!(programme.greedy(&[1, 0]), [0.5, 0.5]);
        assert_eq!(programme.alone(1), (0.5, 1));
    }
}
