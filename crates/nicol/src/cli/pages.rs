//! Help in three sizes: a line for each flag (`-h`), two screens (`--help`), and everything
//! (`nicol help COMMAND [GROUP]`).

use anyhow::{Result, anyhow};
use clap::{Arg, Command};

/// The columns for which the pages are made.
const COLUMNS: usize = 100;
/// Lines of a page: two screens.
const LINES_MAX: usize = 100;

/// The groups of flags that have one: each with its heading, and the ids of its flags.
const GROUPS: [(&str, &[&str]); 6] = [
    (
        "Cluster",
        &[
            "system",
            "nodes",
            "replicas",
            "settings",
            "on",
            "client_nodes",
            "threads",
            "host_engines",
            "nic_engines",
            "log_device",
            "log_bytes",
            "turn_us",
            "config",
        ],
    ),
    (
        "Load",
        &[
            "clients",
            "seconds",
            "transactions",
            "warmup",
            "rate",
            "adaptive_window",
            "seed",
            "seeds",
            "jobs",
        ],
    ),
    ("Faults", &["faults", "fault_plan", "lease_ms", "stuck_after", "shrink", "require_coverage"]),
    (
        "Output",
        &[
            "history",
            "histories",
            "no_recorded_run",
            "decisions",
            "steps",
            "trace",
            "trace_limit",
            "trace_from",
            "trace_until",
            "format",
            "log",
            "log_format",
        ],
    ),
    (
        "Clients",
        &[
            "listen",
            "password",
            "acl_file",
            "tls_cert_file",
            "tls_key_file",
            "tls_ca_cert_file",
            "tls_auth_clients",
            "max_clients",
            "transaction_ms",
        ],
    ),
    (
        "Memory",
        &["max_memory", "max_memory_policy", "max_memory_samples", "max_client_memory", "records"],
    ),
];
/// The heading of what no other group of a command with a workload has.
const WORKLOAD: &str = "Workload";

/// How much a page tells of each flag.
#[derive(Clone, Copy)]
enum Form {
    /// All of it.
    Whole,
    /// The first sentence, with the default.
    Sentence,
    /// What fits into the flag's line; what is cut ends in an ellipsis.
    Line,
}

/// The command with its flags in groups, and with the texts that the page wants for which the
/// process was called.
pub fn fit(command: Command) -> Command {
    let asked = |wanted: &str| std::env::args_os().any(|word| word == wanted);
    let grouped = grouped(command);
    if asked("-h") {
        line_by_line(grouped)
    } else if asked("--help") {
        two_screens(grouped)
    } else {
        grouped.mut_subcommands(fit)
    }
}

/// The whole help of the command that `words` name, or of one group of its flags.
pub fn explain(mut root: Command, words: &[String]) -> Result<String> {
    root.build();
    let mut command = &mut root;
    for word in words {
        if command.find_subcommand(word).is_some() {
            command = command.find_subcommand_mut(word).expect("it was found");
            continue;
        }
        let mut headings: Vec<_> =
            command.get_arguments().filter_map(|arg| arg.get_help_heading()).collect();
        headings.sort_unstable();
        headings.dedup();
        let Some(heading) = headings.iter().find(|known| known.eq_ignore_ascii_case(word)) else {
            let commands = command.get_subcommands().map(Command::get_name);
            let known: Vec<_> = commands.chain(headings).map(str::to_lowercase).collect();
            return Err(anyhow!("help {word}: there are {}", known.join(", ")));
        };
        let heading = (*heading).to_owned();
        let others = |arg: Arg| {
            let of_it = arg.get_help_heading() == Some(heading.as_str());
            arg.hide(!of_it)
        };
        *command = std::mem::take(command).mut_args(others);
    }
    Ok(command.render_long_help().to_string())
}

