//! The role of a node for each shard: head of the shard's chain, backup in it, or neither.
//!
//! The chain of a shard is the list of its replicas that are members of the view, in the order in
//! which they joined; those that joined together are in the order of the placement. So a node that
//! comes back is the last of the chain, and when the head dies the next member is promoted. Every
//! message of a chain names the head, and a member that knows another head refuses it.
//!
//! A node is *complete* if it has everything that was acknowledged. A node that comes back becomes
//! complete by copying the files of its head; meanwhile it receives every new chunk. A node that a
//! view left out is incomplete, since it missed the writes of that time.
//!
//! A promoted head serves once every member of its chain has aligned its files with it. Chunks that
//! were under way when the last head died may be on some members only. They were not acknowledged:
//! those on the new head stay, the others are dropped.
//!
//! A head that has lost its files asks each member for them. A member that lacks them can get them
//! from this head alone: once all have said so, the files are *lost*, and nobody asks again under
//! this head.

use std::collections::BTreeSet;

use nicol_core::ids::{Epoch, Key, NodeId, ShardId, Side};
use nicol_core::view::{ShardMap, View};

use super::broken::Hooks;
use super::chain::{Chain, Life, Page};
use super::files::Files;
use super::layout::Record;
use super::messages::Chunk;

/// The next step of a backup, or of a head without its files, for a shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Due {
    pub(super) shard: ShardId,
    /// The view that it is of.
    pub(super) epoch: Epoch,
    pub(super) head: Life,
    pub(super) here: Life,
    pub(super) step: Step,
}

/// The step of an alignment or copy that a [`Due`] asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Copy the files of the first of these that has them.
    Copy { from: Vec<NodeId> },
    /// Tell the head that they are here.
    Tell,
}

/// The answer of a node that is asked for files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Shipment {
    /// Files from the asked key on as writes of a chunk, and the last key that these cover.
    Page(Vec<u8>, Key),
    /// They are not here, and under this head they do not come here but from who asks.
    Lacking,
    /// Perhaps later: this node knows another head or an older view, or looks for them itself.
    Later,
}

/// The head's decision about a chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Every member has it: it may be published.
    Held,
    /// A node has joined meanwhile.
    Grown,
    /// This node is the head no more.
    Deposed,
}

#[derive(Clone, Debug, Default)]
struct Standing {
    /// In its order; empty if no replica is a member.
    chain: Vec<Life>,
    /// Whether everything that was acknowledged is here.
    complete: bool,
    /// Whether no member of the chain has it any more.
    lost: bool,
    /// With whose files these are aligned.
    aligned: Option<Life>,
    /// Whether that head knows.
    told: bool,
    /// Of a head: the members that have aligned.
    followers: BTreeSet<Life>,
    /// Of a head: whether all have.
    ready: bool,
}

impl Standing {
    fn head(&self) -> Option<Life> {
        self.chain.first().copied()
    }

    fn life_of(&self, node: NodeId) -> Option<Life> {
        self.chain.iter().copied().find(|life| life.node == node)
    }
}

/// A node's files and its role for each shard, together: a chunk is published only while the role
/// allows it.
#[derive(Debug)]
pub(super) struct State {
    here: NodeId,
    hooks: Hooks,
    pub(super) files: Files,
    /// The newest view that any engine of this life knows.
    view: Option<View>,
    shards: Vec<Standing>,
}

/// The members of the chain of `shard`, in their order.
fn chain_of(view: &View, shard: ShardId) -> Vec<Life> {
    let is_member =
        |node: &NodeId| [Side::Host, Side::Nic].into_iter().all(|side| view.side(*node, side).up);
    let members = view.replicas_of(shard).iter().copied().filter(is_member);
    let mut chain: Vec<Life> =
        members.map(|node| Life { since: view.joined(node), node }).collect();
    chain.sort_by_key(|life| life.since);
    chain
}

