//! Points at which to kill the bot. They are after each commit, after each write that GitHub accepted, and during each
//! paid call. The last kind is between a person's act and the first event that tells the bot of the act. At each point,
//! the data are copied in the state that a kill would leave.

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

/// Event after which the bot is killed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Moment {
    /// A commit to the database file with this path.
    Commit(String),
    /// GitHub applied a write whose response the bot has not read yet.
    Write(String),
    /// A model was called.
    Call,
    /// A person acted; holds the act's description.
    Act(&'static str),
}

/// Copy of a test environment in the state that a kill at `moment` would leave.
pub(crate) struct Point {
    /// Number of the moment. Moments are counted from 0, including those that were not kept.
    pub(crate) number: usize,
    pub(crate) moment: Moment,
    /// Stored name of the step that the run was in. `None` if no run existed yet.
    pub(crate) step: Option<String>,
    pub(crate) directory: TempDir,
    pub(crate) now: Timestamp,
    /// Number of paid calls up to this moment.
    pub(crate) calls: usize,
    /// Input tokens that the ledger on disk has recorded for these calls.
    pub(crate) settled: u64,
    pub(crate) known: Known,
    /// Address of the test environment's hub. The address appears in comments and documents.
    pub(crate) address: String,
}

/// Selection of the commits to copy. Selected are every `step`th commit from `first` on, the first commit in each
/// workflow step, and each commit that records the outcome of a paid call. Moments that are not commits are always
/// copied, because each of them may be unique.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sample {
    pub(crate) first: usize,
    pub(crate) step: usize,
    /// Workflow whose runs are copied. Runs of other workflows earlier in the scenario are not copied.
    pub(crate) workflow: &'static str,
    /// Stored names of the steps in which copies are made. If empty, copies are made in all steps.
    pub(crate) within: &'static [&'static str],
}

/// Copies a test environment at the selected moments.
pub(crate) struct Recorder {
    /// Source of the copies. `None` after recording has ended.
    source: Mutex<Option<Source>>,
    seen: AtomicUsize,
    steps: Mutex<BTreeSet<String>>,
    settled: AtomicI64,
    sample: Sample,
}

/// Everything that makes up a copy, and the callback that receives each copy.
struct Source {
    keep: Box<dyn Fn(Point) + Send>,
    hub: Hub,
    clock: Arc<ManualClock>,
    bot: PathBuf,
    models: Arc<Models>,
    key: String,
    known: Known,
}

/// Calls `moment` at each moment, except for people's acts, which the test itself reports.
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
    /// Returns the run's step, the input tokens of all recorded calls, and the run's workflow. The run is the live run
    /// of `workflow` if one exists, otherwise the newest run.
    fn current_run(&self, workflow: &str) -> Option<(String, i64, String)> {
        let file = self.bot.join(format!("data/repos/{}/checkpoints.db", self.known.repo));
        let database = rusqlite::Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_ONLY).ok()?;
        let sql = "SELECT step, (SELECT COALESCE(SUM(body ->> 'input_tokens'), 0) FROM call), workflow
                   FROM run ORDER BY workflow = ?1 AND status NOT IN ('done', 'failed', 'stopped') DESC, seq DESC LIMIT 1";
        database.query_row(sql, [workflow], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).ok()
    }
}

impl Recorder {
    /// Starts recording the environment `world`, whose models use the API key `key`.
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

    /// Stops recording and returns the number of moments seen.
    pub(crate) fn end(&self) -> usize {
        *self.source.lock().unwrap() = None;
        self.seen.load(Ordering::SeqCst)
    }
}

/// Copies a directory. Files that disappear meanwhile are skipped, and so are indexes of write-ahead logs, because
/// SQLite recreates them when it opens the database.
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
