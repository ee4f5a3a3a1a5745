//! Replies are those of the `redis-server` of this machine over random conversations. Without one
//! installed, these tests say so and pass: the golden conversations hold in any case.

mod support;

use nicol_core::rng::{Purpose, Stream};
use support::collections;
use support::redis::{converse, redis};
use support::{Client, command, serve, text};

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
