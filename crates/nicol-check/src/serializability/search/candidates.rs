//! The candidates of a demand: the ways in which operations of unknown outcome, or deletions, can
//! explain what an operation saw.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use nicol_core::history::Effect;

use super::super::index::{NOBODY, ReadAt, WriteAt};
use super::super::installs::Install;
use super::{Candidate, Demand, Levels, Search, rest_on};

impl Search<'_, '_> {
    /// The candidates of `demand`, the likeliest first. Besides, the levels of earlier decisions
    /// without which the demand would not exist or would have more candidates: if every candidate
    /// fails, the search goes back to the last of these.
    pub(super) fn candidates(&self, demand: &Demand) -> (Vec<Candidate>, Levels) {
        let mut reasons = Levels::new();
        let candidates = match demand {
            Demand::Version { read } => {
                rest_on(&mut reasons, self.effective[read.node as usize]);
                self.writers(read, &mut reasons)
            }
            Demand::Absence { reader, install, floor } => {
                rest_on(&mut reasons, self.effective[*reader as usize]);
                rest_on(&mut reasons, install.level);
                if let Some(&(_, level)) = self.pins.get(&(install.key, *reader)) {
                    rest_on(&mut reasons, level);
                }
                self.deleters(*reader, install, *floor, &mut reasons)
            }
            Demand::Placing { node, key, effect } => {
                rest_on(&mut reasons, self.effective[*node as usize]);
                self.placings(*node, *key, *effect)
            }
            Demand::Gap { reader, key, near } => {
                rest_on(&mut reasons, self.effective[*reader as usize]);
                self.floors(*reader, *key, *near)
            }
        };
        (candidates, reasons)
    }

    /// Can `node` have taken effect before `reader` read?
    fn in_time(&self, node: u32, reader: u32) -> bool {
        let begun = self.index.operation(node).invoked;
        let end = self.index.operation(reader).responded;
        let known = !self.index.nodes[reader as usize].unknown && self.strict;
        !known || end.is_none_or(|end| begun <= end)
    }

    /// Can `node` have written `version` of `key` before the operations that read or replaced it
    /// ended?
    fn begun_in_time(&self, node: u32, key: u32, version: u64) -> bool {
        self.index.operation(node).invoked <= self.deadlines.of(key, version)
    }

    /// Unknown operations that may have written what nobody knows to `key` and are not taken to
    /// have written another version of it, before `reader` read.
    fn unseen(&self, key: u32, reader: u32, reasons: &mut Levels) -> Vec<(u32, Effect)> {
        let listed = self.unknown_writes.get(&key).map_or(&[][..], Vec::as_slice);
        let unseen = listed.iter().filter(|write| write.version.is_none());
        let unseen = unseen.map(|write| (write.node, write.effect));
        let writes = |node: u32| listed.iter().any(|write| write.node == node);
        let more = self.writes_more.iter().filter(|&&node| !writes(node));
        let more = more.map(|&node| (node, Effect::Unknown));
        let mut found = Vec::new();
        for (node, effect) in unseen.chain(more) {
            if node == reader || !self.in_time(node, reader) {
                continue;
            }
            match self.used.get(&(node, key)) {
                Some(&(_, level)) => rest_on(reasons, level),
                None => found.push((node, effect)),
            }
        }
        // Those that took effect anyway come first, then those that began last.
        found.sort_by_key(|&(node, _)| {
            (!self.is_effective(node), Reverse(self.index.operation(node).invoked))
        });
        found
    }

