//! The slots of deleted keys, used again: the part of a server's CPU. AMB-48
//!
//! A client's chain changes nothing but the item of a key in the slot that the key has. Which slots
//! have a key, which are free and which end a search, the first engine of the server decides, one
//! thing after the other. Hence a key has one slot at most; a key with a value keeps its slot; and
//! no slot that a search for it passes becomes empty. A slot that gets another key, or none, gets
//! another generation: what a client has read before does not hold any more.
//!
//! ```text
//! empty  --CLAIM-->  claimed  --PUT-->  live  --DELETE-->  deleted  --PUT-->  live
//! claimed, deleted, free  --CLAIM of another key-->  claimed
//! deleted, as a client's report of the replaced buffer shows  -->  free
//! claimed, as a client reports whose PUT has found no buffer  -->  free
//! free, if no search for a key behind it passes it  -->  empty
//! ```

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use nicol_core::chain::{Chain, Outcome, Primitive, Target};
use nicol_core::fabric::Fabric;
use nicol_core::ids::ReplyTo;
use nicol_core::key_value::Reason;
use nicol_core::memory::WORD;
use nicol_kit::{Open, count};

use super::claim::Claimed;
use super::client::{Client, Server, malformed, output, parse};
use super::install::{Install, Installed, whole};
use super::layout::{
    Header, ITEM_HEADER, Item, Located, RETIRED, SLOT_WORDS_MAX, SlotWords, claimed, words_of,
};
use super::name::Name;

/// As many bytes of a key are read at first.
const KEY_BYTES: u32 = 32;
/// Searches for a slot, while clients change the one that was found.
const CLAIM_TRIES: u32 = 16;

/// A task of the keeper.
enum Task {
    /// A key is to get a slot.
    Claim(ReplyTo, Box<[u8]>),
    /// The slot of this index has a deleted key; or one that was claimed by the item with this
    /// stamp, and was given back.
    Retire { index: u64, claimed: Option<u64> },
}

/// The task that decides which slot of a server has which key.
pub(super) struct Keeper<F: Fabric> {
    client: Client<F>,
    server: Server,
    tasks: RefCell<VecDeque<Task>>,
    works: Cell<bool>,
}

/// A slot and the head of what it points to.
struct Seen {
    words: SlotWords,
    stamp: u64,
    header: Header,
    /// Whether the item is of the key that was asked for.
    is_key_s: bool,
}

/// A place for a key.
enum Place {
    Has(Located),
    Free(Located),
    Nowhere,
}

impl<F: Fabric> Keeper<F> {
    /// The keeper of the slots of `server`, which is the node of `client`.
    pub(super) fn new(client: Client<F>, server: Server) -> Rc<Self> {
        Rc::new(Self { client, server, tasks: RefCell::default(), works: Cell::new(false) })
    }

    /// A client wants a slot for `key`.
    pub(super) fn claim(self: &Rc<Self>, reply_to: ReplyTo, key: &[u8]) {
        self.push(Task::Claim(reply_to, key.into()));
    }

    /// The key of the slot of this index seems to be deleted.
    pub(super) fn retire(self: &Rc<Self>, index: u64) {
        self.push(Task::Retire { index, claimed: None });
    }

    /// Takes back the slot of this index: who claimed it, by the item with this stamp, does not put
    /// the key.
    pub(super) fn give_back(self: &Rc<Self>, index: u64, claimed: u64) {
        self.push(Task::Retire { index, claimed: Some(claimed) });
    }

    fn push(self: &Rc<Self>, task: Task) {
        self.tasks.borrow_mut().push_back(task);
        if !self.works.replace(true) {
            let open = Open::begin(&self.client.0.node.open);
            self.client.0.fabric.spawn(self.clone().work(open));
        }
    }

    async fn work(self: Rc<Self>, open: Open) {
        loop {
            let Some(task) = self.tasks.borrow_mut().pop_front() else { break };
            match task {
                Task::Claim(reply_to, key) => {
                    let answer = self.slot_of(Name::of(&key)).await;
                    self.client.0.fabric.reply(reply_to, &answer);
                }
                // What fails another report or claim comes back to.
                Task::Retire { index, claimed } => drop(self.retire_slot(index, claimed).await),
            }
        }
        self.works.set(false);
        drop(open);
    }

