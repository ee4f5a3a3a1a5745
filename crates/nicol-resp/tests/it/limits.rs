//! No command reaches a panic: each is sent with too many arguments, and with numbers that do not
//! fit, alone and in a transaction.

use std::io::BufReader;
use std::net::TcpStream;

use crate::support::{Client, command, read_reply, serve, text};
use nicol_resp::ServerHandle;

/// Arguments of a request, from none to the most.
const LENGTHS: [usize; 11] = [1, 2, 3, 4, 5, 6, 1_025, 1_026, 2_049, 2_051, 65_535];

/// What is hard to read, and to reckon with.
const NUMBERS: [&str; 14] = [
    "0",
    "-0",
    "-1",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775808",
    "-9223372036854775807",
    "9223372036854775",
    "99999999999999999999",
    "-99999999999999999999",
    "1e308",
    "1e-1000",
    "nan",
    "",
];

struct Talk {
    client: Client,
    replies: BufReader<TcpStream>,
}

impl Talk {
    fn with(server: &ServerHandle) -> Self {
        let client = Client::connect(server);
        let replies = BufReader::new(client.0.try_clone().unwrap());
        Self { client, replies }
    }

    /// Sends a command and reads its reply.
    fn ask(&mut self, args: &[&[u8]]) -> Vec<u8> {
        self.client.send(&command(args));
        read_reply(&mut self.replies)
    }

    /// Sends a command alone and in a transaction. Whatever is answered, the connection goes on.
    fn try_out(&mut self, args: &[&[u8]]) {
        if args[0].ends_with(b"subscribe") {
            return self.try_listening(args);
        }
        self.ask(args);
        self.ask(&[b"MULTI"]);
        self.ask(args);
        self.ask(&[b"EXEC"]);
        self.ask(&[b"UNWATCH"]);
        assert_eq!(text(&self.ask(&[b"ECHO", b"here"])), "$4\r\nhere\r\n");
    }
}

impl Talk {
    /// The same with a command that answers once for each name, and after which a client listens.
    fn try_listening(&mut self, args: &[&[u8]]) {
        // All of them share their code, and answer 65,000 times each.
        if args.len() > 3_000 && args[0] != b"subscribe" {
            return;
        }
        for before in [&[][..], b"MULTI\r\n"] {
            self.client.send(before);
            self.client.send(&command(args));
            self.client.send(b"RESET\r\n");
            while read_reply(&mut self.replies) != b"+RESET\r\n" {}
        }
        assert_eq!(text(&self.ask(&[b"ECHO", b"here"])), "$4\r\nhere\r\n");
    }
}

/// The commands of the table but QUIT, which closes, and MONITOR, which goes on answering.
fn names(talk: &mut Talk) -> Vec<String> {
    let list = text(&talk.ask(&[b"COMMAND", b"LIST"]));
    let names: Vec<_> = list.split("\r\n").skip(2).step_by(2).map(str::to_owned).collect();
    assert!(names.len() > 60 && names.iter().any(|name| name == "watch"), "{names:?}");
    names.into_iter().filter(|name| name != "quit" && name != "monitor").collect()
}

#[test]
fn no_number_of_arguments_stops_the_server() {
    let server = serve(|_| {});
    let mut talk = Talk::with(&server);
    let keys: Vec<_> = (0..65_535).map(|key| format!("k{key}").into_bytes()).collect();
    for name in names(&mut talk) {
        for len in LENGTHS {
            let mut args = vec![name.as_bytes()];
            args.extend(keys[1..len].iter().map(Vec::as_slice));
            talk.try_out(&args);
            args[1..].fill(b"same");
            talk.try_out(&args);
        }
    }
}

