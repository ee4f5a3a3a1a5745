//! The runs of a store that serves: once the logs are long, they go on in a new run, and what the
//! old ones hold is merged into saved tables. (decision 0025)

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, anyhow};
use nicol_core::view::View;
use nicol_rt::{
    ListedRun, LiveCluster, LogFile, LogFolder, Manifest, Marks, TablesHeader, panic_text,
    remove_runs, write_tables,
};

use super::kept::{Kept, Pausable, lock};
use super::read_back::{LogReading, read_back};

/// Time that the cluster may take to become quiet. After it, the cluster serves on and is asked
/// again later.
const QUIET_MAX: Duration = Duration::from_millis(300);
/// Interval at which the cluster is asked whether it is quiet.
const QUIET_POLL: Duration = Duration::from_micros(200);
/// Wait before the next attempt if the cluster has not become quiet.
const AGAIN: Duration = Duration::from_secs(5);

/// The run that a store has begun, but for its logs.
pub(super) struct BegunRun {
    /// How far the logs went.
    pub(super) marks: Marks,
    /// The files that there must be.
    pub(super) manifest: Manifest,
    /// Bytes of its saved tables, in one of their two files.
    pub(super) table_bytes: u64,
}

/// A run that the logs will go on in.
struct NextRun {
    number: u32,
    path: PathBuf,
    logs: Vec<LogFile>,
    marks: Marks,
}

/// Shortens the logs of a served store while it runs.
pub(super) struct Runs {
    folder: Arc<LogFolder>,
    cluster: Arc<dyn Pausable>,
    view: View,
    reading: LogReading,
    manifest: Manifest,
    marks: Marks,
    /// Whether the marks can be noted. That they cannot is told once.
    marked: bool,
    /// Whether writes are refused, because the disk is full.
    full: bool,
    limit: u64,
    next: Option<NextRun>,
    not_before: Option<Instant>,
    saving: Option<JoinHandle<Result<Saved>>>,
    /// Since when nothing is begun, because the logs outrun the thread that saves the tables.
    held: Option<Instant>,
    kept: Arc<Mutex<Kept>>,
}

struct Saved {
    manifest: Manifest,
    table_bytes: u64,
    took: Duration,
}

impl Runs {
    /// The runs of a store that has begun one in `folder`.
    pub(super) fn new(
        (folder, reading): (LogFolder, LogReading),
        (begun, view): (BegunRun, View),
        (cluster, limit): (Arc<dyn Pausable>, u64),
        kept: Arc<Mutex<Kept>>,
    ) -> Self {
        let BegunRun { marks, manifest, table_bytes } = begun;
        let mut noted = lock(&kept);
        (noted.saved_at, noted.table_bytes) = (Some(SystemTime::now()), table_bytes);
        drop(noted);
        Self {
            folder: Arc::new(folder),
            cluster,
            view,
            reading,
            manifest,
            marks,
            marked: true,
            full: false,
            limit,
            next: None,
            not_before: None,
            saving: None,
            held: None,
            kept,
        }
    }

    /// Does what is due. Call it a few times a second. Returns a message for the operator, if there
    /// is one.
    ///
    /// Cost: nothing is begun from when the logs are long until everything under way has ended and
    /// is applied, at most 0.3 s. Saving the tables takes a thread, the memory of one copy of all
    /// records, and the disk's time. If the logs become as long again before that is done, or have
    /// become twice as long before it could begin, nothing is begun until it is: the disk holds the
    /// logs twice at most, and what is written between two calls.
    ///
    /// # Errors
    /// If the cluster has failed.
    pub(super) fn tend(&mut self, world: &LiveCluster) -> Result<Option<String>> {
        lock(&self.kept).log_bytes = world.log_bytes();
        if let Some(told) = self.watch_room(world).or_else(|| self.mark(world)) {
            return Ok(Some(told));
        }
        let long = world.log_bytes() >= self.limit;
        match &self.saving {
            Some(saving) if saving.is_finished() => return Ok(self.end_saving(long)),
            Some(_) if long => {
                self.hold();
                return Ok(None);
            }
            Some(_) => return Ok(None),
            None => {}
        }
        let due = self.not_before.is_none_or(|at| Instant::now() >= at);
        if !due || !long {
            return Ok(None);
        }
        if self.next.is_none() {
            // What is begun while the files are made would make the logs longer still.
            self.hold();
        }
        match self.switch(world) {
            Ok(()) => Ok(None),
            Err(Failure::World(error)) => Err(error),
            Err(Failure::Folder(error)) => {
                self.not_before = Some(Instant::now() + AGAIN);
                self.release();
                Ok(Some(self.failed(&error)))
            }
        }
    }

