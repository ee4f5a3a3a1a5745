//! The RDMA systems broken on purpose, for the checkers' negative tests: an owner that stands
//! before a shard's true one and spoils what it does. The steps know nothing of it.
//!
//! What the steps do past an owner's CPU it could not spoil. So a system whose owner is broken
//! locks, validates and commits by RPC, whatever it would choose (`broken/choices.rs`).

pub(super) mod choices;

use std::rc::Rc;
use std::sync::Arc;

use nicol_core::fabric::Fabric;
use nicol_core::ids::{Key, TxnId, Version};
use nicol_core::txn::{Abort, RangeVersion};
use nicol_core::units::Nanos;

use super::node::Node;
use super::owner::{OwnShard, Owner};
use crate::Sabotage;
use crate::messages::{Found, ReadOf};
use crate::survivor::Survivor;

/// How long records that should be locked are left unprotected.
const GAP: Nanos = Nanos::from_micros(3);

/// The owner of `node`'s own shard; one that breaks a step stands before it where that is asked
/// for.
pub(super) fn owner<F: Fabric>(fabric: &F, node: &Arc<Node>) -> Rc<dyn Owner> {
    let own = OwnShard::new(fabric.clone(), node.clone());
    match node.config().sabotage {
        Sabotage::None => Rc::new(own),
        sabotage => {
            let (fabric, node, own) = (fabric.clone(), node.clone(), Rc::new(own));
            Rc::new(BrokenOwner { fabric, node, own, sabotage })
        }
    }
}

/// An owner that breaks one step.
struct BrokenOwner<F: Fabric> {
    fabric: F,
    node: Arc<Node>,
    own: Rc<OwnShard<F>>,
    sabotage: Sabotage,
}

impl<F: Fabric> BrokenOwner<F> {
    /// Runs `task` after [`GAP`]; until then this node is not settled.
    fn later(&self, task: impl Future<Output = ()> + 'static) {
        let (fabric, node) = (self.fabric.clone(), self.node.clone());
        node.opened();
        self.fabric.spawn(async move {
            fabric.sleep_until(fabric.now() + GAP).await;
            task.await;
            node.closed();
        });
    }

    /// Installs a write, later, over whatever has happened meanwhile.
    fn install_later(&self, key: Key, txn: TxnId, version: Version, value: Option<&[u8]>) {
        let (fabric, node, own) = (self.fabric.clone(), self.node.clone(), self.own.clone());
        let value = value.map(<[u8]>::to_vec);
        self.later(async move {
            loop {
                if let Ok(granted) = node.primary().lock(key, txn) {
                    let version = version.max(granted.version.next());
                    return own.install(key, txn, version, value.as_deref());
                }
                fabric.sleep_until(fabric.now() + GAP).await;
            }
        });
    }
}

impl<F: Fabric> Owner for BrokenOwner<F> {
    fn lock(&self, key: Key, txn: TxnId) -> Result<(), Abort> {
        match self.sabotage {
            Sabotage::NoLocks => Ok(()),
            Sabotage::EarlyUnlock => {
                self.own.lock(key, txn)?;
                let own = self.own.clone();
                self.later(async move { own.unlock(key, txn) });
                Ok(())
            }
            Sabotage::StealsLocks => {
                let holder = self.node.primary().transaction_of(key);
                let left = |holder: &TxnId| {
                    holder.engine().is_some_and(|engine| self.node.lost().contain(engine.node))
                };
                if let Some(holder) = holder.filter(left) {
                    self.own.unlock(key, holder);
                }
                self.own.lock(key, txn)
            }
            _ => self.own.lock(key, txn),
        }
    }

    fn unlock(&self, key: Key, txn: TxnId) {
        self.own.unlock(key, txn);
    }

    fn check_locked(&self, txn: TxnId, read: ReadOf) -> Result<(), Abort> {
        match self.sabotage {
            Sabotage::NoLocks => Ok(()),
            _ => self.own.check_locked(txn, read),
        }
    }

    fn read(&self, key: Key, mine: bool, values: &mut Vec<u8>) -> Result<Found, Abort> {
        self.own.read(key, mine, values)
    }

    fn check(&self, read: ReadOf) -> Result<(), Abort> {
        match self.sabotage {
            Sabotage::NoValidate => Ok(()),
            Sabotage::ValidateIgnoresLocks => self.own.validate(read, false),
            _ => self.own.check(read),
        }
    }

    fn check_range(&self, version: RangeVersion, txn: TxnId) -> Result<(), Abort> {
        match self.sabotage {
            Sabotage::NoValidate | Sabotage::IgnoresRangeVersions => Ok(()),
            _ => self.own.check_range(version, txn),
        }
    }

    fn reserve(&self, key: Key, txn: TxnId, len: usize) -> Result<(), Abort> {
        match self.sabotage {
            // A reservation belongs to a lock, and there may be none.
            Sabotage::NoLocks | Sabotage::EarlyUnlock => Ok(()),
            _ => self.own.reserve(key, txn, len),
        }
    }

    fn install(&self, key: Key, txn: TxnId, version: Version, value: Option<&[u8]>) {
        match self.sabotage {
            Sabotage::NoLocks | Sabotage::EarlyUnlock | Sabotage::UnlockFirst => {
                self.own.unlock(key, txn);
                self.install_later(key, txn, version, value);
            }
            Sabotage::AbortInstalls => match self.node.primary().lock(key, txn) {
                // What was locked may have changed since it was read.
                Ok(granted) => {
                    let version = version.max(granted.version.next());
                    self.own.install(key, txn, version, value);
                }
                Err(_) => self.install_later(key, txn, version, value),
            },
            _ => self.own.install(key, txn, version, value),
        }
    }
}
