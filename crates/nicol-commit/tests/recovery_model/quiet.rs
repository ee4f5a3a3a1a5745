//! The commit protocol in quiet times: EXECUTE, VALIDATE, LOG, COMMIT, ABORT and the mark, and the
//! checks of epoch and incarnation by which a receiver refuses what recovery has overruled.
//!
//! A rule changes the state and says true, or says false if it cannot be taken.

use crate::scope::{Fault, Scope};
use crate::state::{Fate, Phase, ROWS, Reply, Set, State, Value, writer};

impl Scope {
    /// A coordinator begins a transaction: EXECUTEs are sent.
    pub fn begin(&self, state: &mut State, txn: usize) -> bool {
        let node = &state.nodes[self.coordinator(txn)];
        if !node.is_up || state.txns[txn].phase != Phase::NotBegun {
            return false;
        }
        let (epoch, life) = (node.view, node.life);
        let told = self.txns().filter(|other| state.txns[*other].told.committed);
        let after = told.fold(Default::default(), Set::with);
        let txn = &mut state.txns[txn];
        (txn.phase, txn.epoch, txn.life, txn.after) = (Phase::Executing, epoch, life, after);
        true
    }

    /// Does a node take a message of the transaction about a shard: is the node who it was, and is
    /// the message not overruled by a change that the node knows?
    fn is_taken(&self, state: &State, txn: usize, shard: usize, node: usize) -> bool {
        let (found, known) = (&state.nodes[node], state.known(node));
        let sent = &state.txns[txn];
        let coordinator = self.coordinator(txn);
        // A frame to an earlier incarnation is refused; one of a later view waits for that view.
        let is_there = found.is_up && found.life == state.view(sent.epoch).lives[node];
        if !is_there || found.view < sent.epoch {
            return false;
        }
        let is_stamped_late = self.breaks(Fault::EpochAtTransmission) && self.is_alive(state, txn);
        let stamp = if is_stamped_late { state.nodes[coordinator].view } else { sent.epoch };
        let is_fresh = known.changed[shard] <= stamp || self.breaks(Fault::EpochIgnored);
        let lives = known.lives[coordinator] == sent.life;
        is_fresh && (lives || self.breaks(Fault::IncarnationIgnored))
    }

    /// Has neither a vote nor a decision closed the transaction at a replica?
    fn is_open(&self, state: &State, txn: usize, shard: usize, node: usize) -> bool {
        let replica = state.replica(node, shard);
        replica.votes[txn] == 0 && !replica.fates[txn].is_decided()
    }

    /// The primary that a transaction's messages about a shard go to, if it takes them: it must
    /// think itself the primary, and serve.
    fn primary_that_takes(&self, state: &State, txn: usize, shard: usize) -> Option<usize> {
        let node = state.view(state.txns[txn].epoch).primary(shard);
        let is_primary = state.known(node).primary(shard) == node;
        let serves = is_primary && state.replica(node, shard).is_serving;
        (serves && self.is_taken(state, txn, shard, node)).then_some(node)
    }

    /// A primary takes EXECUTE: it locks what is to be written, and reads. [Xenic21 4.2 step 2]
    pub fn execute(&self, state: &mut State, txn: usize, shard: usize) -> bool {
        let begun = state.txns[txn].phase != Phase::NotBegun;
        if !begun || state.txns[txn].executed[shard] != Reply::None {
            return false;
        }
        let Some(node) = self.primary_that_takes(state, txn, shard) else { return false };
        if !self.is_open(state, txn, shard, node) {
            return false;
        }
        let epoch = state.known(node).changed[shard];
        let replica = &mut state.nodes[node].replicas[shard];
        let found = &mut state.txns[txn];
        let row = |key: usize| key % ROWS;
        if self.reads(txn, shard).any(|key| !replica.locks[row(key)].is_empty()) {
            found.executed[shard] = Reply::Refused;
            return true;
        }
        found.executed[shard] = Reply::Granted;
        for key in self.reads(txn, shard) {
            found.seen[key] = replica.values[row(key)];
        }
        for key in self.writes(txn, shard) {
            let of_transaction = self.breaks(Fault::VersionOfTransaction);
            let epoch = if of_transaction { found.epoch } else { epoch };
            let number = found.seen[key].number + 1;
            found.wrote[key] = Value { epoch, number, writer: writer(txn) };
            replica.locks[row(key)] = replica.locks[row(key)].with(txn);
        }
        true
    }

