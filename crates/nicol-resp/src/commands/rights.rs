//! Which rights a command takes: its categories, its subcommands, and what it does to its keys.
//!
//! Names and categories are those of Redis 7.0. Most follow from a line's group and flags; what
//! does not is said here.

use std::ops::Range;

use super::spec::Spec;
use super::{COMMANDS, TABLE, lookup};

/// The names of the categories, in the order of ACL CAT.
pub const CATEGORIES: [&str; 21] = [
    "keyspace",
    "read",
    "write",
    "set",
    "sortedset",
    "list",
    "hash",
    "string",
    "bitmap",
    "hyperloglog",
    "geo",
    "stream",
    "pubsub",
    "admin",
    "fast",
    "slow",
    "blocking",
    "dangerous",
    "connection",
    "transaction",
    "scripting",
];

/// A set of categories: a bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Categories(u32);

impl Categories {
    /// The category of a name in any case.
    pub fn named(name: &[u8]) -> Option<Self> {
        let place = CATEGORIES.iter().position(|known| name.eq_ignore_ascii_case(known.as_bytes()));
        place.map(|place| Self(1 << place))
    }

    pub fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    pub fn names(self) -> impl Iterator<Item = &'static str> {
        let has = move |(place, _): &(usize, &&str)| self.0 & 1 << place != 0;
        CATEGORIES.iter().enumerate().filter(has).map(|(_, name)| *name)
    }

    fn add(&mut self, name: &str) {
        self.0 |= Self::named(name.as_bytes()).unwrap_or_default().0;
    }

    /// The categories of a command.
    pub fn of(spec: &Spec) -> Self {
        let mut all = Self::default();
        let has = |flag: &str| spec.flags.contains(&flag);
        let own = OWN.iter().find(|(name, _)| *name == spec.name);
        // Of a command with subcommands these have the categories.
        let implies = !has_subcommands(spec);
        match own {
            Some((_, names)) => names.iter().for_each(|name| all.add(name)),
            None if !implies => {}
            None => all.add(match spec.group {
                "generic" => "keyspace",
                "transactions" => "transaction",
                "sorted-set" => "sortedset",
                group => group,
            }),
        }
        let implied = [
            (has("write"), "write"),
            (has("readonly") && spec.group != "scripting", "read"),
            (has("blocking"), "blocking"),
            (has("admin"), "admin"),
            (has("admin"), "dangerous"),
            (has("pubsub"), "pubsub"),
        ];
        implied.iter().filter(|(holds, _)| *holds && implies).for_each(|(_, name)| all.add(name));
        all.add(if has("fast") && implies { "fast" } else { "slow" });
        all
    }
}

/// The categories of commands whose group says something else, besides those of their flags.
const OWN: &[(&str, &[&str])] = &[
    ("asking", &["connection"]),
    ("dbsize", &["keyspace"]),
    ("flushall", &["keyspace", "write", "dangerous"]),
    ("flushdb", &["keyspace", "write", "dangerous"]),
    ("info", &["dangerous"]),
    ("keys", &["keyspace", "read", "dangerous"]),
    ("lastsave", &["admin", "dangerous"]),
    ("randomkey", &["keyspace", "read"]),
    ("role", &["admin", "dangerous"]),
    ("restore", &["keyspace", "dangerous"]),
    ("scan", &["keyspace", "read"]),
    ("sort", &["set", "sortedset", "list", "dangerous"]),
    ("sort_ro", &["set", "sortedset", "list", "dangerous"]),
    ("swapdb", &["keyspace", "dangerous"]),
    ("command", &["connection"]),
    ("wait", &["connection"]),
];

/// A subcommand, which has rights of its own.
#[derive(Clone, Copy, Debug)]
pub struct Subcommand {
    /// With its command before a bar.
    pub name: &'static str,
    pub categories: Categories,
}

/// What a subcommand's rights are.
#[derive(Clone, Copy)]
enum Class {
    Slow,
    Connection,
    Stream,
    StreamRead,
    StreamWrite,
    Question,
    Reading,
    KeyHelp,
    Admin,
    /// Of a connection, and for administrators.
    OfClients,
    PubSub,
    Scripting,
    /// Of scripting, and it changes what others run.
    ScriptingWrite,
}

