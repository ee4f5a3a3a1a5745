//! Large collections: lists that stand in pages are answered as by Redis, and nothing is lost or
//! left over of their pages.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::support::pages::{Seen, look};
use crate::support::redis::redis;
use crate::support::{Client, MemoryBackend, command, serve_over, text};
use nicol_core::rng::{Purpose, Stream};

type Words = Vec<Vec<u8>>;

fn ask(client: &mut Client, words: &str) -> String {
    let words: Vec<&[u8]> = words.split(' ').map(str::as_bytes).collect();
    client.send(&command(&words));
    text(&client.reply())
}

fn ask_words(client: &mut Client, words: &Words) -> String {
    let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
    client.send(&command(&words));
    text(&client.reply())
}

/// Waits until nothing is to be freed any more and so many lists are large.
fn settled(backend: &MemoryBackend, roots: usize) -> Seen {
    let begun = Instant::now();
    loop {
        let seen = look(backend);
        if seen.buried == 0 && seen.roots == roots {
            return seen;
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "{seen:?} is not freed");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn one<'a>(random: &mut Stream, of: &[&'a str]) -> &'a str {
    of[random.below(of.len() as u64) as usize]
}

/// An element: one of a few, or of any length.
fn element(random: &mut Stream) -> String {
    match random.below(40) {
        0 => "x".repeat(1 + random.below(9_000) as usize),
        1..12 => one(random, &["a", "b", "", "1", "some longer element"]).to_owned(),
        _ => format!("{}", random.below(100_000_000)),
    }
}

/// A place near one of the ends, or anywhere.
fn place(random: &mut Stream) -> String {
    let place = match random.below(3) {
        0 => random.below(5),
        1 => random.below(300),
        _ => random.below(4_000),
    } as i64;
    if random.below(2) == 0 { place } else { -1 - place }.to_string()
}

fn next(random: &mut Stream) -> Words {
    let (key, other) = (one(random, &["l1", "l2", "l3"]), one(random, &["l1", "l2", "l3"]));
    let (from, to) = (place(random), place(random));
    let end = |random: &mut Stream| one(random, &["LEFT", "RIGHT"]);
    let mut words: Vec<String> = Vec::new();
    let mut say = |more: &[&str]| words.extend(more.iter().map(|word| (*word).to_owned()));
    match random.below(100) {
        0..34 => {
            say(&[one(random, &["LPUSH", "RPUSH", "RPUSH", "RPUSHX"]), key]);
            let most = one(random, &["3", "60", "400", "900"]).parse().unwrap();
            for _ in 0..=random.below(most) {
                say(&[&element(random)]);
            }
        }
        34..46 => {
            let count = one(random, &["1", "7", "150", "700"]);
            say(&[one(random, &["LPOP", "RPOP"]), key, count]);
        }
        46..52 => say(&["LINDEX", key, &from]),
        52..58 => say(&["LSET", key, &from, &element(random)]),
        58..64 => {
            let side = one(random, &["BEFORE", "AFTER"]);
            say(&["LINSERT", key, side, one(random, &["a", "1", "none"]), &element(random)]);
        }
        64..68 => say(&["LRANGE", key, &from, &to]),
        68..72 => say(&["LTRIM", key, &from, &to]),
        72..75 => {
            say(&["LREM", key, one(random, &["0", "1", "-2", "30"]), one(random, &["a", "1", ""])])
        }
        75..79 => {
            let rank = one(random, &["1", "3", "-1", "-4"]);
            say(&["LPOS", key, one(random, &["a", ""]), "RANK", rank, "COUNT", "3", "MAXLEN"]);
            say(&[one(random, &["0", "200"])]);
        }
        79..86 => say(&["LMOVE", key, other, end(random), end(random)]),
        86..88 => say(&["COPY", key, other, one(random, &["REPLACE", "DB"])]),
        88..90 => say(&["RENAME", key, other]),
        90 => say(&["DEL", key]),
        91 => say(&["SET", key, "a string"]),
        92 => say(&["PEXPIREAT", key, one(random, &["1", "4000000000000"])]),
        93 => say(&["SORT", key, "ALPHA", "LIMIT", "0", "5", "STORE", other]),
        94 => say(&["LMPOP", "2", key, other, end(random), "COUNT", "90"]),
        95 => say(&["MOVE", key, "1"]),
        _ => say(&["LLEN", key]),
    }
    words.into_iter().map(String::into_bytes).collect()
}

