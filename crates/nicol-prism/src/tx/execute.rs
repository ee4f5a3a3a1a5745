//! Execution: every key is read as by a GET of PRISM-KV, all keys at once. [PRISM21 8.2, 6.1]

use std::rc::Rc;

use nicol_core::chain::Chain;
use nicol_core::fabric::{Fabric, FabricError, OneSided, Work};
use nicol_core::ids::{Key, NodeId, ShardId};
use nicol_core::txn::{Abort, Txn, Verdict};
use nicol_core::units::Nanos;
use nicol_kit::{Calls, Computed, VIEW_WAIT, count};

use super::chains::{Installed, KEY_ONLY};
use super::coordinator::{Access, Steps, list_for};
use super::layout::{HEADER, slot_at};
use crate::kv::name::Name;
use crate::messages::{Handles, Suspicion, Unused};
use crate::servers::{Unreached, voids_handles};
use crate::tag::Tag;

/// First wait after a chain that found no buffer; it doubles.
pub(super) const NOT_READY_WAIT: Nanos = Nanos::from_micros(5);
/// So often a chain that found no buffer is tried again: some 10 ms.
pub(super) const NOT_READY_TRIES: u32 = 11;

/// Execution rounds that one transaction may take.
const ROUNDS_MAX: usize = 64;

/// Proof that every key was read: where each entry's key is.
#[must_use = "validate what was read"]
pub(super) struct Executed(Vec<Access>);

impl Executed {
    /// The latest RC of what the logic has seen.
    pub(super) fn latest(&self, txn: &Txn) -> Tag {
        let read = self.0.iter().zip(txn.entries()).filter(|(_, entry)| entry.fetched);
        read.map(|(access, _)| access.rc).max().unwrap_or(Tag(0))
    }

    pub(super) fn accesses(&self) -> &[Access] {
        &self.0
    }
}

/// A search for a key.
struct Search {
    index: usize,
    /// The slots that come next.
    probes: Box<dyn Iterator<Item = u64>>,
}

/// The result of a READ.
enum Looked {
    /// This is the key's slot.
    Here,
    /// The slot has another key.
    Elsewhere,
    /// No slot has the key: this would be the first.
    Nowhere,
}

impl<F: Fabric> Steps<F> {
    /// Reads every key and computes the writes, in as many rounds as the logic adds keys.
    ///
    /// Errors: a server does not answer, or the logic aborts.
    pub(super) async fn execute_rounds(&self, txn: &mut Txn) -> Result<Executed, Abort> {
        let mut executed = self.execute(txn, None).await?;
        let mut rounds = 1;
        while self.compute(txn, rounds)? == Computed::AddedKeys {
            executed = self.execute(txn, Some(executed)).await?;
            rounds += 1;
        }
        Ok(executed)
    }

    /// One round of execution logic.
    fn compute(&self, txn: &mut Txn, rounds: usize) -> Result<Computed, Abort> {
        let _phase = self.fabric.phase("execution: logic");
        self.fabric.work(Work::Execute { keys: txn.entries().len() as u16 });
        match self.procedures.execute(txn) {
            Verdict::More if rounds == ROUNDS_MAX => Err(Abort::NoResources),
            verdict => Computed::of(verdict),
        }
    }

    /// Reads every key that has not been read yet. A key that is only overwritten is only looked
    /// for.
    pub(super) async fn execute(
        &self,
        txn: &mut Txn,
        before: Option<Executed>,
    ) -> Result<Executed, Abort> {
        let _phase = self.fabric.phase("execution");
        let mut accesses = before.map_or_else(Vec::new, |Executed(accesses)| accesses);
        let mut calls = Calls::<F, Search>::default();
        for index in 0..txn.entries().len() {
            let entry = txn.entries()[index];
            let known = index < accesses.len();
            if known && (entry.fetched || entry.blind) {
                continue;
            }
            let (shard, server) = self.node.server_of(entry.key);
            let handles = self.reach(shard, server).await?;
            let config = self.node.config();
            let bytes = entry.key.0.to_be_bytes();
            let mut probes = Name::of(&bytes).probes(config.hash, config.entries).map(slot_at);
            let slot = probes.next().ok_or(Abort::NoResources)?;
            let (rc, item) = (Tag(0), None);
            let access = Access { key: entry.key, shard, server, handles, slot, rc, item };
            match accesses.get_mut(index) {
                Some(known) => *known = access,
                None => accesses.push(access),
            }
            let reply = self.look(&accesses[index], entry.blind);
            calls.push(Search { index, probes: Box::new(probes) }, reply);
        }
        // Every one that was posted is waited for; the first failure counts.
        let mut failed = None;
        while let Some((mut search, reply)) = calls.next().await {
            if failed.is_some() {
                continue;
            }
            let access = &mut accesses[search.index];
            let looked = match self.looked(txn, search.index, access, reply) {
                Ok(looked) => Ok(looked),
                Err(error) => Err(self.failure(access, error).await),
            };
            let again = match looked {
                Ok(Looked::Here) => Ok(false),
                Ok(Looked::Elsewhere) => {
                    count(&self.node.counts.collisions);
                    let next = search.probes.next();
                    next.map(|slot| access.slot = slot).ok_or(Abort::NoResources).map(|()| true)
                }
                // It is read again, also if another transaction claimed the slot.
                Ok(Looked::Nowhere) => self.claim(access).await.map(|()| true),
                Err(abort) => Err(abort),
            };
            match again {
                Ok(false) => {}
                Ok(true) => {
                    let reply = self.look(access, txn.entries()[search.index].blind);
                    calls.push(search, reply);
                }
                Err(abort) => failed = Some(abort),
            }
        }
        failed.map_or(Ok(Executed(accesses)), Err)
    }

