//! Labels of ours that open issues bear although nobody told us: found on the issue, traced to whoever put them
//! there, and obeyed like a webhook's.
//!
//! The label itself says nothing of who set it, so the issue's history is asked, and what *that* person may do now
//! decides. A labelling is dealt with once, whichever way we learn of it first.

use super::{Handled, Intake, Trouble, route::Place};
use crate::{
    engine::Filter,
    github::{Fault, Labeling, RepoRef},
    store::{LabelingKey, RepoRow, Taken},
    types::{DeliveryId, InstallationId},
};

/// What a look for labels came to.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Labels {
    /// Labels that were dealt with, refusals included.
    pub handled: usize,
    /// Labels or repositories that could not be looked at now, or are about to be dealt with by a delivery.
    pub unsure: usize,
}

impl Intake {
    /// Looks for labels of ours in every repository that we were given and work for.
    pub async fn look_for_labels(&self) -> Result<Labels, Trouble> {
        let mut labels = Labels::default();
        let installations = self.github.installations().await?;
        for installation in installations.iter().filter(|i| !i.suspended && self.allow.contains(&i.id)) {
            if let Err(trouble) = self.look_in_installation(installation.id, &mut labels).await {
                labels.unsure += usize::from(passes(&trouble));
                tracing::warn!(installation = %installation.id, %trouble, "cannot look for labels");
            }
        }
        Ok(labels)
    }

    async fn look_in_installation(
        &self,
        installation: InstallationId,
        labels: &mut Labels,
    ) -> Result<(), Trouble> {
        for repo in self.github.repositories(installation).await? {
            let (id, name) = (repo.id, repo.name.clone());
            self.store.directory().saw_repository(RepoRow { id, installation, name }).await?;
            for label in self.router.rows().iter().filter_map(|row| row.label) {
                if let Err(trouble) = self.look_in(&repo, installation, label, labels).await {
                    labels.unsure += usize::from(passes(&trouble));
                    tracing::warn!(repository = %repo.name, label, %trouble, "cannot look for labels");
                    break; // what keeps us from the one label keeps us from the next
                }
            }
        }
        Ok(())
    }

    async fn look_in(
        &self,
        repo: &RepoRef,
        installation: InstallationId,
        label: &str,
        labels: &mut Labels,
    ) -> Result<(), Trouble> {
        let handle = self.github.repo(installation, repo.id, repo.name.clone());
        for issue in handle.issues_labeled(label).await? {
            let at = Place { repo, installation, issue };
            match self.trace(&at, label).await {
                Ok(Some(note)) => {
                    tracing::info!(repository = %repo.name, %issue, label, %note, "found on the issue");
                    labels.handled += 1;
                }
                Ok(None) => {}
                Err(trouble) => {
                    labels.unsure += usize::from(passes(&trouble));
                    tracing::warn!(repository = %repo.name, %issue, label, %trouble, "a label waits");
                }
            }
        }
        Ok(())
    }

    /// Deals with a label on an issue; none when that was done before.
    async fn trace(&self, at: &Place<'_>, label: &str) -> Result<Option<String>, Trouble> {
        let repo = self.repo(at);
        let Some(labeling) = repo.newest_labeling(at.issue, label).await? else {
            return Ok(None);
        };
        let key = key(at, label, &labeling);
        if self.store.labeling_note(&key, false).await?.is_some() {
            return Ok(None);
        }
        if self.store.inbox().pending().await? > 0 {
            return Err(Trouble::Pending); // one of them may be its webhook
        }
        let note = if self.started(at, label, &labeling).await? {
            repo.remove_label(at.issue, label).await?;
            "it had started its run before".to_owned()
        } else {
            let as_told = self.as_told(at, &labeling);
            self.labeled(&as_told, at, label, &labeling.actor, labeling.at).await?
        };
        self.store.note_labeling(&key, true, &note).await?;
        Ok(Some(note))
    }

    /// Has a run come of it that we know of? Then the label only failed to come off.
    async fn started(&self, at: &Place<'_>, label: &str, by: &Labeling) -> Result<bool, Trouble> {
        let Some(command) = self.router.by_label(label) else { return Ok(false) };
        let Some((workflow, _)) = self.router.by_command(command.name) else { return Ok(false) };
        let filter = Filter { repo: Some(at.repo.id), issue: Some(at.issue), live_only: false };
        let runs = self.engine.list(filter).await?;
        Ok(runs.iter().any(|run| {
            run.workflow == workflow && run.trigger.actor.id == by.actor.id && run.trigger.at >= by.at
        }))
    }

    /// The delivery that should have told us. Its id is the act's own, so that it starts one run at most.
    fn as_told(&self, at: &Place<'_>, labeling: &Labeling) -> Taken {
        Taken {
            id: DeliveryId(format!("labeling-{}-{}", at.repo.id, labeling.event)),
            event: "issues".to_owned(),
            installation: Some(at.installation),
            body: Vec::new(),
            attempts: 1,
            again: true, // an earlier look may have been cut short
            received_at: self.clock.now(),
        }
    }

    /// A webhook's label: not obeyed again when it was found on the issue before, and noted, so that a refusal is
    /// not asked about again.
    pub(super) async fn told_of_label(
        &self,
        taken: &Taken,
        at: &Place<'_>,
        label: &str,
        labeling: Labeling,
    ) -> Handled {
        if self.router.by_label(label).is_none() {
            return Ok("not a label of ours".to_owned());
        }
        let key = key(at, label, &labeling);
        if let Some(note) = self.store.labeling_note(&key, true).await? {
            return Ok(format!("found on the issue before: {note}"));
        }
        let note = self.labeled(taken, at, label, &labeling.actor, labeling.at).await?;
        self.store.note_labeling(&key, false, &note).await?;
        Ok(note)
    }
}

fn passes(trouble: &Trouble) -> bool {
    match trouble {
        Trouble::GitHub(fault) => fault.passes() || matches!(fault, Fault::Unauthorized { .. }),
        Trouble::Engine(_) | Trouble::Store(_) | Trouble::Opening | Trouble::Pending => true,
    }
}

fn key(at: &Place<'_>, label: &str, labeling: &Labeling) -> LabelingKey {
    LabelingKey {
        repo: at.repo.id,
        issue: at.issue,
        label: label.to_owned(),
        actor: labeling.actor.id,
        at: labeling.at,
    }
}
