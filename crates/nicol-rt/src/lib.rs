//! The live world: engines on this machine's threads, joined by rings of frames.
//!
//! A thread runs the rounds of its engines. When none has anything to do it spins, then
//! parks until someone leaves a frame, rings a doorbell, or a timer is due.
#![deny(unsafe_code)]

mod clock;
mod cluster;
mod config;
mod control;
mod crash;
mod faults;
mod heap;
mod log;
mod mailbox;
mod orders;
mod parker;
mod ring;
mod sync;
#[cfg(test)]
mod tests;
mod thread;
mod view_service;
mod world;

pub use cluster::{LiveCluster, LiveReport};
pub use config::{Clock, LEASE, LiveConfig, LiveError, Views};
pub use control::panic_text;
pub use heap::give_back_after;
pub use log::{
    FoundManifest, HEADER_LEN, LEAD, ListedRun, LogDevice, LogEntry, LogFile, LogFileError,
    LogFolder, LogHeader, LogReader, LogRecord, Lost, Manifest, Marks, RECORD_BYTES_MAX,
    RECORD_FRAMING, Run, Tables, TablesError, TablesHeader, UnknownLogDevice, WrittenTables,
    read_marks, read_tables, remove_runs, write_tables,
};
pub use mailbox::Mailbox;
#[doc(hidden)]
pub use nicol_core::engine::CrashSabotage;
pub use ring::ring_bytes;
pub use world::LiveWorld;
