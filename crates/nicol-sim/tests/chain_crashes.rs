//! A server engine dies between any two accesses of a chain, and the memory that the chain was about lives
//! on: what the chain has done stays, what it has not done never happens, and its buffer is found again.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use nicol_core::chain::{Chain, ChainResults, Outcome, Primitive, Target, scratch};
use nicol_core::engine::{Loss, Start};
use nicol_core::fabric::{Fabric, OneSided};
use nicol_core::ids::{FreeListKey, NodeId, RKey, Side};
use nicol_core::memory::{Access, Buffers, Compare, MaskedSwap, Region};
use nicol_core::units::{Bytes, Nanos};
use nicol_core::view::View;
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
    region: Arc<Region>,
    keys: Mutex<Option<(RKey, FreeListKey)>>,
    /// PUTs that were answered.
    answered: AtomicU64,
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

impl Cluster {
    fn new() -> Arc<Self> {
        let region = Arc::new(Region::new(Bytes(FIRST + u64::from(BUFFERS) * BUFFER)));
        region.write(FIRST, &item(1)).unwrap();
        region.store(SLOT, FIRST).unwrap();
        Arc::new(Self {
            region,
            keys: Mutex::default(),
            answered: AtomicU64::new(0),
            ends: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            found: AtomicU64::new(0),
            ready: AtomicU64::new(u64::MAX),
        })
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
        let pointer = self.region.load(SLOT).unwrap();
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
            assert!(matches!(results.outcome(1), Outcome::Done(_)), "there are buffers");
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
        let rkey = fabric.register(&self.0.region, Access::ReadWrite);
        let buffers = Buffers { rkey, first: FIRST, size: BUFFER, count: BUFFERS, in_use: 1 };
        let list = fabric.register_buffers(buffers).unwrap();
        *self.0.keys.lock().unwrap() = Some((rkey, list));
        fabric.spawn(self.0.clone().serve(fabric.clone(), list));
    }
}

/// How many buffers a crash at `at` has left that only the server could find: beyond those that PUTs
/// with an answer have replaced.
fn crash(profile: &str, at: Nanos) -> u64 {
    let view = View::new(2, 1, 1, 1).unwrap();
    let config = SimConfig::new(view, Arc::new(Profile::load(profile).unwrap()), 1);
    let world = SimCluster::new(SimConfig { detect_after: Some(Nanos::from_micros(10)), ..config });
    let cluster = Cluster::new();
    world.start(&Arc::new(Run(cluster.clone())));
    assert_eq!(world.run_until(&mut |now| now >= at, LIMIT), RunEnd::Done);
    world.crash(Loss { node: SERVER, host: false, nic: true });
    let later = at + Nanos::from_micros(30);
    assert_eq!(world.run_until(&mut |now| now >= later, LIMIT), RunEnd::Done);
    world.restart(SERVER, &[Side::Nic]);
    // The next life executes chains as well.
    let more = cluster.answered.load(Ordering::Relaxed) + 2;
    let is_served = |_| cluster.answered.load(Ordering::Relaxed) >= more;
    assert_eq!(world.run_until(&mut { is_served }, LIMIT), RunEnd::Done, "{profile} at {at:?}");
    cluster.ends.store(true, Ordering::Relaxed);
    let is_whole = |_| cluster.ready.load(Ordering::Relaxed) != u64::MAX;
    assert_eq!(world.run_until(&mut { is_whole }, LIMIT), RunEnd::Done, "{profile} at {at:?}");
    let left = u64::from(BUFFERS) - 1 - cluster.ready.load(Ordering::Relaxed);
    assert_eq!(left, 0, "{profile} at {at:?}: every buffer but the item's is free again");
    let pointer = cluster.region.load(SLOT).unwrap();
    let mut bytes = [0; 24];
    cluster.region.read(pointer, &mut bytes).unwrap();
    let stamp = u64::from_le_bytes(bytes[..8].try_into().unwrap());
    assert_eq!(bytes[..], item(stamp), "{profile} at {at:?}: the item is whole");
    // What was answered has replaced an item each.
    cluster.found.load(Ordering::Relaxed) - cluster.answered.load(Ordering::Relaxed)
}

#[test]
fn a_server_engine_may_die_between_any_two_accesses_of_a_chain() {
    for profile in ["liquidio3", "connectx5-40g", "bluefield1-25g"] {
        let (mut none, mut popped) = (0, 0);
        for step in 0..200 {
            let left = crash(profile, Nanos(4_000 + 40 * step));
            assert!(left <= 1, "{profile}: {left} for one chain");
            none += 1 - left;
            popped += left;
        }
        assert!(
            none > 0 && popped > 0,
            "{profile}: {none} died outside of a chain, {popped} within"
        );
    }
}
