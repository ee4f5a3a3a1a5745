//! Crashes: what ends, what is lost and what survives; nothing of one incarnation acts in the next.
//!
//! A world starts a [`CrashSuite`] on its engines, runs, and does what [`CrashSuite::next_act`]
//! asks for until [`CrashSuite::finished`]. Node 1 crashes: as a whole, its NIC, its host; then
//! every node. Engine 0 of the host of node 0 observes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nicol_core::engine::{Loss, Revival, Start};
use nicol_core::fabric::{Delivery, Fabric, FabricError, OneSided, Service, Timeout};
use nicol_core::ids::{EngineId, Incarnation, NodeId, RKey, Side};
use nicol_core::memory::{Access, Region};
use nicol_core::units::{Bytes, Nanos};
use nicol_core::wire::{Malformed, Reader};

use super::Raw;

mod medium;

pub use medium::Unsynced;

const ECHO: u16 = 1;
const SILENT: u16 = 2;
const TICK: u16 = 3;
const ONCE: u16 = 4;

/// The node that crashes.
const VICTIM: NodeId = NodeId(1);
/// The log's name on the medium.
const LABEL: u32 = 9;
/// Its places must not run out before the suite ends, however long that takes on threads.
const LOG: Bytes = Bytes(32 << 20);
/// Bytes of a record in the log, and of its place.
const RECORD: usize = 200;
const PLACE: u64 = 256;
/// Records that wait for the log device at a time.
const UNDER_WAY: u64 = 4;
/// The time between two looks at a condition.
const LOOK: Nanos = Nanos::from_micros(20);
/// Looks before something that should happen is taken to fail: at least 10 s. An engine's thread on
/// a busy machine may get no core for a second.
const LOOKS_MAX: usize = 500_000;

/// An act that the suite asks of its world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    Crash(Loss),
    /// Start a side that is down again.
    Restart(NodeId, Side),
}

/// The suite, for the engines of one cluster. Its clones are the same one.
#[derive(Clone, Debug)]
pub struct CrashSuite {
    nodes: u16,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    acts: VecDeque<Act>,
    finished: bool,
    failures: Vec<String>,
    /// True if everything has crashed. The observer as well, then.
    all_down: bool,
    /// How often the victim was told of a crash.
    crashes: u32,
    /// The lives of the victim's sides.
    lives: [u32; 2],
    /// By side and life of the victim: turns of a task that sleeps, and tasks that live.
    ticks: BTreeMap<(usize, u32), u64>,
    tasks: BTreeMap<(usize, u32), i64>,
    /// By side: calls to the node's other side that were answered, and that ended as unreachable.
    answered: [u64; 2],
    unreachable: [u64; 2],
    /// By side: memory of the victim and its key.
    memory: [Option<(Arc<Region>, RKey)>; 2],
    log: Option<Arc<Region>>,
    /// By lane: records that were asked for.
    turns: [u64; UNDER_WAY as usize],
    /// Records by offset: what was asked for, and what was acknowledged as durable.
    asked: BTreeMap<u64, u8>,
    durable: BTreeMap<u64, u8>,
    /// Offsets of records that were asked for and not answered: now, and when the victim's host
    /// last crashed.
    under_way: BTreeSet<u64>,
    under_way_at_crash: BTreeSet<u64>,
    /// What crashes of the victim's host have left of records that it had not been told are
    /// durable.
    unsynced: Unsynced,
    /// The number of the newest write on the medium when the victim's host last started.
    seen: u64,
    /// Requests that took effect, and in which life of the victim.
    once: BTreeMap<u64, u32>,
    /// The newest life of the victim's NIC of which a message has come.
    heard: u32,
}

/// A task that lives until it is dropped.
struct Task {
    suite: CrashSuite,
    of: (usize, u32),
}

impl Task {
    fn new(suite: &CrashSuite, of: (usize, u32)) -> Self {
        *suite.state().tasks.entry(of).or_default() += 1;
        Self { suite: suite.clone(), of }
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        *self.suite.state().tasks.entry(self.of).or_default() -= 1;
    }
}

impl CrashSuite {
    /// A suite for a cluster of so many nodes: two at least.
    pub fn new(nodes: usize) -> Self {
        assert!(nodes >= 2, "one node looks on while another crashes");
        Self { nodes: nodes as u16, state: Arc::default() }
    }

    /// The act that is due; each is handed out once.
    pub fn next_act(&self) -> Option<Act> {
        self.state().acts.pop_front()
    }

