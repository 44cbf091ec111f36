//! Dispatches webhook events to their handlers.

use super::{
    DeliveryNote, DeliveryResult, Intake, IntakeError, answer::CommandReply, cause, labels::is_state_label,
};
use crate::{
    commands::{AUTO, HOTFIX},
    config::PeopleSettings,
    engine::{RunFilter, RunTrigger, StartDecision, StartRunRequest},
    github::{
        GitHubRepo, LabelEvent, ReactionTarget,
        event::{IssueAction, RepoRef, WebhookEvent},
        none_if_refused,
    },
    messages,
    publication::waits_for_merge,
    store::{ClaimedDelivery, RepositoryRow},
    types::{Actor, Cause, InstallationId, IssueNo, Timestamp},
};

impl Intake {
    pub(crate) async fn handle_event(&self, taken: &ClaimedDelivery, event: &WebhookEvent) -> DeliveryResult {
        if self.is_too_late(taken, event).await? {
            return Ok(DeliveryNote::Nothing("ignored: its repository is gone".into()));
        }
        match event {
            WebhookEvent::Repository(e) => return self.handle_repository(taken, e).await,
            WebhookEvent::Installation(e) => return self.handle_installation(taken, e).await,
            WebhookEvent::InstallationRepositories { installation, added, removed, sender } => {
                return self.handle_repositories(taken, *installation, added, removed, sender).await;
            }
            _ => {}
        }
        if let (Some(repo), Some(installation)) = (event.repo(), event.installation()) {
            self.store.installation_registry().record_repository(repository_row(repo, installation)).await?;
        }
        match event {
            WebhookEvent::Issue(e) => {
                let at = IssueRef { repo: &e.repo, installation: e.installation, issue: e.issue };
                match &e.action {
                    IssueAction::Labeled { label } if is_state_label(label) => {
                        self.repair_state_label(&at, label, true, &e.sender).await
                    }
                    IssueAction::Unlabeled { label } if is_state_label(label) => {
                        self.repair_state_label(&at, label, false, &e.sender).await
                    }
                    IssueAction::Labeled { label } => {
                        let by = LabelEvent { event: 0, actor: e.sender.clone(), at: e.at };
                        self.handle_label_once(taken, &at, label, by).await
                    }
                    IssueAction::Closed => self.handle_issue_closed(taken, &at, e).await,
                    IssueAction::Deleted => {
                        self.stop_runs(taken, &at, &e.sender, "the issue was deleted").await
                    }
                    IssueAction::Transferred => {
                        self.stop_runs(taken, &at, &e.sender, "the issue was transferred").await
                    }
                    _ => Ok(DeliveryNote::Nothing("nothing to do".into())),
                }
            }
            WebhookEvent::Comment(e) => self.handle_comment(taken, e).await,
            WebhookEvent::CommentEdited(e) => self.handle_edited_gate_comment(taken, e).await,
            WebhookEvent::Review(e) => self.handle_review(taken, e).await,
            WebhookEvent::PullRequest(e) => self.handle_pull_request(taken, e).await,
            WebhookEvent::CheckRerequested(e) => self.handle_check_rerequest(taken, e).await,
            WebhookEvent::Ci(e) => self.handle_ci(taken, e).await,
            WebhookEvent::Ping => Ok(DeliveryNote::Nothing("pong".into())),
            WebhookEvent::Ignored { why } => Ok(DeliveryNote::Nothing(format!("ignored: {why}").into())),
            _ => Ok(DeliveryNote::Nothing("nothing to do yet".into())),
        }
    }

    pub(super) async fn handle_label(
        &self,
        taken: &ClaimedDelivery,
        at: &IssueRef<'_>,
        label: &str,
        sender: &Actor,
        when: Timestamp,
    ) -> DeliveryResult {
        if self.people.opts_out(label) {
            return self
                .stop_runs(taken, at, sender, "a label tells Countersign to leave the issue alone")
                .await;
        }
        let Some(row) = self.router.command_of_label(label) else {
            return Ok(DeliveryNote::Nothing("not a label of ours".into()));
        };
        if sender.bot || sender.id == self.bot().await?.id {
            return Ok(DeliveryNote::Nothing("bots' labels are ignored".into()));
        }
        let cause = cause::label(at.repo.id, at.issue, label, sender, when);
        if !self.store.inbox().claim_cause(&taken.id, &cause).await? {
            return Ok(DeliveryNote::Nothing(DUPLICATE_NOTE.into()));
        }
        let repo = self.repo(at);
        let role = repo.permission(sender).await?;
        if role < row.role {
            self.show_refusal(taken, &repo, ReactionTarget::Issue(at.issue), sender).await;
            let needs = row.role;
            return Ok(DeliveryNote::Done(format!(
                "refused: `{label}` needs {needs}, and {} has {role}",
                sender.login
            )));
        }
        let Some((workflow, _)) = self.router.workflow_of_command(row.name) else {
            let stopped = self.stop_runs(taken, at, sender, "stop label").await?;
            none_if_refused(repo.remove_label(at.issue, label).await)?;
            return Ok(stopped);
        };
        let trigger = RunTrigger {
            command: row.name.to_owned(),
            args: String::new(),
            repo: at.repo.id,
            installation: at.installation,
            issue: at.issue,
            actor: sender.clone(),
            role,
            cause: cause::nth(&cause, 0),
            at: when,
            comment: None,
            request: None,
        };
        let reply = self.start_workflow(workflow, trigger).await?;
        self.acknowledge(taken, &repo, ReactionTarget::Issue(at.issue)).await;
        let note = match reply {
            CommandReply::Note(note) | CommandReply::Refusal(note) => note,
            CommandReply::Comment(body) | CommandReply::SharedComment(body) => {
                self.post_reply(taken, &cause, &repo, (at.issue, at.issue), &[body]).await?;
                "answered".to_owned()
            }
        };
        // Removed last: if a late event finds the label gone, someone took it off.
        none_if_refused(repo.remove_label(at.issue, label).await)?;
        Ok(DeliveryNote::Done(note))
    }

