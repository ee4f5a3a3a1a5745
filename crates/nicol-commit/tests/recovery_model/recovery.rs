//! After a change: views, leases, new primaries, replication, votes, decisions and copies.

use crate::scope::{Fault, Scope, view_nodes};
use crate::state::{Fate, Phase, ROWS, Replica, SHARDS, Set, State, View};

impl Scope {
    /// A node stops, and takes with it what is not in its log file.
    pub fn crash(&self, state: &mut State, node: usize) -> bool {
        if !self.may_fail(state, node) || !state.has_room() {
            return false;
        }
        state.nodes[node].is_up = false;
        true
    }

    /// The view service leaves a node out: one that has stopped, or one that it takes for dead.
    pub fn remove(&self, state: &mut State, node: usize) -> bool {
        let mut view = *state.newest();
        let is_suspected = self.suspects && self.may_fail(state, node);
        let has_stopped = view.has(node) && !state.nodes[node].is_up;
        let is_cut_off = view.has(node) && is_suspected && state.has_room();
        if !has_stopped && !is_cut_off {
            return false;
        }
        let number = state.newest + 1;
        view.lives[node] = 0;
        for shard in 0..SHARDS {
            view.catching_up[shard] = view.catching_up[shard].without(node);
            if !view.complete[shard].has(node) {
                continue;
            }
            view.complete[shard] = view.complete[shard].without(node);
            view.changed[shard] = number;
            if view.primary(shard) == node {
                let mut order = self.replicas[shard].iter();
                let Some(next) = order.find(|next| view.complete[shard].has(**next)) else {
                    return false;
                };
                view.primary[shard] = u8::try_from(*next).expect("few nodes");
            }
        }
        state.push(view);
        true
    }

    /// The lease of a node that was removed ends: it stops.
    pub fn end_lease(&self, state: &mut State, node: usize) -> bool {
        let found = &state.nodes[node];
        let ends = found.is_up && state.newest().lives[node] != found.life;
        state.nodes[node].is_up &= !ends;
        ends
    }

    /// A member learns the newest view. A new primary has no lock, and does not serve yet.
    pub fn learn(&self, state: &mut State, node: usize) -> bool {
        let found = &state.nodes[node];
        let is_member = found.is_up && state.newest().lives[node] == found.life;
        if !is_member || found.view == state.newest {
            return false;
        }
        state.nodes[node].view = state.newest;
        for shard in 0..SHARDS {
            let is_primary = state.newest().primary(shard) == node;
            let replica = &mut state.nodes[node].replicas[shard];
            if !is_primary || !replica.is_serving {
                (replica.is_serving, replica.locks) = (false, [Set::default(); ROWS]);
            }
        }
        self.report(state, node);
        self.freeze(state, node);
        true
    }

    /// A node that learns a view tells what its replicas have undecided, and which locks it has.
    fn report(&self, state: &mut State, node: usize) {
        let number = state.newest;
        for txn in self.txns() {
            for shard in self.listed(txn) {
                let counts = self.concerned(state, txn, shard).has(node);
                let replica = &mut state.nodes[node].replicas[shard];
                let is_locked = replica.locks.iter().any(|holders| holders.has(txn));
                let is_logged = replica.fates[txn] == Fate::Logged;
                if counts && (is_locked || is_logged) {
                    replica.reports[txn] = number;
                }
            }
        }
    }

    /// The replicas in the newest view that recovery of a transaction concerns: those that are
    /// complete, and those that catch up and were there when it began. The rest get it by the copy.
    fn concerned(&self, state: &State, txn: usize, shard: usize) -> Set {
        let view = state.newest();
        let is_younger = state.txns[txn].epoch >= view.added[shard];
        let all = is_younger && !self.breaks(Fault::CatchingUpLeftOut);
        if all || self.breaks(Fault::StaleVote) {
            view.replicas(shard)
        } else {
            view.complete[shard]
        }
    }

