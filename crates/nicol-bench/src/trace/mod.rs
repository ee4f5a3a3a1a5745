//! Traces of runs: written for ui.perfetto.dev, and read back for a timeline of messages.
//!
//! The file is in the JSON trace-event format, an event per line. Processes are nodes, threads are
//! engines; tasks, protocol phases and transfers are asynchronous slices, messages are flows
//! between the slices that send and take them, faults are instants.

mod lines;
mod steps;
mod timeline;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

use lines::{Args, Line};
use nicol_core::ids::{EngineId, Side};
use nicol_core::trace::{Event, Flow, Recorded, Track, What};
use nicol_core::units::Nanos;
pub use steps::StepCost;
pub(crate) use steps::steps;
pub use timeline::{MessageRow, timeline};

/// The first line of a file.
const FIRST: &str = "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[";
const LAST: &str = "]}";

/// The messages and one-sided operations about `key` in a trace, in the order of sending.
///
/// # Errors
/// If there is no memory for the file.
pub fn messages_about(recorded: &Recorded, key: u64) -> anyhow::Result<Vec<MessageRow>> {
    let mut file = Vec::new();
    write(&mut file, recorded)?;
    timeline(file.as_slice(), Some(key))
}

/// Writes a trace. Slices that were open when it ended are closed at its end.
pub fn write(out: &mut impl Write, recorded: &Recorded) -> io::Result<()> {
    writeln!(out, "{FIRST}")?;
    let mut file = File { out, first: true };
    let messages = Messages::of(recorded);
    for track in recorded.tracks.keys() {
        file.names(*track)?;
    }
    let mut taken = BTreeSet::new();
    for (&track, events) in &recorded.tracks {
        let mut writer =
            TrackWriter { track, open: 0, tasks: BTreeMap::new(), transfers: BTreeMap::new() };
        for (index, event) in events.iter().enumerate() {
            let keys = events[index + 1..].iter().map_while(|event| match event.what {
                What::About(key) => Some(key.0.to_string()),
                _ => None,
            });
            let mut lines = Vec::new();
            writer.event(event, &messages, &mut taken, keys, &mut lines);
            lines.iter().try_for_each(|line| file.line(line))?;
        }
        if let Some(last) = events.last() {
            let mut lines = Vec::new();
            writer.close(last.at, &mut lines);
            lines.iter().try_for_each(|line| file.line(line))?;
        }
    }
    writeln!(file.out, "\n{LAST}")
}

struct File<'a, W> {
    out: &'a mut W,
    first: bool,
}

impl<W: Write> File<'_, W> {
    fn line(&mut self, line: &Line) -> io::Result<()> {
        if !std::mem::take(&mut self.first) {
            writeln!(self.out, ",")?;
        }
        serde_json::to_writer(&mut self.out, line).map_err(io::Error::from)
    }

    /// The names of a track and of its node.
    fn names(&mut self, track: Track) -> io::Result<()> {
        let name = match track {
            Track::Engine(engine) => engine.to_string(),
            Track::Hardware(node) => format!("n{} hardware", node.0),
        };
        let named = |what: &str, name: String| Line {
            args: Some(Args { name: Some(name), ..Args::default() }),
            ..Line::new(what, "M", track, Nanos::ZERO)
        };
        self.line(&named("process_name", format!("node {}", track.node().0)))?;
        self.line(&named("thread_name", name))
    }
}

/// The number of a track's process: node 0 is process 1, since 0 means the idle process.
fn process(track: Track) -> u32 {
    u32::from(track.node().0) + 1
}

/// The number of a track's thread, unique in the file: the hardware, then host cores, then NIC
/// cores.
fn thread(track: Track) -> u32 {
    let place = match track {
        Track::Hardware(_) => 0,
        Track::Engine(EngineId { side: Side::Host, core, .. }) => 1 + u32::from(core),
        Track::Engine(EngineId { side: Side::Nic, core, .. }) => 501 + u32::from(core),
    };
    process(track) * 1_000 + place
}

/// Messages that were sent and taken.
struct Messages<'a> {
    sent: BTreeMap<Flow, &'static str>,
    taken: BTreeSet<Flow>,
    kinds: &'a BTreeMap<u16, &'static str>,
}

impl<'a> Messages<'a> {
    fn of(recorded: &'a Recorded) -> Self {
        let (mut sent, mut taken) = (BTreeMap::new(), BTreeSet::new());
        for event in recorded.tracks.values().flatten() {
            match event.what {
                What::Sent { flow, name, .. } => drop(sent.insert(flow, name)),
                What::Deliver { flow: Some(flow), .. } => drop(taken.insert(flow)),
                _ => {}
            }
        }
        Self { sent, taken, kinds: &recorded.kinds }
    }

    fn name(&self, flow: Option<Flow>, kind: u16, reply: bool) -> String {
        let sent = flow.and_then(|flow| self.sent.get(&flow));
        let known = || (!reply).then(|| self.kinds.get(&kind)).flatten();
        match sent.or_else(known) {
            Some(name) => (*name).to_owned(),
            None if reply => "reply".to_owned(),
            None => format!("kind {kind:#x}"),
        }
    }
}

