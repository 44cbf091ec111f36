//! Labels of ours that open issues bear although nobody told us: found on the issue, traced to whoever put them
//! there, and obeyed like a webhook's.
//!
//! The label itself says nothing of who set it, so the issue's history is asked, and the delivery that should have told
//! us is put into the inbox: there it waits its turn, is permitted by what *that* person may do now, and is tried again
//! when that cannot be asked. A labelling is dealt with once, whichever way we learn of it first.

use super::{
    DeliveryNote, DeliveryResult, Intake, IntakeError,
    events::{IssueRef, LATE_NOTE},
};
use crate::{
    engine::{RunFilter, RunView, RunViewStatus},
    github::{InstallationInfo, LabelEvent, RepoRef, WebhookEvent, none_if_refused},
    messages,
    publication::most_urgent_run,
    store::{ClaimedDelivery, DeliveryReceipt, LabelingKey, NewDelivery, RepositoryRow},
    types::{Actor, InstallationId},
};

/// What a look for labels came to.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct LabelSearchResult {
    /// Labels that nobody had told us of; the inbox has them now.
    pub found: usize,
    /// Labels or repositories that could not be looked at now.
    pub unsure: usize,
}

impl Intake {
    /// Looks for labels of ours in every repository that we were given and work for.
    pub async fn find_missed_labels(&self) -> Result<LabelSearchResult, IntakeError> {
        let mut labels = LabelSearchResult::default();
        let installations = self.github.installations().await?;
        let ours: Vec<_> = installations.iter().filter(|i| self.allow.contains(&i.id)).collect();
        for installation in &ours {
            if let Err(trouble) = self.sync_suspension(installation).await {
                labels.unsure += usize::from(is_temporary(&trouble));
                tracing::warn!(installation = %installation.id, %trouble, "cannot note that a suspension began or ended");
            }
        }
        for installation in ours.iter().filter(|i| !i.suspended) {
            if let Err(trouble) = self.search_installation(installation.id, &mut labels).await {
                labels.unsure += usize::from(is_temporary(&trouble));
                tracing::warn!(installation = %installation.id, %trouble, "cannot look for labels");
            }
        }
        Ok(labels)
    }

    /// That an installation was suspended, or no longer is, may be among what nobody told us.
    async fn sync_suspension(&self, now: &InstallationInfo) -> Result<(), IntakeError> {
        let known = self.store.installation_registry().installation(now.id).await?;
        if known.is_some_and(|known| known.suspended == now.suspended) {
            return Ok(());
        }
        self.record_installation(now.id, &now.account, now.suspended).await
    }

    async fn search_installation(
        &self,
        installation: InstallationId,
        labels: &mut LabelSearchResult,
    ) -> Result<(), IntakeError> {
        for repo in self.github.repositories(installation).await? {
            let (id, name) = (repo.id, repo.name.clone());
            self.store
                .installation_registry()
                .record_repository(RepositoryRow { id, installation, name })
                .await?;
            if let Err(trouble) = self.remove_old_labels(&repo, installation).await {
                labels.unsure += usize::from(is_temporary(&trouble));
                tracing::warn!(repository = %repo.name, %trouble, "could not take the labels of an earlier version off");
            }
            for label in self.router.rows().iter().filter_map(|row| row.label) {
                if let Err(trouble) = self.search_repository(&repo, installation, label, labels).await {
                    labels.unsure += usize::from(is_temporary(&trouble));
                    tracing::warn!(repository = %repo.name, label, %trouble, "cannot look for labels");
                    break; // what keeps us from the one label keeps us from the next
                }
            }
        }
        Ok(())
    }

    /// Takes off what an earlier version put on while a run worked.
    async fn remove_old_labels(
        &self,
        repo: &RepoRef,
        installation: InstallationId,
    ) -> Result<(), IntakeError> {
        let handle = self.github.repo(installation, repo.id, repo.name.clone());
        for issue in handle.issues_labeled(messages::OLD_WORKING).await? {
            none_if_refused(handle.remove_label(issue, messages::OLD_WORKING).await)?;
        }
        Ok(())
    }

    async fn search_repository(
        &self,
        repo: &RepoRef,
        installation: InstallationId,
        label: &str,
        labels: &mut LabelSearchResult,
    ) -> Result<(), IntakeError> {
        let handle = self.github.repo(installation, repo.id, repo.name.clone());
        for issue in handle.issues_labeled(label).await? {
            let at = IssueRef { repo, installation, issue };
            match self.store_missed_label(&at, label).await {
                Ok(found) => labels.found += usize::from(found),
                Err(trouble) => {
                    labels.unsure += usize::from(is_temporary(&trouble));
                    tracing::warn!(repository = %repo.name, %issue, label, %trouble, "a label waits");
                }
            }
        }
        Ok(())
    }

    /// Hands in what a label tells, unless that was dealt with before; false then.
    async fn store_missed_label(&self, at: &IssueRef<'_>, label: &str) -> Result<bool, IntakeError> {
        let Some(labeling) = self.repo(at).newest_label_event(at.issue, label).await? else {
            return Ok(false);
        };
        if self.store.labeling_note(&labeling_key(at, label, &labeling), false).await?.is_some() {
            return Ok(false);
        }
        let body = labeling.synthetic_payload(at.repo, at.installation, at.issue, label);
        let (id, event) = (labeling.delivery_id(at.repo.id), "issues".to_owned());
        let subject = WebhookEvent::subject(&event, &body);
        let new = NewDelivery { id, event, subject, swept: true, body };
        let found = self.store.inbox().accept_delivery(new).await? != DeliveryReceipt::Duplicate;
        if found {
            tracing::info!(repository = %at.repo.name, issue = %at.issue, label, by = %labeling.actor.login, "found on the issue");
            self.delivery_stored.notify_one();
        }
        Ok(found)
    }

