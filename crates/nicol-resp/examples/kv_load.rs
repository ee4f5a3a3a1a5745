//! Loads a key-value server with SETs, then GETs, and says what an operation takes of its CPU: the
//! same client for servers that speak RESP (Nicol, Redis) and for memcached, over TCP or a Unix
//! socket.
//!
//! ```text
//! nicol serve --system prism-kv --listen unix:nicol.sock &
//! redis-server --port 0 --unixsocket $PWD/redis.sock --save '' --appendonly no &
//! memcached -s memcached.sock -t 1 -m 1024 &
//! cargo run --release -p nicol-resp --example kv_load -- resp unix:nicol.sock 50 1 512 100000 5 PID
//! ```
//!
//! Arguments: protocol (`resp` or `memcached`), address, connections, requests that each sends at a
//! time, bytes of a value, keys, seconds for each kind, and the server's process id. Every
//! connection waits for all of its replies, checks them, and sends as many requests again. Prints
//! one JSON object.

use std::env;
use std::fs;
use std::io::{self, ErrorKind, Read, Write};
use std::net;
use std::os::unix;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use mio::event::Source;
use mio::net::{TcpStream, UnixStream};
use mio::{Events, Interest, Poll, Token};
use nicol_core::rng::{Purpose, Stream};
use nicol_resp::Address;

/// Bytes of one read.
const READ_BYTES: usize = 64 << 10;
/// How long a server may take to answer anything.
const PATIENCE: Duration = Duration::from_secs(10);
/// Bytes of a value that name its key.
const NAME_BYTES: usize = 16;

trait Socket: Read + Write + Source {}

impl<T: Read + Write + Source> Socket for T {}

fn connect(address: &Address) -> io::Result<Box<dyn Socket>> {
    match address {
        Address::Tcp(address) => {
            let stream = net::TcpStream::connect(address)?;
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)?;
            Ok(Box::new(TcpStream::from_std(stream)))
        }
        Address::Unix(path) => {
            let stream = unix::net::UnixStream::connect(path)?;
            stream.set_nonblocking(true)?;
            Ok(Box::new(UnixStream::from_std(stream)))
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Protocol {
    Resp,
    Memcached,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Set,
    Get,
}

/// What is asked for.
struct Load {
    protocol: Protocol,
    depth: usize,
    value: Vec<u8>,
    keys: u64,
}

impl Load {
    fn key(number: u64) -> String {
        format!("key:{number:012}")
    }

    /// Appends a request.
    fn ask(&self, kind: Kind, number: u64, to: &mut Vec<u8>) {
        let (key, len) = (Self::key(number), self.value.len());
        let head = match (self.protocol, kind) {
            (Protocol::Resp, Kind::Get) => {
                format!("*2\r\n$3\r\nGET\r\n${}\r\n{key}\r\n", key.len())
            }
            (Protocol::Resp, Kind::Set) => {
                format!("*3\r\n$3\r\nSET\r\n${}\r\n{key}\r\n${len}\r\n", key.len())
            }
            (Protocol::Memcached, Kind::Get) => format!("get {key}\r\n"),
            (Protocol::Memcached, Kind::Set) => format!("set {key} 0 0 {len}\r\n"),
        };
        to.extend_from_slice(head.as_bytes());
        if kind == Kind::Set {
            to.extend_from_slice(key.as_bytes());
            to.extend_from_slice(&self.value[NAME_BYTES..]);
            to.extend_from_slice(b"\r\n");
        }
    }

    /// Bytes of the reply to a request, if it is whole and right.
    fn judge(&self, kind: Kind, number: u64, reply: &[u8]) -> Result<Option<usize>> {
        let len = self.value.len();
        let (head, tail) = match (self.protocol, kind) {
            (Protocol::Resp, Kind::Set) => ("+OK\r\n".to_owned(), ""),
            (Protocol::Memcached, Kind::Set) => ("STORED\r\n".to_owned(), ""),
            (Protocol::Resp, Kind::Get) => (format!("${len}\r\n"), "\r\n"),
            (Protocol::Memcached, Kind::Get) => {
                (format!("VALUE {} 0 {len}\r\n", Self::key(number)), "\r\nEND\r\n")
            }
        };
        let start = &reply[..reply.len().min(head.len())];
        ensure!(head.as_bytes().starts_with(start), "the server says {}", shown(reply));
        let value = if kind == Kind::Get { len } else { 0 };
        let whole = head.len() + value + tail.len();
        if reply.len() < whole {
            return Ok(None);
        }
        if kind == Kind::Get {
            let value = &reply[head.len()..head.len() + len];
            let is_named = value.starts_with(Self::key(number).as_bytes());
            ensure!(is_named && value[NAME_BYTES..] == self.value[NAME_BYTES..], "a wrong value");
        }
        Ok(Some(whole))
    }
}

fn shown(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(80)]).into_owned()
}

