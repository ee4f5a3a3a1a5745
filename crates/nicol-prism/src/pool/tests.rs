//! When a buffer is posted again, by whose report, and what a scan finds.

use nicol_core::chain::{Chain, ChainResults, Primitive};
use nicol_core::engine::Start;
use nicol_core::fabric::OneSided;
use nicol_core::ids::{EngineId, NodeId};
use nicol_core::memory::Access;
use nicol_core::units::Bytes;
use nicol_core::view::View;
use nicol_sim::{Profile, RunEnd, SimCluster, SimConfig};

use super::*;

const HERE: EngineId = EngineId::host(NodeId(0), 0);

/// One buffer, in use twice; and how often a report of the first use has posted it.
struct Reports {
    region: Arc<Region>,
    pool: Arc<BufferPool>,
    posted: Arc<Mutex<Vec<usize>>>,
}

async fn allocate<F: Fabric>(fabric: &F, rkey: RKey, list: FreeListKey, data: &[u8]) -> u64 {
    let mut chain = Chain::default();
    chain.push(Primitive::Allocate { list, data }.under(rkey));
    let done = fabric.one_sided(HERE.node, OneSided::Chain(&chain)).await.unwrap();
    ChainResults::parse(done.as_ref()).unwrap().outcome(0).words()[0]
}

impl Start for Reports {
    fn start<F: Fabric>(&self, fabric: &F) {
        if fabric.here() != HERE {
            return;
        }
        let (fabric, pool, posted) = (fabric.clone(), self.pool.clone(), self.posted.clone());
        let rkey = fabric.register(&self.region, Access::ReadWrite);
        pool.open(&fabric, rkey);
        fabric.clone().spawn(async move {
            let list = pool.lists().next().unwrap().key;
            let offset = allocate(&fabric, rkey, list, &7_u64.to_le_bytes()).await;
            let report = [Unused { offset, stamp: 7, pointer: 0 }];
            posted.lock().unwrap().push(pool.post(&fabric, &report));
            // The next chain has popped it, and not written to it yet: the stamp is the old
            // one.
            assert_eq!(allocate(&fabric, rkey, list, &[]).await, offset);
            posted.lock().unwrap().push(pool.post(&fabric, &report));
            assert!(pool.is_in_use(offset));
            // Of a chain that never writes only a scan can tell.
            pool.scan(&fabric, Nanos(0)).await;
            assert!(!pool.is_in_use(offset));
            // The same stamp again would be another use's: a client never chooses it twice.
            assert_eq!(allocate(&fabric, rkey, list, &8_u64.to_le_bytes()).await, offset);
            let report = [Unused { offset, stamp: 8, pointer: 0 }];
            posted.lock().unwrap().push(pool.post(&fabric, &report));
        });
    }
}

/// One buffer, which a scan posts before the report of its use comes.
struct Overtaken(Reports);

impl Start for Overtaken {
    fn start<F: Fabric>(&self, fabric: &F) {
        if fabric.here() != HERE {
            return;
        }
        let Reports { region, pool, posted } = &self.0;
        let (fabric, pool, posted) = (fabric.clone(), pool.clone(), posted.clone());
        let rkey = fabric.register(region, Access::ReadWrite);
        pool.open(&fabric, rkey);
        fabric.clone().spawn(async move {
            let list = pool.lists().next().unwrap().key;
            let post = |stamp, offset| {
                let report = [Unused { offset, stamp, pointer: 0 }];
                posted.lock().unwrap().push(pool.post(&fabric, &report));
            };
            let offset = allocate(&fabric, rkey, list, &7_u64.to_le_bytes()).await;
            assert_eq!(pool.scan(&fabric, Nanos(0)).await, 1);
            // The next chain has popped it, and not written to it yet.
            assert_eq!(allocate(&fabric, rkey, list, &[]).await, offset);
            post(7, offset);
            assert!(pool.is_in_use(offset));
            assert_eq!(pool.scan(&fabric, Nanos(0)).await, 1);
            // What is used under the same stamp again is reported as well: of that which never
            // wrote a report was expected, and is not any more.
            for expected in [false, true, true] {
                let data = 7_u64.to_le_bytes();
                if !pool.is_in_use(offset) {
                    assert_eq!(allocate(&fabric, rkey, list, &data).await, offset);
                }
                post(7, offset);
                assert_eq!(!pool.is_in_use(offset), expected);
            }
        });
    }
}

#[test]
fn a_report_that_a_scan_has_overtaken_does_not_count_and_later_ones_of_its_stamp_do() {
    let posted = Arc::<Mutex<Vec<usize>>>::default();
    let start = |region, pool: Arc<BufferPool>| {
        let mut pool = Arc::into_inner(pool).unwrap();
        pool.share_stamps();
        Overtaken(Reports { region, pool: Arc::new(pool), posted: posted.clone() })
    };
    run_on("connectx5-40g", start, || posted.lock().unwrap().len() == 4);
    assert_eq!(*posted.lock().unwrap(), [0, 0, 1, 1]);
}

