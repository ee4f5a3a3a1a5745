//! A Rust file as the text rules see it: what is code, what is a comment, what is a test.

use std::ops::Range;

/// A Rust file, cut into code, comments and tests without parsing it.
#[derive(Debug)]
pub struct Source<'a> {
    /// The file as it is.
    pub text: &'a str,
    /// The same with comments and the insides of literals blanked: equal length, equal lines.
    pub code: String,
    tests: Vec<Range<usize>>,
    test_modules: Vec<&'a str>,
}

impl<'a> Source<'a> {
    /// Cuts `text` up.
    pub fn new(text: &'a str) -> Self {
        let mut source =
            Self { text, code: mask(text), tests: Vec::new(), test_modules: Vec::new() };
        for (range, content) in source.attributes() {
            let content: String =
                source.code[content].split_whitespace().collect::<Vec<_>>().concat();
            if content != "cfg(test)" {
                continue;
            }
            if source.code[range.clone()].starts_with("#!") {
                source.tests.push(0..text.len());
                continue;
            }
            let item = source.item_end(range.end);
            if let Some(name) = module_declared(&text[range.end..item]) {
                source.test_modules.push(name);
            }
            source.tests.push(range.start..item);
        }
        source
    }

    /// The line of a byte, from 1.
    pub fn line(&self, at: usize) -> usize {
        1 + self.text.as_bytes()[..at].iter().filter(|byte| **byte == b'\n').count()
    }

    /// Is the byte inside of an item that only tests compile?
    pub fn is_test(&self, at: usize) -> bool {
        self.tests.iter().any(|range| range.contains(&at))
    }

    /// Modules of other files that only tests compile.
    pub fn test_modules(&self) -> &[&'a str] {
        &self.test_modules
    }

    /// Where `path` (`Instant`, `thread::spawn`) stands in the code as whole words.
    pub fn words(&self, path: &str) -> Vec<usize> {
        let whole = |at: usize| {
            let before = self.code[..at].bytes().next_back();
            let after = self.code[at + path.len()..].bytes().next();
            !before.is_some_and(is_name) && !after.is_some_and(is_name)
        };
        self.code.match_indices(path).map(|(at, _)| at).filter(|at| whole(*at)).collect()
    }

    /// The literals: strings and characters, with their quotes.
    pub fn literals(&self) -> Vec<Range<usize>> {
        let bytes = self.text.as_bytes();
        let (mut found, mut at) = (Vec::new(), 0);
        while at < bytes.len() {
            let (kept, end) = token(bytes, at);
            if !kept && bytes[at] != b'/' {
                found.push(at..end);
            }
            at = end;
        }
        found
    }

    /// Every attribute: its range, and the range inside of its brackets.
    pub fn attributes(&self) -> Vec<(Range<usize>, Range<usize>)> {
        let mut found = Vec::new();
        for (at, _) in self.code.match_indices('#') {
            let rest = &self.code[at + 1..];
            let open = at + 1 + usize::from(rest.starts_with('!'));
            if self.code[open..].starts_with('[') {
                let end = self.closing(open);
                found.push((at..end, open + 1..end.saturating_sub(1).max(open + 1)));
            }
        }
        found
    }

    /// The byte behind the bracket that closes the one at `open`.
    pub fn closing(&self, open: usize) -> usize {
        let mut depth = 0_usize;
        for (at, byte) in self.code.bytes().enumerate().skip(open) {
            match byte {
                b'(' | b'[' | b'{' => depth += 1,
                b')' | b']' | b'}' => depth = depth.saturating_sub(1),
                _ => {}
            }
            if depth == 0 {
                return at + 1;
            }
        }
        self.code.len()
    }

    /// The end of the item that begins at `from`: behind its block, or its semicolon.
    fn item_end(&self, from: usize) -> usize {
        let bytes = self.code.as_bytes();
        let mut at = from;
        while at < bytes.len() {
            match bytes[at] {
                b'{' => return self.closing(at),
                b';' => return at + 1,
                b'(' | b'[' => at = self.closing(at),
                _ => at += 1,
            }
        }
        at
    }
}

fn is_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || !byte.is_ascii()
}

/// The module of `item`, if it is `mod name;`.
fn module_declared(item: &str) -> Option<&str> {
    let mut words = item.strip_suffix(';')?.split_whitespace().rev();
    let name = words.next()?;
    (words.next() == Some("mod")).then_some(name)
}

/// Blanks comments and the insides of literals.
fn mask(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut code = String::with_capacity(text.len());
    let mut at = 0;
    while at < bytes.len() {
        let (kept, end) = token(bytes, at);
        for byte in &bytes[at..end] {
            let keep = *byte == b'\n' || (kept && byte.is_ascii());
            code.push(if keep { char::from(*byte) } else { ' ' });
        }
        at = end;
    }
    code
}

