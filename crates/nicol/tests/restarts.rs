//! A server that is killed while it is loaded, and started again: everything acknowledged is there,
//! nothing appears half, whatever happens to the end of a log or to one replica's files.

mod live;

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use live::client::{Client, command, folder, kill};
use live::harm::{Harm, harm};
use live::{LIVE, live_with};
use nicol_core::rng::{Purpose, Stream};

/// Clients of a round.
const CLIENTS: usize = 4;
/// Keys of a client that it sets one by one.
const KEYS: u64 = 12;
/// Accounts that all clients share, and what they hold together.
const ACCOUNTS: u64 = 8;
const TOTAL: i64 = 800;

/// What a client has done to its keys: operation `n` of a key leaves value `n`, or none where `n`
/// is a multiple of 5. So what is there names the operation that left it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Done {
    asked: u64,
    acknowledged: u64,
}

impl Done {
    fn allows(&self, found: Option<&str>) -> bool {
        let left = |n: u64| if n.is_multiple_of(5) { None } else { Some(n.to_string()) };
        (self.acknowledged..=self.asked).any(|n| left(n).as_deref() == found)
    }
}

/// What one client knows, over all rounds.
#[derive(Clone, Debug)]
struct Known {
    client: usize,
    keys: Vec<Done>,
    /// Three keys that only change together.
    group: Done,
    commits: u64,
}

impl Known {
    fn key(&self, key: u64) -> String {
        format!("c{}-k{key}", self.client)
    }

    fn group_keys(&self) -> [String; 3] {
        [0, 1, 2].map(|part| format!("c{}-g{part}", self.client))
    }

    /// Loads the server until it is gone.
    fn load(&mut self, mut client: Client, seed: u64) {
        let rng = &mut Stream::new(seed, Purpose::Workload, self.client as u32);
        loop {
            let sent = match rng.below(4) {
                0 => self.transfer(&mut client, rng),
                1 => self.set_group(&mut client),
                _ => self.set_keys(&mut client, rng),
            };
            if sent.is_none() {
                return;
            }
            self.commits += 1;
        }
    }

    /// Sets a few keys in one burst.
    fn set_keys(&mut self, client: &mut Client, rng: &mut Stream) -> Option<()> {
        let mut burst = String::new();
        let chosen: Vec<u64> = (0..1 + rng.below(6)).map(|_| rng.below(KEYS)).collect();
        for &key in &chosen {
            let name = self.key(key);
            let done = &mut self.keys[key as usize];
            done.asked += 1;
            let n = done.asked;
            burst.push_str(&match n % 5 {
                0 => format!("DEL {name}\r\n"),
                1 => format!("SET {name} {n} EX 100000\r\n"),
                _ => format!("SET {name} {n}\r\n"),
            });
        }
        client.send(&burst);
        for key in chosen {
            client.reply()?;
            self.keys[key as usize].acknowledged += 1;
        }
        Some(())
    }

    fn set_group(&mut self, client: &mut Client) -> Option<()> {
        self.group.asked += 1;
        let n = self.group.asked;
        let set = self.group_keys().map(|key| format!(" {key} {n}")).concat();
        client.send(&match n % 5 {
            0 => format!("DEL {}\r\n", self.group_keys().join(" ")),
            _ => format!("MSET{set}\r\n"),
        });
        client.reply()?;
        self.group.acknowledged = n;
        Some(())
    }

    fn transfer(&mut self, client: &mut Client, rng: &mut Stream) -> Option<()> {
        let (from, to) = (rng.below(ACCOUNTS), rng.below(ACCOUNTS));
        client.send(&format!("MULTI\r\nDECRBY a{from} 3\r\nINCRBY a{to} 3\r\nEXEC\r\n"));
        for _ in 0..4 {
            client.reply()?;
        }
        Some(())
    }

