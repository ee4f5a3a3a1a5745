//! Attempts of a peer without access: guessed or revoked keys, pointers out of the region,
//! addresses that wrap around or are not aligned. Each is refused and changes nothing.

use std::cell::{Cell, RefCell};
use std::pin::pin;
use std::sync::Arc;

use super::tests::{encoded, execute, poll};
use super::*;
use crate::fabric::FabricError;
use crate::ids::{FreeListKey, RKey, Side};
use crate::memory::{Access, AccessError, Buffers, Compare, MaskedSwap, Region, RegionTable};
use crate::rng::{Purpose, Stream};
use crate::units::Bytes;

const SIZE: u64 = 256;
/// Bytes that no attempt may read or change.
const SECRET: u64 = 0x5ec2_e75e_c2e7_5ec2;

/// Regions of secrets, under keys drawn as a world draws them.
fn regions(count: usize) -> (RegionTable, Vec<(Arc<Region>, RKey)>) {
    let (regions, mut random) = (RegionTable::default(), Stream::new(7, Purpose::Protocol, 0));
    let mut register = || {
        let region = Arc::new(Region::new(Bytes(SIZE)));
        (0..SIZE / 8).for_each(|word| region.store(word * 8, SECRET).unwrap());
        let rkey =
            regions.register(region.clone(), Access::ReadWrite, Side::Nic, || random.bits() as u32);
        (region, rkey)
    };
    let found = (0..count).map(|_| register()).collect();
    (regions, found)
}

/// One of each kind of operation at `at`.
fn each_kind(at: u64) -> [Primitive<'static>; 4] {
    let target = Target::At(at);
    [
        Primitive::Read { from: target, len: 8 },
        Primitive::Write { to: target, data: Data::Inline(&[0; 8]) },
        Primitive::compare_swap(target, MaskedSwap::new(Compare::Greater, [0], [0])),
        Primitive::FetchAdd { target, amount: 1 },
    ]
}

/// An operation alone, conditional, and with its output redirected to the region, where it has one.
fn each_use(step: Step<'_>) -> impl Iterator<Item = Step<'_>> {
    let redirected = [step.redirected(64), step.redirected(64).conditional()];
    let has_output = !matches!(step.primitive, Primitive::Write { .. });
    let more = if has_output { &redirected[..] } else { &[] }.to_vec();
    [step, step.conditional()].into_iter().chain(more)
}

/// Executes one operation; its refusal, if it was refused.
fn refusal(regions: &RegionTable, step: Step<'_>) -> Option<FabricError> {
    let mut chain = Chain::default();
    chain.push(step);
    let results = execute(regions, &encoded(&chain)).unwrap();
    let results = ChainResults::parse(&results).unwrap();
    results.refused().map(|(_, error)| error)
}

fn untouched(region: &Region) -> bool {
    (0..SIZE / 8).all(|word| region.load(word * 8) == Ok(SECRET))
}

/// A million guesses, random ones and neighbours of keys that the attacker has, hit none of a
/// hundred regions.
#[test]
fn a_guessed_key_opens_nothing() {
    let (regions, found) = regions(100);
    let own = found[0].1;
    let mut random = Stream::new(8, Purpose::Protocol, 1);
    let mut denied = 0;
    for guess in 0..1_000_000_u32 {
        let rkey = match guess % 2 {
            0 => RKey(random.bits() as u32),
            // Keys of real cards are handed out one after the other.
            _ => RKey(own.0.wrapping_add(guess / 2 + 1)),
        };
        let hit = regions.find(rkey, guess % 4 < 2).is_ok();
        assert!(!hit, "{rkey:?} opens a region");
        denied += 1;
    }
    assert_eq!(denied, 1_000_000);
    for primitive in each_kind(0) {
        let denied = Some(FabricError::AccessDenied(AccessError::Denied { rkey: 1 }));
        assert_eq!(refusal(&regions, primitive.under(RKey(1))), denied);
    }
    assert!(found.iter().all(|(region, _)| untouched(region)));
}

#[test]
fn a_key_that_was_taken_back_opens_nothing_and_neither_does_its_free_list() {
    let (regions, found) = regions(1);
    let (region, rkey) = &found[0];
    let buffers = Buffers { rkey: *rkey, first: 128, size: 64, count: 2, in_use: 0 };
    let list = regions.register_buffers(buffers, || 99).unwrap();
    assert!(regions.revoke(*rkey) && !regions.revoke(*rkey));
    let denied = Some(FabricError::AccessDenied(AccessError::Denied { rkey: rkey.0 }));
    let allocate = Primitive::Allocate { list, data: &[0; 8] };
    let attempts = each_kind(0).into_iter().chain([allocate]);
    let steps = attempts.flat_map(|attempt| each_use(attempt.under(*rkey)));
    let refused = steps.inspect(|step| assert_eq!(refusal(&regions, *step), denied)).count();
    assert_eq!(refused, 18, "five kinds; a WRITE has no output to redirect");
    // The region's next key does not open its free list, which was another key's.
    let next = regions.register(region.clone(), Access::ReadWrite, Side::Nic, || 12);
    assert!(refusal(&regions, allocate.under(next)).is_some());
    assert!(untouched(region));
}

/// Memory that takes a key back at access `at`, the first half of a torn read included.
struct Revokes<'a> {
    regions: &'a RegionTable,
    region: &'a Region,
    rkey: RKey,
    at: usize,
    made: Cell<usize>,
    /// The region's words when the key was taken back.
    then: RefCell<Vec<u64>>,
}

