//! Gemini over HTTPS: one `generateContent` request a call.
//!
//! The key travels in a header and appears in no URL, error or log. The model that served is the
//! answer's `modelVersion`; an answer by another than the one asked is an error, however good it
//! looks.

use std::time::Duration;

use futures_util::future::BoxFuture;
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{
    Call, CallError, CallErrorKind, Provider, Reply, Usage,
    http::{self, Fault, Head},
    models, quote, schema, strict_json,
};
use crate::{clock::SharedClock, config::GeminiSettings, types::Timestamp};

pub(super) struct Gemini {
    settings: GeminiSettings,
    client: reqwest::Client,
    clock: SharedClock,
}

const NO_KEY: &str =
    "there is no GEMINI_API_KEY in the .env file; add one (https://aistudio.google.com/apikey)";

impl Gemini {
    pub(super) fn new(settings: GeminiSettings, clients: &http::Clients, clock: SharedClock) -> Self {
        let client = clients.of(&settings.base_url);
        Self { settings, client, clock }
    }

    async fn ask(&self, call: &Call, cancel: &CancellationToken) -> Result<Reply, CallError> {
        let started = self.clock.now();
        let mut usage = Usage::asking(&call.model);
        let Some(key) = &self.settings.api_key else {
            return Err(CallError::new(CallErrorKind::Auth, NO_KEY, usage));
        };
        usage.attempts = 1;
        usage.billed = true;
        let exchange = tokio::select! {
            exchange = self.exchange(call, key) => exchange,
            () = cancel.cancelled() => Err(Fault(CallErrorKind::Cancelled, "cancelled".into())),
        };
        usage.elapsed = self.since(started);
        let judged = exchange.and_then(|answer| {
            count(&answer, &mut usage);
            judge(call, &answer)
        });
        match judged {
            Ok((text, value)) => Ok(Reply::new(text, value, usage)),
            Err(fault) => Err(fault.of_call("gemini", Some(key), usage)),
        }
    }

    fn since(&self, started: Timestamp) -> Duration {
        self.clock.now().since(started)
    }

    async fn exchange(&self, call: &Call, key: &SecretString) -> Result<Value, Fault> {
        let base = self.settings.base_url.as_str().trim_end_matches('/');
        let url = format!("{base}/v1beta/models/{}:generateContent", call.model);
        let request = self
            .client
            .post(url)
            .header("x-goog-api-key", http::secret("GEMINI_API_KEY", key.expose_secret())?)
            .timeout(call.deadline)
            .json(&request(call));
        let (head, response) = http::send(request, self.clock.now()).await?;
        let body = http::body(response).await?;
        let answer = serde_json::from_slice::<Value>(&body);
        if !head.status.is_success() {
            return Err(failure(&head, &answer.unwrap_or_default(), &body));
        }
        answer
            .map_err(|error| Fault(CallErrorKind::InvalidOutput, format!("the answer is not JSON: {error}")))
    }
}

impl Provider for Gemini {
    fn name(&self) -> &'static str {
        "gemini"
    }

    fn lacks(&self) -> Option<String> {
        self.settings.api_key.is_none().then(|| NO_KEY.into())
    }

    fn bills(&self) -> bool {
        true
    }

    fn call<'a>(
        &'a self,
        call: &'a Call,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<Reply, CallError>> {
        Box::pin(self.ask(call, cancel))
    }
}

fn request(call: &Call) -> Value {
    let mut body = json!({
        "systemInstruction": {"parts": [{"text": call.system}]},
        "contents": [{"role": "user", "parts": [{"text": call.prompt}]}],
    });
    if let Some(schema) = &call.schema {
        body["generationConfig"] = json!({
            "responseMimeType": "application/json",
            "responseJsonSchema": schema,
        });
    }
    body
}

fn count(answer: &Value, usage: &mut Usage) {
    let tokens = |key: &str| answer["usageMetadata"][key].as_u64().unwrap_or(0);
    usage.cache_read_tokens = tokens("cachedContentTokenCount");
    usage.input_tokens = tokens("promptTokenCount").saturating_sub(usage.cache_read_tokens);
    usage.output_tokens = tokens("candidatesTokenCount") + tokens("thoughtsTokenCount");
    usage.served = answer["modelVersion"].as_str().map(str::to_owned);
}

