//! Chains: every flag, every refusal, on host and NIC memory, also with several engines at the same
//! words.

mod refusals;
mod together;

use std::sync::Arc;

use nicol_core::chain::{Chain, ChainResults, Data, Outcome, Primitive, Step, Target, scratch};
use nicol_core::fabric::{Delivery, Fabric, FabricError, OneSided, Timeout};
use nicol_core::ids::{EngineId, FreeListKey, NodeId, RKey};
use nicol_core::memory::{Access, AccessError, Buffers, Compare, MaskedSwap, Region};
use nicol_core::units::Bytes;
use nicol_core::wire::{Malformed, Reader, Writer};

use super::{Client, Raw};

pub(super) const GROUND: u16 = 10;
pub(super) const RECYCLE: u16 = 11;

/// Bytes of each client's own part of every engine's region; all clients share the first part.
const SLOT: u64 = 512;
/// Bytes of a buffer, and how many of them a client allocates from one list.
const BUFFER: u64 = 64;
const ALLOCATED: u32 = 3;
/// Buffers per client that chains may take which the NIC gives up.
const LOST: u32 = 24;

/// What an engine offers to chains: a region under two keys, a third that is not registered, a free
/// list with buffers and one without.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ground {
    rkey: RKey,
    read_only: RKey,
    revoked: RKey,
    list: FreeListKey,
    empty: FreeListKey,
    size: u64,
}

impl Ground {
    pub(super) fn new<F: Fabric>(fabric: &F) -> Result<Self, AccessError> {
        let clients = fabric.view().engine_count() as u32;
        let first = SLOT * u64::from(clients + 1);
        let count = clients * (ALLOCATED + LOST);
        let size = first + BUFFER * u64::from(count + 1);
        let region = Arc::new(Region::new(Bytes(size)));
        let [rkey, revoked] = [(); 2].map(|()| fabric.register(&region, Access::ReadWrite));
        let read_only = fabric.register(&region, Access::Read);
        fabric.revoke(revoked);
        let buffers = Buffers { rkey, first, size: BUFFER, count, in_use: 0 };
        let list = fabric.register_buffers(buffers)?;
        let first = size - BUFFER;
        let none = Buffers { rkey, first, size: BUFFER, count: 1, in_use: 1 };
        let empty = fabric.register_buffers(none)?;
        Ok(Self { rkey, read_only, revoked, list, empty, size })
    }

    /// Answers the requests of this part of the suite.
    pub(super) fn deliver<F: Fabric>(
        &self,
        fabric: &F,
        delivery: &Delivery<'_>,
    ) -> Result<(), Malformed> {
        let to = delivery.reply_to.ok_or(Malformed { what: "a request" })?;
        if delivery.kind == GROUND {
            let mut keys = Vec::new();
            let mut writer = Writer::new(&mut keys);
            for key in [self.rkey.0, self.read_only.0, self.revoked.0, self.list.0, self.empty.0] {
                writer.u32(key);
            }
            writer.u64(self.size);
            fabric.reply(to, &Raw::<0>(&keys));
            return Ok(());
        }
        match fabric.post_buffers(self.list, &[Reader::new(delivery.body).u64()?]) {
            Ok(()) => fabric.reply(to, &Raw::<0>(b"")),
            Err(error) => fabric.refuse(to, FabricError::AccessDenied(error)),
        }
        Ok(())
    }

    fn parse(body: &[u8]) -> Result<Self, Malformed> {
        let mut from = Reader::new(body);
        let [rkey, read_only, revoked] = [from.u32()?, from.u32()?, from.u32()?].map(RKey);
        let [list, empty] = [from.u32()?, from.u32()?].map(FreeListKey);
        Ok(Self { rkey, read_only, revoked, list, empty, size: from.u64()? })
    }
}

/// A client at one engine's ground.
struct At<'a, F: Fabric> {
    client: &'a Client<F>,
    engine: EngineId,
    ground: Ground,
    base: u64,
}

