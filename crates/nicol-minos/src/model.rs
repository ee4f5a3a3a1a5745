//! The five persistency models: what fills the marked steps of figure 2. [MINOS24 III-C, figure 3]
//!
//! This page is all that differs between them. `coordinator.rs` and `follower.rs` hold what does
//! not, and what each step does.
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

/// A step whose place depends on the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Step {
    /// Waits until what made this write obsolete is in every node's volatile memory.
    ConsistencySpin,
    /// Waits until what made this write obsolete is durable on every node.
    PersistencySpin,
    /// Persists the update and waits for that.
    Persist,
    /// Persists the update outside of the critical path.
    PersistInBackground,
    /// Waits for that.
    SpinPersisted,
    /// Waits for every ACK, or ACK_C.
    SpinConsistent,
    /// Waits for every ACK_P.
    SpinDurable,
    /// glb_volatileTS becomes TS_WR.
    RaiseGlobalVolatile,
    /// glb_durableTS becomes TS_WR.
    RaiseGlobalDurable,
    /// Releases the RDLock, if this write still owns it.
    ReleaseRdLock,
    /// Sends VAL to every follower.
    SendVal,
    /// The same of VAL_C.
    SendValC,
    /// The same of VAL_P.
    SendValP,
    /// Sends ACK to the coordinator.
    SendAck,
    /// The same of ACK_C.
    SendAckC,
    /// The same of ACK_P.
    SendAckP,
    /// The client-write returns to its client.
    Return,
}

impl Step {
    /// Each.
    pub const ALL: [Self; 17] = [
        Self::ConsistencySpin,
        Self::PersistencySpin,
        Self::Persist,
        Self::PersistInBackground,
        Self::SpinPersisted,
        Self::SpinConsistent,
        Self::SpinDurable,
        Self::RaiseGlobalVolatile,
        Self::RaiseGlobalDurable,
        Self::ReleaseRdLock,
        Self::SendVal,
        Self::SendValC,
        Self::SendValP,
        Self::SendAck,
        Self::SendAckC,
        Self::SendAckP,
        Self::Return,
    ];

    /// Its name in a trace.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ConsistencySpin => "ConsistencySpin",
            Self::PersistencySpin => "PersistencySpin",
            Self::Persist => "Persist",
            Self::PersistInBackground => "Persist in the background",
            Self::SpinPersisted => "spin until persisted",
            Self::SpinConsistent => "spin until all ACK_C",
            Self::SpinDurable => "spin until all ACK_P",
            Self::RaiseGlobalVolatile => "raise glb_volatileTS",
            Self::RaiseGlobalDurable => "raise glb_durableTS",
            Self::ReleaseRdLock => "release RDLock",
            Self::SendVal => "VAL",
            Self::SendValC => "VAL_C",
            Self::SendValP => "VAL_P",
            Self::SendAck => "ACK",
            Self::SendAckC => "ACK_C",
            Self::SendAckP => "ACK_P",
            Self::Return => "return",
        }
    }
}

use Step::*;

/// A model's steps. The letters are those of figures 2 and 3.
#[derive(Debug)]
pub struct Steps {
    /// Of figure 2's lines 2 and 3: step a.
    pub obsolete_at_coordinator: &'static [Step],
    /// Lines 18 to 22: steps d, e, f, with the read lock's release between e and f.
    pub coordinator: &'static [Step],
    /// The same of figure 8: the batched ACK ends the client-write at the host, and only then the
    /// read lock waits for the vFIFO. [MINOS24 V-C]
    pub offloaded: &'static [Step],
    /// Lines 24, 25, 29, and 38 with 40: steps h, i, k.
    pub obsolete_at_follower: &'static [Step],
    /// Lines 39 and 40: steps j, k.
    pub follower: &'static [Step],
    /// Lines 42 and 43, once a VAL or VAL_C has come: step l.
    pub on_val: &'static [Step],
    /// Once a VAL_P has come: step m.
    pub on_val_p: &'static [Step],
}

impl Steps {
    /// The steps of `model`.
    pub const fn of(model: Persistency) -> &'static Self {
        match model {
            Persistency::Synch => &SYNCH,
            Persistency::Strict => &STRICT,
            Persistency::Renf => &RENF,
            Persistency::Event => &EVENT,
            Persistency::Scope => &SCOPE,
        }
    }
}

static SYNCH: Steps = Steps {
    obsolete_at_coordinator: &[ConsistencySpin, PersistencySpin],
    coordinator: &[
        Persist,
        SpinConsistent,
        RaiseGlobalVolatile,
        RaiseGlobalDurable,
        ReleaseRdLock,
        SendVal,
        Return,
    ],
    offloaded: &[
        Persist,
        SpinConsistent,
        Return,
        RaiseGlobalVolatile,
        RaiseGlobalDurable,
        ReleaseRdLock,
        SendVal,
    ],
    obsolete_at_follower: &[ConsistencySpin, PersistencySpin, SendAck],
    follower: &[Persist, SendAck],
    on_val: &[RaiseGlobalVolatile, RaiseGlobalDurable, ReleaseRdLock],
    on_val_p: &[],
};

