//! What stands in a value behind the number of its writer: how well it compresses.

use std::fmt;
use std::str::FromStr;

use nicol_core::rng::{Purpose, Stream};

/// Bytes of which a share is random and the rest zeros, one behind the other.
const PAGE: usize = 4 << 10;

/// The content of a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Content {
    /// One byte, another one for each write.
    #[default]
    Repeated,
    /// Zeros.
    Zeros,
    /// Words and numbers, as in a log.
    Text,
    /// Nothing that compresses.
    Random,
    /// Of each 4 KiB so many percent random, the rest zeros: it compresses to about that share, as
    /// with fio's `buffer_compress_percentage`.
    RandomPercent(u8),
}

impl Content {
    /// Fills `to` with what follows from `seed`.
    pub fn fill(self, seed: u64, to: &mut [u8]) {
        let stream = || Stream::new(seed, Purpose::Load, (seed >> 32) as u32);
        match self {
            Self::Repeated => to.fill(seed as u8),
            Self::Zeros => to.fill(0),
            Self::Text => words(&mut stream(), to),
            Self::Random => noise(&mut stream(), to),
            Self::RandomPercent(percent) => {
                let mut stream = stream();
                for page in to.chunks_mut(PAGE) {
                    let (random, zeros) =
                        page.split_at_mut(page.len() * usize::from(percent) / 100);
                    noise(&mut stream, random);
                    zeros.fill(0);
                }
            }
        }
    }

    /// True if `bytes` is the content that follows from `seed`.
    pub fn is_of(self, seed: u64, bytes: &[u8]) -> bool {
        match self {
            Self::Repeated => bytes.iter().all(|byte| *byte == seed as u8),
            Self::Zeros => bytes.iter().all(|byte| *byte == 0),
            Self::Text | Self::Random | Self::RandomPercent(_) => {
                let mut expected = vec![0; bytes.len()];
                self.fill(seed, &mut expected);
                expected == bytes
            }
        }
    }
}

fn noise(random: &mut Stream, to: &mut [u8]) {
    for word in to.chunks_mut(8) {
        word.copy_from_slice(&random.bits().to_le_bytes()[..word.len()]);
    }
}

fn words(random: &mut Stream, to: &mut [u8]) {
    const WORDS: [&str; 16] = [
        "replica ", "of ", "file ", "write ", "log ", "chunk ", "node ", "is ", "and ", "to ",
        "in ", "at ", "from ", "open ", "close ", "sync ",
    ];
    let mut at = 0;
    while at < to.len() {
        let draw = random.bits();
        let number = format!("{:08x} ", draw as u32);
        let word = match draw >> 60 {
            0 | 1 => number.as_str(),
            _ => WORDS[(draw >> 32) as usize % WORDS.len()],
        };
        let len = word.len().min(to.len() - at);
        to[at..at + len].copy_from_slice(&word.as_bytes()[..len]);
        at += len;
    }
}

impl fmt::Display for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Repeated => f.write_str("repeated"),
            Self::Zeros => f.write_str("zeros"),
            Self::Text => f.write_str("text"),
            Self::Random => f.write_str("random"),
            Self::RandomPercent(percent) => write!(f, "{percent}"),
        }
    }
}

impl FromStr for Content {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "repeated" => Ok(Self::Repeated),
            "zeros" => Ok(Self::Zeros),
            "text" => Ok(Self::Text),
            "random" => Ok(Self::Random),
            _ => match text.parse() {
                Ok(percent @ 0..=100) => Ok(Self::RandomPercent(percent)),
                _ => Err(format!(
                    "'{text}': choose zeros, text, random, repeated, or the percentage that is random"
                )),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Content; 5] = [
        Content::Repeated,
        Content::Zeros,
        Content::Text,
        Content::Random,
        Content::RandomPercent(30),
    ];

    #[test]
    fn content_follows_from_its_seed_and_every_other_byte_is_noticed() {
        for content in ALL {
            let mut bytes = vec![7; 10_001];
            content.fill(9, &mut bytes);
            assert!(content.is_of(9, &bytes), "{content}");
            assert!(content == Content::Zeros || !content.is_of(10, &bytes), "{content}");
            bytes[10_000] ^= 1;
            assert!(!content.is_of(9, &bytes), "{content}");
            assert_eq!(content.to_string().parse(), Ok(content));
        }
        assert!("101".parse::<Content>().unwrap_err().contains("percentage"));
    }

    #[test]
    fn a_share_of_each_page_is_random() {
        let mut bytes = vec![1; 3 * PAGE];
        Content::RandomPercent(25).fill(1, &mut bytes);
        for page in bytes.chunks(PAGE) {
            let (random, zeros) = page.split_at(PAGE / 4);
            assert!(zeros.iter().all(|byte| *byte == 0));
            let none = random.iter().filter(|byte| **byte == 0).count();
            assert!(none < random.len() / 50, "{none} zeros");
        }
    }
}
