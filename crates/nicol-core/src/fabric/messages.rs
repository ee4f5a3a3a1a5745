//! Messages between engines: one-way messages, calls and replies.

use std::any::type_name;
use std::rc::Rc;

use super::{Completions, FabricError};
use crate::ids::{EngineId, Key, ReplyTo, RequestId};
use crate::trace::short_name;
use crate::units::Nanos;
use crate::wire::{Malformed, Writer};

/// How long a call waits for its reply over an unreliable route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timeout {
    /// Retransmit for this long, then give up with `TimedOut`.
    After(Nanos),
    /// Retransmit until the reply comes: for effects that must happen.
    Never,
}

/// How a message reaches several engines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fanout {
    /// The core deposits a copy for each of them.
    Loop,
    /// The card sends the copies of one deposit, where it can; else the core does. [MINOS24 V-B3]
    Broadcast,
}

/// A typed message: `emit` cannot fail, `parse` (on the receiving side) checks everything.
pub trait Message {
    /// The kind on the wire; unique within a system. Kinds from 0xff00 are the engine's own.
    const KIND: u16;

    fn emit(&self, to: &mut Writer<'_>);

    /// The type's name in traces: the last part of its path.
    fn name() -> &'static str {
        short_name(type_name::<Self>())
    }

    /// Calls `each` with the keys that the message is about, for traces only. A reply is about the
    /// keys of its request, and need not name them.
    fn keys(&self, each: &mut dyn FnMut(Key)) {
        let _names_none = each;
    }
}

/// A message as it reaches a service. The body is only valid during `deliver`.
#[derive(Clone, Copy, Debug)]
pub struct Delivery<'a> {
    /// The engine that sent it.
    pub from: EngineId,
    /// Where the reply goes; `None` for a one-way message.
    pub reply_to: Option<ReplyTo>,
    pub kind: u16,
    /// The message's body, unparsed.
    pub body: &'a [u8],
}

/// The handler that an engine runs for arriving messages.
pub trait Service {
    /// Handles one message: at once, or by spawning a task. A malformed body is returned as such:
    /// the engine counts it and answers a request with [`FabricError::Malformed`].
    fn deliver(&self, delivery: Delivery<'_>) -> Result<(), Malformed>;
}

/// Messages between engines.
///
/// Contract:
/// - **Between nodes** a message may be lost, duplicated, reordered and delayed; a corrupt one is
///   dropped by its checksum. [`Messages::call`] retransmits, and its effects happen at most once
///   at the receiver.
/// - **Within a node** (the PCIe queues, the queues between cores) messages arrive once and in
///   order.
/// - **Aggregation**: everything bound for one engine in one poll round leaves as one frame, which
///   is never held back to be filled.
pub trait Messages: Completions {
    /// Sets what handles arriving messages; the first call counts, later ones are refused (false).
    fn serve(&self, service: Rc<dyn Service>) -> bool;

    fn send<M: Message>(&self, to: EngineId, message: &M);

    /// Does what is sent to `to` arrive once, for as long as both ends live? Where it need not, a
    /// message that must arrive is a [`Messages::call`].
    fn is_reliable(&self, to: EngineId) -> bool;

    /// Sends a one-way message to each of `to`, which are engines of other nodes. It is prepared
    /// once, so that each further copy costs the core its deposit alone, or nothing where the card
    /// has a broadcast module. Copies are in no order with other messages. (Decision 0014)
    fn send_each<M: Message>(&self, to: &[EngineId], message: &M, fanout: Fanout);

    /// Sends a request and resolves to the reply's body.
    fn call<M: Message>(&self, to: EngineId, message: &M, timeout: Timeout) -> Self::Completion;

    /// Like [`Messages::call`]; before it is delivered, the receiver fences `timed_out`: if that
    /// request has not been delivered yet, it never will be.
    fn call_superseding<M: Message>(
        &self,
        to: EngineId,
        message: &M,
        timed_out: RequestId,
    ) -> Self::Completion;

    /// Opens a request to `to` that another engine sends in this one's name: the address travels
    /// in a message to that engine, which uses it with [`Messages::send_on_behalf_of`].
    ///
    /// Nothing is sent from here, and nothing times out, until [`Messages::retransmit`]. An
    /// expected request that will never be sent is given up by refusing it, as if by its receiver.
    /// Where none could be opened it is [`RequestId::NONE`], and the completion says why.
    fn open_delegated_call(&self, to: EngineId) -> (ReplyTo, Self::Completion);

    /// Sends `message` to `to` as the request that `asker` expects; the reply goes there.
    /// However often it is sent, by this engine or the asker, it takes effect at most once.
    fn send_on_behalf_of<M: Message>(&self, asker: ReplyTo, to: EngineId, message: &M);

    /// From now on also sends an expected request from here, like any other: again and again
    /// until the reply comes or `timeout` is over. `message` must be what the other engine sends.
    fn retransmit<M: Message>(&self, delegated: RequestId, message: &M, timeout: Timeout);

    /// From now on an expected request is given up, with `TimedOut`, if no reply comes for that
    /// long. Like calls, only over unreliable routes.
    fn give_up_after(&self, delegated: RequestId, timeout: Nanos);

    /// Answers a request, of whichever engine.
    fn reply<M: Message>(&self, to: ReplyTo, message: &M);

    /// Answers a request with an error.
    fn refuse(&self, to: ReplyTo, error: FabricError);
}
