//! Chains as bytes, and their execution where nothing else runs, or everything does.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use super::*;
use crate::fabric::{FabricError, OneSided};
use crate::ids::{FreeListKey, RKey, Side};
use crate::memory::{Access, AccessError, Buffers, Compare, MaskedSwap, Region, RegionTable};
use crate::rng::{Purpose, Stream};
use crate::units::Bytes;

/// Memory that is reached at once, or at the second poll.
struct Turns {
    waits: bool,
    taken: Cell<usize>,
}

impl Turns {
    fn new(waits: bool) -> Self {
        Self { waits, taken: Cell::new(0) }
    }
}

impl ChainAccess for Turns {
    async fn access(&self, _: Side, _: u64, _: Touch) -> Result<(), FabricError> {
        let until = self.taken.get() + usize::from(self.waits);
        poll_fn(|_| {
            let reached = self.taken.get() == until;
            self.taken.set(until);
            if reached { Poll::Ready(Ok(())) } else { Poll::Pending }
        })
        .await
    }
}

pub(super) fn poll<T>(future: std::pin::Pin<&mut impl Future<Output = T>>) -> Poll<T> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

pub(super) fn execute(regions: &RegionTable, body: &[u8]) -> Result<Vec<u8>, FabricError> {
    let mut results = Vec::new();
    let turns = Turns::new(false);
    let ran = poll(pin!(run(body, regions, &turns, &mut results)));
    let Poll::Ready(ran) = ran else { panic!("there is nothing to wait for") };
    ran.map(|()| results)
}

pub(super) fn encoded(chain: &Chain) -> Vec<u8> {
    let mut body = Vec::new();
    Encoded::emit(OneSided::Chain(chain), true, &mut body);
    body
}

/// A table with a region of 1 KiB and a free list of four buffers of 64 bytes, from 512 on.
fn table() -> (RegionTable, Arc<Region>, RKey, FreeListKey) {
    let (regions, region) = (RegionTable::default(), Arc::new(Region::new(Bytes(1_024))));
    let mut keys = 1..;
    let mut draw = || keys.next().unwrap_or_default();
    let rkey = regions.register(region.clone(), Access::ReadWrite, Side::Nic, &mut draw);
    let buffers = Buffers { rkey, first: 512, size: 64, count: 4, in_use: 1 };
    let list = regions.register_buffers(buffers, &mut draw).unwrap();
    (regions, region, rkey, list)
}

pub(super) fn random_step<'a>(rng: &mut Stream, bytes: &'a [u8]) -> Step<'a> {
    let mut draw = |below: u64| rng.bits() % below;
    let addresses = [0, 8, 64, 512, 1_016, scratch(0), scratch(16), u64::MAX - 7];
    let mut address = || addresses[draw(8) as usize];
    let (first, second, third) = (address(), address(), address());
    let target = match draw(4) {
        0 => Target::Indirect(first),
        1 => Target::Bounded(first),
        _ => Target::At(first),
    };
    let len = draw(bytes.len() as u64) as usize;
    let primitive = match draw(5) {
        0 => Primitive::Read { from: target, len: len as u32 },
        1 if draw(2) == 0 => {
            Primitive::Write { to: target, data: Data::From { at: second, len: len as u32 } }
        }
        1 => Primitive::Write { to: target, data: Data::Inline(&bytes[..len]) },
        2 => {
            let mode = [Compare::Equal, Compare::Greater, Compare::Less][draw(3) as usize];
            let mut swap = MaskedSwap::of_words(mode, 1 << draw(3)).unwrap();
            let compare_at = (draw(3) == 0).then_some(second);
            let swap_at = [None, Some(third), compare_at][draw(3) as usize];
            swap.compare[0] = if compare_at.is_none() { draw(3) } else { 0 };
            swap.swap[0] = if swap_at.is_none() { draw(3) } else { 0 };
            swap.swap_mask[0] = if draw(2) == 0 { u64::MAX } else { draw(1 << 40) };
            Primitive::CompareSwap { target, swap, compare_at, swap_at }
        }
        3 => Primitive::FetchAdd { target, amount: draw(1 << 50) },
        _ => Primitive::Allocate { list: FreeListKey(2), data: &bytes[..len] },
    };
    let redirect = (draw(4) == 0).then_some(third);
    Step { primitive, rkey: RKey(1), conditional: draw(2) == 0, redirect }
}

