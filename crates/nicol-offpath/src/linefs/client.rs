//! What a client does: on the primary's host it uses the log there, elsewhere it asks that host.

use std::rc::Rc;

use nicol_core::fabric::{Delivery, Fabric, FabricError, ReplyTo, Service, Timeout, Work};
use nicol_core::ids::{EngineId, Key, NodeId, Version};
use nicol_core::key_value::{Failure, Got, KeyValue, Reason};
use nicol_core::wire::Malformed;

use super::align::Alignment;
use super::broken::log::append;
use super::log::Log;
use super::member::Member;
use super::messages::{
    ALIGNED, Aligned, CHUNK, Chunk, Found, HELLO, NotServed, READ, Read, SHIP, SUBMIT, Ship,
    Submit, WRITE, Write, Written,
};
use super::node::Node;
use super::standing::State;

/// A host engine's access to the files of the whole cluster.
pub struct Client<F: Fabric>(Rc<Log<F>>);

impl<F: Fabric> Clone for Client<F> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

fn failed(error: FabricError) -> Reason {
    match error {
        FabricError::NoResources => Reason::NoResources,
        error => Reason::Fabric(error),
    }
}

impl<F: Fabric> Client<F> {
    pub(super) const fn new(log: Rc<Log<F>>) -> Self {
        Self(log)
    }

    fn node(&self) -> &Node {
        &self.0.member.node
    }

    /// The head of the chain of `key`.
    fn primary(&self, key: Key) -> Result<NodeId, Failure> {
        let node = self.node();
        let head = node.state().head(node.shard_of(key));
        head.ok_or(Failure::Aborted(Reason::ShardUnavailable))
    }

    /// The host engine of `primary` that this engine asks.
    fn engine_of(&self, primary: NodeId) -> EngineId {
        let fabric = &self.0.member.fabric;
        let engines = fabric.view().engines(primary, nicol_core::ids::Side::Host).max(1);
        EngineId::host(primary, (usize::from(fabric.here().core) % engines) as u8)
    }

    async fn write(&self, key: Key, value: Option<&[u8]>) -> Result<Option<Version>, Failure> {
        let Member { fabric, node, .. } = &*self.0.member;
        let primary = self.primary(key)?;
        if primary == fabric.here().node {
            return append(&self.0, key, value).await.map(Some);
        }
        let timeout = Timeout::After(node.config().timeout);
        let answer = fabric.call(self.engine_of(primary), &Write { key, value }, timeout).await;
        let answer = match &answer {
            Ok(answer) => Written::parse(answer.as_ref()).map_err(|_| Failure::Unknown)?,
            Err(error @ (FabricError::NoResources | FabricError::Malformed)) => {
                return Err(Failure::Aborted(failed(*error)));
            }
            Err(_) => Written::Unknown,
        };
        match answer {
            Written::Held(version) => Ok(Some(Version(version))),
            Written::Unknown => Err(Failure::Unknown),
            Written::Unavailable => Err(Failure::Aborted(Reason::ShardUnavailable)),
        }
    }
}

impl<F: Fabric> KeyValue for Client<F> {
    async fn get(&self, key: Key, value: &mut Vec<u8>) -> Result<Got, Failure> {
        let Member { fabric, node, .. } = &*self.0.member;
        value.clear();
        let primary = self.primary(key)?;
        if primary == fabric.here().node {
            fabric.work(Work::TableLookup);
            fabric.caught_up().await;
            fabric.access().await;
            let state = node.state();
            may_serve(fabric, node, &state, key).map_err(Failure::Aborted)?;
            let (version, found) = state.files.get(key);
            value.extend_from_slice(found.unwrap_or_default());
            return Ok(Got { present: found.is_some(), version: Some(Version(version)) });
        }
        let timeout = Timeout::After(node.config().timeout);
        let answer = fabric.call(self.engine_of(primary), &Read(key), timeout).await;
        let answer = answer.map_err(|error| Failure::Aborted(failed(error)))?;
        let Found { version, value: found } = Found::parse(answer.as_ref())
            .map_err(|_| Failure::Aborted(Reason::Fabric(FabricError::Malformed)))?
            .ok_or(Failure::Aborted(Reason::ShardUnavailable))?;
        value.extend_from_slice(found.unwrap_or_default());
        Ok(Got { present: found.is_some(), version: Some(Version(version)) })
    }

