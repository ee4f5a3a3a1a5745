//! Every short chain of an alphabet, longer ones that are drawn, and every small compare-and-swap,
//! against a plain model.

use std::cmp::Ordering;
use std::sync::Arc;

use super::tests::{encoded, execute, is_malformed, random_step};
use super::*;
use crate::ids::{FreeListKey, RKey, Side};
use crate::memory::{Access, Buffers, Compare, MaskedSwap, Region, RegionTable, SWAP_WORDS_MAX};
use crate::rng::{Purpose, Stream, test_steps};
use crate::units::Bytes;

/// Words of the region: what is compared, two pointers, operands, results, buffers.
const WORDS: usize = 16;
const POINTER: u64 = 32;
/// A pointer with a bound of zero.
const BOUND_OF_ZERO: u64 = 80;
const OPERAND: u64 = 48;
const RESULT: u64 = 64;
const BUFFERS: u64 = 96;
const BUFFER: u64 = 16;
const INITIAL: [u64; WORDS] = [5, 6, 0, 0, 0, 8, 5, 7, 0, 0, 0, 0, 0, 0, 0, 0];

/// Memory as a plain array, and what was popped.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Model {
    words: [u64; WORDS],
    scratch: [u64; 4],
    popped: u64,
    /// True if the operation that runs has the region's key.
    opens: bool,
}

/// The outcome of an operation, without the reason of a refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Became {
    Done(Vec<u64>),
    NotSwapped(Vec<u64>),
    Skipped,
    Refused,
}

impl Became {
    /// Which of the four.
    fn kind(&self) -> usize {
        match self {
            Self::Done(_) => 0,
            Self::NotSwapped(_) => 1,
            Self::Skipped => 2,
            Self::Refused => 3,
        }
    }
}

impl Model {
    const fn new() -> Self {
        Self { words: INITIAL, scratch: [0; 4], popped: 0, opens: true }
    }

    /// The words at an address; `None` if they do not lie in one memory, are not aligned, or need a
    /// key.
    fn at(&mut self, at: u64, words: usize) -> Option<&mut [u64]> {
        if at < scratch(0) && !self.opens {
            return None;
        }
        let (base, all): (u64, &mut [u64]) =
            if at >= scratch(0) { (scratch(0), &mut self.scratch) } else { (0, &mut self.words) };
        let first = (at - base) / 8;
        let range = first as usize..first as usize + words;
        if at.is_multiple_of(8) { all.get_mut(range) } else { None }
    }

    /// The address that `target` means, and how many of so many words its bound allows.
    fn resolve(&mut self, target: Target, words: usize) -> Option<(u64, usize)> {
        let (at, words) = match target {
            Target::At(at) => return Some((at, words)),
            Target::Indirect(at) => (self.at(at, 1)?[0], words),
            Target::Bounded(at) => {
                let pointer = self.at(at, 2)?;
                (pointer[0], words.min((pointer[1] / 8) as usize))
            }
        };
        // No pointer leads to scratch.
        (at < scratch(0)).then_some((at, words))
    }

    /// The words at an address of the region that is aligned to all of them.
    fn aligned(&mut self, target: Target, words: usize) -> Option<&mut [u64]> {
        let (at, _) = self.resolve(target, words)?;
        let fits = at < scratch(0) && at.is_multiple_of(8 * words as u64);
        if fits { self.at(at, words) } else { None }
    }

    fn run(&mut self, key: RKey, steps: &[Step<'_>]) -> Vec<Became> {
        let mut succeeded = true;
        let run_one = |step: &Step<'_>| {
            let became = if step.conditional && !succeeded {
                Became::Skipped
            } else {
                self.opens = step.rkey == key;
                self.execute(step).unwrap_or(Became::Refused)
            };
            succeeded = matches!(became, Became::Done(_));
            became
        };
        steps.iter().map(run_one).collect()
    }

