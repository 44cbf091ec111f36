use std::sync::Mutex;

use super::*;
use crate::{
    config::Names,
    providers::{
        checked_provider::CheckedProvider,
        models::ModelCatalog,
        samples::{ModelScript, ModelTestClock, ScriptedProvider},
    },
    store::Store,
    types::Family,
};

/// Pools that share the same scripted models.
struct PoolFixture {
    clock: Arc<ModelTestClock>,
    script: Arc<Mutex<ModelScript>>,
    breakers: Arc<CircuitBreakers>,
    table: Arc<ModelCatalog>,
}

const SEED: [&[&str]; 2] =
    [&["claude:sonnet", "opencode:a/one", "opencode:b/two"], &["claude:opus", "opencode:c/x"]];

impl PoolFixture {
    fn new() -> Self {
        Self {
            clock: Arc::default(),
            script: Arc::default(),
            breakers: Arc::default(),
            table: Arc::default(),
        }
    }

    fn fails(self, model: &str, kinds: &[CallErrorKind]) -> Self {
        self.script.lock().unwrap().failures.insert(model.to_owned(), kinds.iter().cloned().collect());
        self
    }

    fn pool_by(&self, strategy: Strategy, retry: Retry, lists: [&[&str]; 2]) -> ModelPool {
        let clock: SharedClock = Arc::clone(&self.clock) as SharedClock;
        let member = |(at, spec): (usize, &&str)| {
            let (provider, model) = spec.split_once(':').unwrap();
            let name = ["claude", "opencode", "gemini"].into_iter().find(|name| *name == provider).unwrap();
            let back_end = Arc::new(ScriptedProvider {
                name,
                billed: true,
                script: Arc::clone(&self.script),
                clock: Arc::clone(&self.clock),
            });
            let back_end =
                CheckedProvider::wrap(back_end, &self.table, &self.breakers, &Arc::default(), &clock);
            let id = ModelId {
                provider: provider.into(),
                model: model.into(),
                family: Some(Family(provider.into())),
            };
            // Rank in reverse order, so that a sorted list differs from a list in its own order.
            let route = ModelRoute {
                id,
                back_end,
                unfit: None,
                rank: 9 - at as u64,
                turn: Box::new(|| Duration::from_secs(180)),
            };
            PoolMember { spec: (*spec).to_owned(), route: Ok(route) }
        };
        let lists = lists.map(|list| PoolList::new(list.iter().enumerate().map(member).collect(), strategy));
        ModelPool::new("p", lists, retry, Arc::clone(&self.breakers), Arc::clone(&clock))
    }

    fn pool(&self) -> ModelPool {
        self.pool_by(Strategy::RoundRobin, Names::default().pools["default"].retry, SEED)
    }

    /// Builds a pool that tries its members in listed order, with the default retry policy.
    fn listed(&self, lists: [&[&str]; 2]) -> ModelPool {
        self.pool_by(Strategy::Priority, Names::default().pools["default"].retry, lists)
    }

    /// Returns the time and model of each call made since this method was last used.
    fn asked(&self) -> Vec<(i64, String)> {
        std::mem::take(&mut self.script.lock().unwrap().asked)
    }

    fn names(&self) -> Vec<String> {
        self.asked().into_iter().map(|(_, name)| name).collect()
    }
}

fn question() -> ModelCall {
    ModelCall { model: "p".into(), deadline: Duration::from_secs(300), ..crate::providers::samples::call() }
}

async fn ask(pool: &ModelPool) -> Result<ModelReply, CallError> {
    pool.call(&question(), &CancellationToken::new()).await
}

fn limited(seconds: Option<u64>) -> CallErrorKind {
    CallErrorKind::RateLimited { reset: seconds.map(Duration::from_secs) }
}

fn used_up(seconds: u64) -> CallErrorKind {
    CallErrorKind::Quota { reset: Some(Duration::from_secs(seconds)) }
}

const LATE: CallErrorKind = CallErrorKind::Timeout { idle: true, elapsed: Duration::ZERO };
const BROKEN: CallErrorKind = CallErrorKind::InvalidOutput;

fn at(times: &[(i64, &str)]) -> Vec<(i64, String)> {
    times.iter().map(|(time, name)| (*time, (*name).to_owned())).collect()
}