impl State {
    /// Everything was loaded under `view`.
    pub(super) fn loaded(here: NodeId, view: &View, files: Files, hooks: Hooks) -> Self {
        let standing = |shard| {
            let chain = chain_of(view, shard);
            let (head, followers) = (chain.first().copied(), chain.iter().copied().collect());
            let (complete, told, ready) = (true, true, true);
            Standing { chain, complete, lost: false, aligned: head, told, followers, ready }
        };
        let shards = view.shard_ids().map(standing).collect();
        Self { here, hooks, files, view: Some(view.clone()), shards }
    }

    /// A crash has taken everything.
    pub(super) fn lose(&mut self) {
        self.files = Files::default();
        self.view = None;
        self.shards.fill_with(Standing::default);
    }

    fn of(&self, shard: ShardId) -> &Standing {
        &self.shards[usize::from(shard.0)]
    }

    fn of_mut(&mut self, shard: ShardId) -> &mut Standing {
        &mut self.shards[usize::from(shard.0)]
    }

    /// Learns a view, if it is newer.
    pub(super) fn learn(&mut self, view: &View) {
        if self.view.as_ref().is_some_and(|known| known.epoch() >= view.epoch()) {
            return;
        }
        for shard in view.shard_ids() {
            let before = std::mem::replace(&mut self.of_mut(shard).chain, chain_of(view, shard));
            let life_before = before.iter().copied().find(|life| life.node == self.here);
            let here = self.here;
            let standing = self.of_mut(shard);
            let life = standing.life_of(here);
            if life_before.is_none() && life.is_none() {
                continue;
            }
            if life != life_before {
                (standing.complete, standing.aligned) = (false, None);
            } else if before.first().copied() == standing.head() {
                continue;
            }
            (standing.told, standing.ready, standing.lost) = (false, false, false);
            standing.followers.clear();
            if !standing.complete {
                // What is here of an earlier head may never have been acknowledged.
                self.files.forget(|key| view.shard_of(key) == shard);
            }
        }
        self.view = Some(view.clone());
        view.shard_ids().for_each(|shard| self.note_ready(shard));
    }

    /// Takes files of every shard for aligned with the head's: what a node does that is broken on
    /// purpose. `even_incomplete`: those that were not copied, too.
    pub(super) fn pretend_aligned(&mut self, even_incomplete: bool) {
        let here = self.here;
        for standing in self.shards.iter_mut().filter(|one| one.life_of(here).is_some()) {
            standing.complete |= even_incomplete;
            if standing.complete {
                standing.aligned = standing.head();
            }
        }
        (0..self.shards.len() as u16).for_each(|shard| self.note_ready(ShardId(shard)));
    }

