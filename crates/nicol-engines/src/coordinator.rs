//! Runs the workloads' transactions, which declare their keys, on an engine: a procedure as any
//! other, that reads what is declared, executes the logic and writes what it says.

use std::cell::Cell;
use std::rc::Rc;

use nicol_core::commit::CommitProtocol;
use nicol_core::fabric::{Fabric, Work};
use nicol_core::ids::{Key, Version};
use nicol_core::interactive::Interactive;
use nicol_core::txn::{Abort, Entry, Outcome, Procedures, Txn, Verdict};
use nicol_schedule::{Client, Executor};

use super::log::Committed;
use super::transaction::Transaction;
use super::worker::{Protocol, Worker};

/// Rounds of a transaction's logic at most.
pub const ROUNDS_MAX: usize = 64;

/// Runs the transactions of one core, or of one of its clients.
pub struct Coordinator<F: Fabric, P: Protocol> {
    worker: Rc<Worker<F, P>>,
    procedures: Rc<Procedures>,
    /// The age of the client's transaction that has aborted last: its next attempt keeps it, so
    /// that it ends up as the oldest.
    age: Cell<Option<u64>>,
    /// When the latest was written of what the client has seen: it sees no earlier snapshot. 0 in
    /// an engine without several versions.
    latest: Cell<u64>,
}

impl<F: Fabric, P: Protocol> Clone for Coordinator<F, P> {
    fn clone(&self) -> Self {
        Self {
            worker: Rc::clone(&self.worker),
            procedures: Rc::clone(&self.procedures),
            age: Cell::new(None),
            latest: Cell::new(0),
        }
    }
}

/// How an attempt ended, and what whoever answers must wait for. Who refuses has read what must be
/// durable first.
type Attempted = (Outcome, Option<Committed>);

/// How the logic of a transaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Executed {
    /// It has written what it wants to write.
    Complete,
    Refused,
}

impl<F: Fabric, P: Protocol> Coordinator<F, P> {
    pub(super) fn new(worker: Rc<Worker<F, P>>, procedures: &Procedures) -> Self {
        let procedures = Rc::new(procedures.clone());
        Self { worker, procedures, age: Cell::new(None), latest: Cell::new(0) }
    }

    async fn execute(
        &self,
        txn: &mut Txn,
        open: &mut Transaction<F, P>,
    ) -> Result<Executed, Abort> {
        let _phase = self.worker.fabric.phase("execute");
        let mut executed = 0;
        for _ in 0..ROUNDS_MAX {
            let unread = txn.entries().iter().filter(|entry| !entry.fetched);
            open.will_read(unread.map(|entry| entry.key));
            fetch(txn, open).await?;
            scan(txn, open).await?;
            // A procedure that reads while it runs begins once: only its keys cost, not our rounds.
            let keys = txn.entries().len() - executed;
            self.worker.fabric.work(Work::Execute { keys: keys as u16 });
            executed += keys;
            match self.procedures.execute(txn) {
                Verdict::Commit => {
                    put(txn, open).await?;
                    return Ok(Executed::Complete);
                }
                Verdict::More => {}
                Verdict::Refuse => return Ok(Executed::Refused),
            }
        }
        Err(Abort::NoResources)
    }

    /// Runs `txn` once, and does not wait until it is durable. `age` is that of the attempt before,
    /// if there was one; `latest` is of its client, if whoever calls knows that.
    async fn run_once(
        &self,
        txn: &mut Txn,
        age: &mut Option<u64>,
        latest: Option<&Cell<u64>>,
    ) -> Attempted {
        let since = latest.filter(|_| self.procedures.only_reads(txn)).map(Cell::get);
        let mut open = Transaction::begin(&self.worker, age.take(), since).await;
        txn.id = open.id;
        let own = open.age();
        let executed = self.execute(txn, &mut open).await;
        let seen = open.latest();
        let ended = match executed {
            Ok(Executed::Complete) => open.commit().await.map(|logged| (Ok(()), logged)),
            Ok(Executed::Refused) => {
                open.refuse().await.map(|logged| (Err(Abort::Refused), logged))
            }
            Err(abort) => {
                open.abort();
                Err(abort)
            }
        };
        if ended.is_err_and(|abort| abort.retryable()) {
            *age = Some(own);
        }
        if let (Ok(_), Some(latest)) = (&ended, latest) {
            latest.set(latest.get().max(seen));
        }
        match ended {
            Ok((Ok(()), logged)) => (Outcome::Committed, Some(logged)),
            Ok((Err(abort), logged)) => (Outcome::Aborted(abort), Some(logged)),
            Err(abort) => (Outcome::Aborted(abort), None),
        }
    }
}