    /// Has a run come of it that we know of? Then the label only failed to come off.
    async fn has_started_run(
        &self,
        at: &IssueRef<'_>,
        label: &str,
        by: &LabelEvent,
    ) -> Result<bool, IntakeError> {
        let Some(command) = self.router.command_of_label(label) else { return Ok(false) };
        let Some((workflow, _)) = self.router.workflow_of_command(command.name) else { return Ok(false) };
        let filter = RunFilter { repo: Some(at.repo.id), issue: Some(at.issue), live_only: false };
        let runs = self.engine.list(filter).await?;
        Ok(runs.iter().any(|run| {
            run.workflow == workflow && run.trigger.actor.id == by.actor.id && run.trigger.at >= by.at
        }))
    }

    /// Is the label still there? It comes off last, so a second try finds it too.
    async fn has_label(&self, at: &IssueRef<'_>, label: &str) -> Result<bool, IntakeError> {
        let issue = self.repo(at).issue(at.issue).await?;
        Ok(issue.labels.iter().any(|name| name.eq_ignore_ascii_case(label)))
    }

    /// A person put a label on that says how a run stands, or took it off: on an issue with a live one it is put right. Once
    /// a turn of the run, so that we and somebody's automation do not go on for ever; what bots do is theirs.
    pub(super) async fn repair_state_label(
        &self,
        at: &IssueRef<'_>,
        label: &str,
        on: bool,
        sender: &Actor,
    ) -> DeliveryResult {
        if sender.bot || sender.id == self.bot().await?.id {
            return Ok(DeliveryNote::Nothing("a bot's label never acts".into()));
        }
        let filter = RunFilter { repo: Some(at.repo.id), issue: Some(at.issue), live_only: true };
        let Some(RunView { id: run, visit, status, .. }) = most_urgent_run(self.engine.list(filter).await?)
        else {
            return Ok(DeliveryNote::Nothing("no run is at work here".into()));
        };
        let view = (status == RunViewStatus::Asking).then_some(messages::NEEDS_YOU);
        // One that waits for a model may need a person for that, or not.
        if on == view.is_some_and(|view| view.name == label) || status == RunViewStatus::Waiting {
            return Ok(DeliveryNote::Nothing("it is as it should be".into()));
        }
        if self.repaired_labels.lock().await.get(&run) == Some(&visit) {
            return Ok(DeliveryNote::Nothing("the labels were put right in this turn already".into()));
        }
        let repo = self.repo(at);
        match view {
            Some(view) if !on => repo.ensure_label(at.issue, view.spec()).await?,
            _ => repo.remove_label(at.issue, label).await?,
        }
        self.repaired_labels.lock().await.insert(run, visit);
        Ok(DeliveryNote::Done(format!("put right, as run {run} stands")))
    }

    /// Obeys a label once, and notes what came of it, so that a refusal is not asked about again. Of the two ways we
    /// learn of a label, the one that is second finds the note of the first.
    pub(super) async fn handle_label_once(
        &self,
        taken: &ClaimedDelivery,
        at: &IssueRef<'_>,
        label: &str,
        labeling: LabelEvent,
    ) -> DeliveryResult {
        if self.router.command_of_label(label).is_none() && !self.people.opts_out(label) {
            return Ok(DeliveryNote::Nothing("not a label of ours".into()));
        }
        let (key, found) = (labeling_key(at, label, &labeling), LabelEvent::is_synthetic_delivery(&taken.id));
        if let Some(note) = self.store.labeling_note(&key, !found).await? {
            return Ok(DeliveryNote::Done(format!("heard before: {note}")));
        }
        let note = if found && self.has_started_run(at, label, &labeling).await? {
            self.repo(at).remove_label(at.issue, label).await?;
            DeliveryNote::Nothing("it had started its run before".into())
        } else if self.is_late(taken, labeling.at) && !self.has_label(at, label).await? {
            DeliveryNote::Nothing(LATE_NOTE.into())
        } else {
            self.handle_label(taken, at, label, &labeling.actor, labeling.at).await?
        };
        self.store.record_labeling(&key, found, &note.to_string()).await?;
        Ok(note)
    }
}

/// Does it say how a run stands?
pub(super) fn is_state_label(label: &str) -> bool {
    messages::STATES.iter().any(|view| view.name == label)
}

fn is_temporary(trouble: &IntakeError) -> bool {
    match trouble {
        IntakeError::GitHub(fault) => !fault.is_final(),
        IntakeError::Engine(_) | IntakeError::Store(_) | IntakeError::Opening => true,
    }
}

fn labeling_key(at: &IssueRef<'_>, label: &str, labeling: &LabelEvent) -> LabelingKey {
    LabelingKey {
        repo: at.repo.id,
        issue: at.issue,
        label: label.to_owned(),
        actor: labeling.actor.id,
        at: labeling.at,
    }
}