    /// The address of the slot of this index.
    fn at(&self, index: u64) -> u64 {
        self.client.config().form().at(index)
    }

    /// Looks at `slot` for an item of `key`.
    async fn look(&self, slot: u64, key: &[u8]) -> Result<Seen, Reason> {
        let len = ITEM_HEADER as u32 + key.len() as u32;
        let read = self.client.read_slot(&self.server, slot, len).await?;
        let results = parse(&read)?;
        let (words, bytes) = (words_of(output(&results, 0)?), output(&results, 1)?);
        let [stamp, lengths, ..] = words_of(bytes);
        // An item of another key may be longer than what was asked for.
        let item = Item::parse(bytes).ok().flatten();
        let is_key_s = item.is_some_and(|item| !key.is_empty() && item.key == key);
        Ok(Seen { words, stamp, header: Header::of_lengths(lengths), is_key_s })
    }

    /// The slot of `name`; if it has none, the first slot that no key needs, or that only a key
    /// needs which has no other.
    async fn search(&self, name: Name<'_>) -> Result<Place, Reason> {
        let form = self.client.config().form();
        let (mut free, mut claimed) = (None, None);
        for slot in self.client.slots(name) {
            let Seen { words, stamp, header, is_key_s } = self.look(slot, name.bytes()).await?;
            let pointer = words[form.pointer];
            let stamp = (pointer > RETIRED).then_some(stamp);
            let located = Located { slot, words, stamp, live: header == Header::Live && is_key_s };
            if is_key_s {
                return Ok(Place::Has(located));
            }
            let place = if pointer == 0 || header == Header::Deleted {
                &mut free
            } else if header == Header::Claimed {
                &mut claimed
            } else {
                continue;
            };
            place.get_or_insert(located);
            if pointer == 0 {
                break;
            }
        }
        Ok(free.or(claimed).map_or(Place::Nowhere, Place::Free))
    }

    /// Gives `name` a slot, unless it has one.
    async fn slot_of(&self, name: Name<'_>) -> Claimed {
        for _ in 0..CLAIM_TRIES {
            let located = match self.search(name).await {
                Ok(Place::Has(located)) => return Claimed::Slot(located),
                Ok(Place::Free(located)) => located,
                Ok(Place::Nowhere) => return Claimed::Full,
                Err(_) => return Claimed::Failed,
            };
            let stamp = self.client.next_stamp();
            let item = claimed(stamp, name.bytes());
            let lists = self.server.lists_for(item.len(), true);
            if lists.is_empty() {
                return Claimed::Full;
            }
            let config = self.client.config();
            let install = Install { config, located: &located, item: &item, is_claim: true };
            let Ok(done) = self.client.try_install(&self.server, &install, lists).await else {
                return Claimed::Failed;
            };
            match done {
                Installed::Done { replaced } => {
                    if replaced != 0 {
                        count(&self.client.0.node.counts.reused_slots);
                    }
                    self.unuse(&located, replaced);
                }
                Installed::NotReady => return Claimed::NotReady,
                Installed::Lost { allocated } => {
                    self.client.report_allocated(&self.server, &located, allocated, stamp);
                }
                Installed::Refused { allocated, .. } => {
                    self.client.report_allocated(&self.server, &located, allocated, stamp);
                    return Claimed::Failed;
                }
            }
        }
        Claimed::Failed
    }

    /// The buffer to which the slot pointed is not used any more, if it was one.
    fn unuse(&self, located: &Located, replaced: u64) {
        if replaced > RETIRED {
            self.client.report_replaced(&self.server, located, replaced);
        }
    }

