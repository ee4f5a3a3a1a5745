//! Results in files, and golden tables.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process;

use anyhow::{Context, Result};

use super::table::Outcome;
use super::{Experiment, svg};

/// Writes `bytes` to `path` so that a reader, or an interruption, finds the old file or the new one
/// and nothing between: to a file beside it, which then takes its name.
///
/// # Errors
/// If a file cannot be written there.
pub fn write_atomically(path: &Path, bytes: &[u8]) -> Result<()> {
    write_atomically_by(path, |file| file.write_all(bytes))
}

/// Like [`write_atomically`], of what `write` writes.
///
/// What is there and no regular file, such as a pipe or a terminal, is written to itself.
///
/// # Errors
/// If a file cannot be written there.
pub fn write_atomically_by(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> Result<()> {
    let Place { path, part, special } = &Place::of(path);
    let special = *special;
    let target = if special { path } else { part };
    let written = File::create(target).and_then(|file| {
        let mut file = BufWriter::new(file);
        write(&mut file)?;
        let file = file.into_inner()?;
        if special {
            return Ok(());
        }
        file.sync_all()?;
        fs::rename(part, path)
    });
    written
        .inspect_err(|_| drop((!special).then(|| fs::remove_file(part))))
        .with_context(|| format!("cannot write {}", path.display()))
}

/// That [`write_atomically`] could write to `path` now. What is there stays as it is.
///
/// # Errors
/// If no file can be made beside it. Of what is no regular file nothing is found out: to open a
/// pipe may wait for its reader.
pub fn ensure_can_write(path: &Path) -> Result<()> {
    let Place { path, part, special } = Place::of(path);
    if special {
        return Ok(());
    }
    let made = File::create(&part).and_then(|_| fs::remove_file(&part));
    made.with_context(|| format!("cannot write {}", path.display()))
}

/// The place of a file that is being written.
struct Place {
    /// The file's own path. If it is a link, the link stays and its target is replaced.
    path: PathBuf,
    /// The path until the file is whole.
    part: PathBuf,
    /// Whether something that is no regular file is there.
    special: bool,
}

impl Place {
    fn of(path: &Path) -> Self {
        let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let special = fs::metadata(&path).is_ok_and(|found| !found.is_file());
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}.part", process::id()));
        let part = path.with_file_name(name);
        Self { path, part, special }
    }
}

/// Writes an outcome to `folder` as JSON, CSV and an SVG plot, and says where.
///
/// # Errors
/// If the folder or a file in it cannot be written.
pub fn write_results(folder: &Path, outcome: &Outcome) -> Result<Vec<PathBuf>> {
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let parts = [("json", outcome.json()), ("csv", outcome.csv()), ("svg", svg(outcome)?)];
    let mut written = Vec::new();
    for (extension, text) in parts {
        let path = folder.join(format!("{}.{extension}", outcome.experiment().id));
        write_atomically(&path, text.as_bytes())?;
        written.push(path);
    }
    Ok(written)
}

/// A folder of golden tables: one `FAMILY/ID.json` to an experiment.
pub struct Golden<'a>(pub &'a Path);

impl Golden<'_> {
    fn path(&self, experiment: &Experiment) -> PathBuf {
        self.0.join(experiment.family).join(format!("{}.json", experiment.id))
    }

    /// Whether this is the folder of one family, with the table of `experiment` in it.
    pub fn is_of_family(&self, experiment: &Experiment) -> bool {
        self.0.join(format!("{}.json", experiment.id)).exists()
    }

    /// Whether there is a table of `experiment`.
    pub fn has(&self, experiment: &Experiment) -> bool {
        self.path(experiment).exists()
    }

    /// The first difference between `outcome` and its golden table, byte by byte; `None` if there
    /// is none.
    ///
    /// # Errors
    /// If the table is there and cannot be read.
    pub fn difference(&self, outcome: &Outcome) -> Result<Option<String>> {
        let path = self.path(outcome.experiment());
        if !path.exists() {
            return Ok(Some(format!("{} is missing: write it with `bless`", path.display())));
        }
        let golden =
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        Ok(first_difference(&golden, &outcome.json())
            .map(|what| format!("{} changed: {what}", path.display())))
    }

    /// Takes `outcome` as the golden table from now on.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn bless(&self, outcome: &Outcome) -> Result<()> {
        let path = self.path(outcome.experiment());
        let folder = path.parent().unwrap_or(self.0);
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        write_atomically(&path, outcome.json().as_bytes())
    }
}

/// The first line that differs, from both; `None` if all bytes are the same.
fn first_difference(golden: &str, found: &str) -> Option<String> {
    if golden == found {
        return None;
    }
    let line =
        |text: &str, at: usize| text.lines().nth(at).unwrap_or("(no such line)").trim().to_owned();
    let at = golden.lines().zip(found.lines()).take_while(|(one, two)| one == two).count();
    Some(format!("line {}\n  golden: {}\n  found:  {}", at + 1, line(golden, at), line(found, at)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_that_differs_is_shown() {
        assert_eq!(first_difference("a\nb\n", "a\nb\n"), None);
        let shown = first_difference("a\nb\nc\n", "a\nB\nC\n").unwrap();
        assert_eq!(shown, "line 2\n  golden: b\n  found:  B");
        let shown = first_difference("a\n", "a\nb\n").unwrap();
        assert!(shown.contains("golden: (no such line)") && shown.contains("found:  b"), "{shown}");
        assert!(first_difference("a", "a\n").is_some());
    }

    #[test]
    fn a_file_is_replaced_whole_and_leaves_no_part() {
        let folder = std::env::temp_dir().join(format!("nicol-results-{}", process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("one.json");
        for text in ["first, and longer", "second"] {
            write_atomically(&path, text.as_bytes()).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
        // The target of a link is replaced, and what is no file is not.
        let link = folder.join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        write_atomically(&link, b"third").unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_to_string(&path).unwrap(), "third");
        write_atomically(Path::new("/dev/null"), b"nothing").unwrap();
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
        // What fails half-way leaves the old one, and no part.
        let fails = |file: &mut BufWriter<File>| {
            file.write_all(b"half")?;
            Err(io::Error::other("interrupted"))
        };
        assert!(write_atomically_by(&path, fails).is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "third");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 2);
        let error = write_atomically(&folder.join("no/such/file"), b"").unwrap_err().to_string();
        assert!(error.contains("cannot write"), "{error}");
        fs::remove_dir_all(&folder).unwrap();
    }
}
