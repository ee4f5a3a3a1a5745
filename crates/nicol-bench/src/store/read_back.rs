//! Reading back what a store's logs and saved tables hold. (decision 0025)

use std::fs::File;
use std::io::{BufReader, ErrorKind};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, ensure};
use nicol_core::ids::NodeId;
use nicol_core::view::View;
use nicol_kit::{Counts, Recovered};
use nicol_rt::{
    ListedRun, LogEntry, LogHeader, LogReader, Lost, Manifest, Run, read_marks, read_tables,
};

/// Records between two looks at the progress.
const PROGRESS_RECORDS: u64 = 4_096;

/// Told how many bytes of all have been read.
pub type Progress<'p> = &'p mut dyn FnMut(u64, u64);

/// The way to read back the logs of a system's stores: its family knows their records.
#[derive(Clone, Copy, Debug)]
pub struct LogReading {
    /// The number of times that each log is read.
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

/// Reads the saved tables that `manifest` names, and every log since, as `reading` says.
///
/// # Errors
/// A file that the manifest names is missing, damaged or another one, and nothing makes up for it:
/// what was acknowledged may be lost. They name file, place and remedy.
pub fn read_back(
    dir: &Path,
    manifest: &Manifest,
    reading: LogReading,
    progress: Progress<'_>,
) -> Result<ReadBack> {
    let mut back = ReadBack { life: manifest.life, ..ReadBack::default() };
    let (base, nonce) = manifest.tables;
    let recovered = &mut back.recovered;
    let mut each = |key, version, value: &[u8]| recovered.apply(key, version, Some(value));
    let run = run_in(dir, base);
    let tables = read_tables(&run, nonce, &mut each)?;
    back.hash_seed = Some(tables.header.hash_seed);
    back.tables = tables.records;
    if tables.repaired > 0 {
        let (run, blocks) = (run.display(), tables.repaired);
        back.repaired.push(format!("{run}/tables-1: {blocks} blocks read from its copy"));
    }
    let mut runs = Vec::new();
    for listed in &manifest.runs {
        runs.push(RunLogs::open(&mut back, dir, listed)?);
    }
    let size = |log: &Log| log.path.metadata().map_or(0, |data| data.len());
    let total = reading.times * runs.iter().flat_map(|run| &run.logs).map(size).sum::<u64>();
    let mut done = 0;
    for run in &runs {
        let mut told = |bytes| progress(done + bytes, total);
        done += (reading.read)(&mut back, run, &mut told)?;
    }
    back.log_bytes = total / reading.times;
    Ok(back)
}

/// The path of the run with this number.
fn run_in(dir: &Path, number: u32) -> PathBuf {
    dir.join(format!("run-{number}"))
}

/// The logs of a run.
#[derive(Debug)]
pub(crate) struct RunLogs<'d> {
    /// One for each node.
    pub(crate) logs: Vec<Log>,
    /// The view in which they were written.
    pub(crate) view: View,
    dir: &'d Path,
}

/// A log and what is known of it.
#[derive(Debug)]
pub(crate) struct Log {
    pub(crate) node: NodeId,
    pub(crate) path: PathBuf,
    /// `Err`: the file is missing, or it is not this log, and why.
    pub(crate) header: Result<LogHeader, String>,
    /// Records that were durable, as the marks of its run say.
    marked: u64,
}

impl<'d> RunLogs<'d> {
    /// Opens the logs that a run must have.
    fn open(back: &mut ReadBack, dir: &'d Path, listed: &ListedRun) -> Result<Self> {
        let run = run_in(dir, listed.number);
        let first = listed.logs.first().copied().unwrap_or_default();
        let marks = read_marks(&run, first, listed.logs.len())?;
        if marks.is_none() {
            let run = run.display();
            back.repaired
                .push(format!("{run}/marks: missing or damaged; the logs tell of themselves"));
        }
        let mut logs = Vec::new();
        for (node, nonce) in (0u16..).zip(&listed.logs) {
            let path = run.join(format!("node-{node}.log"));
            let marked = marks.as_ref().map_or(0, |marks| marks[usize::from(node)]);
            let header = header_of(&path, NodeId(node), *nonce)?;
            logs.push(Log { node: NodeId(node), path, header, marked });
        }
        let view = common_view(back, dir, &logs)?;
        Ok(Self { logs, view, dir })
    }

