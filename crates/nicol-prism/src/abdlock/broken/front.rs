//! A client that is broken on purpose: it stands before the true one.

use nicol_core::fabric::{Fabric, OneSided};
use nicol_core::ids::{Key, Version};
use nicol_core::key_value::{Failure, Got, KeyValue};
use nicol_core::units::Nanos;
use nicol_kit::Open;

use super::Sabotage;
use crate::abdlock::client::{Client, Operation};
use crate::messages::Handles;
use crate::tag::Tag;

/// Time from the begin of an operation until its locks are released that it still needs.
const GAP: Nanos = Nanos::from_micros(6);
/// One operation in so many is preceded by an attempt that keeps its locks.
const KEPT_ONE_IN: u64 = 8;

/// The client that a session calls: the true one, unless a planted fault stands before it.
#[derive(Clone)]
pub struct Front<F: Fabric> {
    client: Client<F>,
    sabotage: Sabotage,
}

impl<F: Fabric> Front<F> {
    pub(crate) fn new(client: Client<F>) -> Self {
        Self { sabotage: client.node().config().sabotage, client }
    }

    /// Spoils an operation, or the locks of its block, before it begins.
    async fn spoil(&self, operation: &mut Operation<'_>) {
        let fabric = self.client.fabric();
        match self.sabotage {
            Sabotage::NoLocks => self.take_away(operation).await,
            Sabotage::SmallQuorum => operation.needed = (operation.needed - 1).max(1),
            Sabotage::UnlocksFirst => self.release_soon(operation),
            Sabotage::ReusesTimestamps if operation.new.is_some() => {
                operation.chosen = Some(Tag::new(Tag::LOADED.ts().max(1), self.client.writer()));
            }
            Sabotage::KeepsLocks if fabric.random().is_multiple_of(KEPT_ONE_IN) => {
                let _kept = self.client.lock(operation).await;
            }
            _ => {}
        }
    }

    /// Writes 0 to the lock of a block at every replica.
    async fn take_away(&self, operation: &Operation<'_>) {
        let replicas = self.client.known(operation);
        let offset = self.client.node().config().lock(operation.block.number);
        let free =
            |handles: &Handles| OneSided::Write { rkey: handles.region, offset, bytes: &[0; 8] };
        let all = replicas.len();
        let replies = self.client.post((operation.block.key, &replicas), all, free, |_| true);
        let _done = replies.rest().await;
    }

    /// Releases, in a while, what the next attempt to lock is going to hold.
    fn release_soon(&self, operation: &Operation<'_>) {
        let (client, block) = (self.client.clone(), operation.block);
        let (name, replicas) = (client.next_name(), client.known(operation));
        let open = Open::begin(client.node().open());
        self.client.fabric().spawn(async move {
            client.fabric().sleep_until(client.fabric().now() + GAP).await;
            client.release(block, name, replicas).await;
            drop(open);
        });
    }
}

impl<F: Fabric> KeyValue for Front<F> {
    async fn get(&self, key: Key, value: &mut Vec<u8>) -> Result<Got, Failure> {
        let mut operation = self.client.operation(key, None)?;
        self.spoil(&mut operation).await;
        if self.sabotage != Sabotage::GetsWithoutLocks {
            return self.client.get_by(operation, value).await;
        }
        self.client.reach(&operation).await.map_err(Failure::Aborted)?;
        let replicas = self.client.known(&operation);
        let found = self.client.read_of(&operation, &replicas, value).await;
        let found = found.ok_or(Failure::Aborted(operation.why))?;
        Ok(Got { present: true, version: Some(found.version()) })
    }

    async fn put(&self, key: Key, value: &[u8]) -> Result<Option<Version>, Failure> {
        let mut operation = self.client.operation(key, Some(value))?;
        self.spoil(&mut operation).await;
        self.client.put_by(operation).await
    }
}
