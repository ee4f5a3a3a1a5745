//! What an engine that is broken on purpose does instead of a step.

use std::rc::Rc;

use nicol_core::fabric::Fabric;

use crate::log::Logged;
use crate::member::Member;
use crate::write::Write;

impl<F: Fabric> Member<F> {
    /// Writes a record of the log in a task of its own, for which nobody waits.
    pub(crate) fn write_record_later(self: &Rc<Self>, record: Vec<u8>) {
        let member = self.clone();
        self.fabric.spawn(async move {
            let open = member.node.begin();
            if let Ok(record) = Logged::parse(&record) {
                let _on_its_way = member.write_record(&record).await;
            }
            drop(open);
        });
    }

    /// Gives a write that is about to be replayed a timestamp of its own.
    pub(crate) async fn issue_again(&self, write: &Write) {
        self.issue_timestamp(write).await;
        let ts = write.ts();
        self.node.store().change(write.key, |record| {
            record.release_rd_lock(ts);
            record.update(ts, write.value.clone());
        });
    }
}
