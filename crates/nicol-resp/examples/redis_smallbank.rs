//! Smallbank on a Redis server with WATCH/MULTI/EXEC: what `nicol bench smallbank` is compared
//! with. The same six transactions, mix and hotspot; no replica.
//!
//! ```text
//! cargo xtask peers redis      # both by turns; or by hand:
//! redis-server --port 7777 --save '' --appendonly no &
//! cargo run --release -p nicol-resp --example redis_smallbank -- 127.0.0.1:7777 64 300000 10
//! ```
//!
//! Arguments: address, connections (a thread each), customers, seconds. Prints one JSON object.

use std::env;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nicol_core::rng::{Purpose, Stream};

/// One client connection.
struct Connection {
    input: BufReader<TcpStream>,
    output: TcpStream,
    request: Vec<u8>,
}

/// The new balances of the first accounts read, from their balances and an amount; `None` if the
/// bank refuses or nothing changes.
type Writes = fn(&[i64], i64) -> Option<Vec<i64>>;

/// What a transaction does once its accounts are read.
struct Plan {
    keys: Vec<String>,
    writes: Writes,
    amount: i64,
}

impl Connection {
    fn open(address: &str) -> io::Result<Self> {
        let output = TcpStream::connect(address)?;
        output.set_nodelay(true)?;
        let input = BufReader::new(output.try_clone()?);
        Ok(Self { input, output, request: Vec::new() })
    }

