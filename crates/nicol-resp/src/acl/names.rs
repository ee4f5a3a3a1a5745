//! Names that users have from the start.

/// The user of those who have not said who they are.
pub const DEFAULT: &[u8] = b"default";
