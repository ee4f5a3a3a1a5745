//! What the commands of a plan do.

/// What is done to the records that a command of a plan names; by default, nothing: a literal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Op(u16);

impl Op {
    /// A reply that is already known: an error, or a command that needs no record.
    pub const LITERAL: Self = Self(0);
    /// Observes the keys of a WATCH.
    pub const OBSERVE: Self = Self(1);
    /// Frees what has expired in a row; answers the next deadline there, or 0.
    pub const PURGE: Self = Self(2);
    /// Answers the keys of a row, each with the number of its type.
    pub const LIST: Self = Self(3);
    /// Deletes the keys of a row; answers their number.
    pub const EMPTY: Self = Self(4);
    /// Deletes the keys of a row, or if its argument is 1 only those that expire; answers their
    /// number.
    pub const EVICT: Self = Self(5);
    /// The number of the first command of the table.
    const COMMANDS: u16 = 6;

    /// The command in place `number` of the table.
    pub const fn command(number: u16) -> Self {
        Self(Self::COMMANDS + number)
    }

    /// The place in the table, if it is a command.
    pub fn place(self) -> Option<usize> {
        self.0.checked_sub(Self::COMMANDS).map(usize::from)
    }

    /// As a plan has it.
    pub const fn number(self) -> u16 {
        self.0
    }

    /// The reverse of [`Op::number`].
    pub const fn of_number(number: u16) -> Self {
        Self(number)
    }
}
