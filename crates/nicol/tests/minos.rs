//! MINOS behind the RESP front: what it takes, what it refuses, and what is there after `kill -9`.

mod live;

use std::path::Path;
use std::thread;
use std::time::Duration;

use live::client::{Client, command, folder, kill};
use live::harm::{Harm, harm};
use live::single::takes_single_operations_only;
use live::{LIVE, live_with};
use nicol_core::rng::{Purpose, Stream};

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

/// What a model promises that a crash of everything leaves. A front ends no scopes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Promised {
    Acknowledged,
    /// What a GET has returned.
    Read,
    /// Nothing, but what an earlier start has found.
    Found,
}

/// Sets its keys to ever higher numbers until the server is gone.
fn load(address: &str, client: usize, promised: Promised, mut keys: [Key; KEYS]) -> [Key; KEYS] {
    let mut connection = Client::open(address);
    loop {
        for (number, key) in keys.iter_mut().enumerate() {
            key.sent += 1;
            let set = format!("SET c{client}-k{number} {}\r\n", key.sent);
            if !connection.send(&set) || connection.reply().is_none() {
                return keys;
            }
            match promised {
                Promised::Read => {}
                Promised::Acknowledged => {
                    key.promised = key.sent;
                    continue;
                }
                Promised::Found => continue,
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

/// So many rounds of load, `kill -9`, harm to one node's files and a start, of each system.
fn rounds(name: &str, count: u64, seed: u64) {
    use Promised::{Acknowledged, Found, Read};
    let models = [
        ("synch", Acknowledged),
        ("strict", Acknowledged),
        ("renf", Read),
        ("event", Found),
        ("scope", Found),
    ];
    let rng = &mut Stream::new(seed, Purpose::Workload, 0);
    for place in ["minos-b", "minos-o"] {
        for (model, promised) in models {
            let system = format!("{place}:{model}");
            let dir = folder(&format!("{name}-{place}-{model}"));
            rounds_of(&system, promised, count, &dir, rng);
        }
    }
}

fn rounds_of(system: &str, promised: Promised, count: u64, dir: &Path, rng: &mut Stream) {
    // Short logs, so that they are shortened while it serves.
    let more = ["--system", system, "--log-bytes", "400000"];
    let mut known = [[Key::default(); KEYS]; CLIENTS];
    let mut sets = 0;
    for round in 0..count {
        let (server, address) = live_with(&mut command(dir, &more));
        let synced = Client::open(&address).ask("CONFIG GET appendfsync").remove(1);
        let expected = if promised == Promised::Acknowledged { "always" } else { "everysec" };
        assert_eq!(synced.as_deref(), Some(expected), "{system}");
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
        let before: u64 = known.iter().flatten().map(|key| key.sent).sum();
        thread::scope(|scope| {
            let (address, before) = (&address, known);
            let clients: Vec<_> = (0..CLIENTS)
                .map(|client| scope.spawn(move || load(address, client, promised, before[client])))
                .collect();
            thread::sleep(Duration::from_millis(100 + rng.below(300)));
            kill(server);
            for (keys, client) in known.iter_mut().zip(clients) {
                *keys = client.join().unwrap();
            }
        });
        sets += known.iter().flatten().map(|key| key.sent).sum::<u64>() - before;
        harm(dir, Harm::ALL[round as usize % Harm::ALL.len()], rng);
    }
    println!("{system}: {count} rounds, {sets} SETs");
    assert!(sets > 5 * count, "{system}: {sets} SETs in {count} rounds");
}

#[test]
fn what_a_model_promises_is_there_after_kill_9_and_harm_to_files() {
    rounds("minos", 3, 17);
}

#[test]
#[ignore = "minutes: cargo xtask restarts runs it, after a change to logs or recovery"]
fn what_a_model_promises_is_there_after_200_kills() {
    let asked = |name| std::env::var(name).ok().map(|text| text.parse().unwrap());
    let count = asked("NICOL_RESTART_ROUNDS").unwrap_or(200_u64).div_ceil(10);
    rounds("minos-long", count, asked("NICOL_RESTART_SEED").unwrap_or(17));
}
