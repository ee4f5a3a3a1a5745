//! The registers of a HyperLogLog, and their two formats in a string.
//!
//! Layout, as of Redis 2.8.9: `HYLL`, the encoding (0 dense, 1 sparse), three zeros, the estimate
//! as it was last computed (8 bytes, little-endian; the highest bit: it is out of date), the
//! registers. Dense: 6 bits each, from the lowest bit on. Sparse: runs of registers, `00nnnnnn` of
//! n + 1 zeros, `01nnnnnn nnnnnnnn` of as many in two bytes, `1vvvvvnn` of n + 1 registers that
//! hold v + 1.

use crate::transactions::sizes::Sizes;

/// 2^14 registers: a standard error of 0.81 %.
pub const REGISTERS: usize = 1 << INDEX_BITS;
const INDEX_BITS: u32 = 14;
/// The greatest rank of a hash but for one: the bits that choose no register.
const RANKS: usize = 64 - INDEX_BITS as usize;
const HEAD: usize = 16;
const MAGIC: &[u8] = b"HYLL";
const DENSE: u8 = 0;
const SPARSE: u8 = 1;
const DENSE_LEN: usize = HEAD + REGISTERS * 6 / 8;
/// Bytes up to which registers are kept sparse: Redis' `hll-sparse-max-bytes`.
/// The greatest register that the sparse encoding holds.
const SPARSE_VALUE_MAX: u8 = 32;
/// Where the estimate is out of date: the highest bit of its last byte.
const STALE: (usize, u8) = (15, 0x80);
/// 1 / (2 ln 2), with as many digits as Redis has. [Ertl 2017]
const ALPHA: f64 = 0.721_347_520_444_481_7;
/// The seed of the hash.
const SEED: u64 = 0xadc8_3b19;

/// What a HyperLogLog has seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sketch {
    registers: Vec<u8>,
    dense: bool,
    /// An element has changed it since it was made.
    changed: bool,
}

impl Default for Sketch {
    fn default() -> Self {
        Self { registers: vec![0; REGISTERS], dense: false, changed: false }
    }
}

impl Sketch {
    /// Whether a string begins as one does, and has its length if it is dense.
    pub fn is_one(value: &[u8]) -> bool {
        value.len() >= HEAD
            && value.starts_with(MAGIC)
            && (value[4] == SPARSE || value[4] == DENSE && value.len() == DENSE_LEN)
    }

    /// Reads a string that is one. `None`: its runs do not add up.
    pub fn parse(value: &[u8]) -> Option<Self> {
        let dense = value[4] == DENSE;
        let registers = if dense { from_dense(&value[HEAD..]) } else { from_sparse(value)? };
        Some(Self { registers, dense, changed: value[STALE.0] & STALE.1 != 0 })
    }

    /// Its string: sparse if it never was dense and fits.
    pub fn format(&self, sizes: &Sizes) -> Vec<u8> {
        let mut value = Vec::with_capacity(HEAD);
        value.extend_from_slice(MAGIC);
        value.resize(HEAD, 0);
        if self.changed {
            value[STALE.0] |= STALE.1;
        } else {
            value[8..HEAD].copy_from_slice(&self.count().to_le_bytes());
        }
        let sparse = if self.dense { None } else { sparse(&self.registers, sizes.sparse_bytes()) };
        match sparse {
            Some(runs) => {
                value[4] = SPARSE;
                value.extend(runs);
            }
            None => value.extend(dense(&self.registers)),
        }
        value
    }

    pub fn registers(&self) -> &[u8] {
        &self.registers
    }

    /// Whether it is kept dense.
    pub fn is_dense(&self) -> bool {
        self.dense
    }

    /// Keeps it dense from now on; whether it was not.
    pub fn make_dense(&mut self) -> bool {
        !std::mem::replace(&mut self.dense, true)
    }

    /// Adds an element; whether it has changed anything.
    pub fn add(&mut self, element: &[u8]) -> bool {
        let hash = murmur(element);
        let register = &mut self.registers[hash as usize % REGISTERS];
        let rank = 1 + (hash >> INDEX_BITS | 1 << RANKS).trailing_zeros() as u8;
        let changes = rank > *register;
        if changes {
            *register = rank;
            self.changed = true;
        }
        changes
    }

    /// Adds what another one has seen.
    pub fn merge(&mut self, other: &Self) {
        for (own, its) in self.registers.iter_mut().zip(&other.registers) {
            *own = (*own).max(*its);
        }
        self.dense |= other.dense;
        self.changed = true;
    }

    /// The estimate of how many elements it has seen.
    pub fn count(&self) -> u64 {
        let mut histogram = [0_u32; 64];
        self.registers.iter().for_each(|register| histogram[usize::from(*register)] += 1);
        let all = REGISTERS as f64;
        let mut sum = all * tau((all - f64::from(histogram[RANKS + 1])) / all);
        for rank in (1..=RANKS).rev() {
            sum = (sum + f64::from(histogram[rank])) * 0.5;
        }
        sum += all * sigma(f64::from(histogram[0]) / all);
        (ALPHA * all * all / sum).round() as u64
    }
}

fn sigma(mut x: f64) -> f64 {
    if x == 1.0 {
        return f64::INFINITY;
    }
    let (mut y, mut z) = (1.0, x);
    loop {
        x *= x;
        let before = z;
        z += x * y;
        y += y;
        if before == z {
            return z;
        }
    }
}

