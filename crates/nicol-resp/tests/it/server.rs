//! The front over TCP: order, isolation, limits, failures of the store behind it.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use crate::support::{Client, MemoryBackend, command, serve, serve_over};
use nicol_core::serving::StoreMemory;
use nicol_core::txn::{Abort, Outcome};
use nicol_core::units::Bytes;
use nicol_resp::{Backend, Database, Done, Request, Response, Server, ServerConfig};
use nicol_resp::{ServerInfo, StartError};

#[test]
fn a_pipeline_is_answered_in_order_wherever_it_is_cut() {
    let server = serve(|_| {});
    let request = b"DEL n\r\n*3\r\n$3\r\nSET\r\n$1\r\nn\r\n$1\r\n5\r\nINCR n\r\nPING\r\nGET n\r\n\
                    MULTI\r\nAPPEND n 0\r\nEXEC\r\nnosuch\r\nMGET n m\r\n";
    let reply = b"+OK\r\n:6\r\n+PONG\r\n$1\r\n6\r\n+OK\r\n+QUEUED\r\n*1\r\n:2\r\n-ERR unknown \
                  command 'nosuch', with args beginning with: \r\n*2\r\n$2\r\n60\r\n$-1\r\n";
    let mut client = Client::connect(&server);
    for cut in 0..request.len() {
        client.send(&request[..cut]);
        std::thread::yield_now();
        client.send(&request[cut..]);
        let deleted = client.line();
        assert_eq!(deleted, if cut == 0 { ":0" } else { ":1" });
        client.expect(reply);
    }
}

#[test]
fn an_exec_after_a_change_of_a_watched_key_is_refused() {
    let server = serve(|config| config.threads = 2);
    let (mut one, mut other) = (Client::connect(&server), Client::connect(&server));
    one.ask(
        b"SET k 1\r\nWATCH k absent\r\nGET k\r\nMULTI\r\nSET k 2\r\n",
        b"+OK\r\n+OK\r\n$1\r\n1\r\n+OK\r\n+QUEUED\r\n",
    );
    other.ask(b"SET absent x\r\n", b"+OK\r\n");
    one.ask(b"EXEC\r\nGET k\r\n", b"*-1\r\n$1\r\n1\r\n");
    one.ask(b"HELLO 3\r\n", b"%7\r\n");
    while one.line() != "modules" {}
    one.expect(b"*0\r\n");
    one.ask(b"WATCH k\r\n", b"+OK\r\n");
    other.ask(b"APPEND k 0\r\n", b":2\r\n");
    one.ask(b"MULTI\r\nGET none\r\nEXEC\r\n", b"+OK\r\n+QUEUED\r\n_\r\n");
    one.ask(b"MULTI\r\nGET none\r\nEXEC\r\n", b"+OK\r\n+QUEUED\r\n*1\r\n_\r\n");
    assert_eq!(server.counter(|counters| &counters.watch_failures), 2);
}