impl<F: Fabric, P: Protocol> Executor for Coordinator<F, P> {
    type Ended = Option<Committed>;

    /// The age of the attempt before.
    type Left = Option<u64>;

    async fn once(&self, txn: &mut Txn, left: &mut Option<u64>) -> Attempted {
        self.run_once(txn, left, None).await
    }

    fn must_wait(&self, ended: &Option<Committed>) -> bool {
        ended.is_some() && self.worker.logs()
    }

    async fn is_durable(&self, ended: Option<Committed>) -> bool {
        match ended {
            Some(committed) => self.worker.durable(committed).await,
            None => true,
        }
    }
}

/// Reads what the logic has asked for.
async fn fetch<F: Fabric, P: Protocol>(
    txn: &mut Txn,
    open: &mut Transaction<F, P>,
) -> Result<(), Abort> {
    let mut from = 0;
    while let Some(index) = open.fetch_at_once(txn, from)? {
        let Entry { key, write, .. } = txn.entries()[index];
        let start = txn.values().len();
        let seen = open.read_onto(key, write, txn.values()).await?;
        let read = start..txn.values().len();
        txn.fetched_at(index, seen.version, seen.present.then_some(read));
        from = index + 1;
    }
    Ok(())
}

/// Writes what the logic wants to write: one write a key, which the transaction has not written
/// before.
async fn put<F: Fabric, P: Protocol>(txn: &Txn, open: &mut Transaction<F, P>) -> Result<(), Abort> {
    let mut from = 0;
    while let Some(index) = open.put_at_once(txn, from)? {
        if let Some(write) = txn.update(index) {
            open.put_first(write.key, write.value).await?;
        }
        from = index + 1;
    }
    Ok(())
}

/// Makes the scans that the logic has asked for.
async fn scan(txn: &mut Txn, open: &mut impl Interactive) -> Result<(), Abort> {
    for index in 0..txn.scans().len() {
        let scan = txn.scans()[index];
        if scan.is_done() {
            continue;
        }
        let mut found = txn.collect(index);
        let mut keep = |key: Key, version: Version, value: &[u8]| {
            found.add(key, version, value);
        };
        open.scan(scan.range, &mut keep).await?;
        if !found.end() {
            return Err(Abort::NoResources);
        }
    }
    Ok(())
}

impl<F: Fabric, P: Protocol> CommitProtocol for Coordinator<F, P> {
    async fn run(&self, txn: &mut Txn) -> Outcome {
        self.worker.take_turns().await;
        let mut age = self.age.take();
        let (outcome, ended) = self.run_once(txn, &mut age, Some(&self.latest)).await;
        self.age.set(age);
        if self.is_durable(ended).await { outcome } else { Outcome::Unknown }
    }
}

/// What runs the transactions of a client: the core that it is on, or a server's scheduler and
/// workers.
pub struct Submitter<F: Fabric, P: Protocol>(Way<F, P>);

enum Way<F: Fabric, P: Protocol> {
    Here(Coordinator<F, P>),
    Scheduled(Client<F>),
}

impl<F: Fabric, P: Protocol> Submitter<F, P> {
    pub(super) const fn here(coordinator: Coordinator<F, P>) -> Self {
        Self(Way::Here(coordinator))
    }

    pub(super) const fn scheduled(client: Client<F>) -> Self {
        Self(Way::Scheduled(client))
    }
}

impl<F: Fabric, P: Protocol> Clone for Submitter<F, P> {
    fn clone(&self) -> Self {
        Self(match &self.0 {
            Way::Here(coordinator) => Way::Here(coordinator.clone()),
            Way::Scheduled(client) => Way::Scheduled(client.clone()),
        })
    }
}

impl<F: Fabric, P: Protocol> CommitProtocol for Submitter<F, P> {
    async fn run(&self, txn: &mut Txn) -> Outcome {
        match &self.0 {
            Way::Here(coordinator) => coordinator.run(txn).await,
            Way::Scheduled(client) => client.run(txn).await,
        }
    }
}