    /// A new primary serves: nobody's lease of an earlier view lasts, every survivor has told its
    /// undecided records, and their keys are locked.
    pub fn serve(&self, state: &mut State, node: usize, shard: usize) -> bool {
        let view = *state.newest();
        let is_primary = view.primary(shard) == node && view.complete[shard].has(node);
        let is_new = is_primary && !state.replica(node, shard).is_serving;
        let have_told = view.complete[shard].iter().all(|other| state.is_current(other));
        if !is_new || !have_told {
            return false;
        }
        let has_lease = |other: &usize| {
            let found = &state.nodes[*other];
            found.is_up && found.view < state.newest && found.view > 0
        };
        if view_nodes().any(|other| has_lease(&other)) && !self.breaks(Fault::LeaseOverlap) {
            return false;
        }
        for txn in self.txns() {
            let tells = |other| state.replica(other, shard).fates[txn] == Fate::Logged;
            let is_told = view.complete[shard].iter().any(tells);
            let is_known = state.replica(node, shard).fates[txn].is_decided();
            if !is_told || is_known || self.breaks(Fault::LockNotRebuilt) {
                continue;
            }
            let locks = &mut state.nodes[node].replicas[shard].locks;
            for key in self.writes(txn, shard) {
                locks[key % ROWS] = locks[key % ROWS].with(txn);
            }
        }
        state.nodes[node].replicas[shard].is_serving = true;
        true
    }

    /// Who decides in the newest view: the coordinator while it is a member, else a replacement.
    pub fn decider(&self, state: &State, txn: usize) -> Option<usize> {
        let alone = self.is_member(state, txn) && !self.breaks(Fault::DecidedTwice);
        let first = view_nodes().find(|node| state.newest().has(*node));
        let decider = if alone { Some(self.coordinator(txn)) } else { first };
        decider.filter(|node| state.is_current(*node))
    }

    /// Is the transaction to be recovered in the newest view, as what nodes report says?
    fn is_recovering(&self, state: &State, txn: usize) -> bool {
        let view = state.newest();
        let found = &state.txns[txn];
        if found.phase == Phase::NotBegun || self.listed(txn).next().is_none() {
            return false;
        }
        let has_changed = self.has_changed(state, txn, view);
        if self.is_member(state, txn) {
            let left = found.phase == Phase::Committing
                || found.has_logged && found.phase == Phase::Frozen
                || found.has_logged && self.breaks(Fault::DecidedTwice);
            if !has_changed || !left || !state.is_current(self.coordinator(txn)) {
                return false;
            }
        }
        let mut shards = self.listed(txn);
        let is_reported = shards.any(|shard| {
            let tells = |node| state.replica(node, shard).reports[txn] == state.newest;
            view_nodes().any(|node| state.is_current(node) && tells(node))
        });
        let waits = self.is_member(state, txn) && found.phase == Phase::Frozen;
        is_reported || waits && !found.told.is_any()
    }

    /// The replicas whose votes count.
    fn voters(&self, view: &View, shard: usize) -> Set {
        if self.breaks(Fault::StaleVote) { view.replicas(shard) } else { view.complete[shard] }
    }

    /// A replica votes in the newest view, which closes the transaction there.
    pub fn vote(&self, state: &mut State, txn: usize, shard: usize, node: usize) -> bool {
        let is_asked = self.decider(state, txn).is_some()
            && self.voters(state.newest(), shard).has(node)
            && state.is_current(node)
            && state.replica(node, shard).votes[txn] < state.newest
            && self.is_recovering(state, txn);
        if is_asked {
            let number = state.newest;
            let replica = &mut state.nodes[node].replicas[shard];
            (replica.votes[txn], replica.said[txn]) = (number, replica.fates[txn]);
        }
        is_asked
    }

    /// Has the replica voted in the newest view?
    fn has_voted(&self, state: &State, txn: usize, shard: usize, node: usize) -> bool {
        state.replica(node, shard).votes[txn] == state.newest
    }

    /// Has any replica of a shard voted so?
    fn says(&self, state: &State, txn: usize, shard: usize, wanted: fn(Fate) -> bool) -> bool {
        self.voters(state.newest(), shard).iter().any(|node| {
            let said = state.replica(node, shard).said[txn];
            self.has_voted(state, txn, shard, node) && wanted(said)
        })
    }

