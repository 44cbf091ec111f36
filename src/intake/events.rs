//! What each event means to us.

use super::{
    DeliveryNote, DeliveryResult, Intake, IntakeError, answer::CommandReply, cause, labels::is_state,
};
use crate::{
    commands::{AUTO, HOTFIX},
    config::PeopleSettings,
    engine::{RunFilter, RunTrigger, StartDecision, StartRunRequest},
    github::{
        GitHubRepo, LabelEvent, ReactionTarget, decorated,
        event::{IssueAction, RepoRef, WebhookEvent},
    },
    messages,
    publication::waits_for_merge,
    store::{ClaimedDelivery, RepositoryRow},
    types::{Actor, Cause, InstallationId, IssueNo, Timestamp},
};

impl Intake {
    pub(crate) async fn route(&self, taken: &ClaimedDelivery, event: &WebhookEvent) -> DeliveryResult {
        if self.too_late(taken, event).await? {
            return Ok(DeliveryNote::Nothing("ignored: its repository is gone".into()));
        }
        match event {
            WebhookEvent::Repository(e) => return self.repository(taken, e).await,
            WebhookEvent::Installation(e) => return self.installation(taken, e).await,
            WebhookEvent::InstallationRepositories { installation, added, removed, sender } => {
                return self.repositories(taken, *installation, added, removed, sender).await;
            }
            _ => {}
        }
        if let (Some(repo), Some(installation)) = (event.repo(), event.installation()) {
            self.store.directory().saw_repository(row(repo, installation)).await?;
        }
        match event {
            WebhookEvent::Issue(e) => {
                let at = IssueRef { repo: &e.repo, installation: e.installation, issue: e.issue };
                match &e.action {
                    IssueAction::Labeled { label } if is_state(label) => {
                        self.state_label(&at, label, true, &e.sender).await
                    }
                    IssueAction::Unlabeled { label } if is_state(label) => {
                        self.state_label(&at, label, false, &e.sender).await
                    }
                    IssueAction::Labeled { label } => {
                        let by = LabelEvent { event: 0, actor: e.sender.clone(), at: e.at };
                        self.told_of_label(taken, &at, label, by).await
                    }
                    IssueAction::Closed => self.issue_closed(taken, &at, e).await,
                    IssueAction::Deleted => self.stop(taken, &at, &e.sender, "the issue was deleted").await,
                    IssueAction::Transferred => {
                        self.stop(taken, &at, &e.sender, "the issue was transferred").await
                    }
                    _ => Ok(DeliveryNote::Nothing("nothing to do".into())),
                }
            }
            WebhookEvent::Comment(e) => self.comment(taken, e).await,
            WebhookEvent::Touched(e) => self.touched(taken, e).await,
            WebhookEvent::Review(e) => self.review(taken, e).await,
            WebhookEvent::PullRequest(e) => self.pull(taken, e).await,
            WebhookEvent::Rerequested(e) => self.rerequested(taken, e).await,
            WebhookEvent::Ci(e) => self.ci(taken, e).await,
            WebhookEvent::Ping => Ok(DeliveryNote::Nothing("pong".into())),
            WebhookEvent::Ignored { why } => Ok(DeliveryNote::Nothing(format!("ignored: {why}").into())),
            _ => Ok(DeliveryNote::Nothing("nothing to do yet".into())),
        }
    }

