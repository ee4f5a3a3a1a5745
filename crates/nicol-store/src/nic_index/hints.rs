//! The displacements d_i that an index entry knows: one for each group of neighbouring homes of its
//! segment. [Xenic21 4.1.3] AMB-46

use crate::host_table::{SEGMENT_SLOTS, SlotHash};

/// Bits of a displacement: D_m is 64 at most.
const BITS: usize = 6;
const HIGHEST: u16 = (1 << BITS) - 1;
const BYTES: usize = SEGMENT_SLOTS as usize * BITS / 8;

/// How many neighbouring homes share a d_i.
///
/// Since d_i is a maximum, a coarser one makes lookups read more. Whatever the number, an entry has
/// 12 bytes for its displacements; a design that stores no more than it needs takes 6 bits for
/// each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HomesPerHint(u8);

impl HomesPerHint {
    /// Each home has its own: reads the fewest bytes, at 6 bits a slot (AMB-46).
    pub const ONE: Self = Self(1);
    /// All of a segment's 16.
    pub const SEGMENT: Self = Self(SEGMENT_SLOTS as u8);

    /// `None` if `homes` is none of 1, 2, 4, 8 and 16.
    pub const fn new(homes: u8) -> Option<Self> {
        match homes {
            1 | 2 | 4 | 8 | 16 => Some(Self(homes)),
            _ => None,
        }
    }

    /// The number.
    pub const fn get(self) -> u8 {
        self.0
    }

    /// The group of a hash's home, in a table that began with `segments` segments: a home keeps its
    /// place in the segment when the table grows.
    pub const fn group(self, hash: SlotHash, segments: u64) -> usize {
        let home = hash.base_slot(segments * SEGMENT_SLOTS) % SEGMENT_SLOTS;
        (home / self.0 as u64) as usize
    }
}

/// From where a lookup's first read counts its d_i + k entries. [Xenic21 4.1.3] AMB-04
///
/// Displacements count from 0: an object whose displacement is d_i stands in the last of the
/// d_i + 1 entries from its home on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstRead {
    /// From the home, all together: "if the NIC does not read the item within d_i + k entries".
    /// With k = 1 that is the known reach exactly.
    Within,
    /// Behind the known reach: "reads d_i + k additional elements beyond its known displacement".
    /// With k = 1 that is one entry more.
    Beyond,
}

impl FirstRead {
    /// Entries that the first read takes from the home on: one at least, and `limit`, D_m, at most.
    pub const fn entries(self, displacement: u16, slack: u16, limit: u16) -> u16 {
        let entries = match self {
            Self::Within => displacement + slack,
            Self::Beyond => displacement + 1 + slack,
        };
        if entries == 0 {
            1
        } else if entries < limit {
            entries
        } else {
            limit
        }
    }
}

/// The displacements of an entry, 6 bits each.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Displacements([u8; BYTES]);

impl Displacements {
    /// The highest known displacement of a group.
    pub(super) fn get(&self, group: usize) -> u16 {
        let (word, shift) = self.word(group);
        word >> shift & HIGHEST
    }

    /// Learns a displacement of a group, which is below 64.
    pub(super) fn raise(&mut self, group: usize, displacement: u16) {
        if displacement <= self.get(group) {
            return;
        }
        let (word, shift) = self.word(group);
        let word = word & !(HIGHEST << shift) | displacement.min(HIGHEST) << shift;
        let at = group * BITS / 8;
        self.0[at] = word as u8;
        if let Some(next) = self.0.get_mut(at + 1) {
            *next = (word >> 8) as u8;
        }
    }

    /// The two bytes in which a group's bits are, and how far they are shifted.
    fn word(&self, group: usize) -> (u16, usize) {
        let at = group * BITS / 8;
        let next = self.0.get(at + 1).copied().unwrap_or(0);
        (u16::from_le_bytes([self.0[at], next]), group * BITS % 8)
    }
}

#[cfg(test)]
mod tests {
    use nicol_core::ids::Key;

    use super::*;

    #[test]
    fn every_group_keeps_its_own_highest_displacement() {
        let mut random = 1_u64;
        let (mut packed, mut plain) = (Displacements::default(), [0_u16; SEGMENT_SLOTS as usize]);
        for _ in 0..4_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let group = (random >> 33) as usize % plain.len();
            // Small ones first, so that they do not all end at the highest at once.
            let displacement = (random >> 40) as u16 % 64 % (1 + plain[group] + 2);
            packed.raise(group, displacement);
            plain[group] = plain[group].max(displacement);
            let found: Vec<u16> = (0..plain.len()).map(|group| packed.get(group)).collect();
            assert_eq!(found, plain);
        }
        (0..plain.len()).for_each(|group| packed.raise(group, HIGHEST));
        assert!((0..plain.len()).all(|group| packed.get(group) == HIGHEST), "{packed:?}");
    }

    #[test]
    fn homes_are_grouped_with_their_neighbours() {
        const SEGMENTS: u64 = 1_000;
        for homes in [1, 2, 4, 8, 16] {
            let shared = HomesPerHint::new(homes).unwrap();
            let mut seen = [0_u32; SEGMENT_SLOTS as usize];
            for key in 0..20_000 {
                let hash = SlotHash::of(Key(key));
                let home = hash.base_slot(SEGMENTS * SEGMENT_SLOTS) % SEGMENT_SLOTS;
                let group = shared.group(hash, SEGMENTS);
                assert_eq!(group as u64, home / u64::from(homes));
                seen[group] += 1;
            }
            let used = seen.iter().filter(|count| **count > 0).count();
            assert_eq!(used, usize::from(16 / homes));
        }
        assert!([0, 3, 5, 32].into_iter().all(|homes| HomesPerHint::new(homes).is_none()));
    }
}
