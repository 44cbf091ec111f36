//! Somebody edits or deletes a comment of ours that asks people. What it says decides what they approve, so the run puts it
//! back, and from then on a bare approval is none there.

use super::{Handled, Intake, Note, Trouble, cause, route::IssueRef};
use crate::{
    engine::{Filter, Remark},
    github::event::TouchedEvent,
    publication,
    store::Taken,
    types::Role,
};

impl Intake {
    pub(super) async fn touched(&self, taken: &Taken, e: &TouchedEvent) -> Handled {
        let bot = self.bot().await?;
        if e.author.id != bot.id || e.sender.id == bot.id {
            return Ok(Note::Nothing("not a comment of ours".into()));
        }
        let here = IssueRef { repo: &e.repo, installation: e.installation, issue: e.issue };
        let issue = match e.is_pull {
            true => self.issue_of_pull(&here).await?,
            false => Some(e.issue),
        };
        let live = Filter { repo: Some(e.repo.id), issue, live_only: true };
        let runs = self.engine.list(live).await?;
        let asks = runs.iter().find(|run| {
            let marker = publication::gate_marker(run.id, run.visit);
            (run.gate.is_some() || run.opening) && e.text.trim_end().ends_with(&format!(":{marker} -->"))
        });
        let Some(run) = asks else { return Ok(Note::Nothing("no comment that asks people now".into())) };
        let Some(gate) = &run.gate else { return Err(Trouble::Opening) };
        if e.sender.bot && gate.touched.is_some() {
            return Ok(Note::Nothing("a bot changed it again, and it takes the hash alone already".into()));
        }
        let remark = Remark {
            cause: cause::delivery(taken),
            verb: Remark::TOUCHED.to_owned(),
            finding: run.visit.to_string(),
            text: e.comment.to_string(),
            by: e.sender.clone(),
            role: Role::None,
            at: e.at,
        };
        self.engine.remark(run.id, remark).await?;
        Ok(Note::Done(format!("{} is to put back what {} changed", run.id, e.sender.login)))
    }
}
