//! What a client does: gets by READs or by asking the SoC, and puts.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use nicol_core::fabric::{Fabric, FabricError, OneSided, Timeout};
use nicol_core::ids::{EngineId, Key, NodeId, RKey, Side, Version};
use nicol_core::key_value::{Failure, Got, KeyValue, Reason};
use nicol_core::steering::Way;
use nicol_core::units::Nanos;
use nicol_kit::count;

use super::config::{Alternative, Asking, DrtmKvConfig};
use super::layout::{BUCKET, Entry, ValueAddress, extent_bytes, search, verify};
use super::messages::{Answer, Get, Hello, Keys, Put};
use super::node::Node;
use super::table::bucket_of;

/// How long a HELLO waits for its answer, and how long the next one waits after one that failed.
const HELLO_TIMEOUT: Timeout = Timeout::After(Nanos::from_millis(2));
const HELLO_WAIT: Nanos = Nanos::from_micros(20);
/// So often a server that does not answer is asked.
const HELLOS_MAX: u32 = 64;
/// So often a get that finds something stale looks it up again.
const STALE_MAX: u32 = 1_000;
/// Buckets of a chain at most; a longer one has no end.
const CHAIN_MAX: u64 = 1 << 20;

/// A client engine's access to the whole store.
pub struct Client<F: Fabric>(Rc<Engine<F>>);

impl<F: Fabric> Clone for Client<F> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

struct Engine<F: Fabric> {
    fabric: F,
    node: Arc<Node>,
    /// By node: the keys of its memory, if it has told.
    keys: RefCell<Vec<Option<Keys>>>,
}

/// A server, as an operation reaches it.
#[derive(Clone, Copy)]
pub(super) struct Server {
    node: NodeId,
    pub(super) keys: Keys,
}

fn failed(error: FabricError) -> Reason {
    match error {
        FabricError::NoResources => Reason::NoResources,
        error => Reason::Fabric(error),
    }
}

pub(super) fn malformed<E>(_: E) -> Reason {
    Reason::Fabric(FabricError::Malformed)
}

impl<F: Fabric> Client<F> {
    pub(super) fn new(fabric: F, node: Arc<Node>) -> Self {
        let keys = RefCell::new(vec![None; fabric.view().nodes()]);
        Self(Rc::new(Engine { fabric, node, keys }))
    }

    pub(super) fn config(&self) -> &DrtmKvConfig {
        self.0.node.config()
    }

    /// The way of the next get: the first is to READ (A4), the second to ask the SoC (A5).
    pub(super) fn way(&self) -> Way {
        let Engine { fabric, node, .. } = &*self.0;
        let asks = match node.config().alternative {
            Alternative::Rnic | Alternative::A1 | Alternative::A4 => false,
            Alternative::A5 => !node.config().reads_kept(),
            Alternative::A2 | Alternative::A3 => true,
            Alternative::A4AndA5 => match node.config().asking {
                Asking::Greedy => return node.pace.next(),
                Asking::Permille(share) => fabric.random() % 1_000 < share.into(),
                // The last node: a client's where clients have nodes of their own.
                Asking::OneMachine => fabric.here().node.index() + 1 == fabric.view().nodes(),
            },
        };
        if asks { Way::Second } else { Way::First }
    }

    /// READs a bucket, others of its chain, and the value. [OffPath23 5.2: A1, A4, A5 by READ]
    ///
    /// Cost: two round trips for a key in the first bucket of its chain.
    async fn get_by_reads(
        &self,
        server: Server,
        key: Key,
        value: &mut Vec<u8>,
    ) -> Result<bool, Reason> {
        for _ in 0..STALE_MAX {
            // [OffPath23 advice 1] Of several copies any will do: the one next door may be in
            // another row.
            let copy = match self.0.node.config().copies {
                1 => 0,
                copies => self.0.fabric.random() % copies,
            };
            // [OffPath23 A1, A4] READ the bucket, of the host or of the SoC.
            let Some(Entry { address, kept }) = self.find(server, key, copy).await? else {
                return Ok(false);
            };
            // [OffPath23 A5] READ the value of the SoC, if it keeps that.
            if let (Some(slot), Some(rkey)) = (kept, server.keys.kept) {
                let offset = self.0.node.kept_at(slot, copy);
                if self.read_extent(server, key, address, (rkey, offset), value).await? {
                    count(&self.0.node.counts.hits);
                    return Ok(true);
                }
                count(&self.0.node.counts.misses);
            }
            // [OffPath23 A1, A4] READ the value of the host.
            if self.read_value(server, key, address, value).await? {
                return Ok(true);
            }
        }
        Err(Reason::Conflict)
    }

