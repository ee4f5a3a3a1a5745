//! What INFO, SLOWLOG and LATENCY tell of commands.

use std::sync::Arc;
use std::time::Duration;

use crate::support::redis::redis;
use crate::support::{Client, MemoryBackend, serve, serve_over, text};
use nicol_resp::{Backend, Done, Request};

/// Answers after a while.
struct Late(MemoryBackend, Duration);

impl Backend for Late {
    fn submit(&self, _connection: u64, request: Arc<Request>, done: Done) {
        std::thread::sleep(self.1);
        done(self.0.run(&request));
    }
}

fn info(client: &mut Client, section: &str) -> String {
    client.send(format!("INFO {section}\r\n").as_bytes());
    text(&client.reply())
}

fn value(info: &str, name: &str) -> String {
    let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("no {name} in {info}")).to_owned()
}

#[test]
fn info_counts_hits_misses_and_what_expired() {
    let server = serve(|_| {});
    let mut client = Client::connect(&server);
    client.ask(b"SET a 1\r\nSET b 1 PX 1\r\n", b"+OK\r\n+OK\r\n");
    std::thread::sleep(Duration::from_millis(5));
    client.ask(b"MGET a nosuch a\r\n", b"*3\r\n$1\r\n1\r\n$-1\r\n$1\r\n1\r\n");
    client.ask(b"GET b\r\nSET b 2\r\n", b"$-1\r\n+OK\r\n");
    client.ask(b"MULTI\r\nGET a\r\nINCR a\r\nEXEC\r\n", b"+OK\r\n+QUEUED\r\n+QUEUED\r\n");
    client.expect(b"*2\r\n$1\r\n1\r\n:2\r\n");
    let stats = info(&mut client, "stats");
    assert_eq!(value(&stats, "keyspace_hits"), "3");
    assert_eq!(value(&stats, "keyspace_misses"), "2");
    assert_eq!(value(&stats, "expired_keys"), "1");
    client.ask(b"CONFIG RESETSTAT\r\n", b"+OK\r\n");
    let stats = info(&mut client, "stats");
    assert_eq!(value(&stats, "keyspace_hits"), "0");
    assert_eq!(value(&info(&mut client, "clients"), "connected_clients"), "1");
}

#[test]
fn commands_are_counted_with_their_times() {
    let server =
        serve_over(Arc::new(Late(MemoryBackend::new(), Duration::from_millis(3))), |config| {
            config.threads = 2
        });
    let (mut client, mut other) = (Client::connect(&server), Client::connect(&server));
    client.ask(b"SET a 1\r\nGET a\r\n", b"+OK\r\n$1\r\n1\r\n");
    other.ask(b"GET a\r\n", b"$1\r\n1\r\n");
    client.send(b"GET\r\n");
    assert!(client.line().starts_with("-ERR wrong number"));
    client
        .ask(b"MULTI\r\nSET a 2\r\nEXEC\r\nPING\r\n", b"+OK\r\n+QUEUED\r\n*1\r\n+OK\r\n+PONG\r\n");
    let stats = info(&mut client, "commandstats");
    let get = value(&stats, "cmdstat_get");
    assert!(get.starts_with("calls=2,usec="), "{get}");
    assert!(get.ends_with(",rejected_calls=1,failed_calls=0"), "{get}");
    let micros: u64 = get.split(['=', ',']).nth(3).unwrap().parse().unwrap();
    assert!(micros >= 6_000, "{get}");
    for once in ["cmdstat_exec", "cmdstat_multi", "cmdstat_ping"] {
        assert!(value(&stats, once).starts_with("calls=1,"), "{stats}");
    }
    assert!(value(&stats, "cmdstat_set").starts_with("calls=2,"), "{stats}");
    let times = value(&info(&mut client, "latencystats"), "latency_percentiles_usec_get");
    let median = times.strip_prefix("p50=").unwrap().split('.').next().unwrap();
    assert!(median.parse::<u64>().unwrap() >= 2_900, "{times}");
    assert!(!info(&mut client, "").contains("cmdstat_"), "only on request, as in Redis");
    client.send(b"LATENCY HISTOGRAM get nosuch\r\n");
    assert!(text(&client.reply()).starts_with("*2\r\n$3\r\nget\r\n*4\r\n$5\r\ncalls\r\n:2\r\n"));
}