#[test]
fn transfers_with_watch_never_lose_money() {
    const ACCOUNTS: u64 = 4;
    let server = serve(|config| config.threads = 2);
    let mut client = Client::connect(&server);
    for account in 0..ACCOUNTS {
        client.ask(format!("SET a{account} 100\r\n").as_bytes(), b"+OK\r\n");
    }
    let refused = AtomicU32::new(0);
    std::thread::scope(|scope| {
        for thread in 0..16u64 {
            let (server, refused) = (&server, &refused);
            scope.spawn(move || {
                let mut client = Client::connect(server);
                for turn in 0..40 {
                    let from = (thread + turn) % ACCOUNTS;
                    let to = (from + 1 + turn % (ACCOUNTS - 1)) % ACCOUNTS;
                    client.ask(format!("WATCH a{from} a{to}\r\n").as_bytes(), b"+OK\r\n");
                    let mut read = |account| -> i64 {
                        client.send(format!("GET a{account}\r\n").as_bytes());
                        client.line();
                        client.line().parse().unwrap()
                    };
                    let (a, b) = (read(from) - 1, read(to) + 1);
                    client.send(
                        format!("MULTI\r\nSET a{from} {a}\r\nSET a{to} {b}\r\nEXEC\r\n").as_bytes(),
                    );
                    client.expect(b"+OK\r\n+QUEUED\r\n+QUEUED\r\n");
                    match client.line().as_str() {
                        "*2" => client.expect(b"+OK\r\n+OK\r\n"),
                        "*-1" => _ = refused.fetch_add(1, Ordering::Relaxed),
                        other => panic!("{other}"),
                    }
                }
            });
        }
    });
    let mut total = 0;
    for account in 0..ACCOUNTS {
        client.send(format!("GET a{account}\r\n").as_bytes());
        client.line();
        total += client.line().parse::<i64>().unwrap();
    }
    assert_eq!(total, 100 * ACCOUNTS as i64);
    assert!(refused.into_inner() > 0, "16 threads on 4 accounts must conflict at times");
}

/// Fails attempts as told, on another thread, and then runs them.
struct Faulty {
    memory: MemoryBackend,
    fail: AtomicU32,
    how: Option<Outcome>,
    /// Requests of more keys than this have no resources.
    keys_max: usize,
    work: mpsc::Sender<(Done, Response)>,
}

impl Faulty {
    fn new(fail: u32, how: Option<Outcome>, keys_max: usize) -> Arc<Self> {
        let (work, jobs) = mpsc::channel::<(Done, Response)>();
        std::thread::spawn(move || jobs.into_iter().for_each(|(done, response)| done(response)));
        let memory = MemoryBackend::new();
        Arc::new(Self { memory, fail: AtomicU32::new(fail), how, keys_max, work })
    }
}

impl Backend for Faulty {
    fn submit(&self, _connection: u64, request: Arc<Request>, done: Done) {
        let fails = |count: u32| count.checked_sub(1);
        let failing = self.fail.fetch_update(Ordering::SeqCst, Ordering::SeqCst, fails).is_ok();
        let too_large = request.reads.len() + request.writes.len() > self.keys_max;
        let response = match (failing, self.how) {
            (true, None) => return drop(done),
            (true, Some(outcome)) => Response { outcome, output: Vec::new() },
            (false, _) if too_large => {
                Response { outcome: Outcome::Aborted(Abort::NoResources), output: Vec::new() }
            }
            (false, _) => self.memory.run(&request),
        };
        self.work.send((done, response)).unwrap();
    }
}

#[test]
fn contention_is_retried_and_given_up_with_an_error_per_command() {
    let key = nicol_resp::row(Database::default(), 0, b"k");
    let contention = Some(Outcome::Aborted(Abort::LockConflict { key }));
    let server = serve_over(Faulty::new(3, contention, 99), |_| {});
    let mut client = Client::connect(&server);
    client.ask(b"INCR k\r\nINCR k\r\n", b":1\r\n:2\r\n");
    assert_eq!(server.counter(|counters| &counters.retries), 3);

    let server =
        serve_over(Faulty::new(1_000, contention, 99), |config| config.limits.attempts = 3);
    let mut client = Client::connect(&server);
    client.send(&[command(&[b"INCR", b"k"]), command(&[b"GET", b"k"])].concat());
    for _ in 0..2 {
        let error = client.line();
        assert!(error.starts_with("-TRYAGAIN") && error.ends_with("lock_conflict"), "{error}");
    }
    client.ask(b"PING\r\n", b"+PONG\r\n");
}

#[test]
fn a_group_that_is_too_large_is_split_and_keeps_its_order() {
    let server = serve_over(Faulty::new(0, None, 1), |config| config.limits.attempts = 3);
    let mut client = Client::connect(&server);
    client.send(b"SET a 1\r\nSET b 2\r\nINCR a\r\nGET b\r\nGET a\r\n");
    client.expect(b"+OK\r\n+OK\r\n:2\r\n$1\r\n2\r\n$1\r\n2\r\n");
    client.send(b"MGET a b\r\n");
    let error = client.line();
    assert!(error.starts_with("-TRYAGAIN"), "{error}");
}

