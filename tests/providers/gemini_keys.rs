//! Several keys of Gemini's against an imitation that answers each as it is told to.

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

/// A clock that only the test moves.
struct Hands(Mutex<Timestamp>);

impl Hands {
    fn pass(&self, seconds: u64) {
        let mut now = self.0.lock().unwrap();
        *now = now.plus(Duration::from_secs(seconds));
    }
}

impl Clock for Hands {
    fn now(&self) -> Timestamp {
        *self.0.lock().unwrap()
    }

    fn sleep(&self, _: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        unreachable!("a rotation waits for nothing")
    }
}

type Answer = (u16, Option<&'static str>, Value);

#[derive(Default)]
struct Api {
    /// By key; every other one gets a good answer.
    answers: Mutex<HashMap<String, Answer>>,
    asked: Mutex<Vec<String>>,
    /// How long an answer takes, by this clock.
    takes: Mutex<Option<(Arc<Hands>, u64)>>,
}

async fn generate(State(api): State<Arc<Api>>, headers: HeaderMap) -> Response {
    let key = headers["x-goog-api-key"].to_str().unwrap().to_owned();
    let name = key.rsplit('-').next().unwrap().to_owned();
    let answer = api.answers.lock().unwrap().get(&name).cloned();
    if let Some((clock, seconds)) = &*api.takes.lock().unwrap() {
        clock.pass(*seconds);
    }
    api.asked.lock().unwrap().push(name);
    let (status, retry_after, body) = answer.unwrap_or_else(|| (200, None, good()));
    // Some services repeat the key in what they say.
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

struct Room {
    api: Arc<Api>,
    clock: Arc<Hands>,
    settings: ModelSettings,
    data: tempfile::TempDir,
    store: Option<Arc<Store>>,
    providers: ModelProviders,
}

const SECRET: &str = "AIzaSyNobodyMayEverSeeThisKey";

/// Keys by name, project and tier.
async fn room(keys: &[(&str, &str, GeminiTier)]) -> Room {
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
    let clock = Arc::new(Hands(Mutex::new(now)));
    let (store, providers) = open(&settings, data.path(), &clock);
    Room { api, clock, settings, data, store: Some(store), providers }
}

fn open(settings: &ModelSettings, data: &Path, clock: &Arc<Hands>) -> (Arc<Store>, ModelProviders) {
    let store = Store::open(data, clock.clone()).unwrap();
    let providers = ModelProviders::with_store(settings, Arc::clone(&store), clock.clone()).unwrap();
    (store, providers)
}

/// One key of one project and its sibling, and one of another.
async fn three() -> Room {
    use GeminiTier::Paid;
    room(&[("one", "shop", Paid), ("two", "shop", Paid), ("three", "lab", Paid)]).await
}

impl Room {
    fn answer(&self, key: &str, answer: Answer) {
        self.api.answers.lock().unwrap().insert(key.to_owned(), answer);
    }

    fn mend(&self, key: &str) {
        self.api.answers.lock().unwrap().remove(key);
    }

    /// Asks once, and which keys it was asked with.
    async fn ask(&self) -> (Result<ModelReply, CallError>, Vec<String>) {
        self.ask_as(CallRole::Reviewer, false).await
    }

    async fn ask_as(&self, role: CallRole, private: bool) -> (Result<ModelReply, CallError>, Vec<String>) {
        self.ask_whom("gemini:pro", role, private).await
    }

    async fn ask_for(&self, spec: &str) -> (Result<ModelReply, CallError>, Vec<String>) {
        self.ask_whom(spec, CallRole::Reviewer, false).await
    }

    async fn ask_whom(
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
        (outcome, std::mem::take(&mut *self.api.asked.lock().unwrap()))
    }

    /// The server ends and another one starts on the same directory.
    fn restart(&mut self) {
        self.providers = ModelProviders::new(&self.settings, self.clock.clone()).unwrap();
        self.store = None;
        let (store, providers) = open(&self.settings, self.data.path(), &self.clock);
        (self.store, self.providers) = (Some(store), providers);
    }

    /// As `doctor` sees them, beside the server.
    fn resting(&self) -> Vec<(String, Vec<KeyCooldownReason>)> {
        let learned = resting_keys(&self.data.path().into()).unwrap();
        gemini_keys(&self.settings.gemini, &learned, self.clock.now())
            .into_iter()
            .map(|state| (state.key.name.clone(), state.rests.into_iter().map(|(_, rest)| rest).collect()))
            .collect()
    }
}

#[tokio::test]
async fn a_used_up_project_is_skipped_with_all_its_keys_until_its_day_ends() {
    let mut room = three().await;
    room.answer("one", day());
    let (outcome, asked) = room.ask().await;
    assert_eq!(asked, ["one", "three"], "the sibling shares the quota");
    let reply = outcome.unwrap();
    assert_eq!(reply.earlier_attempts.len(), 1);
    // An hour is left of the day in California; the three seconds beside it are another limit's.
    let reset = Some(Duration::from_secs(3600));
    assert_eq!(reply.earlier_attempts[0].kind, CallErrorKind::Quota { reset });
    assert_eq!(
        (reply.earlier_attempts[0].usage.provider.as_str(), reply.earlier_attempts[0].usage.attempts),
        ("gemini", 1)
    );
    assert_eq!((reply.usage.attempts, reply.usage.input_tokens), (1, 1000));
    assert_eq!(room.ask().await.1, ["three"]);

    room.restart();
    assert_eq!(room.ask().await.1, ["three"], "a restart forgets nothing");
    let until = Timestamp::parse("2026-07-04T07:00:00Z").unwrap();
    let shop = vec![KeyCooldownReason::Quota { until }];
    let states = [("one", shop.clone()), ("two", shop), ("three", vec![])].map(|(k, r)| (k.to_owned(), r));
    assert_eq!(room.resting(), states);

    room.clock.pass(3599);
    assert_eq!(room.ask().await.1, ["three"]);
    room.clock.pass(1);
    room.mend("one");
    assert_eq!(room.ask().await.1, ["one"]);
    assert!(room.resting().iter().all(|(_, rests)| rests.is_empty()));
    assert!(resting_keys(&room.data.path().into()).unwrap().is_empty(), "what is over is not kept");
}

#[tokio::test]
async fn with_no_project_left_the_soonest_reset_is_told_and_nobody_is_asked() {
    let room = three().await;
    room.answer("one", day());
    room.answer("three", error(429, "daily quota exhausted; resets after 45m10s.", json!([])));
    let (outcome, asked) = room.ask().await;
    assert_eq!(asked, ["one", "three"]);
    let error = outcome.unwrap_err();
    let reset = Some(Duration::from_secs(2710));
    assert_eq!(error.kind, CallErrorKind::Quota { reset });
    assert_eq!((error.earlier_attempts.len(), error.usage.attempts), (1, 1), "each request is told of once");

    room.clock.pass(10);
    let (outcome, asked) = room.ask().await;
    assert_eq!(asked, [""; 0]);
    let error = outcome.unwrap_err();
    assert_eq!(error.kind, CallErrorKind::Quota { reset: Some(Duration::from_secs(2700)) });
    assert_eq!((error.earlier_attempts.len(), error.usage.attempts), (0, 0));
    assert!(error.to_string().contains("2026-07-04T06:45:10Z"), "{error}");
}

#[tokio::test]
async fn a_minutes_limit_rests_the_project_for_as_long_as_it_says() {
    for (answer, seconds) in [
        (minute(), 30),
        ((429, Some("90"), json!({})), 90),
        (error(429, "Please retry in 38.5s.", json!([])), 39),
        (error(429, "later", json!([{"retryDelay": "1h2m3s"}])), 3723),
        ((429, None, json!({})), 60),
    ] {
        let room = three().await;
        room.answer("one", answer.clone());
        assert_eq!(room.ask().await.1, ["one", "three"]);
        room.clock.pass(seconds - 1);
        assert_eq!(room.ask().await.1, ["three"], "{answer:?}");
        room.mend("one");
        room.clock.pass(1);
        assert_eq!(room.ask().await.1, ["one"], "{answer:?}");
    }
    // A limit that is soon over is no quota.
    let room = three().await;
    room.answer("one", day());
    room.answer("three", minute());
    let reset = Some(Duration::from_secs(30));
    assert_eq!(room.ask().await.0.unwrap_err().kind, CallErrorKind::RateLimited { reset });
}

#[tokio::test]
async fn an_overloaded_model_exhausts_no_key() {
    let room = three().await;
    for answer in [
        error(503, "The model is overloaded.", json!([])),
        error(429, "No capacity", json!([{"reason": "MODEL_CAPACITY_EXHAUSTED"}, {"retryDelay": "45s"}])),
    ] {
        room.answer("one", answer);
        let (outcome, asked) = room.ask().await;
        assert_eq!(outcome.unwrap_err().kind, CallErrorKind::Capacity);
        assert_eq!(asked, ["one"], "another key would meet the same model");
    }
    room.mend("one");
    assert_eq!(room.ask().await.1, ["one"]);
}

#[tokio::test]
async fn a_refused_key_is_put_aside_named_and_tried_again_after_a_restart() {
    let invalid = error(400, "API key not valid: <key>", json!([{"reason": "API_KEY_INVALID"}]));
    for answer in
        [invalid, error(401, "no", json!([])), error(403, "<key> was reported as leaked", json!([]))]
    {
        let mut room = three().await;
        room.answer("one", answer);
        let (outcome, asked) = room.ask().await;
        assert_eq!(asked, ["one", "two"], "its sibling is as good as ever");
        assert_eq!(outcome.unwrap().earlier_attempts[0].kind, CallErrorKind::Auth);
        room.clock.pass(30 * 24 * 3600);
        assert_eq!(room.ask().await.1, ["two"]);
        assert_eq!(room.resting()[0], ("one".to_owned(), vec![KeyCooldownReason::Refused]));
        assert!(room.resting()[1].1.is_empty());
        room.restart();
        assert_eq!(room.ask().await.1, ["one", "two"]);
        room.restart();
        room.mend("one");
        assert_eq!(room.ask().await.1, ["one"]);
        assert!(room.resting()[0].1.is_empty());
    }
    let room = room(&[("one", "shop", GeminiTier::Paid)]).await;
    room.answer("one", error(403, "no", json!([])));
    for attempts in [1, 0] {
        let error = room.ask().await.0.unwrap_err();
        assert_eq!((&error.kind, error.usage.attempts), (&CallErrorKind::Auth, attempts));
        assert!(error.to_string().contains("refuses one"), "{error}");
    }
}

#[tokio::test]
async fn a_key_that_may_not_use_one_model_rests_an_hour_and_for_that_model_alone() {
    let mut room = three().await;
    let denied = "Permission denied on resource models/gemini-3.1-pro-preview";
    room.answer("one", error(403, denied, json!([])));
    let (outcome, asked) = room.ask().await;
    assert_eq!(asked, ["one", "two"], "what its sibling may is the sibling's");
    assert_eq!(outcome.unwrap().earlier_attempts[0].kind, CallErrorKind::Auth);
    let until = room.clock.now().plus(Duration::from_secs(3600));
    assert_eq!(room.resting()[0], ("one".to_owned(), vec![KeyCooldownReason::Denied { until }]));
    assert!(room.resting()[1].1.is_empty());
    room.restart();
    assert_eq!(room.ask().await.1, ["two"], "a restart forgets nothing");
    room.mend("one");
    assert_eq!(room.ask_for("gemini:flash").await.1, ["one"], "another model is another matter");
    room.clock.pass(3599);
    assert_eq!(room.ask().await.1, ["two"]);
    room.clock.pass(1);
    assert_eq!(room.ask().await.1, ["one"]);

    // All that speaks of the key or its project is about every model.
    let project = json!([{"reason": "CONSUMER_SUSPENDED"}]);
    room.answer("one", error(403, denied, project));
    assert_eq!(room.ask().await.1, ["one", "two"]);
    assert_eq!(room.resting()[0].1, [KeyCooldownReason::Refused]);
}

#[tokio::test]
async fn with_no_key_that_may_use_the_model_its_name_is_told() {
    let room = room(&[("one", "shop", GeminiTier::Paid)]).await;
    room.answer("one", error(403, "no access to gemini-3.1-pro-preview", json!([])));
    for attempts in [1, 0] {
        let error = room.ask().await.0.unwrap_err();
        assert_eq!((&error.kind, error.usage.attempts), (&CallErrorKind::Auth, attempts));
        assert!(error.to_string().contains("lets no key that is left use gemini-3.1-pro-preview"), "{error}");
    }
}

#[tokio::test]
async fn the_free_tier_sees_nothing_private() {
    use GeminiTier::{Free, Paid};
    let mut both = room(&[("free", "a", Free), ("paid", "b", Paid)]).await;
    let (outcome, asked) = both.ask_as(CallRole::Reviewer, true).await;
    assert_eq!(asked, ["paid"]);
    assert!(outcome.unwrap().usage.billed);
    let (outcome, asked) = both.ask().await;
    assert_eq!(asked, ["free"]);
    assert!(!outcome.unwrap().usage.billed, "what is free is on no bill");

    // Neither is one of which nobody said what it is; nor does a paid key's rest change anything.
    both.settings.gemini.keys[0].tier = None;
    both.restart();
    both.answer("paid", day());
    let (outcome, asked) = both.ask_as(CallRole::Reviewer, true).await;
    assert_eq!(asked, ["paid"]);
    assert!(matches!(outcome.unwrap_err().kind, CallErrorKind::Quota { .. }));

    let mut free = room(&[("free", "a", Free)]).await;
    let (outcome, asked) = free.ask_as(CallRole::Reviewer, true).await;
    assert_eq!(asked, [""; 0]);
    let error = outcome.unwrap_err();
    assert_eq!(error.kind, CallErrorKind::Auth);
    assert!(error.to_string().contains("allow_free_tier_for_private = true"), "{error}");
    free.settings.gemini.free_for_private = true;
    free.restart();
    assert_eq!(free.ask_as(CallRole::Reviewer, true).await.1, ["free"]);
}

#[tokio::test]
async fn it_drafts_only_where_the_settings_say_so() {
    let mut room = three().await;
    let (outcome, asked) = room.ask_as(CallRole::Drafter, false).await;
    assert_eq!(asked, [""; 0]);
    assert!(outcome.unwrap_err().to_string().contains("allow_gemini_drafts = true"));
    room.settings.gemini.drafts = true;
    room.restart();
    assert!(room.ask_as(CallRole::Drafter, false).await.0.is_ok());
}

#[tokio::test]
async fn no_key_is_written_anywhere() {
    let room = three().await;
    // Quoted where a log's line is cut, too.
    let long = format!("{}<key>", "x".repeat(290));
    room.answer("one", error(403, &long, json!([])));
    room.answer("two", error(429, "<key> is used up per day", json!([])));
    room.answer("three", (429, None, json!({"error": {"message": long}})));
    let (outcome, asked) = room.ask().await;
    assert_eq!(asked, ["one", "two", "three"]);
    let shown = format!("{outcome:?} {:?} {:?}", room.settings, room.resting());
    for part in ["AIza", "NobodyMayEverSee"] {
        assert!(!shown.contains(part), "{shown}");
    }
    drop(room.store);
    drop(room.providers);
    for file in std::fs::read_dir(room.data.path()).unwrap() {
        let path = file.unwrap().path();
        let Ok(bytes) = std::fs::read(&path) else { continue };
        assert!(!bytes.windows(4).any(|window| window == b"AIza"), "{}", path.display());
    }
}

#[tokio::test]
async fn a_replay_tells_which_keys_were_tried() {
    let mut room = three().await;
    room.answer("one", day());
    let dir = tempfile::tempdir().unwrap();
    let mut told = Vec::new();
    for mode in [CassetteMode::Record, CassetteMode::Replay] {
        room.settings.cassettes = Some(CassetteSettings { dir: dir.path().into(), mode });
        room.restart();
        let reply = room.ask().await.0.unwrap();
        let before: Vec<_> =
            reply.earlier_attempts.iter().map(|a| (a.kind.clone(), a.message.clone())).collect();
        assert!(before.len() == 1 && reply.earlier_attempts[0].usage.provider == "gemini");
        told.push((before, reply.text));
    }
    assert_eq!(told[0], told[1]);
}

#[tokio::test]
async fn all_keys_share_the_calls_time() {
    let room = three().await;
    room.answer("one", minute());
    *room.api.takes.lock().unwrap() = Some((Arc::clone(&room.clock), 300));
    let (outcome, asked) = room.ask().await;
    assert_eq!(asked, ["one"], "nothing is left for another");
    let error = outcome.unwrap_err();
    assert!(matches!(error.kind, CallErrorKind::Timeout { .. }), "{error:?}");
    assert_eq!((error.earlier_attempts.len(), error.usage.attempts), (0, 1));
}

#[tokio::test]
async fn whoever_names_no_wait_at_all_is_not_asked_in_the_same_breath() {
    let room = room(&[("one", "shop", GeminiTier::Paid)]).await;
    room.answer("one", error(429, "slow down", json!([{"retryDelay": "0s"}])));
    let (outcome, asked) = tokio::time::timeout(Duration::from_secs(600), room.ask()).await.unwrap();
    assert_eq!(asked, ["one"]);
    let reset = Some(Duration::from_secs(1));
    assert_eq!(outcome.unwrap_err().kind, CallErrorKind::RateLimited { reset });
}

#[tokio::test]
async fn the_soonest_reset_is_told_wherever_it_stands() {
    let room = three().await;
    room.answer("one", error(429, "daily quota exhausted; resets after 45m10s.", json!([])));
    room.answer("three", day());
    let reset = Some(Duration::from_secs(2710));
    assert_eq!(room.ask().await.0.unwrap_err().kind, CallErrorKind::Quota { reset });
}

#[tokio::test]
async fn keys_are_swapped_between_two_calls() {
    use GeminiTier::{Free, Paid};
    let mut room = room(&[("old", "shop", Paid)]).await;
    room.answer("old", error(403, "revoked", json!([])));
    let (refused, _) = room.ask().await;
    assert_eq!(refused.unwrap_err().kind, CallErrorKind::Auth);
    assert!(!room.providers.depends_on_privacy());

    let key = GeminiKey {
        tier: Some(Free),
        secret: format!("{SECRET}-new").into(),
        ..room.settings.gemini.keys[0].clone()
    };
    room.settings.gemini.keys = vec![key];
    assert_eq!(room.providers.reload_keys(&room.settings), ["GEMINI_API_KEY"]);
    assert_eq!(room.providers.reload_keys(&room.settings), [""; 0], "they are the same now");
    assert!(room.providers.depends_on_privacy(), "its tier counts from now on, too");
    assert_eq!(room.ask().await.1, ["new"]);

    // A key goes to the address that it was given for, and that holds until a restart.
    room.settings.gemini.base_url = "https://elsewhere.example".parse().unwrap();
    room.settings.gemini.keys[0].secret = format!("{SECRET}-third").into();
    assert_eq!(room.providers.reload_keys(&room.settings), [""; 0]);
}

#[tokio::test]
async fn a_key_is_tried_without_asking_a_model() {
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