/// The expected outcomes of a chain, in order.
type Expected<'a> = &'a [Outcome<'a>];

const DONE: Outcome<'static> = Outcome::Done(&[]);

fn read(from: Target, len: u32) -> Primitive<'static> {
    Primitive::Read { from, len }
}

fn write(to: Target, bytes: &[u8]) -> Primitive<'_> {
    Primitive::Write { to, data: Data::Inline(bytes) }
}

fn chain(steps: &[Step<'_>]) -> Chain {
    let mut chain = Chain::default();
    for step in steps {
        chain.push(*step);
    }
    chain
}

fn words<const N: usize>(words: [u64; N]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

impl<F: Fabric> Client<F> {
    pub(super) async fn chains(&self) {
        for engine in self.others() {
            let reply = self.fabric.call(engine, &Raw::<GROUND>(b""), Timeout::Never).await;
            let ground = reply.ok().and_then(|reply| Ground::parse(reply.as_ref()).ok());
            self.expect("the ground is told", ground.is_some());
            let index = self.fabric.view().index_of(self.fabric.here()).unwrap_or_default();
            let base = SLOT * (index as u64 + 1);
            let at = At { client: self, engine, ground: ground.unwrap_or_default(), base };
            at.reads_and_writes().await;
            at.swaps().await;
            at.wide_swaps().await;
            at.redirects().await;
            at.conditions().await;
            at.allocations().await;
            at.refusals().await;
            at.malformed().await;
            at.meeting().await;
            at.at_most_once().await;
        }
    }
}

impl<F: Fabric> At<'_, F> {
    /// Runs a chain until it is answered, and tells how often the NIC gave it up before: so often
    /// more it may have been executed. Most chains here yield the same then.
    async fn run(&self, steps: &[Step<'_>]) -> (Result<F::Payload, FabricError>, u64) {
        let chain = chain(steps);
        self.client.answered(self.engine.node, OneSided::Chain(&chain)).await
    }

    /// Runs a chain under the ground's key and compares its outcomes.
    async fn expect(&self, what: &str, chain: &[Primitive<'_>], expected: Expected<'_>) {
        let steps: Vec<_> =
            chain.iter().map(|primitive| primitive.under(self.ground.rkey)).collect();
        self.expect_steps(what, &steps, expected).await;
    }

    async fn expect_steps(&self, what: &str, steps: &[Step<'_>], expected: Expected<'_>) {
        let (payload, _) = self.run(steps).await;
        let held = match &payload {
            Ok(payload) => ChainResults::parse(payload.as_ref())
                .is_ok_and(|results| results.outcomes() == expected),
            Err(_) => false,
        };
        let found = payload.as_ref().map(|payload| ChainResults::parse(payload.as_ref()));
        let found = format!("{what} at {}: {found:?}, not {expected:?}", self.engine);
        self.client.expect(&found, held);
    }

    /// [PRISM21 3.1] A pointer with a bound lies at `base`, and points to `base + 64`.
    async fn reads_and_writes(&self) {
        let base = self.base;
        let (pointer, to) = (words([base + 64, 5]), Target::At(base + 64));
        let reads = [
            write(to, b"abcdefghijklmnop"),
            write(Target::At(base), &pointer),
            read(to, 3),
            read(Target::Indirect(base), 16),
            read(Target::Bounded(base), 16),
            read(Target::Bounded(base), 2),
        ];
        let yields = [b"abc".as_slice(), b"abcdefghijklmnop", b"abcde", b"ab"].map(Outcome::Done);
        let expected = [&[DONE, DONE], yields.as_slice()].concat();
        self.expect("READ", &reads, &expected).await;
        let writes = [
            write(Target::Bounded(base), b"ABCDEFGH"),
            read(to, 8),
            write(Target::Indirect(base), b"12"),
            read(to, 8),
            Primitive::Write {
                to: Target::At(base + 96),
                data: Data::From { at: base + 64, len: 7 },
            },
            read(Target::At(base + 96), 8),
            write(Target::At(scratch(8)), &pointer),
            read(Target::Bounded(scratch(8)), 99),
            Primitive::Write {
                to: Target::Bounded(base),
                data: Data::From { at: scratch(8), len: 16 },
            },
            read(to, 8),
        ];
        let mixed = [&pointer[..5], b"fgh"].concat();
        let expected = [
            DONE,
            Outcome::Done(b"ABCDEfgh"),
            DONE,
            Outcome::Done(b"12CDEfgh"),
            DONE,
            Outcome::Done(b"12CDEfg\0"),
            DONE,
            Outcome::Done(b"12CDE"),
            DONE,
            Outcome::Done(&mixed),
        ];
        self.expect("WRITE", &writes, &expected).await;
        let clean = [write(Target::At(base), &[0; 128])];
        self.expect("WRITE", &clean, &[DONE]).await;
    }

    /// [PRISM21 3.3] Each order, when it holds and when it does not, on one word.
    async fn swaps(&self) {
        let place = Target::At(self.base);
        for (mode, lower, same, higher) in [
            (Compare::Equal, false, true, false),
            (Compare::Greater, false, false, true),
            (Compare::Less, true, false, false),
        ] {
            let five = words([5]);
            for (operand, holds) in [(4, lower), (5, same), (6, higher)] {
                let swap = MaskedSwap::new(mode, [operand], [9]);
                let chain =
                    [write(place, &five), Primitive::compare_swap(place, swap), read(place, 8)];
                let (outcome, after) = if holds {
                    (Outcome::Done(&five), words([9]))
                } else {
                    (Outcome::NotSwapped(&five), five.clone())
                };
                let expected = [DONE, outcome, Outcome::Done(&after)];
                self.expect(&format!("CAS {mode:?} {operand}"), &chain, &expected).await;
            }
        }
    }

    /// [PRISM21 3.3] Wide operands, masks, and each argument by its address.
    async fn wide_swaps(&self) {
        let base = self.base;
        let (before, operand) = (words([1, 7, 3, 4]), words([2, 0, 8, 9]));
        let pointer = words([base]);
        let setup = |at| write(Target::At(at), &before);
        // A newer first word takes the first and the last word, whatever the others are.
        let newer = MaskedSwap::new(Compare::Greater, [2, 0, 8, 9], [2, 0, 8, 9]);
        let newer = newer.masked([u64::MAX, 0, 0, 0], [u64::MAX, 0, 0, u64::MAX]);
        let after = words([2, 7, 3, 9]);
        let zero = MaskedSwap::new(Compare::Greater, [0; 4], [0; 4]);
        let zero = zero.masked([u64::MAX, 0, 0, 0], [u64::MAX, 0, 0, u64::MAX]);
        let whole = MaskedSwap::new(Compare::Less, [1, 7, 3, 3], [2, 7, 3, 9]);
        let chain = [
            setup(base),
            Primitive::compare_swap(Target::At(base), newer),
            read(Target::At(base), 32),
            setup(base),
            write(Target::At(base + 64), &operand),
            write(Target::At(base + 128), &pointer),
            Primitive::CompareSwap {
                target: Target::Indirect(base + 128),
                swap: zero,
                compare_at: Some(base + 64),
                swap_at: Some(base + 64),
            },
            read(Target::At(base), 32),
            setup(base),
            Primitive::compare_swap(Target::At(base), whole),
            read(Target::At(base), 32),
        ]
        .map(|primitive| primitive.under(self.ground.rkey));
        let found = Outcome::Done(&before);
        let new = Outcome::Done(&after);
        let expected = [DONE, found, new, DONE, DONE, DONE, found, new, DONE, found, new];
        self.expect_steps("a wide CAS", &chain, &expected).await;
        // Two operands, one by its address and one not, and the order of the second word.
        let pair = MaskedSwap::new(Compare::Equal, [2, 7], [0, 0]);
        let other = MaskedSwap::new(Compare::Greater, [0, 0], [2, 9]);
        let (compare_at, swap_at) = (Some(scratch(0)), Some(scratch(0)));
        let target = Target::At(base);
        let (operand, newer) = (words([2, 8]), words([10]));
        let chain = [
            write(target, &after),
            write(Target::At(scratch(0)), &operand),
            Primitive::CompareSwap { target, swap: pair, compare_at: None, swap_at },
            read(target, 32),
            Primitive::CompareSwap { target, swap: other, compare_at, swap_at: None },
            write(Target::At(scratch(8)), &newer),
            Primitive::CompareSwap { target, swap: other, compare_at, swap_at: None },
            read(target, 32),
            write(target, &[0; 160]),
        ];
        let [first, second] = [words([2, 8, 3, 9]), words([2, 9, 3, 9])];
        let expected = [
            DONE,
            DONE,
            Outcome::Done(&after[..16]),
            Outcome::Done(&first),
            Outcome::NotSwapped(&first[..16]),
            DONE,
            Outcome::Done(&first[..16]),
            Outcome::Done(&second),
            DONE,
        ];
        self.expect("a CAS of two words", &chain, &expected).await;
    }

    /// [PRISM21 3.4] Outputs go to the scratch or to the region, and then not to the client.
    async fn redirects(&self) {
        let (base, rkey) = (self.base, self.ground.rkey);
        let at = Target::At;
        let swap = MaskedSwap::new(Compare::Equal, [1], [1]);
        let add = Primitive::FetchAdd { target: at(base), amount: 5 };
        let (pointer, three) = (words([base]), words([3]));
        let chain = [
            read(at(scratch(0)), 32).under(rkey),
            write(at(base), &three).under(rkey),
            read(at(base), 8).under(rkey).redirected(scratch(0)),
            add.under(rkey).redirected(scratch(8)),
            Primitive::compare_swap(at(base), swap).under(rkey).redirected(base + 64),
            write(at(scratch(16)), &pointer).under(rkey),
            Primitive::FetchAdd { target: Target::Indirect(scratch(16)), amount: 1 }.under(rkey),
            read(at(scratch(0)), 16).under(rkey),
            read(at(base + 64), 8).under(rkey),
            write(at(base), &[0; 72]).under(rkey),
        ];
        let (zero, seen, eight) = ([0; 32], words([3, 3]), words([8]));
        let expected = [
            Outcome::Done(&zero),
            DONE,
            DONE,
            DONE,
            Outcome::NotSwapped(&[]),
            DONE,
            Outcome::Done(&eight),
            Outcome::Done(&seen),
            Outcome::Done(&eight),
            DONE,
        ];
        self.expect_steps("REDIRECT", &chain, &expected).await;
        // The next chain's scratch is zero again.
        let first = read(at(scratch(0)), 32).under(rkey).conditional();
        self.expect_steps("a first operation", &[first], &[Outcome::Done(&zero)]).await;
    }

    /// [PRISM21 3.4] Failure is handed on from conditional to conditional operation (AMB-11).
    async fn conditions(&self) {
        let (place, rkey) = (Target::At(self.base), self.ground.rkey);
        let never = MaskedSwap::new(Compare::Equal, [1], [2]);
        let always = MaskedSwap::new(Compare::Equal, [0], [0]);
        let one = words([1]);
        let chain = [
            Primitive::compare_swap(place, always).under(rkey),
            read(place, 8).under(rkey).conditional(),
            Primitive::compare_swap(place, never).under(rkey).conditional(),
            write(place, &one).under(rkey).conditional(),
            write(place, &one).under(rkey).conditional(),
            read(place, 8).under(rkey),
            read(place, 8).under(rkey).conditional(),
        ];
        let zero = Outcome::Done(&[0; 8]);
        let skipped = Outcome::Skipped;
        let expected = [zero, zero, Outcome::NotSwapped(&[0; 8]), skipped, skipped, zero, zero];
        self.expect_steps("CONDITIONAL", &chain, &expected).await;
    }

    /// [PRISM21 3.2] A buffer is allocated, filled, installed, read through its pointer, recycled.
    async fn allocations(&self) {
        // A chain that was given up may have taken a buffer: begin again without it.
        while !self.allocates().await {
            self.expect("WRITE", &[write(Target::At(self.base), &[0; 8])], &[DONE]).await;
        }
    }

    /// Returns false if a chain was given up.
    async fn allocates(&self) -> bool {
        let (fabric, place) = (&self.client.fabric, Target::At(self.base));
        let Ground { rkey, list, .. } = self.ground;
        let allocate = Primitive::Allocate { list, data: b"a new value" };
        let install = |old: u64| Primitive::CompareSwap {
            target: place,
            swap: MaskedSwap::new(Compare::Equal, [old], [0]),
            compare_at: None,
            swap_at: Some(scratch(0)),
        };
        let mut old = 0;
        for _ in 1..ALLOCATED {
            let chain = [
                allocate.under(rkey).redirected(scratch(0)),
                install(old).under(rkey).conditional(),
                read(Target::Indirect(self.base), 11).under(rkey).conditional(),
                install(1).under(rkey),
                read(Target::At(scratch(0)), 8).under(rkey),
            ];
            let (payload, given_up) = self.run(&chain).await;
            if given_up > 0 {
                return false;
            }
            let results = payload.as_ref().map(|payload| ChainResults::parse(payload.as_ref()));
            let Ok(Ok(results)) = results else {
                self.client.expect("ALLOCATE", false);
                return true;
            };
            let new = results.outcome(4).words()[0];
            let (before, after) = (words([old]), words([new]));
            let expected = [
                DONE,
                Outcome::Done(&before),
                Outcome::Done(b"a new value"),
                Outcome::NotSwapped(&after),
                Outcome::Done(&after),
            ];
            let held = results.outcomes() == expected && new != old;
            self.client.expect(&format!("ALLOCATE: {results:?}, not {expected:?}"), held);
            old = new;
        }
        let (direct, given_up) = self.run(&[allocate.under(rkey)]).await;
        if given_up > 0 {
            return false;
        }
        let direct = direct.as_ref().map(|payload| ChainResults::parse(payload.as_ref()));
        let direct = direct.map(|results| results.map(|results| results.outcome(0).words()[0]));
        self.client.expect("ALLOCATE yields a pointer", matches!(direct, Ok(Ok(at)) if at != old));
        for (buffer, known) in [(old, true), (old, false), (old + 8, false), (self.base, false)] {
            let posted =
                fabric.call(self.engine, &Raw::<RECYCLE>(&words([buffer])), Timeout::Never);
            let expected = FabricError::AccessDenied(AccessError::NotInUse { offset: buffer });
            let held = match posted.await {
                Ok(_) => known,
                Err(error) => !known && error == expected,
            };
            self.client.expect("a buffer is recycled once", held);
        }
        self.expect("WRITE", &[write(place, &[0; 8])], &[DONE]).await;
        true
    }

    /// Operations that no chain may have are refused before anything is executed.
    async fn malformed(&self) {
        let (base, rkey) = (self.base, self.ground.rkey);
        let bounded = Target::Bounded(base);
        let swap = MaskedSwap::new(Compare::Equal, [0], [1]);
        let bad = [
            Primitive::compare_swap(bounded, swap).under(rkey),
            Primitive::FetchAdd { target: bounded, amount: 1 }.under(rkey),
            write(Target::At(base), b"redirected").under(rkey).redirected(scratch(0)),
        ];
        for step in bad {
            let chain = [write(Target::At(base), &[1; 8]).under(rkey), step];
            let told = self.run(&chain).await.0.err() == Some(FabricError::Malformed);
            self.client.expect("a malformed chain is told", told);
        }
        let empty = self.run(&[]).await.0.err() == Some(FabricError::Malformed);
        self.client.expect("an empty chain is malformed", empty);
        let untouched = [read(Target::At(base), 8)];
        self.expect("a malformed chain", &untouched, &[Outcome::Done(&[0; 8])]).await;
        let chain = OneSided::Chain(&Chain::default());
        let nowhere = self.client.fabric.one_sided(NodeId(200), chain).await.err();
        self.client.expect("no such node", nowhere == Some(FabricError::Unreachable));
    }
}
