//! Where the two writes of a request meet: its data on the host, and the entry that the scheduler
//! makes of its vector. [AlNiCo22, implementation, steps 1 to 4]

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use nicol_core::fabric::ReplyTo;
use nicol_core::ids::{EngineId, TxnId};

/// An entry of a worker's completion queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) reply_to: ReplyTo,
    /// The client's slot, and the request in it.
    pub(crate) slot: u64,
    pub(crate) id: TxnId,
}

/// An entry whose data has not come.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiting {
    pub(crate) entry: Entry,
    pub(crate) worker: EngineId,
    pub(crate) scheduler: EngineId,
}

#[derive(Debug)]
enum Half {
    Data { id: TxnId, body: Vec<u8> },
    Entry(Waiting),
}

impl Half {
    const fn id(&self) -> TxnId {
        match self {
            Self::Data { id, .. } => *id,
            Self::Entry(waiting) => waiting.entry.id,
        }
    }

    /// Is it of a request that the client has sent after the request `id`? Then nobody waits for
    /// that: the core that received its data stood still, and it was refused meanwhile.
    fn is_later_than(&self, id: TxnId) -> bool {
        let life = |id: TxnId| id.0 - id.sequence();
        life(self.id()) == life(id) && self.id().sequence() > id.sequence()
    }
}

/// By client slot, whichever half has come first. A client has one request at a time, so that what
/// comes for a later one replaces what an earlier one has left, and what comes for an earlier one
/// is dropped.
#[derive(Debug, Default)]
pub(crate) struct Deposits(Mutex<BTreeMap<u64, Half>>);

impl Deposits {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Half>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The data of a request has come. The entry that waits for it, if one does; else it is kept.
    pub(crate) fn data(&self, slot: u64, id: TxnId, body: &[u8]) -> Option<Waiting> {
        let mut halves = self.lock();
        if halves.get(&slot).is_some_and(|half| half.is_later_than(id)) {
            return None;
        }
        match halves.remove(&slot) {
            Some(Half::Entry(waiting)) if waiting.entry.id == id => Some(waiting),
            _ => {
                halves.insert(slot, Half::Data { id, body: body.to_vec() });
                None
            }
        }
    }

    /// A worker has an entry: its data, if that has come; else the entry is kept.
    pub(crate) fn entry(&self, waiting: Waiting) -> Option<Vec<u8>> {
        let (mut halves, Entry { slot, id, .. }) = (self.lock(), waiting.entry);
        if halves.get(&slot).is_some_and(|half| half.is_later_than(id)) {
            return None;
        }
        match halves.remove(&slot) {
            Some(Half::Data { id: of, body }) if of == id => Some(body),
            _ => {
                halves.insert(slot, Half::Entry(waiting));
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use nicol_core::fabric::RequestId;
    use nicol_core::ids::{Incarnation, NodeId};

    use super::*;

    fn waiting(id: u64) -> Waiting {
        let (worker, scheduler) = (EngineId::host(NodeId(0), 3), EngineId::nic(NodeId(0), 0));
        let reply_to = ReplyTo { engine: worker, request: RequestId::NONE };
        Waiting { entry: Entry { reply_to, slot: 7, id: TxnId(id) }, worker, scheduler }
    }

    #[test]
    fn a_request_is_whole_when_both_halves_are_there_whichever_comes_first() {
        let deposits = Deposits::default();
        assert!(deposits.data(7, TxnId(1), b"one").is_none());
        assert_eq!(deposits.entry(waiting(1)), Some(b"one".to_vec()));
        assert_eq!(deposits.entry(waiting(2)), None);
        assert_eq!(deposits.data(7, TxnId(2), b"two").map(|found| found.entry.id), Some(TxnId(2)));
        assert_eq!(deposits.entry(waiting(2)), None, "it was taken");
    }

    #[test]
    fn halves_of_different_requests_never_meet() {
        let deposits = Deposits::default();
        assert!(deposits.data(7, TxnId(1), b"lost").is_none());
        assert_eq!(deposits.entry(waiting(2)), None, "another request's data");
        assert!(deposits.data(7, TxnId(1), b"late").is_none(), "another request's entry");
        assert!(deposits.data(7, TxnId(2), b"two").is_some());
    }

    #[test]
    fn what_comes_late_of_an_earlier_request_takes_nothing_from_a_later_one() {
        let deposits = Deposits::default();
        assert!(deposits.data(7, TxnId(2), b"two").is_none());
        assert!(deposits.data(7, TxnId(1), b"late").is_none());
        assert_eq!(deposits.entry(waiting(1)), None);
        assert_eq!(deposits.entry(waiting(2)), Some(b"two".to_vec()));
        // The first of a client's next life is later than the last of the life before.
        let [last, first] = [(1, 9), (2, 1)].map(|(life, sequence)| {
            TxnId::new(EngineId::host(NodeId(1), 0), Incarnation(life), sequence)
        });
        assert!(deposits.data(7, last, b"left").is_none());
        assert!(deposits.data(7, first, b"first").is_none());
        assert_eq!(deposits.entry(waiting(first.0)), Some(b"first".to_vec()));
    }
}
