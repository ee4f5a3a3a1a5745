//! Where the time of cores goes, and what is sent, by the steps of the protocol: from a trace.

use std::collections::BTreeMap;

use nicol_core::trace::{Event, Recorded, TaskNumber, Track, What, short_name};
use nicol_core::units::Nanos;
use serde::Serialize;

/// The work of a side's cores in one step, by committed transaction.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StepCost {
    pub side: &'static str,
    /// A phase of the protocol, a task outside all phases, a message that is taken, or what is left
    /// of rounds.
    pub step: String,
    /// Nanoseconds of a core.
    pub ns_per_txn: f64,
    /// Messages that it sent to other nodes.
    pub messages_per_txn: f64,
    /// Bytes of their bodies.
    pub bytes_per_txn: f64,
    /// DMA requests, verbs and persists that it asked for.
    pub transfers_per_txn: f64,
    /// The bytes that these move.
    pub transferred_bytes_per_txn: f64,
}

/// The rest of a round: polling, frames, and the completions of DMA.
const ROUND: &str = "polling and frames";

#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    time: u64,
    messages: u64,
    bytes: u64,
    transfers: u64,
    transferred: u64,
}

/// The costs of what is `recorded`, in which so many transactions have committed; what took most
/// time comes first.
pub(crate) fn steps(recorded: &Recorded, transactions: u64) -> Vec<StepCost> {
    let mut sums = BTreeMap::<(&'static str, String), Sums>::new();
    for (track, events) in &recorded.tracks {
        let Track::Engine(engine) = track else { continue };
        let mut core = Core::new(&recorded.kinds);
        for event in events {
            let (step, time) = core.step_until(event.at);
            if let Some(step) = step {
                let sum = sums.entry((engine.side.name(), step)).or_default();
                sum.time += time.0;
                match event.what {
                    What::Sent { to, bytes, .. } if to.node != engine.node => {
                        sum.messages += 1;
                        sum.bytes += u64::from(bytes);
                    }
                    What::TransferBegins { bytes, .. } => {
                        sum.transfers += 1;
                        sum.transferred += bytes;
                    }
                    _ => {}
                }
            }
            core.take(event);
        }
    }
    let each = |sum: u64| sum as f64 / transactions.max(1) as f64;
    let cost = |((side, step), sum): ((&'static str, String), Sums)| StepCost {
        side,
        step,
        ns_per_txn: each(sum.time),
        messages_per_txn: each(sum.messages),
        bytes_per_txn: each(sum.bytes),
        transfers_per_txn: each(sum.transfers),
        transferred_bytes_per_txn: each(sum.transferred),
    };
    let mut costs: Vec<StepCost> = sums.into_iter().map(cost).collect();
    costs.sort_by(|one, other| other.ns_per_txn.total_cmp(&one.ns_per_txn));
    costs
}

/// A slice that is open on a core.
enum Open {
    Round,
    Poll(TaskNumber),
    Named(String),
}

/// A core, event by event.
struct Core<'r> {
    kinds: &'r BTreeMap<u16, &'static str>,
    open: Vec<Open>,
    /// The name of each task, and the phases that it is in.
    tasks: BTreeMap<TaskNumber, (&'static str, Vec<&'static str>)>,
    last: Nanos,
}

impl<'r> Core<'r> {
    fn new(kinds: &'r BTreeMap<u16, &'static str>) -> Self {
        Self { kinds, open: Vec::new(), tasks: BTreeMap::new(), last: Nanos::ZERO }
    }

    /// What the core has done since the event before, and for how long; `None` between rounds.
    fn step_until(&mut self, at: Nanos) -> (Option<String>, Nanos) {
        let time = at.since(std::mem::replace(&mut self.last, at));
        let step = self.open.last().map(|open| match open {
            Open::Round => ROUND.to_owned(),
            Open::Named(name) => name.clone(),
            Open::Poll(task) => match self.tasks.get(task) {
                Some((_, phases)) if !phases.is_empty() => phases[phases.len() - 1].to_owned(),
                Some((name, _)) if !name.is_empty() => format!("task {name}"),
                // It began before the trace.
                _ => "tasks from before".to_owned(),
            },
        });
        (step, time)
    }

    fn take(&mut self, event: &Event) {
        match event.what {
            What::Round => self.open.push(Open::Round),
            What::Poll(task) => self.open.push(Open::Poll(task)),
            What::Deliver { kind, reply, .. } => {
                let name = self.kinds.get(&kind).filter(|_| !reply);
                self.open.push(Open::Named(match (name, reply) {
                    (_, true) => "take replies".to_owned(),
                    (Some(name), false) => format!("take {name}"),
                    (None, false) => "take one-sided requests".to_owned(),
                }));
            }
            What::PhaseBegins { task: None, name } => self.open.push(Open::Named(name.to_owned())),
            What::End | What::PhaseEnds { task: None, .. } => drop(self.open.pop()),
            What::TaskBegins { task, name } => {
                self.tasks.insert(task, (short_name(name), Vec::new()));
            }
            What::TaskEnds(task) => drop(self.tasks.remove(&task)),
            What::PhaseBegins { task: Some(task), name } => {
                self.tasks.entry(task).or_insert(("", Vec::new())).1.push(name);
            }
            What::PhaseEnds { task: Some(task), .. } => {
                self.tasks.get_mut(&task).map(|(_, phases)| phases.pop());
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use nicol_core::ids::{EngineId, NodeId, ReplyTo, RequestId};
    use nicol_core::trace::{Class, Flow, TransferKind};

    use super::*;

    #[test]
    fn time_goes_to_the_innermost_phase_of_the_task_that_is_polled() {
        let here = EngineId::nic(NodeId(0), 0);
        let phase = |task, name| What::PhaseBegins { task, name };
        let sent = |to, bytes| What::Sent {
            flow: Flow { frame: 1, place: 0 },
            since: Nanos(0),
            to,
            class: Class::OneWay,
            name: "LOG",
            request: ReplyTo { engine: here, request: RequestId::NONE },
            bytes,
        };
        let events = [
            (10, What::Round),
            (12, What::Deliver { flow: None, from: here, kind: 3, reply: false }),
            (15, What::End),
            (15, What::TaskBegins { task: 7, name: "server::serve::{{closure}}" }),
            (15, What::Poll(7)),
            (16, phase(Some(7), "server: LOG")),
            (20, sent(EngineId::nic(NodeId(1), 0), 100)),
            (21, sent(EngineId::host(NodeId(0), 0), 50)),
            (
                21,
                What::TransferBegins { id: 1, kind: TransferKind::DmaWrite, bytes: 256, to: None },
            ),
            (22, What::PhaseEnds { task: Some(7), name: "server: LOG" }),
            (25, What::End),
            (26, What::End),
            // Idle until the next round.
            (90, What::Round),
            (91, What::End),
        ];
        let events = events.map(|(at, what)| Event { at: Nanos(at), what }).to_vec();
        let recorded = Recorded {
            tracks: [(Track::Engine(here), events)].into(),
            kinds: [(3, "LOG")].into(),
            full_at: None,
        };
        let found = steps(&recorded, 2);
        let find = |step: &str| {
            let cost = found.iter().find(|cost| cost.step == step).unwrap();
            (cost.side, cost.ns_per_txn, cost.messages_per_txn, cost.bytes_per_txn)
        };
        let moved = |cost: &StepCost| (cost.transfers_per_txn, cost.transferred_bytes_per_txn);
        let log = found.iter().find(|cost| cost.step == "server: LOG").unwrap();
        assert_eq!(moved(log), (0.5, 128.0));
        assert_eq!(find("server: LOG"), ("nic", 3.0, 0.5, 50.0));
        assert_eq!(find("take LOG"), ("nic", 1.5, 0.0, 0.0));
        assert_eq!(find("task server::serve"), ("nic", 2.0, 0.0, 0.0));
        assert_eq!(find(ROUND), ("nic", 2.0, 0.0, 0.0));
        assert_eq!(found.len(), 4, "{found:?}");
    }
}
