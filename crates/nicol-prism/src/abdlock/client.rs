//! A client engine: GET and PUT, each with a lock around its two phases. [PRISM21 7.2]

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use nicol_core::exec::{JoinQuorum, join_quorum};
use nicol_core::fabric::{Completions, Fabric, FabricError, OneSided};
use nicol_core::ids::{Key, NodeId, Side, Version};
use nicol_core::key_value::{Failure, Got, Reason};
use nicol_core::units::Nanos;
use nicol_core::view::{REPLICAS_MAX, ShardMap, SideState};
use nicol_kit::Open;

use super::config::WriteTo;
use super::node::Node;
use crate::messages::Handles;
use crate::servers::{Servers, voids_handles};
use crate::tag::{Name, Tag, Writer, parse};

/// First wait of an operation that does not yet know how to reach a majority; it doubles.
const REACH_WAIT: Nanos = Nanos::from_micros(2);
/// The longest wait before an attempt to lock.
const BACKOFF_MOST: Nanos = Nanos::from_micros(512);
/// Attempts at an unlock that is not answered, and the wait between them: a card gives up before a
/// cut has healed.
const UNLOCKS_MAX: u32 = 256;
const UNLOCK_WAIT: Nanos = Nanos::from_micros(200);

/// Reads and writes blocks, many at a time.
pub struct Client<F: Fabric>(Rc<Inner<F>>);

struct Inner<F: Fabric> {
    fabric: F,
    node: Arc<Node>,
    servers: Servers<F>,
    writer: Writer,
    last_ts: Cell<u64>,
    names: Cell<u64>,
}

impl<F: Fabric> Clone for Client<F> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

/// A replica that a verb was posted to.
pub(super) type Posted = (NodeId, Rc<Handles>);
pub(super) type Reply<F> = Result<<F as Completions>::Payload, FabricError>;
/// The answers to one verb at each replica.
pub(super) type Replies<F, G> = JoinQuorum<<F as Completions>::Completion, G, REPLICAS_MAX>;

/// Proof that a majority of a block's replicas is locked under a name.
#[must_use = "locks are released, or carried to the next step"]
pub(super) struct Locked {
    name: Name,
    /// Those that had granted the lock when it was a majority.
    replicas: Vec<Posted>,
    late: LateLocks,
}

/// Locks that are granted after a majority of them, until the write phase begins. `None`: it has
/// begun, or never will. A lock that is granted from then on is released.
#[derive(Clone, Default)]
struct LateLocks(Rc<RefCell<Option<Vec<Posted>>>>);

impl LateLocks {
    fn expected() -> Self {
        Self(Rc::new(RefCell::new(Some(Vec::new()))))
    }

    /// Takes a lock; gives it back if it comes too late.
    fn add(&self, posted: Posted) -> Result<(), Posted> {
        match &mut *self.0.borrow_mut() {
            Some(locks) => {
                locks.push(posted);
                Ok(())
            }
            None => Err(posted),
        }
    }
}

impl Locked {
    /// Every replica that is locked by now. None is added from here on.
    fn all(self) -> (Name, Vec<Posted>) {
        let Self { name, mut replicas, late } = self;
        replicas.extend(late.0.take().unwrap_or_default());
        (name, replicas)
    }
}

/// A key and the block that it names.
#[derive(Clone, Copy)]
pub(super) struct Block {
    pub(super) key: Key,
    pub(super) number: u64,
}

/// An operation under way.
pub(super) struct Operation<'a> {
    pub(super) block: Block,
    replicas: Vec<NodeId>,
    /// Replicas that a phase waits for.
    pub(super) needed: usize,
    /// The value that a PUT writes.
    pub(super) new: Option<&'a [u8]>,
    /// The tag that a PUT has chosen, once it has.
    pub(super) chosen: Option<Tag>,
    until: Nanos,
    /// The longest wait before the next attempt to lock.
    backoff: Nanos,
    /// Why the last attempt failed.
    pub(super) why: Reason,
}

impl<F: Fabric> Client<F> {
    pub(super) fn new(fabric: &F, node: &Arc<Node>) -> Self {
        Self(Rc::new(Inner {
            fabric: fabric.clone(),
            servers: Servers::new(fabric, node.open()),
            writer: Writer::new(fabric.view(), fabric.here(), fabric.incarnation()),
            node: Arc::clone(node),
            last_ts: Cell::new(0),
            names: Cell::new(0),
        }))
    }

