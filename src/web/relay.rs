//! Client of a webhook relay (smee protocol), for a server that GitHub cannot reach. The relay receives GitHub's
//! requests and forwards them as server-sent events. Forwarded requests pass the same checks as direct ones, including
//! the signature check, so the relay need not be trusted.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::{
    Router,
    body::Body,
    http::{Request, StatusCode, header},
};
use futures_util::{StreamExt, TryStreamExt, stream};
use http_body_util::BodyExt;
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use serde_json::value::RawValue;
use sse_stream::SseByteStream;
use url::Url;

use super::control::ControlMessage;
use crate::{clock::SharedClock, limits, types::with_causes};

/// Time without any data after which a stream is given up. A smee server sends something every 30 s.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(90);

/// Delay before the first reconnection attempt. The delay doubles after each failure, up to `LONGEST_RETRY`.
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LONGEST_RETRY: Duration = Duration::from_secs(60);

/// Maximum size of an event in bytes. An event contains the headers and the body as a quoted string, which is longer
/// than the body itself.
const EVENT_BYTES: usize = 2 * limits::WEBHOOK_BODY_BYTES;

/// Headers that the webhook route reads.
const HEADERS: [&str; 4] = ["content-type", "x-github-delivery", "x-github-event", "x-hub-signature-256"];

/// Forwards deliveries from a relay's channel to the webhook route.
pub struct WebhookRelay {
    channel: Url,
    client: reqwest::Client,
    router: TowerToHyperService<Router>,
    clock: SharedClock,
}

impl WebhookRelay {
    pub fn new(channel: Url, router: Router, clock: SharedClock) -> reqwest::Result<Self> {
        // One TLS provider per process; an earlier one is as good.
        drop(rustls::crypto::ring::default_provider().install_default());
        let client = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none());
        let client = if channel.scheme() == "http" { client.no_proxy() } else { client };
        Ok(Self { channel, client: client.build()?, router: TowerToHyperService::new(router), clock })
    }

    /// Listens forever. Deliveries missed while the relay is unavailable are found later by the sweep of GitHub's
    /// delivery log.
    pub async fn run(self) {
        let mut pause = FIRST_RETRY;
        loop {
            let mut received = false;
            let why = match self.listen(&mut received).await {
                Ok(()) => "it closed the connection".to_owned(),
                Err(why) => why,
            };
            if received {
                pause = FIRST_RETRY;
            }
            tracing::warn!("lost the relay: {why}; reconnecting in {} s", pause.as_secs());
            self.clock.sleep(pause).await;
            pause = (pause * 2).min(LONGEST_RETRY);
        }
    }

    /// Reads events from one connection until the connection ends or fails.
    async fn listen(&self, received: &mut bool) -> Result<(), String> {
        let lost = |error: reqwest::Error| with_causes(&error.without_url());
        let request = self.client.get(self.channel.clone()).header(header::ACCEPT, "text/event-stream");
        let answer = tokio::select! {
            answer = request.send() => answer.map_err(lost)?,
            () = self.clock.sleep(SILENCE_TIMEOUT) => return Err("it does not answer".to_owned()),
        };
        let kind = answer.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        if answer.status() != StatusCode::OK
            || !kind.is_some_and(|kind| kind.starts_with("text/event-stream"))
        {
            let status = answer.status();
            return Err(format!(
                "it answered {status} instead of an event stream; check the address after --relay"
            ));
        }
        tracing::info!("listening to the relay");
        let unread = Arc::new(AtomicUsize::new(0));
        let next = |mut answer: reqwest::Response| {
            let (clock, unread) = (self.clock.clone(), unread.clone());
            async move {
                let piece = tokio::select! {
                    piece = answer.chunk() => piece.map_err(lost)?,
                    () = clock.sleep(SILENCE_TIMEOUT) => return Err(format!("it was silent for {} s", SILENCE_TIMEOUT.as_secs())),
                };
                let Some(piece) = piece else { return Ok(None) };
                if unread.fetch_add(piece.len(), Ordering::Relaxed) + piece.len() > EVENT_BYTES {
                    return Err("an event is longer than any delivery".to_owned());
                }
                Ok(Some((piece, answer)))
            }
        };
        let mut events =
            SseByteStream::new(stream::try_unfold(answer, next).map_err(std::io::Error::other).boxed());
        while let Some(event) = events.next().await {
            let event = event.map_err(|error| with_causes(&error))?;
            unread.store(0, Ordering::Relaxed);
            *received = true;
            // smee also sends `ready` at the start and `ping` while idle.
            if event.event.is_none_or(|kind| kind == "message")
                && let Some(data) = event.data
            {
                self.forward_delivery(&data).await;
            }
        }
        Ok(())
    }

    async fn forward_delivery(&self, event: &str) {
        let Some(request) = parse_request(event) else {
            return tracing::warn!("the relay sent an event that is not a request; ignored it");
        };
        let Ok(answer) = self.router.call(request).await;
        let status = answer.status();
        if status.is_success() {
            return;
        }
        let body = answer.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
        let why = serde_json::from_slice(&body)
            .map_or_else(|_| status.to_string(), |reply: ControlMessage| reply.message);
        let hint = match status {
            StatusCode::UNAUTHORIZED => {
                " A relay that reformats the JSON also breaks the signature; the sweep of GitHub's log \
                 fetches the delivery itself."
            }
            _ => "",
        };
        tracing::warn!(status = status.as_u16(), "delivery from the relay refused: {why}{hint}");
    }
}

/// Builds the webhook request from an event, whose JSON object contains the headers as fields next to the body.
fn parse_request(event: &str) -> Option<Request<Body>> {
    let fields: BTreeMap<String, Box<RawValue>> = serde_json::from_str(event).ok()?;
    let text = |name: &str| serde_json::from_str::<String>(fields.get(name)?.get()).ok();
    // The signature covers the exact bytes. Some relays send them in `rawbody` or as a string. Otherwise use the body's
    // JSON text as it is in the event, since re-serializing could change more of it.
    let body =
        text("rawbody").or_else(|| text("body")).or_else(|| Some(fields.get("body")?.get().to_owned()))?;
    let mut request = Request::post("/webhook");
    for name in HEADERS {
        if let Some(value) = text(name) {
            request = request.header(name, value);
        }
    }
    request.body(Body::from(body)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn body_extracted_from_a_relay_event_equals_the_original_bytes() {
        let written = r#"{"b": 1.0,"a":"\u003c"}"#;
        let quoted = serde_json::to_string(written).unwrap();
        for event in [
            format!(r#"{{"x-github-event":"issues","host":"relay","body":{written},"timestamp":1}}"#),
            format!(r#"{{"x-github-event":"issues","body":{{"a":"<"}},"rawbody":{quoted}}}"#),
            format!(r#"{{"x-github-event":"issues","body":{quoted}}}"#),
        ] {
            let request = parse_request(&event).unwrap();
            assert_eq!(request.headers().len(), 1, "{event}");
            assert_eq!(request.headers()["x-github-event"], "issues");
            assert_eq!(request.into_body().collect().await.unwrap().to_bytes(), written, "{event}");
        }
        for nothing in ["", "{}", "[1]", r#"{"x-github-event":"issues"}"#] {
            assert!(parse_request(nothing).is_none(), "{nothing}");
        }
    }
}
