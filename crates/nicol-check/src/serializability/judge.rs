//! From a history to a verdict.

use std::collections::BTreeSet;

use nicol_core::history::{Effect, End, History, Initial, Promise};

use super::edges::{self, Certain};
use super::graph::{Graph, Step as CycleStep};
use super::index::{Index, NOBODY, ReadAt};
use super::installs::Installs;
use super::replay::replay;
use super::search::{Levels, Search, Step, rest_on};
use super::{Anomaly, Report, assumed, describe};

/// The cost of a look at the graph besides its nodes and edges.
const LOOK: u64 = 64;

/// See [`super::check`].
pub(super) fn check(history: &History) -> Report {
    let mut report = Report::default();
    let mut index = Index::new(history);
    report.undecided = without_version(&index);
    if report.undecided.is_none() {
        let loaded = match history.initial {
            Initial::Listed(_) => std::mem::take(&mut index.loaded),
            Initial::Untold => guessed(&mut index),
        };
        Judge::new(history, &index, loaded).run(&mut report);
    }
    let count = |end: End| history.operations.iter().filter(|one| one.end == end).count();
    report.committed = count(End::Ok);
    report.aborted = count(End::Failed);
    report.unknown = count(End::Unknown) - report.unknown_effective;
    report
}

/// Serializability is judged by versions: what has none cannot be judged.
fn without_version(index: &Index<'_>) -> Option<String> {
    let committed = |node: u32| !index.nodes[node as usize].unknown;
    let read = index.reads.iter().find(|read| read.version.is_none());
    let write = index.writes.iter().find(|write| write.version.is_none() && committed(write.node));
    let (node, what) = read
        .map(|read| (read.node, "read"))
        .or_else(|| write.map(|write| (write.node, "wrote")))?;
    Some(format!(
        "operation {} {what} a record without saying its version, and serializability is judged by \
         versions: record them, or judge the history by another promise",
        index.id(node)
    ))
}

struct Judge<'i, 'h> {
    index: &'i Index<'h>,
    promise: Promise,
    /// Records that were there at first.
    loaded: Vec<(u32, u64, Option<u64>)>,
    /// Reads of committed operations that are violations, and so no edges.
    wrong: Vec<bool>,
    /// Reads of committed operations that need something unknown to explain them.
    orphans: Vec<u32>,
}

/// The result of one look at the graph.
enum Look {
    /// The operations were run in the order that was found.
    Holds,
    /// Scans need further edges, which are set.
    Again,
    /// A contradiction, the decisions that it rests on, and what it is.
    Contradiction(Levels, Anomaly, String),
    /// Violations that rest on no decision.
    Violations(Vec<(Anomaly, String)>),
}

impl<'i, 'h> Judge<'i, 'h> {
    fn new(history: &History, index: &'i Index<'h>, loaded: Vec<(u32, u64, Option<u64>)>) -> Self {
        let wrong = vec![false; index.reads.len()];
        Self { index, promise: history.promise, loaded, wrong, orphans: Vec::new() }
    }

    fn run(mut self, report: &mut Report) {
        let index = self.index;
        let committed = |node: u32| !index.nodes[node as usize].unknown;
        for (node, what) in index.wrong_scans.iter().filter(|(node, _)| committed(*node)) {
            report.add(Anomaly::WrongScan, format!("operation {}: {what}", index.id(*node)));
        }
        let (mut installs, twice) = Installs::certain(index, &self.loaded);
        for twice in &twice {
            report.add(Anomaly::DuplicateInstall, describe::twice(index, twice));
        }
        self.low_versions(&installs, report);
        self.values(&mut installs, report);
        let mut search = Search::new(index, installs, edges::is_strict(self.promise));
        self.reads(&search, report);
        for read in std::mem::take(&mut self.orphans) {
            if search.has_explanation(read) {
                self.orphans.push(read);
            } else {
                self.unexplained(&search, read, report);
            }
        }
        let mut certain = edges::certain(index, &search.installs, &self.wrong, self.promise);
        if report.violations.is_empty() {
            search.ask(&self.orphans);
            self.search(&mut search, &mut certain, report);
        } else {
            let graph = Graph::new(index.nodes.len(), certain.nodes, &certain.edges, &[]);
            for cycle in graph.cycles() {
                report.add(describe::anomaly(&cycle), describe::cycle(index, &cycle));
            }
        }
        let unknown = (0..index.loads_from())
            .filter(|&node| index.nodes[node as usize].unknown && search.is_effective(node));
        report.unknown_effective = unknown.count();
    }

