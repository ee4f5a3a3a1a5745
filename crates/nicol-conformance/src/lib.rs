//! The suite that every world passes: what protocols rely on, tried on the world's own engines.
//!
//! A world starts a [`Suite`] on its engines like any system, runs until [`Suite::finished`], and
//! then asks for [`Suite::failures`]. Where routes are unreliable, the same must hold.
#![forbid(unsafe_code)]

mod chains;
mod crashes;
mod views;

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;

use chains::Ground;
pub use crashes::{Act, CrashSuite, Unsynced};
pub use views::AskingNode1;

use nicol_core::engine::Start;
use nicol_core::exec::join_quorum;
use nicol_core::fabric::{
    Delivery, Fabric, FabricError, Message, OneSided, ReplyTo, RequestId, Service, Timeout, Work,
};
use nicol_core::ids::{EngineId, NodeId, RKey};
use nicol_core::memory::{Access, AccessError, Region};
use nicol_core::units::{Bytes, Nanos};
use nicol_core::view::View;
use nicol_core::wire::{Malformed, Reader, Writer};

const ECHO: u16 = 1;
const REFUSE: u16 = 2;
const BAD: u16 = 3;
const FORWARD: u16 = 4;
const RELAY: u16 = 5;
const NUMBERED: u16 = 6;
const COUNT: u16 = 7;
const KEYS: u16 = 8;
const SILENT: u16 = 9;
const DELEGATE: u16 = 12;

/// Bytes of each engine's registered region.
const REGION: u64 = 4_096;
/// Numbered messages that one engine sends to its node's other engines.
const NUMBERS: u64 = 200;
/// Calls that must each be counted once.
const COUNTED: u64 = 300;
/// One-sided operations that the NIC may give up in a row before the suite calls it a failure.
const GIVEN_UP_MAX: u64 = 1_000;
/// Additions of each engine to the shared word.
const ADDITIONS: u64 = 200;

/// The suite, for the engines of one cluster. Its clones are the same one.
#[derive(Clone, Debug)]
pub struct Suite(Arc<State>);

/// The findings of the engines.
#[derive(Debug)]
struct State {
    engines: usize,
    done: AtomicUsize,
    counted: AtomicUsize,
    given_up: AtomicUsize,
    /// Engines that are about to take turns at the shared word.
    gathered: AtomicUsize,
    shared: AtomicU64,
    failures: Mutex<Vec<String>>,
}

impl Suite {
    /// A suite for a cluster of this view.
    pub fn new(view: &View) -> Self {
        Self(Arc::new(State {
            engines: view.engine_count(),
            done: AtomicUsize::new(0),
            counted: AtomicUsize::new(0),
            given_up: AtomicUsize::new(0),
            gathered: AtomicUsize::new(0),
            shared: AtomicU64::new(0),
            failures: Mutex::default(),
        }))
    }

    /// True if every engine has gone through the whole suite.
    pub fn finished(&self) -> bool {
        self.0.done.load(Ordering::Acquire) == self.0.engines
    }

    /// The demands that did not hold; complete once finished.
    pub fn failures(&self) -> Vec<String> {
        let mut failures = self.0.failures.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let expected = self.0.engines * (COUNTED as usize + self.0.engines);
        let counted = self.0.counted.load(Ordering::Acquire);
        if counted != expected {
            failures.push(format!("{expected} calls took effect {counted} times"));
        }
        failures
    }

    /// One-sided operations that a NIC gave up after its retries: none may be where routes are
    /// reliable. The suite asks again.
    pub fn given_up(&self) -> usize {
        self.0.given_up.load(Ordering::Acquire)
    }

    /// Additions to a shared word that another engine overwrote, because it came in at an access
    /// point between the read and the write: some, where several engines share memory in the
    /// simulator.
    pub fn lost_additions(&self) -> u64 {
        let added = self.0.engines as u64 * ADDITIONS;
        added.saturating_sub(self.0.shared.load(Ordering::Acquire))
    }

    fn expect(&self, at: EngineId, what: &str, held: bool) {
        if !held {
            let mut failures = self.0.failures.lock().unwrap_or_else(PoisonError::into_inner);
            failures.push(format!("{at}: {what}"));
        }
    }
}

/// Raw bytes of a kind.
struct Raw<'a, const KIND: u16>(&'a [u8]);

