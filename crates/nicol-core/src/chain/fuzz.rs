//! Properties of requests with any bytes, for the fuzzer in `fuzz/` and for a test that tries some
//! of its inputs.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use super::{CHAIN_BYTES_MAX, ChainAccess, ChainResults, OPERATIONS_MAX, Touch, run};
use crate::fabric::FabricError;
use crate::ids::{FreeListKey, RKey, Side};
use crate::memory::{Access, Buffers, Region, RegionTable, SWAP_WORDS_MAX, WORD};
use crate::units::Bytes;

/// Bytes of each region.
const SIZE: u64 = 1_024;
/// The region that may be written, with its pointers and its free list; one that may be read, and
/// one that is not registered any more. Keys are small, so that a fuzzer guesses them.
const WRITABLE: RKey = RKey(1);
const READABLE: RKey = RKey(2);
const REVOKED: RKey = RKey(3);
const LIST: FreeListKey = FreeListKey(4);
/// Its buffers: from here on, of so many bytes, and how many.
const FIRST: u64 = 512;
const BUFFER: u64 = 64;
const BUFFERS: u32 = 4;
/// The content of memory that no request may write.
const UNTOUCHED: u64 = 0x5ca1_ab1e_0ddb_a115;
/// Accesses to memory that an operation makes at most: two pointers, two operands, the words
/// themselves, an output, each in two halves.
const ACCESSES_MAX: usize = 12;
/// Requests that one input holds at most.
const REQUESTS_MAX: usize = 16;

/// Memory that is reached at once.
struct AtOnce {
    accesses: std::cell::Cell<usize>,
}

impl AtOnce {
    /// # Panics
    /// If the access is not within a region.
    fn check(&self, at: u64, touch: Touch) {
        let (Touch::Fetch(len) | Touch::Store(len) | Touch::Atomic(len)) = touch;
        let end = at.checked_add(len);
        assert!(end.is_some_and(|end| end <= SIZE), "{touch:?} at {at} is outside");
        if let Touch::Atomic(len) = touch {
            assert!(len <= (SWAP_WORDS_MAX * WORD) as u64, "{touch:?} is too large");
            assert!(at.is_multiple_of(len), "{touch:?} at {at} is misaligned");
        }
        self.accesses.set(self.accesses.get() + 1);
    }
}

impl ChainAccess for AtOnce {
    const TEARS: bool = true;

    async fn access_first(
        &self,
        _: Side,
        at: u64,
        first: u64,
        len: u64,
    ) -> Result<(), FabricError> {
        assert!(first <= len, "a half of {len} bytes");
        self.check(at, Touch::Fetch(len));
        Ok(())
    }

    async fn access(&self, _: Side, at: u64, touch: Touch) -> Result<(), FabricError> {
        self.check(at, touch);
        Ok(())
    }
}

struct Target {
    regions: RegionTable,
    writable: Arc<Region>,
    others: [Arc<Region>; 2],
}

impl Target {
    fn new() -> Self {
        let regions = RegionTable::default();
        let region = || Arc::new(Region::new(Bytes(SIZE)));
        let (writable, others) = (region(), [region(), region()]);
        let register = |region: &Arc<Region>, access, key: RKey| {
            let found = regions.register(region.clone(), access, Side::Host, || key.0);
            assert_eq!(found, key, "the key is free");
        };
        register(&writable, Access::ReadWrite, WRITABLE);
        register(&others[0], Access::Read, READABLE);
        register(&others[1], Access::ReadWrite, REVOKED);
        assert!(regions.revoke(REVOKED), "it was registered");
        let buffers =
            Buffers { rkey: WRITABLE, first: FIRST, size: BUFFER, count: BUFFERS, in_use: 1 };
        let list = regions.register_buffers(buffers, || LIST.0);
        assert_eq!(list, Ok(LIST), "the key is free");
        // Pointers and bounds that lead to a buffer, to the last word, to the end, and nowhere.
        let words = [FIRST, BUFFER, SIZE - 8, 64, SIZE, 8, u64::MAX - 7, u64::MAX];
        for (at, word) in (0..).zip(words) {
            assert_eq!(writable.store(at * 8, word), Ok(()), "within the region");
        }
        for other in &others {
            for at in (0..SIZE).step_by(8) {
                assert_eq!(other.store(at, UNTOUCHED), Ok(()), "within the region");
            }
        }
        Self { regions, writable, others }
    }

