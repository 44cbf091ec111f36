//! The crash matrix. During one run of each scenario, the data are copied after each commit, write, call and act, in
//! the state that a kill would leave. Each copy is resumed on its own and compared with the run that was not killed.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
        mpsc::{Receiver, channel},
    },
    thread,
    time::{Duration, Instant},
};

use countersign::{
    engine::{CallStatus, RunFilter, RunLedger, RunViewStatus},
    localhub::Hub,
    types::MicroUsd,
};

use crate::{
    models::{Models, READ, REVIEW},
    points::{Moment, Point, Recorder, Sample},
    random::Random,
    scenarios::{self, Scenario, Thread, Turn},
    script,
    seen::seen,
    world::{Setting, World},
};

/// Name of the workflow whose changes are built and tested.
const CODE: &str = "implement";

/// Time from a kill to the next start.
const DOWNTIME: Duration = Duration::from_secs(7);

/// Result of the run that was not killed.
pub(crate) struct Baseline {
    pub(crate) seen: String,
    pub(crate) calls: usize,
    /// Steps that the run went through, by their stored names.
    steps: BTreeSet<String>,
}

/// Result of a run that was killed at one point and resumed.
pub(crate) struct Resumed {
    number: usize,
    moment: Moment,
    /// Stored name of the step that the run was in at the kill. `None` if the run had not started.
    step: Option<String>,
    seen: String,
    /// Total number of paid calls, before and after the kill.
    calls: usize,
    pub(crate) totals: LedgerTotals,
    /// Description of a spending error found after the kill or at the end.
    overspent: Option<String>,
    /// Number of input tokens that the ledger should contain: the tokens recorded at the kill plus the tokens of all
    /// later calls.
    read: u64,
}

/// Totals over all calls in the ledgers.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct LedgerTotals {
    /// Number of calls with a recorded outcome.
    pub(crate) settled: usize,
    /// Number of calls whose outcome is unknown.
    pub(crate) lost: usize,
    /// Number of calls still in progress.
    reserved: usize,
    /// Number of input tokens that the models reported.
    pub(crate) read: u64,
}

impl LedgerTotals {
    pub(crate) async fn of(w: &World) -> Self {
        let calls: Vec<_> = ledgers(w).await.into_iter().flat_map(|ledger| ledger.calls).collect();
        let count = |status| calls.iter().filter(|row| row.status == status).count();
        Self {
            settled: count(CallStatus::Done) + count(CallStatus::Failed),
            lost: count(CallStatus::Lost),
            reserved: count(CallStatus::Reserved),
            read: calls.iter().map(|row| row.input_tokens).sum(),
        }
    }

    /// Returns a description of how the totals differ from the calls that the models received; `None` if they match.
    /// `read` is the number of input tokens that these calls are known to have used.
    pub(crate) fn mismatch(&self, calls_made: usize, read: u64) -> Option<String> {
        let Self { settled, lost, reserved, .. } = *self;
        let right = (settled..=settled + lost).contains(&calls_made) && reserved == 0 && self.read == read;
        (!right).then(|| format!("{calls_made} calls asked, {read} tokens read, but the ledger has {self:?}"))
    }
}

/// Returns the ledger of every run.
async fn ledgers(w: &World) -> Vec<RunLedger> {
    let db = w.app.store.repository_database(w.repo).await.unwrap();
    let runs = db.runs(RunFilter { repo: Some(w.repo), issue: None, live_only: false }).await.unwrap();
    let mut ledgers = Vec::new();
    for run in runs {
        ledgers.push(db.ledger(run.id).await.unwrap());
    }
    ledgers
}

/// Returns a description of spending or reservations that do not fit this number of reviews; `None` if everything fits.
async fn overspent(w: &World, scenario: &Scenario, reviews: usize) -> Option<String> {
    let ledgers = ledgers(w).await;
    let of = |ledger: &RunLedger| ledger.calls.iter().map(|row| row.shared_cap_amount().0).sum::<u64>();
    let cap = |ledger: &RunLedger| scenario.cap + ledger.raises.iter().map(|row| row.amount.0).sum::<u64>();
    let counted: u64 = ledgers.iter().map(of).sum();
    let raises: usize = ledgers.iter().map(|ledger| ledger.raises.len()).sum();
    let sum = "SELECT CAST(COALESCE(SUM(microusd), 0) AS BIGINT) FROM spend";
    let shared = w.number(None, sum).unsigned_abs();
    let cost = reviews as u64 * REVIEW;
    // The shared total is stored before a run's own ledger, so it is never lower.
    let of_run = |ledger: &RunLedger| ledger.calls.iter().map(|row| row.run_cap_amount().0).sum::<u64>();
    let within = ledgers.iter().all(|ledger| of_run(ledger) <= cap(ledger));
    let right = cost <= counted.max(shared) && counted <= shared && within && raises <= 1;
    (!right).then(|| {
        format!("{reviews} reviews cost {cost}; ledgers have {counted}, the shared total {shared}; within budgets: {within}")
    })
}

