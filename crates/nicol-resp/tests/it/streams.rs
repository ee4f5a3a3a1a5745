//! Streams are those of `redis-server`: over random commands, over readers that wait, and in the
//! format in which values go from one server to another.

use std::time::Duration;

use crate::support::party::Party;
use crate::support::redis::redis;
use crate::support::waiting::{ask, clients, reply, server, still_waits, wait};
use crate::support::{Client, command, serve, text};
use nicol_core::rng::{Purpose, Stream};

/// What a placeholder of a command stands for.
const WORDS: &[(&str, &[&str])] = &[
    ("@key", &["s", "s", "s", "t", "t", "str", "none"]),
    ("@own", &["s", "s", "t"]),
    ("@group", &["g", "g", "h", "nogroup"]),
    ("@consumer", &["alice", "bob", ""]),
    (
        "@id",
        &[
            "1",
            "2-0",
            "2-1",
            "3-5",
            "5",
            "7-2",
            "9",
            "0",
            "0-0",
            "12-1",
            "x",
            "-",
            "3-",
            "1-x",
            "18446744073709551615-18446744073709551615",
            "18446744073709551616",
            "01-2",
            "+3",
        ],
    ),
    ("@new", &["1-1", "2-1", "5-*", "7-*", "9-1", "0-0", "0-1", "x", "12-*", "20-5", "21", "*-1"]),
    ("@first", &["-", "-", "-", "0", "2", "(2-1", "3", "5-0", "(", "(-", "x", "+"]),
    ("@last", &["+", "+", "+", "9", "(9", "5", "20", "(0-0", "(+", "x", "-"]),
    ("@count", &["0", "1", "2", "3", "10", "-1", "x"]),
    ("@n", &["0", "1", "2", "3", "5", "100", "-1", "x", "9223372036854775808"]),
    ("@field", &["f", "g", "field", "1", "-70000", ""]),
    ("@value", &["v", "", "10", "-300", "5000000000", "some longer value of a field", "\r\n"]),
    ("@idle", &["0", "0", "0", "100000", "-1", "x"]),
    ("@sign", &["~", "=", "x"]),
    ("@from", &[">", ">", ">", "0", "0-0", "3", "$", "x", "-"]),
    ("@after", &["0", "0", "2-1", "5", "$", ">", "x", "+"]),
];

/// Commands: what stands in brackets is mostly left out.
const COMMANDS: &[&str] = &[
    "XADD @key [NOMKSTREAM] [MAXLEN @n] [MINID @id] [LIMIT @n] @new @field @value [@field @value]",
    "XADD @own #NEXT @field @value",
    "XADD @own #NEXT f v g w",
    "XADD @own #NEXT f v [@field @value] [@field]",
    "XADD @own MAXLEN [@sign] @n [LIMIT @n] #NEXT f @value",
    "XADD @own MINID [@sign] @id [LIMIT @n] #NEXT f @value",
    "XLEN @key",
    "XRANGE @key @first @last [COUNT @count] [x]",
    "XREVRANGE @key @last @first [COUNT @count]",
    "XDEL @own @id [@id] [@id]",
    "XTRIM @key MAXLEN [@sign] @n [LIMIT @n]",
    "XTRIM @key MINID [@sign] @id [LIMIT @n]",
    "XTRIM @key [LIMIT @n] [MAXLEN @n] [MINID @id] LIMIT 0",
    "XREAD [COUNT @count] [BLOCK 1] STREAMS @own @after",
    "XREAD [COUNT @count] [BLOCK @n] [NOACK] [GROUP g c] STREAMS @key @own 0 @after",
    "XREAD [BLOCK x] [x] STREAMS @key [@after]",
    "XREADGROUP GROUP @group @consumer [COUNT @count] [NOACK] STREAMS @own @from",
    "XREADGROUP GROUP g @consumer [BLOCK 1] [COUNT @count] STREAMS s t @from @from",
    "XREADGROUP GROUP g @consumer [NOACK] COUNT 2 STREAMS @own >",
    "XREADGROUP [GROUP g alice] [COUNT @count] [x] STREAMS s t @from",
    "XGROUP CREATE @key @group @id [MKSTREAM] [ENTRIESREAD @n]",
    "XGROUP CREATE @own @group $ MKSTREAM",
    "XGROUP CREATE @own g 0 [MKSTREAM] [x]",
    "XGROUP SETID @own @group @id [ENTRIESREAD @n] [MKSTREAM]",
    "XGROUP SETID @own g $",
    "XGROUP DESTROY @key nogroup [x]",
    "XGROUP CREATECONSUMER @key @group @consumer",
    "XGROUP DELCONSUMER @key @group @consumer",
    "XGROUP @group @key",
    "XACK @key @group @id [@id] [@id]",
    "XPENDING @key @group",
    "XPENDING @key @group [IDLE @idle] @first @last @count [@consumer]",
    "XPENDING @own g - + 10 [@consumer] [x]",
    "XCLAIM @key @group @consumer @idle @id [@id] [IDLE @n] [TIME 1] [RETRYCOUNT @n] [FORCE]",
    "XCLAIM @own g @consumer @idle @id @id [JUSTID] [LASTID @id] [FORCE] [IDLE 200000] [x]",
    "XAUTOCLAIM @own @group @consumer @idle @first [COUNT @count] [JUSTID] [x]",
    "XINFO STREAM @key [FULL] [COUNT @count]",
    "XINFO STREAM @own FULL COUNT @count",
    "XINFO STREAM @own FULL",
    "XINFO STREAM @own",
    "XINFO GROUPS @key [x]",
    "XINFO CONSUMERS @key @group",
    "XINFO @group @key",
    "XSETID @own @id [ENTRIESADDED @n] [MAXDELETEDID @id]",
    "XSETID @own #NEXT [ENTRIESADDED 500] [x]",
    "COPY @own u REPLACE",
    "XRANGE u - +",
    "TYPE @key",
    "OBJECT ENCODING @key",
];

