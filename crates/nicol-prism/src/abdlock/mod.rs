//! ABDLOCK: replicated blocks over plain verbs, with a lock before each block. The baseline that
//! the paper adapts from DrTM. [PRISM21 7.2]
//!
//! | step | at each replica | function in `client.rs` |
//! |---|---|---|
//! | lock | CAS 0 to the operation's name, until a majority has granted; else unlock and back off | `lock` |
//! | read phase | READ of `tag`, value, at f + 1 of those that are locked | `read` |
//! | write phase | WRITE of `tag`, value, at all that are locked by then (AMB-54) | `write` |
//! | unlock | CAS of the name to 0 | `unlock` |
//!
//! `abdlock-software` posts the same verbs to the software that executes PRISM's chains
//! ([`Verbs`](crate::Verbs)).
//!
//! What the paper leaves open: *"a protocol to force release locks if a client fails part way"* is
//! a server's own. A lock names its holder's engine and life; once a view says that the holder is
//! gone, and some time for what is under way has passed, the server releases it (`server.rs`). The
//! hazard of any such protocol remains: a client that is not dead but out of the view, and whose
//! WRITE comes later still, overwrites what others have written since; and one that died within a
//! WRITE may leave a value of two halves. *"Additional locks at the remaining replicas"*: an
//! operation whose majority breaks begins anew, under the same tag.

mod broken;
mod client;
mod config;
mod node;
mod server;
mod start;

pub use broken::Sabotage;
pub use client::Client;
pub use config::{AbdlockConfig, WriteTo};
pub use node::Node;
