//! The commands that the front answers; `crate::admin` says what.

use super::key_places::KeyPlaces;
use super::spec::{Admin, InMulti, Spec, Whole};

const CLIENT: &[&str] = &["noscript", "loading", "stale", "fast"];
const NO_AUTH: &[&str] = &["noscript", "loading", "stale", "fast", "no_auth"];
const FAST: &[&str] = &["fast"];
const NO_SCRIPT: &[&str] = &["noscript"];
const NO_SCRIPT_SERVER: &[&str] = &["noscript", "loading", "stale"];
const SERVER: &[&str] = &["loading", "stale"];
const REPLICA: &[&str] = &["admin", "noscript", "loading", "stale"];
const ADMIN: &[&str] = &["admin", "noscript"];
const LOADING: &[&str] = &["loading", "stale", "fast"];

const REFUSED: InMulti = InMulti::Refused;
const AT_ONCE: InMulti = InMulti::AtOnce;

pub const COMMANDS: &[Spec] = &[
    server(
        "bgrewriteaof",
        1,
        ADMIN,
        Admin::Server(Whole::BgRewriteAof),
        "Say whether every write is on the disk",
    ),
    server(
        "bgsave",
        -1,
        ADMIN,
        Admin::Server(Whole::BgSave),
        "Say whether every write is on the disk",
    ),
    connection("asking", 1, FAST, Admin::Cluster, "A command of Redis Cluster: this is none"),
    connection("readonly", 1, LOADING, Admin::Cluster, "A command of Redis Cluster: this is none"),
    connection("readwrite", 1, LOADING, Admin::Cluster, "A command of Redis Cluster: this is none"),
    server(
        "debug",
        -2,
        REPLICA,
        Admin::Server(Whole::Debug),
        "Refused: the server has no commands to debug it",
    ),
    alone(
        "failover",
        -1,
        Admin::Server(Whole::Replicate),
        "Refused: no other server follows this one",
    ),
    server(
        "lastsave",
        1,
        LOADING,
        Admin::Server(Whole::LastSave),
        "Return when all writes were on the disk",
    ),
    server(
        "lolwut",
        -1,
        &["readonly", "fast"],
        Admin::Server(Whole::Lolwut),
        "Show a picture, and the versions",
    ),
    alone("module", -2, Admin::Server(Whole::Module), "Refused: this server loads no modules"),
    alone(
        "psync",
        -3,
        Admin::Server(Whole::Replicate),
        "Refused: no other server follows this one",
    ),
    alone(
        "replconf",
        -1,
        Admin::Server(Whole::Replicate),
        "Refused: no other server follows this one",
    ),
    alone(
        "replicaof",
        3,
        Admin::Server(Whole::ReplicaOf),
        "Accept NO ONE: this server follows no other",
    ),
    server(
        "role",
        1,
        CLIENT,
        Admin::Server(Whole::Role),
        "Return the role of the server: a master",
    ),
    alone("save", 1, Admin::Server(Whole::Save), "Say whether every write is on the disk"),
    alone("shutdown", -1, Admin::Server(Whole::Shutdown), "End the server as SIGTERM does"),
    alone(
        "slaveof",
        3,
        Admin::Server(Whole::ReplicaOf),
        "Accept NO ONE: this server follows no other",
    ),
    alone("sync", 1, Admin::Server(Whole::Replicate), "Refused: no other server follows this one"),
    server("acl", -2, NO_SCRIPT_SERVER, Admin::Acl, "Tell and change users and their rights"),
    Spec::admin(
        CONNECTION,
        "auth",
        -2,
        NO_AUTH,
        (Admin::Auth, REFUSED),
        "Authenticate to the server",
    ),
    connection("client", -2, CLIENT, Admin::Client, "Commands about the connection"),
    queued(
        "cluster",
        "cluster",
        -2,
        NO_SCRIPT_SERVER,
        Admin::Cluster,
        "Commands about a Redis Cluster: not one",
    ),
    server("command", -1, SERVER, Admin::Command, "Describe the commands"),
    server("config", -2, SERVER, Admin::Config, "Read and change the configuration"),
    server("dbsize", 1, &["readonly", "fast"], Admin::DbSize, "Return the number of records"),
    connection("echo", 2, FAST, Admin::Echo, "Echo the given string"),
    at_once("discard", 1, Admin::Discard, "Discard all commands issued after MULTI"),
    Spec::admin(
        "transactions",
        "exec",
        1,
        NO_SCRIPT_SERVER,
        (Admin::Exec, AT_ONCE),
        "Execute all commands issued after MULTI",
    ),
    walk("flushall", -1, &["write"], Admin::FlushAll, "Delete the keys of every database"),
    walk("flushdb", -1, &["write"], Admin::FlushDb, "Delete the keys of the database"),
    Spec::admin(
        CONNECTION,
        "hello",
        -1,
        NO_AUTH,
        (Admin::Hello, InMulti::Queued),
        "Handshake with the server",
    ),
    server("info", -1, SERVER, Admin::Info, "Get information and statistics about the server"),
    walk("keys", 2, &["readonly"], Admin::Keys, "List the keys that match a pattern"),
    server("latency", -2, SERVER, Admin::Latency, "Tell how long commands took"),
    Spec::admin(
        "server",
        "monitor",
        1,
        &["admin", "noscript", "loading", "stale"],
        (Admin::Monitor, REFUSED),
        "Show every command",
    ),
    at_once("multi", 1, Admin::Multi, "Mark the start of a transaction"),
    connection("ping", -1, FAST, Admin::Ping, "Ping the server"),
    Spec::admin(CONNECTION, "quit", -1, NO_AUTH, (Admin::Quit, AT_ONCE), "Close the connection"),
    walk("randomkey", 1, &["readonly"], Admin::RandomKey, "Return a key, any one"),
    Spec::admin(CONNECTION, "reset", 1, NO_AUTH, (Admin::Reset, AT_ONCE), "Reset the connection"),
    walk("scan", -2, &["readonly"], Admin::Scan, "List the keys, some at a time"),
    connection("select", 2, LOADING, Admin::Select, "Change the database, 0 to 15"),
    server("slowlog", -2, SERVER, Admin::SlowLog, "Tell the slowest commands"),
    server("time", 1, LOADING, Admin::Time, "Return the server's time"),
    queued(
        "generic",
        "wait",
        3,
        NO_SCRIPT,
        Admin::Wait,
        "Return the number of replicas of each write",
    ),
    Spec::admin(
        "transactions",
        "unwatch",
        1,
        CLIENT,
        (Admin::Unwatch, InMulti::Ok),
        "Forget all watched keys",
    ),
    at_once("watch", -2, Admin::Watch, "Watch keys, so that EXEC depends on them")
        .with_keys(KeyPlaces::ALL),
];

