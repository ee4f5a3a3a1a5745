//! Clients that see every command: MONITOR.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::connection::address::Address;
use crate::connection::clients::Client;
use crate::pushes::Push;
use crate::transactions::record::Database;

/// The clients of all fronts that see every command.
#[derive(Debug, Default)]
pub struct Monitors {
    clients: Mutex<BTreeMap<u64, Arc<Client>>>,
    /// While it is 0, nobody looks further.
    count: AtomicUsize,
}

impl Monitors {
    pub fn is_off(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    pub fn add(&self, client: &Arc<Client>) {
        let mut clients = self.clients();
        clients.insert(client.id, client.clone());
        self.count.store(clients.len(), Ordering::SeqCst);
    }

    pub fn remove(&self, client: u64) {
        if !self.is_off() {
            let mut clients = self.clients();
            clients.remove(&client);
            self.count.store(clients.len(), Ordering::SeqCst);
        }
    }

    /// Shows a command that a client at `peer` gives; `None`: a script.
    pub fn show<'a>(
        &self,
        database: Database,
        peer: Option<&Address>,
        words: impl Iterator<Item = &'a [u8]>,
    ) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let place = match peer.map(|peer| (peer, peer.path())) {
            None => "lua".to_owned(),
            Some((_, Some(path))) => format!("unix:{}", path.display()),
            Some((peer, None)) => peer.endpoint(),
        };
        let (seconds, micros) = (now.as_secs(), now.subsec_micros());
        let mut line = format!("{seconds}.{micros:06} [{} {place}]", database.number());
        for word in words {
            line.push(' ');
            quote(word, &mut line);
        }
        let line: Arc<[u8]> = line.into_bytes().into();
        self.clients().values().for_each(|client| client.push(Push::Shown(line.clone())));
    }

    fn clients(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<Client>>> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Appends `word` in quotes, with escapes for what cannot be printed.
fn quote(word: &[u8], out: &mut String) {
    out.push('"');
    for byte in word {
        match byte {
            b'\\' | b'"' => out.extend(['\\', char::from(*byte)]),
            b'\n' => out.push_str("\\n"),
            b'\r' => out.push_str("\\r"),
            b'\t' => out.push_str("\\t"),
            7 => out.push_str("\\a"),
            8 => out.push_str("\\b"),
            b' '..=b'~' => out.push(char::from(*byte)),
            byte => out.push_str(&format!("\\x{byte:02x}")),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::quote;

    #[test]
    fn what_cannot_be_printed_is_escaped() {
        let mut text = String::new();
        quote(b"a \"b\"\\\r\n\t\x07\x08\x00\xff", &mut text);
        assert_eq!(text, "\"a \\\"b\\\"\\\\\\r\\n\\t\\a\\b\\x00\\xff\"");
    }
}
