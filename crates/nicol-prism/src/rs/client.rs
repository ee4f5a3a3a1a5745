//! A client engine: the ABD protocol, GET and PUT each in two phases. [PRISM21 7.1, 7.3]

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use nicol_core::chain::Chain;
use nicol_core::exec::{JoinQuorum, join_quorum};
use nicol_core::fabric::{Fabric, FabricError, OneSided};
use nicol_core::ids::{Key, NodeId, RKey, Version};
use nicol_core::key_value::{Failure, Got, Reason};
use nicol_core::units::Nanos;
use nicol_core::view::{REPLICAS_MAX, ShardMap};
use nicol_kit::{Open, count};

use super::chains;
use super::config::Blocks;
use super::node::Node;
use crate::messages::{Handles, Suspicion};
use crate::recycling::Recycles;
use crate::servers::{Servers, voids_handles};
use crate::tag::{Tag, Writer};

/// First and longest wait of an operation that has found no quorum.
const WAIT_FIRST: Nanos = Nanos::from_micros(4);
const WAIT_MOST: Nanos = Nanos::from_micros(256);

/// Reads and writes blocks, many at a time.
pub struct Client<F: Fabric>(Rc<Inner<F>>);

struct Inner<F: Fabric> {
    fabric: F,
    node: Arc<Node>,
    servers: Servers<F>,
    writer: Writer,
    /// The last timestamp that this engine has chosen: no two of its writes have one tag.
    last_ts: Cell<u64>,
}

impl<F: Fabric> Clone for Client<F> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

/// A block that an operation is about.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    pub(super) key: Key,
    pub(super) number: u64,
    /// Replicas that a phase waits for: f + 1 of 2f + 1.
    pub(super) needed: usize,
}

/// The result of a read phase: the most recent tag of a quorum, and whether all of the quorum has
/// it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) tag: Tag,
    everywhere: bool,
}

/// A replica that a chain was posted to, under these handles.
pub(super) type Posted = (NodeId, Rc<Handles>);

/// The answers to a phase's chains.
pub(super) type Replies<F, G> =
    JoinQuorum<<F as nicol_core::fabric::Completions>::Completion, G, REPLICAS_MAX>;

impl<F: Fabric> Client<F> {
    /// [PRISM21 7.1]: the read phase, then the write phase with what was read.
    pub(super) async fn get_block(
        &self,
        block: Block,
        value: &mut Vec<u8>,
    ) -> Result<Got, Failure> {
        // [PRISM21 7.1 read phase] the most recent tag and value of f + 1 replicas.
        let found = self.read_phase(block, value).await?;
        if !found.everywhere || self.0.node.config().always_write_back {
            // [PRISM21 7.1 write phase] the same to f + 1 replicas, so that no later GET finds
            // less.
            let wrote = self.write_phase(block, found.tag, value).await;
            wrote.map_err(|unwritten| Failure::Aborted(unwritten.why))?;
        }
        Ok(Got { present: true, version: Some(found.tag.version()) })
    }

    /// [PRISM21 7.1]: the read phase, then the write phase with a later tag and the new value.
    pub(super) async fn put_block(
        &self,
        block: Block,
        value: &[u8],
    ) -> Result<Option<Version>, Failure> {
        // [PRISM21 7.1 read phase] the most recent tag of f + 1 replicas.
        let found = self.read_phase(block, &mut Vec::new()).await?;
        // [PRISM21 7.1 write phase] t_put = (ts_max + 1, id_c), to f + 1 replicas.
        self.write_later(block, self.next_tag(found.tag), value).await
    }

    /// The write phase of a PUT, and what it tells its caller.
    pub(super) async fn write_later(
        &self,
        block: Block,
        tag: Tag,
        value: &[u8],
    ) -> Result<Option<Version>, Failure> {
        match self.write_phase(block, tag, value).await {
            Ok(()) => Ok(Some(tag.version())),
            Err(Unwritten { nowhere: true, why }) => Err(Failure::Aborted(why)),
            Err(_) => Err(Failure::Unknown),
        }
    }
}

/// A write phase that has found no quorum in time.
#[derive(Clone, Copy, Debug)]
struct Unwritten {
    why: Reason,
    /// Whether it is certain that no replica has taken, or will take, the value.
    nowhere: bool,
}

impl<F: Fabric> Client<F> {
    pub(super) fn new(fabric: &F, node: &Arc<Node>) -> Self {
        Self(Rc::new(Inner {
            fabric: fabric.clone(),
            servers: Servers::reporting_once(fabric, node.open()),
            writer: Writer::new(fabric.view(), fabric.here(), fabric.incarnation()),
            node: Arc::clone(node),
            last_ts: Cell::new(0),
        }))
    }

    pub(super) fn fabric(&self) -> &F {
        &self.0.fabric
    }

    pub(super) fn node(&self) -> &Node {
        &self.0.node
    }

    /// The key under which this engine swaps pointers of `node`, if it knows it.
    pub(super) fn pointers_of(&self, node: NodeId) -> Option<RKey> {
        Some(self.0.servers.handles(node)?.pointers)
    }

