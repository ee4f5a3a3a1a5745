//! Events of keys, for those who subscribe to them: which are sent, and on which channels.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::pubsub::PubSub;
use crate::transactions::record::Database;

/// A kind of event. Its number is the place of its letter in [`LETTERS`]; of
/// modules nothing is told, since there are none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    Generic = 0,
    String = 1,
    List = 2,
    Set = 3,
    Hash = 4,
    SortedSet = 5,
    Expired = 6,
    Evicted = 7,
    Stream = 8,
    New = 10,
    Miss = 11,
}

/// The letters of the classes, then those of the two channels.
const LETTERS: &[u8; 14] = b"g$lshzxetdnmKE";
/// The classes that `A` stands for.
const ALL: u32 = 0x3ff;
/// Events are sent on a channel called like their key.
const BY_KEY: u32 = 1 << 12;
/// Events are sent on a channel called like the event.
const BY_EVENT: u32 = 1 << 13;

impl Class {
    /// The class of events about values of a type, by the answer of TYPE.
    pub fn of_type(name: &str) -> Self {
        match name {
            "list" => Self::List,
            "set" => Self::Set,
            "hash" => Self::Hash,
            "zset" => Self::SortedSet,
            "stream" => Self::Stream,
            _ => Self::String,
        }
    }
}

/// The choice of CONFIG SET notify-keyspace-events: a bit for each of [`LETTERS`].
#[derive(Debug, Default)]
pub struct Notices(AtomicU32);

/// A choice that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chosen(u32);

impl Chosen {
    /// Reads letters; `None`: one of them has no meaning.
    pub fn parse(text: &[u8]) -> Option<Self> {
        text.iter().try_fold(Self(0), |chosen, letter| match letter {
            b'A' => Some(Self(chosen.0 | ALL)),
            letter => {
                let place = LETTERS.iter().position(|known| known == letter)?;
                Some(Self(chosen.0 | 1 << place))
            }
        })
    }
}

impl Notices {
    pub fn choose(&self, chosen: Chosen) {
        self.0.store(chosen.0, Ordering::SeqCst);
    }

    /// The choice, in the order in which Redis shows it: with `A`, `n` is not shown.
    pub fn text(&self) -> String {
        let chosen = self.0.load(Ordering::SeqCst);
        let all = chosen & ALL == ALL;
        let mut text = String::from(if all { "A" } else { "" });
        for letter in if all { &b"KEm"[..] } else { b"g$lshzxetdnKEm" } {
            let place = LETTERS.iter().position(|known| known == letter).unwrap_or_default();
            if chosen & 1 << place != 0 {
                text.push(char::from(*letter));
            }
        }
        text
    }

    /// Whether any event is sent.
    pub fn is_on(&self) -> bool {
        self.0.load(Ordering::Relaxed) & (BY_KEY | BY_EVENT) != 0
    }

    /// Sends an event of the class with this number, if it was chosen.
    pub fn send(
        &self,
        pubsub: &PubSub,
        class: usize,
        database: Database,
        event: &[u8],
        key: &[u8],
    ) {
        let chosen = self.0.load(Ordering::SeqCst);
        if chosen & 1 << class == 0 {
            return;
        }
        let number = database.number();
        if chosen & BY_KEY != 0 {
            let channel = [format!("__keyspace@{number}__:").as_bytes(), key].concat();
            pubsub.publish(&channel, event);
        }
        if chosen & BY_EVENT != 0 {
            let channel = [format!("__keyevent@{number}__:").as_bytes(), event].concat();
            pubsub.publish(&channel, key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_choice_is_shown_as_redis_shows_it() {
        for (given, shown) in [
            ("KEA", "AKE"),
            ("g$lshzxetdmn", "Am"),
            ("KEAmn", "AKEm"),
            ("Kn", "nK"),
            ("KEg$lshzxet", "g$lshzxetKE"),
            ("", ""),
        ] {
            let notices = Notices::default();
            notices.choose(Chosen::parse(given.as_bytes()).unwrap());
            assert_eq!(notices.text(), shown, "{given}");
            assert_eq!(notices.is_on(), given.contains(['K', 'E']), "{given}");
        }
        assert_eq!(Chosen::parse(b"Kq"), None);
    }
}
