//! A server that is broken on purpose: it stands before the true one.

use std::rc::Rc;

use nicol_core::fabric::{Delivery, Fabric, FabricError, ReplyTo, Service};
use nicol_core::ids::Key;
use nicol_core::memory::AccessError;
use nicol_core::units::Nanos;
use nicol_core::wire::Malformed;

use super::{Sabotage, unverified};
use crate::drtm_kv::config::Alternative;
use crate::drtm_kv::layout::{BUCKET, VERSION, ValueAddress, extent_bytes, search};
use crate::drtm_kv::messages::{Answer, GET, Get, PUT, Put};
use crate::drtm_kv::server::Server;
use crate::drtm_kv::table::bucket_of;

/// One put in so many is lost by the fault that loses some.
const LOST_ONE_IN: u64 = 8;
/// The delay within what should happen at one instant.
const GAP: Nanos = Nanos::from_micros(10);

/// The service of a server's NIC engine: `server`, unless a planted fault stands before it.
pub(crate) fn service<F: Fabric>(server: Server<F>) -> Rc<dyn Service> {
    match server.node.config().sabotage {
        Sabotage::None => Rc::new(server),
        sabotage => Rc::new(Broken { server, sabotage }),
    }
}

#[derive(Clone)]
struct Broken<F> {
    server: Server<F>,
    sabotage: Sabotage,
}

impl<F: Fabric> Broken<F> {
    /// Answers what is at the address of `key` when it is read.
    async fn get_unverified(&self, to: ReplyTo, key: Key) {
        let Server { fabric, node } = &self.server;
        let Some(address) = node.table().address(key) else {
            return fabric.reply(to, &Answer::Absent);
        };
        let bytes = extent_bytes(node.config().value_bytes);
        let values = node.table().values.clone();
        match fabric.dma_read(&values, address.offset(bytes), bytes as usize).await {
            Ok(extent) => fabric.reply(to, &Answer::Value(unverified(extent.as_ref()))),
            Err(error) => fabric.refuse(to, error),
        }
    }

    /// Answers that what the first bucket of its chain does not have is absent.
    async fn get_of_first(&self, to: ReplyTo, key: Key) {
        let Server { fabric, node } = &self.server;
        let bucket = bucket_of(key, node.config().buckets);
        let index = node.table().index.clone();
        let read = fabric.dma_read(&index, bucket * BUCKET, BUCKET as usize).await;
        match read.map(|read| search(read.as_ref(), key)) {
            Ok(Ok((None, _))) => fabric.reply(to, &Answer::Absent),
            _ => self.server.get(to, key).await,
        }
    }

    /// Makes a put, and spoils what it needs or leaves.
    async fn put(&self, to: ReplyTo, key: Key, value: &[u8]) {
        let Server { fabric, node } = &self.server;
        match self.sabotage {
            Sabotage::LosesPuts if fabric.random().is_multiple_of(LOST_ONE_IN) => {
                return fabric.reply(to, &Answer::Value(&[]));
            }
            Sabotage::AcknowledgesEarly => {
                fabric.reply(to, &Answer::Value(&[]));
                fabric.sleep_until(fabric.now() + GAP).await;
                // Whoever asked has been answered, whatever becomes of it.
                let _made = self.server.install(key, value).await;
                return;
            }
            Sabotage::KeepsExtents => {
                let _nobody_s = node.table().take_extent();
            }
            Sabotage::TearsBuckets => {
                // A region holds what its index names.
                let _emptied = self.replace_words(key, |_| 0);
                fabric.sleep_until(fabric.now() + GAP).await;
            }
            _ => {}
        }
        let (before, cached) = {
            let table = node.table();
            (table.address(key), table.cached(key).map(<[u8]>::to_vec))
        };
        self.server.put(to, key, value).await;
        let after = node.table().address(key);
        let (Some(before), Some(after)) = (before, after) else { return };
        match self.sabotage {
            Sabotage::KeepsCached => {
                let draw = fabric.random();
                cached.iter().for_each(|old| node.table().keep(key, after, old, draw));
            }
            Sabotage::LeavesOldCopies if node.config().copies > 1 => {
                // An extent that is used again, and what a later put has changed, stay as they are.
                let _left = self.leave_old_copies(key, before, after).await;
            }
            _ => {}
        }
    }

    /// Lets all copies of the index but the first name the old value for a while.
    async fn leave_old_copies(
        &self,
        key: Key,
        before: ValueAddress,
        after: ValueAddress,
    ) -> Result<(), AccessError> {
        let Server { fabric, node } = &self.server;
        let bytes = extent_bytes(node.config().value_bytes);
        let (at, version) = (before.offset(bytes) + VERSION, u64::from(before.version));
        let values = node.table().values.clone();
        values.compare_swap(at, 0, version)?;
        let change = |from: ValueAddress, to: ValueAddress| {
            self.replace_words(key, |word| if word == from.word() { to.word() } else { word })
        };
        change(after, before)?;
        fabric.sleep_until(fabric.now() + GAP).await;
        change(before, after)?;
        values.compare_swap(at, version, 0)?;
        Ok(())
    }

    /// Replaces the word of `key` in every copy of the index but the first; in that, too, if it is
    /// the only one.
    fn replace_words(&self, key: Key, with: impl Fn(u64) -> u64) -> Result<(), AccessError> {
        let table = self.server.node.table();
        let Some((_, word)) = table.entry(key) else { return Ok(()) };
        let first = usize::from(self.server.node.config().copies > 1);
        for at in table.index_copies(word).skip(first) {
            let found = table.index.load(at)?;
            table.index.compare_swap(at, found, with(found))?;
        }
        Ok(())
    }
}

impl<F: Fabric> Service for Broken<F> {
    fn deliver(&self, delivery: Delivery<'_>) -> Result<(), Malformed> {
        let Some(to) = delivery.reply_to else { return self.server.deliver(delivery) };
        let Server { fabric, node } = &self.server;
        let (broken, working) = (self.clone(), node.begin());
        match (self.sabotage, delivery.kind, node.config().alternative) {
            (Sabotage::TrustsExtents, GET, Alternative::A2 | Alternative::A3) => {
                let Get(key) = Get::parse(delivery.body)?;
                fabric.spawn(async move {
                    broken.get_unverified(to, key).await;
                    drop(working);
                });
            }
            (Sabotage::IgnoresChains, GET, Alternative::A2) => {
                let Get(key) = Get::parse(delivery.body)?;
                fabric.spawn(async move {
                    broken.get_of_first(to, key).await;
                    drop(working);
                });
            }
            (_, PUT, _) => {
                let Put { key, value } = Put::parse(delivery.body)?;
                if value.len() as u64 > node.config().value_bytes {
                    fabric.refuse(to, FabricError::NoResources);
                    return Ok(());
                }
                let value = value.to_vec();
                fabric.spawn(async move {
                    broken.put(to, key, &value).await;
                    drop(working);
                });
            }
            _ => self.server.deliver(delivery)?,
        }
        Ok(())
    }
}
