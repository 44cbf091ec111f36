//! Cassettes: recorded responses that are replayed without a network. Each request has one JSON file, named by the
//! request's hash. The file has one entry for each time that the request was made.
//!
//! Each back end records its own requests, so that a fallback chain replays with the same failures.
//!
//! Random words of a run (the nonce, the fence marker) are stored as placeholders, so that other runs find the entries.
//! API keys are never written: keys of the settings, and any text that looks like a key, are redacted.

use std::{
    collections::HashMap,
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::{
    CallAttempt, CallError, CallErrorKind, ModelCall, ModelReply, Provider, ReplyFuture, ResolveError, Usage,
};
use crate::{
    config::{CassetteMode, CassetteSettings},
    documents::secrets,
    types::Hash,
};

/// Names of those facts of a call that are random values; see [`ModelCall::facts`].
const RANDOM: [&str; 2] = ["nonce", "fence"];

/// One request with its recorded outcomes.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cassette {
    pub request: CassetteRequest,
    /// Recorded results in order. When a replay has used all of them, it repeats the last one.
    pub takes: Vec<CassetteEntry>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CassetteEntry {
    /// Failed attempts that the back end made earlier in the same call, for example with another key.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub before: Vec<CallAttempt>,
    pub outcome: CassetteOutcome,
    pub usage: Usage,
}

/// The parts of a call that determine its response. Their hash is the file name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CassetteRequest {
    /// [`Provider::name`] of the back end. It is part of the request, because two routes to one model may answer
    /// differently.
    pub provider: String,
    pub role: String,
    pub model: String,
    pub schema: Option<Value>,
    pub system: String,
    pub prompt: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CassetteOutcome {
    Answer { text: String, value: Option<Value> },
    Error { kind: CallErrorKind, message: String },
}

impl CassetteRequest {
    fn hash(&self) -> Hash {
        let schema = self.schema.as_ref().map(Value::to_string).unwrap_or_default();
        // The last part was once the thinking effort; it stays so that older recordings keep their names.
        let parts = [&self.provider, &self.role, &self.system, &self.prompt, &schema, &self.model, ""];
        Hash::digest_parts(parts.map(|part: &str| part.as_bytes()))
    }

    fn file_name(&self) -> String {
        format!("{}.json", self.hash())
    }
}

/// Reads the cassettes of a folder, sorted by file name. An unreadable, invalid or misnamed file is returned as an
/// error message.
pub fn read_cassettes(dir: &Path) -> io::Result<Vec<(String, Result<Cassette, String>)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if path.extension().is_some_and(|extension| extension == "json") {
            found.push((
                name.clone(),
                read_cassette(&path).and_then(|cassette| check_file_name(cassette, &name)),
            ));
        }
    }
    found.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(found)
}

fn read_cassette(path: &Path) -> Result<Cassette, String> {
    let bytes = fs::read(path).map_err(|error| format!("can't be read: {error}"))?;
    serde_json::from_slice(&bytes).map_err(|error| format!("is not a cassette: {error}"))
}

fn check_file_name(cassette: Cassette, name: &str) -> Result<Cassette, String> {
    let own = cassette.request.file_name();
    if own != name {
        return Err(format!("holds the request of {own}; record it again"));
    }
    if cassette.takes.is_empty() { Err("holds no answer; record it again".to_owned()) } else { Ok(cassette) }
}

/// A folder of cassettes, and the secrets to redact from them.
pub(super) struct CassetteLibrary {
    dir: PathBuf,
    mode: CassetteMode,
    secrets: Vec<SecretString>,
    /// Number of times each request was made since the start, by the request's file name.
    made: Mutex<HashMap<String, usize>>,
}

