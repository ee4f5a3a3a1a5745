//! Pops that wait: who gets what, in which order, and when nobody comes.

use std::time::{Duration, Instant};

use crate::support::Client;
use crate::support::redis::redis;
use crate::support::waiting::{ask, clients, reply, server, still_waits, wait};

#[test]
fn waiters_are_served_in_order_of_arrival_and_one_for_each_element() {
    let server = server();
    let [mut one, mut two, mut three, mut pusher] = clients(&server);
    for client in [&mut one, &mut two, &mut three] {
        wait(client, "BLPOP none q 0");
    }
    assert_eq!(ask(&mut pusher, "RPUSH q a"), ":1");
    assert_eq!(reply(&mut one), "*2 $1 q $1 a");
    assert!(still_waits(&mut two) && still_waits(&mut three));
    // Both at once: each gets one.
    assert_eq!(ask(&mut pusher, "RPUSH q b c d"), ":3");
    assert_eq!(reply(&mut two), "*2 $1 q $1 b");
    assert_eq!(reply(&mut three), "*2 $1 q $1 c");
    assert_eq!(ask(&mut pusher, "LRANGE q 0 -1"), "*1 $1 d");
    // A connection that has waited goes on as any other.
    assert_eq!(ask(&mut one, "BRPOP q 0"), "*2 $1 q $1 d");
    assert_eq!(ask(&mut one, "PING"), "+PONG");
}

#[test]
fn whatever_makes_a_list_wakes() {
    let server = server();
    let [mut waiter, mut other] = clients(&server);
    let makers = [
        "MULTI\r\nRPUSH q x\r\nEXEC",
        "RPUSH a x\r\nRENAME a q",
        "RPUSH a x\r\nCOPY a q\r\nDEL a",
        "RPUSH a x\r\nLMOVE a q LEFT RIGHT",
    ];
    for maker in makers {
        wait(&mut waiter, "BLPOP q 0");
        other.send(format!("{maker}\r\nPING end\r\n").as_bytes());
        while !reply(&mut other).ends_with("end") {}
        assert_eq!(reply(&mut waiter), "*2 $1 q $1 x", "{maker}");
    }
    wait(&mut waiter, "BLMOVE q to LEFT LEFT 0");
    ask(&mut other, "RPUSH q y");
    assert_eq!(reply(&mut waiter), "$1 y");
    wait(&mut waiter, "BZPOPMIN z 0");
    ask(&mut other, "ZADD z 1.5 m 2 n");
    assert_eq!(reply(&mut waiter), "*3 $1 z $1 m $3 1.5");
    wait(&mut waiter, "BLMPOP 0 2 none to LEFT COUNT 5\r\nBZMPOP 0 1 z2 MAX");
    assert_eq!(reply(&mut waiter), "*2 $2 to *1 $1 y");
    ask(&mut other, "ZADD z2 1 m");
    assert_eq!(reply(&mut waiter), "*2 $2 z2 *1 *2 $1 m $1 1");
}

#[test]
fn a_waiter_that_cannot_take_it_or_is_gone_is_passed_over() {
    let server = server();
    let [mut scores, mut gone, mut list, mut pusher] = clients(&server);
    wait(&mut scores, "BZPOPMIN k 0");
    wait(&mut gone, "BLPOP k 0");
    wait(&mut list, "BLPOP k 0");
    drop(gone);
    std::thread::sleep(Duration::from_millis(60));
    ask(&mut pusher, "RPUSH k x");
    assert_eq!(reply(&mut list), "*2 $1 k $1 x");
    assert!(still_waits(&mut scores));
    ask(&mut pusher, "ZADD k 1 m");
    assert_eq!(reply(&mut scores), "*3 $1 k $1 m $1 1");
}

