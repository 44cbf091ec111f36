//! Builds the demo's output: the comments and events of the thread, with the bot's steps in between.

use std::collections::{BTreeMap, BTreeSet};

use tokio::sync::broadcast::{Receiver, error::TryRecvError};

use super::{DemoScene, ProgressLine, terminal::Terminal};
use crate::{
    engine::{FindingRow, StepKind, VerdictRow},
    localhub::{HubEvent, HubEventKind},
    messages::step_name,
    types::{RunId, Timestamp},
};

pub(super) struct DemoTranscript {
    events: Receiver<HubEvent>,
    /// Number of trail steps, reviews and verdicts printed so far, per run.
    printed: BTreeMap<RunId, TranscriptPosition>,
}

#[derive(Default)]
struct TranscriptPosition {
    steps: usize,
    reviews: usize,
    verdicts: usize,
}

impl DemoTranscript {
    pub(super) fn new(stage: &DemoScene) -> Self {
        Self { events: stage.hub.subscribe(), printed: BTreeMap::new() }
    }

    pub(super) async fn print_new_events(
        &mut self,
        stage: &DemoScene,
        progress: &mut ProgressLine,
    ) -> anyhow::Result<()> {
        let mut lines = self.steps(stage).await?;
        loop {
            match self.events.try_recv() {
                Ok(event) => lines.push((event.at, event_lines(&event))),
                Err(TryRecvError::Lagged(missed)) => {
                    progress.clear();
                    Terminal::detect().print_line(&format!("  … {missed} events not shown"));
                }
                Err(TryRecvError::Empty | TryRecvError::Closed) => break,
            }
        }
        lines.sort_by_key(|(at, _)| *at);
        if !lines.is_empty() {
            progress.clear();
        }
        for line in lines.into_iter().flat_map(|(_, lines)| lines) {
            Terminal::detect().print_line(&line);
        }
        Ok(())
    }

    /// Returns the steps that were added to the run's trail, each with its time and its output lines. The verdict of a
    /// review is printed before the step that follows the review.
    async fn steps(&mut self, stage: &DemoScene) -> anyhow::Result<Vec<(Timestamp, Vec<String>)>> {
        let Some(run) = stage.newest_run().await? else { return Ok(Vec::new()) };
        let rows = stage.app.store.repository_database(stage.repo).await?;
        let (trail, ledger) = (rows.trail(run.id).await?, rows.ledger(run.id).await?);
        let workflow = stage.app.engine.workflows().iter().find(|w| w.name() == run.workflow);
        let position = self.printed.entry(run.id).or_default();
        let mut out = Vec::new();
        for row in trail.iter().skip(position.steps) {
            position.steps += 1;
            let mut lines = Vec::new();
            // The step after a review comes after its verdict.
            while position.verdicts < position.reviews {
                let Some(verdict) = ledger.verdicts.get(position.verdicts) else { break };
                lines.extend(verdict_lines(verdict, &ledger.findings));
                position.verdicts += 1;
            }
            if let Some(step) = workflow.and_then(|w| w.step(&row.step)) {
                lines.push(format!("  · {}", step_name(step.id, step.title)));
                position.reviews += usize::from(step.kind == StepKind::Review);
            }
            out.push((row.entered_at, lines));
        }
        Ok(out)
    }
}

fn verdict_lines(verdict: &VerdictRow, findings: &[FindingRow]) -> Vec<String> {
    let name = |served: &Option<String>| served.clone().unwrap_or_else(|| "unattested".to_owned());
    let mut lines = vec![format!(
        "    review {}: {} by {}, of a draft by {}",
        verdict.round,
        verdict.verdict,
        name(&verdict.reviewer_served),
        name(&verdict.drafter_served)
    )];
    // A finding has one row per review that knew it; the first says how it was found.
    let mut seen = BTreeSet::new();
    for finding in findings.iter().filter(|f| f.round == verdict.round && seen.insert(&f.id)) {
        lines.push(format!(
            "      {} [{}] at {}: {}",
            finding.id, finding.severity, finding.place, finding.title
        ));
    }
    lines
}

fn event_lines(event: &HubEvent) -> Vec<String> {
    let who = &event.by;
    let issue = event.issue.map(|n| format!("#{n}")).unwrap_or_default();
    let one = match &event.what {
        HubEventKind::Labeled { label } => format!("{who} labels {issue} `{label}`"),
        HubEventKind::Unlabeled { label } => format!("{who} takes `{label}` off {issue}"),
        HubEventKind::Commented { body, .. } => {
            let mut lines = vec![format!("{who} comments on {issue}:")];
            lines.extend(quote(body));
            return lines;
        }
        HubEventKind::CommentEdited { body, .. } => {
            format!("{who} edits a comment on {issue} (no mail): {}", headline(body))
        }
        HubEventKind::Reacted { content, .. } => format!("{who} reacts {} on {issue}", emoji(content)),
        HubEventKind::PullOpened { title, draft, head } => {
            let kind = if *draft { "draft pull request" } else { "pull request" };
            format!("{who} opens {kind} {issue} from {head}: {title}")
        }
        HubEventKind::IssueEdited => format!("{who} edits {issue}"),
        HubEventKind::PullEdited { title } => format!("{who} edits pull request {issue}: {title}"),
        HubEventKind::BranchMoved { branch, new: true, .. } => format!("{who} creates the branch {branch}"),
        HubEventKind::BranchMoved { branch, to: Some(_), subject, .. } => {
            format!("{who} commits to {branch}: {subject}")
        }
        HubEventKind::Reviewed { state, .. } => format!("{who} reviews {issue}: {state}"),
        HubEventKind::Checked { name, state, title } => {
            format!("{who} shows the check {name}: {} ({title})", state.replace('_', " "))
        }
        HubEventKind::IssueClosed => format!("{who} closes {issue}"),
        _ => return Vec::new(),
    };
    vec![one]
}

/// Returns the first 40 lines of the comment, each prefixed with a bar. Omits `<details>` parts, blank lines and HTML
/// comments.
fn quote(body: &str) -> Vec<String> {
    const MOST: usize = 40;
    let mut folded = 0_usize;
    let mut lines = Vec::new();
    for line in body.lines() {
        if line.trim_start().starts_with("<details") {
            folded += 1;
        }
        if folded == 0 && !line.trim().is_empty() && !line.starts_with("<!--") {
            lines.push(format!("    │ {line}"));
        }
        if line.trim_end().ends_with("</details>") {
            folded = folded.saturating_sub(1);
        }
        if lines.len() == MOST {
            lines.push("    │ …".to_owned());
            break;
        }
    }
    lines
}

/// Returns the comment's heading, or its first line if it has no heading.
fn headline(body: &str) -> &str {
    let heading = body.lines().find_map(|line| line.strip_prefix("### "));
    heading.or_else(|| body.lines().find(|line| !line.trim().is_empty())).unwrap_or_default()
}

fn emoji(content: &str) -> &str {
    match content {
        "eyes" => "👀",
        "+1" => "👍",
        "-1" => "👎",
        "rocket" => "🚀",
        "confused" => "😕",
        other => other,
    }
}