impl CassetteLibrary {
    pub(super) fn open(
        settings: &CassetteSettings,
        secrets: Vec<SecretString>,
    ) -> Result<Arc<Self>, ResolveError> {
        let CassetteSettings { dir, mode } = settings.clone();
        let failed = |what: &str| ResolveError::Cassettes(format!("{} {what}", dir.display()));
        match mode {
            CassetteMode::Record => {
                fs::create_dir_all(&dir).map_err(|error| failed(&format!("can't be created: {error}")))?;
            }
            CassetteMode::Replay if !dir.is_dir() => {
                return Err(failed("does not exist; record it with mode = \"record\" first"));
            }
            CassetteMode::Replay => {}
        }
        Ok(Arc::new(Self { dir, mode, secrets, made: Mutex::default() }))
    }

    /// Wraps a back end so that its responses are recorded, or replaces it with a replay.
    pub(super) fn wrap(self: &Arc<Self>, back_end: Arc<dyn Provider>) -> Arc<dyn Provider> {
        match self.mode {
            CassetteMode::Record => Arc::new(RecordingProvider { library: Arc::clone(self), back_end }),
            CassetteMode::Replay => {
                Arc::new(ReplayingProvider { library: Arc::clone(self), name: back_end.name() })
            }
        }
    }

    fn cassette_request(&self, provider: &str, call: &ModelCall) -> CassetteRequest {
        let plain = |text: &str| self.redact(&hide_random_words(text, call));
        CassetteRequest {
            provider: provider.to_owned(),
            role: call.role.as_str().to_owned(),
            model: call.model.clone(),
            schema: call.schema.clone(),
            system: plain(&call.system),
            prompt: plain(&call.prompt),
        }
    }

    fn redact(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for secret in self.secrets.iter().map(ExposeSecret::expose_secret).filter(|secret| !secret.is_empty())
        {
            text = text.replace(secret, "[secret]");
        }
        secrets::redact(&text)
    }

    fn record(
        &self,
        provider: &str,
        call: &ModelCall,
        result: &Result<ModelReply, CallError>,
    ) -> io::Result<()> {
        // A cancelled call has no outcome to record.
        if result.as_ref().is_err_and(|error| error.kind == CallErrorKind::Cancelled) {
            return Ok(());
        }
        let request = self.cassette_request(provider, call);
        let name = request.file_name();
        let path = self.dir.join(&name);
        // Held to the end, since two equal calls may finish at the same time.
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        let earlier = match made.get(&name) {
            Some(_) => read_cassette(&path).map(|cassette| cassette.takes).unwrap_or_default(),
            // Replace an earlier recording.
            None => Vec::new(),
        };
        let takes = earlier.into_iter().chain([self.make_entry(call, result)]).collect();
        let file = tempfile::NamedTempFile::new_in(&self.dir)?;
        serde_json::to_writer_pretty(&file, &Cassette { request, takes })?;
        file.persist(path)?;
        *made.entry(name).or_default() += 1;
        Ok(())
    }

    fn make_entry(&self, call: &ModelCall, result: &Result<ModelReply, CallError>) -> CassetteEntry {
        let plain = |text: &str| self.redact(&hide_random_words(text, call));
        let (outcome, usage, before) = match result {
            Err(error) => {
                let outcome =
                    CassetteOutcome::Error { kind: error.kind.clone(), message: plain(&error.message) };
                (outcome, (*error.usage).clone(), &error.earlier_attempts)
            }
            Ok(reply) => {
                let value = reply.value.clone().map(|value| map_texts(value, &plain));
                (
                    CassetteOutcome::Answer { text: plain(&reply.text), value },
                    reply.usage.clone(),
                    &reply.earlier_attempts,
                )
            }
        };
        let before = before.iter().cloned();
        let before = before.map(|attempt| CallAttempt { message: plain(&attempt.message), ..attempt });
        CassetteEntry { before: before.collect(), outcome, usage }
    }

    fn next_entry(&self, provider: &str, call: &ModelCall) -> Result<CassetteEntry, String> {
        let name = self.cassette_request(provider, call).file_name();
        let cassette =
            read_cassette(&self.dir.join(&name)).and_then(|cassette| check_file_name(cassette, &name));
        let mut takes = cassette.map_err(|why| format!("{name} in {} {why}", self.dir.display()))?.takes;
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        let made = made.entry(name).or_default();
        let at = (*made).min(takes.len() - 1);
        *made += 1;
        Ok(takes.swap_remove(at))
    }
}