impl Class {
    const fn categories(self) -> Categories {
        const fn bits(names: &[&str]) -> u32 {
            let (mut bits, mut at) = (1 << 15, 0);
            while at < names.len() {
                bits |= match names[at].as_bytes() {
                    b"keyspace" => 1 << 0,
                    b"read" => 1 << 1,
                    b"write" => 1 << 2,
                    b"stream" => 1 << 11,
                    b"admin" => 1 << 13 | 1 << 17,
                    b"pubsub" => 1 << 12,
                    b"connection" => 1 << 18,
                    b"scripting" => 1 << 20,
                    _ => panic!("a category of subcommands"),
                };
                at += 1;
            }
            bits
        }
        Categories(match self {
            Self::Slow => bits(&[]),
            Self::Connection => bits(&["connection"]),
            Self::Stream => bits(&["stream"]),
            Self::StreamRead => bits(&["stream", "read"]),
            Self::StreamWrite => bits(&["stream", "write"]),
            Self::Question => bits(&["keyspace", "read"]),
            Self::Reading => bits(&["read"]),
            Self::KeyHelp => bits(&["keyspace"]),
            Self::Admin => bits(&["admin"]),
            Self::OfClients => bits(&["admin", "connection"]),
            Self::PubSub => bits(&["pubsub"]),
            Self::Scripting => bits(&["scripting"]),
            Self::ScriptingWrite => bits(&["write", "scripting"]),
        })
    }
}

const fn sub(name: &'static str, class: Class) -> Subcommand {
    Subcommand { name, categories: class.categories() }
}

/// Every subcommand that there is, those of one command together.
pub const SUBCOMMANDS: &[Subcommand] = &[
    sub("acl|cat", Class::Slow),
    sub("acl|deluser", Class::Admin),
    sub("acl|dryrun", Class::Admin),
    sub("acl|genpass", Class::Slow),
    sub("acl|getuser", Class::Admin),
    sub("acl|help", Class::Slow),
    sub("acl|list", Class::Admin),
    sub("acl|load", Class::Admin),
    sub("acl|log", Class::Admin),
    sub("acl|save", Class::Admin),
    sub("acl|setuser", Class::Admin),
    sub("acl|users", Class::Admin),
    sub("acl|whoami", Class::Slow),
    sub("client|caching", Class::Connection),
    sub("client|getname", Class::Connection),
    sub("client|getredir", Class::Connection),
    sub("client|help", Class::Connection),
    sub("client|id", Class::Connection),
    sub("client|info", Class::Connection),
    sub("client|kill", Class::OfClients),
    sub("client|list", Class::OfClients),
    sub("client|no-evict", Class::OfClients),
    sub("client|pause", Class::OfClients),
    sub("client|reply", Class::Connection),
    sub("client|setinfo", Class::Connection),
    sub("client|setname", Class::Connection),
    sub("client|tracking", Class::Connection),
    sub("client|trackinginfo", Class::Connection),
    sub("client|unblock", Class::OfClients),
    sub("client|unpause", Class::OfClients),
    sub("command|count", Class::Connection),
    sub("command|docs", Class::Connection),
    sub("command|getkeys", Class::Connection),
    sub("command|getkeysandflags", Class::Connection),
    sub("command|help", Class::Connection),
    sub("command|info", Class::Connection),
    sub("command|list", Class::Connection),
    sub("config|get", Class::Admin),
    sub("config|help", Class::Slow),
    sub("config|resetstat", Class::Admin),
    sub("config|rewrite", Class::Admin),
    sub("config|set", Class::Admin),
    sub("function|delete", Class::ScriptingWrite),
    sub("function|dump", Class::Scripting),
    sub("function|flush", Class::ScriptingWrite),
    sub("function|help", Class::Scripting),
    sub("function|kill", Class::Scripting),
    sub("function|list", Class::Scripting),
    sub("function|load", Class::ScriptingWrite),
    sub("function|restore", Class::ScriptingWrite),
    sub("function|stats", Class::Scripting),
    sub("latency|doctor", Class::Admin),
    sub("latency|help", Class::Slow),
    sub("latency|histogram", Class::Admin),
    sub("latency|history", Class::Admin),
    sub("latency|latest", Class::Admin),
    sub("latency|reset", Class::Admin),
    sub("memory|doctor", Class::Slow),
    sub("memory|help", Class::Slow),
    sub("memory|malloc-stats", Class::Slow),
    sub("memory|purge", Class::Slow),
    sub("memory|stats", Class::Slow),
    sub("memory|usage", Class::Reading),
    sub("module|help", Class::Slow),
    sub("module|list", Class::Admin),
    sub("module|load", Class::Admin),
    sub("module|loadex", Class::Admin),
    sub("module|unload", Class::Admin),
    sub("object|encoding", Class::Question),
    sub("object|freq", Class::Question),
    sub("object|help", Class::KeyHelp),
    sub("object|idletime", Class::Question),
    sub("object|refcount", Class::Question),
    sub("pubsub|channels", Class::PubSub),
    sub("pubsub|help", Class::Slow),
    sub("pubsub|numpat", Class::PubSub),
    sub("pubsub|numsub", Class::PubSub),
    sub("pubsub|shardchannels", Class::PubSub),
    sub("pubsub|shardnumsub", Class::PubSub),
    sub("script|debug", Class::Scripting),
    sub("script|exists", Class::Scripting),
    sub("script|flush", Class::Scripting),
    sub("script|help", Class::Scripting),
    sub("script|kill", Class::Scripting),
    sub("script|load", Class::Scripting),
    sub("slowlog|get", Class::Admin),
    sub("slowlog|help", Class::Slow),
    sub("slowlog|len", Class::Admin),
    sub("slowlog|reset", Class::Admin),
    sub("xgroup|create", Class::StreamWrite),
    sub("xgroup|createconsumer", Class::StreamWrite),
    sub("xgroup|delconsumer", Class::StreamWrite),
    sub("xgroup|destroy", Class::StreamWrite),
    sub("xgroup|help", Class::Stream),
    sub("xgroup|setid", Class::StreamWrite),
    sub("xinfo|consumers", Class::StreamRead),
    sub("xinfo|groups", Class::StreamRead),
    sub("xinfo|help", Class::Stream),
    sub("xinfo|stream", Class::StreamRead),
];

