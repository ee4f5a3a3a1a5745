//! What the model of MINOS knows at an instant: one record on every node, and the writes of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use nicol_core::ids::EngineId;

/// Bits of a life in a timestamp, as `minos/timestamp.rs` has it.
const LIFE_BITS: u32 = 12;

/// A timestamp: a version, then the node that chose it, then that node's life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stamp(pub u64);

impl Stamp {
    /// Of a record that nobody has written.
    pub const NONE: Self = Self(0);
    /// Of what is loaded before the start.
    pub const LOADED: Self = Self(1);

    /// The timestamp of `version` by `node` in this life.
    pub fn new(version: u64, node: usize, life: u32) -> Self {
        Self(((version << EngineId::NODE_BITS) | node as u64) << LIFE_BITS | u64::from(life))
    }

    pub fn version(self) -> u64 {
        self.0 >> (EngineId::NODE_BITS + LIFE_BITS)
    }

    pub fn node(self) -> usize {
        (self.0 >> LIFE_BITS) as usize & ((1 << EngineId::NODE_BITS) - 1)
    }

    pub fn life(self) -> u32 {
        self.0 as u32 & ((1 << LIFE_BITS) - 1)
    }
}

/// Where a process stands: the line that it takes next. A number counts the steps of a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum At {
    Line5,
    Line6(u8),
    Line7,
    Line8,
    Line9,
    Line10,
    Line11,
    Line12,
    Line13,
    Line15,
    Line16(u8),
    Line20,
    Line21,
    /// Lines 18 to 22.
    Complete(u8),
    /// A replay before its INVs.
    Replay,
    /// A follower that has taken up an INV.
    Line26,
    Line28(u8),
    Line31,
    Line32,
    Line33,
    Line34,
    Line35,
    Line36,
    /// Lines 39 and 40.
    Line39(u8),
    /// An INV of an update that is here, before it takes the read lock.
    Again,
}

impl At {
    /// Is this a follower's?
    pub const fn is_followers(self) -> bool {
        matches!(
            self,
            Self::Line26
                | Self::Line28(_)
                | Self::Line31
                | Self::Line32
                | Self::Line33
                | Self::Line34
                | Self::Line35
                | Self::Line36
                | Self::Line39(_)
                | Self::Again
        )
    }

    /// Where a write goes that is found to be current.
    pub const fn behind_current(self) -> Self {
        match self {
            Self::Line5 => Self::Line8,
            Self::Line10 => Self::Line11,
            Self::Line26 => Self::Line31,
            _ => Self::Line34,
        }
    }

    /// Where one goes that is found to be obsolete.
    pub const fn behind_obsolete(self, offload: bool) -> Self {
        match self {
            Self::Line5 => Self::Line6(0),
            Self::Line10 if offload => Self::Line16(0),
            Self::Line10 => Self::Line15,
            Self::Line26 => Self::Line28(0),
            _ => Self::Line36,
        }
    }

    /// Where one goes that has tried to snatch the read lock.
    pub const fn behind_snatch(self, offload: bool) -> Self {
        match self {
            Self::Line8 if offload => Self::Line10,
            Self::Line8 => Self::Line9,
            Self::Again => Self::Line39(0),
            _ if offload => Self::Line34,
            _ => Self::Line32,
        }
    }

    /// Where one goes that has given the write lock back.
    pub const fn behind_unlock(self) -> Self {
        match self {
            Self::Line13 => Self::Complete(0),
            Self::Line15 => Self::Line16(0),
            Self::Line35 => Self::Line39(0),
            _ => Self::Line28(0),
        }
    }
}

/// A write at one node: of its coordinator, or of who replays it; or an INV at a follower.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Process {
    pub node: usize,
    pub at: At,
    /// The view in which INVs were sent, or in which the INV was.
    pub view: u32,
    /// Who has sent the INV.
    pub from: usize,
    /// The volatileTS that made the write obsolete.
    pub target: Stamp,
}

/// An ACK on its way, or there: messages stay, so that they arrive whenever their receiver looks,
/// in any order and any number of times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ack {
    pub from: usize,
    pub to: usize,
    pub view: u32,
    /// Does it vouch for durable memory? Else for the volatile one.
    pub durable: bool,
}

/// A VAL, VAL_C or VAL_P.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Val {
    pub from: usize,
    /// Is it a VAL_P?
    pub durable: bool,
}

/// A write: what is under way for it, and its messages. Lists are sorted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Write {
    pub processes: Vec<Process>,
    /// INVs: from whom, in which view.
    pub invs: Vec<(usize, u32)>,
    pub acks: Vec<Ack>,
    pub vals: Vec<Val>,
    /// The nodes in whose vFIFO it is.
    pub queued: Vec<usize>,
    /// The nodes that persist it outside of the critical path.
    pub persisting: Vec<usize>,
    /// INVs that were taken up: by whom, from whom, in which view, and how often. Counted where
    /// duplicates are.
    pub received: Vec<(usize, usize, u32, u8)>,
    pub has_returned: bool,
    /// Had it returned when the \[PERSIST\]sc of its scope began? Else that promises nothing of it:
    /// its client did not wait for it.
    pub in_scope: bool,
    /// The nodes that have found it durable for the end of its scope.
    pub scope_acks: Vec<usize>,
    pub scope_has_ended: bool,
}