/// Keeps the first requests to itself until it is asked for them.
struct Slow {
    memory: MemoryBackend,
    held: Mutex<Vec<(Done, Arc<Request>)>>,
    hold: AtomicU32,
}

impl Backend for Slow {
    fn submit(&self, _connection: u64, request: Arc<Request>, done: Done) {
        let fewer = |count: u32| count.checked_sub(1);
        match self.hold.fetch_update(Ordering::SeqCst, Ordering::SeqCst, fewer) {
            Ok(_) => self.held.lock().unwrap().push((done, request)),
            Err(_) => done(self.memory.run(&request)),
        }
    }
}

#[test]
fn a_transaction_that_takes_too_long_is_unknown_and_the_connection_goes_on() {
    let slow = Arc::new(Slow {
        memory: MemoryBackend::new(),
        held: Mutex::default(),
        hold: AtomicU32::new(1),
    });
    let server = serve_over(slow.clone(), |config| {
        config.limits.transaction_time = Duration::from_millis(20);
    });
    let mut client = Client::connect(&server);
    client.send(b"SET a 1\r\nSET b 1\r\n");
    for _ in 0..2 {
        assert!(
            client.line().starts_with("-UNKNOWN the transaction was not answered within 20 ms")
        );
    }
    // Other records are free; those of the late transaction are not before it ends.
    client.ask(b"SET c 2\r\nGET c\r\n", b"+OK\r\n$1\r\n2\r\n");
    client.send(b"GET a\r\n");
    assert!(client.line().starts_with("-UNKNOWN"));
    let (done, request) = slow.held.lock().unwrap().pop().unwrap();
    done(slow.memory.run(&request));
    let until = Instant::now() + Duration::from_secs(5);
    loop {
        client.send(b"GET a\r\n");
        match client.line().as_str() {
            "$1" => break client.expect(b"1\r\n"),
            error => assert!(error.starts_with("-UNKNOWN") && Instant::now() < until, "{error}"),
        }
    }
    client.ask(b"PING\r\n", b"+PONG\r\n");
}

#[test]
fn contention_is_given_up_when_its_time_is_over() {
    let key = nicol_resp::row(Database::default(), 0, b"k");
    let contention = Some(Outcome::Aborted(Abort::LockConflict { key }));
    let server = serve_over(Faulty::new(u32::MAX, contention, 99), |config| {
        config.limits.attempts = 1 << 20;
        config.limits.transaction_time = Duration::from_millis(50);
    });
    let mut client = Client::connect(&server);
    client.send(b"INCR k\r\n");
    let error = client.line();
    assert!(error.starts_with("-TRYAGAIN") && error.ends_with("lock_conflict"), "{error}");
}

#[test]
fn an_unknown_outcome_is_never_called_an_abort() {
    for how in [Some(Outcome::Unknown), None] {
        let server = serve_over(Faulty::new(1, how, 99), |_| {});
        let mut client = Client::connect(&server);
        client.send(b"SET a 1\r\n");
        assert!(client.line().starts_with("-UNKNOWN"));
        client.ask(b"GET a\r\n", b"$-1\r\n");
    }
}

#[test]
fn replies_larger_than_a_transaction_are_cut_into_several() {
    let server = serve(|_| {});
    let mut client = Client::connect(&server);
    let value = vec![b'v'; 900_000];
    client.ask(&command(&[b"SET", b"k", &value]), b"+OK\r\n");
    client.send(&b"GET k\r\n".repeat(12));
    for _ in 0..12 {
        assert_eq!(client.line(), "$900000");
        assert_eq!(client.read(900_002).len(), 900_002);
    }
    client.send(b"MGET k k k k k k\r\nMULTI\r\nSET x 1\r\nMGET k k k k k\r\nEXEC\r\nGET x\r\n");
    assert!(client.line().starts_with("-ERR transaction is too large"));
    client.expect(b"+OK\r\n+QUEUED\r\n+QUEUED\r\n");
    assert!(client.line().starts_with("-ERR transaction is too large"));
    client.expect(b"$-1\r\n");
}

