//! A run of tests as a job of a step, and what is kept of it.

use std::future::Future;

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use tokio_util::sync::CancellationToken;

use super::lines::Which;
use crate::{
    agents::{Profile, Tool},
    config::{REPOSITORY_FILE, TestSettings},
    engine::StepError,
    git::Snapshot,
    limits,
    rounds::{Base, Cx, git_error},
    runners::{
        Asked, Bench, Found, TestError, Tested,
        judge::{self, Failing, Green, Red},
        one_line,
    },
    sandbox::{Sandbox, SandboxError},
    stage::Exit,
};

/// Suites that take longer than so many seconds are slow, where the repository does not say it.
const FULL_SECONDS: u64 = 600;

/// Files that are named of those that a run was without.
const MOST_LEFT_OUT: usize = 5;

/// A run of a commit's tests.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Ran {
    pub runner: String,
    /// The project's folder; empty for the root.
    pub folder: String,
    pub found: Found,
    /// Why dependencies were not fetched, where tests miss something.
    #[serde(default)]
    pub notes: Vec<String>,
    /// Which files are not there.
    #[serde(default)]
    pub left_out: Vec<String>,
    pub seconds: f64,
    /// How well it was kept apart.
    pub level: String,
}

impl Ran {
    /// What is to be known of it besides.
    pub(super) fn noted(&self) -> impl Iterator<Item = &String> {
        self.notes.iter().chain(&self.left_out)
    }

    /// A path as the project's own tests have it, where it is the project's.
    pub(super) fn within<'p>(&self, path: &'p str) -> Option<&'p str> {
        match self.folder.as_str() {
            "" => Some(path),
            folder => path.strip_prefix(folder)?.strip_prefix('/'),
        }
    }

    /// One of theirs as the repository has it.
    fn rooted(&self, path: &str) -> String {
        if self.folder.is_empty() { path.to_owned() } else { format!("{}/{path}", self.folder) }
    }
}

/// Files that lie over those of the commit; none where one is removed.
pub(super) type Overlay = Vec<(String, Option<Vec<u8>>)>;

/// Runs of a commit's tests in the sandbox, with other files laid over its own.
pub(super) struct Trial {
    sandbox: Sandbox,
    snapshot: Snapshot,
    asked: Asked,
    stop: CancellationToken,
}

impl Trial {
    /// All tests, or those of some files, built from nothing: what an earlier run left says nothing of this one.
    ///
    /// # Errors
    /// `User` where nothing can be run here.
    pub(super) async fn run(&self, targets: &[String], overlay: Overlay) -> Result<Ran, StepError> {
        self.run_on(&mut bench()?, targets, overlay).await
    }

    /// Do all tests together take longer than the repository waits for three times?
    pub(super) fn is_slow(&self, before: &Ran) -> bool {
        before.seconds > self.asked.settings.full_seconds.unwrap_or(FULL_SECONDS) as f64
    }

    /// All tests so often, or where they are slow all of them once and those of the change as often: until one does not pass.
    /// `before` is without tests and code.
    ///
    /// # Errors
    /// As those of [`Trial::run`].
    pub(super) async fn repeated(
        &self,
        times: usize,
        overlay: &Overlay,
        before: &Ran,
        red: &Red,
    ) -> Result<Result<Green, Vec<Failing>>, StepError> {
        let slow = self.is_slow(before);
        let mut runs: Vec<Found> = Vec::new();
        loop {
            let whole = runs.first().filter(|_| slow);
            let files =
                whole.iter().flat_map(|_| &red.files).map(|path| before.rooted(path)).collect::<Vec<_>>();
            let ran = self.run(&files, overlay.clone()).await?;
            let run = match whole {
                Some(whole) => judge::beside(red, whole, ran.found.clone()),
                None => ran.found.clone(),
            };
            // Not every runner can be told of files.
            let alone = (run.tests.len() > ran.found.tests.len()).then(|| ran.found.clone());
            runs.push(run);
            let judged = judge::green(&before.found, red, &runs.iter().collect::<Vec<_>>());
            if judged.is_err() || runs.len() == times {
                let of_run = |message| Failing { message, tests: vec!["the run itself".to_owned()] };
                let once = |green: &Green| {
                    let again = |id: &str| alone.iter().flat_map(|run| &run.tests).any(|test| test.id == id);
                    alone.as_ref().map(|_| green.locked.iter().filter(|id| !again(id)).count())
                };
                return Ok(judged.map(|green| Green { once: once(&green), ..green }).map_err(|failing| {
                    failing.into_iter().chain(ran.notes.into_iter().map(of_run)).collect()
                }));
            }
        }
    }

    /// The same on what earlier runs there built, which is many times as fast, and which they may have changed.
    ///
    /// # Errors
    /// As those of [`Trial::run`].
    pub(super) async fn run_on(
        &self,
        bench: &mut Bench,
        targets: &[String],
        overlay: Overlay,
    ) -> Result<Ran, StepError> {
        self.asked(bench, Asked { targets: targets.to_vec(), overlay, ..self.asked.clone() }).await
    }

