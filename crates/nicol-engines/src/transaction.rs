//! An open transaction of any engine.

use std::rc::Rc;

use nicol_core::fabric::{Fabric, Work};
use nicol_core::ids::{Key, TxnId, Version};
use nicol_core::interactive::{Interactive, Seen};
use nicol_core::txn::{Abort, Entry, KeyRange, Txn};
use nicol_store::multicore::Place;

use super::broken;
use super::halt::unless_busy;
use super::log::Committed;
use super::sets::Sets;
use super::worker::{Protocol, Worker};

/// The result of a search for a record.
enum Sought {
    At(Place),
    /// None, and none was made: a snapshot sees this.
    Absent(Seen),
}

/// An open transaction. It must be ended by [`Transaction::commit`] or [`Transaction::abort`].
#[must_use = "commit or abort it"]
pub struct Transaction<F: Fabric, P: Protocol> {
    worker: Rc<Worker<F, P>>,
    pub id: TxnId,
    /// Boxed, since a transaction is moved several times.
    sets: Box<Sets>,
}

impl<F: Fabric, P: Protocol> Transaction<F, P> {
    /// Begins one; one with a timestamp has `age`, if it was tried before. `since`: it will only
    /// read, and its client has seen what was written up to this timestamp.
    pub(super) async fn begin(
        worker: &Rc<Worker<F, P>>,
        age: Option<u64>,
        mut since: Option<u64>,
    ) -> Self {
        worker.fabric.work(Work::TxnSetup);
        let (id, mut sets) = worker.begin().await;
        sets.timestamp = age.unwrap_or_default();
        broken::before_begin(worker.hooks, &mut since);
        P::begin(worker, &mut sets, since);
        if let Some(stall) = worker.stall() {
            stall.await;
        }
        Self { worker: Rc::clone(worker), id, sets }
    }

    /// Its age, for another attempt at it.
    pub(super) const fn age(&self) -> u64 {
        self.sets.timestamp
    }

    /// When the latest was written of what its client has seen once it commits, in an engine with
    /// several versions.
    pub(super) fn latest(&self) -> u64 {
        if self.sets.writes.is_empty() { self.sets.latest } else { self.sets.timestamp }
    }

    /// Commits it, in memory: whoever answers waits until it is durable.
    ///
    /// # Errors
    /// It has not committed, and holds nothing any more.
    pub async fn commit(mut self) -> Result<Committed, Abort> {
        if let Some(stall) = self.worker.stall() {
            stall.await;
        }
        broken::before_commit(self.worker.hooks, &mut self.sets);
        let committed = P::commit(&self.worker, &mut self.sets).await;
        if committed.is_err() {
            self.let_go();
        }
        let logged = self.worker.gather(self.id, &mut self.sets, committed.is_ok());
        self.worker.end(self.sets);
        committed.map(|()| logged)
    }

    /// Ends it without writing. Its reads are validated as in a commit, so that a refusal never
    /// rests on values that were not valid together.
    ///
    /// # Errors
    /// They were not valid: the transaction must be tried again.
    pub async fn refuse(mut self) -> Result<Committed, Abort> {
        self.sets.writes.clear();
        self.commit().await
    }

    /// Ends it after an error.
    pub fn abort(mut self) {
        self.let_go();
        self.worker.end(self.sets);
    }

    fn let_go(&mut self) {
        broken::before_abort(self.worker.hooks, &mut self.sets);
        P::abort(&self.worker, &mut self.sets);
    }

    /// Reads `key` to the end of `value`, which gets nothing of an absent record; its own writes
    /// included.
    ///
    /// # Errors
    /// Of the protocol: the transaction must abort.
    pub(super) async fn read_onto(
        &mut self,
        key: Key,
        for_update: bool,
        value: &mut Vec<u8>,
    ) -> Result<Seen, Abort> {
        if let Some(index) = self.sets.written(key) {
            let own = self.sets.value(&self.sets.writes[index]);
            value.extend_from_slice(own.unwrap_or_default());
            return Ok(Seen { present: own.is_some(), version: Version(0) });
        }
        let place = match self.locate(key, None)? {
            Sought::At(place) => place,
            Sought::Absent(seen) => return Ok(seen),
        };
        match self.read_at_once((key, place), for_update, value)? {
            Some(seen) => Ok(seen),
            None => self.read_at_point((key, place), for_update, value).await,
        }
    }