#[test]
fn sizes_hold_below_at_and_above_their_limit() {
    let server = serve(|config| {
        config.limits.value_bytes = 1_000;
        config.limits.arguments = 10;
        config.limits.inline_bytes = 100;
        config.limits.transaction_keys = 5;
        config.limits.group_keys = 5;
    });
    let mut client = Client::connect(&server);
    for (len, fits) in [(511, true), (512, true), (513, false)] {
        client.send(&command(&[b"SET", &vec![b'k'; len], b"v"]));
        assert_eq!(client.line() == "+OK", fits, "a key of {len} bytes");
    }
    for (len, fits) in [(999, true), (1_000, true), (1_001, false)] {
        client.send(&command(&[b"SET", b"k", &vec![b'v'; len]]));
        assert_eq!(client.line() == "+OK", fits, "a value of {len} bytes");
    }
    client.ask(
        b"APPEND k x\r\n",
        b"-ERR string exceeds maximum allowed size (proto-max-bulk-len)\r\n",
    );
    for (keys, fits) in [(4, true), (5, true), (6, false)] {
        let names: Vec<_> = (0..keys).map(|key| format!("k{key}").into_bytes()).collect();
        let words = std::iter::once(&b"EXISTS"[..]).chain(names.iter().map(Vec::as_slice));
        client.send(&command(&words.collect::<Vec<_>>()));
        assert_eq!(client.line() == ":0", fits, "{keys} keys");
    }
    for (len, fits) in [(99, true), (100, true), (101, false)] {
        let mut client = Client::connect(&server);
        client.send(format!("PING {}\r\n", "x".repeat(len - 5)).as_bytes());
        let expected = if fits {
            format!("${}", len - 5)
        } else {
            "-ERR Protocol error: too big inline request".into()
        };
        assert_eq!(client.line(), expected);
        assert!(fits || client.is_closed());
    }
    for (arguments, fits) in [(9, true), (10, true), (11, false)] {
        let mut client = Client::connect(&server);
        client.send(&command(&vec![&b"ECHO"[..]; arguments]));
        let arity = "-ERR wrong number of arguments for 'echo' command";
        let error = "-ERR Protocol error: invalid multibulk length";
        assert_eq!(client.line(), if fits { arity } else { error });
    }
}

#[test]
fn one_client_too_many_gets_an_error() {
    let server = serve(|config| config.limits.clients = 2);
    let (mut one, mut two) = (Client::connect(&server), Client::connect(&server));
    one.ask(b"PING\r\n", b"+PONG\r\n");
    two.ask(b"PING\r\n", b"+PONG\r\n");
    let mut three = Client::connect(&server);
    three.expect(b"-ERR max number of clients reached\r\n");
    assert!(three.is_closed());
    drop(two);
    let until = Instant::now() + Duration::from_secs(5);
    loop {
        let mut again = Client::connect(&server);
        again.send(b"PING\r\n");
        if again.line() == "+PONG" {
            break;
        }
        assert!(Instant::now() < until, "a place that was left must be free again");
    }
}

