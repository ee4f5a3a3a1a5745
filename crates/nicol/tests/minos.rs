//! MINOS behind the RESP front: what it takes, what it refuses, and what is there after `kill -9`.

mod live;

use std::thread;
use std::time::Duration;

use live::client::{Client, command, folder, kill};
use live::{LIVE, live_with};

/// Clients of a round, and the keys of each.
const CLIENTS: usize = 4;
const KEYS: usize = 6;

fn served(system: &str) -> (live::Live, String) {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_nicol"));
    live_with(command.args(LIVE).args(["--system", system]))
}

#[test]
fn single_operations_are_taken_and_all_others_refused_in_words() {
    let (_server, address) = served("minos-o:renf");
    let mut client = Client::open(&address);
    let mut ask = |line: &str| client.ask(line).remove(0);
    assert_eq!(ask("GET k"), None);
    assert_eq!(ask("SET k one").as_deref(), Some("OK"));
    assert_eq!(ask("EXISTS k").as_deref(), Some("1"));
    assert_eq!(ask("GET k").as_deref(), Some("one"));
    assert_eq!(ask("SET k two").as_deref(), Some("OK"));
    assert_eq!(ask("GET k").as_deref(), Some("two"));
    assert_eq!(ask("DEL k").as_deref(), Some("1"));
    assert_eq!(ask("DEL k").as_deref(), Some("0"));
    assert_eq!(ask("EXISTS k").as_deref(), Some("0"));
    // Any bytes are a key, and commands may be pipelined.
    assert!(client.send("*3\r\n$3\r\nSET\r\n$3\r\na\r\n\r\n$1\r\nv\r\n"));
    assert!(client.send("*2\r\n$3\r\nGET\r\n$3\r\na\r\n\r\n"));
    assert_eq!([client.line(), client.line(), client.line()], ["+OK", "$1", "v"]);
    for refused in [
        "INCR n",
        "APPEND k v",
        "MSET a 1 b 2",
        "MGET a b",
        "DEL a b",
        "EXISTS a b",
        "SET k v EX 5",
        "EXPIRE k 5",
        "MULTI",
        "EXEC",
        "WATCH k",
    ] {
        assert!(client.send(&format!("{refused}\r\n")));
        let line = client.line();
        let says = line.starts_with("-ERR this store runs single operations and not this ")
            && line.contains("SET key value");
        assert!(says, "{refused}: {line}");
    }
    assert_eq!(client.ask("PING"), [Some("PONG".to_owned())]);
}

/// What a client knows of a key: the last value that is promised, and the last one it has sent.
#[derive(Clone, Copy, Debug, Default)]
struct Key {
    promised: u64,
    sent: u64,
}

/// Sets its keys to ever higher numbers until the server is gone. Where `reads`, only what a GET has
/// returned is promised, else what is acknowledged.
fn load(address: &str, client: usize, reads: bool, mut keys: [Key; KEYS]) -> [Key; KEYS] {
    let mut connection = Client::open(address);
    loop {
        for (number, key) in keys.iter_mut().enumerate() {
            key.sent += 1;
            let set = format!("SET c{client}-k{number} {}\r\n", key.sent);
            if !connection.send(&set) || connection.reply().is_none() {
                return keys;
            }
            if !reads {
                key.promised = key.sent;
                continue;
            }
            if !connection.send(&format!("GET c{client}-k{number}\r\n")) {
                return keys;
            }
            match connection.reply().as_deref() {
                Some([Some(value)]) => key.promised = value.parse().unwrap(),
                _ => return keys,
            }
        }
    }
}

#[test]
fn what_a_model_promises_is_there_after_kill_9() {
    for (system, reads) in [
        ("minos-b:synch", false),
        ("minos-o:synch", false),
        ("minos-o:strict", false),
        ("minos-o:renf", true),
    ] {
        let dir = folder(&format!("minos-{}", system.replace(':', "-")));
        // Short logs, so that they are shortened while it serves.
        let more = ["--system", system, "--log-bytes", "400000"];
        let mut known = [[Key::default(); KEYS]; CLIENTS];
        for round in 0..3 {
            let (server, address) = live_with(&mut command(&dir, &more));
            for (client, keys) in known.iter_mut().enumerate() {
                let mut connection = Client::open(&address);
                for (number, key) in keys.iter_mut().enumerate() {
                    let found = connection.ask(&format!("GET c{client}-k{number}")).remove(0);
                    let found = found.map_or(0, |value| value.parse().unwrap());
                    let Key { promised, sent } = *key;
                    let name = format!("{system} round {round} client {client} key {number}");
                    assert!((promised..=sent).contains(&found), "{name}: {found} not in {key:?}");
                    *key = Key { promised: found, sent };
                }
            }
            thread::scope(|scope| {
                let (address, before) = (&address, known);
                let clients: Vec<_> = (0..CLIENTS)
                    .map(|client| scope.spawn(move || load(address, client, reads, before[client])))
                    .collect();
                thread::sleep(Duration::from_millis(400));
                kill(server);
                for (keys, client) in known.iter_mut().zip(clients) {
                    *keys = client.join().unwrap();
                }
            });
            let written: u64 = known.iter().flatten().map(|key| key.promised).sum();
            assert!(written > 0, "{system}: nothing was promised");
        }
    }
}