    /// READs the buckets of a chain, up to the entry of `key`.
    pub(super) async fn find(
        &self,
        server: Server,
        key: Key,
        copy: u64,
    ) -> Result<Option<Entry>, Reason> {
        let Engine { fabric, node, .. } = &*self.0;
        let _phase = fabric.phase("READ the index");
        let mut bucket = bucket_of(key, node.config().buckets);
        for _ in 0..CHAIN_MAX {
            let read = self.read_bucket(server, key, bucket, copy).await?;
            let (entry, next) = search(read.as_ref(), key).map_err(malformed)?;
            if entry.is_some() {
                return Ok(entry);
            }
            let Some(next) = next else { return Ok(None) };
            count(&node.counts.chained);
            bucket = next;
        }
        Err(Reason::Conflict)
    }

    /// READs a bucket of a copy of the index.
    pub(super) async fn read_bucket(
        &self,
        Server { node, keys }: Server,
        key: Key,
        bucket: u64,
        copy: u64,
    ) -> Result<F::Payload, Reason> {
        let offset = self.0.node.index_at(bucket, copy);
        let read = OneSided::Read { rkey: keys.index, offset, len: BUCKET as u32 };
        self.0.fabric.about(key);
        self.0.fabric.one_sided(node, read).await.map_err(failed)
    }

    /// READs the value at `address`; false if another one is there by now.
    async fn read_value(
        &self,
        server: Server,
        key: Key,
        address: ValueAddress,
        value: &mut Vec<u8>,
    ) -> Result<bool, Reason> {
        let bytes = extent_bytes(self.0.node.config().value_bytes);
        let at = (server.keys.values, address.offset(bytes));
        self.read_extent(server, key, address, at, value).await
    }

    /// READs an extent, `at` an offset of a region; false if it does not hold the value of
    /// `address`.
    async fn read_extent(
        &self,
        server: Server,
        key: Key,
        address: ValueAddress,
        at: (RKey, u64),
        value: &mut Vec<u8>,
    ) -> Result<bool, Reason> {
        let Engine { fabric, node, .. } = &*self.0;
        let _phase = fabric.phase("READ the value");
        let read = self.read_bytes(server, key, at).await?;
        let found = match verify(read.as_ref(), key, address.version) {
            Ok(found) => found,
            Err(unfit) => {
                node.counts.note(unfit);
                return Ok(false);
            }
        };
        value.clear();
        value.extend_from_slice(found);
        Ok(true)
    }

    /// READs the bytes of an extent, `at` an offset of a region.
    pub(super) async fn read_bytes(
        &self,
        server: Server,
        key: Key,
        (rkey, offset): (RKey, u64),
    ) -> Result<F::Payload, Reason> {
        let bytes = extent_bytes(self.0.node.config().value_bytes);
        let read = OneSided::Read { rkey, offset, len: bytes as u32 };
        self.0.fabric.about(key);
        self.0.fabric.one_sided(server.node, read).await.map_err(failed)
    }

    /// Asks the SoC for a value: an [`Answer`].
    pub(super) async fn ask(&self, server: Server, key: Key) -> Result<F::Payload, Reason> {
        let timeout = Timeout::After(self.0.node.config().timeout);
        let to = self.engine_of(server.node, u64::from(self.0.fabric.here().core));
        let _phase = self.0.fabric.phase("ask the SoC");
        self.0.fabric.call(to, &Get(key), timeout).await.map_err(failed)
    }

