//! Reads of more than one line are torn by writes that come in between, and by no others.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use nicol_core::engine::{Loss, Start};
use nicol_core::fabric::{Fabric, FabricError, OneSided};
use nicol_core::ids::{EngineId, NodeId, RKey};
use nicol_core::memory::{Access, Region};
use nicol_core::units::{Bytes, Nanos};
use nicol_core::view::View;
use nicol_sim::{Profile, RunEnd, SimCluster, SimConfig};

/// When the reader asks for the bytes.
const ASKED: Nanos = Nanos(10_000);

/// The bytes that a read brought, and when.
type Seen = (Vec<u8>, Nanos);

/// Who reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    /// The node's NIC, by DMA.
    Dma,
    /// Another node's host, by a READ that the node's card executes.
    Read,
}

/// Node 0's memory is read while all of it is written at an instant by host engine 0.
struct Race {
    by: By,
    rkey: Arc<Mutex<RKey>>,
    region: Arc<Region>,
    offset: u64,
    len: usize,
    written: Nanos,
    read: Arc<Mutex<Option<Seen>>>,
}

impl Start for Race {
    fn start<F: Fabric>(&self, fabric: &F) {
        let here = fabric.here();
        let reader = match self.by {
            By::Dma => EngineId::nic(NodeId(0), 0),
            By::Read => EngineId::host(NodeId(1), 0),
        };
        if here == EngineId::host(NodeId(0), 0) {
            let (task, region) = (fabric.clone(), self.region.clone());
            let written = self.written;
            *self.rkey.lock().unwrap() = fabric.register(&region, Access::Read);
            fabric.spawn(async move {
                task.sleep_until(written).await;
                region.write(0, &vec![1; usize::try_from(region.size().0).unwrap()]).unwrap();
            });
        }
        if here != reader {
            return;
        }
        let (task, region) = (fabric.clone(), self.region.clone());
        let (offset, len, read) = (self.offset, self.len, self.read.clone());
        let (by, rkey) = (self.by, self.rkey.clone());
        fabric.spawn(async move {
            task.sleep_until(ASKED).await;
            let rkey = *rkey.lock().unwrap();
            let bytes = match by {
                By::Dma => task.dma_read(&region, offset, len).await.unwrap(),
                By::Read => {
                    let read = OneSided::Read { rkey, offset, len: len as u32 };
                    task.one_sided(NodeId(0), read).await.unwrap()
                }
            };
            *read.lock().unwrap() = Some((bytes.as_ref().to_vec(), task.now()));
        });
    }
}

/// What a read brings, and when, if all of the memory is written at `written`.
fn race(by: By, profile: &str, (offset, len): (u64, usize), written: Nanos) -> Seen {
    let view = View::new(2, 1, 1, 1).unwrap();
    let config = SimConfig::new(view, Arc::new(Profile::load(profile).unwrap()), 1);
    let region = Arc::new(Region::new(Bytes(4_096)));
    let start = Arc::new(Race {
        by,
        rkey: Arc::default(),
        region,
        offset,
        len,
        written,
        read: Arc::default(),
    });
    let cluster = SimCluster::new(config);
    cluster.start(start.clone());
    assert_ne!(cluster.run_until(&mut |_| false, Nanos::from_micros(30)), RunEnd::Done);
    start.read.lock().unwrap().take().unwrap()
}

/// For how many instants of the write, a nanosecond apart, a read is torn, of all from when it is
/// asked for to its end. Where it is, its first
/// `half` bytes are old and the others new; before those instants all are new, behind them all old.
fn torn_instants(by: By, profile: &str, (offset, len): (u64, usize), half: usize) -> u64 {
    let mut torn = 0;
    let mut newest = 1;
    let mut ends = BTreeSet::new();
    let (_, undisturbed) = race(by, profile, (offset, len), Nanos(2 * ASKED.0));
    for written in ASKED.0..undisturbed.0 {
        let (bytes, end) = race(by, profile, (offset, len), Nanos(written));
        ends.insert(end);
        assert_eq!(bytes.len(), len);
        let (first, last) = (bytes[0], bytes[len - 1]);
        let split = if first == last { len } else { half };
        assert!(bytes[..split].iter().all(|&byte| byte == first), "{profile} {written}: {bytes:?}");
        assert!(bytes[split..].iter().all(|&byte| byte == last), "{profile} {written}: {bytes:?}");
        assert!(first <= last && last <= newest, "{profile} {written}: {bytes:?}");
        assert!(first == 0 || torn == 0, "{profile} {written}: {bytes:?}");
        newest = last;
        torn += u64::from(first != last);
    }
    assert_eq!(newest, 0, "{profile}: a write at the end comes too late");
    assert_eq!(ends, BTreeSet::from([undisturbed]), "{profile}: a write delays nothing");
    torn
}

