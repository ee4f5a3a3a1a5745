//! What chains cost in the simulated world: one round trip, and what they touch over PCIe.
//! [PRISM21 4.2, 4.3]

use std::sync::{Arc, Mutex};

use nicol_core::chain::{Chain, Data, Primitive, Step, Target, scratch};
use nicol_core::engine::Start;
use nicol_core::fabric::{Fabric, OneSided};
use nicol_core::ids::{EngineId, NodeId, RKey, Side};
use nicol_core::memory::{Access, Compare, MaskedSwap, Region};
use nicol_core::units::{Bytes, Nanos, Picos};
use nicol_core::view::View;
use nicol_sim::{Profile, RunEnd, SimCluster, SimConfig};

/// Whose memory is accessed.
const TARGET: NodeId = NodeId(0);

type Chains = Vec<Vec<Step<'static>>>;

/// Host engine 0 of node 1 runs each chain on memory of one side of the target, one by one.
struct Timed {
    memory: Side,
    region: Arc<Region>,
    rkey: Mutex<RKey>,
    chains: fn(RKey) -> Chains,
    spans: Arc<Mutex<Vec<Nanos>>>,
}

impl Start for Timed {
    fn start<F: Fabric>(&self, fabric: &F) {
        let here = fabric.here();
        // The target's engines start first.
        if here == (EngineId { node: TARGET, side: self.memory, core: 0 }) {
            *self.rkey.lock().unwrap() = fabric.register(&self.region, Access::ReadWrite);
        }
        if here != EngineId::host(NodeId(1), 0) {
            return;
        }
        let (engine, spans) = (fabric.clone(), self.spans.clone());
        let chains = (self.chains)(*self.rkey.lock().unwrap());
        fabric.spawn(async move {
            for steps in chains {
                let mut chain = Chain::default();
                for step in steps {
                    chain.push(step);
                }
                let began = engine.now();
                engine.one_sided(TARGET, OneSided::Chain(&chain)).await.unwrap();
                spans.lock().unwrap().push(engine.now().since(began));
            }
        });
    }
}

/// How long each chain takes on an idle cluster.
fn spans<const N: usize>(
    profile: &Profile,
    memory: Side,
    chains: fn(RKey) -> Chains,
) -> [Nanos; N] {
    let view = View::new(3, 1, 2, 2).unwrap();
    let cluster = SimCluster::new(SimConfig::new(view, Arc::new(profile.clone()), 1));
    let region = Arc::new(Region::new(Bytes(4_096)));
    // A pointer to 64, and its bound.
    region.store(0, 64).unwrap();
    region.store(8, 512).unwrap();
    let spans = Arc::<Mutex<Vec<_>>>::default();
    let timed = Timed { memory, region, rkey: Mutex::default(), chains, spans: spans.clone() };
    cluster.start(Arc::new(timed));
    assert_eq!(cluster.settle(Nanos::from_millis(10)), RunEnd::Done);
    let spans = spans.lock().unwrap();
    spans.as_slice().try_into().unwrap()
}

fn read(from: Target) -> Primitive<'static> {
    Primitive::Read { from, len: 512 }
}

fn indirections(rkey: RKey) -> Chains {
    vec![
        vec![read(Target::At(64)).under(rkey)],
        vec![read(Target::Indirect(0)).under(rkey)],
        vec![read(Target::Bounded(0)).under(rkey)],
    ]
}

fn near(span: Nanos, expected: Picos) -> bool {
    span.0.abs_diff(expected.to_nanos_up().0) <= 10
}

#[test]
fn an_indirect_read_costs_one_more_read_over_pcie() {
    let connectx5 = Profile::load("connectx5").unwrap();
    let [direct, indirect, bounded] = spans(&connectx5, Side::Host, indirections);
    let read = connectx5.verbs.read_latency.value;
    assert!(near(indirect.since(direct), read), "{direct} {indirect}");
    assert!(near(bounded.since(direct), read), "{direct} {bounded}");

    let liquidio3 = Profile::load("liquidio3").unwrap();
    let [direct, indirect, _] = spans(&liquidio3, Side::Host, indirections);
    let read = liquidio3.dma.read_latency.value;
    let longer = indirect.since(direct);
    let most = read + liquidio3.dma.submit.value + Picos(100_000);
    assert!(longer >= read.to_nanos_up() && longer <= most.to_nanos_up(), "{direct} {indirect}");
    let [direct, indirect, _] = spans(&liquidio3, Side::Nic, indirections);
    assert_eq!(direct, indirect, "the NIC's own memory is not behind PCIe");
}

