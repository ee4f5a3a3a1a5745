//! What a server's host engines do: tell clients what they may reach, recycle buffers, and let
//! replicas that have come back copy. No GET or PUT needs them.

use std::sync::Arc;

use nicol_core::fabric::{Delivery, Fabric, FabricError, ReplyTo, Service};
use nicol_core::ids::NodeId;
use nicol_core::wire::Malformed;
use nicol_kit::count;

use super::node::Node;
use super::replica::Replica;
use crate::messages::{Done, HELLO, REJOIN, Rejoin, Suspicion, UNUSED, parse_report};
use crate::recycling::scan_later;

/// A host engine of a server.
pub(super) struct Server<F> {
    fabric: F,
    node: Arc<Node>,
}

impl<F: Fabric> Server<F> {
    /// It answers once its node has blocks.
    pub(super) fn new(fabric: &F, node: &Arc<Node>) -> Self {
        Self { fabric: fabric.clone(), node: Arc::clone(node) }
    }

    /// REJOIN: answers with what the sender may copy, once no client can count an acknowledgement
    /// of its last life any more.
    fn rejoin(
        &self,
        replica: Arc<Replica>,
        from: NodeId,
        body: &[u8],
        to: ReplyTo,
    ) -> Result<(), Malformed> {
        let Rejoin(life) = Rejoin::parse(body)?;
        let (fabric, node) = (self.fabric.clone(), self.node.clone());
        self.fabric.spawn(async move {
            replica.fence(&fabric, from, life).await;
            fabric.reply(to, &replica.open(&fabric, node.id(), fabric.incarnation()));
        });
        Ok(())
    }

    /// UNUSED: posts what it reports. [PRISM21 3.2, 6.1]
    fn recycle(&self, replica: &Replica, body: &[u8]) -> Result<(), Malformed> {
        let (suspects, unused) = parse_report(body, self.fabric.incarnation())?;
        let posted = replica.pool.post(&self.fabric, &unused);
        (0..posted).for_each(|_| count(&self.node.recycled.posted));
        replica.pool.refill(&self.fabric);
        // One that does not count may be of a use under a tag that the buffer has had before.
        let unseen = if posted < unused.len() { Suspicion::Unseen } else { Suspicion::None };
        scan_later(&self.fabric, &self.node, suspects.max(unseen));
        Ok(())
    }
}

impl<F: Fabric> Service for Server<F> {
    fn deliver(&self, delivery: Delivery<'_>) -> Result<(), Malformed> {
        let to = delivery.reply_to.ok_or(Malformed { what: "a request" })?;
        let Some(replica) = self.node.serving() else {
            // Its blocks are not copied yet, or there are none.
            self.fabric.refuse(to, FabricError::NoResources);
            return Ok(());
        };
        match delivery.kind {
            HELLO => {
                let life = self.fabric.incarnation();
                self.fabric.reply(to, &replica.open(&self.fabric, self.node.id(), life));
                Ok(())
            }
            REJOIN => self.rejoin(replica, delivery.from.node, delivery.body, to),
            UNUSED => {
                self.recycle(&replica, delivery.body)?;
                self.fabric.reply(to, &Done);
                Ok(())
            }
            _ => Err(Malformed { what: "no such message" }),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicBool, Ordering};

    use nicol_core::engine::Start;
    use nicol_core::fabric::Message;
    use nicol_core::ids::{EngineId, Incarnation, TableId};
    use nicol_core::units::Nanos;
    use nicol_core::view::View;
    use nicol_core::wire::Writer;
    use nicol_sim::{Profile, RunEnd, SimCluster, SimConfig};

    use super::*;
    use crate::messages::{Report, Unused};
    use crate::recycling::Recycled;
    use crate::rs::config::{Blocks, RsConfig};
    use crate::rs::layout::Metadata;
    use crate::tag::Tag;

    /// A server that is told of a buffer of each life.
    struct Told {
        node: Arc<Node>,
        done: Arc<AtomicBool>,
    }

    impl Start for Told {
        fn start<F: Fabric>(&self, fabric: &F) {
            if fabric.here() != EngineId::host(NodeId(0), 0) {
                return;
            }
            let server = Server { fabric: fabric.clone(), node: self.node.clone() };
            let replica = self.node.serving().unwrap();
            let here = fabric.incarnation();
            replica.open(fabric, NodeId(0), here);
            let mut buffers = Vec::new();
            replica.pool.for_each_use(&mut |offset| buffers.push(offset));
            // Block 0 was longer once, so that the other one's buffer was where block 1's is now.
            let pointer = Metadata::new(Blocks::Variable).pointer(0);
            let unused = [Unused { offset: buffers[1], stamp: Tag::LOADED.0, pointer }];
            let told = |life| {
                let report = Report { life, suspects: Suspicion::None, unused: &unused };
                let mut body = Vec::new();
                report.emit(&mut Writer::new(&mut body));
                assert_eq!(server.recycle(&replica, &body), Ok(()));
                replica.pool.dangling()
            };
            assert_eq!(told(Incarnation(here.0 + 1)), 0, "of a life that had other buffers");
            assert_eq!(told(here), 1, "the test's report is a lie in this life");
            self.done.store(true, Ordering::Relaxed);
        }
    }

    /// A buffer that one life has replaced stands for another block in the next one, under the same
    /// tag if neither was written before.
    #[test]
    fn a_report_of_another_life_posts_nothing() {
        let view = View::new(1, 1, 1, 1).unwrap();
        let config = RsConfig { sizes: Blocks::Variable, ..RsConfig::paper(2, 64) };
        let mut replica = Replica::new(&config, 1);
        (0..2).for_each(|block| replica.load(block, Tag::LOADED, &[7; 8]));
        let node = Arc::new(Node {
            id: NodeId(0),
            view: view.clone(),
            config,
            table: TableId(0),
            replica: Mutex::new(Some(Arc::new(replica))),
            open: Arc::default(),
            recycled: Recycled::default(),
        });
        let done = Arc::new(AtomicBool::new(false));
        let profile = Arc::new(Profile::load("connectx5-40g").unwrap());
        let cluster = SimCluster::new(SimConfig::new(view, profile, 1));
        cluster.start(Arc::new(Told { node, done: done.clone() }));
        let is_done = |_| done.load(Ordering::Relaxed);
        assert_eq!(cluster.run_until(&mut { is_done }, Nanos::from_millis(1)), RunEnd::Done);
    }
}