/// A buffer that a chain pops, and has not written to when a scan begins.
struct Unwritten {
    region: Arc<Region>,
    pool: Arc<BufferPool>,
    /// True if the item is installed, and its transaction complete, while the scan looks again.
    installed: bool,
    kept: Arc<Mutex<Vec<bool>>>,
}

impl Start for Unwritten {
    fn start<F: Fabric>(&self, fabric: &F) {
        if fabric.here() != HERE {
            return;
        }
        let (fabric, pool) = (fabric.clone(), self.pool.clone());
        let (region, kept) = (self.region.clone(), self.kept.clone());
        let (installed, asked) = (self.installed, Arc::new(Mutex::new(None)));
        let rkey = fabric.register(&self.region, Access::ReadWrite);
        pool.open(&fabric, rkey);
        fabric.clone().spawn(async move {
            let list = pool.lists().next().unwrap().key;
            let item = |stamp: u64, may_end: u64| [stamp, may_end].map(u64::to_le_bytes);
            let old = item(7, 1);
            let offset = allocate(&fabric, rkey, list, old.as_flattened()).await;
            assert!(pool.post_reported(&fabric, offset, 7));
            let (other, place, asked_at) = (fabric.clone(), region.clone(), asked.clone());
            fabric.spawn(async move {
                let new = item(8, 0);
                allocate(&other, rkey, list, new.as_flattened()).await;
                let Some(asked) = asked_at.lock().unwrap().filter(|_| installed) else {
                    return;
                };
                // The scan's own timer is older: it has looked at the first pointers then.
                other.sleep_until(asked + scan::SCAN_POLL).await;
                place.store(0, offset).unwrap();
                place.store(offset + 8, 1).unwrap();
            });
            while !pool.is_in_use(offset) {
                fabric.sleep_until(fabric.now() + Nanos(10)).await;
            }
            assert!(region.load(offset) == Ok(7) && pool.is_over(offset));
            let keep = |at: u64| {
                asked.lock().unwrap().get_or_insert(fabric.now());
                region.load(at + 8) == Ok(0)
            };
            pool.scan_but(&fabric, Nanos(0), keep).await;
            assert!(region.load(offset) == Ok(8) && !pool.is_over(offset));
            assert_eq!(region.load(0), Ok(if installed { offset } else { 0 }));
            kept.lock().unwrap().push(pool.is_in_use(offset));
        });
    }
}

/// Starts a node on `profile` whose pool has one buffer, and runs it until `done`.
fn run_on<S: Start>(
    profile: &str,
    start: impl FnOnce(Arc<Region>, Arc<BufferPool>) -> S,
    done: impl Fn() -> bool,
) {
    let view = View::new(1, 1, 1, 1).unwrap();
    let profile = Arc::new(Profile::load(profile).unwrap());
    let cluster = SimCluster::new(SimConfig::new(view, profile, 1));
    // So many pointers that a search lets others go on before it has looked at all of them.
    let pointers = Pointers { first: 0, stride: 8, count: scan::PIECE + 8 };
    let first = pointers.stride * pointers.count;
    let region = Arc::new(Region::new(Bytes(first + 64)));
    let classes = [SizeClass { bytes: 64, count: 1 }];
    let pool = Arc::new(BufferPool::new(region.clone(), first, &classes, pointers));
    cluster.start(Arc::new(start(region, pool)));
    assert_eq!(cluster.run_until(&mut |_| done(), Nanos::from_millis(10)), RunEnd::Done);
}

/// True if the buffer of [`Unwritten`] is in use after the scan.
fn keeps_unwritten(installed: bool) -> bool {
    let kept = Arc::<Mutex<Vec<bool>>>::default();
    let start = |region, pool| Unwritten { region, pool, installed, kept: kept.clone() };
    // The card's accesses to memory take time.
    run_on("connectx5-40g:verbs.chains=true", start, || !kept.lock().unwrap().is_empty());
    kept.lock().unwrap()[0]
}

#[test]
fn a_scan_asks_again_of_a_buffer_that_was_popped_and_not_written_yet() {
    assert!(keeps_unwritten(false));
}

#[test]
fn a_scan_keeps_what_gets_its_pointer_while_it_looks() {
    assert!(keeps_unwritten(true));
}

#[test]
fn a_report_that_comes_twice_counts_once_even_before_the_next_use_is_written() {
    let posted = Arc::<Mutex<Vec<usize>>>::default();
    let start = |region, pool| Reports { region, pool, posted: posted.clone() };
    run_on("connectx5-40g", start, || posted.lock().unwrap().len() == 3);
    assert_eq!(*posted.lock().unwrap(), [1, 0, 1]);
}