#[test]
fn a_read_is_torn_exactly_by_a_write_between_its_halves() {
    // 128 bytes and a header of 26 or so pass PCIe 3.0 x8 in about 20 ns.
    assert!((15..=25).contains(&torn_instants(By::Dma, "liquidio3", (0, 256), 128)));
    // Lines count, not bytes: of 8 + 64 + 8 bytes in three lines, the first 8 are a half.
    assert!((5..=20).contains(&torn_instants(By::Dma, "liquidio3", (56, 80), 8)));
    // Where a DMA is a copy by a core, and where it is a verb to the own node.
    for profile in ["connectx5", "bluefield1"] {
        assert!(torn_instants(By::Dma, profile, (0, 256), 128) > 0, "{profile}");
    }
}

#[test]
fn a_read_that_a_card_executes_is_torn_alike() {
    for profile in ["connectx5", "bluefield2"] {
        assert!((5..=25).contains(&torn_instants(By::Read, profile, (0, 256), 128)), "{profile}");
    }
    assert!(torn_instants(By::Read, "connectx5", (56, 80), 8) > 0);
}

#[test]
fn what_lies_in_one_line_is_never_torn() {
    for (offset, len) in [(0, 64), (64, 64), (8, 56), (120, 8)] {
        for (by, profile) in [(By::Dma, "liquidio3"), (By::Read, "connectx5")] {
            assert_eq!(
                torn_instants(by, profile, (offset, len), len),
                0,
                "{len} bytes at {offset}"
            );
        }
    }
}

/// Node 1 reads 256 bytes of node 0's host.
#[derive(Default)]
struct OneRead {
    rkey: Mutex<RKey>,
    read: Arc<Mutex<Option<Result<usize, FabricError>>>>,
}

impl Start for OneRead {
    fn start<F: Fabric>(&self, fabric: &F) {
        let here = fabric.here();
        if here == EngineId::host(NodeId(0), 0) {
            let region = Arc::new(Region::new(Bytes(4_096)));
            *self.rkey.lock().unwrap() = fabric.register(&region, Access::Read);
        }
        if here != EngineId::host(NodeId(1), 0) {
            return;
        }
        let (task, rkey, read) = (fabric.clone(), *self.rkey.lock().unwrap(), self.read.clone());
        fabric.spawn(async move {
            task.sleep_until(ASKED).await;
            let long = OneSided::Read { rkey, offset: 0, len: 256 };
            let bytes = task.one_sided(NodeId(0), long).await;
            *read.lock().unwrap() = Some(bytes.map(|bytes| bytes.as_ref().len()));
        });
    }
}

#[test]
fn a_read_ends_whenever_the_host_dies_under_it() {
    let (mut whole, mut failed) = (0, 0);
    for at in (ASKED.0..ASKED.0 + 4_000).step_by(5) {
        let profile = Arc::new(Profile::load("bluefield2").unwrap());
        let start = Arc::new(OneRead::default());
        let cluster = SimCluster::new(SimConfig::new(View::new(2, 1, 1, 1).unwrap(), profile, 1));
        cluster.start(start.clone());
        cluster.run_until(&mut |_| false, Nanos(at));
        // The card, which executes the read, goes on.
        cluster.crash(Loss { node: NodeId(0), host: true, nic: false });
        let end = cluster.run_until(&mut |_| start.read.lock().unwrap().is_some(), Nanos(2 * at));
        assert_eq!(end, RunEnd::Done, "the host died at {at} ns");
        match start.read.lock().unwrap().take() {
            Some(Ok(256)) => whole += 1,
            Some(Err(_)) => failed += 1,
            other => panic!("the host died at {at} ns: {other:?}"),
        }
    }
    assert!(whole > 0 && failed > 0, "{whole} whole, {failed} failed");
}
