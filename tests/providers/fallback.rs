//! Tests of the fallback from the Claude program to Anthropic's API.

use std::{
    future::Future,
    os::unix::fs::PermissionsExt,
    path::Path,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use countersign::{
    clock::{Clock, SharedClock},
    config::ModelSettings,
    providers::{CallError, CallErrorKind, ModelProviders, ModelReply},
    store::Store,
    types::Timestamp,
};
use tokio_util::sync::CancellationToken;

use crate::{anthropic::Behaviour, claude_api::served, question};

/// Clock that advances only when the test advances it.
#[derive(Default)]
struct ManualClock(AtomicI64);

impl ManualClock {
    fn forward(&self, seconds: i64) {
        self.0.fetch_add(seconds * 1000, Ordering::Relaxed);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::Relaxed))
    }

    fn sleep(&self, _: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(std::future::pending())
    }
}

/// Installs a Claude program that reports a supported version but fails every call.
pub(crate) fn with_broken_program(settings: &mut ModelSettings, directory: &Path) {
    let program = directory.join("opt/claude");
    std::fs::create_dir(directory.join("opt")).unwrap();
    std::fs::write(&program, "#!/bin/sh\n[ \"$1\" = --version ] && echo 2.1.329\n").unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    settings.claude.path = Some(program);
    settings.claude.base_url = Some("http://127.0.0.1:1".parse().unwrap());
    settings.claude.config_dir = directory.join("claude");
}

async fn ask(providers: &ModelProviders) -> Result<ModelReply, CallError> {
    let (provider, id) = providers.resolve("claude:opus").unwrap();
    provider.call(&question(&id.model), &CancellationToken::new()).await
}

fn providers(settings: &ModelSettings, clock: &Arc<ManualClock>) -> ModelProviders {
    ModelProviders::new(settings, Arc::clone(clock) as SharedClock).unwrap()
}

#[tokio::test]
async fn api_is_called_when_the_claude_program_is_missing_or_fails() {
    let directory = tempfile::tempdir().unwrap();
    let (mut settings, api) = served(Behaviour::Text { served: None }).await;
    let clock = Arc::new(ManualClock::default());
    settings.claude.path = Some(directory.path().join("claude"));
    let reply = ask(&providers(&settings, &clock)).await.unwrap();
    assert_eq!((reply.text.as_str(), reply.usage.billed), ("It is sound.", true));
    assert_eq!(reply.earlier_attempts.len(), 1);
    assert_eq!(
        (reply.earlier_attempts[0].usage.provider.as_str(), reply.earlier_attempts[0].usage.attempts),
        ("claude", 0)
    );
    assert!(reply.earlier_attempts[0].message.starts_with("claude: skipped, the Claude CLI was not found"));

    with_broken_program(&mut settings, directory.path());
    let reply = ask(&providers(&settings, &clock)).await.unwrap();
    let first = &reply.earlier_attempts[0];
    assert_eq!((first.kind.clone(), first.usage.attempts), (CallErrorKind::Unavailable, 1));
    assert!(!first.usage.billed);
    assert_eq!(reply.usage.cost_microusd, Some(1000 * 4 + 50 * 20), "priced like any other call");
    assert_eq!(api.requests().len(), 2);
}

#[tokio::test]
async fn error_mentions_both_the_claude_program_and_the_api_when_both_fail() {
    let directory = tempfile::tempdir().unwrap();
    let (mut settings, _) = served(Behaviour::Error(401, "authentication_error", None)).await;
    with_broken_program(&mut settings, directory.path());
    let error = ask(&providers(&settings, &Arc::new(ManualClock::default()))).await.unwrap_err();
    assert_eq!(error.kind, CallErrorKind::Auth);
    let message = error.to_string();
    assert!(
        message.starts_with("claude: ") && message.contains("; anthropic: request req_7: 401"),
        "{message}"
    );
    assert_eq!(
        (error.earlier_attempts.len(), error.earlier_attempts[0].usage.provider.as_str()),
        (1, "claude")
    );
    assert!(error.usage.billed && !error.earlier_attempts[0].usage.billed);
}

#[tokio::test]
async fn api_is_not_called_without_a_key() {
    let directory = tempfile::tempdir().unwrap();
    let (mut settings, api) = served(Behaviour::Text { served: None }).await;
    settings.anthropic.api_key = None;
    with_broken_program(&mut settings, directory.path());
    let error = ask(&providers(&settings, &Arc::new(ManualClock::default()))).await.unwrap_err();
    assert_eq!(error.kind, CallErrorKind::Unavailable);
    assert!(error.earlier_attempts.is_empty() && api.requests().is_empty());
}

#[tokio::test]
async fn claude_program_is_skipped_after_repeated_failures_even_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let (mut settings, _) = served(Behaviour::Text { served: None }).await;
    with_broken_program(&mut settings, directory.path());
    let clock = Arc::new(ManualClock::default());
    let boot = || {
        let clock = Arc::clone(&clock) as SharedClock;
        let store = Store::open(&directory.path().join("data"), Arc::clone(&clock)).unwrap();
        ModelProviders::with_store(&settings, store, clock).unwrap()
    };
    let skipped = async |providers: &ModelProviders| {
        ask(providers).await.unwrap().earlier_attempts[0].message.contains("skipped, it failed repeatedly")
    };
    let before = boot();
    assert!(!skipped(&before).await && !skipped(&before).await, "two failures make an outage");
    assert!(skipped(&before).await);
    drop(before);

    let after = boot();
    clock.forward(59);
    assert!(skipped(&after).await, "a restart forgets nothing");
    clock.forward(1);
    let (one, other) = tokio::join!(skipped(&after), skipped(&after));
    assert!(one != other, "exactly one call tries the program again");
    assert!(skipped(&after).await, "that call failed, so the program is skipped again");
}
