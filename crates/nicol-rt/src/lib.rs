//! The live world: engines on this machine's threads, joined by rings of frames.
//!
//! A thread runs the rounds of its engines. When none has anything to do it spins, then yields its
//! core, then parks until someone leaves a frame, rings a doorbell, or a timer is due.
#![forbid(unsafe_code)]

mod cluster;
mod faults;
mod log;
mod mailbox;
mod parker;
mod ring;
mod world;

pub use cluster::{LiveCluster, LiveConfig, LiveError, LiveReport, panic_text};
pub use log::{
    HEADER_LEN, LogDevice, LogEnd, LogFileError, LogHeader, LogReader, LogRecord, RECORD_BYTES_MAX,
    RECORD_FRAMING, Torn, UnknownLogDevice,
};
pub use mailbox::Mailbox;
pub use world::LiveWorld;