    /// Reports installs of version 0, loaded ones too, and committed ones below what was loaded.
    fn low_versions(&self, installs: &Installs, report: &mut Report) {
        let index = self.index;
        for install in installs.all_certain() {
            let (key, version) = (install.key, install.version);
            let above = installs.next(key, version);
            if version == 0 || above.is_some_and(|next| next.writer == NOBODY) {
                report.add(Anomaly::LowVersion, describe::low_install(index, install));
            }
        }
    }

    /// Compares the values that committed operations read at one version with each other and with
    /// what was written.
    fn values(&mut self, installs: &mut Installs, report: &mut Report) {
        let index = self.index;
        let mut untold = Vec::new();
        for (position, read) in index.reads.iter().enumerate() {
            let (Some(version), Some(digest)) = (read.version, read.digest) else { continue };
            if index.nodes[read.node as usize].unknown {
                continue;
            }
            match installs.at(read.key, version) {
                Some(install) if install.digest == Some(digest) => {}
                Some(install) if install.digest.is_some() => {
                    self.wrong[position] = true;
                    let what = describe::value(index, read, &install);
                    report.add(Anomaly::WrongValue, what);
                }
                _ => untold.push((read.key, version, digest, position)),
            }
        }
        untold.sort_unstable();
        for pair in untold.windows(2) {
            let ((key, version, one, first), (other_key, other_version, other, second)) =
                (pair[0], pair[1]);
            if (key, version) == (other_key, other_version) && one != other {
                self.wrong[second] = true;
                let by = index.reads[first].node;
                let what = describe::values(index, &index.reads[second], by);
                report.add(Anomaly::WrongValue, what);
            }
        }
        for (key, version, digest, _) in untold {
            installs.learn(key, version, digest);
        }
    }

    /// Looks at every read of a committed operation.
    fn reads(&mut self, search: &Search<'_, '_>, report: &mut Report) {
        for (position, read) in self.index.reads.iter().enumerate() {
            if self.index.nodes[read.node as usize].unknown || self.wrong[position] {
                continue;
            }
            let Some((anomaly, what)) = self.read(&search.installs, read) else { continue };
            // What nobody is known to have written or deleted, something unknown may have.
            let final_ones = [Anomaly::OwnRead, Anomaly::LowVersion];
            if !final_ones.contains(&anomaly) && search.is_open(read.key) {
                self.orphans.push(position as u32);
            } else {
                self.wrong[position] = true;
                report.add(anomaly, what);
            }
        }
    }

    /// The violation in a read, as far as it is certain.
    fn read(&self, installs: &Installs, read: &ReadAt) -> Option<(Anomaly, String)> {
        let ReadAt { node, key, present, version, .. } = *read;
        let version = version?;
        let newest = installs.newest(key, version);
        let own = newest.filter(|newest| newest.writer == node);
        if own.is_some() {
            return Some((Anomaly::OwnRead, describe::own_read(self.index, read)));
        }
        if !present {
            // Nobody saw a loaded record's absence before the load.
            let loaded = || installs.next(key, version).filter(|next| next.writer == NOBODY);
            let there = newest.or_else(loaded).filter(|newest| !newest.deleted)?;
            let what = describe::presence(self.index, read, &there);
            return Some((Anomaly::WrongPresence, what));
        }
        if version == 0 {
            return Some((Anomaly::LowVersion, describe::low_read(self.index, read)));
        }
        match newest.filter(|newest| newest.version == version) {
            Some(newest) if newest.deleted => {
                let what = describe::presence(self.index, read, &newest);
                Some((Anomaly::WrongPresence, what))
            }
            Some(_) => None,
            None => Some(describe::nobody(self.index, read)),
        }
    }