    async fn put(&self, key: Key, value: &[u8]) -> Result<Option<Version>, Failure> {
        self.write(key, Some(value)).await
    }

    async fn delete(&self, key: Key) -> Result<Option<Version>, Failure> {
        self.write(key, None).await
    }
}

/// The service of a host engine: as a primary to clients elsewhere, as a backup to the chain of A3.
pub(super) struct HostServer<F: Fabric>(pub(super) Rc<Log<F>>);

impl<F: Fabric> Service for HostServer<F> {
    fn deliver(&self, delivery: Delivery<'_>) -> Result<(), Malformed> {
        let Delivery { reply_to, kind, body, .. } = delivery;
        let Some(to) = reply_to else { return Err(Malformed { what: "no request of LineFS's" }) };
        let log = self.0.clone();
        let open = log.member.node.begin();
        match kind {
            SHIP => {
                let ship = Ship::parse(body)?;
                log.member.memory.check_shard(ship.shard)?;
                log.member.fabric.clone().spawn(async move {
                    Alignment::new(&log.member).ship(to, ship).await;
                    drop(open);
                });
            }
            ALIGNED => {
                let aligned = Aligned::parse(body)?;
                log.member.memory.check_shard(aligned.shard)?;
                log.member.fabric.clone().spawn(async move {
                    Alignment::new(&log.member).note_follower(to, aligned).await;
                    drop(open);
                });
            }
            READ => {
                let Read(key) = Read::parse(body)?;
                log.member.fabric.clone().spawn(async move {
                    read(&log.member, to, key).await;
                    drop(open);
                });
            }
            WRITE => {
                let Write { key, value } = Write::parse(body)?;
                let value = value.map(<[u8]>::to_vec);
                log.member.fabric.clone().spawn(async move {
                    write(&log, to, key, value.as_deref()).await;
                    drop(open);
                });
            }
            _ => return serve_chain(&log.member, to, kind, body),
        }
        Ok(())
    }
}

/// Checks that this node, its memory being `state`, may answer for the block of `key`.
fn may_serve<F: Fabric>(fabric: &F, node: &Node, state: &State, key: Key) -> Result<(), Reason> {
    if !state.serves(node.shard_of(key)) {
        return Err(Reason::ShardUnavailable);
    }
    // Without a lease another node may have been promoted.
    if fabric.has_lease() { Ok(()) } else { Err(Reason::Fabric(FabricError::Unreachable)) }
}

async fn read<F: Fabric>(member: &Member<F>, to: ReplyTo, key: Key) {
    let Member { fabric, node, .. } = member;
    fabric.work(Work::TableLookup);
    fabric.access().await;
    let state = node.state();
    if may_serve(fabric, node, &state, key).is_err() {
        return fabric.reply(to, &NotServed);
    }
    let (version, value) = state.files.get(key);
    fabric.reply(to, &Found { version, value });
}

async fn write<F: Fabric>(log: &Rc<Log<F>>, to: ReplyTo, key: Key, value: Option<&[u8]>) {
    let fabric = &log.member.fabric;
    let answer = match append(log, key, value).await {
        Ok(version) => Written::Held(version.0),
        Err(Failure::Unknown) => Written::Unknown,
        Err(Failure::Aborted(Reason::NoResources)) => {
            return fabric.refuse(to, FabricError::NoResources);
        }
        Err(Failure::Aborted(_)) => Written::Unavailable,
    };
    fabric.reply(to, &answer);
}

/// The service of a NIC engine: on an off-path card a core of the SoC.
pub(super) struct SocServer<F: Fabric>(pub(super) Rc<Member<F>>);

impl<F: Fabric> Service for SocServer<F> {
    fn deliver(&self, delivery: Delivery<'_>) -> Result<(), Malformed> {
        let Delivery { reply_to, kind, body, .. } = delivery;
        let Some(to) = reply_to else { return Err(Malformed { what: "no request of LineFS's" }) };
        if kind != SUBMIT {
            return serve_chain(&self.0, to, kind, body);
        }
        let submit = Submit::parse(body)?;
        self.0.memory.check_submit(&submit)?;
        let member = self.0.clone();
        let open = member.node.begin();
        member.fabric.clone().spawn(async move {
            member.submit(to, submit).await;
            drop(open);
        });
        Ok(())
    }
}