#[test]
fn a_password_guards_everything_and_costs_guessers_time() {
    let server = serve(|config| config.password = Some("secret".into()));
    let mut client = Client::connect(&server);
    let no = b"-NOAUTH Authentication required.\r\n";
    client.ask(b"GET k\r\n", no);
    client.ask(b"PING\r\n", no);
    client.send(b"HELLO 3\r\n");
    assert!(client.line().contains("otherwise the HELLO AUTH <user> <pass> option"));
    let wrong = b"-WRONGPASS invalid username-password pair or user is disabled.\r\n";
    for _ in 0..5 {
        client.ask(b"AUTH wrong\r\n", wrong);
    }
    let before = Instant::now();
    client.ask(b"AUTH default secreT\r\n", wrong);
    assert!(before.elapsed() >= Duration::from_millis(100));
    client.ask(b"AUTH secret\r\nGET k\r\n", b"+OK\r\n$-1\r\n");
    for (request, error) in [
        (&b"*11\r\n"[..], "unauthenticated multibulk length"),
        (b"*1\r\n$16385\r\n", "unauthenticated bulk length"),
    ] {
        let mut client = Client::connect(&server);
        client.send(request);
        assert_eq!(client.line(), format!("-ERR Protocol error: {error}"));
        assert!(client.is_closed());
    }
    let refused = |listen: &str, password: Option<String>| {
        let config = ServerConfig { password, ..ServerConfig::new(listen.parse().unwrap()) };
        Server::start(config, Arc::new(MemoryBackend::new()), ServerInfo::new("0", "0")).err()
    };
    assert!(matches!(refused("0.0.0.0:0", None), Some(StartError::Unprotected(_))));
    for len in [0, 16_385] {
        let password = Some("x".repeat(len));
        assert!(matches!(refused("127.0.0.1:0", password), Some(StartError::Password { .. })));
    }
}

#[test]
fn whoever_does_not_log_in_or_does_not_read_is_closed() {
    let server = serve(|config| {
        config.password = Some("secret".into());
        config.limits.login_time = Duration::from_millis(50);
    });
    assert!(Client::connect(&server).is_closed());

    let server = serve(|config| config.limits.output_hard_bytes = 1 << 20);
    let mut client = Client::connect(&server);
    client.ask(&command(&[b"SET", b"k", &vec![b'v'; 500_000]]), b"+OK\r\n");
    for _ in 0..100 {
        client.send(b"GET k\r\n");
    }
    let until = Instant::now() + Duration::from_secs(5);
    while server.counter(|counters| &counters.slow_closed) == 0 {
        assert!(Instant::now() < until, "replies that nobody reads must not pile up");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_browser_is_hung_up_on() {
    let server = serve(|_| {});
    for request in [&b"GET / HTTP/1.1\r\n"[..], b"POST / HTTP/1.1\r\n", b"Host: x\r\n"] {
        let mut client = Client::connect(&server);
        client.send(request);
        assert!(client.is_closed(), "{}", String::from_utf8_lossy(request));
    }
}

#[test]
fn a_stop_answers_what_was_asked_and_then_closes() {
    let server = serve(|config| config.threads = 2);
    let mut client = Client::connect(&server);
    client.ask(b"SET k v\r\n", b"+OK\r\n");
    let address = server.address().to_string();
    server.stop();
    server.join().unwrap();
    assert!(client.is_closed());
    assert!(std::net::TcpStream::connect(address).is_err());
}

#[test]
fn what_would_list_the_keys_is_refused_in_words_by_a_store_that_does_not_walk() {
    let server = serve_over(Faulty::new(0, None, 99), |_| {});
    let mut client = Client::connect(&server);
    let refusal = b"-ERR not supported: this store does not list its keys\r\n";
    for line in ["KEYS *", "SCAN 0", "SCAN 0 MATCH a* COUNT 10", "RANDOMKEY", "FLUSHALL", "FLUSHDB"]
    {
        client.ask(format!("{line}\r\n").as_bytes(), refusal);
    }
    client.ask(b"KEYS\r\n", b"-ERR wrong number of arguments for 'keys' command\r\n");
}

#[test]
fn object_answers_in_a_transaction_and_refuses_what_is_not_kept() {
    let server = serve(|_| {});
    let mut client = Client::connect(&server);
    client.ask(b"SET k 7\r\nOBJECT REFCOUNT k\r\n", b"+OK\r\n:1\r\n");
    client.send(b"OBJECT IDLETIME k\r\n");
    assert!(client.line().starts_with("-ERR An LRU maxmemory policy is not selected"));
    let inside = b"MULTI\r\nAPPEND k x\r\nOBJECT ENCODING k\r\nOBJECT ENCODING none\r\nEXEC\r\n";
    client.send(inside);
    client.expect(b"+OK\r\n+QUEUED\r\n+QUEUED\r\n+QUEUED\r\n*3\r\n:2\r\n$6\r\nembstr\r\n$-1\r\n");
    client.send(&command(&[b"OBJECT", b"ENCODING", &[b'k'; 513]]));
    assert!(client.line().starts_with("-ERR key is too large"));
    client.send(b"OBJECT HELP\r\n");
    assert_eq!(client.line(), "*7");
}

/// The lines of CLIENT LIST, or of what else is asked.
fn lines(client: &mut Client, request: &[u8]) -> Vec<String> {
    client.send(request);
    let reply = String::from_utf8(client.reply()).unwrap();
    let (_, text) = reply.split_once("\r\n").unwrap();
    text.trim_end().lines().map(str::to_owned).collect()
}

fn field<'l>(line: &'l str, name: &str) -> &'l str {
    let find = |pair: &'l str| pair.strip_prefix(name)?.strip_prefix('=');
    line.split(' ').find_map(find).unwrap_or_else(|| panic!("no {name} in {line}"))
}