fn judge(call: &Call, answer: &Value) -> Result<(String, Option<Value>), Fault> {
    let fault = |kind, why: &str| Err(Fault(kind, quote(why)));
    if let Some(reason) = answer["promptFeedback"]["blockReason"].as_str() {
        return fault(CallErrorKind::Refused, &format!("the prompt was blocked ({reason})"));
    }
    let served = answer["modelVersion"].as_str();
    match served {
        Some(served) if models::is_same(&call.model, served) => {}
        _ => {
            let why = format!("{} answered, asked was {}", served.unwrap_or("an unnamed model"), call.model);
            return fault(CallErrorKind::WrongModel { served: served.map(str::to_owned) }, &why);
        }
    }
    let candidate = &answer["candidates"][0];
    match candidate["finishReason"].as_str() {
        Some("STOP") => {}
        Some("MAX_TOKENS") => return fault(CallErrorKind::Truncated, "the answer was cut at its longest"),
        Some(
            reason @ ("SAFETY" | "RECITATION" | "BLOCKLIST" | "PROHIBITED_CONTENT" | "SPII" | "LANGUAGE"
            | "IMAGE_SAFETY"),
        ) => return fault(CallErrorKind::Refused, &format!("the answer was withheld ({reason})")),
        Some(reason) => {
            return fault(CallErrorKind::InvalidOutput, &format!("the answer ended with {reason}"));
        }
        None => return fault(CallErrorKind::InvalidOutput, "the answer does not say how it ended"),
    }
    let parts = candidate["content"]["parts"].as_array().map(Vec::as_slice).unwrap_or_default();
    let text: String = parts
        .iter()
        .filter(|part| part["thought"] != Value::Bool(true))
        .filter_map(|part| part["text"].as_str())
        .collect();
    if text.trim().is_empty() {
        return fault(CallErrorKind::InvalidOutput, "the answer is empty");
    }
    let Some(wanted) = &call.schema else { return Ok((text, None)) };
    match strict_json::parse(&text) {
        Err(error) => fault(CallErrorKind::InvalidOutput, &format!("the answer is not JSON: {error}")),
        Ok(value) => match schema::misfit(&value, wanted) {
            Some(misfit) => fault(CallErrorKind::InvalidOutput, &misfit),
            None => Ok((text, Some(value))),
        },
    }
}

/// What an answer with an error status means.
fn failure(head: &Head, answer: &Value, body: &[u8]) -> Fault {
    let error = &answer["error"];
    let details = || error["details"].as_array().into_iter().flatten();
    let message = error["message"].as_str().map_or_else(|| String::from_utf8_lossy(body), Into::into);
    let reset = details().find_map(|detail| parse_wait(detail["retryDelay"].as_str()?)).or(head.retry_after);
    let bad_key = || details().any(|detail| detail["reason"] == "API_KEY_INVALID");
    // A day's or a project's allowance comes back in hours; everything else is pacing.
    let daily = || {
        details()
            .flat_map(|detail| detail["violations"].as_array().into_iter().flatten())
            .any(|violation| violation["quotaId"].as_str().is_some_and(|id| id.contains("PerDay")))
    };
    let kind = match head.status.as_u16() {
        401 | 403 => CallErrorKind::Auth,
        400 if bad_key() => CallErrorKind::Auth,
        400 if message.contains("token count") && message.contains("exceeds") => CallErrorKind::TooLong,
        402 => CallErrorKind::Quota { reset },
        413 => CallErrorKind::TooLong,
        429 if daily() => CallErrorKind::Quota { reset },
        429 => CallErrorKind::RateLimited { reset },
        503 | 529 => CallErrorKind::Capacity,
        _ => CallErrorKind::Unavailable,
    };
    head.fault(kind, &message)
}

/// Reads waits as services write them: `45s`, `0.5s`, `1h2m3s`, `45m10s`.
fn parse_wait(text: &str) -> Option<Duration> {
    let mut seconds = 0.0;
    let mut rest = text.trim();
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number: f64 = rest[..end].parse().ok()?;
        let unit = rest[end..].find(|c: char| c.is_ascii_digit()).map_or(rest.len(), |at| end + at);
        seconds += number
            * match &rest[end..unit] {
                "ms" => 0.001,
                "s" => 1.0,
                "m" => 60.0,
                "h" => 3600.0,
                "d" => 86_400.0,
                _ => return None,
            };
        rest = &rest[unit..];
    }
    Duration::try_from_secs_f64(seconds).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_read_as_services_write_them() {
        for (text, seconds) in
            [("45s", 45.0), ("0.5s", 0.5), ("1h2m3s", 3723.0), ("45m10s", 2710.0), ("250ms", 0.25)]
        {
            assert_eq!(parse_wait(text), Some(Duration::from_secs_f64(seconds)), "{text}");
        }
        for bad in ["", "s", "12", "3 parsecs", "1.2.3s"] {
            assert_eq!(parse_wait(bad), None, "{bad}");
        }
    }

    #[test]
    fn an_answer_with_two_verdicts_is_none() {
        let call = Call {
            role: super::super::CallRole::Reviewer,
            system: String::new(),
            prompt: "p".into(),
            schema: Some(json!({"type": "object", "required": ["verdict"]})),
            model: "gemini-2.5-pro".into(),
            effort: None,
            deadline: Duration::from_secs(5),
            budget: None,
            facts: std::collections::BTreeMap::new(),
        };
        let answer = |text: &str| {
            let parts = json!([{ "text": text }]);
            json!({
                "modelVersion": call.model,
                "candidates": [{ "finishReason": "STOP", "content": { "parts": parts } }],
            })
        };
        assert!(judge(&call, &answer(r#"{"verdict": "APPROVED"}"#)).is_ok());
        let twice = judge(&call, &answer(r#"{"verdict": "BLOCKED", "verdict": "APPROVED"}"#));
        let Err(Fault(kind, why)) = twice else { panic!("taken for an answer") };
        assert_eq!(kind, CallErrorKind::InvalidOutput);
        assert!(why.contains("`verdict` stands twice"), "{why}");
    }
}
