//! What may be set in how servers recycle buffers.

use anyhow::{Result, bail};
use nicol_core::units::Nanos;
use nicol_prism::{Reclaim, Recycling};

use crate::settings::{Setting, number, refuse_idle};

pub(super) const WATERMARK: Setting =
    ("watermark", "off|0..2^24", "buffers below which a free list is refilled; off: at once");
pub(super) const REFILL: Setting =
    ("refill_us", "1..1000000", "how often a server looks at its free lists");
pub(super) const RECLAIM: Setting =
    ("reclaim", "reports|scan", "who finds unused buffers: clients, or a scan of the table");

/// Refuses a time of the daemon where there is none.
///
/// # Errors
/// The setting, why, and the remedy.
pub(super) fn check(recycling: &Recycling, settings: &[String]) -> Result<()> {
    if recycling.watermark.is_some() || recycling.reclaim == Reclaim::Scan {
        return Ok(());
    }
    let why = "nobody looks at free lists now and then with watermark=off and reclaim=reports: what \
               clients report is free at once";
    refuse_idle(settings, &["refill_us"], why)
}

/// Sets one of these.
pub(super) fn set(recycling: &mut Recycling, key: &str, value: &str) -> Result<()> {
    match (key, value) {
        ("watermark", "off") => recycling.watermark = None,
        ("watermark", _) => recycling.watermark = Some(number(value, 0, 1 << 24)? as u32),
        ("refill_us", _) => recycling.every = Nanos::from_micros(number(value, 1, 1_000_000)?),
        ("reclaim", "reports") => recycling.reclaim = Reclaim::Reports,
        ("reclaim", "scan") => recycling.reclaim = Reclaim::Scan,
        ("reclaim", _) => bail!("'{value}': choose reports or scan"),
        _ => unreachable!("{key} is not among the keys"),
    }
    Ok(())
}
