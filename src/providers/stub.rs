//! Scripted responses for rehearsals and tests: they need no key, no network and no model.
//!
//! A script is a list of responses, served in order to each role. Only the call itself decides which response is next
//! (`facts["call"]`: the number of this call among the calls of its role in this run, from 1). No state is kept here,
//! so a resumed run continues where it stopped and concurrent runs do not interfere. The role's last response repeats.

use std::{collections::BTreeMap, time::Duration};

use serde::Deserialize;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::{
    CallError, CallErrorKind, CallRole, Metering, ModelCall, ModelReply, Provider, ReplyFuture, ResolveError,
    Usage, answer_checks::validate_answer, http::CallFault,
};
use crate::{clock::SharedClock, config::StubSettings, types::WorkerPool};

/// The built-in script. It works for any repository and issue, and its texts say that this is a rehearsal.
pub const REHEARSAL: &str = include_str!("../../fixtures/models/rehearsal.toml");

/// Script that takes the first issue of localhub's sample repository all the way to a pull request with code.
pub const SAMPLE: &str = include_str!("../../fixtures/models/pr.toml");

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct StubScript {
    /// Whether responses are billed, at the prices of a `[[model]]` entry in the settings.
    #[serde(default)]
    billed: bool,
    /// Only issue that gets the script's responses. Calls for other issues get the built-in responses.
    issue: Option<u64>,
    #[serde(rename = "answer")]
    answers: Vec<StubAnswer>,
}

