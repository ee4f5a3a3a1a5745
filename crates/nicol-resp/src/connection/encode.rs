//! Replies, in the words of RESP2 or RESP3.

use crate::commands::float::format_double;
use crate::commands::number::push_i64;

/// The protocol version that a connection chose with HELLO.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// What every client understands.
    #[default]
    Resp2,
    /// Maps, sets, a null of its own.
    Resp3,
}

impl Protocol {
    /// 2 or 3.
    pub const fn number(self) -> u8 {
        match self {
            Self::Resp2 => 2,
            Self::Resp3 => 3,
        }
    }

    /// The reverse of [`Protocol::number`].
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            2 => Some(Self::Resp2),
            3 => Some(Self::Resp3),
            _ => None,
        }
    }
}

/// Splits whole replies after the first `count`. `None`: there are not as many.
pub fn split_replies(replies: &[u8], count: usize) -> Option<(&[u8], &[u8])> {
    let (mut at, mut left) = (0, count);
    while left > 0 {
        left -= 1;
        let line = replies.get(at..)?;
        let len = line.windows(2).position(|pair| pair == b"\r\n")?;
        at += len + 2;
        // A null has the length -1, which is no `usize`.
        let number = || std::str::from_utf8(&line[1..len]).ok()?.parse::<usize>().ok();
        match line[0] {
            b'$' | b'=' => at += number().map_or(0, |bytes| bytes + 2),
            b'*' | b'~' => left += number().unwrap_or(0),
            b'%' => left += 2 * number().unwrap_or(0),
            _ => {}
        }
    }
    replies.split_at_checked(at)
}

/// Appends replies to a buffer.
#[derive(Debug)]
pub struct Reply<'a> {
    out: &'a mut Vec<u8>,
    protocol: Protocol,
}

impl<'a> Reply<'a> {
    /// Replies in `protocol` at the end of `out`.
    pub fn new(out: &'a mut Vec<u8>, protocol: Protocol) -> Self {
        Self { out, protocol }
    }