impl<const KIND: u16> Message for Raw<'_, KIND> {
    const KIND: u16 = KIND;
    fn emit(&self, to: &mut Writer<'_>) {
        to.bytes(self.0);
    }
}

/// A reply address in a message.
struct Address<const KIND: u16> {
    through: EngineId,
    reply_to: ReplyTo,
}

impl<const KIND: u16> Message for Address<KIND> {
    const KIND: u16 = KIND;
    fn emit(&self, to: &mut Writer<'_>) {
        to.u32(self.through.pack());
        to.u32(self.reply_to.engine.pack());
        to.u16(self.reply_to.request.slot);
        to.u32(self.reply_to.request.sequence);
    }
}

fn parse_address(body: &[u8]) -> Result<ReplyTo, Malformed> {
    let mut from = Reader::new(body);
    from.u32()?;
    let engine = EngineId::unpack(from.u32()?).ok_or(Malformed { what: "an engine" })?;
    let request = RequestId { slot: from.u16()?, sequence: from.u32()? };
    Ok(ReplyTo { engine, request })
}

struct Peer<F: Fabric> {
    fabric: F,
    suite: Suite,
    keys: [RKey; 3],
    ground: Ground,
    numbers: RefCell<Vec<(EngineId, u64)>>,
}

impl<F: Fabric> Service for Peer<F> {
    fn deliver(&self, delivery: Delivery<'_>) -> Result<(), Malformed> {
        let body = delivery.body;
        match (delivery.kind, delivery.reply_to) {
            (ECHO, Some(to)) => self.fabric.reply(to, &Raw::<0>(body)),
            (REFUSE, Some(to)) => self.fabric.refuse(to, FabricError::NoResources),
            (SILENT, _) => {}
            (COUNT, Some(to)) => {
                self.suite.0.counted.fetch_add(1, Ordering::AcqRel);
                self.fabric.reply(to, &Raw::<0>(body));
            }
            (FORWARD, Some(reply_to)) => {
                let mut from = Reader::new(body);
                let through =
                    EngineId::unpack(from.u32()?).ok_or(Malformed { what: "an engine" })?;
                self.fabric.send(through, &Address::<RELAY> { through, reply_to });
            }
            (DELEGATE, Some(to)) => {
                let mut from = Reader::new(body);
                let last = from.u32()?;
                let last = EngineId::unpack(last).ok_or(Malformed { what: "an engine" })?;
                let asker = parse_address(body)?;
                // Sent twice: it must take effect once.
                self.fabric.send_on_behalf_of(asker, last, &Raw::<COUNT>(b"delegated"));
                self.fabric.send_on_behalf_of(asker, last, &Raw::<COUNT>(b"delegated"));
                self.fabric.reply(to, &Raw::<0>(b""));
            }
            (RELAY, None) => self.fabric.reply(parse_address(body)?, &Raw::<0>(b"relayed")),
            (NUMBERED, None) => {
                let number = Reader::new(body).u64()?;
                self.numbers.borrow_mut().push((delivery.from, number));
            }
            (KEYS, Some(to)) => {
                let mut keys = Vec::new();
                self.keys.iter().for_each(|key| keys.extend(key.0.to_le_bytes()));
                self.fabric.reply(to, &Raw::<0>(&keys));
            }
            (chains::GROUND | chains::RECYCLE, Some(_)) => {
                self.ground.deliver(&self.fabric, &delivery)?;
            }
            _ => return Err(Malformed { what: "an unknown kind" }),
        }
        Ok(())
    }
}

impl Start for Suite {
    fn start<F: Fabric>(&self, fabric: &F) {
        let region = Arc::new(Region::new(Bytes(REGION)));
        let revoked = fabric.register(&region, Access::ReadWrite);
        let keys = [
            fabric.register(&region, Access::ReadWrite),
            fabric.register(&region, Access::Read),
            revoked,
        ];
        fabric.revoke(revoked);
        let ground = Ground::new(fabric);
        self.expect(fabric.here(), "buffers are registered", ground.is_ok());
        let peer = Rc::new(Peer {
            fabric: fabric.clone(),
            suite: self.clone(),
            keys,
            ground: ground.unwrap_or_default(),
            numbers: RefCell::default(),
        });
        let first = fabric.serve(peer.clone());
        self.expect(fabric.here(), "the first service counts", first);
        self.expect(fabric.here(), "a second is refused", !fabric.serve(peer.clone()));
        let client = Client { fabric: fabric.clone(), suite: self.clone() };
        fabric.spawn(async move { client.run(peer).await });
    }
}

