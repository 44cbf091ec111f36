//! Tests of the check that the services still list the models in use. The services' model lists are imitated.

use std::sync::{Arc, Mutex};

use axum::{Json, Router, extract::RawQuery, http::HeaderMap, routing::get};
use countersign::{
    clock::SystemClock,
    config::Settings,
    providers::{ListCheck, ModelProviders},
    types::Timestamp,
    workflows,
};
use serde_json::{Value, json};

use super::serve;

const NOW: &str = "2026-11-27T12:00:00Z";

/// Serves both model lists at one address; Anthropic's list has two pages. Returns the address and a log of the
/// requests.
async fn lists(claude: &'static [&str], gemini: &'static [&str]) -> (url::Url, Arc<Mutex<Vec<String>>>) {
    let requests = Arc::new(Mutex::new(Vec::new()));
    let note = |path: &'static str, key: &'static str| {
        let requests = requests.clone();
        move |query: Option<String>, headers: &HeaderMap| {
            assert!(headers.contains_key(key), "{headers:?}");
            let query = query.unwrap_or_default();
            requests.lock().unwrap().push(format!("{path}?{query}"));
            query
        }
    };
    let (note_claude, note_gemini) =
        (note("/v1/models", "x-api-key"), note("/v1beta/models", "x-goog-api-key"));
    let claude = move |RawQuery(query): RawQuery, headers: HeaderMap| async move {
        let second = note_claude(query, &headers).contains("after_id=a%26b");
        let ids: Vec<Value> = claude.iter().map(|id| json!({"id": id, "type": "model"})).collect();
        Json(match second {
            true => json!({"data": ids, "has_more": false, "last_id": "z"}),
            false => json!({"data": [], "has_more": true, "last_id": "a&b"}),
        })
    };
    let gemini = move |RawQuery(query): RawQuery, headers: HeaderMap| async move {
        note_gemini(query, &headers);
        let names: Vec<Value> = gemini.iter().map(|id| json!({"name": format!("models/{id}")})).collect();
        Json(json!({"models": names, "nextPageToken": ""}))
    };
    let router = Router::new().route("/v1/models", get(claude)).route("/v1beta/models", get(gemini));
    (serve(router).await, requests)
}

fn settings(home: &std::path::Path, url: &url::Url, lines: &str) -> Settings {
    std::fs::write(
        home.join(".env"),
        "COUNTERSIGN_WEBHOOK_SECRET=a-secret-of-this-test\nANTHROPIC_API_KEY=sk-of-this-test\nGEMINI_API_KEY=AIzaSyOfThisTest\n",
    )
    .unwrap();
    let text = format!(
        "[app]\nid = 1\nprivate_key_file = \"key.pem\"\n[data]\ndir = \"data\"\n[providers.anthropic]\nbase_url = \"{url}\"\n\
         [providers.gemini]\nbase_url = \"{url}\"\n{lines}"
    );
    let file = home.join("countersign.toml");
    std::fs::write(&file, text).unwrap();
    workflows::load_settings(&file).unwrap()
}

async fn check_lists(url: &url::Url, lines: &str) -> ListCheck {
    let home = tempfile::tempdir().unwrap();
    let settings = settings(home.path(), url, lines);
    let providers = ModelProviders::new(&settings.models, Arc::new(SystemClock)).unwrap();
    providers.check_lists(&settings, Timestamp::parse(NOW).unwrap()).await
}

#[tokio::test]
async fn complete_model_list_causes_no_warning() {
    let claude = &["claude-opus-5-5-20260922", "claude-haiku-5-5", "claude-mythos-9"];
    let (url, requests) = lists(claude, &["gemini-3.1-pro-preview"]).await;
    let found = check_lists(&url, "").await;
    let host = "127.0.0.1".to_owned();
    assert_eq!(found, ListCheck { checked: vec![host.clone(), host], ..ListCheck::default() });
    let pages =
        ["/v1/models?limit=1000", "/v1/models?limit=1000&after_id=a%26b", "/v1beta/models?pageSize=1000"];
    assert_eq!(*requests.lock().unwrap(), pages);
}

#[tokio::test]
async fn unlisted_model_is_reported_with_the_settings_line_to_add() {
    let (url, _) =
        lists(&["claude-opus-6", "claude-haiku-5-5"], &["gemini-4-neon", "gemini-3.8-flash"]).await;
    let found = check_lists(&url, "").await;
    assert_eq!(
        found.warnings,
        [
            "claude:claude-opus-5-5: 127.0.0.1 does not list it. Write under [models]: drafter = \"claude:claude-haiku-5-5\"",
            "gemini:gemini-3.1-pro-preview: 127.0.0.1 does not list it. Write under [models]: reviewer = \
             \"gemini:gemini-4-neon\"",
        ]
    );
    let (url, _) = lists(&["claude-opus-5-5", "claude-haiku-5-5"], &["gemini-5-xenon"]).await;
    let found = check_lists(&url, "").await;
    assert_eq!(
        found.warnings,
        [
            "gemini:gemini-3.1-pro-preview: 127.0.0.1 does not list it. Choose another model; if `countersign models` does \
          not show it, add a [[model]]. It lists gemini-5-xenon …"
        ]
    );
}

#[tokio::test]
async fn model_that_retires_within_sixty_days_is_reported() {
    let gemini = &["gemini-2.5-pro", "gemini-3.8-flash", "gemini-3.5-flash-lite"];
    let (url, _) = lists(&["claude-opus-5-5", "claude-sonnet-5-5", "claude-haiku-5-5"], gemini).await;
    let lines = "[models]\nreviewer = \"gemini:2.5-pro\"\n[pools.p]\nprimary = [\"gemini:2.5-flash\", \"claude:sonnet\"]\n\
                 [route]\nmodel = \"pool:p\"\n";
    let found = check_lists(&url, lines).await;
    assert_eq!(
        found.warnings,
        [
            "gemini:gemini-2.5-flash: 127.0.0.1 does not list it, and its maker ends it on 2026-12-01. Write \
             \"gemini:gemini-3.5-flash-lite\" where \"pool:p\" is defined",
            "gemini:gemini-2.5-pro: its maker ends it on 2026-12-01. Write under [models]: reviewer = \
             \"gemini:gemini-3.8-flash\"",
        ]
    );
}

#[tokio::test]
async fn retirements_are_reported_even_if_a_service_has_no_model_list() {
    let url = serve(Router::new()).await;
    let found = check_lists(&url, "[models]\nreviewer = \"gemini:3-pro-preview\"\n").await;
    assert_eq!(
        found.unchecked,
        [
            "127.0.0.1 does not list its models: 404 Not Found",
            "127.0.0.1 does not list its models: 404 Not Found"
        ]
    );
    assert_eq!(
        found.warnings,
        ["gemini:gemini-3-pro-preview: its maker ended it on 2026-03-09. Write under [models]: reviewer = \
          \"gemini:gemini-3.1-pro-preview\""]
    );
}
