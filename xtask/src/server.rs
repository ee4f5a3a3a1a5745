//! Servers that a task starts for itself, and ends.

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

/// How long a server may take to start.
const START: Duration = Duration::from_secs(10);

/// A server of the Redis protocol on a free port of the loopback, which keeps nothing. Ended when
/// dropped.
pub struct Server {
    process: Child,
    port: u16,
}

impl Server {
    /// A redis-server; `None` if there is none.
    ///
    /// # Errors
    /// It does not start, or does not answer.
    pub fn redis() -> Result<Option<Self>> {
        let port = free_port()?;
        let mut command = Command::new("redis-server");
        command.args(["--port", &port.to_string(), "--bind", "127.0.0.1"]);
        command.args(["--save", "", "--appendonly", "no"]);
        // What a test saves, and the file of its configuration, are nobody's.
        command.current_dir(std::env::temp_dir());
        match command.stdout(Stdio::null()).spawn() {
            Ok(process) => Self { process, port }.answering("redis-server").map(Some),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).context("cannot start redis-server"),
        }
    }

    /// A `nicol serve` of this program.
    ///
    /// # Errors
    /// It does not start, or does not answer.
    pub fn nicol(program: &Path) -> Result<Self> {
        let port = free_port()?;
        let mut command = Command::new(program);
        command.args(["serve", "--listen", &format!("127.0.0.1:{port}")]);
        let process = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let process = process.with_context(|| format!("cannot start {}", program.display()))?;
        Self { process, port }.answering("nicol serve")
    }

    fn answering(mut self, name: &str) -> Result<Self> {
        let started = Instant::now();
        while TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).is_err() {
            if let Some(status) = self.process.try_wait()? {
                bail!("{name} ended at once: {status}");
            }
            ensure!(started.elapsed() < START, "{name} does not answer at port {}", self.port);
            thread::sleep(Duration::from_millis(20));
        }
        Ok(self)
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Whether it still runs.
    pub fn is_up(&mut self) -> bool {
        matches!(self.process.try_wait(), Ok(None))
    }
}

/// Nobody else asks for the port in between: the system hands out others first.
fn free_port() -> Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