#[test]
fn clients_of_every_thread_are_listed_and_killed() {
    let server = serve(|config| config.threads = 2);
    let mut all: Vec<Client> = (0..4).map(|_| Client::connect(&server)).collect();
    for (index, client) in all.iter_mut().enumerate() {
        client.ask(format!("CLIENT SETNAME c{index}\r\n").as_bytes(), b"+OK\r\n");
    }
    all[3].ask(b"MULTI\r\nGET k\r\n", b"+OK\r\n+QUEUED\r\n");
    let listed = lines(&mut all[0], b"CLIENT LIST\r\n");
    let named = |name: &str| listed.iter().find(|line| field(line, "name") == name).unwrap();
    assert_eq!(listed.len(), 4);
    assert_eq!((field(named("c0"), "cmd"), field(named("c3"), "cmd")), ("client|list", "get"));
    assert_eq!((field(named("c3"), "flags"), field(named("c3"), "multi")), ("x", "1"));
    assert_eq!(lines(&mut all[0], b"CLIENT INFO\r\n").len(), 1);
    let ids = format!("CLIENT LIST ID {} 99\r\n", field(named("c2"), "id"));
    assert_eq!(field(&lines(&mut all[0], ids.as_bytes())[0], "name"), "c2");

    // By id, by address and in the old form: of both threads.
    let kill = [
        (1, format!("CLIENT KILL ID {}\r\n", field(named("c1"), "id")), ":1\r\n"),
        (2, format!("CLIENT KILL {}\r\n", field(named("c2"), "addr")), "+OK\r\n"),
        (3, format!("CLIENT KILL ADDR {}\r\n", field(named("c3"), "addr")), ":1\r\n"),
    ];
    for (victim, request, reply) in kill {
        all[0].ask(request.as_bytes(), reply.as_bytes());
        assert!(all[victim].is_closed(), "{request}");
    }
    let until = Instant::now() + Duration::from_secs(5);
    while lines(&mut all[0], b"CLIENT LIST\r\n").len() > 1 {
        assert!(Instant::now() < until, "who is gone is not listed");
    }
    all[0].ask(b"CLIENT KILL TYPE normal\r\nPING\r\n", b":0\r\n+PONG\r\n");
    all[0].ask(b"CLIENT KILL USER default SKIPME no\r\nPING\r\n", b":1\r\n");
    assert!(all[0].is_closed(), "the caller is answered, and nothing after that");
}

