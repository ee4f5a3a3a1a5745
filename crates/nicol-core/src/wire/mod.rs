//! Bytes on the wire: little-endian, named fields, parsed once at the edge.

mod cursor;
mod frame;

pub use cursor::{Malformed, Reader, Writer, append};
pub use frame::{
    Class, FRAME_HEADER, Frame, FrameHeader, MESSAGE_HEADER, MESSAGES_MAX, MessageHeader, Window,
    seal,
};
