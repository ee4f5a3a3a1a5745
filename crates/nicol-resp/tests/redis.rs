//! Replies are those of the `redis-server` of this machine over random conversations. Without one
//! installed, these tests say so and pass: the golden conversations hold in any case.

mod support;

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
