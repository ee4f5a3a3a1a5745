//! What CLIENT does to clients, and MONITOR shows of them, is what `redis-server` does.

use std::time::{Duration, Instant};

use crate::support::party::Party;
use crate::support::redis::redis;
use crate::support::{Client, serve};

/// What clients say to a server and to Redis; each gets the same answers.
const TALK: &[(usize, &str)] = &[
    // Who wants no answers.
    (0, "CLIENT REPLY maybe"),
    (0, "CLIENT REPLY SKIP ; SET a 1 ; GET a"),
    (0, "CLIENT REPLY SKIP ; GET a ; GET a ; CLIENT REPLY SKIP ; PING one ; PING two"),
    (0, "CLIENT REPLY SKIP ; NOSUCH ; CLIENT REPLY SKIP ; SET a ; ECHO seen"),
    (0, "CLIENT REPLY OFF ; SET a 2 ; GET a ; PING ; CLIENT REPLY SKIP ; MULTI ; GET a ; EXEC ;"),
    (0, "CLIENT REPLY ON ; GET a"),
    (0, "CLIENT REPLY SKIP ; KEYS nosuch* ; CLIENT REPLY SKIP ; SCAN 0 COUNT 1000 ; GET a"),
    // Who waits, and is told not to.
    (0, "CLIENT UNBLOCK x"),
    (0, "CLIENT UNBLOCK 77 maybe"),
    (0, "CLIENT UNBLOCK 77"),
    (0, "CLIENT UNBLOCK $1"),
    // Pauses.
    (0, "CLIENT PAUSE x"),
    (0, "CLIENT PAUSE -1"),
    (0, "CLIENT PAUSE 10 some"),
    (0, "CLIENT PAUSE 10 WRITE more"),
    (0, "CLIENT UNPAUSE"),
    (0, "CLIENT PAUSE 100000 WRITE"),
    (1, "GET a ; PUBSUB NUMPAT"),
    (1, "MULTI ; GET a ; EXEC"),
    (0, "CLIENT UNPAUSE"),
    (1, "SET a 3"),
    // Types of clients.
    (0, "CLIENT LIST TYPE nosuch"),
    (0, "CLIENT KILL TYPE nosuch"),
    (1, "SUBSCRIBE c"),
    (0, "CLIENT KILL TYPE replica"),
    (0, "CLIENT KILL TYPE normal ID $1"),
    (0, "CLIENT KILL TYPE pubsub"),
    (1, "PING"),
];

#[test]
fn clients_are_treated_as_redis_treats_them() {
    let Some((_redis, redis)) = redis() else { return };
    let server = serve(|config| config.threads = 2);
    let mut both = [&server.address().to_string(), &redis].map(|address| Party::open(address, 2));
    for (place, (who, words)) in TALK.iter().enumerate() {
        let [here, there] = both.each_mut().map(|party| party.ask(*who, words));
        assert_eq!(here, there, "{place}: {words}");
    }
}

#[test]
fn a_wait_is_ended_from_elsewhere() {
    let Some((_redis, redis)) = redis() else { return };
    let server = serve(|config| config.threads = 2);
    let ends = [&server.address().to_string(), &redis].map(|address| {
        let mut party = Party::open(address, 2);
        let mut heard = String::new();
        for how in ["", " TIMEOUT", " ERROR"] {
            party.clients[0].send(b"BLPOP none 0\r\n");
            while !party.ask(1, "INFO clients").contains("blocked_clients:1") {}
            heard += &party.ask(1, &["CLIENT UNBLOCK $0", how].concat());
            heard += &party.rest(0);
            heard += &party.ask(1, "CLIENT UNBLOCK $0");
        }
        heard
    });
    assert_eq!(ends[0], ends[1]);
    assert!(ends[0].contains("-UNBLOCKED"), "{}", ends[0]);
}

