//! A killed server's files are damaged in every way there is: the next start has what was
//! acknowledged, or ends with exit code 3 and the name of a file; never a smaller store.

mod live;

use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use live::client::{Client, command, folder, kill};
use live::{Live, live_with};
use nicol_core::rng::{Purpose, Stream};

/// Keys of the store, and of its first half, of which there is a copy of the files.
const KEYS: u64 = 2_000;
const FIRST: u64 = 1_200;
/// Logs so short that tables are saved while the server is loaded.
const SHORT_LOGS: [&str; 2] = ["--log-bytes", "400000"];

/// What happens to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Harm {
    Remove,
    Empty,
    /// The second half is not there.
    Truncate,
    Flip,
    /// It is what it was earlier, or what stood there earlier under that name.
    Exchange,
    /// It is a folder: it is there, and cannot be read.
    Unreadable,
}

const HARMS: [Harm; 6] =
    [Harm::Remove, Harm::Empty, Harm::Truncate, Harm::Flip, Harm::Exchange, Harm::Unreadable];

fn load(client: &mut Client, keys: std::ops::Range<u64>) {
    for key in keys {
        assert_eq!(client.ask(&format!("SET key{key} value-of-{key}")), [Some("OK".to_owned())]);
    }
}

fn copy_all(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        // What is copied while a server runs may be gone.
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => copy_all(&entry.path(), &to.join(entry.file_name())),
            _ => drop(fs::copy(entry.path(), to.join(entry.file_name()))),
        }
    }
}

/// The files below a folder but its lock, by their names from there.
fn files(dir: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()) {
        let name = PathBuf::from(entry.file_name().unwrap());
        if entry.is_dir() {
            files.extend(self::files(&entry).into_iter().map(|below| name.join(below)));
        } else if name != Path::new("lock") {
            files.push(name);
        }
    }
    files.sort();
    files
}

/// A killed server's folder, and a copy that was made earlier.
fn prepared(name: &str, logs: &[&str]) -> (PathBuf, PathBuf) {
    let (dir, older) = (folder(name), folder(&format!("{name}-older")));
    let (server, address) = live_with(&mut command(&dir, logs));
    let mut client = Client::open(&address);
    load(&mut client, 0..FIRST);
    copy_all(&dir, &older);
    load(&mut client, FIRST..KEYS);
    // Logs that have ended are merged and removed, or not: both are tried.
    thread::sleep(Duration::from_millis(300));
    kill(server);
    (dir, older)
}

/// What an older copy has for a file: the same one, or one of the same name.
fn earlier(older: &Path, file: &Path) -> Option<PathBuf> {
    let name = file.file_name().unwrap();
    let same = older.join(file);
    let of_name = files(older).into_iter().find(|other| other.file_name().unwrap() == name);
    if same.exists() { Some(same) } else { of_name.map(|other| older.join(other)) }
}

fn harm(harm: Harm, path: &Path, earlier: Option<&Path>, rng: &mut Stream) {
    let bytes = fs::read(path).unwrap();
    match harm {
        Harm::Remove => fs::remove_file(path).unwrap(),
        Harm::Empty => fs::write(path, "").unwrap(),
        Harm::Truncate => {
            let written = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
            fs::write(path, &bytes[..written / 2]).unwrap();
        }
        Harm::Flip => {
            let mut bytes = bytes;
            let at = rng.below(bytes.len().max(1) as u64) as usize;
            bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 4);
            fs::write(path, bytes).unwrap();
        }
        Harm::Exchange => {
            if let Some(earlier) = earlier {
                fs::copy(earlier, path).unwrap();
            }
        }
        Harm::Unreadable => {
            fs::remove_file(path).unwrap();
            fs::create_dir(path).unwrap();
        }
    }
}

/// Starts a server; what it says up to when it serves, or else its exit code and all that it says.
#[expect(clippy::zombie_processes, reason = "what serves is waited for where it is dropped")]
fn start(dir: &Path) -> Result<(Live, String), (Option<i32>, String)> {
    let mut command = command(dir, &SHORT_LOGS);
    let mut process = command.stderr(std::process::Stdio::piped()).spawn().unwrap();
    let mut told = std::io::BufReader::new(process.stderr.take().unwrap());
    let mut before = String::new();
    loop {
        let start = before.len();
        if std::io::BufRead::read_line(&mut told, &mut before).unwrap() == 0 {
            told.read_to_string(&mut before).unwrap();
            return Err((process.wait().unwrap().code(), before));
        }
        if before[start..].starts_with("serving") {
            let address = before[start..].split_whitespace().find_map(|w| w.strip_suffix(';'));
            let address = address.unwrap().to_owned();
            return Ok((Live { process, before, told }, address));
        }
    }
}