    /// Reads what the entries of `txn` from the one at `from` on ask for, up to one at which others
    /// may come in between: returns that. What it needs lies in registers, since it awaits nothing.
    pub(super) fn fetch_at_once(
        &mut self,
        txn: &mut Txn,
        from: usize,
    ) -> Result<Option<usize>, Abort> {
        let unread = |entries: &[Entry]| entries.iter().position(|entry| !entry.fetched);
        let Some(first) = unread(&txn.entries()[from..]).map(|first| from + first) else {
            return Ok(None);
        };
        if F::ACCESS_POINTS || self.worker.stalls || !self.sets.writes.is_empty() {
            return Ok(Some(first));
        }
        self.find_ordered(&txn.entries()[first..]);
        let mut ordered = 0;
        for index in first..txn.entries().len() {
            let Entry { key, write, fetched, .. } = txn.entries()[index];
            if fetched {
                continue;
            }
            let found = key.is_ordered().then(|| {
                ordered += 1;
                self.sets.found[ordered - 1].1
            });
            let place = match self.locate(key, found)? {
                Sought::At(place) => place,
                Sought::Absent(seen) => {
                    txn.fetched_at(index, seen.version, None);
                    continue;
                }
            };
            let start = txn.values().len();
            let Some(seen) = self.read_at_once((key, place), write, txn.values())? else {
                return Ok(Some(index));
            };
            let read = start..txn.values().len();
            txn.fetched_at(index, seen.version, seen.present.then_some(read));
        }
        Ok(None)
    }

    /// Where the record of `key` stands. If there is none, it is made, but not for a snapshot.
    /// `found` is what a look for it has found already.
    #[inline]
    fn locate(&mut self, key: Key, found: Option<Place>) -> Result<Sought, Abort> {
        let Self { worker, sets, .. } = self;
        if found.is_none() {
            worker.fabric.work(Work::TableLookup);
        }
        let found = found.or_else(|| worker.find(key)).filter(|place| place.is_some());
        match found {
            Some(place) => Ok(Sought::At(place)),
            None if sets.is_snapshot => Ok(match worker.find_past(key) {
                Ok(place) => Sought::At(place),
                Err(seen) => Sought::Absent(seen),
            }),
            None => Ok(Sought::At(worker.make(sets, key)?)),
        }
    }

    /// Finds the records of ordered tables that are to be read, all before the first one is, so
    /// that their cache misses overlap.
    fn find_ordered(&mut self, entries: &[Entry]) {
        let Self { worker, sets, .. } = self;
        sets.found.clear();
        for Entry { key, .. } in entries.iter().filter(|entry| !entry.fetched) {
            if key.is_ordered() {
                sets.found.push((*key, worker.find(*key).unwrap_or_default()));
            }
        }
        worker.store().prefetch_at(sets.found.iter().copied(), &P::BEYOND);
    }

    /// Writes what `txn` wants to write, from the entry at `from` on, up to one at which others may
    /// come in between: returns that. There is one write a key, which the transaction has not
    /// written before.
    pub(super) fn put_at_once(&mut self, txn: &Txn, from: usize) -> Result<Option<usize>, Abort> {
        for index in from..txn.entries().len() {
            let Some(write) = txn.update(index) else { continue };
            let Some(place) = self.sets.place_of(write.key) else { return Ok(Some(index)) };
            if self.worker.stalls || !P::writes_at_once(&self.worker, &self.sets, place) {
                return Ok(Some(index));
            }
            self.will_copy(place, write.value)?;
            self.sets.write(place, write.key, write.value);
        }
        Ok(None)
    }

    /// Reads a record without awaiting anything, if that can be.
    #[inline(always)]
    fn read_at_once(
        &mut self,
        at: (Key, Place),
        for_update: bool,
        value: &mut Vec<u8>,
    ) -> Result<Option<Seen>, Abort> {
        let Self { worker, sets, .. } = self;
        if F::ACCESS_POINTS || worker.stalls {
            return Ok(None);
        }
        let Some(found) = unless_busy(P::find(worker, sets, at, for_update))? else {
            return Ok(None);
        };
        let before = value.len();
        let seen = unless_busy(P::copy(worker, sets, at, found, value))?;
        if !seen.is_some_and(|seen| seen.present) {
            value.truncate(before);
        }
        Ok(seen)
    }

    /// Reads a record once others have come in between, and nobody holds it.
    async fn read_at_point(
        &mut self,
        at: (Key, Place),
        for_update: bool,
        value: &mut Vec<u8>,
    ) -> Result<Seen, Abort> {
        let Self { worker, sets, .. } = self;
        if let Some(stall) = worker.stall() {
            stall.await;
        }
        worker.fabric.access().await;
        let before = value.len();
        let look = async || {
            let found = P::find(worker, sets, at, for_update)?;
            if let Some(point) = P::before_copy(&worker.fabric) {
                point.await;
            }
            value.truncate(before);
            P::copy(worker, sets, at, found, value)
        };
        let seen = worker.repeat(look).await;
        if !seen.is_ok_and(|seen| seen.present) {
            value.truncate(before);
        }
        seen
    }