#[test]
fn random_commands_on_large_lists_are_answered_as_by_redis() {
    let Some((_redis, address)) = redis() else { return };
    let seeds = std::env::var("NICOL_REDIS_SEEDS").map_or(2, |seeds| seeds.parse().unwrap());
    let (mut paged, mut packed, mut deepest) = (0, 0, 0);
    for seed in 0..seeds {
        let backend = Arc::new(MemoryBackend::new());
        let server = serve_over(backend.clone(), |_| {});
        let mut both = [Client::connect(&server), Client::open(&address).unwrap()];
        assert_eq!(ask(&mut both[1], "FLUSHALL"), "+OK\r\n");
        let (mut random, mut before) = (Stream::new(seed, Purpose::Test, 0), 0);
        for step in 0..900 {
            let count = if random.below(5) == 0 { 1 + random.below(12) } else { 1 };
            let in_exec = random.below(3) == 0;
            let mut said: Vec<Words> = (0..count).map(|_| next(&mut random)).collect();
            if in_exec {
                said.insert(0, vec![b"MULTI".to_vec()]);
                said.push(vec![b"EXEC".to_vec()]);
            }
            let bytes: Vec<u8> = said
                .iter()
                .flat_map(|words| command(&words.iter().map(Vec::as_slice).collect::<Vec<_>>()))
                .collect();
            both.iter_mut().for_each(|client| client.send(&bytes));
            for words in &said {
                let [own, redis] = both.each_mut().map(Client::reply);
                let (shown, len) = (text(&words.join(&b' ')), words.len());
                let shown: String = shown.chars().take(120).collect();
                assert!(
                    own == redis,
                    "seed {seed} step {step}: {shown} ({len} words)\n{}\nredis:\n{}",
                    text(&own[..own.len().min(300)]),
                    text(&redis[..redis.len().min(300)])
                );
            }
            if step % 10 == 0 {
                let seen = look(&backend);
                paged += usize::from(seen.roots > before);
                packed += usize::from(seen.roots < before);
                (before, deepest) = (seen.roots, deepest.max(seen.depth));
            }
        }
        for key in ["l1", "l2", "l3"] {
            let all = both.each_mut().map(|client| ask(client, &format!("LRANGE {key} 0 -1")));
            assert_eq!(all[0], all[1], "seed {seed}: {key}");
        }
        both.iter_mut().for_each(|client| _ = ask(client, "FLUSHALL"));
        assert_eq!(settled(&backend, 0), Seen::default());
        assert_eq!(backend.records(), 0);
    }
    assert!(paged > 5 && packed > 5 && deepest >= 2, "{paged} {packed} {deepest}");
}

/// Adds so many elements of 20 bytes at the end.
fn fill(client: &mut Client, key: &str, count: usize) {
    for from in (0..count).step_by(2_000) {
        let elements =
            (from..count.min(from + 2_000)).map(|number| format!("element-{number:012}"));
        let words = [b"RPUSH".to_vec(), key.as_bytes().to_vec()];
        let words = words.into_iter().chain(elements.map(String::into_bytes)).collect();
        let len = count.min(from + 2_000);
        assert_eq!(ask_words(client, &words), format!(":{len}\r\n"));
    }
}

#[test]
fn whatever_ends_a_large_list_frees_its_pages() {
    let backend = Arc::new(MemoryBackend::new());
    let server = serve_over(backend.clone(), |config| config.threads = 2);
    let client = &mut Client::connect(&server);
    let ends = [
        "DEL l",
        "UNLINK l",
        "SET l x",
        "RENAME s l",
        "PEXPIRE l 1",
        "FLUSHDB",
        "LTRIM l 1 0",
        "LPOP l 100000",
        "COPY s l REPLACE",
        "SORT s BY nosort STORE l",
        "LTRIM l -100 -1",
    ];
    for end in ends {
        fill(client, "l", 30_000);
        ask(client, "SET s 1");
        if end.starts_with("SORT") {
            ask(client, "DEL s");
            ask(client, "RPUSH s 1");
        }
        let seen = look(&backend);
        assert!(seen.roots == 1 && seen.pages > 150 && seen.depth == 3, "{seen:?}");
        assert!(!ask(client, end).starts_with('-'), "{end}");
        settled(&backend, usize::from(end.ends_with("-1")));
        ask(client, "FLUSHALL");
        settled(&backend, 0);
        assert_eq!(backend.records(), 0, "{end}");
    }
}

#[test]
fn a_key_that_changes_hands_keeps_its_pages_or_has_its_own() {
    let backend = Arc::new(MemoryBackend::new());
    let server = serve_over(backend.clone(), |_| {});
    let client = &mut Client::connect(&server);
    fill(client, "l", 3_000);
    assert_eq!(ask(client, "RENAME l m"), "+OK\r\n");
    assert_eq!(ask(client, "COPY m c"), ":1\r\n");
    assert_eq!(ask(client, "MOVE m 1"), ":1\r\n");
    assert_eq!((settled(&backend, 2).buried, ask(client, "DBSIZE")), (0, ":1\r\n".to_owned()));
    assert_eq!(ask(client, "LPUSH c new"), ":3001\r\n");
    assert_eq!(ask(client, "SELECT 1"), "+OK\r\n");
    assert_eq!(ask(client, "LINDEX m 0"), "$20\r\nelement-000000000000\r\n");
    assert_eq!(ask(client, "DEL m"), ":1\r\n");
    settled(&backend, 1);
    assert_eq!(ask(client, "SELECT 0"), "+OK\r\n");
    assert_eq!(ask(client, "LINDEX c -1"), "$20\r\nelement-000000002999\r\n");
    assert_eq!(ask(client, "SCAN 0"), "*2\r\n$1\r\n0\r\n*1\r\n$1\r\nc\r\n");
    assert_eq!(ask(client, "RANDOMKEY"), "$1\r\nc\r\n");
}

