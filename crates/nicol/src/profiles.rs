//! `nicol profiles`: the hardware models, and how close they are to what was published.

use std::sync::Arc;

use anyhow::Result;
use nicol_core::ids::Side;
use nicol_sim::Profile;
use nicol_sim::checks::{self, CheckLine};
use nicol_sim::profile::Measured;
use serde_json::{Value, json};

use crate::cli::{Format, FormatArgs, ProfilesAction, ProfilesArgs};
use crate::{End, Usage, environment_or_usage, output};

/// Runs the chosen action.
pub fn run(args: &ProfilesArgs) -> Result<End> {
    match &args.action {
        ProfilesAction::List(args) => list(args),
        ProfilesAction::Show { name, format } => show(name, *format),
        ProfilesAction::Check { name, format } => check(name.as_deref(), *format),
    }
}

fn load(name: &str) -> Result<Arc<Profile>> {
    Profile::load(name).map(Arc::new).map_err(|error| environment_or_usage(error.into()))
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

/// For people, the file as it is; else its values, in rows.
fn show(name: &str, format: Format) -> Result<End> {
    let profile = load(name)?;
    if format == Format::Table {
        let (_, text) =
            Profile::source(name).map_err(|error| environment_or_usage(error.into()))?;
        return output::print(&text).map(|()| End::Held);
    }
    let rows: Vec<_> = profile
        .stated()
        .iter()
        .map(|line| {
            let (unit, value) = match line.value {
                Measured::Flag(flag) => ("", json!(flag)),
                Measured::Count(count) => ("", json!(count)),
                Measured::Time(time) => ("_ps", json!(time.0)),
                Measured::Size(size) => ("_bytes", json!(size.0)),
                Measured::Rate(rate) => ("_bits_per_s", json!(rate.0)),
            };
            json!({
                "profile": profile.name,
                "key": line.key,
                "name": format!("{}{unit}", line.key),
                "value": value,
                "source": line.source,
                "reason": line.reason.as_deref().unwrap_or_default(),
            })
        })
        .collect();
    let summary = &profile.summary;
    output::rows(
        format,
        &rows,
        |rows| json!({"schema": "nicol.profile/1", "profile": profile.name, "summary": summary, "rows": rows}),
    )?;
    Ok(End::Held)
}

fn check(name: Option<&str>, format: Format) -> Result<End> {
    let names = match name {
        Some(name) => vec![name],
        None => Profile::list(),
    };
    let mut all = Vec::new();
    let mut assumed = Vec::new();
    for name in names {
        let profile = load(name)?;
        let lines = checks::run(&profile).map_err(|error| Usage(error.into()))?;
        all.extend(lines.into_iter().map(|line| (profile.name.clone(), line)));
        assumed.extend(profile.assumed().iter().map(|assumption| {
            json!({
                "profile": profile.name,
                "key": assumption.key,
                "value": assumption.value,
                "reason": assumption.reason,
            })
        }));
    }
    if format == Format::Table {
        people(&all)?;
    } else {
        let rows: Vec<_> = all.iter().map(|(profile, line)| row(profile, line)).collect();
        output::rows(
            format,
            &rows,
            |rows| json!({"schema": "nicol.profiles.check/1", "rows": rows, "assumed": assumed}),
        )?;
    }
    let held = all.iter().all(|(_, line)| line.holds());
    Ok(if held { End::Held } else { End::Failed })
}

/// A table whose notes stand below it, and how many lines hold.
fn people(all: &[(String, CheckLine)]) -> Result<()> {
    let mut notes: Vec<&str> = Vec::new();
    let mut rows = Vec::new();
    for (profile, line) in all {
        let known = notes.iter().position(|note| *note == line.note);
        let note = (!line.note.is_empty()).then(|| {
            known.unwrap_or_else(|| {
                notes.push(line.note);
                notes.len() - 1
            }) + 1
        });
        let verdict = match (line.is_close(), line.contradicted) {
            (true, _) if line.arithmetic => "holds (arithmetic)",
            (true, _) if line.fitted => "holds (fitted)",
            (true, _) if line.assumed => "holds (assumed)",
            (true, _) => "holds",
            (false, true) => "contradicted",
            (false, false) => "FAILS",
        };
        let yes_no = |value: f64| if value == 1.0 { "yes" } else { "no" }.to_owned();
        let value = |value: f64| {
            if line.unit == "holds" { yes_no(value) } else { format!("{value:.1} {}", line.unit) }
        };
        let off = match line.unit {
            "holds" => String::new(),
            _ => format!("{:+.1} %", line.relative_error * 100.0),
        };
        let (low, high) = line.published;
        let published =
            if low == high { value(low) } else { format!("{low:.1} to {}", value(high)) };
        rows.push(vec![
            json!(profile),
            json!(line.line),
            json!(line.what),
            json!(published),
            json!(value(line.measured)),
            json!(off),
            json!(verdict),
            json!(note),
        ]);
    }
    let columns = ["profile", "line", "what", "published", "model", "off by", "verdict", "note"];
    output::cells(&columns, &rows)?;
    let mut below: String =
        notes.iter().enumerate().map(|(at, note)| format!("note {}: {note}\n", at + 1)).collect();
    let (within, others) = (checks::TOLERANCE * 100.0, all.len());
    let close = all.iter().filter(|(_, line)| line.is_close()).count();
    let fitted = all.iter().filter(|(_, line)| line.is_close() && line.fitted).count();
    let contradicted = all.iter().filter(|(_, line)| !line.is_close() && line.contradicted).count();
    below += &format!(
        "{close} of {others} lines are within {within:.0} %, {fitted} of them because the profile is fitted \
         to them; {contradicted} contradict other published values; {} fail\n",
        others - close - contradicted
    );
    output::print(&below)
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
        "fitted": line.fitted,
        "arithmetic": line.arithmetic,
        "holds": line.holds(),
        "note": line.note,
    })
}
