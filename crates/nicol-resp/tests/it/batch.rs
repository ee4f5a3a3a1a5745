//! Commands of several connections on one key go together, and each gets what is its own.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::support::{Client, MemoryBackend, serve_over};
use nicol_core::txn::{Abort, Outcome};
use nicol_resp::{Backend, Done, Request, Response, ServerHandle};

/// Keeps every request until the test says how it ends.
#[derive(Default)]
struct Manual {
    memory: MemoryBackend,
    held: Mutex<Vec<(Done, Arc<Request>)>>,
}

impl Backend for Manual {
    fn submit(&self, _connection: u64, request: Arc<Request>, done: Done) {
        self.held.lock().unwrap().push((done, request));
    }
}

impl Manual {
    /// The only request that is held, once there is one.
    fn take(&self) -> (Done, Arc<Request>) {
        until(|| !self.held.lock().unwrap().is_empty());
        let mut held = self.held.lock().unwrap();
        assert_eq!(held.len(), 1);
        held.remove(0)
    }

    fn commit(&self) {
        let (done, request) = self.take();
        done(self.memory.run(&request));
    }

    fn end(&self, outcome: Outcome) {
        (self.take().0)(Response { outcome, output: Vec::new() });
    }
}

fn until(mut true_once: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !true_once() {
        assert!(begun.elapsed() < Duration::from_secs(20), "it does not happen");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A server on which one client's INCR of `k` is under way, and those of five wait for it.
fn waiting(commands: &[&str; 5]) -> (Arc<Manual>, ServerHandle, Client, Vec<Client>) {
    let backend = Arc::new(Manual::default());
    let server = serve_over(backend.clone(), |config| {
        config.limits.transaction_time = Duration::from_secs(60);
        config.limits.attempts = 3;
    });
    let mut first = Client::connect(&server);
    first.send(b"INCR k\r\n");
    until(|| server.counter(|counters| &counters.transactions) == 1);
    let mut others = Vec::new();
    for (place, command) in commands.iter().enumerate() {
        let mut client = Client::connect(&server);
        client.send(format!("{command}\r\n").as_bytes());
        until(|| server.counter(|counters| &counters.transactions) == 2 + place as u64);
        others.push(client);
    }
    (backend, server, first, others)
}

const MIXED: [&str; 5] =
    ["INCR k", "MGET k k\r\nSET k x\r\nINCR k", "GET k", "SET k 7 GET", "INCR k"];

#[test]
fn those_who_wait_for_one_key_go_together_and_get_their_own_replies() {
    let (backend, server, mut first, mut others) = waiting(&MIXED);
    backend.commit();
    first.expect(b":1\r\n");
    // One transaction for all of them.
    backend.commit();
    let not_an_integer = "-ERR value is not an integer or out of range\r\n";
    let mixed = format!("*2\r\n$1\r\n2\r\n$1\r\n2\r\n+OK\r\n{not_an_integer}");
    let replies = [":2\r\n", &mixed, "$1\r\nx\r\n", "$1\r\nx\r\n", ":8\r\n"];
    for (client, reply) in others.iter_mut().zip(replies) {
        client.expect(reply.as_bytes());
    }
    assert_eq!(server.counter(|counters| &counters.joined), 4);
    assert!(backend.held.lock().unwrap().is_empty());
}

#[test]
fn a_joined_batch_that_aborts_is_tried_again_and_loses_nobody() {
    let (backend, server, mut first, mut others) = waiting(&["INCR k"; 5]);
    backend.commit();
    first.expect(b":1\r\n");
    backend.end(Outcome::Aborted(Abort::NoResources));
    // The first of them alone, then the others.
    backend.commit();
    others[0].expect(b":2\r\n");
    backend.end(Outcome::Aborted(Abort::NoResources));
    backend.commit();
    others[1].expect(b":3\r\n");
    backend.commit();
    for (client, reply) in others[2..].iter_mut().zip([b":4\r\n", b":5\r\n", b":6\r\n"]) {
        client.expect(reply);
    }
    assert_eq!(server.counter(|counters| &counters.aborted), 0);
}

#[test]
fn a_joined_batch_with_an_unknown_end_is_unknown_to_all_of_it() {
    let (backend, _server, mut first, mut others) = waiting(&["INCR k"; 5]);
    backend.commit();
    first.expect(b":1\r\n");
    backend.end(Outcome::Unknown);
    for client in &mut others {
        assert!(client.line().starts_with("-UNKNOWN"));
        client.send(b"GET k\r\n");
        backend.commit();
        client.expect(b"$1\r\n1\r\n");
    }
}

#[test]
fn a_joined_batch_goes_on_without_those_who_hung_up() {
    let (backend, _server, mut first, mut others) = waiting(&["INCR k"; 5]);
    drop(others.remove(0));
    backend.commit();
    first.expect(b":1\r\n");
    drop(others.remove(0));
    backend.commit();
    // What they have sent is executed.
    for (client, reply) in others.iter_mut().zip([b":4\r\n", b":5\r\n", b":6\r\n"]) {
        client.expect(reply);
    }
}

#[test]
fn whoever_touches_another_key_waits_for_its_turn() {
    let commands = ["INCR k", "MSET k 5 other 1", "INCR k", "INCR k", "GET k"];
    let (backend, server, mut first, mut others) = waiting(&commands);
    backend.commit();
    first.expect(b":1\r\n");
    backend.commit();
    others[0].expect(b":2\r\n");
    // The pair of keys covers those behind it.
    backend.commit();
    let replies: [&[u8]; 4] = [b"+OK\r\n", b":6\r\n", b":7\r\n", b"$1\r\n7\r\n"];
    for (client, reply) in others[1..].iter_mut().zip(replies) {
        client.expect(reply);
    }
    assert_eq!(server.counter(|counters| &counters.joined), 3);
}
