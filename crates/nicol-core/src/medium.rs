//! A node's durable medium: what its log device holds, and what a crash leaves of it.
//!
//! The medium is a log of writes in the order in which they were submitted. A write is durable once
//! it is synced. A crash of the side that has the device decides about the others one by one:
//! whole, lost, or torn. So a later write may survive an earlier one, as on a disk that reorders
//! its queue. The device is the host's, or a NIC's durable queue.

use crate::ids::{EngineId, Side};
use crate::rng::Stream;

/// Bytes that reach the medium together or not at all: a line of persistent memory. A disk's
/// sectors are larger, so that this tears more.
const LINE: usize = 64;

/// A write on the medium.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MediumWrite {
    /// Its number among the node's writes, from 1, in the order of submission.
    pub sequence: u64,
    /// The engine that submitted it.
    pub engine: EngineId,
    /// The label of the region that it is a part of. See
    /// [`Region::label`](crate::memory::Region::label).
    pub label: u32,
    /// Where it begins in that region.
    pub offset: u64,
    /// The bytes written. A torn write has zeros where lines are missing.
    pub bytes: Vec<u8>,
    /// Are the bytes all there? The device checks a sum over each write: false tells a torn one,
    /// which was never acknowledged.
    pub intact: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Medium {
    writes: Vec<MediumWrite>,
    /// The sequence numbers of writes that are not synced, in order, and whose device has them.
    pending: Vec<(u64, Side)>,
    submitted: u64,
    counts: MediumCounts,
}

/// The effect of crashes on writes that were not synced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MediumCounts {
    /// There as a whole.
    pub whole: u64,
    pub lost: u64,
    pub torn: u64,
    /// There, whole or torn, although an earlier one is gone.
    pub reordered: u64,
}

impl MediumCounts {
    /// Adds what crashes did elsewhere.
    pub const fn add(&mut self, other: &Self) {
        self.whole += other.whole;
        self.lost += other.lost;
        self.torn += other.torn;
        self.reordered += other.reordered;
    }
}

/// How a crash treats all writes under way: a mix alone would seldom lose all or none of many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    AllLost,
    AllWhole,
    Mixed,
}

impl Medium {
    /// Takes a write to the device of `side`; returns its sequence number. It is durable once it is
    /// [synced](Medium::sync).
    pub fn submit(
        &mut self,
        (engine, side): (EngineId, Side),
        label: u32,
        offset: u64,
        bytes: &[u8],
    ) -> u64 {
        self.submitted += 1;
        let (sequence, bytes) = (self.submitted, bytes.to_vec());
        self.writes.push(MediumWrite { sequence, engine, label, offset, bytes, intact: true });
        self.pending.push((sequence, side));
        sequence
    }

    /// Makes a submitted write durable. One that a crash has already decided about stays as it is.
    pub fn sync(&mut self, sequence: u64) {
        self.pending.retain(|&(pending, _)| pending != sequence);
    }

    /// The device of `side` ends what it has begun: nobody waits for it any more, but it has not
    /// crashed.
    pub fn settle(&mut self, side: Side) {
        self.pending.retain(|&(_, of)| of != side);
    }

    /// Decides about every write that is not synced and whose device is that of a side that has
    /// `crashed`.
    pub fn crash(&mut self, crashed: impl Fn(Side) -> bool, rng: &mut Stream) {
        let under_way = std::mem::take(&mut self.pending);
        let (pending, left): (Vec<_>, Vec<_>) =
            under_way.into_iter().partition(|&(_, side)| crashed(side));
        self.pending = left;
        if pending.is_empty() {
            return;
        }
        let mode = match rng.below(6) {
            0 => Mode::AllLost,
            1 => Mode::AllWhole,
            _ => Mode::Mixed,
        };
        let counts = &mut self.counts;
        let mut lost_before = false;
        self.writes.retain_mut(|write| {
            if pending.binary_search_by_key(&write.sequence, |&(sequence, _)| sequence).is_err() {
                return true;
            }
            let stays = match (mode, rng.below(4)) {
                (Mode::AllWhole, _) | (Mode::Mixed, 0) => true,
                (Mode::AllLost, _) | (Mode::Mixed, 1) => false,
                (Mode::Mixed, _) => tear(write, rng),
            };
            counts.whole += u64::from(stays && write.intact);
            counts.torn += u64::from(stays && !write.intact);
            counts.lost += u64::from(!stays);
            counts.reordered += u64::from(stays && lost_before);
            lost_before |= !stays;
            stays
        });
    }

    /// The writes on the medium, in the order of submission.
    pub fn writes(&self) -> &[MediumWrite] {
        &self.writes
    }