/// The previous word that an atomic operation yields.
fn word(payload: impl AsRef<[u8]>) -> u64 {
    payload.as_ref().try_into().map_or(u64::MAX, u64::from_le_bytes)
}

struct Client<F: Fabric> {
    fabric: F,
    suite: Suite,
}

impl<F: Fabric> Client<F> {
    fn expect(&self, what: &str, held: bool) {
        self.suite.expect(self.fabric.here(), what, held);
    }

    async fn run(self, peer: Rc<Peer<F>>) {
        self.calls().await;
        self.errors().await;
        self.quorums().await;
        self.third_party().await;
        self.delegated().await;
        self.one_sided().await;
        self.chains().await;
        self.dma().await;
        self.time().await;
        self.shared_memory().await;
        self.numbered(&peer).await;
        self.suite.0.done.fetch_add(1, Ordering::AcqRel);
    }

    fn others(&self) -> Vec<EngineId> {
        self.fabric.view().engine_ids().collect()
    }

    async fn calls(&self) {
        for to in self.others() {
            for len in [0, 1, 7, 8, 1_500, 70_000] {
                let body = vec![len as u8; len];
                let reply = self.fabric.call(to, &Raw::<ECHO>(&body), Timeout::Never).await;
                let same = reply.is_ok_and(|reply| reply.as_ref() == body);
                self.expect(&format!("{len} bytes come back from {to}"), same);
            }
        }
        let others = self.others();
        let calls: Vec<_> = (0..COUNTED)
            .map(|number| {
                let to = others[number as usize % others.len()];
                let body = number.to_le_bytes();
                self.fabric.call(to, &Raw::<COUNT>(&body), Timeout::Never)
            })
            .collect();
        for (number, call) in calls.into_iter().enumerate() {
            let body = (number as u64).to_le_bytes();
            let answered = call.await.is_ok_and(|reply| reply.as_ref() == body);
            self.expect("each call gets its own reply", answered);
        }
    }

    async fn errors(&self) {
        let nowhere = EngineId::host(NodeId(200), 0);
        for to in self.others() {
            let refused = self.fabric.call(to, &Raw::<REFUSE>(b""), Timeout::Never).await;
            self.expect("a refusal arrives", refused.err() == Some(FabricError::NoResources));
            let bad = self.fabric.call(to, &Raw::<BAD>(b"?"), Timeout::Never).await;
            self.expect("a malformed request is told", bad.err() == Some(FabricError::Malformed));
        }
        let lost = self.fabric.call(nowhere, &Raw::<ECHO>(b""), Timeout::Never).await;
        self.expect("no such engine", lost.err() == Some(FabricError::Unreachable));
        // Abandoned calls leave nothing behind that later ones would trip over.
        drop(self.fabric.call(self.fabric.here(), &Raw::<SILENT>(b""), Timeout::Never));
    }

    /// A quorum does not wait for who never answers, nor once it cannot be reached.
    async fn quorums(&self) {
        let others = self.others();
        // Within a node nothing is sent again: a call that is never answered costs its slot only.
        let silent = self.fabric.view().nic_of(self.fabric.here().node, 0);
        for (ask_echo, granted) in [(true, true), (false, false)] {
            let answered = others.iter().take(2).map(|&to| match ask_echo {
                true => self.fabric.call(to, &Raw::<ECHO>(b"yes"), Timeout::Never),
                false => self.fabric.call(to, &Raw::<REFUSE>(b"no"), Timeout::Never),
            });
            let never = self.fabric.call(silent, &Raw::<SILENT>(b""), Timeout::Never);
            let calls = answered.chain([never]);
            let mut replies = join_quorum::<3, _, _>(calls, 2, Result::is_ok);
            self.expect("a quorum is decided", (&mut replies).await == granted);
            self.expect("without the silent one", replies.pending() == 1);
        }
        let calls = others.iter().take(3);
        let calls = calls.map(|&to| self.fabric.call(to, &Raw::<ECHO>(b"all"), Timeout::Never));
        let mut replies = join_quorum::<3, _, _>(calls, 1, Result::is_ok);
        self.expect("one is a quorum", (&mut replies).await);
        let all = replies.rest().await.filter(Result::is_ok).count();
        self.expect("the late replies are collected", all == others.len().min(3));
    }

