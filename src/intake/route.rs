//! What each event means to us.

use std::collections::BTreeSet;

use super::{Handled, Intake, Trouble, answer::Reply};
use crate::{
    engine::{Answer, Cancel, Filter, Start, Started, Trigger},
    github::{
        Labeling, Reaction, Repo,
        event::{
            Event, InstallationAction, IssueAction, PullAction, RepoRef, RepositoryAction, RepositoryEvent,
            ReviewEvent, ReviewState,
        },
    },
    messages,
    store::{RepoRow, Taken},
    types::{Actor, Cause, InstallationId, IssueNo},
};

impl Intake {
    pub(crate) async fn route(&self, taken: &Taken, event: &Event) -> Handled {
        if let (Some(repo), Some(installation)) = (event.repo(), event.installation()) {
            self.store.directory().saw_repository(row(repo, installation)).await?;
        }
        match event {
            Event::Issue(e) => {
                let at = Place { repo: &e.repo, installation: e.installation, issue: e.issue };
                match &e.action {
                    IssueAction::Labeled { label } => {
                        let by = Labeling { event: 0, actor: e.sender.clone(), at: e.at };
                        self.told_of_label(taken, &at, label, by).await
                    }
                    IssueAction::Closed => self.stop(taken, &at, &e.sender, "the issue was closed").await,
                    IssueAction::Deleted => self.stop(taken, &at, &e.sender, "the issue was deleted").await,
                    IssueAction::Transferred => {
                        self.stop(taken, &at, &e.sender, "the issue was transferred").await
                    }
                    _ => Ok("nothing to do".to_owned()),
                }
            }
            Event::Comment(e) => self.comment(taken, e).await,
            Event::Review(e) => self.review(taken, e).await,
            Event::PullRequest(e) if matches!(e.action, PullAction::Closed { .. }) => {
                let Some(issue) = issue_of_branch(&e.head_branch).filter(|_| e.head_repo == Some(e.repo.id))
                else {
                    return Ok("not a pull request of ours".to_owned());
                };
                let at = Place { repo: &e.repo, installation: e.installation, issue };
                let merged = e.action == PullAction::Closed { merged: true };
                let what = if merged { "its pull request was merged" } else { "its pull request was closed" };
                self.stop(taken, &at, &e.sender, what).await
            }
            Event::Repository(e) if e.action == RepositoryAction::Deleted => self.deleted(taken, e).await,
            Event::Installation(e) => {
                let directory = self.store.directory();
                if e.action == InstallationAction::Deleted {
                    directory.forget_installation(e.installation).await?;
                    return Ok(format!("uninstalled by {}", e.account));
                }
                let suspended = e.action == InstallationAction::Suspended;
                directory.saw_installation(e.installation, &e.account, suspended).await?;
                Ok(format!("installation of {}: {:?}", e.account, e.action))
            }
            Event::InstallationRepositories { installation, added, removed } => {
                for (id, name) in added {
                    let row = RepoRow { id: *id, installation: *installation, name: name.clone() };
                    self.store.directory().saw_repository(row).await?;
                }
                for (id, _) in removed {
                    self.store.directory().forget_repository(*id).await?;
                }
                Ok(format!("{} repositories added, {} removed", added.len(), removed.len()))
            }
            Event::Ping => Ok("pong".to_owned()),
            Event::Ignored { why } => Ok(format!("ignored: {why}")),
            _ => Ok("nothing to do yet".to_owned()),
        }
    }

    pub(super) async fn labeled(
        &self,
        taken: &Taken,
        at: &Place<'_>,
        label: &str,
        sender: &Actor,
        when: crate::types::Timestamp,
    ) -> Handled {
        if sender.bot || sender.id == self.bot().await?.id {
            return Ok("a bot's label never acts".to_owned());
        }
        let Some(row) = self.router.by_label(label) else {
            return Ok("not a label of ours".to_owned());
        };
        let repo = self.repo(at);
        let role = repo.permission(sender).await?.role;
        if role < row.role {
            return self.refuse_label(&repo, at, label).await;
        }
        let Some((workflow, _)) = self.router.by_command(row.name) else {
            repo.remove_label(at.issue, label).await?;
            return self.stop(taken, at, sender, "asked to by the label").await;
        };
        repo.react_issue(at.issue, Reaction::Eyes).await?;
        repo.remove_label(at.issue, label).await?;
        let trigger = Trigger {
            command: row.name.to_owned(),
            args: String::new(),
            repo: at.repo.id,
            installation: at.installation,
            issue: at.issue,
            actor: sender.clone(),
            role,
            cause: Cause::of(&taken.id, 0),
            at: when,
            comment: None,
        };
        match self.start(workflow, trigger).await? {
            Reply::Note(note) | Reply::No(note) => Ok(note),
            Reply::Words(body) | Reply::Shown(body) => {
                self.say(taken, &repo, at.issue, &[body]).await?;
                Ok("answered".to_owned())
            }
        }
    }

    async fn refuse_label(&self, repo: &Repo, at: &Place<'_>, label: &str) -> Handled {
        repo.react_issue(at.issue, Reaction::ThumbsDown).await?;
        Ok(format!("refused: the role of whoever set `{label}` is too low"))
    }

