//! The first line of a script or library that says what it is: `#!lua name=... flags=...`.

use super::flags::Flags;

/// What the line of a script says.
///
/// # Errors
/// The text that the command answers.
pub fn of_script(text: &[u8]) -> Result<Flags, Vec<u8>> {
    if !text.starts_with(b"#!") {
        return Ok(Flags::default());
    }
    let Some(end) = text.iter().position(|byte| *byte == b'\n') else {
        return Err(b"ERR Invalid script shebang".to_vec());
    };
    let mut words = text[..end].split(|byte| *byte == b' ').filter(|word| !word.is_empty());
    let engine = words.next().unwrap_or_default();
    if engine != b"#!lua" {
        return Err([b"ERR Unexpected engine in script shebang: ", engine].concat());
    }
    let mut flags = Flags::declared();
    for word in words {
        let Some(list) = word.strip_prefix(b"flags=") else {
            return Err([b"ERR Unknown lua shebang option: ", word].concat());
        };
        for flag in list.split(|byte| *byte == b',').filter(|flag| !flag.is_empty()) {
            if !flags.add(flag) {
                return Err([b"ERR Unexpected flag in script shebang: ", flag].concat());
            }
        }
    }
    Ok(flags)
}

/// The name that the line of a library gives, and the code as Lua reads it: without the line's
/// words, so that lines count from it.
///
/// # Errors
/// The text that FUNCTION answers.
pub fn of_library(code: &[u8]) -> Result<(String, &[u8]), Vec<u8>> {
    let missing = || b"ERR Missing library metadata".to_vec();
    let rest = code.strip_prefix(b"#!").ok_or_else(missing)?;
    let end = rest.iter().position(|byte| *byte == b'\n').ok_or(b"ERR Invalid library metadata")?;
    let mut words = rest[..end].split(|byte| *byte == b' ');
    let engine = words.next().unwrap_or_default();
    let mut name = None;
    for word in words.filter(|word| !word.is_empty()) {
        let Some(given) = word.strip_prefix(b"name=") else {
            return Err([b"ERR Invalid metadata value given: ", word].concat());
        };
        let quoted = given.strip_prefix(b"\"").and_then(|given| given.strip_suffix(b"\""));
        if name.replace(quoted.unwrap_or(given)).is_some() {
            let text = "ERR Invalid metadata value, name argument was given multiple times";
            return Err(text.into());
        }
    }
    let is_missing = engine.is_empty() && name.is_none();
    if !is_missing && !engine.eq_ignore_ascii_case(b"lua") {
        return Err([b"ERR Engine '", engine, b"' not found"].concat());
    }
    let name = name.ok_or(b"ERR Library name was not given")?;
    let name = checked_name(name).ok_or(BAD_NAME)?;
    Ok((name, &rest[end..]))
}

/// The error of a name that is none.
pub const BAD_NAME: &[u8] = b"ERR Library names can only contain letters, numbers, or \
                              underscores(_) and must be at least one character long";

/// A name of a library or function, if `text` is one.
pub fn checked_name(text: &[u8]) -> Option<String> {
    let fits = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    let name = std::str::from_utf8(text).ok()?;
    (!text.is_empty() && text.iter().all(fits)).then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_what_a_script_may_do() {
        assert!(!of_script(b"return 1").unwrap().only_reads());
        assert!(of_script(b"#!lua flags=no-writes,allow-oom\n").unwrap().only_reads());
        let error = |text: &[u8]| String::from_utf8(of_script(text).unwrap_err()).unwrap();
        assert!(error(b"#!lua").contains("Invalid script shebang"));
        assert!(error(b"#!python\n").contains("Unexpected engine in script shebang: #!python"));
        assert!(error(b"#!lua flags=x\n").contains("Unexpected flag in script shebang: x"));
        assert!(error(b"#!lua name=x\n").contains("Unknown lua shebang option: name=x"));
    }

    #[test]
    fn a_library_has_a_name() {
        assert_eq!(of_library(b"#!lua name=a_1\nx").unwrap(), ("a_1".into(), &b"\nx"[..]));
        for wrong in ["x", "#!lua\n", "#!lua name=a-b\n", "#!lua name=a name=b\n", "#!js name=a\n"]
        {
            assert!(of_library(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }
}
