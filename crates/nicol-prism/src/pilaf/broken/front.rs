//! A client that is broken on purpose: it stands before the true one.

use nicol_core::fabric::Fabric;
use nicol_core::ids::{Key, Version};
use nicol_core::key_value::{Failure, Got, KeyValue, Reason};

use super::Sabotage;
use crate::pilaf::client::{Client, Unread};

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

    /// A GET that reads the first entry of `key`, and takes what it points to if `is_found` of its
    /// key.
    async fn get_first(
        &self,
        key: &[u8],
        value: &mut Vec<u8>,
        is_found: impl Fn(&[u8]) -> bool,
    ) -> Result<bool, Reason> {
        let item = match self.client.first_item(key).await {
            Ok(item) => item,
            Err(Unread::Torn) => return Err(Reason::Conflict),
            Err(Unread::Failed(reason)) => return Err(reason),
        };
        value.clear();
        let found = item.filter(|(found, _)| is_found(found));
        value.extend_from_slice(found.as_ref().map_or(&[], |(_, bytes)| bytes));
        Ok(found.is_some())
    }
}

impl<F: Fabric> KeyValue for Front<F> {
    async fn get(&self, key: Key, value: &mut Vec<u8>) -> Result<Got, Failure> {
        let name = key.0.to_be_bytes();
        let present = match self.sabotage {
            Sabotage::TrustsEntries => self.get_first(&name, value, |_| true).await,
            Sabotage::ProbesOnce => self.get_first(&name, value, |found| found == name).await,
            _ => return self.client.get(key, value).await,
        };
        Ok(Got { present: present.map_err(Failure::Aborted)?, version: None })
    }

    async fn put(&self, key: Key, value: &[u8]) -> Result<Option<Version>, Failure> {
        self.client.put(key, value).await
    }

    async fn delete(&self, key: Key) -> Result<Option<Version>, Failure> {
        self.client.delete(key).await
    }
}