    /// READs the item of `slot` as far as its key goes. Gives `each` the words and the key, which
    /// is empty where there is none.
    async fn with_key<T>(
        &self,
        slot: u64,
        each: impl FnOnce(&SlotWords, &Item<'_>, Header) -> T,
    ) -> Result<T, Reason> {
        let nobody = Item { stamp: 0, key: b"", value: None };
        let mut len = KEY_BYTES;
        loop {
            let read = self.client.read_slot(&self.server, slot, ITEM_HEADER as u32 + len).await?;
            let results = parse(&read)?;
            let (words, bytes) = (words_of(output(&results, 0)?), output(&results, 1)?);
            let lengths = words_of(bytes)[1];
            match Item::parse(bytes) {
                Ok(item) => {
                    let item = item.unwrap_or(nobody);
                    return Ok(each(&words, &item, Header::of_lengths(lengths)));
                }
                // The key is longer.
                Err(_) if lengths as u32 > len => len = lengths as u32,
                Err(error) => return Err(malformed(error)),
            }
        }
    }

    /// The index of the slot at which a search for `key` begins.
    fn home(&self, key: &[u8]) -> u64 {
        let config = self.client.config();
        Name::of(key).probes(config.hash, config.entries).next().unwrap_or_default()
    }

    /// Frees the slot of this index if its key is deleted, or has no value since the item with the
    /// stamp `claimed`. Then this and the free slots that searches for the key have passed become
    /// empty, if no other search needs them.
    async fn retire_slot(&self, index: u64, claimed: Option<u64>) -> Result<(), Reason> {
        let config = self.client.config();
        let (pointer, entries) = (config.form().pointer, config.entries);
        let slot = self.at(index);
        let found = |words: &SlotWords, item: &Item<'_>, header: Header| {
            let is_unused = match header {
                Header::Deleted => !item.key.is_empty(),
                Header::Claimed => claimed == Some(item.stamp),
                Header::Live => false,
            };
            let located = Located { slot, words: *words, stamp: Some(item.stamp), live: false };
            is_unused.then(|| (located, self.home(item.key)))
        };
        let Some((located, home)) = self.with_key(slot, found).await? else { return Ok(()) };
        if !self.free(slot, located.words, RETIRED).await? {
            return Ok(());
        }
        self.unuse(&located, located.words[pointer]);
        let searched = (index + entries - home) % entries;
        for distance in 0..entries {
            let index = (index + entries - distance) % entries;
            let slot = self.at(index);
            let words = self.look(slot, b"").await?.words;
            let empties = words[pointer] == RETIRED && !self.is_needed(index).await?;
            if empties {
                self.free(slot, words, 0).await?;
            } else if distance >= searched {
                break;
            }
        }
        Ok(())
    }

    /// Whether a search for any key passes the slot of this index before it finds the key.
    async fn is_needed(&self, index: u64) -> Result<bool, Reason> {
        let config = self.client.config();
        let (pointer, entries) = (config.form().pointer, config.entries);
        let most = entries.min(config.probes as u64);
        for distance in 1..most {
            let at = (index + distance) % entries;
            let passes = |words: &SlotWords, item: &Item<'_>, _: Header| match words[pointer] {
                0 => None,
                RETIRED => Some(false),
                _ => Some((at + entries - self.home(item.key)) % entries >= distance),
            };
            match self.with_key(self.at(at), passes).await? {
                // Nothing behind it is found by a search that begins before it.
                None => return Ok(false),
                Some(true) => return Ok(true),
                Some(false) => {}
            }
        }
        Ok(false)
    }

    /// Swaps the pointer of a slot without a value for `to`, unless its words have changed.
    async fn free(&self, slot: u64, words: SlotWords, to: u64) -> Result<bool, Reason> {
        let form = self.client.config().form();
        let mut new = [0; SLOT_WORDS_MAX];
        if let Some(generation) = form.generation {
            new[generation] = words[generation] + 1;
        }
        new[form.pointer] = to;
        if let Some(bound) = form.bound.filter(|_| to == RETIRED) {
            new[bound] = ITEM_HEADER;
        }
        let (target, swap) = (Target::At(slot), whole(form.words, words, new));
        let swap = Primitive::compare_swap(target, swap).under(self.server.handles.region);
        let mut chain = Chain::default();
        chain.push(swap);
        let done = self.client.execute(&self.server, &chain).await.map_err(Reason::Fabric)?;
        Ok(matches!(parse(&done)?.outcome(0), Outcome::Done(_)))
    }
}

const _: () = assert!(WORD as u64 * 2 == ITEM_HEADER, "an item's stamp, and its lengths");
