//! Installations and repositories come, go, rest and change their names.
//!
//! What is gone ends its runs and is kept for a while, for whoever took it away by mistake
//! ([`limits::GONE_KEPT`]). What is suspended rests: nothing of it runs, nothing of it is lost.

use std::collections::BTreeSet;

use super::{Handled, Intake, LAG, Trouble, cause, route::row};
use crate::{
    engine::{Cancel, Filter},
    github::event::{Event, InstallationAction, InstallationEvent, RepositoryAction, RepositoryEvent},
    limits,
    store::{RepoRow, StoreError, Taken},
    types::{Actor, InstallationId, RepoId, RepoName},
};

impl Intake {
    /// Drops what is too old to be kept.
    pub async fn tidy(&self) -> Result<(), StoreError> {
        while self.store.inbox().tidy().await? > 0 {}
        let then = self.clock.now().minus(limits::GONE_KEPT);
        for repo in self.store.directory().lost_before(then).await? {
            let live = Filter { repo: Some(repo), issue: None, live_only: true };
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

    pub(super) async fn installation(&self, taken: &Taken, e: &InstallationEvent) -> Handled {
        let (directory, account) = (self.store.directory(), &e.account);
        match e.action {
            InstallationAction::Deleted => {
                let mut ended = 0;
                for repo in directory.lost_installation(e.installation).await? {
                    ended += self.end_runs(taken, repo, &e.sender, "the App was uninstalled").await?;
                }
                Ok(format!("uninstalled by {account}; runs ended on {ended} issues"))
            }
            InstallationAction::Suspended => {
                directory.saw_installation(e.installation, account, true).await?;
                Ok(format!("suspended by {account}"))
            }
            InstallationAction::Created | InstallationAction::Unsuspended => {
                directory.saw_installation(e.installation, account, false).await?;
                self.saw(e.installation, &e.repositories).await?;
                self.store.inbox().resume(e.installation).await?;
                Ok(format!("at work for {account}"))
            }
            InstallationAction::PermissionsAccepted => {
                Ok(format!("{account} accepted what the App asks for"))
            }
        }
    }

    pub(super) async fn repositories(
        &self,
        taken: &Taken,
        installation: InstallationId,
        added: &[(RepoId, RepoName)],
        removed: &[(RepoId, RepoName)],
        by: &Actor,
    ) -> Handled {
        self.saw(installation, added).await?;
        for (repo, _) in removed {
            self.end_runs(taken, *repo, by, "the repository was taken from the App").await?;
            self.store.directory().lost_repository(*repo).await?;
        }
        Ok(format!("{} repositories added, {} removed", added.len(), removed.len()))
    }

    pub(super) async fn repository(&self, taken: &Taken, e: &RepositoryEvent) -> Handled {
        let (directory, repo) = (self.store.directory(), e.repo.id);
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
        directory.saw_repository(row(&e.repo, e.installation)).await?;
        if e.action == RepositoryAction::Deleted {
            directory.lost_repository(repo).await?;
        }
        Ok(match why {
            Some(why) => format!("{why}; its runs ended on {ended} issues"),
            None => format!("known as {}", e.repo.name),
        })
    }

    /// Why this event is not heard now, if it is not: the repository is gone and this one came around it.
    pub(super) async fn too_late(&self, taken: &Taken, event: &Event) -> Result<bool, Trouble> {
        let Some(repo) = event.repo().filter(|_| !taken.subject.fence) else { return Ok(false) };
        let lost = self.store.directory().lost_at(repo.id).await?;
        // GitHub tells nothing of what the App may not see: a later one means that it is back.
        Ok(lost.is_some_and(|lost| taken.swept || taken.received_at < lost.plus(LAG)))
    }

    /// Does its installation rest?
    pub(super) async fn rests(&self, event: &Event) -> Result<bool, Trouble> {
        match (event, event.installation()) {
            (Event::Installation(_) | Event::InstallationRepositories { .. }, _) | (_, None) => Ok(false),
            (_, Some(id)) => {
                Ok(self.store.directory().installation(id).await?.is_some_and(|row| row.suspended))
            }
        }
    }

    async fn saw(
        &self,
        installation: InstallationId,
        repositories: &[(RepoId, RepoName)],
    ) -> Result<(), Trouble> {
        for (id, name) in repositories {
            let row = RepoRow { id: *id, installation, name: name.clone() };
            self.store.directory().saw_repository(row).await?;
        }
        Ok(())
    }

    /// Nobody is left to answer what its runs ask. Says on how many issues there were any.
    async fn end_runs(&self, taken: &Taken, repo: RepoId, by: &Actor, why: &str) -> Result<usize, Trouble> {
        let live = Filter { repo: Some(repo), issue: None, live_only: true };
        let issues: BTreeSet<_> = self.engine.list(live).await?.iter().map(|run| run.issue).collect();
        for issue in &issues {
            let cancel = Cancel {
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
