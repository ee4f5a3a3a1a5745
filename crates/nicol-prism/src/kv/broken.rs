//! PRISM-KV broken on purpose, for the checkers' negative tests: a client before the true one,
//! which does its operations wrongly ([`Front`]), and services before the server, which spoil what
//! is reported to it. Of the rest the steps ask [`Hooks`], and know no fault by name.

use std::rc::Rc;
use std::sync::Arc;

use nicol_core::fabric::{Delivery, Fabric, Service};
use nicol_core::ids::{EngineId, Incarnation, Key, Version};
use nicol_core::key_value::{Failure, Got, KeyValue, Reason};
use nicol_core::wire::Malformed;

use super::client::Client;
use super::layout::{STAMP_ENGINE, stamp};
use super::node::Node;
use super::server::Server;
use crate::broken::LosesReports;
use crate::messages::{UNUSED, Unused, parse_report};
use crate::recycling;

/// Ways to break the protocol on purpose, so that a sweep can show that its checkers see it.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sabotage {
    /// None.
    None,
    /// A GET takes what its first slot holds for its key's.
    TrustsSlots,
    /// A search ends at the first slot.
    ProbesOnce,
    /// A PUT whose CAS has failed is acknowledged.
    IgnoresFailedSwaps,
    /// A DELETE empties its slot, which others are found behind.
    EmptiesSlots,
    /// Reports of replaced buffers are lost.
    KeepsOldBuffers,
    /// Reports of buffers that the reporter has filled itself are lost: what a failed PUT has
    /// allocated is among them. AMB-12
    KeepsNewBuffers,
    /// The CAS runs whether or not there was a buffer.
    InstallsUnconditionally,
    /// A server posts the buffer that has replaced a reported one, too.
    PostsEarly,
    /// A server does not look for what clients have left that have died.
    ForgetsTheDead,
}

/// What the steps ask. Every answer is the protocol's, but for the one that a planted fault spoils.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hooks(pub(super) Sabotage);

impl Hooks {
    fn is(self, fault: Sabotage) -> bool {
        self.0 == fault
    }

    /// True if the CAS is skipped where there was no buffer.
    pub(super) fn swaps_conditionally(self) -> bool {
        !self.is(Sabotage::InstallsUnconditionally)
    }
}

/// What a client calls: the true client, unless a planted fault stands before it.
#[derive(Clone)]
pub struct Front<F: Fabric> {
    client: Client<F>,
    sabotage: Sabotage,
}

impl<F: Fabric> Front<F> {
    pub(super) fn new(client: Client<F>) -> Self {
        Self { sabotage: client.config().sabotage, client }
    }
}

impl<F: Fabric> KeyValue for Front<F> {
    async fn get(&self, key: Key, value: &mut Vec<u8>) -> Result<Got, Failure> {
        let name = key.0.to_be_bytes();
        let present = match self.sabotage {
            Sabotage::TrustsSlots => self.client.first_item(&name, value, |_| true).await,
            Sabotage::ProbesOnce => {
                self.client.first_item(&name, value, |found| found == name).await
            }
            _ => return self.client.get(key, value).await,
        };
        Ok(Got { present: present.map_err(Failure::Aborted)?, version: None })
    }

    async fn put(&self, key: Key, value: &[u8]) -> Result<Option<Version>, Failure> {
        match self.client.put(key, value).await {
            Err(Failure::Aborted(Reason::Conflict))
                if self.sabotage == Sabotage::IgnoresFailedSwaps =>
            {
                Ok(None)
            }
            done => done,
        }
    }

    async fn delete(&self, key: Key) -> Result<Option<Version>, Failure> {
        if self.sabotage == Sabotage::EmptiesSlots {
            return self.client.empty_slot(&key.0.to_be_bytes()).await.map(|()| None);
        }
        self.client.delete(key).await
    }
}

/// What a host engine of a server answers: `server`, unless a planted fault stands before it.
pub(super) fn service<F: Fabric>(fabric: &F, server: Server<F>) -> Rc<dyn Service> {
    match server.node().config().sabotage {
        Sabotage::KeepsOldBuffers => Rc::new(LosesReports::before(fabric, server, replaces)),
        Sabotage::KeepsNewBuffers => {
            Rc::new(LosesReports::before(fabric, server, |from, one| !replaces(from, one)))
        }
        Sabotage::PostsEarly => Rc::new(PostsEarly { fabric: fabric.clone(), server }),
        _ => Rc::new(server),
    }
}

/// True if another engine has filled the buffer that `from` reports.
fn replaces(from: EngineId, one: &Unused) -> bool {
    one.stamp >> STAMP_ENGINE != stamp(from, Incarnation(0), 0) >> STAMP_ENGINE
}

/// Starts the daemon of a server; broken on purpose, one that does not look for what clients have
/// left that have died.
pub(super) fn start_daemon<F: Fabric>(fabric: &F, node: &Arc<Node>) {
    match node.config().sabotage {
        Sabotage::ForgetsTheDead => recycling::start_filling(fabric, node),
        _ => recycling::start(fabric, node),
    }
}

/// A server that posts the buffer that a reported pointer points to.
struct PostsEarly<F: Fabric> {
    fabric: F,
    server: Server<F>,
}

impl<F: Fabric> Service for PostsEarly<F> {
    fn deliver(&self, delivery: Delivery<'_>) -> Result<(), Malformed> {
        if delivery.kind == UNUSED {
            let (_, unused) = parse_report(delivery.body, self.fabric.incarnation())?;
            let pool = &self.server.store().pool;
            unused.iter().for_each(|one| pool.post_pointed_to(&self.fabric, one.pointer));
        }
        self.server.deliver(delivery)
    }
}