#[tokio::test]
async fn pool_calls_rotate_through_the_primary_models() {
    let fixture = PoolFixture::new();
    let pool = fixture.pool();
    for _ in 0..4 {
        ask(&pool).await.unwrap();
    }
    assert_eq!(fixture.names(), ["claude:sonnet", "opencode:a/one", "opencode:b/two", "claude:sonnet"]);
}

#[tokio::test]
async fn pool_call_tries_at_most_five_models() {
    let mut fixture = PoolFixture::new();
    for model in SEED.concat() {
        fixture = fixture.fails(model, &[BROKEN]);
    }
    let pool = fixture.pool();
    let error = ask(&pool).await.unwrap_err();
    assert_eq!(fixture.names(), SEED.concat(), "three and two");
    assert_eq!((error.kind.clone(), error.earlier_attempts.len()), (BROKEN, 4));
    assert_eq!((error.usage.provider.as_str(), error.usage.asked.as_str()), ("opencode", "c/x"));
    for model in SEED.concat() {
        assert!(error.message.contains(&format!("{model} InvalidOutput: it failed")), "{error}");
    }

    let many = ["claude:1", "claude:2", "claude:3", "claude:4", "claude:5", "claude:6"];
    let mut fixture = PoolFixture::new();
    for model in many {
        fixture = fixture.fails(model, &[BROKEN]);
    }
    ask(&fixture.listed([&many, &[]])).await.unwrap_err();
    assert_eq!(fixture.names().len(), 5);
}

#[tokio::test]
async fn model_timeout_leaves_time_for_the_next_pool_member_and_is_recorded() {
    let fixture = PoolFixture::new().fails("claude:sonnet", &[LATE]);
    let reply = ask(&fixture.pool()).await.unwrap();
    assert_eq!(fixture.asked(), at(&[(0, "claude:sonnet"), (180, "opencode:a/one")]));
    assert_eq!((reply.earlier_attempts.len(), reply.earlier_attempts[0].kind.clone()), (1, LATE));
    assert_eq!((reply.usage.provider.as_str(), reply.usage.asked.as_str()), ("opencode", "a/one"));

    let fixture = PoolFixture::new().fails("claude:sonnet", &[LATE]).fails("opencode:a/one", &[LATE]);
    let error = ask(&fixture.pool()).await.unwrap_err();
    assert_eq!(fixture.clock.seconds(), 300, "the call's time is shared, not multiplied");
    assert!(error.message.ends_with("no time is left for others"), "{error}");
}

#[tokio::test]
async fn rate_limited_model_is_retried_after_a_wait() {
    let fixture = PoolFixture::new().fails("claude:sonnet", &[limited(None)]);
    ask(&fixture.pool()).await.unwrap();
    assert_eq!(fixture.asked(), at(&[(0, "claude:sonnet"), (30, "claude:sonnet")]));

    // After two rate limits the model is in cooldown for every pool.
    let fixture = PoolFixture::new().fails("claude:sonnet", &[limited(None), limited(None)]);
    ask(&fixture.pool()).await.unwrap();
    assert_eq!(fixture.asked(), at(&[(0, "claude:sonnet"), (30, "claude:sonnet"), (30, "opencode:a/one")]));
    ask(&fixture.pool()).await.unwrap();
    assert_eq!(fixture.names(), ["opencode:a/one"]);
    fixture.clock.advance(Duration::from_secs(30));
    ask(&fixture.pool()).await.unwrap();
    assert_eq!(fixture.names(), ["claude:sonnet"]);
}

#[tokio::test]
async fn reset_time_named_by_the_provider_sets_the_cooldown() {
    let fixture = PoolFixture::new().fails("claude:sonnet", &[limited(Some(50))]);
    ask(&fixture.pool()).await.unwrap();
    assert_eq!(fixture.asked(), at(&[(0, "claude:sonnet"), (50, "claude:sonnet")]));

    let fixture = PoolFixture::new().fails("claude:sonnet", &[limited(Some(61))]);
    ask(&fixture.pool()).await.unwrap();
    assert_eq!(fixture.asked(), at(&[(0, "claude:sonnet"), (0, "opencode:a/one")]), "too long to wait for");
    let other = fixture.pool();
    ask(&other).await.unwrap();
    assert_eq!(fixture.names(), ["opencode:a/one"], "and known to every pool");
    fixture.clock.advance(Duration::from_secs(61));
    ask(&fixture.pool()).await.unwrap();
    assert_eq!(fixture.names(), ["claude:sonnet"]);
}