    /// Returns a reply if a daily limit prevents this person from starting another run today; otherwise `None`.
    pub(super) async fn check_person_limits(
        &self,
        trigger: &RunTrigger,
    ) -> Result<Option<CommandReply>, IntakeError> {
        let Some(db) = self.store.existing_repository_database(trigger.repo).await? else { return Ok(None) };
        let today = self.clock.now().day_start();
        let (runs, spent) = db.spend_of_person(trigger.actor.id, today, &trigger.cause).await?;
        let PeopleSettings { runs_a_day, cost_a_day, .. } = self.people;
        let said = match (runs_a_day, cost_a_day) {
            (Some(most), _) if runs >= u64::from(most) => Some(messages::too_many_runs_reply(most)),
            (_, Some(most)) if spent >= most => Some(messages::too_much_spent_reply()),
            _ => None,
        };
        Ok(said.map(CommandReply::Comment))
    }

    pub(super) async fn start_workflow(
        &self,
        workflow: &str,
        trigger: RunTrigger,
    ) -> Result<CommandReply, IntakeError> {
        if let Some(refused) = self.check_person_limits(&trigger).await? {
            return Ok(refused);
        }
        let runs = RunFilter { repo: Some(trigger.repo), issue: Some(trigger.issue), live_only: false };
        let runs = if [AUTO, HOTFIX].contains(&trigger.command.as_str()) {
            self.engine.list(runs).await?
        } else {
            Vec::new()
        };
        // The runs that wait for a merge already have their result; a design started next to them would end in nothing.
        if runs.iter().any(waits_for_merge) && runs.iter().all(|run| run.trigger.cause != trigger.cause) {
            return Ok(CommandReply::Comment(messages::waits_for_merge_reply(&trigger.command)));
        }
        Ok(match self.engine.start(StartRunRequest { workflow: workflow.to_owned(), trigger }).await? {
            StartDecision::New(run) => CommandReply::Note(format!("started {workflow} as {run}")),
            StartDecision::Duplicate(run) => {
                CommandReply::Note(format!("the same event already started {run}"))
            }
            StartDecision::AlreadyLive(run) if waits_for_merge(&run) => {
                CommandReply::Comment(messages::waits_for_merge_reply(workflow))
            }
            StartDecision::AlreadyLive(run) => {
                CommandReply::Comment(messages::already_running_reply(run.id, workflow, None))
            }
        })
    }

    /// Returns the issue to which this pull request of ours belongs; `None` if it belongs to no issue.
    pub(crate) async fn issue_of_pull(&self, at: &IssueRef<'_>) -> Result<Option<IssueNo>, IntakeError> {
        let pull = self.repo(at).pull(at.issue).await?;
        Ok(IssueNo::from_branch(&pull.head_branch).filter(|_| pull.head_repo == Some(at.repo.id)))
    }

    pub(crate) fn repo(&self, at: &IssueRef<'_>) -> GitHubRepo {
        self.github.repo(at.installation, at.repo.id, at.repo.name.clone())
    }
}

/// Log note for a delivery whose event was already reported by another delivery.
pub(crate) const DUPLICATE_NOTE: &str = "duplicate of another delivery";

/// Log note for a late delivery whose event no longer matches GitHub's current state.
pub(crate) const LATE_NOTE: &str = "outdated: it arrived too late";

/// The issue or pull request of an event.
pub struct IssueRef<'a> {
    pub repo: &'a RepoRef,
    pub installation: InstallationId,
    pub issue: IssueNo,
}

/// Returns the marker of our reply to one command. With this marker, a retry finds a reply that was already posted.
pub(crate) fn reply_marker(cause: &Cause) -> String {
    format!("reply-{cause}")
}

pub(super) fn repository_row(repo: &RepoRef, installation: InstallationId) -> RepositoryRow {
    RepositoryRow { id: repo.id, installation, name: repo.name.clone() }
}
