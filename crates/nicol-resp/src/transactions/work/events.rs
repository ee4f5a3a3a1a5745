//! What a command tells others: the messages that it publishes, what a client that waits must
//! know, and its events, in the words of Redis: what it did to which key.
//!
//! Events follow from how the keys that it wrote were before and are behind it. Most are called
//! like the command; the tables say which are not.

use super::{Found, Stop, Work, entry};
use crate::commands::expiry::Expiry;
use crate::notices::Class;
use crate::transactions::output::Lookups;
use crate::transactions::plan::Arg;
use crate::transactions::record::{self, Database};
use crate::transactions::tally::Tally;

/// Commands whose event has another name.
const OTHERS: &[(&str, &str)] = &[
    ("bitfield", "setbit"),
    ("bitop", "set"),
    ("blpop", "lpop"),
    ("brpop", "rpop"),
    ("bzpopmax", "zpopmax"),
    ("bzpopmin", "zpopmin"),
    ("decr", "incrby"),
    ("decrby", "incrby"),
    ("geoadd", "zadd"),
    ("georadius", "georadiusstore"),
    ("georadiusbymember", "georadiusstore"),
    ("getset", "set"),
    ("hmset", "hset"),
    ("hsetnx", "hset"),
    ("incr", "incrby"),
    ("lpushx", "lpush"),
    ("mset", "set"),
    ("msetnx", "set"),
    ("pfmerge", "pfadd"),
    ("psetex", "set"),
    ("rpushx", "rpush"),
    ("setex", "set"),
    ("setnx", "set"),
    ("sort", "sortstore"),
    ("zincrby", "zincr"),
];

/// Commands that take elements away: of a key that is empty then, this is told before its end.
const TAKERS: &[&str] = &[
    "blmpop",
    "blpop",
    "brpop",
    "bzmpop",
    "bzpopmax",
    "bzpopmin",
    "hdel",
    "lmpop",
    "lpop",
    "lrem",
    "ltrim",
    "rpop",
    "smove",
    "spop",
    "srem",
    "zmpop",
    "zpopmax",
    "zpopmin",
    "zrem",
    "zremrangebylex",
    "zremrangebyrank",
    "zremrangebyscore",
];

/// Commands that only move a deadline.
const TIMERS: &[&str] = &["expire", "expireat", "getex", "pexpire", "pexpireat", "persist"];

impl<'t> Work<'t> {
    /// What the commands so far have found.
    pub fn lookups(&self) -> Lookups {
        self.lookups
    }

    /// The command, which waits, goes on with `last` as its last argument if it is tried again.
    pub fn settle(&mut self, last: &[u8]) {
        self.news.settle(last);
    }

    /// What the command has found ends its client's wait, also if it is an error.
    pub fn end_wait(&mut self) {
        self.news.end_wait();
    }

    /// A command publishes its second argument on the channel that is its first; its reply stands
    /// at `reply` of the output.
    pub fn publish(&mut self, sharded: bool, reply: usize, args: &[Arg<'t>]) -> Result<(), Stop> {
        let [channel, message] = args else { return Err(Stop::Malformed) };
        self.spend(channel.bytes.len() + message.bytes.len())?;
        self.news.publish(sharded, reply, channel.bytes, message.bytes);
        Ok(())
    }

    /// What is told of the commands so far once they have committed.
    pub fn news(&mut self) -> &[u8] {
        self.news.finish()
    }

    /// Shows a command of a script, in `database`, to who sees every command.
    pub fn show<'w>(
        &mut self,
        database: Database,
        words: impl Iterator<Item = &'w [u8]>,
    ) -> Result<(), Stop> {
        let before = self.news.len();
        self.news.show(database, words);
        self.spend(self.news.len() - before)
    }

    /// Which commands were called and failed.
    pub fn tally(&mut self) -> &mut Tally {
        self.news.tally()
    }

    /// Deletes every key of a row, if `only_expiring` only of one in which all expire; returns how
    /// many there were.
    pub fn evict(&mut self, row: &Arg<'t>, only_expiring: bool) -> Result<i64, Stop> {
        let key = row.row.ok_or(Stop::Malformed)?;
        let entry = entry(self.txn, key)?;
        let record = self.txn.value(entry).unwrap_or_default();
        for pair in record::pairs(record) {
            if only_expiring && pair?.expires.is_none() {
                return Ok(0);
            }
        }
        if let Some(database) = Database::of(key).filter(|_| self.plan.tells) {
            for pair in record::pairs(record).flatten() {
                self.news.event(Class::Evicted, database, "evicted", pair.key);
            }
        }
        self.empty(row)
    }

