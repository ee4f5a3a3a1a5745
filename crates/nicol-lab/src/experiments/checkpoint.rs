//! Points that outlive the experiment that measured them: another experiment of the same command
//! that needs one finds it, and a command that writes results also keeps its points in a file, so
//! that the same command of the same build begins where an interrupted one ended.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::{env, io};

use anyhow::{Context, Result};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Options, write_atomically};
use crate::command_line::flag;

/// Of the names of files of points.
const EXTENSION: &str = "points";

/// The points that a command has measured, each with all that its result depends on.
#[derive(Default)]
pub struct Checkpoint(Mutex<State>);

#[derive(Default)]
struct State {
    known: HashMap<String, Value>,
    /// A line is added for each point.
    file: Option<(PathBuf, File)>,
}

/// A line: what was run, in all that its result depends on, and the result.
#[derive(Serialize, Deserialize)]
struct Line {
    run: String,
    point: Value,
}

impl Checkpoint {
    /// With the points that interrupted runs left in `folder`, where those of this one, of these
    /// experiments (all, if none is named), are kept too until [`Checkpoint::forget`]. Those of
    /// another build do not count.
    ///
    /// # Errors
    /// A file that cannot be read or written, this executable included.
    pub fn open(folder: &Path, ids: &[String], options: &Options) -> Result<Self> {
        let name = if ids.is_empty() { "all".to_owned() } else { ids.join("+") };
        let what = if ids.is_empty() { flag("all") } else { ids.join(" ") };
        let command = format!("{what} {}", options.flags());
        Self::of_build(folder, &name, &build()?, &command)
    }

    fn of_build(folder: &Path, name: &str, build: &str, command: &str) -> Result<Self> {
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        // A file to a command: one that ends takes none of the points of another with it.
        let path = folder.join(format!("{name}-{:08x}.{EXTENSION}", digest(&command) as u32));
        let (mut known, mut own) = (HashMap::new(), HashMap::new());
        for other in files(folder)? {
            let text = read(&other)?;
            match parse(&text) {
                (header, _) if !header.starts_with(build) => {}
                (_, points) if other == path => own = points,
                (_, points) => known.extend(points),
            }
        }
        // Written anew: an interrupted run may have left half a line.
        let mut text = format!("{build} {command}\n");
        for (run, point) in &own {
            text.push_str(&line(run, point)?);
        }
        known.extend(own);
        write_atomically(&path, text.as_bytes())?;
        let file = OpenOptions::new().append(true).open(&path);
        let file = file.with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Self(Mutex::new(State { known, file: Some((path, file)) })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The kept result of `run`.
    pub(super) fn find<R: DeserializeOwned>(&self, run: &str) -> Option<R> {
        let point = self.state().known.get(run)?.clone();
        serde_json::from_value(point).ok()
    }

    /// Keeps the result of `run`.
    ///
    /// Errors: the file cannot be written.
    pub(super) fn add<R: Serialize>(&self, run: &str, point: &R) -> Result<()> {
        let point = serde_json::to_value(point)?;
        let mut state = self.state();
        if let Some((path, file)) = &mut state.file {
            let written = file.write_all(line(run, &point)?.as_bytes());
            written.with_context(|| format!("cannot write {}", path.display()))?;
        }
        state.known.insert(run.to_owned(), point);
        Ok(())
    }

    /// Removes the file, if there is one: the command is done.
    ///
    /// # Errors
    /// It is there and cannot be removed.
    pub fn forget(self) -> Result<()> {
        let state = self.0.into_inner().unwrap_or_else(PoisonError::into_inner);
        let Some((path, _)) = state.file else { return Ok(()) };
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(error).with_context(|| format!("cannot remove {}", path.display()))
            }
            _ => Ok(()),
        }
    }
}

fn line(run: &str, point: &Value) -> Result<String> {
    let line = Line { run: run.to_owned(), point: point.clone() };
    Ok(serde_json::to_string(&line)? + "\n")
}

/// A file's header, which is its build and its command, and the points in its whole lines.
fn parse(text: &str) -> (&str, HashMap<String, Value>) {
    let (header, lines) = text.split_once('\n').unwrap_or_default();
    let whole = lines.lines().filter_map(|line| serde_json::from_str::<Line>(line).ok());
    (header, whole.map(|line| (line.run, line.point)).collect())
}

/// The files of points in `folder`, by name; none if there is no such folder.
fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    if !folder.exists() {
        return Ok(Vec::new());
    }
    let entries: io::Result<Vec<_>> = fs::read_dir(folder).and_then(Iterator::collect);
    let entries = entries.with_context(|| format!("cannot read {}", folder.display()))?;
    let mut paths: Vec<_> = entries.iter().map(fs::DirEntry::path).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == EXTENSION));
    paths.sort();
    Ok(paths)
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

