//! Tests with several Gemini keys. The test sets the response of the imitated API for each key.

use std::{
    collections::HashMap,
    future::Future,
    path::Path,
    pin::Pin,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{
    Router,
    extract::State,
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Response},
    routing::post,
};
use countersign::{
    clock::Clock,
    config::{CassetteMode, CassetteSettings, GeminiKey, GeminiTier, ModelSettings},
    providers::{CallError, CallErrorKind, CallRole, ModelProviders, ModelReply, gemini_keys},
    store::{KeyCooldownReason, Store, resting_keys},
    types::Timestamp,
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::{question, serve, settings};

/// Clock that advances only when the test advances it.
struct ManualClock(Mutex<Timestamp>);

impl ManualClock {
    fn pass(&self, seconds: u64) {
        let mut now = self.0.lock().unwrap();
        *now = now.plus(Duration::from_secs(seconds));
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        *self.0.lock().unwrap()
    }

    fn sleep(&self, _: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        unreachable!("key rotation never sleeps")
    }
}

type Answer = (u16, Option<&'static str>, Value);

#[derive(Default)]
struct Api {
    /// Responses by key name. Keys that are not listed get a good response.
    answers: Mutex<HashMap<String, Answer>>,
    requested_keys: Mutex<Vec<String>>,
    /// Clock to advance at each response, and the number of seconds by which to advance it.
    takes: Mutex<Option<(Arc<ManualClock>, u64)>>,
}

async fn generate(State(api): State<Arc<Api>>, headers: HeaderMap) -> Response {
    let key = headers["x-goog-api-key"].to_str().unwrap().to_owned();
    let name = key.rsplit('-').next().unwrap().to_owned();
    let answer = api.answers.lock().unwrap().get(&name).cloned();
    if let Some((clock, seconds)) = &*api.takes.lock().unwrap() {
        clock.pass(*seconds);
    }
    api.requested_keys.lock().unwrap().push(name);
    let (status, retry_after, body) = answer.unwrap_or_else(|| (200, None, good()));
    // Some services repeat the key in their error messages.
    let body = body.to_string().replace("<key>", &key);
    let mut response = (StatusCode::from_u16(status).unwrap(), body).into_response();
    if let Some(after) = retry_after {
        response.headers_mut().insert("retry-after", after.parse().unwrap());
    }
    response
}

fn good() -> Value {
    json!({
        "candidates": [{"content": {"parts": [{"text": "sound"}]}, "finishReason": "STOP"}],
        "usageMetadata": {"promptTokenCount": 1000, "candidatesTokenCount": 10},
        "modelVersion": "gemini-3.1-pro-preview",
    })
}

fn error(status: u16, message: &str, details: Value) -> Answer {
    (status, None, json!({"error": {"code": status, "message": message, "details": details}}))
}

fn minute() -> Answer {
    error(429, "slow down", json!([{"retryDelay": "30s"}]))
}

fn day() -> Answer {
    let id = "GenerateRequestsPerDayPerProjectPerModel";
    error(
        429,
        "You exceeded your current quota",
        json!([{"violations": [{"quotaId": id}]}, {"retryDelay": "3s"}]),
    )
}

struct Setup {
    api: Arc<Api>,
    clock: Arc<ManualClock>,
    settings: ModelSettings,
    data: tempfile::TempDir,
    store: Option<Arc<Store>>,
    providers: ModelProviders,
}

const SECRET: &str = "AIzaSyNobodyMayEverSeeThisKey";

/// Starts the API and creates the providers with these keys. Each key is given by its name, project and tier.
async fn setup(keys: &[(&str, &str, GeminiTier)]) -> Setup {
    let api = Arc::new(Api::default());
    let router = Router::new().route("/v1beta/models/{target}", post(generate)).with_state(Arc::clone(&api));
    let data = tempfile::tempdir().unwrap();
    let mut settings = settings(data.path());
    settings.gemini.base_url = serve(router).await;
    settings.gemini.keys = keys
        .iter()
        .map(|(name, project, tier)| GeminiKey {
            name: (*name).to_owned(),
            project: (*project).to_owned(),
            tier: Some(*tier),
            secret: format!("{SECRET}-{name}").into(),
        })
        .collect();
    let now = Timestamp::parse("2026-07-04T06:00:00Z").unwrap();
    let clock = Arc::new(ManualClock(Mutex::new(now)));
    let (store, providers) = open(&settings, data.path(), &clock);
    Setup { api, clock, settings, data, store: Some(store), providers }
}

fn open(settings: &ModelSettings, data: &Path, clock: &Arc<ManualClock>) -> (Arc<Store>, ModelProviders) {
    let store = Store::open(data, clock.clone()).unwrap();
    let providers = ModelProviders::with_store(settings, Arc::clone(&store), clock.clone()).unwrap();
    (store, providers)
}

/// Creates a setup with two keys of the project `shop` and one key of the project `lab`.
async fn three_keys() -> Setup {
    use GeminiTier::Paid;
    setup(&[("one", "shop", Paid), ("two", "shop", Paid), ("three", "lab", Paid)]).await
}

impl Setup {
    fn answer(&self, key: &str, answer: Answer) {
        self.api.answers.lock().unwrap().insert(key.to_owned(), answer);
    }

    fn clear_answer(&self, key: &str) {
        self.api.answers.lock().unwrap().remove(key);
    }

    /// Makes one call. Returns its outcome and the keys with which the call was tried, in order.
    async fn ask(&self) -> (Result<ModelReply, CallError>, Vec<String>) {
        self.ask_as(CallRole::Reviewer, false).await
    }

    async fn ask_as(&self, role: CallRole, private: bool) -> (Result<ModelReply, CallError>, Vec<String>) {
        self.ask_model("gemini:pro", role, private).await
    }

    async fn ask_for(&self, spec: &str) -> (Result<ModelReply, CallError>, Vec<String>) {
        self.ask_model(spec, CallRole::Reviewer, false).await
    }

    async fn ask_model(
        &self,
        spec: &str,
        role: CallRole,
        private: bool,
    ) -> (Result<ModelReply, CallError>, Vec<String>) {
        let (provider, id) = self.providers.resolve(spec).unwrap();
        let mut call = question(&id.model);
        (call.role, call.private) = (role, private);
        let outcome = provider.call(&call, &CancellationToken::new()).await;
        assert!(!format!("{outcome:?}").contains("AIzaSy"), "{outcome:?}");
        if let Err(error) = &outcome {
            assert!(!error.to_string().contains("AIzaSy"), "{error}");
        }
        (outcome, std::mem::take(&mut *self.api.requested_keys.lock().unwrap()))
    }

    /// Restarts the server with the same data directory.
    fn restart(&mut self) {
        self.providers = ModelProviders::new(&self.settings, self.clock.clone()).unwrap();
        self.store = None;
        let (store, providers) = open(&self.settings, self.data.path(), &self.clock);
        (self.store, self.providers) = (Some(store), providers);
    }

    /// Returns the keys with their cooldowns, as `doctor` reports them.
    fn resting(&self) -> Vec<(String, Vec<KeyCooldownReason>)> {
        let learned = resting_keys(&self.data.path().into()).unwrap();
        gemini_keys(&self.settings.gemini, &learned, self.clock.now())
            .into_iter()
            .map(|state| (state.key.name.clone(), state.rests.into_iter().map(|(_, rest)| rest).collect()))
            .collect()
    }
}

#[tokio::test]
async fn all_keys_of_a_project_with_exhausted_quota_are_skipped_until_the_quota_resets() {
    let mut setup = three_keys().await;
    setup.answer("one", day());
    let (outcome, requested_keys) = setup.ask().await;
    assert_eq!(requested_keys, ["one", "three"], "the sibling shares the quota");
    let reply = outcome.unwrap();
    assert_eq!(reply.earlier_attempts.len(), 1);
    // One hour is left of the day in California. The three seconds belong to another limit.
    let reset = Some(Duration::from_secs(3600));
    assert_eq!(reply.earlier_attempts[0].kind, CallErrorKind::Quota { reset });
    assert_eq!(
        (reply.earlier_attempts[0].usage.provider.as_str(), reply.earlier_attempts[0].usage.attempts),
        ("gemini", 1)
    );
    assert_eq!((reply.usage.attempts, reply.usage.input_tokens), (1, 1000));
    assert_eq!(setup.ask().await.1, ["three"]);

    setup.restart();
    assert_eq!(setup.ask().await.1, ["three"], "a restart forgets nothing");
    let until = Timestamp::parse("2026-07-04T07:00:00Z").unwrap();
    let shop = vec![KeyCooldownReason::Quota { until }];
    let states = [("one", shop.clone()), ("two", shop), ("three", vec![])].map(|(k, r)| (k.to_owned(), r));
    assert_eq!(setup.resting(), states);

    setup.clock.pass(3599);
    assert_eq!(setup.ask().await.1, ["three"]);
    setup.clock.pass(1);
    setup.clear_answer("one");
    assert_eq!(setup.ask().await.1, ["one"]);
    assert!(setup.resting().iter().all(|(_, rests)| rests.is_empty()));
    assert!(resting_keys(&setup.data.path().into()).unwrap().is_empty(), "an expired cooldown is deleted");
}

#[tokio::test]
async fn error_reports_the_soonest_reset_when_all_projects_are_exhausted() {
    let setup = three_keys().await;
    setup.answer("one", day());
    setup.answer("three", error(429, "daily quota exhausted; resets after 45m10s.", json!([])));
    let (outcome, requested_keys) = setup.ask().await;
    assert_eq!(requested_keys, ["one", "three"]);
    let error = outcome.unwrap_err();
    let reset = Some(Duration::from_secs(2710));
    assert_eq!(error.kind, CallErrorKind::Quota { reset });
    assert_eq!((error.earlier_attempts.len(), error.usage.attempts), (1, 1), "each request is reported once");

    setup.clock.pass(10);
    let (outcome, requested_keys) = setup.ask().await;
    assert_eq!(requested_keys, [""; 0]);
    let error = outcome.unwrap_err();
    assert_eq!(error.kind, CallErrorKind::Quota { reset: Some(Duration::from_secs(2700)) });
    assert_eq!((error.earlier_attempts.len(), error.usage.attempts), (0, 0));
    assert!(error.to_string().contains("2026-07-04T06:45:10Z"), "{error}");
}

#[tokio::test]
async fn rate_limited_project_is_skipped_for_the_retry_delay_in_the_response() {
    for (answer, seconds) in [
        (minute(), 30),
        ((429, Some("90"), json!({})), 90),
        (error(429, "Please retry in 38.5s.", json!([])), 39),
        (error(429, "later", json!([{"retryDelay": "1h2m3s"}])), 3723),
        ((429, None, json!({})), 60),
    ] {
        let setup = three_keys().await;
        setup.answer("one", answer.clone());
        assert_eq!(setup.ask().await.1, ["one", "three"]);
        setup.clock.pass(seconds - 1);
        assert_eq!(setup.ask().await.1, ["three"], "{answer:?}");
        setup.clear_answer("one");
        setup.clock.pass(1);
        assert_eq!(setup.ask().await.1, ["one"], "{answer:?}");
    }
    // If one project waits for a short limit, the error is a rate limit, not a used-up quota.
    let setup = three_keys().await;
    setup.answer("one", day());
    setup.answer("three", minute());
    let reset = Some(Duration::from_secs(30));
    assert_eq!(setup.ask().await.0.unwrap_err().kind, CallErrorKind::RateLimited { reset });
}

#[tokio::test]
async fn overloaded_model_does_not_put_the_key_into_cooldown() {
    let setup = three_keys().await;
    for answer in [
        error(503, "The model is overloaded.", json!([])),
        error(429, "No capacity", json!([{"reason": "MODEL_CAPACITY_EXHAUSTED"}, {"retryDelay": "45s"}])),
    ] {
        setup.answer("one", answer);
        let (outcome, requested_keys) = setup.ask().await;
        assert_eq!(outcome.unwrap_err().kind, CallErrorKind::Capacity);
        assert_eq!(requested_keys, ["one"], "another key would meet the same model");
    }
    setup.clear_answer("one");
    assert_eq!(setup.ask().await.1, ["one"]);
}

#[tokio::test]
async fn refused_key_is_skipped_until_a_restart() {
    let invalid = error(400, "API key not valid: <key>", json!([{"reason": "API_KEY_INVALID"}]));
    for answer in
        [invalid, error(401, "no", json!([])), error(403, "<key> was reported as leaked", json!([]))]
    {
        let mut setup = three_keys().await;
        setup.answer("one", answer);
        let (outcome, requested_keys) = setup.ask().await;
        assert_eq!(requested_keys, ["one", "two"], "the other key of the project still works");
        assert_eq!(outcome.unwrap().earlier_attempts[0].kind, CallErrorKind::Auth);
        setup.clock.pass(30 * 24 * 3600);
        assert_eq!(setup.ask().await.1, ["two"]);
        assert_eq!(setup.resting()[0], ("one".to_owned(), vec![KeyCooldownReason::Refused]));
        assert!(setup.resting()[1].1.is_empty());
        setup.restart();
        assert_eq!(setup.ask().await.1, ["one", "two"]);
        setup.restart();
        setup.clear_answer("one");
        assert_eq!(setup.ask().await.1, ["one"]);
        assert!(setup.resting()[0].1.is_empty());
    }
    let setup = setup(&[("one", "shop", GeminiTier::Paid)]).await;
    setup.answer("one", error(403, "no", json!([])));
    for attempts in [1, 0] {
        let error = setup.ask().await.0.unwrap_err();
        assert_eq!((&error.kind, error.usage.attempts), (&CallErrorKind::Auth, attempts));
        assert!(error.to_string().contains("refuses the key one"), "{error}");
    }
}

#[tokio::test]
async fn key_without_access_to_a_model_is_skipped_for_that_model_for_an_hour() {
    let mut setup = three_keys().await;
    let denied = "Permission denied on resource models/gemini-3.1-pro-preview";
    setup.answer("one", error(403, denied, json!([])));
    let (outcome, requested_keys) = setup.ask().await;
    assert_eq!(requested_keys, ["one", "two"], "the other key of the project may still use the model");
    assert_eq!(outcome.unwrap().earlier_attempts[0].kind, CallErrorKind::Auth);
    let until = setup.clock.now().plus(Duration::from_secs(3600));
    assert_eq!(setup.resting()[0], ("one".to_owned(), vec![KeyCooldownReason::Denied { until }]));
    assert!(setup.resting()[1].1.is_empty());
    setup.restart();
    assert_eq!(setup.ask().await.1, ["two"], "a restart forgets nothing");
    setup.clear_answer("one");
    assert_eq!(
        setup.ask_for("gemini:flash").await.1,
        ["one"],
        "the cooldown does not apply to another model"
    );
    setup.clock.pass(3599);
    assert_eq!(setup.ask().await.1, ["two"]);
    setup.clock.pass(1);
    assert_eq!(setup.ask().await.1, ["one"]);

    // An error about the key or its project concerns every model.
    let project = json!([{"reason": "CONSUMER_SUSPENDED"}]);
    setup.answer("one", error(403, denied, project));
    assert_eq!(setup.ask().await.1, ["one", "two"]);
    assert_eq!(setup.resting()[0].1, [KeyCooldownReason::Refused]);
}

#[tokio::test]
async fn error_names_the_model_that_no_key_may_use() {
    let setup = setup(&[("one", "shop", GeminiTier::Paid)]).await;
    setup.answer("one", error(403, "no access to gemini-3.1-pro-preview", json!([])));
    for attempts in [1, 0] {
        let error = setup.ask().await.0.unwrap_err();
        assert_eq!((&error.kind, error.usage.attempts), (&CallErrorKind::Auth, attempts));
        assert!(error.to_string().contains("no remaining key may use gemini-3.1-pro-preview"), "{error}");
    }
}

#[tokio::test]
async fn private_prompt_is_never_sent_with_a_free_tier_key() {
    use GeminiTier::{Free, Paid};
    let mut both = setup(&[("free", "a", Free), ("paid", "b", Paid)]).await;
    let (outcome, requested_keys) = both.ask_as(CallRole::Reviewer, true).await;
    assert_eq!(requested_keys, ["paid"]);
    assert!(outcome.unwrap().usage.billed);
    let (outcome, requested_keys) = both.ask().await;
    assert_eq!(requested_keys, ["free"]);
    assert!(!outcome.unwrap().usage.billed, "the free tier is not billed");

    // A key of unknown tier counts as free. The cooldown of the paid key does not change that.
    both.settings.gemini.keys[0].tier = None;
    both.restart();
    both.answer("paid", day());
    let (outcome, requested_keys) = both.ask_as(CallRole::Reviewer, true).await;
    assert_eq!(requested_keys, ["paid"]);
    assert!(matches!(outcome.unwrap_err().kind, CallErrorKind::Quota { .. }));

    let mut free = setup(&[("free", "a", Free)]).await;
    let (outcome, requested_keys) = free.ask_as(CallRole::Reviewer, true).await;
    assert_eq!(requested_keys, [""; 0]);
    let error = outcome.unwrap_err();
    assert_eq!(error.kind, CallErrorKind::Auth);
    assert!(error.to_string().contains("allow_free_tier_for_private = true"), "{error}");
    free.settings.gemini.free_for_private = true;
    free.restart();
    assert_eq!(free.ask_as(CallRole::Reviewer, true).await.1, ["free"]);
}

#[tokio::test]
async fn gemini_may_draft_only_if_allow_gemini_drafts_is_set() {
    let mut setup = three_keys().await;
    let (outcome, requested_keys) = setup.ask_as(CallRole::Drafter, false).await;
    assert_eq!(requested_keys, [""; 0]);
    assert!(outcome.unwrap_err().to_string().contains("allow_gemini_drafts = true"));
    setup.settings.gemini.drafts = true;
    setup.restart();
    assert!(setup.ask_as(CallRole::Drafter, false).await.0.is_ok());
}

#[tokio::test]
async fn keys_never_appear_in_errors_or_files() {
    let setup = three_keys().await;
    // Long enough that the log line is truncated inside the key.
    let long = format!("{}<key>", "x".repeat(290));
    setup.answer("one", error(403, &long, json!([])));
    setup.answer("two", error(429, "<key> is used up per day", json!([])));
    setup.answer("three", (429, None, json!({"error": {"message": long}})));
    let (outcome, requested_keys) = setup.ask().await;
    assert_eq!(requested_keys, ["one", "two", "three"]);
    let shown = format!("{outcome:?} {:?} {:?}", setup.settings, setup.resting());
    for part in ["AIza", "NobodyMayEverSee"] {
        assert!(!shown.contains(part), "{shown}");
    }
    drop(setup.store);
    drop(setup.providers);
    for file in std::fs::read_dir(setup.data.path()).unwrap() {
        let path = file.unwrap().path();
        let Ok(bytes) = std::fs::read(&path) else { continue };
        assert!(!bytes.windows(4).any(|window| window == b"AIza"), "{}", path.display());
    }
}

#[tokio::test]
async fn replay_lists_the_keys_that_were_tried() {
    let mut setup = three_keys().await;
    setup.answer("one", day());
    let dir = tempfile::tempdir().unwrap();
    let mut outcomes = Vec::new();
    for mode in [CassetteMode::Record, CassetteMode::Replay] {
        setup.settings.cassettes = Some(CassetteSettings { dir: dir.path().into(), mode });
        setup.restart();
        let reply = setup.ask().await.0.unwrap();
        let before: Vec<_> =
            reply.earlier_attempts.iter().map(|a| (a.kind.clone(), a.message.clone())).collect();
        assert!(before.len() == 1 && reply.earlier_attempts[0].usage.provider == "gemini");
        outcomes.push((before, reply.text));
    }
    assert_eq!(outcomes[0], outcomes[1]);
}

#[tokio::test]
async fn all_keys_tried_in_a_call_share_its_deadline() {
    let setup = three_keys().await;
    setup.answer("one", minute());
    *setup.api.takes.lock().unwrap() = Some((Arc::clone(&setup.clock), 300));
    let (outcome, requested_keys) = setup.ask().await;
    assert_eq!(requested_keys, ["one"], "no time is left for another key");
    let error = outcome.unwrap_err();
    assert!(matches!(error.kind, CallErrorKind::Timeout { .. }), "{error:?}");
    assert_eq!((error.earlier_attempts.len(), error.usage.attempts), (0, 1));
}

#[tokio::test]
async fn zero_retry_delay_still_waits_a_second() {
    let setup = setup(&[("one", "shop", GeminiTier::Paid)]).await;
    setup.answer("one", error(429, "slow down", json!([{"retryDelay": "0s"}])));
    let (outcome, requested_keys) =
        tokio::time::timeout(Duration::from_secs(600), setup.ask()).await.unwrap();
    assert_eq!(requested_keys, ["one"]);
    let reset = Some(Duration::from_secs(1));
    assert_eq!(outcome.unwrap_err().kind, CallErrorKind::RateLimited { reset });
}

#[tokio::test]
async fn soonest_reset_is_reported_even_if_it_belongs_to_the_first_key() {
    let setup = three_keys().await;
    setup.answer("one", error(429, "daily quota exhausted; resets after 45m10s.", json!([])));
    setup.answer("three", day());
    let reset = Some(Duration::from_secs(2710));
    assert_eq!(setup.ask().await.0.unwrap_err().kind, CallErrorKind::Quota { reset });
}

#[tokio::test]
async fn keys_are_reloaded_between_calls() {
    use GeminiTier::{Free, Paid};
    let mut setup = setup(&[("old", "shop", Paid)]).await;
    setup.answer("old", error(403, "revoked", json!([])));
    let (refused, _) = setup.ask().await;
    assert_eq!(refused.unwrap_err().kind, CallErrorKind::Auth);
    assert!(!setup.providers.depends_on_privacy());

    let key = GeminiKey {
        tier: Some(Free),
        secret: format!("{SECRET}-new").into(),
        ..setup.settings.gemini.keys[0].clone()
    };
    setup.settings.gemini.keys = vec![key];
    assert_eq!(setup.providers.reload_keys(&setup.settings), ["GEMINI_API_KEY"]);
    assert_eq!(setup.providers.reload_keys(&setup.settings), [""; 0], "the keys have not changed since");
    assert!(setup.providers.depends_on_privacy(), "the new key's tier applies as well");
    assert_eq!(setup.ask().await.1, ["new"]);

    // A reload never sends a key to a new address; that takes a restart.
    setup.settings.gemini.base_url = "https://elsewhere.example".parse().unwrap();
    setup.settings.gemini.keys[0].secret = format!("{SECRET}-third").into();
    assert_eq!(setup.providers.reload_keys(&setup.settings), [""; 0]);
}

#[tokio::test]
async fn key_check_reads_the_model_list_and_calls_no_model() {
    use countersign::providers::{ApiService, KeyCheck, check_key};
    let models = |headers: HeaderMap| async move {
        let key = headers.get("x-api-key").or(headers.get("x-goog-api-key")).unwrap();
        if key == "good" { StatusCode::OK } else { StatusCode::UNAUTHORIZED }
    };
    let router = Router::new()
        .route("/v1/models", axum::routing::get(models))
        .route("/v1beta/models", axum::routing::get(models));
    let data = tempfile::tempdir().unwrap();
    let mut settings = settings(data.path());
    let base = serve(router).await;
    (settings.gemini.base_url, settings.anthropic.base_url) = (base.clone(), base);
    for service in [ApiService::Anthropic, ApiService::Gemini] {
        assert_eq!(check_key(service, &settings, &"good".into()).await, KeyCheck::Accepted);
        let refused = KeyCheck::Refused("127.0.0.1 does not accept this key".to_owned());
        assert_eq!(check_key(service, &settings, &"bad".into()).await, refused);
    }
    settings.gemini.base_url = "http://127.0.0.1:1".parse().unwrap();
    assert!(matches!(check_key(ApiService::Gemini, &settings, &"good".into()).await, KeyCheck::Unknown(_)));
}
