//! The daemon of a server: it refills free lists, and looks for buffers that nobody reports.
//! [PRISM21 3.2, 6.1]
//!
//! A scan is asked for by a client whose chain went unanswered, and by a view that tells of a
//! crash: the dead report nothing. Under [`Reclaim::Scan`] the daemon scans by itself, and clients
//! do not report buffers at all. Of a server one scan is under way at most; what is suspected
//! meanwhile, the next one looks for.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use nicol_core::fabric::{Fabric, Message, Timeout};
use nicol_core::ids::{EngineId, Side};
use nicol_core::system::Counter;
use nicol_core::units::Nanos;
use nicol_core::wire::Writer;
use nicol_kit::{Open, count, counters};

use super::messages::Suspicion;
use super::pool::{BufferPool, SCAN_AFTER};

/// The way in which unused buffers are found. [PRISM21 3.2]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reclaim {
    /// Clients report what they have replaced; a scan finds the rest.
    Reports,
    /// The server scans its table, as a garbage collector does.
    Scan,
}

/// Settings of the daemon that recycles a server's buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recycling {
    /// A free list with fewer buffers is refilled up to twice as many; `None`: whatever is not used
    /// any more is posted at once. [PRISM21 6.1]
    pub watermark: Option<u32>,
    /// Interval at which the daemon looks. [PRISM21 6.1]
    pub every: Nanos,
    pub reclaim: Reclaim,
}

impl Recycling {
    /// By reports, with this watermark.
    pub const fn by_reports(watermark: Option<u32>) -> Self {
        Self { watermark, every: Nanos::from_micros(200), reclaim: Reclaim::Reports }
    }

    /// Whether clients report buffers.
    pub(crate) fn has_reports(&self) -> bool {
        self.reclaim == Reclaim::Reports
    }
}

/// The state of a node's scans, and its counters.
#[derive(Debug, Default)]
pub(crate) struct Recycled {
    /// Requests for a scan since the one under way began; 0: none is under way.
    asked: AtomicU64,
    /// Whether a scan was asked for because of a chain that may still wait for its turn.
    unanswered: AtomicBool,
    /// Chains that found no buffer, and were tried again.
    pub(crate) waits: AtomicU64,
    /// Buffers that were reported, and posted again.
    pub(crate) posted: AtomicU64,
    /// Scans for unreported buffers.
    pub(crate) scans: AtomicU64,
    /// Buffers that they have found.
    pub(crate) found: AtomicU64,
}

impl Recycled {
    /// Its engines have crashed, and a scan with them.
    pub(crate) fn forget_scan(&self) {
        self.asked.store(0, Ordering::Relaxed);
        self.unanswered.store(false, Ordering::Relaxed);
    }

    /// The counters, for the group of a system.
    pub(crate) fn counters(&self, group: &'static str) -> impl Iterator<Item = Counter> {
        let Self { waits, posted, scans, found, .. } = self;
        let named =
            [("receiver_not_ready", waits), ("posted", posted), ("scans", scans), ("found", found)];
        counters(group, named)
    }
}

/// A node whose server has buffers.
pub(crate) trait Recycles: Sized + 'static {
    fn recycling(&self) -> Recycling;
    fn recycled(&self) -> &Recycled;
    /// Tasks that its engines have not finished.
    fn open(&self) -> &Arc<AtomicU64>;
    /// Calls `look` with its buffers, if it serves.
    fn with_pool(&self, look: &mut dyn FnMut(&BufferPool));
    /// Posts the unreported buffers after a wait. Returns how many.
    async fn scan<F: Fabric>(&self, fabric: &F, after: Nanos) -> usize;
}

/// Starts the daemon of a server, on one of its engines.
pub(crate) fn start<F: Fabric, N: Recycles>(fabric: &F, node: &Arc<N>) {
    start_filling(fabric, node);
    fabric.spawn(scan_after_crashes(fabric.clone(), node.clone()));
}

/// Starts the part of the daemon that keeps the free lists filled.
pub(crate) fn start_filling<F: Fabric, N: Recycles>(fabric: &F, node: &Arc<N>) {
    let Recycling { watermark, reclaim, .. } = node.recycling();
    if watermark.is_some() || reclaim == Reclaim::Scan {
        fabric.spawn(keep_filled(fabric.clone(), node.clone()));
    }
}