    /// READs the slot of `access`, and what it points to.
    fn look(&self, access: &Access, blind: bool) -> F::Completion {
        let config = self.node.config();
        let len = if blind { KEY_ONLY } else { config.item_bytes_max() };
        self.post(access, &access.at(config).read(len))
    }

    fn looked(
        &self,
        txn: &mut Txn,
        index: usize,
        access: &mut Access,
        reply: Result<F::Payload, FabricError>,
    ) -> Result<Looked, FabricError> {
        let reply = reply?;
        let found = access.at(self.node.config()).found(reply.as_ref())?;
        let Some(item) = found.item else { return Ok(Looked::Nowhere) };
        let (rc, item_read) = (found.rc, found.addr.map(|addr| (addr, item.stamp)));
        if item.key != access.key {
            return Ok(Looked::Elsewhere);
        }
        if !txn.entries()[index].blind {
            txn.fetched(index, item.ts.version(), item.value);
        }
        (access.rc, access.item) = (rc, item_read);
        Ok(Looked::Here)
    }

    /// Gives the unused slot of `access` to its key, unless it has got one meanwhile.
    async fn claim(&self, access: &Access) -> Result<(), Abort> {
        let list = list_for(&access.handles, HEADER)?;
        let at = access.at(self.node.config());
        let stamp = self.clock.after(Tag(0)).ok_or(Abort::NoResources)?;
        let chain = at.claim(list.key, access.key, stamp);
        let mut wait = NOT_READY_WAIT;
        for _ in 0..NOT_READY_TRIES {
            let reply = self.post(access, &chain).await;
            match reply.and_then(|reply| at.claimed(reply.as_ref())) {
                Ok(Installed::Done { .. }) => return Ok(()),
                Ok(Installed::Later { allocated, .. }) => {
                    // AMB-12: what a chain has allocated in vain is free, too.
                    let pointer = access.slot;
                    let unused = Unused { offset: allocated, stamp: stamp.0, pointer };
                    if self.node.config().recycling.has_reports() {
                        self.servers.report(access.server, &access.handles, unused);
                    }
                    return Ok(());
                }
                Ok(Installed::NotReady) | Err(FabricError::NoResources) => {
                    count(&self.node.recycled.waits);
                    self.fabric.sleep_until(self.fabric.now() + wait).await;
                    wait = wait * 2;
                }
                Err(error) => {
                    self.servers.suspect(access.server, Suspicion::Unanswered);
                    return Err(self.failure(access, error).await);
                }
            }
        }
        Err(Abort::NoResources)
    }

    /// The handles of the server of a shard.
    pub(super) async fn reach(&self, shard: ShardId, server: NodeId) -> Result<Rc<Handles>, Abort> {
        let reached = self.servers.reach(server, || self.node.lost().contain(server)).await;
        reached.map_err(|why| match why {
            // It had the only copy.
            Unreached::Lost => Abort::ShardUnavailable { shard },
            Unreached::Silent => Abort::Fabric(FabricError::Unreachable),
        })
    }

    /// Posts a chain to the server of `access`.
    pub(super) fn post(&self, access: &Access, chain: &Chain) -> F::Completion {
        self.fabric.about(access.key);
        self.fabric.one_sided(access.server, OneSided::Chain(chain))
    }

    /// Draws conclusions about a server from an error: why the transaction aborts.
    pub(super) async fn failure(&self, access: &Access, error: FabricError) -> Abort {
        if voids_handles(error) {
            self.servers.forget(access.server, &access.handles);
            // A view may be about to tell.
            self.fabric.sleep_until(self.fabric.now() + VIEW_WAIT).await;
        }
        match error {
            _ if self.node.lost().contain(access.server) => {
                Abort::ShardUnavailable { shard: access.shard }
            }
            FabricError::NoResources => Abort::NoResources,
            error => Abort::Fabric(error),
        }
    }

    /// Why a transaction aborts that has met the prepared write of `pw`.
    pub(super) fn conflict(&self, pw: Tag, key: Key, otherwise: Abort) -> Abort {
        if self.node.may_stay_undecided(pw) { Abort::AwaitsRecovery { key } } else { otherwise }
    }
}
