//! Whatever bytes a client sends, in whatever pieces: the front goes on, and answers in order.

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;

use crate::support::{Client, command, read_reply, serve, text};
use nicol_core::rng::{Purpose, Stream};

const KEYS: [&[u8]; 4] = [b"a", b"b", b"c", b""];

/// A pipeline of commands, valid and not, each followed by an ECHO of its number. None of them
/// tells the time, the connection's number or what other connections do.
fn pipeline(random: &mut Stream, commands: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    for number in 0..commands {
        let key = *random.pick(&KEYS).unwrap();
        let args: &[&[u8]] = match random.below(24) {
            0..3 => &[b"SET", key, b"1"],
            3..5 => &[b"GET", key],
            5..7 => &[b"INCR", key],
            7..9 => &[b"APPEND", key, b"xy\r\n"],
            9 => &[b"MSET", key, b"1", b"d", b"2"],
            10 => &[b"MGET", key, b"d"],
            11 => &[b"DEL", key, b"a"],
            12 => &[b"EXPIRE", key, b"-1"],
            13 => &[b"WATCH", key],
            14 | 15 => &[b"MULTI"],
            16 | 17 => &[b"EXEC"],
            18 => &[b"DISCARD"],
            19 => &[b"SET", key],
            20 => &[b"NOSUCH", b"\0\xff"],
            21 => &[b"SET", key, b"v", b"EX", b"0"],
            22 => &[b"GETRANGE", key, b"0", b"x"],
            _ => &[b"PING"],
        };
        match random.below(8) {
            0 if args
                .iter()
                .all(|arg| arg.is_ascii() && !arg.is_empty() && !arg.contains(&b'\n')) =>
            {
                bytes.extend_from_slice(&args.join(&b' '));
                bytes.extend_from_slice(b"\r\n");
            }
            _ => bytes.extend(command(args)),
        }
        bytes.extend(command(&[b"ECHO", format!("mark:{number}").as_bytes()]));
    }
    bytes
}

/// Damages some bytes, drops some, repeats some and puts others in between.
fn damage(random: &mut Stream, bytes: &mut Vec<u8>) {
    let odd = b"*$-0123456789\r\n\"' \0\xff";
    for _ in 0..1 + random.below(2) {
        let at = random.below(bytes.len() as u64) as usize;
        let to = (at + random.below(30) as usize).min(bytes.len());
        match random.below(4) {
            0 => bytes[at] = *random.pick(odd).unwrap(),
            1 => _ = bytes.drain(at..to),
            2 => bytes.insert(at, *random.pick(odd).unwrap()),
            _ => {
                let again = bytes[at..to].to_vec();
                bytes.splice(at..at, again);
            }
        }
    }
}

/// All that a new server answers to `bytes`, sent in pieces that end at `cuts`, until it closes.
fn answers(bytes: &[u8], cuts: &[usize]) -> Vec<u8> {
    let server = serve(|_| {});
    let mut client = Client::connect(&server);
    let mut reader = client.0.try_clone().unwrap();
    // Read all the while, or both sides could wait for the other to read.
    let told = std::thread::spawn(move || {
        let mut told = Vec::new();
        // A reset after the last reply is an end as well: the server had more to read.
        if let Err(error) = reader.read_to_end(&mut told) {
            assert_eq!(error.kind(), ErrorKind::ConnectionReset, "not closed: {}", text(&told));
        }
        told
    });
    let mut from = 0;
    for &cut in cuts.iter().chain(&[bytes.len()]) {
        if client.0.write_all(&bytes[from..cut]).is_err() {
            break;
        }
        from = cut;
        std::thread::yield_now();
    }
    let _ended = client.0.shutdown(Shutdown::Write);
    let told = told.join().unwrap();
    // The front is alive, and no thread of it has panicked.
    let mut other = Client::connect(&server);
    other.ask(b"PING\r\n", b"+PONG\r\n");
    drop(other);
    server.stop();
    server.join().unwrap();
    told
}

fn cuts(random: &mut Stream, len: usize) -> Vec<usize> {
    let mut cuts: Vec<usize> =
        (0..random.below(20)).map(|_| random.below(len as u64 + 1) as usize).collect();
    cuts.sort_unstable();
    cuts
}

#[test]
fn a_valid_pipeline_is_answered_whole_and_in_order() {
    for seed in 0..40 {
        let mut random = Stream::new(seed, Purpose::Test, 0);
        let commands = 1 + random.below(300);
        let bytes = pipeline(&mut random, commands);
        let cuts = cuts(&mut random, bytes.len());
        let told = answers(&bytes, &cuts);
        let mut rest = &told[..];
        let (mut replies, mut echoed, mut queued) = (0, Vec::new(), 0);
        while !rest.is_empty() {
            let reply = read_reply(&mut rest);
            replies += 1;
            queued += u64::from(reply == b"+QUEUED\r\n");
            let reply = text(&reply);
            // An EXEC's reply holds the echoes of its commands.
            echoed.extend(
                reply
                    .split("mark:")
                    .skip(1)
                    .map(|number| number.split('\r').next().unwrap().parse::<u64>().unwrap()),
            );
        }
        assert_eq!(replies, 2 * commands, "seed {seed}");
        assert!(echoed.is_sorted_by(|one, next| one < next), "seed {seed}: {echoed:?}");
        assert!(echoed.len() as u64 + queued >= commands, "seed {seed}: {}", text(&told));
    }
}

#[test]
fn any_bytes_are_answered_the_same_whatever_their_pieces() {
    let (mut closed, mut open) = (0, 0);
    for seed in 0..80 {
        let mut random = Stream::new(seed, Purpose::Test, 1);
        let commands = 1 + random.below(60);
        let mut bytes = pipeline(&mut random, commands);
        damage(&mut random, &mut bytes);
        let whole = answers(&bytes, &[]);
        let cuts = cuts(&mut random, bytes.len());
        let pieces = answers(&bytes, &cuts);
        assert_eq!(text(&pieces), text(&whole), "seed {seed}, pieces {cuts:?}: {}", text(&bytes));
        match text(&whole).contains("-ERR Protocol error") {
            true => closed += 1,
            false => open += 1,
        }
    }
    assert!(closed > 20 && open > 3, "{closed} protocol errors, {open} without one");
}

#[test]
fn a_client_that_has_said_all_at_once_is_answered_and_closed() {
    let server = serve(|_| {});
    for turn in 0..500 {
        let mut client = Client::connect(&server);
        // Often one event tells the front of the bytes and of the end.
        client.send(b"PING\r\n");
        client.0.shutdown(Shutdown::Write).unwrap();
        client.expect(b"+PONG\r\n");
        assert!(client.is_closed(), "turn {turn}");
    }
}

#[test]
fn noise_never_stops_the_front() {
    let mut answered = 0;
    for seed in 0..30 {
        let mut random = Stream::new(seed, Purpose::Test, 2);
        let mut noise: Vec<u8> = (0..random.below(4_000)).map(|_| random.bits() as u8).collect();
        // Half of it looks like the start of a request.
        if seed % 2 == 0 {
            noise.splice(0..0, *b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$2000\r\n");
        }
        let cuts = cuts(&mut random, noise.len());
        answered += usize::from(!answers(&noise, &cuts).is_empty());
    }
    assert!(answered > 10, "{answered} were answered");
}
