//! Key-value operations, as any family runs them.

use std::sync::atomic::{AtomicU64, Ordering};

use nicol_core::rng::Stream;

use super::KeyForm;
use crate::chooser::{Chooser, Distribution, PartsPerMillion};
use crate::zipf::{Theta, Zipf};

/// Records that a scan asks for at most; the number is uniform from 1 on.
pub const SCAN_MAX: u32 = 100;

/// YCSB's skew.
pub const SKEW: Theta = Theta(990);

/// One of YCSB's core workloads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mix {
    /// Half reads, half updates.
    #[default]
    A,
    /// Mostly reads, some updates.
    B,
    C,
    /// Mostly reads of what was inserted last, some inserts.
    D,
    /// Mostly scans, some inserts.
    E,
    /// Half reads, half read-modify-writes.
    F,
}

impl Mix {
    /// Every mix, in the order of their letters.
    pub const ALL: [Self; 6] = [Self::A, Self::B, Self::C, Self::D, Self::E, Self::F];

    pub const fn name(self) -> &'static str {
        match self {
            Self::A => "A",
            Self::B => "B",
            Self::C => "C",
            Self::D => "D",
            Self::E => "E",
            Self::F => "F",
        }
    }

    /// The share of operations that only read, in percent.
    pub const fn read_percent(self) -> u8 {
        match self {
            Self::A | Self::F => 50,
            Self::B | Self::D | Self::E => 95,
            Self::C => 100,
        }
    }

    /// Does it insert records?
    pub const fn inserts(self) -> bool {
        matches!(self, Self::D | Self::E)
    }

    /// Does it scan: does it need records that stand in the order of their keys?
    pub const fn scans(self) -> bool {
        matches!(self, Self::E)
    }

    /// The names of its operations: of the one that only reads, and of the one that writes.
    pub const fn kinds(self) -> &'static [&'static str; 2] {
        match self {
            Self::A | Self::B | Self::C => &["read", "update"],
            Self::D => &["read", "insert"],
            Self::E => &["scan", "insert"],
            Self::F => &["read", "read_modify_write"],
        }
    }

    /// How it draws keys unless told otherwise, with YCSB's skew.
    pub const fn popularity(self) -> Popularity {
        match self {
            Self::D => Popularity::Latest(SKEW),
            _ => Popularity::Zipfian(SKEW),
        }
    }
}

/// How popular records are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Popularity {
    Uniform,
    /// A few records anywhere take most operations.
    Zipfian(Theta),
    /// The same by YCSB's own generator, which is flatter: ranks over `ranks` items, hashed.
    Scrambled {
        /// The skew of the ranks.
        theta: Theta,
        ranks: u64,
    },
    /// The newest records take most operations.
    Latest(Theta),
}

/// The values of a YCSB run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct YcsbConfig {
    pub mix: Mix,
    /// Records of the whole cluster that are loaded.
    pub records: u64,
    /// The share of operations that only read: [`Mix::read_percent`] in YCSB.
    pub reads: PartsPerMillion,
    /// How keys are drawn: [`Mix::popularity`] in YCSB.
    pub popularity: Popularity,
    pub keys: KeyForm,
    pub value_bytes: usize,
}

/// A key-value operation. Records are numbered from 0: the loaded ones, then the inserted ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Read {
        record: u64,
    },
    /// Replaces a record's value, whatever it was.
    Update {
        record: u64,
    },
    Insert {
        /// Its number: no other operation inserts it.
        record: u64,
    },
    /// Reads records in the order of their keys.
    Scan {
        /// The number of the record whose key is the first one.
        record: u64,
        /// Records to read at most, 1 to [`SCAN_MAX`].
        limit: u32,
    },
    /// Reads a record and writes a value that depends on what it read.
    ReadModifyWrite {
        record: u64,
    },
}

