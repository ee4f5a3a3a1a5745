//! Points of an experiment on several threads, no more at a time than cores and memory allow.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::thread;

use anyhow::{Result, anyhow, ensure};

use nicol_bench::memory;

/// The progress of an experiment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    pub done: usize,
    pub running: usize,
}

/// Admits points: at most so many at a time, needing at most so much memory together.
pub(crate) struct Pool<'a> {
    jobs: usize,
    memory: u64,
    state: Mutex<State>,
    changed: Condvar,
    progress: &'a (dyn Fn(Progress) + Sync),
}

#[derive(Default)]
struct State {
    progress: Progress,
    memory: u64,
    /// A point failed: what has not begun is left out.
    failed: bool,
}

/// The error of a point that was left out; no run ends with it.
#[derive(Debug, thiserror::Error)]
#[error("left out, since another point failed")]
struct LeftOut;

impl<'a> Pool<'a> {
    pub(crate) fn new(jobs: usize, memory: u64, progress: &'a (dyn Fn(Progress) + Sync)) -> Self {
        Self { jobs, memory, state: Mutex::default(), changed: Condvar::new(), progress }
    }

    /// Points measured so far.
    pub(crate) fn points(&self) -> usize {
        self.state().progress.done
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poison| poison.into_inner())
    }

    /// Measures a point that needs `memory` bytes, once there is space for it.
    ///
    /// Errors: what `work` says; a point that needs more memory than there is.
    pub(crate) fn run<R>(&self, memory: u64, work: impl FnOnce() -> Result<R>) -> Result<R> {
        let mib = |bytes: u64| bytes.div_ceil(1 << 20);
        ensure!(
            memory <= self.memory,
            "a point needs about {} MiB of memory and {} MiB are free: use `quick`, or a larger \
             machine",
            mib(memory),
            mib(self.memory)
        );
        let room = |state: &mut State| {
            !state.failed
                && (state.progress.running == self.jobs || state.memory + memory > self.memory)
        };
        let mut state = self
            .changed
            .wait_while(self.state(), room)
            .unwrap_or_else(|poison| poison.into_inner());
        if state.failed {
            return Err(LeftOut.into());
        }
        state.progress.running += 1;
        state.memory += memory;
        (self.progress)(state.progress);
        drop(state);
        let done = Admitted { pool: self, memory };
        let found = work();
        if found.is_err() {
            self.state().failed = true;
        }
        drop(done);
        found
    }

    /// Does `work` for every item at once, each on a thread of its own that measures its points
    /// with [`Pool::run`]. Results are in the order of the items.
    ///
    /// Errors: that of the first item that was not merely left out.
    pub(crate) fn map<T: Sync, R: Send>(
        &self,
        items: &[T],
        work: impl Fn(&T) -> Result<R> + Sync,
    ) -> Result<Vec<R>> {
        self.map_few(items.len(), items, work)
    }

    /// The same for so many items at a time, in their order: for those that hold memory between
    /// their points.
    pub(crate) fn map_few<T: Sync, R: Send>(
        &self,
        at_a_time: usize,
        items: &[T],
        work: impl Fn(&T) -> Result<R> + Sync,
    ) -> Result<Vec<R>> {
        let next = AtomicUsize::new(0);
        let share = || {
            let mut done = Vec::new();
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let Some(item) = items.get(number) else { return done };
                done.push((number, work(item)));
            }
        };
        let mut found: Vec<(usize, Result<R>)> = thread::scope(|scope| {
            let threads: Vec<_> =
                (0..at_a_time.min(items.len())).map(|_| scope.spawn(share)).collect();
            let joined = threads.into_iter().map(|thread| match thread.join() {
                Ok(found) => found,
                Err(panic) => std::panic::resume_unwind(panic),
            });
            joined.flatten().collect()
        });
        found.sort_unstable_by_key(|(number, _)| *number);
        let mut results = Vec::with_capacity(found.len());
        let mut left_out = false;
        for (_, one) in found {
            match one {
                Ok(result) => results.push(result),
                Err(error) if error.is::<LeftOut>() => left_out = true,
                Err(error) => return Err(error),
            }
        }
        if left_out { Err(anyhow!(LeftOut)) } else { Ok(results) }
    }
}