    /// Asks the SoC for a value, and READs it where it tells its address. [OffPath23 5.2: A2, A3,
    /// A5]
    async fn get_by_asking(
        &self,
        server: Server,
        key: Key,
        value: &mut Vec<u8>,
    ) -> Result<bool, Reason> {
        for _ in 0..STALE_MAX {
            let answer = self.ask(server, key).await?;
            match Answer::parse(answer.as_ref()).map_err(malformed)? {
                Answer::Absent => return Ok(false),
                Answer::Value(found) => {
                    value.clear();
                    value.extend_from_slice(found);
                    return Ok(true);
                }
                Answer::At(address) if self.read_value(server, key, address, value).await? => {
                    return Ok(true);
                }
                Answer::At(_) => {}
            }
        }
        Err(Reason::Conflict)
    }

    /// The NIC engine of a server that `number` picks.
    fn engine_of(&self, node: NodeId, number: u64) -> EngineId {
        let engines = self.0.fabric.view().engines(node, Side::Nic).max(1) as u64;
        EngineId::nic(node, (number % engines) as u8)
    }

    /// The server of `key`, asked for its memory's keys at first.
    pub(super) async fn reach(&self, key: Key) -> Result<Server, Reason> {
        let Engine { fabric, node, keys, .. } = &*self.0;
        let server = node.server_of(key);
        for _ in 0..HELLOS_MAX {
            if node.lost().contain(server) {
                return Err(Reason::ShardUnavailable);
            }
            if let Some(keys) = keys.borrow()[server.index()] {
                return Ok(Server { node: server, keys });
            }
            let to = self.engine_of(server, u64::from(fabric.here().core));
            let answer = fabric.call(to, &Hello, HELLO_TIMEOUT).await;
            match answer.ok().and_then(|answer| Keys::parse(answer.as_ref()).ok()) {
                Some(told) => keys.borrow_mut()[server.index()] = Some(told),
                None => fabric.sleep_until(fabric.now() + HELLO_WAIT).await,
            }
        }
        Err(Reason::Fabric(FabricError::Unreachable))
    }
}

impl<F: Fabric> KeyValue for Client<F> {
    async fn get(&self, key: Key, value: &mut Vec<u8>) -> Result<Got, Failure> {
        let Engine { fabric, node, .. } = &*self.0;
        let server = self.reach(key).await.map_err(Failure::Aborted)?;
        // Planned at run time.
        let planned = node.choice().map(|choice| (choice, choice.take(fabric.now())));
        let way = match planned {
            None => self.way(),
            Some((_, taken)) => taken.way,
        };
        // Whoever compares reads the clock.
        let began = node.config().compares().then(|| fabric.now());
        let present = match way {
            Way::Second => self.get_by_asking(server, key, value).await,
            Way::First => self.get_by_reads(server, key, value).await,
        };
        if let Some(began) = began {
            node.pace.took(way, fabric.now().since(began));
        }
        if let (Some((choice, taken)), Ok(_)) = (planned, &present) {
            choice.ended(taken, fabric.now());
        }
        let present = present.map_err(Failure::Aborted)?;
        if !present {
            value.clear();
        }
        Ok(Got { present, version: None })
    }

    async fn put(&self, key: Key, value: &[u8]) -> Result<Option<Version>, Failure> {
        let server = self.reach(key).await.map_err(Failure::Aborted)?;
        let timeout = Timeout::After(self.0.node.config().timeout);
        let _phase = self.0.fabric.phase("put");
        // Puts of a key meet on one engine.
        let to = self.engine_of(server.node, bucket_of(key, u64::MAX));
        match self.0.fabric.call(to, &Put { key, value }, timeout).await {
            Ok(_) => Ok(None),
            Err(error @ (FabricError::NoResources | FabricError::Malformed)) => {
                Err(Failure::Aborted(failed(error)))
            }
            Err(_) => Err(Failure::Unknown),
        }
    }
}
