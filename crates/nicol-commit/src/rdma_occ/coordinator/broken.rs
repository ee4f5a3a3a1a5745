//! What a coordinator that is broken on purpose does instead of ABORT, for the checkers' negative
//! tests. The other ways to break a system are its owners' (`rdma_occ::broken`).

use std::rc::Rc;

use nicol_core::fabric::Fabric;
use nicol_core::txn::Txn;

use super::Steps;
use super::finish::Decision;
use super::open_txn::{Held, InHand, OpenTxn};

/// Installs the writes of an aborted transaction wherever it holds their locks, even if what it has
/// read has changed.
pub(super) fn install_aborted<F: Fabric>(steps: &Rc<Steps<F>>, txn: &Txn, open: &mut InHand<F>) {
    if let Some(mut open) = steps.txns.close_idle(open.hand_over()) {
        open.txn.copy_from(txn);
        steps.fabric.spawn(install(steps.clone(), open));
    }
}

async fn install<F: Fabric>(steps: Rc<Steps<F>>, mut open: Box<OpenTxn<F>>) {
    let txn = std::mem::take(&mut open.txn);
    for (index, access) in open.accesses.iter_mut().enumerate() {
        if access.here
            && access.held == Held::ByOwner
            && let Some(write) = txn.update(index)
        {
            access.held = Held::No;
            steps.owner.install(write.key, txn.id, write.version, write.value);
        }
    }
    steps.release_here(&txn, &mut open);
    steps.release_elsewhere(&txn, &mut open, Decision::Commit).await;
    open.txn = txn;
    steps.txns.close(open);
}