/// A command of a template. `next` counts ids that are behind all before.
fn draw(random: &mut Stream, template: &str, next: &mut u64) -> Vec<Vec<u8>> {
    let (mut words, mut skips) = (Vec::new(), false);
    for word in template.split(' ') {
        if word.starts_with('[') {
            skips = random.below(3) > 0;
        }
        let ends = word.ends_with(']');
        let bare = word.trim_matches(['[', ']']);
        if !skips {
            words.push(match WORDS.iter().find(|(name, _)| *name == bare) {
                Some((_, all)) => random.pick(all).unwrap().as_bytes().to_vec(),
                None if bare == "#NEXT" => {
                    *next += random.below(3);
                    let id = format!("{}-{}", 30 + *next / 4, 1 + *next % 4);
                    *next += 1;
                    id.into_bytes()
                }
                None => bare.as_bytes().to_vec(),
            });
        }
        if ends {
            skips = false;
        }
    }
    words
}

/// A reply without what depends on the time.
fn timeless(words: &[Vec<u8>], reply: &[u8]) -> String {
    let reply = text(reply);
    let (mut lines, mut idle) = (Vec::new(), false);
    // Of an XPENDING with a range each entry ends in how long it is idle, and a count.
    let listed = words[0] == b"XPENDING" && words.len() > 3;
    let mut numbers = 0;
    for line in reply.split("\r\n") {
        let number = line.strip_prefix(':').and_then(|number| number.parse::<u64>().ok());
        let is_time = number.is_some_and(|n| (1_000_000_000_000..10_000_000_000_000).contains(&n));
        numbers += u32::from(number.is_some());
        let hidden = is_time || number.is_some() && (idle || listed && numbers % 2 == 1);
        lines.push(if hidden { ":time" } else { line });
        idle = line == "idle";
    }
    lines.join("\n")
}

