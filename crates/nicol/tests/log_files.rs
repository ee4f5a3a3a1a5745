//! The log files of a server: what they hold when it ends badly, and what it says of bad ones.

mod live;
#[path = "../../nicol-resp/tests/it/support/mod.rs"]
mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{BufReader, Read};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use live::{LIVE, live_with};
use nicol_rt::{HEADER_LEN, LogEntry, LogReader};
use support::{Client, text};

/// A folder of this test run, empty; `name` is used by one test only.
fn folder(name: &str) -> PathBuf {
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _gone = fs::remove_dir_all(&dir);
    dir
}

fn device(dir: &Path) -> String {
    format!("file:{}", dir.display())
}

/// The numbers of the keys `key-N.` in the readable part of a file.
fn keys_in(path: &Path) -> BTreeSet<u32> {
    let mut reader = LogReader::open(BufReader::new(File::open(path).unwrap())).unwrap();
    let mut keys = BTreeSet::new();
    while let Some(entry) = reader.next().unwrap() {
        let LogEntry::Record(record) = entry else { continue };
        let text = String::from_utf8_lossy(record.bytes).into_owned();
        let numbers = text.split("key-").skip(1).filter_map(|rest| rest.split('.').next());
        keys.extend(numbers.filter_map(|number| number.parse::<u32>().ok()));
    }
    keys
}

/// Sets keys until `enough` or an error; the numbers of those that were acknowledged.
fn set(client: &mut Client, enough: u32, value: &str) -> Vec<u32> {
    let mut acknowledged = Vec::new();
    for number in 0..enough {
        client.send(format!("SET key-{number}. {value}\r\n").as_bytes());
        if client.read(5) != b"+OK\r\n" {
            break;
        }
        acknowledged.push(number);
    }
    acknowledged
}

/// Every key is in the files of both backups, whichever nodes these are.
fn assert_kept(run: &Path, acknowledged: &[u32]) {
    let files = [0, 1, 2].map(|node| keys_in(&run.join(format!("node-{node}.log"))));
    for number in acknowledged {
        let holders = files.iter().filter(|keys| keys.contains(number)).count();
        assert!(holders >= 2, "key {number} is in {holders} files");
    }
}

#[test]
fn a_killed_server_s_files_hold_what_it_has_acknowledged() {
    let dir = folder("log-killed");
    let mut command = Command::new(env!("CARGO_BIN_EXE_nicol"));
    let (mut server, address) = live_with(command.args(LIVE).args(["--log-device", &device(&dir)]));
    let acknowledged = set(&mut Client::open(&address).unwrap(), 200, "v");
    server.process.kill().unwrap();
    server.process.wait().unwrap();
    assert_eq!(acknowledged.len(), 200);
    assert_kept(&dir.join("run-1"), &acknowledged);
}

#[test]
fn a_log_that_cannot_be_written_ends_the_server_in_words_and_loses_nothing_acknowledged() {
    let dir = folder("log-fails");
    // The limit on a file's size (in half KiB) stands for a disk that fails; the last write is
    // short. The signal would end the process before the write could fail.
    let line = "trap '' XFSZ; ulimit -f 256; exec \"$@\"";
    let mut command = Command::new("sh");
    command.args(["-c", line, "sh", env!("CARGO_BIN_EXE_nicol")]).args(LIVE);
    let (mut server, address) = live_with(command.args(["--log-device", &device(&dir)]));
    let acknowledged = set(&mut Client::open(&address).unwrap(), 100_000, &"x".repeat(1_000));
    let mut told = String::new();
    server.told.read_to_string(&mut told).unwrap();
    assert_eq!(server.process.wait().unwrap().code(), Some(3), "{told}");
    let run = dir.join("run-1");
    let named = [0, 1, 2].map(|node| run.join(format!("node-{node}.log")).display().to_string());
    assert!(named.iter().any(|path| told.contains(path)), "{told}");
    assert!(!told.contains("panicked"), "{told}");
    assert!((10..1_000).contains(&acknowledged.len()), "{}", acknowledged.len());
    assert_kept(&run, &acknowledged);
}

