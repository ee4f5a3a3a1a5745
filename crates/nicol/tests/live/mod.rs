//! `nicol serve` with a live cluster, as a process of its own.
#![allow(dead_code, reason = "each test binary uses its part")]

pub mod client;
pub mod harm;
pub mod single;

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStderr, Command, Stdio};

/// `nicol serve` with a live cluster; it is killed with this.
pub struct Live {
    pub process: Child,
    /// What it has said up to where it listens.
    pub before: String,
    /// What it says on standard error after that.
    pub told: BufReader<ChildStderr>,
}

impl Drop for Live {
    fn drop(&mut self) {
        // One that has ended already needs neither.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A live cluster on a free port, and where it listens.
pub fn live() -> (Live, String) {
    live_with(Command::new(env!("CARGO_BIN_EXE_nicol")).args(LIVE))
}

/// Arguments of a live cluster: so much space that the few keys of a test are no neighbours.
pub const LIVE: [&str; 7] =
    ["serve", "--listen", "127.0.0.1:0", "--records", "2000000", "--threads", "1"];

/// Starts what `command` says, a server.
pub fn live_with(command: &mut Command) -> (Live, String) {
    let mut process = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut told = BufReader::new(process.stderr.take().unwrap());
    // What it has read back comes first.
    let (mut banner, mut all) = (String::new(), String::new());
    while !banner.starts_with("serving") {
        banner.clear();
        let read = told.read_line(&mut banner).unwrap();
        all.push_str(&banner);
        assert!(read > 0, "it ended before it served: {all}");
    }
    let address = banner.split_whitespace().find_map(|word| word.strip_suffix(';'));
    let address = address.unwrap_or_else(|| panic!("{banner}")).to_owned();
    (Live { process, told, before: all }, address)
}