#[test]
fn random_commands_are_answered_as_by_redis() {
    let Some((_redis, redis)) = redis() else { return };
    let server = serve(|_| {});
    let own = server.address().to_string();
    let (seeds, steps) = match std::env::var("NICOL_REDIS_SEEDS") {
        Ok(seeds) => (seeds.parse().unwrap(), 5_000),
        Err(_) => (2, 1_500),
    };
    let (mut failures, mut answered) = (Vec::new(), std::collections::BTreeMap::new());
    for seed in 0..seeds {
        let mut both = [&own, &redis].map(|address| Client::open(address).unwrap());
        let mut random = Stream::new(seed, Purpose::Test, 0);
        let (mut said, mut next) = (Vec::new(), 0);
        let protocol = if seed % 2 == 0 { "2" } else { "3" };
        for client in &mut both {
            client.send(&command(&[b"HELLO", protocol.as_bytes()]));
            client.reply();
            client.send(&command(&[b"FLUSHALL"]));
            client.reply();
            client.send(&command(&[b"SET", b"str", b"1"]));
            client.reply();
        }
        for step in 0..steps {
            let words = match step % 300 {
                // From time to time all begins anew.
                0 => ["DEL", "s", "t", "u"].map(|word| word.as_bytes().to_vec()).to_vec(),
                1 => ["XGROUP", "CREATE", "s", "g", "0", "MKSTREAM"]
                    .map(|word| word.as_bytes().to_vec())
                    .to_vec(),
                _ => draw(&mut random, random_of(step, seed), &mut next),
            };
            let sent: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
            said.push(text(&sent.join(&b' ')));
            // What waits without end is sent to neither.
            if sent[0].starts_with(b"XREAD")
                && sent.windows(2).any(|two| {
                    two[0] == b"BLOCK" && matches!(two[1], b"0" | b"100" | b"5" | b"3" | b"2")
                })
            {
                continue;
            }
            let [here, there] = both.each_mut().map(|client| {
                client.send(&command(&sent));
                client.reply()
            });
            let [ours, theirs] = [&here, &there].map(|reply| timeless(&words, reply));
            if here[0] != b'-' {
                *answered.entry(text(sent[0])).or_insert(0) += 1;
            }
            if ours != theirs {
                let before = said[said.len().saturating_sub(25)..].join("\n");
                let (ours, theirs) = difference(&ours, &theirs);
                failures.push(format!("seed {seed}: {ours}\nredis: {theirs}\nafter\n{before}"));
                for client in &mut both {
                    client.send(&command(&[b"DEL", b"s", b"t", b"u"]));
                    client.reply();
                }
            }
        }
    }
    let shown = &failures[..failures.len().min(12)];
    assert!(failures.is_empty(), "{} differences: {}", failures.len(), shown.join("\n---\n"));
    for template in COMMANDS {
        let name = template.split(' ').next().unwrap();
        assert!(answered.get(name).is_some_and(|count| *count >= 5), "{name} was not answered");
    }
}

/// Some lines from before the first one on in which they differ.
fn difference(ours: &str, theirs: &str) -> (String, String) {
    let same = ours.lines().zip(theirs.lines()).take_while(|(one, other)| one == other).count();
    let some = |text: &str| {
        text.lines().skip(same.saturating_sub(4)).take(12).collect::<Vec<_>>().join(" ")
    };
    (some(ours), some(theirs))
}

/// The template of a step.
fn random_of(step: u64, seed: u64) -> &'static str {
    let mut random = Stream::new(seed << 32 | step, Purpose::Test, 1);
    // A third of all adds entries.
    match random.below(3) {
        0 => COMMANDS[1 + random.below(3) as usize],
        _ => random.pick(COMMANDS).unwrap(),
    }
}

#[test]
fn many_entries_lie_in_nodes_as_in_redis() {
    let Some((_redis, redis)) = redis() else { return };
    let server = serve(|_| {});
    let mut both = [Client::connect(&server), Client::open(&redis).unwrap()];
    let mut ask = |words: &str| {
        let [here, there] = both.each_mut().map(|client| {
            let words: Vec<&[u8]> = words.split(' ').map(str::as_bytes).collect();
            client.send(&command(&words));
            text(&client.reply())
        });
        assert_eq!(here, there, "{words}");
        here
    };
    let long = "x".repeat(500);
    for entry in 1..=1_000 {
        // Alike ones, then others, then long ones: nodes end by their number or their bytes.
        match entry {
            0..=500 => ask(&format!("XADD s {entry} item {entry} value abc")),
            501..=700 => {
                ask(&format!("XADD s {entry} item{} {entry} n {}", entry % 3, entry << 20))
            }
            _ => ask(&format!("XADD s {entry} item {long} x {}", entry % 128)),
        };
    }
    let info = ask("XINFO STREAM s");
    assert!(info.contains("radix-tree-keys"), "{info}");
    for words in [
        "XTRIM s MAXLEN ~ 955",
        "XLEN s",
        "XDEL s 150 151 152 101 199 600 1000",
        "XINFO STREAM s",
        "XTRIM s MAXLEN ~ 800 LIMIT 30",
        "XTRIM s MINID ~ 350",
        "XTRIM s MINID 355",
        "XRANGE s - + COUNT 3",
        "XTRIM s MAXLEN 555",
        "XRANGE s 440 460",
        "XREVRANGE s 702 698",
        "XTRIM s MAXLEN ~ 0 LIMIT 1",
        "XADD s MAXLEN ~ 100 2000-1 a b",
        "XLEN s",
        "XINFO STREAM s FULL COUNT 2",
        "XTRIM s MAXLEN ~ 0 LIMIT 0",
        "XINFO STREAM s",
    ] {
        ask(words);
    }
}

