//! What an engine answers: each message goes to the role that it is for.

use std::rc::Rc;

use nicol_core::fabric::{Delivery, Fabric, ReplyTo, Service};
use nicol_core::ids::Key;
use nicol_core::wire::Malformed;

use super::coordinator::Coordinator;
use super::follower::Follower;
use super::forget::Forgetter;
use super::member::Member;
use super::messages::{
    ACK, ACK_C, ACK_P, Ack, FORGET, INV, Inv, MAY_FORGET, PERSIST, Persist, REJECT, Received,
    Reject, SCOPE_VAL_P, SHIP, ScopeValP, VAL, VAL_C, VAL_P, Val,
};
use super::model::{Memory, Validation};
use super::pcie_messages::HOST_INV;
use super::received::Received as Update;
use super::recovery::Shipper;
use super::scope::ScopeEnd;
use super::timestamp::Timestamp;

/// An engine as a service.
pub(super) struct Server<F: Fabric> {
    member: Rc<Member<F>>,
}

impl<F: Fabric> Server<F> {
    pub(super) fn new(member: &Rc<Member<F>>) -> Self {
        Self { member: member.clone() }
    }

    pub(super) fn member(&self) -> &Rc<Member<F>> {
        &self.member
    }

    fn take(&self, delivery: &Delivery<'_>) -> Result<(), Malformed> {
        let Delivery { from, body, kind, .. } = *delivery;
        let (member, steps) = (&self.member, self.member.steps());
        let acknowledged = |memory| {
            let Ack { write, epoch } = Ack::parse(body)?;
            Coordinator::new(member).acknowledged(from.node, write, epoch, memory);
            Ok(())
        };
        let validated = |changes: &'static [Validation]| {
            let Val { key, ts } = Val::parse(body)?;
            let (key, ts) = (Key(key), Timestamp::of_bits(ts));
            member.fabric().spawn(Follower::new(member).validated(key, ts, changes));
            Ok(())
        };
        match kind {
            INV => {
                let inv = Inv::parse(body)?;
                let records = member.records();
                let value = inv.value.map(|bytes| records.take_value(inv.key, inv.ts, bytes));
                let update = Update::of(from, &inv, value, member.fabric().now());
                member.fabric().spawn(Follower::new(member).follow(update));
                Ok(())
            }
            // All of a kind have one form.
            ACK => acknowledged(Memory::Both),
            ACK_C => acknowledged(Memory::Volatile),
            ACK_P => acknowledged(Memory::Durable),
            VAL | VAL_C => validated(steps.on_val),
            VAL_P => validated(steps.on_val_p),
            PERSIST => {
                let persist = Persist::parse(body)?;
                member.fabric().spawn(ScopeEnd::new(member).follow(from, persist));
                Ok(())
            }
            SCOPE_VAL_P => {
                member.node().end_scope(ScopeValP::parse(body)?.scope);
                Ok(())
            }
            REJECT => {
                Coordinator::new(member).rejected(from.node, Reject::parse(body)?);
                Ok(())
            }
            _ => Err(Malformed { what: "no such message of MINOS" }),
        }
    }
}

impl<F: Fabric> Service for Server<F> {
    fn deliver(&self, delivery: Delivery<'_>) -> Result<(), Malformed> {
        match (delivery.kind, delivery.reply_to) {
            (HOST_INV, Some(host)) => {
                return Coordinator::new(&self.member).take_over(delivery.body, host);
            }
            (SHIP, Some(to)) => return Shipper::new(&self.member).ship_to(delivery.body, to),
            (MAY_FORGET, Some(to)) => {
                return Forgetter::new(&self.member).asked(delivery.body, to);
            }
            (FORGET, Some(to)) => return Forgetter::new(&self.member).told(delivery.body, to),
            (HOST_INV, None) => return Err(Malformed { what: "an INV of a host without a reply" }),
            _ => {}
        }
        self.take(&delivery)?;
        let received = |to: ReplyTo| self.member.fabric().reply(to, &Received);
        delivery.reply_to.into_iter().for_each(received);
        Ok(())
    }
}
