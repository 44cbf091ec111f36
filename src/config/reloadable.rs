//! Settings that `reload` changes: secrets and the reviewer. Changes to other settings need a restart.

use std::{
    collections::BTreeMap,
    fmt::Debug,
    path::Path,
    sync::{Arc, PoisonError, RwLock},
};

use secrecy::{ExposeSecret, SecretString};

use super::{ModelSettings, ProgramSettings, Settings, WorkerSettings};
use crate::types::Hash;

/// A value that all its clones share: a new value replaces the old one in all clones. Readers that have already fetched
/// the old value keep it.
#[derive(Debug)]
pub struct ReloadableValue<T>(Arc<RwLock<Arc<T>>>);

impl<T> ReloadableValue<T> {
    pub fn new(value: T) -> Self {
        Self(Arc::new(RwLock::new(Arc::new(value))))
    }

    pub fn get(&self) -> Arc<T> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub fn set(&self, value: T) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(value);
    }
}

impl<T> Clone for ReloadableValue<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl Settings {
    /// Returns the names of the settings tables that differ in `new` and are read only at start.
    pub fn settings_needing_restart(&self, new: &Self) -> Vec<&'static str> {
        // Compare `Debug` texts: they show every setting and hide every secret.
        let differ = |old: &dyn Debug, new: &dyn Debug| format!("{old:?}") != format!("{new:?}");
        let keyless = |settings: &Self| {
            let mut models = settings.models.clone();
            models.gemini.keys.clear();
            models.openai.api_key = None;
            models.anthropic.api_key = None;
            models.reviewer.clear();
            models
        };
        let keys = |settings: &Self| settings.models.secrets();
        let tables = [
            ("[app]", differ(&self.app, &new.app)),
            ("[github]", differ(&self.github, &new.github)),
            ("[server]", differ(&self.server, &new.server)),
            ("[data]", differ(&(&self.data_dir, &self.postgres), &(&new.data_dir, &new.postgres))),
            ("[installations]", differ(&self.allowed_installations, &new.allowed_installations)),
            ("[models], [providers] or [workers]", differ(&keyless(self), &keyless(new))),
            // Cassettes are redacted with the keys known at start.
            (
                "the models' keys, while cassettes are kept,",
                self.models.cassettes.is_some() && !same_secrets(&keys(self), &keys(new)),
            ),
            ("[budget]", differ(&self.budget, &new.budget)),
            ("[people]", differ(&self.people, &new.people)),
            ("[sandbox] or [fetch]", differ(&(&self.sandbox, &self.fetch), &(&new.sandbox, &new.fetch))),
            ("a workflow's table", differ(&self.workflows, &new.workflows)),
        ];
        tables.into_iter().filter(|(_, differs)| *differs).map(|(table, _)| table).collect()
    }
}

impl Settings {
    /// Returns a fingerprint of each settings table that must be the same on all nodes of one Postgres database.
    /// Secrets are not included. Neither are the settings of a single node: paths, addresses and the sizes of worker
    /// pools.
    pub fn fingerprints(&self) -> BTreeMap<&'static str, String> {
        let Self { allowed_installations: mut allowed, mut models, mut sandbox, .. } = self.clone();
        allowed.sort_unstable();
        let usual = ModelSettings::with_real_models(Path::new(""), None, None);
        for (program, usual) in [(&mut models.claude, usual.claude), (&mut models.opencode, usual.opencode)] {
            *program = ProgramSettings { allow_unconfined: program.allow_unconfined, ..usual };
        }
        (models.anthropic, models.ollama, models.openai) = (usual.anthropic, usual.ollama, usual.openai);
        (models.gemini.base_url, models.gemini.keys) = (usual.gemini.base_url, Vec::new());
        let WorkerSettings { labels, paths, .. } = models.workers;
        models.workers = WorkerSettings { labels, paths, ..usual.workers };
        (models.stub, models.cassettes, models.ours) = (usual.stub, None, Vec::new());
        (sandbox.home, sandbox.program) = (None, None);
        let lease = self.postgres.as_ref().map(|postgres| postgres.lease);
        let tables: [(_, &dyn Debug); 9] = [
            ("its version", &env!("CARGO_PKG_VERSION")),
            ("[app] or [github]", &(self.app.id, &self.github)),
            ("[data]", &lease),
            ("[installations]", &allowed),
            ("what is said of models", &models),
            ("[budget]", &self.budget),
            ("[people]", &self.people),
            ("[sandbox] or [fetch]", &(&sandbox, &self.fetch)),
            ("a workflow's table", &self.workflows),
        ];
        let fingerprint = |shown: &dyn Debug| Hash::digest(format!("{shown:?}").as_bytes()).to_string();
        tables.into_iter().map(|(table, shown)| (table, fingerprint(shown))).collect()
    }
}

/// Returns whether two lists contain the same secrets in the same order.
pub fn same_secrets<'s>(
    some: impl IntoIterator<Item = &'s SecretString>,
    others: impl IntoIterator<Item = &'s SecretString>,
) -> bool {
    let text = ExposeSecret::expose_secret;
    some.into_iter().map(text).eq(others.into_iter().map(text))
}
