//! The steps that a traced run tells of: the lines of figures 2, 3 and 8, what clients and persist
//! devices do, and what happens to a record around a crash. A program that follows them knows the
//! record.

use nicol_core::fabric::Fabric;
use nicol_core::ids::{Epoch, Key, NodeId, Side};
use nicol_core::trace;
use nicol_core::view::SideState;

use super::messages::Inv;
use super::model::{Memory, Step};
use super::node::Node;
use super::received::Received;
use super::record::Record;
use super::timestamp::Timestamp;
use super::views::Views;

/// The key of a step that is about every record of a node.
pub const EVERY_KEY: Key = Key(u64::MAX);

/// A step, as traces name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tag {
    /// Line 4: a client-write gets its timestamp.
    Issues,
    /// Lines 5, 10, 27, 33: the write is not obsolete.
    Current,
    /// The same lines: it is.
    Obsolete,
    /// Lines 8, 31: Snatch RDLock.
    Snatches,
    /// Lines 9, 32: it has the WRLock.
    Locks,
    /// Line 11: INVs to all members of a view, whose ACKs are waited for from here.
    Invites,
    /// Lines 12, 34 of figure 2: the update of volatile memory.
    Updates,
    /// Lines 13, 15, 35, 36: it gives the WRLock back.
    Unlocks,
    /// Lines 12, 34 of figure 8: the update is in the vFIFO.
    Enqueues,
    /// An update has left the vFIFO.
    Drains,
    /// Line 26: a follower takes up the INV of a node, in a view.
    Receives,
    /// A follower finds that it has had the update of an INV that was sent again.
    HadAlready,
    /// Line 26 of figure 8: an INV is rejected for want of resources.
    Rejects,
    /// A step that figure 2 marks and the model fills in.
    Marked(Step),
    /// An ACK that is not sent: there is another view.
    Withholds(Memory),
    /// An update is in the log of its node, or in the dFIFO.
    IsDurable,
    /// A client-read returns the value of this timestamp.
    Reads,
    /// The \[PERSIST\]sc of an update's scope begins.
    EndsScope,
    /// An update of a scope is found to be durable at a node that was asked for that.
    ScopeIsDurable,
    /// The \[PERSIST\]sc of an update's scope returns.
    ScopeReturns,
    /// A node is a member of a view, in the life that the timestamp stands for.
    IsMember,
    /// An engine knows a view, whose members it has told.
    Learns,
    /// A node holds a write whose coordinator is dead, and replays it.
    Replays,
    /// A node begins a life: its records are told one by one.
    Restarts,
    /// The node serves again.
    Serves,
    /// The state of a record after a recovery, in this order: first the read lock.
    RdLock,
    VolatileTs,
    GlobalVolatileTs,
    GlobalDurableTs,
    /// The newest update in the log.
    DurableTs,
    /// The timestamp of the value: the last of a record.
    ValueTs,
}

impl Tag {
    /// All but the marked steps.
    const PLAIN: [Self; 28] = [
        Self::Issues,
        Self::Current,
        Self::Obsolete,
        Self::Snatches,
        Self::Locks,
        Self::Invites,
        Self::Updates,
        Self::Unlocks,
        Self::Enqueues,
        Self::Drains,
        Self::Receives,
        Self::HadAlready,
        Self::Rejects,
        Self::IsDurable,
        Self::Reads,
        Self::EndsScope,
        Self::ScopeIsDurable,
        Self::ScopeReturns,
        Self::IsMember,
        Self::Learns,
        Self::Replays,
        Self::Restarts,
        Self::Serves,
        Self::RdLock,
        Self::VolatileTs,
        Self::GlobalVolatileTs,
        Self::GlobalDurableTs,
        Self::DurableTs,
    ];

