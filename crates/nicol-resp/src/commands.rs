//! The table of commands: names, arities and flags, as COMMAND reports them.

use super::encode::Reply;
use super::expiry::Unit;
use super::plan::Op;

/// How a command is executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// It becomes part of a transaction.
    Data(Data),
    /// The front answers it.
    Local(Local),
}

/// A command over records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Data {
    /// Keys and plain arguments as they are sent.
    Plain(Op),
    /// SET with its options.
    Set,
    /// INCR and its kin: `sign`, and whether the step is an argument.
    Add {
        /// 1 or -1.
        sign: i64,
        /// Is the step given?
        by: bool,
    },
    /// SETEX and PSETEX.
    SetEx(Unit),
    /// GETEX with its options.
    GetEx,
    /// EXPIRE and its kin with their conditions.
    Expire(Unit),
    /// TTL and its kin.
    Ttl(Unit),
    /// OBJECT with its subcommands.
    Object,
}

/// A command that needs no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Local {
    Auth,
    Client,
    Cluster,
    Command,
    Config,
    DbSize,
    Discard,
    Echo,
    EvalSha,
    Exec,
    Hello,
    Info,
    Multi,
    /// SCAN and others that would need a list of all keys.
    NoList,
    Ping,
    Quit,
    Reset,
    Select,
    Time,
    Unwatch,
    Wait,
    Watch,
}

/// A command.
#[derive(Clone, Copy, Debug)]
pub struct Spec {
    /// Its name in lower case.
    pub name: &'static str,
    /// Number of arguments with the name; negative: at least so many.
    pub arity: i32,
    /// What it does.
    pub action: Action,
    /// Redis' flags.
    pub flags: &'static [&'static str],
    /// First key, last key, step; zeros without keys.
    pub keys: (i64, i64, i64),
    /// One line for COMMAND DOCS.
    pub summary: &'static str,
    /// Its place in [`TABLE`].
    number: u16,
}

/// The name of a command or of a subcommand as a number, 0 for none: threads tell each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CommandNumber(pub u16);

impl CommandNumber {
    /// A subcommand of CLIENT, by its place in [`CLIENT`].
    pub fn of_client(place: usize) -> Self {
        Self((1 + COMMANDS + place) as u16)
    }

    /// The name.
    pub fn name(self) -> &'static str {
        let number = usize::from(self.0);
        match number.checked_sub(1) {
            None => "NULL",
            Some(place) if place < COMMANDS => TABLE[place].name,
            Some(place) => CLIENT.get(place - COMMANDS).map_or("NULL", |(name, _)| name),
        }
    }
}

/// The subcommands of CLIENT with their arities.
pub const CLIENT: [(&str, i32); 9] = [
    ("client|getname", 2),
    ("client|help", 2),
    ("client|id", 2),
    ("client|info", 2),
    ("client|kill", -3),
    ("client|list", -2),
    ("client|no-evict", 3),
    ("client|setinfo", 4),
    ("client|setname", 3),
];

impl Spec {
    /// Its name as a number.
    pub const fn command_number(&self) -> CommandNumber {
        CommandNumber(1 + self.number)
    }

    /// Does it accept `len` arguments, the name included?
    pub fn accepts(&self, len: usize) -> bool {
        takes(self.arity, len)
    }

