//! Events about installations and repositories that are added, removed, suspended, renamed or transferred.
//!
//! If an installation or repository is removed, its runs end. Its data is kept for `LOST_REPOSITORY_RETENTION` in case
//! the removal was a mistake. A suspension pauses all runs and deletes nothing.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::{
    DeliveryNote, DeliveryResult, GITHUB_LAG, Intake, IntakeError, cause,
    events::{LATE_NOTE, repository_row},
};
use crate::{
    engine::{CancelRunsRequest, RunFilter},
    github::{
        GitHubRepo, RepositoryAvailability,
        event::{InstallationAction, InstallationEvent, RepositoryAction, RepositoryEvent, WebhookEvent},
    },
    store::{ClaimedDelivery, DeliveryReceipt, NewDelivery, RepositoryRow, StoreError},
    types::{Actor, InstallationId, RepoId, RepoName},
};

/// Time for which the data of a deleted or removed repository is kept, in case the removal was a mistake.
const LOST_REPOSITORY_RETENTION: Duration = Duration::from_secs(30 * 24 * 3600);

impl Intake {
    /// Deletes expired deliveries, and the data of repositories that were removed long ago.
    pub async fn remove_old_data(&self) -> Result<(), StoreError> {
        while self.store.inbox().delete_expired().await? > 0 {}
        let then = self.clock.now().minus(LOST_REPOSITORY_RETENTION);
        for repo in self.store.installation_registry().repositories_removed_before(then).await? {
            let live = RunFilter { repo: Some(repo), issue: None, live_only: true };
            match self.engine.list(live).await {
                Ok(runs) if runs.is_empty() => {
                    self.store.forget_repo(repo).await?;
                    tracing::info!(%repo, "removed the data of a deleted repository");
                }
                Ok(_) => {
                    tracing::warn!(%repo, "a repository was removed but still has live runs; keeping its data")
                }
                Err(error) => {
                    tracing::error!(%repo, %error, "could not read the runs of a removed repository")
                }
            }
        }
        Ok(())
    }

    pub(super) async fn handle_installation(
        &self,
        taken: &ClaimedDelivery,
        e: &InstallationEvent,
    ) -> DeliveryResult {
        let (directory, account) = (self.store.installation_registry(), &e.account);
        let Some(action) = self.current_installation_action(taken, e).await? else {
            return Ok(DeliveryNote::Nothing(LATE_NOTE.into()));
        };
        match action {
            InstallationAction::Deleted => {
                let mut ended = 0;
                for repo in directory.remove_installation(e.installation).await? {
                    ended += self.end_runs(taken, repo, &e.sender, "the App was uninstalled").await?;
                }
                Ok(DeliveryNote::Done(format!("uninstalled by {account}; runs ended on {ended} issues")))
            }
            InstallationAction::Suspended => {
                self.record_installation(e.installation, account, true).await?;
                Ok(DeliveryNote::Done(format!("suspended by {account}")))
            }
            InstallationAction::Created | InstallationAction::Unsuspended => {
                self.record_installation(e.installation, account, false).await?;
                if taken.swept {
                    self.record_current_repositories(e.installation).await?;
                } else {
                    self.record_repositories(e.installation, &e.repositories).await?;
                }
                Ok(DeliveryNote::Done(format!("active for {account}")))
            }
            InstallationAction::PermissionsAccepted => {
                Ok(DeliveryNote::Done(format!("{account} accepted the App's permissions")))
            }
        }
    }

    pub(super) async fn handle_repositories(
        &self,
        taken: &ClaimedDelivery,
        installation: InstallationId,
        added: &[(RepoId, RepoName)],
        removed: &[(RepoId, RepoName)],
        by: &Actor,
    ) -> DeliveryResult {
        if taken.swept {
            return self.handle_late_repositories(taken, installation, removed, by).await;
        }
        self.record_repositories(installation, added).await?;
        self.drop_repositories(taken, removed, by).await?;
        Ok(DeliveryNote::Done(format!("{} repositories added, {} removed", added.len(), removed.len())))
    }

    /// Handles a late event about an installation's repositories. Because the event may be outdated, the repositories
    /// that GitHub lists now are used instead of those in the event.
    async fn handle_late_repositories(
        &self,
        taken: &ClaimedDelivery,
        installation: InstallationId,
        removed: &[(RepoId, RepoName)],
        by: &Actor,
    ) -> DeliveryResult {
        // A suspended installation lists nothing; its runs are paused and check for themselves when they continue.
        let there = self.github.installation(installation).await?;
        if there.is_none_or(|installation| installation.suspended) {
            return Ok(DeliveryNote::Nothing(LATE_NOTE.into()));
        }
        let given = self.record_current_repositories(installation).await?;
        let removed: Vec<_> = removed.iter().filter(|(repo, _)| !given.contains(repo)).cloned().collect();
        self.drop_repositories(taken, &removed, by).await?;
        Ok(DeliveryNote::Done(format!(
            "arrived late; the App has {} repositories now, {} were removed",
            given.len(),
            removed.len()
        )))
    }

