//! A server's engine, or its card, dies between any two events of the cluster while chains are
//! under way, and so between any two accesses of a chain. Where the memory lives on, what the chain
//! has done stays, what it has not done never happens, and its buffer is found again. Where the
//! memory goes down with the card, the next life starts with memory of its own, which nothing of
//! the last one reaches.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use nicol_core::chain::{Chain, ChainResults, Outcome, Primitive, Target, scratch};
use nicol_core::engine::{Loss, Start};
use nicol_core::fabric::{Fabric, FabricError, OneSided};
use nicol_core::ids::{FreeListKey, NodeId, RKey, Side};
use nicol_core::memory::{Access, Buffers, Compare, MaskedSwap, Region};
use nicol_core::units::{Bytes, Nanos};
use nicol_core::view::View;
use nicol_sim::profile::OneSidedBy;
use nicol_sim::{Profile, RunEnd, SimCluster, SimConfig};

const SERVER: NodeId = NodeId(0);
/// The word that points to the item, the first buffer, and how many there are.
const SLOT: u64 = 8;
const FIRST: u64 = 64;
const BUFFER: u64 = 64;
const BUFFERS: u32 = 16;
const LIMIT: Nanos = Nanos::from_millis(50);

/// A server, and a client that writes an item over and over.
struct Cluster {
    /// The server's memory, in its present life.
    region: Mutex<Arc<Region>>,
    keys: Mutex<Option<(RKey, FreeListKey)>>,
    /// PUTs that were answered.
    answered: AtomicU64,
    /// How many of them the server's present life has replaced an item for, as far as is known.
    before: AtomicU64,
    ends: AtomicBool,
    /// Has the client stopped?
    ended: AtomicBool,
    /// Buffers that the server has found, and those that are ready in the end.
    found: AtomicU64,
    ready: AtomicU64,
}

/// An item whose words follow from its stamp.
fn item(stamp: u64) -> Vec<u8> {
    [stamp, stamp * 3, stamp * 5].map(u64::to_le_bytes).as_flattened().to_vec()
}

/// Memory with one item.
fn memory() -> Arc<Region> {
    let region = Arc::new(Region::new(Bytes(FIRST + u64::from(BUFFERS) * BUFFER)));
    region.write(FIRST, &item(1)).unwrap();
    region.store(SLOT, FIRST).unwrap();
    region
}

/// What a crash has met.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Met {
    /// No chain had written anything that nobody was told of.
    Nothing,
    /// A new item lay in its buffer, and the slot did not point to it.
    Staged,
    /// The slot pointed to an item whose PUT had no answer.
    Installed,
}

