//! Where it could be killed: after each commit, after each write that GitHub took, inside each paid call, and
//! between a person's act and the first that the bot hears of it. At each such point everything is copied as a
//! kill would leave it.

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

/// What had just happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Moment {
    /// This database was committed to.
    Commit(String),
    /// GitHub did this and its answer is on its way.
    Write(String),
    /// A model has been asked.
    Call,
    /// A person acted.
    Act(&'static str),
}

/// A world as a kill at that moment leaves it.
pub(crate) struct Point {
    /// Counted from 0 over all moments, also those not kept.
    pub(crate) number: usize,
    pub(crate) moment: Moment,
    /// The run's step as it is stored; none before there is a run.
    pub(crate) step: Option<String>,
    pub(crate) directory: TempDir,
    pub(crate) now: Timestamp,
    /// Paid calls until then.
    pub(crate) calls: usize,
    /// What the ledger on disk knew of them by then, in tokens read.
    pub(crate) settled: u64,
    pub(crate) known: Known,
    /// Where its hub was: texts name it.
    pub(crate) address: String,
}

/// Which commits are kept: each `step`th, beginning at `first`, the first in each step of the workflow, and each
/// that settles a paid call. Of what happens outside nothing is left out: there a moment can be the only one of its kind.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sample {
    pub(crate) first: usize,
    pub(crate) step: usize,
    /// Nothing is kept of the run of another, which was before it.
    pub(crate) workflow: &'static str,
    /// The steps of the workflow, as they are stored, that anything is kept of; none: all.
    pub(crate) within: &'static [&'static str],
}

/// Copies a world at the moments asked for.
pub(crate) struct Recorder {
    /// None once it is over.
    source: Mutex<Option<Source>>,
    seen: AtomicUsize,
    steps: Mutex<BTreeSet<String>>,
    settled: AtomicI64,
    sample: Sample,
}

/// What is copied, and who gets the copies.
struct Source {
    keep: Box<dyn Fn(Point) + Send>,
    hub: Hub,
    clock: Arc<ManualClock>,
    bot: PathBuf,
    models: Arc<Models>,
    key: String,
    known: Known,
}

/// Tells of each moment as it comes but of people's acts, which are the test's own.
pub(crate) fn watch(
    world: &World,
    models: &Models,
    key: &str,
    moment: impl Fn(Moment) + Clone + Send + Sync + 'static,
) {
    let data = world.directory().join("bot/data");
    let told = moment.clone();
    world.app.store.on_commit(move |file| {
        let file = file.strip_prefix(&data).unwrap_or(file);
        told(Moment::Commit(file.display().to_string()));
    });
    let told = moment.clone();
    world.hub.watch_writes(move |request| {
        told(Moment::Write(format!("{} {}", request.method, request.path)));
    });
    models.watch(key, move || moment(Moment::Call));
}

impl Source {
    /// The run's step, what all calls are known to have read, and the run's workflow: of the newest, or of one of this
    /// workflow that lives beside it.
    fn look(&self, workflow: &str) -> Option<(String, i64, String)> {
        let file = self.bot.join(format!("data/repos/{}/checkpoints.db", self.known.repo));
        let database = rusqlite::Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_ONLY).ok()?;
        let sql = "SELECT step, (SELECT COALESCE(SUM(body ->> 'input_tokens'), 0) FROM call), workflow
                   FROM run ORDER BY workflow = ?1 AND status NOT IN ('done', 'failed', 'stopped') DESC, seq DESC LIMIT 1";
        database.query_row(sql, [workflow], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).ok()
    }
}

impl Recorder {
    /// Watches `world`, which pays with `key`.
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
        let told = recorder.clone();
        watch(world, models, key, move |moment| told.moment(moment));
        recorder
    }

    pub(crate) fn moment(&self, moment: Moment) {
        let source = self.source.lock().unwrap();
        let Some(source) = source.as_ref() else { return };
        let number = self.seen.fetch_add(1, Ordering::SeqCst);
        let (step, settled) = match source.look(self.sample.workflow) {
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

    /// No moment counts after this; how many there were.
    pub(crate) fn end(&self) -> usize {
        *self.source.lock().unwrap() = None;
        self.seen.load(Ordering::SeqCst)
    }
}

/// A directory as it is on disk, without what goes away meanwhile. The index of a write-ahead log is made anew by whoever
/// opens it next.
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
