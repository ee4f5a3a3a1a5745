//! An engine that is broken on purpose: what stands before the true server, and spoils some of the
//! messages that come.

use std::rc::Rc;

use nicol_core::fabric::{Delivery, Fabric, Message, Service};
use nicol_core::ids::{NodeId, Side};
use nicol_core::view::SideState;
use nicol_core::wire::{Malformed, Writer};

use super::Sabotage;
use crate::messages::{ACK, ACK_C, ACK_P, Ack, INV, Inv, Received, VAL, VAL_C, VAL_P, Val};
use crate::model::Memory;
use crate::send::tell_val;
use crate::server::Server;
use crate::timestamp::Timestamp;

/// Versions by which a replay with a timestamp of its own exceeds the write: more than are issued
/// meanwhile.
const VERSIONS_AHEAD: u64 = 1_000;

/// The service of an engine: `server`, unless a planted fault stands before it.
pub(crate) fn service<F: Fabric>(server: Server<F>) -> Rc<dyn Service> {
    match server.member().config().sabotage {
        Sabotage::None => Rc::new(server),
        sabotage => Rc::new(BrokenServer { server, sabotage }),
    }
}

struct BrokenServer<F: Fabric> {
    server: Server<F>,
    sabotage: Sabotage,
}

impl<F: Fabric> BrokenServer<F> {
    fn spoil(&self, delivery: Delivery<'_>) -> Result<(), Malformed> {
        let Delivery { from, kind, body, .. } = delivery;
        match (self.sabotage, kind) {
            (Sabotage::ForgetsFollower, ACK | ACK_C | ACK_P) => {
                self.pretend_ack(Delivery { reply_to: None, ..delivery })?;
                self.server.deliver(delivery)
            }
            (Sabotage::ReleasesEarly, ACK | ACK_C) => {
                self.validate_one(delivery)?;
                self.server.deliver(delivery)
            }
            (Sabotage::AppliesObsolete, INV) => {
                self.apply_obsolete(&Inv::parse(body)?);
                self.server.deliver(delivery)
            }
            (Sabotage::DropsReplays, INV) if is_replay(from.node, Inv::parse(body)?.ts) => {
                self.take(delivery);
                Ok(())
            }
            (Sabotage::ReplaysAsNew, INV) => {
                let inv = Inv::parse(body)?;
                self.deliver_instead(delivery, &Inv { ts: self.as_new(from.node, inv.ts), ..inv })
            }
            (Sabotage::ReplaysAsNew, VAL | VAL_C | VAL_P) => {
                let Val { key, ts } = Val::parse(body)?;
                let ts = self.as_new(from.node, Timestamp::of_bits(ts)).bits();
                self.deliver_instead(delivery, &Val { key, ts })
            }
            _ => self.server.deliver(delivery),
        }
    }

    /// Takes a message and does nothing with it.
    fn take(&self, delivery: Delivery<'_>) {
        let fabric = self.server.member().fabric();
        delivery.reply_to.into_iter().for_each(|to| fabric.reply(to, &Received));
    }

    /// Delivers a message with another body.
    fn deliver_instead<M: Message>(
        &self,
        delivery: Delivery<'_>,
        message: &M,
    ) -> Result<(), Malformed> {
        let mut body = Vec::new();
        message.emit(&mut Writer::new(&mut body));
        self.server.deliver(Delivery { body: &body, ..delivery })
    }

    /// Delivers an ACK as one of the last follower, too.
    fn pretend_ack(&self, delivery: Delivery<'_>) -> Result<(), Malformed> {
        let member = self.server.member();
        if delivery.from.node == member.fabric().here().node {
            return Ok(());
        }
        let last = member.views().all_followers().last().copied();
        let forgotten = last.filter(|node| *node != delivery.from.node);
        let from = forgotten.map(|node| member.views().peers(&[node])[0]);
        from.map_or(Ok(()), |from| self.server.deliver(Delivery { from, ..delivery }))
    }

    /// Sends a follower its VAL as soon as it acknowledges.
    fn validate_one(&self, delivery: Delivery<'_>) -> Result<(), Malformed> {
        let member = self.server.member();
        let (fabric, fanout) = (member.fabric(), member.config().fanout());
        let write = member.writes().find(Ack::parse(delivery.body)?.write);
        if let Some(write) = write.filter(|_| delivery.from.node != fabric.here().node) {
            let val = Val { key: write.key.0, ts: write.ts().bits() };
            tell_val(fabric, &[delivery.from], Memory::Both, val, fanout);
        }
        Ok(())
    }

    /// Applies an update over a newer one.
    fn apply_obsolete(&self, inv: &Inv<'_>) {
        self.server.member().node().store().change(inv.key, |record| {
            if record.is_obsolete(inv.ts) {
                record.update(inv.ts, inv.value.map(Into::into));
            }
        });
    }

    /// The timestamp of a new write by `from`, if what has the timestamp `ts` is a replay by it.
    fn as_new(&self, from: NodeId, ts: Timestamp) -> Timestamp {
        if !is_replay(from, ts) {
            return ts;
        }
        let SideState { incarnation, .. } =
            self.server.member().fabric().view().side(from, Side::Host);
        Timestamp::new(ts.version() + VERSIONS_AHEAD, from, incarnation)
    }
}

/// Whether a node other than the coordinator sends the write of this timestamp.
fn is_replay(from: NodeId, ts: Timestamp) -> bool {
    ts.node() != from
}

impl<F: Fabric> Service for BrokenServer<F> {
    fn deliver(&self, delivery: Delivery<'_>) -> Result<(), Malformed> {
        self.spoil(delivery)
    }
}
