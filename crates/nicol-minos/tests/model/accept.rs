//! Step traces of runs of the shipped code, which the model must accept: of each record it must
//! have a path whose steps are those of the trace, in their order. The model is followed in every
//! state that it may be in, since a trace does not tell which of two processes of one write at one
//! node took a step.

use std::collections::{BTreeMap, BTreeSet};

use nicol_core::ids::{EngineId, Key, Side};
use nicol_core::trace::{Event, Recorded, Track, What};
use nicol_core::units::Nanos;
use nicol_minos::{EVERY_KEY, Tag};

use crate::properties::{SAFETY, broken};
use crate::rules::{Label, Protocol, lose_records};
use crate::state::{Stamp, State, Views};

/// States that the model may be in at a time, at most: more would be a model that tells nothing
/// apart.
const STATES_MAX: usize = 64;

/// The steps of one run.
#[derive(Debug, Default)]
pub struct Traced {
    /// What was told of each record, and of all of them, in order.
    pub steps: Vec<(Key, Label)>,
    views: Views,
}

/// What an acceptance has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Accepted {
    pub records: usize,
    pub steps: usize,
    /// The most states that the model might have been in.
    pub states: usize,
}

impl Traced {
    /// The steps of a simulated run of `nodes` nodes.
    ///
    /// # Panics
    /// If the trace is not complete, or names a step that there is not.
    pub fn of(recorded: &Recorded, nodes: usize) -> Self {
        assert_eq!(recorded.full_at, None, "the trace is complete");
        let mut told = BTreeMap::new();
        for (track, events) in &recorded.tracks {
            let Track::Engine(at) = *track else { continue };
            let crashes = crashes_of_the_host(recorded, at);
            for event in events {
                if let What::Step { step, place, .. } = event.what {
                    let before = crashes.iter().take_while(|(at, _)| *at <= event.at);
                    let hostless = before.last().is_some_and(|(_, is_down)| *is_down);
                    told.insert(place, (at, step, hostless));
                }
            }
        }
        let mut traced = Self::default();
        let mut record = [Stamp::NONE; 6];
        for (at, step, hostless) in told.into_values() {
            let tag = Tag::of_name(step.name).unwrap_or_else(|| panic!("no step {:?}", step.name));
            let (ts, view, peer) = (Stamp(step.stamp.0), step.view.0, step.peer.index());
            if tag == Tag::IsMember {
                let lives = traced.views.entry(view).or_insert_with(|| vec![0; nodes]);
                lives[peer] = ts.life();
                continue;
            }
            let fields = [
                Tag::RdLock,
                Tag::VolatileTs,
                Tag::GlobalVolatileTs,
                Tag::GlobalDurableTs,
                Tag::DurableTs,
                Tag::ValueTs,
            ];
            if let Some(field) = fields.iter().position(|field| *field == tag) {
                record[field] = ts;
                if tag != Tag::ValueTs {
                    continue;
                }
            }
            let node = at.node.index();
            let engine = engine_of(at);
            let label = Label { node, engine, tag, ts, view, peer, record, hostless };
            traced.steps.push((step.key, label));
        }
        traced
    }

    /// Follows the model through the steps of each record.
    ///
    /// Errors: the first step of a record that the model cannot take, and those before it.
    pub fn accept(&self, protocol: &Protocol, is_loaded: bool) -> Result<Accepted, String> {
        let records: BTreeSet<Key> =
            self.steps.iter().map(|(key, _)| *key).filter(|key| *key != EVERY_KEY).collect();
        let mut accepted = Accepted::default();
        for record in records {
            let own = |key: Key| key == record || key == EVERY_KEY;
            let steps: Vec<&Label> =
                self.steps.iter().filter(|(key, _)| own(*key)).map(|(_, label)| label).collect();
            accepted.states = accepted.states.max(self.follow(protocol, is_loaded, &steps)?);
            accepted.records += 1;
            accepted.steps += steps.len();
        }
        Ok(accepted)
    }

