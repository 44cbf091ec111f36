//! `countersign demo`: the whole job on this machine, as a person would see it.

mod stage;
mod transcript;

use std::{path::PathBuf, process::ExitCode, time::Duration};

use anyhow::{Context, bail};
use clap::ValueEnum;
use tokio::io::{AsyncBufReadExt, BufReader, Lines, Stdin};
use tokio_util::sync::CancellationToken;

use self::{
    stage::{Material, Stage},
    transcript::Transcript,
};
use super::{say, serve::on_signals};
use crate::{
    engine::{Filter, Port, RunView, Status},
    types::Hash,
};

/// Play the whole job on this machine: a small GitHub, the bot, and a page to label and comment on.
///
/// A maintainer labels an issue; the bot drafts a design, has it reviewed, revises it, and asks. Answer on the page
/// it prints, or type the answer here. Without flags the models' answers are scripted and nothing leaves this
/// machine.
#[derive(clap::Args)]
pub(super) struct Demo {
    /// Answer the gates with yes and exit when the design is final.
    #[arg(long)]
    yes: bool,
    /// Who drafts and reviews: scripted answers, or Claude and Gemini.
    #[arg(long, value_enum, default_value_t = Models::Stub)]
    models: Models,
    /// With `--models real`: the settings file whose [models], [providers] and keys to use. Without it the
    /// built-in ones and the `.env` in this directory.
    #[arg(long, value_name = "FILE", requires = "models")]
    config: Option<PathBuf>,
    /// Run on a clone of this repository of yours; its working tree is not touched.
    #[arg(long, value_name = "PATH", requires = "issue")]
    repo: Option<PathBuf>,
    /// The issue to work on: a Markdown file whose first line is the title.
    #[arg(long, value_name = "FILE.md", requires = "repo")]
    issue: Option<PathBuf>,
    /// Keep everything here and go on where an earlier demo stopped; a temporary directory otherwise.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Models {
    /// Scripted answers; every comment says so.
    Stub,
    /// Claude through its command line, Gemini over HTTPS.
    Real,
}

/// How often the demo looks for something new to tell.
const LOOK: Duration = Duration::from_millis(100);

impl Demo {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let temporary = tempfile::Builder::new().prefix("countersign-demo-").tempdir()?;
        let data = self.data.clone().unwrap_or_else(|| temporary.path().to_owned());
        let material = match (&self.repo, &self.issue) {
            (Some(repo), Some(issue)) => Material::yours(repo, issue)?,
            _ => Material::sample(),
        };
        if self.models == Models::Real {
            say(
                "Real models: the code and the issue go to Anthropic (drafts, by Claude) and to Google (reviews, by Gemini).",
            );
        } else {
            say("Rehearsal: answers are scripted, no model is asked and nothing leaves this machine.");
        }
        let stage = Stage::open(&data, self.models, self.config.as_deref(), &material).await?;
        if self.data.is_some() {
            say(format_args!("Data in {}", data.display()));
        }
        say(format_args!("Open {}", stage.issue_page()));
        let stop = CancellationToken::new();
        tokio::spawn(on_signals(stop.clone(), stop.clone()));
        let serving = stage.serve(stop.clone());
        let told = self.play(&stage, &stop).await;
        stop.cancel();
        serving.await.context("the bot stopped unexpectedly")??;
        let ended = told?;
        if self.yes || ended.is_none() {
            stage.hub.stop().await;
            return Ok(if ended.is_some_and(|run| run.status == Status::Done) {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            });
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Tells what happens until the run is over; none when it was interrupted first.
    async fn play(&self, stage: &Stage, stop: &CancellationToken) -> anyhow::Result<Option<RunView>> {
        let mut transcript = Transcript::new(stage);
        let mut lines = BufReader::new(tokio::io::stdin()).lines();
        let mut typing = !self.yes;
        let mut asked = None;
        if stage.run().await?.is_none() {
            stage.label()?;
        }
        loop {
            transcript.tell(stage).await?;
            if let Some(run) = stage.run().await? {
                if !run.status.live() {
                    transcript.tell(stage).await?;
                    conclude(stage, &run)?;
                    return Ok(Some(run));
                }
                if let Some(gate) = &run.gate
                    && asked != Some(gate.subject)
                    && stage.gate_is_shown(gate.subject)
                {
                    asked = Some(gate.subject);
                    let line = format!("/approve {} {}", gate.stage, gate.subject.short());
                    if self.yes {
                        stage.say(&line)?;
                    } else {
                        say(format_args!("\nAnswer on the page, or here; for example:  {line}\n"));
                    }
                }
            }
            tokio::select! {
                () = stop.cancelled() => return Ok(None),
                () = tokio::time::sleep(LOOK) => {}
                line = next_line(&mut lines), if typing => match line {
                    Some(line) if line.trim().is_empty() => {}
                    Some(line) => stage.say(line.trim())?,
                    None => typing = false,
                },
            }
        }
    }
}

async fn next_line(lines: &mut Lines<BufReader<Stdin>>) -> Option<String> {
    lines.next_line().await.ok().flatten()
}

/// Shows that what is on the branch is what was approved.
fn conclude(stage: &Stage, run: &RunView) -> anyhow::Result<()> {
    if run.status != Status::Done {
        say(format_args!(
            "\nThe run ended as {}: {}",
            run.status,
            run.why.as_deref().unwrap_or("no reason given")
        ));
        return Ok(());
    }
    let branch = format!("countersign/issue-{}", stage.issue);
    let path = stage.document_path();
    let Some(bytes) = stage.hub.branch_file(stage.repo, &branch, &path) else {
        bail!("{path} is not on {branch}");
    };
    let committed = Hash::of(&bytes);
    say(format_args!("\n{path} on {branch}: sha256 {committed}"));
    let signed = stage
        .hub
        .log(stage.repo, &branch)
        .iter()
        .any(|commit| commit.message.contains(&format!("Countersign-Document: {committed}")));
    if !signed {
        bail!("no commit on {branch} says that these bytes were approved");
    }
    say("These are the bytes that were approved.");
    say(format_args!("Bare repository: {}", stage.hub.git_dir(stage.repo).display()));
    if let Some(outcome) = &run.outcome {
        say(format_args!("Done: {}. {}", outcome.summary, outcome.url.as_deref().unwrap_or_default()));
    }
    Ok(())
}

impl Stage {
    /// The newest run on the demo's issue.
    async fn run(&self) -> anyhow::Result<Option<RunView>> {
        let filter = Filter { repo: Some(self.repo), issue: Some(self.issue), live_only: false };
        Ok(self.app.engine.list(filter).await?.into_iter().max_by_key(|run| run.id))
    }
}
