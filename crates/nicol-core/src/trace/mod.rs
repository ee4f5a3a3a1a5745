//! What happened in a run, as plain values: rounds, tasks, protocol phases, messages, transfers,
//! faults. Both worlds record; the caller that asked for the trace writes its file.
//!
//! A [`Sink`] collects the events of one run. Each engine records through a [`Tracer`] of its own,
//! and so does whatever else has a track. Recording changes nothing that a simulated run computes:
//! it charges no time, draws no random bits and adds no events to the kernel.

mod sink;

use std::fmt;
use std::rc::Rc;

pub use sink::{Limits, Recorded, Sink, Tracer};

use crate::ids::{EngineId, Epoch, Incarnation, Key, NodeId, ReplyTo, Side, Version};
use crate::units::Nanos;

/// The recorder of an event. Events of one track are in the order of their times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Track {
    Engine(EngineId),
    /// The hardware and the wires of a node: resources, faults.
    Hardware(NodeId),
}

impl Track {
    /// The node that it belongs to.
    pub const fn node(self) -> NodeId {
        match self {
            Self::Engine(engine) => engine.node,
            Self::Hardware(node) => node,
        }
    }
}

/// Names one message on its way: the frame that carries it, and its place in that frame. A
/// duplicate of the frame carries the same ones; a retransmission is a message of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Flow {
    /// The frame's number in the run.
    pub frame: u64,
    /// The place in the frame, from 0.
    pub place: u16,
}

impl fmt::Display for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}.{}", self.frame, self.place)
    }
}

/// Names one task of one engine for the whole run.
pub type TaskNumber = u32;

/// Something that happened at an instant of its track.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Event {
    pub at: Nanos,
    pub what: What,
}

/// The form in which a message was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    OneWay,
    /// A request, or its repeat.
    Request,
    /// A reply, or its repeat.
    Reply,
}

/// The transfers of an engine besides messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransferKind {
    DmaRead,
    /// A DMA write, up to its persist if it is durable.
    DmaWrite,
    /// A verb or a chain, by its name.
    Verb(&'static str),
    Persist,
}

impl TransferKind {
    pub const fn name(self) -> &'static str {
        match self {
            Self::DmaRead => "DMA read",
            Self::DmaWrite => "DMA write",
            Self::Verb(name) => name,
            Self::Persist => "persist",
        }
    }
}

/// A step of a protocol on one record, as a program that follows the protocol step by step needs
/// it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The step, named as its tag names it.
    pub name: &'static str,
    pub key: Key,
    /// The timestamp of the write that takes the step; its writer is part of it.
    pub stamp: Version,
    /// The view in which it takes the step, where that matters; else 0.
    pub view: Epoch,
    /// The node that asked for the step; the own one if none did.
    pub peer: NodeId,
}

