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

/// Pools over the same scripted models.
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
            // The later, the lower: so that a list in its own order is told from one that is sorted.
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

    /// Asked as listed, and waited for as usual.
    fn listed(&self, lists: [&[&str]; 2]) -> ModelPool {
        self.pool_by(Strategy::Priority, Names::default().pools["default"].retry, lists)
    }

    /// Who was asked since the last look, and when.
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
async fn the_primary_ones_take_turns() {
    let room = PoolFixture::new();
    let pool = room.pool();
    for _ in 0..4 {
        ask(&pool).await.unwrap();
    }
    assert_eq!(room.names(), ["claude:sonnet", "opencode:a/one", "opencode:b/two", "claude:sonnet"]);
}

#[tokio::test]
async fn whoever_fails_is_followed_by_the_next_up_to_five_and_one_error_names_all() {
    let mut room = PoolFixture::new();
    for model in SEED.concat() {
        room = room.fails(model, &[BROKEN]);
    }
    let pool = room.pool();
    let error = ask(&pool).await.unwrap_err();
    assert_eq!(room.names(), SEED.concat(), "three and two");
    assert_eq!((error.kind.clone(), error.earlier_attempts.len()), (BROKEN, 4));
    assert_eq!((error.usage.provider.as_str(), error.usage.asked.as_str()), ("opencode", "c/x"));
    for model in SEED.concat() {
        assert!(error.message.contains(&format!("{model} InvalidOutput: it failed")), "{error}");
    }

    let many = ["claude:1", "claude:2", "claude:3", "claude:4", "claude:5", "claude:6"];
    let mut room = PoolFixture::new();
    for model in many {
        room = room.fails(model, &[BROKEN]);
    }
    ask(&room.listed([&many, &[]])).await.unwrap_err();
    assert_eq!(room.names().len(), 5);
}

#[tokio::test]
async fn a_timeout_leaves_time_for_the_next_and_is_in_the_books() {
    let room = PoolFixture::new().fails("claude:sonnet", &[LATE]);
    let reply = ask(&room.pool()).await.unwrap();
    assert_eq!(room.asked(), at(&[(0, "claude:sonnet"), (180, "opencode:a/one")]));
    assert_eq!((reply.earlier_attempts.len(), reply.earlier_attempts[0].kind.clone()), (1, LATE));
    assert_eq!((reply.usage.provider.as_str(), reply.usage.asked.as_str()), ("opencode", "a/one"));

    let room = PoolFixture::new().fails("claude:sonnet", &[LATE]).fails("opencode:a/one", &[LATE]);
    let error = ask(&room.pool()).await.unwrap_err();
    assert_eq!(room.clock.seconds(), 300, "the call's time is shared, not multiplied");
    assert!(error.message.ends_with("no time is left for others"), "{error}");
}

#[tokio::test]
async fn a_rate_limit_is_sat_out_in_the_same_list() {
    let room = PoolFixture::new().fails("claude:sonnet", &[limited(None)]);
    ask(&room.pool()).await.unwrap();
    assert_eq!(room.asked(), at(&[(0, "claude:sonnet"), (30, "claude:sonnet")]));

    // Twice is enough for one model: it is left alone, by every pool.
    let room = PoolFixture::new().fails("claude:sonnet", &[limited(None), limited(None)]);
    ask(&room.pool()).await.unwrap();
    assert_eq!(room.asked(), at(&[(0, "claude:sonnet"), (30, "claude:sonnet"), (30, "opencode:a/one")]));
    ask(&room.pool()).await.unwrap();
    assert_eq!(room.names(), ["opencode:a/one"]);
    room.clock.advance(Duration::from_secs(30));
    ask(&room.pool()).await.unwrap();
    assert_eq!(room.names(), ["claude:sonnet"]);
}

