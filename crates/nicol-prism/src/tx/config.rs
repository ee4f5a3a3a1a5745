//! How PRISM-TX runs: every choice is a value, those that close gaps of the paper among them.

use nicol_core::units::Nanos;

use super::broken::{Hooks, Sabotage};
use super::layout::{HEADER, SMALLEST};
use crate::Faithful;
use crate::kv::Hash;
use crate::pool::SizeClass;
use crate::recycling::Recycling;

/// The write check of a key that its own transaction has read. AMB-13.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnReads {
    /// "TS > PR", as printed: its own read validation has set PR to TS, so that it aborts.
    Conflict,
    /// TS >= PR: only its own read validation can have set PR to its timestamp.
    Pass,
}

/// The effect of an abort on C of keys whose PW it has raised. AMB-14.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bump {
    /// "The client updates C to TS if TS > C, for every key it successfully completed the write
    /// check for", at once, as printed. A prepared write with an earlier timestamp is then lost.
    Checked,
    /// Of every key whose PW it has raised, once the write before it has been installed or given
    /// up.
    InOrder,
}

/// The source of RC. AMB-14b.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadVersion {
    /// From the buffer: a key whose C an abort has raised can never be read again.
    Buffer,
    /// From C, read before the buffer.
    SlotFirst,
    /// From C, read after the buffer: what was read may be older.
    SlotLast,
}

/// The step in which a new value goes to the server, and so what a client that dies leaves there.
/// AMB-14c.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Staging {
    /// In the commit phase, as printed. Of a prepared write only PW tells, for ever.
    AtCommit,
    /// With the write check, so that servers can end the transaction in the client's place.
    AtPrepare,
}

/// In how many round trips a transaction is prepared. AMB-53
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prepare {
    /// "Commit transactions using only two round trips" [PRISM21 1]: one to check what was read and
    /// what is written, one to install. A chain holds both validations of the keys on one server.
    OneChain,
    /// "If all read validation checks succeed, the client moves on to validate the writes"
    /// [PRISM21 8.2]: a round trip each.
    ReadsFirst,
}

/// Configuration of `prism-tx`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TxConfig {
    /// The slot at which the search for a key begins.
    pub hash: Hash,
    /// Slots of a server's table.
    pub entries: u64,
    /// Items of so many bytes that a server has space for: (bytes, items).
    pub items: Vec<(u64, u64)>,
    /// Items of up to so many bytes that it has space for besides, whatever their sizes.
    pub short: (u64, u64),
    /// Keys without a record that a server has space for besides.
    pub absent: u64,
    /// Buffers of each size beyond those: staged, or not reported yet.
    pub spare_buffers: u32,
    /// The recycling of buffers. Where a scan finds unused ones, clients still report which
    /// transactions are complete.
    pub recycling: Recycling,
    /// By how much the clocks of two client engines may differ.
    pub clock_skew: Nanos,
    /// Write check of a key that the transaction has read. AMB-13.
    pub own_reads: OwnReads,
    /// Effect of an abort on C. AMB-14.
    pub bump: Bump,
    /// Source of the version that a read returns. AMB-14b.
    pub read_version: ReadVersion,
    /// When a write's new value goes to the server. AMB-14c.
    pub staging: Staging,
    /// Round trips of the prepare phase. AMB-53.
    pub prepare: Prepare,
    #[doc(hidden)]
    pub sabotage: Sabotage,
}

impl TxConfig {
    /// Questions of the steps that a planted fault may answer wrongly.
    pub(super) const fn hooks(&self) -> Hooks {
        Hooks(self.sabotage)
    }

    /// The paper's choices with its gaps closed, for items of so many bytes and their numbers, and
    /// for items of up to so many bytes.
    pub fn paper(items: Vec<(u64, u64)>, short: (u64, u64)) -> Self {
        let sized: u64 = items.iter().map(|(_, count)| count).sum();
        let records = sized + short.1;
        Self {
            hash: Hash::Probing,
            entries: (2 * records).next_power_of_two().max(256),
            absent: records.max(64),
            items,
            short,
            spare_buffers: 8_192,
            recycling: Recycling::by_reports(None),
            clock_skew: Nanos::from_micros(5),
            own_reads: OwnReads::Pass,
            bump: Bump::InOrder,
            read_version: ReadVersion::SlotFirst,
            staging: Staging::AtPrepare,
            prepare: Prepare::OneChain,
            sabotage: Sabotage::None,
        }
    }

