//! A server whose transactions commit at once, and what clients send it.

use std::sync::Mutex;

use nicol_core::commit::CommitProtocol;
use nicol_core::engine::Start;
use nicol_core::fabric::Timeout;
use nicol_core::ids::{NodeId, TableId};
use nicol_core::txn::{ProcedureId, Procedures};
use nicol_core::view::{NodeSpec, Role, View};
use nicol_core::wire::Writer;
use nicol_sim::{Profile, RunEnd, SimCluster, SimConfig};

use super::super::client::Client;
use super::super::config::ScheduleConfig;
use super::super::decision::WORKERS_MAX;
use super::super::features::{FEATURES, FeatureMap, Features};
use super::super::messages::RequestOf;
use super::super::shared::Transcripts;
use super::super::start::start;
use super::*;

const SERVER: NodeId = NodeId(0);
/// Host cores of the server.
const CORES: usize = 3;

/// Commits whatever it is given.
struct Commits;

impl Executor for Commits {
    type Ended = ();

    type Left = ();

    async fn once(&self, _: &mut Txn, (): &mut ()) -> (Outcome, ()) {
        (Outcome::Committed, ())
    }

    fn must_wait(&self, (): &()) -> bool {
        false
    }

    async fn is_durable(&self, (): ()) -> bool {
        true
    }
}

/// A request as it is on the way.
struct Raw(Vec<u8>);

impl Message for Raw {
    const KIND: u16 = REQUEST;

    fn emit(&self, to: &mut Writer<'_>) {
        to.bytes(&self.0);
    }
}

/// The request of a slot, which reads a key and has these features.
fn request(slot: u64, features: Features) -> Raw {
    request_with(Header { slot, features, ..Header::default() }, TxnId(slot + 1))
}

fn request_with(header: Header, id: TxnId) -> Raw {
    let (mut txn, mut body) = (Txn::default(), Vec::new());
    txn.reset(ProcedureId(0), b"args");
    txn.read(Key::new(TableId(1), header.slot));
    let request = RequestOf { header, id, txn: &txn, padding: 0, apart: false };
    request.emit(&mut Writer::new(&mut body));
    Raw(body)
}

/// A client's view of the server.
enum Asks {
    /// Sends so many requests that end too early, each from a slot of its own, and then runs a
    /// transaction.
    Hostile { requests: u64 },
    /// Sends so many requests at once, which have every feature.
    Much { requests: u64 },
    /// Sends an ordinary request, and then a long one from the same slot.
    Long,
}

struct World {
    shared: Arc<Shared>,
    asks: Asks,
    /// How what was asked for has ended, and when.
    ended: Mutex<Vec<(Result<Outcome, FabricError>, Nanos)>>,
}

/// The cluster's nodes outlive it.
struct Cluster(Arc<World>);

impl Cluster {
    fn ask<F: Fabric>(&self, fabric: &F, to: EngineId, request: Raw) {
        let (world, fabric) = (self.0.clone(), fabric.clone());
        let call = fabric.call(to, &request, Timeout::After(Nanos::from_millis(900)));
        fabric.clone().spawn(async move {
            let reply = call.await;
            let outcome = reply.map(|reply| Done::parse(reply.as_ref()).unwrap().0);
            world.ended.lock().unwrap().push((outcome, fabric.now()));
        });
    }
}

impl Start for Cluster {
    fn start<F: Fabric>(&self, fabric: &F) {
        let Self(world) = self;
        if fabric.here().node == SERVER {
            return start(fabric, &world.shared, Commits);
        }
        if fabric.here().side == Side::Nic {
            return;
        }
        match world.asks {
            Asks::Hostile { requests } => {
                let scheduler = EngineId::nic(SERVER, 0);
                for slot in 0..requests {
                    let Raw(mut body) = request(slot, Features::default());
                    body.pop();
                    self.ask(fabric, scheduler, Raw(body));
                }
                let client = Client::new(fabric, &world.shared, &Procedures::default(), SERVER);
                let (world, fabric) = (world.clone(), fabric.clone());
                fabric.clone().spawn(async move {
                    fabric.sleep_until(Nanos::from_millis(50)).await;
                    let mut txn = Txn::default();
                    txn.reset(ProcedureId(0), &[]);
                    let outcome = client.run(&mut txn).await;
                    world.ended.lock().unwrap().push((Ok(outcome), fabric.now()));
                });
            }
            Asks::Much { requests } => {
                let mut features = Features::default();
                (0..FEATURES).for_each(|feature| features.add(feature, true));
                let gathers = EngineId::host(SERVER, world.shared.workers as u8);
                for slot in 0..requests {
                    self.ask(fabric, gathers, request(slot, features));
                }
            }
            Asks::Long => {
                let (asks, fabric) = (Self(world.clone()), fabric.clone());
                fabric.clone().spawn(async move {
                    let mut features = Features::default();
                    features.add(7, true);
                    let scheduler = EngineId::nic(SERVER, 0);
                    for long in [false, true] {
                        let header = Header { slot: 9, long, features, ..Header::default() };
                        let id = TxnId(u64::from(long) + 1);
                        asks.ask(&fabric, scheduler, request_with(header, id));
                        fabric.sleep_until(fabric.now() + Nanos::from_micros(100)).await;
                    }
                });
            }
        }
    }
}