    /// A primary takes VALIDATE of what was read and is not locked. [Xenic21 4.2 step 4]
    pub fn validate(&self, state: &mut State, txn: usize, shard: usize) -> bool {
        let found = &state.txns[txn];
        if found.phase != Phase::Validating || found.validated[shard] != Reply::None {
            return false;
        }
        let Some(node) = self.primary_that_takes(state, txn, shard) else { return false };
        let replica = state.replica(node, shard);
        let is_current = self.only_reads(txn, shard).all(|key| {
            let row = key % ROWS;
            replica.locks[row].is_empty() && replica.values[row] == found.seen[key]
        });
        let reply = if is_current { Reply::Granted } else { Reply::Refused };
        state.txns[txn].validated[shard] = reply;
        true
    }

    /// A coordinator has every reply that it waits for, and takes the next step.
    pub fn proceed(&self, state: &mut State, txn: usize) -> bool {
        let validated = || self.touched(txn).filter(|s| self.only_reads(txn, *s).next().is_some());
        let found = &state.txns[txn];
        let writes = self.listed(txn).next().is_some();
        let after_reads = if writes { Phase::Logging } else { Phase::Committing };
        let next = match found.phase {
            Phase::Executing => match Self::replies(self.touched(txn), &found.executed) {
                Some(Reply::Granted) if validated().next().is_some() => Phase::Validating,
                Some(Reply::Granted) => after_reads,
                Some(_) => Phase::Aborting,
                None => return false,
            },
            Phase::Validating => match Self::replies(validated(), &found.validated) {
                Some(Reply::Granted) => after_reads,
                Some(_) => Phase::Aborting,
                None => return false,
            },
            Phase::Logging if self.is_logged(state, txn) => Phase::Committing,
            _ => return false,
        };
        if !self.is_alive(state, txn) {
            return false;
        }
        self.enter(state, txn, next);
        true
    }

    /// A coordinator's next step, and what it tells the client with it.
    pub fn enter(&self, state: &mut State, txn: usize, phase: Phase) {
        let txn = &mut state.txns[txn];
        txn.phase = phase;
        txn.has_logged |= phase == Phase::Logging;
        if matches!(phase, Phase::Committing | Phase::Aborting) {
            txn.told.add(phase == Phase::Committing);
            txn.outcomes.add(phase == Phase::Committing);
        }
    }

    /// A replica appends a LOG and acknowledges it. [Xenic21 4.2 step 5]
    pub fn log(&self, state: &mut State, txn: usize, shard: usize, node: usize) -> bool {
        let is_sent = state.txns[txn].has_logged;
        if !is_sent || !self.log_targets(state, txn, shard).has(node) {
            return false;
        }
        let was_checked = state.txns[txn].waiting[shard].has(node);
        let is_taken = self.is_taken(state, txn, shard, node)
            && self.is_open(state, txn, shard, node)
            || was_checked && state.nodes[node].is_up;
        let is_new = state.replica(node, shard).fates[txn] == Fate::Nothing;
        if !is_taken || !is_new || self.is_full(state, node) {
            return false;
        }
        state.nodes[node].replicas[shard].fates[txn] = Fate::Logged;
        let found = &mut state.txns[txn];
        found.acks[shard] = found.acks[shard].with(node);
        found.files[shard] = found.files[shard].with(node);
        if self.breaks(Fault::AppliedAtLog) && state.known(node).primary(shard) != node {
            state.install(txn, node, shard);
        }
        true
    }

    /// A replica accepts a LOG, which then waits to be appended: only a fault needs this step. What
    /// is checked again after the wait might as well have arrived then.
    pub fn accept(&self, state: &mut State, txn: usize, shard: usize, node: usize) -> bool {
        let waiting = state.txns[txn].waiting[shard];
        let is_sent = state.txns[txn].has_logged && !waiting.has(node);
        let waits = self.breaks(Fault::UncheckedAfterWait)
            && is_sent
            && self.log_targets(state, txn, shard).has(node)
            && self.is_taken(state, txn, shard, node)
            && self.is_open(state, txn, shard, node);
        if waits {
            state.txns[txn].waiting[shard] = waiting.with(node);
        }
        waits
    }

