//! A store that outlives its process: what a folder holds when a server starts, and how the server
//! keeps the folder short. (decision 0025)

mod keeper;
mod kept;
mod read_back;
mod runs;

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nicol_core::ids::{Key, ShardId, Version};
use nicol_core::records::RecordSource;
use nicol_core::view::{ShardMap, View};
use nicol_kit::Counts;
use nicol_rt::{
    FoundManifest, ListedRun, LogFile, LogFolder, Manifest, Marks, Run, TablesHeader, remove_runs,
    write_tables,
};

pub use keeper::Keeper;
pub(crate) use keeper::{KeptFolder, is_out_of_room};
pub use kept::Kept;
pub(crate) use kept::Pausable;
pub(crate) use read_back::{Damage, ReadBack, RunLogs, lost_in_words, scan};
pub use read_back::{LogReading, Progress};
use read_back::{expect_manifest, read_back};

/// Records as they are read back: sorted by key.
pub type Records = Vec<(Key, Version, Box<[u8]>)>;

/// The content of a store's folder, and the folder, which no other process may use.
#[derive(Debug)]
pub struct Stored {
    pub(crate) folder: LogFolder,
    pub(crate) reading: LogReading,
    pub(crate) records: Records,
    hash_seed: Option<u64>,
    /// Of the manifest; 0 if there was none.
    generation: u64,
    pub found: Found,
}

/// The content that was read back.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Found {
    pub records: u64,
    /// Of them, records in saved tables.
    pub in_tables: u64,
    pub log_bytes: u64,
    /// Records of the logs, and what was taken of them.
    pub counts: Counts,
    /// Damage that could be made up for, in words with file and place.
    pub repaired: Vec<String>,
    /// Logs whose torn end was cut.
    pub torn: usize,
    /// The time that it took.
    pub time: Duration,
}

impl Stored {
    /// Opens `dir` and reads back what a store has left there, if one has, as `reading` says.
    ///
    /// # Errors
    /// The folder is in use, or no store's; what was acknowledged may be lost. They name the file.
    pub fn open(dir: &Path, reading: LogReading, progress: Progress<'_>) -> Result<Self> {
        let started = Instant::now();
        let folder = LogFolder::open(dir)?;
        let runs = folder.runs()?;
        if let Some(stranger) = folder.stranger(&runs)? {
            bail!(
                "{}: no store has made it; move it away, or give another folder than {}",
                stranger.display(),
                dir.display()
            );
        }
        let (manifest, told) = match Manifest::find(dir)? {
            FoundManifest::None => (None, None),
            FoundManifest::Some(manifest, told) => (Some(manifest), told),
            FoundManifest::Damaged(what) => bail!(
                "{what}: which files there must be is not known. Restore one of them from a backup, \
                 or move the folder {} away to start empty",
                dir.display()
            ),
        };
        expect_manifest(dir, &runs, manifest.as_ref())?;
        let mut back = match &manifest {
            Some(manifest) => read_back(dir, manifest, reading, progress)?,
            None => ReadBack::default(),
        };
        back.repaired.extend(told);
        let generation = manifest.map_or(0, |manifest| manifest.generation);
        let records = back.recovered.into_records();
        let found = Found {
            records: records.len() as u64,
            in_tables: back.tables,
            log_bytes: back.log_bytes,
            counts: back.counts,
            repaired: back.repaired,
            torn: back.torn,
            time: started.elapsed(),
        };
        Ok(Self { folder, reading, records, hash_seed: back.hash_seed, generation, found })
    }

    /// The seed of the key hashes of what was read back, if anything was: the only one under which
    /// its keys are found.
    pub fn hash_seed(&self) -> Option<u64> {
        self.hash_seed
    }

    pub fn values(&self) -> impl Iterator<Item = (Key, &[u8])> {
        self.records.iter().map(|(key, _, value)| (*key, &value[..]))
    }

    /// Begins a new run that holds what was read back, and removes the earlier ones.
    ///
    /// # Errors
    /// If a file cannot be made, with its name: the earlier runs are left as they are, and it may
    /// be tried again.
    pub(crate) fn begin(&mut self, view: &View, life: u64) -> Result<Begun> {
        let earlier = self.folder.runs()?;
        let run = self.folder.new_run()?;
        // Each attempt has its own: copies of one generation are equal.
        self.generation += 1;
        let begun = self.make(&run, view, life).inspect_err(|_| {
            // No manifest names it. What cannot be removed is removed with the earlier ones.
            drop(remove_runs([&run].into_iter()));
        })?;
        begun.manifest.store(self.folder.dir())?;
        remove_runs(earlier.iter())?;
        Ok(begun)
    }

    /// Makes the files of a run, and the manifest that is to name them.
    fn make(&self, run: &Run, view: &View, life: u64) -> Result<Begun> {
        let header = TablesHeader { hash_seed: view.hash_seed(), life };
        // Tables are loaded at version 1, whatever the versions were.
        let records = self.records.iter().map(|(key, _, value)| (*key, Version(1), &value[..]));
        let tables = write_tables(&run.path, header, records)
            .context("the tables that were read back cannot be saved; nothing is lost")?;
        let logs = self.folder.create_logs(&run.path, view, life)?;
        let listed = ListedRun { number: run.number, logs: LogFile::nonces(&logs) };
        let marks = Marks::create(&run.path, &listed.logs)?;
        let manifest = Manifest {
            generation: self.generation,
            life,
            tables: (run.number, tables.nonce),
            runs: vec![listed],
        };
        Ok(Begun { logs, marks, manifest, table_bytes: tables.bytes })
    }
}

/// A run that was begun.
pub(crate) struct Begun {
    /// Its logs, by node.
    pub(crate) logs: Vec<LogFile>,
    /// Marks of how far the logs went.
    pub(crate) marks: Marks,
    /// The manifest that names its files.
    pub(crate) manifest: Manifest,
    /// Bytes of its saved tables, in one of their two files.
    pub(crate) table_bytes: u64,
}

/// The records that tables are loaded with at the start, by shard.
pub(crate) struct Loaded<'s> {
    records: &'s [(Key, Version, Box<[u8]>)],
    most_per_shard: u64,
    capacity_per_shard: u64,
}

impl<'s> Loaded<'s> {
    pub(crate) fn new(
        records: &'s [(Key, Version, Box<[u8]>)],
        view: &View,
        capacity_per_shard: u64,
    ) -> Self {
        let mut counts = vec![0; view.shard_ids().count()];
        for (key, ..) in records {
            counts[usize::from(view.shard_of(*key).0)] += 1;
        }
        let most_per_shard = counts.into_iter().max().unwrap_or(0);
        Self { records, most_per_shard, capacity_per_shard }
    }
}

impl RecordSource for Loaded<'_> {
    fn load(&self, shards: &dyn ShardMap, shard: ShardId, each: &mut dyn FnMut(Key, &[u8])) {
        for (key, _, value) in self.records {
            if shards.shard_of(*key) == shard {
                each(*key, value);
            }
        }
    }

    fn records_per_shard(&self) -> u64 {
        self.most_per_shard
    }

    fn growth_per_shard(&self) -> u64 {
        self.capacity_per_shard.saturating_sub(self.most_per_shard)
    }
}