impl Cluster {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            region: Mutex::new(memory()),
            keys: Mutex::default(),
            answered: AtomicU64::new(0),
            before: AtomicU64::new(0),
            ends: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            found: AtomicU64::new(0),
            ready: AtomicU64::new(u64::MAX),
        })
    }

    /// The free list of the server's present life.
    fn list(&self) -> FreeListKey {
        self.keys.lock().unwrap().expect("the server has started").1
    }

    fn region(&self) -> Arc<Region> {
        self.region.lock().unwrap().clone()
    }

    /// The stamp of the item in the buffer at `offset`, if there is a whole one.
    fn stamp(&self, offset: u64) -> Option<u64> {
        let mut bytes = [0; 24];
        self.region().read(offset, &mut bytes).unwrap();
        let stamp = u64::from_le_bytes(bytes[..8].try_into().unwrap());
        (stamp > 0 && bytes[..] == item(stamp)).then_some(stamp)
    }

    /// The stamp of the item that the slot points to.
    fn installed(&self) -> u64 {
        self.stamp(self.region().load(SLOT).unwrap()).expect("the item is whole")
    }

    /// What a crash at this instant meets, before which no PUT has failed: their stamps count them.
    fn met(&self) -> Met {
        let installed = self.installed();
        let buffers = (0..u64::from(BUFFERS)).map(|buffer| FIRST + buffer * BUFFER);
        if buffers.filter_map(|buffer| self.stamp(buffer)).any(|stamp| stamp > installed) {
            Met::Staged
        } else if installed > 1 + self.answered.load(Ordering::Relaxed) {
            Met::Installed
        } else {
            Met::Nothing
        }
    }

    /// Posts what nobody points to once no chain is under way, and counts.
    async fn serve<F: Fabric>(self: Arc<Self>, fabric: F, list: FreeListKey) {
        while !self.ended.load(Ordering::Relaxed) {
            fabric.sleep_until(fabric.now() + Nanos::from_micros(1)).await;
        }
        let mark = fabric.mark_chains();
        while !fabric.have_ended(mark) {
            fabric.sleep_until(fabric.now() + Nanos::from_micros(1)).await;
        }
        let pointer = self.region().load(SLOT).unwrap();
        let uses = fabric.buffer_uses(list).unwrap();
        let unused: Vec<u64> =
            uses.iter().map(|one| one.offset).filter(|offset| *offset != pointer).collect();
        fabric.post_buffers(list, &unused).unwrap();
        self.found.store(unused.len() as u64, Ordering::Relaxed);
        self.ready.store(fabric.buffers_ready(list) as u64, Ordering::Relaxed);
    }

    /// Writes an item after the other.
    async fn write<F: Fabric>(self: Arc<Self>, fabric: F) {
        let mut stamp = 1;
        while !self.ends.load(Ordering::Relaxed) {
            fabric.sleep_until(fabric.now() + Nanos(100)).await;
            let Some((rkey, list)) = *self.keys.lock().unwrap() else { continue };
            stamp += 1;
            let data = item(stamp);
            let mut chain = Chain::default();
            // [PRISM21 7.3]: whatever is there is replaced, as by a CAS of tags.
            let allocate = Primitive::Allocate { list, data: &data }.under(rkey);
            chain.push(allocate.redirected(scratch(0)));
            let swap = MaskedSwap::new(Compare::Equal, [0], [0]).masked([0], [u64::MAX]);
            let (target, new) = (Target::At(SLOT), Some(scratch(0)));
            let swap = Primitive::CompareSwap { target, swap, compare_at: None, swap_at: new };
            chain.push(swap.under(rkey).conditional());
            let done = fabric.one_sided(SERVER, OneSided::Chain(&chain)).await;
            // A server that is down executes nothing, and one that goes down may execute a part.
            let Ok(done) = done else { continue };
            let results = ChainResults::parse(done.as_ref()).unwrap();
            if let Outcome::Refused(FabricError::AccessDenied(_)) = results.outcome(0) {
                // It was sent to the server's last life, whose keys open nothing in this one.
                assert!(results.outcome(1) == Outcome::Skipped && list != self.list());
                continue;
            }
            let installed = matches!(results.outcome(1), Outcome::Done(_));
            assert!(installed, "there are buffers: {:?}", results.outcomes());
            self.answered.fetch_add(1, Ordering::Relaxed);
        }
        self.ended.store(true, Ordering::Relaxed);
    }
}

struct Run(Arc<Cluster>);