    /// Redis' group of the command.
    pub fn group(&self) -> &'static str {
        match self.action {
            Action::Data(Data::Plain(
                Op::Del | Op::Exists | Op::Type | Op::Persist | Op::Rename | Op::RenameNx,
            )) => "generic",
            Action::Data(Data::Expire(_) | Data::Ttl(_) | Data::Object) => "generic",
            Action::Data(_) => "string",
            Action::Local(local) => match local {
                Local::Multi | Local::Exec | Local::Discard | Local::Watch | Local::Unwatch => {
                    "transactions"
                }
                Local::EvalSha => "scripting",
                Local::Cluster => "cluster",
                Local::NoList | Local::Wait => "generic",
                Local::Command | Local::Config | Local::DbSize | Local::Info | Local::Time => {
                    "server"
                }
                _ => "connection",
            },
        }
    }

    /// The element of COMMAND and COMMAND INFO.
    pub fn describe(&self, reply: &mut Reply<'_>) {
        let (first, last, step) = self.keys;
        reply.array(10);
        reply.bulk(self.name.as_bytes());
        reply.integer(i64::from(self.arity));
        reply.set(self.flags.len());
        for flag in self.flags {
            reply.status(flag);
        }
        for number in [first, last, step] {
            reply.integer(number);
        }
        // No ACL categories, tips, key specifications or subcommands.
        reply.set(0);
        reply.array(0);
        reply.array(0);
        reply.array(0);
    }

    /// The value of COMMAND DOCS.
    pub fn document(&self, reply: &mut Reply<'_>) {
        reply.map(2);
        reply.bulk(b"summary");
        reply.bulk(self.summary.as_bytes());
        reply.bulk(b"group");
        reply.bulk(self.group().as_bytes());
    }
}

/// Does a command of this arity take `len` arguments, its name included?
pub fn takes(arity: i32, len: usize) -> bool {
    let wanted = arity.unsigned_abs() as usize;
    if arity < 0 { len >= wanted } else { len == wanted }
}

/// The command of `name` in any case.
pub fn lookup(name: &[u8]) -> Option<&'static Spec> {
    let mut lower = [0; NAME_MAX];
    lower.get_mut(..name.len())?.copy_from_slice(name);
    lower.make_ascii_lowercase();
    let found = NAMES.binary_search(&u128::from_be_bytes(lower));
    // A name with zeros behind it is another one.
    found.ok().map(|index| &TABLE[index]).filter(|spec| spec.name.len() == name.len())
}

/// Bytes of the longest name.
const NAME_MAX: usize = 16;
/// The names of [`TABLE`] as numbers, in its order: they compare as the names do.
static NAMES: [u128; COMMANDS] = {
    let mut names = [0; COMMANDS];
    let mut index = 0;
    while index < names.len() {
        let (mut padded, name) = ([0; NAME_MAX], TABLE[index].name.as_bytes());
        let mut at = 0;
        while at < name.len() {
            padded[at] = name[at];
            at += 1;
        }
        names[index] = u128::from_be_bytes(padded);
        index += 1;
    }
    names
};

const READ: &[&str] = &["readonly", "fast"];
const WRITE: &[&str] = &["write", "denyoom", "fast"];
const REMOVE: &[&str] = &["write", "fast"];
const CONNECTION: &[&str] = &["noscript", "loading", "stale", "fast"];
const NO_AUTH: &[&str] = &["noscript", "loading", "stale", "fast", "no_auth"];
const GROW: &[&str] = &["write", "denyoom"];
const SERVER: &[&str] = &["loading", "stale"];

const NONE: (i64, i64, i64) = (0, 0, 0);
const ONE: (i64, i64, i64) = (1, 1, 1);
const SECOND: (i64, i64, i64) = (2, 2, 1);
const ALL: (i64, i64, i64) = (1, -1, 1);
const TWO: (i64, i64, i64) = (1, 2, 1);
const PAIRS: (i64, i64, i64) = (1, -1, 2);

const fn data(
    name: &'static str,
    arity: i32,
    data: Data,
    flags: &'static [&'static str],
    keys: (i64, i64, i64),
    summary: &'static str,
) -> Spec {
    Spec { name, arity, action: Action::Data(data), flags, keys, summary, number: 0 }
}

const fn local(
    name: &'static str,
    arity: i32,
    local: Local,
    flags: &'static [&'static str],
    summary: &'static str,
) -> Spec {
    let action = Action::Local(local);
    Spec { name, arity, action, flags, keys: NONE, summary, number: 0 }
}

const fn with_keys(keys: (i64, i64, i64), spec: Spec) -> Spec {
    Spec { keys, ..spec }
}