/// Writes wait in either pause, reads in one; nothing is lost, and what has expired stays.
#[test]
fn commands_wait_for_the_end_of_a_pause() {
    let server = serve(|config| config.threads = 2);
    let address = server.address().to_string();
    let mut party = Party::open(&address, 3);
    let waits = |client: &mut Client| {
        client.0.set_read_timeout(Some(Duration::from_millis(80))).unwrap();
        let waits = client.read(1).is_empty();
        client.0.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        waits
    };
    party.ask(0, "SET k 1 PX 20");
    party.ask(0, "CLIENT PAUSE 60000 WRITE");
    // Two fronts: each has one of these.
    for who in [1, 2] {
        party.clients[who].send(b"GET k2\r\n");
        assert_eq!(party.line(who), "$-1");
        party.clients[who].send(b"MULTI\r\nGET k2\r\nEXEC\r\n");
        for line in ["+OK", "+QUEUED", "*1", "$-1"] {
            assert_eq!(party.line(who), line);
        }
        party.clients[who].send(b"INCR n\r\nPING\r\n");
        assert!(waits(&mut party.clients[who]));
    }
    assert!(party.ask(0, "DBSIZE").starts_with(":1"), "nothing is freed in a pause");
    let begun = Instant::now();
    party.ask(0, "CLIENT UNPAUSE");
    let mut counts: Vec<_> = [1, 2].map(|who| party.line(who)).into();
    counts.sort();
    assert_eq!(counts, [":1", ":2"]);
    assert!(begun.elapsed() < Duration::from_millis(200), "{:?}", begun.elapsed());
    assert_eq!([1, 2].map(|who| party.line(who)), ["+PONG", "+PONG"]);
    // Of all commands: it ends with its time.
    let begun = Instant::now();
    party.clients[0].send(b"CLIENT PAUSE 200\r\n");
    assert_eq!(party.line(0), "+OK");
    party.rest(1);
    assert!(begun.elapsed() >= Duration::from_millis(200), "{:?}", begun.elapsed());
}

/// Commands of client 0, as client 1 sees them.
const SHOWN: &[&str] = &[
    "SET a x\"\\y",
    "GET a",
    "get a ; Echo hi",
    "MULTI ; GET a ; EXEC",
    "CONFIG GET port",
    "NOSUCH a",
    "GET",
    "SELECT 3 ; GET a ; SELECT 0",
    "AUTH secret",
    "HELLO 2 AUTH default secret",
    "CLIENT ID ; CLIENT LIST ID 1",
    "PUBLISH c m",
    "EVAL redis.call('select',2);redis.call('set',KEYS[1],'v');return(redis.pcall('nosuch')) 1 a",
    "EVAL return(redis.pcall('lpush',KEYS[1],'v')) 1 a",
    "MULTI ; EVAL return(redis.call('get',KEYS[1])) 1 a ; EXEC",
];

#[test]
fn a_monitor_sees_the_commands_that_redis_shows() {
    let Some((_redis, redis)) = redis() else { return };
    let server = serve(|config| config.threads = 2);
    let seen = [&server.address().to_string(), &redis].map(|address| {
        let mut party = Party::open(address, 2);
        assert!(party.ask(1, "MONITOR").starts_with("+OK"));
        SHOWN.iter().for_each(|words| _ = party.ask(0, words));
        let mut seen = Vec::new();
        party.clients[0].send(b"ECHO last\r\n");
        while seen.last().is_none_or(|line: &String| !line.ends_with("\"last\"")) {
            let line = party.line(1);
            // Without the time and the port; of a MULTI, the order is another.
            let Some((_, line)) = line.split_once('[') else { continue };
            let (place, words) = line.split_once(']').unwrap();
            let database = place.split(' ').next().unwrap();
            if !words.contains("\"PING\"") {
                seen.push(format!("{database}{words}"));
            }
        }
        party.ask(1, "RESET");
        party.ask(0, "GET a");
        assert!(!party.rest(1).contains("\"GET\""), "it sees nothing any more");
        seen.sort();
        seen
    });
    assert_eq!(seen[0], seen[1]);
    assert!(seen[0].len() > 10, "{seen:?}");
}

#[test]
fn what_tells_of_subscriptions_is_answered_whatever_client_reply_said() {
    let server = serve(|_| {});
    let mut client = Client::connect(&server);
    client.ask(b"CLIENT REPLY SKIP\r\nCLIENT REPLY ON\r\nPING\r\n", b"+OK\r\n+PONG\r\n");
    let subscribed = b"*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n";
    client.ask(b"CLIENT REPLY OFF\r\nSET k v\r\nSUBSCRIBE c\r\n", subscribed);
    let mut other = Client::connect(&server);
    other.ask(b"PUBLISH c m\r\n", b":1\r\n");
    client.expect(b"*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nm\r\n");
}