    /// Reports a read that nothing unknown explains either.
    fn unexplained(&mut self, search: &Search<'_, '_>, read: u32, report: &mut Report) {
        let position = read as usize;
        let read = &self.index.reads[position];
        self.wrong[position] = true;
        if let Some((anomaly, what)) = self.read(&search.installs, read) {
            report.add(anomaly, what);
        }
    }

    /// Searches for an explanation under which the graph has no cycle and every operation saw what
    /// it read.
    fn search(&self, search: &mut Search<'i, 'h>, certain: &mut Certain, report: &mut Report) {
        let mut last = None;
        let mut missed = BTreeSet::new();
        loop {
            match search.explain() {
                Step::Explained => {}
                Step::Impossible => return self.impossible(last, report),
                Step::GivenUp => return give_up(report),
            }
            let edges = LOOK + (certain.nodes + certain.edges.len()) as u64;
            search.allow(edges);
            if !search.spend(edges) {
                return give_up(report);
            }
            match self.look(search, certain, &mut missed) {
                Look::Holds => return,
                Look::Again => {}
                Look::Violations(violations) => {
                    violations.into_iter().for_each(|(anomaly, what)| report.add(anomaly, what));
                    return;
                }
                Look::Contradiction(levels, anomaly, what) => {
                    last = Some((anomaly, what));
                    if !search.contradicted(levels) {
                        return self.impossible(last, report);
                    }
                }
            }
        }
    }

    /// One look at the graph of the present state of the search.
    fn look(
        &self,
        search: &mut Search<'i, 'h>,
        certain: &mut Certain,
        missed: &mut BTreeSet<(u32, u32)>,
    ) -> Look {
        let index = self.index;
        let assumed = assumed::edges(index, search);
        let graph = Graph::new(index.nodes.len(), certain.nodes, &certain.edges, &assumed);
        let order = graph.order(|node| {
            let operation = index.operation(node);
            let ends = operation.responded.filter(|_| !index.nodes[node as usize].unknown);
            ends.unwrap_or(operation.invoked)
        });
        if order.len() < index.nodes.len() {
            return contradiction(index, search, &graph.cycles());
        }
        let mut found = replay(index, search, &self.loaded, &order);
        // Several scans of one operation may miss the same key.
        found.sort_unstable_by_key(|one| (one.node, one.key));
        found.dedup_by_key(|one| (one.node, one.key));
        if found.is_empty() {
            return Look::Holds;
        }
        let mut violations = Vec::new();
        for one in found {
            let first = missed.insert((one.node, one.key));
            match search.only_floor(one.node, one.key, one.version) {
                Some(None) if first => {
                    violations.push((Anomaly::Phantom, describe::missed(index, &one)));
                }
                Some(None) => {}
                Some(Some(floor)) => {
                    assert!(first, "an edge keeps a scan from missing a key again");
                    let (node, key) = (one.node, one.key);
                    assumed::of_floor(search, node, key, floor, &mut certain.edges);
                }
                None => search.add_gap(one.node, one.key, one.version),
            }
        }
        if violations.is_empty() { Look::Again } else { Look::Violations(violations) }
    }

    fn impossible(&self, last: Option<(Anomaly, String)>, report: &mut Report) {
        let (anomaly, what) = last.unwrap_or_else(|| {
            let read = self.orphans.first().map(|&read| &self.index.reads[read as usize]);
            let what = read.map(|read| describe::nobody(self.index, read).1);
            (Anomaly::UnknownVersion, what.unwrap_or_default())
        });
        let what = format!(
            "{what}; and so it is, one way or another, whichever operations of unknown outcome took \
             effect and wherever scans saw records absent"
        );
        report.add(anomaly, what);
    }
}