#[test]
fn a_killed_client_s_transaction_leaves_its_keys_to_others() {
    let slow = Arc::new(Slow {
        memory: MemoryBackend::new(),
        held: Mutex::default(),
        hold: AtomicU32::new(1),
    });
    let server = serve_over(slow.clone(), |_| {});
    let (mut victim, mut client) = (Client::connect(&server), Client::connect(&server));
    victim.send(b"CLIENT SETNAME victim\r\nSET a 1\r\n");
    victim.expect(b"+OK\r\n");
    let until = Instant::now() + Duration::from_secs(5);
    while slow.held.lock().unwrap().is_empty() {
        assert!(Instant::now() < until, "the transaction must begin");
    }
    let listed = lines(&mut client, b"CLIENT LIST\r\n");
    let line = listed.iter().find(|line| field(line, "name") == "victim").unwrap();
    let request = format!("CLIENT KILL ID {}\r\n", field(line, "id"));
    client.ask(request.as_bytes(), b":1\r\n");
    assert!(victim.is_closed());
    let (done, request) = slow.held.lock().unwrap().pop().unwrap();
    done(slow.memory.run(&request));
    client.ask(b"GET a\r\n", b"$1\r\n1\r\n");
}

#[test]
fn a_kill_that_might_be_discarded_is_refused() {
    let server = serve(|_| {});
    let mut client = Client::connect(&server);
    client.ask(b"MULTI\r\n", b"+OK\r\n");
    let refusal = b"-ERR CLIENT KILL inside MULTI is not allowed\r\n";
    client.ask(b"CLIENT KILL TYPE normal SKIPME no\r\n", refusal);
    client.send(b"EXEC\r\n");
    assert!(client.line().starts_with("-EXECABORT"));
}

