//! The five persistency models: what fills the marked steps of figure 2. [MINOS24 III-C, figure 3]
//!
//! This page is all that differs between them. `coordinator/` and `follower.rs` hold what does not,
//! and what each step does.
//!
//! | model | returns after | RDLock freed after | follower | ends with | spins |
//! |---|---|---|---|---|---|
//! | Synch | persist, ACK | persist, ACK | persist, ACK | VAL | both |
//! | Strict | persist, ACK_C, ACK_P | persist, ACK_C | ACK_C, persist, ACK_P | VAL_C, _P | both |
//! | REnf | ACK_C | ACK_C, ACK_P, persist | ACK_C, persist, ACK_P | VAL | both |
//! | Event | ACK_C | ACK_C | ACK_C, persist | VAL_C | one |
//! | Scope | as Event, then \[PERSIST\]sc | as Event | as Event | as Event | one |
//!
//! Returns, RDLock: the coordinator's own persist, and an ACK of every follower. Where its persist
//! is not named it runs in the background. Spins: what an obsolete write waits for, consistency and
//! persistency of what made it so, or consistency alone.

use nicol_core::history::Persistency;

/// The memory that an acknowledgement or a VAL vouches for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Memory {
    /// Volatile and durable: ACK, VAL.
    Both,
    /// Volatile memory: ACK_C, VAL_C.
    Volatile,
    /// Durable memory: ACK_P, VAL_P.
    Durable,
}

impl Memory {
    const ALL: [Self; 3] = [Self::Both, Self::Volatile, Self::Durable];

    /// Whether it vouches for volatile memory.
    pub const fn is_volatile(self) -> bool {
        !matches!(self, Self::Durable)
    }

    /// Whether it vouches for durable memory.
    pub const fn is_durable(self) -> bool {
        !matches!(self, Self::Volatile)
    }
}

/// A wait of an obsolete write, for what made it obsolete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Spin {
    /// Until that is in every node's volatile memory.
    Consistency,
    /// Until that is durable on every node.
    Persistency,
}

/// A wait of a write that is not obsolete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Await {
    /// For the persist in the background.
    OwnPersist,
    /// For every ACK, or ACK_C.
    Consistent,
    /// For every ACK_P.
    Durable,
}

/// A change of the record once all have acknowledged: at the coordinator, or at a follower when a
/// VAL has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Validation {
    /// Raises glb_volatileTS to TS_WR.
    RaiseGlobalVolatile,
    /// Raises glb_durableTS to TS_WR.
    RaiseGlobalDurable,
    /// Releases the RDLock, if this write still owns it.
    ReleaseRdLock,
}

/// A marked step of a coordinator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CoordinatorStep {
    /// Persists the update and waits for that.
    Persist,
    /// Persists the update outside of the critical path.
    PersistInBackground,
    Await(Await),
    Validate(Validation),
    /// Sends a VAL to every follower.
    SendVal(Memory),
}

/// A marked step of a follower.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FollowerStep {
    /// Persists the update and waits for that.
    Persist,
    /// Sends an ACK for this memory.
    SendAck(Memory),
}

/// A marked step of a follower at which the write is obsolete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObsoleteStep {
    Spin(Spin),
    /// Sends an ACK for this memory.
    SendAck(Memory),
}

/// A marked step of any role, as traces tell of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Step {
    /// A wait of an obsolete write.
    Spin(Spin),
    /// Persists the update and waits for that.
    Persist,
    /// Persists the update outside of the critical path.
    PersistInBackground,
    /// A wait of a write that is not obsolete.
    Await(Await),
    /// A change of the record.
    Validate(Validation),
    /// Sends a VAL to every follower.
    SendVal(Memory),
    /// Acknowledges to the coordinator.
    SendAck(Memory),
    /// The client-write returns to its client.
    Return,
}

