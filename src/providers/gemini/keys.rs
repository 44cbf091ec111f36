//! Chooses the key for the next request.
//!
//! Quota belongs to a Google project: if one key exhausts it, the project's other keys are skipped. A refused key, or a
//! key that is denied a model, does not affect other keys. Cooldowns are stored under key hashes, so that a restart
//! does not repeat failed requests. Refused keys are not stored, because the operator may have fixed them before the
//! restart.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use secrecy::{ExposeSecret, SecretString};
use tokio::sync::{MappedMutexGuard, Mutex, MutexGuard};

use super::super::{CallErrorKind, ModelCall, http::CallFault};
use crate::{
    clock::SharedClock,
    config::{GeminiKey, GeminiSettings, ReloadableValue},
    limits,
    store::{KeyCooldownReason, Store, StoredKeyCooldown},
    types::{Hash, Timestamp},
};

/// Cooldown of a key that is denied one model. After it the key is tried again, because someone may have granted access
/// in the meantime.
const DENIAL_COOLDOWN: Duration = Duration::from_secs(3600);

pub(super) const NO_KEY: &str =
    "there is no GEMINI_API_KEY in the .env file; add one (https://aistudio.google.com/apikey)";

pub(super) struct GeminiKeys {
    settings: ReloadableValue<GeminiSettings>,
    clock: SharedClock,
    /// Store that keeps the cooldowns across restarts. `None` if they are kept in memory only.
    store: Option<Arc<Store>>,
    /// Cooldowns and refused keys. `None` until the cooldowns are read from the store.
    learned: Mutex<Option<KeyStatuses>>,
    /// Value of [`Store::remote_changes`] at the time when `learned` was read from the store.
    asked: AtomicU64,
}

#[derive(Default)]
struct KeyStatuses {
    rests: HashMap<(Hash, String), KeyCooldownReason>,
    /// Keys refused since the server started.
    refused: HashSet<Hash>,
}

impl GeminiKeys {
    pub(super) fn new(
        settings: ReloadableValue<GeminiSettings>,
        store: Option<Arc<Store>>,
        clock: SharedClock,
    ) -> Self {
        Self { settings, clock, store, learned: Mutex::default(), asked: AtomicU64::new(0) }
    }

    pub(super) fn missing_requirement(&self) -> Option<String> {
        self.settings.get().keys.is_empty().then(|| NO_KEY.to_owned())
    }

    /// Returns the first key that this call may use and that is not in cooldown.
    pub(super) async fn next_key(&self, call: &ModelCall) -> Result<GeminiKey, CallFault> {
        let learned = self.load_statuses().await;
        let now = self.clock.now();
        let mut soonest: Option<(Timestamp, KeyCooldownReason)> = None;
        let mut refused = Vec::new();
        let settings = self.settings.get();
        for key in settings.keys.iter().filter(|key| !call.private || settings.may_read_private(key)) {
            if learned.refused.contains(&hash_key(&key.secret)) {
                refused.push(key.name.as_str());
                continue;
            }
            match self.longest_rest(&learned, key, &call.model) {
                Some((until, rest)) if now < until => {
                    if soonest.is_none_or(|(known, _)| until < known) {
                        soonest = Some((until, rest));
                    }
                }
                _ => return Ok(key.clone()),
            }
        }
        Err(match soonest {
            Some((until, KeyCooldownReason::Rate { .. })) => {
                let kind = CallErrorKind::RateLimited { reset: Some(until.since(now)) };
                CallFault(kind, format!("all keys are rate limited, one of them until {until}"))
            }
            Some((until, KeyCooldownReason::Denied { .. })) => {
                let why = format!("no remaining key may use {}; next try at {until}", call.model);
                CallFault(CallErrorKind::Auth, why)
            }
            Some((until, _)) => {
                let kind = CallErrorKind::Quota { reset: Some(until.since(now)) };
                CallFault(kind, format!("the quota of all keys is exhausted; the first resets at {until}"))
            }
            None if settings.keys.is_empty() => CallFault(CallErrorKind::Auth, NO_KEY.to_owned()),
            None if refused.is_empty() => CallFault(
                CallErrorKind::Auth,
                "the repository is private, and no key has tier = \"paid\"; set it \
                 in a [[providers.gemini.key]], or set allow_free_tier_for_private = true under [providers.gemini]"
                    .to_owned(),
            ),
            None => {
                let keys = if refused.len() == 1 { "key" } else { "keys" };
                let why = format!(
                    "Google refuses the {keys} {}; change it in .env and run `countersign reload`",
                    refused.join(", ")
                );
                CallFault(CallErrorKind::Auth, why)
            }
        })
    }