/// One response, which sets exactly one of `text`, `json` and `error`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct StubAnswer {
    role: StubRole,
    /// Only model that gets the response; `None` for any model.
    model: Option<String>,
    /// Only workflow whose runs get the response. Runs of such a workflow get no responses that name no workflow.
    workflow: Option<String>,
    /// Task of the calls that get the response; `None` for the role's usual task.
    task: Option<String>,
    /// Issue of the script to which this response belongs.
    #[serde(skip)]
    issue: Option<u64>,
    text: Option<String>,
    json: Option<Value>,
    error: Option<StubFailure>,
    #[serde(default)]
    delay_ms: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum StubRole {
    Drafter,
    Reviewer,
    Router,
    Narrator,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum StubFailure {
    Capacity,
    RateLimited,
    Quota,
    Auth,
    Refused,
    TooLong,
    Truncated,
    InvalidOutput,
    WrongModel,
    Timeout,
    Unavailable,
    Rejected,
    NoSuchModel,
    ResourceExhausted,
}

impl StubFailure {
    fn kind(self) -> CallErrorKind {
        let reset = Some(Duration::from_secs(30));
        match self {
            Self::Capacity => CallErrorKind::Capacity,
            Self::RateLimited => CallErrorKind::RateLimited { reset },
            Self::Quota => CallErrorKind::Quota { reset },
            Self::Auth => CallErrorKind::Auth,
            Self::Refused => CallErrorKind::Refused,
            Self::TooLong => CallErrorKind::TooLong,
            Self::Truncated => CallErrorKind::Truncated,
            Self::InvalidOutput => CallErrorKind::InvalidOutput,
            Self::WrongModel => CallErrorKind::WrongModel { served: None },
            Self::Timeout => CallErrorKind::Timeout { idle: false, elapsed: Duration::ZERO },
            Self::Unavailable => CallErrorKind::Unavailable,
            Self::Rejected => CallErrorKind::Rejected { code: "INVALID_ARGUMENT".to_owned() },
            Self::NoSuchModel => CallErrorKind::NoSuchModel,
            Self::ResourceExhausted => {
                let (used, limit) = (1100 << 20, 1024 << 20);
                CallErrorKind::ResourceExhausted { used, limit, pool: WorkerPool::Medium }
            }
        }
    }
}

pub(super) struct StubProvider {
    script: StubScript,
    clock: SharedClock,
}

impl StubProvider {
    pub(super) fn new(settings: &StubSettings, clock: SharedClock) -> Result<Self, ResolveError> {
        let named =
            |name: &str, error: &dyn std::fmt::Display| ResolveError::Script(format!("{name}: {error}"));
        let (name, text) = match &settings.script {
            None => ("the built-in rehearsal".to_owned(), REHEARSAL.to_owned()),
            Some(path) => {
                let name = path.display().to_string();
                let text = std::fs::read_to_string(path).map_err(|error| named(&name, &error))?;
                (name, text)
            }
        };
        let mut script: StubScript = toml::from_str(&text).map_err(|error| named(&name, &error))?;
        for (at, answer) in script.answers.iter().enumerate() {
            let forms = [answer.text.is_some(), answer.json.is_some(), answer.error.is_some()];
            if forms.iter().filter(|given| **given).count() != 1 {
                return Err(named(
                    &name,
                    &format!("answer {} needs exactly one of text, json, error", at + 1),
                ));
            }
        }
        if script.issue.is_some() {
            script.answers.iter_mut().for_each(|answer| answer.issue = script.issue);
            let built_in: StubScript =
                toml::from_str(REHEARSAL).map_err(|error| named("built-in", &error))?;
            script.answers.extend(built_in.answers);
        }
        Ok(Self { script, clock })
    }

    async fn ask(&self, call: &ModelCall, cancel: &CancellationToken) -> Result<ModelReply, CallError> {
        let started = self.clock.now();
        let billed = self.script.billed;
        let mut usage =
            Usage { attempts: 1, billed, served: Some(call.model.clone()), ..Usage::for_model(&call.model) };
        let fail = |kind, why: String, usage: Usage| Err(CallError::new(kind, format!("stub: {why}"), usage));
        let Some(answer) = self.next_answer(call) else {
            let why = format!("the script has no answer for the {}; add one with role = \"{0}\"", call.role);
            return fail(CallErrorKind::Unavailable, why, usage);
        };
        if answer.delay_ms > 0 {
            let delay = Duration::from_millis(answer.delay_ms);
            tokio::select! {
                () = self.clock.sleep(delay.min(call.deadline)) => {}
                () = cancel.cancelled() => return fail(CallErrorKind::Cancelled, "cancelled".into(), usage),
            }
            usage.elapsed = self.clock.now().since(started);
            if delay > call.deadline {
                let elapsed = call.deadline;
                return fail(CallErrorKind::Timeout { idle: false, elapsed }, "too slow".into(), usage);
            }
        }
        if let Some(failure) = answer.error {
            if !matches!(failure, StubFailure::Timeout | StubFailure::Unavailable) {
                usage.metered = Metering::Known;
            }
            return fail(failure.kind(), "scripted failure".into(), usage);
        }
        usage.metered = Metering::Known;
        let filled = answer.render(&call.facts).map_err(|why| CallFault(CallErrorKind::InvalidOutput, why));
        match filled.and_then(|(text, value)| validate_answer(call, text, value)) {
            Ok((text, value)) => {
                // Made up but plausible, so that cost pages show something in a rehearsal.
                usage.input_tokens = ((call.system.len() + call.prompt.len()) / 4) as u64;
                usage.output_tokens = (text.len() / 4) as u64;
                Ok(ModelReply::new(text, value, usage))
            }
            Err(CallFault(kind, why)) => fail(kind, why, usage),
        }
    }

    /// Chooses the response by the number of the call.
    fn next_answer(&self, call: &ModelCall) -> Option<&StubAnswer> {
        let role = match call.role {
            CallRole::Drafter => StubRole::Drafter,
            CallRole::Reviewer => StubRole::Reviewer,
            CallRole::Router => StubRole::Router,
            CallRole::Narrator => StubRole::Narrator,
        };
        let issue = call.facts.get("issue").and_then(|issue| issue.parse().ok());
        let theirs = |answer: &&StubAnswer| {
            answer.role == role
                && (answer.issue.is_none() || answer.issue == issue)
                && answer.model.as_ref().is_none_or(|model| *model == call.model)
                && answer.task.as_ref() == call.facts.get("task")
        };
        let mut answers: Vec<_> = self.script.answers.iter().filter(theirs).collect();
        let of_it = |answer: &&StubAnswer| {
            answer.workflow.as_ref().is_some_and(|name| call.facts.get("workflow") == Some(name))
        };
        match answers.iter().any(of_it) {
            true => answers.retain(of_it),
            false => answers.retain(|answer| answer.workflow.is_none()),
        }
        if answers.iter().any(|answer| answer.issue.is_some()) {
            answers.retain(|answer| answer.issue.is_some());
        }
        let number = ["call", "round"].iter().find_map(|fact| call.facts.get(*fact)?.parse::<usize>().ok());
        let index = number.unwrap_or(1).max(1) - 1;
        answers.get(index).or(answers.last()).copied()
    }
}

impl Provider for StubProvider {
    fn name(&self) -> &'static str {
        "stub"
    }

    fn is_billed(&self) -> bool {
        self.script.billed
    }

    fn call<'a>(&'a self, call: &'a ModelCall, cancel: &'a CancellationToken) -> ReplyFuture<'a> {
        Box::pin(self.ask(call, cancel))
    }
}

impl StubAnswer {
    fn render(&self, facts: &BTreeMap<String, String>) -> Result<(String, Option<Value>), String> {
        if let Some(value) = &self.json {
            let value = fill_value(value, facts)?;
            return Ok((value.to_string(), Some(value)));
        }
        Ok((fill(self.text.as_deref().unwrap_or_default(), facts)?, None))
    }
}

fn fill_value(value: &Value, facts: &BTreeMap<String, String>) -> Result<Value, String> {
    Ok(match value {
        Value::String(text) => Value::String(fill(text, facts)?),
        Value::Array(items) => items.iter().map(|item| fill_value(item, facts)).collect::<Result<_, _>>()?,
        Value::Object(fields) => fields
            .iter()
            .map(|(name, field)| Ok((name.clone(), fill_value(field, facts)?)))
            .collect::<Result<_, String>>()?,
        other => other.clone(),
    })
}