    /// What the decider knows of the outcome without votes, if it is the coordinator: what it has
    /// decided in an earlier view, or that all LOGs are acknowledged.
    fn known_outcome(&self, state: &State, txn: usize) -> Option<bool> {
        let decides = self.decider(state, txn) == Some(self.coordinator(txn));
        if !decides || !self.is_member(state, txn) {
            return None;
        }
        let decided = state.txns[txn].decisions.iter().flatten().next();
        decided.copied().or_else(|| self.is_logged(state, txn).then_some(true))
    }

    /// Must the decider go by votes? It may do so while acknowledgements are under way to it.
    fn may_ask(&self, state: &State, txn: usize) -> bool {
        let found = &state.txns[txn];
        let has_decided = found.decisions.iter().any(Option::is_some);
        let knows = found.phase == Phase::Committing || has_decided;
        !knows || self.known_outcome(state, txn).is_none()
    }

    /// A replica that lacks a record is sent it, before anything is decided.
    pub fn replicate(&self, state: &mut State, txn: usize, shard: usize, node: usize) -> bool {
        let view = *state.newest();
        let fate = state.replica(node, shard).fates[txn];
        let is_voter = self.has_voted(state, txn, shard, node);
        let catches_up = view.catching_up[shard].has(node)
            && self.concerned(state, txn, shard).has(node)
            && state.is_current(node);
        let is_decided = state.txns[txn].decisions[usize::from(state.newest)].is_some();
        let is_due = self.decider(state, txn).is_some()
            && fate == Fate::Nothing
            && (!is_decided || self.breaks(Fault::UnreplicatedVote))
            && (is_voter && view.complete[shard].has(node) || catches_up);
        // What lacks a record of any shard is aborted: nobody needs the others' records.
        let is_known = self.known_outcome(state, txn) == Some(true);
        let may_commit =
            is_known || self.listed(txn).all(|s| self.says(state, txn, s, Fate::has_record));
        let has_source = is_known || self.says(state, txn, shard, Fate::can_send);
        if !is_due || !may_commit || !has_source || !self.is_recovering(state, txn) {
            return false;
        }
        let replica = &mut state.nodes[node].replicas[shard];
        (replica.fates[txn], replica.said[txn]) = (Fate::Logged, Fate::Logged);
        let found = &mut state.txns[txn];
        found.files[shard] = found.files[shard].with(node);
        true
    }

    /// Does every replica of every listed shard have its record?
    fn is_replicated(&self, state: &State, txn: usize) -> bool {
        self.breaks(Fault::UnreplicatedVote)
            || self.listed(txn).all(|shard| {
                let mut all = self.concerned(state, txn, shard).iter();
                all.all(|node| state.replica(node, shard).fates[txn].has_record())
            })
    }

    /// The decider decides: by what it knows as the coordinator, or by votes.
    pub fn decide(&self, state: &mut State, txn: usize, by_votes: bool) -> bool {
        let view = *state.newest();
        let may = self.decider(state, txn).is_some()
            && state.txns[txn].decisions[usize::from(state.newest)].is_none()
            && self.is_recovering(state, txn);
        if !may {
            return false;
        }
        let commits = if by_votes {
            if !self.may_ask(state, txn) {
                return false;
            }
            let shards = || self.listed(txn);
            let voted = |shard| {
                let mut voters = self.voters(&view, shard).iter();
                voters.all(|node| self.has_voted(state, txn, shard, node))
            };
            if !shards().all(voted) {
                return false;
            }
            let sees = |wanted| shards().any(|shard| self.says(state, txn, shard, wanted));
            let is_aborted = sees(|fate| fate == Fate::Aborted);
            let all_logged = shards().all(|s| self.says(state, txn, s, Fate::has_record));
            sees(Fate::is_committed) || all_logged && !is_aborted
        } else {
            let Some(known) = self.known_outcome(state, txn) else { return false };
            known
        };
        if commits && !self.is_replicated(state, txn) {
            return false;
        }
        state.txns[txn].decisions[usize::from(state.newest)] = Some(commits);
        true
    }

