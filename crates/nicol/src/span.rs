//! Flags that are spans of time.

use anyhow::{Result, ensure};
use nicol_core::units::Nanos;

/// So many seconds, from `least` to a day. The error names `flag`.
pub(crate) fn seconds(flag: &str, seconds: f64, least: f64) -> Result<Nanos> {
    ensure!(
        (least..=86_400.0).contains(&seconds),
        "{flag} {seconds:?}: give {least} to 86400 seconds"
    );
    Ok(Nanos((seconds * 1e9) as u64))
}
