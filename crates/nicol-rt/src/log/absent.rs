//! The log of a node whose disk has no room for a file.

use std::io::{self, ErrorKind, Read};

use super::Disk;

/// Has no room, until the log goes on in a file.
pub(crate) struct Absent;

impl Disk for Absent {
    fn nonce(&self) -> u64 {
        0
    }

    fn append(&mut self, _: &[u8]) -> io::Result<()> {
        Err(ErrorKind::StorageFull.into())
    }

    fn has_room(&mut self) -> bool {
        false
    }

    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn cut(&mut self, _: u64) -> io::Result<()> {
        Ok(())
    }

    fn content(&self) -> io::Result<Box<dyn Read + '_>> {
        Err(ErrorKind::StorageFull.into())
    }
}