    /// True if there is something for the world to do, or nothing more to come.
    pub fn wants_attention(&self) -> bool {
        let state = self.state();
        state.finished || !state.acts.is_empty()
    }

    /// True if the suite has ended.
    pub fn finished(&self) -> bool {
        self.state().finished
    }

    /// The demands that did not hold; complete once finished.
    pub fn failures(&self) -> Vec<String> {
        self.state().failures.clone()
    }

    /// What crashes of the victim's host have left of records that were under way: torn and
    /// overtaken ones come where the log device may lose what it has not synced, and nowhere else.
    pub fn unsynced(&self) -> Unsynced {
        self.state().unsynced
    }

    /// Records that were acknowledged as durable.
    pub fn durable(&self) -> usize {
        self.state().durable.len()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn expect(&self, what: &str, held: bool) {
        if held {
            return;
        }
        let failures = &mut self.state().failures;
        if !failures.iter().any(|known| known == what) {
            failures.push(what.to_owned());
        }
    }

    /// Compares a log that has survived in memory with what was acknowledged.
    fn check_log(&self, log: &Region) {
        let durable = self.state().durable.clone();
        for (offset, byte) in durable {
            let mut bytes = [0; RECORD];
            let there = log.read(offset, &mut bytes).is_ok() && bytes == [byte; RECORD];
            self.expect("what was acknowledged as durable is in battery-backed memory", there);
        }
    }
}

struct Peer<F: Fabric> {
    fabric: F,
    suite: CrashSuite,
    life: u32,
}

impl<F: Fabric> Service for Peer<F> {
    fn deliver(&self, delivery: Delivery<'_>) -> Result<(), Malformed> {
        match (delivery.kind, delivery.reply_to) {
            (ECHO, Some(to)) => self.fabric.reply(to, &Raw::<0>(delivery.body)),
            (SILENT, Some(_)) => {}
            (ONCE, Some(to)) => {
                let number = Reader::new(delivery.body).u64()?;
                let before = self.suite.state().once.insert(number, self.life);
                self.suite.expect("a request takes effect in one life", before.is_none());
                self.fabric.reply(to, &Raw::<0>(b""));
            }
            (TICK, None) => {
                let life = Reader::new(delivery.body).u32()?;
                let heard = std::mem::replace(&mut self.suite.state().heard, life);
                self.suite.expect("nothing of an old life comes after a new one", heard <= life);
            }
            _ => return Err(Malformed { what: "an unknown kind" }),
        }
        Ok(())
    }
}

impl Start for CrashSuite {
    fn start<F: Fabric>(&self, fabric: &F) {
        self.begin(fabric, Incarnation::FIRST);
    }

    fn crashed(&self, loss: &Loss) {
        let mut state = self.state();
        if loss.node == VICTIM {
            state.crashes += 1;
            if loss.host {
                state.under_way_at_crash = state.under_way.clone();
            }
            if loss.nic {
                // The tasks that would be answered are gone.
                state.under_way.clear();
            }
        }
    }

    fn restart<F: Fabric>(&self, fabric: &F, revival: &Revival<'_>) {
        let here = fabric.here();
        if here.node == VICTIM && here.side == Side::Host && here.core == 0 {
            if !revival.memory_is_durable {
                self.check_medium(revival.medium);
            }
            let log = self.state().log.clone();
            let kept = log.as_ref().is_some_and(|log| !log.is_lost());
            let durable = revival.memory_is_durable;
            self.expect("a log survives where memory is battery-backed only", kept == durable);
            match log {
                Some(log) if kept => self.check_log(&log),
                _ => {}
            }
        }
        let all_down = self.state().all_down;
        if here == EngineId::nic(VICTIM, 0) && self.state().crashes == 2 && !all_down {
            self.check_tail(revival.medium);
        }
        self.begin(fabric, revival.incarnation);
    }
}

/// Side and life, as the suite's tables have them.
fn place(here: EngineId, life: Incarnation) -> (usize, u32) {
    (here.side as usize, life.0)
}

impl CrashSuite {
    fn begin<F: Fabric>(&self, fabric: &F, life: Incarnation) {
        let here = fabric.here();
        let (suite, own) = (self.clone(), fabric.clone());
        let peer = Peer { fabric: own.clone(), suite: suite.clone(), life: life.0 };
        self.expect("a new life has no service", fabric.serve(Rc::new(peer)));
        if here.core > 0 {
            return;
        }
        if here == EngineId::host(NodeId(0), 0) {
            let observer = Observer { fabric: own, suite };
            fabric.spawn(async move { observer.run().await });
        } else if here == EngineId::nic(NodeId(0), 0) {
            fabric.spawn(ask_once(own, suite));
        } else if here.node == VICTIM {
            self.begin_victim(fabric, life);
        }
    }

