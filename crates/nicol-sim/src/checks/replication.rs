//! C5.01 to C5.06: what MINOS' hardware is made of. [MINOS24 VII, tables II and III]

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use nicol_core::engine::Start;
use nicol_core::fabric::{Delivery, Fabric, Fanout, Message, Service};
use nicol_core::ids::{EngineId, NodeId, Side};
use nicol_core::memory::Region;
use nicol_core::units::{Bytes, Nanos, Picos};
use nicol_core::view::ViewError;
use nicol_core::wire::{Malformed, Writer};

use super::measure::{Action, round_trip};
use super::{CheckLine, cluster};
use crate::{Profile, SimCluster};

/// Bytes of an INV's update, and what the message says besides.
const RECORD: usize = 1_024;
const INV: usize = RECORD + 41;
/// Bytes of an ACK.
const ACK: usize = 16;
/// Between two measurements: each is over long before.
const PERIOD: Nanos = Nanos::from_micros(10);
const MEASURED: Nanos = Nanos::from_micros(400);

/// The operation that a check times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Timed {
    /// An access to memory that cores share: a compare-and-swap.
    Access,
    /// Persisting so many bytes on the node's log device.
    Persist(usize),
    /// Filling an entry of the vFIFO.
    Fill,
    /// Filling an entry of the dFIFO, until it is durable.
    FillDurable,
    /// Sending a message of so many bytes to so many nodes, without broadcast.
    Send(usize, usize),
}

/// One engine of node 0 that does one thing again and again.
struct Probe {
    side: Side,
    timed: Timed,
    done: AtomicU64,
    waited_ns: AtomicU64,
}

/// A message of so many bytes.
struct Sized(usize);

impl Message for Sized {
    const KIND: u16 = 1;

    fn emit(&self, to: &mut Writer<'_>) {
        to.bytes(&vec![0; self.0]);
    }
}

/// Takes messages and says nothing.
struct Sink;

impl Service for Sink {
    fn deliver(&self, _: Delivery<'_>) -> Result<(), Malformed> {
        Ok(())
    }
}

impl Start for Probe {
    fn start<F: Fabric>(&self, fabric: &F) {
        fabric.serve(Rc::new(Sink));
    }
}

/// [`Probe`], shared with the task that it starts.
struct Shared(Arc<Probe>);