    fn push(&mut self, words: &[&str]) {
        self.request.extend(format!("*{}\r\n", words.len()).bytes());
        for word in words {
            self.request.extend(format!("${}\r\n{word}\r\n", word.len()).bytes());
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.output.write_all(&self.request)?;
        self.request.clear();
        Ok(())
    }

    /// Reads one reply; the bulk strings in it are appended to `bulks`. False for a null array.
    fn reply(&mut self, bulks: &mut Vec<String>) -> io::Result<bool> {
        let mut line = String::new();
        self.input.read_line(&mut line)?;
        let count = || line[1..].trim().parse::<i64>().map_err(io::Error::other);
        match line.as_bytes().first() {
            Some(b'+' | b':') => Ok(true),
            Some(b'$') => {
                let len = count()?;
                if len >= 0 {
                    let mut bytes = vec![0; len as usize + 2];
                    self.input.read_exact(&mut bytes)?;
                    bytes.truncate(len as usize);
                    bulks.push(String::from_utf8(bytes).map_err(io::Error::other)?);
                }
                Ok(true)
            }
            Some(b'*') => {
                let len = count()?;
                for _ in 0..len {
                    self.reply(bulks)?;
                }
                Ok(len >= 0)
            }
            _ => Err(io::Error::other(format!("the server says {line:?}"))),
        }
    }

    /// Runs one attempt: true if it committed (or the bank refused), false on a WATCH conflict.
    fn attempt(&mut self, plan: &Plan) -> io::Result<bool> {
        let mut watch = vec!["WATCH"];
        watch.extend(plan.keys.iter().map(String::as_str));
        self.push(&watch);
        let mut get = vec!["MGET"];
        get.extend(plan.keys.iter().map(String::as_str));
        self.push(&get);
        self.flush()?;
        let mut values = Vec::new();
        self.reply(&mut values)?;
        self.reply(&mut values)?;
        let balances: Vec<i64> = values.iter().map(|value| value.parse().unwrap_or(0)).collect();
        let writes = (plan.writes)(&balances, plan.amount);
        self.push(&["MULTI"]);
        let written = writes.unwrap_or_default();
        for (key, balance) in plan.keys.iter().zip(&written) {
            self.push(&["SET", key, &balance.to_string()]);
        }
        self.push(&["EXEC"]);
        self.flush()?;
        let mut ignored = Vec::new();
        for _ in 0..written.len() + 1 {
            self.reply(&mut ignored)?;
        }
        self.reply(&mut ignored)
    }
}

fn customer(random: &mut Stream, customers: u64) -> u64 {
    let hot = (customers / 25).max(1);
    if random.below(100) < 90 { random.below(hot) } else { random.below(customers) }
}

/// Draws a transaction: send-payment with a weight of 25, the others 15 each.
fn draw(random: &mut Stream, customers: u64) -> Plan {
    let first = customer(random, customers);
    let second = loop {
        let other = customer(random, customers);
        if other != first {
            break other;
        }
    };
    let (savings, checking) = (format!("s{first}"), format!("c{first}"));
    let other = format!("c{second}");
    let amount = random.below(100) as i64 + 1;
    let (keys, writes): (Vec<String>, Writes) = match random.below(100) {
        0..25 => (vec![checking, other], |balances, amount| {
            (balances[0] >= amount).then(|| vec![balances[0] - amount, balances[1] + amount])
        }),
        25..40 => (vec![savings, checking, other], |balances, _| {
            Some(vec![0, 0, balances[2] + balances[0] + balances[1]])
        }),
        40..55 => (vec![savings, checking], |_, _| None),
        55..70 => (vec![checking], |balances, amount| Some(vec![balances[0] + amount])),
        70..85 => (vec![savings], |balances, amount| Some(vec![balances[0] + amount])),
        _ => (vec![checking, savings], |balances, amount| Some(vec![balances[0] - amount])),
    };
    Plan { keys, writes, amount }
}

fn load(address: &str, customers: u64) -> io::Result<()> {
    let mut connection = Connection::open(address)?;
    for first in (0..customers).step_by(500) {
        let pairs: Vec<String> = (first..(first + 500).min(customers))
            .flat_map(|id| [format!("s{id}"), "10000".into(), format!("c{id}"), "10000".into()])
            .collect();
        let mut words = vec!["MSET"];
        words.extend(pairs.iter().map(String::as_str));
        connection.push(&words);
        connection.flush()?;
        connection.reply(&mut Vec::new())?;
    }
    Ok(())
}

fn main() -> io::Result<()> {
    let args: Vec<String> = env::args().skip(1).collect();
    let [address, connections, customers, seconds] = args.as_slice() else {
        return Err(io::Error::other("usage: ADDRESS CONNECTIONS CUSTOMERS SECONDS"));
    };
    let number = |text: &String| text.parse::<u64>().map_err(io::Error::other);
    let (connections, customers) = (number(connections)?, number(customers)?);
    let seconds = number(seconds)?;
    load(address, customers)?;
    let stop = Arc::new(AtomicBool::new(false));
    let (committed, aborted) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let started = Instant::now();
    let threads: Vec<_> = (0..connections)
        .map(|client| {
            let (stop, address) = (stop.clone(), address.clone());
            let (committed, aborted) = (committed.clone(), aborted.clone());
            thread::spawn(move || -> io::Result<()> {
                let mut random = Stream::new(1, Purpose::Workload, client as u32);
                let mut connection = Connection::open(&address)?;
                while !stop.load(Ordering::Relaxed) {
                    let plan = draw(&mut random, customers);
                    while !connection.attempt(&plan)? {
                        aborted.fetch_add(1, Ordering::Relaxed);
                    }
                    committed.fetch_add(1, Ordering::Relaxed);
                }
                Ok(())
            })
        })
        .collect();
    thread::sleep(Duration::from_secs(seconds));
    let (done, conflicts) = (committed.load(Ordering::Relaxed), aborted.load(Ordering::Relaxed));
    let elapsed = started.elapsed().as_secs_f64();
    stop.store(true, Ordering::Relaxed);
    for thread in threads {
        thread.join().map_err(|_| io::Error::other("a client thread panicked"))??;
    }
    let mut out = io::stdout().lock();
    writeln!(
        out,
        "{{\"committed\":{done},\"aborted\":{conflicts},\"throughput_per_s\":{:.0}}}",
        done as f64 / elapsed
    )
}