    /// Replies in the same protocol at the end of another buffer.
    pub fn beside<'b>(&self, out: &'b mut Vec<u8>) -> Reply<'b> {
        Reply::new(out, self.protocol)
    }

    /// `+text`. The text must hold no line break.
    pub fn status(&mut self, text: &str) {
        self.line(b'+', text.as_bytes());
    }

    /// `+line`. It must hold no line break.
    pub fn line_of(&mut self, line: &[u8]) {
        self.line(b'+', line);
    }

    /// `-text`, with its code first. Line breaks become spaces, since the text may quote a client.
    pub fn error(&mut self, text: &[u8]) {
        self.out.push(b'-');
        let safe = text.iter().map(|byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { *byte });
        self.out.extend(safe);
        self.out.extend_from_slice(b"\r\n");
    }

    /// `:number`.
    pub fn integer(&mut self, number: i64) {
        self.out.push(b':');
        push_i64(self.out, number);
        self.out.extend_from_slice(b"\r\n");
    }

    pub fn bulk(&mut self, bytes: &[u8]) {
        self.length(b'$', bytes.len());
        self.out.extend_from_slice(bytes);
        self.out.extend_from_slice(b"\r\n");
    }

    /// Replies as they were written.
    pub fn replies(&mut self, written: &[u8]) {
        self.out.extend_from_slice(written);
    }

    pub fn bulk_or_null(&mut self, bytes: Option<&[u8]>) {
        match bytes {
            Some(bytes) => self.bulk(bytes),
            None => self.null(),
        }
    }

    pub fn null(&mut self) {
        self.out.extend_from_slice(match self.protocol {
            Protocol::Resp2 => b"$-1\r\n",
            Protocol::Resp3 => b"_\r\n",
        });
    }

    /// The null of an array: an EXEC that was refused.
    pub fn null_array(&mut self) {
        self.out.extend_from_slice(match self.protocol {
            Protocol::Resp2 => b"*-1\r\n",
            Protocol::Resp3 => b"_\r\n",
        });
    }

    /// The head of an array; its elements follow.
    pub fn array(&mut self, len: usize) {
        self.length(b'*', len);
    }

    /// A floating point number.
    pub fn double(&mut self, number: f64) {
        self.decimal(&format_double(number));
    }

    /// A number whose text is given.
    pub fn decimal(&mut self, text: &str) {
        match self.protocol {
            Protocol::Resp2 => self.bulk(text.as_bytes()),
            Protocol::Resp3 => self.line(b',', text.as_bytes()),
        }
    }

    /// The head of an array of `pairs`: in the third version of the protocol each is an array of
    /// its own, whose head [`Reply::pair`] writes.
    pub fn pairs(&mut self, pairs: usize) {
        match self.protocol {
            Protocol::Resp2 => self.array(pairs * 2),
            Protocol::Resp3 => self.array(pairs),
        }
    }

    /// The head of one pair of [`Reply::pairs`]; its two elements follow.
    pub fn pair(&mut self) {
        if self.protocol == Protocol::Resp3 {
            self.array(2);
        }
    }

    /// The head of `len` keys with values: in the second version of the protocol each is an array
    /// of its own, whose head [`Reply::key_value`] writes.
    pub fn key_values(&mut self, len: usize) {
        match self.protocol {
            Protocol::Resp2 => self.array(len),
            Protocol::Resp3 => self.map(len),
        }
    }

    /// The head of one of [`Reply::key_values`]; the key and the value follow.
    pub fn key_value(&mut self) {
        if self.protocol == Protocol::Resp2 {
            self.array(2);
        }
    }

    /// An array of lines, as HELP answers.
    pub fn lines(&mut self, lines: &[&str]) {
        self.array(lines.len());
        lines.iter().for_each(|line| self.status(line));
    }

    /// The head of a map of `pairs`; keys and values follow alternately.
    pub fn map(&mut self, pairs: usize) {
        match self.protocol {
            Protocol::Resp2 => self.length(b'*', pairs * 2),
            Protocol::Resp3 => self.length(b'%', pairs),
        }
    }

    /// The head of a message of `len` parts that answers no request.
    pub fn push(&mut self, len: usize) {
        match self.protocol {
            Protocol::Resp2 => self.length(b'*', len),
            Protocol::Resp3 => self.length(b'>', len),
        }
    }

    /// The head of a set; its elements follow.
    pub fn set(&mut self, len: usize) {
        match self.protocol {
            Protocol::Resp2 => self.length(b'*', len),
            Protocol::Resp3 => self.length(b'~', len),
        }
    }

    pub fn verbatim(&mut self, text: &str) {
        match self.protocol {
            Protocol::Resp2 => self.bulk(text.as_bytes()),
            Protocol::Resp3 => {
                self.length(b'=', text.len() + 4);
                self.out.extend_from_slice(b"txt:");
                self.out.extend_from_slice(text.as_bytes());
                self.out.extend_from_slice(b"\r\n");
            }
        }
    }

    fn length(&mut self, kind: u8, len: usize) {
        self.out.push(kind);
        push_i64(self.out, len as i64);
        self.out.extend_from_slice(b"\r\n");
    }

    fn line(&mut self, kind: u8, text: &[u8]) {
        self.out.push(kind);
        self.out.extend_from_slice(text);
        self.out.extend_from_slice(b"\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_split_where_the_next_one_begins() {
        let mut random = nicol_core::rng::Stream::new(1, nicol_core::rng::Purpose::Test, 0);
        for round in 0..500 {
            let protocol = if round % 2 == 0 { Protocol::Resp2 } else { Protocol::Resp3 };
            let (mut out, mut ends) = (Vec::new(), vec![0]);
            for _ in 0..10 {
                let mut reply = Reply::new(&mut out, protocol);
                match random.below(9) {
                    0 => reply.status("OK"),
                    1 => reply.error(b"ERR $5 *3"),
                    2 => reply.integer(-7),
                    3 => reply.bulk(b"a\r\n$9\r\nb"),
                    4 => reply.null(),
                    5 => reply.null_array(),
                    6 => reply.verbatim("text"),
                    7 => {
                        reply.map(1);
                        reply.bulk(b"");
                        reply.array(0);
                    }
                    _ => {
                        reply.array(3);
                        reply.null();
                        reply.set(1);
                        reply.integer(0);
                        reply.bulk(b"\r\n");
                    }
                }
                ends.push(out.len());
            }
            for (count, end) in ends.iter().enumerate() {
                let split = split_replies(&out, count).map(|(head, _)| head.len());
                assert_eq!(split, Some(*end), "{count} of {:?}", String::from_utf8_lossy(&out));
            }
            assert_eq!(split_replies(&out, 11), None);
            assert_eq!(split_replies(&out[..out.len() - 1], 10), None);
        }
    }
}