    /// Refuses writes while the disk of a log is full; what there is to tell when that begins or
    /// ends.
    fn watch_room(&mut self, world: &LiveCluster) -> Option<String> {
        let full = world.logs_full();
        lock(&self.kept).full = full.is_some();
        if full.is_some() == self.full {
            return None;
        }
        self.full = full.is_some();
        self.cluster.refuse_writes(self.full);
        Some(match full {
            Some(error) => format!(
                "no room for the logs: commands that write are refused until there is; reads go on, \
                 nothing acknowledged is lost: {error}"
            ),
            None => "there is room for the logs again: commands that write are taken".to_owned(),
        })
    }

    /// Notes how far the logs went; what there is to tell if that fails.
    fn mark(&mut self, world: &LiveCluster) -> Option<String> {
        let noted = self.marks.note(&world.log_records());
        let worked = std::mem::replace(&mut self.marked, noted.is_ok());
        let error = noted.err().filter(|_| worked)?;
        Some(format!(
            "how far the logs went is not noted, and a log that is cut short not seen: {error}"
        ))
    }

    /// Lets nothing be begun from now on.
    fn hold(&mut self) {
        if self.held.is_none() {
            self.held = Some(Instant::now());
            self.cluster.pause(true);
        }
    }

    /// Lets everything be begun again, however long the logs are: to be called before what was
    /// asked is answered for the last time.
    pub(super) fn release(&mut self) {
        if let Some(since) = self.held.take() {
            self.cluster.pause(false);
            lock(&self.kept).held += since.elapsed();
        }
    }

    /// Waits for a thread that saves tables.
    pub(super) fn finish(mut self) -> Option<String> {
        self.saving.is_some().then(|| self.end_saving(false)).flatten()
    }

    /// Lets the logs go on in a new run at an instant at which nothing is under way, and begins to
    /// save what the earlier runs hold.
    fn switch(&mut self, world: &LiveCluster) -> Result<(), Failure> {
        let next = match self.next.take() {
            Some(next) => next,
            None => self.make_run().map_err(Failure::Folder)?,
        };
        let started = Instant::now();
        self.cluster.pause(true);
        let quiet = loop {
            match self.cluster.is_quiet() {
                true => break true,
                false if started.elapsed() > QUIET_MAX => break false,
                false => thread::sleep(QUIET_POLL),
            }
        };
        let (run, path) = (next.number, next.path.clone());
        let switched = match quiet {
            true => self.go_on_in(next, world),
            false => {
                self.next = Some(next);
                Ok(())
            }
        };
        if !quiet && world.log_bytes() >= 2 * self.limit {
            // Too long to go on: what is under way ends, and then it is asked again.
            self.hold();
            return Ok(());
        }
        self.cluster.pause(false);
        self.release();
        switched?;
        if !quiet {
            self.not_before = Some(Instant::now() + AGAIN);
            return Ok(());
        }
        let mut kept = lock(&self.kept);
        (kept.under_way, kept.paused) = (true, started.elapsed());
        drop(kept);
        let (folder, header, reading) = (self.folder.clone(), self.header(), self.reading);
        let manifest = self.manifest.clone();
        let body = move || save(&folder, (run, &path), manifest, header, reading);
        let builder = thread::Builder::new().name("nicol-tables".to_owned());
        let spawned = builder.spawn(body).context("starting a thread");
        self.saving = Some(spawned.map_err(Failure::Folder)?);
        Ok(())
    }