/// The lines of one track.
struct TrackWriter {
    track: Track,
    /// Slices that are open.
    open: usize,
    /// The name of each task that is open, and of the phases that it is in.
    tasks: BTreeMap<u32, Vec<&'static str>>,
    transfers: BTreeMap<u32, &'static str>,
}

impl TrackWriter {
    fn at(&self, name: &str, phase: &'static str, at: Nanos) -> Line {
        Line::new(name, phase, self.track, at)
    }

    fn asynchronous(
        &self,
        name: &str,
        phase: &'static str,
        at: Nanos,
        cat: &'static str,
        id: String,
    ) -> Line {
        Line { cat: Some(cat.into()), id: Some(id), ..self.at(name, phase, at) }
    }

    fn begin(&mut self, name: &str, at: Nanos, lines: &mut Vec<Line>) {
        self.open += 1;
        lines.push(self.at(name, "B", at));
    }

    fn end(&mut self, at: Nanos, lines: &mut Vec<Line>) {
        // The end of a slice that began before the trace's window has no beginning here.
        if self.open > 0 {
            self.open -= 1;
            lines.push(self.at("", "E", at));
        }
    }

    fn event(
        &mut self,
        event: &Event,
        messages: &Messages<'_>,
        taken: &mut BTreeSet<Flow>,
        keys: impl Iterator<Item = String>,
        lines: &mut Vec<Line>,
    ) {
        let at = event.at;
        match event.what {
            What::Round => self.begin("round", at, lines),
            What::Poll(task) => {
                let name = self.tasks.get(&task).and_then(|names| names.first().copied());
                self.begin(name.unwrap_or("task"), at, lines);
            }
            What::PhaseBegins { task: None, name } => self.begin(name, at, lines),
            What::Deliver { flow, from, kind, reply } => {
                self.begin(&messages.name(flow, kind, reply), at, lines);
                self.deliver(at, flow, from, messages, taken, lines);
            }
            What::End | What::PhaseEnds { task: None, .. } => self.end(at, lines),
            What::Sent { .. } => self.sent(event, messages, keys, lines),
            What::About(_) => {}
            What::TaskBegins { .. }
            | What::TaskEnds(_)
            | What::PhaseBegins { .. }
            | What::PhaseEnds { .. } => self.task(event, lines),
            What::TransferBegins { .. } | What::TransferEnds { .. } => {
                self.transfer(event, keys, lines);
            }
            What::Counter { name, value } => {
                let of = match self.track {
                    Track::Engine(engine) => format!("{engine} {name}"),
                    Track::Hardware(_) => name.to_owned(),
                };
                let args = Some(Args { value: Some(value), ..Args::default() });
                lines.push(Line { args, ..self.at(&of, "C", at) });
            }
            What::Access { side, name, bytes } => {
                let args = Args { bytes: Some(bytes), ..Args::default() };
                let name = format!("card: {name} {}", side.name());
                let s = Some("t".to_owned());
                lines.push(Line { s, args: Some(args), ..self.at(&name, "i", at) });
            }
            What::FrameFault { fault, frame, from, to } => {
                let args = Args {
                    frame: frame.map(|frame| format!("{frame:x}")),
                    from: Some(format!("n{}", from.0)),
                    to: Some(format!("n{}", to.0)),
                    ..Args::default()
                };
                let name = format!("frame {fault}");
                lines.push(Line {
                    s: Some("t".to_owned()),
                    args: Some(args),
                    ..self.at(&name, "i", at)
                });
            }
            What::Step { .. } => self.step(event, lines),
            What::Fault(fault) => {
                lines.push(Line { s: Some("p".to_owned()), ..self.at(fault, "i", at) })
            }
        }
    }

    fn step(&self, event: &Event, lines: &mut Vec<Line>) {
        let What::Step { step, life, place } = event.what else { return };
        let args = Args {
            value: Some(place),
            keys: Some(vec![step.key.0.to_string()]),
            stamp: Some(format!("{:x}", step.stamp.0)),
            view: Some(step.view.0),
            life: Some(life.0),
            from: Some(format!("n{}", step.peer.0)),
            ..Args::default()
        };
        let instant = self.at(step.name, "i", event.at);
        lines.push(Line { s: Some("t".to_owned()), args: Some(args), ..instant });
    }

