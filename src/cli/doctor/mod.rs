//! `countersign doctor`: finds problems before they stop a run, and prints a fix for each.

mod github;
mod live;
mod machine;
mod repositories;

use std::{fmt::Display, path::Path, process::ExitCode};

use super::{ConfigFlag, print_line};
use crate::{types::RepoName, workflows};

/// Check the settings, the machine, the App on GitHub and the models, and print the fix for each problem.
///
/// The exit code is 0 if all required checks pass, 1 otherwise.
#[derive(clap::Args)]
pub(super) struct DoctorCommand {
    #[command(flatten)]
    config: ConfigFlag,
    /// Also compare GitHub's current responses with those that this program expects. Checks one repository of each
    /// installation and writes nothing.
    #[arg(long)]
    live: bool,
    /// Also create an issue, a comment, a label, a branch, a draft pull request and a check in this repository, and
    /// remove them again. Nothing else is written to this repository, and nothing to any other. No run may ever have
    /// existed in the repository.
    #[arg(long, value_name = "OWNER/REPO")]
    scratch: Option<RepoName>,
}

/// Names of the failed checks, in order. Each result is printed immediately instead of at the end, because some checks
/// take seconds.
#[derive(Default)]
struct DoctorReport(Vec<&'static str>);

impl DoctorReport {
    fn good(&mut self, what: &'static str, detail: impl Display) {
        print_line(format_args!("ok    {what:<14} {detail}"));
    }

    /// Reports a fact that the operator should know but that does not prevent runs from working.
    fn note(&mut self, what: &'static str, detail: impl Display) {
        print_line(format_args!("note  {what:<14} {detail}"));
    }

    /// Reports a problem that will soon stop runs from working, or that wastes money.
    fn warn(&mut self, what: &'static str, detail: impl Display) {
        print_line(format_args!("WARN  {what:<14} {detail}"));
    }

    fn bad(&mut self, what: &'static str, detail: impl Display) {
        print_line(format_args!("BAD   {what:<14} {detail}"));
        self.0.push(what);
    }
}

impl DoctorCommand {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let expected = if self.live { DoctorScope::Assumptions } else { DoctorScope::Everything };
        check(&self.config.config, expected, self.scratch.as_ref()).await
    }
}

/// Set of checks to perform.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum DoctorScope {
    Everything,
    /// All checks except the one whether the server runs.
    NoServerYet,
    /// All checks, and a check whether GitHub's responses have the form that this program expects.
    Assumptions,
}

pub(super) async fn check(
    config: &Path,
    expected: DoctorScope,
    scratch: Option<&RepoName>,
) -> anyhow::Result<ExitCode> {
    let mut report = DoctorReport::default();
    match workflows::load_settings(config) {
        Ok(settings) => {
            report.good("settings", settings.file.display().to_string());
            for name in &settings.ignored_environment {
                report.note(
                    "environment",
                    format!("{name} is set and ignored; secrets come from the .env file only"),
                );
            }
            settings.warnings.iter().for_each(|warning| report.warn("settings", warning));
            let sandbox = machine::check(&mut report, &settings).await;
            if let Some(app) = github::check(&mut report, &settings, expected).await {
                repositories::check(&mut report, &app, &settings).await;
                if expected == DoctorScope::Assumptions {
                    live::check(&mut report, &app, &settings).await;
                }
                if let Some(name) = scratch {
                    live::check_writes(&mut report, &app, &settings, name).await;
                }
            }
            machine::toolchains(&mut report, &settings, sandbox.as_ref()).await;
        }
        Err(error) => report.bad("settings", error.to_string()),
    }
    let DoctorReport(bad) = report;
    if bad.is_empty() {
        print_line("\nEverything needed is there.");
        return Ok(ExitCode::SUCCESS);
    }
    print_line(format_args!("\n{} to fix: {}", bad.len(), bad.join(", ")));
    Ok(ExitCode::FAILURE)
}
