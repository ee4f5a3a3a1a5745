//! Replies are those of the `redis-server` of this machine over random conversations. Without one
//! installed, these tests say so and pass: the golden conversations hold in any case.

mod support;

use support::collections;
use support::redis::{converse, redis};
use support::serve;

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
