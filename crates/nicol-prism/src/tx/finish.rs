//! The ends of a transaction: its writes are installed, or given up. [PRISM21 8.2]

use std::rc::Rc;

use nicol_core::chain::Chain;
use nicol_core::fabric::{Fabric, FabricError};
use nicol_core::txn::{Abort, Outcome, Txn};
use nicol_core::units::Nanos;
use nicol_kit::{Calls, Open, count};

use super::chains::{Installed, WriteCheck, only_word};
use super::config::Bump;
use super::coordinator::{Access, Steps};
use super::layout::word;
use super::prepare::{Prepared, Refused, Write, item_of};
use super::recovery::UNDECIDED_AFTER;
use crate::messages::{Suspicion, Unused};
use crate::tag::Tag;

/// First and longest wait of a client before it reads C again, or sends again what must happen.
const WAIT_FIRST: Nanos = Nanos::from_micros(2);
const WAIT_MOST: Nanos = Nanos::from_micros(64);

impl<F: Fabric> Steps<F> {
    /// [PRISM21 8.2 commit] Installs the writes, if TS > C. The transaction has committed when the
    /// last check has passed; its client learns it when they are installed, since no other copy of
    /// them is to be found by a reader.
    pub(super) async fn commit(self: &Rc<Self>, txn: &Txn, prepared: Prepared, ts: Tag) -> Outcome {
        let _phase = self.fabric.phase("commit");
        let writes = prepared.writes();
        let mut calls = Calls::<F, usize>::default();
        for (place, write) in writes.iter().enumerate() {
            calls.push(place, self.post_install(txn, write, ts, writes.len()));
        }
        let mut ends = Vec::with_capacity(writes.len());
        while let Some((place, reply)) = calls.next().await {
            let ended = self.installed(txn, &writes[place], ts, writes.len(), reply).await;
            ends.push((place, ended));
        }
        // Only now: until every write is installed, each of them tells that the transaction
        // commits.
        let mut outcome = Outcome::Committed;
        for (place, ended) in ends {
            match ended {
                Some(ended) => self.report(&writes[place], ts, ended),
                // The server has died, and what was to be installed there.
                None => outcome = Outcome::Unknown,
            }
        }
        outcome
    }

    fn post_install(&self, txn: &Txn, write: &Write, ts: Tag, writes: usize) -> F::Completion {
        let config = self.node.config();
        let item = item_of(txn, write.index, ts, writes as u16, config.staging);
        let chain = write.access.at(config).install(write.list.key, &item, write.state.staged());
        self.post(&write.access, &chain)
    }

    /// Takes the answer to an install, and sees to it that there is one; `None` if its server has
    /// died.
    async fn installed(
        &self,
        txn: &Txn,
        write: &Write,
        ts: Tag,
        writes: usize,
        mut reply: Result<F::Payload, FabricError>,
    ) -> Option<Ended> {
        let at = write.access.at(self.node.config());
        let mut wait = WAIT_FIRST;
        let mut again = false;
        loop {
            match reply.and_then(|reply| at.installed(reply.as_ref())) {
                Ok(Installed::Done { replaced }) => return Some(Ended { replaced, again }),
                Ok(Installed::Later { c, .. }) => {
                    if c > ts {
                        count(&self.node.counts.overtaken);
                    }
                    return Some(Ended { replaced: 0, again });
                }
                Ok(Installed::NotReady) => count(&self.node.recycled.waits),
                // Whether or not it was installed, to do so again is harmless.
                Err(_) => again = true,
            }
            if self.node.lost().contain(write.access.server) {
                return None;
            }
            self.fabric.sleep_until(self.fabric.now() + wait).await;
            wait = Nanos((wait.0 * 2).min(WAIT_MOST.0));
            reply = self.post_install(txn, write, ts, writes).await;
        }
    }

    /// Tells the server which buffers are not used any more, and that nobody needs to know any more
    /// what has become of this write.
    fn report(&self, write: &Write, ts: Tag, Ended { replaced, again }: Ended) {
        let Access { server, slot, item, ref handles, .. } = write.access;
        self.report_own(write, ts);
        if again {
            // An earlier attempt may have replaced an item that this one has not seen.
            self.servers.suspect(server, Suspicion::Unanswered);
        }
        let reports = self.node.config().recycling.has_reports();
        if replaced == 0 || !reports {
            return;
        }
        match item.filter(|(addr, _)| *addr == replaced) {
            Some((offset, stamp)) => {
                let pointer = slot + word::ADDR;
                let unused = Unused { offset, stamp: stamp.0, pointer };
                self.servers.report(server, handles, unused);
            }
            // Another write came between, which this transaction has not read.
            None => self.servers.suspect(server, Suspicion::Unseen),
        }
    }

