//! Messages reach those who have subscribed, as `redis-server` sends them.

use std::time::Duration;

use crate::support::party::Party;
use crate::support::redis::redis;
use crate::support::{Client, serve};

/// What clients say to a server and to Redis; each gets the same answers. Client 2 speaks version
/// 3.
const TALK: &[(usize, &str)] = &[
    (1, "PUBLISH news a"),
    (0, "SUBSCRIBE news"),
    (0, "SUBSCRIBE news sport"),
    (0, "PSUBSCRIBE n?ws* [ab]c x"),
    (1, "PUBLISH news a ; PUBLISH news b ; PUBLISH sport c ; PUBLISH none d ; PUBLISH ac e"),
    (0, "PING"),
    (0, "PING hello"),
    (0, "PING hello there"),
    // What one of version 2 that listens may not do.
    (0, "GET k"),
    (0, "SET k"),
    (0, "MULTI"),
    (0, "CLIENT ID"),
    (0, "PUBLISH news x"),
    (0, "NOSUCH"),
    (0, "PUBSUB NUMPAT"),
    (0, "HELLO 3"),
    (1, "PUBSUB CHANNELS ne*"),
    (1, "PUBSUB NUMSUB news sport none ; PUBSUB NUMSUB ; PUBSUB NUMPAT"),
    (1, "PUBSUB channels a b"),
    (1, "PUBSUB NUMPAT x"),
    (1, "PUBSUB nosuch"),
    (1, "PUBSUB"),
    (1, "PUBSUB HELP"),
    (1, "PUBLISH news"),
    (1, "SUBSCRIBE"),
    (0, "UNSUBSCRIBE news none"),
    (1, "PUBLISH news f"),
    (0, "PUNSUBSCRIBE x n?ws* [ab]c"),
    (0, "PUNSUBSCRIBE"),
    (0, "UNSUBSCRIBE"),
    (0, "GET k ; UNSUBSCRIBE"),
    (1, "PUBLISH news g ; PUBSUB NUMPAT"),
    (0, "PING"),
    // Version 3: it goes on as before.
    (2, "HELLO 3"),
    (2, "SUBSCRIBE news other"),
    (2, "PSUBSCRIBE n*"),
    (2, "SET k 1 ; GET k ; PING"),
    (1, "PUBLISH news h"),
    (2, "GET k"),
    (2, "UNSUBSCRIBE"),
    (2, "PUNSUBSCRIBE n* ; PUNSUBSCRIBE"),
    // Sharded channels are others.
    (2, "SSUBSCRIBE news"),
    (0, "SSUBSCRIBE news more"),
    (0, "SUBSCRIBE news"),
    (1, "SPUBLISH news i ; PUBLISH news j ; SPUBLISH none k"),
    (0, "PING"),
    (2, "PING"),
    (1, "PUBSUB SHARDCHANNELS n* ; PUBSUB SHARDNUMSUB news more none ; PUBSUB CHANNELS"),
    (0, "SUNSUBSCRIBE"),
    (2, "SUNSUBSCRIBE news ; SUNSUBSCRIBE"),
    (0, "RESET"),
    (1, "PUBSUB SHARDCHANNELS ; PUBSUB CHANNELS"),
    // A transaction tells once it has committed.
    (0, "SUBSCRIBE t"),
    (2, "SUBSCRIBE t"),
    (1, "MULTI ; PUBLISH t 1 ; SET k 2 ; PUBLISH t 2 ; PUBLISH none 3 ; SPUBLISH t 4 ; GET k ;"),
    (0, "PING"),
    (1, "EXEC"),
    (0, "PING"),
    (2, "PING"),
    (1, "MULTI ; PUBLISH t 5 ; DISCARD"),
    (1, "MULTI ; PUBLISH t 6 ; NOSUCH ; EXEC"),
    (1, "MULTI ; PUBLISH t ; EXEC"),
    (1, "WATCH k"),
    (2, "SET k 3"),
    (1, "MULTI ; PUBLISH t 7 ; EXEC"),
    (1, "MULTI ; PUBLISH t 8 ; INCR k ; LPUSH k x ; EXEC"),
    (0, "PING"),
    (2, "PING"),
    (1, "CLIENT LIST TYPE nosuch"),
    (0, "QUIT"),
    (1, "PUBSUB NUMSUB t"),
];

#[test]
fn subscribers_are_told_as_redis_tells_them() {
    let Some((_redis, redis)) = redis() else { return };
    let server = serve(|config| config.threads = 2);
    let mut both = [&server.address().to_string(), &redis].map(|address| Party::open(address, 3));
    for (place, (who, words)) in TALK.iter().enumerate() {
        let sorted = words.ends_with("UNSUBSCRIBE") || words.contains("CHANNELS");
        let [here, there] = both.each_mut().map(|party| {
            let answer = party.ask(*who, words);
            let mut parts: Vec<_> = answer.split(' ').collect();
            if sorted {
                // Names have no order.
                parts.sort_unstable();
            }
            parts.join(" ")
        });
        assert_eq!(here, there, "{place}: {words}");
    }
}

