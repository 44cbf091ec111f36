//! The disk becomes full or read-only again and again during a run. No database may be corrupted, and the server must
//! not acknowledge a delivery that it could not store. The run must continue once the disk works again.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use countersign::{
    store::{DeliverySubject, NewDelivery, SimulatedDisk},
    types::DeliveryId,
};
use tokio_util::sync::CancellationToken;

use crate::{
    matrix::{self, LedgerTotals, redeliver, runtime},
    models::{Models, READ},
    postgres,
    process::PATIENCE,
    say,
    scenarios::{self, Thread, Turn},
    seen::seen,
    world::World,
};

/// Number of commits between two disk failures. No repeating pattern of commits in a run has a length divisible by this
/// number, so that the failures hit different moments.
const COMMITS_PER_FAILURE: usize = 23;

/// Length of a failure, in ticks of one second each.
const FAILURE_TICKS: usize = 4;

#[test]
fn runs_finish_on_a_disk_with_repeated_errors() {
    let scenario = &scenarios::ALL[0];
    let models = Models::start(Duration::ZERO);
    runtime().block_on(async {
        let calm = matrix::world(&models, "calm").await;
        let expected = matrix::baseline(calm, scenario, (&models, "calm"), |_| ()).await;

        let w = matrix::world(&models, "broken").await;
        let before = w.hub.deliveries().len(); // sent during the setup
        let commits = Arc::new(AtomicUsize::new(0));
        let seen_by_store = commits.clone();
        w.app.store.on_commit(move |_| {
            seen_by_store.fetch_add(1, Ordering::SeqCst);
        });
        let stop = CancellationToken::new();
        let (intake, engine) = (w.app.intake.clone(), w.app.engine.clone());
        let (stop_intake, stop_engine) = (stop.clone(), stop.clone());
        let working = [
            tokio::spawn(async move { intake.run(stop_intake).await }),
            tokio::spawn(async move { engine.run(stop_engine).await }),
        ];
        let broken = live_through(&w, scenario, &commits).await;
        stop.cancel();
        for work in working {
            // A task that waits for the disk uses the simulated clock.
            while !work.is_finished() {
                w.pass(1);
                tokio::time::sleep(Duration::from_millis(15)).await;
            }
            work.await.unwrap();
        }
        w.hub.wait_for_webhooks().await; // so that no request is cut off by the shutdown
        let refused = w.hub.deliveries().iter().filter(|d| d.status == Some(503)).count();
        // A stopping engine starts no further step; the next boot finishes the run.
        let mut w = w.restart().await;
        matrix::redeliver_and_play(&mut w, scenario).await;
        let (totals, calls_made) = (LedgerTotals::of(&w).await, models.calls(w.directory(), "broken"));
        let lost = totals.lost;
        // The response to a lost call may be recorded or not, depending on when the disk failed.
        assert!(totals.read <= READ * calls_made as u64, "{calls_made} calls asked, {totals:?}");
        assert_eq!(totals.mismatch(calls_made, totals.read), None);
        let difference = expected.differs(&seen(&w, &[]).await, calls_made, lost);
        assert!(difference.is_none(), "{}", difference.unwrap());
        say(&format!("the disk failed {broken} times, {refused} deliveries were refused, {lost} calls lost"));
        assert!(broken >= 8 && refused >= 2);
        let answers: Vec<_> = w.hub.deliveries().iter().skip(before).map(|d| d.status).collect();
        // 408: the simulated clock runs so fast that on a busy machine a request body can time out.
        assert!(answers.iter().all(|status| matches!(status, Some(202 | 408 | 503))), "{answers:?}");
    });
}

