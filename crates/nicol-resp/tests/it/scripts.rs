//! Scripts and functions: as redis-server runs them, and what only a transaction can.

use std::io::BufRead;

use crate::support::redis::redis;
use crate::support::{Client, serve, text};

/// Sends every line of `conversation` to both servers; returns what they answered differently.
fn compare(conversation: &str, version: &str) -> Vec<String> {
    let Some((_redis, address)) = redis() else { return Vec::new() };
    let server = serve(|_| {});
    let mut both = [Client::connect(&server), Client::open(&address).unwrap()];
    let (mut differ, hello) = (Vec::new(), format!("HELLO {version}\r\n"));
    for client in &mut both {
        client.send(hello.as_bytes());
        client.reply();
    }
    for line in conversation.as_bytes().lines().map(Result::unwrap) {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let request = format!("{line}\r\n");
        let [own, other] = both.each_mut().map(|client| {
            client.send(request.as_bytes());
            text(&client.reply())
        });
        if own != other {
            differ.push(format!("{line}\n  nicol: {own:?}\n  redis: {other:?}"));
        }
    }
    differ
}

#[test]
fn scripts_are_answered_as_by_redis() {
    for version in ["2", "3"] {
        let differ = compare(include_str!("scripts/evals.txt"), version);
        assert!(differ.is_empty(), "{} differ\n{}", differ.len(), differ.join("\n"));
    }
}

#[test]
fn functions_are_answered_as_by_redis() {
    for version in ["2", "3"] {
        let differ = compare(include_str!("scripts/functions.txt"), version);
        assert!(differ.is_empty(), "{} differ\n{}", differ.len(), differ.join("\n"));
    }
}