    /// The operations that may have installed the version that was read.
    fn writers(&self, read: &ReadAt, reasons: &mut Levels) -> Vec<Candidate> {
        let ReadAt { key, digest, .. } = *read;
        let version = read.version.unwrap_or_default();
        let fits = |effect: Effect| match effect {
            Effect::Put { digest: Some(wrote) } => digest.is_none_or(|saw| saw == wrote),
            Effect::Put { digest: None } | Effect::Unknown => true,
            Effect::Delete => false,
        };
        if version == 0 {
            return Vec::new();
        }
        let listed = self.unknown_writes.get(&key).map_or(&[][..], Vec::as_slice);
        let known = listed.iter().filter(|write| {
            write.version == Some(version)
                && fits(write.effect)
                && write.node != read.node
                && self.in_time(write.node, read.node)
                && self.begun_in_time(write.node, key, version)
        });
        let mut known: Vec<u32> = known.map(|write| write.node).collect();
        // That it was loaded asks for nothing else.
        known.sort_by_key(|&node| !self.index.is_load(node));
        let mut candidates: Vec<Candidate> =
            known.into_iter().map(|node| Candidate::Known { node }).collect();
        for (node, effect) in self.unseen(key, read.node, reasons) {
            if fits(effect) && self.begun_in_time(node, key, version) {
                let own = if let Effect::Put { digest } = effect { digest } else { None };
                let digest = own.or(digest);
                candidates.push(Candidate::Unseen { node, key, version, deleted: false, digest });
            }
        }
        candidates
    }

    /// The operations that may have deleted the record that `install` left, up to the version
    /// `floor`.
    fn deleters(
        &self,
        reader: u32,
        install: &Install,
        floor: u64,
        reasons: &mut Levels,
    ) -> Vec<Candidate> {
        let Install { key, version: after, .. } = *install;
        let listed = self.unknown_writes.get(&key).map_or(&[][..], Vec::as_slice);
        let known = listed.iter().filter(|write| {
            write.effect == Effect::Delete
                && write.version.is_some_and(|version| after < version && version <= floor)
                && write.node != reader
                && self.in_time(write.node, reader)
        });
        let mut candidates: Vec<Candidate> =
            known.map(|write| Candidate::Known { node: write.node }).collect();
        let deletes = |effect: Effect| matches!(effect, Effect::Delete | Effect::Unknown);
        for (node, effect) in self.unseen(key, reader, reasons) {
            if deletes(effect) {
                let free = self.free_versions(key, after, floor).into_iter();
                for version in free.filter(|version| self.begun_in_time(node, key, *version)) {
                    let (deleted, digest) = (true, None);
                    candidates.push(Candidate::Unseen { node, key, version, deleted, digest });
                }
            }
        }
        candidates
    }

    /// The versions at which a write may have taken effect, the highest first.
    fn placings(&self, node: u32, key: u32, effect: Effect) -> Vec<Candidate> {
        let (deleted, digest) = match effect {
            Effect::Put { digest } => (false, digest),
            Effect::Delete | Effect::Unknown => (true, None),
        };
        let versions = self.free_versions(key, 0, u64::MAX).into_iter();
        let versions = versions.filter(|version| self.begun_in_time(node, key, *version));
        versions.map(|version| Candidate::Unseen { node, key, version, deleted, digest }).collect()
    }

    /// Versions of `key` that are above `after`, up to `floor`, and right behind `after` or a
    /// version that somebody names: any other one is as good as one of these.
    fn free_versions(&self, key: u32, after: u64, floor: u64) -> Vec<u64> {
        let room = self.room(key);
        let named = self.named_versions(key);
        let mut free = BTreeSet::new();
        for version in [after].into_iter().chain(named.range(after..).copied()) {
            let behind = (1..=room).filter_map(|step| version.checked_add(step));
            free.extend(behind.filter(|version| *version <= floor));
        }
        free.into_iter().collect()
    }

    /// How many versions of `key` that nobody names may follow on one that somebody does. Every
    /// write with a known effect and no version may be there, and between any two of them a
    /// deletion that nobody knows of; more of these tell nothing.
    fn room(&self, key: u32) -> u64 {
        let listed = self.unknown_writes.get(&key).map_or(&[][..], Vec::as_slice);
        let placed = |write: &&WriteAt| write.version.is_none() && write.effect != Effect::Unknown;
        2 * listed.iter().filter(placed).count() as u64 + 1
    }

    /// Every version of `key` that was installed or read, or may have been installed.
    fn named_versions(&self, key: u32) -> BTreeSet<u64> {
        let listed = self.unknown_writes.get(&key).map_or(&[][..], Vec::as_slice);
        let of = |read: &u32| self.index.reads[*read as usize].version;
        let reads = self.by_key.get(&key).map_or(&[][..], Vec::as_slice).iter().filter_map(of);
        let unknown = listed.iter().filter_map(|write| write.version);
        let certain = self.installs.certain_of(key).iter().map(|install| install.version);
        let assumed = self.installs.assumed_of(key).map(|install| install.version);
        reads.chain(unknown).chain(certain).chain(assumed).collect()
    }