    /// A replica logs and applies a decision of the view that it knows.
    pub fn apply(&self, state: &mut State, txn: usize, shard: usize, node: usize) -> bool {
        let (found, number) = (&state.nodes[node], state.nodes[node].view);
        let known = state.known(node);
        let is_replica =
            found.is_up && known.lives[node] == found.life && known.replicas(shard).has(node);
        let decision = state.txns[txn].decisions[usize::from(number)].filter(|_| is_replica);
        let Some(commits) = decision else { return false };
        let fate = match (commits, state.replica(node, shard).fates[txn]) {
            (true, Fate::Logged) => Fate::Committed,
            (false, Fate::Nothing | Fate::Logged) => Fate::Aborted,
            _ => return false,
        };
        if commits {
            state.install(txn, node, shard);
        }
        let held = state.replica(node, shard).locks;
        state.close(txn, node, shard, fate);
        if self.breaks(Fault::OneHolder) {
            let fall = |holders: Set| if holders.has(txn) { Set::default() } else { holders };
            state.nodes[node].replicas[shard].locks = held.map(fall);
        }
        state.txns[txn].outcomes.add(commits);
        true
    }

    /// Have all replicas of all listed shards applied a decision?
    fn is_everywhere(&self, state: &State, txn: usize) -> bool {
        self.listed(txn).all(|shard| {
            let mut all = self.concerned(state, txn, shard).iter();
            all.all(|node| state.replica(node, shard).fates[txn].is_decided())
        })
    }

    /// The client is told a decision once it is logged everywhere.
    pub fn tell(&self, state: &mut State, txn: usize) -> bool {
        let found = &state.txns[txn];
        let decision = found.decisions[usize::from(state.newest)];
        let is_due = self.decider(state, txn).is_some() && self.is_everywhere(state, txn);
        let Some(commits) = decision.filter(|_| is_due) else { return false };
        let told = found.told;
        state.txns[txn].told.add(commits);
        state.txns[txn].outcomes.add(commits);
        state.txns[txn].told != told
    }

    /// A replica forgets a decision: the decider of the newest view says that all have logged it,
    /// and that the client is told.
    pub fn truncate(&self, state: &mut State, txn: usize, shard: usize, node: usize) -> bool {
        let fate = state.replica(node, shard).fates[txn];
        let found = &state.txns[txn];
        let number = if self.breaks(Fault::EarlierTruncation) {
            found.decisions.iter().rposition(Option::is_some)
        } else {
            Some(usize::from(state.newest))
        };
        let is_over = number.is_some_and(|number| found.decisions[number].is_some())
            && self.is_everywhere(state, txn)
            && (found.told.is_any() || self.breaks(Fault::EarlierTruncation))
            && state.is_current(node)
            && self.concerned(state, txn, shard).has(node);
        let is_early = self.breaks(Fault::EarlyTruncation) && state.nodes[node].is_up;
        let may = matches!(fate, Fate::Committed | Fate::Aborted) && (is_over || is_early);
        if may {
            state.nodes[node].replicas[shard].fates[txn] = Fate::Truncated;
        }
        may
    }

    /// A node that was removed comes back with its log files: it is to catch up.
    pub fn come_back(&self, state: &mut State, node: usize) -> bool {
        let mut view = *state.newest();
        if !self.returns || view.has(node) || state.nodes[node].is_up || !state.has_room() {
            return false;
        }
        let number = state.newest + 1;
        let life = state.nodes[node].life + 1;
        view.lives[node] = life;
        for shard in (0..SHARDS).filter(|shard| self.replicas[*shard].contains(&node)) {
            view.catching_up[shard] = view.catching_up[shard].with(node);
            view.added[shard] = number;
            let replica = &mut state.nodes[node].replicas[shard];
            let (values, fates) = (replica.values, replica.fates);
            *replica = Replica { values, fates, ..Replica::default() };
        }
        state.push(view);
        let back = &mut state.nodes[node];
        (back.is_up, back.life, back.view) = (true, life, number);
        self.report(state, node);
        true
    }

