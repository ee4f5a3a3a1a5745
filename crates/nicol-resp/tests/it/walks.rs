//! Commands that go over all keys: what each answers and leaves, also while others write.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::support::redis::redis;
use crate::support::{Client, command, serve, text};
use nicol_core::rng::{Purpose, Stream};

/// The elements of an array of bulk strings, at any depth, in order.
fn bulks(reply: &[u8]) -> Vec<String> {
    let (mut rest, mut found) = (text(reply), Vec::new());
    while let Some((line, behind)) = rest.split_once("\r\n") {
        let (kind, number) = line.split_at(1);
        rest = match kind {
            "$" => {
                let len = number.parse().unwrap_or(0);
                found.push(behind[..len].to_owned());
                behind[len + 2..].to_owned()
            }
            "*" => behind.to_owned(),
            _ => panic!("not an array of bulk strings: {line}"),
        };
    }
    found
}

fn ask(client: &mut Client, words: &str) -> Vec<u8> {
    let words: Vec<_> = words.split(' ').map(str::as_bytes).collect();
    client.send(&command(&words));
    client.reply()
}

/// The keys that whole scans with these `options` answer, and how often each; `between` comes after
/// each part.
fn scan(
    client: &mut Client,
    options: &str,
    mut between: impl FnMut(&mut Client),
) -> BTreeMap<String, u32> {
    let (mut cursor, mut seen) = ("0".to_owned(), BTreeMap::new());
    loop {
        let mut part = bulks(&ask(client, &format!("SCAN {cursor}{options}")));
        cursor = part.remove(0);
        part.into_iter().for_each(|key| *seen.entry(key).or_insert(0) += 1);
        if cursor == "0" {
            return seen;
        }
        between(client);
    }
}

#[test]
fn a_scan_meets_once_what_stays_while_others_come_and_go() {
    let server = serve(|_| {});
    let mut client = Client::connect(&server);
    for key in 0..600 {
        ask(&mut client, &format!("SET stays:{key} v"));
    }
    ask(&mut client, "SET gone v PXAT 1");
    for options in ["", " COUNT 1", " COUNT 100", " MATCH stays:* COUNT 7"] {
        let (mut next, mut parts) = (0, 0);
        let seen = scan(&mut client, options, |client| {
            for _ in 0..3 {
                ask(client, &format!("DEL comes:{next}"));
                next += 1;
                ask(client, &format!("SET comes:{next} v"));
            }
            parts += 1;
        });
        let stays = seen.iter().filter(|(key, _)| key.starts_with("stays:"));
        assert_eq!(stays.clone().count(), 600, "{options}");
        assert!(stays.into_iter().all(|(_, count)| *count == 1), "{options}");
        assert!(!seen.contains_key("gone") && parts > 4, "{options}: {parts} parts");
        assert!(!options.contains("MATCH") || seen.len() == 600);
    }
}

#[test]
fn a_flush_deletes_what_was_there_and_nothing_of_other_databases_while_others_write() {
    let server = serve(|config| config.threads = 2);
    let (mut client, mut other) = (Client::connect(&server), Client::connect(&server));
    for key in 0..2_000 {
        client.send(format!("SET k:{key} v\r\nSADD s:{key} a b\r\n").as_bytes());
    }
    (0..4_000).for_each(|_| _ = client.reply());
    other.ask(b"SELECT 3\r\nSET kept v\r\n", b"+OK\r\n+OK\r\n");
    let (stop, written) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut writer = Client::connect(&server);
            while !stop.load(Ordering::Relaxed) {
                let number = written.fetch_add(1, Ordering::Relaxed);
                // Whole or not at all: a flush leaves no part of an EXEC's key behind.
                let fields: Vec<_> = (0..20).map(|field| format!("f{field} {number}")).collect();
                ask(&mut writer, &format!("HSET w:{} {}", number % 50, fields.join(" ")));
            }
        });
        // Until both have done something, however few cores there are.
        let (mut rounds, wrote) = (0, || written.load(Ordering::Relaxed) > 20);
        while rounds < 20 || !wrote() && !writer.is_finished() {
            rounds += 1;
            client.ask(b"SET mine v\r\nFLUSHDB\r\nGET mine\r\n", b"+OK\r\n+OK\r\n$-1\r\n");
            let left = bulks(&ask(&mut client, "KEYS *"));
            assert!(left.iter().all(|key| key.starts_with("w:")), "{left:?} in round {rounds}");
            for key in left {
                let fields = bulks(&ask(&mut client, &format!("HGETALL {key}")));
                assert!(fields.is_empty() || fields.len() == 40, "{key}: {fields:?}");
            }
        }
        stop.store(true, Ordering::Relaxed);
        writer.join().unwrap();
    });
    client.ask(b"FLUSHDB ASYNC\r\nDBSIZE\r\n", b"+OK\r\n:0\r\n");
    other.ask(b"GET kept\r\nDBSIZE\r\n", b"$1\r\nv\r\n:1\r\n");
    client.ask(b"FLUSHALL sync\r\n", b"+OK\r\n");
    other.ask(b"GET kept\r\nDBSIZE\r\n", b"$-1\r\n:0\r\n");
}

