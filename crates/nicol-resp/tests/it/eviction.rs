//! Eviction: a store that is full, and each of the policies.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::support::{Client, MemoryBackend, command, serve_over, text};
use nicol_core::ids::Key;
use nicol_core::serving::Walked;
use nicol_core::txn::{Abort, Outcome};
use nicol_resp::{Backend, Done, Request, Response};

/// Has memory for so many records.
struct Limited {
    memory: MemoryBackend,
    records: u64,
}

impl Limited {
    fn of(records: u64) -> Arc<Self> {
        Arc::new(Self { memory: MemoryBackend::new(), records })
    }
}

impl Backend for Limited {
    fn submit(&self, _connection: u64, request: Arc<Request>, done: Done) {
        let there: BTreeSet<_> = self.memory.all().into_iter().map(|(key, _)| key).collect();
        let inserts = request.writes.iter().any(|key| !there.contains(key));
        let response = match inserts && self.is_full() {
            true => Response { outcome: Outcome::Aborted(Abort::NoResources), output: Vec::new() },
            false => self.memory.run(&request),
        };
        done(response);
    }

    fn walk(&self, from: u64, keys: &mut Vec<Key>) -> Walked {
        self.memory.walk(from, keys)
    }

    fn walk_position(&self, draw: u64) -> u64 {
        self.memory.walk_position(draw)
    }

    fn is_full(&self) -> bool {
        self.memory.records() >= self.records
    }
}

const OOM: &[u8] = b"-OOM command not allowed when used memory > 'maxmemory'.\r\n";
/// Longer than the clock of accesses takes for a tick.
const A_WHILE: Duration = Duration::from_millis(400);

fn ask(client: &mut Client, words: &[&str]) -> String {
    client.send(&command(&words.iter().map(|word| word.as_bytes()).collect::<Vec<_>>()));
    text(&client.reply())
}

fn ok(client: &mut Client, words: &[&str]) {
    assert_eq!(ask(client, words), "+OK\r\n", "{words:?}");
}

/// Which of the keys with this prefix and a number below `count` are there.
fn left(client: &mut Client, prefix: &str, count: usize) -> Vec<usize> {
    let there = |number: &usize| ask(client, &["EXISTS", &format!("{prefix}{number}")]) == ":1\r\n";
    (0..count).filter(there).collect()
}

/// Sets the keys with this prefix and a number below `count`, with `more` words behind.
fn set(client: &mut Client, prefix: &str, count: usize, more: &[&str]) {
    for number in 0..count {
        ok(client, &[&["SET", &format!("{prefix}{number}"), "value"], more].concat());
    }
}

