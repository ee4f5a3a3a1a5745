//! What may happen to the files of a server that has been killed.
#![allow(dead_code, reason = "each test binary uses its part")]

use std::fs;
use std::path::{Path, PathBuf};

use nicol_core::rng::Stream;

/// What happens to the files between two rounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Harm {
    None,
    /// The end of one log is cut off.
    Cut,
    /// A byte of one log is another one.
    Flip,
    /// A byte of one file of the tables is another one.
    FlipTables,
    /// One log is not there.
    Lose,
}

impl Harm {
    /// Each of them.
    pub const ALL: [Self; 5] = [Self::None, Self::Cut, Self::Flip, Self::FlipTables, Self::Lose];
}

/// The newest run's folder that has this log: a server may have been killed while it began a run,
/// after it had made some of its logs.
fn newest(dir: &Path, log: &str) -> PathBuf {
    let runs = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let number = |path: &PathBuf| {
        let name = path.file_name()?.to_str()?.strip_prefix("run-")?;
        path.join(log).exists().then(|| name.parse::<u32>().ok())?
    };
    runs.filter(|path| number(path).is_some()).max_by_key(number).unwrap()
}

/// Harms the files of one of three nodes.
pub fn harm(dir: &Path, harm: Harm, rng: &mut Stream) {
    let log = format!("node-{}.log", rng.below(3));
    let run = newest(dir, &log);
    let log = run.join(log);
    match harm {
        Harm::None => {}
        Harm::Cut => {
            let mut bytes = fs::read(&log).unwrap();
            let end = written(&bytes);
            let body = end as u64 - 60;
            bytes.truncate(end - rng.below(body.min(3_000) + 1) as usize);
            fs::write(&log, bytes).unwrap();
        }
        Harm::Flip => flip(&log, rng),
        // A run that was begun while serving may have none yet.
        Harm::FlipTables if !run.join("tables-1").exists() => {}
        Harm::FlipTables => flip(&run.join(format!("tables-{}", 1 + rng.below(2))), rng),
        Harm::Lose => fs::remove_file(&log).unwrap(),
    }
}

/// Bytes of a file up to the zeros that are reserved behind them.
fn written(bytes: &[u8]) -> usize {
    bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1)
}

fn flip(path: &Path, rng: &mut Stream) {
    let mut bytes = fs::read(path).unwrap();
    // Seldom one of the zeros behind what is written.
    let at = rng.below(bytes.len().min(written(&bytes) + 20) as u64) as usize;
    bytes[at] ^= 1 << rng.below(8);
    fs::write(path, bytes).unwrap();
}