impl Step {
    /// Every step of every role, for tests that follow traces.
    pub(super) fn all() -> impl Iterator<Item = Self> {
        let spins = [Spin::Consistency, Spin::Persistency].map(Self::Spin);
        let waits = [Await::OwnPersist, Await::Consistent, Await::Durable].map(Self::Await);
        let changes = [RaiseGlobalVolatile, RaiseGlobalDurable, ReleaseRdLock].map(Self::Validate);
        let (vals, acks) = (Memory::ALL.map(Self::SendVal), Memory::ALL.map(Self::SendAck));
        let plain = [Self::Persist, Self::PersistInBackground, Self::Return];
        spins.into_iter().chain(waits).chain(changes).chain(vals).chain(acks).chain(plain)
    }

    /// The name in a trace.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Spin(Spin::Consistency) => "ConsistencySpin",
            Self::Spin(Spin::Persistency) => "PersistencySpin",
            Self::Persist => "Persist",
            Self::PersistInBackground => "Persist in the background",
            Self::Await(Await::OwnPersist) => "spin until persisted",
            Self::Await(Await::Consistent) => "spin until all ACK_C",
            Self::Await(Await::Durable) => "spin until all ACK_P",
            Self::Validate(RaiseGlobalVolatile) => "raise glb_volatileTS",
            Self::Validate(RaiseGlobalDurable) => "raise glb_durableTS",
            Self::Validate(ReleaseRdLock) => "release RDLock",
            Self::SendVal(Memory::Both) => "VAL",
            Self::SendVal(Memory::Volatile) => "VAL_C",
            Self::SendVal(Memory::Durable) => "VAL_P",
            Self::SendAck(Memory::Both) => "ACK",
            Self::SendAck(Memory::Volatile) => "ACK_C",
            Self::SendAck(Memory::Durable) => "ACK_P",
            Self::Return => "return",
        }
    }
}

impl From<CoordinatorStep> for Step {
    fn from(step: CoordinatorStep) -> Self {
        match step {
            CoordinatorStep::Persist => Self::Persist,
            CoordinatorStep::PersistInBackground => Self::PersistInBackground,
            CoordinatorStep::Await(wait) => Self::Await(wait),
            CoordinatorStep::Validate(change) => Self::Validate(change),
            CoordinatorStep::SendVal(of) => Self::SendVal(of),
        }
    }
}

impl From<FollowerStep> for Step {
    fn from(step: FollowerStep) -> Self {
        match step {
            FollowerStep::Persist => Self::Persist,
            FollowerStep::SendAck(of) => Self::SendAck(of),
        }
    }
}

impl From<ObsoleteStep> for Step {
    fn from(step: ObsoleteStep) -> Self {
        match step {
            ObsoleteStep::Spin(spin) => Self::Spin(spin),
            ObsoleteStep::SendAck(of) => Self::SendAck(of),
        }
    }
}

use CoordinatorStep::{Persist, PersistInBackground, SendVal, Validate};
use Validation::{RaiseGlobalDurable, RaiseGlobalVolatile, ReleaseRdLock};

/// A model's steps. The letters are those of figures 2 and 3.
#[derive(Debug)]
pub struct Steps {
    /// Of figure 2's lines 2 and 3: step a.
    pub obsolete_at_coordinator: &'static [Spin],
    /// Lines 18 to 22: steps d, e, f, with the read lock's release between e and f.
    pub coordinator: &'static [CoordinatorStep],
    /// The step of these behind which the client-write returns.
    returns_after: CoordinatorStep,
    /// The same of figure 8: the batched ACK ends the client-write at the host, and only then the
    /// read lock waits for the vFIFO. [MINOS24 V-C]
    offloaded_returns_after: CoordinatorStep,
    /// Lines 24, 25, 29, and 38 with 40: steps h, i, k.
    pub obsolete_at_follower: &'static [ObsoleteStep],
    /// Lines 39 and 40: steps j, k.
    pub follower: &'static [FollowerStep],
    /// Lines 42 and 43, once a VAL or VAL_C has come: step l.
    pub on_val: &'static [Validation],
    /// Once a VAL_P has come: step m.
    pub on_val_p: &'static [Validation],
}