fn give_up(report: &mut Report) {
    report.undecided = Some(
        "there are too many ways to explain what operations of unknown outcome did, or where scans \
         saw records absent: a shorter history, or one with fewer of them, can be judged"
            .to_owned(),
    );
}

/// The verdict on cycles: violations, if some rest on no decision.
fn contradiction(
    index: &Index<'_>,
    search: &mut Search<'_, '_>,
    cycles: &[Vec<CycleStep>],
) -> Look {
    let levels = |cycle: &Vec<CycleStep>| {
        let mut levels = Levels::new();
        for step in cycle {
            let nodes = [search.level_of(step.from), search.level_of(step.to)];
            nodes.into_iter().chain(step.levels).for_each(|level| rest_on(&mut levels, level));
        }
        levels
    };
    let words = |cycle: &Vec<CycleStep>| (describe::anomaly(cycle), describe::cycle(index, cycle));
    let mut all: Vec<_> = cycles.iter().map(|cycle| (levels(cycle), cycle)).collect();
    assert!(!all.is_empty(), "where there is no order there is a cycle");
    if all.iter().any(|(levels, _)| levels.is_empty()) {
        let certain = all.iter().filter(|(levels, _)| levels.is_empty());
        return Look::Violations(certain.map(|(_, cycle)| words(cycle)).collect());
    }
    // The one that leads back the furthest: the others may be gone after that.
    all.sort_by_key(|(levels, _)| levels.last().copied());
    all[1..].iter().for_each(|(levels, _)| search.add_nogood(levels));
    let (levels, cycle) = all.swap_remove(0);
    let (anomaly, what) = words(cycle);
    Look::Contradiction(levels, anomaly, what)
}

/// The records that a history which does not tell its load must have begun with: those that were
/// read at version 1, if nobody may have installed it. Where somebody may have, or where only
/// operations of unknown outcome read it, the load is one more thing that may have happened.
fn guessed(index: &mut Index<'_>) -> Vec<(u32, u64, Option<u64>)> {
    let committed = |node: u32| !index.nodes[node as usize].unknown;
    let at_first = |read: &&ReadAt| read.present && read.version == Some(1);
    let read: BTreeSet<u32> = index.reads.iter().filter(at_first).map(|read| read.key).collect();
    let reads = index.reads.iter().filter(|read| committed(read.node));
    let certain: BTreeSet<u32> = reads.clone().filter(at_first).map(|read| read.key).collect();
    let absent: BTreeSet<u32> = reads
        .filter(|read| !read.present && read.version == Some(0))
        .map(|read| read.key)
        .collect();
    let (mut installed, mut deleted) = (BTreeSet::new(), BTreeSet::new());
    for write in index.writes.iter().filter(|write| committed(write.node)) {
        if write.version == Some(1) {
            let of = if write.effect == Effect::Delete { &mut deleted } else { &mut installed };
            of.insert(write.key);
        }
    }
    // An insert of unknown outcome explains version 1 as well.
    let unknown: BTreeSet<u32> = index
        .writes
        .iter()
        .filter(|write| !committed(write.node) && write.version.is_none_or(|version| version == 1))
        .map(|write| write.key)
        .collect();
    let writes_more = index.nodes.iter().any(|node| node.writes_more);
    let (mut loaded, mut perhaps) = (Vec::new(), Vec::new());
    for key in read.into_iter().filter(|key| !installed.contains(key)) {
        let explained = writes_more || unknown.contains(&key);
        let is_deleted = deleted.contains(&key);
        if certain.contains(&key) && (is_deleted || !explained) {
            loaded.push((key, 1, None));
        } else if !is_deleted && !absent.contains(&key) {
            perhaps.push(key);
        }
    }
    perhaps.into_iter().for_each(|key| index.add_load(key));
    loaded
}
