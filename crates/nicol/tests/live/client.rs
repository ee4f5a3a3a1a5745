//! A client of a server that may vanish, and the server's folder.
#![allow(dead_code, reason = "each test binary uses its part")]

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::{LIVE, Live};

/// An empty folder of this name.
pub fn folder(name: &str) -> PathBuf {
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _gone = fs::remove_dir_all(&dir);
    dir
}

/// A live cluster that keeps its store in `dir`.
pub fn command(dir: &Path, more: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nicol"));
    command.args(LIVE).args(["--log-device", &format!("file:{}", dir.display())]).args(more);
    command
}

/// Kills a server, as `kill -9` does.
pub fn kill(mut server: Live) {
    server.process.kill().unwrap();
    server.process.wait().unwrap();
}

/// A connection whose server may vanish.
pub struct Client {
    stream: Box<dyn Write + Send>,
    replies: BufReader<Box<dyn Read + Send>>,
}

impl Client {
    /// Connects to where a server says that it listens.
    pub fn open(address: &str) -> Self {
        let patience = Some(Duration::from_secs(20));
        let Some(path) = address.strip_prefix("unix:") else {
            let stream = TcpStream::connect(address).unwrap();
            stream.set_nodelay(true).unwrap();
            stream.set_read_timeout(patience).unwrap();
            let replies: Box<dyn Read + Send> = Box::new(stream.try_clone().unwrap());
            return Self { stream: Box::new(stream), replies: BufReader::new(replies) };
        };
        let stream = UnixStream::connect(path).unwrap();
        stream.set_read_timeout(patience).unwrap();
        let replies: Box<dyn Read + Send> = Box::new(stream.try_clone().unwrap());
        Self { stream: Box::new(stream), replies: BufReader::new(replies) }
    }

    /// Sends commands; false once the server is gone.
    pub fn send(&mut self, lines: &str) -> bool {
        self.stream.write_all(lines.as_bytes()).is_ok()
    }

    /// The next line of a reply; empty once the server is gone.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        let read = self.replies.read_line(&mut line);
        if read.is_ok() { line.trim_end().to_owned() } else { String::new() }
    }

    /// The next reply, arrays as their elements; `None` once the server is gone.
    pub fn reply(&mut self) -> Option<Vec<Option<String>>> {
        let mut line = String::new();
        self.replies.read_line(&mut line).ok()?;
        let text = line.strip_suffix("\r\n")?;
        let (kind, rest) = (text.get(..1)?, text.get(1..)?);
        match kind {
            "$" if rest == "-1" => Some(vec![None]),
            "$" => {
                let mut bytes = vec![0; rest.parse::<usize>().ok()? + 2];
                self.replies.read_exact(&mut bytes).ok()?;
                bytes.truncate(bytes.len() - 2);
                Some(vec![Some(String::from_utf8(bytes).ok()?)])
            }
            "*" => {
                let mut all = Vec::new();
                for _ in 0..rest.parse::<u64>().ok()? {
                    all.extend(self.reply()?);
                }
                Some(all)
            }
            // Unknown, for want of time: nothing is known of it, as if the server were gone.
            "-" => {
                println!("{text}");
                None
            }
            _ => Some(vec![Some(rest.to_owned())]),
        }
    }

    /// Sends a command and waits for its reply.
    pub fn ask(&mut self, line: &str) -> Vec<Option<String>> {
        assert!(self.send(&format!("{line}\r\n")));
        self.reply().unwrap_or_else(|| panic!("no reply to {line}"))
    }
}