impl Steps {
    /// The steps of `model`.
    pub const fn of(model: Persistency) -> &'static Self {
        match model {
            Persistency::Synch => &SYNCH,
            Persistency::Strict => &STRICT,
            Persistency::Renf => &RENF,
            // The names carry the scope; what makes a scope durable is the [PERSIST]sc transaction
            // (`scope.rs`).
            Persistency::Event | Persistency::Scope => &EVENT,
        }
    }

    /// Whether the client-write returns right after `step` of its coordinator.
    pub fn returns_after(&self, step: CoordinatorStep, offload: bool) -> bool {
        step == if offload { self.offloaded_returns_after } else { self.returns_after }
    }

    /// The coordinator's steps and the return to the client, in their order.
    pub fn completion(&self, offload: bool) -> impl Iterator<Item = Step> {
        self.coordinator.iter().flat_map(move |&step| {
            let returns = self.returns_after(step, offload).then_some(Step::Return);
            std::iter::once(step.into()).chain(returns)
        })
    }
}

const SPIN_CONSISTENT: CoordinatorStep = CoordinatorStep::Await(Await::Consistent);
const SPIN_DURABLE: CoordinatorStep = CoordinatorStep::Await(Await::Durable);
const SPIN_PERSISTED: CoordinatorStep = CoordinatorStep::Await(Await::OwnPersist);

static SYNCH: Steps = Steps {
    obsolete_at_coordinator: &[Spin::Consistency, Spin::Persistency],
    coordinator: &[
        Persist,
        SPIN_CONSISTENT,
        Validate(RaiseGlobalVolatile),
        Validate(RaiseGlobalDurable),
        Validate(ReleaseRdLock),
        SendVal(Memory::Both),
    ],
    returns_after: SendVal(Memory::Both),
    offloaded_returns_after: SPIN_CONSISTENT,
    obsolete_at_follower: &[
        ObsoleteStep::Spin(Spin::Consistency),
        ObsoleteStep::Spin(Spin::Persistency),
        ObsoleteStep::SendAck(Memory::Both),
    ],
    follower: &[FollowerStep::Persist, FollowerStep::SendAck(Memory::Both)],
    on_val: &[RaiseGlobalVolatile, RaiseGlobalDurable, ReleaseRdLock],
    on_val_p: &[],
};

/// Of Strict and REnf.
const ACKS_C_AND_P: &[FollowerStep] = &[
    FollowerStep::SendAck(Memory::Volatile),
    FollowerStep::Persist,
    FollowerStep::SendAck(Memory::Durable),
];
/// The same of an obsolete write.
const OBSOLETE_ACKS_C_AND_P: &[ObsoleteStep] = &[
    ObsoleteStep::Spin(Spin::Consistency),
    ObsoleteStep::SendAck(Memory::Volatile),
    ObsoleteStep::Spin(Spin::Persistency),
    ObsoleteStep::SendAck(Memory::Durable),
];

static STRICT: Steps = Steps {
    obsolete_at_coordinator: &[Spin::Consistency, Spin::Persistency],
    coordinator: &[
        Persist,
        SPIN_CONSISTENT,
        Validate(RaiseGlobalVolatile),
        Validate(ReleaseRdLock),
        SendVal(Memory::Volatile),
        SPIN_DURABLE,
        Validate(RaiseGlobalDurable),
        SendVal(Memory::Durable),
    ],
    returns_after: SendVal(Memory::Durable),
    offloaded_returns_after: SPIN_DURABLE,
    obsolete_at_follower: OBSOLETE_ACKS_C_AND_P,
    follower: ACKS_C_AND_P,
    on_val: &[RaiseGlobalVolatile, ReleaseRdLock],
    on_val_p: &[RaiseGlobalDurable],
};

