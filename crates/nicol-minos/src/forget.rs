//! Records of deleted keys are forgotten once nobody can need them any more (decision 0188).
//!
//! A deleted key keeps its record for its timestamp: an older write that is still on its way is
//! obsolete by it. The coordinator of the deletion asks every server, MAY_FORGET, whether
//! the record is at rest there: the deletion is in volatile and in durable memory, every node has
//! it, and no write of the key is under way, neither coordinated nor followed. If all are members
//! of one view and all agree, no older write exists, and newer ones have higher timestamps than the
//! deletion, whoever issues them. Then it tells all of them, FORGET, and forgets its own.
//!
//! A node that has forgotten a record gives to the next one of any key a version above it, so that
//! no version of a key is used twice.

use std::rc::Rc;

use nicol_core::fabric::{Fabric, Message, ReplyTo, Timeout};
use nicol_core::ids::{EngineId, Key};
use nicol_core::units::Nanos;
use nicol_core::view::Role;
use nicol_core::wire::{Malformed, Reader, Writer};

use super::deletions::{Deletion, TOGETHER};
use super::member::Member;
use super::messages::{FORGET, MAY_FORGET};
use super::timestamp::Timestamp;

/// How long a node waits for an answer. Without one it tries again, with the next deletions.
const ANSWER: Timeout = Timeout::After(Nanos::from_millis(2));

/// MAY_FORGET or FORGET: deletions of which a node wants to forget the records, at most 64.
struct Request<'a, const KIND: u16> {
    /// The view in which they are asked for.
    epoch: u64,
    deletions: &'a [Deletion],
}

impl<const KIND: u16> Message for Request<'_, KIND> {
    const KIND: u16 = KIND;

    fn emit(&self, to: &mut Writer<'_>) {
        to.u64(self.epoch);
        let words = self.deletions.iter().flat_map(|(key, ts)| [key.0, ts.bits()]);
        words.for_each(|word| to.u64(word));
    }

    fn keys(&self, each: &mut dyn FnMut(Key)) {
        self.deletions.iter().for_each(|(key, _)| each(*key));
    }
}

/// Reads what a [`Request`] of either kind has emitted.
fn parse(body: &[u8]) -> Result<(u64, Vec<Deletion>), Malformed> {
    let mut reader = Reader::new(body);
    let epoch = reader.u64()?;
    let mut deletions = Vec::new();
    while !reader.rest().is_empty() {
        let [key, ts] = reader.u64s()?;
        deletions.push((Key(key), Timestamp::of_bits(ts)));
    }
    if deletions.len() > TOGETHER {
        return Err(Malformed { what: "more deletions than are looked at together" });
    }
    Ok((epoch, deletions))
}

/// The answer to either: a bit for each deletion whose record is at rest, or forgotten.
struct AtRest(u64);

impl Message for AtRest {
    const KIND: u16 = 28;

    fn emit(&self, to: &mut Writer<'_>) {
        to.u64(self.0);
    }
}

/// An engine as one that forgets.
pub(super) struct Forgetter<F: Fabric> {
    member: Rc<Member<F>>,
}

impl<F: Fabric> Forgetter<F> {
    pub(super) fn new(member: &Rc<Member<F>>) -> Self {
        Self { member: member.clone() }
    }

    /// A deletion that this node has coordinated has ended: its record may be forgotten later.
    pub(super) fn note(self, deletion: Deletion) {
        if let Some(deletions) = self.member.node().deletions().note(deletion) {
            let fabric = self.member.fabric().clone();
            fabric.spawn(self.forget(deletions));
        }
    }

    /// Forgets those of `deletions` that nobody needs; the others wait for the next time.
    async fn forget(self, deletions: Vec<Deletion>) {
        let node = self.member.node();
        let open = node.begin();
        let left = self.forget_or_keep(deletions).await;
        node.deletions().keep(left);
        drop(open);
    }

