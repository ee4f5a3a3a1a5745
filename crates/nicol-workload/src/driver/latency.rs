//! The latencies of one kind of operation at one engine, or of all of them.

use hdrhistogram::Histogram;
use nicol_core::units::Nanos;

/// The longest latency that is told from longer ones: 13 days, beyond every run.
pub const LATENCY_MAX: Nanos = Nanos((1 << 50) - 1);

/// An empty latency histogram in nanoseconds: 1 ns to [`LATENCY_MAX`], three significant digits.
///
/// # Panics
/// Never: the bounds are constants that `hdrhistogram` accepts.
pub fn latency_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENCY_MAX.0, 3).expect("constant bounds are valid")
}

/// Counts of a page: the latencies from one power of two to the next, in steps of the same width.
const PAGE: usize = 1_024;
const PAGE_BITS: u32 = PAGE.ilog2();
/// Pages that there may be: those of all values up to [`LATENCY_MAX`].
const PAGES_MAX: usize = (LATENCY_MAX.0.ilog2() - PAGE_BITS + 2) as usize;
// What is longer is counted as the longest, and so never below what is shorter.
const _: () = assert!((LATENCY_MAX.0 + 1).is_power_of_two(), "pages end where values do");

/// Latencies in nanoseconds: the counts of [`latency_histogram`], of which only pages exist in
/// which something has been counted. A histogram takes a third of a megabyte, the three or four
/// pages that a run's latencies fall into a tenth of that, and adding one costs a shift and a
/// look.
#[derive(Clone, Debug, Default)]
pub struct Latencies {
    pages: Vec<Option<Box<[u64; PAGE]>>>,
}

impl Latencies {
    #[inline]
    pub fn record(&mut self, latency: Nanos) {
        // At least one, the histogram's lowest: a fake world may take no time.
        let latency = latency.0.clamp(1, LATENCY_MAX.0);
        // Values below two pages are counted each for itself, then two together, then four.
        let shift = (latency | PAGE as u64).ilog2() - PAGE_BITS;
        let index = (u64::from(shift) << PAGE_BITS) + (latency >> shift);
        let (page, place) = (index as usize / PAGE, index as usize % PAGE);
        match self.pages.get_mut(page) {
            Some(Some(counts)) => counts[place] += 1,
            _ => self.add(page)[place] += 1,
        }
    }

    /// A page that does not exist yet.
    #[cold]
    fn add(&mut self, page: usize) -> &mut [u64; PAGE] {
        assert!(page < PAGES_MAX, "a latency is clamped before it is counted");
        if self.pages.len() <= page {
            self.pages.resize(page + 1, None);
        }
        self.pages[page].get_or_insert_with(|| Box::new([0; PAGE]))
    }

    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.pages.iter().all(Option::is_none)
    }

    /// Adds all of `other`.
    pub fn merge(&mut self, other: &Self) {
        for (page, theirs) in other.pages.iter().enumerate() {
            let Some(theirs) = theirs else { continue };
            let mine = match self.pages.get_mut(page) {
                Some(Some(counts)) => counts,
                _ => self.add(page),
            };
            mine.iter_mut().zip(theirs.iter()).for_each(|(mine, theirs)| *mine += theirs);
        }
    }

    /// All of them as a histogram.
    pub fn histogram(&self) -> Histogram<u64> {
        let mut all = latency_histogram();
        for (page, counts) in self.pages.iter().enumerate() {
            let Some(counts) = counts else { continue };
            for (place, &count) in counts.iter().enumerate().filter(|&(_, &count)| count > 0) {
                // The lowest value that is counted here.
                let latency = match page.checked_sub(1) {
                    None => place as u64,
                    Some(shift) => ((PAGE + place) as u64) << shift,
                };
                all.saturating_record_n(latency, count);
            }
        }
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
    fn every_latency_is_counted_where_the_histogram_counts_it() {
        let edges = (0..50).map(|bits| 1_u64 << bits).chain([LATENCY_MAX.0, u64::MAX]);
        for edge in edges {
            for latency in [edge.saturating_sub(1), edge, edge.saturating_add(1)] {
                let (mut pages, mut expected) = (Latencies::default(), latency_histogram());
                pages.record(Nanos(latency));
                expected.saturating_record(latency.max(1));
                assert_eq!(pages.histogram(), expected, "{latency}");
            }
        }
    }

    /// An overload makes latencies longer than any number of seconds that one may think of: none
    /// may count as less than a shorter one.
    #[test]
    fn a_longer_latency_is_never_counted_as_a_shorter_one() {
        let seconds = [1, 90, 99, 100, 101, 130, 137, 138, 400, 86_400, 864_000, 10_000_000];
        let counted = seconds.map(|seconds| {
            let mut one = Latencies::default();
            one.record(Nanos::from_secs(seconds));
            one.histogram().max()
        });
        assert!(counted.is_sorted(), "{counted:?}");
        for (seconds, counted) in seconds.into_iter().zip(counted).take(11) {
            let exact = Nanos::from_secs(seconds).0 as f64;
            assert!((counted as f64 / exact - 1.0).abs() < 1e-3, "{seconds} s: {counted}");
        }
    }

    #[test]
    fn latencies_of_two_engines_merge_as_if_one_had_recorded_all() {
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
            assert!(merged.pages.len() <= PAGES_MAX, "memory is bounded");
        }
    }
}
