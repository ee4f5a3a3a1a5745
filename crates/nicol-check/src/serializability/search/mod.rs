//! Which operations of unknown outcome took effect, and where records were absent: a search over
//! the explanations of what was read, with backjumping to the decision that a contradiction rests
//! on.
//!
//! A *demand* is something that an effective operation saw and that the installs so far do not
//! explain: a version that nobody installed, an absence where a record should be, a key that a scan
//! did not return although it was there at some time. Each *level* of the search decides one demand
//! by one of its candidates. Where nothing is unknown and nothing was scanned there is no demand,
//! and one look at the graph decides.

mod candidates;
mod deadlines;
mod nogoods;

use std::collections::{BTreeMap, BTreeSet};

use nicol_core::history::Effect;

use super::index::{Index, NOBODY, ReadAt, WriteAt};
use super::installs::{Install, Installs};
use deadlines::Deadlines;
use nogoods::Nogoods;

/// Not effective.
const OUT: u32 = u32::MAX;
/// The cost of a decision besides its candidates, in edges that are looked at.
const STEP: u64 = 8;
/// Edges after which the search gives up: a few seconds.
const EFFORT_MAX: u64 = 60_000_000;
/// But it may look at the whole graph so often, however large that is.
const LOOKS: u64 = 100;

/// Levels that a contradiction rests on; 0, what is certain, is not among them.
pub(super) type Levels = BTreeSet<u32>;

/// Adds a level to a set, unless it is the certain one.
pub(super) fn rest_on(levels: &mut Levels, level: u32) {
    if level != 0 && level != OUT {
        levels.insert(level);
    }
}

/// Something seen that must be explained.
#[derive(Clone, Debug)]
enum Demand {
    /// A record at a version that nobody installed.
    Version { read: ReadAt },
    /// No record, although `install` is the newest up to the version `floor`.
    Absence { reader: u32, install: Install, floor: u64 },
    /// A write that took effect with its operation, at a version that nobody knows.
    Placing { node: u32, key: u32, effect: Effect },
    /// No record of `key` in a scan by `reader`; `near` is the version that it should have seen.
    Gap { reader: u32, key: u32, near: u64 },
}

/// An explanation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Candidate {
    /// `node` took effect, and its known writes explain it.
    Known { node: u32 },
    /// `node` took effect, and a write whose version its client does not know was this one.
    Unseen { node: u32, key: u32, version: u64, deleted: bool, digest: Option<u64> },
    /// The scan saw the newest install up to the version `floor`.
    Floor { node: u32, key: u32, floor: u64 },
}

/// Something that the search may have to look at again.
#[derive(Clone, Copy, Debug)]
enum Item {
    Read(u32),
    Pin { key: u32, node: u32 },
    Write(u32),
}

#[derive(Debug)]
enum Undo {
    Activated(u32),
    Assumed(u32, u64),
    Used(u32, u32),
    Learned(u32, u64),
    Pinned(u32, u32),
}

struct Level {
    candidates: Vec<Candidate>,
    next: usize,
    /// The decisions that the demand itself rests on.
    reasons: Levels,
    /// The decisions by which candidates have failed so far.
    conflict: Levels,
    queue: usize,
    head: usize,
    gap_head: usize,
    undo: Vec<Undo>,
}

/// The cost of a search, in edges that were looked at: the same on every machine.
#[derive(Debug)]
struct Effort {
    spent: u64,
    max: u64,
}

/// The result of the search.
pub(super) enum Step {
    /// Every demand is explained.
    Explained,
    /// No explanation is left.
    Impossible,
    /// The bound is met.
    GivenUp,
}

