//! `nicol profiles`: the hardware models, and how close they are to what was published.

use std::sync::Arc;

use anyhow::Result;
use nicol_core::ids::Side;
use nicol_sim::Profile;
use nicol_sim::checks::{self, CheckLine};
use serde_json::{Value, json};

use crate::cli::{Format, FormatArgs, ProfilesAction, ProfilesArgs};
use crate::{End, Usage, output};

/// Runs the chosen action.
pub fn run(args: &ProfilesArgs) -> Result<End> {
    match &args.action {
        ProfilesAction::List(args) => list(args),
        ProfilesAction::Show { name } => show(name),
        ProfilesAction::Check { name, format } => check(name.as_deref(), *format),
    }
}

fn load(name: &str) -> Result<Arc<Profile>> {
    Profile::load(name).map(Arc::new).map_err(|error| Usage(error.into()).into())
}

fn list(args: &FormatArgs) -> Result<End> {
    let mut rows = Vec::new();
    for name in Profile::list() {
        let profile = load(name)?;
        rows.push(json!({
            "profile": name,
            "host_engines": profile.engines(Side::Host),
            "nic_engines": profile.engines(Side::Nic),
            "assumed_values": profile.assumed().len(),
        }));
    }
    output::rows(args.format, &rows, |rows| json!({"schema": "nicol.profiles/1", "rows": rows}))?;
    Ok(End::Held)
}

fn show(name: &str) -> Result<End> {
    let (_, text) = Profile::source(name).map_err(|error| Usage(error.into()))?;
    output::print(&text).map(|()| End::Held)
}

fn check(name: Option<&str>, format: Format) -> Result<End> {
    let names = match name {
        Some(name) => vec![name],
        None => Profile::list(),
    };
    let mut rows = Vec::new();
    let mut assumed = Vec::new();
    for name in names {
        let profile = load(name)?;
        let lines = checks::run(&profile).map_err(|error| Usage(error.into()))?;
        rows.extend(lines.iter().map(|line| row(&profile.name, line)));
        assumed.extend(profile.assumed().iter().map(|assumption| {
            json!({
                "profile": profile.name,
                "key": assumption.key,
                "value": assumption.value,
                "reason": assumption.reason,
            })
        }));
    }
    output::rows(
        format,
        &rows,
        |rows| json!({"schema": "nicol.profiles/1", "rows": rows, "assumed": assumed}),
    )?;
    Ok(End::Held)
}

fn row(profile: &str, line: &CheckLine) -> Value {
    let (low, high) = line.published;
    let published = if low == high { json!(low) } else { json!(format!("{low} to {high}")) };
    json!({
        "profile": profile,
        "line": line.line,
        "what": line.what,
        "published": published,
        "measured": (line.measured * 1_000.0).round() / 1_000.0,
        "unit": line.unit,
        "relative_error": (line.relative_error * 10_000.0).round() / 10_000.0,
        "assumed": line.assumed,
        "note": line.note,
    })
}
