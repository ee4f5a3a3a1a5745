//! The model's transitions: what each step of figures 2, 3 and 8 needs, and what it does. What
//! differs between the persistency models is the shipped table (`Steps::of`).
//!
//! It is `tla/Minos.tla` with views, crashes, replays and nodes that come back. What a recovery
//! makes of a record is not modelled but taken from the trace, and held to what a recovery must
//! achieve: it forgets nothing that is durable, never goes back, and a node serves only what
//! `broken` allows.

use std::sync::Arc;

use nicol_core::history::Persistency;
use nicol_minos::Validation::{self, RaiseGlobalDurable, RaiseGlobalVolatile, ReleaseRdLock};
use nicol_minos::{Await, Memory, Spin, Step, Steps, Tag};

use crate::state::{Ack, At, Process, Stamp, State, Val, Write, insert, remove};

/// What is modelled.
#[derive(Clone, Copy, Debug)]
pub struct Protocol {
    pub model: Persistency,
    pub offload: bool,
    /// How often each INV may arrive; `None`: it is not counted.
    pub arrivals: Option<u8>,
    /// How many engines of a node may replay a write, each once at a time.
    pub replayers: usize,
    pub steps: &'static Steps,
}

/// A step, as a trace tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label {
    pub node: usize,
    pub engine: u8,
    pub tag: Tag,
    pub ts: Stamp,
    pub view: u32,
    pub peer: usize,
    /// What a recovery has made of the record: RDLock_Owner, volatileTS, glb_volatileTS,
    /// glb_durableTS, the newest in the log, and the value's.
    pub record: [Stamp; 6],
    /// Is it a NIC's whose host has crashed, or may just have? The records were the host's memory.
    pub hostless: bool,
}

/// Who takes a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Actor {
    /// A process of the write, by its place.
    Process(usize),
    /// What is no process: VALs, devices, clients, nodes.
    Rule,
}

/// A marked step of a process, if there is one more, what the process is at behind it, and where it
/// goes from the end.
struct Place {
    step: Option<Step>,
    behind: At,
    is_last: bool,
    then: Option<At>,
}

impl Place {
    /// The place `i` of `steps`.
    fn of(
        steps: impl Iterator<Item = impl Into<Step>>,
        i: u8,
        at: fn(u8) -> At,
        then: Option<At>,
    ) -> Self {
        let mut left = steps.skip(usize::from(i)).map(Into::into);
        let step = left.next();
        Self { step, behind: at(i + 1), is_last: step.is_some() && left.next().is_none(), then }
    }
}

impl Protocol {
    pub fn new(model: Persistency, offload: bool) -> Self {
        Self { model, offload, arrivals: None, replayers: 2, steps: Steps::of(model) }
    }

    pub fn completion(&self) -> impl Iterator<Item = Step> {
        self.steps.completion(self.offload)
    }

    /// Who might take the step of `label`: of several, a trace does not tell which.
    pub fn actors(&self, state: &State, label: &Label) -> Vec<Actor> {
        let mut actors = Vec::new();
        if let Some(write) = state.writes.get(&label.ts) {
            for (place, process) in write.processes.iter().enumerate() {
                if process.node == label.node && self.may_take(*process, label) {
                    actors.push(Actor::Process(place));
                }
            }
        }
        let by_rule = match label.tag {
            Tag::Marked(Step::Validate(RaiseGlobalVolatile | RaiseGlobalDurable)) => true,
            Tag::Marked(Step::Validate(ReleaseRdLock)) => true,
            // A host tells its client what its SmartNIC has told it.
            Tag::Marked(Step::Return) => self.offload && actors.is_empty(),
            Tag::Marked(_) | Tag::Withholds(_) => false,
            Tag::Current | Tag::Obsolete | Tag::Snatches | Tag::Locks | Tag::Invites => false,
            Tag::Updates | Tag::Unlocks | Tag::Enqueues | Tag::HadAlready | Tag::Rejects => false,
            _ => true,
        };
        if by_rule {
            actors.push(Actor::Rule);
        }
        actors
    }

