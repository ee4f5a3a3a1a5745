//! Where a transaction's steps await the access points at which other cores come in between, and
//! whoever holds a record.
//!
//! A step of a protocol is a plain function of one record: it looks once and awaits nothing. What
//! takes it over the records of a set is here, for every protocol and both worlds. In the simulator
//! a point stands before each record. Live, where a point is nothing, the records are one loop
//! without an await, so that what it needs lies in registers: what is alive across an await lies in
//! the task's memory (decision 0065).
//!
//! Steps are `#[inline(always)]`: each is called from that loop and from where it is repeated, and
//! would be a call in both, which takes some 25 instructions for each record.

use std::hint::spin_loop;

use nicol_core::fabric::Fabric;
use nicol_core::txn::Abort;
use nicol_core::units::Nanos;

use super::halt::{Halt, unless_busy};
use super::worker::{Protocol, Worker};

/// Looks at a record between which a waiting transaction lets others of its core run.
const YIELD_EVERY: u32 = 8;

impl<F: Fabric, P: Protocol> Worker<F, P> {
    /// Takes `step` for each of `records`, in their order; it is handed what the one before has
    /// returned, the first one `start`. Returns what the last one has returned.
    ///
    /// # Errors
    /// A step ended the transaction, or somebody held a record for too long.
    pub(super) async fn each<T: Copy, D: Copy>(
        &self,
        mut records: impl Iterator<Item = T> + Clone,
        start: D,
        step: impl Fn(D, T) -> Result<D, Halt> + Copy,
    ) -> Result<D, Abort> {
        let mut done = start;
        while let Some(record) = self.advance(&mut records, &mut done, step)? {
            self.fabric.access().await;
            done = self.repeat(async || step(done, record)).await?;
        }
        Ok(done)
    }

    /// Takes `step` for each of `records`, where nobody else can be in the way.
    pub(super) async fn each_held<T>(&self, records: impl Iterator<Item = T>, step: impl Fn(T)) {
        if !F::ACCESS_POINTS {
            return records.for_each(step);
        }
        for record in records {
            self.fabric.access().await;
            step(record);
        }
    }

    /// The same in two steps for each of them: who looks in between sees the first alone.
    pub(super) async fn each_held_in_two<T: Copy>(
        &self,
        records: impl Iterator<Item = T>,
        first: impl Fn(T),
        second: impl Fn(T),
    ) {
        if !F::ACCESS_POINTS {
            return records.for_each(|record| {
                first(record);
                second(record);
            });
        }
        for record in records {
            self.fabric.access().await;
            first(record);
            self.fabric.access().await;
            second(record);
        }
    }

    /// Takes steps up to a record before which they must stop: in the simulator the next one, live
    /// one that somebody holds.
    #[inline(always)]
    fn advance<T: Copy, D: Copy>(
        &self,
        records: &mut (impl Iterator<Item = T> + Clone),
        done: &mut D,
        step: impl Fn(D, T) -> Result<D, Halt>,
    ) -> Result<Option<T>, Abort> {
        if F::ACCESS_POINTS {
            return Ok(records.next());
        }
        // Copies that are no part of the task, so that they need no memory.
        let (mut left, mut before) = (records.clone(), *done);
        let mut stop = None;
        for record in left.by_ref() {
            match unless_busy(step(before, record))? {
                Some(after) => before = after,
                None => {
                    stop = Some(record);
                    break;
                }
            }
        }
        (*records, *done) = (left, before);
        Ok(stop)
    }

    /// Looks at a record until nobody holds it, as often as the protocol lets it.
    pub(super) async fn repeat<T>(
        &self,
        mut look: impl AsyncFnMut() -> Result<T, Halt>,
    ) -> Result<T, Abort> {
        let (mut looks, mut patient_since) = (0, None);
        loop {
            match look().await {
                Ok(seen) => return Ok(seen),
                Err(Halt::Abort(abort)) => return Err(abort),
                Err(Halt::Busy(key)) => {
                    looks += 1;
                    self.pause(looks).await;
                    if looks >= P::looks_most(self) && !self.is_patient(&mut patient_since) {
                        return Err(P::give_up(self, key));
                    }
                }
            }
        }
    }

    /// Does a transaction wait on that has looked as often as it may? `since`: when that was so
    /// first.
    #[cold]
    fn is_patient(&self, since: &mut Option<Nanos>) -> bool {
        let patience = P::patience(self);
        let now = self.fabric.now();
        patience > Nanos::ZERO && now < *since.get_or_insert(now) + patience
    }

    /// Lets time pass for a transaction that has looked `looks` times at what somebody holds.
    async fn pause(&self, looks: u32) {
        self.fabric.access().await;
        spin_loop();
        if looks.is_multiple_of(YIELD_EVERY) {
            // The holder may be a transaction of this core.
            self.fabric.yield_now().await;
        }
    }
}
