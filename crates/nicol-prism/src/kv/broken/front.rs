//! A client that is broken on purpose: it stands before the true one.

use nicol_core::fabric::Fabric;
use nicol_core::ids::{Key, Version};
use nicol_core::key_value::{Failure, Got, KeyValue, Reason};

use super::Sabotage;
use crate::kv::client::Client;

/// The client that a session calls: the true one, unless a planted fault stands before it.
#[derive(Clone)]
pub struct Front<F: Fabric> {
    client: Client<F>,
    sabotage: Sabotage,
}

impl<F: Fabric> Front<F> {
    pub(crate) fn new(client: Client<F>) -> Self {
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
            Err(Failure::Aborted(Reason::NoResources))
                if self.sabotage == Sabotage::InstallsUnconditionally =>
            {
                self.client.empty_slot(&key.0.to_be_bytes()).await?;
                Err(Failure::Aborted(Reason::NoResources))
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