    /// Why these logs are refused, in words.
    pub(crate) fn refusal(&self, why: &dyn std::fmt::Display, damage: &Damage) -> anyhow::Error {
        refusal(self.dir, why, damage)
    }
}

/// The header of the log of `node` with this nonce; or why the file is not that.
fn header_of(path: &Path, node: NodeId, nonce: u64) -> Result<Result<LogHeader, String>> {
    let file = match File::open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Ok(Err("the file is missing".to_owned()));
        }
        file => file.with_context(|| path.display().to_string())?,
    };
    Ok(match LogReader::open(file) {
        Ok(reader) if reader.header().node != node => Err(format!(
            "the file is the log of node {}; give each file its own name again",
            reader.header().node.0
        )),
        Ok(reader) if reader.header().nonce != nonce => {
            Err("the file is a log of another run or store".to_owned())
        }
        Ok(reader) => Ok(reader.header().clone()),
        Err(error) => Err(error.to_string()),
    })
}

/// The view in which the logs of a run were written: that of each header.
fn common_view(back: &ReadBack, dir: &Path, logs: &[Log]) -> Result<View> {
    let mut headers = logs.iter().filter_map(|log| Some((log, log.header.as_ref().ok()?)));
    let Some((_, first)) = headers.next() else {
        let mut damage = Damage::default();
        for log in logs {
            damage.add(&log.path, 0, log.header.as_ref().err().map_or("", |why| why));
        }
        return Err(refusal(dir, &"no log of the run can be read", &damage));
    };
    for (log, header) in headers {
        let same = header.life == back.life && header.view == first.view;
        ensure!(
            same && back.hash_seed.is_none_or(|seed| seed == header.view.hash_seed()),
            "{}: the log of another store than the other files; put back the file that was there",
            log.path.display()
        );
    }
    Ok(first.view.clone())
}

/// Calls `each` with every record of a log; returns its length, and what is lost with whether it
/// was durable.
pub(crate) fn scan(
    log: &Log,
    before: u64,
    progress: &mut dyn FnMut(u64),
    each: &mut dyn FnMut(NodeId, &[u8]) -> Result<()>,
) -> Result<(u64, Vec<(Lost, bool)>)> {
    let named = || log.path.display().to_string();
    let file = File::open(&log.path).with_context(named)?;
    let mut reader = LogReader::open(BufReader::new(file)).with_context(named)?;
    let (mut lost, mut last) = (Vec::new(), 0);
    loop {
        let offset = reader.offset();
        match reader.next().with_context(named)? {
            None => break,
            Some(LogEntry::Lost(one)) => {
                last = one.first - 1 + one.records.unwrap_or(0);
                lost.push(one);
            }
            Some(LogEntry::Record(record)) => {
                last = record.sequence;
                if record.sequence % PROGRESS_RECORDS == 0 {
                    progress(before + offset);
                }
                each(log.node, record.bytes).with_context(|| {
                    format!("{} at byte {offset}: written by another version?", named())
                })?;
            }
        }
    }
    let durable = reader.durable().max(log.marked);
    if last < log.marked && lost.iter().all(|lost: &Lost| lost.records.is_some()) {
        // The file ends before it, as if nothing had followed.
        lost.push(Lost { offset: reader.offset(), first: last + 1, records: None, lead: None });
    }
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

/// Refuses runs that no store has made, and a store's runs that no manifest names.
///
/// # Errors
/// They name the file.
pub fn expect_manifest(dir: &Path, runs: &[Run], manifest: Option<&Manifest>) -> Result<()> {
    let listed_last = manifest.and_then(|manifest| manifest.runs.last()).map(|run| run.number);
    for run in runs.iter().filter(|run| Some(run.number) > listed_last) {
        for (_, path) in run.logs()? {
            let file = File::open(&path).with_context(|| path.display().to_string())?;
            let Ok(mut reader) = LogReader::open(BufReader::new(file)) else { continue };
            ensure!(
                reader.header().life != 0,
                "{}: a log of 'nicol bench', which is not read back; give another folder than {}",
                path.display(),
                dir.display()
            );
            // A launch that was killed may have made its files, before anyone was served.
            ensure!(
                reader.next()?.is_none(),
                "{}: records of a run that {}/manifest-1 and its copy manifest-2 do not name: they \
                 are missing, or older than the run. Restore one of them from a backup, or move the \
                 folder away to start empty",
                path.display(),
                dir.display()
            );
        }
    }
    Ok(())
}