/// The card reaches the NIC cores' memory over its switch, each way at the published latency.
/// [Xenic21 3.1]
#[test]
fn an_operation_on_nic_cores_off_the_path_crosses_the_switch_and_not_pcie() {
    let bluefield1 = Profile::load("bluefield1").unwrap();
    let way = bluefield1.off_path.as_ref().unwrap().latency.value;
    let [on_host, _, _] = spans(&bluefield1, Side::Host, indirections);
    let [direct, indirect, bounded] = spans(&bluefield1, Side::Nic, indirections);
    let there_and_back = way * 2;
    assert!(near(indirect.since(direct), there_and_back), "{direct} {indirect}");
    assert!(near(bounded.since(direct), there_and_back), "{direct} {bounded}");
    let over_pcie = bluefield1.verbs.read_latency.value;
    let longer = Picos(there_and_back.0 - over_pcie.0);
    assert!(near(direct.since(on_host), longer), "{on_host} {direct}");
}

/// PRISM-RS's write phase with the tag in scratch, and with the tag in host memory; a READ.
fn installs(rkey: RKey) -> Chains {
    let install = |tag: u64| {
        let swap = MaskedSwap::of_words(Compare::Greater, 2).unwrap();
        let newer = swap.masked([u64::MAX, 0], [u64::MAX; 2]);
        let operand = Some(tag);
        vec![
            Primitive::Write { to: Target::At(tag), data: Data::Inline(&[7; 16]) }.under(rkey),
            Primitive::Write { to: Target::At(1_024), data: Data::Inline(&[7; 512]) }.under(rkey),
            Primitive::CompareSwap {
                target: Target::At(512),
                swap: newer,
                compare_at: operand,
                swap_at: operand,
            }
            .under(rkey)
            .conditional(),
        ]
    };
    vec![install(scratch(0)), install(768), vec![read(Target::At(64)).under(rkey)]]
}

#[test]
fn a_chain_costs_one_round_trip_and_scratch_saves_a_read() {
    for (name, memory) in [("connectx5", Side::Host), ("liquidio3", Side::Host)] {
        let profile = Profile::load(name).unwrap();
        let [in_scratch, in_host, one_read] = spans(&profile, memory, installs);
        assert!(in_scratch < one_read + one_read, "{name}: {in_scratch} {one_read}");
        let read = match name {
            "connectx5" => profile.verbs.read_latency.value,
            _ => profile.dma.read_latency.value,
        };
        assert!(in_host.since(in_scratch) >= read.to_nanos_up(), "{name}: {in_scratch} {in_host}");
    }
}

/// One WRITE, and the same three times in a chain.
fn repeats(rkey: RKey) -> Chains {
    let write = Primitive::Write { to: Target::At(1_024), data: Data::Inline(&[7; 64]) };
    vec![vec![write.under(rkey)], vec![write.under(rkey); 3]]
}

#[test]
fn each_operation_of_a_chain_costs_its_requester_and_its_executor() {
    let mut profile = Profile::load("connectx5").unwrap();
    let extra = Picos(5_000_000);
    let [one, three] = spans(&profile, Side::Host, repeats);
    profile.verbs.post.value += extra;
    let [dear, three_dear] = spans(&profile, Side::Host, repeats);
    assert!(near(dear.since(one), extra), "{one} {dear}");
    assert!(near(three_dear.since(three), extra * 3), "{three} {three_dear}");

    let mut profile = Profile::load("liquidio3").unwrap();
    profile.cores.nic_slowdown_permille.value = 1_000;
    let [one, three] = spans(&profile, Side::Nic, repeats);
    profile.work.chain_operation.value += extra;
    let [dear, three_dear] = spans(&profile, Side::Nic, repeats);
    assert!(near(dear.since(one), extra), "{one} {dear}");
    assert!(near(three_dear.since(three), extra * 3), "{three} {three_dear}");
}