    /// `None`: refused, and nothing has changed.
    fn execute(&mut self, step: &Step<'_>) -> Option<Became> {
        let before = self.clone();
        let (output, holds) = match step.primitive {
            Primitive::Read { from, len } => {
                let (at, words) = self.resolve(from, len as usize / 8)?;
                (self.at(at, words)?.to_vec(), true)
            }
            Primitive::Write { to, data } => {
                let asked = match data {
                    Data::Inline(bytes) => bytes.len(),
                    Data::From { len, .. } => len as usize,
                };
                let (at, words) = self.resolve(to, asked / 8)?;
                let data: Vec<u64> = match data {
                    Data::Inline(bytes) => {
                        bytes.as_chunks().0.iter().copied().map(u64::from_le_bytes).collect()
                    }
                    Data::From { at, .. } => self.at(at, words)?.to_vec(),
                };
                self.at(at, words)?.copy_from_slice(&data[..words]);
                (Vec::new(), true)
            }
            Primitive::CompareSwap { target, swap, compare_at, swap_at } => {
                let words = swap.words();
                self.aligned(target, words)?;
                let operand = |model: &mut Self, from: Option<u64>, inline: &[u64]| match from {
                    Some(from) => model.at(from, words).map(|found| found.to_vec()),
                    None => Some(inline[..words].to_vec()),
                };
                let compare = operand(self, compare_at, &swap.compare)?;
                let new = operand(self, swap_at, &swap.swap)?;
                let found = self.aligned(target, words)?;
                let previous = found.to_vec();
                let holds = holds(swap.mode(), &compare, &previous, &swap.compare_mask);
                for word in (0..words).filter(|_| holds) {
                    let mask = swap.swap_mask[word];
                    found[word] = previous[word] & !mask | new[word] & mask;
                }
                (previous, holds)
            }
            Primitive::FetchAdd { target, amount } => {
                let found = self.aligned(target, 1)?;
                let previous = found[0];
                found[0] = previous.wrapping_add(amount);
                (vec![previous], true)
            }
            Primitive::Allocate { data, .. } => {
                if !self.opens || data.len() as u64 > BUFFER {
                    return None;
                }
                let at = BUFFERS + self.popped * BUFFER;
                self.popped = Some(self.popped + 1).filter(|popped| *popped <= 2)?;
                for (place, chunk) in data.as_chunks().0.iter().enumerate() {
                    self.at(at, 2)?[place] = u64::from_le_bytes(*chunk);
                }
                (vec![at], true)
            }
        };
        let Some(to) = step.redirect else {
            return Some(if holds { Became::Done(output) } else { Became::NotSwapped(output) });
        };
        match self.at(to, output.len()) {
            Some(found) => found.copy_from_slice(&output),
            // What is refused leaves memory alone.
            None => {
                *self = before;
                return None;
            }
        }
        Some(if holds { Became::Done(vec![]) } else { Became::NotSwapped(vec![]) })
    }
}

/// Does the comparison hold? The first word decides that differs under its mask.
fn holds(mode: Compare, operand: &[u64], found: &[u64], mask: &[u64]) -> bool {
    let mut order = Ordering::Equal;
    for ((operand, found), mask) in operand.iter().zip(found).zip(mask).rev() {
        let decides = (operand & mask).cmp(&(found & mask));
        order = if decides == Ordering::Equal { order } else { decides };
    }
    order
        == match mode {
            Compare::Equal => Ordering::Equal,
            Compare::Greater => Ordering::Greater,
            Compare::Less => Ordering::Less,
        }
}

/// The same memory as a target has it.
struct Ground {
    regions: RegionTable,
    region: Arc<Region>,
    rkey: RKey,
    list: FreeListKey,
}

impl Ground {
    fn new() -> Self {
        let (regions, mut keys) = (RegionTable::default(), 1..);
        let region = Arc::new(Region::new(Bytes(WORDS as u64 * 8)));
        let mut draw = || keys.next().unwrap_or_default();
        let rkey = regions.register(region.clone(), Access::ReadWrite, Side::Nic, &mut draw);
        let buffers = Buffers { rkey, first: BUFFERS, size: BUFFER, count: 2, in_use: 0 };
        let list = regions.register_buffers(buffers, &mut draw).unwrap();
        Self { regions, region, rkey, list }
    }

    fn lay(&self, words: [u64; WORDS]) {
        for (place, word) in (0..).zip(words) {
            self.region.store(place * 8, word).unwrap();
        }
    }

    fn words(&self) -> [u64; WORDS] {
        std::array::from_fn(|place| self.region.load(place as u64 * 8).unwrap())
    }

