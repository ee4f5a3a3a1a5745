//! What a client does: GETs by READs, PUTs and DELETEs by RPCs.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use nicol_core::chain::{Chain, ChainResults, Outcome, Primitive, Target};
use nicol_core::fabric::{Fabric, FabricError, OneSided, Timeout, Work};
use nicol_core::ids::{EngineId, Key, NodeId, RKey, Side, Version};
use nicol_core::key_value::{Failure, Got, KeyValue, Reason};
use nicol_core::units::Nanos;
use nicol_kit::count;

use super::config::{Index, PilafConfig, Reads};
use super::layout::{CHECKED, ENTRY, Entry, Extent};
use super::messages::{Answer, Ask, Hello, Opened, What};
use super::node::Node;
use super::table::probes;
use crate::kv::name::Name;

/// How long a HELLO waits for its answer, and how long the next one waits after one that failed.
const HELLO_TIMEOUT: Timeout = Timeout::After(Nanos::from_millis(2));
const HELLO_WAIT: Nanos = Nanos::from_micros(20);
/// So often a server that does not answer is asked.
const HELLOS_MAX: u32 = 64;
/// So often a GET that finds something torn reads it again.
const TORN_MAX: u32 = 1_000;

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
    /// By node: the key of its memory, if it has told.
    rkeys: RefCell<Vec<Option<RKey>>>,
}

/// A server, as an operation reaches it.
#[derive(Clone, Copy)]
struct Server {
    node: NodeId,
    rkey: RKey,
    /// The key that the operation is about, if it is a workload's.
    key: Option<Key>,
}

/// Why a READ has not brought what it should.
pub(super) enum Unread {
    /// It was torn: read again.
    Torn,
    Failed(Reason),
}

impl From<FabricError> for Unread {
    fn from(error: FabricError) -> Self {
        Self::Failed(failed(error))
    }
}

fn failed(error: FabricError) -> Reason {
    match error {
        FabricError::NoResources => Reason::NoResources,
        error => Reason::Fabric(error),
    }
}

impl<F: Fabric> Client<F> {
    pub(super) fn config(&self) -> &PilafConfig {
        self.0.node.config()
    }

    pub(super) fn new(fabric: F, node: Arc<Node>) -> Self {
        let rkeys = RefCell::new(vec![None; fabric.view().nodes()]);
        Self(Rc::new(Engine { fabric, node, rkeys }))
    }

