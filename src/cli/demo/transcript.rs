//! What the demo prints: the thread as it grows, and what the bot is doing in between.

use std::collections::BTreeMap;

use tokio::sync::broadcast::{Receiver, error::TryRecvError};

use super::{super::say, Stage};
use crate::{
    localhub::{HubEvent, What},
    types::RunId,
};

pub(super) struct Transcript {
    events: Receiver<HubEvent>,
    /// How far each run's trail and verdicts have been told.
    told: BTreeMap<RunId, (usize, usize)>,
}

impl Transcript {
    pub(super) fn new(stage: &Stage) -> Self {
        Self { events: stage.hub.subscribe(), told: BTreeMap::new() }
    }

    /// Prints what is new.
    pub(super) async fn tell(&mut self, stage: &Stage) -> anyhow::Result<()> {
        self.tell_steps(stage).await?;
        loop {
            match self.events.try_recv() {
                Ok(event) => tell_event(&event),
                Err(TryRecvError::Lagged(missed)) => say(format_args!("  … {missed} events not shown")),
                Err(TryRecvError::Empty | TryRecvError::Closed) => return Ok(()),
            }
        }
    }

    async fn tell_steps(&mut self, stage: &Stage) -> anyhow::Result<()> {
        let Some(run) = stage.run().await? else { return Ok(()) };
        let history = stage.app.engine.history(run.id).await?;
        let (steps, verdicts) = self.told.entry(run.id).or_default();
        // A verdict belongs to the step before which it was given: tell both in the order they happened.
        let mut lines: Vec<(crate::types::Timestamp, u8, String)> = Vec::new();
        for step in history.trail.iter().skip(*steps) {
            lines.push((step.at, 1, format!("  · {} {}", step.step_id, step.step_title)));
        }
        for verdict in history.verdicts.iter().skip(*verdicts) {
            let row = &verdict.row;
            lines.push((
                verdict.at,
                0,
                format!("  ⚖ round {}: {} by {} (draft by {})", row.round, row.verdict, row.reviewer_served, row.drafter_served),
            ));
            for finding in history.findings.iter().filter(|f| f.round == row.round) {
                lines.push((
                    verdict.at,
                    0,
                    format!("      {} [{}] {}: {}", finding.id, finding.severity, finding.place, finding.title),
                ));
            }
        }
        *steps = history.trail.len();
        *verdicts = history.verdicts.len();
        lines.sort_by_key(|(at, order, _)| (*at, *order));
        for (_, _, line) in lines {
            say(line);
        }
        Ok(())
    }
}

fn tell_event(event: &HubEvent) {
    let who = &event.by;
    let issue = event.issue.map(|n| format!("#{n}")).unwrap_or_default();
    match &event.what {
        What::Labeled { label } => say(format_args!("{who} labels {issue} `{label}`")),
        What::Unlabeled { label } => say(format_args!("{who} takes `{label}` off {issue}")),
        What::Commented { body, .. } => {
            say(format_args!("{who} comments on {issue}:"));
            quote(body);
        }
        What::CommentEdited { body, .. } => {
            say(format_args!("{who} edits a comment on {issue} (no mail): {}", headline(body)));
        }
        What::Reacted { content, .. } => say(format_args!("{who} reacts {} on {issue}", emoji(content))),
        What::PullOpened { title, draft, head } => {
            let kind = if *draft { "draft pull request" } else { "pull request" };
            say(format_args!("{who} opens {kind} {issue} from {head}: {title}"));
        }
        What::PullEdited { title } => say(format_args!("{who} retitles pull request {issue}: {title}")),
        What::BranchMoved { branch, to: Some(oid), subject } => {
            say(format_args!("{who} commits {} to {branch}: {subject}", oid.short()));
        }
        What::Reviewed { state, .. } => say(format_args!("{who} reviews {issue}: {state}")),
        What::IssueClosed => say(format_args!("{who} closes {issue}")),
        _ => {}
    }
}

/// The part of a comment that fits a terminal; folded parts stay folded.
fn quote(body: &str) {
    let mut folded = 0_usize;
    let mut shown = 0;
    for line in body.lines() {
        if line.trim_start().starts_with("<details") {
            folded += 1;
        }
        if folded == 0 && !line.trim().is_empty() && !line.starts_with("<!--") {
            say(format_args!("    │ {line}"));
            shown += 1;
        }
        if line.trim_end().ends_with("</details>") {
            folded = folded.saturating_sub(1);
        }
        if shown == 40 {
            say("    │ …");
            return;
        }
    }
}

fn headline(body: &str) -> &str {
    body.lines().find(|line| !line.trim().is_empty()).unwrap_or_default()
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
