//! What must hold in every state, and at the ends.

use nicol_core::history::Persistency;
use nicol_core::ids::NodeId;
use nicol_core::system::NodeState;
use nicol_minos::{Metadata, Node};

use crate::state::{Choice, KEY, State};

/// A condition that does not hold.
pub type Broken = &'static str;

fn ensure(holds: bool, what: Broken) -> Result<(), Broken> {
    if holds { Ok(()) } else { Err(what) }
}

impl State<'_> {
    /// The nodes that serve.
    fn serving(&self) -> impl Iterator<Item = (NodeId, &Node)> {
        let nodes = self.world.nodes().zip(&self.writers.nodes);
        nodes.map(|(id, node)| (id, &**node)).filter(|(id, node)| {
            let crashed = self.blackout || self.crashed == Some(id.0);
            !crashed || self.is_back && node.has_recovered()
        })
    }

    /// Their metadata of the record.
    pub fn metadata(&self) -> Vec<Metadata> {
        self.serving().map(|(_, node)| node.metadata(KEY)).collect()
    }

    /// The conditions of Table I, as AMB-17 words them, and what reads and clients may rely on.
    /// What is durable is what the media hold, whatever the nodes believe.
    ///
    /// # Errors
    /// The first that does not hold.
    pub fn check(&mut self) -> Result<(), Broken> {
        if self.blackout {
            return Ok(());
        }
        let model = self.scope.config.model;
        let nodes = self.metadata();
        let volatile = nodes.iter().map(|node| node.volatile_ts).min().unwrap_or(0);
        let durable = self.serving().map(|(id, _)| self.durable_ts(id)).min().unwrap_or(0);
        let reads_durable = matches!(model, Persistency::Synch | Persistency::Renf);
        let returns_durable = matches!(model, Persistency::Synch | Persistency::Strict);
        for node in &nodes {
            ensure(node.glb_volatile_ts <= volatile, "2b*, 2c*: glb_volatileTS is not everywhere")?;
            ensure(node.glb_durable_ts <= durable, "3b*: glb_durableTS is not durable everywhere")?;
            ensure(!node.wr_lock, "4b: a WRLock is kept while a node waits")?;
            if node.rd_lock.is_none() {
                ensure(node.value_ts <= volatile, "a read sees what another node has not")?;
                let is_durable = !reads_durable || node.value_ts <= durable;
                ensure(is_durable, "a read sees what is not durable everywhere")?;
                self.read = self.read.max(node.value_ts);
            }
        }
        for told in self.writers.told() {
            let ts = told.returned.unwrap_or(0);
            ensure(ts <= volatile, "a write has returned that is not everywhere")?;
            let is_durable = !(returns_durable || told.persisted) || ts <= durable;
            ensure(is_durable, "what a client was promised is not durable everywhere")?;
        }
        let first = nodes.first();
        if let Some(first) = first.filter(|_| nodes.iter().all(|node| node.rd_lock.is_none())) {
            let same = nodes.iter().all(|node| {
                (node.volatile_ts, node.glb_volatile_ts)
                    == (first.volatile_ts, first.glb_volatile_ts)
            });
            ensure(same, "2a: unlocked, and the timestamps differ")?;
            let same = nodes.iter().all(|node| node.glb_durable_ts == first.glb_durable_ts);
            ensure(!reads_durable || same, "3a: unlocked, and glb_durableTS differs")?;
        }
        Ok(())
    }

    /// Nothing is left to happen but a crash: every write is complete, and whoever has come back
    /// serves.
    ///
    /// # Errors
    /// The first condition that does not hold.
    pub fn check_end(&self) -> Result<(), Broken> {
        let up = self.world.nodes().filter(|node| !self.is_down(*node)).count();
        ensure(self.serving().count() == up, "deadlock: a node that came back does not serve")?;
        let nodes = self.metadata();
        let ends_scopes = self.scope.config.model == Persistency::Scope;
        for (writer, told) in self.scope.writers.iter().zip(self.writers.told()).take(self.begun) {
            if !self.blackout && self.crashed != Some(*writer) {
                ensure(told.returned.is_some(), "deadlock: a write does not return")?;
                ensure(told.persisted || !ends_scopes, "deadlock: a scope does not end")?;
            }
        }
        ensure(nodes.iter().all(|node| node.rd_lock.is_none()), "deadlock: an RDLock is left")?;
        let mut values = self.serving().map(|(_, node)| {
            let mut value = Vec::new();
            (node.read(KEY, &mut value), value)
        });
        let first = values.next();
        ensure(values.all(|value| Some(&value) == first.as_ref()), "replicas differ")?;
        if self.blackout { self.check_recovered(&nodes) } else { Ok(()) }
    }

    /// What each model promises after a crash of everything.
    fn check_recovered(&self, nodes: &[Metadata]) -> Result<(), Broken> {
        let recovered = nodes.iter().map(|node| node.value_ts).min().unwrap_or(0);
        let model = self.scope.config.model;
        let returned = |told: crate::state::Told| told.returned.unwrap_or(0);
        for told in self.writers.told() {
            let promised = match model {
                Persistency::Synch | Persistency::Strict => returned(told),
                Persistency::Scope if told.persisted => returned(told),
                _ => 0,
            };
            ensure(promised <= recovered, "what a client was promised is lost")?;
        }
        let reads_durable = matches!(model, Persistency::Synch | Persistency::Renf);
        ensure(!reads_durable || self.read <= recovered, "what a read has returned is lost")?;
        ensure(self.durable_at_blackout <= recovered, "an older value than a durable one is back")
    }
}

/// Is this an end, from which only crashes lead on?
pub fn is_end(choices: &[Choice]) -> bool {
    let goes_on = |choice: &Choice| {
        !matches!(choice, Choice::Crash(_) | Choice::Return(_) | Choice::Blackout)
    };
    !choices.iter().any(goes_on)
}