/// The points that an interrupted run left.
pub(super) struct Unfinished {
    /// Points that need not be measured again; none of another build's, which measures anew.
    pub(super) points: usize,
    /// The command of that run, as words of `nicol lab run` without the folder.
    pub(super) command: String,
}

/// The interrupted runs of `folder`, in the order of the files' names.
///
/// Errors: a file that cannot be read; this executable included.
pub(super) fn unfinished(folder: &Path) -> Result<Vec<Unfinished>> {
    unfinished_of_build(folder, &build()?)
}

fn unfinished_of_build(folder: &Path, build: &str) -> Result<Vec<Unfinished>> {
    let mut found = Vec::new();
    for path in files(folder)? {
        let text = read(&path)?;
        let (header, known) = parse(&text);
        let points = if header.starts_with(build) { known.len() } else { 0 };
        // After the word, and the build's digest.
        let command = header.splitn(3, ' ').nth(2).unwrap_or_default().to_owned();
        found.push(Unfinished { points, command });
    }
    Ok(found)
}

/// A hash of this executable, since another one may measure something else.
///
/// Errors: the executable cannot be read.
fn build() -> Result<String> {
    let program = env::current_exe().and_then(fs::read).context("cannot read this executable")?;
    Ok(format!("build {:016x}", digest(&program)))
}

/// A digest that is the same as long as the build is.
pub(crate) fn digest(of: &impl Hash) -> u64 {
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
        let open = |build| Checkpoint::of_build(&folder, "id", build, "id --seed 1").unwrap();
        let (first, second) = ((0.1 + 0.2, 3usize), (f64::MIN_POSITIVE, 4usize));
        let checkpoint = open("build 1");
        checkpoint.add("first", &first).unwrap();
        checkpoint.add("second \"quoted\"", &second).unwrap();
        assert_eq!(checkpoint.find("first"), Some(first), "by another experiment, say");

        let path = &files(&folder).unwrap()[0];
        let mut file = OpenOptions::new().append(true).open(path).unwrap();
        file.write_all(b"{\"run\":\"third\",\"poi").unwrap();
        let checkpoint = open("build 1");
        assert_eq!(checkpoint.find("first"), Some(first));
        assert_eq!(checkpoint.find("second \"quoted\""), Some(second));
        assert_eq!(checkpoint.find::<(f64, usize)>("third"), None, "half a line is none");
        checkpoint.add("third", &first).unwrap();
        assert_eq!(open("build 1").find("third"), Some(first));
        let left = |build| {
            let left = unfinished_of_build(&folder, build).unwrap();
            left.into_iter().map(|left| (left.points, left.command)).collect::<Vec<_>>()
        };
        let command = || "id --seed 1".to_owned();
        assert_eq!(
            (left("build 1"), left("build 2")),
            (vec![(3, command())], vec![(0, command())])
        );

        assert_eq!(open("build 2").find::<(f64, usize)>("first"), None);
        assert_eq!(open("build 1").find::<(f64, usize)>("first"), None, "and they are forgotten");
        open("build 1").forget().unwrap();
        assert_eq!(left("build 1"), [], "what is finished is not unfinished");
        fs::remove_dir(&folder).unwrap();
    }

    #[test]
    fn a_command_that_ends_leaves_the_points_of_others() {
        let folder = env::temp_dir().join(format!("nicol-others-{}", std::process::id()));
        let open = |command| Checkpoint::of_build(&folder, "id", "build 1", command).unwrap();
        let all = open("id --seed 1");
        all.add("one", &1).unwrap();
        all.add("other", &2).unwrap();
        drop(all);
        let some = open("id --seed 1 --systems one");
        assert_eq!(some.find("one"), Some(1), "what is known is not measured again");
        some.add("third", &3).unwrap();
        some.forget().unwrap();
        let all = open("id --seed 1");
        assert_eq!((all.find("one"), all.find("other")), (Some(1), Some(2)));
        assert_eq!(all.find::<u64>("third"), None, "its own are gone with it");
        all.forget().unwrap();
        fs::remove_dir(&folder).unwrap();
    }

    #[test]
    fn without_a_file_points_are_kept_for_the_experiments_to_come() {
        let checkpoint = Checkpoint::default();
        assert_eq!(checkpoint.find::<u64>("run"), None);
        checkpoint.add("run", &3).unwrap();
        assert_eq!(checkpoint.find("run"), Some(3));
        checkpoint.forget().unwrap();
    }
}