impl Revokes<'_> {
    fn count(&self) {
        if self.made.get() == self.at {
            assert!(self.regions.revoke(self.rkey));
            self.then.replace(words_of(self.region));
        }
        self.made.set(self.made.get() + 1);
    }
}

impl ChainAccess for Revokes<'_> {
    const TEARS: bool = true;

    async fn access_first(&self, _: Side, _: u64, _: u64, _: u64) -> Result<(), FabricError> {
        self.count();
        Ok(())
    }

    async fn access(&self, _: Side, _: u64, _: Touch) -> Result<(), FabricError> {
        self.count();
        Ok(())
    }
}

fn words_of(region: &Region) -> Vec<u64> {
    (0..SIZE / 8).map(|word| region.load(word * 8).unwrap()).collect()
}

/// A key is taken back while an operation that has found its region waits for memory: at each of
/// its accesses. Nothing is read or written from then on.
#[test]
fn a_key_that_is_taken_back_during_an_operation_opens_nothing_from_then_on() {
    let to = Target::Indirect(0);
    let swap = MaskedSwap::of_words(Compare::Less, 4).unwrap();
    let (compare_at, swap_at) = (Some(128), Some(160));
    let kinds = [
        Primitive::Read { from: to, len: 128 },
        Primitive::Read { from: Target::Bounded(0), len: 128 },
        Primitive::Write { to, data: Data::Inline(&[1; 64]) },
        Primitive::Write { to, data: Data::From { at: 64, len: 64 } },
        Primitive::CompareSwap { target: to, swap, compare_at, swap_at },
        Primitive::FetchAdd { target: to, amount: 1 },
        Primitive::Allocate { list: FreeListKey(9), data: &[2; 8] },
    ];
    let mut refused = 0;
    for kind in kinds {
        for at in 0.. {
            let (regions, found) = regions(1);
            let (region, rkey) = (&found[0].0, found[0].1);
            // A pointer and its bound, and operands: what is there is less than the target.
            for (place, word) in [(0, 32), (8, 96), (128, 0), (160, 7)] {
                region.store(place, word).unwrap();
            }
            let buffers = Buffers { rkey, first: 192, size: 32, count: 2, in_use: 0 };
            regions.register_buffers(buffers, || 9).unwrap();
            let mut chain = Chain::default();
            let step = kind.under(rkey);
            let has_output = !matches!(kind, Primitive::Write { .. });
            chain.push(if has_output { step.redirected(64) } else { step });
            let (made, then) = (Cell::new(0), RefCell::default());
            let memory = Revokes { regions: &regions, region, rkey, at, made, then };
            let (body, mut results) = (encoded(&chain), Vec::new());
            assert!(poll(pin!(run(&body, &regions, &memory, &mut results))).is_ready());
            let outcome = ChainResults::parse(&results).unwrap().refused();
            if memory.made.get() <= at {
                assert_eq!(outcome, None, "{kind:?} has no such access, and nothing is refused");
                break;
            }
            let denied = FabricError::AccessDenied(AccessError::Denied { rkey: rkey.0 });
            assert_eq!(outcome, Some((0, denied)), "{kind:?} at access {at}");
            assert_eq!(words_of(region), memory.then.take(), "{kind:?} at access {at}");
            assert_eq!(memory.made.get(), at + 1, "{kind:?}: no access after the refusal");
            refused += 1;
        }
    }
    assert_eq!(refused, 23, "accesses of seven operations");
}