/// Would a target refuse this operation whatever is in its memory?
pub(super) fn is_malformed(step: &Step<'_>) -> bool {
    let target = match step.primitive {
        Primitive::CompareSwap { target, .. } | Primitive::FetchAdd { target, .. } => target,
        Primitive::Write { .. } => return step.redirect.is_some(),
        _ => return false,
    };
    matches!(target, Target::Bounded(_))
}

#[test]
fn an_operation_survives_the_wire_or_is_refused_there() {
    let mut rng = Stream::new(3, Purpose::Protocol, 0);
    let (mut chain, mut refused) = (Chain::default(), 0);
    for _ in 0..20_000 {
        let step = random_step(&mut rng, &[7; 40]);
        chain.clear();
        chain.push(step);
        let body = encoded(&chain);
        let mut parsed = Encoded::parse(&body).unwrap();
        assert_eq!(parsed.check().is_err(), is_malformed(&step), "{step:?}");
        match parsed.next_step() {
            Ok(back) => assert_eq!(back, step),
            Err(_) => refused += 1,
        }
    }
    assert!(refused > 1_000, "some must have been refused: {refused}");
}

#[test]
fn a_verb_that_goes_to_whoever_executes_chains_is_a_verb_all_the_same() {
    let (regions, ..) = table();
    let read = OneSided::Read { rkey: RKey(1), offset: 64, len: 8 };
    let [by_card, by_chains] = [false, true].map(|like_chain| {
        let mut body = Vec::new();
        Encoded::emit(read, like_chain, &mut body);
        let parsed = Encoded::parse(&body).unwrap();
        assert_eq!((parsed.is_chain, parsed.like_chain), (false, like_chain));
        (parsed.only_step().unwrap(), execute(&regions, &body)).1.map_err(|error| error.to_string())
    });
    assert_eq!(by_card, by_chains, "the reply is the bare output, or the error");
}

#[test]
fn no_bytes_make_a_target_panic_or_take_memory_beyond_its_limit() {
    let mut rng = Stream::new(4, Purpose::Protocol, 0);
    let (regions, _, _, _) = table();
    let (mut executed, mut refused) = (0, 0);
    for _ in 0..20_000 {
        let mut chain = Chain::default();
        for _ in 0..1 + rng.bits() % 5 {
            chain.push(random_step(&mut rng, &[9; 80]));
        }
        let mut body = encoded(&chain);
        if rng.bits().is_multiple_of(2) {
            let at = rng.bits() as usize % body.len();
            body[at] = rng.bits() as u8;
        }
        match execute(&regions, &body) {
            Ok(results) => {
                assert!(results.len() <= 2 * CHAIN_BYTES_MAX);
                executed += ChainResults::parse(&results).unwrap().outcomes().len();
            }
            Err(error) => {
                assert_eq!(error, FabricError::Malformed);
                refused += 1;
            }
        }
    }
    assert!(executed > 1_000 && refused > 1_000, "{executed} executed, {refused} refused");
}

#[test]
fn headers_that_no_chain_has_are_malformed() {
    let (regions, ..) = table();
    let mut chain = Chain::default();
    assert_eq!(execute(&regions, &encoded(&chain)), Err(FabricError::Malformed), "empty");
    chain.push(Primitive::Read { from: Target::At(0), len: 8 }.under(RKey(1)));
    let good = encoded(&chain);
    assert!(execute(&regions, &good).is_ok());
    // The form, the count, the code, and the flags: bounded without indirect is one of them.
    for (at, byte) in [(0, 3), (0, 255), (1, 0), (1, 2), (1, 17), (2, 5), (3, 1 << 2), (3, 1 << 1)]
    {
        let mut bad = good.clone();
        bad[at] = byte;
        assert_eq!(execute(&regions, &bad), Err(FabricError::Malformed), "byte {at} is {byte}");
    }
    let longer = [good.as_slice(), &[0]].concat();
    assert_eq!(execute(&regions, &longer), Err(FabricError::Malformed), "trailing");
}

#[test]
fn a_chain_that_cannot_be_buffered_is_refused_whole() {
    let (regions, region, rkey, _) = table();
    let mut chain = Chain::default();
    let huge = vec![1; CHAIN_BYTES_MAX];
    let write = |bytes| Primitive::Write { to: Target::At(0), data: Data::Inline(bytes) };
    chain.push(write(&huge[..8]).under(rkey)).push(write(&huge).under(rkey));
    assert_eq!(execute(&regions, &encoded(&chain)), Err(FabricError::NoResources));
    assert_eq!(region.load(0), Ok(0), "nothing of it was executed");
    let entered: Vec<_> = std::iter::from_fn(|| regions.enter().ok()).collect();
    assert_eq!(entered.len(), crate::memory::CHAINS_MAX as usize);
    chain.clear();
    chain.push(write(&huge[..8]).under(rkey));
    assert_eq!(execute(&regions, &encoded(&chain)), Err(FabricError::NoResources));
    entered.into_iter().for_each(|one| regions.leave(one));
    assert!(execute(&regions, &encoded(&chain)).is_ok());
}