/// The state of the search.
pub(super) struct Search<'i, 'h> {
    index: &'i Index<'h>,
    pub(super) installs: Installs,
    /// The level at which each node took effect: 0 if it committed.
    effective: Vec<u32>,
    /// Which version an unseen write of (node, key) was taken for, and at which level.
    used: BTreeMap<(u32, u32), (u64, u32)>,
    /// Digests of installs whose writers do not tell one, as they were read, and the level at which
    /// the reader took effect.
    learned: BTreeMap<(u32, u64), (u64, u32)>,
    /// The assumption about what a scan saw of (key, node): a floor, and at which level.
    pins: BTreeMap<(u32, u32), (u64, u32)>,
    queue: Vec<Item>,
    head: usize,
    /// Keys that scans did not return: (node, key, the version that was there).
    gaps: Vec<(u32, u32, u64)>,
    gap_head: usize,
    trail: Vec<Level>,
    /// Decisions that fail together, whatever else is decided.
    nogoods: Nogoods,
    /// The reads of each key, by version; only if some outcome is unknown.
    by_key: BTreeMap<u32, Vec<u32>>,
    /// The writes of unknown operations to each key.
    unknown_writes: BTreeMap<u32, Vec<WriteAt>>,
    /// Unknown operations that may have written what their clients do not know.
    writes_more: Vec<u32>,
    /// True if real time is part of the promise.
    strict: bool,
    deadlines: Deadlines,
    effort: Effort,
}

impl<'i, 'h> Search<'i, 'h> {
    /// A search over `installs`, the certain ones. `strict`: real time is part of the promise.
    pub(super) fn new(index: &'i Index<'h>, installs: Installs, strict: bool) -> Self {
        let effective = index.nodes.iter().map(|node| if node.unknown { OUT } else { 0 }).collect();
        let mut unknown_writes: BTreeMap<u32, Vec<WriteAt>> = BTreeMap::new();
        for write in index.writes.iter().filter(|write| index.nodes[write.node as usize].unknown) {
            unknown_writes.entry(write.key).or_default().push(*write);
        }
        let more = (0..index.nodes.len() as u32)
            .filter(|&node| index.nodes[node as usize].writes_more)
            .collect::<Vec<_>>();
        let mut by_key: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for (position, read) in index.reads.iter().enumerate() {
            if !more.is_empty() || unknown_writes.contains_key(&read.key) {
                by_key.entry(read.key).or_default().push(position as u32);
            }
        }
        for reads in by_key.values_mut() {
            reads.sort_unstable_by_key(|&read| index.reads[read as usize].version);
        }
        let deadlines = match strict {
            true => Deadlines::new(index, &installs, &by_key),
            false => Deadlines::default(),
        };
        Self {
            index,
            installs,
            effective,
            used: BTreeMap::new(),
            learned: BTreeMap::new(),
            pins: BTreeMap::new(),
            queue: Vec::new(),
            head: 0,
            gaps: Vec::new(),
            gap_head: 0,
            trail: Vec::new(),
            nogoods: Nogoods::default(),
            by_key,
            unknown_writes,
            writes_more: more,
            strict,
            deadlines,
            effort: Effort { spent: 0, max: EFFORT_MAX },
        }
    }

    /// Asks for explanations of the reads at these positions.
    pub(super) fn ask(&mut self, reads: &[u32]) {
        self.queue.extend(reads.iter().map(|&read| Item::Read(read)));
    }

    pub(super) fn is_effective(&self, node: u32) -> bool {
        self.effective[node as usize] != OUT
    }

    /// The level at which an effective node took effect.
    pub(super) fn level_of(&self, node: u32) -> u32 {
        self.effective[node as usize]
    }

    /// The assumptions about what scans saw: key, node, floor, level.
    pub(super) fn pins(&self) -> impl Iterator<Item = (u32, u32, u64, u32)> {
        self.pins.iter().map(|(&(key, node), &(floor, level))| (key, node, floor, level))
    }

    pub(super) fn is_pinned(&self, node: u32, key: u32) -> bool {
        self.pins.contains_key(&(key, node))
    }