    /// Makes writes of a chunk readable, but where newer ones are.
    pub(super) fn publish(&mut self, writes: &[Record<'_>]) {
        let always = self.hooks.overwrites_newer();
        writes.iter().for_each(|write| self.files.publish(write, always));
    }

    /// A head serves from the moment on at which every member of its chain has aligned.
    fn note_ready(&mut self, shard: ShardId) {
        let here = self.here;
        let standing = self.of_mut(shard);
        if standing.head().is_none_or(|head| head.node != here) || !standing.complete {
            return;
        }
        let aligned = standing.chain[1..].iter().all(|life| standing.followers.contains(life));
        standing.ready |= aligned;
    }

    /// The head of the chain of `shard`; `None` if it has none.
    pub(super) fn head(&self, shard: ShardId) -> Option<NodeId> {
        self.of(shard).head().map(|head| head.node)
    }

    /// Whether this node is the head of the chain of `shard` and may serve.
    pub(super) fn serves(&self, shard: ShardId) -> bool {
        let standing = self.of(shard);
        standing.ready && standing.head().is_some_and(|head| head.node == self.here)
    }

    /// The chain of `shard`, if this node serves it.
    pub(super) fn led(&self, shard: ShardId) -> Option<Chain> {
        let epoch = self.view.as_ref()?.epoch();
        let standing = self.of(shard);
        let backups = standing.chain.get(1..)?.to_vec();
        self.serves(shard).then(|| Chain { epoch, head: standing.chain[0], backups })
    }

    /// Decides whether a chunk that all of `held` have may be published.
    pub(super) fn judge(&self, shard: ShardId, held: &Chain) -> Verdict {
        match self.led(shard) {
            Some(now) if now.head == held.head => {
                let all = now.backups.iter().all(|life| held.backups.contains(life));
                if all { Verdict::Held } else { Verdict::Grown }
            }
            _ => Verdict::Deposed,
        }
    }

    /// The life in which `node` is a member of the chain of `shard`; `None` if it is none.
    pub(super) fn member(&self, shard: ShardId, node: NodeId) -> Option<Life> {
        self.of(shard).life_of(node)
    }

    /// Whether to take a chunk: it comes from the head that this node knows and is a backup of, and
    /// this node knows the view in which it was sent.
    pub(super) fn admits(&self, chunk: &Chunk) -> bool {
        let standing = self.of(chunk.way.shard);
        let known = self.view.as_ref().is_some_and(|view| view.epoch() >= chunk.way.epoch);
        let aligned = !standing.complete || standing.aligned == Some(chunk.head());
        known && aligned && self.follows(chunk) && chunk.slot.node != self.here
    }

    /// Whether this node is a member of the chain that a chunk travels along, with the same head.
    pub(super) fn follows(&self, chunk: &Chunk) -> bool {
        let standing = self.of(chunk.way.shard);
        standing.head() == Some(chunk.head()) && standing.life_of(self.here).is_some()
    }

    /// The steps that are due, by shard.
    pub(super) fn due(&self) -> Vec<Due> {
        let Some(view) = &self.view else { return Vec::new() };
        let epoch = view.epoch();
        let due = |shard| {
            let standing = self.of(shard);
            let (head, here) = (standing.head()?, standing.life_of(self.here)?);
            if standing.lost {
                return None;
            }
            let step = if head == here && !standing.complete {
                // Any complete member will do; the others refuse.
                Step::Copy { from: standing.chain[1..].iter().map(|life| life.node).collect() }
            } else if head != here && standing.aligned != Some(head) {
                Step::Copy { from: vec![head.node] }
            } else if head != here && !standing.told {
                Step::Tell
            } else {
                return None;
            };
            Some(Due { shard, epoch, head, here, step })
        };
        view.shard_ids().filter_map(due).collect()
    }

    /// Whether everything is as it was when `due` was found, so that what was copied since counts.
    fn is_current(&self, due: &Due) -> bool {
        let standing = self.of(due.shard);
        standing.head() == Some(due.head) && standing.life_of(self.here) == Some(due.here)
    }

    /// Takes a page of files from `first` on, of whomever `due` names. False: it counts no more.
    ///
    /// A complete backup has the same as its head from then on. Nobody writes meanwhile, since the
    /// head waits for this. One that is not complete has forgotten what it had, and gets new chunks
    /// at the same time: the newer of two versions counts.
    pub(super) fn take(&mut self, due: &Due, first: Key, page: &Page<'_>) -> bool {
        if !self.is_current(due) {
            return false;
        }
        let Self { files, view, .. } = self;
        let complete = self.shards[usize::from(due.shard.0)].complete;
        if let Some(view) = view.as_ref().filter(|_| complete) {
            let named: BTreeSet<Key> = page.records.iter().map(|record| record.key).collect();
            files.forget(|key| {
                view.shard_of(key) == due.shard
                    && (first..=page.last).contains(&key)
                    && !named.contains(&key)
            });
        }
        page.records.iter().for_each(|record| files.publish(record, complete));
        if page.last == Key(u64::MAX) {
            let standing = self.of_mut(due.shard);
            (standing.complete, standing.aligned) = (true, Some(due.head));
            self.note_ready(due.shard);
        }
        true
    }

    /// Notes that every node lacks the files which `due` expected them to have.
    pub(super) fn give_up(&mut self, due: &Due) {
        if self.is_current(due) {
            self.of_mut(due.shard).lost = true;
        }
    }

    /// Notes that the head knows.
    pub(super) fn told(&mut self, due: &Due) {
        if self.is_current(due) {
            self.of_mut(due.shard).told = true;
        }
    }

    /// A member has aligned with `head`. Returns whether that is this node.
    pub(super) fn follow(&mut self, shard: ShardId, head: Life, follower: Life) -> bool {
        let here = self.here;
        let standing = self.of_mut(shard);
        let is_head = head.node == here && standing.head() == Some(head);
        if is_head {
            standing.followers.insert(follower);
            self.note_ready(shard);
        }
        is_head
    }

    /// Files of `shard` from `first` on, not more than so many bytes of them but for the first, for
    /// a member of the chain of `head`.
    pub(super) fn page(
        &self,
        shard: ShardId,
        epoch: Epoch,
        head: Life,
        first: Key,
        bytes_max: usize,
    ) -> Shipment {
        let (view, standing) = (&self.view, self.of(shard));
        let Some(view) = view.as_ref().filter(|view| view.epoch() >= epoch) else {
            return Shipment::Later;
        };
        if standing.head() != Some(head) {
            return Shipment::Later;
        }
        if standing.complete {
            let (blocks, last) =
                self.files.page(first, bytes_max, |key| view.shard_of(key) == shard);
            return Shipment::Page(blocks, last);
        }
        let looks = head.node == self.here && !standing.lost;
        if looks { Shipment::Later } else { Shipment::Lacking }
    }

    /// Whether nothing is left to do, as far as it can be done.
    pub(super) fn is_settled(&self) -> bool {
        self.shards.iter().all(|standing| {
            let (head, here) = (standing.head(), standing.life_of(self.here));
            match here {
                None => true,
                _ if standing.lost => true,
                here if here == head => standing.ready,
                _ => standing.told && standing.aligned == head,
            }
        })
    }

    /// Whether every shard that this node is to hold is complete.
    pub(super) fn is_complete(&self) -> bool {
        let held = |standing: &&Standing| standing.life_of(self.here).is_some();
        self.view.is_some()
            && self.shards.iter().any(|standing| standing.life_of(self.here).is_some())
            && self.shards.iter().filter(held).all(|standing| standing.complete)
    }
}

#[cfg(test)]
mod tests {
    use nicol_core::ids::Incarnation;
    use nicol_core::view::SideState;