/// The end of the token at `at`, and whether it is code.
fn token(bytes: &[u8], at: usize) -> (bool, usize) {
    let rest = &bytes[at..];
    let after_name = at > 0 && is_name(bytes[at - 1]);
    match rest {
        [b'/', b'/', ..] => (false, line_end(bytes, at)),
        [b'/', b'*', ..] => (false, comment_end(bytes, at)),
        [b'"', ..] => (false, string_end(bytes, at + 1)),
        [b'r', b'"' | b'#', ..] if !after_name => raw_end(bytes, at + 1),
        [b'b' | b'c', b'r', b'"' | b'#', ..] if !after_name => raw_end(bytes, at + 2),
        [b'\'', ..] => char_end(bytes, at).map_or((true, at + 1), |end| (false, end)),
        _ => (true, at + 1),
    }
}

fn line_end(bytes: &[u8], from: usize) -> usize {
    let end = bytes[from..].iter().position(|byte| *byte == b'\n');
    end.map_or(bytes.len(), |length| from + length)
}

fn comment_end(bytes: &[u8], from: usize) -> usize {
    let (mut at, mut depth) = (from, 0_usize);
    while at < bytes.len() {
        match bytes[at..] {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            return at;
        }
    }
    at
}

fn string_end(bytes: &[u8], from: usize) -> usize {
    let mut at = from;
    while at < bytes.len() {
        match bytes[at] {
            b'"' => return at + 1,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    bytes.len()
}

/// The end of a raw string whose hashes or quote stand at `from`; code if it is a raw name.
fn raw_end(bytes: &[u8], from: usize) -> (bool, usize) {
    let hashes = bytes[from..].iter().take_while(|byte| **byte == b'#').count();
    if bytes.get(from + hashes) != Some(&b'"') {
        return (true, from + hashes);
    }
    let mut at = from + hashes + 1;
    while at < bytes.len() {
        let closing = bytes[at + 1..].iter().take_while(|byte| **byte == b'#').count();
        if bytes[at] == b'"' && closing >= hashes {
            return (false, at + 1 + hashes);
        }
        at += 1;
    }
    (false, bytes.len())
}

/// The end of the character literal at `at`; `None` if the quote begins a lifetime.
fn char_end(bytes: &[u8], at: usize) -> Option<usize> {
    if bytes.get(at + 1) == Some(&b'\\') {
        let closing = bytes.get(at + 3..)?.iter().position(|byte| *byte == b'\'')?;
        return Some(at + 3 + closing + 1);
    }
    // One character of up to four bytes, then the closing quote.
    let first = *bytes.get(at + 1)?;
    let length = match first {
        0..0x80 => 1,
        0x80..0xe0 => 2,
        0xe0..0xf0 => 3,
        _ => 4,
    };
    (bytes.get(at + 1 + length) == Some(&b'\'')).then_some(at + 2 + length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_not_code() {
        let text =
            "a(\"x\\\"y\"); // z\n/* p /* q */ r */ b('c', '\\'', 'ä'); r#\"d\"e\"#; r#type;";
        let code = mask(text);
        assert_eq!(code.len(), text.len());
        let words: Vec<&str> = code.split_whitespace().collect();
        assert_eq!(words.concat(), "a();b(,,);;r#type;");
    }

    #[test]
    fn a_lifetime_is_code() {
        assert_eq!(mask("fn f<'a>(x: &'a str) {}"), "fn f<'a>(x: &'a str) {}");
    }

    #[test]
    fn only_what_tests_compile_is_a_test() {
        let text = "fn a() {}\n#[cfg(test)]\nmod t {\n    fn b() {}\n}\nfn c() {}\n\
                    #[cfg(test)]\n#[path = \"x.rs\"]\nmod other;\nfn d() {}\n";
        let source = Source::new(text);
        let is_test = |name: &str| source.is_test(text.find(name).expect("it is there"));
        assert!(!is_test("fn a"));
        assert!(is_test("fn b"));
        assert!(!is_test("fn c"));
        assert!(!is_test("fn d"));
        assert_eq!(source.test_modules(), ["other"]);
    }

    #[test]
    fn words_are_whole() {
        let source = Source::new("Instant::now(); MyInstant; Instants; // Instant\n\"Instant\"");
        assert_eq!(source.words("Instant"), [0]);
    }

    #[test]
    fn lines_count_from_one() {
        assert_eq!(Source::new("a\nb").line(0), 1);
        assert_eq!(Source::new("a\nb").line(2), 2);
    }
}