#[test]
fn a_pointer_leads_to_its_own_region_or_nowhere() {
    let (regions, found) = regions(2);
    let (own, rkey) = &found[0];
    let (_, other) = &found[1];
    let pointers =
        [SIZE, SIZE + 8, u64::from(other.0), u64::from(other.0) << 32, 1 << 63, u64::MAX - 7];
    let mut refused = 0;
    for pointer in pointers {
        own.store(0, pointer).unwrap();
        let (from, to) = (Target::Indirect(0), Target::Bounded(0));
        own.store(8, 8).unwrap();
        let attempts = [
            Primitive::Read { from, len: 8 },
            Primitive::Read { from: to, len: 8 },
            Primitive::Write { to: from, data: Data::Inline(&[0; 8]) },
            Primitive::Write { to, data: Data::Inline(&[0; 8]) },
            Primitive::Write { to: from, data: Data::From { at: 8, len: 8 } },
            Primitive::FetchAdd { target: from, amount: 1 },
            Primitive::compare_swap(from, MaskedSwap::new(Compare::Greater, [0], [0])),
        ];
        for attempt in attempts {
            for step in each_use(attempt.under(*rkey)) {
                assert!(refusal(&regions, step).is_some(), "{step:?} to {pointer:#x}");
                refused += 1;
            }
        }
    }
    assert_eq!(refused, pointers.len() * 22, "seven operations, of which four have an output");
    assert!(untouched(&found[1].0));
}

/// Addresses and lengths around every boundary, compared with arithmetic that does not wrap.
#[test]
fn no_address_wraps_around_and_none_is_crooked() {
    let (regions, found) = regions(1);
    let (region, rkey) = &found[0];
    let boundaries =
        [0, 8, SIZE - 8, SIZE, SIZE + 8, 1 << 32, 1 << 62, (1 << 63) + 64, u64::MAX - 7];
    let (mut refused, mut allowed) = (0, 0);
    for boundary in boundaries {
        for crooked in 0..8 {
            let at = boundary + crooked;
            for len in
                [1, 8, 16, SIZE as u32 - 8, SIZE as u32, SIZE as u32 + 8, u32::MAX - 7, u32::MAX]
            {
                let fits = u128::from(at) + u128::from(len) <= u128::from(SIZE) && crooked == 0;
                let read = Primitive::Read { from: Target::At(at), len }.under(*rkey);
                assert_eq!(refusal(&regions, read).is_none(), fits, "{len} bytes at {at:#x}");
                (refused, allowed) = (refused + u32::from(!fits), allowed + u32::from(fits));
            }
            // A compare-and-swap is as aligned as it is wide.
            for words in [1, 2, 4] {
                let swap = MaskedSwap::of_words(Compare::Greater, words).unwrap();
                let (size, at) = (8 * words as u64, boundary.wrapping_add(crooked));
                let fits =
                    at.is_multiple_of(size) && u128::from(at) + u128::from(size) <= SIZE.into();
                let step = Primitive::compare_swap(Target::At(at), swap).under(*rkey);
                assert_eq!(refusal(&regions, step).is_none(), fits, "{words} words at {at:#x}");
            }
        }
    }
    assert!(refused > 500 && allowed > 10, "{refused} {allowed}");
    assert!(untouched(region), "zero is greater than nothing");
}