    pub(super) async fn start(&self, workflow: &str, trigger: Trigger) -> Result<Reply, Trouble> {
        Ok(match self.engine.start(Start { workflow: workflow.to_owned(), trigger }).await? {
            Started::New(run) => Reply::Note(format!("started {workflow} as {run}")),
            Started::Duplicate(run) => Reply::Note(format!("{run} was started by this delivery before")),
            Started::Already(run) => Reply::Words(messages::already_running(run.id, workflow, None)),
        })
    }

    pub(crate) async fn stop(&self, taken: &Taken, at: &Place<'_>, by: &Actor, why: &str) -> Handled {
        let cancelled = self
            .engine
            .cancel(Cancel {
                repo: at.repo.id,
                issue: at.issue,
                run: None,
                cause: Cause::of(&taken.id, 0),
                by: by.clone(),
                why: why.to_owned(),
            })
            .await?;
        Ok(match cancelled.runs.len() {
            0 => "nothing was running".to_owned(),
            n => format!("stopping {n} of its runs: {why}"),
        })
    }

    /// The repository is gone: nobody is left to answer what its runs ask.
    async fn deleted(&self, taken: &Taken, e: &RepositoryEvent) -> Handled {
        let live = Filter { repo: Some(e.repo.id), issue: None, live_only: true };
        let issues: BTreeSet<_> = self.engine.list(live).await?.iter().map(|run| run.issue).collect();
        for issue in &issues {
            let cancel = Cancel {
                repo: e.repo.id,
                issue: *issue,
                run: None,
                // By the issue's number: what is still alive at a second try does not shift it.
                cause: Cause::of(&taken.id, usize::try_from(issue.0).unwrap_or(usize::MAX)),
                by: e.sender.clone(),
                why: "the repository was deleted".to_owned(),
            };
            self.engine.cancel(cancel).await?;
        }
        Ok(format!("the repository was deleted; its runs ended on {} issues", issues.len()))
    }

    /// GitHub's own review buttons on the run's pull request mean `/approve` and `/revise`.
    async fn review(&self, taken: &Taken, e: &ReviewEvent) -> Handled {
        if e.sender.bot || e.sender.id == self.bot().await?.id {
            return Ok("a bot's review never acts".to_owned());
        }
        let verb = match e.state {
            ReviewState::Approved => "approve",
            ReviewState::ChangesRequested => "revise",
            ReviewState::Commented => return Ok("a review without a decision".to_owned()),
        };
        let here = Place { repo: &e.repo, installation: e.installation, issue: e.pull };
        let Some(issue) = self.issue_of_pull(&here).await? else {
            return Ok("not a pull request of ours".to_owned());
        };
        let at = Place { issue, ..here };
        let role = self.repo(&at).permission(&e.sender).await?.role;
        if self.router.row(verb).is_none_or(|row| role < row.role) {
            return Ok(format!("refused: {role} may not {verb}"));
        }
        // Reviews go on after the work has ended, and are then no business of ours.
        let live = Filter { repo: Some(e.repo.id), issue: Some(issue), live_only: true };
        if self.engine.list(live).await?.is_empty() {
            return Ok("a review where nothing runs".to_owned());
        }
        let reply = if verb == "revise" && e.body.trim().is_empty() {
            Reply::Words(messages::empty_args(verb))
        } else {
            let answer = Answer {
                cause: Cause::of(&taken.id, 0),
                verb: verb.to_owned(),
                stage: None,
                hash: None,
                text: e.body.clone(),
                by: e.sender.clone(),
                role,
                at: e.submitted_at,
                url: Some(e.url.clone()),
                commit: e.commit_id.clone(),
            };
            self.signal(taken, (e.repo.id, issue), answer).await?
        };
        match reply {
            // A review takes no thumb.
            Reply::Note(note) | Reply::No(note) => Ok(format!("a review: {note}")),
            Reply::Words(body) | Reply::Shown(body) => {
                self.say(taken, &self.repo(&at), e.pull, &[body]).await?;
                Ok("a review: answered".to_owned())
            }
        }
    }

    /// The issue that a pull request of ours grew from.
    pub(crate) async fn issue_of_pull(&self, at: &Place<'_>) -> Result<Option<IssueNo>, Trouble> {
        let pull = self.repo(at).pull(at.issue).await?;
        Ok(issue_of_branch(&pull.head_branch).filter(|_| pull.head_repo == Some(at.repo.id)))
    }

    pub(crate) fn repo(&self, at: &Place<'_>) -> Repo {
        self.github.repo(at.installation, at.repo.id, at.repo.name.clone())
    }
}

/// Where something happened.
pub(crate) struct Place<'a> {
    pub repo: &'a RepoRef,
    pub installation: InstallationId,
    pub issue: IssueNo,
}

/// Marks our reply to one command, so that a second try finds the first.
pub(crate) fn reply_marker(cause: &Cause) -> String {
    format!("reply-{cause}")
}

/// The issue a branch of ours belongs to.
pub(crate) fn issue_of_branch(branch: &str) -> Option<IssueNo> {
    branch.strip_prefix("countersign/issue-")?.parse().ok()
}

fn row(repo: &RepoRef, installation: InstallationId) -> RepoRow {
    RepoRow { id: repo.id, installation, name: repo.name.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_branches_name_an_issue() {
        assert_eq!(issue_of_branch("countersign/issue-42"), Some(IssueNo(42)));
        for other in ["countersign/issue-", "countersign/issue-4x", "x/countersign/issue-4", "issue-4"] {
            assert_eq!(issue_of_branch(other), None, "{other}");
        }
    }
}
