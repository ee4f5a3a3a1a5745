//! Keeping a store's folder while it serves: it begins a run as soon as the disk has room for one,
//! and keeps its runs short from then on. (decisions 0025, 0121)

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Error, Result};
use nicol_core::view::View;
use nicol_rt::{LiveCluster, LogFile};

use super::kept::{Kept, Pausable, lock};
use super::runs::{BegunRun, Runs};
use super::{Begun, Stored};

/// Bytes of logs that a second brings at most, all nodes together: assumed; one file of a fast disk
/// takes as many, and each node syncs its own.
const BYTES_PER_SECOND: u64 = 200_000_000;
/// The least interval at which the length of the logs is looked at.
const LOOK_MIN: Duration = Duration::from_millis(2);
const LOOK_MAX: Duration = Duration::from_millis(100);
/// How long it is waited until a run is begun again, for which there was no room: at the least, and
/// in lengths of the attempt, which has written what found room.
const ROOM_MIN: Duration = Duration::from_millis(500);
const ROOM_ATTEMPTS: u32 = 20;

/// Is this for want of room on a disk, and not a failure of it?
pub(crate) fn is_out_of_room(error: &Error) -> bool {
    let full = |error: &io::Error| {
        matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
    };
    error.chain().any(|cause| cause.downcast_ref().is_some_and(full))
}

/// A store's folder, and the cluster that serves it.
pub(crate) struct KeptFolder {
    /// Its content, and the folder.
    pub(crate) stored: Stored,
    /// The number of the store's life.
    pub(crate) life: u64,
    /// The view in which its logs are written.
    pub(crate) view: View,
    /// The cluster.
    pub(crate) cluster: Arc<dyn Pausable>,
    /// Bytes of logs from which on they are shortened.
    pub(crate) limit: u64,
}

/// Shortens the logs of a served store while it runs.
pub struct Keeper {
    dir: PathBuf,
    limit: u64,
    kept: Arc<Mutex<Kept>>,
    stage: Stage,
}

enum Stage {
    /// There was no room for a run: nothing is written.
    Waiting(Box<Waiting>),
    Begun(Box<Runs>),
    /// Between the two.
    Moving,
}

struct Waiting {
    folder: KeptFolder,
    not_before: Instant,
    /// True if it is still to be told.
    untold: Option<Error>,
}

impl Keeper {
    /// Keeps a store whose run has `begun`; its logs, where the cluster is to write. Else the
    /// error: there was no room for it.
    pub(crate) fn new(folder: KeptFolder, begun: Result<Begun, Error>) -> (Self, Vec<LogFile>) {
        let (dir, limit) = (folder.stored.folder.dir().to_owned(), folder.limit);
        let kept = Arc::new(Mutex::new(Kept::default()));
        let (stage, logs) = match begun {
            Ok(begun) => {
                let (runs, logs) = runs(folder, begun, kept.clone());
                (Stage::Begun(Box::new(runs)), logs)
            }
            Err(error) => {
                folder.cluster.refuse_writes(true);
                lock(&kept).full = true;
                let not_before = Instant::now() + ROOM_MIN;
                let waiting = Waiting { folder, not_before, untold: Some(error) };
                (Stage::Waiting(Box::new(waiting)), Vec::new())
            }
        };
        (Self { dir, limit, kept, stage }, logs)
    }

    /// Interval at which to call [`Keeper::tend`]: between two calls the logs grow by no more than
    /// they may.
    pub fn look_every(&self) -> Duration {
        let fills =
            Duration::from_nanos(self.limit.saturating_mul(1_000_000_000) / BYTES_PER_SECOND);
        fills.clamp(LOOK_MIN, LOOK_MAX)
    }

    /// The path of the folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The number of times that the logs have been shortened so far.
    pub fn saves(&self) -> u64 {
        lock(&self.kept).saves
    }

    /// The work done so far; may be called on any thread.
    pub fn kept(&self) -> impl Fn() -> Kept + Send + Sync + use<> {
        let kept = self.kept.clone();
        move || lock(&kept).clone()
    }

    /// Does what is due. Call it a few times a second. Returns a message for the operator, if there
    /// is one.
    ///
    /// Cost: nothing is begun from when the logs are long until everything under way has ended and
    /// is applied, at most 0.3 s. Saving the tables takes a thread, the memory of one copy of all
    /// records, and the disk's time. If the logs become as long again before that is done, or have
    /// become twice as long before it could begin, nothing is begun until it is: the disk holds the
    /// logs twice at most, and what is written between two calls. While there is no room for the
    /// first run, a twentieth of the time goes into attempts.
    ///
    /// # Errors
    /// If the cluster or the folder has failed.
    pub fn tend(&mut self, world: &LiveCluster) -> Result<Option<String>> {
        match std::mem::replace(&mut self.stage, Stage::Moving) {
            Stage::Begun(mut runs) => {
                let told = runs.tend(world);
                self.stage = Stage::Begun(runs);
                told
            }
            Stage::Waiting(waiting) => self.wait_for_room(waiting, world),
            Stage::Moving => Ok(None),
        }
    }

    /// Begins a run if there is room for it by now.
    fn wait_for_room(
        &mut self,
        mut waiting: Box<Waiting>,
        world: &LiveCluster,
    ) -> Result<Option<String>> {
        let untold = waiting.untold.take().map(|error| {
            format!(
                "no room to begin with: commands that write are refused until there is; what was read \
                 back is served, and nothing of it is lost: {error:#}"
            )
        });
        let started = Instant::now();
        if started < waiting.not_before {
            self.stage = Stage::Waiting(waiting);
            return Ok(untold);
        }
        let KeptFolder { stored, view, life, .. } = &mut waiting.folder;
        match stored.begin(view, *life) {
            Ok(begun) => {
                let cluster = waiting.folder.cluster.clone();
                let (runs, logs) = runs(waiting.folder, begun, self.kept.clone());
                // Nothing is written yet, and so the cluster is quiet.
                world.switch_logs(logs)?;
                cluster.refuse_writes(false);
                self.stage = Stage::Begun(Box::new(runs));
                lock(&self.kept).full = false;
                Ok(Some("there is room now: commands that write are taken".to_owned()))
            }
            Err(error) if is_out_of_room(&error) => {
                let pause = ROOM_MIN.max(started.elapsed() * ROOM_ATTEMPTS);
                waiting.not_before = Instant::now() + pause;
                self.stage = Stage::Waiting(waiting);
                Ok(untold)
            }
            Err(error) => Err(error),
        }
    }

    /// Lets everything be begun again, however long the logs are: to be called before what was
    /// asked is answered for the last time.
    pub fn release(&mut self) {
        if let Stage::Begun(runs) = &mut self.stage {
            runs.release();
        }
    }

    /// Waits for a thread that saves tables.
    pub fn finish(self) -> Option<String> {
        match self.stage {
            Stage::Begun(runs) => runs.finish(),
            Stage::Waiting(_) | Stage::Moving => None,
        }
    }
}

/// The runs of a folder in which one has begun, and its logs.
fn runs(folder: KeptFolder, begun: Begun, kept: Arc<Mutex<Kept>>) -> (Runs, Vec<LogFile>) {
    let KeptFolder { stored, view, cluster, limit, .. } = folder;
    let Begun { logs, marks, manifest, table_bytes } = begun;
    let begun = BegunRun { marks, manifest, table_bytes };
    let from = (stored.folder, stored.reading);
    (Runs::new(from, (begun, view), (cluster, limit), kept), logs)
}