fn tau(mut x: f64) -> f64 {
    if x == 0.0 || x == 1.0 {
        return 0.0;
    }
    let (mut y, mut z) = (1.0, 1.0 - x);
    loop {
        x = x.sqrt();
        let before = z;
        y *= 0.5;
        z -= (1.0 - x) * (1.0 - x) * y;
        if before == z {
            return z / 3.0;
        }
    }
}

fn from_dense(body: &[u8]) -> Vec<u8> {
    let word = |bytes: &[u8; 3]| u32::from_le_bytes([bytes[0], bytes[1], bytes[2], 0]);
    let four = |word: u32| [0, 6, 12, 18].map(|shift| (word >> shift & 63) as u8);
    body.as_chunks::<3>().0.iter().flat_map(|bytes| four(word(bytes))).collect()
}

fn dense(registers: &[u8]) -> Vec<u8> {
    let word = |four: &[u8; 4]| four.iter().rev().fold(0, |word, one| word << 6 | u32::from(*one));
    let words = registers.as_chunks::<4>().0.iter().map(word);
    words.flat_map(|word| word.to_le_bytes().into_iter().take(3)).collect()
}

/// A run of the sparse encoding: how many registers it has, and what they hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Run {
    Zeros(usize),
    /// In two bytes.
    ManyZeros(usize),
    Value(u8, usize),
}

/// The runs of a sparse string; those behind an incomplete one are left out.
pub fn runs(value: &[u8]) -> impl Iterator<Item = Run> {
    let mut body = &value[HEAD..];
    std::iter::from_fn(move || {
        let (code, rest) = body.split_first()?;
        body = rest;
        Some(match code >> 6 {
            0 => Run::Zeros(usize::from(code & 63) + 1),
            1 => {
                let (low, rest) = rest.split_first()?;
                body = rest;
                Run::ManyZeros((usize::from(code & 63) << 8 | usize::from(*low)) + 1)
            }
            _ => Run::Value((code >> 2 & 31) + 1, usize::from(code & 3) + 1),
        })
    })
}

fn from_sparse(value: &[u8]) -> Option<Vec<u8>> {
    let mut registers = Vec::with_capacity(REGISTERS);
    for run in runs(value) {
        let (value, count) = match run {
            Run::Zeros(count) | Run::ManyZeros(count) => (0, count),
            Run::Value(value, count) => (value, count),
        };
        registers.resize(registers.len() + count, value);
        if registers.len() > REGISTERS {
            return None;
        }
    }
    (registers.len() == REGISTERS).then_some(registers)
}

/// The runs of registers; `None` if they are too long, or a register is too large.
fn sparse(registers: &[u8], most: usize) -> Option<Vec<u8>> {
    let mut runs = Vec::new();
    for run in registers.chunk_by(|one, other| one == other) {
        let (value, mut left) = (run[0], run.len());
        if value > SPARSE_VALUE_MAX || runs.len() > most {
            return None;
        }
        while left > 0 {
            let most = if value == 0 { REGISTERS } else { 4 };
            let count = left.min(most);
            let coded = count - 1;
            match value {
                0 if count > 64 => runs.extend([64 | (coded >> 8) as u8, coded as u8]),
                0 => runs.push(coded as u8),
                value => runs.push(0x80 | (value - 1) << 2 | coded as u8),
            }
            left -= count;
        }
    }
    (runs.len() <= most).then_some(runs)
}

/// `MurmurHash64A`, of little-endian words.
fn murmur(bytes: &[u8]) -> u64 {
    const M: u64 = 0xc6a4_a793_5bd1_e995;
    let mut hash = SEED ^ (bytes.len() as u64).wrapping_mul(M);
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        let mut k = u64::from_le_bytes(*word).wrapping_mul(M);
        k ^= k >> 47;
        hash = (hash ^ k.wrapping_mul(M)).wrapping_mul(M);
    }
    if !rest.is_empty() {
        let tail = rest.iter().rev().fold(0, |tail, byte| tail << 8 | u64::from(*byte));
        hash = (hash ^ tail).wrapping_mul(M);
    }
    hash ^= hash >> 47;
    hash = hash.wrapping_mul(M);
    hash ^ hash >> 47
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_come_back_from_both_formats() {
        let mut sketch = Sketch::default();
        assert_eq!(Sketch::parse(&sketch.format(&Sizes::default())), Some(sketch.clone()));
        assert_eq!((sketch.count(), sketch.format(&Sizes::default()).len()), (0, HEAD + 2));
        for element in 0..20_000_u32 {
            sketch.add(&element.to_le_bytes());
            if element.is_power_of_two() || element == 19_999 {
                let value = sketch.format(&Sizes::default());
                assert!(Sketch::is_one(&value) && value.len() <= DENSE_LEN);
                let read = Sketch::parse(&value).unwrap();
                assert_eq!(read.registers, sketch.registers, "after {element}");
                assert_eq!(read.dense, element > 1_024, "after {element}");
                let (count, all) = (sketch.count() as f64, f64::from(element + 1));
                assert!((count - all).abs() <= 2.0 + all * 0.03, "{count} of {all}");
            }
        }
        let mut value = Sketch::default().format(&Sizes::default());
        value.push(0);
        assert!(Sketch::is_one(&value) && Sketch::parse(&value).is_none(), "one run too many");
        assert!(!Sketch::is_one(b"HYLL") && !Sketch::is_one(&[0; HEAD]));
    }
}