    /// Is a node's log full of undecided records? One has room in it.
    fn is_full(&self, state: &State, node: usize) -> bool {
        let is_undecided = |txn| {
            state.nodes[node].replicas.iter().any(|replica| replica.fates[txn] == Fate::Logged)
        };
        self.breaks(Fault::FullLogs) && self.txns().any(is_undecided)
    }

    /// A primary takes COMMIT, in any epoch: it is a fact. [Xenic21 4.2 step 6]
    pub fn commit(&self, state: &mut State, txn: usize, shard: usize) -> bool {
        let found = &state.txns[txn];
        if found.phase != Phase::Committing || found.committed_at.has(shard) {
            return false;
        }
        let node = state.view(found.epoch).primary(shard);
        if !self.is_at(state, txn, node) {
            return false;
        }
        if !state.replica(node, shard).fates[txn].is_decided() {
            state.install(txn, node, shard);
            state.close(txn, node, shard, Fate::Committed);
        }
        let found = &mut state.txns[txn];
        found.committed_at = found.committed_at.with(shard);
        true
    }

    /// A primary takes ABORT, in any epoch: before any LOG it is a fact.
    pub fn abort(&self, state: &mut State, txn: usize, shard: usize) -> bool {
        let found = &state.txns[txn];
        if found.phase != Phase::Aborting {
            return false;
        }
        let node = state.view(found.epoch).primary(shard);
        let is_decided = state.replica(node, shard).fates[txn].is_decided();
        if is_decided || !self.is_at(state, txn, node) {
            return false;
        }
        state.close(txn, node, shard, Fate::Aborted);
        true
    }

    /// Does a node still run that a transaction's message of any kind goes to?
    fn is_at(&self, state: &State, txn: usize, node: usize) -> bool {
        let (found, began) = (&state.nodes[node], state.view(state.txns[txn].epoch));
        found.is_up && found.life == began.lives[node]
    }

    /// The coordinator's mark passes a transaction.
    pub fn mark(&self, state: &mut State, txn: usize) -> bool {
        let found = &state.txns[txn];
        let mut shards = self.listed(txn);
        let is_applied = shards.all(|shard| found.committed_at.has(shard));
        let is_due = is_applied || self.breaks(Fault::MarkAtLogAcks);
        let passes = found.phase == Phase::Committing && !found.is_marked && is_due;
        if !passes || !self.is_alive(state, txn) || self.listed(txn).next().is_none() {
            return false;
        }
        state.txns[txn].is_marked = true;
        true
    }

    /// A replica learns the mark, in any epoch, and applies what is below.
    pub fn learn_mark(&self, state: &mut State, txn: usize, shard: usize, node: usize) -> bool {
        let is_sent = state.txns[txn].is_marked && self.is_at(state, txn, node);
        if !is_sent || state.replica(node, shard).fates[txn] != Fate::Logged {
            return false;
        }
        state.install(txn, node, shard);
        state.close(txn, node, shard, Fate::BelowMark);
        true
    }

    /// A coordinator has learned a view: what touches a changed shard it aborts before any LOG, and
    /// leaves to recovery afterwards.
    pub fn freeze(&self, state: &mut State, node: usize) {
        for txn in self.txns() {
            let of_node = self.coordinator(txn) == node && self.is_alive(state, txn);
            if !of_node || !self.has_changed(state, txn, state.known(node)) {
                continue;
            }
            let next = match state.txns[txn].phase {
                Phase::Executing | Phase::Validating => {
                    if self.breaks(Fault::UnloggedLeft) {
                        Phase::Frozen
                    } else {
                        Phase::Aborting
                    }
                }
                Phase::Logging if self.breaks(Fault::DecidedTwice) => Phase::Aborting,
                Phase::Logging => Phase::Frozen,
                _ => continue,
            };
            self.enter(state, txn, next);
        }
    }
}
