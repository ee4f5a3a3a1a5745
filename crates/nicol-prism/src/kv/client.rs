//! What a client does: GET, PUT and DELETE, all of them chains of one-sided operations.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use nicol_core::chain::{Chain, ChainResults, Outcome, Primitive, Target};
use nicol_core::fabric::{Fabric, FabricError, OneSided};
use nicol_core::ids::{Key, NodeId, Version};
use nicol_core::key_value::{Failure, Got, KeyValue, Reason};
use nicol_core::memory::WORD;
use nicol_core::units::Nanos;
use nicol_kit::count;

use super::config::KvConfig;
use super::install::{Install, Installed};
use super::layout::{ITEM_HEADER, Item, Located, SLOT_WORDS_MAX, stamp, words_of};
use super::name::Name;
use super::node::Node;
use crate::messages::{Handles, List, Suspicion, Unused};
use crate::servers::{Servers, Unreached, voids_handles};

/// First wait after a chain that found no buffer; it doubles.
pub(super) const NOT_READY_WAIT: Nanos = Nanos::from_micros(5);
/// So often a chain that found no buffer is tried again: some 10 ms.
pub(super) const NOT_READY_TRIES: u32 = 11;

/// A client engine's access to the whole store.
pub struct Client<F: Fabric>(pub(super) Rc<Engine<F>>);

impl<F: Fabric> Clone for Client<F> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

pub(super) struct Engine<F: Fabric> {
    pub(super) fabric: F,
    pub(super) node: Arc<Node>,
    servers: Servers<F>,
    puts: Cell<u32>,
}

/// A server, as an operation reaches it.
pub(super) struct Server {
    pub(super) node: NodeId,
    pub(super) handles: Rc<Handles>,
    /// The key that the operation is about, if it is a workload's.
    pub(super) key: Option<Key>,
}

impl Server {
    /// The free lists from which an item of so many bytes gets its buffer: that of the smallest
    /// that are large enough. What has no value may take a larger one where that has none left, or
    /// nobody could delete anything from a full store.
    pub(super) fn lists_for(&self, bytes: usize, has_no_value: bool) -> &[List] {
        let lists = &self.handles.lists[..];
        let fitting = &lists[lists.partition_point(|list| list.bytes < bytes as u64)..];
        if has_no_value { fitting } else { &fitting[..fitting.len().min(1)] }
    }
}

/// The slot of a key, or the slot that it may get.
pub(super) struct Found {
    server: Server,
    located: Located,
}

impl Found {
    /// Whether there is a value.
    pub(super) const fn is_live(&self) -> bool {
        self.located.live
    }
}

/// Why a chain that changes nothing did not succeed.
pub(super) fn failed(error: FabricError) -> Reason {
    match error {
        FabricError::NoResources => Reason::NoResources,
        error => Reason::Fabric(error),
    }
}

impl<F: Fabric> Client<F> {
    pub(super) fn new(fabric: F, node: Arc<Node>) -> Self {
        let servers = Servers::new(&fabric, &node.open);
        Self(Rc::new(Engine { fabric, node, servers, puts: Cell::new(0) }))
    }