    /// Compares what is there with what is known; what is there is known from now on.
    fn compare(&mut self, client: &mut Client, round: u64) {
        for key in 0..KEYS {
            let name = self.key(key);
            let found = client.ask(&format!("GET {name}")).remove(0);
            let done = &mut self.keys[key as usize];
            assert!(done.allows(found.as_deref()), "round {round}: {name} = {found:?}, {done:?}");
            settle(done, found.as_deref());
        }
        let found = client.ask(&format!("MGET {}", self.group_keys().join(" ")));
        assert!(found.iter().all(|one| *one == found[0]), "round {round}: half: {found:?}");
        assert!(
            self.group.allows(found[0].as_deref()),
            "round {round}: {found:?} {:?}",
            self.group
        );
        settle(&mut self.group, found[0].as_deref());
    }
}

/// Whatever was found is acknowledged from now on.
fn settle(done: &mut Done, found: Option<&str>) {
    let left = |n: &u64| if n.is_multiple_of(5) { None } else { Some(n.to_string()) };
    let last = (done.acknowledged..=done.asked).rev().find(|n| left(n).as_deref() == found);
    *done = Done { asked: last.unwrap(), acknowledged: last.unwrap() };
}

/// The seed of the rounds in the gate.
const SEED: u64 = 17;

/// Rounds of load, a kill at any instant, harm to the files, and a comparison.
fn rounds(name: &str, count: u64, seed: u64) {
    let dir = folder(name);
    let rng = &mut Stream::new(seed, Purpose::Workload, 0);
    let mut known: Vec<Known> = (0..CLIENTS)
        .map(|client| {
            let keys = vec![Done::default(); KEYS as usize];
            Known { client, keys, group: Done::default(), commits: 0 }
        })
        .collect();
    let mut told = BTreeMap::<&str, u64>::new();
    for round in 0..count {
        // Short logs, so that tables are saved, and servers killed meanwhile.
        let nodes = ["3", "4", "3"][round as usize % 3];
        let (server, address) =
            live_with(&mut command(&dir, &["--nodes", nodes, "--log-bytes", "300000"]));
        for word in ["repaired from", "left out 0", "cut 0"] {
            *told.entry(word).or_default() += u64::from(server.before.contains(word));
        }
        let mut client = Client::open(&address);
        if round == 0 {
            for account in 0..ACCOUNTS {
                client.ask(&format!("SET a{account} {}", TOTAL / ACCOUNTS as i64));
            }
        }
        known.iter_mut().for_each(|known| known.compare(&mut client, round));
        let accounts: Vec<String> = (0..ACCOUNTS).map(|account| format!("a{account}")).collect();
        let held = client.ask(&format!("MGET {}", accounts.join(" ")));
        let sum: i64 = held.iter().flatten().map(|one| one.parse::<i64>().unwrap()).sum();
        assert_eq!(sum, TOTAL, "round {round}: {held:?}");
        let deadline = Instant::now() + Duration::from_millis(5 + rng.below(400));
        let loads: Vec<_> = known
            .into_iter()
            .map(|mut known| {
                // Connected now: on a busy machine the thread may begin after the kill.
                let client = Client::open(&address);
                thread::spawn(move || {
                    known.load(client, round);
                    known
                })
            })
            .collect();
        thread::sleep(deadline.saturating_duration_since(Instant::now()));
        kill(server);
        known = loads.into_iter().map(|load| load.join().unwrap()).collect();
        harm(&dir, Harm::ALL[round as usize % Harm::ALL.len()], rng);
    }
    let commits: u64 = known.iter().map(|known| known.commits).sum();
    println!("{count} rounds, {commits} acknowledged bursts, of {count} starts: {told:?}");
    assert!(commits > 5 * count, "{commits} in {count} rounds");
    if count >= 20 {
        assert!(told["repaired from"] > count / 10, "{told:?}");
        assert!(told["cut 0"] < count, "{told:?}");
    }
}