    /// Where a process stands in a sequence of marked steps.
    fn place(&self, at: At) -> Option<Place> {
        let spins = || self.steps.obsolete_at_coordinator.iter().map(|spin| Step::Spin(*spin));
        let obsolete = || self.steps.obsolete_at_follower.iter().copied();
        Some(match at {
            At::Line6(i) => Place::of(spins(), i, At::Line6, Some(At::Line7)),
            At::Line16(i) => Place::of(spins(), i, At::Line16, Some(At::Line20)),
            At::Complete(i) => Place::of(self.completion(), i, At::Complete, None),
            At::Line28(i) => Place::of(obsolete(), i, At::Line28, None),
            At::Line39(i) => Place::of(self.steps.follower.iter().copied(), i, At::Line39, None),
            _ => return None,
        })
    }

    /// The marked step that a process takes next.
    pub fn next_marked(&self, at: At) -> Option<Step> {
        match at {
            At::Line7 | At::Line21 => Some(Step::Return),
            At::Line20 => Some(Step::Validate(ReleaseRdLock)),
            at => self.place(at).and_then(|place| place.step),
        }
    }

    /// Is `label` a step that `process` may be at, as far as its place tells?
    fn may_take(&self, process: Process, label: &Label) -> bool {
        let Process { at, from, view, .. } = process;
        match label.tag {
            Tag::Current | Tag::Obsolete => {
                matches!(at, At::Line5 | At::Line10 | At::Line26 | At::Line33)
            }
            Tag::Snatches => matches!(at, At::Line8 | At::Line31 | At::Again),
            Tag::Locks => matches!(at, At::Line9 | At::Line32),
            Tag::Invites => {
                let again = matches!(at, At::Line12 | At::Line13 | At::Complete(_));
                matches!(at, At::Line11 | At::Replay) || again && view < label.view
            }
            Tag::Updates | Tag::Enqueues => matches!(at, At::Line12 | At::Line34),
            Tag::Unlocks => matches!(at, At::Line13 | At::Line15 | At::Line35 | At::Line36),
            Tag::HadAlready | Tag::Rejects => {
                at == At::Line26 && (from, view) == (label.peer, label.view)
            }
            Tag::Withholds(_) => {
                let acks = matches!(self.next_marked(at), Some(Step::SendAck(_)));
                acks && (from, view) == (label.peer, label.view)
            }
            Tag::Marked(step @ Step::SendAck(_)) => {
                let asked = (from, view) == (label.peer, label.view);
                self.next_marked(at) == Some(step) && asked
            }
            Tag::Marked(step) => self.next_marked(at) == Some(step),
            _ => false,
        }
    }

    /// Takes the step of `label`. False, and nothing has happened, if `actor` cannot.
    pub fn take(&self, state: &mut State, label: &Label, actor: Actor) -> bool {
        if !state.nodes[label.node].is_up {
            return false;
        }
        match actor {
            Actor::Rule => self.take_rule(state, label),
            Actor::Process(place) => {
                let Some(process) =
                    state.writes.get(&label.ts).and_then(|write| write.processes.get(place))
                else {
                    return false;
                };
                let process = *process;
                self.may_take(process, label) && self.take_process(state, label, process)
            }
        }
    }

