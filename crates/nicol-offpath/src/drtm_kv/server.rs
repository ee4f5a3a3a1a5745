//! The server's part: gets that the SoC answers, and puts.

use std::sync::Arc;

use nicol_core::fabric::{Delivery, Fabric, FabricError, ReplyTo, Service, Work};
use nicol_core::ids::Key;
use nicol_core::memory::Region;
use nicol_core::units::Nanos;
use nicol_core::wire::Malformed;
use nicol_kit::count;

use super::config::Alternative;
use super::layout::{BUCKET, VERSION, ValueAddress, emit, extent_bytes, search, verify};
use super::messages::{Answer, GET, Get, HELLO, PUT, Put};
use super::node::Node;
use super::table::{Full, bucket_of};

/// Time that a put waits for another one of its key.
const WAIT: Nanos = Nanos::from_micros(1);
/// One miss in so many brings its value into the cache: what is asked for often comes soon.
const KEPT_ONE_IN: u64 = 4;
/// So often a get that finds something stale looks it up again.
const STALE_MAX: u32 = 1_000;
/// Buckets of a chain at most; a longer one has no end.
const CHAIN_MAX: u64 = 1 << 20;

/// The service of a server's NIC engine: on an off-path card a core of the SoC.
pub(super) struct Server<F> {
    pub(super) fabric: F,
    pub(super) node: Arc<Node>,
}

impl<F> Clone for Server<F>
where
    F: Clone,
{
    fn clone(&self) -> Self {
        Self { fabric: self.fabric.clone(), node: self.node.clone() }
    }
}

/// Why a request is refused.
fn refusal(Full: Full) -> FabricError {
    FabricError::NoResources
}

impl<F: Fabric> Service for Server<F> {
    fn deliver(&self, delivery: Delivery<'_>) -> Result<(), Malformed> {
        let Delivery { reply_to, kind, body, .. } = delivery;
        let Some(to) = reply_to else { return Err(Malformed { what: "no request of DrTM-KV's" }) };
        let server = self.clone();
        let working = self.node.begin();
        match kind {
            HELLO => match self.node.keys() {
                Some(keys) => self.fabric.reply(to, &keys),
                None => self.fabric.refuse(to, FabricError::NoResources),
            },
            GET => {
                let Get(key) = Get::parse(body)?;
                self.fabric.spawn(async move {
                    server.get(to, key).await;
                    drop(working);
                });
            }
            PUT => {
                let Put { key, value } = Put::parse(body)?;
                if value.len() as u64 > self.node.config().value_bytes {
                    self.fabric.refuse(to, FabricError::NoResources);
                    return Ok(());
                }
                let value = value.to_vec();
                self.fabric.spawn(async move {
                    server.put(to, key, &value).await;
                    drop(working);
                });
            }
            _ => return Err(Malformed { what: "no message of DrTM-KV's" }),
        }
        Ok(())
    }
}

impl<F: Fabric> Server<F> {
    /// A get that the SoC answers. [OffPath23 5.2: A2, A3, A5]
    pub(super) async fn get(&self, to: ReplyTo, key: Key) {
        let answered = match self.node.config().alternative {
            // [OffPath23 A2] Traverse the index of the host, then read the value there.
            Alternative::A2 => self.read_all(key).await,
            // [OffPath23 A3] Look the key up in the index here, then read the value of the host.
            Alternative::A3 => self.read_indexed(key).await,
            // [OffPath23 A5] Answer with the value that is kept here, or with its address.
            _ => return self.answer_kept(to, key).await,
        };
        match answered {
            Ok(Some(value)) => self.fabric.reply(to, &Answer::Value(&value)),
            Ok(None) => self.fabric.reply(to, &Answer::Absent),
            Err(error) => self.fabric.refuse(to, error),
        }
    }

    async fn read_all(&self, key: Key) -> Result<Option<Vec<u8>>, FabricError> {
        let _phase = self.fabric.phase("A2: traverse the index");
        for _ in 0..STALE_MAX {
            let (mut bucket, mut address) =
                (Some(bucket_of(key, self.node.config().buckets)), None);
            for length in 0..CHAIN_MAX {
                let Some(number) = bucket else { break };
                let index = self.node.table().index.clone();
                let read = self.fabric.dma_read(&index, number * BUCKET, BUCKET as usize).await?;
                self.fabric.work(Work::IndexLookup);
                let (entry, next) =
                    search(read.as_ref(), key).map_err(|_| FabricError::Malformed)?;
                (address, bucket) = (entry.map(|entry| entry.address), next);
                if address.is_some() {
                    break;
                }
                if length > 0 {
                    count(&self.node.counts.chained);
                }
            }
            let Some(address) = address else { return Ok(None) };
            if let Some(value) = self.read_value(key, address).await? {
                return Ok(Some(value));
            }
        }
        Err(FabricError::NoResources)
    }

    async fn read_indexed(&self, key: Key) -> Result<Option<Vec<u8>>, FabricError> {
        for _ in 0..STALE_MAX {
            let Some(address) = self.look_up(key).await else { return Ok(None) };
            if let Some(value) = self.read_value(key, address).await? {
                return Ok(Some(value));
            }
        }
        Err(FabricError::NoResources)
    }

