//! The crash matrix: one run of each scenario, killed after everything it does, each time resumed apart and
//! compared with the run that nobody killed.

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

/// The workflow that runs what it makes.
const CODE: &str = "implement";

/// Some time after a kill somebody starts it again.
const AWAY: Duration = Duration::from_secs(7);

/// What the run that nobody killed came to.
pub(crate) struct Baseline {
    pub(crate) seen: String,
    pub(crate) calls: usize,
    /// The steps it passed, as they are stored.
    steps: BTreeSet<String>,
}

/// What a run came to that was killed at one point and resumed.
pub(crate) struct Resumed {
    number: usize,
    moment: Moment,
    /// The run's step when it was killed, as it is stored; none before there was a run.
    step: Option<String>,
    seen: String,
    /// Paid calls before and after the kill.
    calls: usize,
    pub(crate) books: Books,
    /// What is wrong about money at the kill or at the end.
    overspent: Option<String>,
    /// What the books should say was read: what they said at the kill, and what was asked since.
    read: u64,
}

/// What the ledger says of the paid calls.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Books {
    /// Calls whose end is known.
    pub(crate) settled: usize,
    /// Calls that nobody knows the end of.
    pub(crate) lost: usize,
    /// Calls that are still to end.
    reserved: usize,
    /// Tokens that the models said they have read.
    pub(crate) read: u64,
}

impl Books {
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

    /// In what they are not what the models were asked, which was `read` tokens as far as anybody can know.
    pub(crate) fn differ(&self, asked: usize, read: u64) -> Option<String> {
        let Self { settled, lost, reserved, .. } = *self;
        let right = (settled..=settled + lost).contains(&asked) && reserved == 0 && self.read == read;
        (!right).then(|| format!("{asked} calls asked, {read} tokens read, and in the books {self:?}"))
    }
}

/// Of every run there was.
async fn ledgers(w: &World) -> Vec<RunLedger> {
    let db = w.app.store.repository_database(w.repo).await.unwrap();
    let runs = db.runs(RunFilter { repo: Some(w.repo), issue: None, live_only: false }).await.unwrap();
    let mut ledgers = Vec::new();
    for run in runs {
        ledgers.push(db.ledger(run.id).await.unwrap());
    }
    ledgers
}

/// What is wrong with what is spent or held back, where so many reviews were asked for.
async fn overspent(w: &World, scenario: &Scenario, reviews: usize) -> Option<String> {
    let ledgers = ledgers(w).await;
    let of = |ledger: &RunLedger| ledger.calls.iter().map(|row| row.shared_cap_amount().0).sum::<u64>();
    let cap = |ledger: &RunLedger| scenario.cap + ledger.raises.iter().map(|row| row.amount.0).sum::<u64>();
    let counted: u64 = ledgers.iter().map(of).sum();
    let raises: usize = ledgers.iter().map(|ledger| ledger.raises.len()).sum();
    let sum = "SELECT CAST(COALESCE(SUM(microusd), 0) AS BIGINT) FROM spend";
    let shared = w.number(None, sum).unsigned_abs();
    let asked = reviews as u64 * REVIEW;
    // What runs share is written down before a run's own books are, and never less.
    let of_run = |ledger: &RunLedger| ledger.calls.iter().map(|row| row.run_cap_amount().0).sum::<u64>();
    let within = ledgers.iter().all(|ledger| of_run(ledger) <= cap(ledger));
    let right = asked <= counted.max(shared) && counted <= shared && within && raises <= 1;
    (!right).then(|| {
        format!("{reviews} reviews for {asked}, {counted} in the books, {shared} in those of all; within the caps: {within}")
    })
}

pub(crate) fn runtime() -> tokio::runtime::Runtime {
    // As in a server, where a step commits on its own thread.
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// Lets people act and the bot work until there is nothing left to do.
pub(crate) async fn play(w: &mut World, scenario: &Scenario, acted: impl Fn(&'static str)) {
    for _ in 0..200 {
        w.settle().await;
        // Tests run beside the world's clock.
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
            // What comes late comes now.
            Turn::Over if !running => return w.wait(120).await,
            _ => w.pass(15),
        }
    }
    panic!("it comes to no end:\n{}", w.thread());
}

fn thread_of(w: &World) -> Thread<'_> {
    Thread { hub: &w.hub, repo: w.repo, issue: w.issue }
}

/// The usual world, with models that cost money.
pub(crate) async fn world(models: &Models, key: &str) -> World {
    World::new(setting(models, key)).await
}

pub(crate) fn setting(models: &Models, key: &str) -> Setting {
    let (toml, env) = (models.toml(), Models::env(key));
    let models = Some(("claude:opus", "gemini:pro"));
    Setting { models, toml, env, toys: true, ..Setting::default() }
}

/// The same, with the scenario's cap, and in this Postgres where one is named.
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

/// Plays a scenario that nobody kills.
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
    // One that began another is not the last.
    let runs = db.runs(filter).await.unwrap();
    let run = runs.iter().rfind(|run| run.workflow == scenario.workflow).expect("it was played");
    let trail = db.trail(run.id).await.unwrap();
    let calls = models.calls(w.directory(), key);
    assert_eq!(Books::of(&w).await.differ(calls, READ * calls as u64), None);
    Baseline { seen: seen(&w, &[]).await, calls, steps: trail.into_iter().map(|row| row.step).collect() }
}

/// The same, killed at times: whatever GitHub was told in vain is asked for again, and it is played to its end.
pub(crate) async fn played_on(w: &mut World, scenario: &Scenario) {
    // GitHub does not try again by itself; whoever looks through its log of deliveries asks for it.
    redeliver(&w.hub);
    play(w, scenario, |_| ()).await;
}

