//! The RESP server, tested through its sockets, and against a redis-server where one is installed.

mod acl;
mod back_pressure;
mod batch;
mod blocking;
mod clients;
mod events;
mod eviction;
mod fuzz;
mod golden;
mod keys;
mod large;
mod limits;
mod metrics;
mod parse;
mod pubsub;
mod redis;
mod script_runs;
mod scripts;
mod server;
mod streams;
mod support;
mod tls;
mod tracking;
mod walks;
