//! The host of MINOS-O: what it does of a client-write before the SmartNIC takes over.
//! [MINOS24 V-B1, V-B3, figure 6]

use std::future::{Future, poll_fn};
use std::rc::Rc;
use std::task::Poll;

use nicol_core::fabric::{Fabric, FabricError, Timeout};
use nicol_core::ids::{EngineId, NodeId};

use super::{Coordinator, REJECT_RETRY};
use crate::pcie_messages::{ALL, HostInv};
use crate::write::Write;

impl<F: Fabric> Coordinator<F> {
    /// A client-write at its host.
    pub(super) async fn hosted_write(self, write: Rc<Write>) {
        let open = self.member.node().begin();
        let (fabric, records) = (self.member.fabric(), self.member.records());
        // [MINOS24 fig. 8 line 4] A client-write to key k: TS_WR.
        self.issue_timestamp(&write).await;
        // [MINOS24 fig. 8 line 5] Is it obsolete already?
        if let Some(newer) = records.obsolete(&write.inv()).await {
            // [MINOS24 fig. 8 line 6, step a] handleObsolete.
            self.handle_obsolete(&write, newer).await;
            // [MINOS24 fig. 8 line 7]
            self.return_to_client(&write);
            return self.end(&write, open);
        }
        // [MINOS24 fig. 8 line 8] Snatch RDLock.
        records.snatch_rd_lock(&write.inv()).await;
        // [MINOS24 V-B1] The INVs to the SmartNIC, and an ACK for each of them.
        let nic = fabric.view().nic_for(fabric.here(), write.number);
        match self.hand_over(&write, nic).await {
            Ok(()) => self.return_to_client(&write),
            Err(_) => write.fail(),
        }
        self.end(&write, open);
    }

    /// Gives a write to the SmartNIC, and waits until it has returned.
    ///
    /// Errors: the SmartNIC is gone.
    async fn hand_over(&self, write: &Write, nic: EngineId) -> Result<(), FabricError> {
        let _phase = self.member.fabric().phase("V-B1: at the SmartNIC");
        let followers = self.member.views().followers(write.key);
        let all = [NodeId(ALL)];
        let single = self.member.config().batching || followers.is_empty();
        let to = if single { &all[..] } else { &followers[..] };
        let invs = to.iter().map(|to| HostInv {
            key: write.key,
            ts: write.ts(),
            scope: write.scope,
            to: to.0,
            of: if single { 1 } else { followers.len() as u16 },
            value: write.value.as_deref(),
        });
        // Side by side: what is taken may only be answered after what is rejected has been taken
        // too.
        let mut left: Vec<_> = invs.map(|inv| Box::pin(self.hand_over_one(nic, inv))).collect();
        let mut result = Ok(());
        poll_fn(|context| {
            left.retain_mut(|one| match one.as_mut().poll(context) {
                Poll::Ready(taken) => {
                    result = result.and(taken);
                    false
                }
                Poll::Pending => true,
            });
            if left.is_empty() { Poll::Ready(result) } else { Poll::Pending }
        })
        .await
    }

    /// Sends an INV to the SmartNIC until that takes it: "a SmartNIC can reject a request from its
    /// local host". The write keeps its read lock meanwhile, which it may have snatched from an
    /// older one: only its own end makes the record readable again.
    async fn hand_over_one(&self, nic: EngineId, inv: HostInv<'_>) -> Result<(), FabricError> {
        let fabric = self.member.fabric();
        while let Err(error) = fabric.call(nic, &inv, Timeout::Never).await {
            if error != FabricError::NoResources {
                return Err(error);
            }
            fabric.sleep_until(fabric.now() + REJECT_RETRY).await;
        }
        Ok(())
    }
}