static STRICT: Steps = Steps {
    obsolete_at_coordinator: &[ConsistencySpin, PersistencySpin],
    coordinator: &[
        Persist,
        SpinConsistent,
        RaiseGlobalVolatile,
        ReleaseRdLock,
        SendValC,
        SpinDurable,
        RaiseGlobalDurable,
        SendValP,
        Return,
    ],
    offloaded: &[
        Persist,
        SpinConsistent,
        RaiseGlobalVolatile,
        ReleaseRdLock,
        SendValC,
        SpinDurable,
        Return,
        RaiseGlobalDurable,
        SendValP,
    ],
    obsolete_at_follower: &[ConsistencySpin, SendAckC, PersistencySpin, SendAckP],
    follower: &[SendAckC, Persist, SendAckP],
    on_val: &[RaiseGlobalVolatile, ReleaseRdLock],
    on_val_p: &[RaiseGlobalDurable],
};

// DEVIATION [MINOS24 III-C]: the coordinator waits for its own persist as well before it releases
// the read lock, because a read may only see what every replica has persisted.
const RENF_STEPS: &[Step] = &[
    PersistInBackground,
    SpinConsistent,
    Return,
    RaiseGlobalVolatile,
    SpinDurable,
    SpinPersisted,
    RaiseGlobalDurable,
    ReleaseRdLock,
    SendVal,
];

static RENF: Steps = Steps {
    obsolete_at_coordinator: &[ConsistencySpin, PersistencySpin],
    coordinator: RENF_STEPS,
    offloaded: RENF_STEPS,
    obsolete_at_follower: &[ConsistencySpin, SendAckC, PersistencySpin, SendAckP],
    follower: &[SendAckC, Persist, SendAckP],
    on_val: &[RaiseGlobalVolatile, RaiseGlobalDurable, ReleaseRdLock],
    on_val_p: &[],
};

static EVENT: Steps = Steps {
    obsolete_at_coordinator: &[ConsistencySpin],
    coordinator: &[
        PersistInBackground,
        SpinConsistent,
        RaiseGlobalVolatile,
        ReleaseRdLock,
        SendValC,
        Return,
    ],
    offloaded: &[
        PersistInBackground,
        SpinConsistent,
        Return,
        RaiseGlobalVolatile,
        ReleaseRdLock,
        SendValC,
    ],
    obsolete_at_follower: &[ConsistencySpin, SendAckC],
    follower: &[SendAckC, Persist],
    on_val: &[RaiseGlobalVolatile, ReleaseRdLock],
    on_val_p: &[],
};

/// As [`EVENT`], under names that carry the scope; what makes a scope durable is the [PERSIST]sc
/// transaction (`scope.rs`).
static SCOPE: Steps = Steps {
    obsolete_at_coordinator: EVENT.obsolete_at_coordinator,
    coordinator: EVENT.coordinator,
    offloaded: EVENT.offloaded,
    obsolete_at_follower: EVENT.obsolete_at_follower,
    follower: EVENT.follower,
    on_val: EVENT.on_val,
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
            for coordinator in [steps.coordinator, steps.offloaded] {
                keeps_its_rules(model, coordinator);
            }
            let spins = steps.obsolete_at_coordinator.contains(&PersistencySpin);
            let weak = matches!(model, Persistency::Event | Persistency::Scope);
            assert_eq!(spins, !weak, "{model:?}");
        }
    }

    fn keeps_its_rules(model: Persistency, coordinator: &[Step]) {
        let at = |step| coordinator.iter().position(|other| *other == step);
        let before = |first, then| {
            let places = at(first).zip(at(then));
            places.is_some_and(|(first, then)| first < then)
        };
        // Lin: a write returns, and is read, once every volatile replica has it.
        assert!(before(SpinConsistent, Return), "{model:?}");
        assert!(before(SpinConsistent, ReleaseRdLock), "{model:?}");
        let durable_first = match model {
            Persistency::Synch => before(Persist, Return) && before(Persist, ReleaseRdLock),
            Persistency::Strict => before(Persist, Return) && before(SpinDurable, Return),
            Persistency::Renf => {
                before(SpinDurable, ReleaseRdLock)
                    && before(SpinPersisted, ReleaseRdLock)
                    && before(Return, SpinDurable)
            }
            Persistency::Event | Persistency::Scope => at(SpinDurable).is_none(),
        };
        assert!(durable_first, "{model:?}");
    }

    /// Both places do the same, and only the client of the offloaded form is told earlier.
    #[test]
    fn figure_8_returns_earlier_and_does_the_same() {
        for model in Persistency::ALL {
            let steps = Steps::of(model);
            let others = |steps: &[Step]| -> Vec<Step> {
                steps.iter().copied().filter(|step| *step != Return).collect()
            };
            assert_eq!(others(steps.coordinator), others(steps.offloaded), "{model:?}");
            let place = |steps: &[Step]| steps.iter().position(|step| *step == Return);
            assert!(place(steps.offloaded) <= place(steps.coordinator), "{model:?}");
        }
    }
}