    async fn drop_repositories(
        &self,
        taken: &ClaimedDelivery,
        removed: &[(RepoId, RepoName)],
        by: &Actor,
    ) -> Result<(), IntakeError> {
        for (repo, _) in removed {
            self.end_runs(taken, *repo, by, "the repository was removed from the App's installation").await?;
            self.store.installation_registry().mark_repository_removed(*repo).await?;
        }
        Ok(())
    }

    /// Returns the action to take for an event about an installation. A late event may be outdated, so GitHub is asked
    /// for the current state; `None` if the event no longer matches that state.
    async fn current_installation_action(
        &self,
        taken: &ClaimedDelivery,
        e: &InstallationEvent,
    ) -> Result<Option<InstallationAction>, IntakeError> {
        use InstallationAction::{Deleted, PermissionsAccepted, Suspended, Unsuspended};
        if !taken.swept || e.action == PermissionsAccepted {
            return Ok(Some(e.action));
        }
        let now = self.github.installation(e.installation).await?;
        Ok(match now.map(|installation| installation.suspended) {
            None => (e.action == Deleted).then_some(Deleted),
            Some(_) if e.action == Deleted => None,
            Some(suspended) => Some(if suspended { Suspended } else { Unsuspended }),
        })
    }

    /// Records whether an installation is suspended. GitHub sends a suspended App no webhooks and does not send them
    /// later either. So when a suspension ends, postponed deliveries are processed at once, and comments written during
    /// the suspension are read from GitHub.
    pub(super) async fn record_installation(
        &self,
        installation: InstallationId,
        account: &str,
        suspended: bool,
    ) -> Result<(), IntakeError> {
        let known = self.store.installation_registry().installation(installation).await?;
        if !suspended
            && known.is_some_and(|known| known.suspended)
            && let Err(trouble) = self.store_missed_comments(installation).await
        {
            // Resuming work matters more than the missed comments.
            tracing::warn!(%installation, error = ?trouble, "could not read the comments written during the suspension");
        }
        self.store.installation_registry().record_installation(installation, account, suspended).await?;
        if !suspended {
            self.store.inbox().resume_installation(installation).await?;
            self.delivery_stored.notify_one();
            self.engine.wake_waiting_runs();
        }
        Ok(())
    }

    /// Puts comments on issues with live runs into the inbox if they were written since the run last changed. A comment
    /// that is already in the inbox is not added again.
    async fn store_missed_comments(&self, installation: InstallationId) -> Result<(), IntakeError> {
        for repo in self.github.repositories(installation).await? {
            let live = RunFilter { repo: Some(repo.id), issue: None, live_only: true };
            let mut since = BTreeMap::new();
            for run in self.engine.list(live).await? {
                let asked = run.gate.as_ref().map_or(run.updated_at, |gate| gate.spec.shown_at);
                let oldest = since.entry(run.issue).or_insert(asked);
                *oldest = asked.min(*oldest);
            }
            let handle = self.github.repo(installation, repo.id, repo.name.clone());
            for (issue, since) in since {
                let comments = match handle.comments_since(&repo, issue, since.minus(GITHUB_LAG)).await {
                    Err(fault) => {
                        tracing::warn!(repository = %repo.name, %issue, error = %fault, "could not read an issue's comments written during the suspension");
                        continue;
                    }
                    Ok(comments) => comments,
                };
                for (id, body) in comments {
                    let event = "issue_comment".to_owned();
                    let subject = WebhookEvent::subject(&event, &body);
                    let new = NewDelivery { id, event, subject, swept: true, body };
                    if self.store.inbox().accept_delivery(new).await? == DeliveryReceipt::New {
                        tracing::info!(repository = %repo.name, %issue, "found a comment written during the suspension; queued");
                    }
                }
            }
        }
        Ok(())
    }

    /// Records the repositories that an installation currently has.
    async fn record_current_repositories(
        &self,
        installation: InstallationId,
    ) -> Result<BTreeSet<RepoId>, IntakeError> {
        let given = self.github.repositories(installation).await?;
        for repo in &given {
            self.store.installation_registry().record_repository(repository_row(repo, installation)).await?;
        }
        Ok(given.iter().map(|repo| repo.id).collect())
    }

