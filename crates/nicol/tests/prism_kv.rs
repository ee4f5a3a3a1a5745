//! PRISM-KV behind the RESP front: what it takes and refuses, and what many clients see of it, some
//! of which vanish, as the server does in the end.

mod live;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use live::client::{Client, kill};
use live::single::takes_single_operations_only;
use live::{LIVE, Live, live_with};
use nicol_check::linearizability::{self, Bound};
use nicol_core::history::{
    Action, Effect, End, Found, History, Initial, Key, Operation, Promise, digest,
};
use nicol_core::rng::{Purpose, Stream};

/// Clients at a time, and the keys that all of them use.
const CLIENTS: u64 = 8;
const KEYS: u64 = 12;

fn serve(more: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nicol"));
    command.args(LIVE).args(["--system", "prism-kv"]).args(more);
    command
}

#[test]
fn single_operations_are_taken_and_all_others_refused_in_words() {
    for more in [&[][..], &["--nodes", "3"]] {
        let (_server, address) = live_with(&mut serve(more));
        takes_single_operations_only(&address);
    }
}

#[test]
fn what_it_cannot_do_is_refused_with_the_flag() {
    for (more, words) in [
        (&["--log-device", "file:nowhere"][..], "prism-kv keeps no log"),
        (&["--nodes", "3", "--replicas", "2"], "--replicas 2: PRISM-KV keeps one copy"),
        (&["--max-memory", "80mb"], "--records 2000000: the index"),
    ] {
        let output = serve(more).output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{more:?}: {told}");
        assert!(told.contains(words), "{more:?}: {told}");
    }
}

fn set(key: &str, bytes: usize) -> String {
    format!("SET {key} {}\r\n", "v".repeat(bytes))
}

#[test]
fn values_are_taken_up_to_their_bound_and_refused_above_it() {
    let (_server, address) = live_with(&mut serve(&[]));
    let mut client = Client::open(&address);
    let bound = client.ask("CONFIG GET proto-max-bulk-len").remove(1).unwrap();
    assert_eq!(bound, "32168");
    let bound = bound.parse().unwrap();
    // Beside the longest key, too.
    let long = "k".repeat(512);
    for key in ["k", &long] {
        for bytes in [0, 1, 30, 500, 4_000, bound] {
            let head = format!("*3\r\n$3\r\nSET\r\n${}\r\n{key}\r\n${bytes}\r\n", key.len());
            assert!(client.send(&head));
            assert!(client.send(&format!("{}\r\n", "v".repeat(bytes))));
            assert_eq!(client.line(), "+OK", "{bytes}");
            let got = client.ask(&format!("GET {key}")).remove(0).unwrap();
            assert_eq!((got.len(), got.trim_matches('v')), (bytes, ""));
        }
        assert!(client.send(&set(key, bound + 1)));
        let line = client.line();
        assert!(line.starts_with("-ERR ") && line.contains("32168"), "{line}");
        // What was there still is.
        assert_eq!(client.ask(&format!("GET {key}")).remove(0).unwrap().len(), bound);
    }
}

