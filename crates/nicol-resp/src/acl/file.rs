//! The file in which users are kept: a line each, `user NAME RULES`.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use super::user::User;
use crate::config::FileError;

/// All users by name.
pub type Named = BTreeMap<Vec<u8>, Arc<User>>;

/// Reads every user.
///
/// # Errors
/// The file cannot be read, or the first line that is wrong.
pub fn load(path: &Path) -> Result<Named, FileError> {
    let text = fs::read(path).map_err(|reason| FileError::Io { file: path.into(), reason })?;
    let mut all = Named::new();
    for (index, line) in text.split(|byte| *byte == b'\n').enumerate() {
        let wrong = |why: String| FileError::Line { file: path.into(), line: index + 1, why };
        let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        match words.next() {
            None => continue,
            Some(b"user") => {}
            Some(_) => return Err(wrong("a line begins with 'user', a name and rules".into())),
        }
        let name = words.next().ok_or_else(|| wrong("the name of the user is missing".into()))?;
        let mut user = User::new(name);
        let refused = user.apply(&words.collect::<Vec<_>>()).err();
        if let Some(refused) = refused {
            return Err(wrong(String::from_utf8_lossy(&refused.text("rule")).into_owned()));
        }
        if all.insert(name.to_vec(), Arc::new(user)).is_some() {
            let name = String::from_utf8_lossy(name);
            return Err(wrong(format!("user '{name}' has two lines: remove one")));
        }
    }
    Ok(all)
}

/// Writes every user: after a crash there is the old file or the new one. Only the owner may read
/// it.
///
/// # Errors
/// Those of the system.
pub fn save(path: &Path, all: &Named) -> io::Result<()> {
    let mut text = Vec::new();
    for user in all.values() {
        text.extend(user.describe());
        text.push(b'\n');
    }
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.new", std::process::id()));
    let new = path.with_file_name(name);
    let written = write_new(&new, &text).and_then(|()| fs::rename(&new, path));
    if written.is_err() {
        // The error that is told is the first one.
        let _ = fs::remove_file(&new);
        return written;
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

fn write_new(path: &Path, text: &[u8]) -> io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt;
    let mut file =
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(text)?;
    file.sync_all()
}