#[test]
fn what_was_not_read_for_longest_goes_and_others_learn_of_it() {
    let server = serve_over(Limited::of(30), |config| config.eviction_samples = 64);
    let mut client = Client::connect(&server);
    set(&mut client, "cold", 20, &[]);
    set(&mut client, "hot", 10, &[]);
    assert_eq!(ask(&mut client, &["SET", "new", "x"]).as_bytes(), OOM);
    ok(&mut client, &["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    ok(&mut client, &["CONFIG", "SET", "notify-keyspace-events", "Ee"]);
    let mut told = Client::connect(&server);
    told.send(&command(&[b"SUBSCRIBE", b"__keyevent@0__:evicted"]));
    told.reply();
    sleep(A_WHILE);
    for number in 0..10 {
        assert_eq!(ask(&mut client, &["GET", &format!("hot{number}")]), "$5\r\nvalue\r\n");
    }
    // Looks that are no accesses.
    for number in 0..20 {
        assert_eq!(ask(&mut client, &["TTL", &format!("cold{number}")]), ":-1\r\n");
    }
    ok(&mut client, &["WATCH", "cold0", "cold1"]);
    set(&mut client, "new", 20, &[]);
    ok(&mut client, &["MULTI"]);
    assert_eq!(ask(&mut client, &["GET", "hot1"]), "+QUEUED\r\n");
    assert_eq!(ask(&mut client, &["EXEC"]), "*-1\r\n");
    assert_eq!(left(&mut client, "cold", 20), []);
    assert_eq!(left(&mut client, "hot", 10).len(), 10);
    assert_eq!(left(&mut client, "new", 20).len(), 20);
    assert_eq!(server.counter(|counters| &counters.evicted_keys), 20);
    assert!(ask(&mut client, &["INFO", "stats"]).contains("\r\nevicted_keys:20\r\n"));
    assert!(ask(&mut client, &["INFO", "memory"]).contains("\r\nmaxmemory_policy:allkeys-lru\r\n"));
    let event = text(&told.reply());
    assert!(event.contains("__keyevent@0__:evicted\r\n$") && event.contains("cold"), "{event}");
    assert_eq!(ask(&mut client, &["DBSIZE"]), ":30\r\n");
}

#[test]
fn what_is_read_often_stays() {
    let server = serve_over(Limited::of(30), |config| {
        config.eviction_samples = 64;
        config.eviction = "allkeys-lfu".parse().unwrap();
    });
    let mut client = Client::connect(&server);
    // Every access counts: otherwise some of these are drawn to count no more than new ones.
    assert_eq!(ask(&mut client, &["CONFIG", "SET", "lfu-log-factor", "0"]), "+OK\r\n");
    set(&mut client, "often", 10, &[]);
    for _ in 0..20 {
        for number in 0..10 {
            ask(&mut client, &["GET", &format!("often{number}")]);
        }
    }
    set(&mut client, "once", 60, &[]);
    assert_eq!(left(&mut client, "often", 10).len(), 10);
    assert_eq!(server.counter(|counters| &counters.evicted_keys), 40);
}

#[test]
fn volatile_policies_evict_only_what_expires() {
    for policy in ["volatile-lru", "volatile-lfu", "volatile-random", "volatile-ttl"] {
        let server =
            serve_over(Limited::of(20), |config| config.eviction = policy.parse().unwrap());
        let mut client = Client::connect(&server);
        set(&mut client, "stays", 10, &[]);
        set(&mut client, "late", 9, &["EX", "5000"]);
        set(&mut client, "soon", 1, &["EX", "1000"]);
        set(&mut client, "first", 1, &[]);
        if policy == "volatile-ttl" {
            assert_eq!(left(&mut client, "soon", 1), []);
        }
        set(&mut client, "more", 9, &[]);
        assert_eq!(left(&mut client, "stays", 10).len(), 10, "{policy}");
        assert_eq!(left(&mut client, "more", 9).len(), 9, "{policy}");
        let begun = Instant::now();
        assert_eq!(ask(&mut client, &["SET", "last", "x"]).as_bytes(), OOM, "{policy}");
        assert!(begun.elapsed() < Duration::from_secs(1), "{policy}");
        assert_eq!(server.counter(|counters| &counters.evicted_keys), 10, "{policy}");
    }
}

#[test]
fn a_pipeline_and_a_multi_find_room_whole() {
    let policy = |config: &mut nicol_resp::ServerConfig| {
        config.eviction = "allkeys-random".parse().unwrap();
    };
    let server = serve_over(Limited::of(100), policy);
    let mut client = Client::connect(&server);
    set(&mut client, "old", 100, &[]);
    let pipeline: Vec<u8> = (0..50)
        .flat_map(|number| command(&[b"SET", format!("p{number}").as_bytes(), b"v"]))
        .collect();
    client.send(&pipeline);
    client.expect(&b"+OK\r\n".repeat(50));
    ok(&mut client, &["MULTI"]);
    assert_eq!(ask(&mut client, &["SET", "m1", "v"]), "+QUEUED\r\n");
    assert_eq!(ask(&mut client, &["SET", "m2", "v"]), "+QUEUED\r\n");
    client.ask(b"EXEC\r\n", b"*2\r\n+OK\r\n+OK\r\n");
}

#[test]
fn object_answers_what_the_policy_knows() {
    let server = serve_over(Limited::of(100), |_| {});
    let mut client = Client::connect(&server);
    // Without a policy nothing is kept of accesses.
    ok(&mut client, &["SET", "k", "v"]);
    let idle = ask(&mut client, &["OBJECT", "IDLETIME", "k"]);
    assert!(idle.starts_with("-ERR An LRU maxmemory policy is not selected"), "{idle}");
    ok(&mut client, &["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    ok(&mut client, &["SET", "k", "v"]);
    assert_eq!(ask(&mut client, &["OBJECT", "IDLETIME", "k"]), ":0\r\n");
    assert!(
        ask(&mut client, &["OBJECT", "FREQ", "k"])
            .starts_with("-ERR An LFU maxmemory policy is not")
    );
    sleep(Duration::from_millis(1_350));
    assert_eq!(ask(&mut client, &["OBJECT", "IDLETIME", "k"]), ":1\r\n");
    assert_eq!(ask(&mut client, &["OBJECT", "IDLETIME", "none"]), "$-1\r\n");
    ok(&mut client, &["CONFIG", "SET", "maxmemory-policy", "allkeys-lfu", "lfu-log-factor", "0"]);
    (0..3).for_each(|_| ok(&mut client, &["SET", "k", "v"]));
    assert_eq!(ask(&mut client, &["OBJECT", "FREQ", "k"]), ":8\r\n");
    assert!(
        ask(&mut client, &["OBJECT", "IDLETIME", "k"])
            .starts_with("-ERR An LRU maxmemory policy is not")
    );
    let wrong = ask(&mut client, &["CONFIG", "SET", "maxmemory-policy", "lru"]);
    assert!(
        wrong.starts_with("-ERR CONFIG SET failed") && wrong.contains("allkeys-lru"),
        "{wrong}"
    );
    assert_eq!(
        ask(&mut client, &["CONFIG", "GET", "maxmemory-policy"]).lines().last(),
        Some("allkeys-lfu")
    );
    assert!(
        ask(&mut client, &["CONFIG", "SET", "maxmemory-samples", "0"]).contains("from 1 to 64")
    );
}
