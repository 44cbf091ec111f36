//! Simulates an event without a delivery.
//!
//! The simulation uses the same code as real deliveries. If it must have no effect, it works on a copy of the store.
//! GitHub is only read; writes are suppressed and reported instead.

use super::{Intake, IntakeError, events::IssueRef};
use crate::{
    engine::{RunFilter, RunView},
    github::{
        SuppressedWrite, WebhookEvent,
        event::{CommentEvent, IssueAction, IssueEvent},
    },
    store::{ActivePause, ClaimedDelivery, DeliverySubject, NewDelivery},
    types::{Actor, CommentId, DeliveryId},
};

/// An action of a person on an issue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SimulatedAction {
    Label(String),
    Comment(String),
}

/// Outcome of a simulated action.
#[derive(Debug)]
pub struct SimulationResult {
    /// Sentences that describe the outcome to the operator.
    pub sentences: Vec<String>,
    /// Run that the action would start; `None` if it starts no run.
    pub started_run: Option<RunView>,
}

impl Intake {
    /// Simulates that this person performs the action `what` now.
    pub async fn simulate(
        &self,
        at: &IssueRef<'_>,
        by: &Actor,
        what: &SimulatedAction,
    ) -> Result<SimulationResult, IntakeError> {
        if !self.allow.contains(&at.installation) {
            let why =
                format!("nothing: its installation {} is not in [installations] allow", at.installation);
            return Ok(SimulationResult { sentences: vec![why], started_run: None });
        }
        let all = RunFilter { repo: Some(at.repo.id), issue: Some(at.issue), live_only: false };
        let before = self.engine.list(all).await?;
        let event = self.simulated_event(at, by, what).await?;
        let id = DeliveryId("imagined".to_owned());
        let (name, subject) = ("imagined".to_owned(), DeliverySubject::default());
        let new = NewDelivery { id: id.clone(), event: name, subject, swept: false, body: Vec::new() };
        self.store.inbox().accept_delivery(new).await?;
        let mut said = Vec::new();
        if self.is_suspended(&event).await? {
            said.push("postponed: its installation is suspended".to_owned());
        } else {
            match self.handle_event(&ClaimedDelivery::simulated(id, self.clock.now()), &event).await {
                Ok(note) => said.push(note.to_string()),
                // The next step depends on the response to a write that was suppressed.
                Err(IntakeError::GitHub(_)) if !self.github.suppressed_writes().is_empty() => {}
                Err(trouble) => return Err(trouble),
            }
        }
        said.extend(self.github.suppressed_writes().iter().map(describe_unsent));
        if let Some(since) = ActivePause::since(&self.engine.pauses().await?, at.repo.id) {
            let paused = "work on this repository has been paused since";
            said.push(format!("{paused} {since}: no step starts before `countersign resume`"));
        }
        let after = self.engine.list(all).await?;
        let begun = after.into_iter().find(|run| before.iter().all(|known| known.id != run.id));
        Ok(SimulationResult { sentences: said, started_run: begun })
    }

    async fn simulated_event(
        &self,
        at: &IssueRef<'_>,
        by: &Actor,
        what: &SimulatedAction,
    ) -> Result<WebhookEvent, IntakeError> {
        let (now, issue) = (self.github_now(), self.repo(at).issue(at.issue).await?);
        let (repo, installation) = (at.repo.clone(), at.installation);
        Ok(match what {
            SimulatedAction::Label(label) => WebhookEvent::Issue(IssueEvent {
                action: IssueAction::Labeled { label: label.clone() },
                repo,
                installation,
                issue: at.issue,
                sender: by.clone(),
                issue_author: issue.author,
                at: now,
            }),
            SimulatedAction::Comment(text) => WebhookEvent::Comment(CommentEvent {
                repo,
                installation,
                issue: at.issue,
                is_pull: issue.is_pull,
                comment: CommentId(0),
                node: None,
                body: text.clone(),
                sender: by.clone(),
                author: by.clone(),
                issue_author: issue.author,
                created_at: now,
                url: issue.url,
                via_app: false,
            }),
        })
    }
}

/// Returns a description of a write that was suppressed.
fn describe_unsent(SuppressedWrite { call, body }: &SuppressedWrite) -> String {
    let text = |key| body.as_ref().and_then(|body| body[key].as_str());
    match (text("content"), text("body")) {
        (Some("-1"), _) => "would react with 👎".to_owned(),
        (Some("eyes"), _) => "would react with 👀".to_owned(),
        (_, Some(text)) => format!("would reply: {text}"),
        _ => format!("would call GitHub: {call}"),
    }
}