    async fn forget_or_keep(&self, mut deletions: Vec<Deletion>) -> Vec<Deletion> {
        let (node, epoch) = (self.member.node(), self.member.views().epoch());
        // What has been written again since has another deletion, or none.
        deletions.retain(|(key, ts)| node.store().look(*key, |record| record.value_ts == *ts));
        let Some(at_rest) = self.ask::<MAY_FORGET>(epoch, &deletions).await else {
            return deletions;
        };
        let at_rest = at_rest & self.at_rest(epoch, &deletions);
        let place = |index: usize| at_rest >> index & 1 == 1;
        let mut index = 0..;
        let (agreed, mut left): (Vec<_>, Vec<_>) =
            deletions.into_iter().partition(|_| index.next().is_some_and(place));
        match self.ask::<FORGET>(epoch, &agreed).await {
            Some(_) => _ = self.forget_here(epoch, &agreed),
            // Who has forgotten already agrees again.
            None => left.extend(agreed),
        }
        left
    }

    /// Asks every other server that holds the records. `None`: not all of them are there.
    async fn ask<const KIND: u16>(&self, epoch: u64, deletions: &[Deletion]) -> Option<u64> {
        let (fabric, views) = (self.member.fabric(), self.member.views());
        let servers = fabric.view().nodes_of(Role::Server).count();
        let others = views.all_followers();
        if deletions.is_empty() || others.len() + 1 < servers {
            return None;
        }
        let mut agreed = u64::MAX;
        for to in views.peers(&others) {
            agreed &= self.ask_one::<KIND>(to, epoch, deletions).await?;
        }
        Some(agreed)
    }

    async fn ask_one<const KIND: u16>(
        &self,
        to: EngineId,
        epoch: u64,
        deletions: &[Deletion],
    ) -> Option<u64> {
        let request = Request::<KIND> { epoch, deletions };
        let answer = self.member.fabric().call(to, &request, ANSWER).await.ok()?;
        Reader::new(answer.as_ref()).u64().ok()
    }

    /// Answers MAY_FORGET.
    pub(super) fn asked(&self, body: &[u8], from: ReplyTo) -> Result<(), Malformed> {
        let (epoch, deletions) = parse(body)?;
        let at_rest = self.at_rest(epoch, &deletions);
        self.member.fabric().reply(from, &AtRest(at_rest));
        Ok(())
    }

    /// Obeys FORGET. Records that have been written since stay.
    pub(super) fn told(&self, body: &[u8], from: ReplyTo) -> Result<(), Malformed> {
        let (epoch, deletions) = parse(body)?;
        match self.forget_here(epoch, &deletions) {
            true => self.member.fabric().reply(from, &AtRest(u64::MAX)),
            false => {
                self.member.fabric().refuse(from, nicol_core::fabric::FabricError::Unreachable)
            }
        }
        Ok(())
    }

    /// Whether this node serves in the view of `epoch`, which all its engines know.
    fn is_in(&self, epoch: u64) -> bool {
        let node = self.member.node();
        node.is_ready() && node.knows_epoch(epoch) && self.member.views().epoch() == epoch
    }

    fn at_rest(&self, epoch: u64, deletions: &[Deletion]) -> u64 {
        let node = self.member.node();
        if !self.is_in(epoch) {
            return 0;
        }
        let tracked = node.config().tracks_durability();
        let at_rest = |&(key, ts): &Deletion| {
            !node.volatile_entries().has(key)
                && node.store().look(key, |record| record.is_deleted_at(ts, tracked))
        };
        let bits = deletions.iter().map(at_rest).enumerate();
        bits.fold(0, |bits, (place, at_rest)| bits | u64::from(at_rest) << place)
    }

    /// Forgets records; false if there is another view.
    fn forget_here(&self, epoch: u64, deletions: &[Deletion]) -> bool {
        let node = self.member.node();
        let tracked = node.config().tracks_durability();
        let is_in = self.is_in(epoch);
        for &(key, ts) in deletions.iter().filter(|_| is_in) {
            node.store().forget(key, ts, |record| record.is_deleted_at(ts, tracked));
        }
        is_in
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_survives_the_wire_and_a_torn_or_long_one_is_refused() {
        let deletions: Vec<Deletion> =
            (1..=65).map(|key| (Key(key), Timestamp::of_bits(7 * key))).collect();
        let emitted = |deletions: &[Deletion]| {
            let mut body = Vec::new();
            let request = Request::<FORGET> { epoch: 3, deletions };
            request.emit(&mut Writer::new(&mut body));
            body
        };
        let body = emitted(&deletions[..2]);
        assert_eq!(parse(&body), Ok((3, deletions[..2].to_vec())));
        assert!(parse(&body[..body.len() - 8]).is_err(), "a key without a timestamp");
        assert!(parse(&emitted(&deletions)).is_err());
    }
}