    /// All reads of `key` with versions in a range.
    pub(super) fn reads_of(&self, key: u32, from: u64, to: Option<u64>) -> &[u32] {
        let Some(reads) = self.by_key.get(&key) else { return &[] };
        let version = |read: &u32| self.index.reads[*read as usize].version.unwrap_or_default();
        let begin = reads.partition_point(|read| version(read) < from);
        let end = to.map_or(reads.len(), |to| reads.partition_point(|read| version(read) < to));
        &reads[begin..end.max(begin)]
    }

    /// May an operation of unknown outcome have written `key`?
    pub(super) fn is_open(&self, key: u32) -> bool {
        !self.writes_more.is_empty() || self.unknown_writes.contains_key(&key)
    }

    /// Adds a demand: the scan of `node` did not return `key`, of which `version` was there.
    pub(super) fn add_gap(&mut self, node: u32, key: u32, version: u64) {
        self.gaps.push((node, key, version));
    }

    /// Has what a committed operation read, at position `read`, any explanation at all?
    pub(super) fn has_explanation(&mut self, read: u32) -> bool {
        match self.look(self.index.reads[read as usize], 0) {
            Ok(Some(demand)) => !self.candidates(&demand).0.is_empty(),
            Ok(None) => true,
            Err(_) => false,
        }
    }

    /// Says how many edges there are to look at.
    pub(super) fn allow(&mut self, edges: u64) {
        self.effort.max = self.effort.max.max(LOOKS * edges);
    }

    /// Counts edges that are looked at; false if they are too many.
    pub(super) fn spend(&mut self, edges: u64) -> bool {
        self.effort.spent += edges;
        self.effort.spent <= self.effort.max
    }

    pub(super) fn explain(&mut self) -> Step {
        loop {
            if !self.spend(STEP) {
                return Step::GivenUp;
            }
            match self.advance() {
                Ok(None) => return Step::Explained,
                Ok(Some(demand)) => {
                    let (candidates, reasons) = self.candidates(&demand);
                    if !self.spend(STEP * candidates.len() as u64) {
                        return Step::GivenUp;
                    }
                    self.trail.push(Level {
                        candidates,
                        next: 0,
                        reasons,
                        conflict: Levels::new(),
                        queue: self.queue.len(),
                        head: self.head,
                        gap_head: self.gap_head,
                        undo: Vec::new(),
                    });
                    if !self.try_next() && !self.give_up_level() {
                        return Step::Impossible;
                    }
                }
                Err(conflict) => {
                    if !self.contradicted(conflict) {
                        return Step::Impossible;
                    }
                }
            }
        }
    }

    /// Goes back to the last decision that a contradiction rests on, and takes another one; false
    /// if there is none.
    pub(super) fn contradicted(&mut self, mut levels: Levels) -> bool {
        self.add_nogood(&levels);
        let Some(deepest) = levels.pop_last() else { return false };
        while self.trail.len() > deepest as usize {
            self.undo_top();
            self.trail.pop();
        }
        self.undo_top();
        self.top().conflict.append(&mut levels);
        self.try_next() || self.give_up_level()
    }

    /// Notes a contradiction, so that the decisions that it rests on are not taken together again.
    pub(super) fn add_nogood(&mut self, levels: &Levels) {
        let taken = |level: &u32| {
            let level = &self.trail[*level as usize - 1];
            level.candidates[level.next - 1]
        };
        self.nogoods.add(levels.iter().map(taken).collect());
    }

    fn top(&mut self) -> &mut Level {
        self.trail.last_mut().expect("a decision is under way")
    }

    /// No candidate of the last level is left: goes back further.
    fn give_up_level(&mut self) -> bool {
        let Some(level) = self.trail.pop() else { return false };
        let mut levels = level.conflict;
        levels.extend(level.reasons);
        self.contradicted(levels)
    }