struct Connection {
    socket: Box<dyn Socket>,
    /// Keys of the requests that are not answered yet, in their order.
    asked: Vec<u64>,
    answered: usize,
    request: Vec<u8>,
    written: usize,
    /// The poll tells when the socket has room: asked for where a write found none.
    awaits_room: bool,
    reply: Vec<u8>,
    since: Instant,
}

impl Connection {
    /// Sends the next requests.
    fn ask(&mut self, load: &Load, kind: Kind, mut next: impl FnMut() -> u64) -> Result<()> {
        for buffer in [&mut self.request, &mut self.reply] {
            buffer.clear();
        }
        self.asked.clear();
        (self.answered, self.written) = (0, 0);
        for _ in 0..load.depth {
            let number = next();
            self.asked.push(number);
            load.ask(kind, number, &mut self.request);
        }
        self.since = Instant::now();
        self.write()
    }

    fn write(&mut self) -> Result<()> {
        while self.written < self.request.len() {
            match self.socket.write(&self.request[self.written..]) {
                Ok(len) => self.written += len,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Has the poll watch for room in the socket while there is something to write. Room that
    /// nobody waits for would be told with every request that the server reads, at its expense.
    fn watch(&mut self, poll: &Poll, token: Token) -> Result<()> {
        let blocked = self.written < self.request.len();
        if std::mem::replace(&mut self.awaits_room, blocked) == blocked {
            return Ok(());
        }
        let interest = match blocked {
            true => Interest::READABLE | Interest::WRITABLE,
            false => Interest::READABLE,
        };
        Ok(poll.registry().reregister(&mut self.socket, token, interest)?)
    }

    /// Takes what has come; true once every request is answered.
    fn take(&mut self, load: &Load, kind: Kind, scratch: &mut [u8]) -> Result<bool> {
        self.write()?;
        loop {
            match self.socket.read(scratch) {
                Ok(0) => bail!("the server has closed a connection"),
                Ok(len) => {
                    self.reply.extend_from_slice(&scratch[..len]);
                    if len < scratch.len() {
                        break;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error.into()),
            }
        }
        let mut taken = 0;
        while self.answered < self.asked.len() && taken < self.reply.len() {
            let number = self.asked[self.answered];
            let Some(len) = load.judge(kind, number, &self.reply[taken..])? else { break };
            (taken, self.answered) = (taken + len, self.answered + 1);
        }
        self.reply.drain(..taken);
        Ok(self.answered == self.asked.len())
    }
}

/// What a while of load has come to.
struct Measured {
    operations: u64,
    time: Duration,
    /// Microseconds from a request to its reply, or of those sent together to the last one.
    latencies: Vec<f64>,
    server: Duration,
    client: Duration,
}

/// Keeps every connection busy until `stop` says so.
fn drive(
    load: &Load,
    (poll, connections): (&mut Poll, &mut [Connection]),
    kind: Kind,
    mut next: impl FnMut() -> u64,
    process: u32,
    mut stop: impl FnMut(u64, Duration) -> bool,
) -> Result<Measured> {
    let (mut events, mut scratch) = (Events::with_capacity(1_024), vec![0; READ_BYTES]);
    let (mut operations, mut latencies, mut under_way) = (0, Vec::new(), connections.len());
    let (begun, server, client) = (Instant::now(), cpu(process)?, cpu(std::process::id())?);
    for (number, connection) in connections.iter_mut().enumerate() {
        connection.ask(load, kind, &mut next)?;
        connection.watch(poll, Token(number))?;
    }
    while under_way > 0 {
        poll.poll(&mut events, Some(PATIENCE))?;
        ensure!(!events.is_empty(), "the server has not answered for {PATIENCE:?}");
        for event in &events {
            let connection = &mut connections[event.token().0];
            if connection.asked.is_empty() {
                continue;
            }
            if !connection.take(load, kind, &mut scratch)? {
                connection.watch(poll, event.token())?;
                continue;
            }
            operations += load.depth as u64;
            latencies.push(connection.since.elapsed().as_nanos() as f64 / 1_000.0);
            if stop(operations, begun.elapsed()) {
                connection.asked.clear();
                under_way -= 1;
            } else {
                connection.ask(load, kind, &mut next)?;
                connection.watch(poll, event.token())?;
            }
        }
    }
    let time = begun.elapsed();
    let (server, client) = (cpu(process)? - server, cpu(std::process::id())? - client);
    latencies.sort_by(f64::total_cmp);
    Ok(Measured { operations, time, latencies, server, client })
}

/// The time that the threads of a process have been on a core: in the kernel for it, too.
fn cpu(process: u32) -> Result<Duration> {
    let mut nanos = 0;
    let threads = format!("/proc/{process}/task");
    for thread in fs::read_dir(&threads).with_context(|| threads.clone())? {
        let told = fs::read_to_string(thread?.path().join("schedstat"))?;
        let first = told.split_whitespace().next().context("no schedstat")?;
        nanos += first.parse::<u64>()?;
    }
    Ok(Duration::from_nanos(nanos))
}

fn line(name: &str, measured: &Measured) -> String {
    let Measured { operations, time, latencies, server, client } = measured;
    let at = |share: f64| latencies[((latencies.len() - 1) as f64 * share) as usize];
    let each = |time: &Duration| time.as_nanos() as f64 / 1_000.0 / *operations as f64;
    format!(
        "  \"{name}\": {{\"operations_per_s\": {:.0}, \"per_server_cpu_s\": {:.0}, \
         \"server_cpu_us\": {:.3}, \"client_cpu_us\": {:.3}, \"p50_us\": {:.1}, \"p99_us\": {:.1}}},\n",
        *operations as f64 / time.as_secs_f64(),
        *operations as f64 / server.as_secs_f64(),
        each(server),
        each(client),
        at(0.5),
        at(0.99),
    )
}

fn main() -> Result<()> {
    let args: Vec<String> = env::args().skip(1).collect();
    println!("{}", measure(&args)?);
    Ok(())
}

/// What the load that these arguments ask for has come to, as a JSON object.
pub fn measure(args: &[String]) -> Result<String> {
    let usage = "give: resp|memcached ADDRESS CONNECTIONS DEPTH VALUE_BYTES KEYS SECONDS PID";
    let [protocol, address, rest @ ..] = args else { bail!(usage) };
    let rest: Vec<u64> =
        rest.iter().map(|arg| arg.parse()).collect::<Result<_, _>>().context(usage)?;
    let [count, depth, bytes, keys, seconds, process] = rest[..] else { bail!(usage) };
    let protocol = match protocol.as_str() {
        "resp" => Protocol::Resp,
        "memcached" => Protocol::Memcached,
        _ => bail!(usage),
    };
    ensure!(count > 0 && depth > 0 && keys > 0 && seconds > 0, "{usage}: all of them at least 1");
    ensure!(bytes >= NAME_BYTES as u64, "VALUE_BYTES {bytes}: give at least {NAME_BYTES}");
    let value = (0..bytes).map(|at| b'a' + (at % 26) as u8).collect();
    let load = Load { protocol, depth: depth as usize, value, keys };
    let (address, process): (Address, _) = (address.parse()?, process as u32);
    let mut poll = Poll::new()?;
    let mut connections = Vec::new();
    for number in 0..count as usize {
        let mut socket = connect(&address).with_context(|| address.to_string())?;
        poll.registry().register(&mut socket, Token(number), Interest::READABLE)?;
        connections.push(Connection {
            socket,
            asked: Vec::new(),
            answered: 0,
            request: Vec::new(),
            written: 0,
            awaits_room: false,
            reply: Vec::new(),
            since: Instant::now(),
        });
    }
    let mut all = 0..;
    let mut in_turn = || all.next().unwrap_or(0) % load.keys;
    let with = (&mut poll, &mut connections[..]);
    let filled = drive(&load, with, Kind::Set, &mut in_turn, process, |done, _| done >= load.keys)?;
    let mut told = format!("{{\n  \"address\": \"{address}\", \"connections\": {count},\n");
    told += &format!("  \"depth\": {depth}, \"value_bytes\": {bytes}, \"keys\": {keys},\n");
    told += &line("fill", &filled);
    let mut random = Stream::new(1, Purpose::Test, 0);
    let length = Duration::from_secs(seconds);
    for (name, kind) in [("set", Kind::Set), ("get", Kind::Get)] {
        let any = || random.below(load.keys);
        let with = (&mut poll, &mut connections[..]);
        let measured = drive(&load, with, kind, any, process, |_, time| time >= length)?;
        told += &line(name, &measured);
    }
    // No comma behind the last one.
    told.truncate(told.trim_end_matches(",\n").len());
    Ok(told + "\n}")
}
