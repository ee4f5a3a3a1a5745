//! What survivors know together decides what lost coordinators began. [Xenic21 4.2.1] (decision
//! 0102)

use std::collections::{BTreeMap, BTreeSet};

use nicol_core::ids::{Epoch, NodeId, ShardId, TxnId};
use nicol_core::view::View;
use nicol_core::wire::Reader;

use crate::decided::{Decision, Fate};
use crate::writes::WritesHead;
use crate::xenic::messages::recovery::Account;

/// What all survivors know of one transaction.
#[derive(Debug, Default)]
struct Seen<'a> {
    decided: Option<Fate>,
    /// The epoch in which it began, once a record has told.
    began: Option<Epoch>,
    /// The shards that it updates, once a record has told.
    listed: BTreeSet<ShardId>,
    /// A record of each shard that any survivor has one of.
    records: BTreeMap<ShardId, &'a [u8]>,
    /// Who knows what of it: the backups that have the record of a shard, and the nodes that know
    /// how it has ended.
    logged_at: BTreeSet<(ShardId, NodeId)>,
    decided_at: BTreeSet<NodeId>,
    /// The shards whose primaries hold locks of it.
    locked: BTreeSet<ShardId>,
}

/// The decisions, and what each survivor must learn with them.
#[derive(Debug, Default)]
pub(in crate::xenic) struct Resolution {
    pub(in crate::xenic) decisions: Vec<Decision>,
    /// By backup: records that it lacks of what commits.
    pub(in crate::xenic) lacking: BTreeMap<NodeId, Vec<Box<[u8]>>>,
    /// By primary: records that it has not installed of what commits.
    pub(in crate::xenic) installs: BTreeMap<NodeId, Vec<Box<[u8]>>>,
}

impl Resolution {
    /// Decides by the accounts of all survivors. `at_primary`: must the primary of a shard have the
    /// record of a transaction whose client was told?
    pub(in crate::xenic) fn of(
        view: &View,
        accounts: &[(NodeId, Account)],
        at_primary: impl Fn(TxnId, ShardId) -> bool,
    ) -> Self {
        let mut resolution = Self::default();
        let survivors = Survivors { view, accounts };
        for (txn, seen) in gather(accounts) {
            let at_primary = |shard| at_primary(txn, shard);
            let Some(fate) = seen.fate(&survivors, at_primary) else { continue };
            if fate == Fate::Committed && seen.has_lost_a_write(&survivors) {
                continue;
            }
            resolution.decisions.push(Decision { txn, fate });
            if fate == Fate::Aborted {
                continue;
            }
            for (&shard, &record) in &seen.records {
                for holder in survivors.holders(shard, seen.began) {
                    let has = seen.logged_at.contains(&(shard, holder));
                    if !has && !seen.decided_at.contains(&holder) {
                        resolution.lacking.entry(holder).or_default().push(record.into());
                    }
                }
                // A primary that was a backup has the record, and installs nothing.
                if seen.locked.contains(&shard) && !survivors.has_changed(shard, seen.began) {
                    let primary = view.primary(shard);
                    resolution.installs.entry(primary).or_default().push(record.into());
                }
            }
        }
        resolution
    }
}

/// What is known of each transaction.
fn gather(accounts: &[(NodeId, Account)]) -> BTreeMap<TxnId, Seen<'_>> {
    let mut all = BTreeMap::<TxnId, Seen<'_>>::new();
    for (node, account) in accounts {
        for (txn, shard) in &account.locked {
            all.entry(*txn).or_default().locked.insert(*shard);
        }
        for record in &account.records {
            // It was checked when it arrived.
            let Ok(head) = WritesHead::parse(&mut Reader::new(record)) else { continue };
            let (shard, seen) = (head.part.shard, all.entry(head.txn).or_default());
            seen.records.insert(shard, record);
            seen.logged_at.insert((shard, *node));
            seen.listed.insert(shard);
            if let Some((began, others)) = head.listed {
                seen.began = Some(began);
                seen.listed.extend(others.iter());
            }
        }
        for decision in &account.decisions {
            let seen = all.entry(decision.txn).or_default();
            seen.decided = Some(decision.fate);
            seen.decided_at.insert(*node);
        }
    }
    all
}

