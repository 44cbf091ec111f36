//! Tests of the client against a fake GitHub, which sends scripted responses and records its requests.

mod pace;
mod refusals;
mod transport;
mod writes;

use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use axum::{body::Bytes, http::Request, response::Response};
use secrecy::SecretString;
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::*;
use crate::{
    clock::{Clock, SharedClock},
    types::{InstallationId, RepoId, Timestamp},
};

const NOW: Timestamp = Timestamp(1_771_500_000_000);
const OURS: RepoId = RepoId(9);
const BOT: u64 = 77;

/// A clock that stands still until a test advances it.
#[derive(Default)]
struct SteppedClock {
    passed: AtomicI64,
    moved: Notify,
}

impl SteppedClock {
    fn advance(&self, duration: Duration) {
        self.passed.fetch_add(i64::try_from(duration.as_millis()).unwrap(), Ordering::SeqCst);
        self.moved.notify_waiters();
    }
}

impl Clock for SteppedClock {
    fn now(&self) -> Timestamp {
        Timestamp(NOW.0 + self.passed.load(Ordering::SeqCst))
    }

    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        let until = self.now().plus(duration);
        Box::pin(async move {
            loop {
                let moved = self.moved.notified();
                if self.now() >= until {
                    return;
                }
                moved.await;
            }
        })
    }
}

/// A request as the fake GitHub received it.
#[derive(Debug, Clone)]
struct ReceivedApiRequest {
    /// Request line, such as `GET /repos/o/r?x=y`.
    line: String,
    authorization: String,
    /// Value of the `If-None-Match` header.
    known: Option<String>,
    body: Value,
}

/// Function that returns the response to a request. The number is the count of earlier requests with the same request
/// line.
type ApiResponseScript = Arc<dyn Fn(&ReceivedApiRequest, usize) -> Option<CannedApiResponse> + Send + Sync>;

struct CannedApiResponse {
    status: u16,
    headers: Vec<(&'static str, String)>,
    body: Value,
}

fn canned(status: u16, body: Value) -> Option<CannedApiResponse> {
    Some(CannedApiResponse { status, headers: Vec::new(), body })
}

impl CannedApiResponse {
    fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }
}

struct FakeGitHub {
    origin: String,
    seen: Arc<Mutex<Vec<ReceivedApiRequest>>>,
    clock: Arc<SteppedClock>,
}

impl FakeGitHub {
    /// Starts a fake GitHub. It has built-in responses to requests for tokens, the repository and our bot's account.
    /// All other requests are answered by `script`, or with 404 if `script` returns `None`.
    async fn start(
        script: impl Fn(&ReceivedApiRequest, usize) -> Option<CannedApiResponse> + Send + Sync + 'static,
    ) -> Self {
        let seen = Arc::<Mutex<Vec<ReceivedApiRequest>>>::default();
        let script: ApiResponseScript = Arc::new(script);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let origin = format!("http://{}", listener.local_addr().unwrap());
        let log = Arc::clone(&seen);
        let handler =
            move |request: Request<axum::body::Body>| respond(request, Arc::clone(&log), Arc::clone(&script));
        let app = axum::Router::new().fallback(handler);
        tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self { origin, seen, clock: Arc::default() }
    }

    fn github_at(&self, path: &str) -> GitHub {
        self.github_with_pacing(path, Pacing::Off)
    }

    fn github_with_pacing(&self, path: &str, pacing: Pacing) -> GitHub {
        let url = |path: &str| format!("{}{path}", self.origin).parse().unwrap();
        GitHub::new(GitHubOptions {
            api_url: url(path),
            web_url: url("/"),
            app_id: 1,
            private_key: key(),
            pacing,
            clock: self.clock.clone() as SharedClock,
        })
        .unwrap()
    }

    fn github(&self) -> GitHub {
        self.github_at("/")
    }

    fn repo(&self) -> GitHubRepo {
        self.github().repo(InstallationId(3), OURS, "o/r".parse().unwrap())
    }

    fn requests(&self) -> Vec<ReceivedApiRequest> {
        self.seen.lock().unwrap().clone()
    }

    fn count(&self, start: &str) -> usize {
        self.requests().iter().filter(|seen| seen.line.starts_with(start)).count()
    }

    /// Returns the writes that the server received, in order, without token requests.
    fn writes(&self) -> Vec<ReceivedApiRequest> {
        let write = |seen: &ReceivedApiRequest| {
            !seen.line.starts_with("GET ") && !seen.line.contains("access_tokens")
        };
        self.requests().into_iter().filter(write).collect()
    }
}

async fn respond(
    request: Request<axum::body::Body>,
    log: Arc<Mutex<Vec<ReceivedApiRequest>>>,
    script: ApiResponseScript,
) -> Response {
    let (head, body) = request.into_parts();
    let body: Bytes = axum::body::to_bytes(body, usize::MAX).await.unwrap();
    let authorization =
        head.headers.get("authorization").map(|v| v.to_str().unwrap().to_owned()).unwrap_or_default();
    let seen = ReceivedApiRequest {
        line: format!("{} {}", head.method, head.uri),
        authorization,
        known: head.headers.get("if-none-match").map(|v| v.to_str().unwrap().to_owned()),
        body: serde_json::from_slice(&body).unwrap_or_default(),
    };
    let before = {
        let mut log = log.lock().unwrap();
        let before = log.iter().filter(|earlier| earlier.line == seen.line).count();
        log.push(seen.clone());
        before
    };
    if seen.line.contains("access_tokens") {
        // Give calls that start together time to meet.
        tokio::time::sleep(Duration::from_millis(30)).await;
    }
    let given = script(&seen, before).or_else(|| default_response(&seen, before));
    let CannedApiResponse { status, headers, body } = given.unwrap_or_else(|| CannedApiResponse {
        status: 404,
        headers: Vec::new(),
        body: json!({ "message": format!("Not Found: {}", seen.line) }),
    });
    let mut response = Response::builder().status(status).header("content-type", "application/json");
    for (name, value) in headers {
        response = response.header(name, value);
    }
    response.body(body.to_string().into()).unwrap()
}

fn default_response(seen: &ReceivedApiRequest, before: usize) -> Option<CannedApiResponse> {
    match seen.line.as_str() {
        "POST /app/installations/3/access_tokens" | "POST /api/v3/app/installations/3/access_tokens" => {
            canned(
                201,
                json!({ "token": format!("ghs_{}", before + 1), "expires_at": "2099-01-01T00:00:00Z", "permissions": {} }),
            )
        }
        "GET /app" => canned(200, json!({ "id": 1, "slug": "countersign", "name": "Countersign" })),
        "GET /users/countersign%5Bbot%5D" => {
            canned(200, json!({ "id": BOT, "login": "countersign[bot]", "type": "Bot" }))
        }
        "GET /repos/o/r" => {
            canned(200, json!({ "id": 9, "node_id": "R_9", "full_name": "o/r", "default_branch": "main" }))
        }
        _ => None,
    }
}

fn key() -> SecretString {
    include_str!("../../../fixtures/github/app-key.pem").into()
}