/// Looks at the free lists, for ever. [PRISM21 6.1]
async fn keep_filled<F: Fabric, N: Recycles>(fabric: F, node: Arc<N>) {
    let Recycling { every, reclaim, .. } = node.recycling();
    loop {
        fabric.sleep_until(fabric.now() + every).await;
        let mut is_clean = true;
        node.with_pool(&mut |pool| is_clean = pool.is_clean());
        if reclaim == Reclaim::Scan && !is_clean {
            scan(&fabric, &*node, Nanos::ZERO).await;
        }
        node.with_pool(&mut |pool| pool.refill(&fabric));
    }
}

/// Scans whenever a view tells of a change: a client that is gone reports nothing.
async fn scan_after_crashes<F: Fabric, N: Recycles>(fabric: F, node: Arc<N>) {
    let changes = fabric.view_changes();
    loop {
        changes.wait().await;
        scan_later(&fabric, &node, Suspicion::Unanswered);
    }
}

/// Asks for a scan, if there may be buffers that are never reported. It begins once they are
/// unused.
pub(crate) fn scan_later<F: Fabric, N: Recycles>(fabric: &F, node: &Arc<N>, suspects: Suspicion) {
    if suspects == Suspicion::None {
        return;
    }
    let Recycled { asked, unanswered, .. } = node.recycled();
    unanswered.fetch_or(suspects == Suspicion::Unanswered, Ordering::Relaxed);
    if asked.fetch_add(1, Ordering::Relaxed) > 0 {
        return;
    }
    let open = Open::begin(node.open());
    let (fabric, node) = (fabric.clone(), node.clone());
    fabric.clone().spawn(async move {
        loop {
            let Recycled { asked, unanswered, .. } = node.recycled();
            let before = asked.load(Ordering::Relaxed);
            let after = match unanswered.swap(false, Ordering::Relaxed) {
                true => {
                    await_turns(&fabric).await;
                    Nanos::ZERO
                }
                false => SCAN_AFTER,
            };
            scan(&fabric, &*node, after).await;
            node.with_pool(&mut |pool| pool.refill(&fabric));
            // A request that came meanwhile may be about a buffer that was too young for this scan.
            let ended =
                asked.compare_exchange(before, 0, Ordering::Relaxed, Ordering::Relaxed).is_ok();
            if ended {
                break;
            }
        }
        drop(open);
    });
}

async fn scan<F: Fabric, N: Recycles>(fabric: &F, node: &N, after: Nanos) {
    count(&node.recycled().scans);
    let found = node.scan(fabric, after).await;
    node.recycled().found.fetch_add(found as u64, Ordering::Relaxed);
}

/// Interval at which it asks whether chains under way have ended.
const POLL: Nanos = Nanos::from_micros(20);

/// Waits until no chain is under way at this node, or waits there, that was sent long ago.
pub(crate) async fn drain<F: Fabric>(fabric: &F) {
    await_turns(fabric).await;
    let mark = fabric.mark_chains();
    while !fabric.have_ended(mark) {
        fabric.sleep_until(fabric.now() + POLL).await;
    }
}

/// To an engine that executes chains: asks whether it is this server's turn. The engine serves
/// nothing else, and says so.
struct Turn;

impl Message for Turn {
    const KIND: u16 = 32;

    fn emit(&self, _to: &mut Writer<'_>) {}
}

/// Waits until every chain that was sent to this node long ago has begun, or never will. None is on
/// its way any more; but an engine that stands still leaves one waiting for as long as that lasts,
/// and does not answer meanwhile.
async fn await_turns<F: Fabric>(fabric: &F) {
    fabric.sleep_until(fabric.now() + SCAN_AFTER).await;
    let node = fabric.here().node;
    let engines = fabric.view().engines(node, Side::Nic);
    let ask = |core| fabric.call(EngineId::nic(node, core as u8), &Turn, Timeout::Never);
    let asked: Vec<F::Completion> = (0..engines).map(ask).collect();
    for answer in asked {
        // Whatever it says: what has come before this it has taken, too.
        drop(answer.await);
    }
}
