//! Answers kept in a folder, and given again without a network: one JSON file a request, named by the request's hash, with
//! an answer for each time it was made.
//!
//! Every back end has a request of its own, so that a chain of them goes the same way again: who failed, fails.
//!
//! Words that are random in every run (the nonce, the mark of fences) are kept as placeholders, so that another run
//! finds its answers. No key is ever written: those of the settings and whatever looks like one are blacked out.

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

/// Facts of a call that are random words, as [`ModelCall::facts`] names them.
const RANDOM: [&str; 2] = ["nonce", "fence"];

/// One request and how it ended, each time it was made.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cassette {
    pub request: CassetteRequest,
    /// In order; after the last one, that one again.
    pub takes: Vec<CassetteEntry>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CassetteEntry {
    /// What the back end tried within the call before this: with other keys, for instance.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub before: Vec<CallAttempt>,
    pub outcome: CassetteOutcome,
    pub usage: Usage,
}

/// What decides the answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CassetteRequest {
    /// [`Provider::name`]: two ways to one model are asked the same, and need not answer the same.
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
        // The last part once said how hard to think; what was recorded then keeps its name.
        let parts = [&self.provider, &self.role, &self.system, &self.prompt, &schema, &self.model, ""];
        Hash::digest_parts(parts.map(|part: &str| part.as_bytes()))
    }

    fn file_name(&self) -> String {
        format!("{}.json", self.hash())
    }
}

/// The cassettes of a folder by file name; what is not one, or not under its own name, with the reason.
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
    serde_json::from_slice(&bytes).map_err(|error| format!("is no cassette: {error}"))
}

fn check_file_name(cassette: Cassette, name: &str) -> Result<Cassette, String> {
    let own = cassette.request.file_name();
    if own != name {
        return Err(format!("holds the request of {own}; record it again"));
    }
    if cassette.takes.is_empty() { Err("holds no answer; record it again".to_owned()) } else { Ok(cassette) }
}

/// The folder, and what must not get into it.
pub(super) struct CassetteLibrary {
    dir: PathBuf,
    mode: CassetteMode,
    secrets: Vec<SecretString>,
    /// How often each request was made since the start.
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
                fs::create_dir_all(&dir).map_err(|error| failed(&format!("can't be made: {error}")))?;
            }
            CassetteMode::Replay if !dir.is_dir() => {
                return Err(failed("is not there; record it with mode = \"record\" first"));
            }
            CassetteMode::Replay => {}
        }
        Ok(Arc::new(Self { dir, mode, secrets, made: Mutex::default() }))
    }

    /// The same back end with its answers kept, or without itself.
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
        // Nobody's answer: the caller went away.
        if result.as_ref().is_err_and(|error| error.kind == CallErrorKind::Cancelled) {
            return Ok(());
        }
        let request = self.cassette_request(provider, call);
        let name = request.file_name();
        let path = self.dir.join(&name);
        // Held to the end: two calls that are the same may end at the same time.
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = match made.get(&name) {
            Some(_) => read_cassette(&path).map(|cassette| cassette.takes).unwrap_or_default(),
            // An earlier recording of it is over.
            None => Vec::new(),
        };
        let takes = kept.into_iter().chain([self.make_entry(call, result)]).collect();
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

    /// What this request is answered the next time.
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

/// The text with the call's random words as placeholders.
fn hide_random_words(text: &str, call: &ModelCall) -> String {
    swap_words(text, call, |word, placeholder| (word, placeholder))
}

/// The text with the placeholders as the call's random words.
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

/// The value with each of its texts changed.
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
        // An answer that was paid for is not given up for the want of a disk.
        if let Err(error) = self.library.record(self.name(), call, &result) {
            tracing::warn!(dir = %self.library.dir.display(), %error, "a model's answer could not be kept");
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
        // Whoever was paid was paid when it was recorded.
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
