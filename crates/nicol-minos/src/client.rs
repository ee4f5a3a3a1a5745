//! What clients call on a host engine: client-reads, client-writes, and the end of a scope.

use std::cell::Cell;
use std::rc::Rc;

use nicol_core::fabric::{Fabric, FabricError, RequestId, Work};
use nicol_core::history::Persistency;
use nicol_core::ids::{EngineId, Key, NodeId, Version};
use nicol_core::key_value::{Failure, Got, KeyValue, Reason};
use nicol_core::system::NodeState;
use nicol_core::view::Role;

use super::coordinator::Coordinator;
use super::member::Member;
use super::messages::NO_SCOPE;
use super::record::Record;
use super::scope::ScopeEnd;
use super::tags::{Tag, mark};
use super::timestamp::Timestamp;
use super::write::{Waiting, Write};

/// A client's handle. Each clone has scopes of its own.
pub struct Client<F: Fabric> {
    member: Rc<Member<F>>,
    /// The scope that its writes belong to; none before the first write.
    scope: Cell<u64>,
}

impl<F: Fabric> Clone for Client<F> {
    fn clone(&self) -> Self {
        Self { member: self.member.clone(), scope: Cell::new(NO_SCOPE) }
    }
}

impl<F: Fabric> KeyValue for Client<F> {
    fn holds(&self, key: Key) -> bool {
        let (fabric, node) = (self.member.fabric(), self.member.node());
        node.holds(fabric.view(), fabric.here().node, key)
    }

    /// A client-read: local, and only stalled while the RDLock is taken. [MINOS24 III-D]
    async fn get(&self, key: Key, value: &mut Vec<u8>) -> Result<Got, Failure> {
        self.get_if(key, value, |key| self.check(key), |record| record.rd_lock.is_none()).await
    }

    async fn put(&self, key: Key, value: &[u8]) -> Result<Option<Version>, Failure> {
        let too_large = value.len() as u64 > self.member.config().value_bytes;
        if too_large || self.member.node().is_full() {
            return Err(Failure::Aborted(Reason::NoResources));
        }
        self.write(key, Some(value)).await
    }

    async fn delete(&self, key: Key) -> Result<Option<Version>, Failure> {
        self.write(key, None).await
    }

    async fn persist(&self) -> Result<(), Failure> {
        let scope = self.scope.replace(NO_SCOPE);
        if scope == NO_SCOPE {
            return Ok(());
        }
        let write = ScopeEnd::new(&self.member).start(scope);
        self.returned(&write).await
    }
}

impl<F: Fabric> Client<F> {
    pub(super) fn new(member: Rc<Member<F>>) -> Self {
        Self { member, scope: Cell::new(NO_SCOPE) }
    }

    pub(super) fn member(&self) -> &Rc<Member<F>> {
        &self.member
    }

    /// Reads a record once it `is_free`, if `check` lets this node answer for it, before and after.
    pub(super) async fn get_if(
        &self,
        key: Key,
        value: &mut Vec<u8>,
        check: impl Fn(Key) -> Result<(), Failure>,
        is_free: impl Fn(&Record) -> bool,
    ) -> Result<Got, Failure> {
        let (fabric, node) = (self.member.fabric(), self.member.node());
        let _phase = fabric.phase("III-D: client-read");
        fabric.work(Work::TableLookup);
        check(key)?;
        let read = |record: &Record| {
            is_free(record).then(|| {
                value.clear();
                value.extend_from_slice(record.value.as_deref().unwrap_or_default());
                // Which version a record had that was forgotten, nobody knows.
                let forgotten = record.value_ts == Timestamp::NONE && node.store().forgotten() > 0;
                let version = (!forgotten).then(|| record.value_ts.told());
                Got { present: record.value.is_some(), version }
            })
        };
        let got = self.read_when_free(key, read).await?;
        // Whoever has no lease may be left out of writes.
        check(key)?;
        let seen = Timestamp::of_bits(got.version.map_or(0, |told| told.0));
        mark(fabric, Tag::Reads, key, seen);
        fabric.work(Work::Copy { bytes: value.len() as u32 });
        Ok(got)
    }