#[tokio::test]
async fn a_time_that_the_provider_names_wins() {
    let room = PoolFixture::new().fails("claude:sonnet", &[limited(Some(50))]);
    ask(&room.pool()).await.unwrap();
    assert_eq!(room.asked(), at(&[(0, "claude:sonnet"), (50, "claude:sonnet")]));

    let room = PoolFixture::new().fails("claude:sonnet", &[limited(Some(61))]);
    ask(&room.pool()).await.unwrap();
    assert_eq!(room.asked(), at(&[(0, "claude:sonnet"), (0, "opencode:a/one")]), "too long to wait for");
    let other = room.pool();
    ask(&other).await.unwrap();
    assert_eq!(room.names(), ["opencode:a/one"], "and known to every pool");
    room.clock.advance(Duration::from_secs(61));
    ask(&room.pool()).await.unwrap();
    assert_eq!(room.names(), ["claude:sonnet"]);
}

#[tokio::test]
async fn when_all_rest_the_first_is_waited_for_if_that_is_soon() {
    let both: [&[&str]; 2] = [&["claude:a", "claude:b"], &[]];
    let room =
        PoolFixture::new().fails("claude:a", &[limited(Some(100))]).fails("claude:b", &[limited(Some(90))]);
    ask(&room.listed(both)).await.unwrap();
    assert_eq!(room.asked(), at(&[(0, "claude:a"), (0, "claude:b"), (90, "claude:b")]));

    let room =
        PoolFixture::new().fails("claude:a", &[limited(Some(800))]).fails("claude:b", &[limited(Some(900))]);
    let error = ask(&room.listed(both)).await.unwrap_err();
    assert_eq!(room.clock.seconds(), 0, "nobody's worker is held for so long");
    assert_eq!(
        (error.kind, error.earlier_attempts.len()),
        (limited(Some(800)), 1),
        "with all that was tried"
    );
    // Nobody is sent anything before that, and the caller is told the same.
    room.asked();
    room.clock.advance(Duration::from_secs(300));
    let error = ask(&room.listed(both)).await.unwrap_err();
    assert_eq!((error.kind, error.usage.attempts, room.names().len()), (limited(Some(500)), 0, 0));
}

#[tokio::test]
async fn a_call_whose_time_is_up_asks_nobody_who_rested_meanwhile() {
    let lists: [&[&str]; 2] = [&["claude:a", "claude:b"], &[]];
    let room = PoolFixture::new().fails("claude:a", &[limited(Some(100))]).fails("claude:b", &[LATE]);
    let pool = room.listed(lists);
    ask(&pool).await.unwrap_err();
    assert_eq!(room.asked(), at(&[(0, "claude:a"), (0, "claude:b")]));
}

#[tokio::test]
async fn an_account_that_is_used_up_is_left_for_the_fallback_in_every_pool_and_come_back_to() {
    let room = PoolFixture::new().fails("claude:sonnet", &[used_up(3600)]);
    let pool = room.pool();
    let reply = ask(&pool).await.unwrap();
    // Opus is paid for by the same login.
    assert_eq!(room.names(), ["claude:sonnet", "opencode:c/x"]);
    assert_eq!(reply.earlier_attempts[0].kind, used_up(3600));
    for _ in 0..3 {
        ask(&pool).await.unwrap();
    }
    assert_eq!(
        room.names(),
        ["opencode:a/one", "opencode:b/two", "opencode:a/one"],
        "the primary list first"
    );
    ask(&room.pool()).await.unwrap();
    assert_eq!(room.names(), ["opencode:a/one"], "another pool knows");
    room.clock.advance(Duration::from_secs(3600));
    ask(&room.pool()).await.unwrap();
    assert_eq!(room.names(), ["claude:sonnet"], "it is back");
}

#[tokio::test]
async fn a_restart_does_not_forget_an_account() {
    let directory = tempfile::tempdir().unwrap();
    let boot = |clock: &Arc<ModelTestClock>| {
        let store = Store::open(directory.path(), Arc::clone(clock) as SharedClock).unwrap();
        Arc::new(CircuitBreakers::with_store(Some(store)))
    };
    let mut room = PoolFixture::new().fails("claude:sonnet", &[used_up(3600)]);
    room.breakers = boot(&room.clock);
    ask(&room.pool()).await.unwrap();
    room.asked();
    room.breakers = Arc::default();
    room.breakers = boot(&room.clock);
    ask(&room.pool()).await.unwrap();
    assert_eq!(room.names(), ["opencode:a/one"]);
}