    async fn third_party(&self) {
        // Within a node the routes are reliable, so that a relayed reply cannot be lost.
        let here = self.fabric.here();
        for through in self.others().into_iter().filter(|engine| engine.node == here.node) {
            let request = RequestId::NONE;
            let message =
                Address::<FORWARD> { through, reply_to: ReplyTo { engine: here, request } };
            let first = self.fabric.view().nic_of(here.node, 0);
            let reply = self.fabric.call(first, &message, Timeout::Never).await;
            let relayed = reply.is_ok_and(|reply| reply.as_ref() == b"relayed");
            self.expect("a third party may reply", relayed);
        }
    }

    /// A request that another engine sends in this one's name takes effect once and is answered
    /// here, whatever happens to what the other engine sends.
    async fn delegated(&self) {
        let here = self.fabric.here();
        for to in self.others() {
            let (expected, reply) = self.fabric.open_delegated_call(to);
            let through = if to.node == here.node { here } else { to };
            let message = Address::<DELEGATE> { through: to, reply_to: expected };
            let asked = self.fabric.call(through, &message, Timeout::Never);
            let same = Raw::<COUNT>(b"delegated");
            self.fabric.retransmit(expected.request, &same, Timeout::Never);
            self.expect("another engine takes the request", asked.await.is_ok());
            let answered = reply.await.is_ok_and(|reply| reply.as_ref() == b"delegated");
            self.expect("its reply comes here", answered);
        }
        let (expected, reply) = self.fabric.open_delegated_call(here);
        self.fabric.refuse(expected, FabricError::Unreachable);
        let given_up = reply.await.err() == Some(FabricError::Unreachable);
        self.expect("an expected request can be given up", given_up);
        let (expected, reply) = self.fabric.open_delegated_call(here);
        self.fabric.reply(expected, &Raw::<ECHO>(b"brought"));
        let brought = reply.await.is_ok_and(|reply| reply.as_ref() == b"brought");
        self.expect("an engine may bring itself a reply", brought);
        let (ReplyTo { request, .. }, reply) = self.fabric.open_delegated_call(here);
        self.fabric.give_up_after(request, Nanos::from_micros(1));
        let timed_out = reply.await.err() == Some(FabricError::TimedOut { request });
        self.expect("a delegated call times out", timed_out);
        let (nobody, reply) = self.fabric.open_delegated_call(EngineId::host(NodeId(200), 0));
        self.expect("no call is delegated to an unknown engine", nobody.request == RequestId::NONE);
        self.expect("its error is reported", reply.await.err() == Some(FabricError::Unreachable));
    }

    async fn keys_of(&self, engine: EngineId) -> [RKey; 3] {
        let reply = self.fabric.call(engine, &Raw::<KEYS>(b""), Timeout::Never).await;
        let mut keys = [RKey(0); 3];
        if let Ok(reply) = reply {
            let mut from = Reader::new(reply.as_ref());
            keys = keys.map(|_| RKey(from.u32().unwrap_or_default()));
        }
        keys
    }

    /// Asks for `operation` until the memory has answered. Also returns how often the NIC gave it
    /// up before, and so how often more it may have taken effect.
    async fn answered(
        &self,
        node: NodeId,
        operation: OneSided<'_>,
    ) -> (Result<F::Payload, FabricError>, u64) {
        let mut given_up = 0;
        loop {
            let result = self.fabric.one_sided(node, operation).await;
            if result.as_ref().err() != Some(&FabricError::Unreachable) || given_up == GIVEN_UP_MAX
            {
                return (result, given_up);
            }
            given_up += 1;
            self.suite.0.given_up.fetch_add(1, Ordering::AcqRel);
        }
    }

