//! The crash matrix: one run of each scenario, killed after everything it does, each time resumed apart and
//! compared with the run that nobody killed.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex,
        mpsc::{Receiver, channel},
    },
    thread,
    time::{Duration, Instant},
};

use countersign::{
    engine::{CallStatus, Status},
    workflows,
};

use crate::{
    models::Models,
    points::{Moment, Point, Recorder, Sample},
    scenarios::{self, Act, Scenario},
    seen::seen,
    world::{Setting, World},
};

/// Some time after a kill somebody starts it again.
const AWAY: Duration = Duration::from_secs(7);

/// What the run that nobody killed came to.
struct Baseline {
    seen: String,
    calls: usize,
    /// The steps it passed, by id.
    steps: BTreeSet<&'static str>,
    moments: usize,
}

/// What a run came to that was killed at one point and resumed.
struct Resumed {
    number: usize,
    moment: Moment,
    /// Where the run was when it was killed; none before it began and after its end.
    step: Option<String>,
    seen: String,
    /// Paid calls before and after the kill.
    calls: usize,
    /// Calls in the ledger that nobody knows the end of.
    lost: usize,
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// Lets people act and the bot work until there is nothing left to do.
async fn play(w: &mut World, acts: &[Act], acted: impl Fn(&'static str)) {
    for _ in 0..200 {
        w.settle().await;
        let running = w.run().await.is_some_and(|run| run.status.live());
        match acts.iter().find(|act| !(act.done)(w)) {
            Some(act) if (act.ready)(w) => {
                w.pass(60);
                (act.act)(w);
                acted(act.what);
            }
            // What comes late comes now.
            None if !running => return w.wait(120).await,
            _ => w.pass(15),
        }
    }
    panic!("it comes to no end:\n{}", w.thread());
}

/// Plays the scenario once, handing out a copy of everything at each moment of the sample.
async fn record(
    scenario: &Scenario,
    models: &Arc<Models>,
    sample: Sample,
    keep: impl Fn(Point) + Send + 'static,
) -> Baseline {
    let key = format!("{}-{}", scenario.workflow, scenario.name.replace(' ', "-"));
    let (toml, env) = (models.toml(), Models::env(&key));
    let pair = Some(("claude:opus", "gemini:pro"));
    let mut w = World::new(Setting { models: pair, toml, env, ..Setting::default() }).await;
    let recorder = Recorder::watch(&w, models, &key, sample, keep);
    play(&mut w, scenario.acts, |what| recorder.moment(Moment::Act(what))).await;
    let moments = recorder.end();
    let run = w.run().await.unwrap();
    assert_eq!(run.status, Status::Done, "{}", w.thread());
    let workflow = workflows::ALL.iter().find(|w| w.name() == scenario.workflow).unwrap();
    let trail = w.app.store.repo(w.repo).unwrap().trail(run.id).await.unwrap();
    Baseline {
        seen: seen(&w, &[]).await,
        calls: models.calls(w.directory(), &key),
        steps: trail.iter().map(|row| workflow.step(&row.step).unwrap().id).collect(),
        moments,
    }
}

/// Starts bot and hub on what the kill left and plays on.
async fn resume(point: Point, scenario: &Scenario, models: &Models) -> Resumed {
    let Point { number, moment, directory, now, calls, known, address } = point;
    let key = format!("{}-{}-{number}", scenario.workflow, scenario.name.replace(' ', "-"));
    std::fs::write(
        directory.path().join("bot/.env"),
        format!("COUNTERSIGN_WEBHOOK_SECRET={}\n{}", crate::world::SECRET, Models::env(&key)),
    )
    .unwrap();
    let drafts_before = models.calls(directory.path(), &key);
    let mut w = World::go_on(directory, known, now.plus(AWAY)).await;
    let before = w.run().await.filter(|run| run.status.live());
    // A person who reads the thread while nobody answers acts then and there.
    if number % 2 == 1
        && let Some(act) = scenario.acts.iter().find(|act| !(act.done)(&w)).filter(|act| (act.ready)(&w))
    {
        w.pass(60);
        (act.act)(&w);
    }
    // GitHub does not try again by itself; whoever looks through its log of deliveries asks for it.
    let deliveries = w.hub.deliveries();
    for lost in deliveries.iter().filter(|d| d.status.is_some_and(|s| !(200..300).contains(&s))) {
        w.hub.redeliver(&lost.guid).unwrap();
    }
    play(&mut w, scenario.acts, |_| ()).await;
    let run = w.run().await.unwrap();
    let ledger = w.app.store.repo(w.repo).unwrap().ledger(run.id).await.unwrap();
    Resumed {
        number,
        moment,
        step: before.map(|run| run.step_id),
        seen: seen(&w, &[address]).await,
        calls: calls + models.calls(w.directory(), &key) - drafts_before,
        lost: ledger.calls.iter().filter(|row| row.status == CallStatus::Lost).count(),
    }
}

/// What is wrong with a resumed run, if anything.
fn wrong(resumed: &Resumed, baseline: &Baseline) -> Option<String> {
    let Resumed { calls, lost, .. } = resumed;
    if *lost > 1 {
        return Some(format!("one kill lost {lost} calls"));
    }
    if *calls < baseline.calls || *calls > baseline.calls + lost {
        return Some(format!("{calls} paid calls, {lost} of them lost, instead of {}", baseline.calls));
    }
    let (was, is) = (&baseline.seen, &resumed.seen);
    (was != is).then(|| similar::TextDiff::from_lines(was, is).unified_diff().context_radius(2).to_string())
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

/// All points, or every so manieth from a random one on.
fn sample() -> Sample {
    let all = std::env::var("COUNTERSIGN_CRASH").is_ok_and(|value| value == "all");
    let step = if all { 1 } else { 7 };
    let mut random = [0];
    getrandom::fill(&mut random).unwrap();
    let first = std::env::var("COUNTERSIGN_CRASH_FIRST").ok().map(|text| text.parse().unwrap());
    Sample { first: first.unwrap_or(usize::from(random[0]) % step), step }
}

fn killed_everywhere(scenario: &'static Scenario) {
    let begun = Instant::now();
    let models = Arc::new(Models::start());
    let sample = sample();
    let (give, points) = channel();
    let resuming = {
        let models = models.clone();
        thread::spawn(move || resume_all(points, scenario, &models))
    };
    let baseline = runtime().block_on(record(scenario, &models, sample, move |point| {
        give.send(point).unwrap();
    }));
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
    let hit: BTreeSet<&str> = all.iter().filter_map(|resumed| resumed.step.as_deref()).collect();
    let lost: usize = all.iter().map(|resumed| resumed.lost).sum();
    println!(
        "{}, {}: {} of {} moments killed ({kinds:?}), {} of {} steps hit, {lost} calls lost, {} s",
        scenario.workflow,
        scenario.name,
        all.len(),
        baseline.moments,
        hit.len(),
        baseline.steps.len(),
        begun.elapsed().as_secs(),
    );
    let wrong: Vec<_> =
        all.iter().filter_map(|resumed| Some((resumed, wrong(resumed, &baseline)?))).collect();
    for (resumed, why) in &wrong {
        println!(
            "--- killed at moment {} ({:?}, step {:?}):\n{why}",
            resumed.number, resumed.moment, resumed.step
        );
    }
    assert!(wrong.is_empty(), "{} of {} kills show", wrong.len(), all.len());
}

#[test]
fn killed_anywhere_the_thread_is_as_if_nothing_had_happened() {
    for scenario in scenarios::ALL {
        killed_everywhere(scenario);
    }
}
