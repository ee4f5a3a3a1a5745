//! Types of value.

use crate::transactions::sizes::Sizes;

/// A type of value.
#[derive(Debug)]
pub struct Type {
    /// The answer of TYPE.
    pub name: &'static str,
    /// Written into records, so it never changes. Strings have 0, others 1 to 31.
    pub number: u8,
    /// The answer of OBJECT ENCODING.
    pub encoding: fn(&[u8], &Sizes) -> &'static [u8],
}

/// The number of strings.
pub const STRING: u8 = 0;
