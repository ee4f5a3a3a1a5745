//! Random commands over lists, sets, hashes and sorted sets, told to two servers.

use nicol_core::rng::{Purpose, Stream};

use super::{Client, command, text};

/// Keys of each type, and one that holds another type.
const LISTS: &[&str] = &["l1", "l2", "l3", "s1"];
const SETS: &[&str] = &["s1", "s2", "s3", "l1"];
const HASHES: &[&str] = &["h1", "h2", "h3", "l1"];
const ZSETS: &[&str] = &["z1", "z2", "z3", "l1"];
/// Sources of unions of sorted sets.
const SCORED: &[&str] = &["z1", "z2", "z3", "z1", "z2", "s1", "l1"];
const ANY: &[&str] = &["l1", "l2", "s1", "s2", "h1", "h2", "z1", "z2", "str", "none"];

const MEMBERS: &[&str] =
    &["a", "b", "c", "d", "e", "f", "", "1", "-7", "a b", "\r\n", "member of some length"];
const NUMBERS: &[&str] = &[
    "0",
    "1",
    "2",
    "3",
    "-1",
    "-2",
    "-3",
    "100",
    "-100",
    "9223372036854775807",
    "-9223372036854775808",
    "9223372036854775808",
    "x",
    "",
    "1.5",
    "01",
];
const COUNTS: &[&str] = &["0", "1", "2", "3", "100", "-1", "x", "9223372036854775807"];
const SCORES: &[&str] = &[
    "0",
    "1",
    "2",
    "3",
    "-1",
    "0.1",
    "1e3",
    "-2.5",
    "inf",
    "-inf",
    "+Infinity",
    "nan",
    "x",
    "",
    "1e400",
    " 1",
    "0.30000000000000004",
    "1e17",
    "1e-7",
    "-0",
];
const BOUNDS: &[&str] = &[
    "0", "1", "(1", "2", "(2", "3", "-1", "-inf", "+inf", "inf", "(-inf", "(inf", "0.1", "x", "(x",
    "", "(", " 1", "nan", "1000",
];
const NAMES: &[&str] = &["-", "+", "[a", "(a", "[c", "(c", "[f", "(", "[", "a", "", "[z", "[1"];
const FLOATS: &[&str] = &["0.5", "-0.25", "3", "5.0e3", "x", "", "nan", "inf"];
const PATTERNS: &[&str] = &["*", "a*", "[a-c]", "?", "x"];
const ENDS: &[&str] = &["LEFT", "right", "UP"];
const KEY_COUNTS: &[&str] = &["1", "1", "2", "2", "2", "3", "0", "-1", "x", "9"];

/// One argument, or some of them, drawn from a list.
#[derive(Clone, Copy)]
enum Part {
    One(&'static [&'static str]),
    /// One to so many.
    Some(u64, &'static [&'static str]),
    /// One to so many pairs.
    Pairs(u64, &'static [&'static str], &'static [&'static str]),
    /// An option, mostly left out.
    Maybe(&'static [&'static str]),
    /// An option with a value, mostly left out.
    With(&'static str, &'static [&'static str]),
    /// A number of keys and keys, mostly as many.
    Keys(&'static [&'static str]),
}

use Part::{Keys, Maybe, One, Pairs, Some as Several, With};