/// Who has given an account.
struct Survivors<'a> {
    view: &'a View,
    accounts: &'a [(NodeId, Account)],
}

impl Survivors<'_> {
    fn has(&self, node: NodeId) -> bool {
        self.accounts.iter().any(|(survivor, _)| *survivor == node)
    }

    /// Has the primary of `shard` changed, or was it lost, since a transaction `began`?
    fn has_changed(&self, shard: ShardId, began: Option<Epoch>) -> bool {
        began.is_some_and(|began| self.view.led_since(shard) > began)
    }

    /// The nodes that should have the record of `shard` of a transaction that `began` then: its
    /// backups, those that catch up, and the one that was either then and leads it now. One that
    /// has joined since knows nothing of it, also if it is complete: a copy has no outcomes.
    fn holders(&self, shard: ShardId, began: Option<Epoch>) -> impl Iterator<Item = NodeId> {
        let leads_since = self.has_changed(shard, began);
        let heir = leads_since.then(|| self.view.primary(shard));
        let was_there =
            move |&holder: &NodeId| began.is_none_or(|began| self.view.joined(holder) <= began);
        let held = heir.into_iter().chain(self.view.followers(shard));
        held.filter(|&holder| self.has(holder)).filter(was_there)
    }
}

impl Seen<'_> {
    /// Has nobody who is left what a primary has locked and must install? The backups of its shard
    /// are all lost, the coordinator among them. (AMB-50)
    fn has_lost_a_write(&self, survivors: &Survivors<'_>) -> bool {
        let no_backup = |shard: ShardId| survivors.holders(shard, self.began).next().is_none();
        let mut locked = self.listed.intersection(&self.locked);
        locked.any(|&shard| !self.records.contains_key(&shard) && no_backup(shard))
    }

    /// How it ends; `None` if nobody who is left can know.
    fn fate(
        &self,
        survivors: &Survivors<'_>,
        at_primary: impl Fn(ShardId) -> bool,
    ) -> Option<Fate> {
        if self.decided.is_some() {
            return self.decided;
        }
        // COMMIT was taken where the locks are gone: they fall with nothing else before all
        // backups have dropped its LOGs, but for a primary that is lost.
        let leads_still = |shard: ShardId| {
            let is_left = survivors.has(survivors.view.primary(shard));
            is_left && !survivors.has_changed(shard, self.began)
        };
        let installed = |shard: &&ShardId| leads_still(**shard) && !self.locked.contains(shard);
        let all_logged = self.listed.iter().all(|shard| self.records.contains_key(shard));
        if !self.listed.is_empty() && (self.listed.iter().any(|s| installed(&s)) || all_logged) {
            return Some(Fate::Committed);
        }
        // A survivor that should have its LOG and does not has acknowledged none: the client was
        // not told that it commits.
        let mut concerned = self.listed.iter().chain(&self.locked);
        let lacks = |shard: &ShardId| {
            let primary = survivors.view.primary(*shard);
            let primary = (leads_still(*shard) && at_primary(*shard)).then_some(primary);
            let mut holders = survivors.holders(*shard, self.began).chain(primary);
            holders.any(|holder| !self.logged_at.contains(&(*shard, holder)))
        };
        concerned.any(lacks).then_some(Fate::Aborted)
    }
}

#[cfg(test)]
mod tests {
    use nicol_core::fabric::Message;
    use nicol_core::ids::{Incarnation, Key, Side, Version};
    use nicol_core::txn::{ProcedureId, Txn};
    use nicol_core::view::{SideState, Succession};
    use nicol_core::wire::Writer;

    use super::*;
    use crate::writes::{Log, Updated};

    const TXN: TxnId = TxnId(7);

    /// Primaries have no LOGs.
    const NEVER: fn(TxnId, ShardId) -> bool = |_, _| false;

