//! `countersign test`: runs a repository's own tests in the sandbox.

use std::{collections::BTreeMap, path::PathBuf, process::ExitCode, time::Duration};

use anyhow::{Context as _, bail};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::{align_columns, print_line};
use crate::{
    config::{Hosts, REPOSITORY_FILE, TestSettings},
    git, proc,
    runners::{self, DependencyFetcher, TestOutcome, TestRequest, TestResult, TestRun, sanitize_line},
    sandbox::{Level, Sandbox, SandboxError},
};

/// Maximum number of lines that the table shows of a test's message. `--json` prints the full message.
const SHOWN_LINES: usize = 6;

/// Run a repository's own tests in the sandbox.
///
/// Takes one commit of a repository on this machine; uncommitted files and the server's settings are not used. The
/// files are written to a temporary directory, and the tests run there without network. The tests are run by cargo, go,
/// pytest or node, chosen by the manifest at the root (or the topmost manifest), or by the command in the repository's
/// .github/countersign.toml. Other projects of the repository that have tests are run after that, one by one.
///
/// Dependencies come from the repository (vendored code, node_modules) or from this machine (cargo's cache, Go's cache,
/// packages installed next to pytest). All others are fetched beforehand from the --host hosts, but only those named in
/// Cargo.lock, package-lock.json, go.sum or Python's manifests. The command that fetches them also runs in the sandbox
/// and sees only these files. A Python project is then installed in the sandbox, without network.
///
/// Exit code: 0 if all tests passed or were skipped, 1 otherwise.
#[derive(clap::Args)]
pub(super) struct TestCommand {
    /// Path of a work tree or of a bare repository.
    #[arg(long, value_name = "PATH", default_value = ".")]
    repo: PathBuf,
    /// Commit: a branch, a tag or a hash.
    #[arg(long, value_name = "REV", default_value = "HEAD")]
    rev: String,
    /// Run only this test, with its name as shown in the table.
    #[arg(long, value_name = "ID")]
    only: Option<String>,
    /// Run the tests twice and list the tests whose outcomes differ.
    #[arg(long)]
    twice: bool,
    /// Time limit in seconds for all tests together.
    #[arg(long, value_name = "SECONDS", default_value_t = 1200, value_parser = clap::value_parser!(u64).range(10..=86_400))]
    time: u64,
    /// Use only this sandbox level; default: the strictest level that works on this machine. `none` is accepted only if
    /// neither sandbox level works; the tests can then read every file that you can read.
    #[arg(long, value_parser = super::sandbox_level([Level::Full, Level::Basic, Level::None]))]
    level: Option<Level>,
    /// Host from which dependencies may be fetched by HTTPS. Give a name, an address or a network; add the port if it
    /// is not 443. Hosts that are needed but not given are listed.
    #[arg(long, value_name = "HOST")]
    host: Vec<String>,
    /// Folder whose files appear in the home directory of the command that fetches dependencies. Such a file is, for
    /// example, an `.npmrc` with a mirror's address.
    #[arg(long, value_name = "DIR", value_parser = super::absolute_path())]
    home: Option<PathBuf>,
    /// Directory where fetched dependencies are cached; default: below the user's cache directory.
    #[arg(long, value_name = "DIR", value_parser = super::absolute_path())]
    cache: Option<PathBuf>,
    /// Print JSON instead of a table.
    #[arg(long)]
    json: bool,
}

