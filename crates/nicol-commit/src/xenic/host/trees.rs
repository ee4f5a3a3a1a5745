//! Keys of ordered tables that a NIC asks its host for, since no DMA reads a B+ tree.
//! [Xenic21 5.2, 5.6]

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use nicol_core::fabric::{Delivery, Fabric, Message, Service, Work};
use nicol_core::ids::Key;
use nicol_core::txn::VersionRange;
use nicol_core::wire::{Malformed, Reader, Writer};

use crate::messages::{emit_value, parse_count};
use crate::xenic::messages::recovery::AccountReply;
use crate::xenic::messages::{REPORT_RECORDS, TREE_LOOKUP};
use crate::xenic::node::Node;

/// The host's answer: version and value of each key, how far up its group ever had records, and of
/// an absent one the writes that its range has taken, in the order asked.
struct TreeReply<'a> {
    node: &'a Node,
    keys: Reader<'a>,
    scratch: &'a RefCell<Vec<u8>>,
}

impl Message for TreeReply<'_> {
    const KIND: u16 = 0;

    fn emit(&self, to: &mut Writer<'_>) {
        let mut keys = self.keys;
        let value = &mut *self.scratch.borrow_mut();
        while let Ok(key) = keys.u64() {
            value.clear();
            // Before the lookup: what is counted is found.
            let range = VersionRange::of(Key(key));
            let version = self.node.own().ordered.range_version(range);
            let found = self.node.own().get(Key(key), value);
            to.u64(found.version.0);
            emit_value(found.present.then_some(value.as_slice()), to);
            // After the lookup: the mark is at least as high as what was found there.
            to.u32(self.node.own().ordered.high_water(Key(key)).keys());
            if !found.present {
                to.u64(version.writes);
            }
        }
    }
}

/// What a host engine does for NICs.
pub(in crate::xenic) struct HostService<F: Fabric> {
    fabric: F,
    node: Arc<Node>,
    /// A value on its way from a tree into a reply.
    scratch: RefCell<Vec<u8>>,
}

impl<F: Fabric> HostService<F> {
    pub(in crate::xenic) fn new(fabric: F, node: Arc<Node>) -> Rc<Self> {
        Rc::new(Self { fabric, node, scratch: RefCell::default() })
    }
}

impl<F: Fabric> Service for HostService<F> {
    fn deliver(&self, delivery: Delivery<'_>) -> Result<(), Malformed> {
        let own = delivery.from.node == self.fabric.here().node;
        if let (REPORT_RECORDS, Some(reply_to), true) = (delivery.kind, delivery.reply_to, own) {
            // [Xenic21 4.2.1] A survivor scans its log for what a lost coordinator left.
            self.fabric.reply(reply_to, &AccountReply(&self.node.account_of_lost()));
            return Ok(());
        }
        let (TREE_LOOKUP, Some(reply_to), true) = (delivery.kind, delivery.reply_to, own) else {
            return Err(Malformed { what: "a message that no host takes" });
        };
        let mut from = Reader::new(delivery.body);
        let count = parse_count(&mut from)?;
        let keys = from;
        for _ in 0..count {
            if !Key(from.u64()?).is_ordered() {
                return Err(Malformed { what: "a key that a NIC reads itself" });
            }
            self.fabric.work(Work::TableLookup);
        }
        from.finish()?;
        self.fabric.reply(reply_to, &TreeReply { node: &self.node, keys, scratch: &self.scratch });
        Ok(())
    }
}