    fn check(&self) {
        for other in &self.others {
            let untouched = (0..SIZE).step_by(8).all(|at| other.load(at) == Ok(UNTOUCHED));
            assert!(untouched, "a region was written whose key does not allow it");
        }
        let uses = self.regions.buffer_uses(LIST).map_or(0, |uses| uses.iter().count());
        let whole = uses + self.regions.buffers_ready(LIST);
        assert_eq!(whole, BUFFERS as usize, "a buffer is in use or ready");
        let mark = self.regions.mark_chains();
        assert!(self.regions.have_ended(mark), "every chain has ended");
        assert_eq!(self.writable.size(), Bytes(SIZE), "a region keeps its size");
    }
}

/// Executes the requests in `input`, each behind two bytes with its length, and checks what holds
/// of any: no access is outside a region, what must not be written is not, buffers and chains are
/// accounted for, results have the form that clients read, and take bounded space and accesses.
/// Returns how many were executed.
///
/// # Panics
/// If something does not hold.
pub fn try_requests(input: &[u8]) -> usize {
    let target = Target::new();
    let (mut rest, mut executed) = (input, 0);
    for _ in 0..REQUESTS_MAX {
        let Some((len, behind)) = rest.split_first_chunk::<2>() else { break };
        let len = usize::from(u16::from_le_bytes(*len)).min(behind.len());
        let (body, behind) = behind.split_at(len);
        rest = behind;
        executed += usize::from(try_request(&target, body));
        target.check();
    }
    executed
}

fn try_request(target: &Target, body: &[u8]) -> bool {
    let memory = AtOnce { accesses: std::cell::Cell::new(0) };
    let mut results = Vec::new();
    let ran = {
        let running = pin!(run(body, &target.regions, &memory, &mut results));
        running.poll(&mut Context::from_waker(Waker::noop()))
    };
    let Poll::Ready(ran) = ran else { panic!("there is nothing to wait for") };
    assert!(memory.accesses.get() <= OPERATIONS_MAX * ACCESSES_MAX, "{}", memory.accesses.get());
    assert!(results.len() <= 2 * CHAIN_BYTES_MAX, "{} bytes of results", results.len());
    let is_chain = body.first() == Some(&1);
    if ran.is_ok() && is_chain {
        let count = ChainResults::parse(&results).map(|results| results.outcomes().len());
        assert_eq!(count, Ok(usize::from(body[1])), "an outcome for each operation");
    }
    ran.is_ok()
}

#[cfg(test)]
mod tests {
    use super::super::tests::{encoded, random_step};
    use super::super::{Chain, Primitive};
    use super::*;
    use crate::rng::{Purpose, Stream, test_steps};

    /// A request with its length before it.
    fn framed(body: &[u8]) -> Vec<u8> {
        [&(body.len() as u16).to_le_bytes(), body].concat()
    }

    /// The same cases on every machine: chains as clients send them, some of them damaged.
    #[test]
    fn whatever_a_request_says_only_what_its_keys_allow_is_touched() {
        let mut rng = Stream::new(9, Purpose::Protocol, 0);
        let (mut executed, mut refused) = (0, 0);
        for _ in 0..test_steps(6_000) {
            let mut input = Vec::new();
            let requests = 1 + rng.below(4) as usize;
            for _ in 0..requests {
                let mut chain = Chain::default();
                for _ in 0..1 + rng.below(6) {
                    let mut step = random_step(&mut rng, &[9; 72]);
                    step.rkey = RKey(1 + rng.below(4) as u32);
                    if let Primitive::Allocate { list, .. } = &mut step.primitive {
                        *list = LIST;
                    }
                    chain.push(step);
                }
                let mut body = encoded(&chain);
                for _ in 0..rng.below(3) {
                    let at = rng.below(body.len() as u64) as usize;
                    body[at] = rng.bits() as u8;
                }
                input.extend(framed(&body));
            }
            let ran = try_requests(&input);
            executed += ran;
            refused += requests - ran;
        }
        assert!(executed > 2_000 && refused > 1_000, "{executed} executed, {refused} refused");
    }

    #[test]
    fn inputs_that_are_cut_or_empty_are_tried_too() {
        let mut chain = Chain::default();
        let read = |from| Primitive::Read { from, len: 8 }.under(WRITABLE);
        chain.push(read(super::super::Target::Indirect(0)));
        let input = framed(&encoded(&chain));
        assert_eq!(try_requests(&input), 1);
        assert!((0..input.len()).all(|len| try_requests(&input[..len]) == 0));
    }

    #[test]
    #[should_panic(expected = "is outside")]
    fn an_access_outside_of_a_region_is_noticed() {
        AtOnce { accesses: std::cell::Cell::new(0) }.check(SIZE - 8, Touch::Fetch(9));
    }

    #[test]
    #[should_panic(expected = "was written whose key does not allow it")]
    fn a_write_without_a_key_is_noticed() {
        let target = Target::new();
        target.others[0].store(64, 1).unwrap();
        target.check();
    }
}
