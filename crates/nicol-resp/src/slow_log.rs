//! The commands that took longest, for SLOWLOG.
//!
//! Under load every group of a pipeline may be slow. A group is kept as it was planned, at the cost
//! of one entry, and taken apart into commands when it is asked for.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::clock::unix_seconds;
use crate::commands::TABLE;
use crate::connection::address::Address;
use crate::connection::clients::Client;
use crate::scripts::sent::sent;
use crate::transactions::plan::Planned;

/// Arguments of a command that are shown, and bytes of one, as in Redis.
const ARGUMENTS: usize = 32;
const ARGUMENT_BYTES: usize = 128;
/// Bytes of a group that is kept as it was planned. Of larger ones the cut arguments are kept, so
/// that large values do not stay in memory.
const PLANNED_BYTES: usize = 16 << 10;

/// A command that took long.
#[derive(Clone, Debug)]
pub struct Slow {
    pub id: u64,
    /// Seconds of Unix time.
    pub at: u64,
    pub took: Duration,
    /// Its name and arguments, cut as Redis cuts them.
    pub words: Vec<Vec<u8>>,
    pub client: SlowClient,
}

/// Who gave a slow command.
#[derive(Clone, Debug)]
pub struct SlowClient {
    pub address: Address,
    /// As it was said with CLIENT SETNAME.
    pub name: Vec<u8>,
}

impl SlowClient {
    pub fn of(client: &Client) -> Self {
        Self { address: client.peer.clone(), name: client.seen().name.clone() }
    }
}

/// Commands that were answered together.
#[derive(Debug)]
struct Group {
    /// The number of its first command.
    first: u64,
    commands: usize,
    at: u64,
    took: Duration,
    words: Words,
    client: SlowClient,
}

#[derive(Debug)]
enum Words {
    /// The first so many commands of a plan.
    Planned(Planned, usize),
    /// Of each command.
    Cut(Vec<Vec<Vec<u8>>>),
}

impl Group {
    /// The words of each command, in order.
    fn words(&self) -> Vec<Vec<Vec<u8>>> {
        match &self.words {
            Words::Planned(planned, commands) => words_of(planned, *commands),
            Words::Cut(words) => words.clone(),
        }
    }
}

#[derive(Debug, Default)]
struct Kept {
    /// The newest first.
    groups: VecDeque<Group>,
    /// Commands in them.
    commands: usize,
    /// The number of the next command.
    next: u64,
}

/// Commands that took longer than a threshold.
#[derive(Debug)]
pub struct SlowLog {
    kept: Mutex<Kept>,
    /// Microseconds from which on a command is slow; negative: none is.
    pub threshold_us: AtomicI64,
    /// Commands that are shown.
    pub max: AtomicU64,
}

impl Default for SlowLog {
    fn default() -> Self {
        Self {
            kept: Mutex::default(),
            threshold_us: AtomicI64::new(10_000),
            max: AtomicU64::new(128),
        }
    }
}

impl SlowLog {
    pub fn is_slow(&self, took: Duration) -> bool {
        let threshold = self.threshold_us.load(Ordering::Relaxed);
        u128::try_from(threshold).is_ok_and(|threshold| took.as_micros() >= threshold)
    }

    /// Keeps the first `commands` of a slow group. Cost: as that of one command, for groups of a
    /// few kilobytes.
    pub fn add_planned(
        &self,
        took: Duration,
        planned: &Planned,
        commands: usize,
        client: SlowClient,
    ) {
        let count = planned.places(commands).map(|(_, count)| count).sum();
        let words = match planned.bytes() <= PLANNED_BYTES {
            true => Words::Planned(planned.clone(), commands),
            false => Words::Cut(words_of(planned, commands)),
        };
        self.push(took, count, words, client);
    }

