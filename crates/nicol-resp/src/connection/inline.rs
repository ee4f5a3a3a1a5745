//! Inline requests: a line of words with the quoting of the Redis command line.

/// Splits `line` into words, appends their bytes to `words` and reports each word's place there.
///
/// Double quotes understand `\n \r \t \b \a \xHH` and `\` before any other byte; single quotes
/// understand `\'`. `None`: a quote is left open, or a closing quote is not followed by a space.
pub fn split(line: &[u8], words: &mut Vec<u8>, mut word: impl FnMut(usize, usize)) -> Option<()> {
    let mut rest = line;
    loop {
        let blank = rest.iter().take_while(|byte| is_space(**byte)).count();
        rest = &rest[blank..];
        if rest.is_empty() {
            return Some(());
        }
        let start = words.len();
        while let Some((&byte, after)) = rest.split_first() {
            match byte {
                b'"' => rest = quoted(after, words, b'"', double_quoted)?,
                b'\'' => rest = quoted(after, words, b'\'', single_quoted)?,
                // A NUL ends the line for Redis; here it ends the word.
                byte if is_space(byte) || byte == 0 => {
                    rest = after;
                    break;
                }
                byte => {
                    words.push(byte);
                    rest = after;
                    continue;
                }
            }
            break;
        }
        word(start, words.len() - start);
    }
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c)
}

/// What one step inside quotes made of the rest: the bytes it used and the byte it stands for.
type Unquote = fn(&[u8]) -> (usize, u8);

/// Copies up to the closing quote; returns what follows it.
fn quoted<'a>(
    mut rest: &'a [u8],
    words: &mut Vec<u8>,
    quote: u8,
    unquote: Unquote,
) -> Option<&'a [u8]> {
    loop {
        let first = *rest.first()?;
        if first == quote {
            rest = &rest[1..];
            let closed = rest.first().is_none_or(|next| is_space(*next));
            return closed.then_some(rest);
        }
        let (used, byte) = unquote(rest);
        words.push(byte);
        rest = &rest[used..];
    }
}

fn double_quoted(rest: &[u8]) -> (usize, u8) {
    match *rest {
        [b'\\', b'x', high, low, ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
            (4, hex(high) << 4 | hex(low))
        }
        [b'\\', escaped, ..] => {
            let byte = match escaped {
                b'n' => b'\n',
                b'r' => b'\r',
                b't' => b'\t',
                b'b' => 0x08,
                b'a' => 0x07,
                other => other,
            };
            (2, byte)
        }
        [byte, ..] => (1, byte),
        [] => (0, 0),
    }
}

fn single_quoted(rest: &[u8]) -> (usize, u8) {
    match *rest {
        [b'\\', b'\'', ..] => (2, b'\''),
        [byte, ..] => (1, byte),
        [] => (0, 0),
    }
}

fn hex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        b'a'..=b'f' => digit - b'a' + 10,
        _ => digit.wrapping_sub(b'A').wrapping_add(10),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &[u8]) -> Option<Vec<Vec<u8>>> {
        let (mut bytes, mut spans) = (Vec::new(), Vec::new());
        split(line, &mut bytes, |start, len| spans.push((start, len)))?;
        Some(spans.iter().map(|&(start, len)| bytes[start..start + len].to_vec()).collect())
    }

    #[test]
    fn words_are_split_with_the_quoting_of_the_redis_command_line() {
        let case = |line: &[u8], expected: &[&[u8]]| {
            assert_eq!(words(line).unwrap(), expected, "{}", String::from_utf8_lossy(line));
        };
        case(b"  set  k\tv ", &[b"set", b"k", b"v"]);
        case(br#"set "a b" 'c d'"#, &[b"set", b"a b", b"c d"]);
        case(br#""\x41\n\"\q" '\'\n'"#, &[b"A\n\"q", b"'\\n"]);
        case(br#"pre"quoted" ''"#, &[b"prequoted", b""]);
        case(b"", &[]);
        for bad in [&br#""open"#[..], b"'open", br#""a"b"#, b"'a'b", br#""\"#] {
            assert_eq!(words(bad), None, "{}", String::from_utf8_lossy(bad));
        }
    }
}
