//! Replies are those of the `redis-server` of this machine over random conversations. Without one
//! installed, these tests say so and pass: the golden conversations hold in any case.

use crate::support::collections;
use crate::support::redis::{compare, converse, redis};
use crate::support::{Client, command, serve, text};
use nicol_core::rng::{Purpose, Stream};

#[test]
fn random_conversations_go_as_with_redis() {
    let Some((_redis, redis)) = redis() else { return };
    let server = serve(|config| config.threads = 2);
    let (mut refused, mut timed) = (0, 0);
    for seed in 0..40 {
        let seen = converse(seed, 400, &server.address().to_string(), &redis);
        (refused, timed) = (refused + seen.0, timed + seen.1);
    }
    assert!(refused > 50, "{refused} EXECs were refused");
    assert!(timed > 50, "{timed} keys had a time left");
}

#[test]
fn random_commands_over_collections_are_answered_as_by_redis() {
    let Some((_redis, redis)) = redis() else { return };
    let server = serve(|_| {});
    let own = server.address().to_string();
    let (seeds, steps) = match std::env::var("NICOL_REDIS_SEEDS") {
        Ok(seeds) => (seeds.parse().unwrap(), 5_000),
        Err(_) => (6, 2_500),
    };
    let mut answered = std::collections::BTreeMap::new();
    for seed in 0..seeds {
        let version = if seed % 2 == 0 { "2" } else { "3" };
        for (name, count) in collections::compare(seed, steps, [&own, &redis], version) {
            *answered.entry(name).or_insert(0) += count;
        }
    }
    for name in collections::names() {
        assert!(answered.get(name).is_some_and(|count| *count >= 5), "{name} was not answered");
    }
}

#[test]
fn sketches_are_those_of_redis_and_go_back_and_forth() {
    let Some((_redis, address)) = redis() else { return };
    let server = serve(|_| {});
    let mut both = [Client::connect(&server), Client::open(&address).unwrap()];
    let mut random = Stream::new(9, Purpose::Test, 0);
    let ask = |client: &mut Client, words: &[&[u8]]| {
        client.send(&command(words));
        client.reply()
    };
    for round in 0..60 {
        // Each has added some elements to what the other one has made last.
        let (adds, reads) = (round % 2, 1 - round % 2);
        let most = [3, 40, 2_000][round / 20];
        let elements: Vec<_> = (0..1 + random.below(most)).map(|_| random.bits()).collect();
        let words: Vec<_> = elements.iter().map(|element| element.to_string()).collect();
        let words = words.iter().map(String::as_bytes);
        let add: Vec<&[u8]> = [&b"PFADD"[..], b"p"].into_iter().chain(words).collect();
        ask(&mut both[adds], &add);
        let value = ask(&mut both[adds], &[b"GET", b"p"]);
        let start = value.iter().position(|byte| *byte == b'\n').unwrap() + 1;
        ask(&mut both[reads], &[b"SET", b"p", &value[start..value.len() - 2]]);
        let counts = both.each_mut().map(|client| text(&ask(client, &[b"PFCOUNT", b"p"])));
        assert_eq!(counts[0], counts[1], "in round {round}");
        let merged = both.each_mut().map(|client| {
            ask(client, &[b"PFMERGE", b"all", b"p"]);
            text(&ask(client, &[b"PFCOUNT", b"all", b"p"]))
        });
        assert_eq!(merged[0], merged[1], "in round {round}");
    }
    let count = text(&ask(&mut both[0], &[b"PFCOUNT", b"p"]));
    assert!(count[1..].trim().parse::<u64>().unwrap() > 5_000, "{count}");
}

/// The commands that make a value of every form that Redis has, and the one that reads it.
fn forms() -> Vec<(Vec<Vec<u8>>, &'static str)> {
    let many = |name: &str, count: usize, width: usize, text: fn(usize) -> String| {
        let texts = (0..count * width).map(|number| text(number).into_bytes());
        [name.as_bytes().to_vec(), b"k".to_vec()].into_iter().chain(texts).collect::<Vec<_>>()
    };
    let words: fn(usize) -> String = |number| format!("word {number} of some length");
    let numbers: fn(usize) -> String = |number| (number * number).to_string();
    let signs: fn(usize) -> String = |number| format!("-{}", 1 + (number << (number % 33)));
    let long: fn(usize) -> String = |number| "abcdefgh".repeat(1_200 + number);
    let scored: fn(usize) -> String = |number| match number % 2 {
        0 => format!("{}", number as f64 / 3.0),
        _ => format!("member {number}"),
    };
    let mut all = Vec::new();
    for value in ["", "10", "-129", "70000", "5000000000", "01", "short", &long(1)] {
        all.push((["SET", "k", value].map(|word| word.as_bytes().to_vec()).to_vec(), "GET"));
    }
    for count in [1, 7, 100, 700] {
        for text in [words, numbers, signs] {
            all.push((many("RPUSH", count, 1, text), "LRANGE k 0 -1"));
            all.push((many("SADD", count, 1, text), "SORT k ALPHA"));
            all.push((many("HSET", count, 2, text), "HGETALL"));
        }
        all.push((many("ZADD", count, 2, scored), "ZRANGE k 0 -1 WITHSCORES"));
    }
    all.push((many("RPUSH", 5, 1, long), "LRANGE k 0 -1"));
    all.push((many("PFADD", 30, 1, words), "PFCOUNT"));
    all
}

