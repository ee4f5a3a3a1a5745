//! Replies are those of Redis 7.0, byte for byte, over recorded conversations.

use crate::support::{Client, serve};

/// Undoes the escapes of the golden file: `\r \n \\ \xHH`.
fn unescape(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text.chars();
    while let Some(char) = rest.next() {
        if char != '\\' {
            bytes.push(char as u8);
            continue;
        }
        match rest.next().unwrap() {
            'r' => bytes.push(b'\r'),
            'n' => bytes.push(b'\n'),
            'x' => {
                let hex: String = rest.by_ref().take(2).collect();
                bytes.push(u8::from_str_radix(&hex, 16).unwrap());
            }
            other => bytes.push(other as u8),
        }
    }
    bytes
}

#[test]
fn replies_are_those_that_redis_gave() {
    let golden = include_str!("golden.txt");
    let lines: Vec<_> = golden.lines().filter(|line| !line.starts_with('#')).collect();
    assert!(lines.len() >= 120, "the golden file must not shrink unnoticed");
    for pair in lines.chunks_exact(2) {
        let server = serve(|_| {});
        let mut client = Client::connect(&server);
        let reply = pair[1].strip_prefix("= ").unwrap();
        let (reply, closed) = match reply.strip_suffix("|closed") {
            Some(reply) => (reply, true),
            None => (reply, false),
        };
        client.send(&unescape(pair[0]));
        if !closed {
            client.send(b"PING the end\r\nPING end\r\n");
        }
        let expected = unescape(reply);
        let found = client.read(expected.len());
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert_eq!(text(&found), text(&expected), "after {}", pair[0]);
        match closed {
            true => assert!(client.is_closed(), "after {}", pair[0]),
            false => {
                client.expect(b"-ERR wrong number of arguments for 'ping' command\r\n");
                client.expect(b"$3\r\nend\r\n");
            }
        }
    }
}