    /// Tells what the command `name` has done since [`Work::begin`].
    pub fn tell(&mut self, name: &str, args: &[Arg<'t>]) {
        if self.touched.is_empty() {
            return;
        }
        let touched = std::mem::take(&mut self.touched);
        match (name, touched.as_slice()) {
            ("rename" | "renamenx", &[from, to]) => {
                self.event(Class::New, "new", to);
                self.event(Class::Generic, "rename_from", from);
                self.event(Class::Generic, "rename_to", to);
            }
            ("move", &[from, to]) => {
                self.event(Class::New, "new", to);
                self.event(Class::Generic, "move_from", from);
                self.event(Class::Generic, "move_to", to);
            }
            ("restore", &[to]) => {
                self.event(Class::New, "new", to);
                self.event(Class::Generic, "restore", to);
            }
            ("copy", &[to]) => {
                self.event(Class::New, "new", to);
                self.event(Class::Generic, "copy_to", to);
            }
            ("blmove" | "brpoplpush" | "lmove" | "rpoplpush", &[from, ..]) => {
                let to = touched.get(1).copied().unwrap_or(from);
                let is_left = |place: usize| {
                    args.get(place).map(|end| end.bytes.eq_ignore_ascii_case(b"left"))
                };
                let [pop, push] = [is_left(2).unwrap_or(false), is_left(3).unwrap_or(true)];
                self.tell_new(to);
                self.event(Class::List, if push { "lpush" } else { "rpush" }, to);
                self.event(Class::List, if pop { "lpop" } else { "rpop" }, from);
                self.tell_end(from);
            }
            ("smove", &[from, ..]) => {
                self.tell_one(("srem", from), true, false);
                if let Some(&to) = touched.get(1) {
                    self.tell_one(("sadd", to), false, false);
                }
            }
            (name, _) => {
                let other = OTHERS.iter().find(|(command, _)| *command == name);
                let event = other.map_or(name, |(_, event)| event);
                let event = by_arguments(name, args).unwrap_or(event);
                let takes = TAKERS.contains(&name);
                let timed = gives_deadline(name, args);
                touched.iter().for_each(|slot| self.tell_one((event, *slot), takes, timed));
            }
        }
        self.touched = touched;
        self.touched.clear();
    }

    /// Tells what a command has done to a stream, in order.
    pub fn announce(&mut self, found: Found, events: &[&str]) {
        if !self.plan.tells {
            return;
        }
        self.tell_new(found.0);
        self.slots[found.0].was_present = true;
        for event in events {
            self.event(Class::Stream, event, found.0);
        }
        self.touched.retain(|slot| *slot != found.0);
    }

    /// A command has read a key that is not there.
    pub(super) fn tell_miss(&mut self, slot: usize) {
        self.event(Class::Miss, "keymiss", slot);
    }

    /// A command has written one key; `timed`: and given it a deadline.
    fn tell_one(&mut self, (event, slot): (&str, usize), takes: bool, timed: bool) {
        let (was_present, expires) = (self.slots[slot].was_present, self.slots[slot].expires);
        let is_present = self.slots[slot].value.is_some();
        if is_present && TIMERS.contains(&event) {
            let event = if expires.is_some() { "expire" } else { "persist" };
            return self.event(Class::Generic, event, slot);
        }
        if is_present {
            self.tell_new(slot);
        }
        if is_present || was_present && takes {
            self.event(self.class(slot), event, slot);
        }
        if is_present && timed {
            self.event(Class::Generic, "expire", slot);
        }
        self.tell_end(slot);
        // If the command writes it again.
        self.slots[slot].was_present = is_present;
    }

    fn tell_new(&mut self, slot: usize) {
        if !self.slots[slot].was_present {
            self.event(Class::New, "new", slot);
        }
    }

    fn tell_end(&mut self, slot: usize) {
        if self.slots[slot].was_present && self.slots[slot].value.is_none() {
            self.event(Class::Generic, "del", slot);
        }
    }

    /// The class of events about values of the key's type.
    fn class(&self, slot: usize) -> Class {
        let kind = (self.commands.types)(self.slots[slot].kind);
        kind.map_or(Class::String, |kind| Class::of_type(kind.name))
    }

    fn event(&mut self, class: Class, event: &str, slot: usize) {
        let slot = &self.slots[slot];
        if let Ok(row) = self.rows.row(slot.entry)
            && let Some(database) = Database::of(row)
        {
            self.news.event(class, database, event, slot.key);
        }
    }
}

/// Whether the command gives the key that it sets a deadline.
fn gives_deadline(name: &str, args: &[Arg<'_>]) -> bool {
    match (name, args) {
        ("psetex" | "setex", _) => true,
        ("set", [_, _, how]) => {
            let expiry = how.bytes.get(1..).and_then(Expiry::parse);
            matches!(expiry, Some(Expiry::In(_) | Expiry::At(_)))
        }
        _ => false,
    }
}

/// The event of a command of which an argument says what it does.
fn by_arguments(name: &str, args: &[Arg<'_>]) -> Option<&'static str> {
    let mut plain = args.iter().skip(1).filter(|arg| arg.row.is_none());
    let is = |arg: &Arg<'_>, word: &[u8]| arg.bytes.eq_ignore_ascii_case(word);
    match name {
        "blmpop" | "lmpop" => {
            let is_left = plain.next().is_some_and(|arg| is(arg, b"left"));
            Some(if is_left { "lpop" } else { "rpop" })
        }
        "bzmpop" | "zmpop" => {
            let is_least = plain.next().is_some_and(|arg| is(arg, b"min"));
            Some(if is_least { "zpopmin" } else { "zpopmax" })
        }
        "zadd" => {
            let options: [&[u8]; 6] = [b"nx", b"xx", b"gt", b"lt", b"ch", b"incr"];
            let mut given = plain.take_while(|arg| options.iter().any(|word| is(arg, word)));
            given.any(|arg| is(arg, b"incr")).then_some("zincr")
        }
        _ => None,
    }
}