const LIST: &[(&str, &[Part])] = &[
    ("LPUSH", &[One(LISTS), Several(3, MEMBERS)]),
    ("RPUSH", &[One(LISTS), Several(3, MEMBERS)]),
    ("RPUSH", &[One(LISTS), Several(6, MEMBERS)]),
    ("LPUSHX", &[One(LISTS), Several(2, MEMBERS)]),
    ("RPUSHX", &[One(LISTS), Several(2, MEMBERS)]),
    ("LPOP", &[One(LISTS), Maybe(COUNTS)]),
    ("RPOP", &[One(LISTS), Maybe(COUNTS)]),
    ("LLEN", &[One(LISTS)]),
    ("LINDEX", &[One(LISTS), One(NUMBERS)]),
    ("LSET", &[One(LISTS), One(NUMBERS), One(MEMBERS)]),
    ("LINSERT", &[One(LISTS), One(&["BEFORE", "after", "x"]), One(MEMBERS), One(MEMBERS)]),
    ("LRANGE", &[One(LISTS), One(NUMBERS), One(NUMBERS)]),
    ("LRANGE", &[One(LISTS), One(&["0"]), One(&["-1"])]),
    ("LTRIM", &[One(LISTS), One(NUMBERS), One(NUMBERS)]),
    ("LREM", &[One(LISTS), One(NUMBERS), One(MEMBERS)]),
    ("LMOVE", &[One(LISTS), One(LISTS), One(ENDS), One(ENDS)]),
    ("RPOPLPUSH", &[One(LISTS), One(LISTS)]),
    ("LMPOP", &[Keys(LISTS), One(ENDS), With("COUNT", COUNTS)]),
    (
        "LPOS",
        &[
            One(LISTS),
            One(MEMBERS),
            With("RANK", NUMBERS),
            With("COUNT", COUNTS),
            With("MAXLEN", COUNTS),
            Maybe(&["x"]),
        ],
    ),
];

const SET: &[(&str, &[Part])] = &[
    ("SADD", &[One(SETS), Several(4, MEMBERS)]),
    ("SADD", &[One(SETS), Several(12, MEMBERS)]),
    ("SREM", &[One(SETS), Several(2, MEMBERS)]),
    ("SCARD", &[One(SETS)]),
    ("SISMEMBER", &[One(SETS), One(MEMBERS)]),
    ("SMISMEMBER", &[One(SETS), Several(3, MEMBERS)]),
    ("SMEMBERS", &[One(SETS)]),
    ("SMOVE", &[One(SETS), One(SETS), One(MEMBERS)]),
    ("SPOP", &[One(SETS), One(&["100", "0", "-1", "x"]), Maybe(&["x"])]),
    ("SRANDMEMBER", &[One(SETS), One(&["100", "0", "x"]), Maybe(&["x"])]),
    ("SINTER", &[Several(3, SETS)]),
    ("SUNION", &[Several(3, SETS)]),
    ("SDIFF", &[Several(3, SETS)]),
    ("SINTERSTORE", &[One(SETS), Several(3, SETS)]),
    ("SUNIONSTORE", &[One(SETS), Several(3, SETS)]),
    ("SDIFFSTORE", &[One(SETS), Several(3, SETS)]),
    ("SINTERCARD", &[Keys(SETS), With("LIMIT", COUNTS), Maybe(&["x"])]),
    (
        "SSCAN",
        &[
            One(SETS),
            One(&["0", "0", "x"]),
            With("MATCH", PATTERNS),
            One(&["COUNT"]),
            One(&["100", "0", "x"]),
        ],
    ),
];

const HASH: &[(&str, &[Part])] = &[
    ("HSET", &[One(HASHES), Pairs(3, MEMBERS, NUMBERS)]),
    ("HSET", &[One(HASHES), Pairs(12, MEMBERS, FLOATS)]),
    ("HMSET", &[One(HASHES), Pairs(3, MEMBERS, MEMBERS), Maybe(MEMBERS)]),
    ("HSETNX", &[One(HASHES), One(MEMBERS), One(MEMBERS)]),
    ("HGET", &[One(HASHES), One(MEMBERS)]),
    ("HMGET", &[One(HASHES), Several(3, MEMBERS)]),
    ("HDEL", &[One(HASHES), Several(3, MEMBERS)]),
    ("HGETALL", &[One(HASHES)]),
    ("HKEYS", &[One(HASHES)]),
    ("HVALS", &[One(HASHES)]),
    ("HLEN", &[One(HASHES)]),
    ("HEXISTS", &[One(HASHES), One(MEMBERS)]),
    ("HSTRLEN", &[One(HASHES), One(MEMBERS)]),
    ("HINCRBY", &[One(HASHES), One(MEMBERS), One(NUMBERS)]),
    ("HINCRBYFLOAT", &[One(&["h4", "l1"]), One(MEMBERS), One(FLOATS)]),
    ("HRANDFIELD", &[One(HASHES), One(&["100", "0", "x"]), Maybe(&["WITHVALUES", "x"])]),
    (
        "HSCAN",
        &[One(HASHES), One(&["0", "0", "x"]), With("MATCH", PATTERNS), With("COUNT", COUNTS)],
    ),
];