impl TestCommand {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let cancel = CancellationToken::new();
        tokio::spawn(super::serve::on_signals(cancel.clone(), CancellationToken::new()));
        let snapshot = git::open_local(&self.repo, &self.rev).await?;
        let settings = match snapshot.read_path(REPOSITORY_FILE).await? {
            Some(text) => TestSettings::parse(&String::from_utf8_lossy(&text))?,
            None => TestSettings::default(),
        };
        let own = std::env::current_exe().context("our own program can't be found")?;
        proc::adopt_orphans()?;
        let sandbox = match Sandbox::detect(&own, self.level).await {
            // Replaces the error's hint about server settings, which this command does not read.
            Err(SandboxError::Unavailable { why }) => bail!(
                "no sandbox works on this machine ({}); `--level none` runs the tests without one",
                why.join("; ")
            ),
            found => found?,
        };
        let time = Some(Duration::from_secs(self.time));
        let dependencies = Some(DependencyFetcher {
            repository: self.repo.canonicalize()?.display().to_string(),
            cache: self
                .cache
                .or_else(default_cache)
                .context("name a directory for dependencies with --cache")?,
            hosts: Hosts::try_from(self.host).map_err(anyhow::Error::msg)?,
            home: self.home,
        });
        let request = TestRequest { settings, only: self.only, time, dependencies, ..TestRequest::default() };
        let run = async |request: &TestRequest| {
            runners::run_tests(&sandbox, &snapshot, request.clone(), &cancel).await
        };
        let first = run(&request).await?;
        let second = if self.twice { Some(run(&request).await?) } else { None };
        let flaky = second.as_ref().map(|second| differing_tests(&first, second)).unwrap_or_default();
        let mut others = Vec::new();
        for project in &first.not_run {
            let project = project.clone();
            let tested = run(&TestRequest { project: Some(project.clone()), ..request.clone() }).await;
            if cancel.is_cancelled() {
                tested?;
                break;
            }
            others.push((project, tested));
        }
        if self.json {
            let mut report = serde_json::to_value(&first)?;
            report["commit"] = json!(snapshot.commit);
            report["coverage"] = json!("not measured");
            report["sandbox"] = json!(sandbox.level().as_str());
            if second.is_some() {
                report["flaky"] = json!(flaky);
            }
            let not_run: Vec<_> = others
                .iter()
                .filter_map(|(project, tested)| {
                    let why = tested.as_ref().err()?.to_string();
                    Some(json!({ "runner": project.runner, "folder": project.folder, "why": why }))
                })
                .collect();
            report["not_run"] = json!(not_run);
            report["others"] =
                json!(others.iter().filter_map(|(_, tested)| tested.as_ref().ok()).collect::<Vec<_>>());
            print_line(serde_json::to_string_pretty(&report)?);
        } else {
            table(&first).iter().for_each(print_line);
            flaky.iter().for_each(|id| print_line(format_args!("different outcome in the second run: {id}")));
            for (project, tested) in &others {
                match tested {
                    Ok(tested) => table(tested).iter().for_each(print_line),
                    Err(why) => {
                        print_line(format_args!("not run: {project}: {}", sanitize_line(&why.to_string())))
                    }
                }
            }
        }
        let others_passed =
            others.iter().all(|(_, tested)| tested.as_ref().is_ok_and(|tested| tested.found.has_passed()));
        let passed = first.found.has_passed()
            && second.is_none_or(|second| second.found.has_passed())
            && others_passed;
        Ok(if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

fn default_cache() -> Option<PathBuf> {
    let named = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let caches = named("XDG_CACHE_HOME").or_else(|| Some(named("HOME")?.join(".cache")))?;
    Some(caches.join("countersign/dependencies"))
}

/// Returns the IDs of the tests whose outcomes differ between the two runs, and of the tests that ran only once.
fn differing_tests(first: &TestRun, second: &TestRun) -> Vec<String> {
    let outcomes = |tested: &TestRun| -> BTreeMap<String, TestOutcome> {
        tested.found.tests.iter().map(|test| (test.id.clone(), test.outcome)).collect()
    };
    let (first, second) = (outcomes(first), outcomes(second));
    let mut ids: Vec<&String> =
        first.keys().chain(second.keys()).filter(|id| first.get(*id) != second.get(*id)).collect();
    ids.sort();
    ids.dedup();
    ids.into_iter().cloned().collect()
}

/// Formats the number of tests per outcome, and then each test that did not pass.
fn table(tested: &TestRun) -> Vec<String> {
    let found = &tested.found;
    let folder =
        if tested.folder.is_empty() { "" } else { &format!(" in {}", sanitize_line(&tested.folder)) };
    let mut lines = vec![format!(
        "{}{folder}: {} passed, {} failed, {} skipped in {:.1} s; coverage not measured",
        tested.runner,
        found.count(TestOutcome::Passed),
        found.failures().count(),
        found.count(TestOutcome::Skipped),
        tested.seconds
    )];
    let left_out = tested.left_out.iter();
    lines.extend(left_out.map(|left| format!("skipped, {}: {}", left.why, sanitize_line(&left.path))));
    let not_passed: Vec<&TestResult> =
        found.tests.iter().filter(|test| test.outcome != TestOutcome::Passed).collect();
    let rows: Vec<[String; 3]> = not_passed
        .iter()
        .map(|test| {
            let why = match test.outcome {
                TestOutcome::Failed(failure) => failure.name(),
                _ => "skipped",
            };
            [why.to_owned(), test.id.clone(), test.place.clone().unwrap_or_default()]
        })
        .collect();
    for (line, test) in align_columns(&rows).into_iter().zip(not_passed) {
        lines.push(line);
        lines.extend(test.message.lines().take(SHOWN_LINES).map(|line| format!("    {line}")));
        if test.message.lines().nth(SHOWN_LINES).is_some() {
            lines.push("    …".to_owned());
        }
    }
    lines.extend(found.trouble.iter().chain(&tested.notes).cloned());
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{git::SkippedPath, runners::TestReport};

    #[test]
    fn control_characters_in_repository_paths_are_escaped_in_the_test_table() {
        let path = "a\u{1b}[2Jb\nc".to_owned();
        let left_out = vec![SkippedPath { path: path.clone(), why: "it is too large" }];
        let (found, notes) = (TestReport::default(), Vec::new());
        let tested =
            TestRun { runner: "go", folder: path, found, notes, not_run: Vec::new(), left_out, seconds: 0.0 };
        let lines = table(&tested);
        assert_eq!(lines.len(), 2);
        assert!(lines.iter().all(|line| line.contains(r"ab\nc")), "{lines:?}");
    }
}
