//! The output of the procedure, as the front reads it.

use super::record::{DATABASES, Database};

/// Keys inserted minus keys deleted, by database. A transaction has far fewer keys than the numbers
/// hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Growth([i32; DATABASES]);

impl Growth {
    /// Bytes of one database in an output.
    const LEN: usize = 5;

    pub fn add(&mut self, database: Database, keys: i32) {
        self.0[database.place()] += keys;
    }

    /// The databases whose number of keys has changed, by how many.
    pub fn changes(&self) -> impl Iterator<Item = (Database, i32)> {
        let all = self.0.iter().enumerate().filter(|(_, keys)| **keys != 0);
        all.filter_map(|(place, keys)| Some((Database::new(place as i64)?, *keys)))
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let mut growth = Self::default();
        for &[database, a, b, c, d] in bytes.as_chunks::<{ Self::LEN }>().0 {
            growth.add(Database::new(database.into())?, i32::from_le_bytes([a, b, c, d]));
        }
        Some(growth)
    }
}

/// What commands found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lookups {
    /// Keys that a command read and that were there.
    pub hits: u32,
    /// Keys that a command read and that were not there.
    pub misses: u32,
    /// Keys freed since their time was over.
    pub expired: u32,
}

/// What an output tells besides its replies.
///
/// Layout, numbers little-endian: commands executed (2 bytes), databases that have grown or shrunk
/// (1), whether a record has changed (1), hits, misses, keys that expired, and bytes of news (4
/// each); the replies; of each of these databases its number (1) and by how many keys (4); the
/// news, in their own layout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutputHead {
    pub executed: usize,
    pub lookups: Lookups,
    pub growth: Growth,
    /// A record has changed.
    pub changed: bool,
}

impl OutputHead {
    /// Bytes before the replies.
    const LEN: usize = 20;

    /// The head of `output` and the replies. `None`: it is not in the layout.
    pub fn parse(output: &[u8]) -> Option<(Self, &[u8])> {
        let (head, rest) = output.split_first_chunk::<{ Self::LEN }>()?;
        let (numbers, _) = head.as_chunks::<4>();
        let number = |place: usize| u32::from_le_bytes(numbers[place]);
        let [executed, databases] =
            [number(0) & 0xffff, number(0) >> 16 & 0xff].map(|n| n as usize);
        let changed = number(0) >> 24 != 0;
        let lookups = Lookups { hits: number(1), misses: number(2), expired: number(3) };
        let (tail, news) = (databases * Growth::LEN, number(4) as usize);
        let (rest, _) = rest.split_at_checked(rest.len().checked_sub(news)?)?;
        let (replies, tail) = rest.split_at_checked(rest.len().checked_sub(tail)?)?;
        Some((Self { executed, lookups, growth: Growth::parse(tail)?, changed }, replies))
    }

    /// The news in `output`, in the layout of [`News`].
    ///
    /// [`News`]: super::news::News
    pub fn news(output: &[u8]) -> &[u8] {
        let len = output.first_chunk::<{ Self::LEN }>().map_or(0, |head| {
            u32::from_le_bytes([head[16], head[17], head[18], head[19]]) as usize
        });
        output.len().checked_sub(len).map_or(&[], |start| &output[start..])
    }

    /// Begins an output: the replies follow, then [`OutputHead::finish`].
    pub fn begin(output: &mut Vec<u8>) {
        output.extend_from_slice(&[0; Self::LEN]);
    }

    /// Ends the output that [`OutputHead::begin`] began.
    pub fn finish(self, output: &mut Vec<u8>, news: &[u8]) {
        let mut databases = 0_u8;
        for (database, keys) in self.growth.changes() {
            output.push(database.number());
            output.extend_from_slice(&keys.to_le_bytes());
            databases += 1;
        }
        output[..2].copy_from_slice(&(self.executed as u16).to_le_bytes());
        output[2] = databases;
        output[3] = u8::from(self.changed);
        let Lookups { hits, misses, expired } = self.lookups;
        output.extend_from_slice(news);
        let numbers = [hits, misses, expired, news.len() as u32];
        for (place, number) in numbers.into_iter().enumerate() {
            output[4 * place + 4..4 * place + 8].copy_from_slice(&number.to_le_bytes());
        }
    }
}