#[tokio::test]
async fn pool_waits_for_the_model_that_recovers_soonest_if_the_wait_is_short() {
    let both: [&[&str]; 2] = [&["claude:a", "claude:b"], &[]];
    let fixture =
        PoolFixture::new().fails("claude:a", &[limited(Some(100))]).fails("claude:b", &[limited(Some(90))]);
    ask(&fixture.listed(both)).await.unwrap();
    assert_eq!(fixture.asked(), at(&[(0, "claude:a"), (0, "claude:b"), (90, "claude:b")]));

    let fixture =
        PoolFixture::new().fails("claude:a", &[limited(Some(800))]).fails("claude:b", &[limited(Some(900))]);
    let error = ask(&fixture.listed(both)).await.unwrap_err();
    assert_eq!(fixture.clock.seconds(), 0, "nobody's worker is held for so long");
    assert_eq!(
        (error.kind, error.earlier_attempts.len()),
        (limited(Some(800)), 1),
        "with all that was tried"
    );
    // Nothing is sent before the reset, and the caller gets the remaining time.
    fixture.asked();
    fixture.clock.advance(Duration::from_secs(300));
    let error = ask(&fixture.listed(both)).await.unwrap_err();
    assert_eq!((error.kind, error.usage.attempts, fixture.names().len()), (limited(Some(500)), 0, 0));
}

#[tokio::test]
async fn no_model_is_retried_after_the_deadline_of_the_call() {
    let lists: [&[&str]; 2] = [&["claude:a", "claude:b"], &[]];
    let fixture = PoolFixture::new().fails("claude:a", &[limited(Some(100))]).fails("claude:b", &[LATE]);
    let pool = fixture.listed(lists);
    ask(&pool).await.unwrap_err();
    assert_eq!(fixture.asked(), at(&[(0, "claude:a"), (0, "claude:b")]));
}

#[tokio::test]
async fn fallback_models_are_used_until_an_exhausted_account_resets() {
    let fixture = PoolFixture::new().fails("claude:sonnet", &[used_up(3600)]);
    let pool = fixture.pool();
    let reply = ask(&pool).await.unwrap();
    // Opus uses the same account as Sonnet.
    assert_eq!(fixture.names(), ["claude:sonnet", "opencode:c/x"]);
    assert_eq!(reply.earlier_attempts[0].kind, used_up(3600));
    for _ in 0..3 {
        ask(&pool).await.unwrap();
    }
    assert_eq!(
        fixture.names(),
        ["opencode:a/one", "opencode:b/two", "opencode:a/one"],
        "the primary list first"
    );
    ask(&fixture.pool()).await.unwrap();
    assert_eq!(fixture.names(), ["opencode:a/one"], "another pool knows");
    fixture.clock.advance(Duration::from_secs(3600));
    ask(&fixture.pool()).await.unwrap();
    assert_eq!(fixture.names(), ["claude:sonnet"], "it is back");
}

#[tokio::test]
async fn pool_skips_an_exhausted_account_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let boot = |clock: &Arc<ModelTestClock>| {
        let store = Store::open(directory.path(), Arc::clone(clock) as SharedClock).unwrap();
        Arc::new(CircuitBreakers::with_store(Some(store)))
    };
    let mut fixture = PoolFixture::new().fails("claude:sonnet", &[used_up(3600)]);
    fixture.breakers = boot(&fixture.clock);
    ask(&fixture.pool()).await.unwrap();
    fixture.asked();
    fixture.breakers = Arc::default();
    fixture.breakers = boot(&fixture.clock);
    ask(&fixture.pool()).await.unwrap();
    assert_eq!(fixture.names(), ["opencode:a/one"]);
}

#[tokio::test]
async fn capacity_error_starts_no_cooldown() {
    let fixture = PoolFixture::new().fails("claude:sonnet", &[CallErrorKind::Capacity]);
    let pool = fixture.pool();
    ask(&pool).await.unwrap();
    assert_eq!(fixture.names(), ["claude:sonnet", "opencode:a/one"]);
    ask(&fixture.pool()).await.unwrap();
    assert_eq!(fixture.names(), ["claude:sonnet"], "nothing cools");
}

