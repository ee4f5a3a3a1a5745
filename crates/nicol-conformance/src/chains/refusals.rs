//! A refused chain names the operation that was refused, and leaves memory as it was. [PRISM21 3.1]

use nicol_core::chain::{Data, Outcome, Primitive, Step, Target, scratch};
use nicol_core::fabric::{Fabric, FabricError};
use nicol_core::ids::FreeListKey;
use nicol_core::memory::{AccessError, Compare, MaskedSwap};

use super::{At, BUFFER, DONE, Ground, read, words, write};

/// The bytes of writes that should be refused.
const BYTES: [u8; 16] = [0xee; 16];
const LEN: u32 = 16;

/// A compare-and-swap that would replace nothing, were it not refused.
fn swap<const N: usize>(target: Target) -> Primitive<'static> {
    Primitive::compare_swap(target, MaskedSwap::new(Compare::Equal, [1; N], [1; N]))
}

fn add(at: u64) -> Primitive<'static> {
    Primitive::FetchAdd { target: Target::At(at), amount: 1 }
}

fn allocate(list: FreeListKey, data: &[u8]) -> Primitive<'_> {
    Primitive::Allocate { list, data }
}

const fn crooked(offset: u64) -> AccessError {
    AccessError::Misaligned { offset }
}

const fn beyond_scratch(offset: u64, len: u64) -> AccessError {
    AccessError::OutOfBounds { offset, len, size: 32 }
}