    fn take_process(&self, state: &mut State, label: &Label, process: Process) -> bool {
        let Process { node: n, at, .. } = process;
        let ts = label.ts;
        let mut next = process;
        let node = &mut state.nodes[n];
        next.at = match (label.tag, at) {
            (Tag::Current, _) if ts >= node.volatile_ts => at.behind_current(),
            (Tag::Obsolete, _) if ts < node.volatile_ts => {
                next.target = node.volatile_ts;
                at.behind_obsolete(self.offload)
            }
            (Tag::Snatches, _) => {
                if node.glb_volatile_ts < ts {
                    node.rd_lock = node.rd_lock.max(ts);
                }
                at.behind_snatch(self.offload)
            }
            (Tag::Locks, _) if node.wr_lock.is_none() => {
                node.wr_lock = Some(ts);
                if at == At::Line9 { At::Line10 } else { At::Line33 }
            }
            (Tag::Updates, _) if node.wr_lock == Some(ts) && !self.offload => {
                if node.volatile_ts <= ts {
                    (node.volatile_ts, node.value_ts) = (ts, ts);
                }
                if at == At::Line12 { At::Line13 } else { At::Line35 }
            }
            (Tag::Unlocks, _) if node.wr_lock == Some(ts) => {
                node.wr_lock = None;
                at.behind_unlock()
            }
            (Tag::Enqueues, _) if self.offload => {
                node.volatile_ts = node.volatile_ts.max(ts);
                let write = write_of(state, ts);
                write.queued.push(n);
                write.queued.sort_unstable();
                if at == At::Line12 { At::Complete(0) } else { At::Line39(0) }
            }
            (Tag::HadAlready, _) if node.volatile_ts == ts => At::Again,
            (Tag::Rejects, _) if self.offload => {
                remove(&mut write_of(state, ts).processes, &process);
                return true;
            }
            (Tag::Invites, _) => {
                if !invites(state, label) {
                    return false;
                }
                next.view = label.view;
                match at {
                    At::Line11 => At::Line12,
                    At::Replay => At::Complete(0),
                    at => at,
                }
            }
            (Tag::Marked(_) | Tag::Withholds(_), _) => {
                return self.take_marked(state, label, process);
            }
            _ => return false,
        };
        replace(write_of(state, ts), &process, Some(next))
    }

    /// A marked step of a process, which goes on behind it.
    fn take_marked(&self, state: &mut State, label: &Label, process: Process) -> bool {
        let (ts, n) = (label.ts, process.node);
        let Some(step) = self.next_marked(process.at) else { return false };
        let node = &mut state.nodes[n];
        let goes_on = match step {
            Step::Spin(Spin::Consistency) => node.glb_volatile_ts >= process.target,
            Step::Spin(Spin::Persistency) => node.glb_durable_ts >= process.target,
            Step::Persist => node.durable >= ts,
            Step::Await(Await::OwnPersist) => node.durable >= ts,
            Step::PersistInBackground => {
                let persisting = &mut write_of(state, ts).persisting;
                persisting.push(n);
                persisting.sort_unstable();
                true
            }
            Step::Await(Await::Consistent) => is_acknowledged(state, ts, &process, false),
            Step::Await(Await::Durable) => is_acknowledged(state, ts, &process, true),
            Step::Validate(RaiseGlobalVolatile) => {
                node.glb_volatile_ts = node.glb_volatile_ts.max(ts);
                true
            }
            Step::Validate(RaiseGlobalDurable) => {
                node.glb_durable_ts = node.glb_durable_ts.max(ts);
                true
            }
            Step::Validate(ReleaseRdLock) => release(state, n, ts),
            Step::SendVal(memory) => {
                let durable = memory == Memory::Durable;
                insert(&mut write_of(state, ts).vals, Val { from: n, durable });
                true
            }
            Step::SendAck(memory) => send_ack(state, label, memory),
            Step::Return => {
                self.has_returned(state, ts);
                true
            }
        };
        goes_on && {
            let next = Process { at: self.behind(process.at), ..process };
            let has_ended = process.at != next.at
                && self.next_marked(next.at).is_none()
                && self.place(next.at).is_some();
            let ends = has_ended || matches!(process.at, At::Line7 | At::Line21);
            replace(write_of(state, ts), &process, (!ends).then_some(next))
        }
    }

    /// Where a process goes on behind a marked step.
    fn behind(&self, at: At) -> At {
        match self.place(at) {
            None if at == At::Line20 => At::Line21,
            None => at,
            Some(Place { is_last: true, then: Some(then), .. }) => then,
            Some(place) => place.behind,
        }
    }