    /// Checks that this node may answer for `key`.
    pub(super) fn check(&self, key: Key) -> Result<(), Failure> {
        let (fabric, node) = (self.member.fabric(), self.member.node());
        let here = fabric.here().node;
        let serves = fabric.view().role(here) == Some(Role::Server)
            && node.holds(fabric.view(), here, key)
            && node.is_ready()
            && self.member.views().is_member(here);
        if !serves {
            return Err(Failure::Aborted(Reason::ShardUnavailable));
        }
        if !fabric.has_lease() {
            return Err(Failure::Aborted(Reason::Fabric(FabricError::Unreachable)));
        }
        Ok(())
    }

    /// Waits until `read` makes something of the record.
    ///
    /// Errors: over unreliable routes, the time is over.
    async fn read_when_free<T>(
        &self,
        key: Key,
        mut read: impl FnMut(&Record) -> Option<T>,
    ) -> Result<T, Failure> {
        let (fabric, node) = (self.member.fabric(), self.member.node());
        let until = fabric.now() + self.member.config().timeout;
        let mut watched = false;
        loop {
            fabric.access().await;
            let (bell, rings) = match node.store().look_or_watch(key, &mut read) {
                Ok(taken) => return Ok(taken),
                Err(watch) => watch,
            };
            if self.may_wait_for_ever() {
                if fabric.now() >= until {
                    let request = RequestId::NONE;
                    let late = Reason::Fabric(FabricError::TimedOut { request });
                    return Err(Failure::Aborted(late));
                }
                if !std::mem::replace(&mut watched, true) {
                    let member = self.member.clone();
                    fabric.spawn(async move {
                        member.fabric().sleep_until(until).await;
                        member.node().store().wake(key);
                    });
                }
            }
            fabric.wait_for_doorbell(&bell, rings).await;
        }
    }

    /// A client-write. In the offloaded form the host does its first lines.
    async fn write(&self, key: Key, value: Option<&[u8]>) -> Result<Option<Version>, Failure> {
        self.check(key)?;
        let coordinator = Coordinator::new(&self.member);
        let scope = self.current_scope();
        let write = coordinator.open(key, value.map(Into::into), scope, Waiting::Here);
        coordinator.run(&write);
        self.returned(&write).await?;
        Ok(Some(write.ts().told()))
    }

    fn current_scope(&self) -> u64 {
        if self.member.config().model != Persistency::Scope {
            return NO_SCOPE;
        }
        if self.scope.get() == NO_SCOPE {
            self.scope.set(self.member.node().next_scope(self.member.fabric().incarnation()));
        }
        self.scope.get()
    }

    /// Waits until a write has returned.
    ///
    /// Errors: it has failed, or over unreliable routes the time is over.
    async fn returned(&self, write: &Rc<Write>) -> Result<(), Failure> {
        let fabric = self.member.fabric();
        let until = fabric.now() + self.member.config().timeout;
        let may_end = self.may_wait_for_ever();
        if may_end {
            let (fabric, write) = (fabric.clone(), write.clone());
            fabric.clone().spawn(async move {
                fabric.sleep_until(until).await;
                write.wake();
            });
        }
        let over = |_: &Write| may_end && fabric.now() >= until;
        write.spin_until(|write| write.is_returned() || write.has_failed() || over(write)).await;
        if write.is_returned() { Ok(()) } else { Err(Failure::Unknown) }
    }

    /// Whether clients may wait for a node that never answers.
    fn may_wait_for_ever(&self) -> bool {
        let fabric = self.member.fabric();
        let other = |node: &NodeId| *node != fabric.here().node;
        let peer = fabric.view().node_ids().find(other);
        peer.is_some_and(|node| !fabric.is_reliable(EngineId::host(node, 0)))
    }
}