#[test]
fn a_full_store_says_so_and_serves_on() {
    let (_server, address) = live_with(&mut serve(&["--max-memory", "200mb"]));
    let mut client = Client::open(&address);
    // A tenth of what the index leaves is for items of this size.
    let mut taken = 0;
    let refused = loop {
        assert!(taken < 1_000, "200 MB hold more than 20 MB of values");
        assert!(client.send(&set(&format!("k{taken}"), 20_000)));
        match client.line() {
            line if line == "+OK" => taken += 1,
            line => break line,
        }
    };
    assert!(refused.starts_with("-OOM "), "{refused}");
    assert!(taken > 64, "{taken}");
    assert_eq!(client.ask("GET k0").remove(0).unwrap().len(), 20_000);
    assert_eq!(client.ask("DEL k0"), [Some("1".to_owned())]);
    // Its buffer comes back, once the server has been told.
    let until = Instant::now() + Duration::from_secs(10);
    loop {
        assert!(client.send(&set("k0", 20_000)));
        let line = client.line();
        if line == "+OK" {
            break;
        }
        assert!(line.starts_with("-OOM ") && Instant::now() < until, "{line}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// What clients have asked for and been told.
struct Recorder {
    begun: Instant,
    clients: AtomicU32,
    operations: AtomicU64,
    over: AtomicBool,
}

/// A client with its connection, which loses it now and then.
struct Recorded<'a> {
    recorder: &'a Recorder,
    address: &'a str,
    random: Stream,
    stream: TcpStream,
    client: u32,
    operations: Vec<Operation>,
}

impl<'a> Recorded<'a> {
    fn new(recorder: &'a Recorder, address: &'a str, seed: u64) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        let client = recorder.clients.fetch_add(1, Ordering::Relaxed);
        let random = Stream::new(seed, Purpose::Test, 0);
        Self { recorder, address, random, stream, client, operations: Vec::new() }
    }

    fn now(&self) -> u64 {
        self.recorder.begun.elapsed().as_nanos() as u64
    }

    /// Connects anew: what it has not been told it never will be, and it is another client.
    fn reconnect(&mut self) -> bool {
        let Ok(stream) = TcpStream::connect(self.address) else { return false };
        self.stream = stream;
        self.client = self.recorder.clients.fetch_add(1, Ordering::Relaxed);
        self.stream.set_nodelay(true).is_ok()
    }

    /// One operation. False once the server is gone.
    fn turn(&mut self, loses: bool) -> bool {
        let key = format!("key-{}", self.random.below(KEYS)).into_bytes();
        let id = self.recorder.operations.fetch_add(1, Ordering::Relaxed);
        let mut value = format!("{id}-").into_bytes();
        value.resize(value.len() + self.random.below(600) as usize, b'v');
        let named = Key::Bytes(key.clone().into());
        let write =
            |effect| nicol_core::history::Write { key: named.clone(), effect, version: None };
        let (words, action): (Vec<&[u8]>, _) = match self.random.below(10) {
            0..4 => (vec![b"GET", &key], Action::Get { key: named.clone(), found: None }),
            4..5 => (vec![b"EXISTS", &key], Action::Get { key: named.clone(), found: None }),
            5..9 => {
                let write = write(Effect::Put { digest: Some(digest(&value)) });
                (vec![b"SET", &key, &value], Action::Put { write, scope: None })
            }
            _ => {
                let write = write(Effect::Delete);
                (vec![b"DEL", &key], Action::Delete { write, scope: None })
            }
        };
        let mut request = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            request.extend(format!("${}\r\n", word.len()).into_bytes());
            request.extend_from_slice(word);
            request.extend(b"\r\n");
        }
        let (client, invoked) = (self.client, self.now());
        let mut operation = Operation {
            client,
            sequence: id,
            id,
            invoked,
            responded: None,
            end: End::Unknown,
            action,
        };
        let sent = self.stream.write_all(&request).is_ok();
        let lost = loses && self.random.below(300) == 0;
        if lost {
            // In the middle of the operation, or before the server has read it.
            let _ = self.stream.shutdown(Shutdown::Both);
        }
        let reply = (sent && !lost).then(|| reply(&mut self.stream)).flatten();
        if let Some(reply) = &reply {
            operation.responded = Some(self.now());
            learn(&mut operation, reply);
        }
        self.operations.push(operation);
        reply.is_some() || self.reconnect()
    }
}