    fn has_returned(&self, state: &mut State, ts: Stamp) {
        write_of(state, ts).has_returned = true;
        state.floor = state.floor.max(ts);
        if matches!(self.model, Persistency::Synch | Persistency::Strict) {
            state.promised = state.promised.max(ts);
        }
    }

    /// What is no process.
    fn take_rule(&self, state: &mut State, label: &Label) -> bool {
        let (ts, n) = (label.ts, label.node);
        let is_known = state.writes.contains_key(&ts);
        match label.tag {
            Tag::Issues => issue(state, label),
            Tag::Receives if is_known => self.receive(state, label),
            Tag::Replays if is_known => self.replay(state, label),
            Tag::IsDurable if is_known => {
                remove(&mut write_of(state, ts).persisting, &n);
                state.nodes[n].durable = state.nodes[n].durable.max(ts);
                true
            }
            Tag::Drains if is_known => drain(state, n, ts),
            Tag::Marked(Step::Return) if is_known => state.writes[&ts].has_returned,
            Tag::Marked(Step::Validate(change)) if is_known => self.take_val(state, n, ts, change),
            Tag::Reads => self.read(state, n, ts),
            Tag::EndsScope if is_known => {
                let write = write_of(state, ts);
                write.in_scope = write.has_returned;
                true
            }
            Tag::ScopeIsDurable if is_known && state.nodes[n].durable >= ts => {
                insert(&mut write_of(state, ts).scope_acks, n);
                true
            }
            Tag::ScopeReturns if is_known => {
                let write = write_of(state, ts);
                write.scope_has_ended = true;
                if write.in_scope {
                    state.promised = state.promised.max(ts);
                }
                true
            }
            Tag::IsMember => true,
            Tag::Learns => {
                state.learn(n, label.engine, label.view);
                state.newest = state.newest.max(label.view);
                true
            }
            Tag::Restarts => {
                restart(state, n, ts.life());
                true
            }
            Tag::Serves => {
                state.nodes[n].serves = true;
                holds_what_is_durable(state, n)
            }
            Tag::ValueTs => recover(state, label),
            _ => false,
        }
    }

    /// An INV arrives, in the view in which it was sent.
    fn receive(&self, state: &mut State, label: &Label) -> bool {
        let Label { node: n, ts, view, peer, engine, .. } = *label;
        let was_sent = state.writes[&ts].invs.binary_search(&(peer, view)).is_ok();
        let is_meant = state.followers(view, peer).any(|follower| follower == n);
        if !was_sent || !is_meant || state.view_of(n, engine) > view {
            return false;
        }
        state.learn(n, engine, view);
        let write = write_of(state, ts);
        if let Some(most) = self.arrivals {
            let key = (n, peer, view);
            let count = write.received.iter().find(|other| (other.0, other.1, other.2) == key);
            let count = count.map_or(0, |other| other.3);
            if count >= most {
                return false;
            }
            write.received.retain(|other| (other.0, other.1, other.2) != key);
            insert(&mut write.received, (n, peer, view, count + 1));
        }
        let process = Process { node: n, at: At::Line26, view, from: peer, target: Stamp::NONE };
        write.processes.push(process);
        write.processes.sort_unstable();
        true
    }

    /// A write of a coordinator that is dead in some view, of which this node has the update.
    fn replay(&self, state: &mut State, label: &Label) -> bool {
        let (ts, n) = (label.ts, label.node);
        let is_dead = state.views.keys().any(|view| state.is_orphan(ts, *view));
        let under_way = |process: &&Process| process.node == n && !process.at.is_followers();
        let replays = state.writes[&ts].processes.iter().filter(under_way).count();
        if !is_dead || state.nodes[n].value_ts != ts || replays >= self.replayers {
            return false;
        }
        let write = write_of(state, ts);
        let process = Process { node: n, at: At::Replay, view: 0, from: n, target: Stamp::NONE };
        write.processes.push(process);
        write.processes.sort_unstable();
        true
    }

