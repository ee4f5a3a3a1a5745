//! What the log device of the node that crashes holds afterwards.

use nicol_core::medium::MediumWrite;

use super::{CrashSuite, LABEL, RECORD};

/// What crashes of a host have left of records that its log device had not synced, as its next life
/// finds them. A world whose log files are read up to the first record that is not whole shows none
/// that are torn or overtaken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unsynced {
    /// There, with lines that are missing.
    pub torn: u64,
    /// Gone, although a later one is there: the queue was reordered.
    pub overtaken: u64,
    /// Of the records that were asked for and not acknowledged when the host crashed, those that
    /// are there, whole or torn.
    pub kept: u64,
    /// Of the same records, those that are gone: the device has lost them, or they had not reached
    /// it.
    pub missing: u64,
}

impl Unsynced {
    /// Adds what crashes left elsewhere.
    pub const fn add(&mut self, other: &Self) {
        self.torn += other.torn;
        self.overtaken += other.overtaken;
        self.kept += other.kept;
        self.missing += other.missing;
    }
}

impl CrashSuite {
    /// A host starts after a crash: compares its medium with what was asked for and what was
    /// acknowledged.
    pub(super) fn check_medium(&self, medium: &[MediumWrite]) {
        let (asked, durable, seen) = {
            let state = self.state();
            (state.asked.clone(), state.durable.clone(), state.seen)
        };
        let of_log = || medium.iter().filter(|write| write.label == LABEL);
        for write in of_log() {
            let known = asked.get(&write.offset);
            self.expect("the medium holds only what was submitted", known.is_some());
            let whole = known.is_some_and(|&byte| write.bytes == [byte; RECORD]);
            self.expect("what is intact is what was submitted", whole == write.intact);
        }
        for (offset, byte) in durable {
            let there = of_log().any(|write| {
                write.offset == offset && write.intact && write.bytes == [byte; RECORD]
            });
            self.expect("what was acknowledged as durable is on the medium", there);
        }
        let fresh: Vec<_> = medium.iter().filter(|write| write.sequence > seen).collect();
        let span = |first: &MediumWrite, last: &MediumWrite| last.sequence - first.sequence + 1;
        let mut state = self.state();
        let under_way = std::mem::take(&mut state.under_way_at_crash);
        let is_there = |offset: &&u64| of_log().any(|write| write.offset == **offset);
        let kept = under_way.iter().filter(is_there).count() as u64;
        let missing = under_way.len() as u64 - kept;
        state.unsynced.add(&Unsynced { kept, missing, ..Unsynced::default() });
        let (Some(first), Some(last)) = (fresh.first(), fresh.last()) else { return };
        let torn = fresh.iter().filter(|write| !write.intact).count() as u64;
        let overtaken = span(first, last) - fresh.len() as u64;
        state.unsynced.add(&Unsynced { torn, overtaken, ..Unsynced::default() });
        state.seen = last.sequence;
    }

    /// A NIC starts after it alone has crashed: what its log device had not synced is as it was.
    pub(super) fn check_tail(&self, medium: &[MediumWrite]) {
        let seen = self.state().seen;
        let fresh: Vec<_> = medium.iter().filter(|write| write.sequence > seen).collect();
        let follows = |pair: &[&MediumWrite]| pair[1].sequence == pair[0].sequence + 1;
        let consecutive = fresh.windows(2).all(follows);
        let whole = fresh.iter().all(|write| write.intact);
        self.expect("a crash of the NIC keeps what is not synced", consecutive && whole);
    }
}