    /// The end of a message's flow. A duplicate of a message has none.
    fn deliver(
        &self,
        at: Nanos,
        flow: Option<Flow>,
        from: EngineId,
        messages: &Messages<'_>,
        taken: &mut BTreeSet<Flow>,
        lines: &mut Vec<Line>,
    ) {
        let Some(begun) = lines.last_mut() else { return };
        let first = flow.is_some_and(|flow| taken.insert(flow));
        begun.args = Some(Args {
            from: Some(from.to_string()),
            at: Some(self.name()),
            flow: flow.map(|flow| flow.to_string()),
            duplicate: (flow.is_some() && !first).then_some(true),
            ..Args::default()
        });
        if let Some(flow) = flow.filter(|_| first)
            && let Some(name) = messages.sent.get(&flow)
        {
            let ends = self.asynchronous(name, "f", at, "message", flow.to_string());
            lines.push(Line { bp: Some("e".to_owned()), ..ends });
        }
    }

    fn name(&self) -> String {
        match self.track {
            Track::Engine(engine) => engine.to_string(),
            Track::Hardware(node) => format!("n{}", node.0),
        }
    }

    fn sent(
        &self,
        event: &Event,
        messages: &Messages<'_>,
        keys: impl Iterator<Item = String>,
        lines: &mut Vec<Line>,
    ) {
        let What::Sent { flow, since, to, class, name, request, bytes } = event.what else {
            return;
        };
        let named = request.request.sequence != 0;
        let keys: Vec<String> = keys.collect();
        let args = Args {
            from: Some(self.name()),
            to: Some(to.to_string()),
            flow: Some(flow.to_string()),
            class: Some(format!("{class:?}")),
            bytes: Some(u64::from(bytes)),
            request: named.then(|| {
                let (slot, sequence) = (request.request.slot, request.request.sequence);
                format!("{}/{slot}.{sequence}", request.engine)
            }),
            keys: (!keys.is_empty()).then_some(keys),
            ..Args::default()
        };
        let dur = Some(lines::micros(event.at.since(since)));
        lines.push(Line { dur, args: Some(args), ..self.at(&format!("send {name}"), "X", since) });
        if messages.taken.contains(&flow) {
            let id = flow.to_string();
            lines.push(self.asynchronous(name, "s", since, "message", id));
        }
    }

    fn task(&mut self, event: &Event, lines: &mut Vec<Line>) {
        let at = event.at;
        match event.what {
            What::TaskBegins { task, name } => {
                self.tasks.insert(task, vec![name]);
                lines.push(self.asynchronous(name, "b", at, "task", task.to_string()));
            }
            What::PhaseBegins { task: Some(task), name } => {
                if let Some(names) = self.tasks.get_mut(&task) {
                    names.push(name);
                    lines.push(self.asynchronous(name, "b", at, "task", task.to_string()));
                }
            }
            What::PhaseEnds { task: Some(task), name } => {
                let Some(names) = self.tasks.get_mut(&task) else { return };
                // The task's own name comes first, and is no phase.
                if let Some(place) = names[1..].iter().rposition(|&open| open == name) {
                    names.remove(1 + place);
                    lines.push(self.asynchronous(name, "e", at, "task", task.to_string()));
                }
            }
            What::TaskEnds(task) => self.end_task(task, at, lines),
            _ => {}
        }
    }

    fn end_task(&mut self, task: u32, at: Nanos, lines: &mut Vec<Line>) {
        for name in self.tasks.remove(&task).unwrap_or_default().into_iter().rev() {
            lines.push(self.asynchronous(name, "e", at, "task", task.to_string()));
        }
    }

    fn transfer(
        &mut self,
        event: &Event,
        keys: impl Iterator<Item = String>,
        lines: &mut Vec<Line>,
    ) {
        let at = event.at;
        match event.what {
            What::TransferBegins { id, kind, bytes, to } => {
                self.end_transfer(id, at, lines);
                self.transfers.insert(id, kind.name());
                let keys: Vec<String> = keys.collect();
                let args = Some(Args {
                    from: Some(self.name()),
                    to: to.map(|node| format!("n{}", node.0)),
                    bytes: Some(bytes),
                    keys: (!keys.is_empty()).then_some(keys),
                    ..Args::default()
                });
                let id = self.transfer_id(id);
                let begun = self.asynchronous(kind.name(), "b", at, "transfer", id);
                lines.push(Line { args, ..begun });
            }
            What::TransferEnds { id, .. } => self.end_transfer(id, at, lines),
            _ => {}
        }
    }

    fn transfer_id(&self, id: u32) -> String {
        format!("{}/{id}", self.name())
    }

    fn end_transfer(&mut self, id: u32, at: Nanos, lines: &mut Vec<Line>) {
        if let Some(name) = self.transfers.remove(&id) {
            let id = self.transfer_id(id);
            lines.push(self.asynchronous(name, "e", at, "transfer", id));
        }
    }

    /// Ends what is still open.
    fn close(&mut self, at: Nanos, lines: &mut Vec<Line>) {
        while self.open > 0 {
            self.end(at, lines);
        }
        let transfers: Vec<u32> = self.transfers.keys().copied().collect();
        transfers.into_iter().for_each(|id| self.end_transfer(id, at, lines));
        let tasks: Vec<u32> = self.tasks.keys().copied().collect();
        tasks.into_iter().for_each(|task| self.end_task(task, at, lines));
    }
}
