//! Which commands of a transaction were called, failed and were rejected, beside what its front
//! counts by itself.

use std::collections::BTreeMap;

use crate::stats::code_of;

/// The calls and errors of one transaction.
#[derive(Debug, Default)]
pub struct Tally {
    /// By the place in the table: calls, those that failed, and those that were rejected.
    pub commands: BTreeMap<u16, [u32; 3]>,
    /// By code.
    pub errors: BTreeMap<Vec<u8>, u32>,
    /// The error of the command under way has been counted.
    is_counted: bool,
}

impl Tally {
    /// A command is called that the front does not count: by a script, or with wrong options.
    pub fn called(&mut self, place: u16) {
        self.of(place)[0] += 1;
    }

    /// A command, if it is known which, has answered `error`.
    pub fn failed(&mut self, place: Option<u16>, error: &[u8]) {
        if let Some(place) = place {
            self.of(place)[1] += 1;
        }
        if !std::mem::take(&mut self.is_counted) {
            self.error(error);
        }
    }

    /// A command, if it is known which, was refused with `error`.
    pub fn rejected(&mut self, place: Option<u16>, error: &[u8]) {
        if let Some(place) = place {
            self.of(place)[2] += 1;
        }
        self.error(error);
    }

    /// The error that the script under way answers is that of a command, which has been counted.
    pub fn is_counted(&mut self) {
        self.is_counted = true;
    }

    fn error(&mut self, error: &[u8]) {
        *self.errors.entry(code_of(error).to_vec()).or_default() += 1;
    }

    fn of(&mut self, place: u16) -> &mut [u32; 3] {
        self.commands.entry(place).or_default()
    }
}