fn grouped(command: Command) -> Command {
    let has_workload = command.get_arguments().any(|arg| arg.get_id() == "on");
    let is_server = command.get_arguments().any(|arg| arg.get_id() == "listen");
    if !has_workload && !is_server {
        return command;
    }
    let rest = if has_workload { WORKLOAD } else { "Cluster" };
    command.mut_args(|arg| {
        let group = GROUPS.iter().find(|(_, ids)| ids.contains(&arg.get_id().as_str()));
        match group {
            _ if arg.is_positional() => arg,
            // Of a workload's records: how many there are, not what memory they may take.
            _ if has_workload && arg.get_id() == "records" => arg.help_heading(WORKLOAD),
            Some((heading, _)) => arg.help_heading(*heading),
            None => arg.help_heading(rest),
        }
    })
}

/// As much of every flag as the command's page has room for.
fn two_screens(command: Command) -> Command {
    let command = command.mut_subcommands(|command| two_screens(grouped(command)));
    let whole = told(command.clone(), Form::Whole);
    if lines(&whole) <= LINES_MAX {
        return whole;
    }
    let command = with_remedy(command);
    let sentences = told(command.clone(), Form::Sentence);
    if lines(&sentences) <= LINES_MAX { sentences } else { told(command, Form::Line) }
}

/// The command, whose page ends with how to see what it leaves out.
fn with_remedy(command: Command) -> Command {
    let name = command.get_name();
    let group = command.get_arguments().find_map(|arg| arg.get_help_heading());
    let group = group.map(|group| format!(", or `nicol help {name} {}`", group.to_lowercase()));
    let remedy = format!("All about each flag: `nicol help {name}`{}", group.unwrap_or_default());
    let rest = command.get_after_help().map(|rest| format!("\n\n{rest}")).unwrap_or_default();
    command.after_help(format!("{remedy}{rest}"))
}

fn line_by_line(command: Command) -> Command {
    let command = told(command, Form::Line).after_help("All of it: --help");
    command.mut_subcommands(|command| line_by_line(grouped(command)))
}

fn lines(command: &Command) -> usize {
    command.clone().term_width(COLUMNS).render_help().to_string().lines().count()
}

/// The command with so much of each flag. No flag has a text for `--help` only, and values have
/// none of their own: clap would give every flag a paragraph.
fn told(command: Command, form: Form) -> Command {
    let longest = command.get_arguments().map(|arg| name(arg).chars().count()).max();
    // Clap indents a flag by 6 columns, and its text by 2 more.
    let room = COLUMNS - 8 - longest.unwrap_or_default();
    command.mut_args(|arg| {
        let text = arg.get_help().map(ToString::to_string).unwrap_or_default();
        let values: Vec<_> = arg.get_possible_values();
        let values: Vec<_> = values.iter().map(|value| value.get_name()).collect();
        let text = match form {
            // What a command is given has no other place that lists the choices.
            _ if arg.is_positional() => text,
            Form::Whole => text,
            Form::Sentence => sentence(&text),
            Form::Line => line(&text, room),
        };
        let is_line = matches!(form, Form::Line);
        if !arg.get_action().takes_values() {
            return arg.help(text);
        }
        let arg = arg.hide_possible_values(true);
        match values.as_slice() {
            [] | ["true", "false"] => arg.help(text),
            _ if is_line => arg.help(text),
            values => arg.help(format!("{text} [{}]", values.join(", "))),
        }
        .hide_env(is_line)
        .hide_default_value(is_line)
    })
}

/// What stands for the flag in its line.
fn name(arg: &Arg) -> String {
    let values = arg.get_value_names().unwrap_or_default();
    let values = values.iter().map(|value| format!(" <{value}>"));
    let long = arg.get_long().map(|long| format!("--{long}"));
    let takes = arg.get_action().takes_values();
    let unnamed = arg.get_value_names().is_none() && takes;
    let unnamed = unnamed.then(|| format!(" <{}>", arg.get_id().as_str().to_uppercase()));
    long.into_iter().chain(values.filter(|_| takes)).chain(unnamed).collect()
}