    /// Executes a chain, and gives back what it has popped.
    fn run(&self, steps: &[Step<'_>]) -> Vec<Became> {
        let mut chain = Chain::default();
        steps.iter().for_each(|step| {
            chain.push(*step);
        });
        let results = execute(&self.regions, &encoded(&chain)).unwrap();
        let results = ChainResults::parse(&results).unwrap();
        let words = |outcome: Outcome<'_>| {
            let chunks = outcome.bytes().as_chunks().0;
            chunks.iter().copied().map(u64::from_le_bytes).collect()
        };
        let became = |outcome: &Outcome<'_>| match *outcome {
            done @ Outcome::Done(_) => Became::Done(words(done)),
            not @ Outcome::NotSwapped(_) => Became::NotSwapped(words(not)),
            Outcome::Skipped => Became::Skipped,
            Outcome::Refused(_) => Became::Refused,
        };
        results.outcomes().iter().map(became).collect()
    }

    /// Begins anew with a free list that pops the first buffer first.
    fn renew(self, popped: bool) -> Self {
        if popped { Self::new() } else { self }
    }
}

/// Operations that hold and that do not, that are refused by address, by key, by an empty list.
fn alphabet(ground: &Ground) -> Vec<Step<'static>> {
    let at = Target::At;
    let swap = |mode, compare: u64, new: u64| MaskedSwap::new(mode, [compare], [new]);
    let pair =
        MaskedSwap::new(Compare::Greater, [0; 2], [1, 2]).masked([u64::MAX, 3], [1, u64::MAX]);
    let primitives = [
        Primitive::Read { from: at(0), len: 8 },
        Primitive::Read { from: Target::Indirect(POINTER), len: 16 },
        Primitive::Read { from: Target::Bounded(POINTER), len: 32 },
        Primitive::Read { from: at(WORDS as u64 * 8 - 8), len: 16 },
        Primitive::Read { from: Target::Bounded(BOUND_OF_ZERO), len: 16 },
        Primitive::Write { to: at(POINTER), data: Data::Inline(&[8, 0, 0, 0, 0, 0, 0, 0]) },
        Primitive::Write {
            to: Target::Indirect(POINTER),
            data: Data::From { at: OPERAND, len: 8 },
        },
        // Two words where the bound allows one, and two from the region.
        Primitive::Write { to: Target::Bounded(POINTER), data: Data::Inline(&[4; 16]) },
        Primitive::Write { to: at(RESULT), data: Data::From { at: OPERAND - 8, len: 16 } },
        Primitive::compare_swap(at(0), swap(Compare::Equal, 5, 9)),
        Primitive::CompareSwap {
            target: at(0),
            swap: pair,
            compare_at: Some(OPERAND),
            swap_at: None,
        },
        Primitive::CompareSwap {
            target: Target::Indirect(POINTER),
            swap: swap(Compare::Less, 6, 0),
            compare_at: None,
            swap_at: Some(scratch(0)),
        },
        Primitive::FetchAdd { target: at(8), amount: u64::MAX },
        Primitive::Allocate { list: ground.list, data: &[3; 16] },
    ];
    let mut steps = Vec::new();
    for primitive in primitives {
        let step = primitive.under(ground.rkey);
        steps.push(step);
        if !matches!(primitive, Primitive::Write { .. }) {
            steps.push(step.redirected(scratch(0)));
            steps.push(step.redirected(RESULT));
        }
    }
    // An address at which nothing fits, and a key that nobody has.
    steps.push(steps[0].redirected(scratch(32)));
    steps.push(Step { rkey: RKey(ground.rkey.0 + 77), ..steps[0] });
    let conditional: Vec<_> = steps.iter().map(|step| step.conditional()).collect();
    [steps, conditional].concat()
}

#[test]
fn every_chain_of_three_operations_does_what_a_plain_model_does() {
    let mut ground = Ground::new();
    let alphabet = alphabet(&ground);
    let mut compared = 0;
    let mut seen = [0_u64; 4];
    for first in &alphabet {
        for second in &alphabet {
            for third in &alphabet {
                let steps = [*first, *second, *third];
                let mut model = Model::new();
                ground.lay(INITIAL);
                let (expected, found) = (model.run(ground.rkey, &steps), ground.run(&steps));
                assert_eq!(found, expected, "{steps:?}");
                assert_eq!(ground.words(), model.words, "{steps:?}");
                compared += 1;
                found.iter().for_each(|became| seen[became.kind()] += 1);
                ground = ground.renew(model.popped > 0);
            }
        }
    }
    assert_eq!(compared, alphabet.len().pow(3));
    assert!(seen.iter().all(|&seen| seen > 10_000), "{seen:?}");
}

