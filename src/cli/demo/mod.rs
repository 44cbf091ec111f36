//! `countersign demo`: the whole job on this machine, as a person would see it.

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

/// Play the whole job on this machine: a small GitHub, the bot, and a page to label and comment on.
///
/// A maintainer labels an issue; the bot drafts a design, has it reviewed, revises it, and asks. Then come its spec, tests
/// that fail, code that they pass with, and the pull request. Answer on the page it prints, or type the answer here; the
/// pages stay open until you leave. Without flags the models' answers are scripted and nothing leaves this machine.
#[derive(clap::Args)]
pub(super) struct DemoCommand {
    /// Answer the gates with yes and exit when the last document is final.
    #[arg(long)]
    yes: bool,
    /// What is played: an issue to its design; a rough idea to an issue and then to its design; or findings that are
    /// answered and dismissed, and an issue that is edited under its gate; or a request in free words to the design that comes of it.
    #[arg(long, value_enum, default_value_t = DemoStory::Design, conflicts_with = "repo")]
    story: DemoStory,
    /// The last stage that is played. Of the sample's first issue that is the pull request, where tests can be run on this
    /// machine; otherwise the design.
    #[arg(long, value_enum)]
    through: Option<DemoLastStage>,
    /// Who drafts and reviews: scripted answers, or Claude and Gemini.
    #[arg(long, value_enum, default_value_t = DemoModels::Stub)]
    models: DemoModels,
    /// With `--models real`: the settings file whose [models], [providers] and keys to use. Without it the
    /// built-in ones and the `.env` in this directory.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Run on a clone of this repository of yours; its working tree is not touched.
    #[arg(long, value_name = "PATH", requires = "issue")]
    repo: Option<PathBuf>,
    /// The issue to work on: a Markdown file whose first line is the title.
    #[arg(long, value_name = "FILE.md", requires = "repo")]
    issue: Option<PathBuf>,
    /// Keep everything here and go on where an earlier demo stopped; a temporary directory otherwise.
    #[arg(long, value_name = "DIR", value_parser = absolute_path())]
    data: Option<PathBuf>,
    /// Play it on so many processes that share a Postgres; one of them is killed in the middle.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(2..=8), requires = "postgres_file")]
    nodes: Option<u8>,
    /// A file, for its owner alone, with the address of an empty database: postgres://user:password@host/database.
    #[arg(long, value_name = "FILE", requires = "nodes")]
    postgres_file: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum DemoModels {
    /// Scripted answers; every comment says so.
    Stub,
    /// Claude through its command line, Gemini over HTTPS.
    Real,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum DemoStory {
    /// An issue that says what is wanted becomes a design.
    Design,
    /// A rough idea becomes an issue first.
    Issue,
    /// Findings are answered and dismissed, and the issue is edited under its gate.
    Gates,
    /// What other repositories do becomes a brief, and nothing is designed.
    Scout,
    /// The maintainer asks for it in free words.
    Ask,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum DemoLastStage {
    /// The design.
    Lld,
    /// The implementation spec of that design.
    Spec,
    /// The pull request with tests and code of that spec; they are really run, in the sandbox.
    Pr,
}

/// What `--yes` answers to what the rough idea leaves open.
const ANSWERS: &str =
    "/answer 1: a line a week, and a total 2: months are not part of it 3: default 4: default";

/// What it says of the finding that the reviewer insists on.
const DISMISSAL: &str = "/dismiss F2 any message will do, as long as nothing is written";

/// What the maintainer asks for in free words.
const REQUEST: &str = "@countersign can we have the report by week as well?";

/// An approval that names nothing.
const BARE_APPROVAL: &str = "/approve";

/// GitHub's times have no parts of one.
const SECOND: Duration = Duration::from_secs(1);

/// How often the demo looks for something new to tell.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

impl DemoCommand {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        if self.config.is_some() && self.models == DemoModels::Stub {
            return Ok(report_usage_error("--config says which real models to ask; add --models real"));
        }
        if self.nodes.is_some() && self.models == DemoModels::Real {
            return Ok(report_usage_error(
                "several processes are shown with scripted answers alone; leave --models out",
            ));
        }
        let further = self.through.is_some_and(|through| through != DemoLastStage::Lld);
        if self.story == DemoStory::Gates && further {
            return Ok(report_usage_error(
                "the story of the gates ends with its design; leave --through out",
            ));
        }
        if self.story == DemoStory::Scout && further {
            return Ok(report_usage_error("the story of the scout ends with its brief; leave --through out"));
        }
        if self.story == DemoStory::Ask && self.models == DemoModels::Real {
            return Ok(report_usage_error(
                "what is asked in free words is read by a script alone here; leave --models out",
            ));
        }
        let scripted =
            self.models == DemoModels::Stub && self.story == DemoStory::Design && self.repo.is_none();
        if self.through == Some(DemoLastStage::Pr) && self.models == DemoModels::Stub && !scripted {
            return Ok(report_usage_error(
                "code is scripted for the sample's first issue alone; leave --story and --repo out",
            ));
        }
        let through = match self.through {
            Some(through) => through,
            None if scripted => match scene::missing_test_support().await {
                None => DemoLastStage::Pr,
                Some(why) => {
                    print_line(format_args!(
                        "It ends with the design, because tests cannot be run here: {why}"
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
            print_line(
                "Real models: parts of the code and the issue go to the companies whose models are asked:",
            );
            for line in scene::receiving_companies(self.config.as_deref())? {
                print_line(format_args!("  {line}"));
            }
        } else {
            print_line("Rehearsal: answers are scripted, no model is asked and nothing leaves this machine.");
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
        // Before anybody is told how to leave: where a shell started this in the background, a Ctrl-C that comes too soon
        // is ignored, not fatal.
        let stop = CancellationToken::new();
        tokio::spawn(on_signals(stop.clone(), stop.clone()));
        if self.data.is_some() {
            print_line(format_args!("Data in {}", data.display()));
        }
        if let Some(run) = stage.newest_run().await? {
            print_line(match run.status.is_live() {
                true => {
                    format!("Going on with run {} at {}.", run.id, step_name(&run.step_id, &run.step_title))
                }
                false => format!("Run {} is over already.", run.id),
            });
        }
        print_line(format_args!("Open {}", stage.issue_page()));
        print_line(match self.data {
            Some(_) => {
                "The pages are there until this program ends. Ctrl-C leaves; the same command goes on later.\n"
            }
            None => "The pages are there until this program ends. Ctrl-C leaves.\n",
        });
        let serving = stage.serve(stop.clone());
        let told = self.play(&stage, through, &stop).await;
        stop.cancel();
        serving.await.context("the bot stopped unexpectedly")??;
        if let Some(nodes) = &stage.nodes {
            nodes.stop().await;
        }
        stage.hub.stop().await;
        Ok(match told? {
            Some(run) if run.status == RunViewStatus::Done || waits_for_merge(&run) => ExitCode::SUCCESS,
            Some(_) => ExitCode::FAILURE,
            None => {
                print_line(match &self.data {
                    Some(data) => {
                        format!("\nStopped; the same command with --data {} goes on here.", data.display())
                    }
                    None => "\nStopped.".to_owned(),
                });
                ExitCode::from(INTERRUPTED)
            }
        })
    }

    /// Tells what happens until the run is over and the person has seen it; none when interrupted before.
    async fn play(
        &self,
        stage: &DemoScene,
        through: DemoLastStage,
        stop: &CancellationToken,
    ) -> anyhow::Result<Option<RunView>> {
        let mut transcript = DemoTranscript::new(stage);
        let mut lines = BufReader::new(tokio::io::stdin()).lines();
        let mut typing = !self.yes;
        let mut said = BTreeSet::new();
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
                // At its gate at the latest, which is looked at here before it is answered.
                if let Some(nodes) = to_kill.take_if(|_| run.visit > 2) {
                    nodes.kill_first()?;
                    stage.deliver_to_nodes()?;
                }
                if !run.status.is_live() || waits_for_merge(&run) {
                    // What happened between the last look and the end.
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
                    && said.insert((run.visit, line.clone()))
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
    /// What the maintainer labels the issue for, one after the other. To the pull request it is one label: the spec and the
    /// code follow the design by themselves.
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

    /// What the maintainer answers where the run stands, once they can have read it.
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
        let way = gate.spec.options.first().map_or(String::new(), |way| format!("{way} "));
        Ok(Some(format!("/approve {} {way}{}", gate.spec.stage, gate.spec.subject.short())))
    }
}

async fn next_line(lines: &mut Lines<BufReader<Stdin>>) -> Option<String> {
    lines.next_line().await.ok().flatten()
}

/// Says what came of the run and where to look at it: a link only where the pages stay open, a directory only where it stays.
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
            bail!("no commit on {branch} says that its change was approved");
        }
        print_line("Tests and code are on their branch as they were tried and approved.");
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
        None => print_line(
            "Nothing is kept after this; with --data DIR the repository, the databases and the pages are.",
        ),
        Some(data) if !open => {
            print_line(format_args!("To open the pages again: countersign demo --data {}", data.display()));
        }
        Some(_) => {}
    }
    Ok(())
}

impl DemoScene {
    /// Waits until there is a newer run than this: it has ended, and another was asked for.
    async fn wait_for_newer_run(&self, run: &RunView) -> anyhow::Result<()> {
        while self.newest_run().await?.is_none_or(|newest| newest.id <= run.id) {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        Ok(())
    }

    /// The newest run on the demo's issue.
    async fn newest_run(&self) -> anyhow::Result<Option<RunView>> {
        let filter = RunFilter { repo: Some(self.repo), issue: Some(self.issue), live_only: false };
        Ok(self.app.engine.list(filter).await?.into_iter().max_by_key(|run| run.id))
    }
}