    /// Lets the logs of a quiet cluster go on in another run.
    fn go_on_in(&mut self, next: NextRun, world: &LiveCluster) -> Result<(), Failure> {
        // What is durable now will not be more.
        let noted = self.marks.note(&world.log_records());
        noted.map_err(|error| Failure::Folder(error.into()))?;
        let switched = world.switch_logs(next.logs);
        self.marks = next.marks;
        switched.map_err(|error| Failure::World(error.into()))
    }

    /// Makes the next run, and has the manifest name it before anything is logged there.
    fn make_run(&mut self) -> Result<NextRun> {
        let run = self.folder.new_run()?;
        let logs = self.folder.create_logs(&run.path, &self.view, self.manifest.life)?;
        let listed = ListedRun { number: run.number, logs: LogFile::nonces(&logs) };
        let marks = Marks::create(&run.path, &listed.logs)?;
        let mut manifest = self.manifest.clone();
        manifest.generation += 1;
        manifest.runs.push(listed);
        manifest.store(self.folder.dir())?;
        self.manifest = manifest;
        Ok(NextRun { number: run.number, path: run.path, logs, marks })
    }

    fn header(&self) -> TablesHeader {
        TablesHeader { hash_seed: self.view.hash_seed(), life: self.manifest.life }
    }

    /// If the logs are `long` again, what is held stays so until they go on in a new run.
    fn end_saving(&mut self, long: bool) -> Option<String> {
        let ended = self.saving.take()?.join();
        if !long {
            self.release();
        }
        let ended = ended.unwrap_or_else(|cause| Err(anyhow!("{}", panic_text(&*cause))));
        match ended {
            Ok(saved) => {
                self.manifest = saved.manifest;
                let mut kept = lock(&self.kept);
                kept.saves += 1;
                (kept.under_way, kept.failure) = (false, None);
                (kept.saved_at, kept.took) = (Some(SystemTime::now()), saved.took);
                kept.table_bytes = saved.table_bytes;
                None
            }
            Err(error) => Some(self.failed(&error)),
        }
    }

    /// Notes a failure; what there is to tell of it.
    fn failed(&self, error: &anyhow::Error) -> String {
        let mut kept = lock(&self.kept);
        (kept.under_way, kept.failure) = (false, Some(format!("{error:#}")));
        format!(
            "the tables cannot be saved, so that the logs in {} are kept and grow; nothing is lost: \
             {error:#}",
            self.folder.dir().display()
        )
    }
}

enum Failure {
    /// The cluster has failed.
    World(anyhow::Error),
    /// A file cannot be made.
    Folder(anyhow::Error),
}

/// Saves what the runs before `run` hold as the tables with which `run` begins, and removes them.
fn save(
    folder: &LogFolder,
    (run, path): (u32, &Path),
    mut manifest: Manifest,
    header: TablesHeader,
    reading: LogReading,
) -> Result<Saved> {
    let started = Instant::now();
    let mut earlier = folder.runs()?;
    earlier.retain(|other| other.number < run);
    let (since, before): (Vec<_>, _) =
        manifest.runs.into_iter().partition(|listed| listed.number >= run);
    manifest.runs = before;
    let back = read_back(folder.dir(), &manifest, reading, &mut |_, _| {})?;
    let records = back.recovered.into_records();
    let borrowed = records.iter().map(|(key, version, value)| (*key, *version, &value[..]));
    let tables = write_tables(path, header, borrowed)?;
    manifest.generation += 1;
    (manifest.tables, manifest.runs) = ((run, tables.nonce), since);
    manifest.store(folder.dir())?;
    remove_runs(earlier.iter())?;
    Ok(Saved { manifest, table_bytes: tables.bytes, took: started.elapsed() })
}