#[test]
fn values_go_to_redis_and_come_from_it_whatever_their_form() {
    let Some((_redis, address)) = redis() else { return };
    let server = serve(|_| {});
    let mut both = [Client::connect(&server), Client::open(&address).unwrap()];
    let ask = |client: &mut Client, words: &[&[u8]]| {
        client.send(&command(words));
        client.reply()
    };
    for (made, read) in forms() {
        let made: Vec<&[u8]> = made.iter().map(Vec::as_slice).collect();
        let read = if read.contains(' ') { read.to_owned() } else { format!("{read} k") };
        let read: Vec<&[u8]> = read.split(' ').map(str::as_bytes).collect();
        for from in [0, 1] {
            let (one, other) = (from, 1 - from);
            both.iter_mut().for_each(|client| _ = ask(client, &[b"FLUSHALL"]));
            assert_ne!(ask(&mut both[one], &made)[0], b'-');
            let payload = ask(&mut both[one], &[b"DUMP", b"k"]);
            let start = payload.iter().position(|byte| *byte == b'\n').unwrap() + 1;
            let payload = &payload[start..payload.len() - 2];
            let restored = ask(&mut both[other], &[b"RESTORE", b"k", b"0", payload]);
            assert_eq!(text(&restored), "+OK\r\n", "{} from {from}", text(made[0]));
            let mut found = both.each_mut().map(|client| ask(client, &read));
            if read[0] == b"HGETALL" {
                found.iter_mut().for_each(|reply| {
                    reply.sort_unstable();
                });
            }
            assert_eq!(text(&found[0]), text(&found[1]), "{} from {from}", text(made[0]));
            // What is damaged, and what stands in the way, is refused alike.
            let mut damaged = payload.to_vec();
            damaged[payload.len() / 2] ^= 1;
            let again: [&[&[u8]]; 8] = [
                &[b"RESTORE", b"k", b"0", payload],
                &[b"RESTORE", b"x", b"0", &damaged],
                &[b"RESTORE", b"x", b"0", &payload[1..]],
                &[b"RESTORE", b"k", b"-1", payload, b"REPLACE"],
                &[b"RESTORE", b"k", b"0", payload, b"IDLETIME", b"-1"],
                &[b"RESTORE", b"k", b"1", payload, b"replace", b"ABSTTL", b"FREQ", b"7"],
                &[b"EXISTS", b"k"],
                &[b"RESTORE", b"k", b"4000000000000", payload, b"ABSTTL"],
            ];
            for words in again.into_iter().chain([&[b"PEXPIRETIME".as_slice(), b"k"][..]]) {
                let answers = both.each_mut().map(|client| text(&ask(client, words)));
                assert_eq!(answers[0], answers[1], "{}", text(words[2.min(words.len() - 1)]));
            }
        }
    }
}

/// A number as clients may write it: of a few digits or of many, small, large, and at the ends.
fn number(random: &mut Stream) -> String {
    let digits = |random: &mut Stream, most| -> String {
        (0..random.below(most)).map(|_| char::from(b'0' + random.below(10) as u8)).collect()
    };
    let sign = ["", "", "-", "+"][random.below(4) as usize];
    let (whole, fraction) = (digits(random, 30), digits(random, 30));
    let exponent = match random.below(6) {
        0 => format!("e{}", random.below(40)),
        1 => format!("e-{}", random.below(40)),
        2 => format!("E{}", 4_890 + random.below(60)),
        3 => format!("e-{}", 4_900 + random.below(80)),
        _ => String::new(),
    };
    match random.below(8) {
        0 => format!("{sign}{whole}"),
        1 => (u64::MAX - random.below(4)).to_string(),
        2 => format!("{sign}0.5e-{}", random.below(30)),
        3 => ["inf", "-inf", "nan", "", "0", "-0", "1e", "."][random.below(8) as usize].into(),
        _ => format!("{sign}{whole}.{fraction}{exponent}"),
    }
}