    fn begin_victim<F: Fabric>(&self, fabric: &F, life: Incarnation) {
        let here = fabric.here();
        let region = Arc::new(Region::new(Bytes(64)));
        let rkey = fabric.register(&region, Access::ReadWrite);
        {
            let mut state = self.state();
            let before = std::mem::replace(&mut state.lives[here.side as usize], life.0);
            let next = before + 1 == life.0;
            state.memory[here.side as usize] = Some((region, rkey));
            let log_is_gone = state.log.as_ref().is_none_or(|log| log.is_lost());
            if here.side == Side::Host && log_is_gone {
                state.log = Some(Arc::new(Region::for_log(LOG, LABEL)));
            }
            drop(state);
            self.expect("each start is the next life", next);
        }
        fabric.spawn(tick(fabric.clone(), self.clone(), life));
        fabric.spawn(wait_in_vain(fabric.clone(), self.clone(), life));
        fabric.spawn(ask_other_side(fabric.clone(), self.clone(), life));
        if here.side == Side::Nic {
            for lane in 0..UNDER_WAY {
                fabric.spawn(log_records(fabric.clone(), self.clone(), life, lane));
            }
        }
    }
}

async fn pause<F: Fabric>(fabric: &F) {
    fabric.sleep_until(fabric.now() + LOOK).await;
}

/// Counts turns, and tells the observer's NIC of each.
async fn tick<F: Fabric>(fabric: F, suite: CrashSuite, life: Incarnation) {
    let of = place(fabric.here(), life);
    let _task = Task::new(&suite, of);
    let to = EngineId::nic(NodeId(0), 0);
    loop {
        *suite.state().ticks.entry(of).or_default() += 1;
        if fabric.here().side == Side::Nic {
            fabric.send(to, &Raw::<TICK>(&life.0.to_le_bytes()));
        }
        pause(&fabric).await;
    }
}

/// Asks the node's other side what is never answered: that ends with its life.
async fn wait_in_vain<F: Fabric>(fabric: F, suite: CrashSuite, life: Incarnation) {
    let here = fabric.here();
    let _task = Task::new(&suite, place(here, life));
    let other = EngineId { side: here.side.other(), ..here };
    loop {
        let ended = fabric.call(other, &Raw::<SILENT>(b""), Timeout::Never).await;
        let unreachable = ended.err() == Some(FabricError::Unreachable);
        suite.expect("a call over PCIe ends as unreachable", unreachable);
        suite.state().unreachable[here.side as usize] += 1;
        pause(&fabric).await;
    }
}

async fn ask_other_side<F: Fabric>(fabric: F, suite: CrashSuite, life: Incarnation) {
    let here = fabric.here();
    let _task = Task::new(&suite, place(here, life));
    let other = EngineId { side: here.side.other(), ..here };
    loop {
        let reply = fabric.call(other, &Raw::<ECHO>(b"?"), Timeout::Never).await;
        suite.state().answered[here.side as usize] += u64::from(reply.is_ok());
        pause(&fabric).await;
    }
}

/// Writes one record after the other, each durable before the next.
async fn log_records<F: Fabric>(fabric: F, suite: CrashSuite, life: Incarnation, lane: u64) {
    let _task = Task::new(&suite, place(fabric.here(), life));
    let lanes = LOG.0 / PLACE / UNDER_WAY;
    loop {
        let Some((log, offset, byte)) = suite.next_record(lane, lanes) else {
            pause(&fabric).await;
            continue;
        };
        let written = fabric.dma_write_durable(&log, offset, &[&[byte; RECORD]]).await;
        suite.state().under_way.remove(&offset);
        match written {
            Ok(_) => drop(suite.state().durable.insert(offset, byte)),
            Err(error) => {
                let unreachable = error == FabricError::Unreachable;
                suite.expect("a DMA to a host that is down is unreachable", unreachable);
                fabric.sleep_until(fabric.now() + LOOK * 10).await;
            }
        }
        pause(&fabric).await;
    }
}

impl CrashSuite {
    /// A place of the log that was never written, of those of a lane.
    fn next_record(&self, lane: u64, lanes: u64) -> Option<(Arc<Region>, u64, u8)> {
        let mut state = self.state();
        let log = state.log.clone()?;
        let turn = &mut state.turns[lane as usize];
        if *turn == lanes {
            return None;
        }
        let offset = (*turn * UNDER_WAY + lane) * PLACE;
        *turn += 1;
        let byte = 1 + (offset / PLACE % 255) as u8;
        state.asked.insert(offset, byte);
        state.under_way.insert(offset);
        Some((log, offset, byte))
    }
}

/// Asks the victim's NIC for effects that must come once, whatever the life.
async fn ask_once<F: Fabric>(fabric: F, suite: CrashSuite) {
    let to = EngineId::nic(VICTIM, 0);
    for number in 0_u64.. {
        // Every life of the asker has numbers of its own.
        let number = number << 32 | suite.state().once.len() as u64 & 0xffff_ffff;
        let asked = fabric.call(to, &Raw::<ONCE>(&number.to_le_bytes()), Timeout::Never).await;
        let known = matches!(asked, Ok(_) | Err(FabricError::Unreachable));
        suite.expect("a request is answered, or its receiver is unreachable", known);
        if asked.is_err() {
            pause(&fabric).await;
        }
    }
}

struct Observer<F: Fabric> {
    fabric: F,
    suite: CrashSuite,
}

impl<F: Fabric> Observer<F> {
    async fn run(self) {
        if self.suite.state().all_down {
            self.after_everything().await;
            self.suite.state().finished = true;
            return;
        }
        self.works("at first").await;
        self.node().await;
        self.nic().await;
        self.host().await;
        self.suite.state().all_down = true;
        let nodes = (0..self.suite.nodes).map(|node| NodeId(node as _));
        self.act(nodes.clone().map(|node| Act::Crash(Loss { node, host: true, nic: true })));
        let sides = |node| [Side::Host, Side::Nic].map(|side| Act::Restart(node, side));
        self.act(nodes.flat_map(sides));
    }

