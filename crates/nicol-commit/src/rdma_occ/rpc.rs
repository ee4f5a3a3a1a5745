//! Requests to other nodes' host engines and the answers to theirs, as SENDs or as WRITEs.

use std::rc::Rc;
use std::sync::Arc;

use nicol_core::fabric::{Fabric, Message, ReplyTo, RequestId, Service, Timeout};
use nicol_core::ids::NodeId;

use super::message_log::{self, MessageLogs};
use super::node::Node;
use super::reach::Reach;

/// How one host engine asks and answers others.
pub(super) struct Rpc<F: Fabric> {
    fabric: F,
    node: Arc<Node>,
    reach: Rc<Reach<F>>,
    /// The message logs that this engine writes at other nodes, unless messages are SENDs.
    logs: Option<Rc<MessageLogs<F>>>,
}

impl<F: Fabric> Rpc<F> {
    pub(super) fn new(fabric: F, node: Arc<Node>, reach: Rc<Reach<F>>) -> Self {
        let logs = MessageLogs::new(&fabric, &node, &reach).map(Rc::new);
        Self { fabric, node, reach, logs }
    }

    /// Starts handing to `service` what `other` writes to this engine.
    pub(super) fn start(&self, service: &Rc<dyn Service>, other: NodeId) {
        if let Some(logs) = &self.logs {
            message_log::start(logs, &self.node, service, other);
        }
    }

    /// A request that may give up.
    pub(super) fn ask<M: Message>(&self, node: NodeId, message: &M) -> F::Completion {
        let timeout = Timeout::After(self.node.config().timeout);
        match &self.logs {
            None => self.fabric.call(self.reach.engine_of(node), message, timeout),
            Some(logs) => logs.write_request(node, message, timeout),
        }
    }

    /// A request that must take effect, after `unanswered`, which was asked before and may not.
    pub(super) fn demand<M: Message>(
        &self,
        node: NodeId,
        message: &M,
        unanswered: Option<RequestId>,
    ) -> F::Completion {
        let to = self.reach.engine_of(node);
        match (&self.logs, unanswered) {
            (None, Some(request)) => self.fabric.call_superseding(to, message, request),
            (None, None) => self.fabric.call(to, message, Timeout::Never),
            // A message log is read in order: what was asked before is done before.
            (Some(logs), _) => logs.write_request(node, message, Timeout::Never),
        }
    }

    pub(super) fn answer<M: Message>(&self, to: ReplyTo, message: &M) {
        match &self.logs {
            None => self.fabric.reply(to, message),
            Some(logs) => logs.write_answer(to, message),
        }
    }
}