#[test]
fn a_full_disk_refuses_writes_and_takes_them_again_when_it_has_room() {
    let dir = folder("log-full");
    fs::create_dir_all(&dir).unwrap();
    // A disk of its own, small, and a file on it that can be removed.
    let line = "mount -t tmpfs -o size=5m tmpfs \"$0\" && head -c 2000000 /dev/zero > \"$0/filler\" \
                && exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["-rm", "sh", "-c", line]).arg(&dir);
    if !command.arg("true").output().is_ok_and(|output| output.status.success()) {
        println!("left out: this machine lets nobody mount a disk");
        return;
    }
    let mut command = Command::new("unshare");
    command.args(["-rm", "sh", "-c", line]).arg(&dir).arg(env!("CARGO_BIN_EXE_nicol")).args(LIVE);
    let (server, address) = live_with(command.args(["--log-device", &device(&dir.join("store"))]));
    let mut client = Client::open(&address).unwrap();
    let mut ask = |request: String| {
        client.send(request.as_bytes());
        text(&client.reply())
    };
    let value = "x".repeat(500);
    let (mut stored, mut last) = (0, String::new());
    for key in 0..20_000 {
        last = ask(format!("SET key{key} {value}\r\n"));
        if last.starts_with("-MISCONF") {
            break;
        }
        stored += u64::from(last == "+OK\r\n");
    }
    assert!(last.starts_with("-MISCONF") && last.contains("full"), "{last}");
    assert!((100..10_000).contains(&stored), "{stored} values");
    for key in [0, stored / 2, stored - 1] {
        assert!(ask(format!("GET key{key}\r\n")).ends_with(&format!("{value}\r\n")), "key{key}");
    }
    assert!(ask("DEL key0\r\n".to_owned()).starts_with("-MISCONF"));
    assert!(ask("INFO\r\n".to_owned()).contains("aof_last_write_status:err"));
    let outside = format!("/proc/{}/root/{}/filler", server.process.id(), dir.display());
    fs::remove_file(outside).unwrap();
    let started = Instant::now();
    while ask("SET later 1\r\n".to_owned()) != "+OK\r\n" {
        assert!(started.elapsed() < Duration::from_secs(20), "it takes no writes");
        thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(ask("DEL key0\r\n".to_owned()), ":1\r\n");
}

#[test]
fn a_server_starts_on_a_full_disk_reads_only_and_writes_once_there_is_room() {
    let dir = folder("log-full-start");
    let (mounted, store) = (dir.join("disk"), dir.join("store"));
    fs::create_dir_all(&mounted).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_nicol"));
    let (mut server, address) =
        live_with(command.args(LIVE).args(["--log-device", &device(&store)]));
    let value = "x".repeat(500);
    assert_eq!(set(&mut Client::open(&address).unwrap(), 200, &value).len(), 200);
    server.process.kill().unwrap();
    server.process.wait().unwrap();
    // The store on a small disk that a file fills to its last page.
    let line = "mount -t tmpfs -o size=5m tmpfs \"$0\" && cp -r \"$1\" \"$0/store\" && \
                { cat /dev/zero > \"$0/filler\" 2> /dev/null; shift; exec \"$@\"; }";
    let on_disk = || {
        let mut command = Command::new("unshare");
        command.args(["-rm", "sh", "-c", line]).arg(&mounted).arg(&store);
        command
    };
    if !on_disk().arg("true").output().is_ok_and(|output| output.status.success()) {
        println!("left out: this machine lets nobody mount a disk");
        return;
    }
    let mut command = on_disk();
    command.arg(env!("CARGO_BIN_EXE_nicol")).args(LIVE);
    let (mut server, address) =
        live_with(command.args(["--log-device", &device(&mounted.join("store"))]));
    let mut client = Client::open(&address).unwrap();
    let mut ask = |request: &str| {
        client.send(request.as_bytes());
        text(&client.reply())
    };
    assert!(ask("GET key-199.\r\n").ends_with(&format!("{value}\r\n")));
    assert!(ask("SET later 1\r\n").starts_with("-MISCONF"));
    assert!(ask("INFO\r\n").contains("aof_last_write_status:err"));
    let inside =
        |path: &str| format!("/proc/{}/root/{}/{path}", server.process.id(), mounted.display());
    fs::remove_file(inside("filler")).unwrap();
    let started = Instant::now();
    while ask("SET later 1\r\n") != "+OK\r\n" {
        assert!(started.elapsed() < Duration::from_secs(20), "it takes no writes");
        thread::sleep(Duration::from_millis(20));
    }
    assert!(ask("INFO\r\n").contains("aof_last_write_status:ok"));
    // What it has acknowledged since is in the files.
    let copy = dir.join("copy");
    let copied = Command::new("cp").arg("-r").arg(inside("store")).arg(&copy).status();
    assert!(copied.unwrap().success());
    server.process.kill().unwrap();
    let mut told = String::new();
    server.told.read_to_string(&mut told).unwrap();
    assert!(told.contains("no room") && told.contains("there is room now"), "{told}");
    let mut command = Command::new(env!("CARGO_BIN_EXE_nicol"));
    let (_server, address) = live_with(command.args(LIVE).args(["--log-device", &device(&copy)]));
    let mut client = Client::open(&address).unwrap();
    client.ask(b"GET later\r\n", b"$1\r\n1\r\n");
    client.ask(b"DBSIZE\r\n", b":201\r\n");
}

#[test]
fn a_damaged_file_of_an_earlier_run_is_named_and_left_alone() {
    let dir = folder("log-damaged");
    let flags = ["bench", "smallbank", "--records", "100", "--transactions", "100"];
    let bench = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_nicol"));
        command.args(flags).args(["--log-device", &device(&dir)]).output().unwrap()
    };
    assert!(bench().status.success());
    let path = dir.join("run-1").join("node-1.log");
    let good = fs::read(&path).unwrap();
    let mut swapped = fs::read(dir.join("run-1").join("node-2.log")).unwrap();
    swapped.truncate(HEADER_LEN);
    for byte in [0, 8, 15, 35, 43, 50, 59] {
        let mut bad = good.clone();
        bad[byte] ^= 1;
        fs::write(&path, &bad).unwrap();
        refuses(&bench(), &path);
        assert_eq!(fs::read(&path).unwrap(), bad);
    }
    fs::write(&path, &swapped).unwrap();
    refuses(&bench(), &path);
    // A file has its name only once its header is durable: a shorter one is damaged.
    for whole in [0, HEADER_LEN - 1] {
        fs::write(&path, &good[..whole]).unwrap();
        refuses(&bench(), &path);
    }
    // What a crashed launch leaves is no damage, and a torn end is none either.
    fs::write(path.with_extension("new"), b"NICOL").unwrap();
    for whole in [HEADER_LEN, good.len() - 1] {
        fs::write(&path, &good[..whole]).unwrap();
        assert!(bench().status.success(), "{whole} bytes");
    }
}