/// Replaces the call's random words with placeholders.
fn hide_random_words(text: &str, call: &ModelCall) -> String {
    swap_words(text, call, |word, placeholder| (word, placeholder))
}

fn restore_random_words(text: &str, call: &ModelCall) -> String {
    swap_words(text, call, |word, placeholder| (placeholder, word))
}

fn swap_words(
    text: &str,
    call: &ModelCall,
    turn: for<'a> fn(&'a str, &'a str) -> (&'a str, &'a str),
) -> String {
    let mut text = text.to_owned();
    for name in RANDOM {
        if let Some(word) = call.facts.get(name).filter(|word| !word.is_empty()) {
            let placeholder = format!("[the {name}]");
            let (from, to) = turn(word, &placeholder);
            text = text.replace(from, to);
        }
    }
    text
}

fn map_texts(value: Value, change: &impl Fn(&str) -> String) -> Value {
    match value {
        Value::String(text) => Value::String(change(&text)),
        Value::Array(items) => items.into_iter().map(|item| map_texts(item, change)).collect(),
        Value::Object(fields) => {
            fields.into_iter().map(|(name, field)| (change(&name), map_texts(field, change))).collect()
        }
        other => other,
    }
}

struct RecordingProvider {
    library: Arc<CassetteLibrary>,
    back_end: Arc<dyn Provider>,
}

impl RecordingProvider {
    async fn ask(&self, call: &ModelCall, cancel: &CancellationToken) -> Result<ModelReply, CallError> {
        let result = self.back_end.call(call, cancel).await;
        // A paid response is not discarded because it cannot be recorded.
        if let Err(error) = self.library.record(self.name(), call, &result) {
            tracing::warn!(dir = %self.library.dir.display(), %error, "could not record a model's response");
        }
        result
    }
}

impl Provider for RecordingProvider {
    fn name(&self) -> &'static str {
        self.back_end.name()
    }

    fn behind(&self) -> Option<&dyn Provider> {
        Some(self.back_end.as_ref())
    }

    fn is_billed(&self) -> bool {
        self.back_end.is_billed()
    }

    fn call<'a>(&'a self, call: &'a ModelCall, cancel: &'a CancellationToken) -> ReplyFuture<'a> {
        Box::pin(self.ask(call, cancel))
    }
}

struct ReplayingProvider {
    library: Arc<CassetteLibrary>,
    name: &'static str,
}

impl ReplayingProvider {
    fn replay(&self, call: &ModelCall) -> Result<ModelReply, CallError> {
        let take = self.library.next_entry(self.name, call).map_err(|why| {
            let message =
                format!("{}: {why}; record it with mode = \"record\" under [models] cassettes", self.name);
            CallError::new(CallErrorKind::Unavailable, message, Usage::for_model(&call.model))
        })?;
        // The bill was paid when it was recorded.
        let unpaid = |usage| Usage { billed: false, ..usage };
        let plain = |text: &str| restore_random_words(text, call);
        let before = take.before.into_iter();
        let before =
            before.map(|attempt| CallAttempt { usage: unpaid(attempt.usage), ..attempt }).collect::<Vec<_>>();
        match take.outcome {
            CassetteOutcome::Answer { text, value } => {
                let value = value.map(|value| map_texts(value, &plain));
                Ok(ModelReply {
                    earlier_attempts: before,
                    ..ModelReply::new(plain(&text), value, unpaid(take.usage))
                })
            }
            CassetteOutcome::Error { kind, message } => Err(CallError {
                earlier_attempts: before,
                ..CallError::new(kind, message, unpaid(take.usage))
            }),
        }
    }
}

impl Provider for ReplayingProvider {
    fn name(&self) -> &'static str {
        self.name
    }

    fn is_billed(&self) -> bool {
        false
    }

    fn call<'a>(&'a self, call: &'a ModelCall, _: &'a CancellationToken) -> ReplyFuture<'a> {
        Box::pin(async { self.replay(call) })
    }
}
