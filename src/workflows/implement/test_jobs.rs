//! Test runs as background jobs, for which a step waits.

use std::future::Future;

use serde::{Serialize, de::DeserializeOwned};

use crate::{
    agents::{AgentTool, ToolchainProfile},
    config::{REPOSITORY_FILE, TestSettings},
    engine::StepError,
    limits,
    rounds::{BaseCommit, StepContext, git_error},
    runners::{
        TestError, TestRequest,
        change_verification::{ChangeVerifier, RepositoryCheckKind},
    },
    sandbox::SandboxError,
    stage::StepResult,
};

/// Runs `work` on the base commit as a background job. Returns `None` while the job runs; the step then waits.
///
/// # Errors
/// The errors of `work`; `User` if no tests can run in this repository.
pub(super) async fn run_test_job<V, W, Fut>(
    cx: &StepContext,
    base: &BaseCommit,
    at_hand: Vec<String>,
    work: W,
) -> Result<Option<V>, StepError>
where
    V: Serialize + DeserializeOwned,
    W: FnOnce(ChangeVerifier) -> Fut + Send + 'static,
    Fut: Future<Output = Result<V, TestError>> + Send + 'static,
{
    let (sandbox, snapshot) = (cx.tools().find_sandbox().await?, cx.tools().snapshot(cx, base).await?);
    let settings = match snapshot.read_path(REPOSITORY_FILE).await.map_err(git_error)? {
        Some(text) => TestSettings::parse(&String::from_utf8_lossy(&text)).map_err(|error| {
            StepError::User(format!("The tests cannot be run: {error}. Fix that, then start again."))
        })?,
        None => TestSettings::default(),
    };
    let dependencies = cx.tools().dependencies(cx);
    let time = cx.tools().settings.sandbox.time;
    let asked =
        TestRequest { settings, dependencies: Some(dependencies), at_hand, time, ..TestRequest::default() };
    cx.run_job("tests", move |stop| async move {
        work(ChangeVerifier { sandbox, snapshot, asked, stop }).await.map_err(step_error)
    })
    .await
}

/// Returns the commands for the repository's checks: the formatter and linter of its toolchain, and its own end-to-end
/// command.
pub(super) fn check_lines(trial: &ChangeVerifier) -> Vec<(RepositoryCheckKind, String)> {
    let profile = ToolchainProfile::detect(trial.snapshot.entries().iter().map(|entry| entry.path.as_str()));
    let of_kind = |(which, tool)| Some((which, profile.command_line(tool)?.to_owned()));
    let kinds =
        [(RepositoryCheckKind::Format, AgentTool::Format), (RepositoryCheckKind::Lint, AgentTool::Lint)]
            .into_iter()
            .filter_map(of_kind);
    let own = trial.asked.settings.end_to_end.clone().map(|line| (RepositoryCheckKind::EndToEnd, line));
    kinds.chain(own).collect()
}

/// Returns a step result that makes the step wait and then check again whether the tests have ended.
pub(super) fn wait_for_tests(cx: &StepContext) -> StepResult {
    StepResult::Wait {
        until: cx.clock().now().plus(limits::JOB_POLL_INTERVAL),
        why: "tests are running".to_owned(),
    }
}

fn step_error(error: TestError) -> StepError {
    match error {
        TestError::Git(error) => git_error(error),
        TestError::Sandbox(SandboxError::Cancelled) => {
            StepError::Later { why: "a test run was stopped".into(), after: limits::JOB_POLL_INTERVAL }
        }
        // A fault of this server, not of the commit.
        TestError::Sandbox(error @ (SandboxError::Failed { .. } | SandboxError::Io { .. })) => {
            StepError::Bug(error.into())
        }
        error @ (TestError::NoRunner
        | TestError::MissingPrerequisite(_)
        | TestError::Sandbox(_)
        | TestError::Overlay { .. }) => {
            StepError::User(format!("The tests of this repository cannot be run here: {error}."))
        }
        error => StepError::Bug(error.into()),
    }
}
