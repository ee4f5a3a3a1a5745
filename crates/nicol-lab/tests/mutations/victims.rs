//! Finds what a mutation changes.

use std::collections::BTreeMap;

use nicol_core::history::{Action, Effect, End, History, Key, Operation, Read, Txn};

/// A committed operation that read what another committed one wrote.
#[derive(Clone, Copy, Debug)]
pub struct Pair {
    /// The writer's position.
    pub writer: usize,
    /// Its write.
    pub write: usize,
    /// The reader's position.
    pub reader: usize,
    /// Its read.
    pub read: usize,
}

/// A history, and who installed what.
pub struct Victims<'h> {
    history: &'h History,
    installs: BTreeMap<(&'h Key, u64), (usize, usize)>,
}

/// The transaction of an operation.
pub fn txn_mut(operation: &mut Operation) -> &mut Txn {
    match &mut operation.action {
        Action::Txn(txn) => txn,
        other => panic!("the driver runs transactions: {other:?}"),
    }
}

/// The transaction of an operation.
pub fn txn(operation: &Operation) -> &Txn {
    operation.txn().expect("the driver runs transactions")
}

impl<'h> Victims<'h> {
    pub fn of(history: &'h History) -> Self {
        let mut installs = BTreeMap::new();
        for (at, operation) in history.operations.iter().enumerate() {
            for (write, one) in txn(operation).writes.iter().enumerate() {
                if let (End::Ok, Some(version)) = (operation.end, one.version) {
                    installs.insert((&one.key, version), (at, write));
                }
            }
        }
        Self { history, installs }
    }

    /// The positions of all operations, from `pick` on and around.
    pub fn all(&self, pick: usize) -> impl Iterator<Item = usize> + use<> {
        let count = self.history.operations.len();
        (0..count).map(move |step| (pick + step) % count)
    }

    /// An operation that passes a test.
    pub fn pick(&self, pick: usize, test: impl Fn(&Operation) -> bool) -> Option<usize> {
        self.all(pick).find(|&at| test(&self.history.operations[at]))
    }

    /// A key that somebody committed a write of.
    pub fn written(&self, pick: usize) -> Option<Key> {
        let writer = |one: &Operation| one.end == End::Ok && !txn(one).writes.is_empty();
        let at = self.pick(pick, writer)?;
        Some(txn(&self.history.operations[at]).writes[0].key.clone())
    }

    /// Who committed this version, and by which of its writes.
    pub fn installer(&self, key: &Key, version: Option<u64>) -> Option<(usize, usize)> {
        self.installs.get(&(key, version?)).copied()
    }

    /// A committed read of a record, and what it read, that pass a test.
    pub fn read(
        &self,
        pick: usize,
        test: impl Fn(&Operation, &Read) -> bool,
    ) -> Option<(usize, usize)> {
        self.all(pick).find_map(|at| {
            let operation = &self.history.operations[at];
            let read = txn(operation).reads.iter().position(|read| test(operation, read))?;
            (operation.end == End::Ok).then_some((at, read))
        })
    }

    /// A pair of writer and reader of one version of a record that passes a test.
    pub fn pair(&self, pick: usize, test: impl Fn(&Operation, &Operation) -> bool) -> Option<Pair> {
        self.all(pick).find_map(|reader| {
            let operation = &self.history.operations[reader];
            if operation.end != End::Ok {
                return None;
            }
            txn(operation).reads.iter().enumerate().find_map(|(read, one)| {
                let (writer, write) = self.installer(&one.key, one.version)?;
                let from = &self.history.operations[writer];
                let put = matches!(txn(from).writes[write].effect, Effect::Put { .. });
                let fits = one.present && put && writer != reader && test(from, operation);
                fits.then_some(Pair { writer, write, reader, read })
            })
        })
    }

    /// A pair whose writer had ended before its reader began.
    pub fn pair_in_time(&self, pick: usize) -> Option<Pair> {
        self.pair(pick, |writer, reader| writer.responded < Some(reader.invoked))
    }
}