#[test]
fn no_repeated_option_stops_the_server() {
    let server = serve(|_| {});
    let mut talk = Talk::with(&server);
    let heads: [&[&str]; 11] = [
        &["SET", "k", "v", "NX"],
        &["SET", "k", "v", "GET"],
        &["GETEX", "k", "PERSIST"],
        &["EXPIRE", "k", "100", "NX"],
        &["HELLO", "2", "SETNAME", "SETNAME"],
        &["CLIENT", "LIST", "ID", "7"],
        &["COMMAND", "INFO", "nosuch"],
        &["COMMAND", "DOCS", "get"],
        &["CONFIG", "GET", "*"],
        &["INFO", "all"],
        &["OBJECT", "ENCODING", "k"],
    ];
    for head in heads {
        let mut args: Vec<&[u8]> = head.iter().map(|arg| arg.as_bytes()).collect();
        for len in [1_026, 65_534, 65_535] {
            args.resize(len, head[head.len() - 1].as_bytes());
            talk.try_out(&args);
        }
    }
}

#[test]
fn no_number_stops_the_server() {
    let server = serve(|_| {});
    let mut talk = Talk::with(&server);
    for number in NUMBERS.map(str::as_bytes) {
        for option in [&b"EX"[..], b"PX", b"EXAT", b"PXAT"] {
            talk.try_out(&[b"SET", b"k", b"1", option, number]);
            talk.ask(&[b"SET", b"k", b"1"]);
            talk.try_out(&[b"GETEX", b"k", option, number]);
            talk.try_out(&[b"PTTL", b"k"]);
        }
    }
    for name in names(&mut talk) {
        for one in NUMBERS.map(str::as_bytes) {
            talk.ask(&[b"SET", b"k", one]);
            talk.try_out(&[name.as_bytes(), one]);
            talk.try_out(&[name.as_bytes(), b"k", one]);
            for other in NUMBERS.map(str::as_bytes) {
                talk.ask(&[b"SET", b"k", one, b"KEEPTTL"]);
                talk.try_out(&[name.as_bytes(), b"k", one, other]);
            }
        }
    }
}

#[test]
fn a_transaction_of_too_many_commands_is_discarded() {
    let server = serve(|_| {});
    let mut talk = Talk::with(&server);
    let all = |request: &[u8], times: usize| {
        let mut bytes = b"MULTI\r\n".to_vec();
        (0..times).for_each(|_| bytes.extend_from_slice(request));
        bytes.extend_from_slice(b"EXEC\r\nECHO here\r\n");
        bytes
    };
    for (request, times) in [(&b"GET k\r\n"[..], 65_535), (b"PING\r\n", 65_535)] {
        talk.client.send(&all(request, times));
        (0..=times).for_each(|_| assert_eq!(read_reply(&mut talk.replies)[0], b'+'));
        assert!(read_reply(&mut talk.replies).starts_with(b"*65535\r\n"));
        assert_eq!(read_reply(&mut talk.replies), b"$4\r\nhere\r\n");
        talk.client.send(&all(request, times + 1));
        (0..=times).for_each(|_| assert_eq!(read_reply(&mut talk.replies)[0], b'+'));
        assert!(read_reply(&mut talk.replies).starts_with(b"-ERR transaction is too large"));
        assert!(read_reply(&mut talk.replies).starts_with(b"-EXECABORT"));
        assert_eq!(read_reply(&mut talk.replies), b"$4\r\nhere\r\n");
    }
}

#[test]
fn an_infinite_sum_is_refused_and_changes_nothing() {
    let server = serve(|_| {});
    let mut talk = Talk::with(&server);
    let infinite = b"-ERR increment would produce NaN or Infinity\r\n";
    talk.ask(&[b"SET", b"f", b"1.1e4932"]);
    assert_eq!(text(&talk.ask(&[b"INCRBYFLOAT", b"f", b"1.1e4932"])), text(infinite));
    for amount in [&b"inf"[..], b"-inf", b"Infinity"] {
        talk.ask(&[b"SET", b"f", b"1.5"]);
        assert_eq!(text(&talk.ask(&[b"INCRBYFLOAT", b"f", amount])), text(infinite));
        assert_eq!(talk.ask(&[b"GET", b"f"]), b"$3\r\n1.5\r\n");
        talk.ask(&[b"SET", b"f", amount]);
        assert_eq!(text(&talk.ask(&[b"INCRBYFLOAT", b"f", b"1"])), text(infinite));
        let malformed = talk.ask(&[b"INCRBYFLOAT", b"f", b"one"]);
        assert_eq!(malformed, b"-ERR value is not a valid float\r\n");
    }
}
