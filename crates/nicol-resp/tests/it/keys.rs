//! How keys are counted, freed and refused for want of memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::support::{Client, MemoryBackend, command, serve, serve_over, text};
use nicol_core::txn::{Abort, Outcome};
use nicol_resp::{Backend, Done, Request, Response};

fn until(mut true_once: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !true_once() {
        assert!(begun.elapsed() < Duration::from_secs(20), "it does not happen");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_record_goes_when_its_newest_expiry_comes() {
    let memory = Arc::new(MemoryBackend::new());
    let server = serve_over(memory.clone(), |_| {});
    let mut client = Client::connect(&server);
    client.ask(b"SET k v EX 600\r\nSET k v PX 300\r\n", b"+OK\r\n+OK\r\n");
    client.ask(b"SET other v EX 600\r\nPEXPIRE other 300\r\n", b"+OK\r\n:1\r\n");
    client.ask(b"SET stays v PX 300\r\nPEXPIRE stays 600000\r\n", b"+OK\r\n:1\r\n");
    client.ask(b"SET back v PX 300\r\nSET back v PX 900\r\n", b"+OK\r\n+OK\r\n");
    assert_eq!(memory.records(), 4);
    // Nobody touches them: the server frees them by itself.
    until(|| memory.records() == 1);
    client.ask(b"DBSIZE\r\nGET stays\r\n", b":1\r\n$1\r\nv\r\n");
}

#[test]
fn a_record_that_is_set_again_while_it_is_freed_goes_in_its_turn() {
    let memory = Arc::new(MemoryBackend::new());
    let server = serve_over(memory.clone(), |_| {});
    let mut client = Client::connect(&server);
    // Each is freed by itself, at some instant between two of these commands.
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(700) {
        for key in 0..40 {
            client.ask(format!("SET k{key} v PX 1\r\n").as_bytes(), b"+OK\r\n");
        }
    }
    until(|| memory.records() == 0);
    client.ask(b"DBSIZE\r\n", b":0\r\n");
}

#[test]
fn dbsize_counts_what_the_connection_was_told() {
    let server = serve_over(Arc::new(MemoryBackend::new()), |config| {
        config.threads = 2;
        config.keys[0] = 7;
    });
    let (mut client, mut other) = (Client::connect(&server), Client::connect(&server));
    client.ask(b"SET a 1\r\nDBSIZE\r\n", b"+OK\r\n:8\r\n");
    // An overwritten key is one key; one that expired counts until it is freed.
    client.ask(b"SET a 2\r\nMSET a 3 b 4 c 5 b 6\r\nDBSIZE\r\n", b"+OK\r\n+OK\r\n:10\r\n");
    other.ask(b"DEL a nosuch\r\nDBSIZE\r\n", b":1\r\n:9\r\n");
    client.ask(b"MULTI\r\nSET d 1\r\nDEL b c\r\nSET e 1\r\nEXEC\r\n", b"+OK\r\n+QUEUED\r\n");
    client.expect(b"+QUEUED\r\n+QUEUED\r\n*3\r\n+OK\r\n:2\r\n+OK\r\n");
    client.ask(b"DBSIZE\r\n", b":9\r\n");
    client.ask(
        b"RENAME d f\r\nSET f 1 XX\r\nSET g 1 XX\r\nDBSIZE\r\n",
        b"+OK\r\n+OK\r\n$-1\r\n:9\r\n",
    );
    client.ask(b"WATCH e\r\n", b"+OK\r\n");
    other.ask(b"APPEND e x\r\n", b":2\r\n");
    client.ask(b"MULTI\r\nSET new 1\r\nEXEC\r\nDBSIZE\r\n", b"+OK\r\n+QUEUED\r\n*-1\r\n:9\r\n");
    client.send(b"INFO keyspace\r\nQUIT\r\n");
    let told = String::from_utf8(client.read(1 << 16)).unwrap();
    assert!(told.contains("db0:keys=9,"), "{told}");
}

#[test]
fn databases_are_apart() {
    let server = serve(|_| {});
    let (mut client, mut other) = (Client::connect(&server), Client::connect(&server));
    client.ask(
        b"SET k zero\r\nSELECT 15\r\nGET k\r\nSET k last\r\n",
        b"+OK\r\n+OK\r\n$-1\r\n+OK\r\n",
    );
    client.ask(b"DBSIZE\r\nSELECT 0\r\nGET k\r\n", b":1\r\n+OK\r\n$4\r\nzero\r\n");
    other.ask(b"SELECT 16\r\n", b"-ERR DB index is out of range\r\n");
    other.ask(b"SELECT -1\r\n", b"-ERR DB index is out of range\r\n");
    other.ask(b"GET k\r\nSELECT 1\r\n", b"$4\r\nzero\r\n+OK\r\n");
    // One transaction over two databases, each with its own growth.
    other.ask(b"MULTI\r\nSET a 1\r\nSELECT 2\r\n", b"+OK\r\n+QUEUED\r\n+QUEUED\r\n");
    other.ask(
        b"SET b 2\r\nSET c 3\r\nEXEC\r\n",
        b"+QUEUED\r\n+QUEUED\r\n*4\r\n+OK\r\n+OK\r\n+OK\r\n+OK\r\n",
    );
    other.ask(b"DBSIZE\r\nGET b\r\n", b":2\r\n$1\r\n2\r\n");
    // What was not executed has selected nothing.
    other
        .ask(b"MULTI\r\nSELECT 3\r\nDISCARD\r\nGET b\r\n", b"+OK\r\n+QUEUED\r\n+OK\r\n$1\r\n2\r\n");
    other.ask(b"MULTI\r\nSELECT 3\r\nNOSUCH\r\n", b"+OK\r\n+QUEUED\r\n");
    assert!(other.line().starts_with("-ERR unknown command"));
    other.send(b"EXEC\r\n");
    assert!(other.line().starts_with("-EXECABORT"));
    other.ask(b"GET b\r\nWATCH b\r\n", b"$1\r\n2\r\n+OK\r\n");
    client.ask(b"SELECT 2\r\nSET b 4\r\n", b"+OK\r\n+OK\r\n");
    other.ask(b"MULTI\r\nSELECT 3\r\nEXEC\r\nGET b\r\n", b"+OK\r\n+QUEUED\r\n*-1\r\n$1\r\n4\r\n");
    client.send(b"INFO keyspace\r\nQUIT\r\n");
    let told = text(&client.read(1 << 16));
    for line in ["db0:keys=1,", "db1:keys=1,", "db2:keys=2,", "db15:keys=1,"] {
        assert!(told.contains(line), "{told}");
    }
    other.ask(b"SELECT 0\r\nRESET\r\nCLIENT LIST\r\n", b"+OK\r\n+RESET\r\n");
    assert!(text(&other.reply()).contains(" db=0 "));
}

#[test]
fn keys_go_to_other_databases_with_their_deadlines() {
    let server = serve(|_| {});
    let mut client = Client::connect(&server);
    client.ask(
        b"SET k v EX 100\r\nMOVE k 0\r\n",
        b"+OK\r\n-ERR source and destination objects are the same\r\n",
    );
    client.ask(
        b"MOVE k 16\r\nMOVE k x\r\n",
        b"-ERR DB index is out of range\r\n-ERR value is not an integer or out of range\r\n",
    );
    client.ask(b"COPY k k\r\n", b"-ERR source and destination objects are the same\r\n");
    client.ask(b"COPY k k DB 1\r\nCOPY k k DB 1\r\n", b":1\r\n:0\r\n");
    client.ask(b"COPY nosuch k\r\nCOPY k l\r\nTTL l\r\n", b":0\r\n:1\r\n:100\r\n");
    client.ask(b"SET k w\r\nCOPY k k DB 1 REPLACE\r\nMOVE k 1\r\n", b"+OK\r\n:1\r\n:0\r\n");
    client.ask(b"MOVE k 2\r\nMOVE k 2\r\nDBSIZE\r\n", b":1\r\n:0\r\n:1\r\n");
    client.ask(b"SELECT 1\r\nGET k\r\nTTL k\r\n", b"+OK\r\n$1\r\nw\r\n:-1\r\n");
    client
        .ask(b"SELECT 2\r\nGET k\r\nCOPY k k2 DB\r\n", b"+OK\r\n$1\r\nw\r\n-ERR syntax error\r\n");
}

#[test]
fn a_transaction_may_name_a_key_as_often_as_it_likes() {
    let server = serve(|config| config.limits.transaction_keys = 1_024);
    let mut client = Client::connect(&server);
    client.ask(b"MULTI\r\n", b"+OK\r\n");
    for _ in 0..1_500 {
        client.ask(b"INCR n\r\n", b"+QUEUED\r\n");
    }
    client.send(b"EXEC\r\n");
    assert_eq!(client.line(), "*1500");
    (1..=1_500).for_each(|n| assert_eq!(client.line(), format!(":{n}")));
    let mut many: Vec<&[u8]> = vec![b"MSET"];
    (0..1_500).for_each(|_| many.extend([&b"k"[..], b"v"]));
    client.ask(&command(&many), b"+OK\r\n");
    many.clear();
    many.push(b"WATCH");
    (0..1_500).for_each(|_| many.push(b"k"));
    client.ask(&command(&many), b"+OK\r\n");
    client.ask(b"UNWATCH\r\n", b"+OK\r\n");
    // Distinct ones are counted, those that are watched, read and written together.
    client.ask(b"WATCH w0 w1 n\r\nMULTI\r\n", b"+OK\r\n+OK\r\n");
    for key in 0..510 {
        client.ask(format!("MSET a{key} 1 n 2\r\n").as_bytes(), b"+QUEUED\r\n");
        client.ask(format!("MGET b{key} n\r\n").as_bytes(), b"+QUEUED\r\n");
    }
    client.ask(b"GET w1\r\nSET last 1\r\n", b"+QUEUED\r\n+QUEUED\r\n");
    client.ask(b"SET beyond 1\r\n", b"-ERR too many keys (limit 1024 keys)\r\n");
    client.send(b"EXEC\r\n");
    assert!(client.line().starts_with("-EXECABORT"));
}

/// A command of `name` and the keys `from..to`.
fn of_keys(name: &[u8], from: usize, to: usize) -> Vec<u8> {
    let keys: Vec<_> = (from..to).map(|key| format!("w{key}").into_bytes()).collect();
    let mut args = vec![name];
    args.extend(keys.iter().map(Vec::as_slice));
    command(&args)
}

#[test]
fn more_watched_keys_than_a_transaction_holds_are_refused_at_once() {
    let server = serve(|config| config.limits.transaction_keys = 1_024);
    let mut client = Client::connect(&server);
    let refused = b"-ERR too many watched keys\r\n";
    client.ask(&of_keys(b"WATCH", 0, 1_024), b"+OK\r\n");
    client.ask(b"WATCH w7 w1023\r\n", b"+OK\r\n");
    client.ask(b"WATCH w7 w1024\r\n", refused);
    // What is watched already is still watched, and fills the transaction.
    client.ask(b"MULTI\r\nSET w1023 1\r\n", b"+OK\r\n+QUEUED\r\n");
    client.ask(b"SET beyond 1\r\n", b"-ERR too many keys (limit 1024 keys)\r\n");
    client.ask(b"DISCARD\r\n", b"+OK\r\n");
    for many in [1_025, 2_000, 65_534] {
        client.ask(&of_keys(b"WATCH", 0, many), refused);
        client.ask(b"MULTI\r\nGET a\r\nEXEC\r\n", b"+OK\r\n+QUEUED\r\n*1\r\n$-1\r\n");
    }
    // In parts that are allowed, of which the second one goes beyond.
    client.send(&[of_keys(b"WATCH", 0, 1_000), of_keys(b"WATCH", 1_000, 2_000)].concat());
    client.expect(&[b"+OK\r\n", &refused[..]].concat());
    client.ask(b"PING\r\n", b"+PONG\r\n");
}

#[test]
fn the_keys_of_a_watch_are_limited_in_bytes_as_those_of_other_commands() {
    let server = serve(|config| {
        config.limits.transaction_bytes = 10_000;
        config.limits.group_bytes = 10_000;
    });
    let mut client = Client::connect(&server);
    let key = [b'k'; 500];
    let of = |name, count| command(&[&[name][..], &vec![&key[..]; count]].concat());
    let refused = b"-ERR command is too large (limit 10000 bytes)\r\n";
    client.ask(&of(b"EXISTS", 20), refused);
    client.ask(&of(b"WATCH", 20), refused);
    client.ask(&of(b"WATCH", 19), b"+OK\r\n");
}

#[test]
fn a_client_library_learns_which_arguments_of_a_watch_are_keys() {
    let server = serve(|_| {});
    let mut client = Client::connect(&server);
    client.send(b"COMMAND INFO watch\r\n");
    let told = String::from_utf8(client.reply()).unwrap();
    assert!(told.contains("\r\n:1\r\n:-1\r\n:1\r\n"), "{told}");
}

/// Has no memory for values of more than ten bytes while it is full.
#[derive(Default)]
struct Full {
    memory: MemoryBackend,
    full: AtomicBool,
}

impl Backend for Full {
    fn submit(&self, _connection: u64, request: Arc<Request>, done: Done) {
        let large = request.args.len() > 200 && !request.writes.is_empty();
        match large && self.is_full() {
            true => {
                let outcome = Outcome::Aborted(Abort::NoResources);
                done(Response { outcome, output: Vec::new() });
            }
            false => done(self.memory.run(&request)),
        }
    }

    fn is_full(&self) -> bool {
        self.full.load(Ordering::SeqCst)
    }
}

#[test]
fn a_store_without_memory_refuses_in_words_what_needs_more() {
    let store = Arc::new(Full::default());
    let server = serve_over(store.clone(), |_| {});
    let mut client = Client::connect(&server);
    let oom = b"-OOM command not allowed when used memory > 'maxmemory'.\r\n";
    let large = vec![b'x'; 400];
    client.ask(&command(&[b"SET", b"k", b"small"]), b"+OK\r\n");
    store.full.store(true, Ordering::SeqCst);
    client.ask(&command(&[b"SET", b"k", &large]), oom);
    // Of a pipeline, those are refused that need more: neither those before them nor behind.
    let pipeline =
        [command(&[b"GET", b"k"]), command(&[b"SET", b"l", &large]), command(&[b"DEL", b"k"])];
    client.send(&pipeline.concat());
    client.expect(&[b"$5\r\nsmall\r\n", &oom[..], b":1\r\n"].concat());
    client.ask(b"MULTI\r\n", b"+OK\r\n");
    client.ask(&command(&[b"SET", b"l", &large]), b"+QUEUED\r\n");
    client.ask(b"EXEC\r\n", oom);
    // No attempt is made again: each was answered at once.
    assert_eq!(server.counter(|counters| &counters.retries), 0);
    assert_eq!(server.counter(|counters| &counters.out_of_memory), 3);
    store.full.store(false, Ordering::SeqCst);
    client.ask(&command(&[b"SET", b"l", &large]), b"+OK\r\n");
}

#[test]
fn the_list_of_commands_is_filtered() {
    let server = serve(|_| {});
    let mut client = Client::connect(&server);
    let getex = b"*2\r\n$6\r\ngetdel\r\n$5\r\ngetex\r\n";
    client.ask(b"COMMAND LIST FILTERBY PATTERN getE[XY]\r\n", b"*1\r\n$5\r\ngetex\r\n");
    client.ask(b"COMMAND LIST filterby pattern GET[de]*\r\n", getex);
    client.ask(b"COMMAND LIST FILTERBY MODULE none\r\n", b"*0\r\n");
    client.ask(b"COMMAND LIST FILTERBY NAME get\r\n", b"-ERR syntax error\r\n");
    client.ask(b"COMMAND LIST FILTERBY PATTERN\r\n", b"-ERR syntax error\r\n");
}