    fn follow(
        &self,
        protocol: &Protocol,
        is_loaded: bool,
        steps: &[&Label],
    ) -> Result<usize, String> {
        let mut states = vec![State::first(self.views.clone(), is_loaded)];
        let mut most = 1;
        for (place, label) in steps.iter().enumerate() {
            if label.hostless {
                states = with_lost_records(states, label.node);
            }
            let (next, why) = step(protocol, states, label);
            if next.is_empty() {
                return Err(refusal(&steps[..=place], why));
            }
            most = most.max(next.len());
            if most > STATES_MAX {
                return Err(refusal(&steps[..=place], Some("the model may be in too many states")));
            }
            states = next;
        }
        Ok(most)
    }
}

/// When the host of a NIC's engine crashed, and when it came back: its NIC may go on in between.
fn crashes_of_the_host(recorded: &Recorded, at: EngineId) -> Vec<(Nanos, bool)> {
    let faults = recorded.tracks.get(&Track::Hardware(at.node)).filter(|_| at.side == Side::Nic);
    let end = |event: &Event| match event.what {
        What::Fault("crash of the host") => Some((event.at, true)),
        What::Fault("restart of the host") => Some((event.at, false)),
        _ => None,
    };
    faults.into_iter().flatten().filter_map(end).collect()
}

/// These states, and the same without the records of a node: a trace tells when its host has
/// crashed, but a core's clock runs ahead of what it has done.
fn with_lost_records(mut states: Vec<State>, n: usize) -> Vec<State> {
    let whole = states.iter().filter(|state| !state.nodes[n].is_hostless);
    for mut lost in whole.cloned().collect::<Vec<State>>() {
        lose_records(&mut lost, n);
        if !states.contains(&lost) {
            states.push(lost);
        }
    }
    states
}

/// The states behind a step; if there are none, why.
fn step(
    protocol: &Protocol,
    states: Vec<State>,
    label: &Label,
) -> (Vec<State>, Option<&'static str>) {
    let (mut next, mut why): (Vec<State>, _) = (Vec::new(), None);
    for mut state in states {
        let actors = protocol.actors(&state, label);
        let Some((last, others)) = actors.split_last() else { continue };
        let mut add = |state: State| match broken(protocol, &state, &SAFETY) {
            Some(property) => why = Some(property),
            None if next.contains(&state) => {}
            None => next.push(state),
        };
        for actor in others {
            let mut other = state.clone();
            if protocol.take(&mut other, label, *actor) {
                add(other);
            }
        }
        if protocol.take(&mut state, label, *last) {
            add(state);
        }
    }
    (next, why)
}

/// Bits of a core in an engine's number.
const CORE_BITS: u32 = 6;

fn engine_of(engine: EngineId) -> u8 {
    u8::from(engine.side == Side::Nic) << CORE_BITS | engine.core
}

fn refusal(steps: &[&Label], why: Option<&'static str>) -> String {
    let last = steps.last().expect("one was refused");
    let about = steps
        .iter()
        .filter(|label| label.ts == last.ts || label.ts.version() == 0 || label.node == last.node);
    let about: Vec<&&Label> = about.collect();
    let from = about.len().saturating_sub(30);
    let lines: Vec<String> = about[from..].iter().map(|label| shown(label)).collect();
    let why = why.unwrap_or("the model cannot take this step");
    format!("{why}: {}\n{}", shown(last), lines.join("\n"))
}

fn shown(label: &Label) -> String {
    let Label { node, engine, tag, ts, view, peer, record, .. } = label;
    let stamp = |ts: Stamp| format!("<{},{},{}>", ts.version(), ts.node(), ts.life());
    let more = if *tag == Tag::ValueTs { record.map(stamp).join(" ") } else { String::new() };
    format!("n{node}/{engine} {} {} view {view} from n{peer} {more}", tag.name(), stamp(*ts))
}