// DEVIATION [MINOS24 III-C]: the coordinator waits for its own persist as well before it releases
// the read lock, because a read may only see what every replica has persisted.
static RENF: Steps = Steps {
    obsolete_at_coordinator: &[Spin::Consistency, Spin::Persistency],
    coordinator: &[
        PersistInBackground,
        SPIN_CONSISTENT,
        Validate(RaiseGlobalVolatile),
        SPIN_DURABLE,
        SPIN_PERSISTED,
        Validate(RaiseGlobalDurable),
        Validate(ReleaseRdLock),
        SendVal(Memory::Both),
    ],
    returns_after: SPIN_CONSISTENT,
    offloaded_returns_after: SPIN_CONSISTENT,
    obsolete_at_follower: OBSOLETE_ACKS_C_AND_P,
    follower: ACKS_C_AND_P,
    on_val: &[RaiseGlobalVolatile, RaiseGlobalDurable, ReleaseRdLock],
    on_val_p: &[],
};

static EVENT: Steps = Steps {
    obsolete_at_coordinator: &[Spin::Consistency],
    coordinator: &[
        PersistInBackground,
        SPIN_CONSISTENT,
        Validate(RaiseGlobalVolatile),
        Validate(ReleaseRdLock),
        SendVal(Memory::Volatile),
    ],
    returns_after: SendVal(Memory::Volatile),
    offloaded_returns_after: SPIN_CONSISTENT,
    obsolete_at_follower: &[
        ObsoleteStep::Spin(Spin::Consistency),
        ObsoleteStep::SendAck(Memory::Volatile),
    ],
    follower: &[FollowerStep::SendAck(Memory::Volatile), FollowerStep::Persist],
    on_val: &[RaiseGlobalVolatile, ReleaseRdLock],
    on_val_p: &[],
};

#[cfg(test)]
mod tests {
    use super::*;

    /// The rules of section II-A, for each model: what a client or a read may rely on comes before.
    #[test]
    fn every_model_keeps_the_rules_of_its_definition() {
        for model in Persistency::ALL {
            let steps = Steps::of(model);
            for offload in [false, true] {
                keeps_its_rules(model, &steps.completion(offload).collect::<Vec<_>>());
            }
            let spins = steps.obsolete_at_coordinator.contains(&Spin::Persistency);
            let weak = matches!(model, Persistency::Event | Persistency::Scope);
            assert_eq!(spins, !weak, "{model:?}");
        }
    }

    fn keeps_its_rules(model: Persistency, completion: &[Step]) {
        let at = |step| completion.iter().position(|other| *other == step);
        let before = |first, then| {
            let places = at(first).zip(at(then));
            places.is_some_and(|(first, then)| first < then)
        };
        let release = Step::Validate(ReleaseRdLock);
        let [consistent, durable, persisted] =
            [Await::Consistent, Await::Durable, Await::OwnPersist].map(Step::Await);
        // Lin: a write returns, and is read, once every volatile replica has it.
        assert!(before(consistent, Step::Return), "{model:?}");
        assert!(before(consistent, release), "{model:?}");
        let own_persist = before(Step::Persist, Step::Return);
        let durable_first = match model {
            Persistency::Synch => own_persist && before(Step::Persist, release),
            Persistency::Strict => own_persist && before(durable, Step::Return),
            Persistency::Renf => {
                before(durable, release)
                    && before(persisted, release)
                    && before(Step::Return, durable)
            }
            Persistency::Event | Persistency::Scope => at(durable).is_none(),
        };
        assert!(durable_first, "{model:?}");
        let returns = completion.iter().filter(|step| **step == Step::Return);
        assert_eq!(returns.count(), 1, "{model:?}");
    }

    #[test]
    fn figure_8_returns_no_later() {
        for model in Persistency::ALL {
            let place = |offload| {
                Steps::of(model).completion(offload).position(|step| step == Step::Return)
            };
            assert!(place(true) <= place(false), "{model:?}");
        }
    }
}
