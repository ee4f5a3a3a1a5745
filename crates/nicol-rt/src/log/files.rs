//! Files whose names and contents are durable, and whose errors name them.

use std::fs::{File, OpenOptions};
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

/// Makes the names in `folder` durable.
pub(super) fn sync_names(folder: &Path) -> io::Result<()> {
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(at(folder))
}

/// A random word.
pub(super) fn draw() -> io::Result<u64> {
    getrandom::u64().map_err(|error| io::Error::other(format!("the random source: {error}")))
}
