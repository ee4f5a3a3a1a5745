//! Several clients of one server, whose conversation can be compared with one with `redis-server`.

use std::io::{BufRead, BufReader, ErrorKind};
use std::net::TcpStream;

use super::Client;

/// Clients of one server.
pub struct Party {
    pub clients: Vec<Client>,
    pub lines: Vec<BufReader<TcpStream>>,
    /// The ids of the clients.
    ids: Vec<String>,
}

impl Party {
    pub fn open(address: &str, count: usize) -> Self {
        // Ids that no count in an answer looks like.
        (0..100).for_each(|_| drop(Client::open(address).unwrap()));
        let clients: Vec<_> = (0..count).map(|_| Client::open(address).unwrap()).collect();
        let lines = clients.iter().map(|one| BufReader::new(one.0.try_clone().unwrap())).collect();
        let mut party = Self { clients, lines, ids: Vec::new() };
        for who in 0..count {
            party.clients[who].send(b"CLIENT ID\r\n");
            let id = party.line(who)[1..].to_owned();
            party.ids.push(id);
        }
        party
    }

    /// One line of what client `who` is sent; `(closed)` at the end.
    pub fn line(&mut self, who: usize) -> String {
        let mut line = Vec::new();
        match self.lines[who].read_until(b'\n', &mut line) {
            Ok(0) => "(closed)".to_owned(),
            Ok(_) => String::from_utf8_lossy(&line).trim_end().to_owned(),
            // What it has sent since crossed the end on its way.
            Err(error) if error.kind() == ErrorKind::ConnectionReset => "(closed)".to_owned(),
            Err(error) => panic!("client {who}: {error}"),
        }
    }

    /// Client `who` sends commands, with ` ; ` between them and `$1` for the id of client 1: all
    /// that it is sent up to the answer to a PING behind them. Ids are `$1` again. Behind a last
    /// ` ;` there is no PING, and the answers come with those to what it says next.
    pub fn ask(&mut self, who: usize, words: &str) -> String {
        let (words, goes_on) = match words.strip_suffix(" ;") {
            Some(words) => (words, true),
            None => (words, false),
        };
        for words in words.split(" ; ") {
            let words: Vec<String> = words
                .split(' ')
                .map(|word| match word.strip_prefix('$').and_then(|n| n.parse::<usize>().ok()) {
                    Some(number) => self.ids[number].clone(),
                    None => word.to_owned(),
                })
                .collect();
            let words: Vec<&[u8]> = words.iter().map(String::as_bytes).collect();
            self.clients[who].send(&super::command(&words));
        }
        if goes_on { String::new() } else { self.rest(who) }
    }

    /// All that client `who` is sent up to the answer to a PING.
    pub fn rest(&mut self, who: usize) -> String {
        self.clients[who].send(b"PING end\r\n");
        let mut lines = Vec::new();
        loop {
            let line = self.line(who);
            let is_end = line == "end" || line == "(closed)";
            lines.push(match self.ids.iter().position(|id| line == format!(":{id}")) {
                Some(number) => format!(":${number}"),
                None => line,
            });
            if is_end {
                return lines.join(" ");
            }
        }
    }
}
