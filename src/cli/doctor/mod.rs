//! `countersign doctor`: what would go wrong, found before it does, each with its fix.

mod github;
mod live;
mod machine;
mod repositories;

use std::{fmt::Display, path::Path, process::ExitCode};

use super::{ConfigFlag, print_line};
use crate::{types::RepoName, workflows};

/// Check the settings, the machine, the App on GitHub and the models, and name the fix for what is wrong.
///
/// Exit code 0 when everything needed is there, 1 when something is missing.
#[derive(clap::Args)]
pub(super) struct DoctorCommand {
    #[command(flatten)]
    config: ConfigFlag,
    /// Also hold what this program takes for true of GitHub's answers against those that come now; one repository of each
    /// installation is looked at, and nothing is written.
    #[arg(long)]
    live: bool,
    /// Also make an issue, a comment, a label, a branch, a draft pull request and a check in this repository, and take them
    /// away again. Nothing else is written, and nowhere else; the repository must be one that no run was in.
    #[arg(long, value_name = "OWNER/REPO")]
    scratch: Option<RepoName>,
}

/// What was found bad, in the order it was looked at. All is said as it is found: some checks take seconds.
#[derive(Default)]
struct DoctorReport(Vec<&'static str>);

impl DoctorReport {
    fn good(&mut self, what: &'static str, said: impl Display) {
        print_line(format_args!("ok    {what:<14} {said}"));
    }

    /// Worth knowing; nothing stops working.
    fn note(&mut self, what: &'static str, said: impl Display) {
        print_line(format_args!("note  {what:<14} {said}"));
    }

    /// Reports something that works now but soon won't, or that costs money for nothing.
    fn warn(&mut self, what: &'static str, said: impl Display) {
        print_line(format_args!("WARN  {what:<14} {said}"));
    }

    fn bad(&mut self, what: &'static str, said: impl Display) {
        print_line(format_args!("BAD   {what:<14} {said}"));
        self.0.push(what);
    }
}

impl DoctorCommand {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let expected = if self.live { DoctorScope::Assumptions } else { DoctorScope::Everything };
        check(&self.config.config, expected, self.scratch.as_ref()).await
    }
}

/// What has to be there for everything to be well.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum DoctorScope {
    Everything,
    /// All but a running server.
    NoServerYet,
    /// Everything, and GitHub's answers in the form we know.
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
    print_line(format_args!("\n{} to mend: {}", bad.len(), bad.join(", ")));
    Ok(ExitCode::FAILURE)
}
