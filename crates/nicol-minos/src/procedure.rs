//! A procedure over one record, for a front that asks for transactions: what MINOS runs is a
//! client-read and a client-write.

use nicol_core::commit::{CommitNode, CommitProtocol};
use nicol_core::fabric::Fabric;
use nicol_core::history::{Persistency, Promise};
use nicol_core::ids::{Key, ShardId, Version};
use nicol_core::key_value::{Failure, KeyValue, KeyValueNode};
use nicol_core::txn::{Abort, Outcome, Procedures, Txn, Verdict};
use nicol_core::wire::Malformed;
use nicol_kit::{EachWrite, outcome_of};
use std::sync::Arc;

use super::broken::front::Front;
use super::log::Logged;
use super::node::Node;

/// Runs procedures that touch one record: reads it, executes, and writes it if that is asked for.
///
/// The read and the write are two operations. Whoever submits keeps two procedures that write off
/// one record at a time, as the front of a server does; then each is one operation to its clients.
#[derive(Clone)]
pub struct OneRecord<F: Fabric> {
    fabric: F,
    client: Front<F>,
    procedures: Procedures,
    /// In the scope model each write is a scope of its own, which ends behind its acknowledgement.
    scopes: bool,
}

impl<F: Fabric> CommitProtocol for OneRecord<F> {
    async fn run(&self, txn: &mut Txn) -> Outcome {
        let [entry] = txn.entries() else { return Outcome::Aborted(Abort::Refused) };
        let key = entry.key;
        let client = self.client.clone();
        let mut value = Vec::new();
        match client.get(key, &mut value).await {
            Ok(got) => {
                let version = got.version.unwrap_or(Version(0));
                txn.fetched(0, version, got.present.then_some(&value[..]));
            }
            Err(failure) => return outcome(failure, key),
        }
        if self.procedures.execute(txn) != Verdict::Commit {
            return Outcome::Aborted(Abort::Refused);
        }
        let Some(write) = txn.update(0) else { return Outcome::Committed };
        let done = match write.value {
            Some(value) => client.put(key, value).await,
            None => client.delete(key).await,
        };
        if let Err(failure) = done {
            return outcome(failure, key);
        }
        if self.scopes {
            self.fabric.spawn(async move {
                // It fails with the log device alone, which ends the server.
                let _ended = client.persist().await;
            });
        }
        Outcome::Committed
    }
}

/// The outcome of a procedure over `key` whose operation has failed. Every node holds every record,
/// so if one is not served, it is because of this node.
fn outcome(failure: Failure, key: Key) -> Outcome {
    outcome_of(failure, key, ShardId(0))
}

impl CommitNode for Node {
    type Coordinator<F: Fabric> = OneRecord<F>;

    const SCANS: bool = false;
    const PROMISE: Promise = Promise::Linearizable;

    fn start<F: Fabric>(
        self: &Arc<Self>,
        fabric: &F,
        procedures: &Procedures,
    ) -> Option<OneRecord<F>> {
        let client = KeyValueNode::start(self, fabric)?;
        let scopes = self.config().model == Persistency::Scope;
        Some(OneRecord { fabric: fabric.clone(), client, procedures: procedures.clone(), scopes })
    }
}

/// Calls `each` with what `record`, of a node's log, says of a record; `None` removes it. Of each
/// key the newest is there, in whatever order they come.
///
/// # Errors
/// If it is none of MINOS.
pub fn logged_update(record: &[u8], each: EachWrite<'_>) -> Result<(), Malformed> {
    match Logged::parse(record)? {
        Logged::Update { key, ts, value } => each(key, ts.told(), value),
        Logged::Persist { .. } => {}
    }
    Ok(())
}