    /// A step that a VAL, VAL_C or VAL_P has led to, at a node that it was sent to; or the end of
    /// the lock of a dead coordinator's write that a newer one has superseded.
    fn take_val(&self, state: &mut State, n: usize, ts: Stamp, change: Validation) -> bool {
        let vals = &state.writes[&ts].vals;
        let has_come = |durable| vals.iter().any(|val| val.from != n && val.durable == durable);
        let (val, val_p) = (has_come(false), has_come(true));
        let node = &mut state.nodes[n];
        let (on_val, on_val_p) = (self.steps.on_val, self.steps.on_val_p);
        let raised = |steps: &[Validation]| {
            // What was raised is lost with the host.
            let volatile = node.is_hostless || !steps.contains(&RaiseGlobalVolatile);
            let durable = node.is_hostless || !steps.contains(&RaiseGlobalDurable);
            (volatile || node.glb_volatile_ts >= ts) && (durable || node.glb_durable_ts >= ts)
        };
        match change {
            RaiseGlobalVolatile if val && on_val.contains(&change) => {
                node.glb_volatile_ts = node.glb_volatile_ts.max(ts);
                true
            }
            RaiseGlobalDurable
                if val && on_val.contains(&change) || val_p && on_val_p.contains(&change) =>
            {
                node.glb_durable_ts = node.glb_durable_ts.max(ts);
                true
            }
            ReleaseRdLock => {
                let told = val && on_val.contains(&change) && raised(on_val);
                let superseded = node.value_ts > ts && node.glb_volatile_ts >= ts;
                let dead = superseded && state.views.keys().any(|view| state.is_orphan(ts, *view));
                (told || dead) && release(state, n, ts)
            }
            RaiseGlobalVolatile | RaiseGlobalDurable => false,
        }
    }

    /// A client-read: only of a node that serves, of a record that is not locked.
    fn read(&self, state: &mut State, n: usize, ts: Stamp) -> bool {
        let node = &state.nodes[n];
        let is_free = node.rd_lock == Stamp::NONE && node.value_ts == ts;
        let serves = state.serving().any(|other| other == n);
        let may = is_free && serves && ts >= state.floor;
        if may {
            state.floor = ts;
            if matches!(self.model, Persistency::Synch | Persistency::Renf) {
                state.promised = state.promised.max(ts);
            }
        }
        may
    }
}

/// The write at `ts`, which is known.
fn write_of(state: &mut State, ts: Stamp) -> &mut Write {
    Arc::make_mut(state.writes.get_mut(&ts).expect("a process is of a write"))
}

/// Puts `next` in the place of a process, or takes it away.
fn replace(write: &mut Write, process: &Process, next: Option<Process>) -> bool {
    let was_there = remove(&mut write.processes, process);
    write.processes.extend(next);
    write.processes.sort_unstable();
    was_there
}

fn issue(state: &mut State, label: &Label) -> bool {
    let (ts, n) = (label.ts, label.node);
    let node = &mut state.nodes[n];
    let is_own = ts.node() == n && ts.life() == node.life;
    let is_new = ts.version() > node.volatile_ts.version() && !state.writes.contains_key(&ts);
    if !is_own || !is_new {
        return false;
    }
    node.issued = node.issued.max(ts.version());
    let process = Process { node: n, at: At::Line5, view: 0, from: n, target: Stamp::NONE };
    let write = Write { processes: vec![process], ..Write::default() };
    state.writes.insert(ts, Arc::new(write));
    true
}

fn invites(state: &mut State, label: &Label) -> bool {
    let Label { node: n, engine, view, ts, .. } = *label;
    if !state.views.contains_key(&view) || state.view_of(n, engine) > view {
        return false;
    }
    state.learn(n, engine, view);
    insert(&mut write_of(state, ts).invs, (n, view));
    true
}

fn drain(state: &mut State, n: usize, ts: Stamp) -> bool {
    let was_there = remove(&mut write_of(state, ts).queued, &n);
    let node = &mut state.nodes[n];
    if was_there && node.value_ts < ts {
        node.value_ts = ts;
        node.volatile_ts = node.volatile_ts.max(ts);
    }
    was_there
}

