//! Work on several items' memory at a time.

use std::thread;

use nicol_core::system::ParallelMap;

/// Records, all copies counted, from which on a node is worth a thread: some ten milliseconds of
/// loading. Shorter runs, of which a sweep has several beside each other, stay on their thread.
const RECORDS_PER_THREAD: u64 = 50_000;

/// Spreads a cluster of so many records, all copies counted, over threads as [`map`] does.
pub(crate) struct Threads(pub(crate) u64);

impl ParallelMap for Threads {
    fn map<I: Sync, T: Send>(&self, items: &[I], work: impl Fn(&I) -> T + Sync) -> Vec<T> {
        map(items, self.0, work)
    }
}

/// The results of `work` for each of `items`, in their order. It uses as many threads as the
/// machine has cores, if there are so many `records`.
///
/// # Panics
/// If `work` does.
pub(crate) fn map<I: Sync, T: Send>(
    items: &[I],
    records: u64,
    work: impl Fn(&I) -> T + Sync,
) -> Vec<T> {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    map_on(if records < RECORDS_PER_THREAD * items.len() as u64 { 1 } else { cores }, items, work)
}

fn map_on<I: Sync, T: Send>(threads: usize, items: &[I], work: impl Fn(&I) -> T + Sync) -> Vec<T> {
    if threads == 1 {
        return items.iter().map(work).collect();
    }
    // Nodes are alike, so each thread takes every `threads`th one.
    let work = &work;
    let share = |first: usize| items.iter().skip(first).step_by(threads).map(work);
    let mut shares = thread::scope(|scope| {
        let start = |first| scope.spawn(move || share(first).collect::<Vec<T>>());
        let running: Vec<_> = (0..threads.min(items.len())).map(start).collect();
        let ended = running.into_iter().map(|thread| match thread.join() {
            Ok(share) => share.into_iter(),
            Err(panic) => std::panic::resume_unwind(panic),
        });
        ended.collect::<Vec<_>>()
    });
    let count = shares.len();
    (0..items.len()).filter_map(|item| shares[item % count].next()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_item_is_worked_on_once_and_in_order() {
        for (threads, count) in [(1, 5), (4, 0), (4, 3), (4, 4), (4, 11)] {
            let items: Vec<u64> = (0..count).collect();
            let expected: Vec<u64> = items.iter().map(|item| item * 10).collect();
            assert_eq!(map_on(threads, &items, |item| item * 10), expected, "{threads} threads");
        }
    }

    #[test]
    fn a_panic_is_passed_on() {
        let broken = std::panic::catch_unwind(|| {
            map_on(2, &[1, 2, 3], |item| assert!(*item < 3, "the third one breaks"))
        });
        assert!(broken.is_err());
    }
}
