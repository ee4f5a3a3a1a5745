//! A client that is broken on purpose: it stands before the true one.

use nicol_core::fabric::Fabric;
use nicol_core::ids::{Key, Version};
use nicol_core::key_value::{Failure, Got, KeyValue};

use super::Sabotage;
use crate::client::Client;
use crate::record::Record;

/// The client that a session calls: the true one, unless a planted fault stands before it.
#[derive(Clone)]
pub struct Front<F: Fabric> {
    client: Client<F>,
    sabotage: Sabotage,
}

impl<F: Fabric> Front<F> {
    pub(crate) fn new(client: Client<F>) -> Self {
        Self { sabotage: client.member().config().sabotage, client }
    }

    /// Whether this node may answer a read without its NIC.
    fn check_alone(&self, key: Key) -> Result<(), Failure> {
        let member = self.client.member();
        let serves = member.node().is_ready() && member.fabric().has_lease();
        if serves { Ok(()) } else { self.client.check(key) }
    }
}

impl<F: Fabric> KeyValue for Front<F> {
    fn holds(&self, key: Key) -> bool {
        self.client.holds(key)
    }

    async fn get(&self, key: Key, value: &mut Vec<u8>) -> Result<Got, Failure> {
        let client = &self.client;
        match self.sabotage {
            Sabotage::ReadsThroughLocks => {
                client.get_if(key, value, |key| client.check(key), |_| true).await
            }
            Sabotage::ServesAlone => {
                let is_free = |record: &Record| record.rd_lock.is_none();
                client.get_if(key, value, |key| self.check_alone(key), is_free).await
            }
            _ => client.get(key, value).await,
        }
    }

    async fn put(&self, key: Key, value: &[u8]) -> Result<Option<Version>, Failure> {
        self.client.put(key, value).await
    }

    async fn delete(&self, key: Key) -> Result<Option<Version>, Failure> {
        self.client.delete(key).await
    }

    async fn persist(&self) -> Result<(), Failure> {
        self.client.persist().await
    }
}