    async fn put(&mut self, key: Key, value: Option<&[u8]>) -> Result<(), Abort> {
        let Some(index) = self.sets.written(key) else {
            return self.put_first(key, value).await;
        };
        self.will_copy(self.sets.writes[index].place, value)?;
        self.sets.overwrite(index, value);
        Ok(())
    }

    /// Writes `value` to `key`, or deletes it; the transaction has not written it before.
    ///
    /// # Errors
    /// Of the protocol, or [`Abort::NoResources`] if the table has no space for it.
    pub(super) async fn put_first(&mut self, key: Key, value: Option<&[u8]>) -> Result<(), Abort> {
        let place = match self.sets.place_of(key) {
            Some(place) => place,
            None => self.worker.locate(&mut self.sets, key)?,
        };
        if let Some(stall) = self.worker.stall() {
            stall.await;
        }
        if !P::writes_at_once(&self.worker, &self.sets, place) {
            P::will_write(&self.worker, &mut self.sets, (key, place)).await?;
        }
        self.will_copy(place, value)?;
        self.sets.write(place, key, value);
        Ok(())
    }

    /// Does `value` fit the record at `place`?
    fn will_copy(&self, place: Place, value: Option<&[u8]>) -> Result<(), Abort> {
        let bytes = value.map_or(0, <[u8]>::len);
        if bytes > self.worker.store().record(place).capacity() {
            return Err(Abort::NoResources);
        }
        self.worker.fabric.work(Work::Copy { bytes: bytes as u32 });
        Ok(())
    }
}

impl<F: Fabric, P: Protocol> Interactive for Transaction<F, P> {
    fn will_read(&self, keys: impl Iterator<Item = Key>) {
        self.worker.store().prefetch(keys, P::BEYOND);
    }

    async fn read(&mut self, key: Key, value: &mut Vec<u8>) -> Result<Seen, Abort> {
        value.clear();
        self.read_onto(key, false, value).await
    }

    async fn read_for_update(&mut self, key: Key, value: &mut Vec<u8>) -> Result<Seen, Abort> {
        value.clear();
        self.read_onto(key, true, value).await
    }

    async fn write(&mut self, key: Key, value: &[u8]) -> Result<(), Abort> {
        self.put(key, Some(value)).await
    }

    async fn insert(&mut self, key: Key, value: &[u8]) -> Result<bool, Abort> {
        let mut row = std::mem::take(&mut self.sets.row);
        let seen = self.read_for_update(key, &mut row).await;
        self.sets.row = row;
        if seen?.present {
            return Ok(false);
        }
        self.put(key, Some(value)).await.map(|()| true)
    }

    async fn delete(&mut self, key: Key) -> Result<(), Abort> {
        self.put(key, None).await
    }

    async fn scan(
        &mut self,
        range: KeyRange,
        each: &mut dyn FnMut(Key, Version, &[u8]),
    ) -> Result<(), Abort> {
        let KeyRange { first, last, backward, limit } = range;
        let mut row = std::mem::take(&mut self.sets.row);
        let (mut at, mut left) = (if backward { last } else { first }, limit);
        'leaves: while left > 0 {
            self.worker.fabric.work(Work::IndexLookup);
            if let Some(stall) = self.worker.stall() {
                stall.await;
            }
            self.worker.fabric.access().await;
            let leaf = self.worker.search(at, |store, near| store.leaf_near(at, near));
            self.sets.note(&leaf, at);
            let count = leaf.entries().len();
            // What this leaf got of one that has left the tree meanwhile may have been seen there,
            // or in this one.
            let unseen = if backward { first.0..=at.0 } else { at.0..=last.0 };
            if left > 1 {
                let within = |(key, _): &&(u64, Place)| unseen.contains(key);
                let soon = leaf.entries().iter().filter(within);
                let soon = soon.map(|(key, place)| (Key(*key), *place));
                self.worker.store().prefetch_at(soon, &P::BEYOND);
            }
            for step in 0..count {
                let (key, place) = leaf.entries()[if backward { count - 1 - step } else { step }];
                if !unseen.contains(&key) {
                    continue;
                }
                row.clear();
                let at = (Key(key), place);
                let seen = match self.read_at_once(at, false, &mut row)? {
                    Some(seen) => seen,
                    None => self.read_at_point(at, false, &mut row).await?,
                };
                if seen.present {
                    each(Key(key), seen.version, &row);
                    left -= 1;
                }
                if left == 0 {
                    break 'leaves;
                }
            }
            let (beyond, next) = match backward {
                true => (leaf.low <= first.0, leaf.low.wrapping_sub(1)),
                false => (leaf.high >= last.0, leaf.high.wrapping_add(1)),
            };
            if beyond {
                break;
            }
            at = Key(next);
        }
        self.sets.row = row;
        Ok(())
    }
}
