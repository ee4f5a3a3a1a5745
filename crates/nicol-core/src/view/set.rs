//! Sets of nodes and of shards.

use std::marker::PhantomData;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::ids::{NodeId, ShardId};

/// Something that a [`Set`] holds: numbered densely from 0.
pub trait Member: Copy {
    fn number(self) -> u16;
    fn of(number: u16) -> Self;
}

impl Member for NodeId {
    fn number(self) -> u16 {
        self.0
    }

    fn of(number: u16) -> Self {
        Self(number)
    }
}

impl Member for ShardId {
    fn number(self) -> u16 {
        self.0
    }

    fn of(number: u16) -> Self {
        Self(number)
    }
}

/// A set of any number of nodes or shards. Does not allocate while all numbers are below 64.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Set<T> {
    first: u64,
    /// A word for every 64 numbers after the first 64; the last is not 0.
    rest: Vec<u64>,
    members: PhantomData<T>,
}

/// A set of nodes.
pub type NodeSet = Set<NodeId>;
/// A set of shards.
pub type ShardSet = Set<ShardId>;

impl<T> Default for Set<T> {
    fn default() -> Self {
        Self { first: 0, rest: Vec::new(), members: PhantomData }
    }
}

impl<T> Set<T> {
    pub const fn new() -> Self {
        Self { first: 0, rest: Vec::new(), members: PhantomData }
    }

    /// The set whose members are the bits of `words`: number `n` is bit `n % 64` of word `n / 64`.
    pub fn of_words(words: impl IntoIterator<Item = u64>) -> Self {
        let mut words = words.into_iter();
        let (first, rest) = (words.next().unwrap_or_default(), words.collect());
        let mut set = Self { first, rest, members: PhantomData };
        set.trim();
        set
    }

    /// True if it has no members.
    pub const fn is_empty(&self) -> bool {
        self.first == 0 && self.rest.is_empty()
    }

    pub fn len(&self) -> usize {
        self.words().map(|word| word.count_ones() as usize).sum()
    }

    pub fn clear(&mut self) {
        self.first = 0;
        self.rest.clear();
    }

    fn words(&self) -> impl Iterator<Item = u64> {
        std::iter::once(self.first).chain(self.rest.iter().copied())
    }

    fn trim(&mut self) {
        while self.rest.last() == Some(&0) {
            self.rest.pop();
        }
    }
}

impl<T: Member> Set<T> {
    /// Adds a member; false if it was one already.
    pub fn insert(&mut self, member: T) -> bool {
        let (word, bit) = split(member);
        let word = match word.checked_sub(1) {
            None => &mut self.first,
            Some(at) => {
                if at >= self.rest.len() {
                    self.rest.resize(at + 1, 0);
                }
                &mut self.rest[at]
            }
        };
        let added = *word & bit == 0;
        *word |= bit;
        added
    }

    /// Removes a member; false if it was none.
    pub fn remove(&mut self, member: T) -> bool {
        let (word, bit) = split(member);
        let word = match word.checked_sub(1) {
            None => Some(&mut self.first),
            Some(at) => self.rest.get_mut(at),
        };
        let Some(word) = word else { return false };
        let removed = *word & bit != 0;
        *word &= !bit;
        self.trim();
        removed
    }

    /// True if it is a member.
    pub fn contains(&self, member: T) -> bool {
        let (word, bit) = split(member);
        let word = match word.checked_sub(1) {
            None => self.first,
            Some(at) => self.rest.get(at).copied().unwrap_or_default(),
        };
        word & bit != 0
    }

    /// The members, by number.
    pub fn iter(&self) -> impl Iterator<Item = T> {
        self.words().enumerate().flat_map(|(at, word)| {
            let bits = (0..64_u16).filter(move |bit| word >> bit & 1 == 1);
            bits.map(move |bit| T::of(at as u16 * 64 + bit))
        })
    }
}

/// The word and the bit of a member.
fn split<T: Member>(member: T) -> (usize, u64) {
    (usize::from(member.number() / 64), 1 << (member.number() % 64))
}

impl<T: Member> FromIterator<T> for Set<T> {
    fn from_iter<I: IntoIterator<Item = T>>(members: I) -> Self {
        let mut set = Self::new();
        for member in members {
            set.insert(member);
        }
        set
    }
}

impl<T: Member> Extend<T> for Set<T> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, members: I) {
        for member in members {
            self.insert(member);
        }
    }
}

/// As the list of its members' numbers.
impl<T: Member> Serialize for Set<T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(self.iter().map(Member::number))
    }
}

impl<'de, T: Member> Deserialize<'de> for Set<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Ok(Vec::<u16>::deserialize(from)?.into_iter().map(T::of).collect())
    }
}
