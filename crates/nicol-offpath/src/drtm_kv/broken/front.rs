//! A client that is broken on purpose: it stands before the true one.

use nicol_core::fabric::Fabric;
use nicol_core::ids::{Key, Version};
use nicol_core::key_value::{Failure, Got, KeyValue, Reason};
use nicol_core::steering::Way;

use super::{Sabotage, unverified};
use crate::drtm_kv::client::{Client, malformed};
use crate::drtm_kv::layout::{extent_bytes, search};
use crate::drtm_kv::messages::Answer;
use crate::drtm_kv::table::bucket_of;

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

    /// Gets what is at the address of `key` when it is read.
    async fn get_unverified(&self, key: Key, value: &mut Vec<u8>) -> Result<bool, Reason> {
        let client = &self.client;
        let server = client.reach(key).await?;
        value.clear();
        let found = match client.way() {
            Way::First => client.find(server, key, 0).await?.map(|entry| entry.address),
            Way::Second => {
                let answer = client.ask(server, key).await?;
                match Answer::parse(answer.as_ref()).map_err(malformed)? {
                    Answer::Absent => None,
                    Answer::At(address) => Some(address),
                    Answer::Value(found) => {
                        value.extend_from_slice(found);
                        return Ok(true);
                    }
                }
            }
        };
        let Some(address) = found else { return Ok(false) };
        let at = (server.keys.values, address.offset(extent_bytes(client.config().value_bytes)));
        let read = client.read_bytes(server, key, at).await?;
        value.extend_from_slice(unverified(read.as_ref()));
        Ok(true)
    }

    /// Whether the first bucket of the chain of `key` has it, if clients READ buckets.
    async fn is_in_first(&self, key: Key) -> Result<bool, Reason> {
        let client = &self.client;
        if client.way() == Way::Second {
            return Ok(true);
        }
        let server = client.reach(key).await?;
        let bucket = bucket_of(key, client.config().buckets);
        let read = client.read_bucket(server, key, bucket, 0).await?;
        Ok(search(read.as_ref(), key).map_err(malformed)?.0.is_some())
    }
}

impl<F: Fabric> KeyValue for Front<F> {
    async fn get(&self, key: Key, value: &mut Vec<u8>) -> Result<Got, Failure> {
        let absent = Got { present: false, version: None };
        match self.sabotage {
            Sabotage::TrustsExtents => {
                let present = self.get_unverified(key, value).await.map_err(Failure::Aborted)?;
                Ok(Got { present, ..absent })
            }
            Sabotage::IgnoresChains
                if !self.is_in_first(key).await.map_err(Failure::Aborted)? =>
            {
                value.clear();
                Ok(absent)
            }
            _ => self.client.get(key, value).await,
        }
    }

    async fn put(&self, key: Key, value: &[u8]) -> Result<Option<Version>, Failure> {
        self.client.put(key, value).await
    }
}
