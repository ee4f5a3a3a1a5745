//! The tokens of a JSON text, as lua-cjson reads them.

/// A token.
#[derive(Clone, Debug, PartialEq)]
pub enum Token {
    ObjectBegin,
    ObjectEnd,
    ArrayBegin,
    ArrayEnd,
    Colon,
    Comma,
    Text(Vec<u8>),
    Number(f64),
    Boolean(bool),
    Null,
    End,
    /// None, and why.
    Wrong(&'static str),
}

impl Token {
    /// What an error says that was found.
    pub fn name(&self) -> &'static str {
        match self {
            Self::ObjectBegin => "T_OBJ_BEGIN",
            Self::ObjectEnd => "T_OBJ_END",
            Self::ArrayBegin => "T_ARR_BEGIN",
            Self::ArrayEnd => "T_ARR_END",
            Self::Colon => "T_COLON",
            Self::Comma => "T_COMMA",
            Self::Text(_) => "T_STRING",
            Self::Number(_) => "T_NUMBER",
            Self::Boolean(_) => "T_BOOLEAN",
            Self::Null => "T_NULL",
            Self::End => "T_END",
            Self::Wrong(why) => why,
        }
    }
}

/// Reads tokens one after the other.
pub struct Tokens<'a> {
    text: &'a [u8],
    /// Where the next one is looked for.
    at: usize,
    /// Whether numbers are taken that C reads and JSON does not have.
    takes_any_number: bool,
}

impl<'a> Tokens<'a> {
    pub fn new(text: &'a [u8], takes_any_number: bool) -> Self {
        Self { text, at: 0, takes_any_number }
    }

    /// The next token, and where it, or what is wrong with it, stands: counted from 1.
    pub fn next(&mut self) -> (Token, usize) {
        let rest = &self.text[self.at..];
        let blank = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
        self.at += rest.iter().take_while(|byte| blank(byte)).count();
        let rest = &self.text[self.at..];
        let place = self.at + 1;
        let (token, len) = match rest {
            [] => (Token::End, 0),
            [b'{', ..] => (Token::ObjectBegin, 1),
            [b'}', ..] => (Token::ObjectEnd, 1),
            [b'[', ..] => (Token::ArrayBegin, 1),
            [b']', ..] => (Token::ArrayEnd, 1),
            [b':', ..] => (Token::Colon, 1),
            [b',', ..] => (Token::Comma, 1),
            [b'"', ..] => return self.text(),
            [b't', b'r', b'u', b'e', ..] => (Token::Boolean(true), 4),
            [b'f', b'a', b'l', b's', b'e', ..] => (Token::Boolean(false), 5),
            [b'n', b'u', b'l', b'l', ..] => (Token::Null, 4),
            [first, ..] => {
                let is_odd = is_odd(rest);
                let begins = matches!(first, b'-' | b'0'..=b'9');
                let takes = if is_odd { self.takes_any_number } else { begins };
                match number(rest).filter(|_| takes) {
                    Some((number, len)) => (Token::Number(number), len),
                    None if begins => (Token::Wrong("invalid number"), 0),
                    None => (Token::Wrong("invalid token"), 0),
                }
            }
        };
        self.at += len;
        (token, place)
    }

    /// A text, whose quote stands next.
    fn text(&mut self) -> (Token, usize) {
        let place = self.at + 1;
        let mut text = Vec::new();
        self.at += 1;
        loop {
            match &self.text[self.at..] {
                [] => return (Token::Wrong("unexpected end of string"), self.at + 1),
                [b'"', ..] => break,
                [b'\\', b'u', rest @ ..] => match unicode(rest) {
                    Some((letter, len)) => {
                        text.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes());
                        self.at += 2 + len;
                    }
                    None => {
                        return (Token::Wrong("invalid unicode escape code"), self.at + 1);
                    }
                },
                [b'\\', escape, ..] => {
                    let byte = match escape {
                        b'"' | b'\\' | b'/' => *escape,
                        b'b' => 8,
                        b'f' => 12,
                        b'n' => b'\n',
                        b'r' => b'\r',
                        b't' => b'\t',
                        _ => return (Token::Wrong("invalid escape code"), self.at + 1),
                    };
                    text.push(byte);
                    self.at += 2;
                }
                [b'\\'] => return (Token::Wrong("invalid escape code"), self.at + 1),
                [byte, ..] => {
                    text.push(*byte);
                    self.at += 1;
                }
            }
        }
        self.at += 1;
        (Token::Text(text), place)
    }
}