    /// All tests, with a look at which lines they run, which may disturb them.
    ///
    /// # Errors
    /// As those of [`Trial::run`].
    pub(super) async fn measure(&self, bench: &mut Bench, overlay: Overlay) -> Result<Ran, StepError> {
        self.asked(bench, Asked { coverage: true, overlay, ..self.asked.clone() }).await
    }

    async fn asked(&self, bench: &mut Bench, asked: Asked) -> Result<Ran, StepError> {
        let tested = self.tested(bench, asked).await?;
        let left_out = tested.left_out.iter().take(MOST_LEFT_OUT);
        let left_out =
            left_out.map(|file| format!("`{}` was left out: {}", one_line(&file.path), file.why)).collect();
        Ok(Ran {
            runner: tested.runner.to_owned(),
            folder: tested.folder,
            found: tested.found,
            notes: tested.notes,
            left_out,
            seconds: tested.seconds,
            level: self.sandbox.level().as_str().to_owned(),
        })
    }

    async fn tested(&self, bench: &mut Bench, asked: Asked) -> Result<Tested, StepError> {
        bench.run(&self.sandbox, &self.snapshot, asked, &self.stop).await.map_err(refused)
    }

    /// What a line for the shell says where it does not end well.
    ///
    /// # Errors
    /// As those of [`Trial::run`].
    pub(super) async fn line(
        &self,
        bench: &mut Bench,
        line: &str,
        overlay: Overlay,
    ) -> Result<Option<String>, StepError> {
        let asked = Asked { settings: TestSettings::line(line), overlay, ..self.asked.clone() };
        let Tested { found, notes, .. } = self.tested(bench, asked).await?;
        if found.passed() {
            return Ok(None);
        }
        let said = found.failed().map(|test| test.message.clone()).chain(found.trouble.clone()).chain(notes);
        Ok(Some(said.filter(|text| !text.is_empty()).collect::<Vec<_>>().join("\n")))
    }

    /// The lines that this repository is checked by: those of its kind, and its own.
    pub(super) fn lines(&self) -> Vec<(Which, String)> {
        let profile = Profile::of(self.snapshot.entries().iter().map(|entry| entry.path.as_str()));
        let of_kind = |(which, tool)| Some((which, profile.line(tool)?.to_owned()));
        let kinds =
            [(Which::Format, Tool::Format), (Which::Lint, Tool::Lint)].into_iter().filter_map(of_kind);
        let own = self.asked.settings.end_to_end.clone().map(|line| (Which::EndToEnd, line));
        kinds.chain(own).collect()
    }
}

/// What runs of the tests of the run's commit come to, as a job. None: they still run, and the step waits.
///
/// # Errors
/// Those of `work`; `User` where nothing can be run here.
pub(super) async fn job<V, W, Fut>(
    cx: &Cx,
    base: &Base,
    at_hand: Vec<String>,
    work: W,
) -> Result<Option<V>, StepError>
where
    V: Serialize + DeserializeOwned,
    W: FnOnce(Trial) -> Fut + Send + 'static,
    Fut: Future<Output = Result<V, StepError>> + Send + 'static,
{
    let (sandbox, snapshot) = (cx.tools().sandbox().await?, cx.tools().snapshot(cx, base).await?);
    let settings = match snapshot.read_path(REPOSITORY_FILE).await.map_err(git_error)? {
        Some(text) => TestSettings::parse(&String::from_utf8_lossy(&text)).map_err(|error| {
            StepError::User(format!("The tests cannot be run: {error}. Mend that, then start anew."))
        })?,
        None => TestSettings::default(),
    };
    let dependencies = cx.tools().dependencies(cx);
    let time = cx.tools().settings.sandbox.time;
    let asked = Asked { settings, dependencies: Some(dependencies), at_hand, time, ..Asked::default() };
    cx.job("tests", move |stop| async move { work(Trial { sandbox, snapshot, asked, stop }).await }).await
}

/// The step looks again whether its tests are through.
pub(super) fn goes_on(cx: &Cx) -> Exit {
    Exit::Wait { until: cx.clock().now().plus(limits::JOB_LOOK), why: "tests run".to_owned() }
}

/// A place for runs.
pub(super) fn bench() -> Result<Bench, StepError> {
    Bench::new().map_err(|error| refused(error.into()))
}

fn refused(error: TestError) -> StepError {
    match error {
        TestError::Git(error) => git_error(error),
        TestError::Sandbox(SandboxError::Cancelled) => {
            StepError::Later { why: "a run of tests was stopped".into(), after: limits::JOB_LOOK }
        }
        // That is of this server, and of no commit.
        TestError::Sandbox(error @ (SandboxError::Failed { .. } | SandboxError::Io { .. })) => {
            StepError::Bug(error.into())
        }
        error @ (TestError::NoRunner
        | TestError::Lacks(_)
        | TestError::Sandbox(_)
        | TestError::Overlay { .. }) => {
            StepError::User(format!("The tests of this repository cannot be run here: {error}."))
        }
        error => StepError::Bug(error.into()),
    }
}
