//! The crash matrix on Postgres. A database in use cannot be copied, so each kill needs a run of its own. At one
//! moment, the process loses its database connection for good, and another process takes over.

use std::{
    collections::VecDeque,
    fs,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use countersign::clock::Clock;
use tokio_util::sync::CancellationToken;

use crate::{
    matrix::{Resumed, baseline, capped_world, play, resume, runtime, wrong},
    models::Models,
    points::{Moment, Point, copy, watch},
    postgres,
    random::Random,
    scenarios::{self, Scenario},
    world::{World, directory},
};

/// Types of moments at which the test kills. Moments are numbered separately for each type.
const KINDS: [&str; 3] = ["commit", "write to GitHub", "call"];

fn kind_of(moment: &Moment) -> Option<usize> {
    match moment {
        Moment::Commit(_) => Some(0),
        Moment::Write(_) => Some(1),
        Moment::Call => Some(2),
        Moment::Act(_) => None,
    }
}

/// Plays a scenario in a new database and kills it at the moment with this type and number. Returns `None` if the run
/// finished before that moment.
fn killed_at(
    (kind, moment): (usize, usize),
    scenario: &'static Scenario,
    models: &Arc<Models>,
) -> Option<Point> {
    let address = postgres::database().unwrap();
    let key = format!("{}-{}-to-{kind}-{moment}", scenario.workflow, scenario.name.replace(' ', "-"));
    let runtime = runtime();
    let point = runtime.block_on(async {
        let mut w = capped_world(scenario, (models, &key), Some(address.clone())).await;
        let (killed, left) = (CancellationToken::new(), Arc::new(Mutex::new(None)));
        let seen = Arc::new(AtomicUsize::new(0));
        let (token, slot, counted) = (killed.clone(), left.clone(), seen.clone());
        let kill = Arc::new(kill(&w, models.clone(), key.clone(), address));
        watch(&w, models, &key, move |what| {
            if kind_of(&what) == Some(kind) && counted.fetch_add(1, Ordering::SeqCst) == moment {
                // Also cancels if the kill panics, since the test would wait for ever.
                let _cancel_on_drop = token.clone().drop_guard();
                // The number differs by kind because the models' keys contain it.
                *slot.lock().unwrap() = Some(kill(moment * KINDS.len() + kind, what));
            }
        });
        let playing = tokio::spawn(async move { play(&mut w, scenario, |_| ()).await });
        tokio::select! {
            biased;
            () = killed.cancelled() => {}
            // The bot panics when its database is gone.
            ended = playing => match ended {
                Err(_) if seen.load(Ordering::SeqCst) > moment => killed.cancelled().await,
                ended => ended.unwrap(),
            }
        }
        let left = left.lock().unwrap().take();
        assert!(left.is_some() || !killed.is_cancelled(), "the kill itself failed");
        left
    });
    // Drops the tasks that are still running.
    runtime.shutdown_background();
    point
}

/// Returns a function that cuts this test environment off from its database and returns the state that a kill would
/// leave.
fn kill(
    w: &World,
    models: Arc<Models>,
    key: String,
    address: String,
) -> impl Fn(usize, Moment) -> Point + Send + Sync + 'static {
    let (hub, clock, known, home) = (w.hub.clone(), w.clock.clone(), w.known(), w.directory().to_owned());
    move |number, moment| {
        let left = postgres::cut_off(&address);
        let directory = directory();
        hub.copy_to(&directory.path().join("hub")).unwrap();
        copy(&home.join("bot"), &directory.path().join("bot"));
        fs::write(directory.path().join("bot").join(crate::world::ADDRESS), &left).unwrap();
        let asked = |sql| {
            let of = format!("SET countersign.repo = '{}'", known.repo);
            postgres::number(&left, &of, sql)
        };
        let (now, address) = (clock.now(), hub.base_url().to_string());
        let read =
            "SELECT CAST(COALESCE(SUM(CAST(body ->> 'input_tokens' AS BIGINT)), 0) AS BIGINT) FROM call";
        let (calls, settled) = (models.calls(directory.path(), &key), asked(read).unsigned_abs());
        // The lease uses the clock of the database, which no test controls.
        asked("UPDATE node SET until = now() RETURNING id");
        Point { number, moment, step: None, directory, now, calls, settled, known, address }
    }
}