const ZSET: &[(&str, &[Part])] = &[
    (
        "ZADD",
        &[
            One(ZSETS),
            Maybe(&["NX", "xx"]),
            Maybe(&["GT", "lt"]),
            Maybe(&["CH"]),
            Maybe(&["INCR"]),
            Pairs(2, SCORES, MEMBERS),
        ],
    ),
    ("ZADD", &[One(ZSETS), Pairs(4, &["1", "2", "3", "-1", "0.5"], MEMBERS)]),
    ("ZADD", &[One(ZSETS), Pairs(10, &["1"], MEMBERS)]),
    ("ZINCRBY", &[One(ZSETS), One(SCORES), One(MEMBERS)]),
    ("ZREM", &[One(ZSETS), Several(2, MEMBERS)]),
    ("ZCARD", &[One(ZSETS)]),
    ("ZSCORE", &[One(ZSETS), One(MEMBERS)]),
    ("ZMSCORE", &[One(ZSETS), Several(3, MEMBERS)]),
    ("ZRANK", &[One(ZSETS), One(MEMBERS)]),
    ("ZREVRANK", &[One(ZSETS), One(MEMBERS)]),
    ("ZCOUNT", &[One(ZSETS), One(BOUNDS), One(BOUNDS)]),
    ("ZLEXCOUNT", &[One(ZSETS), One(NAMES), One(NAMES)]),
    (
        "ZRANGE",
        &[One(ZSETS), One(NUMBERS), One(NUMBERS), Maybe(&["REV"]), Maybe(&["WITHSCORES", "x"])],
    ),
    ("ZRANGE", &[One(ZSETS), One(&["0"]), One(&["-1"]), Maybe(&["WITHSCORES"])]),
    (
        "ZRANGE",
        &[
            One(ZSETS),
            One(BOUNDS),
            One(BOUNDS),
            One(&["BYSCORE"]),
            Maybe(&["REV"]),
            With("LIMIT", COUNTS),
            Maybe(COUNTS),
            Maybe(&["WITHSCORES"]),
        ],
    ),
    (
        "ZRANGE",
        &[One(ZSETS), One(NAMES), One(NAMES), One(&["BYLEX"]), Maybe(&["REV", "WITHSCORES"])],
    ),
    ("ZREVRANGE", &[One(ZSETS), One(NUMBERS), One(NUMBERS), Maybe(&["WITHSCORES", "REV"])]),
    (
        "ZRANGEBYSCORE",
        &[One(ZSETS), One(BOUNDS), One(BOUNDS), Maybe(&["WITHSCORES"]), With("LIMIT", COUNTS)],
    ),
    (
        "ZREVRANGEBYSCORE",
        &[One(ZSETS), One(BOUNDS), One(BOUNDS), One(&["LIMIT"]), One(COUNTS), One(COUNTS)],
    ),
    ("ZRANGEBYLEX", &[One(ZSETS), One(NAMES), One(NAMES)]),
    ("ZREVRANGEBYLEX", &[One(ZSETS), One(NAMES), One(NAMES)]),
    ("ZRANGESTORE", &[One(ZSETS), One(ZSETS), One(NUMBERS), One(NUMBERS), Maybe(&["REV"])]),
    ("ZRANGESTORE", &[One(ZSETS), One(ZSETS), One(BOUNDS), One(BOUNDS), One(&["BYSCORE"])]),
    ("ZREMRANGEBYRANK", &[One(ZSETS), One(NUMBERS), One(NUMBERS)]),
    ("ZREMRANGEBYSCORE", &[One(ZSETS), One(BOUNDS), One(BOUNDS)]),
    ("ZREMRANGEBYLEX", &[One(ZSETS), One(NAMES), One(NAMES)]),
    ("ZPOPMIN", &[One(ZSETS), Maybe(COUNTS)]),
    ("ZPOPMAX", &[One(ZSETS), Maybe(COUNTS)]),
    ("ZMPOP", &[Keys(ZSETS), One(&["MIN", "max", "x"]), With("COUNT", COUNTS)]),
    ("ZRANDMEMBER", &[One(ZSETS), One(&["100", "0", "x"]), Maybe(&["WITHSCORES", "x"])]),
    ("ZSCAN", &[One(ZSETS), One(&["0", "0", "x"]), With("MATCH", PATTERNS), With("COUNT", COUNTS)]),
    ("ZUNION", UNITED),
    ("ZINTER", UNITED),
    ("ZDIFF", &[Keys(SCORED), Maybe(&["WITHSCORES", "WEIGHTS"])]),
    ("ZINTERCARD", &[Keys(SCORED), With("LIMIT", COUNTS), Maybe(&["x"])]),
    ("ZUNIONSTORE", STORED),
    ("ZINTERSTORE", STORED),
    ("ZDIFFSTORE", &[One(ZSETS), Keys(SCORED)]),
];

