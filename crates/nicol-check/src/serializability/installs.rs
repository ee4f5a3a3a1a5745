//! Who installed which version of which key.

use nicol_core::history::first::{End, Event, Read};

use super::graph::{EdgeKind, Graph};
use super::{Anomaly, Report};

/// One install of a committed transaction, or of one that may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Install {
    key: u64,
    version: u64,
    writer: usize,
    deleted: bool,
}

/// All installs, ordered by key and version.
pub(super) struct Installs {
    all: Vec<Install>,
    /// What aborted transactions would have installed, in the same order.
    aborted: Vec<(u64, u64)>,
    /// Keys that transactions of unknown outcome may have written, nobody knows what, ordered.
    unseen: Vec<u64>,
}

/// What a read saw.
pub(super) enum Observed {
    /// The initial state of the key; `next` installed over it.
    Initial { next: Option<usize> },
    /// What `writer` installed; `next` installed over it.
    Install { writer: usize, next: Option<usize> },
    /// What a transaction of unknown outcome may have installed; `next` installed over it.
    Unseen { next: Option<usize> },
    /// Nothing that there ever was.
    Wrong(Anomaly, String),
}

impl Installs {
    /// Gathers the installs; reports those that two committed transactions made.
    pub(super) fn new(events: &[Event], report: &mut Report) -> Self {
        let mut all = Vec::new();
        let mut aborted = Vec::new();
        for (writer, event) in events.iter().enumerate() {
            for write in &event.writes {
                let (key, version) = (write.key, write.version);
                if event.end == End::Aborted {
                    aborted.push((key, version));
                } else {
                    all.push(Install { key, version, writer, deleted: write.deleted });
                }
            }
        }
        let mut unseen: Vec<u64> =
            events.iter().flat_map(|event| event.unseen_writes.iter().copied()).collect();
        all.sort_unstable();
        aborted.sort_unstable();
        unseen.sort_unstable();
        for pair in all.windows(2) {
            let [a, b] = pair else { continue };
            let committed = |install: &Install| events[install.writer].end == End::Committed;
            if (a.key, a.version) == (b.key, b.version) && committed(a) && committed(b) {
                let (one, other) = (events[a.writer].id, events[b.writer].id);
                let (key, version) = (a.key, a.version);
                report.add(
                    Anomaly::DuplicateInstall,
                    format!("{one} and {other} both installed version {version} of key {key:#x}"),
                );
            }
        }
        Self { all, aborted, unseen }
    }

    /// Which transactions took effect: the committed ones, and those of unknown outcome whose
    /// installs one of these read and no committed one made.
    pub(super) fn effective(&self, events: &[Event]) -> Vec<bool> {
        let mut effective: Vec<bool> =
            events.iter().map(|event| event.end == End::Committed).collect();
        let mut open: Vec<usize> = (0..events.len()).filter(|&index| effective[index]).collect();
        while let Some(reader) = open.pop() {
            for read in &events[reader].reads {
                let at = self.after(read.key, read.version);
                let mut seen = self.all[..at].iter().rev();
                let newest = seen.next().filter(|install| install.key == read.key);
                let Some(newest) = newest else { continue };
                let same = |install: &&Install| {
                    (install.key, install.version) == (newest.key, newest.version)
                };
                let candidates = self.all[..at].iter().rev().take_while(same);
                let decided = candidates.clone().any(|install| effective[install.writer]);
                if decided || (read.present && newest.version != read.version) {
                    continue;
                }
                if let Some(install) = candidates.last() {
                    effective[install.writer] = true;
                    open.push(install.writer);
                }
            }
        }
        effective
    }

    /// The installs of effective transactions only.
    pub(super) fn without(mut self, events: &[Event], effective: &[bool]) -> Self {
        self.all.retain(|install| {
            assert!(install.writer < events.len(), "an install has a writer");
            effective[install.writer]
        });
        self
    }

    /// The position behind the installs of `key` up to `version`.
    fn after(&self, key: u64, version: u64) -> usize {
        self.all.partition_point(|install| (install.key, install.version) <= (key, version))
    }

    /// Adds an edge from each install to the next one of its key.
    pub(super) fn overwrites(&self, graph: &mut Graph) {
        for pair in self.all.windows(2) {
            if let [a, b] = pair
                && a.key == b.key
            {
                graph.edge(a.writer, b.writer, EdgeKind::Overwrites, a.key);
            }
        }
    }

    /// What a read of an effective transaction saw.
    pub(super) fn observe(&self, events: &[Event], read: &Read) -> Observed {
        let at = self.after(read.key, read.version);
        let next = self.all.get(at).filter(|next| next.key == read.key).map(|next| next.writer);
        let newest = at
            .checked_sub(1)
            .map(|before| self.all[before])
            .filter(|install| install.key == read.key);
        let (key, version) = (read.key, read.version);
        let is_known = newest
            .is_some_and(|newest| newest.version == version && newest.deleted != read.present);
        if !is_known && self.unseen.binary_search(&key).is_ok() {
            return Observed::Unseen { next };
        }
        match newest {
            Some(newest) if read.present && newest.version != version => {
                self.nobody_installed(key, version)
            }
            Some(newest) if read.present == newest.deleted => {
                let (saw, writer) = (if read.present { "a" } else { "no" }, newest.writer);
                let what = if newest.deleted { "deleted" } else { "installed" };
                let (id, at) = (events[writer].id, newest.version);
                Observed::Wrong(
                    Anomaly::WrongPresence,
                    format!(
                        "read {saw} record of key {key:#x} at version {version}, although {id} \
                         {what} it at version {at}"
                    ),
                )
            }
            Some(newest) => Observed::Install { writer: newest.writer, next },
            None if read.present && version != 1 => self.nobody_installed(key, version),
            None => Observed::Initial { next },
        }
    }

    fn nobody_installed(&self, key: u64, version: u64) -> Observed {
        let aborted = self.aborted.binary_search(&(key, version)).is_ok();
        let (anomaly, who) = if aborted {
            (Anomaly::AbortedRead, "only an aborted transaction wrote")
        } else {
            (Anomaly::UnknownVersion, "nobody installed")
        };
        Observed::Wrong(anomaly, format!("read version {version} of key {key:#x}, which {who}"))
    }
}