/// A drawn operation whose addresses and sizes are those of [`Ground`].
fn drawn(rng: &mut Stream, ground: &Ground) -> Step<'static> {
    const BYTES: [u8; 40] = [1; 40];
    let place = |at: u64| match at {
        512 => POINTER,
        1_016 => WORDS as u64 * 8 - 8,
        at => at,
    };
    let target = |target| match target {
        Target::At(at) => Target::At(place(at)),
        Target::Indirect(at) => Target::Indirect(place(at)),
        Target::Bounded(at) => Target::Bounded(place(at)),
    };
    let whole = |len: usize| len / 8 * 8;
    let mut step = loop {
        let step = random_step(rng, &BYTES);
        if !is_malformed(&step) {
            break step;
        }
    };
    step.primitive = match step.primitive {
        Primitive::Read { from, len } => {
            Primitive::Read { from: target(from), len: whole(len as usize) as u32 }
        }
        Primitive::Write { to, data } => {
            let data = match data {
                Data::Inline(bytes) => Data::Inline(&bytes[..whole(bytes.len())]),
                Data::From { at, len } => {
                    Data::From { at: place(at), len: whole(len as usize) as u32 }
                }
            };
            Primitive::Write { to: target(to), data }
        }
        Primitive::CompareSwap { target: to, mut swap, compare_at, swap_at } => {
            let (compare_at, swap_at) = (compare_at.map(place), swap_at.map(place));
            // Words that are small are addresses and bounds of whole words.
            swap.compare.iter_mut().chain(&mut swap.swap).for_each(|word| *word *= 8);
            Primitive::CompareSwap { target: target(to), swap, compare_at, swap_at }
        }
        Primitive::FetchAdd { target: to, amount } => {
            Primitive::FetchAdd { target: target(to), amount }
        }
        Primitive::Allocate { data, .. } => {
            Primitive::Allocate { list: ground.list, data: &data[..whole(data.len())] }
        }
    };
    step.redirect = step.redirect.map(place);
    // One in eight presents a key that nobody has.
    step.rkey = if rng.below(8) == 0 { RKey(ground.rkey.0 + 77) } else { ground.rkey };
    step
}

/// Memory of pointers, bounds of whole words, and values that operands are compared with.
fn drawn_words(rng: &mut Stream) -> [u64; WORDS] {
    let of = [0, 8, 16, 24, 32, 64, 96, WORDS as u64 * 8, scratch(0), u64::MAX];
    std::array::from_fn(|_| of[rng.below(of.len() as u64) as usize])
}

#[test]
fn drawn_chains_of_four_to_six_operations_do_what_a_plain_model_does() {
    let (mut ground, mut rng) = (Ground::new(), Stream::new(11, Purpose::Protocol, 0));
    let mut seen = [0_u64; 4];
    for _ in 0..test_steps(100_000) {
        let words = drawn_words(&mut rng);
        let count = 4 + rng.below(3);
        let steps: Vec<_> = (0..count).map(|_| drawn(&mut rng, &ground)).collect();
        let mut model = Model { words, ..Model::new() };
        ground.lay(words);
        let (expected, found) = (model.run(ground.rkey, &steps), ground.run(&steps));
        assert_eq!(found, expected, "{steps:?} on {words:?}");
        assert_eq!(ground.words(), model.words, "{steps:?} on {words:?}");
        found.iter().for_each(|became| seen[became.kind()] += 1);
        ground = ground.renew(model.popped > 0);
    }
    assert!(seen.iter().all(|&seen| seen > test_steps(2_000)), "{seen:?}");
}

/// Where four words lie behind the pointer, and where operands of as many may lie.
const WIDE: u64 = 32;
const WIDE_OPERANDS: [u64; 2] = [64, scratch(0)];

/// Four words, of which those are greater by one that `digits` has a bit for.
fn wide(least: u64, digits: u64) -> [u64; SWAP_WORDS_MAX] {
    std::array::from_fn(|word| least + (digits >> word & 1))
}