const GEO: &[(&str, &[Part])] = &[
    (
        "GEOADD",
        &[
            One(PLACES),
            Maybe(&["NX", "xx"]),
            Maybe(&["CH"]),
            One(LONGITUDES),
            One(LATITUDES),
            One(MEMBERS),
        ],
    ),
    ("GEOADD", &[One(PLACES), One(FAR), One(FAR), One(MEMBERS), One(FAR), One(FAR), One(MEMBERS)]),
    ("GEOPOS", &[One(PLACES), Several(3, MEMBERS)]),
    ("GEOHASH", &[One(PLACES), Several(3, MEMBERS)]),
    ("GEODIST", &[One(PLACES), One(MEMBERS), One(MEMBERS), Maybe(&["m", "KM", "ft", "mi", "x"])]),
    (
        "GEOSEARCH",
        &[
            One(PLACES),
            One(&["FROMLONLAT"]),
            One(LONGITUDES),
            One(LATITUDES),
            One(&["BYRADIUS"]),
            One(&["100", "5000", "0", "-1", "x"]),
            One(&["km", "km", "m", "mi", "x"]),
            Maybe(&["ASC", "desc"]),
            With("COUNT", COUNTS),
            Maybe(&["WITHCOORD"]),
            Maybe(&["WITHDIST"]),
            Maybe(&["withhash", "x"]),
        ],
    ),
    (
        "GEOSEARCH",
        &[
            One(PLACES),
            One(&["FROMMEMBER"]),
            One(MEMBERS),
            One(&["BYBOX"]),
            One(&["3000", "100", "-1"]),
            One(&["3000", "200", "x"]),
            One(&["km"]),
            Maybe(&["WITHDIST", "ANY"]),
        ],
    ),
    (
        "GEOSEARCHSTORE",
        &[
            One(PLACES),
            One(PLACES),
            One(&["FROMLONLAT"]),
            One(FAR),
            One(FAR),
            One(&["BYRADIUS"]),
            One(&["1000", "6000"]),
            One(&["km"]),
            Maybe(&["STOREDIST", "WITHDIST"]),
        ],
    ),
];
/// No sorted set of other scores may become one of them: what Redis then answers is not defined.
const PLACES: &[&str] = &["g1", "g2", "g1", "g2", "n1", "n5"];
const LONGITUDES: &[&str] = &["13.361389", "15.087269", "-180", "0", "179.99", "181", "x", "2.5"];
const LATITUDES: &[&str] = &["38.115556", "37.502669", "-85", "0", "85.05112878", "86", "48.8"];
const FAR: &[&str] = &["10", "20.5", "-30", "41.123456", "0", "5", "-0.001"];