    /// Keeps a slow command.
    pub fn add<'a>(
        &self,
        took: Duration,
        words: impl ExactSizeIterator<Item = &'a [u8]>,
        client: SlowClient,
    ) {
        self.push(took, 1, Words::Cut(vec![cut(words)]), client);
    }

    fn push(&self, took: Duration, commands: usize, words: Words, client: SlowClient) {
        let (max, at) = (self.max.load(Ordering::Relaxed) as usize, unix_seconds());
        let mut guard = self.kept();
        let kept = &mut *guard;
        let first = kept.next;
        kept.groups.push_front(Group { first, commands, at, took, words, client });
        kept.next += commands as u64;
        kept.commands += commands;
        // The oldest group that is needed stays whole.
        while let Some(oldest) = kept.groups.back()
            && kept.commands - oldest.commands >= max
        {
            kept.commands -= oldest.commands;
            kept.groups.pop_back();
        }
    }

    /// How many commands are shown.
    pub fn len(&self) -> usize {
        self.kept().commands.min(self.max.load(Ordering::Relaxed) as usize)
    }

    /// The `count` newest, the newest first, or as many as there are.
    pub fn newest(&self, count: usize) -> Vec<Slow> {
        let count = count.min(self.max.load(Ordering::Relaxed) as usize);
        let (kept, mut newest) = (self.kept(), Vec::new());
        for group in &kept.groups {
            for (place, words) in group.words().into_iter().enumerate().rev() {
                if newest.len() == count {
                    return newest;
                }
                let &Group { first, at, took, ref client, .. } = group;
                let id = first + place as u64;
                newest.push(Slow { id, at, took, words, client: client.clone() });
            }
        }
        newest
    }

    /// Forgets all.
    pub fn clear(&self) {
        let mut kept = self.kept();
        kept.groups.clear();
        kept.commands = 0;
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The words of the first `commands` of a plan, cut.
fn words_of(planned: &Planned, commands: usize) -> Vec<Vec<Vec<u8>>> {
    let described = planned.described(commands).into_iter();
    let words = |(place, args): (usize, Vec<&[u8]>)| {
        let name = TABLE[place].name;
        let words = [&[name.as_bytes()], &sent(name, args)[..]].concat();
        cut(words.into_iter())
    };
    described.map(words).collect()
}

/// The words of a command as Redis shows them.
fn cut<'a>(words: impl ExactSizeIterator<Item = &'a [u8]>) -> Vec<Vec<u8>> {
    let count = words.len();
    let shown = |(place, word): (usize, &[u8])| {
        if place + 1 == ARGUMENTS && count > ARGUMENTS {
            format!("... ({} more arguments)", count - place).into_bytes()
        } else if word.len() > ARGUMENT_BYTES {
            let more = word.len() - ARGUMENT_BYTES;
            [&word[..ARGUMENT_BYTES], format!("... ({more} more bytes)").as_bytes()].concat()
        } else {
            word.to_vec()
        }
    };
    words.take(ARGUMENTS).enumerate().map(shown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::encode::Protocol;
    use crate::transactions::plan::{Bounds, Kind, Op, PlanBuilder};

    fn client() -> SlowClient {
        SlowClient { address: "127.0.0.1:1".parse().unwrap(), name: Vec::new() }
    }

    #[test]
    fn the_newest_are_kept_with_cut_arguments() {
        let log = SlowLog::default();
        assert!(
            log.is_slow(Duration::from_millis(10)) && !log.is_slow(Duration::from_micros(9_999))
        );
        log.max.store(2, Ordering::Relaxed);
        let long = [b'v'; 200];
        for number in 0..3_u8 {
            let words: Vec<&[u8]> = (0..40).map(|_| &long[..usize::from(number) + 127]).collect();
            log.add(Duration::from_secs(1), words.into_iter(), client());
        }
        let newest = log.newest(usize::MAX);
        assert_eq!(newest.iter().map(|slow| slow.id).collect::<Vec<_>>(), [2, 1]);
        assert_eq!((newest[0].words.len(), log.len()), (ARGUMENTS, 2));
        assert!(newest[0].words[0].ends_with(b"v... (1 more bytes)"));
        assert_eq!(newest[0].words[31], b"... (9 more arguments)");
        assert_eq!(newest[1].words[0].len(), ARGUMENT_BYTES);
        log.threshold_us.store(-1, Ordering::Relaxed);
        assert!(!log.is_slow(Duration::from_secs(9)));
        log.clear();
        assert_eq!((log.len(), log.newest(9).len()), (0, 0));
    }

    #[test]
    fn a_group_is_shown_command_by_command_whether_it_is_small_or_large() {
        let log = SlowLog::default();
        for value in [1, PLANNED_BYTES] {
            let mut plan = PlanBuilder::new();
            for key in [b"a", b"b", b"c"] {
                plan.begin(Op::command(0), true);
                plan.plain(key);
                plan.plain(&vec![b'v'; value]);
                plan.literal(b"+OK\r\n");
            }
            let planned =
                plan.finish(Kind::Batch, Protocol::Resp2, Bounds::values(1 << 20), &[], 0);
            // The last command was not executed, nor are literals commands.
            log.add_planned(Duration::from_secs(1), &planned, 4, client());
        }
        let newest = log.newest(3);
        let shown: Vec<_> = newest.iter().map(|slow| (slow.id, &*slow.words[1])).collect();
        assert_eq!(shown, [(3, &b"b"[..]), (2, b"a"), (1, b"b")]);
        assert_eq!(newest[0].words[0], TABLE[0].name.as_bytes());
        assert!(newest[0].words[2].ends_with(b" more bytes)") && newest[2].words[2] == b"v");
        assert_eq!(log.len(), 4);
        log.max.store(1, Ordering::Relaxed);
        assert_eq!((log.len(), log.newest(9).len()), (1, 1));
    }
}