    async fn one_sided(&self) {
        let index = self.fabric.view().index_of(self.fabric.here()).unwrap_or_default() as u64;
        for to in self.others() {
            let [rkey, read_only, revoked] = self.keys_of(to).await;
            let offset = 64 + index * 16;
            let bytes = (index + 1).to_le_bytes();
            let node = to.node;
            let write = OneSided::Write { rkey, offset, bytes: &bytes };
            self.expect("WRITE", self.answered(node, write).await.0.is_ok());
            let read = OneSided::Read { rkey: read_only, offset, len: 8 };
            let (back, _) = self.answered(node, read).await;
            self.expect("READ", back.is_ok_and(|back| back.as_ref() == bytes));
            let swap = OneSided::CompareSwap { rkey, offset, expected: index + 1, new: 77 };
            let (old, given_up) = self.answered(node, swap).await;
            let old = old.map(word);
            self.expect("CAS", old == Ok(index + 1) || given_up > 0 && old == Ok(77));
            let add = OneSided::FetchAdd { rkey, offset, amount: 1 };
            let (old, given_up) = self.answered(node, add).await;
            let old = old.map(word);
            let once = old.is_ok_and(|old| (77..=77 + given_up).contains(&old));
            self.expect("FETCH-ADD", once);
            let denied = |rkey: RKey| AccessError::Denied { rkey: rkey.0 };
            let size = REGION;
            let len = 16;
            let bad = [
                (read_only, offset, denied(read_only)),
                (revoked, offset, denied(revoked)),
                (rkey, offset + 1, AccessError::Misaligned { offset: offset + 1 }),
                (rkey, size - 8, AccessError::OutOfBounds { offset: size - 8, len, size }),
                (rkey, u64::MAX - 7, AccessError::OutOfBounds { offset: u64::MAX - 7, len, size }),
            ];
            for (rkey, offset, error) in bad {
                let write = OneSided::Write { rkey, offset, bytes: &[0xee; 16] };
                let refused = self.answered(node, write).await.0.err();
                let as_expected = refused == Some(FabricError::AccessDenied(error));
                self.expect(&format!("{error} is told, not {refused:?}"), as_expected);
            }
            let read = OneSided::Read { rkey, offset: size - 8, len: 8 };
            let (untouched, _) = self.answered(node, read).await;
            let untouched = untouched.is_ok_and(|bytes| bytes.as_ref() == [0; 8]);
            self.expect("a refused WRITE leaves the memory alone", untouched);
        }
    }

    async fn dma(&self) {
        let region = Arc::new(Region::new(Bytes(40 * 16)));
        for vector in [1, 15, 40] {
            let seen = region.doorbell().rings();
            let writes: Vec<_> = (0..vector)
                .map(|slot| self.fabric.dma_write(&region, slot * 16, &[slot as u8; 16]))
                .collect();
            for write in writes {
                self.expect("a DMA write", write.await.is_ok());
            }
            self.expect("a DMA write rings the doorbell", region.doorbell().rings() > seen);
            let doorbell: Arc<dyn nicol_core::fabric::HasDoorbell> = region.clone();
            self.fabric.wait_for_doorbell(&doorbell, seen).await;
            for slot in 0..vector {
                let read = self.fabric.dma_read(&region, slot * 16, 16).await;
                let same = read.is_ok_and(|bytes| bytes.as_ref() == [slot as u8; 16]);
                self.expect("a DMA read", same);
            }
        }
        let beyond = self.fabric.dma_read(&region, 40 * 16, 8).await;
        self.expect("a DMA beyond its region is an error", beyond.is_err());
        let seen = region.doorbell().rings();
        let durable = self.fabric.dma_write_durable(&region, 16, &[&[0xd0; 16]]).await;
        self.expect("a durable DMA write", durable.is_ok());
        self.expect("a durable DMA write rings the doorbell", region.doorbell().rings() > seen);
        let read = self.fabric.dma_read(&region, 16, 16).await;
        let same = read.is_ok_and(|bytes| bytes.as_ref() == [0xd0; 16]);
        self.expect("a durable DMA write is in memory", same);
        let beyond = self.fabric.dma_write_durable(&region, 40 * 16, &[&[0; 8]]).await;
        self.expect("a durable DMA write beyond its region is an error", beyond.is_err());
        let parts: [&[u8]; 3] = [&[1; 8], &[2; 3], &[3; 12]];
        let durable = self.fabric.dma_write_durable(&region, 0, &parts).await;
        let read = self.fabric.dma_read(&region, 0, 32).await;
        let expected =
            [[1; 8], [2, 2, 2, 0, 0, 0, 0, 0], [3; 8], [3, 3, 3, 3, 0xd0, 0xd0, 0xd0, 0xd0]];
        let same = read.is_ok_and(|bytes| bytes.as_ref() == expected.as_flattened());
        self.expect("parts of a DMA write stand one behind the other", durable.is_ok() && same);
        let parts: [&[u8]; 2] = [&[4; 8], &[4; 16]];
        let beyond = self.fabric.dma_write_durable(&region, 40 * 16 - 8, &parts).await;
        self.expect("parts of which one lies beyond its region are an error", beyond.is_err());
        let read = self.fabric.dma_read(&region, 40 * 16 - 8, 8).await;
        self.expect("and none is written", read.is_ok_and(|bytes| bytes.as_ref() != [4; 8]));
        self.expect("persist", self.fabric.persist(&region, 0, 64).await.is_ok());
        let beyond = self.fabric.persist(&region, 8, 40 * 16).await;
        self.expect("a persist beyond its region is an error", beyond.is_err());
    }

