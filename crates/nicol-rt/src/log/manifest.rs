//! The manifest of a store's folder: which files there must be. Two copies, each replaced as a
//! whole before what it no longer names is removed, and after what it names is durable.
//!
//! Each log and each of the saved tables has a random word in its header, its nonce. A manifest
//! names files by it, so that a file of another run, or an older one, does not pass for the right
//! one.

use std::fmt::Write as _;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use super::files::{at, make, sync_names};

/// The copies, in the folder of the store.
pub(super) const NAMES: [&str; 2] = ["manifest-1", "manifest-2"];
const TITLE: &str = "nicol manifest, version 1";

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// Grows with every change: of two copies the newer one counts.
    pub generation: u64,
    /// The life of the store.
    pub life: u64,
    /// The run that begins with saved tables, and their nonce.
    pub tables: (u32, u64),
    /// The runs since, that one first.
    pub runs: Vec<ListedRun>,
}

/// A run that a manifest names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedRun {
    /// Its number.
    pub number: u32,
    /// The nonce of each node's log, by node.
    pub logs: Vec<u64>,
}

/// The content of a manifest's copies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FoundManifest {
    /// There is no copy.
    None,
    /// The newest copy, and in words what is wrong with the other one.
    Some(Manifest, Option<String>),
    /// Copies that cannot be read, in words.
    Damaged(String),
}

impl Manifest {
    /// The content of the copies in `dir`.
    ///
    /// # Errors
    /// If one is there and cannot be read; they name it.
    pub fn find(dir: &Path) -> io::Result<FoundManifest> {
        let mut whole: Vec<Self> = Vec::new();
        let (mut missing, mut damaged) = (Vec::new(), Vec::new());
        for path in NAMES.map(|name| dir.join(name)) {
            match fs::read(&path) {
                Ok(bytes) => match Self::parse(&String::from_utf8_lossy(&bytes)) {
                    Some(manifest) => whole.push(manifest),
                    None => damaged.push(format!("{}: damaged", path.display())),
                },
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    missing.push(format!("{}: missing", path.display()));
                }
                Err(error) => return Err(at(&path)(error)),
            }
        }
        let none = missing.len() == NAMES.len();
        missing.append(&mut damaged);
        Ok(match whole.into_iter().max_by_key(|manifest| manifest.generation) {
            Some(newest) => FoundManifest::Some(newest, missing.pop()),
            None if none => FoundManifest::None,
            None => FoundManifest::Damaged(missing.join("; ")),
        })
    }

    /// Replaces both copies in `dir`, durable once this returns.
    ///
    /// # Errors
    /// If one cannot be written: the earlier manifest counts, or this one.
    pub fn store(&self, dir: &Path) -> io::Result<()> {
        let text = self.emit();
        for path in NAMES.map(|name| dir.join(name)) {
            let new = path.with_extension("new");
            let written = make(&new).and_then(|mut file| {
                file.write_all(text.as_bytes())?;
                file.sync_all()
            });
            if written.is_err() {
                // What cannot be removed is overwritten the next time, and never read.
                drop(fs::remove_file(&new));
            }
            written.and_then(|()| fs::rename(&new, &path)).map_err(at(&path))?;
            sync_names(dir)?;
        }
        Ok(())
    }

    /// The run's listing, if it is listed.
    pub fn run(&self, number: u32) -> Option<&ListedRun> {
        self.runs.iter().find(|run| run.number == number)
    }

    fn emit(&self) -> String {
        let (run, nonce) = self.tables;
        let mut text = format!(
            "{TITLE}\ngeneration {}\nlife {}\ntables {run} {nonce}\n",
            self.generation, self.life
        );
        for ListedRun { number, logs } in &self.runs {
            let logs: String = logs.iter().map(|nonce| format!(" {nonce}")).collect();
            // Writing to a text cannot fail.
            let _written = writeln!(text, "run {number}{logs}");
        }
        let sum = crc32c::crc32c(text.as_bytes());
        text + &format!("checksum {sum}\n")
    }

    fn parse(text: &str) -> Option<Self> {
        let (body, sum) = text.strip_suffix('\n')?.rsplit_once("checksum ")?;
        if sum.parse() != Ok(crc32c::crc32c(body.as_bytes())) {
            return None;
        }
        let mut lines = body.lines();
        (lines.next()? == TITLE).then_some(())?;
        let mut number = |name: &str| lines.next()?.strip_prefix(name)?.parse().ok();
        let (generation, life) = (number("generation ")?, number("life ")?);
        let (run, nonce) = lines.next()?.strip_prefix("tables ")?.split_once(' ')?;
        let tables = (run.parse().ok()?, nonce.parse().ok()?);
        let run = |line: &str| {
            let mut words = line.strip_prefix("run ")?.split(' ');
            let number = words.next()?.parse().ok()?;
            Some(ListedRun {
                number,
                logs: words.map(|word| word.parse().ok()).collect::<Option<_>>()?,
            })
        };
        let runs = lines.map(run).collect::<Option<_>>()?;
        Some(Self { generation, life, tables, runs })
    }
}

/// True of a copy of a manifest, and of one that was being made.
pub(super) fn is_manifest(path: &Path) -> bool {
    let is_new = path.extension().is_some_and(|extension| extension == "new");
    let stem: PathBuf = if is_new { path.with_extension("") } else { path.to_owned() };
    NAMES.iter().any(|name| stem.file_name().is_some_and(|found| found == *name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(generation: u64) -> Manifest {
        let runs = vec![
            ListedRun { number: 3, logs: vec![1, u64::MAX, 3] },
            ListedRun { number: 4, logs: vec![4, 5, 6] },
        ];
        Manifest { generation, life: 9, tables: (3, 77), runs }
    }

    #[test]
    fn the_newest_whole_copy_counts_and_any_flipped_byte_is_seen() {
        let dir = std::env::temp_dir().join(format!("nicol-manifest-{}", std::process::id()));
        let _gone = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).unwrap();
        assert_eq!(Manifest::find(&dir).unwrap(), FoundManifest::None);
        sample(1).store(&dir).unwrap();
        let [one, two] = NAMES.map(|name| dir.join(name));
        let old = fs::read(&one).unwrap();
        sample(2).store(&dir).unwrap();
        assert_eq!(Manifest::find(&dir).unwrap(), FoundManifest::Some(sample(2), None));
        fs::write(&one, &old).unwrap();
        assert_eq!(Manifest::find(&dir).unwrap(), FoundManifest::Some(sample(2), None));
        let whole = fs::read(&two).unwrap();
        fs::remove_file(&one).unwrap();
        for at in 0..whole.len() {
            let mut bad = whole.clone();
            bad[at] ^= 1;
            fs::write(&two, &bad).unwrap();
            let found = Manifest::find(&dir).unwrap();
            assert!(matches!(found, FoundManifest::Damaged(_)), "byte {at}: {found:?}");
        }
        fs::write(&one, &whole).unwrap();
        let FoundManifest::Some(found, Some(told)) = Manifest::find(&dir).unwrap() else {
            panic!("one copy is whole");
        };
        assert!(found == sample(2) && told.contains("manifest-2: damaged"), "{told}");
        fs::remove_dir_all(&dir).unwrap();
    }
}
