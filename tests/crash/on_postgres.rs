//! The crash matrix where the bot's data are in a Postgres. A database in use cannot be copied, so each kill has a run of its own:
//! at one moment the process is cut off from the database for good, and another one joins what is left.

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

/// What it is killed after, of which each kind is counted for itself.
const KINDS: [&str; 3] = ["commit", "write to GitHub", "call"];

fn kind_of(moment: &Moment) -> Option<usize> {
    match moment {
        Moment::Commit(_) => Some(0),
        Moment::Write(_) => Some(1),
        Moment::Call => Some(2),
        Moment::Act(_) => None,
    }
}

/// Plays a scenario in a new database and kills it at this moment of this kind; none: it had ended before.
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
        let (told, kept, counted) = (killed.clone(), left.clone(), seen.clone());
        let kill = Arc::new(kill(&w, models.clone(), key.clone(), address));
        watch(&w, models, &key, move |what| {
            if kind_of(&what) == Some(kind) && counted.fetch_add(1, Ordering::SeqCst) == moment {
                // Said also where the kill fails, for which it would be waited in vain.
                let _told = told.clone().drop_guard();
                // A number of its own for each kind: what a model is asked goes by it.
                *kept.lock().unwrap() = Some(kill(moment * KINDS.len() + kind, what));
            }
        });
        let playing = tokio::spawn(async move { play(&mut w, scenario, |_| ()).await });
        tokio::select! {
            biased;
            () = killed.cancelled() => {}
            // What is told to a database that is away it takes badly.
            ended = playing => match ended {
                Err(_) if seen.load(Ordering::SeqCst) > moment => killed.cancelled().await,
                ended => ended.unwrap(),
            }
        }
        let left = left.lock().unwrap().take();
        assert!(left.is_some() || !killed.is_cancelled(), "what kills it failed");
        left
    });
    // Of what it still does nobody hears.
    runtime.shutdown_background();
    point
}

/// What kills this world and says what it left.
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
        // Its lease goes by the clock of the database, which no test moves.
        asked("UPDATE node SET until = now() RETURNING id");
        Point { number, moment, step: None, directory, now, calls, settled, known, address }
    }
}

/// After one commit or write in so many it is killed, where everything is to be tried: each takes a run of seconds.
const ONE_IN: usize = 8;

/// Killed after so many commits, one write and one call, or at one in some, evenly spread from a random one on.
fn killed_on_postgres(scenario: &'static Scenario, commits: usize) {
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
    let lost: usize = all.iter().map(|(.., resumed)| resumed.books.lost).sum();
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
    assert!(wrong.is_empty(), "{} of {} kills show:\n{}", wrong.len(), all.len(), wrong.join("\n"));
    // A moment more or less there may be, by what happened at the same time.
    assert!(moments[0] > 50 && all.len() + 2 >= planned, "{} kills of {planned}", all.len());
    for (kind, name) in KINDS.iter().enumerate() {
        assert!(all.iter().any(|(killed, ..)| *killed == kind), "no {name}");
    }
}

#[test]
#[ignore = "takes long"]
fn killed_anywhere_on_postgres_the_thread_is_as_if_nothing_had_happened() {
    for scenario in scenarios::ALL.iter().take(if crate::world::all() { scenarios::ALL.len() } else { 2 }) {
        killed_on_postgres(scenario, 3);
    }
}

#[test]
#[ignore = "takes long"]
fn killed_anywhere_on_postgres_a_run_spends_no_more_than_it_may() {
    killed_on_postgres(&scenarios::PAUSED, 4);
}