    /// GET: reads the value of `key` into `value`; false if there is none. [PRISM21 6.1]
    ///
    /// Cost: one round trip per probe.
    pub(super) async fn get_item(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, Reason> {
        let name = Name::of(key);
        let server = self.reach(name).await?;
        value.clear();
        for slot in self.slots(name) {
            // [PRISM21 6.1 GET 1] READ the slot with the indirect bit set: the item it points to.
            let read = self.read_item(&server, slot).await?;
            let results = parse(&read)?;
            let item = Item::parse(output(&results, 0)?).map_err(malformed)?;
            // [PRISM21 6.1 GET 2] Verify that the key matches; if not, probe the next slot.
            let Some(item) = item else { return Ok(false) };
            if item.key == key {
                value.extend_from_slice(item.value.unwrap_or_default());
                return Ok(item.value.is_some());
            }
            count(&self.0.node.counts.collisions);
        }
        Ok(false)
    }

    /// A GET that is broken on purpose: it reads the first slot of `key`, and takes what is there
    /// if `is_found` of its key.
    pub(super) async fn first_item(
        &self,
        key: &[u8],
        value: &mut Vec<u8>,
        is_found: impl Fn(&[u8]) -> bool,
    ) -> Result<bool, Reason> {
        let name = Name::of(key);
        let server = self.reach(name).await?;
        value.clear();
        let Some(slot) = self.slots(name).next() else { return Ok(false) };
        let read = self.read_item(&server, slot).await?;
        let results = parse(&read)?;
        let item = Item::parse(output(&results, 0)?).map_err(malformed)?;
        let found = item.filter(|item| is_found(item.key)).and_then(|item| item.value);
        value.extend_from_slice(found.unwrap_or_default());
        Ok(found.is_some())
    }

    /// PUT: writes `value` to `key`. [PRISM21 6.1]
    ///
    /// Cost: a round trip per probe, and one.
    pub(super) async fn put_item(&self, key: &[u8], value: &[u8]) -> Result<(), Failure> {
        let name = Name::of(key);
        let server = self.reach(name).await.map_err(Failure::Aborted)?;
        // [PRISM21 6.1 PUT 1] Determine the slot, as a GET does.
        let located = self.find_slot(&server, name, None).await.map_err(Failure::Aborted)?;
        let located = self.ensure_slot(&server, name, located).await.map_err(Failure::Aborted)?;
        // [PRISM21 6.1 PUT 2, 3] Write the item to a new buffer, and swap the slot's pointer to it.
        let put = self.install(&server, &located, Item { stamp: 0, key, value: Some(value) }).await;
        self.give_back_unused(&server, &located, &put);
        put
    }

    /// DELETE: removes `key`. What is left is an item without a value, so that searches for keys
    /// behind it go on.
    pub(super) async fn delete_item(&self, key: &[u8]) -> Result<(), Failure> {
        let name = Name::of(key);
        let server = self.reach(name).await.map_err(Failure::Aborted)?;
        let located = self.find_slot(&server, name, None).await.map_err(Failure::Aborted)?;
        if !located.live {
            return Ok(());
        }
        self.install(&server, &located, Item { stamp: 0, key, value: None }).await
    }

    /// Determines where `key` is, or is to be, and reads its value into `value`.
    ///
    /// Cost: a round trip per probe.
    pub(super) async fn find(&self, key: &[u8], value: &mut Vec<u8>) -> Result<Found, Reason> {
        let name = Name::of(key);
        let server = self.reach(name).await?;
        let located = self.find_slot(&server, name, Some(value)).await?;
        Ok(Found { server, located })
    }

    /// Installs `item`, of the same key, instead of the one that was found. Cost: a round trip.
    pub(super) async fn replace(&self, found: &Found, item: Item<'_>) -> Result<(), Failure> {
        if found.located.is_slot_of_key() || !self.config().reuses_slots() {
            return self.install(&found.server, &found.located, item).await;
        }
        let name = Name::of(item.key);
        let located = self.claim(&found.server, name).await.map_err(Failure::Aborted)?;
        if located.live {
            // Somebody else has put the key meanwhile.
            return Err(Failure::Aborted(Reason::Conflict));
        }
        let put = self.install(&found.server, &located, item).await;
        self.give_back_unused(&found.server, &located, &put);
        put
    }

    /// Tells the server of a slot without a value whose PUT has found no buffer: else it would stay
    /// the key's, with a buffer of its own, although there is no such key.
    fn give_back_unused(&self, server: &Server, located: &Located, put: &Result<(), Failure>) {
        let is_unused = !located.live && self.config().reuses_slots();
        if let (Err(Failure::Aborted(Reason::NoResources)), true) = (put, is_unused) {
            let form = self.config().form();
            let (offset, pointer) = (located.words[form.pointer], form.pointer_at(located.slot));
            let unused = located.stamp.map(|stamp| Unused { offset, stamp, pointer });
            let report = |unused| self.0.servers.report(server.node, &server.handles, unused);
            unused.into_iter().for_each(report);
        }
    }

    /// The slot of `name`, also if the search for it has come to none that is its own.
    async fn ensure_slot(
        &self,
        server: &Server,
        name: Name<'_>,
        located: Located,
    ) -> Result<Located, Reason> {
        if located.is_slot_of_key() || !self.config().reuses_slots() {
            return Ok(located);
        }
        self.claim(server, name).await
    }

    /// A DELETE that is broken on purpose: it empties the slot of `key`.
    pub(super) async fn empty_slot(&self, key: &[u8]) -> Result<(), Failure> {
        let name = Name::of(key);
        let server = &self.reach(name).await.map_err(Failure::Aborted)?;
        let located = &self.find_slot(server, name, None).await.map_err(Failure::Aborted)?;
        if !located.live {
            return Ok(());
        }
        let form = self.config().form();
        let (rkey, offset) = (server.handles.region, form.pointer_at(located.slot));
        let write = OneSided::Write { rkey, offset, bytes: &[0; WORD] };
        server.key.into_iter().for_each(|key| self.0.fabric.about(key));
        let done = self.0.fabric.one_sided(server.node, write).await;
        done.map_err(|_| Failure::Unknown)?;
        self.report_replaced(server, located, located.words[form.pointer]);
        Ok(())
    }

    /// The server of `name`, and how it is reached.
    async fn reach(&self, name: Name<'_>) -> Result<Server, Reason> {
        let Engine { node, servers, .. } = &*self.0;
        let server = node.server_of(name);
        match servers.reach(server, || node.lost().contain(server)).await {
            Ok(handles) => Ok(Server { node: server, handles, key: name.key() }),
            // It had the only copy.
            Err(Unreached::Lost) => Err(Reason::ShardUnavailable),
            Err(Unreached::Silent) => Err(Reason::Fabric(FabricError::Unreachable)),
        }
    }

    /// The slots where `name` may be, in the order of probing.
    pub(super) fn slots(&self, name: Name<'_>) -> impl Iterator<Item = u64> + use<F> {
        let config = self.0.node.config();
        let form = config.form();
        name.probes(config.hash, config.entries)
            .take(config.probes)
            .map(move |index| form.at(index))
    }

    /// READs what `slot` points to.
    async fn read_item(&self, server: &Server, slot: u64) -> Result<F::Payload, Reason> {
        let _phase = self.0.fabric.phase("6.1 GET: READ");
        let (from, len) = (self.0.node.config().form().item_of(slot), self.item_bytes());
        let mut chain = Chain::default();
        chain.push(Primitive::Read { from, len }.under(server.handles.region));
        self.execute(server, &chain).await.map_err(failed)
    }

    /// As much as a READ of an item asks for.
    fn item_bytes(&self) -> u32 {
        self.0.node.config().largest_item() as u32
    }

    /// Determines the slot of `name`: the one that holds its item, or else the first unused one.
    /// Where asked for, reads the item's `value` as well.
    async fn find_slot(
        &self,
        server: &Server,
        name: Name<'_>,
        mut value: Option<&mut Vec<u8>>,
    ) -> Result<Located, Reason> {
        let _phase = self.0.fabric.phase("6.1 PUT 1: slot");
        let head = ITEM_HEADER as u32 + name.bytes().len() as u32;
        let len = if value.is_some() { self.item_bytes() } else { head };
        let form = self.0.node.config().form();
        for slot in self.slots(name) {
            let read = self.read_slot(server, slot, len).await?;
            let results = parse(&read)?;
            let words = words_of(output(&results, 0)?);
            // An item of another key may be shorter than what was asked for.
            let item = Item::parse(output(&results, 1)?).ok().flatten();
            let item = item.filter(|_| words[form.pointer] != 0);
            match item {
                Some(item) if item.key == name.bytes() => {
                    let (stamp, live) = (Some(item.stamp), item.value.is_some());
                    if let Some(value) = &mut value {
                        value.clear();
                        value.extend_from_slice(item.value.unwrap_or_default());
                    }
                    return Ok(Located { slot, words, stamp, live });
                }
                None if words[form.pointer] == 0 => {
                    return Ok(Located { slot, words, stamp: None, live: false });
                }
                _ => count(&self.0.node.counts.collisions),
            }
        }
        if self.config().reuses_slots() {
            // Deleted keys may have left slots; the server knows.
            return Ok(Located { slot: 0, words: [0; SLOT_WORDS_MAX], stamp: None, live: false });
        }
        count(&self.0.node.counts.no_slot);
        Err(Reason::NoResources)
    }

    /// READs the words of `slot`, and so many bytes of the item.
    pub(super) async fn read_slot(
        &self,
        server: &Server,
        slot: u64,
        len: u32,
    ) -> Result<F::Payload, Reason> {
        let (form, rkey) = (self.config().form(), server.handles.region);
        // The slot first: an item that is read later than its pointer is at least as new, and a CAS
        // that compares an older pointer does not hold.
        let mut chain = Chain::default();
        let words = Primitive::Read { from: Target::At(slot), len: form.bytes() as u32 };
        let item = Primitive::Read { from: form.item_of(slot), len };
        chain.push(words.under(rkey)).push(item.under(rkey).conditional());
        self.execute(server, &chain).await.map_err(failed)
    }

    /// A stamp that no other item has.
    pub(super) fn next_stamp(&self) -> u64 {
        let Engine { fabric, puts, .. } = &*self.0;
        puts.set(puts.get().wrapping_add(1));
        stamp(fabric.here(), fabric.incarnation(), puts.get())
    }

    /// Installs `item` in the slot of `located`, unless that has changed.
    async fn install(
        &self,
        server: &Server,
        located: &Located,
        mut item: Item<'_>,
    ) -> Result<(), Failure> {
        let Engine { fabric, node, .. } = &*self.0;
        let _phase = fabric.phase("6.1 PUT 2, 3: ALLOCATE, CAS");
        item.stamp = self.next_stamp();
        let bytes = item.emit();
        if bytes.len() as u64 > node.config().largest_item() {
            // A GET does not ask for as much, whatever the buffers have space for.
            return Err(Failure::Aborted(Reason::NoResources));
        }
        let lists = server.lists_for(bytes.len(), item.value.is_none());
        if lists.is_empty() {
            return Err(Failure::Aborted(Reason::NoResources));
        }
        let install = Install { config: node.config(), located, item: &bytes, is_claim: false };
        let mut wait = NOT_READY_WAIT;
        for _ in 0..NOT_READY_TRIES {
            let done = match self.try_install(server, &install, lists).await {
                Ok(done) => done,
                Err(FabricError::Malformed) => {
                    return Err(Failure::Aborted(Reason::Fabric(FabricError::Malformed)));
                }
                Err(_) => {
                    self.0.servers.suspect(server.node, Suspicion::Unanswered);
                    return Err(Failure::Unknown);
                }
            };
            match done {
                Installed::Done { replaced } => {
                    self.report_replaced(server, located, replaced);
                    return Ok(());
                }
                Installed::Lost { allocated } => {
                    count(&node.counts.failed_swaps);
                    self.report_allocated(server, located, allocated, item.stamp);
                    // [PRISM21 6.1] A concurrent client has overwritten the slot.
                    return Err(Failure::Aborted(Reason::Conflict));
                }
                Installed::Refused { error, allocated } => {
                    self.report_allocated(server, located, allocated, item.stamp);
                    return Err(Failure::Aborted(failed(error)));
                }
                // [PRISM21 4.2] Receiver not ready: back off.
                Installed::NotReady => {
                    count(&node.recycled.waits);
                    fabric.sleep_until(fabric.now() + wait).await;
                    wait = wait * 2;
                }
            }
        }
        Err(Failure::Aborted(Reason::NoResources))
    }

    /// Sends the chain of `install`, once for each of `lists` until one has a buffer.
    pub(super) async fn try_install(
        &self,
        server: &Server,
        install: &Install<'_>,
        lists: &[List],
    ) -> Result<Installed, FabricError> {
        for list in lists {
            let chain = install.chain(server.handles.region, list.key);
            match self.execute(server, &chain).await {
                Ok(answer) => match install.outcome(&answer) {
                    Installed::NotReady => {}
                    done => return Ok(done),
                },
                Err(FabricError::NoResources) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Installed::NotReady)
    }

    /// [PRISM21 6.1 PUT 4] Asynchronously notifies the server that the old version's buffer is
    /// free.
    pub(super) fn report_replaced(&self, server: &Server, located: &Located, replaced: u64) {
        let form = self.0.node.config().form();
        if replaced == 0 {
            return;
        }
        let pointer = form.pointer_at(located.slot);
        match located.stamp.filter(|_| replaced == located.words[form.pointer]) {
            Some(stamp) => self.report(server, Unused { offset: replaced, stamp, pointer }),
            // Another PUT came between: what it has written nobody has read here.
            None => self.0.servers.suspect(server.node, Suspicion::Unseen),
        }
    }

    /// AMB-12: what a chain has allocated in vain is free, too.
    pub(super) fn report_allocated(
        &self,
        server: &Server,
        located: &Located,
        allocated: u64,
        stamp: u64,
    ) {
        let pointer = self.0.node.config().form().pointer_at(located.slot);
        if allocated != 0 {
            self.report(server, Unused { offset: allocated, stamp, pointer });
        }
    }

    fn report(&self, server: &Server, unused: Unused) {
        if self.0.node.config().recycling.has_reports() {
            self.0.servers.report(server.node, &server.handles, unused);
        }
    }

    /// Sends a chain to `server`.
    pub(super) async fn execute(
        &self,
        server: &Server,
        chain: &Chain,
    ) -> Result<F::Payload, FabricError> {
        server.key.into_iter().for_each(|key| self.0.fabric.about(key));
        let done = self.0.fabric.one_sided(server.node, OneSided::Chain(chain)).await;
        if done.as_ref().is_err_and(|error| voids_handles(*error)) {
            self.0.servers.forget(server.node, &server.handles);
        }
        done
    }

    pub(super) fn config(&self) -> &KvConfig {
        self.0.node.config()
    }
}

pub(super) fn malformed<E>(_: E) -> Reason {
    Reason::Fabric(FabricError::Malformed)
}

pub(super) fn parse<P: AsRef<[u8]>>(answer: &P) -> Result<ChainResults<'_>, Reason> {
    ChainResults::parse(answer.as_ref()).map_err(malformed)
}

/// The output of operation `index`; if it was refused, the chain is.
pub(super) fn output<'a>(results: &ChainResults<'a>, index: usize) -> Result<&'a [u8], Reason> {
    match results.outcome(index) {
        Outcome::Done(bytes) => Ok(bytes),
        Outcome::Refused(error) => Err(failed(error)),
        Outcome::NotSwapped(_) | Outcome::Skipped => Err(malformed(())),
    }
}

impl<F: Fabric> KeyValue for Client<F> {
    async fn get(&self, key: Key, value: &mut Vec<u8>) -> Result<Got, Failure> {
        let present = self.get_item(&key.0.to_be_bytes(), value).await;
        Ok(Got { present: present.map_err(Failure::Aborted)?, version: None })
    }

    async fn put(&self, key: Key, value: &[u8]) -> Result<Option<Version>, Failure> {
        self.put_item(&key.0.to_be_bytes(), value).await.map(|()| None)
    }

    async fn delete(&self, key: Key) -> Result<Option<Version>, Failure> {
        self.delete_item(&key.0.to_be_bytes()).await.map(|()| None)
    }
}