const BITMAP: &[(&str, &[Part])] = &[
    ("SETBIT", &[One(STRINGS), One(OFFSETS), One(&["0", "1", "1", "2", "x"])]),
    ("SETBIT", &[One(STRINGS), One(&["3", "9", "17", "40"]), One(&["1"])]),
    ("GETBIT", &[One(STRINGS), One(OFFSETS)]),
    ("BITCOUNT", &[One(STRINGS)]),
    ("BITCOUNT", &[One(STRINGS), One(NUMBERS), One(NUMBERS), Maybe(UNITS)]),
    ("BITPOS", &[One(STRINGS), One(&["0", "1", "2", "x"]), Maybe(NUMBERS)]),
    ("BITPOS", &[One(STRINGS), One(&["0", "1"]), One(NUMBERS), One(NUMBERS), Maybe(UNITS)]),
    ("BITOP", &[One(&["AND", "or", "XOR", "x"]), One(STRINGS), Several(3, STRINGS)]),
    ("BITOP", &[One(&["NOT"]), One(STRINGS), Several(2, &["b1", "b2", "none"])]),
    ("SET", &[One(&["b1", "b2"]), One(&["", "\u{7f}", "abc", "\u{0}\u{0}x", "hello world"])]),
    ("GET", &[One(STRINGS)]),
    ("BITFIELD", &[One(STRINGS), One(&["GET", "x"]), One(WIDTHS), One(FIELDS)]),
    (
        "BITFIELD",
        &[
            One(STRINGS),
            With("OVERFLOW", &["WRAP", "sat", "FAIL", "x"]),
            One(&["SET", "incrby"]),
            One(WIDTHS),
            One(FIELDS),
            One(NUMBERS),
            With("OVERFLOW", &["sat", "FAIL"]),
            One(&["INCRBY"]),
            One(WIDTHS),
            One(FIELDS),
            One(&["1", "-1", "100", "-129", "9223372036854775807"]),
        ],
    ),
    ("BITFIELD_RO", &[One(STRINGS), One(&["GET", "GET", "SET"]), One(WIDTHS), One(FIELDS)]),
];
const STRINGS: &[&str] = &["b1", "b2", "b3", "b1", "b2", "l1", "none"];
const OFFSETS: &[&str] =
    &["0", "1", "7", "8", "23", "100", "-1", "x", "4294967296", "9223372036854775808", ""];
const UNITS: &[&str] = &["BIT", "byte", "x"];
const WIDTHS: &[&str] =
    &["u8", "i8", "u1", "i5", "u63", "i64", "i1", "u7", "i16", "u64", "i65", "x8", "u0", ""];
const FIELDS: &[&str] = &["0", "1", "7", "#1", "#3", "13", "100", "-1", "#x", "x"];

const SORT: &[(&str, &[Part])] = &[
    ("SORT", &[One(SORTABLE), Maybe(&["ALPHA"]), Maybe(&["DESC", "asc"]), With("STORE", &["n3"])]),
    (
        "SORT",
        &[
            One(&["n1", "n2", "z4"]),
            With("BY", &["w_*", "nosort", "h_*->f", "w_*->x"]),
            With("GET", &["#", "w_*", "h_*->f", "h_*->", "none"]),
            With("GET", &["#", "w_*"]),
            Maybe(&["DESC", "x"]),
            With("STORE", &["n3"]),
        ],
    ),
    (
        "SORT",
        &[
            One(&["n1", "n2", "z4"]),
            One(&["LIMIT"]),
            One(NUMBERS),
            One(NUMBERS),
            With("BY", &["w_*", "nosort"]),
            With("GET", &["#", "h_*->f"]),
            Maybe(&["DESC"]),
        ],
    ),
    ("SORT_RO", &[One(SORTABLE), Maybe(&["ALPHA"]), Maybe(&["DESC"]), With("STORE", &["n3"])]),
    ("RPUSH", &[One(&["n1", "n2"]), Several(5, NUMERALS)]),
    ("ZADD", &[One(&["z4"]), Pairs(5, &["1", "2", "-1"], NUMERALS)]),
    ("SADD", &[One(&["n4"]), Several(4, NUMERALS)]),
    ("DEL", &[One(&["n1", "n2", "n4", "z4"])]),
    ("LRANGE", &[One(&["n3"]), One(&["0"]), One(&["-1"])]),
    ("SET", &[One(&["w_1", "w_2", "w_-3", "w_10"]), One(NUMERALS)]),
    ("HSET", &[One(&["h_1", "h_2"]), One(&["f"]), One(NUMERALS)]),
];
/// No other table knows them: Redis changes the form of a sorted set that it sorts.
const SORTABLE: &[&str] = &["n1", "n2", "n4", "z4", "h_1", "n5"];
const NUMERALS: &[&str] = &["1", "2", "-3", "10", "0.5", "", "1e3", "inf", " 7", "010", "1", "2"];

