//! One engine of a node that runs the algorithms: its records, its views, its queues, and the
//! writes that it coordinates.

use std::rc::Rc;
use std::sync::Arc;

use nicol_core::fabric::Fabric;

use super::config::MinosConfig;
use super::model::Steps;
use super::node::Node;
use super::queues::Queues;
use super::records::Records;
use super::views::Views;
use super::write::Writes;

/// An engine that runs the algorithms: of a host, or offloaded of a SmartNIC.
pub(super) struct Member<F: Fabric> {
    fabric: F,
    node: Arc<Node>,
    records: Records<F>,
    views: Views<F>,
    queues: Rc<Queues<F>>,
    writes: Writes,
}

impl<F: Fabric> Member<F> {
    pub(super) fn new(fabric: &F, node: &Arc<Node>) -> Rc<Self> {
        Rc::new(Self {
            records: Records::new(fabric, node),
            views: Views::new(fabric, node),
            queues: Queues::new(fabric, node),
            writes: Writes::default(),
            fabric: fabric.clone(),
            node: node.clone(),
        })
    }

    pub(super) fn fabric(&self) -> &F {
        &self.fabric
    }

    pub(super) fn node(&self) -> &Arc<Node> {
        &self.node
    }

    pub(super) fn config(&self) -> &MinosConfig {
        self.node.config()
    }

    /// The steps of its persistency model.
    pub(super) fn steps(&self) -> &'static Steps {
        Steps::of(self.config().model)
    }

    pub(super) fn records(&self) -> &Records<F> {
        &self.records
    }

    pub(super) fn views(&self) -> &Views<F> {
        &self.views
    }

    pub(super) fn queues(&self) -> &Rc<Queues<F>> {
        &self.queues
    }

    /// The writes that it coordinates.
    pub(super) fn writes(&self) -> &Writes {
        &self.writes
    }
}