    pub(super) async fn handle_repository(
        &self,
        taken: &ClaimedDelivery,
        e: &RepositoryEvent,
    ) -> DeliveryResult {
        let (directory, repo) = (self.store.installation_registry(), e.repo.id);
        let mut seen = repository_row(&e.repo, e.installation);
        if taken.swept {
            let handle = self.github.repo(e.installation, repo, e.repo.name.clone());
            match current_name(&handle, e.action).await? {
                Some(name) => seen.name = name,
                None => return Ok(DeliveryNote::Nothing(LATE_NOTE.into())),
            }
        }
        let elsewhere =
            directory.repository(repo).await?.is_some_and(|known| known.installation != e.installation);
        let why = match e.action {
            RepositoryAction::Deleted => Some("the repository was deleted"),
            RepositoryAction::Archived => Some("the repository was archived"),
            // Its runs belong to the installation that started them.
            RepositoryAction::Transferred if elsewhere => Some("the repository was transferred"),
            _ => None,
        };
        let ended = match why {
            Some(why) => self.end_runs(taken, repo, &e.sender, why).await?,
            None => 0,
        };
        // Last, so that a retry sees the same state.
        directory.record_repository(seen).await?;
        if e.action == RepositoryAction::Deleted {
            directory.mark_repository_removed(repo).await?;
        }
        Ok(DeliveryNote::Done(match why {
            Some(why) => format!("{why}; its runs ended on {ended} issues"),
            None => format!("recorded as {}", e.repo.name),
        }))
    }

    /// Whether the event must be ignored because its repository was removed. Applies to events that arrived before or
    /// shortly after the removal, and to events found in the delivery log.
    pub(super) async fn is_too_late(
        &self,
        taken: &ClaimedDelivery,
        event: &WebhookEvent,
    ) -> Result<bool, IntakeError> {
        let Some(repo) = event.repo().filter(|_| !taken.subject.fence) else { return Ok(false) };
        let lost = self.store.installation_registry().repository_removed_at(repo.id).await?;
        // GitHub sends nothing for repositories the App cannot see, so a later event means that the repository is back.
        Ok(lost.is_some_and(|lost| taken.swept || taken.received_at < lost.plus(GITHUB_LAG)))
    }

    /// Whether the event's installation is suspended. False for events about the installation itself.
    pub(super) async fn is_suspended(&self, event: &WebhookEvent) -> Result<bool, IntakeError> {
        match (event, event.installation()) {
            (WebhookEvent::Installation(_) | WebhookEvent::InstallationRepositories { .. }, _)
            | (_, None) => Ok(false),
            (_, Some(id)) => Ok(self
                .store
                .installation_registry()
                .installation(id)
                .await?
                .is_some_and(|row| row.suspended)),
        }
    }

    async fn record_repositories(
        &self,
        installation: InstallationId,
        repositories: &[(RepoId, RepoName)],
    ) -> Result<(), IntakeError> {
        for (id, name) in repositories {
            let row = RepositoryRow { id: *id, installation, name: name.clone() };
            self.store.installation_registry().record_repository(row).await?;
        }
        Ok(())
    }

    /// Cancels all runs of a repository, because nobody is left to answer their gates. Returns the number of issues
    /// that had live runs.
    async fn end_runs(
        &self,
        taken: &ClaimedDelivery,
        repo: RepoId,
        by: &Actor,
        why: &str,
    ) -> Result<usize, IntakeError> {
        let live = RunFilter { repo: Some(repo), issue: None, live_only: true };
        let issues: BTreeSet<_> = self.engine.list(live).await?.iter().map(|run| run.issue).collect();
        for issue in &issues {
            let cancel = CancelRunsRequest {
                repo,
                issue: *issue,
                run: None,
                // Numbered by issue, so a retry with fewer live runs yields the same causes.
                cause: cause::nth(&cause::delivery(taken), issue.0),
                by: by.clone(),
                why: why.to_owned(),
            };
            self.engine.cancel(cancel).await?;
        }
        Ok(issues.len())
    }
}

/// Returns the current name of the repository that a late event is about; `None` if the event no longer matches the
/// repository's state.
async fn current_name(repo: &GitHubRepo, told: RepositoryAction) -> Result<Option<RepoName>, IntakeError> {
    Ok(match repo.availability().await? {
        RepositoryAvailability::Available(now) => match told {
            RepositoryAction::Deleted => None,
            RepositoryAction::Archived if !now.archived => None,
            _ => Some(now.name),
        },
        RepositoryAvailability::Unreachable => {
            (told == RepositoryAction::Deleted).then(|| repo.name().clone())
        }
        // Its runs are suspended or orphaned, and notice that themselves.
        RepositoryAvailability::Suspended | RepositoryAvailability::Uninstalled => None,
    })
}