#[tokio::test]
async fn pool_call_waits_between_retries_as_the_retry_preset_says() {
    let seconds = Duration::from_secs;
    let fixed = Retry { wait: seconds(60), doubled: false, same_model: 1 };
    let aggressive = Retry { wait: seconds(15), doubled: true, same_model: 3 };
    let gentle = Retry { wait: seconds(120), doubled: false, same_model: 0 };
    let first = "claude:a";
    for (retry, expected) in [
        (fixed, at(&[(0, first), (60, first), (60, "claude:b")])),
        (aggressive, at(&[(0, first), (15, first), (45, first), (105, first), (105, "claude:b")])),
        (gentle, at(&[(0, first), (0, "claude:b")])),
    ] {
        let fixture =
            PoolFixture::new().fails(first, &[limited(None), limited(None), limited(None), limited(None)]);
        ask(&fixture.pool_by(Strategy::Priority, retry, [&[first, "claude:b"], &[]])).await.unwrap();
        assert_eq!(fixture.asked(), expected);
    }
    // A single model is waited for even with the gentle policy.
    let fixture = PoolFixture::new().fails(first, &[limited(None)]);
    ask(&fixture.pool_by(Strategy::Priority, gentle, [&[first], &[]])).await.unwrap();
    assert_eq!(fixture.asked(), at(&[(0, first), (120, first)]));
}

#[tokio::test]
async fn pool_strategy_decides_which_model_is_tried_first() {
    let lists: [&[&str]; 2] = [&["claude:a", "claude:b", "claude:c"], &[]];
    for (strategy, first) in [
        (Strategy::Priority, "claude:a"),
        // The fixture ranks members in reverse order.
        (Strategy::Cheapest, "claude:c"),
        (Strategy::Capability, "claude:c"),
    ] {
        let fixture = PoolFixture::new();
        let pool = fixture.pool_by(strategy, Names::default().pools["default"].retry, lists);
        ask(&pool).await.unwrap();
        ask(&pool).await.unwrap();
        assert_eq!(fixture.names(), [first, first], "{strategy}");
    }
}

#[tokio::test]
async fn refusal_or_truncation_is_not_retried_on_another_model() {
    for kind in [CallErrorKind::Refused, CallErrorKind::Truncated, CallErrorKind::Cancelled] {
        let fixture = PoolFixture::new()
            .fails("claude:sonnet", &[BROKEN])
            .fails("opencode:a/one", std::slice::from_ref(&kind));
        let error = ask(&fixture.pool()).await.unwrap_err();
        assert_eq!((error.kind, error.earlier_attempts.len(), fixture.names().len()), (kind, 1, 2));
    }
}

#[tokio::test]
async fn pool_skips_models_of_an_excluded_family() {
    let fixture = PoolFixture::new();
    let pool = fixture.pool();
    let call = ModelCall { excluded_families: vec![Family("opencode".into())], ..question() };
    for _ in 0..2 {
        pool.call(&call, &CancellationToken::new()).await.unwrap();
    }
    assert_eq!(fixture.names(), ["claude:sonnet", "claude:sonnet"]);
    let both = vec![Family("opencode".into()), Family("claude".into())];
    let call = ModelCall { excluded_families: both, role: CallRole::Reviewer, ..question() };
    let error = pool.call(&call, &CancellationToken::new()).await.unwrap_err();
    assert!(error.message.contains("claude:opus: skipped, the claude family contributed to"), "{error}");
    assert_eq!((error.kind, fixture.names().len()), (CallErrorKind::Unavailable, 0));
}

#[tokio::test]
async fn repeatedly_failing_model_is_skipped_until_its_cooldown_ends() {
    let alone: [&[&str]; 2] = [&["claude:a", "claude:b"], &[]];
    let fixture = PoolFixture::new().fails("claude:a", &[LATE, LATE]);
    let pool = fixture.listed(alone);
    for _ in 0..3 {
        ask(&pool).await.unwrap();
    }
    assert_eq!(fixture.names(), ["claude:a", "claude:b", "claude:a", "claude:b", "claude:b"]);
    fixture.clock.advance(limits::BREAKER_COOLDOWN);
    ask(&pool).await.unwrap();
    assert_eq!(fixture.names(), ["claude:a"]);
}

