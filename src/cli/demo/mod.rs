//! `countersign demo`: runs a whole job on this machine, and shows it as a user would see it.

mod nodes;
mod progress;
mod scene;
mod terminal;
mod transcript;

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context, bail};
use clap::ValueEnum;
use tokio::io::{AsyncBufReadExt, BufReader, Lines, Stdin};
use tokio_util::sync::CancellationToken;

use self::{
    progress::ProgressLine,
    scene::{DemoMachine, DemoMaterial, DemoScene},
    transcript::DemoTranscript,
};
use super::{INTERRUPTED, absolute_path, claim_directory, print_line, report_usage_error, serve::on_signals};
use crate::{
    clock::{Clock, SystemClock},
    engine::{EnginePort, RunFilter, RunView, RunViewStatus},
    limits::SEEN_BEFORE_APPROVAL,
    messages::{AUDIT_TRAILER, step_name},
    proc::private_dir,
    publication::waits_for_merge,
    types::Verb,
};

/// Run a whole job on this machine: a small GitHub, the bot, and pages where you label and comment.
///
/// A maintainer labels an issue; the bot drafts a design, has it reviewed, revises it, and asks for approval. The bot
/// then writes the spec of the design, failing tests, the code that makes them pass, and the pull request. Answer on
/// the page that the command prints, or type the answer here; the pages stay open until you exit. Without flags, the
/// models' responses are scripted and no data leaves this machine.
#[derive(clap::Args)]
pub(super) struct DemoCommand {
    /// Approve every gate automatically, and exit when the last document is final.
    #[arg(long)]
    yes: bool,
    /// Story to run. The stories are: an issue that leads to its design; a rough idea that becomes an issue and then a
    /// design; findings that are answered and dismissed, and an issue that is edited while its gate is open; a request
    /// in free words that leads to a design.
    #[arg(long, value_enum, default_value_t = DemoStory::Design, conflicts_with = "repo")]
    story: DemoStory,
    /// Last stage to run. Default: the pull request for the sample's first issue if tests can run on this machine;
    /// otherwise the design.
    #[arg(long, value_enum)]
    through: Option<DemoLastStage>,
    /// Models that draft and review: scripted responses, or Claude and Gemini.
    #[arg(long, value_enum, default_value_t = DemoModels::Stub)]
    models: DemoModels,
    /// With `--models real`: settings file from which [models], [providers] and keys are taken. Default: the built-in
    /// settings and the `.env` in this directory.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Work on a clone of this repository; the repository's own working tree is not touched.
    #[arg(long, value_name = "PATH", requires = "issue")]
    repo: Option<PathBuf>,
    /// Issue to work on: a Markdown file whose first line is the title.
    #[arg(long, value_name = "FILE.md", requires = "repo")]
    issue: Option<PathBuf>,
    /// Directory in which to keep all data. If it contains an earlier demo, that demo is continued. Default: a
    /// temporary directory.
    #[arg(long, value_name = "DIR", value_parser = absolute_path())]
    data: Option<PathBuf>,
    /// Run the bot in this many processes that share a Postgres database; one of the processes is killed midway.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(2..=8), requires = "postgres_file")]
    nodes: Option<u8>,
    /// File with the address of an empty database: postgres://user:password@host/database. Only the file's owner may
    /// have read access.
    #[arg(long, value_name = "FILE", requires = "nodes")]
    postgres_file: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum DemoModels {
    /// Scripted responses. Every comment says that the responses are scripted.
    Stub,
    /// Claude through its command-line program, and Gemini over HTTPS.
    Real,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum DemoStory {
    /// A clear issue becomes a design.
    Design,
    /// A rough idea becomes an issue, and then a design.
    Issue,
    /// Findings are answered and dismissed, and the issue is edited while its gate is open.
    Gates,
    /// Similar repositories are summarised in a brief. No design follows.
    Scout,
    /// The maintainer requests the design in free words.
    Ask,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum DemoLastStage {
    /// The design is the last stage.
    Lld,
    /// The implementation spec of the design is the last stage.
    Spec,
    /// The pull request with the tests and code of the spec is the last stage. The tests and code really run, in the
    /// sandbox.
    Pr,
}

/// Reply that `--yes` posts to the questions about a rough idea.
const ANSWERS: &str =
    "/answer 1: a line a week, and a total 2: months are not part of it 3: default 4: default";

/// Reply that `--yes` posts to dismiss the finding that the reviewer insists on.
const DISMISSAL: &str = "/dismiss F2 any message will do, as long as nothing is written";

/// Comment with which the maintainer requests work in the `ask` story.
const REQUEST: &str = "@countersign can we have the report by week as well?";

/// Approval command that names neither a stage nor a hash.
const BARE_APPROVAL: &str = "/approve";

/// Resolution of GitHub's timestamps.
const SECOND: Duration = Duration::from_secs(1);

const POLL_INTERVAL: Duration = Duration::from_millis(100);

impl DemoCommand {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        if self.config.is_some() && self.models == DemoModels::Stub {
            return Ok(report_usage_error("--config applies to real models only; add --models real"));
        }
        if self.nodes.is_some() && self.models == DemoModels::Real {
            return Ok(report_usage_error("--nodes works with scripted responses only; leave --models out"));
        }
        let further = self.through.is_some_and(|through| through != DemoLastStage::Lld);
        if self.story == DemoStory::Gates && further {
            return Ok(report_usage_error("the `gates` story ends with its design; leave --through out"));
        }
        if self.story == DemoStory::Scout && further {
            return Ok(report_usage_error("the `scout` story ends with its brief; leave --through out"));
        }
        if self.story == DemoStory::Ask && self.models == DemoModels::Real {
            return Ok(report_usage_error(
                "the `ask` story works with scripted responses only; leave --models out",
            ));
        }
        let scripted =
            self.models == DemoModels::Stub && self.story == DemoStory::Design && self.repo.is_none();
        if self.through == Some(DemoLastStage::Pr) && self.models == DemoModels::Stub && !scripted {
            return Ok(report_usage_error(
                "scripted code exists for the sample's first issue only; leave --story and --repo out",
            ));
        }
        let through = match self.through {
            Some(through) => through,
            None if scripted => match scene::missing_test_support().await {
                None => DemoLastStage::Pr,
                Some(why) => {
                    print_line(format_args!(
                        "The demo ends with the design, because tests cannot run here: {why}"
                    ));
                    DemoLastStage::Lld
                }
            },
            None => DemoLastStage::Lld,
        };
        let temporary = private_dir("countersign-demo-", &std::env::temp_dir())?;
        let data = self.data.clone().unwrap_or_else(|| temporary.path().to_owned());
        let material = match (&self.repo, &self.issue) {
            (Some(repo), Some(issue)) => DemoMaterial::from_repository(repo, issue)?,
            _ => DemoMaterial::sample(self.story, through == DemoLastStage::Pr),
        };
        if self.models == DemoModels::Real {
            print_line("Real models: parts of the code and the issue go to these companies:");
            for line in scene::receiving_companies(self.config.as_deref())? {
                print_line(format_args!("  {line}"));
            }
        } else {
            print_line(
                "Rehearsal: responses are scripted, no model is called and nothing leaves this machine.",
            );
        }
        let _lock = claim_directory(&data, scene::MEMORY_FILE)?;
        let preparing = self.repo.is_some().then(|| tokio::spawn(ProgressLine::show_preparation()));
        let nodes = self.nodes.map(usize::from).zip(self.postgres_file.as_deref());
        let machine = DemoMachine { models: self.models, config: self.config.as_deref(), nodes };
        let stage = DemoScene::open(&data, &machine, &material).await;
        if let Some(preparing) = preparing {
            preparing.abort();
            let _ = preparing.await;
        }
        let stage = stage?;
        // Installed before we print "Ctrl-C leaves": a shell may have started this in the background with SIGINT
        // ignored, and then an early Ctrl-C would be lost.
        let stop = CancellationToken::new();
        tokio::spawn(on_signals(stop.clone(), stop.clone()));
        if self.data.is_some() {
            print_line(format_args!("Data in {}", data.display()));
        }
        if let Some(run) = stage.newest_run().await? {
            print_line(match run.status.is_live() {
                true => {
                    format!("Continuing run {} at {}.", run.id, step_name(&run.step_id, &run.step_title))
                }
                false => format!("Run {} has already ended.", run.id),
            });
        }
        print_line(format_args!("Open {}", stage.issue_page()));
        print_line(match self.data {
            Some(_) => {
                "The pages stay up until this program ends. Press Ctrl-C to leave; run the same command to continue later.\n"
            }
            None => "The pages stay up until this program ends. Press Ctrl-C to leave.\n",
        });
        let serving = stage.serve(stop.clone());
        let result = self.play(&stage, through, &stop).await;
        stop.cancel();
        serving.await.context("the bot stopped unexpectedly")??;
        if let Some(nodes) = &stage.nodes {
            nodes.stop().await;
        }
        stage.hub.stop().await;
        Ok(match result? {
            Some(run) if run.status == RunViewStatus::Done || waits_for_merge(&run) => ExitCode::SUCCESS,
            Some(_) => ExitCode::FAILURE,
            None => {
                print_line(match &self.data {
                    Some(data) => {
                        format!("\nStopped; run the same command with --data {} to continue.", data.display())
                    }
                    None => "\nStopped.".to_owned(),
                });
                ExitCode::from(INTERRUPTED)
            }
        })
    }

    /// Prints events until the run has ended and the user exits. Returns the ended run, or `None` if the demo was
    /// interrupted before the run ended.
    async fn play(
        &self,
        stage: &DemoScene,
        through: DemoLastStage,
        stop: &CancellationToken,
    ) -> anyhow::Result<Option<RunView>> {
        let mut transcript = DemoTranscript::new(stage);
        let mut lines = BufReader::new(tokio::io::stdin()).lines();
        let mut typing = !self.yes;
        let mut shown = BTreeSet::new();
        let mut ended: Option<RunView> = None;
        let mut to_kill = stage.nodes.as_ref();
        let mut progress = ProgressLine::new();
        if stage.newest_run().await?.is_none()
            && let Some(first) = self.labels(through).next()
        {
            match self.story {
                DemoStory::Ask => stage.post_comment_once(REQUEST)?,
                _ => stage.add_label(&format!("countersign:{first}"))?,
            }
        }
        loop {
            transcript.print_new_events(stage, &mut progress).await?;
            if ended.is_some() && !typing {
                return Ok(ended);
            }
            if ended.is_none()
                && let Some(run) = stage.newest_run().await?
            {
                progress.show(&run);
                // The first node is killed at the run's first gate at the latest, before anyone answers it.
                if let Some(nodes) = to_kill.take_if(|_| run.visit > 2) {
                    nodes.kill_first()?;
                    stage.deliver_to_nodes()?;
                }
                if !run.status.is_live() || waits_for_merge(&run) {
                    // Prints what happened between the last poll and the end.
                    transcript.print_new_events(stage, &mut progress).await?;
                    let next = self.labels(through).skip_while(|name| *name != run.workflow).nth(1);
                    if let Some(next) = next.filter(|_| run.status == RunViewStatus::Done) {
                        let done = if run.workflow == "issue" { "Filed" } else { "Done" };
                        if let Some(outcome) = &run.outcome {
                            print_line(format_args!("\n{done}: {}.\n", outcome.summary));
                        }
                        stage.add_label(&format!("countersign:{next}"))?;
                        stage.wait_for_newer_run(&run).await?;
                        continue;
                    }
                    conclude(stage, &run, typing, self.data.as_deref())?;
                    if typing {
                        print_line("\nThe pages stay open. Press Enter or Ctrl-C to leave.");
                    }
                    ended = Some(run);
                    continue;
                }
                if let Some(line) = self.next_answer(stage, &run)?
                    && shown.insert((run.visit, line.clone()))
                {
                    if self.yes {
                        stage.post_comment_once(&line)?;
                    } else {
                        print_line(format_args!("\nAnswer on the page, or here; for example:  {line}\n"));
                    }
                }
            }
            tokio::select! {
                () = stop.cancelled() => return Ok(ended),
                () = tokio::time::sleep(POLL_INTERVAL) => {}
                line = next_line(&mut lines), if typing => match line {
                    Some(line) if line.trim().is_empty() => typing = ended.is_none(),
                    Some(line) => stage.post_comment(line.trim())?,
                    None => typing = false,
                },
            }
        }
    }
}

impl DemoCommand {
    /// Returns the names of the labels that the maintainer adds, in order. To reach the pull request, the label `auto`
    /// is enough, because spec and code then follow the design automatically.
    fn labels(&self, through: DemoLastStage) -> impl Iterator<Item = &'static str> {
        let first: &[&str] = match self.story {
            DemoStory::Scout => return [].iter().chain(&["scout"]).copied(),
            DemoStory::Issue => &["issue"],
            DemoStory::Design | DemoStory::Gates | DemoStory::Ask => &[],
        };
        let then: &[&str] = match through {
            DemoLastStage::Lld => &["lld"],
            DemoLastStage::Spec => &["lld", "spec"],
            DemoLastStage::Pr => &["auto"],
        };
        first.iter().chain(then).copied()
    }

    /// Returns the maintainer's next reply to the gate. Returns `None` while the maintainer must wait, for example
    /// until the page shows the gate.
    fn next_answer(&self, stage: &DemoScene, run: &RunView) -> anyhow::Result<Option<String>> {
        let Some(gate) = &run.gate else { return Ok(None) };
        let takes = |verb: Verb| gate.spec.verbs.iter().any(|(taken, _)| *taken == verb);
        let gates = self.story == DemoStory::Gates;
        if takes(Verb::Answer) {
            return Ok(Some(ANSWERS.to_owned()));
        }
        if gates && !takes(Verb::Approve) {
            return Ok(Some(DISMISSAL.to_owned()));
        }
        if !stage.is_gate_shown(gate.spec.subject) {
            return Ok(None);
        }
        if gates {
            stage.edit_issue()?;
            if !stage.was_shown_an_edit()? {
                let read = SystemClock.now() > gate.spec.shown_at.plus(SEEN_BEFORE_APPROVAL + SECOND);
                return Ok(read.then(|| BARE_APPROVAL.to_owned()));
            }
        }
        let option = gate.spec.options.first().map_or(String::new(), |option| format!("{option} "));
        Ok(Some(format!("/approve {} {option}{}", gate.spec.stage, gate.spec.subject.short())))
    }
}

async fn next_line(lines: &mut Lines<BufReader<Stdin>>) -> Option<String> {
    lines.next_line().await.ok().flatten()
}

/// Prints the run's outcome and the places of its results. Prints links only while the pages stay open, and directories
/// only if they are kept.
fn conclude(stage: &DemoScene, run: &RunView, open: bool, data: Option<&Path>) -> anyhow::Result<()> {
    if run.status != RunViewStatus::Done && !waits_for_merge(run) {
        print_line(format_args!(
            "\nThe run ended as {}: {}",
            run.status,
            run.why.as_deref().unwrap_or("no reason given")
        ));
        return Ok(());
    }
    print_line("");
    if run.workflow == "implement" {
        let branch = stage.issue.branch(1);
        if !stage.hub.log(stage.repo, &branch).iter().any(|commit| commit.message.contains(AUDIT_TRAILER)) {
            bail!("no commit on {branch} records an approval");
        }
        print_line("The tested and approved code is on its branch.");
    }
    if let Some(outcome) = &run.outcome {
        print_line(format_args!("Done: {}.", outcome.summary));
    }
    if waits_for_merge(run) {
        print_line("It waits for you to merge it.");
    }
    if let Some(page) = stage.pull_page().filter(|_| open) {
        print_line(format_args!("The pull request: {page}"));
    }
    if open || data.is_some() {
        print_line(format_args!("The repository: git clone {}", stage.hub.git_dir(stage.repo).display()));
    }
    match data {
        None => {
            print_line("Nothing is kept; use --data DIR to keep the repository, the databases and the pages.")
        }
        Some(data) if !open => {
            print_line(format_args!("To open the pages again: countersign demo --data {}", data.display()));
        }
        Some(_) => {}
    }
    Ok(())
}

impl DemoScene {
    /// Waits until a run newer than `run` exists. Call this function only if a follow-up run starts after `run`;
    /// otherwise it never returns.
    async fn wait_for_newer_run(&self, run: &RunView) -> anyhow::Result<()> {
        while self.newest_run().await?.is_none_or(|newest| newest.id <= run.id) {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        Ok(())
    }

    async fn newest_run(&self) -> anyhow::Result<Option<RunView>> {
        let filter = RunFilter { repo: Some(self.repo), issue: Some(self.issue), live_only: false };
        Ok(self.app.engine.list(filter).await?.into_iter().max_by_key(|run| run.id))
    }
}