    use super::super::broken::Sabotage;
    use super::super::messages::{Slot, Way};
    use super::*;

    const SHARD: ShardId = ShardId(0);

    fn view() -> View {
        View::new(3, 3, 1, 1).unwrap()
    }

    fn with(view: &View, node: u16, up: bool) -> View {
        let incarnation = Incarnation::FIRST.next();
        let state = SideState { up, incarnation };
        view.with_sides(&[(NodeId(node), Side::Host, state), (NodeId(node), Side::Nic, state)])
    }

    fn of(node: u16) -> State {
        let mut files = Files::default();
        files.load(Key(1), b"loaded");
        State::loaded(NodeId(node), &view(), files, Hooks(Sabotage::None))
    }

    fn chunk(head: Life, epoch: Epoch) -> Chunk {
        let way = Way { shard: SHARD, epoch, since: head.since, rest: Vec::new() };
        let slot = Slot { node: head.node, core: 0, slot: 0 };
        Chunk { slot, raw: 0, len: 0, crc: 0, way }
    }

    #[test]
    fn the_next_is_promoted_and_serves_when_all_have_aligned() {
        let (mut next, mut last) = (of(1), of(2));
        assert!(!next.serves(SHARD) && next.is_settled());
        let down = with(&view(), 0, false);
        [&mut next, &mut last].into_iter().for_each(|state| state.learn(&down));
        let head = Life { since: Epoch::FIRST, node: NodeId(1) };
        assert_eq!((next.head(SHARD), last.head(SHARD)), (Some(NodeId(1)), Some(NodeId(1))));
        assert!(!next.serves(SHARD), "node 2 may have what it has not");
        assert!(!last.admits(&chunk(head, down.epoch())), "not aligned yet");
        let due = last.due().into_iter().find(|due| due.shard == SHARD).unwrap();
        assert_eq!(due.step, Step::Copy { from: vec![NodeId(1)] });
        assert!(last.take(&due, Key(0), &Page { records: Vec::new(), last: Key(u64::MAX) }));
        assert!(last.admits(&chunk(head, down.epoch())));
        assert!(next.follow(SHARD, head, due.here) && next.serves(SHARD));
    }