#[test]
fn a_killed_server_has_everything_acknowledged_when_it_starts_again() {
    rounds("restart-rounds", 6, SEED);
}

#[test]
#[ignore = "three minutes: cargo xtask restarts runs it, after a change to logs or recovery"]
fn a_server_that_is_killed_200_times_has_everything_acknowledged() {
    let asked = |name| std::env::var(name).ok().map(|text| text.parse().unwrap());
    let count = asked("NICOL_RESTART_ROUNDS").unwrap_or(200);
    rounds("restart-rounds-long", count, asked("NICOL_RESTART_SEED").unwrap_or(SEED));
}

/// Starts a server that must not serve; what it says.
fn refused(dir: &Path, more: &[&str]) -> String {
    let output = command(dir, more).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(3), "{told}");
    assert!(!told.contains("panicked"), "{told}");
    told
}

/// A killed server's logs, in which key `hit` was written before others.
fn logs_with(dir: &Path, replicas: &str) -> Vec<PathBuf> {
    let (server, address) = live_with(&mut command(dir, &["--replicas", replicas]));
    let mut client = Client::open(&address);
    for key in ["before", "hit-me", "after", "behind"] {
        client.ask(&format!("SET {key} value-of-{key}"));
    }
    // What is damaged is told from a torn end by later records, and keys spread at random: each log
    // has some, but for one run in ten million.
    (0..40).for_each(|more| drop(client.ask(&format!("SET more-{more} value"))));
    // A COMMIT may come after the acknowledgement.
    thread::sleep(Duration::from_millis(50));
    kill(server);
    [0, 1, 2].map(|node| dir.join("run-1").join(format!("node-{node}.log"))).to_vec()
}

/// Spoils every record of key `hit-me` in a file; where they were.
fn spoil(path: &Path) -> Vec<usize> {
    let mut bytes = fs::read(path).unwrap();
    let word = b"value-of-hit-me";
    let places: Vec<usize> =
        (0..bytes.len() - word.len()).filter(|&at| bytes[at..].starts_with(word)).collect();
    places.iter().for_each(|&at| bytes[at] ^= 0x20);
    fs::write(path, bytes).unwrap();
    places
}

#[test]
fn a_record_that_is_damaged_in_every_log_is_refused_in_words() {
    for replicas in ["2", "3"] {
        let dir = folder(&format!("restart-damage-{replicas}"));
        let logs = logs_with(&dir, replicas);
        let good: Vec<Vec<u8>> = logs.iter().map(|log| fs::read(log).unwrap()).collect();
        let holders: Vec<&PathBuf> = logs.iter().filter(|log| !spoil(log).is_empty()).collect();
        assert_eq!(holders.len().to_string(), replicas);
        let bad: Vec<Vec<u8>> = logs.iter().map(|log| fs::read(log).unwrap()).collect();
        let told = refused(&dir, &["--replicas", replicas]);
        for log in &holders {
            assert!(told.contains(&format!("{} at byte ", log.display())), "{told}");
        }
        assert!(told.contains("Restore") && told.contains("is damaged"), "{told}");
        assert!(logs.iter().zip(&bad).all(|(log, bad)| fs::read(log).unwrap() == *bad));
        // One that is whole is enough, whichever it is.
        for (log, good) in logs.iter().zip(&good) {
            fs::write(log, good).unwrap();
        }
        let spared = holders[holders.len() - 1].clone();
        logs.iter().filter(|log| **log != spared).for_each(|log| drop(spoil(log)));
        let (server, address) = live_with(&mut command(&dir, &["--replicas", replicas]));
        assert!(server.before.contains("repaired from"), "{}", server.before);
        let found = Client::open(&address).ask("MGET before hit-me after behind");
        let expected = ["before", "hit-me", "after", "behind"].map(|key| format!("value-of-{key}"));
        assert_eq!(found, expected.map(Some));
    }
}