    fn expect(&self, what: &str, held: bool) {
        self.suite.expect(what, held);
    }

    fn act(&self, acts: impl IntoIterator<Item = Act>) {
        self.suite.state().acts.extend(acts);
    }

    /// Waits for something to hold.
    async fn until(&self, what: &str, mut holds: impl FnMut(&State) -> bool) {
        for _ in 0..LOOKS_MAX {
            if holds(&self.suite.state()) {
                return;
            }
            pause(&self.fabric).await;
        }
        self.expect(&format!("in time: {what}"), false);
    }

    async fn crash(&self, host: bool, nic: bool) {
        let before = self.suite.state().crashes;
        self.act([Act::Crash(Loss { node: VICTIM, host, nic })]);
        self.until("the system is told of a crash", |state| state.crashes == before + 1).await;
    }

    /// Both sides tick, are asked by each other, and make records durable.
    async fn works(&self, when: &str) {
        let sum = |state: &State| {
            let lives = [(0, state.lives[0]), (1, state.lives[1])];
            let ticks = lives.map(|of| state.ticks.get(&of).copied().unwrap_or_default());
            [ticks[0], ticks[1], state.answered[0], state.answered[1], state.durable.len() as u64]
        };
        let ticked = self.suite.state().ticks.clone();
        let before = sum(&self.suite.state());
        let more =
            |state: &State| sum(state).into_iter().zip(before).all(|(now, was)| now > was + 3);
        self.until(&format!("the node works {when}"), more).await;
        let silent = {
            let state = self.suite.state();
            let mut old = state.ticks.iter().filter(|((side, life), _)| *life < state.lives[*side]);
            old.all(|(of, ticks)| ticked.get(of) == Some(ticks))
        };
        self.expect("no timer of an old life fires", silent);
        for side in [Side::Host, Side::Nic] {
            let engine = EngineId { node: VICTIM, side, core: 0 };
            let (mut answered, mut read) = (false, false);
            for _ in 0..LOOKS_MAX {
                let timeout = Timeout::After(Nanos::from_millis(1));
                answered |= self.fabric.call(engine, &Raw::<ECHO>(b"up"), timeout).await.is_ok();
                // Another side may have to be met in its new life first.
                read |= self.read(side).await.is_ok();
                if answered && read {
                    break;
                }
                pause(&self.fabric).await;
            }
            self.expect(&format!("{engine} answers {when}"), answered);
            self.expect(&format!("memory of {engine} is read {when}"), read);
        }
    }

    /// Reads the victim's memory as it is known now.
    async fn read(&self, side: Side) -> Result<F::Payload, FabricError> {
        let rkey = self.suite.state().memory[side as usize].as_ref().map(|(_, rkey)| *rkey);
        self.read_under(rkey.unwrap_or_default()).await
    }