#[test]
fn streams_go_to_redis_and_come_from_it() {
    let Some((_redis, redis)) = redis() else { return };
    let server = serve(|_| {});
    let mut both = [Client::connect(&server), Client::open(&redis).unwrap()];
    let ask = |client: &mut Client, words: &[&[u8]]| {
        client.send(&command(words));
        client.reply()
    };
    let say = |client: &mut Client, words: &str| {
        ask(client, &words.split(' ').map(str::as_bytes).collect::<Vec<_>>())
    };
    for from in [0, 1] {
        let (one, other) = (from, 1 - from);
        say(&mut both[one], "FLUSHALL");
        say(&mut both[other], "FLUSHALL");
        for entry in 1..=250_u64 {
            say(&mut both[one], &format!("XADD s {entry}-{} f {entry} g word", entry << 40));
        }
        for words in [
            "XADD s 300 f 1",
            "XDEL s 7 8-8796093022208 300",
            "XGROUP CREATE s g 0",
            "XGROUP CREATE s h 100 ENTRIESREAD 90",
            "XGROUP CREATE s i $",
            "XGROUP CREATECONSUMER s g idle",
            "XREADGROUP GROUP g alice COUNT 20 STREAMS s >",
            "XREADGROUP GROUP g bob COUNT 5 STREAMS s >",
            "XACK s g 3-3298534883328 9-9895604649984",
            "XCLAIM s g bob 0 5-5497558138880 RETRYCOUNT 7",
            "XTRIM s MAXLEN 240",
        ] {
            assert_ne!(say(&mut both[one], words)[0], b'-', "{words}");
        }
        let payload = say(&mut both[one], "DUMP s");
        let start = payload.iter().position(|byte| *byte == b'\n').unwrap() + 1;
        let payload = payload[start..payload.len() - 2].to_vec();
        let restored = ask(&mut both[other], &[b"RESTORE", b"s", b"0", &payload]);
        assert_eq!(text(&restored), "+OK\r\n", "from {from}");
        for words in ["XINFO STREAM s FULL COUNT 0", "XINFO GROUPS s", "XPENDING s g", "TYPE s"] {
            let [here, there] = both.each_mut().map(|client| text(&say(client, words)));
            assert_eq!(here, there, "{words} from {from}");
        }
        // What is added there lies as what was added here.
        let added = both.each_mut().map(|client| {
            say(client, "XADD s 400 f 1 g 2");
            text(&say(client, "XINFO STREAM s"))
        });
        assert_eq!(added[0], added[1]);
        // A damaged one is refused, or is a stream that can be read.
        let mut random = Stream::new(5, Purpose::Test, from as u32);
        for _ in 0..100 {
            let mut damaged = payload.clone();
            let at = random.below(payload.len() as u64 - 10) as usize;
            damaged[at] = random.bits() as u8;
            let sum = damaged.len() - 8;
            let checksum = crc64(&damaged[..sum]);
            damaged[sum..].copy_from_slice(&checksum.to_le_bytes());
            ask(&mut both[0], &[b"RESTORE", b"d", b"0", &damaged, b"REPLACE"]);
            for words in ["XINFO STREAM d FULL COUNT 0", "XTRIM d MAXLEN 100", "XADD d * a b"] {
                let reply = text(&say(&mut both[0], words));
                assert!(!reply.contains("malformed"), "{reply}");
            }
        }
        assert_eq!(text(&say(&mut both[0], "PING")), "+PONG\r\n");
    }
}

