//! A procedure over one record, for a front that asks for transactions: a GET, and where the
//! procedure writes, the second half of a PUT.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use nicol_core::commit::{CommitNode, CommitProtocol};
use nicol_core::fabric::Fabric;
use nicol_core::history::Promise;
use nicol_core::ids::{Key, Version};
use nicol_core::key_value::Failure;
use nicol_core::txn::{Abort, Outcome, Procedures, Txn, Verdict};
use nicol_kit::outcome_of;

use super::client::Client;
use super::layout::Item;
use super::name::Name;
use super::node::Node;

/// Runs procedures that touch one record.
///
/// What is written depends on what was read: the CAS that installs it compares the pointer under
/// which that was read. A buffer that came back under the same pointer in between the CAS does not
/// notice, so the caller must not run two procedures that write one record at a time. The front of
/// a server sees to that.
#[derive(Clone)]
pub struct OneRecord<F: Fabric> {
    node: Arc<Node>,
    client: Client<F>,
    procedures: Procedures,
    /// Values read: as many as procedures run at a time.
    spare: Rc<RefCell<Vec<Vec<u8>>>>,
}

impl<F: Fabric> CommitProtocol for OneRecord<F> {
    async fn run(&self, txn: &mut Txn) -> Outcome {
        let [entry] = txn.entries() else { return Outcome::Aborted(Abort::Refused) };
        let (key, writes) = (entry.key, entry.write);
        let mut value = self.spare.borrow_mut().pop().unwrap_or_default();
        let done = match writes {
            true => self.update(txn, key, &mut value).await,
            false => self.read(txn, key, &mut value).await,
        };
        self.spare.borrow_mut().push(value);
        done.unwrap_or_else(|failure| {
            let shard = Name::of(&key.0.to_be_bytes()).shard(self.node.view());
            outcome_of(failure, key, shard)
        })
    }
}

impl<F: Fabric> OneRecord<F> {
    async fn read(&self, txn: &mut Txn, key: Key, value: &mut Vec<u8>) -> Result<Outcome, Failure> {
        let name = key.0.to_be_bytes();
        let present = self.client.get_item(&name, value).await.map_err(Failure::Aborted)?;
        txn.fetched(0, Version(0), present.then_some(value));
        Ok(match self.procedures.execute(txn) {
            Verdict::Commit => Outcome::Committed,
            Verdict::More | Verdict::Refuse => Outcome::Aborted(Abort::Refused),
        })
    }

    async fn update(
        &self,
        txn: &mut Txn,
        key: Key,
        value: &mut Vec<u8>,
    ) -> Result<Outcome, Failure> {
        let name = key.0.to_be_bytes();
        let found = self.client.find(&name, value).await.map_err(Failure::Aborted)?;
        txn.fetched(0, Version(0), found.is_live().then_some(value));
        if self.procedures.execute(txn) != Verdict::Commit {
            return Ok(Outcome::Aborted(Abort::Refused));
        }
        let Some(write) = txn.update(0) else { return Ok(Outcome::Committed) };
        if write.value.is_some() || found.is_live() {
            let item = Item { stamp: 0, key: &name, value: write.value };
            self.client.replace(&found, item).await?;
        }
        Ok(Outcome::Committed)
    }
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
        let client = self.start_engine(fabric)?;
        let (node, procedures, spare) = (self.clone(), procedures.clone(), Rc::default());
        Some(OneRecord { node, client, procedures, spare })
    }
}