/// Publishers on several threads: each subscriber gets every message, those of one publisher in
/// order, and all subscribers the same order of all.
#[test]
fn messages_of_one_publisher_keep_their_order() {
    const MESSAGES: usize = 500;
    let server = serve(|config| config.threads = 3);
    let address = server.address().to_string();
    let mut readers = Party::open(&address, 3);
    for who in 0..3 {
        readers.ask(who, "SUBSCRIBE c");
    }
    let publishers: Vec<_> = (0..3)
        .map(|number| {
            let address = address.clone();
            std::thread::spawn(move || {
                let mut publisher = Client::open(&address).unwrap();
                for message in 0..MESSAGES {
                    let text = match message % 2 {
                        0 => format!("PUBLISH c {number}-{message}\r\n"),
                        _ => format!("MULTI\r\nPUBLISH c {number}-{message}\r\nEXEC\r\n"),
                    };
                    publisher.send(text.as_bytes());
                    let replies = if message % 2 == 0 { 1 } else { 3 };
                    (0..replies).for_each(|_| _ = publisher.reply());
                }
            })
        })
        .collect();
    let all: Vec<Vec<String>> = (0..3)
        .map(|who| {
            let mut got = Vec::new();
            while got.len() < 3 * MESSAGES {
                // The message is the last of seven lines.
                (0..6).for_each(|_| _ = readers.line(who));
                got.push(readers.line(who));
            }
            got
        })
        .collect();
    publishers.into_iter().for_each(|publisher| publisher.join().unwrap());
    for number in 0..3 {
        let own = |text: &&String| text.starts_with(&format!("{number}-"));
        let sent: Vec<_> = (0..MESSAGES).map(|message| format!("{number}-{message}")).collect();
        assert_eq!(all[0].iter().filter(own).cloned().collect::<Vec<_>>(), sent);
    }
    assert!(all[0] == all[1] && all[1] == all[2], "all got the same order");
}

#[test]
fn a_subscriber_that_does_not_read_is_closed() {
    let server = serve(|config| {
        config.threads = 2;
        config.limits.pubsub.hard_bytes = 1 << 20;
    });
    let mut party = Party::open(&server.address().to_string(), 2);
    let [reads, publishes] = [0, 1];
    party.ask(reads, "SUBSCRIBE c");
    let message = "x".repeat(100_000);
    let mut receivers = 1;
    for _ in 0..200 {
        if party.ask(publishes, &format!("PUBLISH c {message}")).starts_with(":0") {
            receivers = 0;
            break;
        }
    }
    assert_eq!(receivers, 0, "it was closed");
    assert_eq!(server.counter(|counters| &counters.slow_closed), 1);
}

#[test]
fn a_subscriber_above_the_soft_limit_for_its_time_is_closed() {
    let server = serve(|config| {
        config.limits.pubsub.soft_bytes = 1 << 10;
        config.limits.pubsub.soft_time = Duration::from_millis(300);
    });
    let mut party = Party::open(&server.address().to_string(), 2);
    party.ask(0, "SUBSCRIBE c");
    let message = "x".repeat(1 << 20);
    for _ in 0..12 {
        assert!(party.ask(1, &format!("PUBLISH c {message}")).starts_with(":1"));
    }
    let mut left = 20;
    while party.ask(1, "PUBSUB NUMSUB c").contains(":1") {
        left -= 1;
        assert!(left > 0, "it is still there");
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(server.counter(|counters| &counters.slow_closed), 1);
}

/// What users may say of channels, compared with Redis.
const RIGHTS: &[(usize, &str)] = &[
    (0, "ACL SETUSER u on nopass +@all ~* resetchannels &news* &exact"),
    (1, "AUTH u p"),
    (1, "SUBSCRIBE other"),
    (1, "SUBSCRIBE news1 other"),
    (1, "PSUBSCRIBE news1"),
    (1, "PUBLISH other x ; PUBLISH news1 x ; SPUBLISH other x"),
    (1, "UNSUBSCRIBE other"),
    (1, "PSUBSCRIBE news*"),
    (1, "SUBSCRIBE news2 exact"),
    (0, "ACL DRYRUN u PUBLISH other x ; ACL DRYRUN u PUBLISH news x"),
    (0, "ACL SETUSER u &more"),
    (1, "PING"),
    (0, "ACL SETUSER u resetchannels &news*"),
    (1, "PING"),
    (0, "PUBSUB NUMSUB news2"),
];

#[test]
fn rights_on_channels_are_those_of_redis() {
    let Some((_redis, redis)) = redis() else { return };
    let server = serve(|config| config.threads = 2);
    let mut both = [&server.address().to_string(), &redis].map(|address| Party::open(address, 2));
    for (place, (who, words)) in RIGHTS.iter().enumerate() {
        let [here, there] = both.each_mut().map(|party| party.ask(*who, words));
        assert_eq!(here, there, "{place}: {words}");
    }
}
