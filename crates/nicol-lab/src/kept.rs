//! The shards that a run has loaded, kept for later runs that load the same.

use std::any::Any;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use nicol_core::system::{SystemNode, TooSmall};

/// The shards of the last load. Runs that load the same get copies which share their pages until
/// they write there: the records are made once, and a run has memory of its own for what it
/// changes. What is loaded next takes their place. (decision 0113)
#[derive(Default)]
pub struct Kept(Mutex<Option<Box<dyn Any + Send>>>);

/// Loaded shards, and all that their content depends on.
struct Load<S> {
    of: String,
    shards: Vec<S>,
}

impl Kept {
    /// The shards of nodes `N` that are loaded by `load`, or copies of those that are kept if they
    /// are of the same. `of` says all that their content depends on.
    ///
    /// # Errors
    /// Those of `load`.
    pub(crate) fn shards<N: SystemNode>(
        &self,
        of: &str,
        load: impl FnOnce() -> Result<Vec<N::Shard>, TooSmall>,
    ) -> Result<Vec<N::Shard>, TooSmall> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let same = |load: &&Load<N::Shard>| load.of == of;
        let last = kept.as_ref().and_then(|kept| kept.downcast_ref::<Load<N::Shard>>());
        if let Some(copies) = last.filter(same).and_then(|load| copies::<N>(&load.shards)) {
            return Ok(copies);
        }
        // Its memory goes before the next takes any.
        *kept = None;
        let shards = load()?;
        let Some(copies) = copies::<N>(&shards) else { return Ok(shards) };
        *kept = Some(Box::new(Load { of: of.to_owned(), shards }));
        Ok(copies)
    }

    /// Gives their memory back, but for what runs still share.
    pub(crate) fn clear(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// Copies that share pages; `None` if the system of these nodes makes none.
fn copies<N: SystemNode>(shards: &[N::Shard]) -> Option<Vec<N::Shard>> {
    shards.iter().map(N::share).collect()
}

/// Says nothing of what is kept: results do not depend on it.
impl fmt::Debug for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Kept")
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use nicol_core::units::Nanos;

    use super::*;
    use crate::bench;
    use crate::config::{BenchConfig, Length};
    use crate::workloads::WorkloadSpec;

    #[test]
    fn runs_over_what_is_kept_are_those_that_load_themselves() {
        // Enough for tables of more than a megabyte: smaller ones share no pages.
        let workload = WorkloadSpec { records: Some(25_000), ..WorkloadSpec::named("smallbank") };
        for (system, on) in [("xenic", "liquidio3"), ("drtm-h", "connectx5")] {
            let kept = Arc::new(Kept::default());
            let run = |kept: Option<&Arc<Kept>>, clients| {
                let config = BenchConfig {
                    length: Some(Length::Time(Nanos::from_micros(80))),
                    clients: Some(clients),
                    kept: kept.cloned(),
                    ..BenchConfig::new(system, workload.clone(), on, 3)
                };
                let run = bench::run(&config).unwrap();
                assert!(run.report.check.violations.is_empty(), "{:?}", run.report.check);
                run.history
            };
            assert!(
                run(Some(&kept), 8) == run(None, 8),
                "{system}: the run that loads what it keeps"
            );
            assert!(kept.0.lock().unwrap().is_some());
            // What the first run has written is not there in the second.
            assert!(run(Some(&kept), 24) == run(None, 24), "{system}: over what is kept");
        }
    }
}