#[test]
fn slow_commands_are_kept_until_they_are_reset() {
    let store = Late(MemoryBackend::new(), Duration::from_millis(12));
    let server = serve_over(Arc::new(store), |_| {});
    let mut client = Client::connect(&server);
    client.ask(b"CLIENT SETNAME me\r\nLATENCY LATEST\r\n", b"+OK\r\n*0\r\n");
    client.ask(b"CONFIG SET latency-monitor-threshold 5 slowlog-max-len 2\r\n", b"+OK\r\n");
    client.ask(b"SET a 1\r\n", b"+OK\r\n");
    client.ask(b"SET b 1\r\n", b"+OK\r\n");
    client.ask(b"GET a\r\n", b"$1\r\n1\r\n");
    client.ask(b"SLOWLOG LEN\r\n", b":2\r\n");
    client.send(b"SLOWLOG GET 1\r\n");
    let entry = text(&client.reply());
    assert!(entry.contains("*2\r\n$3\r\nget\r\n$1\r\na\r\n"), "{entry}");
    assert!(entry.ends_with("$2\r\nme\r\n"), "{entry}");
    for sent in ["spop a 2", "hrandfield nosuch", "sort nosuch by x limit 0 1"] {
        client.send(format!("{sent}\r\n").as_bytes());
        client.reply();
        client.send(b"SLOWLOG GET 1\r\n");
        let shown = sent.split(' ').map(|word| format!("${}\r\n{word}\r\n", word.len()));
        let shown = format!("*{}\r\n{}", sent.split(' ').count(), shown.collect::<String>());
        let entry = text(&client.reply());
        assert!(entry.contains(&shown), "{sent}: {entry}");
    }
    client.send(b"LATENCY LATEST\r\n");
    assert!(text(&client.reply()).starts_with("*1\r\n*4\r\n$7\r\ncommand\r\n"));
    client.ask(b"LATENCY RESET\r\nLATENCY HISTORY command\r\n", b":1\r\n*0\r\n");
    client.ask(b"SLOWLOG RESET\r\nCONFIG SET slowlog-log-slower-than -1\r\n", b"+OK\r\n+OK\r\n");
    client.ask(b"GET a\r\nSLOWLOG LEN\r\n", b"$1\r\n1\r\n:0\r\n");
    client.ask(b"CONFIG GET slowlog*\r\n", b"*4\r\n$23\r\nslowlog-log-slower-than\r\n$2\r\n-1\r\n");
    client.expect(b"$15\r\nslowlog-max-len\r\n$1\r\n2\r\n");
    for (refused, why) in [
        ("CONFIG SET port 1", "-ERR CONFIG SET failed (possibly related to argument 'port')"),
        ("CONFIG SET nosuch 1", "-ERR Unknown option or number of arguments"),
        ("CONFIG SET slowlog-max-len -1", "-ERR CONFIG SET failed"),
        ("CONFIG SET slowlog-max-len", "-ERR wrong number of arguments"),
        ("SLOWLOG GET -2", "-ERR count should be greater"),
        ("SLOWLOG GET 1 2", "-ERR wrong number of arguments for 'slowlog|get'"),
        ("LATENCY NOSUCH", "-ERR unknown subcommand"),
    ] {
        client.send(format!("{refused}\r\n").as_bytes());
        let line = client.line();
        assert!(line.starts_with(why), "{refused}: {line}");
    }
}

/// Commands that fail, each in its own way.
const FAILING: &str = "\
SET s 1
INCR s x
LPUSH s a
NOSUCH a
GETRANGE s 0 x
MULTI
INCRBY s x
LPUSH s a
EXEC
MULTI
NOSUCH
EXEC
EXEC
CLIENT NOSUCH
CONFIG SET nosuch 1
OBJECT NOSUCH s
PUBLISH a
EVALSHA nosuch 0
EVAL return 0
EVAL \"return redis.call('lpush',KEYS[1],'a')\" 1 s
EVAL \"return redis.pcall('lpush',KEYS[1],'a')\" 1 s
EVAL \"redis.pcall('lpush',KEYS[1],'a') return 1\" 1 s
EVAL \"return redis.pcall('nosuch')\" 0
EVAL \"return redis.pcall('get')\" 0
EVAL \"return redis.call('select',99)\" 0
EVAL_RO \"return redis.call('set',KEYS[1],1)\" 1 s
EVAL \"return redis.error_reply('MINE is special')\" 0
EVAL \"return redis.error_reply('')\" 0
EVAL \"return {err='OTHER e',ignore_error_stats_update=true}\" 0
EVAL \"error('raised')\" 0
EVAL \"for i=1,5 do redis.call('set','a',i) redis.call('get','a') end\" 0
BLPOP s 1
XREADGROUP GROUP g c STREAMS x >";

/// What INFO tells of errors, and of each command how often it was called, rejected and failed.
fn failures(client: &mut Client) -> Vec<String> {
    let told = info(client, "everything");
    let counts = told.lines().filter(|line| {
        ["errorstat_", "total_error_replies:", "cmdstat_"].iter().any(|name| line.starts_with(name))
    });
    let without_times = |line: &str| {
        line.split(',').filter(|part| !part.starts_with("usec")).collect::<Vec<_>>().join(",")
    };
    let mut counts: Vec<_> = counts.map(without_times).collect();
    counts.sort();
    counts
}

#[test]
fn errors_are_counted_as_by_redis() {
    let Some((_redis, address)) = redis() else { return };
    let server = serve(|_| {});
    let mut both = [Client::connect(&server), Client::open(&address).unwrap()];
    let [own, other] = both.each_mut().map(|client| {
        client.ask(b"CONFIG RESETSTAT\r\n", b"+OK\r\n");
        for line in FAILING.lines() {
            client.send(format!("{line}\r\n").as_bytes());
            client.reply();
        }
        failures(client)
    });
    assert_eq!(own, other);
}