    async fn time(&self) {
        let mut last = self.fabric.now();
        for span in [0, 1_000, 50_000] {
            let deadline = last + Nanos(span);
            self.fabric.sleep_until(deadline).await;
            let now = self.fabric.now();
            self.expect("no sleep ends early", now >= deadline);
            self.expect("time does not go back", now >= last);
            last = now;
        }
        self.fabric.work(Work::TxnSetup);
        let before = self.fabric.now();
        self.fabric.caught_up().await;
        self.expect("time does not go back to catch up", self.fabric.now() >= before);
        let turn = Rc::new(Cell::new(0));
        let other = turn.clone();
        self.fabric.spawn(async move { other.set(1) });
        self.fabric.yield_now().await;
        self.expect("yield lets others run", turn.get() == 1);
        let signal = self.fabric.signal();
        let (waiting, woken) = (signal.clone(), turn.clone());
        self.fabric.spawn(async move {
            waiting.wait().await;
            woken.set(2);
        });
        self.fabric.yield_now().await;
        self.expect("a signal is waited for", turn.get() == 1);
        signal.notify();
        self.fabric.yield_now().await;
        self.expect("a signal wakes", turn.get() == 2);
        self.expect("chance is not constant", self.fabric.random() != self.fabric.random());
    }

    /// All engines add to one word, with an access point between reading and writing it.
    async fn shared_memory(&self) {
        let shared = &self.suite.0.shared;
        self.suite.0.gathered.fetch_add(1, Ordering::AcqRel);
        while self.suite.0.gathered.load(Ordering::Acquire) < self.suite.0.engines {
            self.fabric.sleep_until(self.fabric.now() + Nanos::from_micros(1)).await;
        }
        let mut access = self.fabric.access();
        let first = poll_fn(|context| Poll::Ready(Pin::new(&mut access).poll(context)));
        let stops = first.await.is_pending();
        self.expect("an access stops where a fabric says that it does", stops == F::ACCESS_POINTS);
        if stops {
            access.await;
        }
        for _ in 0..ADDITIONS {
            let before = self.fabric.now();
            let seen = shared.load(Ordering::Acquire);
            self.fabric.access().await;
            shared.store(seen + 1, Ordering::Release);
            self.expect("an access point takes no time back", self.fabric.now() >= before);
        }
    }

    /// One-way messages between the engines of a node arrive once, in order.
    async fn numbered(&self, peer: &Peer<F>) {
        let here = self.fabric.here();
        let near: Vec<_> =
            self.others().into_iter().filter(|engine| engine.node == here.node).collect();
        for number in 0..NUMBERS {
            for &to in &near {
                self.fabric.send(to, &Raw::<NUMBERED>(&number.to_le_bytes()));
            }
            if number % 16 == 0 {
                self.fabric.yield_now().await;
            }
        }
        let expected = near.len() * NUMBERS as usize;
        for _ in 0..100_000 {
            if peer.numbers.borrow().len() >= expected {
                break;
            }
            self.fabric.sleep_until(self.fabric.now() + Nanos::from_micros(20)).await;
        }
        for &from in &near {
            let numbers = peer.numbers.borrow();
            let got = numbers.iter().filter(|(sender, _)| *sender == from).map(|(_, n)| *n);
            self.expect("messages within a node arrive once, in order", got.eq(0..NUMBERS));
        }
    }
}