impl<F: Fabric> At<'_, F> {
    pub(super) async fn refusals(&self) {
        self.expect("WRITE", &[write(Target::At(self.base), &self.pointers())], &[DONE]).await;
        self.denials().await;
        self.places().await;
        self.pointed_to().await;
        self.operands().await;
        self.outputs().await;
        self.lists().await;
        self.expect("WRITE", &[write(Target::At(self.base), &[0; 32])], &[DONE]).await;
    }

    /// What lies at `base`: pointers out of the region, across its end, into the scratch, and one
    /// that is not aligned.
    fn pointers(&self) -> Vec<u8> {
        let size = self.ground.size;
        words([size, size - 8, scratch(0), self.base + 4])
    }

    fn outside(&self, offset: u64, len: u64) -> AccessError {
        AccessError::OutOfBounds { offset, len, size: self.ground.size }
    }

    /// Operations under the ground's key that are refused access.
    async fn refused<const N: usize>(&self, cases: [(Primitive<'_>, AccessError); N]) {
        for (primitive, error) in cases {
            let error = FabricError::AccessDenied(error);
            self.refused_step(primitive.under(self.ground.rkey), error).await;
        }
    }

    async fn refused_step(&self, step: Step<'_>, error: FabricError) {
        let (base, rkey) = (self.base, self.ground.rkey);
        let before = read(Target::At(base + 64), LEN).under(rkey);
        let after = read(Target::At(base), 32).under(rkey);
        let skipped = write(Target::At(base), &BYTES).under(rkey).conditional();
        let (zero, pointers) = (Outcome::Done(&[0; LEN as usize]), self.pointers());
        let refused = Outcome::Refused(error);
        let expected = [zero, refused, Outcome::Skipped, zero, Outcome::Done(&pointers)];
        let chain = [before, step, skipped, before, after];
        self.expect_steps(&format!("{step:?}"), &chain, &expected).await;
    }

    /// Keys that do not allow it, or not any more.
    async fn denials(&self) {
        let Ground { read_only, revoked, list, .. } = self.ground;
        let (base, place) = (self.base, Target::At(self.base));
        let get = read(place, LEN);
        for step in [
            write(place, &BYTES).under(read_only),
            write(place, &BYTES).under(revoked),
            get.under(revoked),
            get.under(read_only).redirected(base),
            add(base).under(read_only),
            swap::<2>(place).under(read_only),
            allocate(list, &BYTES).under(read_only),
            Primitive::Write { to: place, data: Data::From { at: base, len: LEN } }.under(revoked),
        ] {
            let error = AccessError::Denied { rkey: step.rkey.0 };
            self.refused_step(step, FabricError::AccessDenied(error)).await;
        }
    }

    /// Targets outside or not aligned.
    async fn places(&self) {
        let (base, size) = (self.base, self.ground.size);
        let (far, end) = (u64::MAX - 7, scratch(24));
        let at = Target::At;
        self.refused([
            (write(at(size), &BYTES), self.outside(size, 16)),
            (read(at(size - 8), LEN), self.outside(size - 8, 16)),
            (write(at(far), &BYTES), self.outside(far, 16)),
            (write(at(base + 4), &BYTES), crooked(base + 4)),
            (swap::<2>(at(base + 8)), crooked(base + 8)),
            (swap::<4>(at(base + 16)), crooked(base + 16)),
            (swap::<4>(at(scratch(0))), self.outside(scratch(0), 32)),
            (add(scratch(0)), self.outside(scratch(0), 8)),
            (add(base + 1), crooked(base + 1)),
            (read(at(end), LEN), beyond_scratch(end, 16)),
            (write(at(scratch(4)), &BYTES), crooked(scratch(4))),
        ])
        .await;
    }

    /// Pointers that lead out of the region of their rkey.
    async fn pointed_to(&self) {
        let (base, size) = (self.base, self.ground.size);
        let to = Target::Indirect;
        self.refused([
            (read(to(base), LEN), self.outside(size, 16)),
            (write(to(base), &BYTES), self.outside(size, 16)),
            (write(to(base + 8), &BYTES), self.outside(size - 8, 16)),
            (read(to(base + 16), LEN), self.outside(scratch(0), 0)),
            (write(to(base + 24), &BYTES), crooked(base + 4)),
            (swap::<1>(to(base)), self.outside(size, 8)),
            (swap::<1>(to(base + 24)), crooked(base + 4)),
            (Primitive::FetchAdd { target: to(base), amount: 1 }, self.outside(size, 8)),
            (read(to(size), LEN), self.outside(size, 8)),
            (read(Target::Bounded(size - 8), LEN), self.outside(size - 8, 16)),
        ])
        .await;
    }

    /// Operands that do not lie where they are said to.
    async fn operands(&self) {
        let (base, size) = (self.base, self.ground.size);
        let (last, end) = (size - 8, scratch(24));
        let to = Target::At(base);
        let from = |at| Primitive::Write { to, data: Data::From { at, len: LEN } };
        let wide = MaskedSwap::new(Compare::Equal, [0; 4], [1; 4]);
        let operand = |compare_at, swap_at| Primitive::CompareSwap {
            target: to,
            swap: wide,
            compare_at,
            swap_at,
        };
        self.refused([
            (from(last), self.outside(last, 16)),
            (from(end), beyond_scratch(end, 16)),
            (operand(None, Some(last)), self.outside(last, 32)),
            (operand(Some(end), None), beyond_scratch(end, 32)),
            (operand(Some(base + 4), Some(base + 4)), crooked(base + 4)),
        ])
        .await;
    }

    /// Outputs that are redirected to where they cannot go: the operation is not executed.
    async fn outputs(&self) {
        let (base, size, rkey) = (self.base, self.ground.size, self.ground.rkey);
        let (list, end) = (self.ground.list, scratch(24));
        let to = Target::At(base);
        for (primitive, output, error) in [
            (read(to, LEN), end, beyond_scratch(end, 16)),
            (read(to, LEN), size - 8, self.outside(size - 8, 16)),
            (add(base), size, self.outside(size, 8)),
            (swap::<4>(to), scratch(8), beyond_scratch(scratch(8), 32)),
            (allocate(list, &BYTES), base + 1, crooked(base + 1)),
        ] {
            let step = primitive.under(rkey).redirected(output);
            self.refused_step(step, FabricError::AccessDenied(error)).await;
        }
    }

    /// Free lists that are none, that hold smaller buffers, or no buffer (receiver not ready).
    async fn lists(&self) {
        let Ground { list, empty, rkey, .. } = self.ground;
        let (offset, size) = (0, BUFFER);
        let large = [1; BUFFER as usize + 1];
        let too_large = AccessError::OutOfBounds { offset, len: BUFFER + 1, size };
        self.refused([
            (allocate(FreeListKey(0), &BYTES), AccessError::Denied { rkey: 0 }),
            (allocate(list, &large), too_large),
        ])
        .await;
        self.refused_step(allocate(empty, &BYTES).under(rkey), FabricError::NoResources).await;
    }
}
