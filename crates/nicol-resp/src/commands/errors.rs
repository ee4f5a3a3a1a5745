//! The errors of commands that do not exist or have wrong arguments.

use crate::connection::parse::Command;

/// The error of a command that may grow while more memory is in use than allowed.
pub const OUT_OF_MEMORY: &[u8] = b"OOM command not allowed when used memory > 'maxmemory'.";
/// The error of arguments that make no sense together.
pub const SYNTAX: &[u8] = b"ERR syntax error";

/// The error of a wrong number of arguments; `name` in lower case, a subcommand after a bar.
pub fn arity_error(name: &str) -> Vec<u8> {
    format!("ERR wrong number of arguments for '{name}' command").into()
}

/// The error of a subcommand that does not exist.
pub fn unknown_subcommand(command: &Command<'_>) -> Vec<u8> {
    about_subcommand("unknown subcommand", command.arg(0), command.arg(1))
}

/// Whether an error is that of a subcommand that does not exist.
pub fn is_unknown_subcommand(error: &[u8]) -> bool {
    error.starts_with(b"ERR unknown subcommand '")
}

/// The error of a subcommand whose arguments are wrong in number or unknown.
pub fn wrong_subcommand(command: &Command<'_>) -> Vec<u8> {
    wrong_subcommand_of(command.arg(0), command.arg(1))
}

/// The same error of the subcommand `word` of the command `name`.
pub fn wrong_subcommand_of(name: &[u8], word: &[u8]) -> Vec<u8> {
    about_subcommand("unknown subcommand or wrong number of arguments for", name, word)
}

fn about_subcommand(what: &str, name: &[u8], word: &[u8]) -> Vec<u8> {
    let mut text = format!("ERR {what} '").into_bytes();
    text.extend(quoted(word, QUOTED_MAX));
    text.extend_from_slice(b"'. Try ");
    text.extend(name.to_ascii_uppercase());
    text.extend_from_slice(b" HELP.");
    text
}

/// The error of a command that does not exist, which quotes some of what was sent.
pub fn unknown_command(command: &Command<'_>) -> Vec<u8> {
    let mut error = b"ERR unknown command '".to_vec();
    error.extend(quoted(command.arg(0), QUOTED_MAX));
    error.extend_from_slice(b"', with args beginning with: ");
    let start = error.len();
    for arg in command.args(1) {
        let room = QUOTED_MAX.saturating_sub(error.len() - start);
        if room == 0 {
            break;
        }
        error.push(b'\'');
        error.extend(quoted(arg, room));
        error.extend_from_slice(b"' ");
    }
    error
}

/// Bytes of the name, and of the arguments, that an error quotes.
const QUOTED_MAX: usize = 128;

/// Redis prints C strings: up to a NUL.
fn quoted(bytes: &[u8], max: usize) -> impl Iterator<Item = u8> + '_ {
    bytes.iter().copied().take_while(|byte| *byte != 0).take(max)
}