const fn add(name: &'static str, arity: i32, sign: i64, by: bool, summary: &'static str) -> Spec {
    data(name, arity, Data::Add { sign, by }, WRITE, ONE, summary)
}

const fn expire(name: &'static str, unit: Unit, summary: &'static str) -> Spec {
    data(name, -3, Data::Expire(unit), REMOVE, ONE, summary)
}

const fn ttl(name: &'static str, unit: Unit, summary: &'static str) -> Spec {
    data(name, 2, Data::Ttl(unit), READ, ONE, summary)
}

const fn none(name: &'static str, arity: i32) -> Spec {
    local(name, arity, Local::NoList, &[], "Refused: this store does not list its keys")
}

const SECONDS: Unit = Unit { seconds: true, absolute: false };
const MILLIS: Unit = Unit { seconds: false, absolute: false };
const UNIX: Unit = Unit { seconds: true, absolute: true };
const UNIX_MILLIS: Unit = Unit { seconds: false, absolute: true };

use Data::{Plain, Set};

/// Commands that there are.
const COMMANDS: usize = 64;

const fn numbered(mut specs: [Spec; COMMANDS]) -> [Spec; COMMANDS] {
    let mut number = 0;
    while number < COMMANDS {
        specs[number].number = number as u16;
        number += 1;
    }
    specs
}