    /// The transaction is complete, as far as `write` is concerned.
    pub(super) fn report_own(&self, write: &Write, ts: Tag) {
        let Access { server, slot, ref handles, .. } = write.access;
        let offset = write.state.staged();
        if offset != 0 {
            let unused = Unused { offset, stamp: ts.0, pointer: slot };
            self.servers.report(server, handles, unused);
        }
    }

    /// Gives up the writes of a transaction that does not commit, in a task of its own; returns why
    /// it does not.
    ///
    /// "PR and PW are left as they are"; to unblock others "the client updates C to TS if TS > C".
    pub(super) fn abort(self: &Rc<Self>, refused: Refused, ts: Tag) -> Abort {
        for write in refused.writes {
            let bump = match write.state {
                WriteCheck::Raised { old_pw, old_pr, .. } => match self.node.config().bump {
                    // DEVIATION [PRISM21 8.2 abort]: of every key whose PW was raised, and in the
                    // order of timestamps: C must not pass a write that has prepared and is not
                    // there yet. AMB-14
                    Bump::InOrder => Some(old_pw),
                    Bump::Checked => self.passes(old_pr, ts).then_some(Tag(0)),
                },
                WriteCheck::Failed { .. } | WriteCheck::NotReady | WriteCheck::Skipped => None,
            };
            let Some(before) = bump else {
                self.report_own(&write, ts);
                continue;
            };
            let (steps, open) = (self.clone(), Open::begin(&self.node.open));
            self.fabric.spawn(async move {
                if steps.bump(&write.access, before, ts).await {
                    steps.report_own(&write, ts);
                }
                drop(open);
            });
        }
        refused.abort
    }

    /// Raises C to `ts` once it is no earlier than `before`; false if that may never be.
    async fn bump(&self, access: &Access, before: Tag, ts: Tag) -> bool {
        if !self.await_c(access, before).await {
            return false;
        }
        count(&self.node.counts.bumps);
        let chain = access.at(self.node.config()).bump(ts);
        self.ensure(access, &chain).await.is_some()
    }

    /// Waits until C is no earlier than `before`; false if that may never be.
    async fn await_c(&self, access: &Access, before: Tag) -> bool {
        let until = self.fabric.now() + UNDECIDED_AFTER;
        let chain = access.at(self.node.config()).read_c();
        let mut wait = WAIT_FIRST;
        // Every C has reached 0.
        let mut there = before == Tag(0);
        while !there {
            let Some(c) = self.ensure(access, &chain).await else { return false };
            there = Tag(c) >= before;
            if there {
                continue;
            }
            count(&self.node.counts.bump_waits);
            if self.node.has_lost_server() && self.fabric.now() >= until {
                // The write before it may stay undecided, and this one with it.
                return false;
            }
            self.fabric.sleep_until(self.fabric.now() + wait).await;
            wait = Nanos((wait.0 * 2).min(WAIT_MOST.0));
        }
        there
    }

    /// Sends a chain that may be executed more than once until it is answered; `None` if its server
    /// has died.
    async fn ensure(&self, access: &Access, chain: &Chain) -> Option<u64> {
        let mut wait = WAIT_FIRST;
        loop {
            let reply = self.post(access, chain).await;
            match reply.and_then(|reply| only_word(reply.as_ref())) {
                Ok(word) => return Some(word),
                Err(FabricError::Malformed) => return None,
                Err(_) if self.node.lost().contain(access.server) => return None,
                Err(_) => {
                    self.fabric.sleep_until(self.fabric.now() + wait).await;
                    wait = Nanos((wait.0 * 2).min(WAIT_MOST.0));
                }
            }
        }
    }
}

/// A write that is there, or that a later one has overtaken.
struct Ended {
    /// The buffer that it has replaced; 0: none, as far as known.
    replaced: u64,
    /// Whether it was sent more than once.
    again: bool,
}
