//! Clients that keep copies are told when these may have changed, as `redis-server` tells them.

use std::collections::BTreeMap;
use std::io::Read;
use std::time::Duration;

use crate::support::party::Party;
use crate::support::redis::redis;
use crate::support::{Client, serve};
use nicol_core::rng::{Purpose, Stream};

/// What clients say to a server and to Redis; each gets the same answers. Clients 0 and 2 speak
/// version 3.
const TALK: &[(usize, &str)] = &[
    (1, "MSET b 1 c 1"),
    (0, "CLIENT TRACKINGINFO"),
    (0, "CLIENT GETREDIR"),
    (0, "CLIENT CACHING YES"),
    (0, "CLIENT TRACKING on"),
    (0, "CLIENT TRACKINGINFO"),
    (0, "CLIENT GETREDIR"),
    (0, "GET a"),
    (1, "SET a 1"),
    (0, "PING"),
    (1, "SET a 2"),
    (0, "PING"),
    (0, "MGET a b c"),
    (1, "DEL c b"),
    (0, "PING"),
    (1, "INCR a"),
    (0, "PING"),
    (0, "GET a"),
    (0, "SET a 5"),
    (0, "PING"),
    (0, "MULTI ; GET m ; EXEC"),
    (1, "APPEND m x"),
    (0, "PING"),
    (0, "CLIENT TRACKING on BCAST"),
    (0, "CLIENT TRACKING on OPTIN OPTOUT"),
    (0, "CLIENT TRACKING on PREFIX x"),
    (0, "CLIENT TRACKING maybe"),
    (0, "CLIENT TRACKING off"),
    (0, "GET a"),
    (1, "SET a 1"),
    (0, "PING"),
    (0, "CLIENT TRACKING on OPTIN NOLOOP"),
    (0, "CLIENT TRACKINGINFO"),
    (0, "GET a"),
    (1, "SET a 1"),
    (0, "CLIENT CACHING no"),
    (0, "CLIENT CACHING yes"),
    (0, "GET a"),
    (0, "GET b"),
    (1, "MSET a 1 b 1"),
    (0, "PING"),
    (0, "CLIENT CACHING yes"),
    (0, "GET a"),
    (0, "SET a 3"),
    (0, "PING"),
    (0, "CLIENT TRACKING off"),
    (0, "CLIENT TRACKING on OPTOUT"),
    (0, "CLIENT CACHING no"),
    (0, "GET a"),
    (0, "GET b"),
    (1, "SET a 1"),
    (1, "SET b 1"),
    (0, "PING"),
    (0, "CLIENT TRACKING off"),
    (0, "CLIENT TRACKING on BCAST PREFIX user: PREFIX user:x"),
    (0, "CLIENT TRACKING on BCAST PREFIX user: PREFIX shop:"),
    (0, "CLIENT TRACKINGINFO"),
    (1, "SET user:1 x"),
    (1, "SET other x"),
    (0, "PING"),
    (0, "RESET ; HELLO 3"),
    (1, "SET user:1 y"),
    (0, "PING"),
    // What collections, transactions and scripts of commands change is told of as well.
    (0, "CLIENT TRACKING on"),
    (0, "HGETALL h ; LRANGE l 0 -1 ; SMEMBERS s ; ZRANGE z 0 -1 ; STRLEN m"),
    (1, "HSET h f 1"),
    (0, "PING"),
    (1, "MULTI ; RPUSH l x ; SADD s m ; EXEC"),
    (0, "PING"),
    (1, "ZADD z 1 m ; RENAME m n"),
    (0, "PING"),
    (0, "EXISTS n ; TTL n ; TYPE n"),
    (1, "EXPIRE n 100"),
    (0, "PING"),
    // Told in place of another: of version 3, then of version 2.
    (0, "CLIENT TRACKING off ; CLIENT TRACKING on REDIRECT 12345"),
    (0, "CLIENT TRACKING on REDIRECT $2 REDIRECT $1"),
    (0, "CLIENT TRACKING on REDIRECT $2"),
    (0, "CLIENT GETREDIR ; CLIENT TRACKINGINFO"),
    (0, "GET a ; GET b"),
    (1, "SET a 9"),
    (2, "PING"),
    (0, "PING"),
    (0, "CLIENT TRACKING off ; CLIENT TRACKING on REDIRECT $3"),
    (0, "GET a ; GET b"),
    (1, "SET a 9"),
    (3, "PING"),
    (3, "SUBSCRIBE __redis__:invalidate"),
    (1, "SET b 9"),
    (3, "PING"),
    (0, "PING"),
    (0, "CLIENT TRACKING off ; CLIENT TRACKING on REDIRECT $3 BCAST PREFIX a"),
    (1, "SET a 10"),
    (3, "PING"),
    // Who is told in its place has gone.
    (3, "QUIT"),
    (1, "SET a 11"),
    (0, "PING"),
    (0, "CLIENT TRACKINGINFO"),
];

#[test]
fn a_client_that_keeps_copies_is_told_as_redis_tells_it() {
    let Some((_redis, redis)) = redis() else { return };
    let server = serve(|config| config.threads = 2);
    let mut both = [&server.address().to_string(), &redis].map(|address| Party::open(address, 4));
    for party in &mut both {
        for who in [0, 2] {
            party.ask(who, "HELLO 3");
        }
    }
    let mut told = 0;
    for (place, (who, words)) in TALK.iter().enumerate() {
        // When it is told of its own write, the message may stand before or behind the answer; and
        // prefixes have no order.
        let [here, there] = both.each_mut().map(|party| {
            let answer = party.ask(*who, words);
            let mut parts: Vec<_> = answer.split(' ').collect();
            parts.sort_unstable();
            parts.join(" ")
        });
        assert_eq!(here, there, "{place}: {words}");
        told += usize::from(here.contains("invalidate"));
    }
    assert!(told >= 15, "{told} messages");
}

