//! Clients of one server that wait for what others do.

use std::time::Duration;

use nicol_resp::ServerHandle;

use super::{Client, serve, text};

pub fn server() -> ServerHandle {
    serve(|config| config.threads = 2)
}

pub fn clients<const N: usize>(server: &ServerHandle) -> [Client; N] {
    std::array::from_fn(|_| Client::connect(server))
}

/// Sends a command that is expected to wait, and lets it begin to.
pub fn wait(client: &mut Client, request: &str) {
    client.send(format!("{request}\r\n").as_bytes());
    std::thread::sleep(Duration::from_millis(60));
}

pub fn ask(client: &mut Client, request: &str) -> String {
    client.send(format!("{request}\r\n").as_bytes());
    reply(client)
}

pub fn reply(client: &mut Client) -> String {
    text(&client.reply()).replace("\r\n", " ").trim_end().to_owned()
}

/// Whether the client gets nothing for a while.
pub fn still_waits(client: &mut Client) -> bool {
    client.0.set_read_timeout(Some(Duration::from_millis(80))).unwrap();
    let nothing = client.read(1).is_empty();
    client.0.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    nothing
}
