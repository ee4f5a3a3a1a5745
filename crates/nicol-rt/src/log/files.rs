//! Files whose names and contents are durable, and whose errors name them.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Puts `path` in front of an error.
pub(super) fn at(path: &Path) -> impl FnOnce(io::Error) -> io::Error + use<'_> {
    move |error| io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// Makes a new file that only its owner may read: it holds the seed of the key hash, which clients
/// must not learn.
pub(super) fn make(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)
}

/// Makes a folder, and those above it that are not there: with durable names, or what is made
/// durable in it would be lost with it.
pub(super) fn make_folders(folder: &Path) -> io::Result<()> {
    let is_missing = |one: &&Path| !one.as_os_str().is_empty() && !one.exists();
    let missing: Vec<&Path> = folder.ancestors().take_while(is_missing).collect();
    fs::create_dir_all(folder).map_err(at(folder))?;
    missing.into_iter().try_for_each(|made| {
        let above = made.parent().filter(|above| !above.as_os_str().is_empty());
        sync_names(above.unwrap_or(Path::new(".")))
    })
}

/// Makes the names in `folder` durable.
pub(super) fn sync_names(folder: &Path) -> io::Result<()> {
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(at(folder))
}

/// A random word.
pub(super) fn draw() -> io::Result<u64> {
    getrandom::u64().map_err(|error| io::Error::other(format!("the random source: {error}")))
}

/// True if the device has no room, false if it has failed.
pub(super) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}