/// Commands and subcommands together: each has a number, by which a user may give it.
pub const NUMBERS: usize = COMMANDS + SUBCOMMANDS.len();

/// The numbers of the subcommands of `spec`, with what each is called behind the bar.
pub fn subcommands(spec: &Spec) -> impl Iterator<Item = (usize, &'static str)> {
    SUBCOMMANDS.iter().enumerate().filter_map(move |(place, sub)| {
        let (of, name) = sub.name.split_once('|')?;
        (of == spec.name).then_some((COMMANDS + place, name))
    })
}

pub fn has_subcommands(spec: &Spec) -> bool {
    subcommands(spec).next().is_some()
}

/// The number of the subcommand of `spec` that is called `name`, in any case.
pub fn subcommand(spec: &Spec, name: &[u8]) -> Option<usize> {
    let mut all = subcommands(spec);
    all.find(|(_, known)| name.eq_ignore_ascii_case(known.as_bytes())).map(|(number, _)| number)
}

/// The number of what `words`, a request for `spec`, asks for. One for a subcommand that does not
/// exist is one for the command.
pub fn number(spec: &Spec, words: &[&[u8]]) -> usize {
    let named = words.get(1).and_then(|name| subcommand(spec, name));
    named.unwrap_or_else(|| spec.number.into())
}

/// The name of a number.
pub fn name(number: usize) -> &'static str {
    match number.checked_sub(COMMANDS) {
        None => TABLE[number].name,
        Some(place) => SUBCOMMANDS[place].name,
    }
}

/// The categories of a number.
pub fn categories(number: usize) -> Categories {
    match number.checked_sub(COMMANDS) {
        None => Categories::of(&TABLE[number]),
        Some(place) => SUBCOMMANDS[place].categories,
    }
}

/// The number of a command or, behind a bar, of a subcommand, in any case.
pub fn find(name: &[u8]) -> Option<usize> {
    match name.iter().position(|byte| *byte == b'|') {
        None => lookup(name).map(|spec| spec.number.into()),
        Some(bar) => subcommand(lookup(&name[..bar])?, &name[bar + 1..]),
    }
}

/// What a command does to a key, as far as patterns of keys distinguish it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// Its reply tells of what the key holds.
    pub reads: bool,
    pub writes: bool,
}

const READS: Access = Access { reads: true, writes: false };
const WRITES: Access = Access { reads: false, writes: true };
const BOTH: Access = Access { reads: true, writes: true };