pub(crate) fn runtime() -> tokio::runtime::Runtime {
    // As in a server: each step commits on its own thread.
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// Lets people act and the bot work until the scenario is finished.
pub(crate) async fn play(w: &mut World, scenario: &Scenario, acted: impl Fn(&'static str)) {
    for _ in 0..200 {
        w.settle().await;
        // Test commands run in real time, not by the world's clock.
        while scenario.workflow == CODE
            && w.run().await.is_some_and(|run| run.status == RunViewStatus::Waiting)
        {
            tokio::time::sleep(Duration::from_millis(100)).await;
            w.pass(10);
            w.settle().await;
        }
        let running = w.run().await.is_some_and(|run| run.status.is_live());
        match scenario.turn(&thread_of(w)) {
            Turn::Person(act) => {
                w.pass(60);
                (act.act)(&thread_of(w));
                acted(act.what);
            }
            // Waits for late events.
            Turn::Over if !running => return w.wait(120).await,
            _ => w.pass(15),
        }
    }
    panic!("the scenario does not finish:\n{}", w.thread());
}

fn thread_of(w: &World) -> Thread<'_> {
    Thread { hub: &w.hub, repo: w.repo, issue: w.issue }
}

/// Creates a test environment with default settings and models that cost money.
pub(crate) async fn world(models: &Models, key: &str) -> World {
    World::new(setting(models, key)).await
}

pub(crate) fn setting(models: &Models, key: &str) -> Setting {
    let (toml, env) = (models.toml(), Models::env(key));
    let models = Some(("claude:opus", "gemini:pro"));
    Setting { models, toml, env, toys: true, ..Setting::default() }
}

/// Creates a test environment like [`world`], but with the scenario's budget. Uses the Postgres database at the given
/// address, if any.
pub(crate) async fn capped_world(
    scenario: &Scenario,
    (models, key): (&Models, &str),
    postgres: Option<String>,
) -> World {
    let cap = MicroUsd(scenario.cap).to_exact_dollars();
    let toml = format!("{}[budget]\nrun = \"${cap}\"\n{}", models.toml(), scenario.toml);
    let env = Models::env(key);
    let models = Some(("claude:opus", "gemini:pro"));
    let files = if scenario.workflow == CODE { script::small().1 } else { Vec::new() };
    let bare = !files.is_empty();
    World::new(Setting { models, toml, env, files, bare, toys: true, postgres, ..Setting::default() }).await
}

/// Plays a scenario without kills and returns the result, with which resumed runs are compared.
pub(crate) async fn baseline(
    mut w: World,
    scenario: &Scenario,
    (models, key): (&Models, &str),
    acted: impl Fn(&'static str),
) -> Baseline {
    play(&mut w, scenario, acted).await;
    let run = w.run().await.unwrap();
    assert_eq!(run.status, RunViewStatus::Done, "{}", w.thread());
    let db = w.app.store.repository_database(w.repo).await.unwrap();
    let filter = RunFilter { repo: Some(w.repo), issue: Some(w.issue), live_only: false };
    // A run that started another run is not the last.
    let runs = db.runs(filter).await.unwrap();
    let run = runs.iter().rfind(|run| run.workflow == scenario.workflow).expect("the scenario's run exists");
    let trail = db.trail(run.id).await.unwrap();
    let calls = models.calls(w.directory(), key);
    assert_eq!(LedgerTotals::of(&w).await.mismatch(calls, READ * calls as u64), None);
    Baseline { seen: seen(&w, &[]).await, calls, steps: trail.into_iter().map(|row| row.step).collect() }
}

/// Requests a redelivery of the failed deliveries and plays the scenario to its end.
pub(crate) async fn redeliver_and_play(w: &mut World, scenario: &Scenario) {
    // GitHub never retries a delivery by itself; the app requests it from the delivery log.
    redeliver(&w.hub);
    play(w, scenario, |_| ()).await;
}

/// Requests a redelivery of every delivery that was not accepted.
pub(crate) fn redeliver(hub: &Hub) {
    let all = hub.deliveries();
    let settled = |guid: &str| {
        let attempts = all.iter().filter(|d| d.guid == guid);
        attempts.clone().any(|d| d.status.is_none_or(|status| (200..300).contains(&status)))
    };
    for guid in all.iter().map(|d| &d.guid).collect::<BTreeSet<_>>() {
        if !settled(guid) {
            hub.redeliver(guid).unwrap();
        }
    }
}

/// Starts the bot and the hub on the data that a kill left, and plays the scenario to its end.
pub(crate) async fn resume(point: Point, scenario: &Scenario, models: &Models) -> Resumed {
    let Point { number, moment, step, directory, now, calls, settled, known, address } = point;
    let key = format!("{}-{}-{number}", scenario.workflow, scenario.name.replace(' ', "-"));
    std::fs::write(
        directory.path().join("bot/.env"),
        format!("COUNTERSIGN_WEBHOOK_SECRET={}\n{}", crate::world::SECRET, Models::env(&key)),
    )
    .unwrap();
    let drafts_before = models.calls(directory.path(), &key);
    let mut w = World::go_on(directory, known, now.plus(DOWNTIME)).await;
    let reviews = calls - drafts_before;
    let at_the_kill = overspent(&w, scenario, reviews).await;
    // In half of the runs a person acts while the bot is down.
    if number % 2 == 1
        && let Turn::Person(act) = scenario.turn(&thread_of(&w))
    {
        w.pass(60);
        (act.act)(&thread_of(&w));
    }
    redeliver_and_play(&mut w, scenario).await;
    let since = models.calls(w.directory(), &key) - drafts_before;
    let reviews = reviews + models.reviews(&key);
    Resumed {
        overspent: at_the_kill.or(overspent(&w, scenario, reviews).await),
        number,
        moment,
        step,
        seen: seen(&w, &[address]).await,
        calls: calls + since,
        totals: LedgerTotals::of(&w).await,
        read: settled + READ * since as u64,
    }
}

/// Returns a description of the first error in a resumed run; `None` if the run is right.
pub(crate) fn wrong(resumed: &Resumed, baseline: &Baseline) -> Option<String> {
    let Resumed { calls, totals, read, overspent, .. } = resumed;
    if overspent.is_some() {
        return overspent.clone();
    }
    if totals.lost > 1 {
        return Some(format!("one kill lost {} calls", totals.lost));
    }
    totals.mismatch(*calls, *read).or_else(|| baseline.differs(&resumed.seen, *calls, totals.lost))
}

impl Baseline {
    /// Returns a description of how another run of the scenario differs from this one; `None` if they match. The other
    /// run may make as many additional calls as it lost.
    pub(crate) fn differs(&self, seen: &str, calls: usize, lost: usize) -> Option<String> {
        if calls < self.calls || calls > self.calls + lost {
            return Some(format!("{calls} paid calls, {lost} of them lost, instead of {}", self.calls));
        }
        let diff = similar::TextDiff::from_lines(self.seen.as_str(), seen);
        (self.seen != seen).then(|| diff.unified_diff().context_radius(2).to_string())
    }
}

/// Resumes points as they arrive. As many points are resumed at the same time as the machine has cores.
fn resume_all(points: Receiver<Point>, scenario: &'static Scenario, models: &Arc<Models>) -> Vec<Resumed> {
    let points = Mutex::new(points);
    let all = Mutex::new(Vec::new());
    let workers = thread::available_parallelism().map_or(2, usize::from);
    thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let next = points.lock().unwrap().recv();
                    let Ok(point) = next else { return };
                    let resumed = runtime().block_on(resume(point, scenario, models));
                    all.lock().unwrap().push(resumed);
                }
            });
        }
    });
    let mut all = all.into_inner().unwrap();
    all.sort_by_key(|resumed| resumed.number);
    all
}

