//! Numbering, placement and sets.

use std::collections::BTreeSet;

use super::*;
use crate::ids::{Epoch, TableId};
use crate::rng::{Purpose, Stream};

fn spec(role: Role, host_engines: usize, nic_engines: usize) -> NodeSpec {
    NodeSpec { role, host_engines, nic_engines }
}

#[test]
fn backups_and_backed_up_by_agree() {
    let view = View::new(5, 3, 1, 2).unwrap();
    for shard in (0..5).map(ShardId) {
        assert_eq!(view.primary(shard), NodeId(shard.0));
        for (step, node) in view.backups(shard).enumerate() {
            assert_eq!(node, NodeId((shard.0 + step as u16 + 1) % 5), "the nodes that follow");
            assert!(view.backed_up_by(node).any(|backed_up| backed_up == shard));
        }
        assert_eq!(view.led_by(NodeId(shard.0)).collect::<Vec<_>>(), [shard]);
    }
    // The first backup of the shard before, then the second of the one before that.
    assert_eq!(view.backed_up_by(NodeId(1)).collect::<Vec<_>>(), [ShardId(0), ShardId(4)]);
}

#[test]
fn a_view_tells_since_when_a_node_has_been_a_member() {
    let first = View::new(3, 2, 1, 1).unwrap();
    let node = NodeId(1);
    let next = Incarnation::FIRST.next();
    let down = first.with_side(node, Side::Nic, SideState { up: false, incarnation: next });
    let other = down.with_side(NodeId(2), Side::Host, SideState { up: true, incarnation: next });
    let back = other.with_side(node, Side::Nic, SideState { up: true, incarnation: next });
    let same = back.with_side(node, Side::Nic, SideState { up: true, incarnation: next });
    let joined = |view: &View| [0, 1, 2].map(|node| view.joined(NodeId(node)));
    let [once, third, fourth] = [Epoch::FIRST, other.epoch(), back.epoch()];
    assert_eq!(joined(&down), [once; 3], "who leaves joins nothing");
    assert_eq!(joined(&back), [once, fourth, third]);
    assert_eq!(joined(&same), joined(&back), "nothing has changed");
}

#[test]
fn engines_are_numbered_node_by_node_with_hosts_first() {
    let mixed = [
        spec(Role::Server, 2, 3),
        spec(Role::Client, 4, 1),
        spec(Role::Client, 1, 1),
        spec(Role::Server, 1, 2),
    ];
    let large = View::new(700, 3, 2, 1).unwrap();
    for view in [View::new(5, 3, 1, 2).unwrap(), View::of(&mixed, 2).unwrap(), large] {
        for (index, engine) in view.engine_ids().enumerate() {
            assert_eq!(view.index_of(engine), Some(index));
            assert_eq!(EngineId::unpack(engine.pack()), Some(engine));
        }
        assert_eq!(view.engine_ids().count(), view.engine_count());
        let hosts = view.engine_ids().filter(|engine| engine.side == Side::Host);
        for (index, engine) in hosts.enumerate() {
            assert_eq!(view.host_index_of(engine), Some(index));
        }
        for node in view.node_ids() {
            let past = view.engines(node, Side::Host) as u8;
            assert_eq!(view.index_of(EngineId::host(node, past)), None);
            let past = view.engines(node, Side::Nic) as u8;
            assert_eq!(view.index_of(EngineId::nic(node, past)), None);
        }
        let past = NodeId(view.nodes() as u16);
        assert_eq!(view.index_of(EngineId::host(past, 0)), None);
    }
}