    /// Follows the paper where it and docs/research/ambiguities.md differ, or the latter.
    pub fn follow(&mut self, faithful: Faithful) {
        (self.own_reads, self.bump, self.read_version, self.staging) = match faithful {
            Faithful::Paper => {
                (OwnReads::Conflict, Bump::Checked, ReadVersion::Buffer, Staging::AtCommit)
            }
            Faithful::Fixed => {
                (OwnReads::Pass, Bump::InOrder, ReadVersion::SlotFirst, Staging::AtPrepare)
            }
        };
    }

    /// Bytes of the largest item, which a READ asks for.
    pub(super) fn item_bytes_max(&self) -> u64 {
        let longest = self.items.iter().map(|(bytes, _)| *bytes).max();
        longest.unwrap_or(HEADER).max(self.short.0)
    }

    /// The free lists of a server: powers of two up to the largest item, which has a list of its
    /// own. [PRISM21 3.2]
    pub(super) fn classes(&self) -> Vec<SizeClass> {
        let largest = self.item_bytes_max().next_multiple_of(8).max(SMALLEST);
        let powers = std::iter::successors(Some(SMALLEST), |bytes| Some(bytes * 2));
        let mut sizes: Vec<u64> = powers.take_while(|&bytes| bytes < largest).collect();
        sizes.push(largest);
        let mut counts = vec![u64::from(self.spare_buffers); sizes.len()];
        counts[0] += self.absent;
        for &(bytes, items) in &self.items {
            let class = sizes.iter().position(|&size| size >= bytes).unwrap_or(sizes.len() - 1);
            counts[class] += items;
        }
        let (bytes, items) = self.short;
        for (smaller, count) in [0].iter().chain(&sizes).zip(&mut counts) {
            *count += if *smaller < bytes { items } else { 0 };
        }
        let class = |(bytes, count): (u64, u64)| SizeClass { bytes, count: count as u32 };
        sizes.into_iter().zip(counts).map(class).collect()
    }

    /// Bytes of an item with a value of so many.
    pub const fn item_bytes(value: u64) -> u64 {
        HEADER + value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_item_has_a_buffer_that_is_large_enough() {
        let config =
            TxConfig { spare_buffers: 2, ..TxConfig::paper(vec![(48, 3), (552, 5)], (0, 0)) };
        let sizes: Vec<_> =
            config.classes().iter().map(|class| (class.bytes, class.count)).collect();
        assert_eq!(sizes, [(64, 3 + 2 + 64), (128, 2), (256, 2), (512, 2), (552, 5 + 2)]);
        assert_eq!(config.item_bytes_max(), 552);
        // Of those up to 136 bytes any number may have at most 64, or at most 128.
        let short = TxConfig::paper(vec![(552, 5)], (136, 100));
        let sizes: Vec<_> = TxConfig { spare_buffers: 2, ..short }.classes();
        let counts: Vec<_> = sizes.iter().map(|class| class.count).collect();
        assert_eq!(counts, [100 + 105 + 2, 100 + 2, 100 + 2, 2, 5 + 2]);
        assert_eq!(TxConfig::paper(Vec::new(), (136, 100)).item_bytes_max(), 136);
    }

    #[test]
    fn the_paper_and_its_corrections_differ_in_four_values() {
        let fixed = TxConfig::paper(vec![(64, 1)], (0, 0));
        let mut config = fixed.clone();
        config.follow(Faithful::Paper);
        assert_ne!(config.own_reads, fixed.own_reads);
        assert_ne!(config.bump, fixed.bump);
        assert_ne!(config.read_version, fixed.read_version);
        assert_ne!(config.staging, fixed.staging);
        config.follow(Faithful::Fixed);
        assert_eq!(config, fixed);
    }
}