    /// What a scan that did not return `key` may have seen of it: the floors of its absences,
    /// first those at which it is known to have been absent, of these those that agree best with
    /// the times of the writers, and of these the nearest to `near`.
    fn floors(&self, node: u32, key: u32, near: u64) -> Vec<Candidate> {
        let mut floors = BTreeSet::from([0]);
        if self.is_open(key) {
            let room = self.room(key);
            for version in [0].into_iter().chain(self.named_versions(key)) {
                floors.extend((0..=room).filter_map(|step| version.checked_add(step)));
            }
        } else {
            let certain = self.installs.certain_of(key).iter();
            floors.extend(certain.filter(|install| install.deleted).map(|install| install.version));
        }
        let is_absent =
            |floor: u64| self.installs.newest(key, floor).is_none_or(|newest| newest.deleted);
        let mut candidates: Vec<(bool, u64, u64, u64)> = floors
            .into_iter()
            .filter(|&floor| self.floor_in_time(node, key, floor))
            .map(|floor| {
                let apart = self.time_apart(node, key, floor);
                (!is_absent(floor), apart, floor.abs_diff(near), floor)
            })
            .filter(|&(present, ..)| !present || self.is_open(key))
            .collect();
        candidates.sort_unstable();
        candidates.into_iter().map(|(.., floor)| Candidate::Floor { node, key, floor }).collect()
    }

    /// How far the ends of `node` and of the writers of `key` next to `floor` are from the order in
    /// which `node` reads there. Where real time is not promised most orders agree with it still.
    fn time_apart(&self, node: u32, key: u32, floor: u64) -> u64 {
        let end = |node: u32| {
            let operation = self.index.operation(node);
            let known = !self.index.nodes[node as usize].unknown;
            operation.responded.filter(|_| known).unwrap_or(operation.invoked)
        };
        let of = |install: Option<Install>| {
            install.map(|install| install.writer).filter(|&writer| writer != NOBODY)
        };
        let before = of(self.installs.newest(key, floor)).map(end);
        let after = of(self.installs.next(key, floor)).map(end);
        let early = before.map_or(0, |before| before.saturating_sub(end(node)));
        let late = after.map_or(0, |after| end(node).saturating_sub(after));
        early.max(late)
    }

    /// By real time, can `node` have come after the newest certain install up to `floor` and before
    /// the next one?
    fn floor_in_time(&self, node: u32, key: u32, floor: u64) -> bool {
        let of_key = self.installs.certain_of(key);
        let at = of_key.partition_point(|install| install.version <= floor);
        let before = at.checked_sub(1).map(|at| of_key[at].writer);
        let after = of_key.get(at).map(|next| next.writer);
        // Nobody sees what it will write itself.
        let before_fits =
            |writer: u32| writer == NOBODY || writer != node && self.in_time(writer, node);
        let after_fits = |writer: u32| {
            writer == NOBODY || writer == node || {
                let end = self.index.operation(writer).responded;
                let begun = self.index.operation(node).invoked;
                !self.strict || end.is_none_or(|end| begun <= end)
            }
        };
        // Nobody comes before what was loaded.
        after != Some(NOBODY) && before.is_none_or(before_fits) && after.is_none_or(after_fits)
    }

    /// If what a committed scan saw of `key` is certain: the floor of the only absence that it can
    /// have seen, or none if it can have seen none.
    pub(in crate::serializability) fn only_floor(
        &self,
        node: u32,
        key: u32,
        near: u64,
    ) -> Option<Option<u64>> {
        if self.is_open(key) || self.index.nodes[node as usize].unknown {
            return None;
        }
        match self.floors(node, key, near).as_slice() {
            [] => Some(None),
            [Candidate::Floor { floor, .. }] => Some(Some(*floor)),
            _ => None,
        }
    }
}
