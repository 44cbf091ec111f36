//! Rotation of secrets while the server runs: everything is checked first, then all of it is taken, or nothing.

use std::sync::Arc;

use secrecy::SecretString;
use tokio::sync::Mutex;

use super::{github, private_key};
use crate::{
    clock::SharedClock,
    config::{Live, Settings, same_secrets},
    github::{Fault, GitHub, Pacing},
    providers::Providers,
    store::Store,
    workflows,
};

/// The rooms that hold secrets, and what they were given.
pub(super) struct Reloading {
    /// As the server was started.
    settings: Arc<Settings>,
    /// The private key in use. Locked while a reload is at work: one goes after the other.
    key: Mutex<SecretString>,
    github: GitHub,
    providers: Arc<Providers>,
    webhook: Live<Vec<SecretString>>,
    store: Arc<Store>,
    clock: SharedClock,
}

impl Reloading {
    pub(super) fn new(
        settings: &Arc<Settings>,
        key: SecretString,
        github: &GitHub,
        providers: &Arc<Providers>,
        webhook: &Live<Vec<SecretString>>,
        store: &Arc<Store>,
        clock: &SharedClock,
    ) -> Self {
        Self {
            settings: settings.clone(),
            key: Mutex::new(key),
            github: github.clone(),
            providers: providers.clone(),
            webhook: webhook.clone(),
            store: store.clone(),
            clock: clock.clone(),
        }
    }

    /// A sentence on what was taken and what waits for a restart, or why everything is as it was.
    pub(super) async fn reload(&self) -> Result<String, String> {
        let mut key = self.key.lock().await;
        let kept =
            |why: String| format!("nothing was changed, and the server goes on with what it had: {why}");
        let (new, new_key) = self.checked(&key).await.map_err(kept)?;
        let mut taken = Vec::new();
        if !same_secrets([&*key], [&new_key]) {
            self.github.take_key(&new_key).map_err(|error| kept(error.to_string()))?;
            *key = new_key;
            taken.push("the private key");
        }
        if !same_secrets(&*self.webhook.get(), &new.webhook_secrets) {
            taken.push(match new.webhook_secrets.len() {
                1 => "the webhook's secret (no other is accepted)",
                _ => "the webhook's secret (COUNTERSIGN_WEBHOOK_SECRET_PREVIOUS is accepted, too)",
            });
            self.webhook.set(new.webhook_secrets.clone());
        }
        if new.models.cassettes.is_none() {
            taken.extend(self.providers.take_keys(&new.models));
        }
        let taken = match taken.is_empty() {
            true => "no secret has changed".to_owned(),
            false => format!("in use now: {}", taken.join(", ")),
        };
        let mut said = taken;
        let waiting = self.settings.needs_restart(&new).join(", ");
        if !waiting.is_empty() {
            said += &format!(". {waiting} changed, too, which needs a restart; until then the old one holds");
        }
        let unlike = self.store.unlike_nodes().join("; ");
        if !unlike.is_empty() {
            tracing::warn!(nodes = unlike, "other nodes have other settings");
            said += &format!(". Other nodes have other settings: {unlike}");
        }
        Ok(said)
    }

    /// The settings as they are on disk, and the key, each found good.
    async fn checked(&self, old_key: &SecretString) -> Result<(Settings, SecretString), String> {
        let new = workflows::settings(&self.settings.file).map_err(|error| error.to_string())?;
        if let Some(exposed) = new.exposed_secrets().into_iter().next() {
            return Err(exposed);
        }
        // Programs of models are kept from the files that were named when the server started.
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

    /// Does GitHub take us for the App by this key?
    async fn try_key(&self, key: SecretString) -> Result<(), String> {
        let path = self.settings.app.private_key_file.display();
        let trial = github(&self.settings, key, Pacing::Off, self.clock.clone())
            .map_err(|error| format!("{path}: {error}"))?;
        match trial.app().await {
            Ok(_) => Ok(()),
            Err(Fault::Unauthorized { .. } | Fault::NotFound { .. }) => Err(format!(
                "GitHub does not accept the key {path} for App {}; download a new one from the App's settings page",
                self.settings.app.id
            )),
            Err(fault) => {
                Err(format!("GitHub could not be asked about the key {path}: {fault}; try again later"))
            }
        }
    }
}
