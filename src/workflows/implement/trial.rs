//! A run of tests as a job of a step, and what is kept of it.

use serde::{Deserialize, Serialize};

use crate::{
    config::{REPOSITORY_FILE, TestSettings},
    engine::StepError,
    limits,
    rounds::{Base, Cx, git_error},
    runners::{self, Asked, Dependencies, Found, TestError, one_line},
    sandbox::SandboxError,
    stage::Exit,
};

/// Files that are named of those that a run was without.
const MOST_LEFT_OUT: usize = 5;

/// A run of a commit's tests.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Ran {
    pub runner: String,
    /// The project's folder; empty for the root.
    pub folder: String,
    pub found: Found,
    /// Why dependencies were not fetched, and which files are not there.
    #[serde(default)]
    pub notes: Vec<String>,
    pub seconds: f64,
    /// How well it was kept apart.
    pub level: String,
}

impl Ran {
    /// A path as the project's own tests have it, where it is the project's.
    pub(super) fn within<'p>(&self, path: &'p str) -> Option<&'p str> {
        match self.folder.as_str() {
            "" => Some(path),
            folder => path.strip_prefix(folder)?.strip_prefix('/'),
        }
    }
}

/// Runs the tests of the run's commit in the sandbox, with other files laid over its own. None: they still run, and the step
/// waits.
///
/// # Errors
/// `User` where nothing can be run here.
pub(super) async fn run(cx: &Cx, base: &Base, key: &str, asked: Asked) -> Result<Option<Ran>, StepError> {
    let (sandbox, snapshot) = (cx.tools().sandbox().await?, cx.tools().snapshot(cx, base).await?);
    let settings = match snapshot.read_path(REPOSITORY_FILE).await.map_err(git_error)? {
        Some(text) => TestSettings::parse(&String::from_utf8_lossy(&text)).map_err(|error| {
            StepError::User(format!("The tests cannot be run: {error}. Mend that, then start anew."))
        })?,
        None => TestSettings::default(),
    };
    let from = &cx.tools().settings;
    let dependencies = Dependencies {
        repository: cx.run().id.repo.to_string(),
        // Forgotten with the repository.
        cache: from.data_dir.join("repos").join(cx.run().id.repo.to_string()).join("dependencies"),
        hosts: from.sandbox.hosts.clone(),
    };
    let asked = Asked { settings, dependencies: Some(dependencies), ..asked };
    cx.job(key, move |stop| async move {
        let tested = runners::run(&sandbox, &snapshot, asked, &stop).await.map_err(refused)?;
        let left_out = tested.left_out.iter().take(MOST_LEFT_OUT);
        let left_out = left_out.map(|file| format!("`{}` was left out: {}", one_line(&file.path), file.why));
        Ok(Ran {
            runner: tested.runner.to_owned(),
            folder: tested.folder,
            found: tested.found,
            notes: tested.notes.into_iter().chain(left_out).collect(),
            seconds: tested.seconds,
            level: sandbox.level().as_str().to_owned(),
        })
    })
    .await
}

/// The step looks again whether its tests are through.
pub(super) fn goes_on(cx: &Cx) -> Exit {
    Exit::Wait { until: cx.clock().now().plus(limits::JOB_LOOK), why: "tests run".to_owned() }
}

fn refused(error: TestError) -> StepError {
    match error {
        TestError::Git(error) => git_error(error),
        TestError::Sandbox(SandboxError::Cancelled) => {
            StepError::Later { why: "a run of tests was stopped".into(), after: limits::JOB_LOOK }
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
