//! Errors of the laboratory in the notation of the command line.
//!
//! The laboratory names fields and settings between backticks. The command writes a field as its
//! flag and a setting as `--set key=value`.

use nicol_lab::refused::FIELDS;

/// What `error` and its causes say, in flags.
pub fn told(error: &anyhow::Error) -> String {
    in_flags(&format!("{error:#}"))
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