#[tokio::test]
async fn capacity_is_no_quota() {
    let room = PoolFixture::new().fails("claude:sonnet", &[CallErrorKind::Capacity]);
    let pool = room.pool();
    ask(&pool).await.unwrap();
    assert_eq!(room.names(), ["claude:sonnet", "opencode:a/one"]);
    ask(&room.pool()).await.unwrap();
    assert_eq!(room.names(), ["claude:sonnet"], "nothing cools");
}

#[tokio::test]
async fn the_presets_wait_as_they_say() {
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
        let room =
            PoolFixture::new().fails(first, &[limited(None), limited(None), limited(None), limited(None)]);
        ask(&room.pool_by(Strategy::Priority, retry, [&[first, "claude:b"], &[]])).await.unwrap();
        assert_eq!(room.asked(), expected);
    }
    // Alone, the gentle one has nobody to turn to.
    let room = PoolFixture::new().fails(first, &[limited(None)]);
    ask(&room.pool_by(Strategy::Priority, gentle, [&[first], &[]])).await.unwrap();
    assert_eq!(room.asked(), at(&[(0, first), (120, first)]));
}

#[tokio::test]
async fn the_strategy_says_who_is_first() {
    let lists: [&[&str]; 2] = [&["claude:a", "claude:b", "claude:c"], &[]];
    for (strategy, first) in [
        (Strategy::Priority, "claude:a"),
        // Ranked from the last to the first.
        (Strategy::Cheapest, "claude:c"),
        (Strategy::Capability, "claude:c"),
    ] {
        let room = PoolFixture::new();
        let pool = room.pool_by(strategy, Names::default().pools["default"].retry, lists);
        ask(&pool).await.unwrap();
        ask(&pool).await.unwrap();
        assert_eq!(room.names(), [first, first], "{strategy}");
    }
}

#[tokio::test]
async fn what_a_model_itself_did_is_not_shopped_for_elsewhere() {
    for kind in [CallErrorKind::Refused, CallErrorKind::Truncated, CallErrorKind::Cancelled] {
        let room = PoolFixture::new()
            .fails("claude:sonnet", &[BROKEN])
            .fails("opencode:a/one", std::slice::from_ref(&kind));
        let error = ask(&room.pool()).await.unwrap_err();
        assert_eq!((error.kind, error.earlier_attempts.len(), room.names().len()), (kind, 1, 2));
    }
}

#[tokio::test]
async fn a_family_that_had_a_hand_in_it_is_not_asked() {
    let room = PoolFixture::new();
    let pool = room.pool();
    let call = ModelCall { excluded_families: vec![Family("opencode".into())], ..question() };
    for _ in 0..2 {
        pool.call(&call, &CancellationToken::new()).await.unwrap();
    }
    assert_eq!(room.names(), ["claude:sonnet", "claude:sonnet"]);
    let both = vec![Family("opencode".into()), Family("claude".into())];
    let call = ModelCall { excluded_families: both, role: CallRole::Reviewer, ..question() };
    let error = pool.call(&call, &CancellationToken::new()).await.unwrap_err();
    assert!(error.message.contains("claude:opus: skipped, the claude family had a hand in"), "{error}");
    assert_eq!((error.kind, room.names().len()), (CallErrorKind::Unavailable, 0));
}

#[tokio::test]
async fn whoever_fails_again_and_again_is_left_alone_for_a_while() {
    let alone: [&[&str]; 2] = [&["claude:a", "claude:b"], &[]];
    let room = PoolFixture::new().fails("claude:a", &[LATE, LATE]);
    let pool = room.listed(alone);
    for _ in 0..3 {
        ask(&pool).await.unwrap();
    }
    assert_eq!(room.names(), ["claude:a", "claude:b", "claude:a", "claude:b", "claude:b"]);
    room.clock.advance(limits::BREAKER_COOLDOWN);
    ask(&pool).await.unwrap();
    assert_eq!(room.names(), ["claude:a"]);
}

