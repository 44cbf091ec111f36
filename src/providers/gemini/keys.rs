//! Which of several keys is asked next.
//!
//! Quota is the project's: what one key uses up, its siblings need not try. What a key is refused is its own affair, be it
//! everything or one model. What is learned is kept, under hashes of the
//! keys, so that a restart does not ask anew what was answered already; only a key that was refused gets another chance
//! by it, for that is how an operator says that it was put right.

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

/// One that may not use a model, though it may use others: looked at again every hour, for someone may have allowed it.
const DENIAL_COOLDOWN: Duration = Duration::from_secs(3600);

pub(super) const NO_KEY: &str =
    "there is no GEMINI_API_KEY in the .env file; add one (https://aistudio.google.com/apikey)";

pub(super) struct GeminiKeys {
    settings: ReloadableValue<GeminiSettings>,
    clock: SharedClock,
    /// None: what is learned lasts as long as this.
    store: Option<Arc<Store>>,
    /// None: the store was not asked yet.
    learned: Mutex<Option<KeyStatuses>>,
    /// When it was asked, as [`Store::remote_changes`] counts.
    asked: AtomicU64,
}

#[derive(Default)]
struct KeyStatuses {
    rests: HashMap<(Hash, String), KeyCooldownReason>,
    /// Since the server started.
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

    /// The first key that this call may use and that does not rest.
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
                CallFault(kind, format!("every key's project rests, one of them until {until}"))
            }
            Some((until, KeyCooldownReason::Denied { .. })) => {
                let why = format!("Google lets no key that is left use {}; it is asked again at {until}", call.model);
                CallFault(CallErrorKind::Auth, why)
            }
            Some((until, _)) => {
                let kind = CallErrorKind::Quota { reset: Some(until.since(now)) };
                CallFault(kind, format!("every key's project is used up; the first is back at {until}"))
            }
            None if settings.keys.is_empty() => CallFault(CallErrorKind::Auth, NO_KEY.to_owned()),
            None if refused.is_empty() => CallFault(
                CallErrorKind::Auth,
                "the repository is private, and no key is said to be of a project that pays; give one tier = \"paid\" \
                 in a [[providers.gemini.key]], or set allow_free_tier_for_private = true under [providers.gemini]"
                    .to_owned(),
            ),
            None => {
                let why = format!("Google refuses {}; put that right in .env and run `countersign reload`", refused.join(", "));
                CallFault(CallErrorKind::Auth, why)
            }
        })
    }

    /// Lets the key rest if it is to blame, `denied` this model only or altogether. True: another one may do better.
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
        tracing::warn!(key = key.name, project = key.project, model, rest = ?why, "a key of Gemini's rests");
        let mut learned = self.load_statuses().await;
        learned.rests.insert((row.key, row.model.clone()), why);
        if why == KeyCooldownReason::Refused {
            learned.refused.insert(row.key);
        }
        if let Some(store) = &self.store
            && let Err(error) = store.set_key_cooldown(row).await
        {
            tracing::error!(%error, "that a key rests will be forgotten at the next start");
        }
        true
    }

    /// It works, so what was known against it is over.
    pub(super) async fn record_success(&self, key: &GeminiKey, model: &str) {
        let row = (hash_key(&key.secret), model.to_owned());
        if self.load_statuses().await.rests.remove(&row).is_none() {
            return;
        }
        if let Some(store) = &self.store
            && let Err(error) = store.clear_key_cooldown(row.0, row.1).await
        {
            tracing::error!(%error, "that a key rested is still noted");
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
                    Err(error) => tracing::error!(%error, "which keys rest is not known"),
                }
            }
            *learned = Some(known);
        }
        MutexGuard::map(learned, |learned| learned.get_or_insert_default())
    }

    /// The longest that the key has to rest, for its own sake or its project's.
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

/// What the books know the key by.
fn hash_key(secret: &SecretString) -> Hash {
    Hash::digest_parts([b"gemini".as_slice(), secret.expose_secret().as_bytes()])
}

/// A key and why it is not used, a line a model.
pub struct GeminiKeyState<'a> {
    pub key: &'a GeminiKey,
    pub rests: Vec<(&'a str, KeyCooldownReason)>,
}

/// The keys of the settings, with what a server learned about them and what still holds.
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
