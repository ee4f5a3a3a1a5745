//! What a system promises, and so which checker judges its histories.

use std::fmt;
use std::str::FromStr;

/// Which writes survive a crash of everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Persistency {
    Strict,
    /// Every acknowledged write, and every write that a read returned.
    Synch,
    /// Every write that a read returned.
    Renf,
    /// Every write of a scope whose `Persist` was acknowledged.
    Scope,
    Event,
}

impl Persistency {
    pub const ALL: [Self; 5] = [Self::Strict, Self::Synch, Self::Renf, Self::Scope, Self::Event];

    /// Its name in files and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Strict => "strict",
            Self::Synch => "synch",
            Self::Renf => "renf",
            Self::Scope => "scope",
            Self::Event => "event",
        }
    }
}

/// The promise of a system to its clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Promise {
    /// Transactions are serializable in an order that agrees with real time and with the order of
    /// each client.
    #[default]
    StrictSerializable,
    /// Transactions are serializable in an order that agrees with the order of each client: strong
    /// session serializability (Daudjee and Salem, ICDE '04).
    SessionSerializable,
    Serializable,
    /// Operations on each key are linearizable.
    Linearizable,
    /// Operations are linearizable, and a crash loses no more than the model permits.
    Durable(Persistency),
}

impl Promise {
    pub fn all() -> impl Iterator<Item = Self> {
        Self::OF_TRANSACTIONS
            .into_iter()
            .chain([Self::Linearizable])
            .chain(Persistency::ALL.map(Self::Durable))
    }

    /// Those of transactions, the strongest one first.
    pub const OF_TRANSACTIONS: [Self; 3] =
        [Self::StrictSerializable, Self::SessionSerializable, Self::Serializable];

    /// True if it is one of transactions.
    pub fn is_of_transactions(self) -> bool {
        Self::OF_TRANSACTIONS.contains(&self)
    }
}

impl fmt::Display for Promise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::StrictSerializable => f.write_str("strict-serializable"),
            Self::SessionSerializable => f.write_str("session-serializable"),
            Self::Serializable => f.write_str("serializable"),
            Self::Linearizable => f.write_str("linearizable"),
            Self::Durable(model) => write!(f, "durable:{}", model.name()),
        }
    }
}

impl FromStr for Promise {
    type Err = String;

    /// Reads what [`fmt::Display`] writes; the error lists the promises that there are.
    fn from_str(text: &str) -> Result<Self, String> {
        Self::all().find(|promise| promise.to_string() == text).ok_or_else(|| {
            let known: Vec<_> = Self::all().map(|promise| promise.to_string()).collect();
            format!("unknown promise '{text}': use one of {}", known.join(", "))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_promise_survives_its_name_and_others_are_refused() {
        for promise in Promise::all() {
            assert_eq!(promise.to_string().parse(), Ok(promise));
        }
        let error = "durable:sometimes".parse::<Promise>().unwrap_err();
        assert!(error.contains("durable:sometimes") && error.contains("durable:renf"), "{error}");
    }
}