    /// GET: reads the value of `key` into `value`; false if there is none. [PRISM21 6]
    ///
    /// Cost: two round trips per probe that finds an item, one for the last of a search in vain.
    pub async fn get_bytes(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, Reason> {
        let server = self.reach(key).await?;
        let config = self.0.node.config();
        let mut probes = probes(config, key);
        let mut next = probes.next();
        let mut torn = 0;
        while let Some(index) = next {
            match self.probe(server, index, key, value).await {
                Ok(Some(found)) => return Ok(found),
                Ok(None) => next = probes.next(),
                Err(Unread::Torn) if torn < TORN_MAX => {
                    torn += 1;
                    count(&self.0.node.counts.torn);
                }
                Err(Unread::Torn) => return Err(Reason::Conflict),
                Err(Unread::Failed(reason)) => return Err(reason),
            }
        }
        if config.index == Index::Cuckoo {
            return self.ask_for(server, key, value).await;
        }
        Ok(false)
    }

    /// Looks at entry `index`: it has the value of `key`, or tells that there is none. `None`: the
    /// search goes on.
    async fn probe(
        &self,
        server: Server,
        index: u64,
        key: &[u8],
        value: &mut Vec<u8>,
    ) -> Result<Option<bool>, Unread> {
        let config = self.0.node.config();
        value.clear();
        // [PRISM21 6 GET 1] READ the entry of the hash table.
        let extent = match self.read_entry(server, index).await? {
            Entry::Item(extent) => extent,
            Entry::Unused if config.index == Index::Probing => return Ok(Some(false)),
            Entry::Unused | Entry::Deleted => return Ok(None),
        };
        // [PRISM21 6 GET 2] READ the extent that it points to.
        let item = self.read_extent(server, &extent).await?;
        // [PRISM21 6 GET 3] Verify the key.
        let (found, bytes) = item.split_at_checked(extent.key as usize).ok_or(Unread::Torn)?;
        if found != key {
            count(&self.0.node.counts.collisions);
            return Ok(None);
        }
        value.extend_from_slice(bytes);
        Ok(Some(true))
    }

    /// The item of the first entry of `key`, whosever it is: all that clients look at that are
    /// broken on purpose.
    pub(super) async fn first_item(
        &self,
        key: &[u8],
    ) -> Result<Option<(Vec<u8>, Vec<u8>)>, Unread> {
        let server = self.reach(key).await.map_err(Unread::Failed)?;
        let Some(index) = probes(self.config(), key).next() else { return Ok(None) };
        let Entry::Item(extent) = self.read_entry(server, index).await? else { return Ok(None) };
        let mut found = self.read_extent(server, &extent).await?;
        let value = found.split_off((extent.key as usize).min(found.len()));
        Ok(Some((found, value)))
    }

    async fn read_entry(&self, server: Server, index: u64) -> Result<Entry, Unread> {
        let _phase = self.0.fabric.phase("GET 1: READ the entry");
        let read = self.read(server, index * ENTRY, ENTRY as u32).await?;
        self.charge_crc(CHECKED);
        Entry::parse(&read).map_err(|_| Unread::Torn)
    }

    async fn read_extent(&self, server: Server, extent: &Extent) -> Result<Vec<u8>, Unread> {
        let _phase = self.0.fabric.phase("GET 2: READ the extent");
        let read = self.read(server, extent.at, extent.len()).await?;
        self.charge_crc(read.len());
        if self.0.node.config().crc && crc32c::crc32c(&read) != extent.crc {
            return Err(Unread::Torn);
        }
        Ok(read)
    }

    /// Pilaf's clients compute a CRC64 of what they have read [PRISM21 2.1, 6], which takes a core
    /// longer than the check that is made here.
    fn charge_crc(&self, bytes: usize) {
        if self.0.node.config().crc {
            self.0.fabric.work(Work::Crc64 { bytes: bytes as u32 });
        }
    }

    /// READs memory of `server`.
    async fn read(&self, server: Server, offset: u64, len: u32) -> Result<Vec<u8>, Unread> {
        let Server { node, rkey, key } = server;
        key.into_iter().for_each(|key| self.0.fabric.about(key));
        if self.0.node.config().reads == Reads::Verbs {
            let read = OneSided::Read { rkey, offset, len };
            return Ok(self.0.fabric.one_sided(node, read).await?.as_ref().to_vec());
        }
        let mut chain = Chain::default();
        chain.push(Primitive::Read { from: Target::At(offset), len }.under(rkey));
        let answer = self.0.fabric.one_sided(node, OneSided::Chain(&chain)).await?;
        let results = ChainResults::parse(answer.as_ref());
        match results.map_err(|_| FabricError::Malformed)?.outcome(0) {
            Outcome::Done(bytes) => Ok(bytes.to_vec()),
            Outcome::Refused(error) => Err(error.into()),
            _ => Err(FabricError::Malformed.into()),
        }
    }

    /// Asks the server's CPU for a value.
    async fn ask_for(
        &self,
        server: Server,
        key: &[u8],
        into: &mut Vec<u8>,
    ) -> Result<bool, Reason> {
        let answer = self.ask(server, Ask { key, what: What::Get }).await.map_err(failed)?;
        let answer = Answer::parse(answer.as_ref());
        let Answer(value) = answer.map_err(|_| Reason::Fabric(FabricError::Malformed))?;
        into.clear();
        into.extend_from_slice(value.unwrap_or_default());
        Ok(value.is_some())
    }

    /// PUT or DELETE: an RPC that the server's CPU executes. [PRISM21 6]
    pub async fn write_bytes(&self, key: &[u8], value: Option<&[u8]>) -> Result<(), Failure> {
        let server = self.reach(key).await.map_err(Failure::Aborted)?;
        let what = value.map_or(What::Delete, What::Put);
        match self.ask(server, Ask { key, what }).await {
            Ok(_) => Ok(()),
            Err(error @ (FabricError::NoResources | FabricError::Malformed)) => {
                Err(Failure::Aborted(failed(error)))
            }
            Err(_) => Err(Failure::Unknown),
        }
    }

    async fn ask(&self, server: Server, ask: Ask<'_>) -> Result<F::Payload, FabricError> {
        let _phase = self.0.fabric.phase(match ask.what {
            What::Put(_) => "PUT: RPC",
            What::Delete => "DELETE: RPC",
            What::Get => "GET: RPC",
        });
        let timeout = Timeout::After(self.0.node.config().timeout);
        self.0.fabric.call(self.engine_of(server.node), &ask, timeout).await
    }

    /// The host engine of a server that answers this one.
    fn engine_of(&self, node: NodeId) -> EngineId {
        let fabric = &self.0.fabric;
        let hosts = fabric.view().engines(node, Side::Host).max(1);
        EngineId::host(node, fabric.view().peer_of(fabric.here(), node, hosts))
    }

    /// The server of `key`, asked for its memory's key at first.
    async fn reach(&self, key: &[u8]) -> Result<Server, Reason> {
        let Engine { fabric, node, rkeys } = &*self.0;
        let server = node.server_of(Name::of(key));
        for _ in 0..HELLOS_MAX {
            if node.lost().contain(server) {
                return Err(Reason::ShardUnavailable);
            }
            if let Some(rkey) = rkeys.borrow()[server.index()] {
                return Ok(Server { node: server, rkey, key: Name::of(key).key() });
            }
            let answer = fabric.call(self.engine_of(server), &Hello, HELLO_TIMEOUT).await;
            let told = answer.ok().and_then(|answer| Opened::parse(answer.as_ref()).ok());
            match told {
                Some(Opened(rkey)) => rkeys.borrow_mut()[server.index()] = Some(rkey),
                None => fabric.sleep_until(fabric.now() + HELLO_WAIT).await,
            }
        }
        Err(Reason::Fabric(FabricError::Unreachable))
    }
}

impl<F: Fabric> KeyValue for Client<F> {
    async fn get(&self, key: Key, value: &mut Vec<u8>) -> Result<Got, Failure> {
        let present = self.get_bytes(&key.0.to_be_bytes(), value).await;
        Ok(Got { present: present.map_err(Failure::Aborted)?, version: None })
    }

    async fn put(&self, key: Key, value: &[u8]) -> Result<Option<Version>, Failure> {
        self.write_bytes(&key.0.to_be_bytes(), Some(value)).await.map(|()| None)
    }

    async fn delete(&self, key: Key) -> Result<Option<Version>, Failure> {
        self.write_bytes(&key.0.to_be_bytes(), None).await.map(|()| None)
    }
}