const PROBABLE: &[(&str, &[Part])] = &[
    ("PFADD", &[One(SKETCHES), Several(8, MEMBERS)]),
    ("PFADD", &[One(SKETCHES), Several(3, NUMBERS)]),
    ("PFADD", &[One(SKETCHES)]),
    ("PFCOUNT", &[Several(3, SKETCHES)]),
    ("PFMERGE", &[One(SKETCHES), Several(2, SKETCHES)]),
    ("DEL", &[One(&["p1", "p2", "p3"])]),
];
const SKETCHES: &[&str] = &["p1", "p2", "p3", "p1", "p2", "n1"];

const UNITED: &[Part] = &[
    Keys(SCORED),
    With("WEIGHTS", SCORES),
    Maybe(SCORES),
    With("AGGREGATE", &["MIN", "max", "Sum", "x"]),
    Maybe(&["WITHSCORES"]),
];
const STORED: &[Part] = &[
    One(ZSETS),
    Keys(SCORED),
    With("AGGREGATE", &["MIN", "max", "Sum", "x"]),
    With("WEIGHTS", &["1", "2", "-1"]),
    Maybe(&["1", "0.5"]),
];

const KEYS: &[(&str, &[Part])] = &[
    ("TYPE", &[One(ANY)]),
    ("OBJECT", &[One(&["ENCODING"]), One(ANY)]),
    ("DEL", &[Several(2, ANY)]),
    ("EXISTS", &[Several(2, ANY)]),
    ("RENAME", &[One(ANY), One(ANY)]),
    ("COPY", &[One(ANY), One(ANY), Maybe(&["REPLACE"])]),
    ("GET", &[One(ANY)]),
    ("SET", &[One(&["str", "s3", "z3", "h3"]), One(MEMBERS)]),
    ("APPEND", &[One(ANY), One(&["x"])]),
    ("MGET", &[Several(3, ANY)]),
    ("EXPIRE", &[One(ANY), One(&["1000"])]),
    ("PERSIST", &[One(ANY)]),
    ("RPUSH", &[One(&["l1"]), Several(3, MEMBERS)]),
];

/// Commands whose elements stand in no order.
const UNORDERED: &[&str] = &[
    "SMEMBERS",
    "SPOP",
    "SRANDMEMBER",
    "SINTER",
    "SUNION",
    "SDIFF",
    "SSCAN",
    "HRANDFIELD",
    "HKEYS",
    "HVALS",
    "HGETALL",
    "HSCAN",
    "ZRANDMEMBER",
    "ZSCAN",
    "GEOSEARCH",
];

fn one(random: &mut Stream, of: &[&str]) -> Vec<u8> {
    random.pick(of).unwrap().as_bytes().to_vec()
}

fn draw(random: &mut Stream, part: Part, args: &mut Vec<Vec<u8>>) {
    match part {
        One(of) => args.push(one(random, of)),
        Several(most, of) => {
            (0..1 + random.below(most)).for_each(|_| args.push(one(random, of)));
        }
        Pairs(most, first, second) => {
            for _ in 0..1 + random.below(most) {
                args.push(one(random, first));
                args.push(one(random, second));
            }
        }
        Maybe(of) => {
            if random.below(4) == 0 {
                args.push(one(random, of));
            }
        }
        With(name, of) => {
            if random.below(4) == 0 {
                args.push(name.as_bytes().to_vec());
                args.push(one(random, of));
            }
        }
        Keys(of) => {
            let count = one(random, KEY_COUNTS);
            let keys = match count[..] {
                [digit @ b'1'..=b'3'] if random.below(12) > 0 => u64::from(digit - b'0'),
                _ => 1 + random.below(3),
            };
            args.push(count);
            (0..keys).for_each(|_| args.push(one(random, of)));
        }
    }
}

