//! Points to kill the bot at: after each commit, after each write GitHub accepted, during each paid call, and between a
//! person's act and the first event by which the bot learns of it. At each point the data are copied as a kill would
//! leave them.

use std::{
    collections::BTreeSet,
    fs,
    io::ErrorKind,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicI64, AtomicUsize, Ordering},
    },
};

use countersign::{clock::Clock, localhub::Hub, types::Timestamp};
use rusqlite::OpenFlags;
use tempfile::TempDir;

use crate::{
    models::Models,
    world::{Known, ManualClock, World, directory},
};

/// Event just before a kill.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Moment {
    /// A commit to this database.
    Commit(String),
    /// A write that GitHub applied and whose response is not read yet.
    Write(String),
    /// A model received a call.
    Call,
    /// A person's act.
    Act(&'static str),
}

/// Copy of a world as a kill at that moment leaves it.
pub(crate) struct Point {
    /// Number of the moment, from 0, including moments that were not kept.
    pub(crate) number: usize,
    pub(crate) moment: Moment,
    /// Step of the run, as stored. `None` before there is a run.
    pub(crate) step: Option<String>,
    pub(crate) directory: TempDir,
    pub(crate) now: Timestamp,
    /// Number of paid calls so far.
    pub(crate) calls: usize,
    /// Input tokens of these calls in the ledger on disk.
    pub(crate) settled: u64,
    pub(crate) known: Known,
    /// Address of the world's hub, which appears in comments and documents.
    pub(crate) address: String,
}

/// Selection of commits to copy: every `step`th from `first` on, the first in each workflow step, and each that
/// records the outcome of a paid call. Moments outside the database are always copied, since each may be unique.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sample {
    pub(crate) first: usize,
    pub(crate) step: usize,
    /// Only runs of this workflow are copied; runs of earlier workflows are not.
    pub(crate) workflow: &'static str,
    /// Steps, as stored, to restrict the copies to. Empty means all.
    pub(crate) within: &'static [&'static str],
}

/// Copies a world at the selected moments.
pub(crate) struct Recorder {
    /// `None` after recording has ended.
    source: Mutex<Option<Source>>,
    seen: AtomicUsize,
    steps: Mutex<BTreeSet<String>>,
    settled: AtomicI64,
    sample: Sample,
}

/// Data to copy, and the receiver of the copies.
struct Source {
    keep: Box<dyn Fn(Point) + Send>,
    hub: Hub,
    clock: Arc<ManualClock>,
    bot: PathBuf,
    models: Arc<Models>,
    key: String,
    known: Known,
}

/// Calls `moment` for each moment except people's acts, which the test itself reports.
pub(crate) fn watch(
    world: &World,
    models: &Models,
    key: &str,
    moment: impl Fn(Moment) + Clone + Send + Sync + 'static,
) {
    let data = world.directory().join("bot/data");
    let report = moment.clone();
    world.app.store.on_commit(move |file| {
        let file = file.strip_prefix(&data).unwrap_or(file);
        report(Moment::Commit(file.display().to_string()));
    });
    let report = moment.clone();
    world.hub.watch_writes(move |request| {
        report(Moment::Write(format!("{} {}", request.method, request.path)));
    });
    models.watch(key, move || moment(Moment::Call));
}

impl Source {
    /// Returns the run's step, the input tokens of all recorded calls, and the run's workflow. Chooses the live run of
    /// this workflow, or else the newest run.
    fn current_run(&self, workflow: &str) -> Option<(String, i64, String)> {
        let file = self.bot.join(format!("data/repos/{}/checkpoints.db", self.known.repo));
        let database = rusqlite::Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_ONLY).ok()?;
        let sql = "SELECT step, (SELECT COALESCE(SUM(body ->> 'input_tokens'), 0) FROM call), workflow
                   FROM run ORDER BY workflow = ?1 AND status NOT IN ('done', 'failed', 'stopped') DESC, seq DESC LIMIT 1";
        database.query_row(sql, [workflow], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).ok()
    }
}

impl Recorder {
    /// Starts recording `world`, which uses the API key `key`.
    pub(crate) fn watch(
        world: &World,
        models: &Arc<Models>,
        key: &str,
        sample: Sample,
        keep: impl Fn(Point) + Send + 'static,
    ) -> Arc<Self> {
        let source = Source {
            keep: Box::new(keep),
            hub: world.hub.clone(),
            clock: world.clock.clone(),
            bot: world.directory().join("bot"),
            models: models.clone(),
            key: key.to_owned(),
            known: world.known(),
        };
        let (source, seen) = (Mutex::new(Some(source)), AtomicUsize::new(0));
        let (steps, settled) = (Mutex::default(), AtomicI64::new(0));
        let recorder = Arc::new(Self { source, seen, steps, settled, sample });
        let report = recorder.clone();
        watch(world, models, key, move |moment| report.moment(moment));
        recorder
    }

    pub(crate) fn moment(&self, moment: Moment) {
        let source = self.source.lock().unwrap();
        let Some(source) = source.as_ref() else { return };
        let number = self.seen.fetch_add(1, Ordering::SeqCst);
        let (step, settled) = match source.current_run(self.sample.workflow) {
            Some((.., workflow)) if workflow != self.sample.workflow => return,
            Some((step, settled, _)) => (Some(step), settled),
            None => (None, 0),
        };
        let within = self.sample.within;
        if !within.is_empty() && !step.as_deref().is_some_and(|step| within.contains(&step)) {
            return;
        }
        let first = step.clone().is_some_and(|step| self.steps.lock().unwrap().insert(step));
        let new = self.settled.swap(settled, Ordering::SeqCst) != settled || first;
        let commit = matches!(moment, Moment::Commit(_));
        if commit && !new && number % self.sample.step != self.sample.first % self.sample.step {
            return;
        }
        let directory = directory();
        source.hub.copy_to(&directory.path().join("hub")).unwrap();
        copy(&source.bot, &directory.path().join("bot"));
        let settled = settled.unsigned_abs();
        let calls = source.models.calls(source.bot.parent().unwrap(), &source.key);
        let now = source.clock.now();
        let (known, address) = (source.known, source.hub.base_url().to_string());
        (source.keep)(Point { number, moment, step, directory, now, calls, settled, known, address });
    }

    /// Stops recording and returns the number of moments.
    pub(crate) fn end(&self) -> usize {
        *self.source.lock().unwrap() = None;
        self.seen.load(Ordering::SeqCst)
    }
}

/// Copies a directory, skipping files that disappear meanwhile. Skips the index of a write-ahead log, which SQLite
/// recreates on open.
pub(crate) fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type().unwrap().is_dir() {
            copy(&path, &target);
        } else if !entry.file_name().to_string_lossy().ends_with("-shm") {
            match fs::copy(&path, &target) {
                Err(gone) if gone.kind() == ErrorKind::NotFound => {}
                copied => drop(copied.unwrap()),
            }
        }
    }
}