/// Answers the engine before this one in a chain, on either side.
fn serve_chain<F: Fabric>(
    member: &Rc<Member<F>>,
    to: ReplyTo,
    kind: u16,
    body: &[u8],
) -> Result<(), Malformed> {
    match kind {
        HELLO => match member.memory.keys() {
            Some(keys) => member.fabric.reply(to, &keys),
            None => member.fabric.refuse(to, FabricError::NoResources),
        },
        CHUNK => {
            let chunk = Chunk::parse(body)?;
            member.memory.check(&chunk)?;
            let (member, open) = (member.clone(), member.node.begin());
            let working = member.working.begin();
            member.fabric.clone().spawn(async move {
                member.take(to, chunk).await;
                drop((open, working));
            });
        }
        _ => return Err(Malformed { what: "no message of LineFS's" }),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use nicol_core::engine::Start;
    use nicol_core::ids::{Epoch, ShardId};
    use nicol_core::records::Empty;
    use nicol_core::system::{Sequential, load_nodes};
    use nicol_core::units::Nanos;
    use nicol_core::view::View;
    use nicol_sim::{Profile, RunEnd, SimCluster, SimConfig};

    use super::super::config::{Alternative, LineFsConfig};
    use super::super::messages::{Slot, Way};
    use super::*;

    type Answers = Arc<Mutex<Vec<Result<(), FabricError>>>>;

    /// A host that asks its SoC for the impossible.
    struct Asking {
        nodes: Vec<Arc<Node>>,
        answers: Answers,
    }

    /// A SUBMIT that names the first slot, and these that do not exist.
    fn impossible() -> Vec<Submit> {
        let slot = Slot { node: NodeId(0), core: 0, slot: 0 };
        let (epoch, since) = (Epoch(1), Epoch(1));
        let way = Way { shard: ShardId(0), epoch, since, rest: Vec::new() };
        let submit = Submit { slot, len: 64, way: way.clone() };
        vec![
            Submit { way: Way { shard: ShardId(9), ..way.clone() }, ..submit.clone() },
            Submit { way: Way { rest: vec![NodeId(9)], ..way }, ..submit.clone() },
            Submit { slot: Slot { core: 9, ..slot }, ..submit.clone() },
            Submit { slot: Slot { slot: 200, ..slot }, ..submit.clone() },
            Submit { len: u32::MAX, ..submit },
        ]
    }

    impl Start for Asking {
        fn start<F: Fabric>(&self, fabric: &F) {
            let here = fabric.here();
            let _client = self.nodes[here.node.index()].start_engine(fabric);
            if here != EngineId::host(NodeId(0), 0) {
                return;
            }
            let (fabric, answers) = (fabric.clone(), self.answers.clone());
            fabric.clone().spawn(async move {
                for submit in impossible() {
                    let soc = EngineId::nic(NodeId(0), 0);
                    let answer = fabric.call(soc, &submit, Timeout::Never).await;
                    answers.lock().unwrap().push(answer.map(drop));
                }
            });
        }
    }

    #[test]
    fn a_soc_refuses_what_no_log_holds() {
        let view = View::new(2, 2, 1, 1).unwrap();
        let config = LineFsConfig::paper(Alternative::A1);
        let empty = Empty { capacity_per_shard: 0 };
        let nodes = load_nodes::<Node>(&view, &config, &empty, &Sequential).unwrap();
        let answers = Answers::default();
        let profile = Arc::new(Profile::load("bluefield2").unwrap());
        let cluster = SimCluster::new(SimConfig::new(view, profile, 1));
        cluster.start(Arc::new(Asking { nodes, answers: answers.clone() }));
        let most = impossible().len();
        let is_done = |_| answers.lock().unwrap().len() == most;
        assert_eq!(cluster.run_until(&mut { is_done }, Nanos::from_millis(5)), RunEnd::Done);
        let refused = |answer: &Result<(), FabricError>| *answer == Err(FabricError::Malformed);
        assert!(answers.lock().unwrap().iter().all(refused), "{answers:?}");
    }
}
