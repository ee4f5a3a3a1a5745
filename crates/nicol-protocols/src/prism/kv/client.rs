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

use super::config::{ITEM_BYTES_MAX, Sabotage};
use super::install::{Install, Installed};
use super::layout::{ITEM_HEADER, Item, Place, stamp, words_of};
use super::name::Name;
use super::node::Node;
use crate::kit::count;
use crate::prism::messages::{Handles, Unused};
use crate::prism::servers::{Servers, Unreached, voids_handles};

/// How long a client waits after a chain that found no buffer, at first; the wait doubles.
const NOT_READY_WAIT: Nanos = Nanos::from_micros(5);
/// So often a chain that found no buffer is tried again: some 10 ms.
const NOT_READY_TRIES: u32 = 11;

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
    servers: Servers<F>,
    /// PUTs so far.
    puts: Cell<u32>,
}

/// A server, as an operation reaches it.
struct Server {
    node: NodeId,
    handles: Rc<Handles>,
}

/// Where a key is, or is to be.
pub(super) struct Found {
    server: Server,
    place: Place,
}

impl Found {
    /// Is there a value?
    pub(super) const fn is_live(&self) -> bool {
        self.place.live
    }
}

/// Why a chain that changes nothing did not succeed.
fn failed(error: FabricError) -> Reason {
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
    pub async fn get_bytes(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, Reason> {
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
            if item.key == key || self.is_broken(Sabotage::TrustsSlots) {
                value.extend_from_slice(item.value.unwrap_or_default());
                return Ok(item.value.is_some());
            }
            count(&self.0.node.counts.collisions);
        }
        Ok(false)
    }

    /// PUT: writes `value` to `key`. [PRISM21 6.1]
    ///
    /// Cost: a round trip per probe, and one.
    pub async fn put_bytes(&self, key: &[u8], value: &[u8]) -> Result<(), Failure> {
        let name = Name::of(key);
        let server = self.reach(name).await.map_err(Failure::Aborted)?;
        // [PRISM21 6.1 PUT 1] Determine the slot, as a GET does.
        let place = self.find_slot(&server, name, None).await.map_err(Failure::Aborted)?;
        // [PRISM21 6.1 PUT 2, 3] Write the item to a new buffer, and swap the slot's pointer to it.
        self.install(&server, &place, Item { stamp: 0, key, value: Some(value) }).await
    }

    /// DELETE: removes `key`. What is left is an item without a value, so that searches for keys
    /// behind it go on.
    pub async fn delete_bytes(&self, key: &[u8]) -> Result<(), Failure> {
        let name = Name::of(key);
        let server = self.reach(name).await.map_err(Failure::Aborted)?;
        let place = self.find_slot(&server, name, None).await.map_err(Failure::Aborted)?;
        if !place.live {
            return Ok(());
        }
        if self.is_broken(Sabotage::EmptiesSlots) {
            return self.empty(&server, &place).await;
        }
        self.install(&server, &place, Item { stamp: 0, key, value: None }).await
    }

    /// Determines where `key` is, or is to be, and reads its value into `value`.
    ///
    /// Cost: a round trip per probe.
    pub(super) async fn find(&self, key: &[u8], value: &mut Vec<u8>) -> Result<Found, Reason> {
        let name = Name::of(key);
        let server = self.reach(name).await?;
        let place = self.find_slot(&server, name, Some(value)).await?;
        Ok(Found { server, place })
    }

    /// Installs `item`, of the same key, in the place of what was found. Cost: a round trip.
    pub(super) async fn replace(&self, found: &Found, item: Item<'_>) -> Result<(), Failure> {
        self.install(&found.server, &found.place, item).await
    }

    /// A DELETE that is broken on purpose.
    async fn empty(&self, server: &Server, place: &Place) -> Result<(), Failure> {
        let form = self.0.node.config().form();
        let (rkey, offset) = (server.handles.region, form.pointer_at(place.slot));
        let write = OneSided::Write { rkey, offset, bytes: &[0; WORD] };
        let done = self.0.fabric.one_sided(server.node, write).await;
        done.map_err(|_| Failure::Unknown)?;
        self.report_replaced(server, place, place.words[form.pointer]);
        Ok(())
    }

    /// The server of `name`, and how it is reached.
    async fn reach(&self, name: Name<'_>) -> Result<Server, Reason> {
        let Engine { node, servers, .. } = &*self.0;
        let server = node.server_of(name);
        match servers.reach(server, || node.lost().contain(server)).await {
            Ok(handles) => Ok(Server { node: server, handles }),
            // It had the only copy.
            Err(Unreached::Lost) => Err(Reason::ShardUnavailable),
            Err(Unreached::Silent) => Err(Reason::Fabric(FabricError::Unreachable)),
        }
    }

    /// The slots where `name` may be, in the order of probing.
    fn slots(&self, name: Name<'_>) -> impl Iterator<Item = u64> + use<F> {
        let config = self.0.node.config();
        let form = config.form();
        let once = self.is_broken(Sabotage::ProbesOnce);
        let most = if once { 1 } else { config.probes };
        name.probes(config.hash, config.entries).take(most).map(move |index| form.at(index))
    }

    /// READs what `slot` points to.
    async fn read_item(&self, server: &Server, slot: u64) -> Result<F::Payload, Reason> {
        let (from, len) = (self.0.node.config().form().item_of(slot), self.item_bytes());
        let mut chain = Chain::default();
        chain.push(Primitive::Read { from, len }.under(server.handles.region));
        self.execute(server, &chain).await.map_err(failed)
    }

    /// As much as a READ of an item asks for.
    fn item_bytes(&self) -> u32 {
        let largest = self.0.node.config().items.iter().map(|(bytes, _)| *bytes).max();
        largest.unwrap_or(ITEM_BYTES_MAX) as u32
    }

    /// Determines the slot of `name`: the one that holds its item, or else the first unused one. Where
    /// asked for, reads the item's `value` as well.
    async fn find_slot(
        &self,
        server: &Server,
        name: Name<'_>,
        mut value: Option<&mut Vec<u8>>,
    ) -> Result<Place, Reason> {
        let head = ITEM_HEADER as u32 + name.bytes().len() as u32;
        let len = if value.is_some() { self.item_bytes() } else { head };
        let form = self.0.node.config().form();
        let rkey = server.handles.region;
        for slot in self.slots(name) {
            // The slot first: an item that is read later than its pointer is at least as new, and a CAS
            // that compares an older pointer does not hold.
            let mut chain = Chain::default();
            let words = Primitive::Read { from: Target::At(slot), len: form.bytes() as u32 };
            let item = Primitive::Read { from: form.item_of(slot), len };
            chain.push(words.under(rkey)).push(item.under(rkey).conditional());
            let read = self.execute(server, &chain).await.map_err(failed)?;
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
                    return Ok(Place { slot, words, stamp, live });
                }
                None if words[form.pointer] == 0 => {
                    return Ok(Place { slot, words, stamp: None, live: false });
                }
                _ => count(&self.0.node.counts.collisions),
            }
        }
        count(&self.0.node.counts.no_slot);
        Err(Reason::NoResources)
    }

    /// Installs `item` at `place`, unless that has changed.
    async fn install(
        &self,
        server: &Server,
        place: &Place,
        mut item: Item<'_>,
    ) -> Result<(), Failure> {
        let Engine { fabric, node, puts, .. } = &*self.0;
        puts.set(puts.get().wrapping_add(1));
        item.stamp = stamp(fabric.here(), fabric.incarnation(), puts.get());
        let bytes = item.emit();
        let list = server.handles.lists.iter().find(|list| list.bytes >= bytes.len() as u64);
        let Some(list) = list else { return Err(Failure::Aborted(Reason::NoResources)) };
        let install = Install { config: node.config(), place, item: &bytes };
        let chain = install.chain(server.handles.region, list.key);
        let mut wait = NOT_READY_WAIT;
        if self.is_broken(Sabotage::PostsEarly) {
            self.report_replaced(server, place, place.words[node.config().form().pointer]);
            fabric.sleep_until(fabric.now() + wait * 8).await;
        }
        for _ in 0..NOT_READY_TRIES {
            let done = match self.execute(server, &chain).await {
                Ok(answer) => install.outcome(&answer),
                Err(FabricError::NoResources) => Installed::NotReady,
                Err(FabricError::Malformed) => {
                    return Err(Failure::Aborted(Reason::Fabric(FabricError::Malformed)));
                }
                Err(_) => {
                    self.0.servers.suspect(server.node);
                    return Err(Failure::Unknown);
                }
            };
            match done {
                Installed::Done { replaced } => {
                    self.report_replaced(server, place, replaced);
                    return Ok(());
                }
                Installed::Lost { allocated } => {
                    count(&node.counts.failed_swaps);
                    self.report_allocated(server, place, allocated, item.stamp);
                    if self.is_broken(Sabotage::IgnoresFailedSwaps) {
                        return Ok(());
                    }
                    // [PRISM21 6.1] A concurrent client has overwritten the slot.
                    return Err(Failure::Aborted(Reason::Conflict));
                }
                Installed::Refused { error, allocated } => {
                    self.report_allocated(server, place, allocated, item.stamp);
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

    /// [PRISM21 6.1 PUT 4] Asynchronously notifies the server that the old version's buffer is free.
    fn report_replaced(&self, server: &Server, place: &Place, replaced: u64) {
        let form = self.0.node.config().form();
        if replaced == 0 || self.is_broken(Sabotage::KeepsOldBuffers) {
            return;
        }
        let pointer = form.pointer_at(place.slot);
        match place.stamp.filter(|_| replaced == place.words[form.pointer]) {
            Some(stamp) => self.report(server, Unused { offset: replaced, stamp, pointer }),
            // Another PUT came between: what it has written nobody has read here.
            None => self.0.servers.suspect(server.node),
        }
    }

    /// AMB-12: what a chain has allocated in vain is free, too.
    fn report_allocated(&self, server: &Server, place: &Place, allocated: u64, stamp: u64) {
        let pointer = self.0.node.config().form().pointer_at(place.slot);
        if allocated != 0 && !self.is_broken(Sabotage::KeepsNewBuffers) {
            self.report(server, Unused { offset: allocated, stamp, pointer });
        }
    }

    fn report(&self, server: &Server, unused: Unused) {
        if self.0.node.config().recycling.has_reports() {
            self.0.servers.report(server.node, unused);
        }
    }

    /// Sends a chain to `server`.
    async fn execute(&self, server: &Server, chain: &Chain) -> Result<F::Payload, FabricError> {
        let done = self.0.fabric.one_sided(server.node, OneSided::Chain(chain)).await;
        if done.as_ref().is_err_and(|error| voids_handles(*error)) {
            self.0.servers.forget(server.node, &server.handles);
        }
        done
    }

    fn is_broken(&self, by: Sabotage) -> bool {
        self.0.node.config().sabotage == by
    }
}

fn malformed<E>(_: E) -> Reason {
    Reason::Fabric(FabricError::Malformed)
}

fn parse<P: AsRef<[u8]>>(answer: &P) -> Result<ChainResults<'_>, Reason> {
    ChainResults::parse(answer.as_ref()).map_err(malformed)
}

/// What operation `index` has yielded; its refusal is the chain's.
fn output<'a>(results: &ChainResults<'a>, index: usize) -> Result<&'a [u8], Reason> {
    match results.outcome(index) {
        Outcome::Done(bytes) => Ok(bytes),
        Outcome::Refused(error) => Err(failed(error)),
        Outcome::NotSwapped(_) | Outcome::Skipped => Err(malformed(())),
    }
}

impl<F: Fabric> KeyValue for Client<F> {
    async fn get(&self, key: Key, value: &mut Vec<u8>) -> Result<Got, Failure> {
        let present = self.get_bytes(&key.0.to_be_bytes(), value).await;
        Ok(Got { present: present.map_err(Failure::Aborted)?, version: None })
    }

    async fn put(&self, key: Key, value: &[u8]) -> Result<Option<Version>, Failure> {
        self.put_bytes(&key.0.to_be_bytes(), value).await.map(|()| None)
    }

    async fn delete(&self, key: Key) -> Result<Option<Version>, Failure> {
        self.delete_bytes(&key.0.to_be_bytes()).await.map(|()| None)
    }
}