/// A reply: its line, and what follows it where that is a value. `None`: the connection is gone.
fn reply(from: &mut TcpStream) -> Option<(String, Option<Vec<u8>>)> {
    let mut line = Vec::new();
    while !line.ends_with(b"\r\n") {
        let mut byte = [0];
        from.read_exact(&mut byte).ok()?;
        line.push(byte[0]);
    }
    let line = String::from_utf8(line).ok()?.trim_end().to_owned();
    let Some(len) = line.strip_prefix('$').and_then(|len| len.parse::<usize>().ok()) else {
        return Some((line, None));
    };
    let mut value = vec![0; len + 2];
    from.read_exact(&mut value).ok()?;
    value.truncate(len);
    Some((line, Some(value)))
}

/// What a reply says of its operation.
fn learn(operation: &mut Operation, (line, value): &(String, Option<Vec<u8>>)) {
    let (present, digest) = (line != "$-1" && line != ":0", value.as_deref().map(digest));
    operation.end = match line.as_str() {
        line if line.starts_with("-UNKNOWN") => End::Unknown,
        line if line.starts_with('-') => End::Failed,
        _ => End::Ok,
    };
    if let Action::Get { found, .. } = &mut operation.action {
        *found = (operation.end == End::Ok).then_some(Found { present, version: None, digest });
    }
}

/// Lets clients work for this `time`, then kills the server if asked to. Returns the history.
fn record(server: Live, address: &str, seed: u64, kills: bool) -> History {
    let recorder = Recorder {
        begun: Instant::now(),
        clients: AtomicU32::new(0),
        operations: AtomicU64::new(1),
        over: AtomicBool::new(false),
    };
    let operations = thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| {
                let recorder = &recorder;
                scope.spawn(move || {
                    let mut client = Recorded::new(recorder, address, seed * CLIENTS + number);
                    let mut is_there = true;
                    while is_there && !recorder.over.load(Ordering::Relaxed) {
                        is_there = client.turn(true);
                    }
                    client.operations
                })
            })
            .collect();
        thread::sleep(Duration::from_millis(700));
        if kills {
            kill(server);
        } else {
            recorder.over.store(true, Ordering::Relaxed);
        }
        clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
    });
    let promise = Promise::Linearizable;
    History { promise, initial: Initial::Listed(Vec::new()), operations, crashes: Vec::new() }
}

#[test]
fn many_clients_see_each_key_as_one_that_changes_at_instants_whoever_vanishes() {
    for seed in 0..3 {
        let nodes = ["1", "2", "3"][seed as usize];
        let (server, address) = live_with(&mut serve(&["--nodes", nodes]));
        let kills = seed == 2;
        let mut history = record(server, &address, seed, kills);
        let report = linearizability::check(&history, Bound::default());
        assert!(report.holds(), "seed {seed}: {:?} {:?}", report.violations, report.undecided);
        let of = |end| history.operations.iter().filter(|one| one.end == end).count();
        assert!(of(End::Ok) > 1_000, "{} operations ended well", of(End::Ok));
        assert!(of(End::Unknown) > 0 && of(End::Failed) == 0, "{} failed", of(End::Failed));
        assert_eq!(report.keys, KEYS as usize);
        // The judge sees a value that was never there, so it would see one that was lost or torn.
        let read = history.operations.iter_mut().rev().find_map(|one| match &mut one.action {
            Action::Get { found: Some(found), .. } => found.digest.as_mut(),
            _ => None,
        });
        *read.unwrap() ^= 1;
        assert!(!linearizability::check(&history, Bound::default()).holds());
    }
}

#[test]
fn a_killed_server_s_data_is_gone_as_it_says() {
    let (server, address) = live_with(&mut serve(&[]));
    assert!(server.before.contains("the data is in memory only"), "{}", server.before);
    assert_eq!(Client::open(&address).ask("SET k v"), [Some("OK".to_owned())]);
    kill(server);
    let (_server, address) = live_with(&mut serve(&[]));
    let mut client = Client::open(&address);
    assert_eq!(client.ask("GET k"), [None]);
    assert_eq!(client.ask("CONFIG GET appendonly")[1].as_deref(), Some("no"));
}
