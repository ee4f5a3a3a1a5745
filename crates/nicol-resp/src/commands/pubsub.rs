//! Publish and subscribe; `crate::admin` answers.

use super::spec::{Admin, InMulti, Spec};
use crate::pubsub::Scope;

const LISTEN: &[&str] = &["pubsub", "noscript", "loading", "stale"];
const SEND: &[&str] = &["pubsub", "loading", "stale", "fast"];
const TELL: &[&str] = &["pubsub", "loading", "stale"];

pub const COMMANDS: &[Spec] = &[
    listen("psubscribe", -2, Admin::Subscribe(Scope::Patterns), "Listen to channels by patterns"),
    send("publish", Admin::Publish { sharded: false }, "Send a message to a channel"),
    Spec::admin(
        PUBSUB,
        "pubsub",
        -2,
        TELL,
        (Admin::PubSub, InMulti::Queued),
        "Tell who listens to what",
    ),
    listen(
        "punsubscribe",
        -1,
        Admin::Unsubscribe(Scope::Patterns),
        "Stop listening to channels by patterns",
    ),
    send("spublish", Admin::Publish { sharded: true }, "Send a message to a sharded channel"),
    listen("ssubscribe", -2, Admin::Subscribe(Scope::Shards), "Listen to sharded channels"),
    listen("subscribe", -2, Admin::Subscribe(Scope::Channels), "Listen to channels"),
    listen("sunsubscribe", -1, Admin::Unsubscribe(Scope::Shards), "Leave sharded channels"),
    listen("unsubscribe", -1, Admin::Unsubscribe(Scope::Channels), "Leave channels"),
];

const PUBSUB: &str = "pubsub";

const fn listen(name: &'static str, arity: i32, admin: Admin, summary: &'static str) -> Spec {
    Spec::admin(PUBSUB, name, arity, LISTEN, (admin, InMulti::Refused), summary)
}

const fn send(name: &'static str, admin: Admin, summary: &'static str) -> Spec {
    Spec::admin(PUBSUB, name, 3, SEND, (admin, InMulti::Planned), summary)
}