#[test]
fn a_key_that_expires_is_told_of() {
    let server = serve(|_| {});
    let mut all = Party::open(&server.address().to_string(), 2);
    let [keeps, listens] = [0, 1];
    for who in [keeps, listens] {
        all.ask(who, "HELLO 3");
    }
    all.ask(keeps, "SET k v PX 50");
    all.ask(keeps, "CLIENT TRACKING ON");
    all.ask(listens, "CLIENT TRACKING ON BCAST");
    all.ask(keeps, "GET k");
    std::thread::sleep(Duration::from_millis(600));
    for who in [keeps, listens] {
        let told = all.ask(who, "PING");
        assert!(told.starts_with(">2 $10 invalidate *1 $1 k"), "{told}");
    }
}

#[test]
fn keys_that_a_flush_deletes_are_told_of() {
    let server = serve(|_| {});
    let mut all = Party::open(&server.address().to_string(), 3);
    let [keeps, listens, flushes] = [0, 1, 2];
    for who in [keeps, listens] {
        all.ask(who, "HELLO 3");
    }
    all.ask(keeps, "SET k v");
    all.ask(keeps, "CLIENT TRACKING ON");
    all.ask(listens, "CLIENT TRACKING ON BCAST");
    all.ask(keeps, "GET k");
    assert!(all.ask(flushes, "FLUSHDB").starts_with("+OK"));
    assert!(all.ask(keeps, "PING").starts_with(">2 $10 invalidate *1 $1 k"));
    assert!(all.ask(listens, "PING").starts_with(">2 $10 invalidate _"), "all are gone");
}

/// Clients on other threads write what one keeps: once they are quiet, its copies are true.
#[test]
fn no_copy_stays_that_was_written_over() {
    let server = serve(|config| config.threads = 3);
    let address = server.address().to_string();
    let mut keeps = Party::open(&address, 1);
    keeps.ask(0, "HELLO 3");
    keeps.ask(0, "CLIENT TRACKING ON");
    let writers: Vec<_> = (0..3_u32)
        .map(|number| {
            let address = address.clone();
            std::thread::spawn(move || {
                let mut writer = Client::open(&address).unwrap();
                let mut random = Stream::new(7, Purpose::Test, number);
                for value in 0..2_000 {
                    let key = random.below(8);
                    writer.send(format!("SET k{key} {number}-{value}\r\n").as_bytes());
                    writer.expect(b"+OK\r\n");
                }
            })
        })
        .collect();
    let mut copies = BTreeMap::new();
    let mut random = Stream::new(8, Purpose::Test, 0);
    let (mut told, mut quiet) = (0, false);
    while !quiet {
        quiet = writers.iter().all(|writer| writer.is_finished());
        for _ in 0..8 {
            let key = format!("k{}", random.below(8));
            keeps.clients[0].send(format!("GET {key}\r\n").as_bytes());
            told += read(&mut keeps, &key, &mut copies);
        }
    }
    std::thread::sleep(Duration::from_millis(50));
    let rest = keeps.ask(0, "PING");
    let mut parts = rest.split(' ').peekable();
    while let Some(part) = parts.next() {
        if part == "invalidate" {
            copies.remove(parts.nth(2).unwrap());
            told += 1;
        }
    }
    let mut other = Party::open(&address, 1);
    for (key, value) in copies {
        let found = other.ask(0, &format!("GET {key}"));
        assert!(
            found.split(' ').any(|part| part == value),
            "{key} is {found}, and kept as {value}"
        );
    }
    assert!(told > 20, "{told} messages");
}

/// Reads up to the answer to a GET of `key`, and keeps it; how many messages came before it.
fn read(from: &mut Party, key: &str, copies: &mut BTreeMap<String, String>) -> usize {
    let mut told = 0;
    loop {
        let line = from.line(0);
        match line.as_str() {
            "_" => return told,
            ">2" => {
                (0..3).for_each(|_| _ = from.line(0));
                from.line(0);
                copies.remove(&from.line(0));
                told += 1;
            }
            _ => {
                let mut value = vec![0; line[1..].parse::<usize>().unwrap() + 2];
                from.lines[0].read_exact(&mut value).unwrap();
                let value = String::from_utf8(value).unwrap().trim_end().to_owned();
                copies.insert(key.to_owned(), value);
                return told;
            }
        }
    }
}

#[test]
fn a_script_s_own_write_is_not_told_to_who_wants_no_loop() {
    let server = serve(|_| {});
    let mut all = Party::open(&server.address().to_string(), 1);
    all.ask(0, "HELLO 3");
    for (mode, told) in [("ON NOLOOP", false), ("OFF", false), ("ON", true)] {
        all.ask(0, &format!("CLIENT TRACKING {mode}"));
        let mut answers = all.ask(0, "EVAL return{redis.call('set',KEYS[1],'2')} 1 k");
        answers += &all.ask(0, "GET k");
        assert_eq!(answers.contains("invalidate"), told, "{mode}: {answers}");
    }
}
