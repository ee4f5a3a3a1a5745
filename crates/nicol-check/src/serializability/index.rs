//! A history with its keys numbered in their order, flat and ready to be looked up.

use std::collections::BTreeMap;
use std::ops::Range;

use nicol_core::history::{Action, Effect, End, Found, History, Initial, Key, Operation, Txn};
use nicol_core::ids::IdMap;

use crate::scans::contradiction;

/// Stands for no node: the initial load.
pub(super) const NOBODY: u32 = u32::MAX;

/// An operation that took effect or may have.
#[derive(Clone, Debug)]
pub(super) struct Node {
    /// Its position among the history's operations.
    pub(super) operation: u32,
    pub(super) unknown: bool,
    pub(super) writes_more: bool,
    /// Does it contradict itself, so that it cannot have taken effect?
    pub(super) impossible: bool,
    pub(super) reads: Range<u32>,
    pub(super) scans: Range<u32>,
    pub(super) writes: Range<u32>,
}

/// A node's read of one key.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadAt {
    pub(super) node: u32,
    pub(super) key: u32,
    pub(super) present: bool,
    pub(super) version: Option<u64>,
    pub(super) digest: Option<u64>,
}

/// A node's write to one key; the last of several writes to it.
#[derive(Clone, Copy, Debug)]
pub(super) struct WriteAt {
    pub(super) node: u32,
    pub(super) key: u32,
    pub(super) effect: Effect,
    pub(super) version: Option<u64>,
}

/// The keys that a scan covers, and which of them it found.
#[derive(Clone, Debug)]
pub(super) struct ScanAt {
    pub(super) covers: Range<u32>,
    pub(super) found: Vec<u32>,
}

/// A write of a key that nobody can have read rightly: it was aborted, or overwritten by its own
/// transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Hidden {
    pub(super) key: u32,
    pub(super) version: u64,
    pub(super) operation: u32,
    pub(super) aborted: bool,
}

/// See the module.
pub(super) struct Index<'h> {
    pub(super) operations: &'h [Operation],
    pub(super) nodes: Vec<Node>,
    pub(super) reads: Vec<ReadAt>,
    pub(super) scans: Vec<ScanAt>,
    pub(super) writes: Vec<WriteAt>,
    pub(super) hidden: Vec<Hidden>,
    /// Loaded records: key, version, digest.
    pub(super) loaded: Vec<(u32, u64, Option<u64>)>,
    /// Scans that contradict themselves: the node, and what is wrong.
    pub(super) wrong_scans: Vec<(u32, String)>,
    /// What may have loaded one record each, where a history does not tell: its nodes are the last.
    loads: Vec<Operation>,
    numbers: Vec<u64>,
    number_of: IdMap<u64, u32>,
    strings: Vec<&'h [u8]>,
}

impl<'h> Index<'h> {
    pub(super) fn new(history: &'h History) -> Self {
        let mut index = Self {
            operations: &history.operations,
            nodes: Vec::new(),
            reads: Vec::new(),
            scans: Vec::new(),
            writes: Vec::new(),
            hidden: Vec::new(),
            loaded: Vec::new(),
            wrong_scans: Vec::new(),
            loads: Vec::new(),
            numbers: Vec::new(),
            number_of: IdMap::default(),
            strings: Vec::new(),
        };
        index.number_keys(history);
        index.reserve(history);
        for (position, operation) in history.operations.iter().enumerate() {
            match operation.end {
                End::Ok | End::Unknown => index.add_node(position, operation),
                End::Failed => index.add_aborted(position, operation),
            }
        }
        index.hidden.sort_unstable();
        if let Initial::Listed(loaded) = &history.initial {
            let record = |index: &Self, loaded: &nicol_core::history::Loaded| {
                (index.key(&loaded.key), loaded.version, loaded.digest)
            };
            index.loaded = loaded.iter().map(|loaded| record(&index, loaded)).collect();
        }
        index
    }

    /// Makes room for what transactions have read and written: lists of millions are not copied
    /// while they grow.
    fn reserve(&mut self, history: &History) {
        let (mut reads, mut writes) = (0, 0);
        for operation in &history.operations {
            if let Action::Txn(txn) = &operation.action {
                reads +=
                    txn.reads.len() + txn.scans.iter().map(|scan| scan.found.len()).sum::<usize>();
                writes += txn.writes.len();
            }
        }
        self.nodes.reserve(history.operations.len());
        self.reads.reserve(reads);
        self.writes.reserve(writes);
    }

