//! Clients that send more than the store executes, and clients that do not read.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::support::{Client, MemoryBackend, command, serve, serve_over, text};
use nicol_resp::{Backend, Done, Request};

/// Keeps every request until the test lets it go.
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
    fn held(&self) -> usize {
        self.held.lock().unwrap().len()
    }

    fn commit_first(&self) {
        until(|| self.held() > 0);
        let (done, request) = self.held.lock().unwrap().remove(0);
        done(self.memory.run(&request));
    }
}

fn until(mut true_once: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !true_once() {
        assert!(begun.elapsed() < Duration::from_secs(20), "it does not happen");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn more_than_the_store_executes_in_time_waits_and_is_not_unknown() {
    let store = Arc::new(Manual::default());
    let server = serve_over(store.clone(), |config| {
        config.limits.in_flight = 2;
        config.limits.transaction_time = Duration::from_millis(600);
    });
    let mut clients: Vec<_> = (0..12).map(|_| Client::connect(&server)).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        client.send(format!("SET k{number} v\r\n").as_bytes());
    }
    until(|| server.counter(|counters| &counters.transactions) == 12);
    // The last ones wait for more than the time of a transaction.
    for _ in 0..12 {
        std::thread::sleep(Duration::from_millis(120));
        assert!(store.held() <= 2, "{} are with the store", store.held());
        store.commit_first();
    }
    clients.iter_mut().for_each(|client| client.expect(b"+OK\r\n"));
    assert_eq!(server.counter(|counters| &counters.unknown), 0);
    assert_eq!(store.memory.records(), 12);
}

#[test]
fn what_a_silent_store_never_got_was_not_executed_and_what_it_got_is_unknown() {
    let store = Arc::new(Manual::default());
    let server = serve_over(store.clone(), |config| {
        config.limits.in_flight = 2;
        config.limits.transaction_time = Duration::from_millis(300);
    });
    let mut clients: Vec<_> = (0..6).map(|_| Client::connect(&server)).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        client.send(format!("SET k{number} v\r\nSET l{number} v\r\n").as_bytes());
        until(|| server.counter(|counters| &counters.transactions) > number as u64);
    }
    for (number, client) in clients.iter_mut().enumerate() {
        for _ in 0..2 {
            let line = client.line();
            let unknown = line.starts_with("-UNKNOWN");
            let refused = line.starts_with("-TRYAGAIN") && line.contains("not executed");
            assert!(if number < 2 { unknown } else { refused }, "{number}: {line}");
        }
    }
    // What is refused is not executed later either.
    while store.held() > 0 {
        store.commit_first();
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(store.memory.records(), 4);
    clients[5].send(b"GET k5\r\n");
    store.commit_first();
    clients[5].expect(b"$-1\r\n");
}

#[test]
fn nobody_waits_for_a_store_that_answers_nothing_any_more() {
    let store = Arc::new(Manual::default());
    let server = serve_over(store.clone(), |config| {
        config.drain = Duration::from_secs(3600);
        config.limits.transaction_time = Duration::from_secs(600);
    });
    let mut client = Client::connect(&server);
    client.send(b"SET k v\r\n");
    until(|| store.held() == 1);
    server.abandon();
    server.join().unwrap();
    assert!(client.is_closed());
}

#[test]
fn a_client_that_does_not_read_waits_and_then_gets_every_reply() {
    const GETS: usize = 600;
    let server = serve(|_| {});
    let mut client = Client::connect(&server);
    let value = vec![b'v'; 100_000];
    client.ask(&command(&[b"SET", b"k", &value]), b"+OK\r\n");
    client.send(&b"GET k\r\n".repeat(GETS));
    client.send(b"INCR n\r\n");
    let mut other = Client::connect(&server);
    // The server stands still for the client once turns that serve another one bring it nowhere.
    let (mut asked, mut before) = (0, 0);
    let commands = loop {
        for _ in 0..100 {
            other.ask(b"PING\r\n", b"+PONG\r\n");
        }
        asked += 100;
        let commands = server.counter(|counters| &counters.commands) - asked;
        if commands > 1 && commands == before {
            break commands;
        }
        before = commands;
    };
    assert!(commands < 400, "{commands} commands, and no reply was read");
    other.ask(b"GET n\r\n", b"$-1\r\n");
    let reply = [b"$100000\r\n", &value[..], b"\r\n"].concat();
    for _ in 0..GETS {
        client.expect(&reply);
    }
    client.expect(b":1\r\n");
    assert_eq!(server.counter(|counters| &counters.slow_closed), 0);
}

#[test]
fn a_client_that_never_reads_is_closed_and_its_half_closed_neighbour_is_served() {
    let server = serve(|config| config.limits.output_soft_time = Duration::from_millis(400));
    let mut client = Client::connect(&server);
    let value = vec![b'v'; 100_000];
    client.ask(&command(&[b"SET", b"k", &value]), b"+OK\r\n");
    let mut half = Client::connect(&server);
    for client in [&mut client, &mut half] {
        client.send(&b"GET k\r\n".repeat(300));
    }
    half.0.shutdown(std::net::Shutdown::Write).unwrap();
    // It reads slowly, but it reads.
    let reply = [b"$100000\r\n", &value[..], b"\r\n"].concat();
    for number in 0..300 {
        half.expect(&reply);
        if number % 30 == 0 {
            std::thread::sleep(Duration::from_millis(100));
        }
    }
    assert!(half.is_closed());
    until(|| server.counter(|counters| &counters.slow_closed) == 1);
}

/// Remembers the most bytes that a transaction has answered.
#[derive(Default)]
struct LargestAnswer {
    memory: MemoryBackend,
    bytes: AtomicUsize,
    transactions: AtomicUsize,
}

impl Backend for LargestAnswer {
    fn submit(&self, _connection: u64, request: Arc<Request>, done: Done) {
        let response = self.memory.run(&request);
        self.bytes.fetch_max(response.output.len(), Ordering::SeqCst);
        self.transactions.fetch_add(1, Ordering::SeqCst);
        done(response);
    }
}

/// Whoever waits behind a batch waits for all of it: its replies are bounded, whoever reads them.
#[test]
fn a_batch_ends_behind_a_quarter_of_a_megabyte_of_replies() {
    const GETS: usize = 200;
    const BOUND: usize = 256 << 10;
    let store = Arc::new(LargestAnswer::default());
    let server = serve_over(store.clone(), |_| {});
    let mut client = Client::connect(&server);
    let value = vec![b'v'; 100_000];
    client.ask(&command(&[b"SET", b"k", &value]), b"+OK\r\n");
    let reply = [b"$100000\r\n", &value[..], b"\r\n"].concat();
    client.send(&b"GET k\r\n".repeat(GETS));
    client.send(b"SET k short\r\nGET k\r\n");
    (0..GETS).for_each(|_| client.expect(&reply));
    client.expect(b"+OK\r\n$5\r\nshort\r\n");
    let most = store.bytes.load(Ordering::SeqCst);
    assert!(most > BOUND && most < BOUND + 110_000, "{most} bytes in one transaction");
    // Commands behind the bound are in no later transaction but their own: none reads a record in
    // vain again and again.
    let transactions = store.transactions.load(Ordering::SeqCst);
    assert!(transactions < GETS / 3 + 10, "{transactions} transactions");
}

/// However many clients do not read: the largest go, and those that read stay.
#[test]
fn the_buffers_of_all_clients_are_bounded_together() {
    const MAX: usize = 16 << 20;
    let server = serve(|config| config.limits.client_bytes = MAX);
    let mut reader = Client::connect(&server);
    let value = vec![b'v'; 1_000_000];
    reader.ask(&command(&[b"SET", b"k", &value]), b"+OK\r\n");
    let told = |reader: &mut Client, name: &str| -> usize {
        reader.send(b"INFO\r\n");
        let info = text(&reader.reply());
        let line = info.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned);
        line.and_then(|value| value.parse().ok()).unwrap()
    };
    let mut idle: Vec<Client> = (0..60).map(|_| Client::connect(&server)).collect();
    let mut most = 0;
    for client in &mut idle {
        client.send(&b"GET k\r\n".repeat(15));
        most = most.max(told(&mut reader, "mem_clients_normal:"));
    }
    until(|| server.counter(|counters| &counters.evicted) > 10);
    // Above the bound by what comes in between two looks at it.
    assert!(most < MAX + (4 << 20), "{most} bytes of buffers");
    assert!(most > MAX / 4, "{most} bytes of buffers: the clients did not ask");
    assert!(told(&mut reader, "mem_clients_normal:") <= MAX);
    reader.ask(b"PING\r\n", b"+PONG\r\n");
    drop(idle);
    until(|| told(&mut reader, "mem_clients_normal:") < 1 << 20);
}
