//! An incremental parser of client requests: arrays of bulk strings, or inline lines.
//!
//! RESP2 and RESP3 clients send the same requests. The parser keeps spans, not copies: arguments
//! are slices of the connection's input. It never looks at a byte of a bulk twice and never
//! allocates by a length that a client only announced.

use super::inline;
use crate::commands::number::parse_i64;

/// Bytes of a length line (`*` or `$` and a number); a longer one is no number that fits.
const LENGTH_LINE_MAX: usize = 64;

/// The limits of a request. Different before and after authentication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestLimits {
    /// Bytes of one request, framing included.
    pub request_bytes: usize,
    /// Arguments of one request, the command's name included.
    pub arguments: usize,
    /// Bytes of one argument.
    pub bulk_bytes: usize,
    /// Bytes of an inline request's line.
    pub inline_bytes: usize,
    /// True if the client has authenticated. Chooses the error texts only.
    pub authenticated: bool,
}

/// A request that is not well formed, or larger than allowed. The connection is closed after the
/// error, because nothing says where the next request begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    /// An inline line over the limit.
    #[error("too big inline request")]
    InlineTooBig,
    /// An inline line with an open quote, or a closing quote inside a word.
    #[error("unbalanced quotes in request")]
    UnbalancedQuotes,
    /// The number after `*` is no number or over the limit.
    #[error("invalid multibulk length")]
    MultibulkLength,
    /// More arguments than a client may send before it authenticates.
    #[error("unauthenticated multibulk length")]
    UnauthenticatedMultibulk,
    /// The line after `*` does not end.
    #[error("too big mbulk count string")]
    MultibulkLine,
    /// Something else where `$` must stand.
    #[error("expected '$', got '{}'", printable(*.0))]
    ExpectedBulk(u8),
    /// The number after `$` is no number or over the limit.
    #[error("invalid bulk length")]
    BulkLength,
    /// A longer argument than a client may send before it authenticates.
    #[error("unauthenticated bulk length")]
    UnauthenticatedBulk,
    /// The line after `$` does not end.
    #[error("too big bulk count string")]
    BulkLine,
    /// No CRLF where the announced length ends.
    #[error("expected CRLF after a bulk")]
    BulkEnd,
    /// The whole request is over the limit.
    #[error("too big request")]
    RequestTooBig,
}

/// The byte as an error text shows it; a control byte would break the reply's line.
fn printable(byte: u8) -> char {
    if byte.is_ascii_graphic() || byte == b' ' { byte as char } else { '?' }
}

/// What one call of [`Parser::parse`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// More input is needed; what was parsed is remembered.
    Incomplete,
    /// An empty request of so many bytes, to be ignored.
    Empty(usize),
    /// A command of so many bytes; see [`Parser::command`].
    Command(usize),
}

/// Where an argument stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    start: u32,
    len: u32,
}

/// The parser of one connection.
#[derive(Clone, Debug, Default)]
pub struct Parser {
    spans: Vec<Span>,
    /// The words of an inline request, unquoted.
    words: Vec<u8>,
    /// Where parsing goes on, from the start of the request.
    at: usize,
    state: State,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Start,
    Line,
    Header {
        remaining: usize,
    },
    Bulk {
        remaining: usize,
        len: usize,
    },
    Done {
        inline: bool,
    },
}

/// Arguments kept in memory between requests; beyond it the memory is given back.
const SPANS_KEPT: usize = 1_024;

impl Parser {
    /// Goes on parsing `input`, which must start where the request starts and hold at least what
    /// it held at the last call.
    pub fn parse(&mut self, input: &[u8], limits: &RequestLimits) -> Result<Step, ProtocolError> {
        if matches!(self.state, State::Done { .. }) {
            self.reset();
        }
        loop {
            let step = match self.state {
                State::Start | State::Done { .. } => self.start(input, limits)?,
                State::Line => self.line(input, limits)?,
                State::Header { remaining } => self.header(input, remaining, limits)?,
                State::Bulk { remaining, len } => self.bulk(input, remaining, len)?,
            };
            match step {
                Some(Step::Incomplete) if input.len() >= limits.request_bytes => {
                    return Err(ProtocolError::RequestTooBig);
                }
                Some(step) => return Ok(step),
                None => {}
            }
        }
    }

    /// The command that the last [`Parser::parse`] of `input` found.
    pub fn command<'a>(&'a self, input: &'a [u8]) -> Command<'a> {
        let inline = match self.state {
            State::Done { inline } => inline,
            _ => false,
        };
        let bytes = if inline { &self.words[..] } else { input };
        Command { bytes, spans: &self.spans, inline }
    }

    /// Forgets the request in progress.
    pub fn reset(&mut self) {
        self.spans.clear();
        self.words.clear();
        if self.spans.capacity() > SPANS_KEPT {
            self.spans = Vec::new();
        }
        if self.words.capacity() > SPANS_KEPT {
            self.words = Vec::new();
        }
        self.at = 0;
        self.state = State::Start;
    }

    fn start(&mut self, input: &[u8], limits: &RequestLimits) -> Parse {
        let Some(first) = input.first() else { return Ok(Some(Step::Incomplete)) };
        if *first != b'*' {
            self.state = State::Line;
            return Ok(None);
        }
        let Some(line) = length_line(input, 0, ProtocolError::MultibulkLine)? else {
            return Ok(Some(Step::Incomplete));
        };
        let count = parse_i64(&input[1..line]).ok_or(ProtocolError::MultibulkLength)?;
        if count <= 0 {
            self.reset();
            return Ok(Some(Step::Empty(line + 2)));
        }
        if count as u64 > limits.arguments as u64 {
            return Err(match limits.authenticated || count > i64::from(i32::MAX) {
                true => ProtocolError::MultibulkLength,
                false => ProtocolError::UnauthenticatedMultibulk,
            });
        }
        self.at = line + 2;
        self.state = State::Header { remaining: count as usize };
        Ok(None)
    }

