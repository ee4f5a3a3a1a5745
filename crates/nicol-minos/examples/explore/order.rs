//! What a node has seen, as far as it matters: two orders of which each comes from the other by
//! swapping neighbours that commute lead to one state.

use nicol_core::history::digest;

/// What has reached a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Letter {
    /// Which of them commute.
    pub class: Class,
    /// A hash of what it was.
    pub what: u64,
}

/// Which letters commute with which. What a node does about one that is not [`Class::Fixed`] is to
/// raise timestamps, to release a lock of one write, and to end waits: in any order the same comes
/// out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// With none: an INV, a write that begins, a crash.
    Fixed,
    /// With all but fixed ones: ACKs, VALs, and the completion of a persist.
    Grows,
    /// An entry of the vFIFO is filled: how it drains depends on what has drained before.
    Fills,
    /// An entry of the vFIFO has drained.
    Drains,
}

impl Letter {
    fn commutes_with(self, other: Self) -> bool {
        use Class::{Drains, Fills, Fixed, Grows};
        match (self.class, other.class) {
            (Fixed, _) | (_, Fixed) | (Fills, Drains) | (Drains, Fills) => false,
            (Grows | Fills | Drains, _) => true,
        }
    }
}

/// A hash of the least of all orders of `letters` that lead to the same state. Two that differ have
/// one hash with a chance of 2^-128.
pub fn hash(letters: &[Letter]) -> [u64; 2] {
    let (mut left, mut bytes) = (letters.to_vec(), Vec::with_capacity(16 * letters.len() + 1));
    while !left.is_empty() {
        // Every letter that may come first, and of these the least.
        let first =
            |place: &usize| left[..*place].iter().all(|before| before.commutes_with(left[*place]));
        let least = (0..left.len()).filter(first).min_by_key(|place| left[*place]);
        let Letter { class, what } = left.remove(least.unwrap_or_default());
        bytes.extend((class as u64).to_le_bytes().into_iter().chain(what.to_le_bytes()));
    }
    let one = digest(&bytes);
    bytes.push(1);
    [one, digest(&bytes)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn letter(class: Class, what: u64) -> Letter {
        Letter { class, what }
    }

    #[test]
    fn orders_that_lead_to_one_state_have_one_hash() {
        use Class::{Drains, Fills, Fixed, Grows};
        let (inv, ack, persisted) = (letter(Fixed, 1), letter(Grows, 2), letter(Grows, 3));
        let (filled, drained) = (letter(Fills, 4), letter(Drains, 5));
        assert_eq!(hash(&[inv, ack, persisted]), hash(&[inv, persisted, ack]));
        assert_ne!(hash(&[inv, ack]), hash(&[ack, inv]));
        assert_eq!(hash(&[filled, ack, drained]), hash(&[ack, filled, drained]));
        assert_ne!(hash(&[filled, drained]), hash(&[drained, filled]));
        assert_ne!(hash(&[filled, ack, drained]), hash(&[drained, ack, filled]));
    }
}