/// The checksum of a payload, bit by bit.
fn crc64(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ u64::from(*byte), |crc: u64, _| {
            if crc & 1 == 1 { crc >> 1 ^ 0x95ac_9329_ac4b_c9b5 } else { crc >> 1 }
        })
    })
}

#[test]
fn an_entry_is_for_every_reader_and_for_one_of_each_group() {
    let server = server();
    let [mut one, mut two, mut first, mut second, mut other, mut adder] = clients(&server);
    for group in ["g", "h"] {
        assert_eq!(ask(&mut adder, &format!("XGROUP CREATE s {group} $ MKSTREAM")), "+OK");
    }
    wait(&mut one, "XREAD BLOCK 0 STREAMS s $");
    wait(&mut two, "XREAD BLOCK 0 STREAMS none s $ $");
    wait(&mut first, "XREADGROUP GROUP g a BLOCK 0 STREAMS s >");
    wait(&mut second, "XREADGROUP GROUP g b BLOCK 0 STREAMS s >");
    wait(&mut other, "XREADGROUP GROUP h a BLOCK 0 STREAMS s >");
    assert_eq!(ask(&mut adder, "XADD s 1-1 f v"), "$3 1-1");
    let entry = "*1 *2 $1 s *1 *2 $3 1-1 *2 $1 f $1 v";
    for client in [&mut one, &mut two, &mut first, &mut other] {
        assert_eq!(reply(client), entry);
    }
    assert!(still_waits(&mut second));
    assert_eq!(ask(&mut adder, "XADD s 1-2 f v"), "$3 1-2");
    assert_eq!(reply(&mut second), entry.replace("1-1", "1-2"));
    assert_eq!(ask(&mut adder, "XPENDING s g"), "*4 :2 $3 1-1 $3 1-2 *2 *2 $1 a $1 1 *2 $1 b $1 1");
    // What is added while nobody waits is not lost, and what `$` meant stays.
    wait(&mut one, "XREAD BLOCK 0 STREAMS s $");
    assert_eq!(ask(&mut adder, "DEL s"), ":1");
    assert_eq!(ask(&mut adder, "XADD s 1-1 f v"), "$3 1-1");
    assert!(still_waits(&mut one));
    assert_eq!(ask(&mut adder, "XADD s 1-3 f v"), "$3 1-3");
    assert_eq!(reply(&mut one), entry.replace("1-1", "1-3"));
}

