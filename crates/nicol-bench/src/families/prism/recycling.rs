//! What may be set in how servers recycle buffers.

use anyhow::Result;
use nicol_prism::{Reclaim, Recycling};

use crate::settings::{Setting, micros, numbers_as, refuse_idle, words};

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

/// The settings, in a configuration of which `part` is the recycling.
pub(super) fn settings<C: 'static>(
    part: fn(&mut C) -> &mut Recycling,
) -> impl Iterator<Item = Setting<C>> {
    let below = numbers_as(
        0..=1 << 24,
        |buffers| Some(Some(buffers as u32)),
        |watermark| watermark.map(u64::from),
    );
    let settings = [
        Setting::new("watermark", words([("off", None)]).or(below), |to: &mut Recycling| {
            &mut to.watermark
        })
        .help("buffers below which a free list is refilled; off: at once"),
        Setting::new("refill_us", micros(1..=1_000_000), |to: &mut Recycling| &mut to.every)
            .help("how often a server looks at its free lists"),
        Setting::new(
            "reclaim",
            words([("reports", Reclaim::Reports), ("scan", Reclaim::Scan)]),
            |to: &mut Recycling| &mut to.reclaim,
        )
        .help("who finds unused buffers: clients, or a scan of the table"),
    ];
    settings.into_iter().map(move |row| row.within(move |config| Ok(part(config))))
}
