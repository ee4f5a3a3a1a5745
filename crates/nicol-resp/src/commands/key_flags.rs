//! What a command does with each of its keys, in the words of Redis' key specifications: COMMAND
//! GETKEYSANDFLAGS.

use super::spec::Spec;

const INSERT: &str = "OW insert";
const SET: &str = "OW update";
const REMOVE: &str = "RM delete";
const LOOK: &str = "RO";
const READ: &str = "RO access";
const COUNT: &str = "RW access";
const TAKE: &str = "RW access delete";
const MERGE: &str = "RW access insert";
const CHANGE: &str = "RW access update";
const SHORTEN: &str = "RW delete";
const ADD: &str = "RW insert";
const UPDATE: &str = "RW update";

/// Commands whose keys are all used alike; `READ` is what the others do.
const ALIKE: &[(&str, &[&str])] = &[
    (INSERT, &["msetnx", "setnx"]),
    (SET, &["mset", "psetex", "restore", "set", "setex"]),
    (REMOVE, &["del", "unlink"]),
    (
        LOOK,
        &[
            "exists",
            "hexists",
            "hlen",
            "hstrlen",
            "llen",
            "memory",
            "object",
            "scard",
            "sismember",
            "strlen",
            "touch",
            "type",
            "watch",
            "xlen",
            "zcard",
        ],
    ),
    (COUNT, &["pfcount", "pfdebug"]),
    (
        TAKE,
        &[
            "blmpop", "blpop", "brpop", "bzmpop", "bzpopmax", "bzpopmin", "getdel", "lmpop",
            "lpop", "rpop", "spop", "zmpop", "zpopmax", "zpopmin",
        ],
    ),
    (
        CHANGE,
        &[
            "bitfield",
            "decr",
            "decrby",
            "eval",
            "evalsha",
            "fcall",
            "getex",
            "getset",
            "hincrby",
            "hincrbyfloat",
            "incr",
            "incrby",
            "incrbyfloat",
            "move",
            "setbit",
            "zincrby",
        ],
    ),
    (
        SHORTEN,
        &[
            "hdel",
            "lrem",
            "ltrim",
            "srem",
            "xautoclaim",
            "xdel",
            "xtrim",
            "zrem",
            "zremrangebylex",
            "zremrangebyrank",
            "zremrangebyscore",
        ],
    ),
    (
        ADD,
        &[
            "append", "hsetnx", "linsert", "lpush", "lpushx", "pfadd", "rpush", "rpushx", "sadd",
            "xgroup",
        ],
    ),
    (
        UPDATE,
        &[
            "expire",
            "expireat",
            "geoadd",
            "hmset",
            "hset",
            "lset",
            "persist",
            "pexpire",
            "pexpireat",
            "setrange",
            "xack",
            "xadd",
            "xclaim",
            "xsetid",
            "zadd",
        ],
    ),
];

/// Commands whose first key is used otherwise than the others.
const FIRST: &[(&str, &str, &str)] = &[
    ("bitop", SET, READ),
    ("blmove", TAKE, ADD),
    ("brpoplpush", TAKE, ADD),
    ("copy", READ, SET),
    ("georadius", READ, SET),
    ("georadiusbymember", READ, SET),
    ("geosearchstore", SET, READ),
    ("lmove", TAKE, ADD),
    ("pfmerge", MERGE, READ),
    ("rename", TAKE, SET),
    ("renamenx", TAKE, INSERT),
    ("rpoplpush", TAKE, ADD),
    ("sdiffstore", SET, READ),
    ("sinterstore", UPDATE, READ),
    ("smove", TAKE, ADD),
    ("sort", READ, SET),
    ("sunionstore", SET, READ),
    ("zdiffstore", SET, READ),
    ("zinterstore", SET, READ),
    ("zrangestore", SET, READ),
    ("zunionstore", SET, READ),
];

/// What `words`, a request for `spec`, does with its `nth` key, counted from 0: flags with spaces
/// between them.
pub fn flags(spec: &Spec, words: &[&[u8]], nth: usize) -> &'static str {
    if let Some((_, first, others)) = FIRST.iter().find(|(name, ..)| *name == spec.name) {
        return if nth == 0 { first } else { others };
    }
    let is = |place: usize, word: &str| words[place].eq_ignore_ascii_case(word.as_bytes());
    let has = |word: &str| (3..words.len()).any(|place| is(place, word));
    match spec.name {
        "set" if has("get") => CHANGE,
        "bitfield"
            if !["set", "incrby"].iter().any(|word| (2..words.len()).any(|p| is(p, word))) =>
        {
            READ
        }
        "xgroup" if is(1, "setid") => UPDATE,
        "xgroup" if is(1, "destroy") || is(1, "delconsumer") => SHORTEN,
        name => {
            let alike = ALIKE.iter().find(|(_, names)| names.contains(&name));
            alike.map_or(READ, |(flags, _)| flags)
        }
    }
}