impl Operation {
    /// Does it only read?
    pub const fn only_reads(self) -> bool {
        matches!(self, Self::Read { .. } | Self::Scan { .. })
    }
}

/// Draws operations. The clients of a run share one, so that they insert distinct records.
#[derive(Debug)]
pub struct Generator {
    config: YcsbConfig,
    draw: Draw,
    /// Records loaded or handed out to be inserted.
    records: AtomicU64,
}

#[derive(Debug)]
enum Draw {
    /// Of the loaded records.
    Loaded(Chooser),
    /// So many records back from the newest one.
    Latest(Zipf),
}

impl Generator {
    /// A generator of the operations of `config`.
    ///
    /// # Panics
    /// If there are no records, or a share is above one.
    pub fn new(config: YcsbConfig) -> Self {
        assert!(config.records > 0, "there is a record to read");
        assert!(config.reads <= PartsPerMillion::ALL, "a share is at most one");
        let loaded = |distribution| Draw::Loaded(Chooser::new(config.records, distribution));
        let draw = match config.popularity {
            Popularity::Uniform => loaded(Distribution::Uniform),
            Popularity::Zipfian(theta) => loaded(Distribution::ScatteredZipfian(theta)),
            Popularity::Scrambled { theta, ranks } => {
                loaded(Distribution::ScrambledZipfian { theta, ranks })
            }
            Popularity::Latest(theta) => Draw::Latest(Zipf::new(config.records, theta)),
        };
        Self { config, draw, records: AtomicU64::new(config.records) }
    }

    pub fn config(&self) -> &YcsbConfig {
        &self.config
    }

    pub fn next(&self, rng: &mut Stream) -> Operation {
        let reads = rng.bernoulli(self.config.reads.0);
        match (self.config.mix, reads) {
            (Mix::E, true) => {
                let limit = 1 + rng.below(u64::from(SCAN_MAX)) as u32;
                Operation::Scan { record: self.record(rng), limit }
            }
            (_, true) => Operation::Read { record: self.record(rng) },
            (Mix::D | Mix::E, false) => {
                Operation::Insert { record: self.records.fetch_add(1, Ordering::Relaxed) }
            }
            (Mix::F, false) => Operation::ReadModifyWrite { record: self.record(rng) },
            (Mix::A | Mix::B | Mix::C, false) => Operation::Update { record: self.record(rng) },
        }
    }

