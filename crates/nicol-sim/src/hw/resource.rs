//! A resource that serves one thing after another.

use nicol_core::units::{BitsPerSec, Bytes, Nanos, Picos};

/// First come, first served; knows until when it is taken and for how long it was.
#[derive(Clone, Copy, Debug, Default)]
pub struct Resource {
    free_at: Picos,
    busy: Picos,
}

/// The time in which a resource serves something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    pub start: Picos,
    pub end: Picos,
}

impl Resource {
    /// Takes the resource for `span`, from `earliest` on or as soon as it is free.
    pub fn reserve(&mut self, earliest: Picos, span: Picos) -> Slot {
        let start = earliest.max(self.free_at);
        self.free_at = start + span;
        self.busy += span;
        Slot { start, end: self.free_at }
    }

    /// Something that comes first has taken `slot` of what this waits for: what is served after it
    /// began is served later by as much.
    pub fn yields_to(&mut self, slot: Slot) {
        if self.free_at > slot.start {
            self.free_at += Picos(slot.end.0 - slot.start.0);
        }
    }

    /// The time from which on it is free, as far as it is reserved now.
    pub const fn free_at(&self) -> Picos {
        self.free_at
    }

    /// The time that it was taken until `now`.
    pub const fn busy(&self, now: Picos) -> Picos {
        Picos(self.busy.0.saturating_sub(self.free_at.0.saturating_sub(now.0)))
    }
}

/// Whether frames that come from one resource before it have had a resource to themselves so far.
/// Then nothing can come between them, and each may take it as soon as it is known when the one
/// before passes it on.
#[derive(Clone, Copy, Debug, Default)]
pub struct Alone {
    /// The time at which the last of these frames leaves the resource free.
    free_at: Picos,
    /// Whether anything else has taken it.
    ended: bool,
}

impl Alone {
    /// Whether that still holds, asked before another frame takes `resource`.
    pub fn holds(&mut self, resource: &Resource) -> bool {
        self.ended |= resource.free_at() != self.free_at;
        !self.ended
    }

    /// One of these frames has just taken `resource`.
    pub const fn took(&mut self, resource: &Resource) {
        self.free_at = resource.free_at();
    }
}

/// A rate as time per byte, so that the hot path multiplies instead of dividing.
#[derive(Clone, Copy, Debug)]
pub struct PerByte {
    femtos: u64,
}

impl PerByte {
    /// The time of one byte at `rate`, rounded up to a femtosecond.
    pub const fn new(rate: BitsPerSec) -> Self {
        Self { femtos: (8_000_000_000_000_000u128).div_ceil(rate.0 as u128) as u64 }
    }

    /// The time of `size`.
    pub const fn of(self, size: Bytes) -> Picos {
        Picos(size.0 * self.femtos / 1_000)
    }
}

/// The instant `at` in the resolution of resources.
pub const fn picos(at: Nanos) -> Picos {
    Picos::from_nanos(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resource_serves_one_after_another() {
        let mut link = Resource::default();
        assert_eq!(link.reserve(Picos(10), Picos(5)), Slot { start: Picos(10), end: Picos(15) });
        assert_eq!(link.reserve(Picos(11), Picos(5)), Slot { start: Picos(15), end: Picos(20) });
        assert_eq!(link.reserve(Picos(90), Picos(1)).start, Picos(90));
        assert_eq!(link.busy(Picos(91)), Picos(11));
        assert_eq!(link.busy(Picos(90)), Picos(10), "the reserved future does not count");
    }

    #[test]
    fn frames_are_alone_until_something_else_comes_between() {
        let (mut lanes, mut alone) = (Resource::default(), Alone::default());
        for at in [10, 11, 90] {
            assert!(alone.holds(&lanes));
            lanes.reserve(Picos(at), Picos(5));
            alone.took(&lanes);
        }
        lanes.reserve(Picos(91), Picos(5));
        assert!(!alone.holds(&lanes));
        alone.took(&lanes);
        assert!(!alone.holds(&lanes), "it may come again");
    }

    #[test]
    fn a_byte_on_100_gbps_takes_80_ps() {
        let wire = PerByte::new(BitsPerSec::from_gbps(100));
        assert_eq!(wire.of(Bytes(1)), Picos(80));
        assert_eq!(wire.of(Bytes(1_538)), Picos(123_040));
    }
}
