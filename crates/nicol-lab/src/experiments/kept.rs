//! Points that outlive an interruption: a run that writes results keeps each point as it is
//! measured, and the same run of the same build begins where an interrupted one ended.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::{env, io};

use anyhow::{Context, Result};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::write_atomically;

/// A file of points, a line to each.
pub(super) struct Kept(Option<Open>);

struct Open {
    path: PathBuf,
    known: HashMap<String, Value>,
    file: Mutex<File>,
}

/// A line: what was run, in all that its result depends on, and the result.
#[derive(Serialize, Deserialize)]
struct Line {
    run: String,
    point: Value,
}

impl Kept {
    /// No file: nothing is kept.
    pub(super) const NOTHING: Self = Self(None);

    /// The points of the experiment `id` in `folder`, which is now run with `flags`; those of another
    /// build are forgotten.
    ///
    /// Errors: a file that cannot be read or written.
    pub(super) fn open(folder: &Path, id: &str, build: &str, flags: &str) -> Result<Self> {
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let path = path(folder, id);
        let known = read(&path)?.map_or_else(HashMap::new, |text| match parse(&text) {
            (header, known) if header.starts_with(build) => known,
            _ => HashMap::new(),
        });
        // Written anew: an interrupted run may have left half a line.
        let mut text = format!("{build} {flags}\n");
        for (run, point) in &known {
            text.push_str(&line(run, point)?);
        }
        write_atomically(&path, text.as_bytes())?;
        let file = OpenOptions::new().append(true).open(&path);
        let file = file.with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Self(Some(Open { path, known, file: Mutex::new(file) })))
    }

    /// The kept result of `run`.
    pub(super) fn find<R: DeserializeOwned>(&self, run: &str) -> Option<R> {
        let point = self.0.as_ref()?.known.get(run)?;
        serde_json::from_value(point.clone()).ok()
    }

    /// Keeps the result of `run`.
    ///
    /// Errors: the file cannot be written.
    pub(super) fn add<R: Serialize>(&self, run: &str, point: &R) -> Result<()> {
        let Some(open) = &self.0 else { return Ok(()) };
        let line = line(run, &serde_json::to_value(point)?)?;
        let mut file = open.file.lock().unwrap_or_else(PoisonError::into_inner);
        let written = file.write_all(line.as_bytes());
        written.with_context(|| format!("cannot write {}", open.path.display()))
    }
}

fn path(folder: &Path, id: &str) -> PathBuf {
    folder.join(format!("{id}.points"))
}

/// The text of a file of points; `None` if there is no such file.
fn read(path: &Path) -> Result<Option<String>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}

/// What an interrupted run left.
pub(super) struct Unfinished {
    /// Points that need not be measured again.
    pub(super) points: usize,
    /// The flags that it was started with, the folder's apart.
    pub(super) flags: String,
}

/// What is left in `folder` of a run of the experiment `id`, if one was interrupted. Of another
/// build's run no point counts, since this one would measure them again.
///
/// Errors: a file that cannot be read.
pub(super) fn unfinished(folder: &Path, id: &str, build: &str) -> Result<Option<Unfinished>> {
    Ok(read(&path(folder, id))?.map(|text| {
        let (header, known) = parse(&text);
        let points = if header.starts_with(build) { known.len() } else { 0 };
        // After the word, and the build's digest.
        let flags = header.splitn(3, ' ').nth(2).unwrap_or_default().to_owned();
        Unfinished { points, flags }
    }))
}

/// Removes the points of a finished experiment.
///
/// Errors: they are there and cannot be removed.
pub(super) fn forget(folder: &Path, id: &str) -> Result<()> {
    let path = path(folder, id);
    match fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", path.display()))
        }
        _ => Ok(()),
    }
}

fn line(run: &str, point: &Value) -> Result<String> {
    let line = Line { run: run.to_owned(), point: point.clone() };
    Ok(serde_json::to_string(&line)? + "\n")
}

/// A file's header, which is its build and its flags, and the points in its whole lines.
fn parse(text: &str) -> (&str, HashMap<String, Value>) {
    let (header, lines) = text.split_once('\n').unwrap_or_default();
    let whole = lines.lines().filter_map(|line| serde_json::from_str::<Line>(line).ok());
    (header, whole.map(|line| (line.run, line.point)).collect())
}

/// What tells this executable from others, since another may find something else.
///
/// Errors: the executable cannot be read.
pub(super) fn build() -> Result<String> {
    let program = env::current_exe().and_then(fs::read).context("cannot read this executable")?;
    Ok(format!("build {:016x}", digest(&program)))
}

/// A digest that is the same as long as the build is.
pub(super) fn digest(of: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_are_found_again_by_the_same_build_and_no_other() {
        let folder = env::temp_dir().join(format!("nicol-kept-{}", std::process::id()));
        let open = |build| Kept::open(&folder, "id", build, "--seed 1").unwrap();
        let (first, second) = ((0.1 + 0.2, 3usize), (f64::MIN_POSITIVE, 4usize));
        let kept = open("one");
        kept.add("first", &first).unwrap();
        kept.add("second \"quoted\"", &second).unwrap();
        assert_eq!(kept.find::<(f64, usize)>("first"), None, "only an earlier run's are looked up");

        let mut file = OpenOptions::new().append(true).open(path(&folder, "id")).unwrap();
        file.write_all(b"{\"run\":\"third\",\"poi").unwrap();
        let kept = open("one");
        assert_eq!(kept.find("first"), Some(first));
        assert_eq!(kept.find("second \"quoted\""), Some(second));
        assert_eq!(kept.find::<(f64, usize)>("third"), None, "half a line is none");
        kept.add("third", &first).unwrap();
        assert_eq!(open("one").find("third"), Some(first));
        let left = |build| unfinished(&folder, "id", build).unwrap().map(|left| left.points);
        assert_eq!((left("one"), left("two")), (Some(3), Some(0)));

        assert_eq!(open("two").find::<(f64, usize)>("first"), None);
        assert_eq!(open("one").find::<(f64, usize)>("first"), None, "and they are forgotten");
        forget(&folder, "id").unwrap();
        forget(&folder, "id").unwrap();
        assert_eq!(left("one"), None, "what is finished is not unfinished");
        fs::remove_dir(&folder).unwrap();
    }
}