#[test]
fn random_bytes_instead_of_a_log_are_told_or_refused() {
    let dir = folder("restart-random");
    let logs = logs_with(&dir, "3");
    let rng = &mut Stream::new(5, Purpose::Workload, 0);
    let noise: Vec<u8> = (0..5_000).map(|_| rng.bits() as u8).collect();
    let good: Vec<Vec<u8>> = logs.iter().map(|log| fs::read(log).unwrap()).collect();
    logs.iter().for_each(|log| fs::write(log, &noise).unwrap());
    let told = refused(&dir, &[]);
    for log in &logs {
        assert!(told.contains(&format!("{} at byte 0", log.display())), "{told}");
    }
    // A log from which the first bytes on are noise, behind its header, while others are whole.
    for (log, good) in logs.iter().zip(&good) {
        fs::write(log, good).unwrap();
    }
    fs::write(&logs[1], &noise).unwrap();
    let (server, address) = live_with(&mut command(&dir, &[]));
    let named = format!("repaired from other files: {} at byte 0", logs[1].display());
    assert!(server.before.contains(&named), "{}", server.before);
    assert_eq!(Client::open(&address).ask("GET hit-me"), [Some("value-of-hit-me".to_owned())]);
}

#[test]
fn two_servers_do_not_share_a_folder_nor_do_a_store_and_a_benchmark() {
    let dir = folder("restart-shared");
    let (server, _) = live_with(&mut command(&dir, &[]));
    let told = refused(&dir, &[]);
    assert!(told.contains("another process uses") && told.contains("restart-shared"), "{told}");
    drop(server);
    let bench = |dir: &Path| {
        let flags = ["bench", "smallbank", "--records", "100", "--transactions", "100"];
        let device = format!("file:{}", dir.display());
        let mut command = Command::new(env!("CARGO_BIN_EXE_nicol"));
        command.args(flags).args(["--log-device", &device]).output().unwrap()
    };
    let output = bench(&dir);
    assert_eq!(output.status.code(), Some(3));
    assert!(String::from_utf8_lossy(&output.stderr).contains("belongs to a store"));
    let other = folder("restart-bench");
    assert!(bench(&other).status.success());
    assert!(refused(&other, &[]).contains("a log of 'nicol bench'"));
}

#[test]
fn what_expires_still_does_after_a_restart_and_info_tells_the_truth() {
    let dir = folder("restart-expiry");
    let (server, address) = live_with(&mut command(&dir, &[]));
    let mut client = Client::open(&address);
    client.ask("SET short 1 PX 700");
    client.ask("SET long 1 EX 1000");
    client.ask("SET ever 1");
    kill(server);
    let (server, address) = live_with(&mut command(&dir, &[]));
    let mut client = Client::open(&address);
    let left: u64 = client.ask("TTL long")[0].as_ref().unwrap().parse().unwrap();
    assert!((900..=1_000).contains(&left), "{left}");
    let deadline = Instant::now() + Duration::from_secs(20);
    while client.ask("DBSIZE") != [Some("2".to_owned())] {
        assert!(Instant::now() < deadline, "what was over before is not freed");
        thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(client.ask("MGET short long ever")[0], None);
    let kept = |name: &str| Some(name.to_owned());
    assert_eq!(client.ask("CONFIG GET appendonly")[1], kept("yes"));
    assert_eq!(client.ask("CONFIG GET appendfsync")[1], kept("always"));
    assert_eq!(client.ask("CONFIG GET dir")[1], kept(&dir.display().to_string()));
    let info = client.ask("INFO persistence")[0].clone().unwrap();
    let number = |name: &str| -> u64 {
        let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.unwrap_or_else(|| panic!("{name} in {info}")).trim().parse().unwrap()
    };
    assert_eq!((number("aof_enabled"), number("loading"), number("nicol_tables_saved")), (1, 0, 0));
    assert!((2..=3).contains(&number("nicol_read_back_records")), "{info}");
    assert!(number("aof_base_size") > 50 && number("rdb_last_save_time") > 1_700_000_000, "{info}");
    drop(server);
    let (server, address) = live_with(Command::new(env!("CARGO_BIN_EXE_nicol")).args(LIVE));
    let mut client = Client::open(&address);
    assert_eq!(client.ask("CONFIG GET appendonly")[1], kept("no"));
    assert!(client.ask("INFO persistence")[0].as_ref().unwrap().contains("aof_enabled:0"));
    drop(server);
}

/// The number that INFO tells under `name`.
fn told(client: &mut Client, name: &str) -> u64 {
    let info = client.ask("INFO persistence")[0].clone().unwrap();
    let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("{name} in {info}")).trim().parse().unwrap()
}

