//! What the commands of a transaction may read, write and answer.

use std::cell::Cell;

use nicol_core::txn::TXN_BYTES_MAX;

use super::Stop;
use crate::config::{LARGE_BYTES, LARGE_BYTES_MAX};

/// Bytes of packed values that the commands of a transaction may make one after the other: its
/// engine does nothing else for some 100 ms.
const COPIED_MAX: usize = 1 << 30;

/// Bytes of a transaction so far.
#[derive(Debug, Default)]
pub(super) struct Budget {
    /// Written and answered, against [`TXN_BYTES_MAX`].
    spent: Cell<usize>,
    /// The same of large values, against [`LARGE_BYTES_MAX`].
    on_large: Cell<usize>,
    /// Of packed values that its commands have made, against [`COPIED_MAX`].
    copied: Cell<usize>,
}

impl Budget {
    pub(super) fn spend(&self, bytes: usize) -> Result<(), Stop> {
        take(&self.spent, bytes, TXN_BYTES_MAX)
    }

    /// A value is read, written or answered: a large one counts by itself.
    pub(super) fn spend_on_value(&self, bytes: usize) -> Result<(), Stop> {
        match bytes > LARGE_BYTES {
            false => self.spend(bytes),
            true => take(&self.on_large, bytes, LARGE_BYTES_MAX),
        }
    }

    /// A packed value is made.
    pub(super) fn copy(&self, bytes: usize) -> Result<(), Stop> {
        take(&self.copied, bytes, COPIED_MAX)
    }
}

fn take(spent: &Cell<usize>, bytes: usize, max: usize) -> Result<(), Stop> {
    let sum = spent.get().saturating_add(bytes);
    if sum > max {
        return Err(Stop::Overflow);
    }
    spent.set(sum);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_values_leave_the_budget_of_all_others_whole() {
        let budget = Budget::default();
        for _ in 0..3 {
            assert!(budget.spend_on_value(64 << 20).is_ok());
        }
        assert!(budget.spend_on_value(LARGE_BYTES + 1).is_err());
        for _ in 0..4 {
            assert!(budget.spend_on_value(LARGE_BYTES).is_ok());
        }
        assert!(budget.spend(TXN_BYTES_MAX - 4 * LARGE_BYTES).is_ok());
        assert!(budget.spend(1).is_err() && budget.spend_on_value(1).is_err());
    }
}