/// Has every other member of the view of its INVs acknowledged?
fn is_acknowledged(state: &State, ts: Stamp, process: &Process, durable: bool) -> bool {
    let Process { node: to, view, .. } = *process;
    let acks = &state.writes[&ts].acks;
    let has = |from| acks.binary_search(&Ack { from, to, view, durable }).is_ok();
    state.followers(view, to).all(has)
}

fn send_ack(state: &mut State, label: &Label, memory: Memory) -> bool {
    let Label { node: from, engine, ts, view, peer: to, tag, .. } = *label;
    if matches!(tag, Tag::Withholds(_)) {
        return true;
    }
    if state.view_of(from, engine) != view {
        return false;
    }
    let acks = &mut write_of(state, ts).acks;
    if memory.is_volatile() {
        insert(acks, Ack { from, to, view, durable: false });
    }
    if memory.is_durable() {
        insert(acks, Ack { from, to, view, durable: true });
    }
    true
}

/// Releases the read lock if the write owns it, once its update has left the vFIFO.
fn release(state: &mut State, n: usize, ts: Stamp) -> bool {
    let node = &mut state.nodes[n];
    if node.rd_lock == ts && node.value_ts < ts {
        return false;
    }
    if node.rd_lock == ts {
        node.rd_lock = Stamp::NONE;
    }
    true
}

/// The host of a node has crashed, and with it the records. Its NIC goes on without them for a
/// while.
pub fn lose_records(state: &mut State, n: usize) {
    let node = &mut state.nodes[n];
    (node.serves, node.is_hostless) = (false, true);
    let none = Stamp::NONE;
    (node.rd_lock, node.wr_lock, node.volatile_ts, node.value_ts) = (none, None, none, none);
    (node.glb_volatile_ts, node.glb_durable_ts) = (none, none);
}

/// A node begins a life: nothing of the one before is under way. Its log is what it was.
fn restart(state: &mut State, n: usize, life: u32) {
    stop(state, n);
    lose_records(state, n);
    let node = &mut state.nodes[n];
    (node.life, node.is_up, node.is_hostless) = (life, true, false);
    if state.serving().next().is_none() {
        // Everything has crashed: what was not promised to be durable may be lost.
        state.floor = state.promised;
    }
}

/// Everything that is under way at a node ends.
pub fn stop(state: &mut State, n: usize) {
    for write in state.writes.values_mut() {
        let concerned = write.processes.iter().any(|process| process.node == n)
            || write.queued.contains(&n)
            || write.persisting.contains(&n);
        if concerned {
            let write = Arc::make_mut(write);
            write.processes.retain(|process| process.node != n);
            write.queued.retain(|other| *other != n);
            write.persisting.retain(|other| *other != n);
        }
    }
}

/// What a recovery has made of a record: nothing durable is forgotten, and nothing goes back.
fn recover(state: &mut State, label: &Label) -> bool {
    let [rd_lock, volatile_ts, glb_volatile_ts, glb_durable_ts, durable, value_ts] = label.record;
    let is_known = |ts: Stamp| ts.version() == 0 || state.writes.contains_key(&ts);
    if ![rd_lock, volatile_ts, value_ts, durable].into_iter().all(is_known) {
        return false;
    }
    let node = &mut state.nodes[label.node];
    if node.serves || value_ts < node.value_ts {
        return false;
    }
    node.rd_lock = rd_lock;
    (node.volatile_ts, node.value_ts) = (volatile_ts, value_ts);
    (node.glb_volatile_ts, node.glb_durable_ts) = (glb_volatile_ts, glb_durable_ts);
    node.durable = node.durable.max(durable);
    holds_what_is_durable(state, label.node)
}

/// Is what a node has in its log in its memory, too, or on its way there?
fn holds_what_is_durable(state: &State, n: usize) -> bool {
    let node = &state.nodes[n];
    let mut newer = state.writes.range(node.durable..);
    node.value_ts >= node.durable || newer.any(|(_, write)| write.queued.contains(&n))
}