#[test]
fn fractions_are_added_as_redis_adds_them() {
    let Some((_redis, address)) = redis() else { return };
    let server = serve(|_| {});
    let (mut ours, mut theirs) = (Client::connect(&server), Client::open(&address).unwrap());
    let mut random = Stream::new(3, Purpose::Test, 0);
    let mut sums = 0;
    for _ in 0..40 {
        let (mut all, mut asked) = (Vec::new(), Vec::new());
        for _ in 0..50 {
            let [one, other] = [number(&mut random), number(&mut random)];
            all.extend(command(&[b"SET", b"f", one.as_bytes()]));
            all.extend(command(&[b"INCRBYFLOAT", b"f", other.as_bytes()]));
            asked.push((one, other));
        }
        ours.send(&all);
        theirs.send(&all);
        for (one, other) in asked {
            let [here, there] = [&mut ours, &mut theirs].map(|client| {
                client.reply();
                text(&client.reply())
            });
            assert_eq!(here, there, "{one} + {other}");
            sums += u32::from(here.starts_with('$'));
        }
    }
    assert!(sums > 1_000, "{sums} sums");
}

#[test]
fn shared_sequences_of_bytes_are_those_of_redis() {
    let Some((_redis, address)) = redis() else { return };
    let server = serve(|_| {});
    let mut both = [Client::connect(&server), Client::open(&address).unwrap()];
    let mut random = Stream::new(11, Purpose::Test, 0);
    let options = [
        "",
        "LEN",
        "IDX",
        "IDX WITHMATCHLEN",
        "IDX MINMATCHLEN 3",
        "IDX LEN",
        "LEN MINMATCHLEN x",
        "idx withmatchlen minmatchlen -1",
        "MINMATCHLEN",
        "X",
        "WITHMATCHLEN",
    ];
    for round in 0..300 {
        let letters = 1 + random.below(4);
        let mut word = |most| -> String {
            let len = random.below(most);
            (0..len).map(|_| char::from(b'a' + random.below(letters) as u8)).collect()
        };
        let (one, other) = (word(40), word(60));
        let keys = ["one other", "one one", "one none", "none none", "one list"][round % 5];
        let words = format!("LCS {keys} {}", options[round % options.len()]);
        let [here, there] = both.each_mut().map(|client| {
            client.send(&command(&[b"SET", b"one", one.as_bytes()]));
            client.send(&command(&[b"SET", b"other", other.as_bytes()]));
            client.send(b"RPUSH list a\r\n");
            (0..3).for_each(|_| _ = client.reply());
            let words: Vec<&[u8]> = words.split_whitespace().map(str::as_bytes).collect();
            client.send(&command(&words));
            text(&client.reply())
        });
        assert_eq!(here, there, "{words} of {one} and {other}");
    }
    both[0].send(&command(&[b"SET", b"one", &[b'a'; 3_000]]));
    both[0].send(b"LCS one one\r\n");
    both[0].reply();
    assert!(text(&both[0].reply()).contains("Insufficient memory"));
}

#[test]
fn what_operators_ask_is_answered_as_by_redis() {
    for version in ["2", "3"] {
        let differ = compare(include_str!("redis/asked.txt"), version);
        assert!(differ.is_empty(), "{} differ\n{}", differ.len(), differ.join("\n"));
    }
}

/// The names of the fields in the first line of CLIENT LIST, and what it says of requests.
fn fields(client: &mut Client) -> (Vec<String>, String) {
    client.send(&command(&[b"client", b"list"]));
    let told = text(&client.reply());
    let line = told.lines().find(|line| line.contains("id=")).unwrap().to_owned();
    let names = line.split(' ').filter_map(|field| Some(field.split_once('=')?.0.to_owned()));
    let input = line.split(' ').find(|field| field.starts_with("qbuf=")).unwrap();
    (names.collect(), input.to_owned())
}

#[test]
fn client_list_has_the_fields_of_redis() {
    let Some((_redis, address)) = redis() else { return };
    let server = serve(|_| {});
    let mut both = [Client::connect(&server), Client::open(&address).unwrap()];
    let [(mut own, unread), (other, its_unread)] = both.each_mut().map(fields);
    let further = own.split_off(other.len());
    assert_eq!((own, unread), (other, its_unread));
    assert_eq!(further, ["lib-name", "lib-ver"], "as Redis 7.2 has them");
}
