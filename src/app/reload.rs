//! Reloads secrets and the reviewer while the server runs. A reload first checks the new settings and secrets, and
//! changes nothing if a check fails.

use std::sync::Arc;

use secrecy::SecretString;
use tokio::sync::Mutex;

use super::{github, private_key};
use crate::{
    clock::SharedClock,
    config::{ModelSettings, ReloadableValue, Settings, same_secrets},
    engine::{EnginePort, RemarkKind, RunFilter, RunRemark},
    github::{GitHub, GitHubApiError, Pacing},
    providers::ModelProviders,
    store::Store,
    types::{Cause, Role, Verb, count},
    workflows,
};

/// Holds the components that use secrets, so that a reload can replace their secrets.
pub(super) struct SecretReloader {
    /// Settings that were read when the server started.
    pub(super) settings: Arc<Settings>,
    /// Private key in use. The lock also ensures that only one reload runs at a time.
    pub(super) key: Mutex<SecretString>,
    pub(super) github: GitHub,
    pub(super) providers: Arc<ModelProviders>,
    pub(super) webhook: ReloadableValue<Vec<SecretString>>,
    /// Reviewer set by the last reload, as named under `[models]`.
    pub(super) reviewer: ReloadableValue<String>,
    /// Engine, which notifies the runs whose reviews gave no verdict.
    pub(super) engine: Arc<dyn EnginePort>,
    pub(super) store: Arc<Store>,
    pub(super) clock: SharedClock,
}

impl SecretReloader {
    /// Returns the settings read at the start of the server, with the reviewer set by the last reload.
    pub(super) fn current_settings(&self) -> Settings {
        let mut settings = Settings::clone(&self.settings);
        settings.models.reviewer.clone_from(&self.reviewer.get());
        settings
    }

    /// Reloads the secrets and the reviewer. Returns a summary of the applied changes and of those that need a restart,
    /// or the reason why nothing was changed.
    pub(super) async fn reload(&self) -> Result<String, String> {
        let mut key = self.key.lock().await;
        let kept = |why: String| format!("nothing was changed; the server keeps its current settings: {why}");
        let (new, new_key) = self.read_checked_settings(&key).await.map_err(kept)?;
        let mut taken: Vec<String> = Vec::new();
        if !same_secrets([&*key], [&new_key]) {
            self.github.replace_key(&new_key).map_err(|error| kept(error.to_string()))?;
            *key = new_key;
            taken.push("the private key".to_owned());
        }
        if !same_secrets(&*self.webhook.get(), &new.webhook_secrets) {
            taken.push(match new.webhook_secrets.len() {
                1 => "the webhook's secret (no other is accepted)".to_owned(),
                _ => "the webhook's secret (COUNTERSIGN_WEBHOOK_SECRET_PREVIOUS is accepted, too)".to_owned(),
            });
            self.webhook.set(new.webhook_secrets.clone());
        }
        if new.models.cassettes.is_none() {
            taken.extend(self.providers.reload_keys(&new.models).into_iter().map(str::to_owned));
        }
        let mut waiting = self.settings.settings_needing_restart(&new);
        let reviewer = &new.models.reviewer;
        if *self.reviewer.get() != *reviewer {
            let models = ModelSettings { reviewer: reviewer.clone(), ..self.settings.models.clone() };
            match self.providers.check_models(&models) {
                Ok(()) => taken.push(self.take_reviewer(reviewer).await),
                Err(_) => waiting.push("the reviewer"),
            }
        }
        let taken = match taken.is_empty() {
            true => "no secret has changed".to_owned(),
            false => format!("in use now: {}", taken.join(", ")),
        };
        let mut summary = taken;
        let waiting = waiting.join(", ");
        if !waiting.is_empty() {
            summary += &format!(". {waiting} also changed; restart the server to apply it");
        }
        let current = self.current_settings();
        let published =
            self.store.publish_settings(&current.fingerprints(), &current.allowed_installations).await;
        if let Err(error) = published {
            tracing::error!(%error, "could not publish the settings to other nodes");
        }
        let differing = self.store.differing_nodes().join("; ");
        if !differing.is_empty() {
            tracing::warn!(nodes = differing, "other nodes have different settings");
            summary += &format!(". Other nodes have different settings: {differing}");
        }
        for warning in self.providers.warn_about_models(&current, self.clock.now()).await {
            summary += &format!(". {warning}");
        }
        Ok(summary)
    }

    /// Makes this model the reviewer. Notifies the gates that wait because a review gave no verdict. Returns a line for
    /// the summary of the reload.
    async fn take_reviewer(&self, reviewer: &str) -> String {
        self.reviewer.set(reviewer.to_owned());
        let live = RunFilter { repo: None, issue: None, live_only: true };
        let runs = self.engine.list(live).await.unwrap_or_else(|error| {
            tracing::warn!(%error, "could not list runs without a verdict; their gates keep naming the old reviewer");
            Vec::new()
        });
        let at = self.clock.now();
        let mut notified = 0;
        for run in runs {
            let Some(gate) =
                run.gate.filter(|gate| gate.spec.verbs.iter().any(|(verb, _)| *verb == Verb::Retry))
            else {
                continue;
            };
            let remark = RunRemark {
                cause: Cause(format!("reviewer-{}-{}-{}", run.id, gate.spec.subject, at.0)),
                kind: RemarkKind::Reviewer,
                finding: String::new(),
                text: reviewer.to_owned(),
                by: run.started_by,
                role: Role::None,
                at,
            };
            match self.engine.remark(run.id, remark).await {
                Ok(_) => notified += 1,
                Err(error) => {
                    tracing::warn!(run = %run.id, %error, "could not notify a run of the new reviewer")
                }
            }
        }
        match notified {
            0 => format!("the reviewer {reviewer}"),
            _ => format!(
                "the reviewer {reviewer} ({} without a verdict: `/retry` there asks this reviewer)",
                count(notified, "gate waits", "gates wait")
            ),
        }
    }

    /// Loads the settings and the private key from disk and checks both.
    async fn read_checked_settings(
        &self,
        old_key: &SecretString,
    ) -> Result<(Settings, SecretString), String> {
        let new = workflows::load_settings(&self.settings.file).map_err(|error| error.to_string())?;
        if let Some(exposed) = new.exposed_secrets().into_iter().next() {
            return Err(exposed);
        }
        // The sandbox of model programs hides only the secret files that were named when the server started.
        if let Some(file) = new.models.ours.iter().find(|file| !self.settings.models.ours.contains(file)) {
            return Err(format!(
                "{} is a new place for a secret, which programs of models could read; put it where the old one was, or \
                 restart the server",
                file.display()
            ));
        }
        let key = private_key(&new).map_err(|error| error.to_string())?;
        if !same_secrets([old_key], [&key]) {
            self.try_key(key.clone()).await?;
        }
        Ok((new, key))
    }

    /// Checks that GitHub accepts this key for the App.
    async fn try_key(&self, key: SecretString) -> Result<(), String> {
        let path = self.settings.app.private_key_file.display();
        let trial = github(&self.settings, key, Pacing::Off, self.clock.clone())
            .map_err(|error| format!("{path}: {error}"))?;
        match trial.app().await {
            Ok(_) => Ok(()),
            Err(GitHubApiError::Unauthorized { .. } | GitHubApiError::NotFound { .. }) => Err(format!(
                "GitHub does not accept the key {path} for App {}; download a new one from the App's settings page",
                self.settings.app.id
            )),
            Err(fault) => Err(format!("GitHub could not check the key {path}: {fault}; try again later")),
        }
    }
}