    /// Its name in a trace.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Issues => "line 4: TS_WR",
            Self::Current => "lines 5, 10, 27, 33: current",
            Self::Obsolete => "lines 5, 10, 27, 33: obsolete",
            Self::Snatches => "lines 8, 31: Snatch RDLock",
            Self::Locks => "lines 9, 32: WRLock",
            Self::Invites => "line 11: INV",
            Self::Updates => "lines 12, 34: update",
            Self::Unlocks => "lines 13, 15, 35, 36: release WRLock",
            Self::Enqueues => "lines 12, 34: enqueue in vFIFO",
            Self::Drains => "drain vFIFO",
            Self::Receives => "line 26: INV taken up",
            Self::HadAlready => "line 26: INV of an update that is here",
            Self::Rejects => "line 26: INV rejected",
            Self::Marked(step) => step.name(),
            Self::Withholds(_) => "line 40: ACK withheld",
            Self::IsDurable => "durable",
            Self::Reads => "client-read",
            Self::EndsScope => "[PERSIST]sc",
            Self::ScopeIsDurable => "[ACK_P]sc",
            Self::ScopeReturns => "[PERSIST]sc returns",
            Self::IsMember => "member of a view",
            Self::Learns => "view",
            Self::Replays => "replay",
            Self::Restarts => "restart",
            Self::Serves => "serves again",
            Self::RdLock => "recovered RDLock_Owner",
            Self::VolatileTs => "recovered volatileTS",
            Self::GlobalVolatileTs => "recovered glb_volatileTS",
            Self::GlobalDurableTs => "recovered glb_durableTS",
            Self::DurableTs => "recovered log",
            Self::ValueTs => "recovered value",
        }
    }

    /// The step of this name. Of ACKs that are withheld the name does not tell which.
    pub fn of_name(name: &str) -> Option<Self> {
        let plain = Self::PLAIN.into_iter().chain([Self::ValueTs, Self::Withholds(Memory::Both)]);
        let marked = Step::all().map(Self::Marked);
        plain.chain(marked).find(|tag| tag.name() == name)
    }
}

/// Records `tag`, which the write at `ts` has taken at an engine.
fn mark_in<F: Fabric>(fabric: &F, tag: Tag, key: Key, ts: Timestamp, view: Epoch, peer: NodeId) {
    fabric.step(|| trace::Step { name: tag.name(), key, stamp: ts.told(), view, peer });
}

/// The write of `key` at `ts` has taken a step here.
pub(super) fn mark<F: Fabric>(fabric: &F, tag: Tag, key: Key, ts: Timestamp) {
    mark_in(fabric, tag, key, ts, Epoch(0), fabric.here().node);
}

/// It has invited followers, in this view.
pub(super) fn mark_invitation<F: Fabric>(fabric: &F, inv: &Inv<'_>) {
    let here = fabric.here().node;
    mark_in(fabric, Tag::Invites, inv.key, inv.ts, Epoch(inv.epoch as u32), here);
}

/// Marks the fate of an INV that was received.
pub(super) fn mark_received<F: Fabric>(fabric: &F, tag: Tag, received: &Received) {
    let Inv { key, ts, epoch, .. } = received.inv;
    mark_in(fabric, tag, key, ts, Epoch(epoch as u32), received.from.node);
}

/// This engine knows its view: tells of the members first.
pub(super) fn mark_view<F: Fabric>(fabric: &F, views: &Views<F>) {
    if !fabric.records_steps() {
        return;
    }
    let view = fabric.view();
    for node in view.node_ids().filter(|node| views.is_member(*node)) {
        let SideState { incarnation, .. } = view.side(node, Side::Host);
        let life = Timestamp::new(0, node, incarnation);
        mark_in(fabric, Tag::IsMember, EVERY_KEY, life, view.epoch(), node);
    }
    let here = fabric.here().node;
    mark_in(fabric, Tag::Learns, EVERY_KEY, Timestamp::NONE, view.epoch(), here);
}

/// A node has begun a life with these records.
pub(super) fn mark_restart<F: Fabric>(fabric: &F, node: &Node) {
    if !fabric.records_steps() {
        return;
    }
    let life = Timestamp::new(0, node.id, fabric.incarnation());
    mark_in(fabric, Tag::Restarts, EVERY_KEY, life, Epoch(0), node.id);
    node.store().keys(|_| true).into_iter().for_each(|key| mark_record(fabric, node, key));
}

/// Marks the state of a record after a recovery.
pub(super) fn mark_record<F: Fabric>(fabric: &F, node: &Node, key: Key) {
    if !fabric.records_steps() {
        return;
    }
    let stamps = node.store().look(key, |record: &Record| {
        [
            (Tag::RdLock, record.rd_lock.unwrap_or(Timestamp::NONE)),
            (Tag::VolatileTs, record.volatile_ts),
            (Tag::GlobalVolatileTs, record.glb_volatile_ts),
            (Tag::GlobalDurableTs, record.glb_durable_ts),
            (Tag::DurableTs, record.durable_ts),
            (Tag::ValueTs, record.value_ts),
        ]
    });
    stamps.into_iter().for_each(|(tag, ts)| mark_in(fabric, tag, key, ts, Epoch(0), node.id));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_known_by_its_name() {
        let marked = Step::all().map(Tag::Marked);
        let all = Tag::PLAIN.into_iter().chain([Tag::ValueTs]).chain(marked);
        let mut names = std::collections::BTreeSet::new();
        for tag in all {
            assert_eq!(Tag::of_name(tag.name()), Some(tag));
            assert!(names.insert(tag.name()), "{tag:?}");
        }
        assert_eq!(Tag::of_name("line 45"), None);
    }
}