#[test]
fn a_watch_sees_each_change_of_a_large_list() {
    let backend = Arc::new(MemoryBackend::new());
    let server = serve_over(backend, |_| {});
    let [client, other] = &mut [Client::connect(&server), Client::connect(&server)];
    let changes = [
        ("LSET l 1500 x", true),
        ("LINSERT l AFTER x y", true),
        ("LREM l 1 x", true),
        ("RPUSH l z", true),
        ("LPOP l", true),
        ("LTRIM l 0 -2", true),
        ("LMOVE l l LEFT RIGHT", true),
        ("LREM l 1 none", false),
        ("LRANGE l 0 -1", false),
        ("RPUSHX none z", false),
    ];
    for (change, is_seen) in changes {
        fill(client, "l", 3_000);
        assert_eq!(ask(client, "LSET l 700 x"), "+OK\r\n");
        assert_eq!(ask(client, "WATCH l"), "+OK\r\n");
        assert!(!ask(other, change).starts_with('-'), "{change}");
        ask(client, "MULTI");
        ask(client, "LLEN l");
        let refused = ask(client, "EXEC").starts_with("*-1");
        assert_eq!(refused, is_seen, "{change}");
        ask(client, "DEL l");
    }
}

#[test]
fn a_queue_hands_out_each_element_once() {
    const EACH: usize = 1_500;
    let backend = Arc::new(MemoryBackend::new());
    let server = serve_over(backend.clone(), |config| config.threads = 2);
    let mut taken: Vec<String> = std::thread::scope(|scope| {
        let server = &server;
        let producers = (0..3).map(|producer| {
            scope.spawn(move || {
                let client = &mut Client::connect(server);
                for number in (0..EACH).step_by(10) {
                    let words =
                        (number..number + 10).map(|number| format!(" {producer}-{number:020}"));
                    let end = ["LPUSH", "RPUSH"][number / 10 % 2];
                    ask(client, &format!("{end} q{}", words.collect::<String>()));
                }
            })
        });
        let producers: Vec<_> = producers.collect();
        let consumers = (0..3).map(|consumer| {
            scope.spawn(move || {
                let (client, mut taken) = (&mut Client::connect(server), Vec::new());
                // A while later, so that the queue grows large first.
                std::thread::sleep(Duration::from_millis(30));
                loop {
                    let end = ["BLPOP", "BRPOP"][consumer % 2];
                    let reply = ask(client, &format!("{end} q 0.3"));
                    match reply.split("\r\n").nth(4) {
                        Some(element) => taken.push(element.to_owned()),
                        None => return taken,
                    }
                }
            })
        });
        let consumers: Vec<_> = consumers.collect();
        producers.into_iter().for_each(|producer| producer.join().unwrap());
        consumers.into_iter().flat_map(|consumer| consumer.join().unwrap()).collect()
    });
    let all = taken.len();
    taken.sort();
    taken.dedup();
    assert_eq!((all, taken.len()), (3 * EACH, 3 * EACH));
    settled(&backend, 0);
    assert_eq!(backend.records(), 0);
}

#[test]
fn what_exceeds_a_transaction_says_so_and_has_no_effect() {
    let backend = Arc::new(MemoryBackend::new());
    let server = serve_over(backend.clone(), |_| {});
    let client = &mut Client::connect(&server);
    fill(client, "l", 220_000);
    assert_eq!(ask(client, "LINDEX l 123456"), "$20\r\nelement-000000123456\r\n");
    assert_eq!(ask(client, "LRANGE l 123456 123456"), "*1\r\n$20\r\nelement-000000123456\r\n");
    assert_eq!(ask(client, "LPOS l element-000000001000"), ":1000\r\n");
    for words in ["LRANGE l 0 -1", "LPOS l none", "LREM l 0 none", "COPY l c", "SORT l ALPHA"] {
        let error = "-ERR transaction is too large: its values and replies exceed 4 MB\r\n";
        assert_eq!(ask(client, words), error, "{words}");
    }
    assert_eq!(ask(client, "LLEN l"), ":220000\r\n");
    settled(&backend, 1);
}
