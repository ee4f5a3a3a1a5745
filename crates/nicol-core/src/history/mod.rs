//! Histories: what clients asked for and what they were told. A family's driver records a
//! [`History`]; `nicol-check` judges it by its [`Promise`].

mod operation;
mod promise;

pub use operation::{
    Action, Crash, Effect, End, Found, History, Initial, Key, Loaded, Operation, Read, Scan, Txn,
    Write, digest,
};
pub use promise::{Persistency, Promise};