    fn undo_top(&mut self) {
        let number = self.trail.len() as u32;
        let level = self.trail.last_mut().expect("a decision is under way");
        self.nogoods.undecide(number);
        self.queue.truncate(level.queue);
        self.head = level.head;
        self.gap_head = level.gap_head;
        for undo in std::mem::take(&mut level.undo).into_iter().rev() {
            match undo {
                Undo::Activated(node) => self.effective[node as usize] = OUT,
                Undo::Assumed(key, version) => self.installs.drop(key, version),
                Undo::Used(node, key) => drop(self.used.remove(&(node, key))),
                Undo::Learned(key, version) => drop(self.learned.remove(&(key, version))),
                Undo::Pinned(key, node) => drop(self.pins.remove(&(key, node))),
            }
        }
    }

    /// Applies the next candidate of the last level that does not fail at once.
    fn try_next(&mut self) -> bool {
        let number = self.trail.len() as u32;
        loop {
            let level = self.top();
            let Some(&candidate) = level.candidates.get(level.next) else { return false };
            level.next += 1;
            self.effort.spent += self.nogoods.cost(candidate);
            if let Some(mut levels) = self.nogoods.forbids(candidate) {
                self.top().conflict.append(&mut levels);
                continue;
            }
            match self.apply(candidate, number) {
                Ok(()) => {
                    self.nogoods.decide(candidate, number);
                    return true;
                }
                Err(mut conflict) => {
                    self.undo_top();
                    self.add_nogood(&conflict);
                    conflict.remove(&number);
                    self.top().conflict.append(&mut conflict);
                }
            }
        }
    }

    fn undo(&mut self, undo: Undo) {
        // At the certain level there is nothing to go back to.
        if let Some(level) = self.trail.last_mut() {
            level.undo.push(undo);
        }
    }

    fn apply(&mut self, candidate: Candidate, level: u32) -> Result<(), Levels> {
        match candidate {
            Candidate::Known { node } => self.activate(node, level),
            Candidate::Unseen { node, key, version, deleted, digest } => {
                self.activate(node, level)?;
                self.used.insert((node, key), (version, level));
                self.undo(Undo::Used(node, key));
                self.assume(Install { key, version, writer: node, deleted, digest, level })
            }
            Candidate::Floor { node, key, floor } => {
                self.pins.insert((key, node), (floor, level));
                self.undo(Undo::Pinned(key, node));
                self.queue.push(Item::Pin { key, node });
                Ok(())
            }
        }
    }

    /// Lets `node` take effect, with all that its client knows it to have written.
    fn activate(&mut self, node: u32, level: u32) -> Result<(), Levels> {
        if self.is_effective(node) {
            return Ok(());
        }
        self.effective[node as usize] = level;
        self.undo(Undo::Activated(node));
        let index = self.index;
        let of_node = &index.nodes[node as usize];
        if of_node.impossible {
            return Err(Levels::from([level]));
        }
        self.queue.extend(of_node.reads.clone().map(Item::Read));
        for position in of_node.writes.clone() {
            let write = &index.writes[position as usize];
            let Some(version) = write.version else {
                self.queue.push(Item::Write(position));
                continue;
            };
            if version == 0 {
                return Err(Levels::from([level]));
            }
            let deleted = write.effect == Effect::Delete;
            let digest = if let Effect::Put { digest } = write.effect { digest } else { None };
            let key = write.key;
            self.assume(Install { key, version, writer: node, deleted, digest, level })?;
        }
        Ok(())
    }

    fn assume(&mut self, install: Install) -> Result<(), Levels> {
        let Install { key, version, level, .. } = install;
        if self.installs.next(key, version).is_some_and(|next| next.writer == NOBODY) {
            return Err(Levels::from([level]));
        }
        if let Err(there) = self.installs.assume(install) {
            let mut levels = Levels::from([level]);
            rest_on(&mut levels, there.level);
            return Err(levels);
        }
        self.undo(Undo::Assumed(key, version));
        let next = self.installs.next(key, version).map(|next| next.version);
        let again: Vec<Item> =
            self.reads_of(key, version, next).iter().map(|&read| Item::Read(read)).collect();
        self.queue.extend(again);
        let pins = self.pins.range((key, 0)..=(key, u32::MAX));
        let pins = pins.map(|(&(key, node), _)| Item::Pin { key, node });
        self.queue.extend(pins);
        Ok(())
    }

