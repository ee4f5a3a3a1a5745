//! Execution logic at the host: the coordinator waits while its transaction is there.

use nicol_core::fabric::{Delivery, Fabric, FabricError, ReplyTo};
use nicol_core::txn::Verdict;
use nicol_core::wire::Malformed;

use super::NicCoordinator;
use crate::xenic::messages::{HostReply, parse_txn_commit, parse_txn_execute, parse_txn_id};
use crate::xenic::open_txn::InHand;

impl<F: Fabric> NicCoordinator<F> {
    /// Hands what was read to the host, and waits for what it has decided. [Xenic21 4.2 step 3]
    pub(super) async fn execute_at_host(&self, open: &mut InHand<F>) -> Verdict {
        let executed = HostReply::Executed { txn: &open.txn, fetched: &open.fetched };
        self.fabric.reply(open.host, &executed);
        let (id, turn) = (open.txn.id, open.turn.wait());
        let previous = self.at_host.borrow_mut().insert(id, open.lend());
        assert!(previous.is_none(), "a transaction id is used once");
        turn.await;
        let returned = self.at_host.borrow_mut().remove(&id);
        let Some(returned) = returned else {
            panic!("a transaction at its host is taken back by its coordinator only");
        };
        open.take_back(returned);
        match open.decided.take() {
            Some(verdict) => verdict,
            None => panic!("a coordinator is woken when its host has decided"),
        }
    }

    /// The host has executed a transaction that waits for it, and sends what it has decided.
    pub(super) fn host_decided(
        &self,
        delivery: Delivery<'_>,
        host: ReplyTo,
        verdict: Verdict,
    ) -> Result<(), Malformed> {
        let id = parse_txn_id(delivery.body)?;
        let mut at_host = self.at_host.borrow_mut();
        let Some(open) = at_host.get_mut(&id).filter(|open| open.decided.is_none()) else {
            self.fabric.refuse(host, FabricError::Unreachable);
            return Ok(());
        };
        match verdict {
            Verdict::More => {
                parse_txn_execute(delivery.body, &mut open.txn)?;
                open.place_keys(&self.node);
            }
            Verdict::Commit => parse_txn_commit(delivery.body, &mut open.txn)?,
            Verdict::Refuse => {}
        }
        open.host = host;
        open.decided = Some(verdict);
        open.turn.notify();
        Ok(())
    }
}
