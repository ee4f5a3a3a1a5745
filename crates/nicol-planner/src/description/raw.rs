//! A description as its file has it: every key, and where it stands.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::Spanned;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Raw {
    pub(super) name: Spanned<String>,
    pub(super) hardware: Option<Spanned<String>>,
    pub(super) clients: Option<Spanned<String>>,
    pub(super) bytes: Option<Spanned<String>>,
    pub(super) criteria: Option<Spanned<Vec<Spanned<String>>>>,
    pub(super) limits: Option<RawLimits>,
    /// Sizes by name.
    pub(super) soc_memory: Option<BTreeMap<String, Spanned<String>>>,
    pub(super) mitigations: Option<RawMitigations>,
    #[serde(default)]
    pub(super) alternative: Vec<Spanned<RawAlternative>>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawLimits {
    pub(super) host_cores: Option<Spanned<u64>>,
    pub(super) soc_cores: Option<Spanned<u64>>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawMitigations {
    pub(super) replicate_hot: Option<Spanned<u64>>,
    pub(super) segment: Option<Spanned<String>>,
    pub(super) doorbell_batch: Option<Spanned<u64>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawAlternative {
    pub(super) name: Spanned<String>,
    #[serde(default)]
    pub(super) summary: String,
    pub(super) share_max: Option<Spanned<f64>>,
    pub(super) keeps: Option<Vec<Spanned<String>>>,
    pub(super) steps: Vec<Spanned<RawStep>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawStep {
    pub(super) path: Option<Spanned<String>>,
    pub(super) verb: Option<Spanned<String>>,
    pub(super) bytes: Option<Spanned<String>>,
    pub(super) reply: Option<Spanned<String>>,
    pub(super) count: Option<Spanned<f64>>,
    pub(super) range: Option<Spanned<String>>,
    pub(super) core: Option<Spanned<String>>,
    pub(super) time: Option<Spanned<String>>,
}

/// The remedy for an error of TOML about a type.
pub(super) fn remedy(message: &str) -> &'static str {
    const REMEDIES: [(&str, &str); 4] = [
        ("expected a sequence", ": write a list, such as [\"throughput\"]"),
        ("expected a string", ": write it in quotes, such as \"64B\""),
        ("expected f64", ": write a number, such as 0.5"),
        ("expected u64", ": write a whole number, such as 8"),
    ];
    let found = REMEDIES.iter().find(|(wanted, _)| message.ends_with(wanted));
    found.map_or("", |(_, remedy)| remedy)
}
