//! A live cluster behind RESP answers as the `redis-server` of this machine does. Without one
//! installed, the tests that compare say so and pass.

mod live;
#[path = "../../nicol-resp/tests/it/support/mod.rs"]
mod support;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use live::live;
use support::redis::{converse, redis};
use support::{Client, serve, text};

#[test]
fn random_conversations_with_the_live_cluster_go_as_with_redis() {
    let Some((_redis, redis)) = redis() else { return };
    let (_cluster, address) = live();
    let mut refused = 0;
    for seed in 1_000..1_006 {
        refused += converse(seed, 500, &address, &redis).0;
    }
    assert!(refused > 5, "{refused} EXECs were refused");
}

#[test]
fn keys_expire_as_with_redis() {
    let Some((_redis, redis)) = redis() else { return };
    let (_cluster, cluster) = live();
    let memory = serve(|_| {});
    let script: &[&[u8]] = &[
        b"SET a 1 PX 1000\r\nSET b 2\r\nPEXPIRE b 1000\r\nSET c 3 PX 60000\r\nGETEX d PX 1000\r\nWATCH c\r\n",
        b"SET d 4 PX 1000\r\nSET e 5 PX 1000\r\nPERSIST e\r\nSET f 6 PX 1000\r\nSET f 7 KEEPTTL\r\n",
        b"SET g 1 PX 1000\r\nINCR g\r\nSET h 1 PX 1000\r\nSET h 2\r\nSET i x PX 1000\r\nRENAME i j\r\n",
        b"WATCH a\r\nMULTI\r\n",
        b"wait",
        b"GET b\r\nGET e\r\nEXEC\r\n",
        b"MGET a b c d e f g h i j\r\nEXISTS a b c d e f g h i j\r\nTYPE a\r\nTTL a\r\nSTRLEN f\r\n",
        b"SETNX a again\r\nTTL a\r\nINCR g\r\nTTL g\r\nAPPEND j z\r\nPTTL j\r\nGETDEL b\r\n",
    ];
    let talk = |address: String| {
        let mut client = Client::open(&address).unwrap();
        let mut replies = Vec::new();
        for lines in script {
            if *lines == b"wait" {
                std::thread::sleep(Duration::from_millis(1_100));
                continue;
            }
            client.send(lines);
            let commands = lines.windows(2).filter(|pair| pair == b"\r\n").count();
            (0..commands).for_each(|_| replies.extend(client.reply()));
        }
        text(&replies)
    };
    let said = std::thread::scope(|scope| {
        [cluster, memory.address().to_string(), redis]
            .map(|address| scope.spawn(|| talk(address)))
            .map(|talk| talk.join().unwrap())
    });
    assert!(said[2].contains("*-1"), "the EXEC after the watched key is over is refused: {said:?}");
    assert_eq!(said[0], said[2], "cluster");
    assert_eq!(said[1], said[2], "memory");
}

#[test]
fn what_was_acknowledged_is_listed_at_once_and_flushed_while_others_write() {
    let (_cluster, address) = live();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..2)
            .map(|number| {
                let (address, stop) = (&address, &stop);
                scope.spawn(move || busy(address, number, stop))
            })
            .collect();
        let mut client = Client::open(&address).unwrap();
        for round in 0..5 {
            let keys: BTreeSet<_> = (0..100).map(|key| format!("round:{round}:{key}")).collect();
            let sets: String = keys.iter().map(|key| format!("SET {key} v\r\n")).collect();
            client.send(sets.as_bytes());
            keys.iter().for_each(|_| client.expect(b"+OK\r\n"));
            assert_eq!(listed(&mut client, "KEYS round:*"), keys, "in round {round}");
            assert_eq!(scanned(&mut client, "round:*"), keys, "in round {round}");
            client.ask(b"FLUSHDB\r\n", b"+OK\r\n");
            assert_eq!(listed(&mut client, "KEYS round:*"), BTreeSet::new(), "in round {round}");
        }
        stop.store(true, Ordering::Relaxed);
        let sets: u32 = writers.into_iter().map(|writer| writer.join().unwrap()).sum();
        assert!(sets > 100, "{sets}");
        client.ask(b"FLUSHALL\r\nDBSIZE\r\nRANDOMKEY\r\n", b"+OK\r\n:0\r\n$-1\r\n");
    });
}

/// Sets keys until it is to stop; returns how many.
fn busy(address: &str, number: u32, stop: &AtomicBool) -> u32 {
    let (mut client, mut sets) = (Client::open(address).unwrap(), 0);
    while !stop.load(Ordering::Relaxed) {
        let lines: String = (sets..sets + 50)
            .map(|set| format!("SET busy:{number}:{} {set}\r\n", set % 3_000))
            .collect();
        client.send(lines.as_bytes());
        (0..50).for_each(|_| client.expect(b"+OK\r\n"));
        sets += 50;
    }
    sets
}

/// The strings of a reply.
fn listed(client: &mut Client, line: &str) -> BTreeSet<String> {
    client.send(format!("{line}\r\n").as_bytes());
    let reply = text(&client.reply());
    let is_string = |line: &&str| !line.starts_with(['*', '$']);
    reply.lines().filter(is_string).map(str::to_owned).collect()
}

fn scanned(client: &mut Client, pattern: &str) -> BTreeSet<String> {
    let (mut cursor, mut keys) = ("0".to_owned(), BTreeSet::new());
    loop {
        client.send(format!("SCAN {cursor} COUNT 50 MATCH {pattern}\r\n").as_bytes());
        let reply = text(&client.reply());
        let mut strings = reply.lines().filter(|line| !line.starts_with(['*', '$']));
        cursor = strings.next().unwrap().to_owned();
        keys.extend(strings.map(str::to_owned));
        if cursor == "0" {
            return keys;
        }
    }
}

#[test]
fn a_counter_on_the_live_cluster_gives_every_number_once() {
    const CLIENTS: usize = 16;
    const EACH: usize = 50;
    let (_cluster, address) = live();
    let mut numbers: Vec<u64> = std::thread::scope(|scope| {
        let count = || {
            let mut client = Client::open(&address).unwrap();
            let mut numbers = Vec::new();
            for _ in 0..EACH {
                client.send(b"INCR n\r\n");
                numbers.push(client.line()[1..].parse::<u64>().unwrap());
            }
            assert!(numbers.is_sorted());
            numbers
        };
        let threads: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(count)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    numbers.sort_unstable();
    assert_eq!(numbers, (1..=(CLIENTS * EACH) as u64).collect::<Vec<_>>());
    let mut client = Client::open(&address).unwrap();
    client.send(b"INFO\r\nQUIT\r\n");
    let told = text(&client.read(1 << 20));
    let joined = told.lines().find_map(|line| line.strip_prefix("transactions_joined:")).unwrap();
    assert!(joined.parse::<u64>().unwrap() > 0, "{CLIENTS} clients on one key must meet");
}