impl Start for Shared {
    fn start<F: Fabric>(&self, fabric: &F) {
        self.0.start(fabric);
        if fabric.here() != (EngineId { node: NodeId(0), side: self.0.side, core: 0 }) {
            return;
        }
        let (fabric, probe) = (fabric.clone(), self.0.clone());
        fabric.clone().spawn(async move {
            let log = Arc::new(Region::for_log(Bytes(RECORD as u64), 1));
            let queue = Arc::new(Region::for_nic_log(Bytes(RECORD as u64), 2));
            let others = |count| {
                let side = probe.side.other();
                let engine = |node| EngineId { node: NodeId(node), side, core: 0 };
                (1..=count as u16).map(engine).collect::<Vec<_>>()
            };
            loop {
                fabric.sleep_until(PERIOD * (fabric.now().0 / PERIOD.0 + 1)).await;
                let began = fabric.now();
                let result = match probe.timed {
                    Timed::Access => {
                        fabric.access().await;
                        Ok(())
                    }
                    Timed::Persist(bytes) => fabric.persist(&log, 0, bytes).await.map(drop),
                    Timed::Fill => fabric.fill_queue_entry(RECORD).await.map(drop),
                    Timed::FillDurable => fabric.persist(&queue, 0, RECORD).await.map(drop),
                    Timed::Send(bytes, count) => {
                        fabric.send_each(&others(count), &Sized(bytes), Fanout::Loop);
                        Ok(())
                    }
                };
                assert_eq!(result, Ok(()), "a measurement meets no faults");
                probe.waited_ns.fetch_add(fabric.now().since(began).0, Ordering::Relaxed);
                probe.done.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
}

/// The mean time of one, in nanoseconds: that of the core for what it sends, else until it is over.
fn time(profile: &Arc<Profile>, side: Side, timed: Timed) -> Result<f64, ViewError> {
    let (done, waited_ns) = Default::default();
    let probe = Arc::new(Probe { side, timed, done, waited_ns });
    let world = SimCluster::new(cluster(profile, 5, 1, 1)?);
    world.start(Arc::new(Shared(probe.clone())));
    world.run_until(&mut |_| false, MEASURED);
    let done = probe.done.load(Ordering::Relaxed).max(1) as f64;
    if !matches!(timed, Timed::Send(..)) {
        return Ok(probe.waited_ns.load(Ordering::Relaxed) as f64 / done);
    }
    // Receivers are of the other side: what this side has spent on messages it has sent.
    let spent = world.report().spent;
    let mine = spent.iter().filter(|spent| spent.side == side);
    let sends = mine.filter(|spent| ["messages", "frames"].contains(&spent.on));
    Ok(sends.map(|spent| spent.time.0 as f64).sum::<f64>() / done)
}

/// The lines of C5 that `profile` has the hardware for.
pub(super) fn lines(profile: &Arc<Profile>) -> Result<Vec<CheckLine>, ViewError> {
    let line = |id, what: &str, published, measured, unit| {
        CheckLine::new(id, what, (published, published), measured, unit)
    };
    let time = |side, timed| time(profile, side, timed);
    let host = Side::Host;
    let mut lines = vec![
        line("C5.01", "host cores", 5.0, profile.engines(host) as f64, "cores"),
        line("C5.02", "1 KB to the log", 1_295.0, time(host, Timed::Persist(RECORD))?, "ns"),
        line("C5.03", "compare-and-swap of a host core", 42.0, time(host, Timed::Access)?, "ns"),
    ];
    let there = one_way(profile, host, 16)?;
    let what = "host to host, one way, without software: twice PCIe and the network";
    lines.push(line("C5.04", what, 1_150.0, there, "ns"));
    let durable = time(host, Timed::Persist(64))?;
    lines.push(line("C5.06", "64 B to the log", 100.0, durable, "ns"));
    if !profile.cores.nic_is_separate.value {
        return Ok(lines);
    }
    let nic = Side::Nic;
    let slower = profile.cores.nic_slowdown_permille.value as f64 / 1_000.0;
    let what = "clock of a host core to that of a NIC core: 2.1 GHz to 2.0 GHz";
    lines.push(line("C5.03", what, 1.05, slower, ""));
    let (inv, all) = (time(nic, Timed::Send(INV, 1))?, time(nic, Timed::Send(INV, 4))?);
    let near = one_way(profile, nic, 16)?;
    let bytes = f64::from(LONG as u32);
    let slower = |side, short| Ok::<f64, ViewError>(one_way(profile, side, LONG)? - short);
    let (wire, whole) = (slower(nic, near)?, slower(host, there)?);
    lines.extend([
        line("C5.02", "1 KB into the vFIFO", 465.0, time(nic, Timed::Fill)?, "ns"),
        line("C5.02", "1 KB into the dFIFO", 1_295.0, time(nic, Timed::FillDurable)?, "ns"),
        line("C5.03", "NIC cores", 8.0, profile.engines(nic) as f64, "cores"),
        line("C5.03", "compare-and-swap of a NIC core", 105.0, time(nic, Timed::Access)?, "ns"),
        line("C5.04", "NIC to NIC, one way, without software", 150.0, near, "ns"),
        line("C5.04", "bandwidth of the network", 7.0, bytes / wire, "GB/s"),
        line("C5.04", "bandwidth of PCIe", 6.25, 2.0 * bytes / (whole - wire), "GB/s"),
        line("C5.05", "sending an INV of 1 KB", 200.0, inv, "ns"),
        line("C5.05", "sending an ACK", 100.0, time(nic, Timed::Send(ACK, 1))?, "ns"),
        line("C5.05", "between INVs to several followers", 100.0, (all - inv) / 3.0, "ns"),
    ]);
    Ok(lines)
}

/// Bytes of a message by which a bandwidth is measured.
const LONG: usize = 24 << 10;

/// The way of `size` bytes from an engine of `side` to one of another node, in nanoseconds, on
/// cores that take no time.
fn one_way(profile: &Arc<Profile>, side: Side, size: usize) -> Result<f64, ViewError> {
    let mut profile = Profile::clone(profile);
    for core in [&mut profile.host_core, &mut profile.nic_core] {
        core.poll.value = Picos(1);
        for cost in [
            &mut core.packet_received,
            &mut core.packet_sent,
            &mut core.message_received,
            &mut core.message_sent,
        ] {
            cost.value = Picos(0);
        }
        core.copy.value.0 = u64::MAX;
    }
    Ok(round_trip(&Arc::new(profile), Action::Echo(side), side, size)? / 2.0)
}
