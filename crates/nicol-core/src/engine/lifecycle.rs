//! What a world tells a system about crashes and restarts.
//!
//! A crash of a side takes its engines apart: their tasks, service, calls, timers, frames and
//! transfers are gone, and so is what the table below says. What a transfer had moved before the
//! crash has moved.
//!
//! | state | host crash | NIC crash | both |
//! |---|---|---|---|
//! | regions and structures in host memory | lost | kept | lost |
//! | regions and structures in NIC memory | kept | lost | lost |
//! | log regions in battery-backed host memory | kept | kept | kept |
//! | writes that were acknowledged as durable | kept | kept | kept |
//! | writes that the host's log device had not synced | lost, torn or kept | kept | lost, torn or kept |
//! | writes that a NIC's durable queue had not synced | kept | lost, torn or kept | lost, torn or kept |
//!
//! A life can also end without a crash of its side: because the other half begins a new life, or
//! because the node was given up. What that leaves in memory depends on the system
//! ([`Halves`](crate::view::Halves)): as much as a crash, or the side's structures, which
//! [`Start::ended`] then tells of; regions go with the life in both cases, and the side's devices
//! end what they have begun.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{Engine, Start, World};
use crate::ids::{Incarnation, NodeId, Side};
use crate::medium::MediumWrite;
use crate::view::Halves;

/// Sides of a node that have crashed at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loss {
    /// The node.
    pub node: NodeId,
    /// True if its host has crashed.
    pub host: bool,
    /// True if its NIC has crashed.
    pub nic: bool,
}

impl Loss {
    /// True if `side` has crashed.
    pub const fn of(&self, side: Side) -> bool {
        match side {
            Side::Host => self.host,
            Side::Nic => self.nic,
        }
    }

    /// Its name in a trace.
    pub const fn name(&self, ending: Ending) -> &'static str {
        match (ending, self.host, self.nic) {
            (Ending::Crash, true, true) => "crash of the node",
            (Ending::Crash, true, false) => "crash of the host",
            (Ending::Crash, ..) => "crash of the NIC",
            (Ending::Anew, true, true) => "end of the node's life",
            (Ending::Anew, true, false) => "end of the host's life",
            (Ending::Anew, ..) => "end of the NIC's life",
        }
    }
}

/// How the lives of sides end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// They crash.
    Crash,
    /// They are restarted while they are up: because of their other half, or because they were
    /// given up.
    Anew,
}

impl Ending {
    /// True if the memory of the sides is lost, on nodes of such halves.
    pub const fn loses_memory(self, halves: Halves) -> bool {
        matches!(self, Self::Crash) || !halves.keeps_memory()
    }
}

/// The sides of a node that have crashed: guards structures that are no
/// [`Region`](crate::memory::Region)s, so that whatever uses one that is lost is found.
#[derive(Debug, Default)]
pub struct LostSides([AtomicBool; 2]);

impl LostSides {
    /// These sides crash, with all that was in their memory.
    pub fn lose(&self, loss: &Loss) {
        let [host, nic] = &self.0;
        host.fetch_or(loss.host, Ordering::Relaxed);
        nic.fetch_or(loss.nic, Ordering::Relaxed);
    }

    /// Has a crash taken either side's?
    pub fn are_any(&self) -> bool {
        self.0.iter().any(|lost| lost.load(Ordering::Relaxed))
    }

    /// Something in the memory of `side` is about to be used. Cost: one read.
    ///
    /// # Panics
    /// If a crash has taken it away: a bug.
    #[inline]
    pub fn expect_kept(&self, side: Side) {
        let lost = self.0[side as usize].load(Ordering::Relaxed);
        assert!(
            !lost,
            "a structure in the memory of a {side:?} was lost in a crash and is used afterwards"
        );
    }
}

/// The name in a trace of the restart of a side.
pub const fn restart_name(side: Side) -> &'static str {
    match side {
        Side::Host => "restart of the host",
        Side::Nic => "restart of the NIC",
    }
}

/// The state that a new incarnation of a side finds when it starts.
#[derive(Clone, Copy, Debug)]
pub struct Revival<'a> {
    /// The life that begins.
    pub incarnation: Incarnation,
    /// What the node's log device holds, in the order of submission: all that was acknowledged as
    /// durable, and what a crash left of the rest. Empty where memory itself is durable.
    pub medium: &'a [MediumWrite],
    /// Did the node's [log regions](crate::memory::Region::for_log) keep their bytes, because its
    /// memory is battery-backed?
    pub memory_is_durable: bool,
}

/// [`Start`] on the engines of one world, as an object: what runs a cluster is compiled once, and
/// not again for each system.
pub trait StartOn<W: World>: Send + Sync {
    /// See [`Start::start`].
    fn start(&self, engine: &Engine<W>);
    /// See [`Start::crashed`].
    fn crashed(&self, loss: &Loss);
    /// See [`Start::ended`].
    fn ended(&self, loss: &Loss);
    /// See [`Start::restart`].
    fn restart(&self, engine: &Engine<W>, revival: &Revival<'_>);
}

impl<S: Start, W: World> StartOn<W> for S {
    fn start(&self, engine: &Engine<W>) {
        S::start(self, engine);
    }

    fn crashed(&self, loss: &Loss) {
        S::crashed(self, loss);
    }

    fn ended(&self, loss: &Loss) {
        S::ended(self, loss);
    }

    fn restart(&self, engine: &Engine<W>, revival: &Revival<'_>) {
        S::restart(self, engine, revival);
    }
}

impl<W: World> fmt::Debug for dyn StartOn<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StartOn")
    }
}

/// The planted faults of a world's crashes and restarts.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CrashSabotage {
    /// Nothing.
    #[default]
    None,
    /// The medium keeps every write that was submitted, synced or not.
    MediumKeepsAll,
    /// Frames of earlier incarnations are taken.
    FenceIgnored,
    /// The engines of a side that has crashed go on in its next incarnation, timers and all.
    TimersFire,
    /// Leases never end at the engines.
    LeaseEndless,
    /// A side that needs its other half goes on when that has crashed.
    HalfServes,
}