/// The first sentence of `text`, with the default that stands at the end of another one.
fn sentence(text: &str) -> String {
    let (text, default) = match text.rfind(" [default") {
        Some(at) => text.split_at(at),
        None => (text, ""),
    };
    let first = text.split_once(". ").map_or(text, |(first, _)| first);
    // One that stands in the first sentence's middle is kept as it is.
    let default = if default.ends_with(']') { default } else { "" };
    format!("{first}{default}")
}

/// As many clauses of `text`, from its begin, as have room.
fn line(text: &str, room: usize) -> String {
    let ends = [". ", "; ", ": ", ", ", " ("].map(|end| text.match_indices(end));
    let ends = ends.into_iter().flatten().map(|(at, _)| at);
    let plain = text.find(" [").unwrap_or(text.len());
    let clauses = ends.chain([plain]).filter(|at| *at <= plain).map(|at| &text[..at]);
    let balanced = |clause: &&str| clause.matches('(').count() == clause.matches(')').count();
    let fits = clauses.filter(balanced).filter(|clause| clause.chars().count() <= room);
    match fits.max_by_key(|clause| clause.len()) {
        Some(clause) => clause.to_owned(),
        None => text.chars().take(room - 1).chain(['…']).collect(),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::cli::Cli;

    /// Every command below `root`, itself included: its name, its long flags, and what it prints
    /// for the flag `asked`.
    fn all(root: &Command, asked: &str) -> Vec<(String, Vec<String>, String)> {
        let (mut pages, mut open) = (Vec::new(), vec![vec!["nicol".to_owned()]]);
        while let Some(path) = open.pop() {
            let mut command = root;
            for name in &path[1..] {
                command = command.find_subcommand(name).unwrap();
            }
            let below = command.get_subcommands().map(Command::get_name);
            open.extend(below.map(|name| [&path[..], &[name.to_owned()]].concat()));
            let words = path.iter().map(String::as_str).chain([asked]);
            let root = root.clone().term_width(COLUMNS);
            let page = root.try_get_matches_from(words).unwrap_err().to_string();
            let flags = command.get_arguments().filter_map(Arg::get_long).map(str::to_owned);
            pages.push((path.join(" "), flags.collect(), page));
        }
        pages
    }

    #[test]
    fn every_help_fits_two_screens_and_shows_every_flag() {
        for (name, flags, page) in all(&two_screens(Cli::command()), "--help") {
            assert!(page.lines().count() <= LINES_MAX, "{name}: {}\n{page}", page.lines().count());
            assert!(page.lines().all(|line| line.chars().count() <= COLUMNS), "{name}\n{page}");
            for flag in flags {
                assert!(page.contains(&format!("--{flag}")), "{name}: --{flag}");
            }
        }
    }

    #[test]
    fn the_short_help_is_a_line_for_each_flag() {
        for (name, flags, page) in all(&line_by_line(Cli::command()), "-h") {
            for flag in flags {
                let line = page.lines().find(|line| line.contains(&format!("--{flag}")));
                let words = line.unwrap_or_default().split_whitespace().count();
                assert!(words > 2, "{name}: --{flag} has no text in its line\n{page}");
            }
        }
    }

    #[test]
    fn a_group_is_explained_in_full_and_alone() {
        let words = |words: &str| words.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let load = explain(Cli::command(), &words("bench load")).unwrap();
        assert!(load.contains("--rate") && !load.contains("--faults"), "{load}");
        let whole = explain(Cli::command(), &words("bench")).unwrap();
        assert!(whole.contains("intended start") && whole.contains("Faults:"), "{whole}");
        let error = explain(Cli::command(), &words("bench cluser")).unwrap_err().to_string();
        assert!(error.contains("cluster") && error.contains("workload"), "{error}");
    }
}
