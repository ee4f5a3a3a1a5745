//! OBJECT: what Redis tells of a value besides the value.

use super::encode::Reply;
use super::number::parse_i64;
use super::plan::Arg;
use super::procedure::{Stop, Work};

/// What OBJECT HELP answers.
pub const HELP: [&str; 7] = [
    "OBJECT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "ENCODING <key>",
    "    Return how Redis would hold the value once it is set: int, embstr or raw.",
    "REFCOUNT <key>",
    "    Return 1: no two keys share a value.",
    "HELP",
    "    Prints this help.",
];

/// Bytes of the longest string that Redis holds in one piece with its head.
const EMBEDDED_MAX: usize = 44;

// Redis' words, and they are true here: nothing is ever evicted.
const NO_FREQUENCY: &[u8] = b"ERR An LFU maxmemory policy is not selected, access frequency not \
                              tracked. Please note that when switching between policies at runtime \
                              LRU and LFU data will take some time to adjust.";
const NO_IDLE_TIME: &[u8] = b"ERR idle time not tracked: this store keeps no time of access";

/// What is asked of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Question {
    Encoding,
    Frequency,
    IdleTime,
    References,
}

impl Question {
    const ALL: [(&[u8], Self); 4] = [
        (b"encoding", Self::Encoding),
        (b"freq", Self::Frequency),
        (b"idletime", Self::IdleTime),
        (b"refcount", Self::References),
    ];

    /// The question of this name in lower case.
    pub fn parse(name: &[u8]) -> Option<Self> {
        Self::ALL.iter().find(|(known, _)| *known == name).map(|(_, question)| *question)
    }
}

impl<'t> Work<'t> {
    pub(super) fn object(
        &mut self,
        key: &Arg<'t>,
        question: &[u8],
        reply: &mut Reply<'_>,
    ) -> Result<(), Stop> {
        let asked = Question::ALL.iter().find(|(_, known)| *question == [*known as u8]);
        let &(_, question) = asked.ok_or(Stop::Malformed)?;
        let slot = self.slot(key)?;
        match (self.slots[slot].value.as_deref(), question) {
            (None, _) => reply.null(),
            (Some(value), Question::Encoding) => reply.bulk(encoding(value)),
            (Some(_), Question::Frequency) => reply.error(NO_FREQUENCY),
            (Some(_), Question::IdleTime) => reply.error(NO_IDLE_TIME),
            (Some(_), Question::References) => reply.integer(1),
        }
        Ok(())
    }
}

/// How Redis holds `value` once it is set.
fn encoding(value: &[u8]) -> &'static [u8] {
    match parse_i64(value) {
        Some(_) => b"int",
        None if value.len() <= EMBEDDED_MAX => b"embstr",
        None => b"raw",
    }
}

#[cfg(test)]
mod tests {
    use super::encoding;

    #[test]
    fn encodings_are_those_of_redis() {
        let embedded = ["", "007", "-0", "9223372036854775808", "1.5"];
        assert!(embedded.iter().all(|text| encoding(text.as_bytes()) == b"embstr"));
        let numbers = ["0", "-5", "9223372036854775807", "-9223372036854775808"];
        assert!(numbers.iter().all(|text| encoding(text.as_bytes()) == b"int"));
        assert_eq!(encoding(&[b'x'; 44]), b"embstr");
        assert_eq!(encoding(&[b'x'; 45]), b"raw");
    }
}
