//! Xenic broken on purpose, for the checkers' negative tests: a service that stands before a NIC's
//! own and spoils some of its messages. The steps themselves know nothing of it.

pub(super) mod choices;
mod recovery;

use std::rc::Rc;

use nicol_core::fabric::{Delivery, Fabric, ReplyTo, Service};
use nicol_core::txn::{Abort, Outcome};
use nicol_core::units::Nanos;
use nicol_core::wire::{Malformed, Reader, Writer};

use super::config::XenicConfig;
use super::coordinator::NicCoordinator;
use super::messages::{TXN_LOCAL, TXN_REQUEST};
use super::nic::Nic;
use super::open_txn::InHand;
use crate::Sabotage;
use crate::messages::{COMMIT, EXECUTE, Keys, VALIDATE, ValidateReply, emit_began};

/// How long records that should be locked are left unprotected.
const GAP: Nanos = Nanos::from_micros(3);

/// What a NIC engine answers; a service that breaks a step stands before `nic` where `config` asks
/// for that.
pub(super) fn service<F: Fabric>(fabric: &F, nic: Nic<F>, config: &XenicConfig) -> Rc<dyn Service> {
    match config.sabotage {
        Sabotage::None => Rc::new(nic),
        sabotage => Rc::new(Broken { fabric: fabric.clone(), nic, sabotage }),
    }
}

/// A NIC engine that breaks one step.
struct Broken<F: Fabric> {
    fabric: F,
    nic: Nic<F>,
    sabotage: Sabotage,
}

impl<F: Fabric> Broken<F> {
    /// Delivers a request with another body.
    fn deliver_instead(&self, delivery: Delivery<'_>, body: &[u8]) -> Result<(), Malformed> {
        self.nic.deliver(Delivery { body, ..delivery })
    }

    fn spoil(&self, delivery: Delivery<'_>, reply_to: ReplyTo) -> Result<(), Malformed> {
        let (server, fabric) = (self.nic.server.clone(), self.fabric.clone());
        match (self.sabotage, delivery.kind) {
            (Sabotage::NoValidate, VALIDATE) => {
                self.fabric.reply(reply_to, &ValidateReply(Ok(())));
            }
            (Sabotage::ValidateIgnoresLocks, VALIDATE) => {
                let reads = server.reads(delivery.body)?.0.keep(&self.fabric);
                self.fabric.spawn(async move {
                    let mut found = server.own().lookups().batch();
                    let read = server.own().lookups().read_all(reads.keys(), &mut found).await;
                    let mut pairs = reads.iter().zip(found.iter());
                    let stale = pairs.find(|(read, now)| !now.is_as_read(read));
                    let verdict =
                        stale.map_or(Ok(()), |(read, _)| Err(Abort::Stale { key: read.key }));
                    fabric
                        .reply(reply_to, &ValidateReply(read.map_err(Abort::Fabric).and(verdict)));
                });
            }
            (Sabotage::NoLocks, EXECUTE) => {
                let body = without_write_set(delivery.body)?;
                self.deliver_instead(delivery, &body)?;
            }
            (Sabotage::EarlyUnlock, EXECUTE) => {
                let keys = server.keys(delivery.body)?.0;
                let (kept, served) = (keys.keep(&self.fabric), keys.keep(&self.fabric));
                self.fabric.spawn(async move {
                    server.clone().execute(served, reply_to).await;
                    server.unlock_all(&kept);
                });
            }
            (Sabotage::UnlockFirst, COMMIT) => {
                let writes = server.writes(delivery.body)?.0.keep(&self.fabric);
                self.fabric.spawn(async move {
                    server.unlock_written(&writes);
                    fabric.sleep_until(fabric.now() + GAP).await;
                    server.commit(writes, reply_to).await;
                });
            }
            (Sabotage::StealsLocks, EXECUTE) => {
                server.node().steal(server.keys(delivery.body)?.0.written());
                self.nic.deliver(delivery)?;
            }
            (Sabotage::IgnoresRangeVersions, TXN_LOCAL) => {
                let body = without_range_versions(delivery.body)?;
                self.deliver_instead(delivery, &body)?;
            }
            (Sabotage::AbortInstalls, TXN_REQUEST) => {
                let coordinator = self.nic.coordinator.clone();
                let open = coordinator.parse_request(delivery.body, reply_to)?;
                self.fabric.spawn(install_whatever(coordinator, InHand::new(open)));
            }
            _ => self.spoil_recovery(delivery, reply_to)?,
        }
        Ok(())
    }
}

/// Installs the writes of a transaction even if it is aborted because something has changed.
async fn install_whatever<F: Fabric>(coordinator: Rc<NicCoordinator<F>>, mut open: InHand<F>) {
    let ended = coordinator.commit_transaction(&mut open).await;
    if let Err(abort @ (Abort::Stale { .. } | Abort::ValidateLocked { .. })) = ended {
        coordinator.steps().report(&mut open, Outcome::Aborted(abort));
        open.note_shards_updated();
        coordinator.steps().install(&mut open).await;
    }
    coordinator.end(open, ended).await;
}

/// The body of an EXECUTE that locks nothing.
fn without_write_set(body: &[u8]) -> Result<Vec<u8>, Malformed> {
    let (keys, mut changed) = (Keys::parse(body)?, Vec::new());
    let mut to = Writer::new(&mut changed);
    to.u64(keys.txn.0);
    emit_began(keys.iter().count(), keys.began, &mut to);
    for access in keys.iter() {
        to.u64(access.key.0);
        to.u8(0);
    }
    Ok(changed)
}

/// The body of a TXN_LOCAL whose host has noted no range versions.
fn without_range_versions(body: &[u8]) -> Result<Vec<u8>, Malformed> {
    let (mut from, mut changed) = (Reader::new(body), Vec::new());
    let mut to = Writer::new(&mut changed);
    to.u64(from.u64()?);
    to.u8(from.u8()?);
    for _ in 0..from.u16()? {
        from.u32()?;
        from.u64()?;
    }
    to.u16(0);
    to.bytes(from.rest());
    Ok(changed)
}

impl<F: Fabric> Service for Broken<F> {
    fn deliver(&self, delivery: Delivery<'_>) -> Result<(), Malformed> {
        match delivery.reply_to {
            Some(reply_to) => self.spoil(delivery, reply_to),
            None => self.nic.deliver(delivery),
        }
    }
}