/// The lines of a reply in order, for one whose elements have none.
fn sorted(reply: &[u8]) -> Vec<&[u8]> {
    let mut lines: Vec<_> = reply.split(|byte| *byte == b'\n').collect();
    lines.sort_unstable();
    lines
}

/// Tells both servers `steps` commands of `seed`, in version 2 or 3 of the protocol, and compares
/// the replies; how often each command was answered without an error.
pub fn compare(
    seed: u64,
    steps: usize,
    [address, redis]: [&str; 2],
    version: &str,
) -> std::collections::BTreeMap<&'static str, usize> {
    let mut random = Stream::new(seed, Purpose::Test, 1);
    let mut clients = [address, redis].map(|address| Client::open(address).unwrap());
    for client in &mut clients {
        client.send(&command(&[b"HELLO", version.as_bytes()]));
        client.reply();
        clear(client);
    }
    let (mut said, mut failures) = (Vec::new(), Vec::new());
    let mut answered = std::collections::BTreeMap::new();
    for _ in 0..steps {
        let table =
            *random.pick(&[LIST, SET, HASH, ZSET, BITMAP, GEO, SORT, PROBABLE, KEYS]).unwrap();
        let (name, parts) = *random.pick(table).unwrap();
        let mut args = vec![name.as_bytes().to_vec()];
        parts.iter().for_each(|part| draw(&mut random, *part, &mut args));
        match random.below(80) {
            // What is drawn without a count differs.
            0 if !name.contains("RAND") && name != "SPOP" => _ = args.pop(),
            1 => args.push(b"extra".to_vec()),
            _ => {}
        }
        if args.len() == 1 {
            continue;
        }
        let words: Vec<&[u8]> = args.iter().map(Vec::as_slice).collect();
        said.push(text(&words.join(&b' ')));
        let replies = clients.each_mut().map(|client| {
            if name.starts_with("SORT") {
                // Redis takes a number out of range in an earlier command for one of its own.
                client.send(&command(&[b"INCRBYFLOAT", b"in_range", b"1"]));
                client.reply();
            }
            client.send(&command(&words));
            client.reply()
        });
        let [own, theirs] = &replies;
        // Redis does not go back to the smaller form, nor to one piece after an APPEND.
        let larger = [&b"raw"[..], b"hashtable", b"skiplist"];
        let kept = |reply: &[u8]| {
            larger.iter().any(|form| reply.ends_with(&[form, &b"\r\n"[..]].concat()))
        };
        let same = own == theirs
            || name == "OBJECT" && own.starts_with(b"$") && kept(theirs)
            || UNORDERED.contains(&name) && sorted(own) == sorted(theirs);
        if !same {
            failures.push(format!(
                "seed {seed}, version {version}: {}\nredis: {}\nafter\n{}",
                text(own),
                text(theirs),
                said[said.len().saturating_sub(12)..].join("\n")
            ));
            // What follows is judged as well.
            clients.iter_mut().for_each(clear);
        }
        if own[0] != b'-' {
            *answered.entry(name).or_default() += 1;
        }
    }
    let shown = &failures[..failures.len().min(25)];
    assert!(failures.is_empty(), "{} differences: {}", failures.len(), shown.join("\n---\n"));
    answered
}

/// Keys that only some tables use.
const MORE: &[&str] =
    &["z4", "n1", "n2", "n3", "n4", "w_1", "w_2", "w_-3", "w_10", "h_1", "h_2", "p1", "p2", "p3"];

fn clear(client: &mut Client) {
    let keys =
        [&["DEL", "h4", "l3", "s3", "h3", "z3", "b1", "b2", "b3", "g1", "g2"], MORE, ANY].concat();
    let words: Vec<&[u8]> = keys.into_iter().map(str::as_bytes).collect();
    client.send(&command(&words));
    client.reply();
}

/// The names of all commands that are drawn.
pub fn names() -> impl Iterator<Item = &'static str> {
    [LIST, SET, HASH, ZSET, BITMAP, GEO, SORT, PROBABLE, KEYS]
        .into_iter()
        .flatten()
        .map(|(name, _)| *name)
}
