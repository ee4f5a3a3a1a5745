//! A client that is broken on purpose: it stands before the true one.

use nicol_core::fabric::{Fabric, OneSided};
use nicol_core::ids::{Key, Version};
use nicol_core::key_value::{Failure, Got, KeyValue};

use super::Sabotage;
use crate::rs::client::{Block, Client};
use crate::rs::layout::Metadata;
use crate::tag::Tag;

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

    fn block(&self, key: Key, value: Option<&[u8]>) -> Result<Block, Failure> {
        let mut block = self.client.block(key, value)?;
        if self.sabotage == Sabotage::SmallQuorum {
            block.needed = (block.needed - 1).max(1);
        }
        Ok(block)
    }

    /// Writes 0 over the tag of a block at every replica.
    async fn take_tags_away(&self, block: Block) {
        let at = Metadata::new(self.client.node().config().sizes).of(block.number);
        for node in self.client.replicas(block.key) {
            let Some(rkey) = self.client.pointers_of(node) else { continue };
            let write = OneSided::Write { rkey, offset: at, bytes: &[0; 8] };
            // A replica that does not answer keeps its tag.
            let _done = self.client.fabric().one_sided(node, write).await;
        }
    }
}

impl<F: Fabric> KeyValue for Front<F> {
    async fn get(&self, key: Key, value: &mut Vec<u8>) -> Result<Got, Failure> {
        let block = self.block(key, None)?;
        if self.sabotage != Sabotage::SkipsWriteBack {
            return self.client.get_block(block, value).await;
        }
        let found = self.client.read_phase(block, value).await?;
        Ok(Got { present: true, version: Some(found.tag.version()) })
    }

    async fn put(&self, key: Key, value: &[u8]) -> Result<Option<Version>, Failure> {
        let block = self.block(key, Some(value))?;
        if !matches!(self.sabotage, Sabotage::SwapsAlways | Sabotage::ReusesTimestamps) {
            return self.client.put_block(block, value).await;
        }
        let found = self.client.read_phase(block, &mut Vec::new()).await?;
        if self.sabotage == Sabotage::SwapsAlways {
            let tag = self.client.next_tag(found.tag);
            self.take_tags_away(block).await;
            return self.client.write_later(block, tag, value).await;
        }
        let reused = Tag::new(found.tag.ts().max(1), self.client.writer());
        self.client.write_later(block, reused, value).await
    }
}
