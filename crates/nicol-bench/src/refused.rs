//! Why a configuration cannot be as it is given.
//!
//! This crate knows fields, not how they are written where a user gives them: the command writes
//! flags, a program writes arguments. A text names a field, or a setting with its value, between
//! backticks (`` `client_nodes` ``, `` `log=on` ``), which a caller replaces by its own notation.

use std::fmt;

/// The fields that texts name.
pub const FIELDS: [&str; 55] = [
    "adaptive_window",
    "bless",
    "blind_percent",
    "both_tables",
    "chopping",
    "client_nodes",
    "clients",
    "content",
    "customers",
    "delivery",
    "distribution",
    "fault_plan",
    "faults",
    "features",
    "full_size",
    "host_engines",
    "hot_moves",
    "indices",
    "items",
    "jobs",
    "key_form",
    "keys",
    "later_after",
    "later_keys",
    "log_device",
    "max_memory",
    "mix",
    "nic_engines",
    "no_recorded_run",
    "nodes",
    "on",
    "profile",
    "quick",
    "rate",
    "read_percent",
    "records",
    "replicas",
    "scan_first",
    "seconds",
    "seed",
    "ship",
    "stock",
    "suppliers",
    "system",
    "systems",
    "tables",
    "terminals",
    "threads",
    "transactions",
    "turn_us",
    "value_bytes",
    "warehouses",
    "warmup",
    "zipf",
    "zipf_over",
];

/// A field of a configuration that has a value which it cannot have.
///
/// Its text is "`field` value: why; remedy", or "`key=value`: why; remedy" for a setting.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {unfit}", self.given())]
pub struct Refused {
    /// The field's name, or the setting's.
    pub field: &'static str,
    /// The value as it was given, or empty where nothing was.
    pub value: String,
    /// Whether the field is a setting of the system.
    pub is_setting: bool,
    /// Why the value is refused.
    pub unfit: Unfit,
}

/// Why a value is refused, and the remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unfit {
    /// The reason; empty where the remedy says it.
    pub why: String,
    /// The values that are accepted, or what else to change.
    pub remedy: String,
}

/// A refusal of `field`, which has the value `value` or none, with the reason and the remedy.
pub fn refuse(
    field: &'static str,
    value: impl fmt::Display,
    why: impl Into<String>,
    remedy: impl Into<String>,
) -> Refused {
    Unfit::new(why, remedy).of(field, value)
}

impl Unfit {
    pub fn new(why: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { why: why.into(), remedy: remedy.into() }
    }

    /// A refusal of `field`, which has the value `value`.
    pub fn of(self, field: &'static str, value: impl fmt::Display) -> Refused {
        Refused { field, value: value.to_string(), is_setting: false, unfit: self }
    }

    /// A refusal of the setting `key`, which has the value `value`.
    pub fn of_setting(self, key: &'static str, value: impl fmt::Display) -> Refused {
        Refused { field: key, value: value.to_string(), is_setting: true, unfit: self }
    }
}

impl fmt::Display for Unfit {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { why, remedy } = self;
        if why.is_empty() { write!(to, "{remedy}") } else { write!(to, "{why}; {remedy}") }
    }
}

impl Refused {
    /// The field with its value, between backticks what is the field's name.
    fn given(&self) -> String {
        let Self { field, value, .. } = self;
        match (self.is_setting, value.is_empty()) {
            (true, false) => format!("`{field}={value}`"),
            (_, true) => format!("`{field}`"),
            (false, false) => format!("`{field}` {value}"),
        }
    }
}