/// Commands that only tell whether a key is there, of what type, or how long.
const UNREAD: &[&str] = &[
    "exists",
    "hexists",
    "hlen",
    "hstrlen",
    "llen",
    "object",
    "scard",
    "sismember",
    "strlen",
    "touch",
    "type",
    "watch",
    "zcard",
];

/// Commands that change keys and tell nothing of what these held.
const UNTOLD: &[&str] = &[
    "append",
    "del",
    "expire",
    "expireat",
    "geoadd",
    "hdel",
    "hmset",
    "hset",
    "hsetnx",
    "linsert",
    "lpush",
    "lpushx",
    "lrem",
    "lset",
    "ltrim",
    "mset",
    "msetnx",
    "persist",
    "pexpire",
    "pexpireat",
    "psetex",
    "restore",
    "rpush",
    "rpushx",
    "sadd",
    "setex",
    "setnx",
    "setrange",
    "srem",
    "unlink",
    "zadd",
    "zrem",
    "zremrangebylex",
    "zremrangebyrank",
    "zremrangebyscore",
];

/// Commands whose first key is another matter than the others: what they do to it, and to these.
const FIRST: &[(&str, Access, Access)] = &[
    ("bitop", WRITES, READS),
    ("blmove", BOTH, WRITES),
    ("brpoplpush", BOTH, WRITES),
    ("copy", READS, WRITES),
    ("georadius", READS, WRITES),
    ("georadiusbymember", READS, WRITES),
    ("geosearchstore", WRITES, READS),
    ("lmove", BOTH, WRITES),
    ("rename", BOTH, WRITES),
    ("renamenx", BOTH, WRITES),
    ("rpoplpush", BOTH, WRITES),
    ("sdiffstore", WRITES, READS),
    ("sinterstore", WRITES, READS),
    ("smove", BOTH, WRITES),
    ("sunionstore", WRITES, READS),
    ("zdiffstore", WRITES, READS),
    ("zinterstore", WRITES, READS),
    ("zrangestore", WRITES, READS),
    ("zunionstore", WRITES, READS),
];

/// What `words`, a request for `spec`, does to its `nth` key, counted from 0. A command that writes
/// and of which no more is known reads as well.
pub fn access(spec: &Spec, words: &[&[u8]], nth: usize) -> Access {
    if let Some((_, first, others)) = FIRST.iter().find(|(name, ..)| *name == spec.name) {
        return if nth == 0 { *first } else { *others };
    }
    let told = || words.iter().skip(3).any(|word| word.eq_ignore_ascii_case(b"get"));
    match spec.name {
        name if UNREAD.contains(&name) => Access::default(),
        name if UNTOLD.contains(&name) => WRITES,
        "set" if !told() => WRITES,
        // Nobody knows what it does to them.
        "eval" | "evalsha" | "fcall" => BOTH,
        _ if spec.writes() => BOTH,
        _ => READS,
    }
}

/// The places of the channels in a request for `spec` of `len` words. Channels that a client leaves
/// are nobody's concern.
pub fn channels(spec: &Spec, len: usize) -> Range<usize> {
    match spec.name {
        "publish" | "spublish" => 1..2,
        "psubscribe" | "ssubscribe" | "subscribe" => 1..len,
        _ => 0..0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_subcommand_is_of_a_command_and_has_known_categories() {
        for (place, sub) in SUBCOMMANDS.iter().enumerate() {
            assert_eq!(find(sub.name.to_ascii_uppercase().as_bytes()), Some(COMMANDS + place));
            assert!(sub.categories.names().any(|name| name == "slow"));
        }
        let names = |number: usize| categories(number).names().collect::<Vec<_>>().join(" ");
        assert_eq!(names(find(b"client|kill").unwrap()), "admin slow dangerous connection");
        assert_eq!(names(find(b"object|freq").unwrap()), "keyspace read slow");
        assert_eq!(names(find(b"get").unwrap()), "read string fast");
        assert_eq!(find(b"client|nosuch"), None);
    }

    #[test]
    fn a_group_is_a_category() {
        for spec in &TABLE {
            let known = Categories::named(spec.group.as_bytes()).is_some()
                || ["generic", "transactions", "sorted-set", "cluster"].contains(&spec.group);
            let of_subcommands = has_subcommands(spec) || spec.group == "server";
            let own = OWN.iter().any(|(name, _)| *name == spec.name);
            assert!(known || of_subcommands || own, "{}", spec.name);
        }
    }
}
