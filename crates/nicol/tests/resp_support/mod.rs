//! A server on a free port, and a client that sees every byte.
#![allow(dead_code, reason = "each test binary uses its part")]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use nicol::resp::{Backend, MemoryBackend, Server, ServerConfig, ServerHandle, ServerInfo};

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
        let stream = TcpStream::connect(server.local_addr()).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        Self(stream)
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
