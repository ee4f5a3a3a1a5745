//! Reading back what a store's logs and saved tables hold. (decision 0025)

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail, ensure};
use nicol_core::ids::NodeId;
use nicol_core::view::View;
use nicol_kit::{Counts, Recovered};
use nicol_rt::{LogEntry, LogHeader, LogReader, Lost, Run, read_tables};

/// Records between two looks at the progress.
const PROGRESS_RECORDS: u64 = 4_096;

/// Told how many bytes of all have been read.
pub type Progress<'p> = &'p mut dyn FnMut(u64, u64);

/// How the logs of a system's stores are read back: its family knows what stands in them.
#[derive(Clone, Copy, Debug)]
pub struct LogReading {
    /// How often each log is read.
    pub(crate) times: u64,
    /// Adds what the logs of a run hold; returns the bytes read.
    ///
    /// Errors: what was acknowledged may be lost.
    pub(crate) read: ReadRun,
}

/// See [`LogReading`]. The last argument is told how many bytes of the run have been read.
pub(crate) type ReadRun = fn(&mut ReadBack, &RunLogs<'_>, &mut dyn FnMut(u64)) -> Result<u64>;

/// The content that was read back.
#[derive(Debug, Default)]
pub(crate) struct ReadBack {
    /// Of each key the newest write.
    pub(crate) recovered: Recovered,
    /// The seed of the hash that spreads keys over shards; `None` if there was nothing.
    pub(crate) hash_seed: Option<u64>,
    /// Records of logs, and what was taken of them.
    pub(crate) counts: Counts,
    /// Records that stood in saved tables.
    pub(crate) tables: u64,
    pub(crate) log_bytes: u64,
    /// Damage that could be made up for, in words.
    pub(crate) repaired: Vec<String>,
    /// Logs whose end a crash has torn.
    pub(crate) torn: usize,
    /// The life of the store; 0 if there was nothing.
    life: u64,
}

/// Reads the latest saved tables of `runs`, and every log since as `reading` says.
///
/// # Errors
/// What was acknowledged may be lost, or the files are not a store's: they name file, place and
/// remedy.
pub fn read_back(
    dir: &Path,
    runs: &[Run],
    reading: LogReading,
    progress: Progress<'_>,
) -> Result<ReadBack> {
    let base = runs.iter().rposition(|run| run.has_tables);
    let mut back = ReadBack::default();
    if let Some(base) = base {
        let recovered = &mut back.recovered;
        let mut each = |key, version, value: &[u8]| recovered.apply(key, version, Some(value));
        let tables = read_tables(&runs[base].path, &mut each)?;
        (back.hash_seed, back.life) = (Some(tables.header.hash_seed), tables.header.life);
        back.tables = tables.records;
        if tables.repaired > 0 {
            let (run, blocks) = (runs[base].path.display(), tables.repaired);
            back.repaired.push(format!("{run}/tables-1: {blocks} blocks read from its copy"));
        }
    }
    let since = &runs[base.unwrap_or(0)..];
    let logs = since.iter().map(Run::logs).collect::<Result<Vec<_>, _>>()?;
    let size = |path: &Path| path.metadata().map_or(0, |data| data.len());
    let total = reading.times * logs.iter().flatten().map(|(_, path)| size(path)).sum::<u64>();
    let mut done = 0;
    for (run, logs) in since.iter().zip(&logs) {
        let mut told = |bytes| progress(done + bytes, total);
        if let Some(logs) = RunLogs::open(&mut back, dir, run, logs)? {
            done += (reading.read)(&mut back, &logs, &mut told)?;
        }
    }
    back.log_bytes = total / reading.times;
    Ok(back)
}

/// The logs of a run.
#[derive(Debug)]
pub(crate) struct RunLogs<'r> {
    /// Those that there are, by node.
    pub(crate) logs: Vec<Log<'r>>,
    /// The view in which they were written.
    pub(crate) view: View,
    dir: &'r Path,
    run: &'r Run,
}

/// A log and what is known of it.
#[derive(Debug)]
pub(crate) struct Log<'r> {
    pub(crate) node: NodeId,
    pub(crate) path: &'r Path,
    /// `Err`: the header is damaged, and why.
    pub(crate) header: Result<LogHeader, String>,
}

impl<'r> RunLogs<'r> {
    /// `None` if the run has none.
    fn open(
        back: &mut ReadBack,
        dir: &'r Path,
        run: &'r Run,
        files: &'r [(NodeId, PathBuf)],
    ) -> Result<Option<Self>> {
        let mut logs = Vec::new();
        for (node, path) in files {
            logs.push(Log { node: *node, path, header: header_of(path)? });
        }
        let view = common_view(back, dir, &logs)?;
        Ok(view.map(|view| Self { logs, view, dir, run }))
    }

    /// The nodes of the view that have no log, and where it should be.
    pub(crate) fn missing(&self) -> impl Iterator<Item = (NodeId, PathBuf)> {
        let has_none = |node: &NodeId| self.logs.iter().all(|log| log.node != *node);
        let place = |node: NodeId| (node, self.run.path.join(format!("node-{}.log", node.0)));
        self.view.node_ids().filter(has_none).map(place)
    }

