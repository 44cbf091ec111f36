//! Installations and repositories come, go, rest and change their names.
//!
//! What is gone ends its runs and is kept for a while, for whoever took it away by mistake
//! (`GONE_KEPT`). What is suspended rests: nothing of it runs, nothing of it is lost.

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

/// What belongs to a repository that was deleted or taken from the App is kept for a month, for whoever
/// took it away by mistake; then it is removed.
const LOST_REPOSITORY_RETENTION: Duration = Duration::from_secs(30 * 24 * 3600);

impl Intake {
    /// Drops what is too old to be kept.
    pub async fn remove_old_data(&self) -> Result<(), StoreError> {
        while self.store.inbox().delete_expired().await? > 0 {}
        let then = self.clock.now().minus(LOST_REPOSITORY_RETENTION);
        for repo in self.store.installation_registry().repositories_removed_before(then).await? {
            let live = RunFilter { repo: Some(repo), issue: None, live_only: true };
            match self.engine.list(live).await {
                Ok(runs) if runs.is_empty() => {
                    self.store.forget_repo(repo).await?;
                    tracing::info!(%repo, "what was kept of a repository that is gone was removed");
                }
                Ok(_) => tracing::warn!(%repo, "a repository is gone and its runs have not ended"),
                Err(error) => {
                    tracing::error!(%repo, %error, "a repository that is gone cannot be looked into")
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
                Ok(DeliveryNote::Done(format!("at work for {account}")))
            }
            InstallationAction::PermissionsAccepted => {
                Ok(DeliveryNote::Done(format!("{account} accepted what the App asks for")))
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

    /// What was told of late: those count that are given to the App now, and those that are not.
    async fn handle_late_repositories(
        &self,
        taken: &ClaimedDelivery,
        installation: InstallationId,
        removed: &[(RepoId, RepoName)],
        by: &Actor,
    ) -> DeliveryResult {
        // Nothing of a suspended one can be listed; its runs rest, and look for themselves when they go on.
        let there = self.github.installation(installation).await?;
        if there.is_none_or(|installation| installation.suspended) {
            return Ok(DeliveryNote::Nothing(LATE_NOTE.into()));
        }
        let given = self.record_current_repositories(installation).await?;
        let removed: Vec<_> = removed.iter().filter(|(repo, _)| !given.contains(repo)).cloned().collect();
        self.drop_repositories(taken, &removed, by).await?;
        Ok(DeliveryNote::Done(format!(
            "told late; {} repositories are given, {} were removed",
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
            self.end_runs(taken, *repo, by, "the repository was taken from the App").await?;
            self.store.installation_registry().mark_repository_removed(*repo).await?;
        }
        Ok(())
    }

    /// What an installation's delivery means now. One that was found late may be overtaken by what came after it, so
    /// GitHub is asked how things are; none when that is not what it tells of.
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

    /// Notes whether an installation rests. If it did and does not any more, what waited goes on at once, and comments that
    /// were written meanwhile are read: GitHub sends a suspended App no webhooks, and never makes up for them.
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
            // What people wrote is less than that the work goes on.
            tracing::warn!(%installation, ?trouble, "could not read comments from while the App was suspended");
        }
        self.store.installation_registry().record_installation(installation, account, suspended).await?;
        if !suspended {
            self.store.inbox().resume_installation(installation).await?;
            self.delivery_stored.notify_one();
            self.engine.wake_waiting_runs();
        }
        Ok(())
    }

    /// Puts into the inbox what was written on the issues of live runs since these last changed. A comment that we were told
    /// of before counts once.
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
                        tracing::warn!(repository = %repo.name, %issue, %fault, "cannot read comments from while the App was suspended");
                        continue;
                    }
                    Ok(comments) => comments,
                };
                for (id, body) in comments {
                    let event = "issue_comment".to_owned();
                    let subject = WebhookEvent::subject(&event, &body);
                    let new = NewDelivery { id, event, subject, swept: true, body };
                    if self.store.inbox().accept_delivery(new).await? == DeliveryReceipt::New {
                        tracing::info!(repository = %repo.name, %issue, "found a comment from while the App was suspended");
                    }
                }
            }
        }
        Ok(())
    }

    /// Notes the repositories that an installation is given now.
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
            // Its runs hold the installation they were started through.
            RepositoryAction::Transferred if elsewhere => Some("the repository was transferred"),
            _ => None,
        };
        let ended = match why {
            Some(why) => self.end_runs(taken, repo, &e.sender, why).await?,
            None => 0,
        };
        // Last, so that a second try sees the same.
        directory.record_repository(seen).await?;
        if e.action == RepositoryAction::Deleted {
            directory.mark_repository_removed(repo).await?;
        }
        Ok(DeliveryNote::Done(match why {
            Some(why) => format!("{why}; its runs ended on {ended} issues"),
            None => format!("known as {}", e.repo.name),
        }))
    }

    /// Why this event is not heard now, if it is not: the repository is gone and this one came around it.
    pub(super) async fn is_too_late(
        &self,
        taken: &ClaimedDelivery,
        event: &WebhookEvent,
    ) -> Result<bool, IntakeError> {
        let Some(repo) = event.repo().filter(|_| !taken.subject.fence) else { return Ok(false) };
        let lost = self.store.installation_registry().repository_removed_at(repo.id).await?;
        // GitHub tells nothing of what the App may not see: a later one means that it is back.
        Ok(lost.is_some_and(|lost| taken.swept || taken.received_at < lost.plus(GITHUB_LAG)))
    }

    /// Does its installation rest?
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

    /// Nobody is left to answer what its runs ask. Says on how many issues there were any.
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
                // By the issue's number: what is still alive at a second try does not shift it.
                cause: cause::nth(&cause::delivery(taken), issue.0),
                by: by.clone(),
                why: why.to_owned(),
            };
            self.engine.cancel(cancel).await?;
        }
        Ok(issues.len())
    }
}

/// The name of a repository of which something was told late; none when what was told does not hold any more.
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
        // Its runs rest, or have nobody to work for, and find out for themselves.
        RepositoryAvailability::Suspended | RepositoryAvailability::Uninstalled => None,
    })
}