#[tokio::test]
async fn a_prompt_that_fits_nobody_is_not_waited_with() {
    let room = PoolFixture::new();
    let lists: [&[&str]; 2] = [&["claude:claude-opus-4-6"], &["claude:claude-haiku-4-5"]];
    let pool = room.listed(lists);
    let call = ModelCall { prompt: "x".repeat(3_000_000), ..question() };
    let error = pool.call(&call, &CancellationToken::new()).await.unwrap_err();
    assert_eq!((error.kind, error.usage.attempts, room.names().len()), (CallErrorKind::TooLong, 0, 0));
}

#[tokio::test]
async fn all_attempts_together_spend_no_more_than_was_held_back() {
    let (opus, haiku) = ("claude:claude-opus-4-6", "claude:claude-haiku-4-5");
    // 100,000 tokens of an answer at 25 dollars a million, and the question.
    let opuses = 2_501_607;
    for (kind, paid, next, left) in [
        (BROKEN, Some(1000), opus, None),
        (BROKEN, Some(1000), haiku, Some(opuses - 25_000)),
        (CallErrorKind::Capacity, None, opus, Some(opuses)),
        // Whoever gave up waiting does not know what it costs in the end.
        (LATE, None, haiku, None),
    ] {
        let first = if next == opus { haiku } else { opus };
        let room = PoolFixture::new().fails(first, std::slice::from_ref(&kind)).fails(next, &[]);
        let served = first.split_once(':').unwrap().1.to_owned();
        room.script.lock().unwrap().paid = paid.map(|tokens| (served, tokens));
        let pool = room.listed([&[first], &[next]]);
        let held = pool.estimate(&question()).most.0;
        assert_eq!(held, opuses);
        let call = ModelCall { budget: Some(held), ..question() };
        let outcome = pool.call(&call, &CancellationToken::new()).await;
        let budgets = std::mem::take(&mut room.script.lock().unwrap().budgets);
        assert_eq!(budgets.get(1).copied().flatten(), left, "{first} {kind:?}");
        assert_eq!(outcome.is_ok(), left.is_some());
    }
}

#[tokio::test]
async fn a_member_without_room_for_the_prompt_is_not_asked() {
    let room = PoolFixture::new();
    let lists: [&[&str]; 2] = [&["claude:claude-opus-4-6"], &["gemini:gemini-2.5-pro"]];
    let pool = room.listed(lists);
    // Less than opus reads in all by any measure, and more than it has room for beside its answer.
    let call = ModelCall { prompt: "x".repeat(2_900_000), ..question() };
    pool.call(&call, &CancellationToken::new()).await.unwrap();
    assert_eq!(room.names(), ["gemini:gemini-2.5-pro"]);
}

#[tokio::test]
async fn half_of_the_time_is_kept_for_the_answer() {
    let alone: [&[&str]; 2] = [&["claude:a"], &[]];
    for (seconds, answered) in [(150, true), (151, false)] {
        let room = PoolFixture::new().fails("claude:a", &[limited(Some(seconds))]);
        let outcome = ask(&room.listed(alone)).await;
        assert_eq!(outcome.is_ok(), answered, "{seconds}");
    }
}

#[tokio::test]
async fn nothing_is_held_back_for_whoever_is_not_asked() {
    let room = PoolFixture::new();
    let lists: [&[&str]; 2] = [&["claude:claude-opus-4-6"], &["claude:claude-haiku-4-5"]];
    let mut pool = room.listed(lists);
    let most = |pool: &ModelPool| pool.estimate(&question()).most.0;
    assert_eq!(most(&pool), 2_501_607);
    if let Ok(route) = &mut pool.lists[0].members[0].route {
        route.unfit = Some((CallRole::Drafter, "it only reviews"));
    }
    assert_eq!(most(&pool), 320_322);
}

#[tokio::test]
async fn waiting_for_a_place_is_no_part_of_the_time() {
    let room = PoolFixture::new().fails("claude:a", &[BROKEN]);
    room.script.lock().unwrap().queued = Duration::from_secs(600);
    let lists: [&[&str]; 2] = [&["claude:a", "claude:b"], &[]];
    let pool = room.listed(lists);
    ask(&pool).await.unwrap();
    assert_eq!(room.asked(), at(&[(0, "claude:a"), (600, "claude:b")]));
}
