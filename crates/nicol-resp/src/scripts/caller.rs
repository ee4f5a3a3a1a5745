//! A script to the commands that it calls.

use std::rc::Rc;

use super::arena::End;
use super::flags::Flags;
use super::head::Head;
use super::meter::Meter;
use crate::clock::Clock;
use crate::config::Limits;
use crate::connection::encode::Protocol;
use crate::connection::parse::Words;
use crate::transactions::planner::Planner;
use crate::transactions::record::Database;

/// A script that calls commands.
#[derive(Debug)]
pub struct Caller<'t> {
    head: Head,
    /// The rights of its user; nothing if these are all.
    pub rights: &'t [u8],
    /// Commands that write are refused.
    pub only_reads: bool,
    /// Commands that may grow are refused.
    pub spares: bool,
    /// Someone sees its commands.
    pub is_watched: bool,
    limits: Limits,
    pub database: Database,
    /// The version of the protocol in which it sees replies.
    pub version: Protocol,
    pub meter: Rc<Meter>,
    /// Keeps the arguments of its commands.
    pub kept: End<'t>,
    /// The command that it calls.
    pub words: Words,
    /// Commands over records so far.
    pub commands: u64,
    /// The error that it answers is that of a command, which has been counted.
    pub is_counted: bool,
}

impl<'t> Caller<'t> {
    /// A script with this head, rights, and what it says of itself.
    pub fn new(
        head: Head,
        rights: &'t [u8],
        flags: Flags,
        (meter, kept): (Rc<Meter>, End<'t>),
    ) -> Self {
        Self {
            head,
            rights,
            only_reads: head.only_reads || flags.only_reads(),
            spares: head.spares && !flags.may_grow(),
            is_watched: head.is_watched,
            limits: head.limits(),
            database: head.database,
            version: Protocol::Resp2,
            meter,
            kept,
            words: Words::default(),
            commands: 0,
            is_counted: false,
        }
    }

    /// Plans its command as of `now`.
    pub fn planner(&self, now: i64) -> Planner<'_> {
        Planner::new(self.database, self.head.hash_seed, &self.limits, Clock::stopped(now))
            .seeded(self.head.seed.wrapping_add(self.commands))
    }
}
