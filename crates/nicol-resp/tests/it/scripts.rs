//! Scripts and functions: as redis-server runs them, and what only a transaction can.

use crate::support::redis::compare;

#[test]
fn scripts_are_answered_as_by_redis() {
    for version in ["2", "3"] {
        let differ = compare(include_str!("scripts/evals.txt"), version);
        assert!(differ.is_empty(), "{} differ\n{}", differ.len(), differ.join("\n"));
    }
}

#[test]
fn functions_are_answered_as_by_redis() {
    for version in ["2", "3"] {
        let differ = compare(include_str!("scripts/functions.txt"), version);
        assert!(differ.is_empty(), "{} differ\n{}", differ.len(), differ.join("\n"));
    }
}