/// Whatever differs, wherever the target and either operand are.
#[test]
fn every_compare_and_swap_of_32_bytes_takes_its_operands_from_where_it_says() {
    let ground = Ground::new();
    let (mut held, mut compared) = (0, 0);
    let masks = [[u64::MAX; SWAP_WORDS_MAX], [0, u64::MAX, 1, 0]];
    let targets = [Target::At(WIDE), Target::Indirect(0)];
    // A place for an operand, or none: it is in the request.
    let places = [None, Some(WIDE_OPERANDS[0]), Some(WIDE_OPERANDS[1])];
    let mut check = |swap: Primitive<'_>, [found, compare, new]: [[u64; SWAP_WORDS_MAX]; 3]| {
        let mut model = Model::new();
        model.words[0] = WIDE;
        model.words[4..8].copy_from_slice(&found);
        model.words[8..12].copy_from_slice(&compare);
        for (place, word) in (0..).zip(model.words) {
            ground.region.store(place * 8, word).unwrap();
        }
        let new = new.map(u64::to_le_bytes);
        let (to, data) = (Target::At(WIDE_OPERANDS[1]), Data::Inline(new.as_flattened()));
        let staged = Primitive::Write { to, data }.under(ground.rkey);
        let steps = [staged, swap.under(ground.rkey).conditional()];
        let expected = model.run(ground.rkey, &steps);
        assert_eq!(ground.run(&steps), expected, "{steps:?}");
        assert_eq!(ground.words(), model.words, "{steps:?}");
        held += u64::from(matches!(expected[1], Became::Done(_)));
        compared += 1;
    };
    for (mode, target) in [Compare::Equal, Compare::Greater, Compare::Less]
        .into_iter()
        .flat_map(|mode| targets.map(|target| (mode, target)))
    {
        for (compare_at, swap_at) in places.iter().flat_map(|at| places.map(|to| (*at, to))) {
            for (differs, masked) in
                (0..256).flat_map(|differs| (0..4).map(move |it| (differs, it)))
            {
                let words = [wide(7, differs / 16), wide(7, differs % 16), wide(6, differs / 3)];
                // Operands that the memory has are not taken from the request.
                let inline =
                    |at: Option<u64>, words| if at.is_some() { wide(99, 0) } else { words };
                let swap =
                    MaskedSwap::new(mode, inline(compare_at, words[1]), inline(swap_at, words[2]))
                        .masked(masks[masked % 2], masks[masked / 2]);
                check(Primitive::CompareSwap { target, swap, compare_at, swap_at }, words);
            }
        }
    }
    assert_eq!(compared, 3 * 2 * 9 * 256 * 4);
    assert!(held > 10_000 && compared - held > 10_000, "{held} of {compared}");
}

#[test]
fn every_small_compare_and_swap_does_what_a_plain_model_does() {
    let ground = Ground::new();
    let mut compared = 0;
    let mut check = |mut swap: MaskedSwap, found: [u64; SWAP_WORDS_MAX], masks: [usize; 2]| {
        let words = swap.words();
        for (word, &before) in found.iter().enumerate().take(words) {
            let mask = |bits: usize| if bits >> word & 1 == 1 { u64::MAX } else { 1 };
            (swap.compare_mask[word], swap.swap_mask[word]) = (mask(masks[0]), mask(masks[1]));
            ground.region.store(word as u64 * 8, before).unwrap();
        }
        let done = ground.region.swap_atomic(0, &swap).unwrap();
        let holds = holds(swap.mode(), &swap.compare[..words], &found[..words], &swap.compare_mask);
        assert_eq!(done.swapped, holds, "{swap:?} {found:?}");
        for (word, &before) in found.iter().enumerate().take(words) {
            let mask = if holds { swap.swap_mask[word] } else { 0 };
            let expected = before & !mask | swap.swap[word] & mask;
            assert_eq!(done.previous[word], before);
            assert_eq!(ground.region.load(word as u64 * 8), Ok(expected), "{swap:?} {found:?}");
        }
        compared += 1;
    };
    // Words of three values where there are one or two, of two where there are four.
    for (words, values) in [(1, 3), (2, 3), (4, 2_u64)] {
        let states = values.pow(words as u32);
        let digits = |number: u64| {
            let digit = |word| number / values.pow(word as u32) % values;
            std::array::from_fn(|word| if word < words { digit(word) } else { 0 })
        };
        for mode in [Compare::Equal, Compare::Greater, Compare::Less] {
            for operand in 0..states {
                for found in 0..states {
                    for masks in 0..1 << (2 * words) {
                        let mut swap = MaskedSwap::of_words(mode, words).unwrap();
                        (swap.compare, swap.swap) = (digits(operand), [6; SWAP_WORDS_MAX]);
                        check(swap, digits(found), [masks & ((1 << words) - 1), masks >> words]);
                    }
                }
            }
        }
    }
    assert!(compared > 190_000, "{compared}");
}