/// Adds to a sorted list what is not in it.
pub fn insert<T: Ord>(list: &mut Vec<T>, what: T) {
    if let Err(place) = list.binary_search(&what) {
        list.insert(place, what);
    }
}

/// Takes something out of a list once; false if it is not there.
pub fn remove<T: PartialEq>(list: &mut Vec<T>, what: &T) -> bool {
    let place = list.iter().position(|other| other == what);
    place.map(|place| list.remove(place)).is_some()
}

/// A node: its record, and what it knows.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Node {
    pub life: u32,
    pub is_up: bool,
    pub serves: bool,
    /// Has its host crashed, so that only its NIC goes on?
    pub is_hostless: bool,
    /// By engine: the view that it is known to know.
    pub views: Vec<(u8, u32)>,
    /// RDLock_Owner; [`Stamp::NONE`] if it is free.
    pub rd_lock: Stamp,
    /// Who has the WRLock.
    pub wr_lock: Option<Stamp>,
    pub volatile_ts: Stamp,
    pub glb_volatile_ts: Stamp,
    pub glb_durable_ts: Stamp,
    /// The newest update in the log of the node, in truth.
    pub durable: Stamp,
    /// The timestamp of the value.
    pub value_ts: Stamp,
    /// The last version that it has issued.
    pub issued: u64,
}

impl Node {
    fn loaded(life: u32) -> Self {
        let loaded = Stamp::LOADED;
        Self {
            life,
            is_up: true,
            serves: true,
            is_hostless: false,
            views: Vec::new(),
            rd_lock: Stamp::NONE,
            wr_lock: None,
            volatile_ts: loaded,
            glb_volatile_ts: loaded,
            glb_durable_ts: loaded,
            durable: loaded,
            value_ts: loaded,
            issued: 0,
        }
    }
}

/// By view: the life of each node that is a member, else 0.
pub type Views = BTreeMap<u32, Vec<u32>>;

/// A state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    pub nodes: Vec<Node>,
    pub writes: BTreeMap<Stamp, Arc<Write>>,
    pub views: Arc<Views>,
    /// The newest view that an engine knows.
    pub newest: u32,
    /// What a client-read may no longer miss: the newest write that has returned or was read.
    pub floor: Stamp,
    /// What must be durable: the newest of which the model has promised that.
    pub promised: Stamp,
    /// Writes of an exploration that have begun.
    pub begun: usize,
}

impl State {
    /// A record that is loaded, or of which nobody has heard, on all members of the first view.
    pub fn first(views: Views, is_loaded: bool) -> Self {
        let (first, lives) = views.first_key_value().expect("there is a view");
        let (first, lives) = (*first, lives.clone());
        let mut nodes: Vec<Node> = lives.into_iter().map(Node::loaded).collect();
        if !is_loaded {
            for node in &mut nodes {
                for ts in [
                    &mut node.volatile_ts,
                    &mut node.glb_volatile_ts,
                    &mut node.glb_durable_ts,
                    &mut node.durable,
                    &mut node.value_ts,
                ] {
                    *ts = Stamp::NONE;
                }
            }
        }
        Self {
            nodes,
            writes: BTreeMap::new(),
            views: Arc::new(views),
            newest: first,
            floor: Stamp::NONE,
            promised: Stamp::NONE,
            begun: 0,
        }
    }

    /// The view that an engine is known to know.
    pub fn view_of(&self, node: usize, engine: u8) -> u32 {
        let known = self.nodes[node].views.iter().find(|(other, _)| *other == engine);
        known.map_or_else(|| *self.views.keys().next().unwrap_or(&0), |(_, view)| *view)
    }

    /// An engine knows `view`, or a later one.
    pub fn learn(&mut self, node: usize, engine: u8, view: u32) {
        let known = self.view_of(node, engine).max(view);
        let views = &mut self.nodes[node].views;
        views.retain(|(other, _)| *other != engine);
        insert(views, (engine, known));
    }

    /// The other members of a view.
    pub fn followers(&self, view: u32, node: usize) -> impl Iterator<Item = usize> + '_ {
        let lives = self.views.get(&view).into_iter().flatten().enumerate();
        lives.filter(move |(other, life)| **life > 0 && *other != node).map(|(other, _)| other)
    }

    /// Is `node` in its life a member of the newest view?
    pub fn is_member(&self, node: usize) -> bool {
        let lives = self.views.get(&self.newest);
        lives.is_some_and(|lives| lives[node] == self.nodes[node].life)
    }

    /// The nodes that answer clients.
    pub fn serving(&self) -> impl Iterator<Item = usize> + '_ {
        let serves = |node: &usize| {
            let Node { is_up, serves, .. } = self.nodes[*node];
            is_up && serves && self.is_member(*node)
        };
        (0..self.nodes.len()).filter(serves)
    }

    /// Is the life that issued `ts` no member of `view`?
    pub fn is_orphan(&self, ts: Stamp, view: u32) -> bool {
        ts.version() > 0 && self.views.get(&view).is_some_and(|lives| lives[ts.node()] != ts.life())
    }
}