/// Asks for every delivery again that was not taken.
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

/// Starts bot and hub on what the kill left and plays on.
pub(crate) async fn resume(point: Point, scenario: &Scenario, models: &Models) -> Resumed {
    let Point { number, moment, step, directory, now, calls, settled, known, address } = point;
    let key = format!("{}-{}-{number}", scenario.workflow, scenario.name.replace(' ', "-"));
    std::fs::write(
        directory.path().join("bot/.env"),
        format!("COUNTERSIGN_WEBHOOK_SECRET={}\n{}", crate::world::SECRET, Models::env(&key)),
    )
    .unwrap();
    let drafts_before = models.calls(directory.path(), &key);
    let mut w = World::go_on(directory, known, now.plus(AWAY)).await;
    let reviews = calls - drafts_before;
    let at_the_kill = overspent(&w, scenario, reviews).await;
    // A person who reads the thread while nobody answers acts then and there.
    if number % 2 == 1
        && let Turn::Person(act) = scenario.turn(&thread_of(&w))
    {
        w.pass(60);
        (act.act)(&thread_of(&w));
    }
    played_on(&mut w, scenario).await;
    let since = models.calls(w.directory(), &key) - drafts_before;
    let reviews = reviews + models.reviews(&key);
    Resumed {
        overspent: at_the_kill.or(overspent(&w, scenario, reviews).await),
        number,
        moment,
        step,
        seen: seen(&w, &[address]).await,
        calls: calls + since,
        books: Books::of(&w).await,
        read: settled + READ * since as u64,
    }
}

/// What is wrong with a resumed run, if anything.
pub(crate) fn wrong(resumed: &Resumed, baseline: &Baseline) -> Option<String> {
    let Resumed { calls, books, read, overspent, .. } = resumed;
    if overspent.is_some() {
        return overspent.clone();
    }
    if books.lost > 1 {
        return Some(format!("one kill lost {} calls", books.lost));
    }
    books.differ(*calls, *read).or_else(|| baseline.differs(&resumed.seen, *calls, books.lost))
}

impl Baseline {
    /// In what another end of the same story differs, and whether it cost more than what was lost.
    pub(crate) fn differs(&self, seen: &str, calls: usize, lost: usize) -> Option<String> {
        if calls < self.calls || calls > self.calls + lost {
            return Some(format!("{calls} paid calls, {lost} of them lost, instead of {}", self.calls));
        }
        let diff = similar::TextDiff::from_lines(self.seen.as_str(), seen);
        (self.seen != seen).then(|| diff.unified_diff().context_radius(2).to_string())
    }
}

/// Resumes points as they come, two at a time.
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

/// Of what is kept at the kills of a sample, one in so many is resumed.
const RESUMED: usize = 12;

/// Killed at one commit in `step` and at whatever else is kept, from a random one on; a sample of that where not everything
/// is to be tried.
fn killed_everywhere(scenario: &'static Scenario, step: usize) {
    let begun = Instant::now();
    let models = Arc::new(Models::start(Duration::ZERO));
    // What only begins another run has few moments of its own, and so have some steps of one.
    let sampled = match scenario.workflow {
        CODE => 24,
        "patch" => 10,
        "route" => 2,
        _ if !scenario.killed_in.is_empty() => 4,
        _ => RESUMED,
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
            assert!(baseline.steps.contains(&format!("{step:?}")), "{step} was not passed");
        }
    }
    let hit: BTreeSet<String> = all.iter().filter_map(|resumed| resumed.step.clone()).collect();
    let lost: usize = all.iter().map(|resumed| resumed.books.lost).sum();
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
    assert!(wrong.is_empty(), "{} of {} kills show:\n{}", wrong.len(), all.len(), wrong.join("\n"));
    // A question's answer takes the fewest.
    let least = if scenario.killed_in.contains(&"\"Answer\"") { 50 } else { 150 };
    assert!(moments > least && !all.is_empty(), "{} kills at {moments} moments", all.len());
    if one_in > 1 {
        return;
    }
    let mut wanted = baseline.steps.clone();
    wanted.retain(|step| sample.within.is_empty() || sample.within.contains(&step.as_str()));
    assert_eq!(hit, wanted, "a step in which nothing was killed");
    assert!(wanted.len() < baseline.steps.len() || all.len() >= moments / sample.step);
    assert!(sample.step > 1 || (kinds.len() == 4 && lost > 0), "a kind of moment was not tried: {kinds:?}");
}

#[test]
fn killed_anywhere_the_thread_is_as_if_nothing_had_happened() {
    for (at, scenario) in scenarios::ALL.iter().enumerate() {
        // The others do much of what the first does.
        killed_everywhere(scenario, if at == 0 { 1 } else { 12 });
    }
}

#[test]
#[ignore = "takes long"]
fn killed_anywhere_another_document_is_published_once() {
    for scenario in scenarios::OTHERWISE {
        killed_everywhere(scenario, 6);
    }
}

#[test]
fn killed_anywhere_a_run_pauses_once_and_spends_no_more_than_it_may() {
    killed_everywhere(&scenarios::PAUSED, 10);
}

#[test]
#[ignore = "takes long"]
fn killed_anywhere_code_is_pushed_once_and_its_tests_run_again() {
    let can = runtime().block_on(async {
        let own = std::path::Path::new(env!("CARGO_BIN_EXE_countersign"));
        countersign::sandbox::Sandbox::detect(own, None).await
    });
    match can {
        Ok(_) => killed_everywhere(&scenarios::CODE, 60),
        Err(error) => crate::say(&format!("skipped: {error}")),
    }
}
