//! A server on a free port, and a client that sees every byte.
#![allow(dead_code, reason = "each test binary uses its part")]

pub mod collections;
mod memory;
pub mod pages;
pub mod party;
pub mod redis;
pub mod waiting;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

pub use memory::MemoryBackend;
use nicol_resp::{Backend, Server, ServerConfig, ServerHandle, ServerInfo};

pub fn serve(change: impl FnOnce(&mut ServerConfig)) -> ServerHandle {
    serve_over(Arc::new(MemoryBackend::new()), change)
}

pub fn serve_over(
    backend: Arc<dyn Backend>,
    change: impl FnOnce(&mut ServerConfig),
) -> ServerHandle {
    let mut config = ServerConfig::new("127.0.0.1:0".parse().unwrap());
    change(&mut config);
    Server::start(config, backend, ServerInfo::new("0.0.0", "f00d")).unwrap()
}

pub struct Client(pub TcpStream);

impl Client {
    pub fn connect(server: &ServerHandle) -> Self {
        Self::open(&server.address().to_string()).unwrap()
    }

    pub fn open(address: &str) -> std::io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        Ok(Self(stream))
    }

    /// A whole reply.
    pub fn reply(&mut self) -> Vec<u8> {
        read_reply(&mut self.0)
    }

    pub fn send(&mut self, bytes: &[u8]) {
        // A server that has closed already shows in what is read.
        let _ = self.0.write_all(bytes);
    }

    /// Reads `len` bytes, or up to the end.
    pub fn read(&mut self, len: usize) -> Vec<u8> {
        let mut found = Vec::new();
        let _ = (&mut self.0).take(len as u64).read_to_end(&mut found);
        found
    }

    pub fn expect(&mut self, reply: &[u8]) {
        let found = self.read(reply.len());
        assert_eq!(String::from_utf8_lossy(&found), String::from_utf8_lossy(reply));
    }

    pub fn ask(&mut self, request: &[u8], reply: &[u8]) {
        self.send(request);
        self.expect(reply);
    }

    /// A reply of one line, without its line break.
    pub fn line(&mut self) -> String {
        let mut line = Vec::new();
        while !line.ends_with(b"\r\n") {
            let byte = self.read(1);
            assert!(!byte.is_empty(), "closed after {}", String::from_utf8_lossy(&line));
            line.extend(byte);
        }
        line.truncate(line.len() - 2);
        String::from_utf8(line).unwrap()
    }

    pub fn is_closed(&mut self) -> bool {
        // End of file or a reset: nothing more, and no time-out.
        match self.0.read(&mut [0; 1]) {
            Ok(len) => len == 0,
            Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }
}

/// A command as clients send it.
pub fn command(args: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", args.len()).into_bytes();
    for arg in args {
        bytes.extend(format!("${}\r\n", arg.len()).into_bytes());
        bytes.extend_from_slice(arg);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// The next whole reply.
pub fn read_reply(from: &mut impl Read) -> Vec<u8> {
    let mut reply = Vec::new();
    let mut left = 1;
    while left > 0 {
        left -= 1;
        let start = reply.len();
        while !reply[start..].ends_with(b"\r\n") {
            let mut byte = [0];
            from.read_exact(&mut byte).unwrap_or_else(|error| panic!("{error}: {}", text(&reply)));
            reply.push(byte[0]);
        }
        let line = std::str::from_utf8(&reply[start..reply.len() - 2]).unwrap();
        let (kind, number) = (line.as_bytes()[0], line[1..].parse::<usize>().ok());
        match (kind, number) {
            (b'$' | b'=', Some(len)) => {
                let end = reply.len();
                reply.resize(end + len + 2, 0);
                from.read_exact(&mut reply[end..]).unwrap();
            }
            (b'*' | b'~' | b'>', Some(len)) => left += len,
            (b'%', Some(len)) => left += 2 * len,
            (b'+' | b'-' | b':' | b'$' | b'*' | b'_' | b',' | b'#' | b'(', _) => {}
            _ => panic!("not a reply: {line}"),
        }
    }
    reply
}

/// Bytes as they are read in a failure.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