/// The event. A slice that begins on an engine ends before the one around it does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum What {
    /// The engine begins a poll round: a slice.
    Round,
    /// The engine polls a task: a slice.
    Poll(TaskNumber),
    /// The engine takes a message, of which it knows the kind: a slice.
    Deliver {
        /// The message; `None` if it came in a frame that this trace has not seen leave.
        flow: Option<Flow>,
        from: EngineId,
        /// Its kind, or its status if it is a reply.
        kind: u16,
        /// True if it is a reply.
        reply: bool,
    },
    /// The innermost slice of the engine ends.
    End,
    /// The engine appended a message to a frame, or to what it sends to itself.
    Sent {
        flow: Flow,
        /// When it began to.
        since: Nanos,
        to: EngineId,
        class: Class,
        name: &'static str,
        /// The request that it is, repeats or answers;
        /// [`RequestId::NONE`](crate::ids::RequestId::NONE) if it is none.
        request: ReplyTo,
        /// Bytes of its body.
        bytes: u32,
    },
    /// A key that the message or the verb before is about.
    About(Key),
    /// A task was spawned.
    TaskBegins {
        task: TaskNumber,
        /// The path of the function that it runs.
        name: &'static str,
    },
    /// A task has finished.
    TaskEnds(TaskNumber),
    /// A task enters a phase of its protocol.
    PhaseBegins {
        /// The task; `None` outside tasks, where a phase is a slice of the engine.
        task: Option<TaskNumber>,
        /// The step, named as its tag names it.
        name: &'static str,
    },
    /// A task leaves the phase that it entered last.
    PhaseEnds { task: Option<TaskNumber>, name: &'static str },
    /// A protocol takes a step on a record.
    Step {
        step: Step,
        /// The life of the engine's side.
        life: Incarnation,
        /// Its place among the steps of the whole run. In the simulator that is the order in which
        /// they have changed memory; on threads it is the order in which they were recorded.
        place: u64,
    },
    /// A transfer was asked for.
    TransferBegins {
        /// Names it among those that the engine has under way.
        id: u32,
        kind: TransferKind,
        /// Bytes that it moves.
        bytes: u64,
        /// The node to which a verb goes; none if it stays within the own.
        to: Option<NodeId>,
    },
    /// A transfer is complete, or has failed.
    TransferEnds {
        /// See [`What::TransferBegins`].
        id: u32,
        ok: bool,
    },
    /// The node's card is about to access memory for a verb or a chain. What engines access for
    /// chains, they ask for as transfers.
    Access {
        side: Side,
        /// Its action there.
        name: &'static str,
        /// Bytes of the access; a long read comes twice, each time with its whole length.
        bytes: u64,
    },
    /// A counter has a new value.
    Counter { name: &'static str, value: u64 },
    /// A fault struck a frame on the wire.
    FrameFault {
        /// The fault that struck it.
        fault: &'static str,
        /// The frame; `None` if this trace has not seen it leave.
        frame: Option<u64>,
        from: NodeId,
        to: NodeId,
    },
    /// A fault struck the node: a crash, a restart, a partition.
    Fault(&'static str),
}

/// A phase of a protocol, which ends when this is dropped. Holds nothing where no trace is taken.
#[derive(Default)]
#[must_use = "a phase ends when it is dropped: bind it to a name"]
pub struct Phase(Option<OpenPhase>);

struct OpenPhase {
    log: Rc<dyn PhaseLog>,
    task: Option<TaskNumber>,
    name: &'static str,
}

/// Where phases are recorded: an engine.
pub(crate) trait PhaseLog {
    fn phase_ends(&self, task: Option<TaskNumber>, name: &'static str);
}

impl Phase {
    /// A phase that `log` has recorded the beginning of.
    pub(crate) fn open(
        log: Rc<dyn PhaseLog>,
        task: Option<TaskNumber>,
        name: &'static str,
    ) -> Self {
        Self(Some(OpenPhase { log, task, name }))
    }
}

impl Drop for OpenPhase {
    fn drop(&mut self) {
        self.log.phase_ends(self.task, self.name);
    }
}

impl fmt::Debug for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Phase({})", self.0.as_ref().map_or("not traced", |open| open.name))
    }
}

/// The last part of a type's path, without its parameters: what a message or a task is called.
///
/// Of an `async` block it is the function around it, with the module that the function is in. A
/// method of a type with parameters, or of an `impl` in another module than its type, comes without
/// a module.
pub fn short_name(path: &'static str) -> &'static str {
    let mut rest = path;
    while let Some(outer) = rest.strip_suffix("::{{closure}}") {
        rest = outer;
    }
    let is_block = rest.len() < path.len();
    let (outer, name) = last_part(rest);
    let Some(outer) = outer.filter(|_| is_block) else { return name };
    let (_, module) = last_part(outer);
    // What ends in `>` has no plain name: the path goes on behind the parameters.
    if !module.is_empty() && outer.ends_with(module) {
        let begin = outer.len() - module.len();
        &path[begin..outer.len() + "::".len() + name.len()]
    } else {
        name
    }
}

/// Splits a path before its last part, which comes without its parameters.
fn last_part(path: &'static str) -> (Option<&'static str>, &'static str) {
    let mut depth = 0_usize;
    let mut end = path.len();
    for (at, letter) in path.char_indices().rev() {
        match letter {
            '>' => depth += 1,
            '<' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    end = at;
                }
            }
            ':' if depth == 0 => {
                let outer = path[..at].trim_end_matches(':');
                return (Some(outer), &path[at + 1..end.max(at + 1)]);
            }
            _ => {}
        }
    }
    (None, &path[..end])
}

#[cfg(test)]
mod tests {
    use super::short_name;

    #[test]
    fn names_are_the_last_parts_of_paths() {
        assert_eq!(short_name("nicol::xenic::messages::Log<'_>"), "Log");
        assert_eq!(short_name("nicol::xenic::server::serve_log::{{closure}}"), "server::serve_log");
        assert_eq!(short_name("a::b::run<c::F<G>>::{{closure}}::{{closure}}"), "b::run");
        assert_eq!(short_name("a::Nic<c::F>::serve::{{closure}}"), "serve");
        assert_eq!(short_name("a::Reply<'_, core::slice::Iter<u8>>"), "Reply");
        assert_eq!(short_name("u32"), "u32");
    }

    #[test]
    fn methods_of_impls_elsewhere_and_of_traits_are_called_by_their_own_name() {
        let elsewhere = "a::server::remote::<impl a::server::Nic<c::F>>::take_ship::{{closure}}";
        assert_eq!(short_name(elsewhere), "take_ship");
        assert_eq!(short_name("a::b::<impl a::Nic>::serve::{{closure}}"), "serve");
        assert_eq!(short_name("<a::Client<c::F> as b::Session>::run::{{closure}}"), "run");
    }
}
