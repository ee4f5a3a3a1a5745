//! Engines that are slow: a core that shares its silicon, is throttled, or swaps.

use serde::{Deserialize, Serialize};

use super::{FAULTY_SPAN, FaultPlan};
use crate::rng::Stream;
use crate::units::Nanos;

/// An engine that takes several times as long as it should. Of every stretch of time it may begin a
/// round in a first part only; what it has begun it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Slow {
    /// The engine's position in the view, modulo their number.
    pub engine: u32,
    #[serde(rename = "from_ns")]
    pub from: Nanos,
    #[serde(rename = "span_ns")]
    pub span: Nanos,
    /// How many times as long it takes: 2 to 1,000.
    pub factor: u32,
}

/// The part of a stretch of time in which a slow engine works: about a round.
const WORKS: Nanos = Nanos(2_000);
/// The least and the most that a slow engine is slowed down by.
const FACTORS: (u32, u32) = (2, 1_000);
/// The most that a plan draws.
const DRAWN_MAX: u64 = 100;

impl Slow {
    /// Refuses a factor that slows nothing down, or so far that a run looks stuck.
    ///
    /// # Errors
    /// The factor, and the remedy.
    pub(super) fn ensure_possible(&self) -> Result<(), String> {
        let (least, most) = FACTORS;
        let factor = self.factor;
        if (least..=most).contains(&factor) {
            return Ok(());
        }
        Err(format!("a slow engine with factor = {factor}: give {least} to {most}"))
    }

    /// Until when the engine rests, if it does at `now`. No plan slows anything down from `quiet`
    /// on.
    pub(super) fn rests_until(&self, now: Nanos, quiet: Nanos) -> Option<Nanos> {
        let until = self.from.saturating_add(self.span).min(quiet);
        if !(self.from..until).contains(&now) {
            return None;
        }
        let stretch = WORKS.0 * u64::from(self.factor);
        let into = now.since(self.from).0 % stretch;
        (into >= WORKS.0).then(|| (now + Nanos(stretch - into)).min(until))
    }
}

impl FaultPlan {
    /// Draws one to three engines that are slow by 2 to 100, the less the likelier, for 1 to 20 ms.
    pub(super) fn add_slow(&mut self, rng: &mut Stream) {
        for _ in 0..1 + rng.below(3) {
            let engine = rng.bits() as u32;
            let from = Nanos(rng.below(FAULTY_SPAN.0 / 10));
            let least = FAULTY_SPAN.0 / 20;
            let span = Nanos(least + rng.below(FAULTY_SPAN.0 - least));
            let halvings = rng.below(6);
            let more = 1 + rng.below((DRAWN_MAX - 1) >> halvings) as u32;
            self.slow.push(Slow { engine, from, span, factor: 1 + more });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_engine_works_in_one_part_of_its_time() {
        let slow = Slow { engine: 0, from: Nanos(1_000), span: Nanos(1_000_000), factor: 10 };
        let rests = |at: u64| slow.rests_until(Nanos(at), Nanos::MAX);
        let works = (1_000..1_001_000).filter(|at| rests(*at).is_none()).count();
        assert_eq!(works, 100_000, "a tenth of a millisecond's nanoseconds");
        assert_eq!(rests(999), None);
        assert_eq!(rests(3_000), Some(Nanos(21_000)));
        assert_eq!(rests(1_000_999), Some(Nanos(1_001_000)), "no longer than it is slow");
        assert_eq!(rests(1_001_000), None);
        assert_eq!(slow.rests_until(Nanos(3_000), Nanos(3_000)), None, "all is quiet");
        assert_eq!(slow.rests_until(Nanos(3_000), Nanos(9_000)), Some(Nanos(9_000)));
    }

    #[test]
    fn factors_are_drawn_on_every_scale_and_others_are_refused() {
        let mut plan = FaultPlan::none();
        let mut rng = Stream::new(1, crate::rng::Purpose::Test, 0);
        (0..200).for_each(|_| plan.add_slow(&mut rng));
        assert_eq!(plan.ensure_possible(), Ok(()));
        let count = |from, to| plan.slow.iter().filter(|s| (from..to).contains(&s.factor)).count();
        assert!(count(2, 5) > 50 && count(5, 20) > 50 && count(20, 101) > 50);
        assert_eq!(count(2, 101), plan.slow.len());
        plan.slow[0].factor = 1;
        let refused = plan.ensure_possible().unwrap_err();
        assert!(refused.contains("factor = 1:"), "{refused}");
    }
}
