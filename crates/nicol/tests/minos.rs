//! MINOS behind the RESP front: what it takes, what it refuses, and what is there after `kill -9`.

mod live;

use std::thread;
use std::time::Duration;

use live::client::{Client, command, folder, kill};
use live::single::takes_single_operations_only;
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
    takes_single_operations_only(&address);
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
