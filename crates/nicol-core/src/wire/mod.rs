//! Bytes on the wire: little-endian, named fields, parsed once at the edge.

mod cursor;

pub use cursor::{Malformed, Reader, Writer};