#[test]
fn a_wait_ends_with_its_time_and_nothing_waits_in_a_multi() {
    let server = server();
    let [mut client, mut other] = clients(&server);
    let begun = Instant::now();
    assert_eq!(ask(&mut client, "BLPOP q 0.15"), "*-1");
    let took = begun.elapsed();
    assert!(took >= Duration::from_millis(150) && took < Duration::from_secs(2), "{took:?}");
    // Who has given up takes nothing.
    ask(&mut other, "RPUSH q x");
    assert_eq!(ask(&mut client, "LLEN q"), ":1");
    client.send(b"MULTI\r\nBLPOP none 0\r\nBLPOP q 0\r\nBLMOVE none q LEFT LEFT 0\r\nEXEC\r\n");
    (0..4).for_each(|_| _ = client.reply());
    assert_eq!(reply(&mut client), "*3 *-1 *2 $1 q $1 x $-1");
    // Commands behind it wait with it.
    client.send(b"BLPOP q 0\r\nECHO behind\r\n");
    std::thread::sleep(Duration::from_millis(60));
    ask(&mut other, "RPUSH q y");
    assert_eq!(reply(&mut client), "*2 $1 q $1 y");
    assert_eq!(reply(&mut client), "$6 behind");
}

#[test]
fn a_queue_hands_out_each_element_once() {
    const ELEMENTS: usize = 200;
    let server = server();
    let consumers: Vec<_> = (0..4)
        .map(|_| {
            let mut client = Client::connect(&server);
            std::thread::spawn(move || {
                let mut seen = Vec::new();
                loop {
                    let popped = ask(&mut client, "BLPOP jobs more 0");
                    let job = popped.rsplit(' ').next().unwrap().to_owned();
                    if job == "end" {
                        return seen;
                    }
                    seen.push(job);
                }
            })
        })
        .collect();
    let producers: Vec<_> = ["jobs", "more"]
        .map(|queue| {
            let mut client = Client::connect(&server);
            std::thread::spawn(move || {
                for job in 0..ELEMENTS {
                    ask(&mut client, &format!("RPUSH {queue} {queue}{job}"));
                }
            })
        })
        .into();
    producers.into_iter().for_each(|producer| producer.join().unwrap());
    let mut client = Client::connect(&server);
    (0..4).for_each(|_| _ = ask(&mut client, "RPUSH more end"));
    let mut seen: Vec<_> =
        consumers.into_iter().flat_map(|consumer| consumer.join().unwrap()).collect();
    // What is in the first queue is popped first, so the ends come last of all.
    seen.sort_unstable();
    let count = seen.len();
    seen.dedup();
    assert_eq!((count, seen.len()), (2 * ELEMENTS, 2 * ELEMENTS));
}

#[test]
fn errors_and_ends_are_those_of_redis() {
    let Some((_redis, redis)) = redis() else { return };
    let server = server();
    let mut both = [Client::connect(&server), Client::open(&redis).unwrap()];
    let requests = [
        "BLPOP none 0.01",
        "BRPOP none x",
        "BRPOP none -1",
        "BLMOVE none k LEFT LEFT 0.01",
        "BLMOVE none k UP LEFT x",
        "BRPOPLPUSH none k 0.01",
        "BLMPOP 0.01 1 none LEFT",
        "BLMPOP x 0 none LEFT",
        "BLMPOP 0 0 none LEFT",
        "BLMPOP 0 1 none UP",
        "BZPOPMIN none 0.01",
        "BZPOPMAX none",
        "BZMPOP 0.01 1 none MIN COUNT 2",
        "BZMPOP 0.01 1 none MIN COUNT 0",
        "SET s 1",
        "BLPOP s 0",
        "BZPOPMAX s 0",
        "BLPOP none s 0",
        "ZADD z 1 a 2 b",
        "BZPOPMAX none z 0",
        "BZMPOP 0 2 none z MAX COUNT 9",
        "RPUSH l a b c",
        "BLMOVE l l LEFT RIGHT 0",
        "BRPOPLPUSH l s 0",
        "BLMPOP 0 1 l RIGHT COUNT 2",
        "HELLO 3",
        "BLPOP none 0.01",
        "BLMOVE none k LEFT LEFT 0.01",
        "ZADD z 1.5 a",
        "BZPOPMIN z 0",
    ];
    for request in requests {
        let [own, theirs] = both.each_mut().map(|client| ask(client, request));
        if !request.starts_with("HELLO") {
            assert_eq!(own, theirs, "{request}");
        }
    }
}