    fn number_keys(&mut self, history: &'h History) {
        let mut add = |key: &'h Key| match key {
            Key::Number(number) => self.numbers.push(*number),
            Key::Bytes(bytes) => self.strings.push(bytes),
        };
        for operation in &history.operations {
            match &operation.action {
                Action::Txn(txn) => {
                    txn.reads.iter().for_each(|read| add(&read.key));
                    txn.writes.iter().for_each(|write| add(&write.key));
                    let found = txn.scans.iter().flat_map(|scan| &scan.found);
                    found.for_each(|read| add(&read.key));
                }
                Action::Get { key, .. } => add(key),
                Action::Put { write, .. } | Action::Delete { write, .. } => add(&write.key),
                Action::Scan(scan) => scan.found.iter().for_each(|read| add(&read.key)),
                Action::Persist { .. } => {}
            }
        }
        if let Initial::Listed(loaded) = &history.initial {
            loaded.iter().for_each(|loaded| add(&loaded.key));
        }
        self.numbers.sort_unstable();
        self.numbers.dedup();
        self.strings.sort_unstable();
        self.strings.dedup();
        let numbered = self.numbers.iter().enumerate();
        self.number_of = numbered.map(|(index, number)| (*number, index as u32)).collect();
    }

    pub(super) fn keys(&self) -> usize {
        self.numbers.len() + self.strings.len()
    }

    /// The number of a key that the history names.
    fn key(&self, key: &Key) -> u32 {
        match key {
            Key::Number(number) => self.number_of[number],
            Key::Bytes(bytes) => {
                let at = self.strings.partition_point(|other| *other < &**bytes);
                (self.numbers.len() + at) as u32
            }
        }
    }

    /// How many keys come before `key`; `or_equal`: or are it.
    fn keys_before(&self, key: &Key, or_equal: bool) -> u32 {
        let at = match key {
            Key::Number(number) => {
                self.numbers.partition_point(|other| other < number || or_equal && other == number)
            }
            Key::Bytes(bytes) => {
                let before = |other: &&[u8]| *other < &**bytes || or_equal && *other == &**bytes;
                self.numbers.len() + self.strings.partition_point(before)
            }
        };
        at as u32
    }

    pub(super) fn name(&self, key: u32) -> String {
        match self.numbers.get(key as usize) {
            Some(number) => format!("{number:#x}"),
            None => {
                let bytes = self.strings[key as usize - self.numbers.len()];
                bytes.iter().map(|byte| format!("{byte:02x}")).collect()
            }
        }
    }

    pub(super) fn operation(&self, node: u32) -> &Operation {
        let position = self.nodes[node as usize].operation as usize;
        match position.checked_sub(self.operations.len()) {
            None => &self.operations[position],
            Some(load) => &self.loads[load],
        }
    }

    /// Adds a load of `key` at version 1 that may have happened, as an operation of unknown
    /// outcome. To be called when all operations are in.
    pub(super) fn add_load(&mut self, key: u32) {
        let node = self.nodes.len() as u32;
        let position = (self.operations.len() + self.loads.len()) as u32;
        self.loads.push(Operation {
            client: u32::MAX,
            sequence: node.into(),
            id: 0,
            invoked: 0,
            responded: None,
            end: End::Unknown,
            action: Action::Txn(Txn::default()),
        });
        let (reads, scans) = (self.reads.len() as u32, self.scans.len() as u32);
        let writes = self.writes.len() as u32;
        let effect = Effect::Put { digest: None };
        self.writes.push(WriteAt { node, key, effect, version: Some(1) });
        self.nodes.push(Node {
            operation: position,
            unknown: true,
            writes_more: false,
            impossible: false,
            reads: reads..reads,
            scans: scans..scans,
            writes: writes..writes + 1,
        });
    }

    /// Where the loads that may have happened begin among the nodes: behind the operations.
    pub(super) fn loads_from(&self) -> u32 {
        (self.nodes.len() - self.loads.len()) as u32
    }

    /// True if this node is a load that may have happened.
    pub(super) fn is_load(&self, node: u32) -> bool {
        node >= self.loads_from()
    }

    pub(super) fn id(&self, node: u32) -> u64 {
        self.operation(node).id
    }

    fn add_node(&mut self, position: usize, operation: &'h Operation) {
        let node = self.nodes.len() as u32;
        let ends = |index: &Self| {
            (index.reads.len() as u32, index.scans.len() as u32, index.writes.len() as u32)
        };
        let begin = ends(self);
        let mut writes_more = false;
        match &operation.action {
            Action::Txn(txn) => {
                txn.reads.iter().for_each(|read| self.add_read(node, read));
                txn.scans.iter().for_each(|scan| self.add_scan(node, scan));
                self.add_writes(node, position, &txn.writes);
                writes_more = txn.writes_more;
            }
            Action::Get { key, found: Some(Found { present, version, digest }) } => {
                let (key, present, version, digest) = (self.key(key), *present, *version, *digest);
                self.push_read(ReadAt { node, key, present, version, digest });
            }
            Action::Put { write, .. } | Action::Delete { write, .. } => {
                self.add_writes(node, position, std::slice::from_ref(write));
            }
            Action::Scan(scan) if operation.end == End::Ok => self.add_scan(node, scan),
            Action::Get { found: None, .. } | Action::Scan(_) | Action::Persist { .. } => {}
        }
        let end = ends(self);
        self.nodes.push(Node {
            operation: position as u32,
            unknown: operation.end == End::Unknown,
            writes_more,
            impossible: self.wrong_scans.last().is_some_and(|(wrong, _)| *wrong == node),
            reads: begin.0..end.0,
            scans: begin.1..end.1,
            writes: begin.2..end.2,
        });
    }

    fn add_read(&mut self, node: u32, read: &nicol_core::history::Read) {
        let key = self.key(&read.key);
        let nicol_core::history::Read { present, version, digest, .. } = *read;
        self.push_read(ReadAt { node, key, present, version, digest });
    }

    fn push_read(&mut self, read: ReadAt) {
        let ReadAt { key, present, version, .. } = read;
        if !present && version.is_none() {
            // It says no more than a scan of this key.
            self.scans.push(ScanAt { covers: key..key + 1, found: Vec::new() });
        } else {
            self.reads.push(read);
        }
    }

    fn add_writes(&mut self, node: u32, position: usize, writes: &[nicol_core::history::Write]) {
        let begin = self.writes.len();
        for write in writes {
            let key = self.key(&write.key);
            let added = WriteAt { node, key, effect: write.effect, version: write.version };
            let earlier = self.writes[begin..].iter_mut().find(|earlier| earlier.key == key);
            match earlier {
                Some(earlier) => {
                    let operation = position as u32;
                    let hide = |version| Hidden { key, version, operation, aborted: false };
                    self.hidden.extend(earlier.version.map(hide));
                    *earlier = added;
                }
                None => self.writes.push(added),
            }
        }
    }

    fn add_aborted(&mut self, position: usize, operation: &'h Operation) {
        let writes = match &operation.action {
            Action::Txn(txn) => txn.writes.as_slice(),
            Action::Put { write, .. } | Action::Delete { write, .. } => std::slice::from_ref(write),
            Action::Get { .. } | Action::Scan(_) | Action::Persist { .. } => &[],
        };
        for write in writes {
            let (key, operation) = (self.key(&write.key), position as u32);
            let hide = |version| Hidden { key, version, operation, aborted: true };
            self.hidden.extend(write.version.map(hide));
        }
    }

    fn add_scan(&mut self, node: u32, scan: &'h nicol_core::history::Scan) {
        if let Some((_, wrong)) = contradiction(scan, |key| self.name(self.key(key))) {
            self.wrong_scans.push((node, wrong));
            return;
        }
        scan.found.iter().for_each(|read| self.add_read(node, read));
        let mut found: Vec<u32> = scan.found.iter().map(|read| self.key(&read.key)).collect();
        let is_full = scan.limit.is_some_and(|limit| found.len() >= limit as usize);
        let end = if is_full { scan.found.last().map(|read| &read.key) } else { None };
        let (first, last) = match (scan.backward, end) {
            (_, None) if is_full => return,
            (_, None) => (&scan.first, &scan.last),
            (false, Some(end)) => (&scan.first, end),
            (true, Some(end)) => (end, &scan.last),
        };
        let start = self.keys_before(first, false);
        let covers = start..self.keys_before(last, true).max(start);
        found.sort_unstable();
        self.scans.push(ScanAt { covers, found });
    }

    /// Nodes of each client, in its order.
    pub(super) fn clients(&self) -> BTreeMap<u32, Vec<u32>> {
        let mut clients: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for node in 0..self.loads_from() {
            clients.entry(self.operation(node).client).or_default().push(node);
        }
        for nodes in clients.values_mut() {
            nodes.sort_unstable_by_key(|&node| self.operation(node).sequence);
        }
        clients
    }
}