/// Without `COUNTERSIGN_TESTS=all`, only one in this many recorded points is resumed.
const RESUME_ONE_IN: usize = 12;

/// Simulates kills of the scenario at every `step`th commit, starting with a random one, and at all selected moments
/// that are not commits. Unless `COUNTERSIGN_TESTS=all` is set, only a sample of the copies is resumed.
fn check_kills(scenario: &'static Scenario, step: usize) {
    let begun = Instant::now();
    let models = Arc::new(Models::start(Duration::ZERO));
    // A workflow that only starts another has few moments, and so have scenarios limited to some steps.
    let sampled = match scenario.workflow {
        CODE => 24,
        "patch" => 10,
        "route" => 2,
        _ if !scenario.killed_in.is_empty() => 4,
        _ => RESUME_ONE_IN,
    };
    let (step, one_in) = if crate::world::all() { (step, 1) } else { (20, sampled) };
    let mut random = Random::seeded(scenario.name);
    let first = random.below(step);
    let sample = Sample { first, step, workflow: scenario.workflow, within: scenario.killed_in };
    let kept = AtomicUsize::new(random.below(one_in));
    let (give, points) = channel();
    let resuming = {
        let models = models.clone();
        thread::spawn(move || resume_all(points, scenario, &models))
    };
    let (baseline, moments) = runtime().block_on(async {
        let key = format!("{}-{}", scenario.workflow, scenario.name.replace(' ', "-"));
        let w = capped_world(scenario, (&models, &key), None).await;
        let keep = move |point| {
            if kept.fetch_add(1, Ordering::SeqCst).is_multiple_of(one_in) {
                give.send(point).unwrap();
            }
        };
        let recorder = Recorder::watch(&w, &models, &key, sample, keep);
        let acted = |what| recorder.moment(Moment::Act(what));
        (baseline(w, scenario, (&models, &key), acted).await, recorder.end())
    });
    let all = resuming.join().unwrap();
    let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
    for resumed in &all {
        let kind = match &resumed.moment {
            Moment::Commit(_) => "commits",
            Moment::Write(_) => "writes",
            Moment::Call => "calls",
            Moment::Act(_) => "acts",
        };
        *kinds.entry(kind).or_default() += 1;
    }
    if scenario.workflow == CODE {
        for step in ["Lint", "EndToEnd", "Attack", "TryAttack", "Watch"] {
            assert!(baseline.steps.contains(&format!("{step:?}")), "the run did not reach {step}");
        }
    }
    let hit: BTreeSet<String> = all.iter().filter_map(|resumed| resumed.step.clone()).collect();
    let lost: usize = all.iter().map(|resumed| resumed.totals.lost).sum();
    crate::say(&format!(
        "{}, {}: {} kills at {} moments ({kinds:?}; first {}, step {}), {} of {} steps hit, {} comparisons, {lost} calls \
         lost, {} s",
        scenario.workflow,
        scenario.name,
        all.len(),
        moments,
        sample.first,
        sample.step,
        hit.len(),
        baseline.steps.len(),
        all.len(),
        begun.elapsed().as_secs(),
    ));
    let wrong: Vec<String> = all
        .iter()
        .filter_map(|resumed| {
            let (Resumed { number, moment, step, .. }, why) = (resumed, wrong(resumed, &baseline)?);
            Some(format!("--- killed at moment {number} ({moment:?}, step {step:?}):\n{why}"))
        })
        .collect();
    assert!(wrong.is_empty(), "{} of {} kills went wrong:\n{}", wrong.len(), all.len(), wrong.join("\n"));
    // Answering a question takes the fewest.
    let least = if scenario.killed_in.contains(&"\"Answer\"") { 50 } else { 150 };
    assert!(moments > least && !all.is_empty(), "{} kills at {moments} moments", all.len());
    if one_in > 1 {
        return;
    }
    let mut wanted = baseline.steps.clone();
    wanted.retain(|step| sample.within.is_empty() || sample.within.contains(&step.as_str()));
    assert_eq!(hit, wanted, "some step was never killed");
    assert!(wanted.len() < baseline.steps.len() || all.len() >= moments / sample.step);
    assert!(sample.step > 1 || (kinds.len() == 4 && lost > 0), "a kind of moment was not tried: {kinds:?}");
}

#[test]
fn run_killed_at_any_moment_reaches_the_state_of_an_uninterrupted_run() {
    for (at, scenario) in scenarios::ALL.iter().enumerate() {
        // The other scenarios repeat much of the first.
        check_kills(scenario, if at == 0 { 1 } else { 12 });
    }
}

#[test]
#[ignore = "takes long"]
fn killed_run_files_its_issue_or_publishes_its_document_exactly_once() {
    for scenario in scenarios::OTHERWISE {
        check_kills(scenario, 6);
    }
}

#[test]
fn killed_run_pauses_once_and_stays_within_its_budget() {
    check_kills(&scenarios::PAUSED, 10);
}

#[test]
#[ignore = "takes long"]
fn killed_implement_run_pushes_its_code_once_and_reruns_its_tests() {
    let can = runtime().block_on(async {
        let own = std::path::Path::new(env!("CARGO_BIN_EXE_countersign"));
        countersign::sandbox::Sandbox::detect(own, None).await
    });
    match can {
        Ok(_) => check_kills(&scenarios::CODE, 60),
        Err(error) => crate::say(&format!("skipped: {error}")),
    }
}