#[test]
fn a_buffer_is_not_reused_while_a_chain_may_read_it() {
    let (regions, region, rkey, list) = table();
    region.store(0, 512).unwrap();
    region.write(512, &[1; 64]).unwrap();
    let mut reads = Chain::default();
    reads.push(Primitive::Read { from: Target::Indirect(0), len: 64 }.under(rkey));
    let (body, turns) = (encoded(&reads), Turns::new(true));
    let mut reader = pin!(async {
        let mut results = Vec::new();
        run(&body, &regions, &turns, &mut results).await.map(|()| results)
    });
    // It waits for the pointer, then for what the pointer, by now followed, points to.
    assert!(poll(reader.as_mut()).is_pending());
    assert!(poll(reader.as_mut()).is_pending());
    let mut allocate = Chain::default();
    allocate.push(Primitive::Allocate { list, data: &[2; 64] }.under(rkey));
    let allocate = encoded(&allocate);
    regions.post_buffers(list, &[512]).unwrap();
    for _ in 0..3 {
        let taken = execute(&regions, &allocate).unwrap();
        assert_ne!(ChainResults::parse(&taken).unwrap().outcome(0).words()[0], 512);
    }
    let empty = execute(&regions, &allocate).unwrap();
    let empty = ChainResults::parse(&empty).unwrap().refused();
    assert_eq!(empty, Some((0, FabricError::NoResources)));
    let Poll::Ready(Ok(read)) = poll(reader.as_mut()) else {
        panic!("the reader has waited twice")
    };
    let taken = execute(&regions, &allocate).unwrap();
    assert_eq!(ChainResults::parse(&taken).unwrap().outcome(0).words()[0], 512);
    assert_eq!(ChainResults::parse(&read).unwrap().outcome(0), Outcome::Done(&[1; 64]));
}

#[test]
fn free_lists_lie_in_writable_regions() {
    let (regions, region, rkey, _) = table();
    let mut keys = 10..;
    let mut draw = || keys.next().unwrap_or_default();
    let read_only = regions.register(region, Access::Read, Side::Nic, &mut draw);
    let good = Buffers { rkey, first: 0, size: 8, count: 4, in_use: 0 };
    let mut register = |buffers| regions.register_buffers(buffers, &mut draw).map(drop);
    let denied = AccessError::Denied { rkey: read_only.0 };
    assert_eq!(register(Buffers { rkey: read_only, ..good }), Err(denied));
    assert_eq!(register(Buffers { size: 12, ..good }), Err(AccessError::Misaligned { offset: 12 }));
    assert_eq!(register(Buffers { first: 4, ..good }), Err(AccessError::Misaligned { offset: 4 }));
    let outside = AccessError::OutOfBounds { offset: 0, len: 8 * 129, size: 1_024 };
    assert_eq!(register(Buffers { count: 129, ..good }), Err(outside));
    assert_eq!(register(good), Ok(()));
}

#[test]
fn a_chain_does_not_grow_that_was_told_what_it_carries() {
    let data = [7; 512];
    let mut chain = Chain::carrying(data.len());
    let room = chain.body.capacity();
    // As long as a PUT's of PRISM-KV, whose slots are of four words.
    let (rkey, to) = (RKey(1), Target::At(scratch(0)));
    let staged = Primitive::Write { to, data: Data::Inline(&data[..32]) };
    let allocate = Primitive::Allocate { list: FreeListKey(2), data: &data };
    let swap = MaskedSwap::new(Compare::Equal, [1; 4], [0; 4]).masked([1; 4], [u64::MAX; 4]);
    let (target, compare_at, swap_at) = (Target::At(64), None, Some(scratch(0)));
    let swap = Primitive::CompareSwap { target, swap, compare_at, swap_at };
    chain.push(staged.under(rkey)).push(allocate.under(rkey).conditional().redirected(scratch(8)));
    chain.push(swap.under(rkey).conditional());
    chain.push(Primitive::Read { from: Target::At(scratch(8)), len: 8 }.under(rkey));
    assert!(chain.body.len() > 700 && chain.body.capacity() == room, "{}", chain.body.len());
}
