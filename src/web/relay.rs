//! Deliveries by way of a relay that speaks as smee does, for a server that GitHub cannot reach: the relay takes GitHub's
//! request and hands it on as an event of a stream that this server holds open. What comes goes through the same door as
//! GitHub's own requests, signature and all: a relay is trusted with nothing but to pass things on.

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

/// smee's server says something every 30 s; from one that is silent for so long nothing will come.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(90);

/// Before a relay is asked again that was lost or is away: the first time, doubled each time, and at most.
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LONGEST_RETRY: Duration = Duration::from_secs(60);

/// An event may be this much longer than the body in it, which it quotes, and the headers.
const EVENT_BYTES: usize = 2 * limits::WEBHOOK_BODY_BYTES;

/// The headers that the door reads.
const HEADERS: [&str; 4] = ["content-type", "x-github-delivery", "x-github-event", "x-hub-signature-256"];

/// A relay's channel, and the door that its deliveries go to.
pub struct WebhookRelay {
    channel: Url,
    client: reqwest::Client,
    door: TowerToHyperService<Router>,
    clock: SharedClock,
}

impl WebhookRelay {
    pub fn new(channel: Url, door: Router, clock: SharedClock) -> reqwest::Result<Self> {
        // One provider a process; an earlier one is as good.
        drop(rustls::crypto::ring::default_provider().install_default());
        let client = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none());
        let client = if channel.scheme() == "http" { client.no_proxy() } else { client };
        Ok(Self { channel, client: client.build()?, door: TowerToHyperService::new(door), clock })
    }

    /// Listens for good. What is missed while the relay is away is in GitHub's log of deliveries, where the sweep finds it.
    pub async fn run(self) {
        let mut pause = FIRST_RETRY;
        loop {
            let mut heard = false;
            let why = match self.listen(&mut heard).await {
                Ok(()) => "it closed the connection".to_owned(),
                Err(why) => why,
            };
            if heard {
                pause = FIRST_RETRY;
            }
            tracing::warn!("nothing comes from the relay: {why}; it is asked again in {} s", pause.as_secs());
            self.clock.sleep(pause).await;
            pause = (pause * 2).min(LONGEST_RETRY);
        }
    }

    /// One connection, until it ends or is of no use.
    async fn listen(&self, heard: &mut bool) -> Result<(), String> {
        let lost = |error: reqwest::Error| with_causes(&error.without_url());
        let asked = self.client.get(self.channel.clone()).header(header::ACCEPT, "text/event-stream");
        let answer = tokio::select! {
            answer = asked.send() => answer.map_err(lost)?,
            () = self.clock.sleep(SILENCE_TIMEOUT) => return Err("it does not answer".to_owned()),
        };
        let kind = answer.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        if answer.status() != StatusCode::OK
            || !kind.is_some_and(|kind| kind.starts_with("text/event-stream"))
        {
            let status = answer.status();
            return Err(format!(
                "it answers {status} and no stream of events; check the address after --relay"
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
            *heard = true;
            // It greets with `ready`, and says `ping` while there is nothing to say.
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
            return tracing::warn!("the relay sent something that is no request; nothing was made of it");
        };
        let Ok(answer) = self.door.call(request).await;
        let status = answer.status();
        if status.is_success() {
            return;
        }
        let body = answer.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
        let why = serde_json::from_slice(&body)
            .map_or_else(|_| status.to_string(), |said: ControlMessage| said.message);
        let hint = match status {
            StatusCode::UNAUTHORIZED => {
                " A relay that reads the JSON and writes it otherwise breaks the signature, too; the sweep of GitHub's log \
                 fetches the delivery itself."
            }
            _ => "",
        };
        tracing::warn!(status = status.as_u16(), "a delivery of the relay was refused: {why}{hint}");
    }
}

/// The request that an event tells of: its headers by their names, and beside them the body.
fn parse_request(event: &str) -> Option<Request<Body>> {
    let told: BTreeMap<String, Box<RawValue>> = serde_json::from_str(event).ok()?;
    let text = |name: &str| serde_json::from_str::<String>(told.get(name)?.get()).ok();
    // The signature is over bytes. Some relays send them as they came; of the others the body is taken as it stands in the
    // event, since reading it and writing it anew could only change more of it.
    let body =
        text("rawbody").or_else(|| text("body")).or_else(|| Some(told.get("body")?.get().to_owned()))?;
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
    async fn the_body_is_taken_byte_for_byte() {
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