    async fn read_under(&self, rkey: RKey) -> Result<F::Payload, FabricError> {
        self.fabric.one_sided(VICTIM, OneSided::Read { rkey, offset: 0, len: 8 }).await
    }

    /// The demands while these sides of the victim are down.
    async fn is_down(&self, sides: &[Side]) {
        let of = |state: &State, side: Side| (side as usize, state.lives[side as usize]);
        let ticks = |state: &State| {
            sides.iter().map(|&side| state.ticks.get(&of(state, side)).copied()).collect::<Vec<_>>()
        };
        let before = ticks(&self.suite.state());
        for &side in sides {
            let (left, lost) = {
                let state = self.suite.state();
                let left = state.tasks.get(&of(&state, side)).copied();
                (left, state.memory[side as usize].as_ref().is_some_and(|(r, _)| r.is_lost()))
            };
            self.expect("the tasks of a side that has crashed are gone", left == Some(0));
            self.expect("the memory of a side that has crashed is lost", lost);
            let engine = EngineId { node: VICTIM, side, core: 0 };
            let timeout = Timeout::After(Nanos::from_millis(2));
            let asked = self.fabric.call(engine, &Raw::<ECHO>(b"dead"), timeout).await;
            self.expect("nobody answers for the dead", asked.is_err());
            let read = self.read(side).await.err();
            let ended =
                matches!(read, Some(FabricError::Unreachable | FabricError::AccessDenied(_)));
            self.expect(&format!("a READ of lost memory ends, not with {read:?}"), ended);
        }
        for _ in 0..20 {
            pause(&self.fabric).await;
        }
        // The state is locked for no longer than this: a failure locks it, too.
        let after = ticks(&self.suite.state());
        self.expect("no timer of the dead fires", after == before);
    }

    async fn node(&self) {
        let engine = EngineId::nic(VICTIM, 0);
        let silent = self.fabric.call(engine, &Raw::<SILENT>(b""), Timeout::Never);
        let keys = [Side::Host, Side::Nic].map(|side| {
            let state = self.suite.state();
            state.memory[side as usize].as_ref().map(|(_, rkey)| *rkey).unwrap_or_default()
        });
        self.crash(true, true).await;
        let ended = silent.await.err();
        let unreachable = ended == Some(FabricError::Unreachable);
        self.expect("a call to the dead ends, also one that is sent again for ever", unreachable);
        self.is_down(&[Side::Host, Side::Nic]).await;
        self.act([Act::Restart(VICTIM, Side::Host), Act::Restart(VICTIM, Side::Nic)]);
        self.works("after the crash of the node").await;
        for rkey in keys {
            let read = self.read_under(rkey).await;
            self.expect("a key of an old life opens nothing", read.is_err());
        }
    }

    async fn nic(&self) {
        let (before, life) = {
            let state = self.suite.state();
            (state.unreachable[Side::Host as usize], state.lives[Side::Host as usize])
        };
        self.crash(false, true).await;
        let host = Side::Host as usize;
        self.until("the host's call to its NIC ends", |state| state.unreachable[host] > before)
            .await;
        self.is_down(&[Side::Nic]).await;
        let kept = {
            let state = self.suite.state();
            let memory = state.memory[host].as_ref().is_some_and(|(region, _)| !region.is_lost());
            let log = state.log.as_ref().is_some_and(|log| !log.is_lost());
            memory && log && state.lives[host] == life
        };
        self.expect("the host keeps its memory and its log", kept);
        self.act([Act::Restart(VICTIM, Side::Nic)]);
        self.works("after the crash of the NIC").await;
    }

    async fn host(&self) {
        let nic = Side::Nic as usize;
        let (before, life) = {
            let state = self.suite.state();
            (state.unreachable[nic], state.lives[nic])
        };
        self.crash(true, false).await;
        self.until("the NIC's call to its host ends", |state| state.unreachable[nic] > before)
            .await;
        self.is_down(&[Side::Host]).await;
        let kept = {
            let state = self.suite.state();
            let memory = state.memory[nic].as_ref().is_some_and(|(region, _)| !region.is_lost());
            memory && state.lives[nic] == life
        };
        self.expect("the NIC keeps its memory", kept);
        self.act([Act::Restart(VICTIM, Side::Host)]);
        self.works("after the crash of the host").await;
    }

    async fn after_everything(&self) {
        self.works("after the crash of every node").await;
        let lives = self.suite.state().lives;
        self.expect("every crash ends one life", lives == [4, 4]);
        let records = self.suite.state().durable.len();
        self.expect("records were made durable", records >= 20);
    }
}