    /// Why these logs are refused, in words.
    pub(crate) fn refusal(&self, why: &dyn std::fmt::Display, damage: &Damage) -> anyhow::Error {
        refusal(self.dir, why, damage)
    }
}

fn header_of(path: &Path) -> Result<Result<LogHeader, String>> {
    let file = File::open(path).with_context(|| path.display().to_string())?;
    Ok(match LogReader::open(file) {
        Ok(reader) => Ok(reader.header().clone()),
        Err(error) => Err(error.to_string()),
    })
}

/// The view on which the headers of a run's logs agree; `None` if there are none.
fn common_view(back: &mut ReadBack, dir: &Path, logs: &[Log<'_>]) -> Result<Option<View>> {
    let mut common: Option<(&Path, &LogHeader)> = None;
    for (log, header) in logs.iter().filter_map(|log| Some((log, log.header.as_ref().ok()?))) {
        let path = log.path.display();
        ensure!(
            header.life != 0,
            "{path}: a log of 'nicol bench', which is not read back; give another folder than {}",
            dir.display()
        );
        ensure!(
            header.node == log.node,
            "{path}: the file is the log of node {}; give each file its own name again",
            header.node.0
        );
        let expected = if back.life == 0 { header.life } else { back.life };
        let (_, first) = *common.get_or_insert((log.path, header));
        let same = header.life == expected && header.view == first.view;
        ensure!(
            same && back.hash_seed.is_none_or(|seed| seed == header.view.hash_seed()),
            "{path}: the log of another store than the other files; put back the file that was there"
        );
        back.life = header.life;
        back.hash_seed = Some(header.view.hash_seed());
    }
    if common.is_none() && !logs.is_empty() {
        let mut damage = Damage::default();
        for log in logs {
            damage.add(log.path, 0, log.header.as_ref().err().map_or("", |why| why));
        }
        return Err(refusal(dir, &"no log of the run can be read", &damage));
    }
    Ok(common.map(|(_, header)| header.view.clone()))
}

/// Calls `each` with every record of a log; returns its length, and what is lost with whether it
/// was durable.
pub(crate) fn scan(
    log: &Log<'_>,
    before: u64,
    progress: &mut dyn FnMut(u64),
    each: &mut dyn FnMut(NodeId, &[u8]) -> Result<()>,
) -> Result<(u64, Vec<(Lost, bool)>)> {
    let named = || log.path.display().to_string();
    let file = File::open(log.path).with_context(named)?;
    let mut reader = LogReader::open(BufReader::new(file)).with_context(named)?;
    let mut lost = Vec::new();
    loop {
        let offset = reader.offset();
        match reader.next().with_context(named)? {
            None => break,
            Some(LogEntry::Lost(one)) => lost.push(one),
            Some(LogEntry::Record(record)) => {
                if record.sequence % PROGRESS_RECORDS == 0 {
                    progress(before + offset);
                }
                each(log.node, record.bytes).with_context(|| {
                    format!("{} at byte {offset}: written by another version?", named())
                })?;
            }
        }
    }
    let durable = reader.durable();
    let lost = lost.into_iter().map(|lost| (lost, lost.is_damage(durable))).collect();
    Ok((reader.offset(), lost))
}

/// The damage, in words.
#[derive(Debug, Default)]
pub(crate) struct Damage(pub(crate) Vec<String>);

impl Damage {
    pub(crate) fn add(&mut self, path: &Path, offset: u64, what: &str) {
        self.0.push(format!("{} at byte {offset}: {what}", path.display()));
    }
}

pub(crate) fn lost_in_words(lost: &Lost) -> String {
    match lost.records {
        Some(1) => format!("record {} is damaged", lost.first),
        Some(records) => format!("{records} records from {} on are damaged", lost.first),
        None => format!("everything from record {} on is damaged", lost.first),
    }
}

fn refusal(dir: &Path, why: &dyn std::fmt::Display, damage: &Damage) -> anyhow::Error {
    /// Places that a message names.
    const PLACES_MAX: usize = 8;
    let more = damage.0.len().saturating_sub(PLACES_MAX);
    let mut places = damage.0[..damage.0.len().min(PLACES_MAX)].join("; ");
    if more > 0 {
        places.push_str(&format!("; and {more} more places"));
    }
    anyhow!(
        "{}: {why}: {places}. Restore one of these files from a backup, or move the folder away to \
         start empty",
        dir.display()
    )
}

/// Refuses runs that no store has made.
pub fn expect_a_store(dir: &Path, runs: &[Run]) -> Result<()> {
    let base = runs.iter().rposition(|run| run.has_tables).unwrap_or(0);
    for run in &runs[..base] {
        // Those of a store are older than its tables, and go.
        for (_, path) in run.logs()? {
            if header_of(&path)?.is_ok_and(|header| header.life == 0) {
                bail!(
                    "{}: a log of 'nicol bench', which is not read back; give another folder than {}",
                    path.display(),
                    dir.display()
                );
            }
        }
    }
    Ok(())
}