/// Replaces each `{{fact}}` placeholder by the fact's value. Placeholders within inserted values are not replaced.
fn fill(text: &str, facts: &BTreeMap<String, String>) -> Result<String, String> {
    let mut filled = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("{{") {
        filled.push_str(before);
        match after.split_once("}}") {
            Some((name, tail))
                if name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_') && !name.is_empty() =>
            {
                let fact = facts.get(name).ok_or_else(|| {
                    let known = facts.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
                    format!("the script's placeholder {{{{{name}}}}} is unknown; known are {known}")
                })?;
                // A fact is a phrase: a line break in a title would start a new line of the document.
                filled.extend(fact.chars().map(|c| if c.is_control() { ' ' } else { c }));
                rest = tail;
            }
            _ => {
                filled.push_str("{{");
                rest = after;
            }
        }
    }
    filled.push_str(rest);
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::clock::SystemClock;

    fn stub(script: &str) -> Result<StubProvider, ResolveError> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), script).unwrap();
        StubProvider::new(&StubSettings { script: Some(file.path().into()) }, Arc::new(SystemClock))
    }

    fn call(role: CallRole, number: usize, schema: Option<Value>) -> ModelCall {
        let facts =
            [("call", number.to_string()), ("nonce", "n0nce123".into()), ("title", "A {{nonce}}\nB".into())];
        ModelCall {
            role,
            schema,
            model: format!("stub-{role}"),
            facts: facts.into_iter().map(|(k, v)| (k.to_owned(), v)).collect(),
            ..crate::providers::samples::call()
        }
    }

    const SCRIPT: &str = r#"
        [[answer]]
        role = "drafter"
        text = "one {{title}} {{ {not} }}"
        [[answer]]
        role = "reviewer"
        json = { nonce = "{{nonce}}", findings = [] }
        [[answer]]
        role = "drafter"
        error = "capacity"
        [[answer]]
        role = "drafter"
        text = "{{nobody}}"
    "#;

    #[tokio::test]
    async fn stub_model_answers_by_call_number_and_repeats_its_last_answer() {
        let stub = stub(SCRIPT).unwrap();
        let never = CancellationToken::new();
        for _ in 0..2 {
            let reply = stub.call(&call(CallRole::Drafter, 1, None), &never).await.unwrap();
            assert_eq!(reply.text, "one A {{nonce}} B {{ {not} }}");
            assert_eq!(reply.usage.served.as_deref(), Some("stub-drafter"));
        }
        let error = stub.call(&call(CallRole::Drafter, 2, None), &never).await.unwrap_err();
        assert_eq!(error.kind, CallErrorKind::Capacity);
        let error = stub.call(&call(CallRole::Drafter, 9, None), &never).await.unwrap_err();
        assert!(error.to_string().contains("{{nobody}} is unknown; known are call, nonce, title"), "{error}");
    }

    #[tokio::test]
    async fn stub_answer_that_violates_the_schema_is_invalid() {
        let stub = stub(SCRIPT).unwrap();
        let never = CancellationToken::new();
        let schema = serde_json::json!({"type": "object", "required": ["nonce"]});
        let reply = stub.call(&call(CallRole::Reviewer, 1, Some(schema)), &never).await.unwrap();
        assert_eq!(reply.value.unwrap()["nonce"], "n0nce123");
        let schema = serde_json::json!({"required": ["verdict"]});
        let error = stub.call(&call(CallRole::Reviewer, 1, Some(schema)), &never).await.unwrap_err();
        assert_eq!(error.kind, CallErrorKind::InvalidOutput);
    }

    #[tokio::test]
    async fn stub_answer_with_a_duplicate_json_key_is_invalid() {
        let text = r#"{"nonce": "a", "nonce": "b"}"#;
        let stub = stub(&format!("[[answer]]\nrole = \"reviewer\"\ntext = '{text}'\n")).unwrap();
        let schema = serde_json::json!({"type": "object", "required": ["nonce"]});
        let call = call(CallRole::Reviewer, 1, Some(schema));
        let error = stub.call(&call, &CancellationToken::new()).await.unwrap_err();
        assert_eq!(error.kind, CallErrorKind::InvalidOutput);
    }

    #[test]
    fn invalid_stub_script_is_refused() {
        for script in
            ["[[answer]]\nrole = \"drafter\"\n", "[[answer]]\nrole = \"x\"\ntext = \"\"\n", "answer = 1"]
        {
            assert!(stub(script).is_err(), "{script}");
        }
        assert!(
            StubProvider::new(&StubSettings::default(), Arc::new(SystemClock)).is_ok(),
            "the built-in one is good"
        );
    }
}
