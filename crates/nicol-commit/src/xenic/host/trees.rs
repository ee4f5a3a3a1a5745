//! Keys of ordered tables that a NIC asks its host for, since no DMA reads a B+ tree.
//! [Xenic21 5.2, 5.6]

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use nicol_core::fabric::{Delivery, Fabric, Message, ReplyTo, Service, Work};
use nicol_core::ids::{Key, Side};
use nicol_core::txn::VersionRange;
use nicol_core::units::Nanos;
use nicol_core::wire::{Malformed, Reader, Writer};

use super::copies::{apply_copy, read_range};
use crate::messages::{Ack, emit_value, parse_count};
use crate::xenic::messages::copy::{CopyRange, parse_copy};
use crate::xenic::messages::recovery::{AccountReply, ReportRecords};
use crate::xenic::messages::{COPY, COPY_RANGE, REPORT_RECORDS, TREE_LOOKUP};
use crate::xenic::node::Node;

/// How often a host looks whether its workers have read what stands in the logs.
const DRAIN_WAIT: Nanos = Nanos::from_micros(5);

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
            let replica = self.node.led(Key(key));
            let version = replica.ordered.range_version(range);
            let found = replica.get(Key(key), value);
            to.u64(found.version.0);
            emit_value(found.present.then_some(value.as_slice()), to);
            // After the lookup: the mark is at least as high as what was found there.
            to.u32(replica.ordered.high_water(Key(key)).keys());
            if !found.present {
                to.u64(version.writes);
            }
        }
    }
}

/// [Xenic21 4.2.1] A survivor scans its log for what is undecided: here, what it has taken out of
/// it, once it has read all that stood there.
async fn report<F: Fabric>(fabric: F, node: Arc<Node>, asked: ReportRecords, reply_to: ReplyTo) {
    for core in 0..fabric.view().engines(fabric.here().node, Side::Nic) as u8 {
        let log = node.log(core);
        let reads = node.config().hooks().reads_before_reporting();
        let until = if reads { log.reserved() } else { 0 };
        while log.applied() < until {
            fabric.sleep_until(fabric.now() + DRAIN_WAIT).await;
        }
    }
    let account = match asked {
        ReportRecords::OfLost => node.account_of_lost(),
        ReportRecords::OfShard(shard) => node.undecided_of(shard),
    };
    fabric.reply(reply_to, &AccountReply(&account));
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
            let asked = ReportRecords::parse(delivery.body)?;
            self.fabric.spawn(report(self.fabric.clone(), self.node.clone(), asked, reply_to));
            return Ok(());
        }
        match (delivery.kind, delivery.reply_to, own) {
            (COPY_RANGE, Some(reply_to), true) => {
                let asked = CopyRange::parse(delivery.body)?;
                let Some(replica) = self.node.held(asked.shard) else {
                    return Err(Malformed { what: "a range of a shard that is not held here" });
                };
                self.fabric.reply(reply_to, &read_range(&self.fabric, replica, asked));
                return Ok(());
            }
            (COPY, Some(reply_to), true) => {
                let (shard, records) = parse_copy(delivery.body)?;
                apply_copy(&self.fabric, &self.node, shard, &records);
                self.fabric.reply(reply_to, &Ack);
                return Ok(());
            }
            _ => {}
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