/// A point under way; it ends when this is dropped, also by a panic.
struct Admitted<'p, 'a> {
    pool: &'p Pool<'a>,
    memory: u64,
}

impl Drop for Admitted<'_, '_> {
    fn drop(&mut self) {
        let mut state = self.pool.state();
        state.progress.running -= 1;
        state.progress.done += 1;
        state.memory -= self.memory;
        state.failed |= thread::panicking();
        (self.pool.progress)(state.progress);
        self.pool.changed.notify_all();
    }
}

/// Bytes that the machine could give to points, less an eighth for everything else; all there could
/// ever be where the system does not say.
pub fn memory_available() -> u64 {
    memory::available().map_or(u64::MAX, |bytes| bytes / 8 * 7)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quiet(_: Progress) {}

    #[test]
    fn results_keep_the_order_of_the_items_whatever_the_jobs() {
        let items: Vec<u64> = (0..20).collect();
        for jobs in [1, 3, 8] {
            let pool = Pool::new(jobs, u64::MAX, &quiet);
            let square = |item: &u64| pool.run(1, || Ok(item * item));
            let squares: Vec<_> = items.iter().map(|item| item * item).collect();
            assert_eq!(pool.map(&items, square).unwrap(), squares);
            assert_eq!(pool.map_few(2, &items, square).unwrap(), squares);
            assert_eq!(pool.points(), 2 * items.len());
        }
    }

    #[test]
    fn no_more_run_than_jobs_and_memory_allow() {
        for (jobs, memory, most) in [(3, u64::MAX, 3), (8, 25, 2)] {
            let (running, highest) = (AtomicUsize::new(0), AtomicUsize::new(0));
            let pool = Pool::new(jobs, memory, &quiet);
            let point = |_: &u32| {
                pool.run(10, || {
                    let now = running.fetch_add(1, Ordering::SeqCst) + 1;
                    highest.fetch_max(now, Ordering::SeqCst);
                    thread::yield_now();
                    running.fetch_sub(1, Ordering::SeqCst);
                    Ok(())
                })
            };
            pool.map(&[0; 40], point).unwrap();
            assert!(highest.load(Ordering::SeqCst) <= most);
        }
    }

    #[test]
    fn few_items_are_begun_at_a_time() {
        let (begun, highest) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let pool = Pool::new(8, u64::MAX, &quiet);
        let work = |_: &u32| {
            highest.fetch_max(begun.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            let done = pool.run(1, || {
                thread::yield_now();
                Ok(())
            });
            begun.fetch_sub(1, Ordering::SeqCst);
            done
        };
        pool.map_few(2, &[0; 40], work).unwrap();
        assert!(highest.load(Ordering::SeqCst) <= 2);
    }

    #[test]
    fn the_first_error_is_reported_and_ends_the_rest() {
        let pool = Pool::new(1, 100, &quiet);
        let items: Vec<u64> = (0..50).collect();
        let error = pool
            .map(&items, |&item| {
                pool.run(1, || if item < 50 { Err(anyhow!("broken")) } else { Ok(()) })
            })
            .unwrap_err();
        assert_eq!(error.to_string(), "broken");
        assert_eq!(pool.points(), 1);
    }

    #[test]
    fn a_point_that_no_memory_holds_is_refused() {
        let pool = Pool::new(1, 1 << 20, &quiet);
        let error = pool.run(3 << 20, || Ok(())).unwrap_err().to_string();
        assert!(error.contains("needs about 3 MiB of memory and 1 MiB are free"), "{error}");
    }
}
