//! What the demo prints: the thread as it grows, and what the bot is doing in between.

use std::collections::BTreeMap;

use tokio::sync::broadcast::{Receiver, error::TryRecvError};

use super::{super::say, Stage};
use crate::{
    engine::{FindingRow, Kind, VerdictRow},
    localhub::{HubEvent, What},
    types::RunId,
};

pub(super) struct Transcript {
    events: Receiver<HubEvent>,
    /// How far each run's trail and verdicts have been told.
    told: BTreeMap<RunId, Told>,
}

#[derive(Default)]
struct Told {
    steps: usize,
    reviews: usize,
    verdicts: usize,
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

    /// Steps from the run's trail, each review followed by its verdict, as the store has them.
    async fn tell_steps(&mut self, stage: &Stage) -> anyhow::Result<()> {
        let Some(run) = stage.run().await? else { return Ok(()) };
        let rows = stage.app.store.repo(stage.repo)?;
        let (trail, ledger) = (rows.trail(run.id).await?, rows.ledger(run.id).await?);
        let workflow = stage.app.engine.workflows().iter().find(|w| w.name() == run.workflow);
        let told = self.told.entry(run.id).or_default();
        for row in trail.iter().skip(told.steps) {
            let step = workflow.and_then(|w| w.step(&row.step));
            // A step follows the review before it, and so its verdict.
            while told.verdicts < told.reviews {
                let Some(verdict) = ledger.verdicts.get(told.verdicts) else { break };
                tell_verdict(verdict, &ledger.findings);
                told.verdicts += 1;
            }
            told.steps += 1;
            let Some(step) = step else { continue };
            say(format_args!("  · {} {}", step.id, step.title));
            told.reviews += usize::from(step.kind == Kind::Review);
        }
        Ok(())
    }
}

fn tell_verdict(verdict: &VerdictRow, findings: &[FindingRow]) {
    let name = |served: &Option<String>| served.clone().unwrap_or_else(|| "unattested".to_owned());
    say(format_args!(
        "    review {}: {} by {}, of a draft by {}",
        verdict.round,
        verdict.verdict,
        name(&verdict.reviewer_served),
        name(&verdict.drafter_served)
    ));
    for finding in findings.iter().filter(|f| f.round == verdict.round) {
        say(format_args!("      {} [{}] at {}: {}", finding.id, finding.severity, finding.place, finding.title));
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