/// The letter of `\u` and what follows, and in how many bytes it says it.
fn unicode(rest: &[u8]) -> Option<(char, usize)> {
    let digits = |rest: &[u8]| {
        let digits = std::str::from_utf8(rest.get(..4)?).ok()?;
        let all = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        u32::from_str_radix(digits, 16).ok().filter(|_| all)
    };
    let first = digits(rest)?;
    if !(0xd800..0xdc00).contains(&first) {
        return Some((char::from_u32(first)?, 4));
    }
    let second = digits(rest[4..].strip_prefix(b"\\u")?)?;
    let low = second.checked_sub(0xdc00).filter(|low| *low < 0x400)?;
    Some((char::from_u32(0x1_0000 + ((first - 0xd800) << 10) + low)?, 10))
}

/// Whether it is a number in C, if it is one at all, that JSON does not have.
fn is_odd(text: &[u8]) -> bool {
    let named = |text: &[u8], name: &[u8]| {
        text.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name))
    };
    let unsigned = text.strip_prefix(b"-").unwrap_or(text);
    match unsigned {
        [b'+', ..] => true,
        [b'0', next, ..] => matches!(next, b'x' | b'X' | b'0'..=b'9'),
        [b'0'..=b'9', ..] => false,
        rest => named(rest, b"inf") || named(rest, b"nan"),
    }
}

/// The number with which `text` begins, as `strtod` reads it, and its bytes.
fn number(text: &[u8]) -> Option<(f64, usize)> {
    let signs = usize::from(matches!(text.first(), Some(b'-' | b'+')));
    let sign = if text.first() == Some(&b'-') { -1.0 } else { 1.0 };
    let rest = &text[signs..];
    let named =
        |name: &[u8]| rest.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name));
    for (name, value) in
        [(&b"infinity"[..], f64::INFINITY), (b"inf", f64::INFINITY), (b"nan", f64::NAN)]
    {
        if named(name) {
            return Some((sign * value, signs + name.len()));
        }
    }
    if named(b"0x") {
        let digits = rest[2..].iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
        if digits > 0 {
            let digit = |byte: &u8| f64::from((*byte as char).to_digit(16).unwrap_or(0));
            let value = rest[2..2 + digits].iter().fold(0.0, |all, byte| all * 16.0 + digit(byte));
            return Some((sign * value, signs + 2 + digits));
        }
    }
    let digits = |from: usize| rest[from..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let mut len = digits(0);
    let mut any = len > 0;
    if rest.get(len) == Some(&b'.') {
        let behind = digits(len + 1);
        any |= behind > 0;
        len += 1 + behind;
    }
    if !any {
        return None;
    }
    if matches!(rest.get(len), Some(b'e' | b'E')) {
        let signed = usize::from(matches!(rest.get(len + 1), Some(b'-' | b'+')));
        let exponent = if len + 1 + signed <= rest.len() { digits(len + 1 + signed) } else { 0 };
        if exponent > 0 {
            len += 1 + signed + exponent;
        }
    }
    let value: f64 = std::str::from_utf8(&rest[..len]).ok()?.parse().ok()?;
    Some((sign * value, signs + len))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_far_as_they_go() {
        for (text, number, len) in [
            ("1.5]", 1.5, 3),
            ("-1e3,", -1000.0, 4),
            ("1e", 1.0, 1),
            ("0x1fg", 31.0, 4),
            ("5.", 5.0, 2),
            ("-inf", f64::NEG_INFINITY, 4),
        ] {
            assert_eq!(super::number(text.as_bytes()), Some((number, len)), "{text}");
        }
        assert_eq!(super::number(b"."), None);
        assert!(is_odd(b"01") && is_odd(b"+1") && is_odd(b"-nan") && !is_odd(b"0.1"));
    }

    #[test]
    fn every_escape_is_a_letter() {
        let mut tokens = Tokens::new(br#" "a\u00e9\ud83d\ude00\n\/" "#, false);
        let text = "a\u{e9}\u{1f600}\n/".as_bytes().to_vec();
        assert_eq!(tokens.next(), (Token::Text(text), 2));
        assert_eq!(tokens.next(), (Token::End, 28));
    }
}