/// With `COUNTERSIGN_TESTS=all`, the test kills at one in this many moments. Not every moment is used, because each
/// kill needs a run of several seconds.
const ONE_IN: usize = 8;

/// Kills the scenario at this many commits, at one write and at one call. With `COUNTERSIGN_TESTS=all`, it kills at
/// more moments, which are evenly spread and start with a random one.
fn check_kills_on_postgres(scenario: &'static Scenario, commits: usize) {
    let Some(address) = postgres::database() else { return };
    let begun = Instant::now();
    let models = Arc::new(Models::start(Duration::ZERO));
    let moments: Arc<[AtomicUsize; KINDS.len()]> = Arc::default();
    let baseline = runtime().block_on(async {
        let key = format!("{}-{}", scenario.workflow, scenario.name.replace(' ', "-"));
        let w = capped_world(scenario, (&models, &key), Some(address)).await;
        let counted = moments.clone();
        watch(&w, &models, &key, move |what| {
            if let Some(kind) = kind_of(&what) {
                counted[kind].fetch_add(1, Ordering::SeqCst);
            }
        });
        baseline(w, scenario, (&models, &key), |_| ()).await
    });
    let moments: Vec<_> = moments.iter().map(|counted| counted.load(Ordering::SeqCst)).collect();
    let mut random = Random::seeded(&format!("{} on Postgres", scenario.name));
    let mut wanted = VecDeque::new();
    for ((kind, count), sampled) in moments.iter().enumerate().zip([commits, 1, 1]) {
        let step = if crate::world::all() { ONE_IN.min(*count) } else { count / sampled };
        wanted.extend((random.below(step)..*count).step_by(step).map(|at| (kind, at)));
    }
    let (planned, wanted) = (wanted.len(), Mutex::new(wanted));
    let all = Mutex::new(Vec::<(usize, String, Resumed)>::new());
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(|| {
                while let Some(at) = { wanted.lock().unwrap().pop_front() } {
                    let Some(point) = killed_at(at, scenario, &models) else { continue };
                    let moment = format!("{:?}", point.moment);
                    let resumed = runtime().block_on(resume(point, scenario, &models));
                    all.lock().unwrap().push((at.0, moment, resumed));
                }
            });
        }
    });
    let all = all.into_inner().unwrap();
    let lost: usize = all.iter().map(|(.., resumed)| resumed.totals.lost).sum();
    crate::say(&format!(
        "{}, {}, on Postgres: {} kills at {moments:?} moments ({KINDS:?}), {lost} calls lost, {} s",
        scenario.workflow,
        scenario.name,
        all.len(),
        begun.elapsed().as_secs(),
    ));
    let wrong: Vec<String> = all
        .iter()
        .filter_map(|(_, moment, resumed)| {
            Some(format!("--- killed at {moment}:\n{}", wrong(resumed, &baseline)?))
        })
        .collect();
    assert!(wrong.is_empty(), "{} of {} kills went wrong:\n{}", wrong.len(), all.len(), wrong.join("\n"));
    // The number of moments varies a little with concurrency.
    assert!(moments[0] > 50 && all.len() + 2 >= planned, "{} kills of {planned}", all.len());
    for (kind, name) in KINDS.iter().enumerate() {
        assert!(all.iter().any(|(killed, ..)| *killed == kind), "no {name}");
    }
}

#[test]
#[ignore = "takes long"]
fn run_killed_on_postgres_reaches_the_state_of_an_uninterrupted_run() {
    for scenario in scenarios::ALL.iter().take(if crate::world::all() { scenarios::ALL.len() } else { 2 }) {
        check_kills_on_postgres(scenario, 3);
    }
}

#[test]
#[ignore = "takes long"]
fn run_killed_on_postgres_stays_within_its_budget() {
    check_kills_on_postgres(&scenarios::PAUSED, 4);
}
