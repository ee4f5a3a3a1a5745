//! Profiles with a value changed: `NAME:section.key=value`, for what-if questions.

use super::ProfileError;

/// Splits `NAME:section.key=value:...` into the name and the values to change. `None` if `spec` is
/// only a name or a path, which may have colons itself.
pub(super) fn split(spec: &str) -> Option<(&str, impl Iterator<Item = &str>)> {
    let (before, _) = spec.split_once('=')?;
    let (base, _) = before.rsplit_once(':')?;
    Some((base, spec[base.len() + 1..].split(':')))
}

/// The text of a profile with `changes` applied. A changed value counts as assumed, and its reason
/// says what it replaced.
pub(super) fn apply<'a>(
    spec: &str,
    text: &str,
    changes: impl Iterator<Item = &'a str>,
) -> Result<String, ProfileError> {
    let invalid = |key: &str, what: &str| ProfileError::Invalid {
        file: spec.into(),
        line: None,
        key: key.into(),
        what: what.into(),
    };
    let mut table: toml::Table =
        toml::from_str(text).map_err(|error| invalid("the base profile", error.message()))?;
    for change in changes {
        let (path, value) =
            change.split_once('=').ok_or_else(|| invalid(change, "write section.key=value"))?;
        let sourced = path
            .split('.')
            .try_fold(&mut table, |section, key| section.get_mut(key)?.as_table_mut())
            .filter(|sourced| sourced.contains_key("value"))
            .ok_or_else(|| invalid(path, "no such value: write section.key as in the profile"))?;
        let replaced = sourced.get("value").map_or_else(String::new, ToString::to_string);
        let value = match sourced.get("value") {
            Some(toml::Value::Integer(_)) => value.parse().map(toml::Value::Integer).ok(),
            Some(toml::Value::Boolean(_)) => value.parse().map(toml::Value::Boolean).ok(),
            _ => None,
        }
        .unwrap_or_else(|| value.into());
        sourced.insert("value".into(), value);
        sourced.insert("source".into(), "assumed".into());
        sourced.insert("reason".into(), format!("what if it were not {replaced}").into());
    }
    table.insert("name".into(), spec.into());
    toml::to_string(&table).map_err(|error| invalid("the base profile", &error.to_string()))
}

#[cfg(test)]
mod tests {
    use nicol_core::units::BitsPerSec;

    use crate::Profile;

    #[test]
    fn a_changed_value_is_used_named_and_listed_as_assumed() {
        let plain = Profile::load("liquidio3").unwrap();
        let changed = Profile::load("liquidio3:link.rate=50Gbps:dma.queues=4").unwrap();
        assert_eq!(changed.link.rate.value, BitsPerSec::from_gbps(50));
        assert_eq!(changed.dma.queues.value, 4);
        assert_eq!(changed.pcie.rate, plain.pcie.rate);
        assert_eq!(changed.name, "liquidio3:link.rate=50Gbps:dma.queues=4");
        assert_eq!(changed.assumed().len(), plain.assumed().len() + 2);
        let rate = changed.assumed().iter().find(|line| line.key == "link.rate").unwrap();
        assert_eq!(rate.reason, "what if it were not \"100Gbps\"");
    }

    #[test]
    fn a_copy_of_a_profile_is_not_named_as_its_original() {
        let (_, text) = Profile::source("liquidio3").unwrap();
        let file = format!("nicol-copied-profile-{}.toml", std::process::id());
        let path = std::env::temp_dir().join(file);
        std::fs::write(&path, text).unwrap();
        let named = path.display().to_string();
        let changed = format!("{named}:dma.queues=4");
        for spec in [&named, &changed] {
            assert_eq!(&Profile::load(spec).unwrap().name, spec);
        }
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_path_may_have_colons_before_its_changes() {
        let split = |spec| super::split(spec).map(|(base, changes)| (base, changes.collect()));
        let changes = vec!["link.rate=50Gbps", "dma.queues=4"];
        let spec = "a/my:card.toml:link.rate=50Gbps:dma.queues=4";
        assert_eq!(split(spec), Some(("a/my:card.toml", changes)));
        for plain in ["a/my:card.toml", "a=b/card.toml", "liquidio3"] {
            assert_eq!(split(plain), None, "{plain}");
        }
    }

    #[test]
    fn a_wrong_change_says_what_to_write() {
        for (spec, wanted) in [
            ("liquidio3:link.speed=50Gbps", "link.speed: no such value"),
            ("liquidio3:rate=50Gbps", "liquidio3:rate=50Gbps: rate: no such value"),
            ("liquidio3:link.rate=50", "cannot read \"50\": write a rate above zero with its unit"),
            ("liquidio3:dma.queues=many", "write a whole number"),
            ("liquidio4:dma.queues=4", "no profile \"liquidio4\""),
        ] {
            let error = Profile::load(spec).unwrap_err().to_string();
            assert!(error.contains(wanted), "{spec}: {error}");
        }
    }
}