    /// The writer that this engine is in its present life.
    pub(super) fn writer(&self) -> Writer {
        self.0.writer
    }

    /// The block of `key`; a PUT is going to write `value` to it.
    ///
    /// Errors: there is no such block, or the value does not fit it.
    pub(super) fn block(&self, key: Key, value: Option<&[u8]>) -> Result<Block, Failure> {
        let config = self.0.node.config();
        let fits = value.is_none_or(|value| match config.sizes {
            Blocks::Fixed => value.len() as u64 == config.value_bytes,
            Blocks::Variable => value.len() as u64 <= config.value_bytes,
        });
        if key.row() >= config.blocks || !fits {
            return Err(Failure::Aborted(Reason::NoResources));
        }
        Ok(Block { key, number: key.row(), needed: self.replicas(key).len() / 2 + 1 })
    }

    /// A tag that exceeds `found`, and that no other write has.
    pub(super) fn next_tag(&self, found: Tag) -> Tag {
        // DEVIATION [PRISM21 7.1 write phase]: not ts_max + 1 where this engine has chosen that
        // before, because its clients share an id and might give two values one tag.
        let ts = found.ts().max(self.0.last_ts.get()) + 1;
        self.0.last_ts.set(ts);
        Tag::new(ts, self.0.writer)
    }

    /// Finds the most recent tag and value of a quorum; the value into `value`.
    ///
    /// Cost: one READ of each replica, one round trip. [PRISM21 7.3 read phase]
    pub(super) async fn read_phase(
        &self,
        block: Block,
        value: &mut Vec<u8>,
    ) -> Result<Found, Failure> {
        let _phase = self.0.fabric.phase("7.1 read phase");
        let config = self.0.node.config();
        let replicas = self.replicas(block.key);
        let mut tries = Tries::new(self);
        loop {
            let chain = |handles: &Handles| chains::read(config, handles, block.number);
            let (posted, replies) = self.post(
                (block.key, &replicas),
                block.needed,
                chain,
                |reply| matches!(reply, Ok(reply) if chains::read_result(reply.as_ref()).is_ok()),
            );
            if let Some(mut replies) = replies {
                if (&mut replies).await {
                    let is_over = |place: usize| self.is_over(&posted[place]);
                    return most_recent::<F, _>(&replies, is_over, value);
                }
                for (place, reply) in replies.outputs() {
                    let read = reply.as_ref().map_err(|error| *error);
                    let read = read.and_then(|reply| chains::read_result(reply.as_ref()).map(drop));
                    self.note(&posted[place], read, &mut tries);
                }
            }
            tries.wait().await.map_err(Failure::Aborted)?;
        }
    }

    /// Writes `value` at `tag` to a quorum, but where there is something later.
    ///
    /// Cost: one chain to each replica, one round trip. [PRISM21 7.3 write phase]
    async fn write_phase(
        &self,
        Block { key, number: block, needed }: Block,
        tag: Tag,
        value: &[u8],
    ) -> Result<(), Unwritten> {
        let _phase = self.0.fabric.phase("7.1 write phase");
        let config = self.0.node.config();
        let mut left = self.replicas(key);
        let mut acks: Vec<Posted> = Vec::new();
        let mut tries = Tries::new(self);
        let mut nowhere = true;
        loop {
            let chain = |handles: &Handles| chains::write(config, handles, block, tag, value);
            let missing = needed - acks.len();
            let (posted, replies) = self.post((key, &left), missing, chain, |reply| {
                let written =
                    |reply: &F::Payload| chains::write_result(config, reply.as_ref(), block, tag);
                matches!(reply, Ok(reply) if written(reply).is_ok_and(|it| it.acknowledged.is_ok()))
            });
            if let Some(mut replies) = replies {
                (&mut replies).await;
                nowhere &= replies.pending() == 0;
                for (place, reply) in replies.outputs() {
                    let written = reply
                        .as_ref()
                        .map_err(|error| *error)
                        .and_then(|reply| chains::write_result(config, reply.as_ref(), block, tag));
                    let acknowledged = written.and_then(|written| written.acknowledged);
                    if acknowledged.is_ok() {
                        acks.push(posted[place].clone());
                    }
                    nowhere &= acknowledged == Err(FabricError::NoResources);
                    self.note(&posted[place], acknowledged, &mut tries);
                }
                self.collect(block, tag, posted, replies);
            }
            // What a life has acknowledged that is over counts for nothing: its replica may have
            // come back without.
            acks.retain(|acknowledged| !self.is_over(acknowledged));
            if acks.len() >= needed {
                return Ok(());
            }
            left = self.replicas(key);
            left.retain(|node| acks.iter().all(|(acknowledged, _)| acknowledged != node));
            tries.wait().await.map_err(|why| Unwritten { why, nowhere })?;
        }
    }

    /// Whether the life of the replica that answered is known to be over.
    fn is_over(&self, (node, handles): &Posted) -> bool {
        self.0.servers.is_over(*node, handles.lives[node.index()])
    }

