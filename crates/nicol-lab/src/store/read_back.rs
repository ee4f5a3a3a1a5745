//! Reading back what a store's logs and saved tables hold. (decision 0025)

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail, ensure};
use nicol_core::ids::{Key, NodeId, Version};
use nicol_core::view::View;
use nicol_core::wire::Malformed;
use nicol_protocols::commit::recovery::{Counts, EachWrite, Logs, Recovered};
use nicol_rt::{LogEntry, LogHeader, LogReader, Lost, Run, read_tables};

/// Records between two looks at the progress.
const PROGRESS_RECORDS: u64 = 4_096;

/// Told how many bytes of all have been read.
pub type Progress<'p> = &'p mut dyn FnMut(u64, u64);

/// Calls its second argument with every update of a record that a log record says; `None` removes one.
/// Errors: it is none. Of a store whose logs hold such updates each node's log has everything that
/// was acknowledged.
pub type Updates = fn(&[u8], EachWrite<'_>) -> Result<(), Malformed>;

/// What was read back.
#[derive(Debug, Default)]
pub struct ReadBack {
    /// Of each key the newest write.
    pub recovered: Recovered,
    /// The seed of the hash that spreads keys over shards; `None` if there was nothing.
    pub hash_seed: Option<u64>,
    /// Transactions and records of logs.
    pub counts: Counts,
    /// Records that stood in saved tables.
    pub tables: u64,
    /// Bytes of logs.
    pub log_bytes: u64,
    /// What was damaged and could be made up for, in words.
    pub repaired: Vec<String>,
    /// Logs whose end a crash has torn.
    pub torn: usize,
    /// The life of the store; 0 if there was nothing.
    life: u64,
}

/// Reads the latest saved tables of `runs`, and every log since: of transactions, or of `updates` that
/// stand alone.
///
/// # Errors
/// What was acknowledged may be lost, or the files are not a store's: they name file, place and
/// remedy.
pub fn read_back(
    dir: &Path,
    runs: &[Run],
    updates: Option<Updates>,
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
    // Each log of transactions is read twice.
    let times = if updates.is_some() { 1 } else { 2 };
    let total = times * logs.iter().flatten().map(|(_, path)| size(path)).sum::<u64>();
    let mut done = 0;
    for (run, logs) in since.iter().zip(&logs) {
        let mut told = |bytes| progress(done + bytes, total);
        let read = match updates {
            Some(updates) => read_updates(&mut back, (dir, run), logs, updates, &mut told)?,
            None => read_run(&mut back, dir, run, logs, &mut told)?,
        };
        done += read;
    }
    back.log_bytes = total / times;
    Ok(back)
}

/// A log and what is known of it.
struct Log<'l> {
    node: NodeId,
    path: &'l Path,
    /// `None`: the header is damaged, and why.
    header: Result<LogHeader, String>,
}