#[test]
fn only_servers_hold_shards() {
    let nodes = [spec(Role::Client, 1, 1), spec(Role::Server, 1, 1), spec(Role::Server, 1, 1)];
    let view = View::of(&nodes, 2).unwrap();
    assert_eq!(view.shards(), 2);
    assert_eq!(view.replicas_of(ShardId(0)), [NodeId(1), NodeId(2)]);
    assert_eq!(view.replicas_of(ShardId(1)), [NodeId(2), NodeId(1)]);
    assert_eq!(view.led_by(NodeId(0)).count() + view.backed_up_by(NodeId(0)).count(), 0);
    let error = View::of(&nodes, 3).unwrap_err();
    assert_eq!(error.to_string(), "3 replicas on 2 nodes: give 1 to 2");
    let on = |nodes: &[u16]| ReplicaSet::new(nodes.iter().copied().map(NodeId));
    let error = view.clone().with_placement(vec![on(&[1]), on(&[2, 0])]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "shard 1: node 0 cannot hold a replica of it: name different servers"
    );
    assert!(view.clone().with_placement(vec![on(&[1, 1])]).is_err());
    let moved = view.with_placement(vec![on(&[2]), on(&[2, 1]), on(&[2])]).unwrap();
    assert_eq!(moved.led_by(NodeId(2)).map(|shard| shard.0).collect::<Vec<_>>(), [0, 1, 2]);
    assert_eq!(moved.backed_up_by(NodeId(1)).collect::<Vec<_>>(), [ShardId(1)]);
}

#[test]
fn a_later_view_keeps_the_engines_numbers_and_the_placement() {
    let first = View::new(3, 2, 1, 2).unwrap();
    let fenced = SideState { up: false, incarnation: Incarnation::FIRST };
    let second = first.with_side(NodeId(1), Side::Nic, fenced);
    assert!(second.epoch() > first.epoch());
    assert!(second.side(NodeId(1), Side::Host).up && !second.side(NodeId(1), Side::Nic).up);
    assert!(first.side(NodeId(1), Side::Nic).up, "a view never changes");
    assert!(first.engine_ids().eq(second.engine_ids()));
    assert_eq!(second.primary(ShardId(1)), NodeId(1));
    assert!(!second.side(NodeId(3), Side::Host).up, "a node that is not there is down");
}

#[test]
fn a_backup_succeeds_a_primary_that_has_lost_its_data() {
    let first = View::new(4, 3, 1, 1).unwrap().with_succession(Succession::Backups);
    let down = SideState { up: false, incarnation: Incarnation(2) };
    let second = first.with_side(NodeId(1), Side::Nic, down);
    let of = |view: &View, shard| view.replicas_of(ShardId(shard)).to_vec();
    assert_eq!(of(&second, 1), [2, 3].map(NodeId));
    assert_eq!(of(&second, 0), [0, 2].map(NodeId), "a lost backup is none any more");
    assert_eq!(of(&second, 2), [2, 3, 0].map(NodeId));
    assert_eq!([0, 1].map(|shard| second.led_since(ShardId(shard))), [Epoch(1), Epoch(2)]);
    assert_eq!(second.led_by(NodeId(2)).collect::<Vec<_>>(), [1, 2].map(ShardId));
    // Its next life has no data.
    let back = SideState { up: true, incarnation: Incarnation(2) };
    let third = second.with_side(NodeId(1), Side::Nic, back);
    assert_eq!(of(&third, 1), of(&second, 1));
    assert_eq!(third.led_since(ShardId(1)), second.epoch());
    // The last that has the data stays: who comes later has none.
    let fourth = third.with_sides(&[2, 3].map(|node| (NodeId(node), Side::Host, down)));
    assert_eq!(of(&fourth, 1), of(&third, 1));
    assert_eq!(fourth.led_since(ShardId(1)), fourth.epoch());
    assert_eq!(of(&fourth, 2), [0].map(NodeId));
    // Without a successor the placement stays, and tells the loss all the same.
    let frozen = first.with_succession(Succession::Nobody).with_side(NodeId(1), Side::Nic, down);
    assert_eq!(of(&frozen, 1), [1, 2, 3].map(NodeId));
    assert_eq!(frozen.led_since(ShardId(1)), frozen.epoch());
}

