//! NIC cores off the packets' path: their host is one more remote end. [Xenic21 3.1]

use std::sync::{Arc, Mutex};

use nicol_core::engine::Start;
use nicol_core::fabric::{Fabric, OneSided};
use nicol_core::ids::{EngineId, NodeId, RKey};
use nicol_core::memory::{Access, Region};
use nicol_core::units::{Bytes, Nanos};
use nicol_core::view::View;
use nicol_sim::{Profile, RunEnd, SimCluster, SimConfig};

const NODE: NodeId = NodeId(0);

/// A NIC core writes and reads its host's memory, each way twice: by DMA and by verbs.
struct BothWays {
    region: Arc<Region>,
    rkey: Mutex<RKey>,
    spans: Arc<Mutex<Vec<Nanos>>>,
}

impl Start for BothWays {
    fn start<F: Fabric>(&self, fabric: &F) {
        let here = fabric.here();
        // The host starts first.
        if here == EngineId::host(NODE, 0) {
            *self.rkey.lock().unwrap() = fabric.register(&self.region, Access::ReadWrite);
        }
        if here != EngineId::nic(NODE, 0) {
            return;
        }
        let region = self.region.clone();
        let (engine, spans, rkey) =
            (fabric.clone(), self.spans.clone(), *self.rkey.lock().unwrap());
        fabric.spawn(async move {
            let bytes = [7; 256];
            let (offset, len) = (64, 256);
            let span = |began: Nanos| spans.lock().unwrap().push(engine.now().since(began));
            let began = engine.now();
            engine.dma_write(&region, offset, &bytes).await.unwrap();
            span(began);
            let write = OneSided::Write { rkey, offset, bytes: &bytes };
            let began = engine.now();
            engine.one_sided(NODE, write).await.unwrap();
            span(began);
            let began = engine.now();
            let read = engine.dma_read(&region, offset, len).await.unwrap();
            span(began);
            assert_eq!(read.as_ref(), bytes);
            let began = engine.now();
            let read = OneSided::Read { rkey, offset, len: len as u32 };
            assert_eq!(engine.one_sided(NODE, read).await.unwrap().as_ref(), bytes);
            span(began);
        });
    }
}

#[test]
fn a_dma_of_a_nic_core_off_the_path_takes_as_long_as_a_verb() {
    for name in ["bluefield1", "stingray"] {
        let profile = Arc::new(Profile::load(name).unwrap());
        let view = View::new(3, 1, 1, 1).unwrap();
        let cluster = SimCluster::new(SimConfig::new(view, profile.clone(), 1));
        let region = Arc::new(Region::new(Bytes(4_096)));
        let both = Arc::new(BothWays { region, rkey: Mutex::default(), spans: Arc::default() });
        cluster.start(both.clone());
        assert_eq!(cluster.settle(Nanos::from_millis(10)), RunEnd::Done);
        let spans = both.spans.lock().unwrap();
        let [dma_write, write, dma_read, read] = spans[..] else { panic!("{name}: {spans:?}") };
        assert_eq!(dma_write, write, "{name}");
        assert_eq!(dma_read, read, "{name}");
        let longer = profile.verbs.read_latency.value.to_nanos_up();
        let difference = read.since(write);
        // A write's bytes take the lanes to the host, 35 ns, which a read's overlap with its
        // latency.
        assert!(difference <= longer && difference.0 + 50 > longer.0, "{name}: {spans:?}");
    }
}

/// A NIC core writes one word again and again without waiting.
#[derive(Default)]
struct InOrder {
    seen: Arc<Mutex<Option<u64>>>,
}

impl Start for InOrder {
    fn start<F: Fabric>(&self, fabric: &F) {
        if fabric.here() != EngineId::nic(NODE, 0) {
            return;
        }
        let (engine, seen) = (fabric.clone(), self.seen.clone());
        fabric.spawn(async move {
            let region = Arc::new(Region::new(Bytes(4_096)));
            for value in 1..=100u64 {
                // Long and short ones in turn: a short one must not overtake.
                let mut bytes = vec![0; if value % 2 == 1 { 2_048 } else { 8 }];
                bytes[..8].copy_from_slice(&value.to_le_bytes());
                drop(engine.dma_write(&region, 0, &bytes));
            }
            engine.dma_write(&region, 2_048, &[1; 8]).await.unwrap();
            *seen.lock().unwrap() = region.load(0).ok();
        });
    }
}

#[test]
fn transfers_of_a_nic_core_off_the_path_land_in_the_order_in_which_they_were_asked_for() {
    for name in ["bluefield1", "stingray", "liquidio3"] {
        let profile = Arc::new(Profile::load(name).unwrap());
        let view = View::new(3, 1, 1, 1).unwrap();
        let cluster = SimCluster::new(SimConfig::new(view, profile, 1));
        let order = Arc::<InOrder>::default();
        cluster.start(order.clone());
        assert_eq!(cluster.settle(Nanos::from_millis(10)), RunEnd::Done);
        assert_eq!(*order.seen.lock().unwrap(), Some(100), "{name}");
    }
}