/// Harms a copy of the folder and starts it; true if it serves, with everything.
fn holds(dir: &Path, older: &Path, group: &[PathBuf], how: Harm, rng: &mut Stream) -> bool {
    let harmed = folder(&format!("{}-harmed", dir.file_name().unwrap().to_str().unwrap()));
    copy_all(dir, &harmed);
    for file in group {
        harm(how, &harmed.join(file), earlier(older, file).as_deref(), rng);
    }
    match start(&harmed) {
        Ok((_server, address)) => {
            let mut client = Client::open(&address);
            let found = client.ask("DBSIZE");
            assert_eq!(found, [Some(KEYS.to_string())], "{how:?} {group:?}");
            for key in (0..KEYS).step_by(37).chain([KEYS - 1]) {
                let found = client.ask(&format!("GET key{key}"));
                assert_eq!(found, [Some(format!("value-of-{key}"))], "{how:?} {group:?}");
            }
            true
        }
        Err((code, told)) => {
            assert_eq!(code, Some(3), "{how:?} {group:?}: {told}");
            assert!(!told.contains("panicked"), "{how:?} {group:?}: {told}");
            let name = |file: &PathBuf| file.file_name().unwrap().to_str().unwrap().to_owned();
            assert!(
                group.iter().any(|file| told.contains(&name(file))),
                "{how:?} {group:?}: {told}"
            );
            assert!(told.contains(harmed.to_str().unwrap()), "{told}");
            false
        }
    }
}

/// Each file alone, and all files of a kind: what is harmed together.
fn groups(dir: &Path) -> Vec<Vec<PathBuf>> {
    let all = files(dir);
    let kind = |file: &PathBuf| {
        file.file_name().unwrap().to_str().unwrap().split('-').next().unwrap().to_owned()
    };
    let kinds: BTreeSet<String> = all.iter().map(kind).collect();
    let of_kind =
        |wanted: String| all.iter().filter(|file| kind(file) == wanted).cloned().collect();
    let mut groups: Vec<Vec<PathBuf>> = kinds.into_iter().map(of_kind).collect();
    groups.extend(all.iter().map(|file| vec![file.clone()]));
    groups.retain(|group| !group.is_empty());
    groups
}

/// Damage of so many kinds, of all that there are; `None`: of each.
fn damage(name: &str, logs: &[&str], count: Option<usize>, seed: u64) {
    let (dir, older) = prepared(name, logs);
    let rng = &mut Stream::new(seed, Purpose::Test, 0);
    let groups = groups(&dir);
    let mut cases: Vec<(&Vec<PathBuf>, Harm)> =
        groups.iter().flat_map(|group| HARMS.map(|harm| (group, harm))).collect();
    cases.sort_by_cached_key(|_| rng.bits());
    let (mut served, mut refused) = (0, 0);
    for (group, how) in cases.iter().take(count.unwrap_or(usize::MAX)) {
        match holds(&dir, &older, group, *how, rng) {
            true => served += 1,
            false => refused += 1,
        }
    }
    println!("{name}: of {} cases {served} served everything, {refused} were refused", cases.len());
    assert!(count.is_some() || served > 0 && refused > 0);
    // All files of a kind, in the ways that start a smaller store if nothing says what there was.
    for prefix in ["tables", "node", "manifest"] {
        let group: Vec<PathBuf> = files(&dir)
            .into_iter()
            .filter(|file| file.file_name().unwrap().to_str().unwrap().starts_with(prefix))
            .collect();
        for how in [Harm::Remove, Harm::Empty, Harm::Truncate] {
            assert!(!holds(&dir, &older, &group, how, rng), "{how:?} of every {prefix}");
        }
    }
}

#[test]
fn damaged_files_are_made_up_for_or_refused_by_name() {
    damage("damage-merged", &SHORT_LOGS, Some(8), 3);
    damage("damage-logs", &[], Some(8), 4);
}

#[test]
#[ignore = "minutes: cargo xtask restarts runs it, after a change to logs or recovery"]
fn every_damage_to_every_file_is_made_up_for_or_refused_by_name() {
    damage("damage-merged-all", &SHORT_LOGS, None, 3);
    damage("damage-logs-all", &[], None, 4);
}

/// A run's folder that is gone, with everything in it.
#[test]
fn a_run_that_is_gone_is_refused_by_name() {
    let (dir, _) = prepared("damage-run", &[]);
    let run = fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().path()).find(|p| p.is_dir());
    fs::remove_dir_all(run.clone().unwrap()).unwrap();
    let started = Instant::now();
    let Err((code, told)) = start(&dir) else { panic!("it serves a smaller store") };
    assert_eq!(code, Some(3), "{told}");
    assert!(told.contains(run.unwrap().to_str().unwrap()), "{told}");
    assert!(started.elapsed() < Duration::from_secs(30));
}