#[test]
fn every_nic_engine_gets_its_share_of_the_host_engines_work() {
    const TURNS: u64 = 120;
    for (hosts, nics) in [(1, 1), (32, 24), (3, 8), (8, 3), (1, 5), (4, 8)] {
        let nodes = [spec(Role::Server, 7, 5), spec(Role::Server, hosts, nics)];
        let view = View::of(&nodes, 2).unwrap();
        let node = NodeId(1);
        let mut used = vec![0; nics];
        for core in 0..hosts {
            let host = EngineId::host(node, core as u8);
            for turn in 0..TURNS {
                let nic = view.nic_for(host, turn);
                assert_eq!((nic.node, nic.side), (node, Side::Nic));
                assert!(turn > 0 || nic == view.nic_of(node, host.core));
                used[usize::from(nic.core)] += 1;
            }
        }
        let (least, most) = (used.iter().min().unwrap(), used.iter().max().unwrap());
        let uneven = if nics % (hosts % nics).max(1) == 0 { 0 } else { TURNS };
        assert!(*least > 0, "{hosts} hosts, {nics} NICs: {used:?}");
        assert!(most - least <= uneven, "{hosts} hosts, {nics} NICs: {used:?}");
    }
}

#[test]
fn a_partitioned_key_lives_where_it_says() {
    let view = View::new(5, 3, 1, 2).unwrap().with_hash_seed(7);
    for partition in [0, 1, 4, 5, 999, u16::MAX] {
        for (table, row) in [(0x80, 0), (0x80, (1 << 40) - 1), (0xff, 12_345)] {
            let key = Key::partitioned(TableId(table), partition, row);
            assert_eq!(key.partition(), Some(partition));
            assert_eq!(key.table(), TableId(table));
            assert_eq!(view.shard_of(key), ShardId(partition % 5));
        }
    }
    let hashed: BTreeSet<_> =
        (0..100).map(|row| view.shard_of(Key::new(TableId(0x7f), row))).collect();
    assert_eq!(hashed.len(), 5, "other tables spread over every shard");
}

#[test]
fn impossible_views_name_the_number() {
    assert_eq!(View::new(0, 1, 1, 1), Err(ViewError::Nodes(0)));
    assert_eq!(View::new(NODES_MAX + 1, 1, 1, 1), Err(ViewError::Nodes(NODES_MAX + 1)));
    assert_eq!(View::new(1, 1, 0, 1), Err(ViewError::Engines(0)));
    assert_eq!(View::new(1, 1, 1, 256), Err(ViewError::Engines(256)));
    let error = View::new(3, 4, 1, 1).unwrap_err();
    assert_eq!(error.to_string(), "4 replicas on 3 nodes: give 1 to 3");
}

#[test]
fn a_set_holds_any_number_of_nodes() {
    let mut random = Stream::new(1, Purpose::Workload, 0);
    let mut set = NodeSet::new();
    let mut model = BTreeSet::new();
    for _ in 0..4_000 {
        let node = NodeId(random.below(300) as u16);
        if random.bits() & 1 == 0 {
            assert_eq!(set.insert(node), model.insert(node));
        } else {
            assert_eq!(set.remove(node), model.remove(&node));
        }
        assert_eq!(set.contains(node), model.contains(&node));
        assert_eq!((set.len(), set.is_empty()), (model.len(), model.is_empty()));
        assert_eq!(set, model.iter().copied().collect());
    }
    assert!(set.iter().eq(model.iter().copied()));
    assert!(NodeSet::of_words([5, 0, 1, 0]).iter().eq([0, 2, 128].map(NodeId)));
    assert_eq!(NodeSet::of_words([5, 0, 1, 0]), NodeSet::of_words([5, 0, 1]));
}

#[test]
fn engines_of_other_nodes_are_spread_over_those_that_work_for_them() {
    let nodes = [vec![spec(Role::Server, 2, 16)], vec![spec(Role::Client, 16, 1); 11]].concat();
    let view = View::of(&nodes, 1).unwrap();
    let peer = |node, core| view.peer_of(EngineId::host(NodeId(node), core), NodeId(0), 16);
    let of_first: std::collections::BTreeSet<u8> = (1..12).map(|node| peer(node, 0)).collect();
    assert_eq!(of_first.len(), 11, "one client on each of eleven nodes");
    let of_node: std::collections::BTreeSet<u8> = (0..16).map(|core| peer(3, core)).collect();
    assert_eq!(of_node.len(), 16);
    assert_eq!(peer(0, 1), 1, "a node's own engines work with those of their number");
}