#[test]
fn logs_that_outrun_the_saving_of_tables_are_held_up() {
    /// Beyond it logs are merged.
    const LIMIT: u64 = 1_000_000;
    /// What is written between two looks, and what is under way when nothing more is begun.
    const BETWEEN: u64 = 6_000_000;
    let dir = folder("restart-outrun");
    let (server, address) = live_with(&mut command(&dir, &["--log-bytes", &LIMIT.to_string()]));
    let (records, value) = (12_000, "x".repeat(1_000));
    let writer = thread::spawn({
        let address = address.clone();
        move || {
            let mut client = Client::open(&address);
            for first in (0..records).step_by(100) {
                let burst = (first..first + 100).map(|number| format!("SET k{number} {value}\r\n"));
                assert!(client.send(&burst.collect::<String>()));
                (0..100).for_each(|_| assert!(client.reply().is_some()));
            }
        }
    });
    let mut client = Client::open(&address);
    let mut most = 0;
    while !writer.is_finished() {
        most = most.max(told(&mut client, "nicol_log_bytes"));
        thread::sleep(Duration::from_millis(1));
    }
    writer.join().unwrap();
    // All of them together are 36 MB.
    assert!(most < 2 * LIMIT + BETWEEN, "{most} bytes in the current logs");
    assert!(told(&mut client, "nicol_held_ms") > 0, "the tables were always saved in time");
    kill(server);
    let (server, address) = live_with(&mut command(&dir, &[]));
    let found = Client::open(&address).ask("DBSIZE");
    assert_eq!(found, [Some(records.to_string())]);
    drop(server);
}

/// Bytes in a folder and those below it.
fn size(dir: &Path) -> u64 {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    entries
        .map(|path| if path.is_dir() { size(&path) } else { path.metadata().unwrap().len() })
        .sum()
}

