//! Hardware profiles by name.

use anyhow::{Result, anyhow};
use nicol_sim::{Profile, ProfileError};

use crate::names::did_you_mean;

/// The profile of this name, as [`Profile::load`] takes it.
///
/// # Errors
/// As there; a built-in name that was probably meant is asked about.
pub fn load(name: &str) -> Result<Profile> {
    Profile::load(name).map_err(|error| match error {
        ProfileError::Missing { .. } => {
            let base = name.split(':').next().unwrap_or(name);
            anyhow!("{error}{}", did_you_mean(base, Profile::list()))
        }
        error => error.into(),
    })
}
