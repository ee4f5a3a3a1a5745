//! An exhaustive reference for single keys: tries every order of a key's operations, and every
//! place between them at which a crash may have cut. Independent of the checkers, and as small as
//! can be.
#![allow(dead_code, reason = "each test binary uses its part")]

mod draw;

use std::collections::BTreeSet;

use nicol_core::history::{
    Action, Effect, End, Found, History, Initial, Key, Operation, Persistency, Scan, Write,
};

pub use draw::{Kind, draw, show, sparse};

/// The keys of tiny histories.
pub const KEYS: [Key; 2] = [Key::Number(7), Key::Number(9)];

/// What a key holds, with the versions that its last write may have.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Cell {
    present: bool,
    digest: Option<u64>,
    versions: (u64, u64),
    /// Later writes have versions above this.
    floor: u64,
}

/// What an operation does to the key.
enum Effective<'h> {
    Sees(Found),
    Writes(&'h Write),
}

struct Step<'h> {
    operation: &'h Operation,
    effective: Effective<'h>,
    /// Must it come before what the crash leaves that ends its piece?
    protected: bool,
}

/// The operations of one key, and the instants of the crashes with what was found there.
struct Orders<'h> {
    steps: Vec<Step<'h>>,
    crashes: Vec<(u64, Option<Found>)>,
    /// Configurations from which nothing leads to the end.
    dead: BTreeSet<Configuration>,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Configuration {
    placed: Vec<bool>,
    /// Crashes that are over.
    piece: usize,
    cell: Cell,
    /// What the crash that ends the piece leaves, once it has been chosen.
    cut: Option<Cell>,
    /// Writes of unknown outcome that came behind the cut: they are lost, and may come again.
    lost: Vec<usize>,
}

/// Is there an order of each key's operations in which every read returns what it did, and each
/// crash leaves a state that stands behind all that `model` protects?
pub fn holds(history: &History, model: Persistency) -> bool {
    KEYS.iter().all(|key| key_holds(history, key, model))
}

fn key_holds(history: &History, key: &Key, model: Persistency) -> bool {
    let cells = match &history.initial {
        Initial::Listed(loaded) => {
            let loaded = loaded.iter().find(|loaded| loaded.key == *key);
            let version = loaded.map_or(0, |loaded| loaded.version);
            let digest = loaded.and_then(|loaded| loaded.digest);
            let versions = (version, version);
            vec![Cell { present: loaded.is_some(), digest, versions, floor: version }]
        }
        // A record with any version, or none.
        Initial::Untold => [true, false]
            .map(|present| Cell { present, digest: None, versions: (0, u64::MAX), floor: 0 })
            .to_vec(),
    };
    let steps: Vec<Step<'_>> = history
        .operations
        .iter()
        .filter_map(|operation| {
            let effective = effective(operation, key)?;
            let writes = matches!(effective, Effective::Writes(_));
            let kept = operation.end == End::Ok || operation.end == End::Unknown && writes;
            let protected = protects(history, model, operation, writes);
            kept.then_some(Step { operation, effective, protected })
        })
        .collect();
    let crashes = history.crashes.iter().map(|crash| {
        let read = crash.recovered.iter().find(|read| read.key == *key);
        let found = |read: &nicol_core::history::Read| Found {
            present: read.present,
            version: read.version,
            digest: read.digest,
        };
        (crash.at, read.map(found))
    });
    let crashes = crashes.collect();
    let placed = vec![false; steps.len()];
    let mut orders = Orders { steps, crashes, dead: BTreeSet::new() };
    cells.into_iter().any(|cell| {
        let placed = placed.clone();
        let start = Configuration { placed, piece: 0, cell, cut: None, lost: Vec::new() };
        orders.leads_to_the_end(&start)
    })
}

fn effective<'h>(operation: &'h Operation, key: &Key) -> Option<Effective<'h>> {
    match &operation.action {
        Action::Get { key: own, found } if own == key => Some(Effective::Sees((*found)?)),
        Action::Put { write, .. } | Action::Delete { write, .. } if write.key == *key => {
            Some(Effective::Writes(write))
        }
        Action::Scan(scan) if operation.end == End::Ok => scanned(scan, key).map(Effective::Sees),
        _ => None,
    }
}

/// What a scan says of `key`, if it says anything.
fn scanned(scan: &Scan, key: &Key) -> Option<Found> {
    if let Some(read) = scan.found.iter().find(|read| read.key == *key) {
        let &nicol_core::history::Read { present, version, digest, .. } = read;
        return Some(Found { present, version, digest });
    }
    let full = scan.limit.is_some_and(|limit| scan.found.len() >= limit as usize);
    let reached = match (scan.found.last().filter(|_| full), scan.backward) {
        (Some(last), false) => *key < last.key,
        (Some(last), true) => *key > last.key,
        (None, _) => scan.limit != Some(0),
    };
    let within = scan.first <= *key && *key <= scan.last;
    (within && reached).then_some(Found { present: false, version: None, digest: None })
}

