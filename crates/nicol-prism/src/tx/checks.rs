//! Which checks of a transaction's keys go in which chain: the prepare phase in one round trip.
//! [PRISM21 1, 8.2] AMB-53
//!
//! One chain holds the read validations and then the write validations of the keys on one server,
//! each on condition that the one before it has succeeded: "if all read validation checks succeed,
//! the client moves on to validate the writes". What is on several servers is validated at the same
//! time: PR and PW are raised without harm whatever comes of the transaction, and each validation
//! is atomic by itself. All reads go ahead, in a round trip of their own, in two cases:
//!
//! - **A server's checks are too long for a chain** ([`OPERATIONS_MAX`], [`CHAIN_BYTES_MAX`]). They
//!   could go in several at the same time, but then a read that has failed stops nobody: PW is
//!   raised in vain for all the others, and each blocks readers until C has followed.
//! - **A key is only read, and its server has no write.** Servers end the transactions of dead
//!   clients by the writes that are staged (AMB-14c), so that "all writes have passed" must imply
//!   "all reads have": such a read has no write of its server to stand before. Without staging it
//!   goes along.

use std::collections::BTreeSet;

use nicol_core::chain::{CHAIN_BYTES_MAX, OPERATIONS_MAX};
use nicol_core::ids::NodeId;

use super::chains::{mark_operations, write_operations};
use super::config::{Prepare, Staging, TxConfig};

/// Bytes of an operation of a check besides the item, at most: its header, two operands of two
/// words and their masks.
const OPERATION_BYTES: usize = 96;
const _: () = assert!(OPERATIONS_MAX * OPERATION_BYTES < CHAIN_BYTES_MAX / 4);

/// The checks that a key still needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Due {
    pub(super) server: NodeId,
    /// Whether to validate that it is as it was read.
    pub(super) read: bool,
    /// Bytes of the item that is to be written.
    pub(super) write: Option<usize>,
}

impl Due {
    pub(super) const fn is_open(&self) -> bool {
        self.read || self.write.is_some()
    }
}

/// The checks of one chain, by the places of their keys: first reads, then writes. With writes each
/// check is made only if the one before it has succeeded; reads alone are made in any case.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Bundle {
    pub(super) reads: Vec<usize>,
    pub(super) writes: Vec<usize>,
}

impl Bundle {
    /// Its keys: those that are read, or else those that are written.
    pub(super) fn places(&self) -> &[usize] {
        if self.reads.is_empty() { &self.writes } else { &self.reads }
    }
}

/// The rules by which checks are put into chains.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    prepare: Prepare,
    staging: Staging,
    /// Whether reads that no write of their server follows are validated before any write is
    /// staged.
    pub(super) guards_reads: bool,
}

impl Plan {
    pub(super) const fn of(config: &TxConfig) -> Self {
        Self { prepare: config.prepare, staging: config.staging, guards_reads: true }
    }

    /// The chains of the next round trip; none if nothing is due.
    pub(super) fn next_round(self, due: &[Due]) -> Vec<Bundle> {
        let servers: BTreeSet<NodeId> = due.iter().map(|due| due.server).collect();
        let mut whole: Vec<Bundle> = Vec::with_capacity(servers.len());
        for server in servers {
            let places = || (0..due.len()).filter(|&key| due[key].server == server);
            let reads: Vec<usize> = places().filter(|&key| due[key].read).collect();
            let writes: Vec<usize> = places().filter(|&key| due[key].write.is_some()).collect();
            whole.push(Bundle { reads, writes });
        }
        let read_only = whole.iter().all(|bundle| bundle.writes.is_empty());
        if !read_only && whole.iter().all(|bundle| self.goes_whole(due, bundle)) {
            whole.retain(|bundle| !bundle.reads.is_empty() || !bundle.writes.is_empty());
            return whole;
        }
        let reads = whole.iter().flat_map(|bundle| bundle.reads.chunks(OPERATIONS_MAX));
        let reads = reads.map(|reads| Bundle { reads: reads.to_vec(), writes: Vec::new() });
        let reads: Vec<Bundle> = reads.collect();
        if !reads.is_empty() {
            return reads;
        }
        whole.iter().flat_map(|bundle| self.chunks(due, &bundle.writes)).collect()
    }

    /// Whether the checks of a server's keys may be one chain, sent together with those of other
    /// servers.
    fn goes_whole(self, due: &[Due], bundle: &Bundle) -> bool {
        let Bundle { reads, writes } = bundle;
        let may_be_ended = self.staging == Staging::AtPrepare && self.guards_reads;
        let is_followed = reads.is_empty() || !writes.is_empty() || !may_be_ended;
        (self.prepare == Prepare::OneChain || reads.is_empty())
            && is_followed
            && self.fits(due, reads.len(), writes)
    }

