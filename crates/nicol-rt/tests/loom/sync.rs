//! Loom's atomics, locks and threads, in the form in which the structures take the standard
//! library's.

pub(crate) use std::sync::PoisonError;

pub(crate) use loom::sync::{Mutex, MutexGuard};
pub(crate) use loom::thread;

/// A cell that is set once. Loom sees the step by which what was set becomes visible.
#[derive(Debug)]
pub(crate) struct OnceLock<T> {
    value: std::sync::OnceLock<T>,
    is_set: loom::sync::atomic::AtomicBool,
}

impl<T> Default for OnceLock<T> {
    fn default() -> Self {
        let is_set = loom::sync::atomic::AtomicBool::new(false);
        Self { value: std::sync::OnceLock::new(), is_set }
    }
}

impl<T> OnceLock<T> {
    pub(crate) fn get(&self) -> Option<&T> {
        self.is_set.load(atomic::Ordering::Acquire).then(|| self.value.get())?
    }

    pub(crate) fn set(&self, value: T) -> Result<(), T> {
        self.value.set(value)?;
        self.is_set.store(true, atomic::Ordering::Release);
        Ok(())
    }
}

/// Atomics whose sequentially consistent accesses are as strong as they are.
///
/// Loom takes such an access for an acquire or a release, under which a thread that writes one
/// variable and then reads another may read what was there before, though a second thread does the
/// reverse. The standard forbids that if all four accesses are sequentially consistent. Loom knows
/// it of fences, so one stands between such a write and the next such read of a thread. An access
/// that is weaker sets up no fence: what relies on it wrongly is found, unless such a write follows
/// it before the read. (A doorbell's flags, which are raised before the parker's, are such a case.)
pub(crate) mod atomic {
    use std::cell::Cell;

    use loom::sync::atomic::fence;
    pub(crate) use std::sync::atomic::Ordering;

    loom::thread_local! {
        /// Has the thread made such a write, and no such read since?
        static HAS_WRITTEN: Cell<bool> = Cell::new(false);
    }

    fn writes(order: Ordering) {
        if order == Ordering::SeqCst {
            HAS_WRITTEN.with(|has_written| has_written.set(true));
        }
    }

    fn reads(order: Ordering) {
        if order == Ordering::SeqCst && HAS_WRITTEN.with(|has_written| has_written.replace(false)) {
            fence(Ordering::SeqCst);
        }
    }

    /// The operations that the structures use.
    macro_rules! atomic {
        ($name:ident of $value:ty, $($change:ident),*) => {
            #[derive(Debug, Default)]
            pub(crate) struct $name(loom::sync::atomic::$name);

            impl $name {
                pub(crate) fn new(value: $value) -> Self {
                    Self(loom::sync::atomic::$name::new(value))
                }

                pub(crate) fn load(&self, order: Ordering) -> $value {
                    reads(order);
                    self.0.load(order)
                }

                pub(crate) fn store(&self, value: $value, order: Ordering) {
                    self.0.store(value, order);
                    writes(order);
                }

                pub(crate) fn compare_exchange(
                    &self,
                    from: $value,
                    to: $value,
                    taken: Ordering,
                    left: Ordering,
                ) -> Result<$value, $value> {
                    reads(taken);
                    let changed = self.0.compare_exchange(from, to, taken, left);
                    changed.inspect(|_| writes(taken))
                }

                $(pub(crate) fn $change(&self, value: $value, order: Ordering) -> $value {
                    reads(order);
                    let before = self.0.$change(value, order);
                    writes(order);
                    before
                })*
            }
        };
    }

    atomic!(AtomicBool of bool,);
    atomic!(AtomicU8 of u8, fetch_or);
    atomic!(AtomicU64 of u64, swap, fetch_or, fetch_add);
}
