//! The server's CPU: PUTs and DELETEs, and the GETs of clients that found nothing.

use std::sync::Arc;

use nicol_core::fabric::{Delivery, Fabric, FabricError, ReplyTo, Service, Work};
use nicol_core::memory::AccessError;
use nicol_core::wire::Malformed;

use super::layout::{CHECKED, Extent};
use super::messages::{ASK, Answer, Ask, HELLO, Opened, What};
use super::node::Node;

/// The service of a server's host engine.
pub(super) struct Server<F> {
    pub(super) fabric: F,
    pub(super) node: Arc<Node>,
}

/// Why an RPC is refused.
pub(super) enum Refused {
    /// No extent is free, or the table is full.
    Full,
    /// The memory is gone.
    Lost,
}

impl From<AccessError> for Refused {
    fn from(_: AccessError) -> Self {
        Self::Lost
    }
}

impl<F: Fabric> Service for Server<F> {
    fn deliver(&self, delivery: Delivery<'_>) -> Result<(), Malformed> {
        let Delivery { reply_to, kind, body, .. } = delivery;
        match (kind, reply_to) {
            (HELLO, Some(to)) => {
                let rkey = self.node.open(&self.fabric);
                self.fabric.reply(to, &Opened(rkey));
            }
            (ASK, Some(to)) => {
                let Ask { key, what } = Ask::parse(body)?;
                match what {
                    What::Put(value) => self.start_put(to, key, value),
                    What::Delete => self.start_delete(to, key),
                    What::Get => self.start_get(to, key),
                }
            }
            _ => return Err(Malformed { what: "no message of Pilaf's" }),
        }
        Ok(())
    }
}

/// Other cores of the server change the table as well, so that each operation waits for its access
/// to it. Without that one could be made on a table as it was before the operation was asked for.
impl<F: Fabric> Server<F> {
    fn start_delete(&self, to: ReplyTo, key: &[u8]) {
        let (fabric, node, key) = (self.fabric.clone(), self.node.clone(), key.to_vec());
        fabric.work(Work::TableApply);
        let working = node.begin();
        self.fabric.spawn(async move {
            fabric.access().await;
            let removed = node.table().remove(&key);
            match removed {
                Ok(()) => fabric.reply(to, &Answer(None)),
                Err(_) => fabric.refuse(to, FabricError::Unreachable),
            }
            drop(working);
        });
    }

    fn start_get(&self, to: ReplyTo, key: &[u8]) {
        let (fabric, node, key) = (self.fabric.clone(), self.node.clone(), key.to_vec());
        fabric.work(Work::TableLookup);
        let working = node.begin();
        self.fabric.spawn(async move {
            fabric.access().await;
            let value = node.table().get(&key);
            fabric.reply(to, &Answer(value.as_deref()));
            drop(working);
        });
    }

    fn start_put(&self, to: ReplyTo, key: &[u8], value: &[u8]) {
        let (fabric, node) = (self.fabric.clone(), self.node.clone());
        let bytes = [key, value].concat();
        let key = key.len();
        fabric.work(Work::TableApply);
        fabric.work(Work::Copy { bytes: bytes.len() as u32 });
        let working = node.begin();
        self.fabric.spawn(async move {
            match put(&fabric, &node, &bytes, key).await {
                Ok(()) => fabric.reply(to, &Answer(None)),
                Err(Refused::Full) => fabric.refuse(to, FabricError::NoResources),
                Err(Refused::Lost) => fabric.refuse(to, FabricError::Unreachable),
            }
            drop(working);
        });
    }
}

/// PUT: the item into a new extent, then the entry. [PRISM21 6]
pub(super) async fn put<F: Fabric>(
    fabric: &F,
    node: &Node,
    item: &[u8],
    key: usize,
) -> Result<(), Refused> {
    let _phase = fabric.phase("server: PUT");
    let at = node.table().take(item.len()).ok_or(Refused::Full)?;
    let region = node.table().region.clone();
    // A core writes line by line: a READ of an extent that is used again may see a part of it.
    let half = (item.len() / 2).next_multiple_of(8).min(item.len());
    region.write(at, &item[..half])?;
    fabric.access().await;
    region.write(at + half as u64, &item[half..])?;
    if node.config().crc {
        // Of the extent, and of the entry that points to it.
        fabric.work(Work::Crc64 { bytes: (item.len() + CHECKED) as u32 });
    }
    let (key_bytes, value) = (key as u32, (item.len() - key) as u32);
    let extent = Extent { at, key: key_bytes, value, crc: crc32c::crc32c(item) };
    let mut table = node.table();
    if table.install(&item[..key], extent)? {
        return Ok(());
    }
    table.give(at);
    Err(Refused::Full)
}