#[test]
fn what_has_expired_is_freed_though_nobody_asks_for_it() {
    let server = serve(|config| config.threads = 2);
    let mut client = Client::connect(&server);
    for number in 0..300 {
        client.ask(format!("SET k{number} v PX 30\r\n").as_bytes(), b"+OK\r\n");
    }
    client.ask(
        b"SET stays v\r\nSET moved v PX 30\r\nPEXPIRE moved 900000\r\n",
        b"+OK\r\n+OK\r\n:1\r\n",
    );
    let begun = Instant::now();
    loop {
        client.send(b"DBSIZE\r\n");
        match client.line().as_str() {
            ":2" => break,
            more => assert!(begun.elapsed() < Duration::from_secs(20), "{more} records"),
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    client.ask(b"MGET k1 stays moved\r\n", b"*3\r\n$-1\r\n$1\r\nv\r\n$1\r\nv\r\n");
}

/// Commands about the server as a whole, of one that keeps nothing and that nobody else may end.
#[test]
fn what_the_server_is_not_is_told_in_words() {
    let server = serve(|_| ());
    let mut client = Client::connect(&server);
    client.ask(b"ROLE\r\n", b"*3\r\n$6\r\nmaster\r\n:0\r\n*0\r\n");
    client.ask(b"REPLICAOF no one\r\n", b"+OK\r\n");
    client.ask(b"MODULE LIST\r\n", b"*0\r\n");
    client.ask(b"SHUTDOWN ABORT\r\n", b"-ERR No shutdown in progress.\r\n");
    client.ask(b"SHUTDOWN SAVE NOSAVE\r\n", b"-ERR syntax error\r\n");
    for (request, words) in [
        (&b"REPLICAOF localhost 6379\r\n"[..], "follows no other server"),
        (b"SYNC\r\n", "follows no other server"),
        (b"MODULE LOAD x.so\r\n", "loads no modules"),
        (b"SAVE\r\n", "--log-device"),
        (b"BGSAVE\r\n", "--log-device"),
        (b"SHUTDOWN\r\n", "ended by the program that runs it"),
        (b"DEBUG SLEEP 1\r\n", "not allowed"),
    ] {
        client.send(request);
        let line = client.line();
        assert!(line.starts_with("-ERR") && line.contains(words), "{line}");
    }
    client
        .ask(b"MULTI\r\nSHUTDOWN\r\n", b"+OK\r\n-ERR Command not allowed inside a transaction\r\n");
}

/// A store that counts its memory.
struct Counted(MemoryBackend);

impl Backend for Counted {
    fn memory(&self) -> StoreMemory {
        StoreMemory { parts: vec![("used_memory_records", Bytes(1_000))], limit: None }
    }

    fn submit(&self, connection: u64, request: Arc<Request>, done: Done) {
        self.0.submit(connection, request, done);
    }
}

#[test]
fn a_lower_limit_of_memory_refuses_what_may_grow_and_nothing_else() {
    let server = serve_over(Arc::new(Counted(MemoryBackend::new())), |_| ());
    let (mut client, mut other) = (Client::connect(&server), Client::connect(&server));
    let refused = b"-OOM command not allowed when used memory > 'maxmemory'.\r\n";
    client.ask(b"SET a 1\r\nMULTI\r\nSET b 1\r\n", b"+OK\r\n+OK\r\n+QUEUED\r\n");
    other.ask(b"CONFIG SET maxmemory 1\r\n", b"+OK\r\n");
    client.send(b"EXEC\r\n");
    let line = client.line();
    assert!(line.starts_with("-EXECABORT") && line.contains("OOM"), "{line}");
    client.ask(b"SET a 2\r\n", refused);
    client.ask(b"GET a\r\n", b"$1\r\n1\r\n");
    client.ask(b"MULTI\r\nSET b 1\r\n", &[b"+OK\r\n", &refused[..]].concat());
    client.ask(b"DISCARD\r\nDEL a\r\n", b"+OK\r\n:1\r\n");
    other.ask(b"CONFIG SET maxmemory 0\r\n", b"+OK\r\n");
    client.ask(b"SET a 2\r\n", b"+OK\r\n");
    other.send(b"CONFIG SET maxmemory many\r\n");
    assert!(other.line().contains("must be a memory value"));
}

#[test]
fn config_rewrite_keeps_what_the_file_can_hold_and_names_the_rest() {
    let file = std::env::temp_dir().join(format!("nicol-config-{}.toml", std::process::id()));
    std::fs::write(&file, "# mine\nmax_memory_samples = 7\nnodes = 1\n\n[more]\nx = 1\n").unwrap();
    let mut info = ServerInfo::new("0", "0");
    info.config_file = Some(file.clone());
    let config = ServerConfig::new("127.0.0.1:0".parse().unwrap());
    let server = Server::start(config, Arc::new(MemoryBackend::new()), info).unwrap();
    let mut client = Client::connect(&server);
    client.ask(b"CONFIG SET maxmemory-policy allkeys-lfu maxmemory-samples 3\r\n", b"+OK\r\n");
    client.ask(b"CONFIG REWRITE\r\n", b"+OK\r\n");
    let written = "# mine\nmax_memory_samples = 3\nnodes = 1\n\nmax_memory_policy = \
                   \"allkeys-lfu\"\n[more]\nx = 1\n";
    assert_eq!(std::fs::read_to_string(&file).unwrap(), written);
    client.ask(b"CONFIG SET slowlog-max-len 3 hash-max-listpack-value 1\r\n", b"+OK\r\n");
    client.ask(b"CONFIG SET maxmemory-samples 9\r\nCONFIG REWRITE\r\n", b"+OK\r\n");
    let error = client.line();
    assert!(error.contains("no place for slowlog-max-len, hash-max-listpack-value:"), "{error}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), written, "it is as it was");
    client.ask(b"CONFIG SET slowlog-max-len 128 hash-max-listpack-value 64\r\n", b"+OK\r\n");
    std::fs::remove_file(&file).unwrap();
    client.send(b"CONFIG REWRITE\r\n");
    assert!(client.line().starts_with("-ERR Rewriting config file: /"), "it is gone");
}
