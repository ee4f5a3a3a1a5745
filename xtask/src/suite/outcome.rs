//! What a unit's client tells, and what becomes of each test.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};

/// What became of a test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Passed,
    Failed(String),
    Hung,
}

impl Display for Verdict {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Passed => f.write_str("passed"),
            // Of an error that is no assertion the suite cuts the beginning, and tells all behind.
            Self::Failed(why) => {
                let mut lines = why.lines();
                let first = lines.next().unwrap_or("failed");
                f.write_str(lines.next().unwrap_or(first))
            }
            Self::Hung => f.write_str("hangs"),
        }
    }
}

/// A line of the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    Begun(String),
    Ended(String, Verdict),
    /// An error between two tests.
    Outside(String),
}

impl Told {
    /// From a status, a name and a detail; `None` for what no verdict follows from.
    pub fn parse(line: &str) -> Option<Self> {
        let mut fields = line.split('\t').map(plain);
        let (status, name) = (fields.next()?, fields.next()?);
        let detail = fields.next().unwrap_or_default();
        Some(match &*status {
            "testing" => Self::Begun(name),
            "ok" => Self::Ended(name, Verdict::Passed),
            "err" => Self::Ended(name, Verdict::Failed(detail)),
            "outside" => Self::Outside(format!("{name}: {detail}").replace('\n', " ")),
            _ => return None,
        })
    }
}

/// A field without the client's escapes.
fn plain(field: &str) -> String {
    let mut plain = String::with_capacity(field.len());
    let mut chars = field.chars();
    while let Some(char) = chars.next() {
        let escaped = if char == '\\' { chars.next() } else { None };
        plain.push(match escaped {
            Some('t') => '\t',
            Some('n') => '\n',
            Some('r') => '\r',
            Some(other) => other,
            None => char,
        });
    }
    plain
}

/// What became of a unit's tests. Of a name that several tests have, the second is `name (2)`.
#[derive(Clone, Debug, Default)]
pub struct Outcomes {
    verdicts: BTreeMap<String, Verdict>,
    /// Their names in the order in which they ended.
    order: Vec<String>,
    times: BTreeMap<String, usize>,
    under_way: Option<String>,
    outside: Vec<String>,
}

impl Outcomes {
    pub fn add(&mut self, told: Told) {
        match told {
            Told::Begun(name) => self.under_way = Some(name),
            Told::Ended(name, verdict) => {
                self.under_way = None;
                let times = self.times.entry(name.clone()).or_default();
                *times += 1;
                let name = if *times == 1 { name } else { format!("{name} ({times})") };
                self.order.push(name.clone());
                self.verdicts.insert(name, verdict);
            }
            Told::Outside(error) => self.outside.push(error),
        }
    }

    pub fn add_hung(&mut self, test: &str) {
        self.verdicts.insert(test.to_owned(), Verdict::Hung);
    }

    pub fn add_outside(&mut self, error: &str) {
        self.outside.push(error.to_owned());
    }

    pub fn of(&self, test: &str) -> Option<&Verdict> {
        self.verdicts.get(test)
    }

    /// The tests that passed, in the order of the unit.
    pub fn passed(&self) -> Vec<String> {
        let passed = self.order.iter().filter(|test| self.of(test) == Some(&Verdict::Passed));
        passed.cloned().collect()
    }

    /// The test that has begun and not ended.
    pub fn under_way(&self) -> Option<&str> {
        self.under_way.as_deref()
    }

    pub fn outside(&self) -> &[String] {
        &self.outside
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_become_verdicts() {
        let mut outcomes = Outcomes::default();
        for line in ["testing\ta", "ok\ta\t", "testing\ta", "err\ta\tt no\\nnot no", "testing\tb"] {
            outcomes.add(Told::parse(line).unwrap());
        }
        assert_eq!(outcomes.of("a"), Some(&Verdict::Passed));
        assert_eq!(outcomes.of("a (2)").unwrap().to_string(), "not no");
        assert_eq!(outcomes.under_way(), Some("b"));
        assert_eq!(outcomes.passed(), ["a"]);
        assert_eq!(Told::parse("skip\tc\t"), None);
        assert_eq!(Told::parse("noise"), None);
        assert_eq!(Told::parse("ok\ta\\\\n\t"), Some(Told::Ended("a\\n".into(), Verdict::Passed)));
    }
}