const CONNECTION: &str = "connection";

const fn connection(
    name: &'static str,
    arity: i32,
    flags: &'static [&'static str],
    admin: Admin,
    summary: &'static str,
) -> Spec {
    queued(CONNECTION, name, arity, flags, admin, summary)
}

const fn server(
    name: &'static str,
    arity: i32,
    flags: &'static [&'static str],
    admin: Admin,
    summary: &'static str,
) -> Spec {
    queued("server", name, arity, flags, admin, summary)
}

/// One of an operator that is no part of a MULTI.
const fn alone(name: &'static str, arity: i32, admin: Admin, summary: &'static str) -> Spec {
    Spec::admin("server", name, arity, ADMIN, (admin, REFUSED), summary)
}

const fn at_once(name: &'static str, arity: i32, admin: Admin, summary: &'static str) -> Spec {
    Spec::admin("transactions", name, arity, CLIENT, (admin, AT_ONCE), summary)
}

/// One that goes over all keys: many transactions, and so none of a MULTI.
const fn walk(
    name: &'static str,
    arity: i32,
    flags: &'static [&'static str],
    admin: Admin,
    summary: &'static str,
) -> Spec {
    Spec::admin("generic", name, arity, flags, (admin, REFUSED), summary)
}

const fn queued(
    group: &'static str,
    name: &'static str,
    arity: i32,
    flags: &'static [&'static str],
    admin: Admin,
    summary: &'static str,
) -> Spec {
    Spec::admin(group, name, arity, flags, (admin, InMulti::Queued), summary)
}