    fn record(&self, rng: &mut Stream) -> u64 {
        match &self.draw {
            Draw::Loaded(chooser) => chooser.draw(rng),
            Draw::Latest(ranks) => self.records.load(Ordering::Relaxed) - 1 - ranks.draw(rng),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use nicol_core::rng::Purpose;

    use super::*;

    const RECORDS: u64 = 1_000;
    const DRAWS: usize = 20_000;

    fn config(mix: Mix) -> YcsbConfig {
        YcsbConfig {
            mix,
            records: RECORDS,
            reads: PartsPerMillion::percent(mix.read_percent().into()),
            popularity: mix.popularity(),
            keys: KeyForm::Number,
            value_bytes: 8,
        }
    }

    fn drawn(config: YcsbConfig) -> Vec<Operation> {
        let generator = Generator::new(config);
        let mut rng = Stream::new(3, Purpose::Test, 0);
        (0..DRAWS).map(|_| generator.next(&mut rng)).collect()
    }

    /// Operations by their names.
    fn counts(operations: &[Operation]) -> BTreeMap<&'static str, usize> {
        let mut counts = BTreeMap::new();
        for operation in operations {
            let name = match operation {
                Operation::Read { .. } => "read",
                Operation::Update { .. } => "update",
                Operation::Insert { .. } => "insert",
                Operation::Scan { .. } => "scan",
                Operation::ReadModifyWrite { .. } => "read_modify_write",
            };
            *counts.entry(name).or_default() += 1;
        }
        counts
    }

    #[test]
    fn every_mix_has_its_operations_in_their_shares() {
        for (mix, percent) in [
            (Mix::A, [50, 50]),
            (Mix::B, [95, 5]),
            (Mix::C, [100, 0]),
            (Mix::D, [95, 5]),
            (Mix::E, [95, 5]),
            (Mix::F, [50, 50]),
        ] {
            let found = counts(&drawn(config(mix)));
            let of = |kind: &str| found.get(kind).copied().unwrap_or_default();
            let [reads, writes] = mix.kinds().map(of);
            assert_eq!(reads + writes, DRAWS, "{mix:?}: {found:?}");
            assert!(reads.abs_diff(DRAWS * percent[0] / 100) < 300, "{mix:?}: {found:?}");
            assert_eq!(writes == 0, percent[1] == 0, "{mix:?}");
        }
        let reads = PartsPerMillion::percent(20);
        let found = counts(&drawn(YcsbConfig { reads, ..config(Mix::C) }));
        assert!(found["read"].abs_diff(DRAWS / 5) < 300, "{found:?}");
    }

    #[test]
    fn inserted_records_are_numbered_on_and_never_twice() {
        let mut next = RECORDS;
        for operation in drawn(config(Mix::D)) {
            if let Operation::Insert { record } = operation {
                assert_eq!(record, next);
                next += 1;
            }
        }
        assert!(next > RECORDS + 800, "{next}");
    }

    #[test]
    fn the_latest_records_are_read_most_and_none_that_is_still_to_come() {
        let (mut newest, mut recent, mut reads) = (RECORDS - 1, 0, 0);
        for operation in drawn(config(Mix::D)) {
            match operation {
                Operation::Insert { record } => newest = record,
                Operation::Read { record } => {
                    assert!(record <= newest && record + RECORDS > newest);
                    reads += 1;
                    recent += usize::from(newest - record < 10);
                }
                other => panic!("{other:?} is none of D's"),
            }
        }
        // The ten first of a thousand ranks at 0.99 have 2.97 of 7.73: 38 %.
        let percent = recent * 100 / reads;
        assert!((35..42).contains(&percent), "{percent} % of the reads");
    }

    #[test]
    fn popularity_is_as_asked() {
        let hottest = |popularity| {
            let operations = drawn(YcsbConfig { popularity, ..config(Mix::C) });
            let mut reads = [0_usize; RECORDS as usize];
            for operation in operations {
                let Operation::Read { record } = operation else { panic!("C only reads") };
                reads[record as usize] += 1;
            }
            reads.sort_unstable();
            (reads[0], reads[RECORDS as usize - 1])
        };
        let (least, most) = hottest(Popularity::Uniform);
        assert!(least > 2 && most < 50, "uniform: {least} to {most} reads a record");
        // The first of a thousand ranks at 0.99 has 1 / 7.73 of the draws, of ten billion 1 / 26.5.
        let (_, most) = hottest(Popularity::Zipfian(Theta(990)));
        assert!((2_400..2_800).contains(&most), "Zipfian: {most} reads of the hottest");
        let ranks = crate::zipf::ScrambledZipf::RANKS;
        let (_, most) = hottest(Popularity::Scrambled { theta: Theta(990), ranks });
        assert!((650..900).contains(&most), "YCSB's: {most} reads of the hottest");
        let (least, most) = hottest(Popularity::Latest(Theta(990)));
        assert!(least < 10 && most > 2_000, "latest: {least} to {most}");
    }

    #[test]
    fn scans_have_every_length() {
        let mut lengths = [0_usize; SCAN_MAX as usize + 1];
        for operation in drawn(config(Mix::E)) {
            if let Operation::Scan { record, limit } = operation {
                assert!(record < RECORDS);
                lengths[limit as usize] += 1;
            }
        }
        assert_eq!(lengths[0], 0);
        assert!(lengths[1..].iter().all(|count| (100..300).contains(count)), "{lengths:?}");
    }
}
