//! The values of a profile one by one, for listings.

use nicol_core::units::{BitsPerSec, Bytes, Picos};
use serde::Deserialize;

use super::sourced::{Quantity, RawValue};

/// A value that no source gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assumption {
    pub key: String,
    /// The value as written.
    pub value: String,
    /// Why it was chosen.
    pub reason: String,
}

/// A value with its key and its origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stated {
    pub key: String,
    pub value: Measured,
    /// The value as written.
    pub written: String,
    /// A line of the calibration list, a paper, a data sheet, or `assumed`.
    pub source: String,
    /// Why, where the source does not say it.
    pub reason: Option<String>,
}

/// The exact value of a profile's entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measured {
    Flag(bool),
    /// A number without a unit.
    Count(u64),
    Time(Picos),
    Size(Bytes),
    Rate(BitsPerSec),
}

impl Measured {
    /// Units have no ending in common, so that a value is of one kind only.
    fn read(raw: &RawValue) -> Option<Self> {
        (bool::read(raw).map(Self::Flag))
            .or_else(|| u64::read(raw).map(Self::Count))
            .or_else(|| Picos::read(raw).map(Self::Time))
            .or_else(|| BitsPerSec::read(raw).map(Self::Rate))
            .or_else(|| Bytes::read(raw).map(Self::Size))
    }
}

impl Stated {
    /// The value as an assumption, if it is one.
    pub(super) fn assumed(&self) -> Option<Assumption> {
        let reason = self.reason.clone().unwrap_or_default();
        (self.source == "assumed").then(|| Assumption {
            key: self.key.clone(),
            value: self.written.clone(),
            reason,
        })
    }
}

/// An entry of a section.
#[derive(Deserialize)]
struct Entry {
    value: RawValue,
    source: String,
    reason: Option<String>,
}

/// Lists the values of `table`, which are those of a profile, `into`.
///
/// Errors: an entry that is not a value of a profile.
pub(super) fn collect(
    prefix: &str,
    table: &toml::Table,
    into: &mut Vec<Stated>,
) -> Result<(), toml::de::Error> {
    for (key, entry) in table {
        let toml::Value::Table(inner) = entry else { continue };
        let key = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
        let Some(value) = inner.get("value") else {
            collect(&key, inner, into)?;
            continue;
        };
        let written = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let Entry { value, source, reason } = inner.clone().try_into()?;
        // The profile has been read, and with it this value.
        let Some(value) = Measured::read(&value) else { continue };
        into.push(Stated { key, value, written, source, reason });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Profile;

    #[test]
    fn every_value_is_listed_exactly_with_its_origin() {
        let profile = Profile::load("liquidio3").unwrap();
        let (_, text) = Profile::source("liquidio3").unwrap();
        let written = text.lines().filter(|line| line.contains("{ value =")).count();
        assert_eq!(profile.stated().len(), written, "each line is listed once");
        let of = |key: &str| profile.stated().iter().find(|line| line.key == key).unwrap();
        assert_eq!(of("link.rate").value, Measured::Rate(profile.link.rate.value));
        assert_eq!(of("dma.submit").value, Measured::Time(profile.dma.submit.value));
        assert_eq!(
            of("link.packet_payload").value,
            Measured::Size(profile.link.packet_payload.value)
        );
        assert_eq!(of("dma.queues").value, Measured::Count(profile.dma.queues.value));
        assert_eq!(of("cores.on_path").value, Measured::Flag(profile.cores.on_path.value));
        assert_eq!(of("dma.submit").source, profile.dma.submit.source);
    }
}