    /// Starts a cooldown if the key caused the failure. `denied` is true if the key was denied only this model. Returns
    /// whether another key may succeed.
    pub(super) async fn record_failure(
        &self,
        key: &GeminiKey,
        model: &str,
        kind: &CallErrorKind,
        denied: bool,
    ) -> bool {
        let now = self.clock.now();
        let until = |reset: Option<Duration>, usual| {
            now.plus(reset.unwrap_or(usual).clamp(limits::SHORTEST_COOLDOWN, limits::LONGEST_COOLDOWN))
        };
        let why = match kind {
            CallErrorKind::RateLimited { reset } => {
                KeyCooldownReason::Rate { until: until(*reset, limits::RATE_COOLDOWN) }
            }
            CallErrorKind::Quota { reset } => {
                KeyCooldownReason::Quota { until: until(*reset, limits::QUOTA_COOLDOWN) }
            }
            CallErrorKind::Auth if denied => KeyCooldownReason::Denied { until: now.plus(DENIAL_COOLDOWN) },
            CallErrorKind::Auth => KeyCooldownReason::Refused,
            _ => return false,
        };
        let row = StoredKeyCooldown { key: hash_key(&key.secret), model: model.to_owned(), why };
        tracing::warn!(key = key.name, project = key.project, model, rest = ?why, "Gemini key cooldown started");
        let mut learned = self.load_statuses().await;
        learned.rests.insert((row.key, row.model.clone()), why);
        if why == KeyCooldownReason::Refused {
            learned.refused.insert(row.key);
        }
        if let Some(store) = &self.store
            && let Err(error) = store.set_key_cooldown(row).await
        {
            tracing::error!(%error, "could not store a key cooldown; it is lost at the next start");
        }
        true
    }

    /// Ends the key's cooldown for this model.
    pub(super) async fn record_success(&self, key: &GeminiKey, model: &str) {
        let row = (hash_key(&key.secret), model.to_owned());
        if self.load_statuses().await.rests.remove(&row).is_none() {
            return;
        }
        if let Some(store) = &self.store
            && let Err(error) = store.clear_key_cooldown(row.0, row.1).await
        {
            tracing::error!(%error, "could not clear a stored key cooldown");
        }
    }

    async fn load_statuses(&self) -> MappedMutexGuard<'_, KeyStatuses> {
        let mut learned = self.learned.lock().await;
        let elsewhere = self.store.as_ref().map_or(0, |store| store.remote_changes());
        if self.asked.swap(elsewhere, Relaxed) != elsewhere || learned.is_none() {
            let refused = learned.take().map(|learned| learned.refused).unwrap_or_default();
            let mut known = KeyStatuses { refused, ..KeyStatuses::default() };
            if let Some(store) = &self.store {
                match store.key_cooldowns().await {
                    Ok(rows) => {
                        known.rests = rows.into_iter().map(|row| ((row.key, row.model), row.why)).collect()
                    }
                    Err(error) => tracing::error!(%error, "could not read stored key cooldowns"),
                }
            }
            *learned = Some(known);
        }
        MutexGuard::map(learned, |learned| learned.get_or_insert_default())
    }

    /// Returns the cooldown that ends last among those of the key and those of its project, for this model.
    fn longest_rest(
        &self,
        learned: &KeyStatuses,
        key: &GeminiKey,
        model: &str,
    ) -> Option<(Timestamp, KeyCooldownReason)> {
        let own = hash_key(&key.secret);
        let settings = self.settings.get();
        let siblings = settings.keys.iter().filter(|sibling| sibling.project == key.project);
        siblings
            .map(|sibling| (hash_key(&sibling.secret), model.to_owned()))
            .filter_map(|known| Some((known.0, learned.rests.get(&known)?)))
            .filter(|(whose, rest)| *whose == own || rest.is_shared())
            .map(|(_, rest)| rest)
            .filter_map(|rest| Some((rest.until()?, *rest)))
            .max_by_key(|(until, _)| *until)
    }
}

/// Returns the hash under which a key's cooldowns are stored.
fn hash_key(secret: &SecretString) -> Hash {
    Hash::digest_parts([b"gemini".as_slice(), secret.expose_secret().as_bytes()])
}

/// A key with its cooldowns by model.
pub struct GeminiKeyState<'a> {
    pub key: &'a GeminiKey,
    pub rests: Vec<(&'a str, KeyCooldownReason)>,
}

/// Returns the keys of the settings, each with its current cooldowns.
pub fn gemini_key_states<'a>(
    settings: &'a GeminiSettings,
    learned: &'a [StoredKeyCooldown],
    now: Timestamp,
) -> Vec<GeminiKeyState<'a>> {
    let of = |key: &'a GeminiKey| {
        let own = hash_key(&key.secret);
        let siblings: HashSet<_> =
            settings.keys.iter().filter(|k| k.project == key.project).map(|k| hash_key(&k.secret)).collect();
        let holds = |row: &StoredKeyCooldown| {
            let over = row.why.until().is_some_and(|until| until <= now);
            let concerns = row.key == own || (row.why.is_shared() && siblings.contains(&row.key));
            concerns && !over
        };
        let rests = learned.iter().filter(|row| holds(row)).map(|row| (row.model.as_str(), row.why));
        GeminiKeyState { key, rests: rests.collect() }
    };
    settings.keys.iter().map(of).collect()
}