    /// Of that, the writes that are synced, and whole.
    pub fn synced(&self) -> impl Iterator<Item = &MediumWrite> {
        let is_pending = |write: &MediumWrite| {
            self.pending.binary_search_by_key(&write.sequence, |&(sequence, _)| sequence).is_ok()
        };
        self.writes.iter().filter(move |write| write.intact && !is_pending(write))
    }

    /// Writes that are not synced.
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// The effect of crashes on writes that were not synced.
    pub const fn counts(&self) -> MediumCounts {
        self.counts
    }
}

/// Keeps each line of a write with one chance in two; false if none is left. Missing lines are
/// zeros: a write whose missing lines were zeros anyway is whole.
fn tear(write: &mut MediumWrite, rng: &mut Stream) -> bool {
    let mut kept = 0;
    for line in write.bytes.chunks_mut(LINE) {
        if rng.below(2) == 0 {
            write.intact &= line.iter().all(|&byte| byte == 0);
            line.fill(0);
        } else {
            kept += 1;
        }
    }
    kept > 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::NodeId;
    use crate::rng::Purpose;

    const NIC: EngineId = EngineId::nic(NodeId(0), 0);

    /// Ten writes of 200 bytes each, of which the even ones are synced, after a crash.
    fn crashed(seed: u64) -> Medium {
        let mut medium = Medium::default();
        let sequences: Vec<_> = (0..10)
            .map(|n| medium.submit((NIC, Side::Host), 7, n * 200, &[n as u8 + 1; 200]))
            .collect();
        sequences.iter().step_by(2).for_each(|&sequence| medium.sync(sequence));
        assert_eq!(medium.pending(), 5);
        assert!(medium.synced().map(|write| write.sequence).eq([1, 3, 5, 7, 9]));
        medium.crash(|_| true, &mut Stream::new(seed, Purpose::Medium, 0));
        medium
    }

    #[test]
    fn what_was_synced_is_there_byte_for_byte_and_the_rest_is_whole_lost_or_torn() {
        let mut sum = MediumCounts::default();
        for seed in 0..200 {
            let medium = crashed(seed);
            let find = |sequence| medium.writes().iter().find(|write| write.sequence == sequence);
            for sequence in 1..=10 {
                let whole = [sequence as u8; 200];
                match find(sequence) {
                    Some(write) if write.intact => assert_eq!(write.bytes, whole),
                    Some(write) => {
                        assert!(sequence % 2 == 0 && write.bytes != whole);
                        let line = |at: &[u8]| at.iter().all(|&byte| byte == at[0]);
                        assert!(write.bytes.chunks(LINE).all(line), "lines are whole");
                    }
                    None => assert_eq!(sequence % 2, 0, "a synced write is never lost"),
                }
            }
            let counts = medium.counts();
            assert_eq!(counts.whole + counts.torn + counts.lost, 5);
            sum.whole += counts.whole;
            sum.torn += counts.torn;
            sum.lost += counts.lost;
            sum.reordered += counts.reordered;
        }
        assert!([sum.whole, sum.torn, sum.lost, sum.reordered].iter().all(|&n| n > 50), "{sum:?}");
    }

    #[test]
    fn a_second_crash_and_a_late_sync_change_nothing() {
        let mut medium = crashed(3);
        let before = medium.writes().to_vec();
        medium.sync(2);
        medium.crash(|_| true, &mut Stream::new(4, Purpose::Medium, 0));
        assert_eq!(medium.writes(), before);
        assert_eq!(medium.submit((NIC, Side::Host), 7, 0, b"next"), 11, "numbers go on");
    }

    /// Each side's crash decides about its own device's writes; one that has not crashed ends them.
    #[test]
    fn a_crash_of_a_side_decides_about_the_writes_of_its_device_only() {
        let mut lost = [0; 2];
        for seed in 0..40 {
            let mut medium = Medium::default();
            for (place, side) in [Side::Host, Side::Nic].into_iter().enumerate() {
                medium.submit((NIC, side), 7, place as u64 * 64, &[1; 64]);
            }
            let crashed = if seed % 2 == 0 { Side::Host } else { Side::Nic };
            let rng = &mut Stream::new(seed, Purpose::Medium, 0);
            medium.crash(|side| side == crashed, rng);
            assert_eq!(medium.pending(), 1, "the other device still has its own");
            medium.settle(crashed.other());
            assert_eq!(medium.pending(), 0);
            medium.crash(|_| true, rng);
            let left: Vec<u64> = medium.writes().iter().map(|write| write.offset).collect();
            let own = if crashed == Side::Host { 0 } else { 64 };
            assert!(left.contains(&(64 - own)), "what was settled is there");
            lost[usize::from(crashed == Side::Nic)] += usize::from(!left.contains(&own));
        }
        assert!(lost.iter().all(|&lost| lost > 0), "{lost:?}");
    }
}