#[tokio::test]
async fn pool_call_fails_at_once_when_its_prompt_exceeds_every_members_context() {
    let fixture = PoolFixture::new();
    let lists: [&[&str]; 2] = [&["claude:claude-opus-4-6"], &["claude:claude-haiku-4-5"]];
    let pool = fixture.listed(lists);
    let call = ModelCall { prompt: "x".repeat(3_000_000), ..question() };
    let error = pool.call(&call, &CancellationToken::new()).await.unwrap_err();
    assert_eq!((error.kind, error.usage.attempts, fixture.names().len()), (CallErrorKind::TooLong, 0, 0));
}

#[tokio::test]
async fn all_attempts_of_a_pool_call_share_the_reserved_budget() {
    let (opus, haiku) = ("claude:claude-opus-4-6", "claude:claude-haiku-4-5");
    // 100,000 output tokens at 25 dollars per million, plus the prompt.
    let opuses = 2_501_607;
    for (kind, paid, next, left) in [
        (BROKEN, Some(1000), opus, None),
        (BROKEN, Some(1000), haiku, Some(opuses - 25_000)),
        (CallErrorKind::Capacity, None, opus, Some(opuses)),
        // The final cost of a timed-out call is unknown.
        (LATE, None, haiku, None),
    ] {
        let first = if next == opus { haiku } else { opus };
        let fixture = PoolFixture::new().fails(first, std::slice::from_ref(&kind)).fails(next, &[]);
        let served = first.split_once(':').unwrap().1.to_owned();
        fixture.script.lock().unwrap().paid = paid.map(|tokens| (served, tokens));
        let pool = fixture.listed([&[first], &[next]]);
        let held = pool.estimate(&question()).most.0;
        assert_eq!(held, opuses);
        let call = ModelCall { budget: Some(held), ..question() };
        let outcome = pool.call(&call, &CancellationToken::new()).await;
        let budgets = std::mem::take(&mut fixture.script.lock().unwrap().budgets);
        assert_eq!(budgets.get(1).copied().flatten(), left, "{first} {kind:?}");
        assert_eq!(outcome.is_ok(), left.is_some());
    }
}

#[tokio::test]
async fn pool_member_with_too_small_a_context_window_is_skipped() {
    let fixture = PoolFixture::new();
    let lists: [&[&str]; 2] = [&["claude:claude-opus-4-6"], &["gemini:gemini-2.5-pro"]];
    let pool = fixture.listed(lists);
    // Below opus's context window, but too long together with its answer.
    let call = ModelCall { prompt: "x".repeat(2_900_000), ..question() };
    pool.call(&call, &CancellationToken::new()).await.unwrap();
    assert_eq!(fixture.names(), ["gemini:gemini-2.5-pro"]);
}

#[tokio::test]
async fn waits_for_rate_limits_use_at_most_half_of_the_pool_call_deadline() {
    let alone: [&[&str]; 2] = [&["claude:a"], &[]];
    for (seconds, answered) in [(150, true), (151, false)] {
        let fixture = PoolFixture::new().fails("claude:a", &[limited(Some(seconds))]);
        let outcome = ask(&fixture.listed(alone)).await;
        assert_eq!(outcome.is_ok(), answered, "{seconds}");
    }
}

#[tokio::test]
async fn pool_estimate_ignores_members_that_cannot_serve_the_role() {
    let fixture = PoolFixture::new();
    let lists: [&[&str]; 2] = [&["claude:claude-opus-4-6"], &["claude:claude-haiku-4-5"]];
    let mut pool = fixture.listed(lists);
    let most = |pool: &ModelPool| pool.estimate(&question()).most.0;
    assert_eq!(most(&pool), 2_501_607);
    if let Ok(route) = &mut pool.lists[0].members[0].route {
        route.unfit = Some((CallRole::Drafter, "it only reviews"));
    }
    assert_eq!(most(&pool), 320_322);
}

#[tokio::test]
async fn pool_deadline_does_not_include_time_spent_in_the_queue() {
    let fixture = PoolFixture::new().fails("claude:a", &[BROKEN]);
    fixture.script.lock().unwrap().queued = Duration::from_secs(600);
    let lists: [&[&str]; 2] = [&["claude:a", "claude:b"], &[]];
    let pool = fixture.listed(lists);
    ask(&pool).await.unwrap();
    assert_eq!(fixture.asked(), at(&[(0, "claude:a"), (600, "claude:b")]));
}
