//! What only a SoC can do or hold, and how much of it.

use std::collections::BTreeMap;
use std::ops::Range;

use nicol_core::ids::Side;
use nicol_sim::Profile;
use toml::Spanned;

use super::raw::{Raw, RawAlternative};
use super::{Alternative, Description, Step, Text, Way, Wrong};

/// Why a card is refused whose profile is one queue of packets.
pub const NO_INSIDE: &str = "the inside of its card is not described ([card]); choose \
     bluefield2, connectx6 without a SoC, or a profile like one of them";

/// Data in the SoC's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Its name: what several alternatives keep is there once.
    pub name: String,
    pub bytes: u64,
}

impl Step {
    /// Does it take a core or the memory of a SoC?
    pub const fn needs_soc(&self) -> bool {
        match self {
            Self::Compute { side, .. } => matches!(side, Side::Nic),
            Self::Operation { way, .. } => {
                !matches!(way, Way::Inbound(Side::Host) | Way::Outbound(Side::Host))
            }
        }
    }
}

impl Description {
    /// Does any alternative take a SoC?
    pub fn needs_soc(&self) -> bool {
        let one =
            |one: &Alternative| !one.keeps.is_empty() || one.steps.iter().any(Step::needs_soc);
        self.alternatives.iter().any(one)
    }

    /// Bytes in the SoC's memory if these alternatives are built, by their places.
    pub fn kept_bytes(&self, built: &[usize]) -> u64 {
        let keeps =
            |kept: &&Kept| built.iter().any(|at| self.alternatives[*at].keeps.contains(&kept.name));
        self.soc_memory.iter().filter(keeps).map(|kept| kept.bytes).sum()
    }
}

impl Text<'_> {
    /// The content of the SoC's memory, by name.
    pub(super) fn soc_memory(
        &self,
        raw: Option<&BTreeMap<String, Spanned<String>>>,
        alternatives: &[Spanned<RawAlternative>],
    ) -> Result<Vec<Kept>, Wrong> {
        let mut all = Vec::new();
        for (name, written) in raw.into_iter().flatten() {
            let bytes = self.size_within(name, written, (1, u64::MAX >> 8), "1B or more")?;
            let mut keeps =
                alternatives.iter().flat_map(|one| one.get_ref().keeps.iter().flatten());
            if !keeps.any(|kept| kept.get_ref() == name) {
                let what = format!(
                    "{name}: no alternative keeps it: write keeps = [{name:?}] into one, or leave it out"
                );
                return Err(self.wrong(&written.span(), what));
            }
            all.push(Kept { name: name.clone(), bytes });
        }
        Ok(all)
    }

    /// Refuses what the hardware has no SoC for, and more than its memory holds.
    pub(super) fn check_soc(
        &self,
        raw: &Raw,
        hardware: &Profile,
        description: &Description,
    ) -> Result<(), Wrong> {
        let soc = hardware.card.as_ref().is_some_and(|card| card.soc.is_some());
        let lacks = |at: Range<usize>, part: &str| {
            let what = format!(
                "{part}: {} has no SoC; choose bluefield2 or a profile like it as `hardware`, or leave \
                 this out",
                description.hardware
            );
            Err(self.wrong(&at, what))
        };
        let limit = raw.limits.as_ref().and_then(|limits| limits.soc_cores.as_ref());
        if let Some(cores) = limit.filter(|_| !soc) {
            return lacks(cores.span(), "soc_cores");
        }
        for (at, (raw, one)) in raw.alternative.iter().zip(&description.alternatives).enumerate() {
            let steps = raw.get_ref().steps.iter().zip(&one.steps);
            let mut steps = steps.filter(|(_, step)| step.needs_soc());
            if let Some((step, _)) = steps.next().filter(|_| !soc) {
                return lacks(step.span(), "this step");
            }
            let keeps = raw.get_ref().keeps.as_deref().unwrap_or_default();
            if let Some(first) = keeps.first().filter(|_| !soc) {
                return lacks(first.span(), "keeps");
            }
            self.check_kept(keeps, at, hardware, description)?;
        }
        Ok(())
    }

    /// Refuses names of nothing that is kept, and more than the SoC's memory holds.
    fn check_kept(
        &self,
        keeps: &[Spanned<String>],
        at: usize,
        hardware: &Profile,
        description: &Description,
    ) -> Result<(), Wrong> {
        let there = hardware.cores.nic_memory.value.0;
        for kept in keeps {
            let name = kept.get_ref();
            if !description.soc_memory.iter().any(|one| one.name == *name) {
                let what = format!(
                    "keeps = [{name:?}]: say in [soc_memory] how large it is, such as {name} = \"4GB\""
                );
                return Err(self.wrong(&kept.span(), what));
            }
        }
        let kept = description.kept_bytes(&[at]);
        match keeps.first().filter(|_| kept > there) {
            None => Ok(()),
            Some(first) => {
                let what = format!(
                    "keeps: {} are more than the {} of {}'s SoC: keep less",
                    gigabytes(kept),
                    gigabytes(there),
                    description.hardware
                );
                Err(self.wrong(&first.span(), what))
            }
        }
    }
}

/// Bytes in words.
pub fn gigabytes(bytes: u64) -> String {
    format!("{:.1} GB", bytes as f64 / 1e9)
}
