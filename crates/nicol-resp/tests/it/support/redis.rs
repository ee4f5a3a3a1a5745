//! A `redis-server` of this machine, and random conversations with it and with another server.

use std::io::BufRead;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::{Client, command, read_reply, serve, text};
use nicol_core::rng::{Purpose, Stream};

/// A server that ends with the test.
pub struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // One that has ended already needs neither.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A Redis without files, and where it listens; `None` if none is installed.
pub fn redis() -> Option<(Process, String)> {
    for _ in 0..20 {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = free.local_addr().unwrap();
        drop(free);
        let port = address.port().to_string();
        let started = Command::new("redis-server")
            .args(["--port", &port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
            .stdout(Stdio::null())
            .spawn();
        let Ok(child) = started else {
            eprintln!("skipped: there is no redis-server here");
            return None;
        };
        let mut process = Process(child);
        if answers(&mut process.0, &address.to_string()) {
            return Some((process, address.to_string()));
        }
    }
    panic!("redis-server does not start");
}

/// Waits until it is `redis` that answers at `address`; another test may have taken the port.
fn answers(redis: &mut Child, address: &str) -> bool {
    let id = format!("process_id:{}\r\n", redis.id());
    while redis.try_wait().unwrap().is_none() {
        if let Ok(mut client) = Client::open(address) {
            client.send(b"INFO server\r\nQUIT\r\n");
            if text(&client.read(1 << 20)).contains(&id) {
                return true;
            }
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    false
}

/// Sends every line of `conversation` to both servers; returns what they answered differently.
pub fn compare(conversation: &str, version: &str) -> Vec<String> {
    let Some((_redis, address)) = redis() else { return Vec::new() };
    let server = serve(|_| {});
    let mut both = [Client::connect(&server), Client::open(&address).unwrap()];
    let (mut differ, hello) = (Vec::new(), format!("HELLO {version}\r\n"));
    for client in &mut both {
        client.send(hello.as_bytes());
        client.reply();
    }
    for line in conversation.as_bytes().lines().map(Result::unwrap) {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let request = format!("{line}\r\n");
        let [own, other] = both.each_mut().map(|client| {
            client.send(request.as_bytes());
            text(&client.reply())
        });
        if own != other {
            differ.push(format!("{line}\n  nicol: {own:?}\n  redis: {other:?}"));
        }
    }
    differ
}

/// Keys of every command but INCRBYFLOAT.
const KEYS: [&str; 5] = ["a", "b", "c", "n", "f"];
const NUMBERS: [&str; 16] = [
    "0",
    "1",
    "-1",
    "2",
    "-3",
    "7",
    "100",
    "9223372036854775807",
    "-9223372036854775808",
    "9223372036854775808",
    "4611686018427387904",
    "1.5",
    "x",
    "",
    " 1",
    "01",
];
const FLOATS: [&str; 13] =
    ["0", "0.1", "0.5", "-0.25", "3", "5.0e3", "25e-2", "+2", ".5", "x", "", "1.2.3", "nan"];
const VALUES: [&str; 10] =
    ["", "v", "10", "-7", "0.5", "hello world", "3.25", "1e2", "x\r\ny", "0"];
/// Databases that a conversation uses, and what is none.
const DATABASES: [&str; 6] = ["0", "0", "1", "1", "16", "x"];
/// Times that are over, or that no test lasts.
const TIMES: [&str; 12] = [
    "1000",
    "2000",
    "100000",
    "-1",
    "0",
    "x",
    "1.5",
    "9223372036854775807",
    "9223372036854775",
    "9223372036854776",
    "-9223372036854775808",
    "",
];
/// Unix times, in seconds or milliseconds, that are over or far.
const UNIX: [&str; 6] = ["1", "-5", "4000000000", "4000000000000", "4100000000000", "x"];
/// Unix times that are not over in either unit.
const FAR: [&str; 4] = ["-5", "4000000000000", "4100000000000", "x"];

fn one(random: &mut Stream, of: &[&str]) -> Vec<u8> {
    random.pick(of).unwrap().as_bytes().to_vec()
}

fn some(random: &mut Stream, name: &str, most: u64, of: &[&[&str]]) -> Vec<Vec<u8>> {
    let mut args = vec![name.as_bytes().to_vec()];
    for _ in 0..1 + random.below(most) {
        args.extend(of.iter().map(|of| one(random, of)));
    }
    args
}

/// The options of SET and GETEX, right and wrong; deadlines may be `past`.
fn options(random: &mut Stream, past: bool, args: &mut Vec<Vec<u8>>) {
    for _ in 0..random.below(4) {
        let words = ["NX", "xx", "GET", "KEEPTTL", "PERSIST", "EX", "px", "EXAT", "PXAT", "FOO"];
        let word = one(random, &words);
        let timed = match &word[..] {
            b"EX" | b"px" => Some(one(random, &TIMES)),
            b"EXAT" | b"PXAT" if past => Some(one(random, &UNIX)),
            b"EXAT" | b"PXAT" => Some(one(random, &FAR)),
            _ => None,
        };
        args.push(word);
        args.extend(timed.filter(|_| random.below(10) > 0));
    }
}

/// Commands with what their arguments are drawn from.
const PLAIN: [(&str, &[&[&str]]); 36] = [
    ("GET", &[&KEYS]),
    ("GETDEL", &[&KEYS]),
    ("STRLEN", &[&KEYS]),
    ("TYPE", &[&KEYS]),
    ("PERSIST", &[&KEYS]),
    ("TTL", &[&KEYS]),
    ("PTTL", &[&KEYS]),
    ("EXPIRETIME", &[&KEYS]),
    ("PEXPIRETIME", &[&KEYS]),
    ("INCR", &[&KEYS]),
    ("DECR", &[&KEYS]),
    ("INCRBY", &[&KEYS, &NUMBERS]),
    ("DECRBY", &[&KEYS, &NUMBERS]),
    ("INCRBYFLOAT", &[&["d"], &FLOATS]),
    ("GETSET", &[&["d"], &VALUES]),
    ("SET", &[&["n"], &NUMBERS]),
    ("SETNX", &[&KEYS, &VALUES]),
    ("GETSET", &[&KEYS, &VALUES]),
    ("APPEND", &[&KEYS, &VALUES]),
    ("SETEX", &[&KEYS, &TIMES, &VALUES]),
    ("PSETEX", &[&KEYS, &["900000", "0", "x"], &VALUES]),
    ("GETRANGE", &[&KEYS, &NUMBERS, &NUMBERS]),
    ("SUBSTR", &[&KEYS, &NUMBERS, &NUMBERS]),
    ("SETRANGE", &[&KEYS, &["0", "1", "7", "-1", "x", "600000000"], &VALUES]),
    ("EXPIRE", &[&KEYS, &TIMES]),
    ("PEXPIRE", &[&KEYS, &["900000", "-1", "0", "x"]]),
    ("EXPIREAT", &[&KEYS, &UNIX]),
    ("PEXPIREAT", &[&KEYS, &UNIX]),
    ("RENAME", &[&KEYS, &KEYS]),
    ("RENAMENX", &[&KEYS, &KEYS]),
    ("MGET", &[&KEYS]),
    ("PING", &[&KEYS]),
    ("SELECT", &[&DATABASES]),
    ("MOVE", &[&KEYS, &DATABASES]),
    ("COPY", &[&KEYS, &KEYS]),
    ("COPY", &[&KEYS, &KEYS, &["DB", "replace", "FOO"], &DATABASES]),
];

/// One command with arguments that mostly fit.
fn draw(random: &mut Stream, past: bool) -> Vec<Vec<u8>> {
    let mut args = match random.below(100) {
        0..55 => {
            let (name, of) = *random.pick(&PLAIN).unwrap();
            some(random, name, 1, of)
        }
        55..60 => some(random, "DEL", 3, &[&KEYS]),
        60..62 => some(random, "UNLINK", 2, &[&KEYS]),
        62..66 => some(random, "EXISTS", 3, &[&KEYS]),
        66..70 => some(random, "MGET", 3, &[&KEYS]),
        70..74 => some(random, "MSET", 3, &[&KEYS, &VALUES]),
        74..78 => some(random, "MSETNX", 3, &[&KEYS, &VALUES]),
        78..86 => {
            let mut args = some(random, "SET", 1, &[&KEYS, &VALUES]);
            options(random, past, &mut args);
            args
        }
        86..90 => {
            let mut args = some(random, "GETEX", 1, &[&KEYS]);
            options(random, past, &mut args);
            args
        }
        90..95 => {
            // Not from now on: the same time said twice would be later by what passed.
            let mut args = some(random, "EXPIREAT", 1, &[&KEYS, &UNIX]);
            for _ in 0..1 + random.below(2) {
                args.push(one(random, &["NX", "XX", "gt", "LT", "FOO"]));
            }
            args
        }
        95..98 => some(random, "WATCH", 2, &[&KEYS]),
        _ => vec![b"UNWATCH".to_vec()],
    };
    // Now and then an argument too few or too many.
    match random.below(60) {
        0 if args.len() > 1 => _ = args.pop(),
        1 => args.push(b"extra".to_vec()),
        _ => {}
    }
    args
}

/// The replies of both, where a time left may differ by what passed between the two.
fn agree(name: &[u8], one: &[u8], other: &[u8]) -> bool {
    let number = |reply: &[u8]| -> Option<i64> {
        std::str::from_utf8(reply.strip_prefix(b":")?.strip_suffix(b"\r\n")?).ok()?.parse().ok()
    };
    let slack = match name {
        b"TTL" | b"EXPIRETIME" => 60,
        b"PTTL" | b"PEXPIRETIME" => 60_000,
        _ => 0,
    };
    match (number(one), number(other)) {
        (Some(one), Some(other)) if one > 0 && other > 0 => one.abs_diff(other) <= slack,
        _ => one == other,
    }
}

type Words = Vec<Vec<u8>>;

/// Two connections to each of two servers, which are told the same.
struct Talk {
    seed: u64,
    random: Stream,
    clients: [[Client; 2]; 2],
    /// Per connection, the names of what it has sent since MULTI.
    open: [Option<Words>; 2],
    /// Per connection, the names of what was queued since MULTI, as far as replies were read.
    queued: [Option<Words>; 2],
    watching: [bool; 2],
    said: Vec<String>,
    /// EXECs that were refused.
    refused: usize,
    /// Keys that had a time left.
    timed: usize,
}

impl Talk {
    fn new(seed: u64, address: &str, redis: &str) -> Self {
        let both = [address, redis];
        let mut talk = Self {
            seed,
            random: Stream::new(seed, Purpose::Test, 0),
            clients: [0, 1].map(|_| both.map(|address| Client::open(address).unwrap())),
            open: [None, None],
            queued: [None, None],
            watching: [false; 2],
            said: Vec::new(),
            refused: 0,
            timed: 0,
        };
        for client in &mut talk.clients[0] {
            for database in [b"1", b"0"] {
                client.send(&command(&[b"SELECT", database]));
                client.reply();
                client.send(&command(&[&b"DEL"[..], b"a", b"b", b"c", b"n", b"f", b"d"]));
                client.reply();
            }
        }
        talk
    }

    /// Sends one command or several at once, and compares the replies.
    fn turn(&mut self) {
        let who = self.random.below(2) as usize;
        // A key that is both created and deleted in one group was never there for another's WATCH.
        let most = if self.watching[1 - who] { 1 } else { 12 };
        let several = self.random.below(4) == 0;
        let count = if several { 1 + self.random.below(most) } else { 1 };
        let sent: Vec<Words> = (0..count).map(|_| self.next(who)).collect();
        let requests: Vec<Vec<u8>> = sent
            .iter()
            .map(|words| command(&words.iter().map(Vec::as_slice).collect::<Vec<_>>()))
            .collect();
        for client in &mut self.clients[who] {
            client.send(&requests.concat());
        }
        for words in sent {
            let replies = self.clients[who].each_mut().map(Client::reply);
            self.said.push(format!("{who}: {}", text(&words.join(&b' '))));
            let same = self.judge(who, &words[0], &replies);
            assert!(
                same,
                "seed {}: {}\nredis: {}\nafter\n{}",
                self.seed,
                text(&replies[0]),
                text(&replies[1]),
                self.said[self.said.len().saturating_sub(60)..].join("\n")
            );
        }
    }

    fn next(&mut self, who: usize) -> Words {
        let watched = self.watching[1 - who];
        let words = match (self.random.below(12), &self.open[who]) {
            (0, None) => vec![b"MULTI".to_vec()],
            // As with groups: what is created and deleted in one transaction was never there.
            (0..3, Some(names)) if watched && names.iter().any(may_delete) => {
                vec![b"DISCARD".to_vec()]
            }
            (0..3, Some(_)) => vec![b"EXEC".to_vec()],
            (3, Some(_)) if self.random.below(4) == 0 => vec![b"DISCARD".to_vec()],
            // A key that is set when its time is over was never there either.
            _ => draw(&mut self.random, self.watching == [false; 2]),
        };
        match (&words[0][..], &mut self.open[who]) {
            (b"MULTI", open @ None) => *open = Some(Vec::new()),
            (b"EXEC" | b"DISCARD", open) => (*open, self.watching[who]) = (None, false),
            (name, Some(names)) => names.push(name.to_vec()),
            (b"WATCH", None) => self.watching[who] = true,
            (b"UNWATCH", None) => self.watching[who] = false,
            _ => {}
        }
        words
    }

    fn judge(&mut self, who: usize, name: &[u8], replies: &[Vec<u8>; 2]) -> bool {
        self.timed += usize::from(name == b"PTTL" && replies[0].len() > 6);
        match (name, &mut self.queued[who]) {
            (b"MULTI", queued @ None) => *queued = Some(Vec::new()),
            (b"EXEC", queued) => {
                self.refused += usize::from(replies[0] == b"*-1\r\n");
                return same_array(&queued.take().unwrap_or_default(), replies);
            }
            (b"DISCARD", queued) => *queued = None,
            (name, Some(names)) if replies[0] == b"+QUEUED\r\n" => names.push(name.to_vec()),
            (name, None) => return agree(name, &replies[0], &replies[1]),
            (_, Some(_)) => {}
        }
        replies[0] == replies[1]
    }
}

/// Lets both servers be told `steps` times the same; returns how often an EXEC was refused, and how
/// often a key had a time left.
pub fn converse(seed: u64, steps: usize, address: &str, redis: &str) -> (usize, usize) {
    let mut talk = Talk::new(seed, address, redis);
    (0..steps).for_each(|_| talk.turn());
    (talk.refused, talk.timed)
}

fn may_delete(name: &Vec<u8>) -> bool {
    let keeps = ["GET", "STRLEN", "TYPE", "TTL", "PTTL", "MGET", "EXISTS", "MSET", "SETNX", "INCR"];
    !keeps.iter().any(|keeps| keeps.as_bytes() == name)
}

/// The replies of two EXECs, element by element.
fn same_array(names: &[Vec<u8>], replies: &[Vec<u8>; 2]) -> bool {
    let head = format!("*{}\r\n", names.len());
    let bodies = replies.each_ref().map(|reply| reply.strip_prefix(head.as_bytes()));
    let [Some(one), Some(other)] = bodies else { return replies[0] == replies[1] };
    let (mut one, mut other) = (one, other);
    names.iter().all(|name| {
        let (mut rest_one, mut rest_other) = (one, other);
        let found = [&mut rest_one, &mut rest_other].map(read_reply);
        (one, other) = (rest_one, rest_other);
        agree(name, &found[0], &found[1])
    })
}
