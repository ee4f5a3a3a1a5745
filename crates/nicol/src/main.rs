//! The nicol binary.
fn main() {}