    pub(super) fn fabric(&self) -> &F {
        &self.0.fabric
    }

    pub(super) fn node(&self) -> &Node {
        &self.0.node
    }

    /// The writer that this engine is in its present life.
    pub(super) fn writer(&self) -> Writer {
        self.0.writer
    }

    /// The name under which the next attempt to lock will be made.
    pub(super) fn next_name(&self) -> Name {
        Name::new(self.0.writer, self.0.names.get() + 1)
    }

    /// A GET of `key`, or a PUT of `new`, that is going to be made.
    ///
    /// Errors: no replica has such a block, or a value of this size.
    pub(super) fn operation<'a>(
        &self,
        key: Key,
        new: Option<&'a [u8]>,
    ) -> Result<Operation<'a>, Failure> {
        let config = self.0.node.config();
        let fits = new.is_none_or(|value| value.len() as u64 == config.value_bytes);
        if key.row() >= config.blocks || !fits {
            return Err(Failure::Aborted(Reason::NoResources));
        }
        let view = self.0.fabric.view();
        let replicas = view.replicas_of(view.shard_of(key)).to_vec();
        Ok(Operation {
            block: Block { key, number: key.row() },
            needed: replicas.len() / 2 + 1,
            replicas,
            new,
            chosen: None,
            until: self.0.fabric.now() + config.timeout,
            backoff: config.backoff,
            why: Reason::Fabric(FabricError::Unreachable),
        })
    }

    /// GET: reads the block into `value`.
    pub(super) async fn get_by(
        &self,
        mut operation: Operation<'_>,
        value: &mut Vec<u8>,
    ) -> Result<Got, Failure> {
        let tag = self.run(&mut operation, value).await.map_err(Failure::Aborted)?;
        Ok(Got { present: true, version: Some(tag.version()) })
    }

    /// PUT: writes the block, whose version it returns.
    pub(super) async fn put_by(
        &self,
        mut operation: Operation<'_>,
    ) -> Result<Option<Version>, Failure> {
        match self.run(&mut operation, &mut Vec::new()).await {
            Ok(tag) => Ok(Some(tag.version())),
            Err(_) if operation.chosen.is_some() => Err(Failure::Unknown),
            Err(why) => Err(Failure::Aborted(why)),
        }
    }

    /// A GET or a PUT: its tag; what a GET has read into `value`.
    ///
    /// Cost: CAS, READ, WRITE, CAS, a round trip each: READ of f + 1 replicas, the others of all.
    ///
    /// Errors: no majority in time.
    async fn run(&self, operation: &mut Operation<'_>, value: &mut Vec<u8>) -> Result<Tag, Reason> {
        loop {
            self.reach(operation).await?;
            // [PRISM21 7.2 read phase] CAS the lock at a majority, from 0 to the own identifier.
            let Some(locked) = self.lock(operation).await else {
                self.back_off(operation).await?;
                continue;
            };
            // [PRISM21 7.2 read phase] READ t and v of f + 1 replicas.
            let Some(found) = self.read(operation, &locked, value).await else {
                self.unlock_later(operation.block, locked);
                self.back_off(operation).await?;
                continue;
            };
            // [PRISM21 7.2 write phase] the tag and value to propagate, determined locally.
            let tag = self.choose(operation, found);
            let new = operation.new.filter(|_| tag > found);
            // [PRISM21 7.2 write phase] WRITE t' and v' to "each replica on which it has acquired a
            // lock", f + 1 acknowledge; then CAS the locks from the own identifier to 0.
            let propagated = if new.is_some() { tag } else { found };
            if self.write(operation, locked, propagated, new.unwrap_or(value.as_slice())).await {
                return Ok(tag);
            }
            self.back_off(operation).await?;
        }
    }

    /// The tag that a PUT writes, or that a GET has found. A PUT that begins anew keeps its tag.
    fn choose(&self, operation: &mut Operation<'_>, found: Tag) -> Tag {
        if operation.new.is_none() {
            return found;
        }
        *operation.chosen.get_or_insert_with(|| {
            let ts = found.ts().max(self.0.last_ts.get()) + 1;
            self.0.last_ts.set(ts);
            Tag::new(ts, self.0.writer)
        })
    }

    /// Waits until it is known how a majority is reached. That is no attempt, and backs off for
    /// nobody.
    ///
    /// Errors: the time is over.
    pub(super) async fn reach(&self, operation: &Operation<'_>) -> Result<(), Reason> {
        let mut wait = REACH_WAIT;
        loop {
            let known = operation.replicas.iter().filter_map(|&node| self.0.servers.handles(node));
            if known.count() >= operation.needed {
                return Ok(());
            }
            let fabric = &self.0.fabric;
            if fabric.now() >= operation.until {
                return Err(operation.why);
            }
            fabric.sleep_until(fabric.now() + wait).await;
            wait = Nanos((wait.0 * 2).min(BACKOFF_MOST.0));
        }
    }

    /// Waits before the next attempt.
    ///
    /// Errors: the time is over; why the last attempt failed.
    async fn back_off(&self, operation: &mut Operation<'_>) -> Result<(), Reason> {
        let fabric = &self.0.fabric;
        if fabric.now() >= operation.until {
            return Err(operation.why);
        }
        let wait = Nanos(1 + fabric.random() % operation.backoff.0);
        fabric.sleep_until(fabric.now() + wait).await;
        operation.backoff = Nanos((operation.backoff.0 * 2).min(BACKOFF_MOST.0));
        Ok(())
    }

    /// Posts a verb to each of `replicas` and starts to wait for `needed` answers that `grants`
    /// accepts.
    pub(super) fn post<'v, G>(
        &self,
        (key, replicas): (Key, &[Posted]),
        needed: usize,
        verb: impl Fn(&Handles) -> OneSided<'v>,
        grants: G,
    ) -> Replies<F, G>
    where
        G: Fn(&Reply<F>) -> bool,
    {
        let verbs = self.0.node.config().verbs;
        let post = |(node, handles): &Posted| {
            self.0.fabric.about(key);
            verbs.post(&self.0.fabric, *node, verb(handles))
        };
        let completions: Vec<F::Completion> = replicas.iter().map(post).collect();
        join_quorum(completions, needed, grants)
    }

    /// The replicas of a block that are known how to be reached.
    pub(super) fn known(&self, operation: &Operation<'_>) -> Vec<Posted> {
        let known = operation.replicas.iter();
        known.filter_map(|&node| Some((node, self.0.servers.handles(node)?))).collect()
    }

    /// Locks a block at a majority; `None` if it could not be had, and what was had is released.
    pub(super) async fn lock(&self, operation: &mut Operation<'_>) -> Option<Locked> {
        let _phase = self.0.fabric.phase("7.2 read phase: lock");
        let config = self.0.node.config();
        let posted = self.known(operation);
        operation.why = Reason::Fabric(FabricError::Unreachable);
        if posted.len() < operation.needed {
            return None;
        }
        let name = self.next_name();
        self.0.names.set(self.0.names.get() + 1);
        let Block { key, number } = operation.block;
        let offset = config.lock(number);
        let swap = |handles: &Handles| OneSided::CompareSwap {
            rkey: handles.region,
            offset,
            expected: 0,
            new: name.0,
        };
        let verbs = config.verbs;
        let grants = move |reply: &Reply<F>| verbs.result(reply).map(word) == Ok(Some(0));
        let mut replies = self.post((key, &posted), operation.needed, swap, grants);
        let is_locked = (&mut replies).await;
        let mut granted = Vec::new();
        for (place, reply) in replies.outputs() {
            match verbs.result(reply) {
                Ok(_) if grants(reply) => granted.push(posted[place].clone()),
                // "If the client fails to acquire the lock": another one has it.
                Ok(_) => operation.why = Reason::Conflict,
                Err(error) => self.note(&posted[place], error),
            }
        }
        let held: Vec<NodeId> = granted.iter().map(|(node, _)| *node).collect();
        let ours = if is_locked { held } else { Vec::new() };
        let late = match config.write_to {
            WriteTo::Locked if is_locked => LateLocks::expected(),
            WriteTo::Locked | WriteTo::Quorum => LateLocks::default(),
        };
        self.take_late((operation.block, name), posted, ours, late.clone(), replies);
        is_locked.then_some(Locked { name, replicas: granted, late })
    }

    /// Waits for the late answers, and releases all locks but `ours` and those that `late` takes.
    fn take_late<G: Fn(&Reply<F>) -> bool>(
        &self,
        (block, name): (Block, Name),
        posted: Vec<Posted>,
        ours: Vec<NodeId>,
        to: LateLocks,
        replies: Replies<F, G>,
    ) {
        let (client, rest) = (self.clone(), replies.rest());
        let open = Open::begin(self.0.node.open());
        self.0.fabric.spawn(async move {
            let verbs = client.0.node.config().verbs;
            let mut late = Vec::new();
            for (posted, reply) in posted.into_iter().zip(rest.await) {
                if ours.contains(&posted.0) {
                    continue;
                }
                match verbs.result(&reply).map(word) {
                    Ok(Some(0)) => late.extend(to.add(posted).err()),
                    Ok(_) => {}
                    // A CAS without an answer may have locked.
                    Err(_) => late.push(posted),
                }
            }
            client.release(block, name, late).await;
            drop(open);
        });
    }

    /// READs tag and value of the locked replicas: the most recent of f + 1.
    async fn read(
        &self,
        operation: &Operation<'_>,
        locked: &Locked,
        value: &mut Vec<u8>,
    ) -> Option<Tag> {
        self.read_of(operation, &locked.replicas, value).await
    }

    /// READs tag and value of these replicas, as [`Client::read`] does of the locked ones.
    pub(super) async fn read_of(
        &self,
        operation: &Operation<'_>,
        replicas: &[Posted],
        value: &mut Vec<u8>,
    ) -> Option<Tag> {
        let _phase = self.0.fabric.phase("7.2 read phase: READ");
        let config = self.0.node.config();
        let Block { key, number } = operation.block;
        let (offset, len) = (config.tag(number), config.tagged_bytes() as u32);
        let read = |handles: &Handles| OneSided::Read { rkey: handles.region, offset, len };
        let verbs = config.verbs;
        let grants = move |reply: &Reply<F>| verbs.result(reply).is_ok();
        let mut replies = self.post((key, replicas), operation.needed, read, grants);
        let is_read = (&mut replies).await;
        let mut newest = None;
        for (place, reply) in replies.outputs() {
            match verbs.result(reply) {
                Ok(bytes) => {
                    let (tag, bytes) = parse(bytes)?;
                    if newest.is_none_or(|newest| newest < tag) {
                        newest = Some(tag);
                        value.clear();
                        value.extend_from_slice(bytes);
                    }
                }
                Err(error) => self.note(&replicas[place], error),
            }
        }
        newest.filter(|_| is_read)
    }

    /// WRITEs tag and value to the locked replicas, and unlocks them. Returns whether a quorum has
    /// acknowledged.
    ///
    /// A lock is released once its replica has answered the WRITE: one that came after the release
    /// would overwrite what others have written since.
    async fn write(
        &self,
        operation: &Operation<'_>,
        locked: Locked,
        tag: Tag,
        value: &[u8],
    ) -> bool {
        let _phase = self.0.fabric.phase("7.2 write phase: WRITE");
        let config = self.0.node.config();
        let mut bytes = Vec::from(tag.0.to_le_bytes());
        bytes.extend_from_slice(value);
        let (name, replicas) = locked.all();
        let Block { key, number } = operation.block;
        let offset = config.tag(number);
        let write =
            |handles: &Handles| OneSided::Write { rkey: handles.region, offset, bytes: &bytes };
        let verbs = config.verbs;
        let grants = move |reply: &Reply<F>| verbs.result(reply).is_ok();
        let mut replies = self.post((key, &replicas), operation.needed, write, grants);
        let is_written = (&mut replies).await;
        let mut answered = Vec::new();
        for (place, reply) in replies.outputs() {
            if let Err(error) = verbs.result(reply) {
                self.note(&replicas[place], error);
            }
            answered.push(replicas[place].clone());
        }
        let nodes: Vec<NodeId> = answered.iter().map(|(node, _)| *node).collect();
        let late = replicas.into_iter().filter(|(node, _)| !nodes.contains(node)).collect();
        self.release_after(operation.block, name, late, replies);
        self.unlock(operation, name, answered).await;
        is_written
    }

    /// Releases `late` once every WRITE has been answered.
    fn release_after<G: Fn(&Reply<F>) -> bool>(
        &self,
        block: Block,
        name: Name,
        late: Vec<Posted>,
        replies: Replies<F, G>,
    ) {
        if late.is_empty() {
            return;
        }
        let (client, rest) = (self.clone(), replies.rest());
        let open = Open::begin(self.0.node.open());
        self.0.fabric.spawn(async move {
            let _answers = rest.await;
            client.release(block, name, late).await;
            drop(open);
        });
    }

    /// CASes the locks from the own name to 0; returns once a quorum has, or all have answered.
    async fn unlock(&self, operation: &Operation<'_>, name: Name, replicas: Vec<Posted>) {
        let _phase = self.0.fabric.phase("7.2 write phase: unlock");
        let mut replies = self.post_unlocks(operation.block, name, &replicas, operation.needed);
        let _quorum = (&mut replies).await;
        let (client, rest, block) = (self.clone(), replies.rest(), operation.block);
        let open = Open::begin(self.0.node.open());
        self.0.fabric.spawn(async move {
            let verbs = client.0.node.config().verbs;
            let failed = replicas.into_iter().zip(rest.await);
            let failed = failed.filter(|(_, reply)| is_unanswered(&verbs.result(reply)));
            let failed = failed.map(|(posted, _)| posted).collect();
            client.release(block, name, failed).await;
            drop(open);
        });
    }

    fn unlock_later(&self, block: Block, locked: Locked) {
        let (name, replicas) = locked.all();
        let (client, open) = (self.clone(), Open::begin(self.0.node.open()));
        self.0.fabric.spawn(async move {
            client.release(block, name, replicas).await;
            drop(open);
        });
    }

    /// Releases what is held under `name`, and tries again where that is not answered.
    pub(super) async fn release(&self, block: Block, name: Name, mut replicas: Vec<Posted>) {
        let verbs = self.0.node.config().verbs;
        for _ in 0..UNLOCKS_MAX {
            if replicas.is_empty() {
                return;
            }
            let replies = self.post_unlocks(block, name, &replicas, replicas.len());
            let answers = replicas.drain(..).zip(replies.rest().await);
            let failed = answers.filter(|(_, reply)| is_unanswered(&verbs.result(reply)));
            let failed: Vec<Posted> = failed.map(|(posted, _)| posted).collect();
            replicas = failed;
            if !replicas.is_empty() {
                let fabric = &self.0.fabric;
                fabric.sleep_until(fabric.now() + UNLOCK_WAIT).await;
                // A replica that is gone has no locks, and does not come back.
                let view = fabric.view();
                let lives = |(node, _): &Posted| {
                    let stays = |&side: &Side| {
                        !view.halves().are_lost_with(side)
                            || view.side(*node, side) == SideState::FIRST
                    };
                    [Side::Host, Side::Nic].iter().all(stays)
                };
                replicas.retain(lives);
            }
        }
    }

    fn post_unlocks(
        &self,
        block: Block,
        name: Name,
        replicas: &[Posted],
        needed: usize,
    ) -> Replies<F, impl Fn(&Reply<F>) -> bool + use<F>> {
        let config = self.0.node.config();
        let (offset, verbs) = (config.lock(block.number), config.verbs);
        let swap = |handles: &Handles| OneSided::CompareSwap {
            rkey: handles.region,
            offset,
            expected: name.0,
            new: 0,
        };
        let grants = move |reply: &Reply<F>| verbs.result(reply).is_ok();
        self.post((block.key, replicas), needed.min(replicas.len()), swap, grants)
    }

    fn note(&self, (node, handles): &Posted, error: FabricError) {
        if voids_handles(error) {
            self.0.servers.forget(*node, handles);
        }
    }
}

/// Whether a replica that may live has not answered a verb.
fn is_unanswered(answer: &Result<&[u8], FabricError>) -> bool {
    let again = |error: &FabricError| !matches!(error, FabricError::AccessDenied(_));
    answer.as_ref().is_err_and(again)
}

/// The word that a CAS has found.
fn word(bytes: &[u8]) -> Option<u64> {
    bytes.first_chunk().map(|word| u64::from_le_bytes(*word))
}