    /// Whether the target takes a chain of so many reads and of these writes.
    fn fits(self, due: &[Due], reads: usize, writes: &[usize]) -> bool {
        let operations =
            reads + mark_operations(self.staging) + writes.len() * write_operations(self.staging);
        let items: usize = writes.iter().filter_map(|&key| due[key].write).sum();
        operations <= OPERATIONS_MAX && items + OPERATIONS_MAX * OPERATION_BYTES <= CHAIN_BYTES_MAX
    }

    /// Writes of one server as chains. One that is too large for any is refused there.
    fn chunks(self, due: &[Due], writes: &[usize]) -> Vec<Bundle> {
        let mut chains: Vec<Bundle> = Vec::new();
        for &key in writes {
            let longer =
                |last: &&mut Bundle| self.fits(due, 0, &[last.writes.as_slice(), &[key]].concat());
            match chains.last_mut().filter(longer) {
                Some(last) => last.writes.push(key),
                None => chains.push(Bundle { reads: Vec::new(), writes: vec![key] }),
            }
        }
        chains
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: NodeId = NodeId(0);
    const B: NodeId = NodeId(1);

    fn read(server: NodeId) -> Due {
        Due { server, read: true, write: None }
    }

    fn update(server: NodeId) -> Due {
        Due { server, read: true, write: Some(64) }
    }

    fn blind(server: NodeId) -> Due {
        Due { server, read: false, write: Some(64) }
    }

    const ONE: Plan =
        Plan { prepare: Prepare::OneChain, staging: Staging::AtPrepare, guards_reads: true };

    fn bundle(reads: &[usize], writes: &[usize]) -> Bundle {
        Bundle { reads: reads.to_vec(), writes: writes.to_vec() }
    }

    #[test]
    fn one_chain_has_both_validations_of_a_server_s_keys() {
        assert_eq!(ONE.next_round(&[]), []);
        assert_eq!(ONE.next_round(&[update(A)]), [bundle(&[0], &[0])]);
        let due = [read(A), update(B), update(A), blind(B)];
        assert_eq!(ONE.next_round(&due), [bundle(&[0, 2], &[2]), bundle(&[1], &[1, 3])]);
        // A transaction that writes nothing needs no more either.
        let due = [read(A), read(B), read(A)];
        assert_eq!(ONE.next_round(&due), [bundle(&[0, 2], &[]), bundle(&[1], &[])]);
    }

    #[test]
    fn reads_that_no_write_of_their_server_follows_go_ahead_where_servers_may_end_it() {
        let mut due = [read(A), update(B), read(B)];
        assert_eq!(ONE.next_round(&due), [bundle(&[0], &[]), bundle(&[1, 2], &[])]);
        due[0].read = false;
        assert_eq!(ONE.next_round(&due), [bundle(&[1, 2], &[1])]);
        let unstaged = Plan { staging: Staging::AtCommit, ..ONE };
        due[0].read = true;
        assert_eq!(unstaged.next_round(&due), [bundle(&[0], &[]), bundle(&[1, 2], &[1])]);
    }

    #[test]
    fn as_printed_in_8_2_all_reads_are_validated_first() {
        let plan = Plan { prepare: Prepare::ReadsFirst, ..ONE };
        let mut due = [read(A), update(B), update(A), blind(B)];
        assert_eq!(plan.next_round(&due), [bundle(&[0, 2], &[]), bundle(&[1], &[])]);
        due.iter_mut().for_each(|due| due.read = false);
        assert_eq!(plan.next_round(&due), [bundle(&[], &[2]), bundle(&[], &[1, 3])]);
    }

    /// Every check is made once, all reads before any write, and no chain is longer than its target
    /// allows.
    #[test]
    fn where_a_chain_is_too_short_the_reads_go_ahead() {
        for plan in [ONE, Plan { staging: Staging::AtCommit, ..ONE }] {
            for (reads, updates, bytes) in [(0, 9, 64), (30, 1, 64), (13, 2, 40_000), (20, 7, 64)] {
                let write = Due { write: Some(bytes), ..update(A) };
                let mut due = vec![read(A); reads];
                due.resize(reads + updates, write);
                due.push(update(B));
                let mut made = vec![0; due.len()];
                while let round @ [_, ..] = &plan.next_round(&due)[..] {
                    let has_writes = round.iter().any(|bundle| !bundle.writes.is_empty());
                    assert!(!has_writes || due.iter().all(|due| !due.read), "{round:?}");
                    for Bundle { reads, writes } in round {
                        let operations =
                            reads.len() + writes.len() * write_operations(plan.staging);
                        assert!(operations <= OPERATIONS_MAX, "{reads:?} {writes:?}");
                        assert!(writes.len() * bytes < CHAIN_BYTES_MAX, "{writes:?}");
                        reads.iter().for_each(|&key| due[key].read = false);
                        reads.iter().for_each(|&key| made[key] += 1);
                        writes.iter().for_each(|&key| due[key].write = None);
                        writes.iter().for_each(|&key| made[key] += 1);
                    }
                }
                let all: usize = made.iter().sum();
                assert_eq!(all, reads + 2 * updates + 2, "{made:?}");
            }
        }
    }
}
