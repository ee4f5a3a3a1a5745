//! The latencies of one kind of operation at one engine, or of all of them.

use hdrhistogram::Histogram;
use nicol_core::units::Nanos;

/// The longest latency that the histogram distinguishes.
pub const LATENCY_MAX: Nanos = Nanos::from_secs(100);

/// Latencies that are kept as they are, before there is a histogram: it takes a quarter of a
/// megabyte, and most engines of a simulated run see few operations of a kind.
const FEW_MAX: usize = 512;

/// An empty latency histogram in nanoseconds: 1 ns to 100 s, three significant digits.
///
/// # Panics
/// Never: the bounds are constants that `hdrhistogram` accepts.
pub fn latency_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENCY_MAX.0, 3).expect("constant bounds are valid")
}

/// Latencies in nanoseconds: a list while they are few, then a histogram of constant size.
#[derive(Clone, Debug, Default)]
pub struct Latencies {
    few: Vec<u64>,
    many: Option<Histogram<u64>>,
}

impl Latencies {
    /// Adds one.
    pub fn record(&mut self, latency: Nanos) {
        // At least one, the histogram's lowest: a fake world may take no time.
        let latency = latency.0.max(1);
        if let Some(many) = &mut self.many {
            return many.saturating_record(latency);
        }
        if self.few.capacity() == 0 {
            self.few.reserve_exact(FEW_MAX);
        }
        self.few.push(latency);
        if self.few.len() >= FEW_MAX {
            self.many = Some(self.histogram());
            self.few = Vec::new();
        }
    }

    /// Adds all of `other`.
    pub fn merge(&mut self, other: &Self) {
        if let Some(theirs) = &other.many {
            *self.many.get_or_insert_with(latency_histogram) += theirs;
            let few = std::mem::take(&mut self.few);
            few.iter().for_each(|latency| self.record(Nanos(*latency)));
        }
        other.few.iter().for_each(|latency| self.record(Nanos(*latency)));
    }

    /// All of them as a histogram.
    pub fn histogram(&self) -> Histogram<u64> {
        let mut all = self.many.clone().unwrap_or_else(latency_histogram);
        self.few.iter().for_each(|latency| all.saturating_record(*latency));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As many latencies, from a nanosecond to beyond the longest.
    fn latencies(count: usize, first: u64) -> Vec<Nanos> {
        (0..count as u64).map(|number| Nanos((first + number * number) * 99_991)).collect()
    }

    #[test]
    fn few_and_many_merge_as_if_one_engine_had_recorded_all() {
        for (mine, theirs) in [(0, 3), (3, 0), (700, 700), (5, 3_000), (3_000, 5), (2_000, 2_000)] {
            let [mine, theirs] = [latencies(mine, 0), latencies(theirs, 17)];
            let mut expected = latency_histogram();
            let of = |latencies: &[Nanos]| {
                let mut recorded = Latencies::default();
                latencies.iter().for_each(|latency| recorded.record(*latency));
                recorded
            };
            for latency in mine.iter().chain(&theirs) {
                expected.saturating_record(latency.0.max(1));
            }
            let mut merged = of(&mine);
            merged.merge(&of(&theirs));
            assert_eq!(merged.histogram(), expected);
            assert!(merged.few.len() < FEW_MAX, "memory is bounded");
        }
    }
}