/// Fills the disk of Postgres completely. A comment that does not fit into the free space of existing database pages
/// must then be refused.
#[test]
fn run_finishes_after_the_postgres_disk_was_full() {
    let Some(address) = postgres::database_on_a_small_disk() else { return };
    let (scenario, models) = (&scenarios::ALL[0], Models::start(Duration::ZERO));
    runtime().block_on(async {
        let mut w = matrix::capped_world(scenario, (&models, "small"), Some(address.clone())).await;
        let thread = Thread { hub: &w.hub.clone(), repo: w.repo, issue: w.issue };
        let Turn::Person(label) = scenario.turn(&thread) else { panic!() };
        (label.act)(&thread);
        w.settle().await;
        assert_eq!(w.number(Some(w.repo), "SELECT COUNT(*) FROM gate"), 1, "{}", w.thread());
        postgres::sql(
            &address,
            "CREATE UNLOGGED TABLE public.filler (x TEXT);
             DO $$ BEGIN
                 LOOP INSERT INTO public.filler SELECT md5(random()::text) FROM generate_series(1, 100); END LOOP;
             EXCEPTION WHEN disk_full THEN NULL; END $$",
        );
        let long: String = (0..1500_u64)
            .map(|n| format!("{:016x} ", n.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)))
            .collect();
        w.hub.comment(w.repo, w.issue, w.user("sam"), &long).unwrap();
        w.hub.wait_for_webhooks().await;
        let refused = |w: &World| w.hub.deliveries().iter().filter(|d| d.status == Some(503)).count();
        assert_eq!(refused(&w), 1);
        let message = w.app.store.inbox().accept_delivery(large_delivery(0)).await.unwrap_err().to_string();
        assert!(message.contains("free some space on the server's disk"), "{message}");

        postgres::sql(&address, "DROP TABLE public.filler");
        matrix::redeliver_and_play(&mut w, scenario).await;
        assert!(w.view().comments.iter().any(|c| c.body.contains(scenario.end)), "{}", w.thread());
        assert_eq!(refused(&w), 1);
        let calls_made = models.calls(w.directory(), "small");
        assert_eq!(LedgerTotals::of(&w).await.mismatch(calls_made, READ * calls_made as u64), None);
    });
}

/// Lets people act and time pass while the disk fails now and then. Returns the number of disk failures.
async fn live_through(w: &World, scenario: &scenarios::Scenario, commits: &AtomicUsize) -> usize {
    let thread = Thread { hub: &w.hub, repo: w.repo, issue: w.issue };
    let (mut broken, mut left, mut tick) = (0, 0, 0);
    let until = Instant::now() + PATIENCE;
    while Instant::now() < until {
        tick += 1;
        let due = (broken + 1) * COMMITS_PER_FAILURE;
        if left == 0 && commits.load(Ordering::SeqCst) >= due {
            left = FAILURE_TICKS;
            broken += 1;
            w.app.store.simulate_disk(if broken % 2 == 0 {
                SimulatedDisk::ReadOnly
            } else {
                SimulatedDisk::Full
            });
            assert_delivery_refused(w, tick, broken % 2 == 0).await;
        } else if left > 0 {
            left -= 1;
            if left == 0 {
                assert_databases_intact(w);
                w.app.store.simulate_disk(SimulatedDisk::Healthy);
            }
        }
        if left == 0 {
            redeliver(&w.hub);
            match scenario.turn(&thread) {
                Turn::Person(act) => (act.act)(&thread),
                Turn::Over if thread.view().comments.iter().any(|c| c.body.contains(scenario.end)) => {
                    return broken;
                }
                _ => {}
            }
        }
        w.pass(1);
        // The bot's tasks run in real time.
        tokio::time::sleep(Duration::from_millis(15)).await;
    }
    panic!("the run did not finish in time:\n{}", w.thread());
}

/// Asserts that the server refuses a delivery that it cannot store, with an error that states the reason.
async fn assert_delivery_refused(w: &World, number: usize, read_only: bool) {
    let maya = w.user("maya");
    w.hub.label(w.repo, w.issue, maya, "question").unwrap();
    w.hub.unlabel(w.repo, w.issue, maya, "question").unwrap();
    w.hub.wait_for_webhooks().await; // delivered while the disk is broken
    let message = w.app.store.inbox().accept_delivery(large_delivery(number)).await.unwrap_err().to_string();
    let reason = if read_only { "is not writable" } else { "the disk is full" };
    assert!(message.contains("main.db") && message.contains(reason), "{message}");
}

/// Returns a delivery that is larger than the free space of any database page, even when compressed.
fn large_delivery(number: usize) -> NewDelivery {
    NewDelivery {
        id: DeliveryId(format!("unkept-{number}")),
        event: "ping".to_owned(),
        subject: DeliverySubject::default(),
        swept: false,
        body: (0..40_000_u64)
            .flat_map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29).to_be_bytes())
            .collect(),
    }
}

/// Asserts that each database passes SQLite's integrity check while the disk is broken.
fn assert_databases_intact(w: &World) {
    let data = w.directory().join("bot/data");
    for file in ["main.db".to_owned(), format!("repos/{}/checkpoints.db", w.repo)] {
        let path = data.join(file);
        if path.exists() {
            let database = rusqlite::Connection::open(path).unwrap();
            let result: String = database.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
            assert_eq!(result, "ok");
        }
    }
}
