//! Handles edits and deletions of our gate comments by other people. People base their approval on a gate comment's
//! text, so the run restores that text. From then on, that gate no longer accepts an `/approve` without a hash.

use super::{DeliveryNote, DeliveryResult, Intake, IntakeError, cause, events::IssueRef};
use crate::{
    engine::{RemarkKind, RunFilter, RunRemark},
    github::event::CommentEditedEvent,
    publication,
    store::ClaimedDelivery,
    types::Role,
};

impl Intake {
    pub(super) async fn handle_edited_gate_comment(
        &self,
        taken: &ClaimedDelivery,
        e: &CommentEditedEvent,
    ) -> DeliveryResult {
        let bot = self.bot().await?;
        if e.author.id != bot.id || e.sender.id == bot.id {
            return Ok(DeliveryNote::Nothing("not a comment of ours".into()));
        }
        let here = IssueRef { repo: &e.repo, installation: e.installation, issue: e.issue };
        let issue = match e.is_pull {
            true => self.issue_of_pull(&here).await?,
            false => Some(e.issue),
        };
        let live = RunFilter { repo: Some(e.repo.id), issue, live_only: true };
        let runs = self.engine.list(live).await?;
        let asks = runs.iter().find(|run| {
            let marker = publication::gate_marker(run.id, run.visit);
            (run.gate.is_some() || run.shows_unopened_gate)
                && e.text.trim_end().ends_with(&format!(":{marker} -->"))
        });
        let Some(run) = asks else {
            return Ok(DeliveryNote::Nothing("not the comment of an open gate".into()));
        };
        let Some(gate) = &run.gate else { return Err(IntakeError::Opening) };
        if e.sender.bot && gate.comment_edit.is_some() {
            return Ok(DeliveryNote::Nothing(
                "a bot edited it again; the gate already requires the hash".into(),
            ));
        }
        let remark = RunRemark {
            cause: cause::delivery(taken),
            kind: RemarkKind::CommentEdited,
            finding: run.visit.to_string(),
            text: e.comment.to_string(),
            by: e.sender.clone(),
            role: Role::None,
            at: e.at,
        };
        self.engine.remark(run.id, remark).await?;
        Ok(DeliveryNote::Done(format!("{} will undo the edit by {}", run.id, e.sender.login)))
    }
}