    fn line(&mut self, input: &[u8], limits: &RequestLimits) -> Parse {
        let newline = input[self.at..].iter().position(|byte| *byte == b'\n');
        let end = newline.map_or(input.len(), |offset| self.at + offset);
        let text = match newline {
            Some(_) => input[..end].strip_suffix(b"\r").unwrap_or(&input[..end]),
            None => input,
        };
        if text.len() > limits.inline_bytes + usize::from(newline.is_none()) {
            return Err(ProtocolError::InlineTooBig);
        }
        if newline.is_none() {
            self.at = input.len();
            return Ok(Some(Step::Incomplete));
        }
        let words = &mut self.words;
        let spans = &mut self.spans;
        inline::split(text, words, |start, len| {
            spans.push(Span { start: start as u32, len: len as u32 });
        })
        .ok_or(ProtocolError::UnbalancedQuotes)?;
        if self.spans.is_empty() {
            self.reset();
            return Ok(Some(Step::Empty(end + 1)));
        }
        if self.spans.len() > limits.arguments {
            return Err(ProtocolError::MultibulkLength);
        }
        self.state = State::Done { inline: true };
        Ok(Some(Step::Command(end + 1)))
    }

    fn header(&mut self, input: &[u8], remaining: usize, limits: &RequestLimits) -> Parse {
        if remaining == 0 {
            self.state = State::Done { inline: false };
            return Ok(Some(Step::Command(self.at)));
        }
        let Some(first) = input.get(self.at) else { return Ok(Some(Step::Incomplete)) };
        // Redis complains only once the line is complete; so does this, to answer alike.
        let Some(line) = length_line(input, self.at, ProtocolError::BulkLine)? else {
            return Ok(Some(Step::Incomplete));
        };
        if *first != b'$' {
            return Err(ProtocolError::ExpectedBulk(*first));
        }
        let len = parse_i64(&input[self.at + 1..line]).ok_or(ProtocolError::BulkLength)?;
        if len < 0 {
            return Err(ProtocolError::BulkLength);
        }
        if len as u64 > limits.bulk_bytes as u64 {
            return Err(match limits.authenticated {
                true => ProtocolError::BulkLength,
                false => ProtocolError::UnauthenticatedBulk,
            });
        }
        let len = len as usize;
        self.at = line + 2;
        if self.at + len + 2 > limits.request_bytes {
            return Err(ProtocolError::RequestTooBig);
        }
        self.state = State::Bulk { remaining, len };
        Ok(None)
    }

    fn bulk(&mut self, input: &[u8], remaining: usize, len: usize) -> Parse {
        let end = self.at + len;
        let Some(terminator) = input.get(end..end + 2) else {
            return Ok(Some(Step::Incomplete));
        };
        if terminator != b"\r\n" {
            return Err(ProtocolError::BulkEnd);
        }
        self.spans.push(Span { start: self.at as u32, len: len as u32 });
        self.at = end + 2;
        self.state = State::Header { remaining: remaining - 1 };
        Ok(None)
    }
}

/// A step's result: `None` to go on.
type Parse = Result<Option<Step>, ProtocolError>;

/// The position of the CR that ends the length line at `start`, `None` if it has not come yet.
fn length_line(
    input: &[u8],
    start: usize,
    endless: ProtocolError,
) -> Result<Option<usize>, ProtocolError> {
    let rest = &input[start..];
    let window = &rest[..rest.len().min(LENGTH_LINE_MAX)];
    match window.iter().position(|byte| *byte == b'\r') {
        Some(offset) => match rest.get(offset + 1) {
            None => Ok(None),
            Some(b'\n') => Ok(Some(start + offset)),
            Some(_) if endless == ProtocolError::BulkLine => Err(ProtocolError::BulkLength),
            Some(_) => Err(ProtocolError::MultibulkLength),
        },
        None if window.len() == LENGTH_LINE_MAX => Err(endless),
        None => Ok(None),
    }
}

/// The words of a command that no client sent.
#[derive(Clone, Debug, Default)]
pub struct Words {
    bytes: Vec<u8>,
    spans: Vec<Span>,
}

impl Words {
    /// Forgets all.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.spans.clear();
    }

    /// Adds a word.
    pub fn push(&mut self, word: &[u8]) {
        self.spans.push(Span { start: self.bytes.len() as u32, len: word.len() as u32 });
        self.bytes.extend_from_slice(word);
    }

    /// The command of these words.
    pub fn command(&self) -> Command<'_> {
        Command { bytes: &self.bytes, spans: &self.spans, inline: false }
    }
}

/// A command: its name and arguments, as slices.
#[derive(Clone, Copy, Debug)]
pub struct Command<'a> {
    bytes: &'a [u8],
    spans: &'a [Span],
    inline: bool,
}

impl<'a> Command<'a> {
    /// Number of arguments, the name included.
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// A command has at least its name.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Did it come as an inline line?
    pub fn is_inline(&self) -> bool {
        self.inline
    }

    /// Argument `index`; 0 is the name. Out of range: an empty slice.
    pub fn arg(&self, index: usize) -> &'a [u8] {
        match self.spans.get(index) {
            Some(span) => &self.bytes[span.start as usize..(span.start + span.len) as usize],
            None => &[],
        }
    }

    /// The arguments from `first` on.
    pub fn args(&self, first: usize) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let this = *self;
        (first..this.len()).map(move |index| this.arg(index))
    }

    /// Bytes of all arguments.
    pub fn bytes(&self) -> usize {
        self.spans.iter().map(|span| span.len as usize).sum()
    }
}