#[test]
fn logs_are_shortened_while_it_serves_and_a_disk_too_small_for_that_loses_nothing() {
    let dir = folder("restart-short");
    let (server, address) = live_with(&mut command(&dir, &["--log-bytes", "100000"]));
    let mut client = Client::open(&address);
    let saves = |client: &mut Client| -> u64 {
        let info = client.ask("INFO persistence")[0].clone().unwrap();
        let line = info.lines().find_map(|line| line.strip_prefix("nicol_tables_saved:"));
        line.unwrap().trim().parse().unwrap()
    };
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut written = 0;
    while saves(&mut client) < 3 {
        assert!(Instant::now() < deadline);
        for _ in 0..50 {
            written += 1;
            client.ask(&format!("SET key-{} {written}", written % 20));
        }
    }
    // What was written is many times what is left.
    assert!(size(&dir) < 1_000_000, "{}", size(&dir));
    let runs = fs::read_dir(&dir).unwrap().count();
    assert!(runs <= 4, "{runs} folders");
    kill(server);
    // The limit on a file's size (in half KiB) stands for a disk that the tables do not fit on.
    let line = "trap '' XFSZ; ulimit -f 128; exec \"$@\"";
    let mut limited = Command::new("sh");
    let device = format!("file:{}", dir.display());
    limited.args(["-c", line, "sh", env!("CARGO_BIN_EXE_nicol")]).args(LIVE);
    limited.args(["--log-device", &device, "--log-bytes", "65536"]);
    let (mut server, address) = live_with(&mut limited);
    let mut client = Client::open(&address);
    assert_eq!(client.ask(&format!("GET key-{}", written % 20)), [Some(written.to_string())]);
    let (acknowledged, value) = (400, "x".repeat(500));
    for number in 0..acknowledged {
        client.ask(&format!("SET big-{number} {value}"));
        // Time to save what there is, again and again.
        thread::sleep(Duration::from_millis(2));
    }
    let info = client.ask("INFO persistence")[0].clone().unwrap();
    assert!(info.contains("aof_last_bgrewrite_status:err"), "{info}");
    server.process.kill().unwrap();
    let mut told = String::new();
    server.told.read_to_string(&mut told).unwrap();
    drop(server);
    assert!(told.contains("the tables cannot be saved") && told.contains("tables-1"), "{told}");
    let (server, address) = live_with(&mut command(&dir, &[]));
    let mut client = Client::open(&address);
    for number in 0..acknowledged {
        assert_eq!(client.ask(&format!("EXISTS big-{number}")), [Some("1".to_owned())], "{number}");
    }
    drop(server);
}

/// The number of records that a server says it has read back.
fn read_back(told: &str) -> u64 {
    let words = told.split("read back ").nth(1).and_then(|rest| rest.split(' ').next());
    words.map_or(0, |number| number.parse().unwrap())
}

#[test]
fn large_lists_and_the_freeing_of_their_pages_outlive_kill_9() {
    const ELEMENTS: usize = 20_000;
    let dir = folder("large-lists");
    let (server, address) = live_with(&mut command(&dir, &[]));
    let mut client = Client::open(&address);
    for from in (0..ELEMENTS).step_by(500) {
        let numbers: String = (from..from + 500).map(|number| format!(" {number:010}")).collect();
        client.ask(&format!("RPUSH gone{numbers}"));
        client.ask(&format!("RPUSH kept{numbers}"));
    }
    // Pops that nobody waits for: some are acknowledged, some not.
    for _ in 0..300 {
        client.send("LPOP kept\r\n");
    }
    let mut popped = 0;
    while popped < 100 {
        client.reply().unwrap();
        popped += 1;
    }
    client.send("DEL gone\r\n");
    kill(server);
    while client.reply().is_some() {
        popped += 1;
    }

    let (server, address) = live_with(&mut command(&dir, &[]));
    let (mut client, before) = (Client::open(&address), read_back(&server.before));
    let len: usize = client.ask("LLEN kept")[0].as_deref().unwrap().parse().unwrap();
    assert!((ELEMENTS - 300..=ELEMENTS - popped.min(300)).contains(&len), "{len} {popped}");
    let all: Vec<String> = client.ask("LRANGE kept 0 -1").into_iter().flatten().collect();
    let expected = (ELEMENTS - len..ELEMENTS).map(|number| format!("{number:010}"));
    assert!(all.iter().cloned().eq(expected), "{} elements", all.len());
    assert!(before > 100, "{before} records");
    client.ask("DEL gone");
    client.ask("DEL kept");
    kill(server);
    // What frees the pages is killed, too: at first before it begins, a quarter of a second after
    // the start, and then ever later.
    let (begun, mut left, mut lasts) = (Instant::now(), before, Duration::from_millis(200));
    while left > 0 {
        assert!(begun.elapsed() < Duration::from_secs(60), "{left} records are left");
        let (server, _) = live_with(&mut command(&dir, &[]));
        let now = read_back(&server.before);
        assert!(now <= left, "{now} records after {left}");
        left = now;
        thread::sleep(lasts);
        lasts += Duration::from_millis(25);
        kill(server);
    }
}
