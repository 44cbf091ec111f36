//! `countersign doctor`: what would go wrong, found before it does, each with its fix.

mod github;
mod machine;
mod repositories;

use std::process::ExitCode;

use super::{ConfigFlag, say};
use crate::config::Settings;

/// Check the settings, the machine, the App on GitHub and the models, and name the fix for what is wrong.
///
/// Exit code 0 when everything needed is there, 1 when something is missing.
#[derive(clap::Args)]
pub(super) struct Doctor {
    #[command(flatten)]
    config: ConfigFlag,
}

/// One thing looked at.
struct Finding {
    level: Level,
    what: &'static str,
    said: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Good,
    /// Worth knowing; nothing stops working.
    Note,
    Bad,
}

/// What was found, in the order it was looked at.
#[derive(Default)]
struct Report(Vec<Finding>);

impl Report {
    fn good(&mut self, what: &'static str, said: impl Into<String>) {
        self.add(Level::Good, what, said.into());
    }

    fn note(&mut self, what: &'static str, said: impl Into<String>) {
        self.add(Level::Note, what, said.into());
    }

    fn bad(&mut self, what: &'static str, said: impl Into<String>) {
        self.add(Level::Bad, what, said.into());
    }

    /// Said at once: some checks take seconds.
    fn add(&mut self, level: Level, what: &'static str, said: String) {
        let sign = match level {
            Level::Good => "ok  ",
            Level::Note => "note",
            Level::Bad => "BAD ",
        };
        say(format_args!("{sign}  {what:<14} {said}"));
        self.0.push(Finding { level, what, said });
    }

    fn bad_ones(&self) -> impl Iterator<Item = &Finding> {
        self.0.iter().filter(|f| f.level == Level::Bad)
    }
}

impl Doctor {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let mut report = Report::default();
        match Settings::load(&self.config.config) {
            Ok(settings) => {
                report.good("settings", settings.file.display().to_string());
                for name in &settings.ignored_environment {
                    report.note(
                        "environment",
                        format!("{name} is set and ignored; secrets come from the .env file only"),
                    );
                }
                machine::look(&mut report, &settings).await;
                if let Some(app) = github::look(&mut report, &settings).await {
                    repositories::look(&mut report, &app, &settings).await;
                }
            }
            Err(error) => report.bad("settings", error.to_string()),
        }
        let bad: Vec<_> = report.bad_ones().collect();
        if bad.is_empty() {
            say("\nEverything needed is there.");
            return Ok(ExitCode::SUCCESS);
        }
        say(format_args!("\n{} to mend:", bad.len()));
        for finding in bad {
            say(format_args!("  {}: {}", finding.what, finding.said));
        }
        Ok(ExitCode::FAILURE)
    }
}
