//! Stories with a delivery log that is longer than the part that a sweep keeps in memory.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use axum::{
    Json, Router,
    extract::{Path, Query, State},
    http::{HeaderMap, HeaderValue, StatusCode},
    routing::get,
};
use countersign::{limits, store::DeliveryDisposition, types::Timestamp};
use serde_json::{Value, json};

use crate::world::{World, world};

/// Number of delivery attempts in the log at the start: a little more than two of the parts that a sweep keeps in
/// memory.
const ATTEMPTS: u64 = (2 * limits::SWEEP_PAGES as u64 + 1) * 100 + 50;

/// Imitation of GitHub's delivery log. `ours` contains our deliveries by attempt number. All other attempts belong to
/// another installation.
struct Log {
    url: String,
    installation: u64,
    began: Timestamp,
    /// Number of attempts in the log. It grows each time the list is read.
    attempts: AtomicU64,
    ours: BTreeMap<u64, &'static str>,
    /// Numbers of the attempts that the log refuses to return.
    refused: Mutex<Vec<u64>>,
    listed: AtomicU64,
}

async fn list_attempts(
    State(log): State<Arc<Log>>,
    Query(query): Query<BTreeMap<String, String>>,
) -> (HeaderMap, Json<Vec<Value>>) {
    log.listed.fetch_add(1, Ordering::SeqCst);
    let newest = log.attempts.fetch_add(3, Ordering::SeqCst);
    let last = query.get("cursor").map_or(newest, |before| before.parse::<u64>().unwrap() - 1);
    let numbers = (1..=last).rev().take(100);
    let end = numbers.clone().last().unwrap_or(1);
    let attempt = |number| {
        let ours = log.ours.get(&number);
        let at = log.began.plus(std::time::Duration::from_secs(number));
        json!({
            "id": number, "guid": ours.map_or(format!("theirs-{number}"), |guid| (*guid).to_owned()),
            "delivered_at": at.to_string(), "event": "ping",
            "installation_id": log.installation + u64::from(ours.is_none()),
        })
    };
    let mut headers = HeaderMap::new();
    if end > 1 {
        let link = format!("<{}/app/hook/deliveries?per_page=100&cursor={end}>; rel=\"next\"", log.url);
        headers.insert("link", HeaderValue::from_str(&link).unwrap());
    }
    (headers, Json(numbers.map(attempt).collect()))
}

async fn read_attempt(
    State(log): State<Arc<Log>>,
    Path(number): Path<u64>,
) -> Result<Json<Value>, StatusCode> {
    if log.refused.lock().unwrap().contains(&number) {
        return Err(StatusCode::UNPROCESSABLE_ENTITY);
    }
    Ok(Json(json!({ "request": { "payload": { "zen": log.ours[&number] } } })))
}

impl World {
    /// Restarts the bot with an imitated log that replaces the hub's log. Returns the log, too.
    async fn with_log(self, ours: &[(u64, &'static str)]) -> (Self, Arc<Log>) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let log = Arc::new(Log {
            url: format!("http://{}", listener.local_addr().unwrap()),
            installation: self.installation.0,
            began: countersign::clock::Clock::now(&*self.clock),
            attempts: AtomicU64::new(ATTEMPTS),
            ours: ours.iter().copied().collect(),
            refused: Mutex::default(),
            listed: AtomicU64::new(0),
        });
        let paths = Router::new()
            .route("/app/hook/deliveries", get(list_attempts))
            .route("/app/hook/deliveries/{number}", get(read_attempt))
            .with_state(log.clone());
        tokio::spawn(async move { axum::serve(listener, paths).await });
        let config = self.directory().join("bot/countersign.toml");
        let text = std::fs::read_to_string(&config).unwrap();
        let hub = format!("api_url = \"{}\"", self.hub.api_url());
        assert!(text.contains(&hub));
        std::fs::write(&config, text.replace(&hub, &format!("api_url = \"{}/\"", log.url))).unwrap();
        self.pass(ATTEMPTS + 3600);
        (self.restart().await, log)
    }

    /// Claims every delivery in the inbox and returns the ids in processing order.
    async fn claim_all(&self) -> Vec<String> {
        let mut ids = Vec::new();
        while let Some(taken) = self.app.store.inbox().claim().await.unwrap() {
            assert!(taken.swept);
            ids.push(taken.id.0.clone());
            let done = DeliveryDisposition::Done("read".to_owned());
            self.app.store.inbox().record_dispositions(vec![(taken.id, done)]).await.unwrap();
        }
        ids
    }
}

#[tokio::test]
#[ignore = "takes long"]
async fn sweep_of_a_long_log_processes_oldest_deliveries_first() {
    let ours = [
        (5, "first"),
        (120, "second"),
        (6000, "refused"),
        (9000, "third"),
        (12_000, "first"), // an earlier attempt failed
        (15_000, "fourth"),
        (15_200, "fifth"),
        (15_500, "fourth"), // as did one of this
        (20_140, "last"),
    ];
    let (w, log) = world().await.with_log(&ours).await;
    log.refused.lock().unwrap().push(6000);
    let mark = w.app.store.sweep_position().await.unwrap();
    assert!(w.app.intake.sweep().await.is_err(), "one attempt could not be read");
    assert_eq!(w.claim_all().await, ["first", "second", "third", "fourth", "fifth", "last"]);
    assert_eq!(w.app.store.sweep_position().await.unwrap(), mark, "the next sweep looks for it again");

    log.refused.lock().unwrap().clear();
    assert_eq!(w.app.intake.sweep().await.unwrap(), 1);
    assert_eq!(w.claim_all().await, ["refused"]);
    assert!(w.app.store.sweep_position().await.unwrap() > mark);
    let listed = log.listed.swap(0, Ordering::SeqCst);
    assert_eq!(w.app.intake.sweep().await.unwrap(), 0);
    assert!(log.listed.load(Ordering::SeqCst) * 10 < listed, "the next sweep skips what was read before");
}

#[tokio::test]
async fn delivery_is_read_from_a_later_attempt_when_github_lost_the_first_attempt() {
    let (w, log) = world().await.with_log(&[(19_000, "early"), (19_500, "late"), (19_900, "early")]).await;
    log.refused.lock().unwrap().push(19_000);
    assert!(w.app.intake.sweep().await.is_err());
    assert_eq!(w.claim_all().await, ["late", "early"]);
}
