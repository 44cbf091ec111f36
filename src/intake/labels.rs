//! Finds labels on open issues whose webhook was lost, and handles them like labels from a webhook.
//!
//! A label does not name the person who added it. Therefore we read the issue's history and put the missing delivery
//! into the inbox. That delivery is then processed in order, checked against the current role of the person who added
//! the label, and retried on failure. Each labelling is handled once, no matter whether the webhook or this search
//! reports it first.

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

/// Outcome of a search for missed labels.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct LabelSearchResult {
    /// Number of missed labels that were put into the inbox.
    pub found: usize,
    /// Number of labels or repositories that could not be checked this time.
    pub unsure: usize,
}

impl Intake {
    /// Searches every repository of the allowed installations for our labels, and puts missed labels into the inbox.
    pub async fn find_missed_labels(&self) -> Result<LabelSearchResult, IntakeError> {
        let mut labels = LabelSearchResult::default();
        let installations = self.github.installations().await?;
        let ours: Vec<_> = installations.iter().filter(|i| self.allow.contains(&i.id)).collect();
        for installation in &ours {
            if let Err(trouble) = self.sync_suspension(installation).await {
                labels.unsure += usize::from(is_temporary(&trouble));
                tracing::warn!(installation = %installation.id, error = %trouble, "could not record that an installation was suspended or unsuspended");
            }
        }
        for installation in ours.iter().filter(|i| !i.suspended) {
            if let Err(trouble) = self.search_installation(installation.id, &mut labels).await {
                labels.unsure += usize::from(is_temporary(&trouble));
                tracing::warn!(installation = %installation.id, error = %trouble, "could not search for missed labels");
            }
        }
        Ok(labels)
    }

    /// Updates our record of a suspension if the webhook about its beginning or end was lost.
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
                tracing::warn!(repository = %repo.name, error = %trouble, "could not remove labels that an earlier version created");
            }
            for label in self.router.rows().iter().filter_map(|row| row.label) {
                if let Err(trouble) = self.search_repository(&repo, installation, label, labels).await {
                    labels.unsure += usize::from(is_temporary(&trouble));
                    tracing::warn!(repository = %repo.name, label, error = %trouble, "could not search for missed labels");
                    break; // the next label would fail the same way
                }
            }
        }
        Ok(())
    }

    /// Removes the labels with which an earlier version of this program marked issues that a run was working on.
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
                    tracing::warn!(repository = %repo.name, %issue, label, error = %trouble, "could not process label; will retry");
                }
            }
        }
        Ok(())
    }

    /// Puts a missed label into the inbox. Returns false if this labelling has already been handled or is already in
    /// the inbox.
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
            tracing::info!(repository = %at.repo.name, issue = %at.issue, label, by = %labeling.actor.login, "found a missed label; queued");
            self.delivery_stored.notify_one();
        }
        Ok(found)
    }

    /// Whether a run has already started for this label. If so, only the final removal of the label failed.
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

    /// Whether the issue still has the label. The label is removed only as the last action, so that a retry still finds
    /// it.
    async fn has_label(&self, at: &IssueRef<'_>, label: &str) -> Result<bool, IntakeError> {
        let issue = self.repo(at).issue(at.issue).await?;
        Ok(issue.labels.iter().any(|name| name.eq_ignore_ascii_case(label)))
    }

    /// Undoes a person's change of a state label on an issue with a live run. This is done at most once per visit of
    /// the run, so that we do not fight someone's automation forever. Changes by bots are not undone.
    pub(super) async fn repair_state_label(
        &self,
        at: &IssueRef<'_>,
        label: &str,
        on: bool,
        sender: &Actor,
    ) -> DeliveryResult {
        if sender.bot || sender.id == self.bot().await?.id {
            return Ok(DeliveryNote::Nothing("bots' labels are ignored".into()));
        }
        let filter = RunFilter { repo: Some(at.repo.id), issue: Some(at.issue), live_only: true };
        let Some(RunView { id: run, visit, status, .. }) = most_urgent_run(self.engine.list(filter).await?)
        else {
            return Ok(DeliveryNote::Nothing("no active run here".into()));
        };
        let view = (status == RunViewStatus::Asking).then_some(messages::NEEDS_YOU);
        // A run that waits for a model may or may not need a person.
        if on == view.is_some_and(|view| view.name == label) || status == RunViewStatus::Waiting {
            return Ok(DeliveryNote::Nothing("the label is already correct".into()));
        }
        if self.repaired_labels.lock().await.get(&run) == Some(&visit) {
            return Ok(DeliveryNote::Nothing("the labels were already corrected at this step".into()));
        }
        let repo = self.repo(at);
        match view {
            Some(view) if !on => repo.ensure_label(at.issue, view.spec()).await?,
            _ => repo.remove_label(at.issue, label).await?,
        }
        self.repaired_labels.lock().await.insert(run, visit);
        Ok(DeliveryNote::Done(format!("corrected to the state of {run}")))
    }

    /// Handles a label once and records the outcome, so that a refused label is not evaluated again. A webhook and a
    /// search may both report the same label; the later report then finds the recorded outcome.
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
            return Ok(DeliveryNote::Done(format!("duplicate: {note}")));
        }
        let note = if found && self.has_started_run(at, label, &labeling).await? {
            self.repo(at).remove_label(at.issue, label).await?;
            DeliveryNote::Nothing("the label has already started its run".into())
        } else if self.is_late(taken, labeling.at) && !self.has_label(at, label).await? {
            DeliveryNote::Nothing(LATE_NOTE.into())
        } else {
            self.handle_label(taken, at, label, &labeling.actor, labeling.at).await?
        };
        self.store.record_labeling(&key, found, &note.to_string()).await?;
        Ok(note)
    }
}

/// Whether the label is one that shows the state of a run.
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