    pub(super) fn replicas(&self, key: Key) -> Vec<NodeId> {
        let view = self.0.fabric.view();
        view.replicas_of(view.shard_of(key)).to_vec()
    }

    /// Posts a chain to each of `replicas` that can be reached, and starts to wait for `needed`
    /// that `grants` accepts; nothing is posted where fewer can be.
    pub(super) fn post<G>(
        &self,
        (key, replicas): (Key, &[NodeId]),
        needed: usize,
        chain: impl Fn(&Handles) -> Chain,
        grants: G,
    ) -> (Vec<Posted>, Option<Replies<F, G>>)
    where
        G: Fn(&Result<F::Payload, FabricError>) -> bool,
    {
        let known = replicas.iter().filter_map(|&node| Some((node, self.0.servers.handles(node)?)));
        let posted: Vec<Posted> = known.collect();
        if posted.len() < needed {
            return (posted, None);
        }
        let post = |(node, handles): &Posted| {
            self.0.fabric.about(key);
            self.0.fabric.one_sided(*node, OneSided::Chain(&chain(handles)))
        };
        let completions: Vec<F::Completion> = posted.iter().map(post).collect();
        (posted, Some(join_quorum(completions, needed, grants)))
    }

    /// Draws conclusions about a replica from how it has answered.
    fn note(&self, posted: &Posted, answer: Result<(), FabricError>, tries: &mut Tries<'_, F>) {
        if let Err(error) = answer {
            if error == FabricError::NoResources {
                // [PRISM21 4.2] Receiver not ready: back off.
                count(&self.0.node.recycled.waits);
            }
            tries.failed(error);
            if voids_handles(error) {
                self.0.servers.forget(posted.0, &posted.1);
            }
        }
    }

    /// Waits for every answer to a write phase, and reports each buffer that is not used any more:
    /// "the client asynchronously notifies the replica". [PRISM21 7.3]
    fn collect<G>(&self, block: u64, tag: Tag, posted: Vec<Posted>, replies: Replies<F, G>)
    where
        G: Fn(&Result<F::Payload, FabricError>) -> bool,
    {
        let (client, rest) = (self.clone(), replies.rest());
        let open = Open::begin(self.0.node.open());
        self.0.fabric.spawn(async move {
            let config = client.0.node.config();
            for ((node, handles), reply) in posted.iter().zip(rest.await) {
                let written = reply
                    .and_then(|reply| chains::write_result(config, reply.as_ref(), block, tag));
                match written {
                    Ok(written) => {
                        let reports = config.recycling.has_reports();
                        let unused = written.unused.filter(|_| reports).into_iter();
                        unused.for_each(|one| client.0.servers.report(*node, handles, one));
                    }
                    Err(_) => client.0.servers.suspect(*node, Suspicion::Unanswered),
                }
            }
            drop(open);
        });
    }
}

/// The most recent of a quorum's tags, and its value into `value`. An answer of a life that is over
/// still tells what there was, but not that it is there.
fn most_recent<F: Fabric, G>(
    replies: &Replies<F, G>,
    is_over: impl Fn(usize) -> bool,
    value: &mut Vec<u8>,
) -> Result<Found, Failure>
where
    G: Fn(&Result<F::Payload, FabricError>) -> bool,
{
    let (mut newest, mut everywhere) = (None, true);
    for (place, reply) in replies.outputs() {
        let Ok(reply) = reply else { continue };
        let Ok(Some((tag, bytes))) = chains::read_result(reply.as_ref()) else { continue };
        everywhere &= newest.is_none_or(|newest| newest == tag) && !is_over(place);
        if newest.is_none_or(|newest| newest < tag) {
            newest = Some(tag);
            value.clear();
            value.extend_from_slice(bytes);
        }
    }
    // A block that is nowhere was never loaded.
    let tag = newest.ok_or(Failure::Aborted(Reason::NoResources))?;
    Ok(Found { tag, everywhere })
}

/// Attempts of one phase to find a quorum.
struct Tries<'a, F: Fabric> {
    client: &'a Client<F>,
    until: Nanos,
    wait: Nanos,
    /// Whether a replica has refused for want of buffers.
    full: bool,
}

impl<'a, F: Fabric> Tries<'a, F> {
    fn new(client: &'a Client<F>) -> Self {
        let until = client.0.fabric.now() + client.0.node.config().timeout;
        Self { client, until, wait: WAIT_FIRST, full: false }
    }

    fn failed(&mut self, why: FabricError) {
        self.full |= why == FabricError::NoResources;
    }

    /// Waits before the next one.
    ///
    /// Errors: the time is over. There are no buffers, or no quorum of replicas.
    async fn wait(&mut self) -> Result<(), Reason> {
        let fabric = &self.client.0.fabric;
        if fabric.now() >= self.until {
            let nobody = Reason::Fabric(FabricError::Unreachable);
            return Err(if self.full { Reason::NoResources } else { nobody });
        }
        let jitter = Nanos(fabric.random() % self.wait.0);
        fabric.sleep_until(fabric.now() + self.wait + jitter).await;
        self.wait = Nanos((self.wait.0 * 2).min(WAIT_MOST.0));
        Ok(())
    }
}
