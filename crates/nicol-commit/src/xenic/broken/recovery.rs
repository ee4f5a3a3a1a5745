//! Recovery broken on purpose: what NIC engines tell each other is spoilt where it arrives.

use nicol_core::fabric::{Delivery, Fabric, Message, ReplyTo, Service};
use nicol_core::units::Nanos;
use nicol_core::wire::{Malformed, Reader, Writer};

use super::Broken;
use crate::Sabotage;
use crate::decided::Fate;
use crate::messages::{Ack, LOG};
use crate::part::Part;
use crate::writes::{Writes, WritesHead};
use crate::xenic::messages::recovery::{Account, AccountReply, Told, parse_in_view, parse_told};
use crate::xenic::messages::{INSTALL, REPLICATE, REPORT, RESOLVE};

/// How long a LOG is acknowledged before it is there.
const UNLOGGED: Nanos = Nanos::from_micros(20);

impl<F: Fabric> Broken<F> {
    /// Spoils what recovery depends on, where that is asked for.
    pub(super) fn spoil_recovery(
        &self,
        delivery: Delivery<'_>,
        reply_to: ReplyTo,
    ) -> Result<(), Malformed> {
        match (self.sabotage, delivery.kind) {
            (Sabotage::DecidesUnreplicated, REPLICATE) | (Sabotage::SkipsInstall, INSTALL) => {
                self.fabric.reply(reply_to, &Ack);
                Ok(())
            }
            (Sabotage::TellsNoAborts, RESOLVE) => {
                let (epoch, mut account) = parse_told(delivery.body)?;
                account.decisions.retain(|decision| decision.fate != Fate::Aborted);
                let told = Told::<RESOLVE> { epoch, account: &account };
                self.deliver_instead(delivery, &body_of(&told))
            }
            (_, LOG) => self.spoil_log(delivery, reply_to),
            (_, REPORT) => self.spoil_report(delivery, reply_to),
            _ => self.nic.deliver(delivery),
        }
    }

    fn spoil_log(&self, delivery: Delivery<'_>, reply_to: ReplyTo) -> Result<(), Malformed> {
        let (server, fabric) = (self.nic.server.clone(), self.fabric.clone());
        let shard = Writes::parse(delivery.body)?.shard;
        match self.sabotage {
            Sabotage::AcksBeforeLogging => {
                let writes = Writes::parse(delivery.body)?.keep(&self.fabric);
                self.fabric.reply(reply_to, &Ack);
                self.fabric.spawn(async move {
                    fabric.sleep_until(fabric.now() + UNLOGGED).await;
                    // Who was told that it is there cannot be told that it is not.
                    let _refused = server.append_log(&writes).await;
                });
            }
            Sabotage::PrimaryLogsNothing if server.node().is_primary(shard) => {
                self.fabric.reply(reply_to, &Ack);
            }
            Sabotage::ListsOwnShard => {
                let body = that_lists_its_shard(delivery.body)?;
                self.deliver_instead(delivery, &body)?;
            }
            _ => self.nic.deliver(delivery)?,
        }
        Ok(())
    }

    fn spoil_report(&self, delivery: Delivery<'_>, reply_to: ReplyTo) -> Result<(), Malformed> {
        let epoch = parse_in_view(delivery.body)?;
        let forget: fn(Account) -> Account = match self.sabotage {
            Sabotage::ReportsNoLocks => |account| Account { locked: Vec::new(), ..account },
            Sabotage::ReportsNothing if delivery.from.node != self.fabric.here().node => {
                |_| Account::default()
            }
            _ => return self.nic.deliver(delivery),
        };
        let (server, fabric) = (self.nic.server.clone(), self.fabric.clone());
        self.fabric.spawn(async move {
            match server.account(epoch).await {
                Ok(account) => fabric.reply(reply_to, &AccountReply(&forget(account))),
                Err(error) => fabric.refuse(reply_to, error),
            }
        });
        Ok(())
    }
}

fn body_of(message: &impl Message) -> Vec<u8> {
    let mut body = Vec::new();
    message.emit(&mut Writer::new(&mut body));
    body
}

/// The body of a LOG of a transaction that updates one shard.
fn that_lists_its_shard(body: &[u8]) -> Result<Vec<u8>, Malformed> {
    let mut from = Reader::new(body);
    let WritesHead { txn, part, listed } = WritesHead::parse(&mut from)?;
    let Some((began, _)) = listed else { return Ok(body.to_vec()) };
    let (mut changed, most) = (Vec::new(), usize::from(part.keys));
    let mut to = Writer::new(&mut changed);
    to.u64(txn.0);
    Part { shards: 1, ..part }.emit(most, &mut to);
    to.u32(began.0);
    to.u16(part.shard.0);
    to.bytes(from.rest());
    Ok(changed)
}
