//! How far a load is raised: until throughput stops growing.

use anyhow::Result;

use super::Table;

/// The factor by which a step must raise throughput over the most before it, or the load is not
/// raised further. The papers raise the load until the peak; Xenic counts threads down to 95 % of
/// it.
const RISE: f64 = 1.05;

/// The loads of a sweep: `low`, then from `from` on times `factor`, until throughput stops growing
/// or the next one is more than `most`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ladder {
    /// Loads that show the latency of few clients.
    pub(crate) low: &'static [usize],
    /// The first load that is raised.
    pub(crate) from: usize,
    /// The factor by which a step raises the load.
    pub(crate) factor: usize,
    /// The bound: a system that grows beyond it is not seen to its peak.
    pub(crate) most: usize,
}

/// A load under which clients get too few turns for a rate to be measured.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct TooFewTurns(pub(crate) String);

impl Ladder {
    /// Measures load by load; what was measured, by load.
    ///
    /// A load under which clients get too few turns is left out, and ends it.
    ///
    /// Errors: what `measure` says.
    pub(crate) fn climb<P>(
        &self,
        throughput: impl Fn(&P) -> f64,
        measure: impl Fn(usize) -> Result<P>,
    ) -> Result<Vec<(usize, P)>> {
        let mut points = Vec::new();
        for &load in self.low {
            points.push((load, measure(load)?));
        }
        let mut load = self.from;
        while load <= self.most {
            let before = points.iter().map(|(_, point)| throughput(point)).fold(0.0, f64::max);
            let point = match measure(load) {
                Err(error) if error.is::<TooFewTurns>() && !points.is_empty() => break,
                point => point?,
            };
            let grows = throughput(&point) >= before * RISE;
            points.push((load, point));
            if !grows {
                break;
            }
            load *= self.factor;
        }
        Ok(points)
    }

    /// Says in `table` how far `what` is raised.
    pub(crate) fn assume(&self, table: &mut Table, what: &str) {
        let reason = format!("closed loop; {what}: {}", self.words());
        table.assume("load", "to saturation", &reason);
    }

    /// The loads in words.
    pub(crate) fn words(&self) -> String {
        let Self { low, from, factor, most } = self;
        let low: String = low.iter().map(|load| format!("{load}, ")).collect();
        format!(
            "{low}then from {from} on times {factor}, until throughput grows by less than {:.0} % or \
             clients get too few turns, to {most} at most",
            (RISE - 1.0) * 100.0
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LADDER: Ladder = Ladder { low: &[1, 3], from: 8, factor: 2, most: 128 };

    fn climbed(throughput: impl Fn(usize) -> f64) -> Vec<usize> {
        let points = LADDER.climb(|rate: &f64| *rate, |load| Ok(throughput(load))).unwrap();
        points.into_iter().map(|(load, _)| load).collect()
    }

    #[test]
    fn a_load_is_raised_until_throughput_stops_growing() {
        let flat_from = |load: usize| move |clients: usize| clients.min(load) as f64;
        assert_eq!(climbed(flat_from(20)), [1, 3, 8, 16, 32, 64], "16 to 32 gave a quarter more");
        assert_eq!(climbed(flat_from(2)), [1, 3, 8], "nothing is gained from the first step on");
        assert_eq!(climbed(flat_from(1_000)), [1, 3, 8, 16, 32, 64, 128], "the bound");
        let falls = |clients: usize| if clients < 20 { clients as f64 } else { 1.0 };
        assert_eq!(climbed(falls), [1, 3, 8, 16, 32]);
        let slowly = |clients: usize| 100.0 + clients as f64 / 10.0;
        assert_eq!(climbed(slowly), [1, 3, 8], "less than a twentieth is no growth");
    }

    #[test]
    fn a_load_of_too_few_turns_ends_it_and_another_error_is_told() {
        let climb = |fails: fn() -> anyhow::Error| {
            LADDER.climb(
                |rate: &f64| *rate,
                |load| if load < 32 { Ok(load as f64) } else { Err(fails().context("a run")) },
            )
        };
        let points = climb(|| TooFewTurns("few".into()).into()).unwrap();
        assert_eq!(points.last(), Some(&(16, 16.0)));
        assert!(climb(|| anyhow::anyhow!("another")).is_err());
    }
}