/// Every command, sorted by name.
pub static TABLE: [Spec; COMMANDS] = numbered([
    data("append", 3, Plain(Op::Append), WRITE, ONE, "Append a value to a key"),
    local("auth", -2, Local::Auth, NO_AUTH, "Authenticate to the server"),
    local("client", -2, Local::Client, CONNECTION, "Commands about the connection"),
    local("cluster", -2, Local::Cluster, SERVER, "Commands about a Redis Cluster: not one"),
    local("command", -1, Local::Command, SERVER, "Describe the commands"),
    local("config", -2, Local::Config, SERVER, "Read the configuration"),
    local("dbsize", 1, Local::DbSize, &["readonly", "fast"], "Return the number of records"),
    add("decr", 2, -1, false, "Decrement the integer value of a key by one"),
    add("decrby", 3, -1, true, "Decrement the integer value of a key by a number"),
    data("del", -2, Plain(Op::Del), REMOVE, ALL, "Delete keys"),
    local("discard", 1, Local::Discard, CONNECTION, "Discard all commands issued after MULTI"),
    local("echo", 2, Local::Echo, &["fast"], "Echo the given string"),
    local("evalsha", -3, Local::EvalSha, &["noscript"], "Execute a script: there are none"),
    local("exec", 1, Local::Exec, CONNECTION, "Execute all commands issued after MULTI"),
    data("exists", -2, Plain(Op::Exists), READ, ALL, "Count the keys that exist"),
    expire("expire", SECONDS, "Let a key expire after so many seconds"),
    expire("expireat", UNIX, "Let a key expire at a Unix time"),
    ttl("expiretime", UNIX, "Return the Unix time at which a key expires"),
    none("flushall", -1),
    none("flushdb", -1),
    data("get", 2, Plain(Op::Get), READ, ONE, "Get the value of a key"),
    data("getdel", 2, Plain(Op::GetDel), REMOVE, ONE, "Get the value of a key and delete the key"),
    data("getex", -2, Data::GetEx, REMOVE, ONE, "Get the value of a key and move its deadline"),
    data("getrange", 4, Plain(Op::GetRange), &["readonly"], ONE, "Get a part of a value"),
    data("getset", 3, Plain(Op::GetSet), WRITE, ONE, "Set a key and return its old value"),
    local("hello", -1, Local::Hello, NO_AUTH, "Handshake with the server"),
    add("incr", 2, 1, false, "Increment the integer value of a key by one"),
    add("incrby", 3, 1, true, "Increment the integer value of a key by a number"),
    data("incrbyfloat", 3, Plain(Op::AddFloat), WRITE, ONE, "Add to the decimal value of a key"),
    local("info", -1, Local::Info, SERVER, "Get information and statistics about the server"),
    none("keys", 2),
    data("mget", -2, Plain(Op::MGet), READ, ALL, "Get the values of keys"),
    data("mset", -3, Plain(Op::MSet), WRITE, PAIRS, "Set keys to values"),
    data("msetnx", -3, Plain(Op::MSetNx), WRITE, PAIRS, "Set keys, only if none of them exists"),
    local("multi", 1, Local::Multi, CONNECTION, "Mark the start of a transaction"),
    data("object", -2, Data::Object, &["readonly"], SECOND, "Tell how the value of a key is kept"),
    data("persist", 2, Plain(Op::Persist), REMOVE, ONE, "Let a key not expire"),
    expire("pexpire", MILLIS, "Let a key expire after so many milliseconds"),
    expire("pexpireat", UNIX_MILLIS, "Let a key expire at a Unix time in milliseconds"),
    ttl("pexpiretime", UNIX_MILLIS, "Return the Unix time at which a key expires, in ms"),
    local("ping", -1, Local::Ping, &["fast"], "Ping the server"),
    data("psetex", 4, Data::SetEx(MILLIS), GROW, ONE, "Set a key that expires, in milliseconds"),
    ttl("pttl", MILLIS, "Return the milliseconds until a key expires"),
    local("quit", -1, Local::Quit, NO_AUTH, "Close the connection"),
    none("randomkey", 1),
    data("rename", 3, Plain(Op::Rename), &["write"], TWO, "Rename a key"),
    data("renamenx", 3, Plain(Op::RenameNx), REMOVE, TWO, "Rename a key, if the new one is free"),
    local("reset", 1, Local::Reset, NO_AUTH, "Reset the connection"),
    none("scan", -2),
    local("select", 2, Local::Select, &["loading", "stale", "fast"], "Select database 0"),
    data("set", -3, Set, WRITE, ONE, "Set the value of a key"),
    data("setex", 4, Data::SetEx(SECONDS), GROW, ONE, "Set a key that expires, in seconds"),
    data("setnx", 3, Plain(Op::SetNx), WRITE, ONE, "Set a key, only if it does not exist"),
    data("setrange", 4, Plain(Op::SetRange), GROW, ONE, "Overwrite a part of a value"),
    data("strlen", 2, Plain(Op::StrLen), READ, ONE, "Get the length of the value of a key"),
    data("substr", 4, Plain(Op::GetRange), &["readonly"], ONE, "Get a part of a value"),
    local("time", 1, Local::Time, &["loading", "stale", "fast"], "Return the server's time"),
    data("touch", -2, Plain(Op::Exists), READ, ALL, "Count the keys that exist"),
    ttl("ttl", SECONDS, "Return the seconds until a key expires"),
    data("type", 2, Plain(Op::Type), READ, ONE, "Determine the type of the value of a key"),
    data("unlink", -2, Plain(Op::Del), REMOVE, ALL, "Delete keys"),
    local("unwatch", 1, Local::Unwatch, CONNECTION, "Forget all watched keys"),
    local("wait", 3, Local::Wait, &["noscript"], "Return the number of replicas of each write"),
    with_keys(
        ALL,
        local("watch", -2, Local::Watch, CONNECTION, "Watch keys, so that EXEC depends on them"),
    ),
]);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_and_found_in_any_case() {
        assert!(TABLE.windows(2).all(|pair| pair[0].name < pair[1].name));
        for spec in &TABLE {
            let found = lookup(spec.name.to_ascii_uppercase().as_bytes()).unwrap();
            assert_eq!(found.name, spec.name);
        }
        assert!(lookup(b"nosuch").is_none());
        assert!(lookup(b"get\0").is_none() && lookup(b"GeT").is_some());
        assert!(lookup(b"a name that is longer than any command").is_none());
    }
}
