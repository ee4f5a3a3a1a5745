//! The RESP front over a map in memory, without replication or durability: to try clients against
//! it, and to measure the front alone.
//!
//! `cargo run --release -p nicol-resp --example memory -- 127.0.0.1:6390`, then
//! `redis-benchmark -p 6390 -t set,get,incr,mset -P 32`.

#[path = "../tests/it/support/memory.rs"]
mod memory;

use std::sync::Arc;

use memory::MemoryBackend;
use nicol_resp::{Server, ServerConfig, ServerInfo};

fn main() -> anyhow::Result<()> {
    let mut args = std::env::args().skip(1);
    let listen = args.next().unwrap_or_else(|| "127.0.0.1:6390".to_owned());
    let mut config = ServerConfig::new(listen.parse()?);
    config.password = args.next();
    let run_id = format!("{:040x}", std::process::id());
    let info = ServerInfo::new(env!("CARGO_PKG_VERSION"), &run_id);
    let server = Server::start(config, Arc::new(MemoryBackend::new()), info)?;
    eprintln!("serving on {}; stop it with an interrupt", server.address());
    server.join().map_err(|panicked| anyhow::anyhow!("{panicked} threads panicked"))
}