fn refuses(output: &std::process::Output, path: &Path) {
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{told}");
    assert!(told.contains(&path.display().to_string()), "{told}");
}

#[test]
fn what_no_store_has_made_is_named_and_left_alone() {
    let dir = folder("log-strangers");
    let serve = |bad: &Path| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_nicol"));
        let args =
            ["serve", "--nodes", "2", "--listen", "127.0.0.1:0", "--log-device", &device(&dir)];
        refuses(&command.args(args).output().unwrap(), bad);
    };
    for stranger in ["notes.txt", "node-0.log", "run-1/notes.txt", "run-x"] {
        let path = dir.join(stranger);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, "random").unwrap();
        serve(&path);
        assert_eq!(fs::read(&path).unwrap(), b"random");
        fs::remove_file(&path).unwrap();
    }
}

/// The files below `dir` with their lengths.
fn files(dir: &Path) -> BTreeMap<PathBuf, u64> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(files(&path)),
            false => drop(found.insert(path.clone(), path.metadata().unwrap().len())),
        }
    }
    found
}

#[test]
fn a_taken_address_is_refused_before_the_logs_are_read() {
    let dir = folder("log-taken");
    let start = |address: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_nicol"));
        command.args(["serve", "--records", "1000", "--threads", "1", "--listen", address]);
        command.args(["--log-device", &device(&dir)]);
        command
    };
    let (mut server, address) = live_with(&mut start("127.0.0.1:0"));
    assert_eq!(set(&mut Client::open(&address).unwrap(), 20, "v").len(), 20);
    server.process.kill().unwrap();
    server.process.wait().unwrap();
    let before = files(&dir);
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = other.local_addr().unwrap().to_string();
    let output = start(&taken).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{told}");
    assert!(told.contains("--listen") && told.contains(&taken), "{told}");
    assert_eq!(files(&dir), before);
    let (_server, address) = live_with(&mut start("127.0.0.1:0"));
    let mut client = Client::open(&address).unwrap();
    client.send(b"GET key-19.\r\n");
    assert_eq!(client.read(7), b"$1\r\nv\r\n");
}

#[test]
fn a_bad_folder_is_named() {
    let dir = folder("log-bad");
    fs::create_dir_all(&dir).unwrap();
    let file = dir.join("file");
    fs::write(&file, "no folder").unwrap();
    for bad in [file.clone(), file.join("below"), PathBuf::from("/proc/log")] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_nicol"));
        let output = command.args(LIVE).args(["--log-device", &device(&bad)]).output().unwrap();
        refuses(&output, &bad);
    }
    assert_eq!(fs::read(&file).unwrap(), b"no folder");
}
