//! Flags and words of a command line that runs something again.

/// A field as a flag of the command.
pub(crate) fn flag(field: &str) -> String {
    format!("--{}", field.replace('_', "-"))
}

/// `text` as one word of a shell.
pub(crate) fn shell_word(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./,:=+@%".contains(&byte);
    if !text.is_empty() && text.bytes().all(plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', "'\\''"))
}