    /// The next thing seen that is not explained.
    fn advance(&mut self) -> Result<Option<Demand>, Levels> {
        while let Some(&item) = self.queue.get(self.head) {
            let demand = match item {
                Item::Read(read) => self.look(self.index.reads[read as usize], 0)?,
                Item::Pin { key, node } => match self.pins.get(&(key, node)) {
                    Some(&(floor, level)) => {
                        let version = Some(floor);
                        let read = ReadAt { node, key, present: false, version, digest: None };
                        self.look(read, level)?
                    }
                    None => None,
                },
                Item::Write(write) => {
                    let WriteAt { node, key, effect, .. } = self.index.writes[write as usize];
                    let placed = !self.is_effective(node) || self.used.contains_key(&(node, key));
                    let is_known = effect != Effect::Unknown && !placed;
                    is_known.then_some(Demand::Placing { node, key, effect })
                }
            };
            // What is not explained is looked at again once it was decided.
            if demand.is_some() {
                return Ok(demand);
            }
            self.head += 1;
        }
        while let Some(&(reader, key, near)) = self.gaps.get(self.gap_head) {
            if self.is_effective(reader) && !self.is_pinned(reader, key) {
                return Ok(Some(Demand::Gap { reader, key, near }));
            }
            self.gap_head += 1;
        }
        Ok(None)
    }

    /// Is what was read explained? `level`: the decision that the read itself rests on.
    fn look(&mut self, read: ReadAt, level: u32) -> Result<Option<Demand>, Levels> {
        let ReadAt { node, key, present, .. } = read;
        let Some(version) = read.version else { return Ok(None) };
        if !self.is_effective(node) {
            return Ok(None);
        }
        let wrong = |install: &Install| {
            let mut levels = Levels::new();
            rest_on(&mut levels, self.effective[node as usize]);
            rest_on(&mut levels, level);
            rest_on(&mut levels, install.level);
            Err(levels)
        };
        if !present {
            return match self.installs.newest(key, version) {
                Some(install) if install.writer == node => wrong(&install),
                Some(install) if install.deleted => Ok(None),
                Some(install) if install.version == version => wrong(&install),
                Some(install) => {
                    Ok(Some(Demand::Absence { reader: node, install, floor: version }))
                }
                // Nobody saw a loaded record's absence before the load.
                None => match self.installs.next(key, version) {
                    Some(next) if next.writer == NOBODY => wrong(&next),
                    _ => Ok(None),
                },
            };
        }
        match self.installs.at(key, version) {
            Some(install) if install.deleted || install.writer == node => wrong(&install),
            Some(install) => match (install.digest, read.digest) {
                (Some(wrote), Some(saw)) if wrote != saw => wrong(&install),
                (None, Some(saw)) => self.learn(install, node, saw).map(|()| None),
                _ => Ok(None),
            },
            None => Ok(Some(Demand::Version { read })),
        }
    }

    /// `node` read a value, of which so far nobody has said what it is.
    fn learn(&mut self, install: Install, node: u32, digest: u64) -> Result<(), Levels> {
        let at = (install.key, install.version);
        match self.learned.get(&at) {
            Some(&(known, level)) if known != digest => {
                let mut levels = Levels::new();
                rest_on(&mut levels, level);
                rest_on(&mut levels, install.level);
                rest_on(&mut levels, self.effective[node as usize]);
                Err(levels)
            }
            Some(_) => Ok(()),
            None => {
                self.undo(Undo::Learned(at.0, at.1));
                self.learned.insert(at, (digest, self.effective[node as usize]));
                Ok(())
            }
        }
    }

    /// Unseen writes that were taken for a version: node, key, version.
    pub(super) fn used(&self) -> impl Iterator<Item = (u32, u32, u64)> {
        self.used.iter().map(|(&(node, key), &(version, _))| (node, key, version))
    }
}