    /// The LOG of a transaction that updates these shards, for one of them.
    fn log(shard: u16, shards: &[u16]) -> Box<[u8]> {
        let mut txn = Txn::default();
        txn.reset(ProcedureId(0), &[]);
        txn.id = TXN;
        txn.write(Key(u64::from(shard)));
        txn.fetched(0, Version(1), None);
        txn.put(0, b"new");
        let shards: Vec<ShardId> = shards.iter().map(|&shard| ShardId(shard)).collect();
        let updated = Updated::Listed { began: Epoch::FIRST, shards: &shards };
        let (shard, mut body) = (ShardId(shard), Vec::new());
        Log { txn: &txn, shard, updated, keys: &[0] }.emit(&mut Writer::new(&mut body));
        body.into()
    }

    /// What a survivor says: the shards that it has records of, and whether it holds locks.
    type Says = (u16, &'static [u16], bool);

    /// Five nodes, of which 4 is lost; shard i is led by node i, and backed up by the next two.
    fn resolution(shards: &[u16], says: &[Says]) -> Resolution {
        let view = View::new(5, 3, 1, 1).unwrap();
        let account = |node| {
            let mut account = Account::default();
            for &(_, logged, locks) in says.iter().filter(|(of, ..)| *of == node) {
                account.records = logged.iter().map(|&shard| log(shard, shards)).collect();
                account.locked = locks.then_some((TXN, ShardId(node))).into_iter().collect();
            }
            (NodeId(node), account)
        };
        let accounts: Vec<_> = (0..4).map(account).collect();
        Resolution::of(&view, &accounts, NEVER)
    }

    fn fate(shards: &[u16], says: &[Says]) -> Option<Fate> {
        resolution(shards, says).decisions.first().map(|decision| decision.fate)
    }

    #[test]
    fn what_is_logged_of_every_shard_commits_and_reaches_all() {
        // Shards 0 and 1: node 2 has both records, nodes 1 and 3 lack theirs.
        let resolved = resolution(&[0, 1], &[(2, &[0, 1], false), (0, &[], true), (1, &[], true)]);
        assert_eq!(resolved.decisions, [Decision { txn: TXN, fate: Fate::Committed }]);
        let of = |records: &BTreeMap<NodeId, Vec<Box<[u8]>>>| {
            let shard = |record: &[u8]| {
                WritesHead::parse(&mut Reader::new(record)).map(|head| head.part.shard.0).unwrap()
            };
            let of_node = |(node, records): (&NodeId, &Vec<Box<[u8]>>)| {
                (node.0, records.iter().map(|record| shard(record)).collect::<Vec<_>>())
            };
            records.iter().map(of_node).collect::<Vec<_>>()
        };
        assert_eq!(of(&resolved.lacking), [(1, vec![0]), (3, vec![1])]);
        assert_eq!(of(&resolved.installs), [(0, vec![0]), (1, vec![1])]);
    }

    #[test]
    fn what_no_client_can_have_been_told_aborts() {
        assert_eq!(fate(&[0], &[(0, &[], true)]), Some(Fate::Aborted), "locks alone");
        let half: &[Says] = &[(2, &[0], false), (0, &[], true), (1, &[], true)];
        assert_eq!(fate(&[0, 1], half), Some(Fate::Aborted), "shard 1 has no record");
        assert_eq!(fate(&[0, 1], &[]), None);
    }

    #[test]
    fn a_primary_without_its_lock_has_taken_a_commit() {
        let told: &[Says] = &[(2, &[0], false), (0, &[], false), (1, &[], true)];
        assert_eq!(fate(&[0, 1], told), Some(Fate::Committed));
        // The primary of shard 4 is lost: it says nothing.
        assert_eq!(fate(&[4, 1], &[(0, &[4], false), (1, &[], true)]), Some(Fate::Aborted));
        assert_eq!(fate(&[4], &[(0, &[4], false)]), Some(Fate::Committed));
    }

    #[test]
    fn a_write_that_went_with_all_backups_of_its_shard_keeps_its_lock() {
        // Three nodes with one backup each, of which 1 is lost: it was that of shard 0.
        let first = View::new(3, 2, 1, 1).unwrap().with_succession(Succession::Backups);
        let down = SideState { up: false, incarnation: Incarnation(2) };
        let view = first.with_side(NodeId(1), Side::Host, down);
        let locked = vec![(TXN, ShardId(0))];
        let records = vec![log(2, &[0, 2])];
        let at_0 = Account { locked, records, ..Account::default() };
        for decisions in [vec![], vec![Decision { txn: TXN, fate: Fate::Committed }]] {
            let at_2 = Account { decisions, ..Account::default() };
            let accounts = [(NodeId(0), at_0.clone()), (NodeId(2), at_2)];
            assert!(Resolution::of(&view, &accounts, NEVER).decisions.is_empty());
        }
    }

    #[test]
    fn who_leads_a_shard_since_counts_as_the_backup_that_it_was() {
        let first = View::new(4, 3, 1, 1).unwrap().with_succession(Succession::Backups);
        let down = SideState { up: false, incarnation: Incarnation(2) };
        let view = first.with_side(NodeId(0), Side::Host, down);
        let account = |records| Account { records, ..Account::default() };
        // Shard 0 was led by 0 and is by 1; 2 is its backup. Nobody holds its lock any more.
        let accounts = [(1, vec![]), (2, vec![log(0, &[0])]), (3, vec![])];
        let accounts = accounts.map(|(node, records)| (NodeId(node), account(records)));
        let resolved = Resolution::of(&view, &accounts, NEVER);
        assert_eq!(resolved.decisions, [Decision { txn: TXN, fate: Fate::Committed }]);
        assert_eq!(resolved.lacking.into_keys().collect::<Vec<_>>(), [NodeId(1)]);
        assert!(resolved.installs.is_empty());
        // That its lock has gone with node 0 says nothing.
        let accounts = [(1, vec![log(0, &[0, 3])]), (2, vec![]), (3, vec![])];
        let accounts = accounts.map(|(node, records)| (NodeId(node), account(records)));
        let mut accounts = accounts.to_vec();
        accounts[2].1.locked = vec![(TXN, ShardId(3))];
        let resolved = Resolution::of(&view, &accounts, NEVER);
        assert_eq!(resolved.decisions, [Decision { txn: TXN, fate: Fate::Aborted }]);
    }

    #[test]
    fn what_any_survivor_knows_decided_stays_so() {
        let view = View::new(3, 3, 1, 1).unwrap();
        for known in [Fate::Committed, Fate::Aborted] {
            let records = vec![log(0, &[0, 1])];
            let undecided = Account { records, ..Account::default() };
            let decisions = vec![Decision { txn: TXN, fate: known }];
            let decided = Account { decisions, ..Account::default() };
            let accounts = [(NodeId(1), undecided), (NodeId(2), decided)];
            let resolved = Resolution::of(&view, &accounts, NEVER);
            assert_eq!(resolved.decisions, [Decision { txn: TXN, fate: known }]);
            assert!(resolved.lacking.is_empty(), "node 2 has applied or dropped it");
        }
    }

    #[test]
    fn where_all_backups_are_lost_nobody_can_know() {
        let view = View::new(2, 2, 1, 1).unwrap();
        let locked = vec![(TXN, ShardId(0))];
        let accounts = [(NodeId(0), Account { locked, ..Account::default() })];
        let resolved = Resolution::of(&view, &accounts, NEVER);
        assert!(resolved.decisions.is_empty(), "node 1 may have logged, and told its client");
    }

    /// Two nodes, one backup: node 1, the coordinator, is lost. AMB-50
    #[test]
    fn where_the_primary_logs_too_it_knows_what_the_last_backup_told() {
        let view = View::new(2, 2, 1, 1).unwrap();
        let fate = |records: Vec<Box<[u8]>>| {
            let account =
                Account { locked: vec![(TXN, ShardId(0))], records, ..Account::default() };
            let resolved = Resolution::of(&view, &[(NodeId(0), account)], |_, _| true);
            (resolved.decisions[0].fate, resolved.installs.into_keys().collect::<Vec<_>>())
        };
        assert_eq!(fate(vec![log(0, &[0])]), (Fate::Committed, vec![NodeId(0)]));
        assert_eq!(fate(vec![]), (Fate::Aborted, vec![]), "nobody was told");
    }
}