    /// Looks `key` up in the index, in this side's memory.
    async fn look_up(&self, key: Key) -> Option<ValueAddress> {
        let _phase = self.fabric.phase("A3: look up in the index");
        self.fabric.work(Work::TableLookup);
        self.fabric.access().await;
        self.node.table().address(key)
    }

    /// Reads the value at `address` of the host by DMA; `None` if another one is there by now.
    async fn read_value(
        &self,
        key: Key,
        address: ValueAddress,
    ) -> Result<Option<Vec<u8>>, FabricError> {
        let _phase = self.fabric.phase("server: read the value");
        let config = self.node.config();
        let bytes = extent_bytes(config.value_bytes);
        let values = self.node.table().values.clone();
        let read = self.fabric.dma_read(&values, address.offset(bytes), bytes as usize).await?;
        match verify(read.as_ref(), key, address.version) {
            Ok(value) => Ok(Some(value.to_vec())),
            Err(unfit) => {
                self.node.counts.note(unfit);
                Ok(None)
            }
        }
    }

    async fn answer_kept(&self, to: ReplyTo, key: Key) {
        let _phase = self.fabric.phase("A5: answer from the cache");
        self.fabric.work(Work::TableLookup);
        self.fabric.access().await;
        let address = {
            let table = self.node.table();
            if let Some(value) = table.cached(key) {
                count(&self.node.counts.hits);
                return self.fabric.reply(to, &Answer::Value(value));
            }
            table.address(key)
        };
        let Some(address) = address else { return self.fabric.reply(to, &Answer::Absent) };
        // [OffPath23 5.2] A miss: the client READs the value of the host itself.
        count(&self.node.counts.misses);
        self.fabric.reply(to, &Answer::At(address));
        let draw = self.fabric.random();
        if draw.is_multiple_of(KEPT_ONE_IN)
            && let Ok(Some(value)) = self.read_value(key, address).await
        {
            self.node.table().keep(key, address, &value, draw);
        }
    }

    pub(super) async fn put(&self, to: ReplyTo, key: Key, value: &[u8]) {
        match self.install(key, value).await {
            Ok(()) => self.fabric.reply(to, &Answer::Value(&[])),
            Err(error) => self.fabric.refuse(to, error),
        }
    }

    /// Writes a value: into a new extent, then into the index by one word.
    pub(super) async fn install(&self, key: Key, value: &[u8]) -> Result<(), FabricError> {
        let (fabric, node) = (&self.fabric, &self.node);
        let config = node.config();
        let _phase = fabric.phase("server: put");
        fabric.work(Work::TableApply);
        let address = loop {
            fabric.access().await;
            let begun = node.table().begin_put(key).map_err(refusal)?;
            match begun {
                Some(address) => break address,
                None => fabric.sleep_until(fabric.now() + WAIT).await,
            }
        };
        let offset = address.offset(extent_bytes(config.value_bytes));
        let (values, index) = {
            let table = node.table();
            (table.values.clone(), table.index.clone())
        };
        let extent = emit(key, address.version, value);
        if let Err(error) = fabric.dma_write(&values, offset, &extent).await {
            node.table().drop_put(key, address);
            return Err(error);
        }
        // Out of the cache before the index changes: after a client has read the new value, from
        // the index or from here, no client may read the old one.
        fabric.access().await;
        let was_cached = node.table().forget(key);
        let Some((old, word)) = node.table().entry(key) else { return Err(FabricError::Malformed) };
        if config.copies > 1 {
            // [OffPath23 advice 1] Once a client has read the new value, a client that READs
            // another copy of the index must not get the old one: its extent is made unreadable
            // first.
            let old = old.offset(extent_bytes(config.value_bytes)) + VERSION;
            fabric.dma_write(&values, old, &0_u64.to_le_bytes()).await?;
        }
        let mut last = word;
        let copies = node.table().index_copies(word);
        for next in copies.skip(1) {
            self.change_word(&index, last, address.word()).await?;
            fabric.access().await;
            last = next;
        }
        let on_soc = config.alternative.index_on_soc();
        if !on_soc {
            self.change_word(&index, last, address.word()).await?;
        }
        let mut table = node.table();
        if on_soc {
            // Under the lock: on threads a client that READs the index must not get the new value
            // before one that asks here can get no other.
            index.store(last, address.word()).map_err(FabricError::AccessDenied)?;
        }
        table.end_put(key, address, was_cached.then_some(value));
        Ok(())
    }

    /// Changes one word of the index, wherever that stands.
    async fn change_word(
        &self,
        index: &Arc<Region>,
        word: u64,
        value: u64,
    ) -> Result<(), FabricError> {
        if self.node.config().alternative.index_on_soc() {
            index.store(word, value).map_err(FabricError::AccessDenied)?;
        } else {
            self.fabric.dma_write(index, word, &value.to_le_bytes()).await?;
            self.fabric.access().await;
        }
        Ok(())
    }
}
