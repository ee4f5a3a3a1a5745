//! Errors of the laboratory in the notation of the command line.
//!
//! The laboratory names fields and settings between backticks. The command writes a field as its
//! flag and a setting as `--set key=value`.

use std::error::Error;

use nicol_bench::refused::FIELDS;
use nicol_planner::Wrong;
use nicol_sim::profile::ProfileError;

/// What `error` and its causes say, in flags. Fields of a file stand between quotes.
pub fn told(error: &anyhow::Error) -> String {
    let causes = error.chain().map(|cause| match is_about_a_file(cause) {
        true => cause.to_string().replace('`', "'"),
        false => in_flags(&cause.to_string()),
    });
    causes.collect::<Vec<_>>().join(": ")
}

/// Whether the names in what `cause` says are fields of a file.
fn is_about_a_file(cause: &(dyn Error + 'static)) -> bool {
    cause.is::<serde_json::Error>()
        || cause.is::<toml::de::Error>()
        || cause.is::<ProfileError>()
        || cause.is::<Wrong>()
}

/// `text`, where a field or a setting between backticks is written as it is given.
pub fn in_flags(text: &str) -> String {
    let mut parts = text.split('`');
    let mut written = parts.next().unwrap_or_default().to_owned();
    while let Some(quoted) = parts.next() {
        let Some(after) = parts.next() else {
            // A backtick that nothing closes.
            return written + "`" + quoted;
        };
        written += &flag(quoted).unwrap_or_else(|| format!("`{quoted}`"));
        written += after;
    }
    written
}

/// The flag of a field, or of a setting with or without its value; `None` of other text.
fn flag(name: &str) -> Option<String> {
    if name == "settings" {
        return Some("--set".to_owned());
    }
    if FIELDS.contains(&name) {
        return Some(format!("--{}", name.replace('_', "-")));
    }
    let key = name.split('=').next().unwrap_or_default();
    let is_key = |one: char| one.is_ascii_lowercase() || one.is_ascii_digit() || one == '_';
    let is_setting = !key.is_empty() && key.chars().all(is_key);
    is_setting.then(|| format!("--set {name}"))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;
    use nicol_core::faults::FaultPlan;
    use nicol_planner::Description;

    use super::*;
    use crate::cli::Cli;

    #[test]
    fn fields_are_written_as_flags_and_settings_as_settings() {
        let told =
            in_flags("`client_nodes` 3: too many; give `log=on`, or drop `entries` of `a b`");
        assert_eq!(
            told,
            "--client-nodes 3: too many; give --set log=on, or drop --set entries of `a b`"
        );
        assert_eq!(in_flags("it's `open"), "it's `open");
        assert_eq!(in_flags("nothing"), "nothing");
    }

    #[test]
    fn a_field_of_a_file_is_named_as_the_file_has_it() {
        let wrong = |error: anyhow::Error| told(&error.context("reading `system`"));
        let profile = ProfileError::Invalid {
            file: "mine.toml".into(),
            line: Some(1),
            key: "clients".into(),
            what: "unknown field `clients`".into(),
        };
        assert!(wrong(profile.into()).ends_with("unknown field 'clients'"));
        let plan = Description::parse("plan.toml", "nodes = 1").unwrap_err();
        assert!(wrong(plan.into()).contains("unknown field 'nodes'"));
        let json = serde_json::from_str::<FaultPlan>(r#"{"from": 1}"#).unwrap_err();
        let told = wrong(json.into());
        assert!(told.starts_with("reading --system: unknown field 'from'"), "{told}");
    }

    fn is_flag(command: &clap::Command, flag: &str) -> bool {
        command.get_arguments().any(|argument| argument.get_long() == Some(flag))
            || command.get_subcommands().any(|command| is_flag(command, flag))
    }

    #[test]
    fn every_field_is_a_flag() {
        let command = Cli::command();
        for field in FIELDS {
            let flag = field.replace('_', "-");
            assert!(is_flag(&command, &flag), "--{flag}");
        }
    }
}
