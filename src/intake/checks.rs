//! Somebody asks on a commit that our check be run again.
//!
//! A check is run again by what it shows: a run that halted is tried again, as `/retry` does it. Of any other the check
//! is shown again as it stands, since GitHub holds its suite for unfinished until we write. There is no comment on which a
//! 👀 or a 👎 could say that it was heard.

use super::{
    Handled, Intake, Note, cause,
    comment::{RETRY, means},
    route::{IssueRef, LATE},
};
use crate::{
    engine::{Filter, Retried, RunView},
    github::{decorated, event::RerequestEvent},
    store::Taken,
    types::{IssueNo, Role},
};

impl Intake {
    pub(super) async fn rerequested(&self, taken: &Taken, e: &RerequestEvent) -> Handled {
        let issue = e.head_branch.as_deref().and_then(IssueNo::of_branch);
        let Some(issue) = issue.filter(|_| e.app == self.github.app_id() && !e.sender.bot) else {
            return Ok(Note::Nothing("not a check of ours, or asked for by a bot".into()));
        };
        if taken.swept {
            return Ok(Note::Nothing(LATE.into()));
        }
        let at = IssueRef { repo: &e.repo, installation: e.installation, issue };
        let repo = self.repo(&at).answering();
        let role = repo.permission(&e.sender).await?.role;
        let least = self.router.row(RETRY).map_or(Role::Triage, |row| row.role);
        if role < least {
            return Ok(Note::Done(format!("refused: {role} may not run a check again")));
        }
        let checks = decorated(repo.checks_on(&e.head_oid, &e.name).await)?.unwrap_or_default();
        let runs = Filter { repo: Some(e.repo.id), issue: Some(issue), live_only: false };
        let newest = self.engine.list(runs).await?.into_iter().max_by_key(|run| run.id);
        let shown = |run: &RunView| checks.iter().any(|check| check.run() == Some(run.id));
        if let Some(run) = newest.filter(|run| means(RETRY, Some(run)) && shown(run)) {
            let cause = cause::nth(&cause::delivery(taken), 0);
            let retried = self.try_again(&repo, (issue, run.id, &run.workflow), cause, &e.sender).await?;
            if matches!(retried, Retried::Going | Retried::Duplicate) {
                return Ok(Note::Done(format!("{} is tried again, as its check is", run.id)));
            }
        }
        for check in &checks {
            decorated(repo.repeat_check(check).await)?;
        }
        Ok(Note::Done(format!("{} checks shown again as they stand", checks.len())))
    }
}
