//! What must hold in every state: Table I in the form of AMB-17, and what each model promises.

use nicol_core::history::Persistency;
use nicol_minos::{Await, Step};

use crate::rules::Protocol;
use crate::state::{At, Node, Stamp, State};

/// A condition, by its name.
pub type Property = (&'static str, fn(&Protocol, &State) -> bool);

/// Those that hold on the nodes that serve, also while others come back.
pub const SAFETY: [Property; 5] = [
    ("reads are linearizable", reads_are_linearizable),
    ("2b*, 2c*: glb_volatileTS is everywhere", global_volatile_is_everywhere),
    ("3b*: glb_durableTS is durable everywhere", global_durable_is_everywhere),
    ("what is promised is durable", promises_are_kept),
    ("what has returned is everywhere", returned_is_everywhere),
];

/// Those of Table I besides.
pub const TABLE: [Property; 4] = [
    ("2a: unlocked records agree", unlocked_records_agree),
    ("2b*: whoever has all ACKs is not ahead of anybody", acknowledged_is_everywhere),
    ("3a: durable timestamps agree", durable_timestamps_agree),
    ("4b: locks and timestamps are legal", metadata_is_legal),
];

fn served(state: &State) -> impl Iterator<Item = &Node> + '_ {
    state.serving().map(|node| &state.nodes[node])
}

/// The first of these that does not hold.
pub fn broken(protocol: &Protocol, state: &State, all: &[Property]) -> Option<&'static str> {
    all.iter().find(|(_, holds)| !holds(protocol, state)).map(|(name, _)| *name)
}

/// A replica that may be read has what has returned or was read, and no other lacks what it has.
fn reads_are_linearizable(_: &Protocol, state: &State) -> bool {
    let readable = served(state).filter(|node| node.rd_lock == Stamp::NONE);
    readable.into_iter().all(|node| {
        node.value_ts >= state.floor
            && node.value_ts == node.volatile_ts
            && served(state).all(|other| other.volatile_ts >= node.value_ts)
    })
}

fn global_volatile_is_everywhere(_: &Protocol, state: &State) -> bool {
    served(state).all(|node| served(state).all(|other| node.glb_volatile_ts <= other.volatile_ts))
}

fn global_durable_is_everywhere(_: &Protocol, state: &State) -> bool {
    served(state).all(|node| served(state).all(|other| node.glb_durable_ts <= other.durable))
}

fn promises_are_kept(_: &Protocol, state: &State) -> bool {
    served(state).all(|node| node.durable >= state.promised)
}

fn returned_is_everywhere(_: &Protocol, state: &State) -> bool {
    served(state).all(|node| node.volatile_ts >= state.floor)
}

fn unlocked_records_agree(_: &Protocol, state: &State) -> bool {
    let times = |node: &Node| (node.volatile_ts, node.glb_volatile_ts);
    agree_if_unlocked(state, times)
}

/// Strict releases the read lock before VAL_P: there the timestamps agree in the end.
fn durable_timestamps_agree(protocol: &Protocol, state: &State) -> bool {
    let reads_wait = matches!(protocol.model, Persistency::Synch | Persistency::Renf);
    !reads_wait || agree_if_unlocked(state, |node| (node.glb_durable_ts, Stamp::NONE))
}

fn agree_if_unlocked(state: &State, times: fn(&Node) -> (Stamp, Stamp)) -> bool {
    let mut all = served(state).map(times);
    let first = all.next();
    served(state).any(|node| node.rd_lock != Stamp::NONE) || all.all(|next| Some(next) == first)
}

fn acknowledged_is_everywhere(protocol: &Protocol, state: &State) -> bool {
    let spins = protocol.completion().position(|step| step == Step::Await(Await::Consistent));
    state.writes.iter().all(|(ts, write)| {
        write.processes.iter().all(|process| match process.at {
            At::Complete(at) if Some(usize::from(at)) > spins => {
                served(state).all(|node| node.volatile_ts >= *ts)
            }
            _ => true,
        })
    })
}

fn metadata_is_legal(protocol: &Protocol, state: &State) -> bool {
    served(state).all(|node| {
        let is_known = |ts: Stamp| ts.version() == 0 || state.writes.contains_key(&ts);
        let times = [
            node.rd_lock,
            node.volatile_ts,
            node.glb_volatile_ts,
            node.glb_durable_ts,
            node.value_ts,
        ];
        let no_wr_lock = !protocol.offload || node.wr_lock.is_none();
        times.into_iter().all(is_known) && no_wr_lock && node.value_ts <= node.volatile_ts
    })
}