fn protects(history: &History, model: Persistency, operation: &Operation, writes: bool) -> bool {
    let scope = match operation.action {
        Action::Put { scope, .. } | Action::Delete { scope, .. } => scope,
        _ => None,
    };
    let piece = |operation: &Operation| {
        history.crashes.iter().filter(|crash| crash.at < operation.invoked).count()
    };
    let persisted = history.operations.iter().any(|other| {
        let covers =
            matches!(other.action, Action::Persist { scope: of } if of.is_none() || of == scope);
        let later = other.client == operation.client && other.sequence > operation.sequence;
        covers && later && other.end == End::Ok && piece(other) == piece(operation)
    });
    operation.end == End::Ok
        && match model {
            Persistency::Strict => writes,
            Persistency::Synch => true,
            Persistency::Renf => !writes,
            Persistency::Scope => writes && persisted,
            Persistency::Event => false,
        }
}

impl Orders<'_> {
    fn leads_to_the_end(&mut self, from: &Configuration) -> bool {
        if self.dead.contains(from) {
            return false;
        }
        let crash = self.crashes.get(from.piece).copied();
        let open: Vec<usize> = (0..self.steps.len())
            .filter(|at| {
                let within =
                    crash.is_none_or(|(ends, _)| self.steps[*at].operation.invoked <= ends);
                !from.placed[*at] && within
            })
            .collect();
        let certain = |at: &usize| self.steps[*at].operation.end == End::Ok;
        let mut next = Vec::new();
        if !open.iter().any(certain) {
            match (crash, from.cut) {
                (None, _) => return true,
                (Some(_), None) => {}
                (Some(_), Some(cut)) => next.push(behind_crash(from, cut)),
            }
        }
        if let (Some((_, found)), None) = (crash, from.cut)
            && !open.iter().any(|at| self.steps[*at].protected)
        {
            let left = found.map_or(Some(from.cell), |found| see(from.cell, found));
            let cut = |left| Configuration { cell: left, cut: Some(left), ..from.clone() };
            next.extend(left.map(cut));
        }
        for &at in &open {
            let step = &self.steps[at];
            let precedes = |other: usize| precedes(self.steps[other].operation, step.operation);
            let blocked = open.iter().filter(|at| certain(at));
            if blocked.copied().any(|other| other != at && precedes(other)) {
                continue;
            }
            let cell = match step.effective {
                Effective::Sees(found) => see(from.cell, found),
                Effective::Writes(write) => put(from.cell, write),
            };
            let Some(cell) = cell else { continue };
            let mut taken = Configuration { cell, ..from.clone() };
            taken.placed[at] = true;
            if from.cut.is_some() && !certain(&at) {
                taken.lost.push(at);
                taken.lost.sort_unstable();
            }
            next.push(taken);
        }
        let leads = next.iter().any(|next| self.leads_to_the_end(next));
        if !leads {
            self.dead.insert(from.clone());
        }
        leads
    }
}

/// The first configuration of the next piece.
fn behind_crash(from: &Configuration, cut: Cell) -> Configuration {
    let mut placed = from.placed.clone();
    from.lost.iter().for_each(|at| placed[*at] = false);
    // A new life of a record may have any version.
    let versions = if cut.present { cut.versions } else { (0, 0) };
    let cell = Cell { versions, floor: versions.0, ..cut };
    Configuration { placed, piece: from.piece + 1, cell, cut: None, lost: Vec::new() }
}

fn precedes(first: &Operation, then: &Operation) -> bool {
    let ended = first.responded.unwrap_or(u64::MAX);
    let own = first.client == then.client && first.sequence < then.sequence;
    ended < then.invoked || own && ended <= then.invoked
}

fn put(cell: Cell, write: &Write) -> Option<Cell> {
    let (present, digest) = match write.effect {
        Effect::Put { digest } => (true, digest),
        Effect::Delete => (false, None),
        Effect::Unknown => unreachable!("not generated"),
    };
    let least = cell.floor + 1;
    let versions = write.version.map_or((least, u64::MAX), |version| (version, version));
    (versions.0 >= least).then_some(Cell { present, digest, versions, floor: versions.0 })
}

fn see(cell: Cell, found: Found) -> Option<Cell> {
    let digests = cell.digest.zip(found.digest).is_none_or(|(own, read)| own == read);
    if cell.present != found.present || found.present && !digests {
        return None;
    }
    let digest = cell.digest.or(found.digest);
    let (least, most) = cell.versions;
    let (versions, floor) = match found.version {
        None => (cell.versions, cell.floor),
        Some(version) if found.present => ((version, version), cell.floor.max(version)),
        Some(floor) => ((least, most.min(floor)), cell.floor.max(floor)),
    };
    let fits =
        found.version.is_none_or(|version| version >= least && (!found.present || version <= most));
    fits.then_some(Cell { digest, versions, floor, ..cell })
}