    pub(super) async fn labeled(
        &self,
        taken: &ClaimedDelivery,
        at: &IssueRef<'_>,
        label: &str,
        sender: &Actor,
        when: Timestamp,
    ) -> DeliveryResult {
        if self.people.opts_out(label) {
            return self.stop(taken, at, sender, "its issue is to be left alone, says a label").await;
        }
        let Some(row) = self.router.by_label(label) else {
            return Ok(DeliveryNote::Nothing("not a label of ours".into()));
        };
        if sender.bot || sender.id == self.bot().await?.id {
            return Ok(DeliveryNote::Nothing("a bot's label never acts".into()));
        }
        let cause = cause::label(at.repo.id, at.issue, label, sender, when);
        if !self.store.inbox().owns(&taken.id, &cause).await? {
            return Ok(DeliveryNote::Nothing(TOLD.into()));
        }
        let repo = self.repo(at);
        let role = repo.permission(sender).await?;
        if role < row.role {
            self.refuse(taken, &repo, ReactionTarget::Issue(at.issue), sender).await;
            let needs = row.role;
            return Ok(DeliveryNote::Done(format!(
                "refused: `{label}` needs {needs}, and {} has {role}",
                sender.login
            )));
        }
        let Some((workflow, _)) = self.router.by_command(row.name) else {
            let stopped = self.stop(taken, at, sender, "asked to by the label").await?;
            decorated(repo.remove_label(at.issue, label).await)?;
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
        let reply = self.start(workflow, trigger).await?;
        self.heard(taken, &repo, ReactionTarget::Issue(at.issue)).await;
        let note = match reply {
            CommandReply::Note(note) | CommandReply::No(note) => note,
            CommandReply::Words(body) | CommandReply::Shown(body) => {
                self.say(taken, &cause, &repo, (at.issue, at.issue), &[body]).await?;
                "answered".to_owned()
            }
        };
        // Last: one that is gone, when we are told of it late, means that somebody took it back.
        decorated(repo.remove_label(at.issue, label).await)?;
        Ok(DeliveryNote::Done(note))
    }

    /// What keeps a person from starting another run today, in words.
    pub(super) async fn too_much(&self, trigger: &RunTrigger) -> Result<Option<CommandReply>, IntakeError> {
        let Some(db) = self.store.repo_if_any(trigger.repo).await? else { return Ok(None) };
        let today = self.clock.now().day_start();
        let (runs, spent) = db.of_person(trigger.actor.id, today, &trigger.cause).await?;
        let PeopleSettings { runs_a_day, cost_a_day, .. } = self.people;
        let said = match (runs_a_day, cost_a_day) {
            (Some(most), _) if runs >= u64::from(most) => Some(messages::too_many_runs(most)),
            (_, Some(most)) if spent >= most => Some(messages::too_much_spent()),
            _ => None,
        };
        Ok(said.map(CommandReply::Words))
    }

    pub(super) async fn start(
        &self,
        workflow: &str,
        trigger: RunTrigger,
    ) -> Result<CommandReply, IntakeError> {
        if let Some(refused) = self.too_much(&trigger).await? {
            return Ok(refused);
        }
        let runs = RunFilter { repo: Some(trigger.repo), issue: Some(trigger.issue), live_only: false };
        let runs = if [AUTO, HOTFIX].contains(&trigger.command.as_str()) {
            self.engine.list(runs).await?
        } else {
            Vec::new()
        };
        // What they lead to is there already. A design begun beside it would end in nothing.
        if runs.iter().any(waits_for_merge) && runs.iter().all(|run| run.trigger.cause != trigger.cause) {
            return Ok(CommandReply::Words(messages::waits_for_merge(&trigger.command)));
        }
        Ok(match self.engine.start(StartRunRequest { workflow: workflow.to_owned(), trigger }).await? {
            StartDecision::New(run) => CommandReply::Note(format!("started {workflow} as {run}")),
            StartDecision::Duplicate(run) => {
                CommandReply::Note(format!("{run} was started by the same before"))
            }
            StartDecision::Live(run) if waits_for_merge(&run) => {
                CommandReply::Words(messages::waits_for_merge(workflow))
            }
            StartDecision::Live(run) => {
                CommandReply::Words(messages::already_running(run.id, workflow, None))
            }
        })
    }

    /// The issue that a pull request of ours grew from.
    pub(crate) async fn issue_of_pull(&self, at: &IssueRef<'_>) -> Result<Option<IssueNo>, IntakeError> {
        let pull = self.repo(at).pull(at.issue).await?;
        Ok(IssueNo::of_branch(&pull.head_branch).filter(|_| pull.head_repo == Some(at.repo.id)))
    }

    pub(crate) fn repo(&self, at: &IssueRef<'_>) -> GitHubRepo {
        self.github.repo(at.installation, at.repo.id, at.repo.name.clone())
    }
}

/// What is noted of a delivery that tells of what another one told.
pub(crate) const TOLD: &str = "another delivery told of it";

/// What is noted of a delivery that was found when what it tells of held no longer.
pub(crate) const LATE: &str = "came late: it holds no longer";

/// The issue or pull request that something happened on.
pub struct IssueRef<'a> {
    pub repo: &'a RepoRef,
    pub installation: InstallationId,
    pub issue: IssueNo,
}

/// Marks our reply to one command, so that a second try finds the first.
pub(crate) fn reply_marker(cause: &Cause) -> String {
    format!("reply-{cause}")
}

pub(super) fn row(repo: &RepoRef, installation: InstallationId) -> RepositoryRow {
    RepositoryRow { id: repo.id, installation, name: repo.name.clone() }
}