/// Reads the logs of a run; returns the bytes read.
fn read_run(
    back: &mut ReadBack,
    dir: &Path,
    run: &Run,
    logs: &[(u32, PathBuf)],
    progress: &mut dyn FnMut(u64),
) -> Result<u64> {
    let mut opened = Vec::new();
    for (node, path) in logs {
        opened.push(Log { node: NodeId(*node as u16), path, header: header_of(path)? });
    }
    let Some(view) = common_view(back, dir, &opened)? else { return Ok(0) };
    let (mut damage, mut torn) = (Damage::default(), Damage::default());
    let mut seen = Logs::new(&view);
    let mut read = 0;
    for log in &opened {
        let each = &mut |node, record: &[u8]| seen.note(node, record).map_err(Into::into);
        let (end, lost) = match &log.header {
            Ok(_) => scan(log, read, progress, each)?,
            Err(why) => {
                damage.add(log.path, 0, why);
                seen.note_lost(log.node, None);
                continue;
            }
        };
        read += end;
        for (lost, is_damage) in lost {
            if is_damage {
                damage.add(log.path, lost.offset, &lost_in_words(&lost));
                seen.note_lost(log.node, lost.lead.as_ref().map(|lead| &lead[..]));
            } else {
                torn.add(log.path, lost.offset, "the end is torn");
            }
        }
    }
    // A launch that crashed may have made some of its logs, before anyone was served.
    if seen.records() > 0 || !damage.0.is_empty() {
        for node in view.node_ids().filter(|node| opened.iter().all(|log| log.node != *node)) {
            let path = run.path.join(format!("node-{}.log", node.0));
            damage.add(&path, 0, "the file is missing");
            seen.note_lost(node, None);
        }
    }
    let decided = seen.decide().map_err(|error| {
        damage.0.extend_from_slice(&torn.0);
        refusal(dir, &error, &damage)
    })?;
    back.counts.add(&decided.counts);
    back.repaired.extend(damage.0);
    back.torn += torn.0.len();
    for log in opened.iter().filter(|log| log.header.is_ok()) {
        let recovered = &mut back.recovered;
        let mut apply = |key: Key, version: Version, value: Option<&[u8]>| {
            recovered.apply(key, version, value);
        };
        let each = &mut |_: NodeId, record: &[u8]| {
            decided.for_each_write(record, &mut apply).map_err(Into::into)
        };
        read += scan(log, read, progress, each)?.0;
    }
    Ok(read)
}

/// Reads the logs of a run that hold updates; returns the bytes read. Of each key the newest one counts,
/// in whichever log it stands.
fn read_updates(
    back: &mut ReadBack,
    (dir, run): (&Path, &Run),
    logs: &[(u32, PathBuf)],
    updates: Updates,
    progress: &mut dyn FnMut(u64),
) -> Result<u64> {
    let mut opened = Vec::new();
    for (node, path) in logs {
        opened.push(Log { node: NodeId(*node as u16), path, header: header_of(path)? });
    }
    let Some(view) = common_view(back, dir, &opened)? else { return Ok(0) };
    let (mut damage, mut whole, mut read) = (Damage::default(), 0, 0);
    for log in &opened {
        if let Err(why) = &log.header {
            damage.add(log.path, 0, why);
            continue;
        }
        let (recovered, counts) = (&mut back.recovered, &mut back.counts);
        let each = &mut |_: NodeId, record: &[u8]| {
            counts.records += 1;
            let apply = &mut |key: Key, version: Version, value: Option<&[u8]>| {
                counts.taken += 1;
                recovered.apply(key, version, value);
            };
            updates(record, apply).map_err(Into::into)
        };
        let (end, lost) = scan(log, read, progress, each)?;
        read += end;
        let damaged = lost.iter().filter(|(_, is_damage)| *is_damage);
        damaged
            .clone()
            .for_each(|(lost, _)| damage.add(log.path, lost.offset, &lost_in_words(lost)));
        whole += usize::from(damaged.count() == 0);
        back.torn += lost.iter().filter(|(_, is_damage)| !is_damage).count();
    }
    // A launch that crashed may have made some of its logs, before anyone was served.
    if back.counts.records > 0 || !damage.0.is_empty() {
        for node in view.node_ids().filter(|node| opened.iter().all(|log| log.node != *node)) {
            let path = run.path.join(format!("node-{}.log", node.0));
            damage.add(&path, 0, "the file is missing");
        }
    }
    if whole == 0 {
        let why = "no node's log has everything that was acknowledged";
        return Err(refusal(dir, &why, &damage));
    }
    back.repaired.extend(damage.0);
    Ok(read)
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

/// Calls `each` with every record of a log; returns its length, and what is lost with whether it was
/// durable.
fn scan(
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

/// What is damaged, in words.
#[derive(Debug, Default)]
struct Damage(Vec<String>);

impl Damage {
    fn add(&mut self, path: &Path, offset: u64, what: &str) {
        self.0.push(format!("{} at byte {offset}: {what}", path.display()));
    }
}

fn lost_in_words(lost: &Lost) -> String {
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