    #[test]
    fn who_comes_back_is_the_last_and_knows_nothing() {
        let mut back = of(0);
        back.lose();
        assert!(back.due().is_empty() && !back.is_complete() && back.head(SHARD).is_none());
        let again = with(&view(), 0, true);
        back.learn(&again);
        assert_eq!(back.head(SHARD), Some(NodeId(1)));
        let head = Life { since: Epoch::FIRST, node: NodeId(1) };
        assert!(back.admits(&chunk(head, again.epoch())), "new chunks reach it while it copies");
        assert!(
            !back.admits(&chunk(head, again.epoch().next())),
            "of a view that it does not know"
        );
        assert!(!back.admits(&chunk(Life { node: NodeId(2), ..head }, again.epoch())));
        // The view forgets it, and has it again: it has missed chunks.
        let page = || Page { records: Vec::new(), last: Key(u64::MAX) };
        back.due().iter().for_each(|due| assert!(back.take(due, Key(0), &page())));
        assert!(back.is_complete());
        back.learn(&with(&with(&again, 0, false), 0, true));
        assert!(!back.is_complete());
    }

    #[test]
    fn files_that_everybody_lacks_are_asked_for_no_more() {
        let mut again = view();
        (0..3).for_each(|node| again = with(&again, node, true));
        let mut states = [of(0), of(1), of(2)];
        states.iter_mut().for_each(|state| {
            state.lose();
            state.learn(&again);
        });
        let [head, next, last] = &mut states;
        let due = |state: &State| state.due().into_iter().find(|due| due.shard == SHARD);
        let asks = |asked: &State, due: &Due| asked.page(SHARD, due.epoch, due.head, Key(0), 64);
        let (led, followed) = (due(head).unwrap(), due(next).unwrap());
        assert_eq!(led.step, Step::Copy { from: vec![NodeId(1), NodeId(2)] });
        assert_eq!(asks(head, &followed), Shipment::Later, "it may yet find them");
        assert_eq!((asks(next, &led), asks(last, &led)), (Shipment::Lacking, Shipment::Lacking));
        assert_eq!(asks(&of(1), &led), Shipment::Later, "it knows an older view");
        head.give_up(&led);
        assert_eq!((due(head), asks(head, &followed)), (None, Shipment::Lacking));
        next.give_up(&followed);
        assert_eq!(due(next), None);
        // Another head looks for itself.
        let without = with(&again, 0, false);
        next.learn(&without);
        assert_eq!(due(next).unwrap().step, Step::Copy { from: vec![NodeId(2)] });
        next.give_up(&followed);
        assert!(due(next).is_some(), "that was of another head");
    }

    #[test]
    fn a_chunk_that_a_new_member_has_not_got_is_not_published() {
        let mut head = of(0);
        let chain = head.led(SHARD).unwrap();
        head.learn(&with(&view(), 2, false));
        assert_eq!(head.judge(SHARD, &chain), Verdict::Held, "fewer members than have it");
        let without = head.led(SHARD).unwrap();
        head.learn(&with(&with(&view(), 2, false), 2, true));
        assert_eq!(head.judge(SHARD, &without), Verdict::Grown);
        assert_eq!(head.judge(SHARD, &head.led(SHARD).unwrap()), Verdict::Held);
        head.learn(&with(&with(&with(&view(), 2, false), 2, true), 0, false));
        assert_eq!(head.judge(SHARD, &chain), Verdict::Deposed);
    }
}