#[test]
fn readers_wait_as_in_redis() {
    let Some((_redis, redis)) = redis() else { return };
    let server = server();
    let mut both = [&server.address().to_string(), &redis].map(|address| Party::open(address, 3));
    // What waits, what is done meanwhile.
    let cases = [
        ("XREAD BLOCK 0 STREAMS s $", "XADD s 900-1 a 1"),
        ("XREAD BLOCK 0 COUNT 1 STREAMS s t $ $", "MULTI ; XADD t 1 a 1 ; XADD t 2 a 2 ; EXEC"),
        ("XREAD BLOCK 20 STREAMS s $", "PING"),
        ("XREAD BLOCK 0 STREAMS l $", "RPUSH l a ; DEL l ; XADD l 5 a b"),
        ("XREAD BLOCK 0 STREAMS s 900", "XTRIM s MAXLEN 0 ; XADD s 901 a 1"),
        ("XREADGROUP GROUP g c BLOCK 0 STREAMS s >", "XADD s 902 a 1"),
        ("XREADGROUP GROUP g c BLOCK 0 NOACK STREAMS s >", "XADD s 903 a 1 ; XPENDING s g"),
        ("XREADGROUP GROUP g c BLOCK 20 STREAMS s >", "XINFO GROUPS s"),
        ("XREADGROUP GROUP g d BLOCK 0 STREAMS s >", "DEL s"),
        ("XREADGROUP GROUP g d BLOCK 0 STREAMS s >", "SET s 1"),
        ("XREADGROUP GROUP g d BLOCK 0 STREAMS s >", "MULTI ; DEL s ; SADD s e ; EXEC"),
        ("XREADGROUP GROUP g d BLOCK 0 STREAMS s >", "FLUSHALL"),
        ("XREADGROUP GROUP g d BLOCK 0 STREAMS s >", "XGROUP DESTROY s g"),
        (
            "XREADGROUP GROUP g d BLOCK 0 STREAMS s >",
            "MULTI ; XGROUP SETID s g 0 ; XADD s 904 a 1 ; EXEC",
        ),
        ("XREADGROUP GROUP g d BLOCK 0 STREAMS s >", "XGROUP DELCONSUMER s g d ; XADD s 905 a 1"),
        ("MULTI ; XREAD BLOCK 0 STREAMS s $ ; XREADGROUP GROUP g c BLOCK 0 STREAMS s > ; EXEC", ""),
    ];
    for protocol in [2, 3] {
        for (waits, meanwhile) in cases {
            let heard = both.each_mut().map(|party| {
                party.ask(0, "DEL s t l none");
                for words in ["XADD s 800 a 1", "XGROUP CREATE s g $"] {
                    party.ask(0, words);
                }
                party.ask(1, &format!("HELLO {protocol}"));
                party.ask(1, &format!("{waits} ;"));
                std::thread::sleep(Duration::from_millis(30));
                let done =
                    if meanwhile.is_empty() { String::new() } else { party.ask(0, meanwhile) };
                let heard = party.rest(1);
                let pending = party.ask(0, "XPENDING s g");
                format!("{done}\n{heard}\n{pending}")
            });
            assert_eq!(heard[0], heard[1], "{waits}: {meanwhile}");
        }
    }
}

#[test]
fn the_events_of_streams_are_those_of_redis() {
    let Some((_redis, redis)) = redis() else { return };
    let server = server();
    let mut both = [&server.address().to_string(), &redis].map(|address| Party::open(address, 2));
    let talk = [
        "XADD s 1 a b ; XADD s NOMKSTREAM MAXLEN 1 2 a b ; XADD none NOMKSTREAM 1 a b ; XADD s 1 a b",
        "XDEL s 1 ; XDEL s 2 ; XTRIM s MAXLEN 0 ; XADD s 3 a b ; XTRIM s MAXLEN 0 ; XSETID s 5",
        "XGROUP CREATE s g 0 ; XGROUP CREATE s g 0 ; XGROUP CREATE t g $ MKSTREAM",
        "XGROUP SETID s g 0 ; XGROUP CREATECONSUMER s g a ; XGROUP CREATECONSUMER s g a",
        "XADD s 6 a b ; XREADGROUP GROUP g c STREAMS s > ; XREADGROUP GROUP g c STREAMS s 0",
        "XREADGROUP GROUP g d STREAMS s t > > ; XACK s g 9 ; XCLAIM s g e 0 6 ; XCLAIM s g e 0 6",
        "XAUTOCLAIM s g f 0 0 ; XACK s g 6 ; XGROUP DELCONSUMER s g f ; XGROUP DELCONSUMER s g f",
        "XGROUP DESTROY s g ; XGROUP DESTROY s g ; COPY s u ; RENAME u v ; DEL s t v",
        "MULTI ; XADD s 1 a b ; XADD s 2 a b ; XDEL s 1 2 ; EXEC ; XREAD STREAMS none 0 ; XLEN none",
    ];
    let mut events = 0;
    for chosen in ["KEA", "Kt", "KEAmn"] {
        for party in &mut both {
            party.ask(0, "DEL s t u v ");
            party.ask(0, &format!("CONFIG SET notify-keyspace-events {chosen}"));
            party.ask(1, "PSUBSCRIBE __key*");
        }
        for words in talk {
            let [here, there] = both.each_mut().map(|party| {
                party.ask(0, words);
                party.rest(1).replace("*4 $8 pmessage $6 __key* ", "\n")
            });
            assert_eq!(here, there, "{chosen}: {words}");
            events += here.lines().count();
        }
        both.iter_mut().for_each(|party| _ = party.ask(1, "PUNSUBSCRIBE"));
    }
    assert!(events > 100, "{events} events");
}