    /// The primary reads its range for a replica that catches up, once every transaction that began
    /// before the replica was added has ended.
    pub fn read_range(&self, state: &mut State, node: usize, shard: usize) -> bool {
        let view = *state.newest();
        let primary = view.primary(shard);
        let replica = state.replica(node, shard);
        let waits = view.catching_up[shard].has(node)
            && replica.chunk.is_none()
            && !replica.is_copied
            && state.is_current(node)
            && state.is_current(primary)
            && state.replica(primary, shard).is_serving;
        let have_ended = self.txns().all(|txn| self.has_ended_before(state, txn, shard));
        if !waits || !(have_ended || self.breaks(Fault::CopyBeforeEnd)) {
            return false;
        }
        let values = state.replica(primary, shard).values;
        let replica = &mut state.nodes[node].replicas[shard];
        replica.chunk = Some(values);
        if !self.breaks(Fault::CopyOverNewer) {
            // What it had is erased before anything of the range arrives: what is applied
            // afterwards is newer than the range.
            replica.values = Default::default();
        }
        for txn in self.txns() {
            let is_older = state.txns[txn].epoch < view.added[shard];
            let fate = &mut state.nodes[node].replicas[shard].fates[txn];
            if is_older && *fate == Fate::Logged {
                *fate = Fate::Nothing;
            }
        }
        true
    }

    /// Has a transaction ended that began before the view that added a replica of the shard? It has
    /// if its coordinator says so, or is gone, and no replica has it undecided.
    fn has_ended_before(&self, state: &State, txn: usize, shard: usize) -> bool {
        let (found, view) = (&state.txns[txn], state.newest());
        let began_before = found.phase != Phase::NotBegun && found.epoch < view.added[shard];
        if !began_before {
            return !self.may_begin_before(state, txn, shard);
        }
        let is_undecided = self.listed(txn).any(|shard| {
            view.complete[shard].iter().any(|node| {
                let replica = state.replica(node, shard);
                let is_locked = replica.locks.iter().any(|lock| lock.has(txn));
                replica.fates[txn] == Fate::Logged || is_locked
            })
        });
        let is_over = match found.phase {
            Phase::Committing | Phase::Aborting => true,
            Phase::Frozen => found.told.is_any(),
            _ => false,
        };
        let is_fenced = view_nodes().all(|node| {
            !state.nodes[node].is_up || state.known(node).lives[self.coordinator(txn)] != found.life
        });
        !is_undecided && (is_over || is_fenced)
    }

    /// May a coordinator begin a transaction in a view before the one that added a replica?
    fn may_begin_before(&self, state: &State, txn: usize, shard: usize) -> bool {
        let node = &state.nodes[self.coordinator(txn)];
        let has_begun = state.txns[txn].phase != Phase::NotBegun;
        !has_begun && node.is_up && node.view < state.newest().added[shard]
    }

    /// A replica that catches up takes the range that it was sent.
    pub fn take_range(&self, state: &mut State, node: usize, shard: usize) -> bool {
        let is_current = state.is_current(node);
        let replace = self.breaks(Fault::CopyOverNewer);
        let replica = &mut state.nodes[node].replicas[shard];
        let Some(chunk) = replica.chunk.filter(|_| is_current) else { return false };
        for (value, copied) in replica.values.iter_mut().zip(chunk) {
            *value = if replace { copied } else { (*value).max(copied) };
        }
        (replica.chunk, replica.is_copied) = (None, true);
        true
    }

    /// A view makes the replicas complete that have caught up.
    pub fn complete(&self, state: &mut State, node: usize) -> bool {
        let mut view = *state.newest();
        let catches_up = |shard: &usize| view.catching_up[*shard].has(node);
        let shards = (0..SHARDS).filter(catches_up).fold(Set::default(), Set::with);
        let mut all = shards.iter();
        let copied = all.all(|shard| state.replica(node, shard).is_copied);
        if shards.is_empty() || !copied || !state.is_current(node) || !state.has_room() {
            return false;
        }
        for shard in shards.iter() {
            view.catching_up[shard] = view.catching_up[shard].without(node);
            view.complete[shard] = view.complete[shard].with(node);
        }
        state.push(view);
        true
    }
}