impl Start for Run {
    fn start<F: Fabric>(&self, fabric: &F) {
        let here = fabric.here();
        if here.side == Side::Nic {
            return;
        }
        if here.node != SERVER {
            fabric.spawn(self.0.clone().write(fabric.clone()));
            return;
        }
        if self.0.region().is_lost() {
            *self.0.region.lock().unwrap() = memory();
            self.0.before.store(self.0.answered.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        let rkey = fabric.register(&self.0.region(), Access::ReadWrite);
        let buffers = Buffers { rkey, first: FIRST, size: BUFFER, count: BUFFERS, in_use: 1 };
        let list = fabric.register_buffers(buffers).unwrap();
        *self.0.keys.lock().unwrap() = Some((rkey, list));
        fabric.spawn(self.0.clone().serve(fabric.clone(), list));
    }
}

/// A cluster on `profile`, started.
fn started(profile: &str) -> (SimCluster, Arc<Cluster>) {
    let view = View::new(2, 1, 1, 1).unwrap();
    let config = SimConfig::new(view, Arc::new(Profile::load(profile).unwrap()), 1);
    let world = SimCluster::new(SimConfig { detect_after: Some(Nanos::from_micros(10)), ..config });
    let cluster = Cluster::new();
    world.start(Arc::new(Run(cluster.clone())));
    (world, cluster)
}

/// How many events there are until so many PUTs are answered.
fn events_until(profile: &str, answered: u64) -> u64 {
    let (world, cluster) = started(profile);
    let mut events = 0;
    let mut done = |_| {
        events += 1;
        cluster.answered.load(Ordering::Relaxed) >= answered
    };
    assert_eq!(world.run_until(&mut done, LIMIT), RunEnd::Done, "{profile}");
    events
}

/// What goes down with what executes chains.
fn executor(profile: &str) -> Loss {
    let by_card = Profile::load(profile).unwrap().capabilities().chains_by == OneSidedBy::Card;
    Loss { node: SERVER, host: by_card, nic: true }
}

/// What a crash behind so many events has met, and how many buffers it has left that only the
/// server could find: beyond those that PUTs with an answer have replaced.
fn crash(profile: &str, events: u64) -> (Met, u64) {
    let (world, cluster) = started(profile);
    let mut left = events;
    let mut is_over = |_| {
        left -= 1;
        left == 0
    };
    assert_eq!(world.run_until(&mut is_over, LIMIT), RunEnd::Done);
    let (at, met) = (world.now(), cluster.met());
    let loss = executor(profile);
    world.crash(loss);
    let later = at + Nanos::from_micros(30);
    assert_eq!(world.run_until(&mut |now| now >= later, LIMIT), RunEnd::Done);
    let sides = [Side::Host, Side::Nic];
    world.restart(SERVER, &sides[usize::from(!loss.host)..]);
    // The next life executes chains as well.
    let more = cluster.answered.load(Ordering::Relaxed) + 2;
    let is_served = |_| cluster.answered.load(Ordering::Relaxed) >= more;
    assert_eq!(world.run_until(&mut { is_served }, LIMIT), RunEnd::Done, "{profile} at {at:?}");
    cluster.ends.store(true, Ordering::Relaxed);
    let is_whole = |_| cluster.ready.load(Ordering::Relaxed) != u64::MAX;
    assert_eq!(world.run_until(&mut { is_whole }, LIMIT), RunEnd::Done, "{profile} at {at:?}");
    let left = u64::from(BUFFERS) - 1 - cluster.ready.load(Ordering::Relaxed);
    assert_eq!(left, 0, "{profile} at {at:?}: every buffer but the item's is free again");
    assert!(cluster.installed() > 1, "{profile} at {at:?}: the next life has installed items");
    // What was answered in this life of the memory has replaced an item each.
    let answered =
        cluster.answered.load(Ordering::Relaxed) - cluster.before.load(Ordering::Relaxed);
    let found = cluster.found.load(Ordering::Relaxed);
    assert!(found >= answered, "{profile} at {at:?}: {found} found, {answered} answered");
    (met, found - answered)
}

#[test]
fn what_executes_chains_may_die_between_any_two_accesses_of_a_chain() {
    for (profile, keeps_memory) in [
        ("liquidio3", true),
        ("connectx5-40g", true),
        ("bluefield1-25g", true),
        ("connectx5-40g:verbs.chains=true", false),
    ] {
        let mut seen = BTreeMap::<Met, u64>::new();
        let (mut none, mut popped) = (0, 0);
        // Two whole PUTs, with all that is between them.
        for events in events_until(profile, 3)..=events_until(profile, 5) {
            let (met, left) = crash(profile, events);
            assert!(left <= 1, "{profile}: {left} for one chain");
            assert!(keeps_memory || left == 0, "{profile}: nothing is left of a life that is over");
            *seen.entry(met).or_default() += 1;
            none += 1 - left;
            popped += left;
        }
        assert!(seen.len() == 3, "{profile}: crashes have met {seen:?}");
        assert!(none > 0 && (popped > 0) == keeps_memory, "{profile}: {none} and {popped}");
    }
}
