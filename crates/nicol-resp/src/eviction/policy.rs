//! Which keys may be evicted, and which of them goes first.

use std::fmt;
use std::str::FromStr;

/// One of Redis' eight policies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// Only keys that expire are evicted.
    pub is_volatile: bool,
    /// What goes first; `None`: nothing is evicted.
    pub order: Option<Order>,
}

/// Which key goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The one whose last access is longest ago.
    Lru,
    /// The one that is accessed least often.
    Lfu,
    /// Any.
    Random,
    /// The one that expires next.
    Ttl,
}

/// Their names, as Redis lists them.
const NAMES: [(&str, Policy); 8] = [
    ("volatile-lru", Policy::new(true, Some(Order::Lru))),
    ("volatile-lfu", Policy::new(true, Some(Order::Lfu))),
    ("volatile-random", Policy::new(true, Some(Order::Random))),
    ("volatile-ttl", Policy::new(true, Some(Order::Ttl))),
    ("allkeys-lru", Policy::new(false, Some(Order::Lru))),
    ("allkeys-lfu", Policy::new(false, Some(Order::Lfu))),
    ("allkeys-random", Policy::new(false, Some(Order::Random))),
    ("noeviction", Policy::new(false, None)),
];

/// A word that names no policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "argument(s) must be one of the following: volatile-lru, volatile-lfu, volatile-random, \
     volatile-ttl, allkeys-lru, allkeys-lfu, allkeys-random, noeviction"
)]
pub struct UnknownPolicy;

impl Policy {
    const fn new(is_volatile: bool, order: Option<Order>) -> Self {
        Self { is_volatile, order }
    }

    /// Its name, in Redis' words.
    pub fn name(self) -> &'static str {
        NAMES[usize::from(self.number())].0
    }

    /// Its place among all.
    pub fn number(self) -> u8 {
        NAMES.iter().position(|(_, policy)| *policy == self).unwrap_or(NAMES.len() - 1) as u8
    }

    /// The policy of a number.
    pub fn of_number(number: u8) -> Self {
        NAMES.get(usize::from(number)).map_or(Self::default(), |(_, policy)| *policy)
    }

    /// Whether it asks how often keys are accessed, and not when they were last.
    pub fn counts_accesses(self) -> bool {
        self.order == Some(Order::Lfu)
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Policy {
    type Err = UnknownPolicy;

    fn from_str(text: &str) -> Result<Self, UnknownPolicy> {
        let named = NAMES.iter().find(|(name, _)| name.eq_ignore_ascii_case(text));
        named.map(|(_, policy)| *policy).ok_or(UnknownPolicy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_policy_has_a_name_and_a_number() {
        for (name, policy) in NAMES {
            assert_eq!((name.parse(), policy.name()), (Ok(policy), name));
            assert_eq!(Policy::of_number(policy.number()), policy);
        }
        assert_eq!(Policy::default().name(), "noeviction");
        assert_eq!("lru".parse::<Policy>(), Err(UnknownPolicy));
    }
}