/// Runs until as much has ended as `ends`; how each has, and when.
fn run(config: &ScheduleConfig, asks: Asks, ends: usize) -> Arc<World> {
    let map = FeatureMap::new(&[], Key::row);
    let shared = Arc::new(Shared::new(config, map, CORES, Transcripts::default()));
    let world = Arc::new(World { shared, asks, ended: Mutex::default() });
    let spec = |role, host_engines| NodeSpec { role, host_engines, nic_engines: 1 };
    let view = View::of(&[spec(Role::Server, CORES), spec(Role::Client, 1)], 1).unwrap();
    let profile = Arc::new(Profile::load("innova2").unwrap());
    let cluster = SimCluster::new(SimConfig::new(view, profile, 1));
    cluster.start(Arc::new(Cluster(world.clone())));
    let done = |_| world.ended.lock().unwrap().len() == ends;
    assert_eq!(cluster.run_until(&mut { done }, Nanos::from_secs(2)), RunEnd::Done);
    world
}

#[test]
fn what_no_worker_could_read_is_refused_in_words_and_takes_nobody_s_place() {
    let requests = CORES as u64 * u64::from(OPEN_MAX) + 1;
    for completion in [Completion::Reply, Completion::Slot] {
        let config = ScheduleConfig { completion, ..ScheduleConfig::published(Kind::Alnico) };
        let world = run(&config, Asks::Hostile { requests }, requests as usize + 1);
        let ended = world.ended.lock().unwrap();
        let (last, hostile) = ended.split_last().unwrap();
        assert_eq!(last.0, Ok(Outcome::Committed));
        let refused = |one: &(_, Nanos)| one.0 == Err(FabricError::Malformed);
        assert!(hostile.iter().all(refused), "{:?}", hostile[0]);
        // The last one may still count: nobody has said that it is done.
        let scheduler = &world.shared.assignments().scheduler;
        let queued: u16 = (0..CORES).map(|worker| scheduler.queued(worker)).sum();
        assert!(queued <= 1, "{queued} count");
    }
}

#[test]
fn a_slot_counts_no_more_for_what_it_had_before_a_long_request() {
    for completion in [Completion::Reply, Completion::Slot] {
        let alnico = ScheduleConfig::published(Kind::Alnico);
        let world = run(&ScheduleConfig { completion, reserved: 1, ..alnico }, Asks::Long, 2);
        let scheduler = &world.shared.assignments().scheduler;
        let queued: Vec<u16> = (0..CORES).map(|worker| scheduler.queued(worker)).collect();
        assert_eq!(queued[..CORES - 1], [0; CORES - 1], "{completion:?}");
    }
}

#[test]
fn planning_a_batch_of_strife_takes_as_long_as_its_keys_are_many() {
    // Each has all features: two batches, the second of which has twice the keys of the first, and
    // either more than a number of 16 bits holds.
    let takes = |requests: u64| {
        let strife = ScheduleConfig::published(Kind::Strife);
        let config = ScheduleConfig { batch: requests as usize, ..strife };
        let world = run(&config, Asks::Much { requests }, requests as usize);
        let ended = world.ended.lock().unwrap();
        assert!(ended.iter().all(|(outcome, _)| *outcome == Ok(Outcome::Committed)));
        ended.iter().map(|(_, at)| at.0).min().unwrap()
    };
    let (first, second) = (takes(128), takes(256));
    assert!(
        2 * second > 3 * first,
        "{first} ns until the first reply, and {second} of twice the keys"
    );
}

const _: () = assert!(CORES < WORKERS_MAX, "workers are lanes");