#[test]
fn walks_that_are_large_in_bytes_are_split_and_those_of_a_multi_refused() {
    let server = serve(|config| {
        (config.limits.transaction_keys, config.limits.group_keys) = (5, 5);
    });
    let mut client = Client::connect(&server);
    let value = "v".repeat(300_000);
    for key in 0..40 {
        ask(&mut client, &format!("SET k:{key} {value}"));
    }
    assert_eq!(bulks(&ask(&mut client, "KEYS *")).len(), 40);
    assert_eq!(scan(&mut client, " COUNT 1000", |_| {}).len(), 40);
    client.ask(b"MULTI\r\nSCAN 0\r\n", b"+OK\r\n-ERR Command not allowed inside a transaction\r\n");
    client.ask(b"EXEC\r\n", b"-EXECABORT Transaction discarded because of previous errors.\r\n");
    client.ask(b"FLUSHALL\r\nDBSIZE\r\nRANDOMKEY\r\n", b"+OK\r\n:0\r\n$-1\r\n");
    client.send(b"INFO commandstats\r\n");
    let stats = text(&client.reply());
    for line in ["cmdstat_keys:calls=1,", "cmdstat_flushall:calls=1,"] {
        assert!(stats.contains(line), "{line} in {stats}");
    }
}

#[test]
fn keys_too_many_for_a_reply_are_refused_and_a_watch_sees_a_flush() {
    let server = serve(|config| {
        config.limits.output_hard_bytes = 6_000;
        config.limits.output_soft_bytes = 1_000;
    });
    let (mut client, mut other) = (Client::connect(&server), Client::connect(&server));
    (0..1_000).for_each(|key| _ = ask(&mut client, &format!("SET key:{key} v")));
    let refusal =
        b"-ERR the keys are too many for one reply: SCAN goes over them, some at a time\r\n";
    client.ask(b"KEYS *\r\n", refusal);
    assert_eq!(scan(&mut client, "", |_| {}).len(), 1_000);
    client.ask(b"WATCH key:1\r\n", b"+OK\r\n");
    other.ask(b"FLUSHALL\r\n", b"+OK\r\n");
    client.ask(b"MULTI\r\nSET key:1 w\r\nEXEC\r\n", b"+OK\r\n+QUEUED\r\n*-1\r\n");
}

#[test]
fn random_walks_answer_what_redis_answers() {
    let Some((_redis, address)) = redis() else { return };
    let server = serve(|_| {});
    let mut both = [Client::connect(&server), Client::open(&address).unwrap()];
    let mut random = Stream::new(5, Purpose::Test, 0);
    let patterns = ["*", "a*", "?1", "[ab]*", "[^a]?", "\\*", "", "a1", "*1*2*", "[", "b[1-3]"];
    let kinds = ["string", "list", "HASH", "zset", "set", "stream", "x"];
    for round in 0..600 {
        let pick = |random: &mut Stream, of: &[&str]| (*random.pick(of).unwrap()).to_owned();
        let key = format!("{}{}", pick(&mut random, &["a", "b", "*", "c1"]), random.below(40));
        let line = match random.below(25) {
            24 => pick(
                &mut random,
                &["SCAN +0 TYPE x COUNT 9999", "SCAN -", "SCAN 99999999999999999999", "SCAN ++1"],
            ),
            0 => pick(&mut random, &["FLUSHDB", "FLUSHALL async", "FLUSHDB SYNC", "SELECT 1"]),
            1 => format!("SELECT {}", random.below(3)),
            2 => pick(&mut random, &["FLUSHDB x", "FLUSHALL SYNC SYNC", "KEYS", "RANDOMKEY x"]),
            3 => pick(&mut random, &["SCAN x", "SCAN 0 COUNT 0", "SCAN 0 COUNT x"]),
            4 => pick(
                &mut random,
                &["SCAN 0 COUNT", "SCAN 0 FOO 1", "SCAN 0 TYPE a TYPE b COUNT 9999", "SCAN"],
            ),
            5..9 => format!("SET {key} v"),
            9..11 => format!("SADD {key} v"),
            11..13 => format!("RPUSH {key} v"),
            13 => format!("HSET {key} f v"),
            14 => format!("ZADD {key} 1 v"),
            15 => format!("PEXPIRE {key} -1"),
            _ => "DBSIZE".to_owned(),
        };
        let answers = both.each_mut().map(|client| text(&ask(client, &line)));
        assert_eq!(answers[0], answers[1], "{line} in round {round}");
        let pattern = pick(&mut random, &patterns);
        let (asked, options) = (
            format!("KEYS {pattern}"),
            match random.below(3) {
                0 => format!(" MATCH {pattern} COUNT {}", 1 + random.below(60)),
                1 => format!(" TYPE {} MATCH {pattern}", pick(&mut random, &kinds)),
                _ => format!(" COUNT {}", 1 + random.below(60)),
            },
        );
        let keys = both.each_mut().map(|client| bulks(&ask(client, &asked)));
        let sets = keys.each_ref().map(|keys| keys.iter().collect::<BTreeSet<_>>());
        assert_eq!((&sets[0], keys[0].len()), (&sets[1], keys[1].len()), "{asked}");
        let scans = both.each_mut().map(|client| scan(client, &options, |_| {}));
        assert_eq!(scans[0], scans[1], "{options} in round {round}");
        let any = both.each_mut().map(|client| text(&ask(client, "RANDOMKEY")));
        let exists = |reply: &String| reply != "$-1\r\n";
        assert_eq!(exists(&any[0]), exists(&any[1]), "round {round}");
        if exists(&any[0]) {
            let chosen = bulks(any[0].as_bytes()).remove(0);
            assert_eq!(text(&ask(&mut both[1], &format!("EXISTS {chosen}"))), ":1\r\n");
        }
    }
}
