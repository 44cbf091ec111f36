//! The disk fills up or turns read-only, again and again, in the middle of everything: nothing is corrupted, what
//! could not be kept is not acknowledged, and with room again it goes on.

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
    matrix::{self, Books, redeliver, runtime},
    models::{Models, READ},
    postgres,
    process::PATIENCE,
    say,
    scenarios::{self, Thread, Turn},
    seen::seen,
    world::World,
};

/// A disk breaks after so many commits; a number that divides none of the patterns a run has.
const COMMITS: usize = 23;

/// How long it stays broken, in looks of a second each.
const BROKEN: usize = 4;

#[test]
fn a_disk_that_fails_costs_nothing_but_time() {
    let scenario = &scenarios::ALL[0];
    let models = Models::start(Duration::ZERO);
    runtime().block_on(async {
        let calm = matrix::world(&models, "calm").await;
        let expected = matrix::baseline(calm, scenario, (&models, "calm"), |_| ()).await;

        let w = matrix::world(&models, "broken").await;
        let before = w.hub.deliveries().len(); // sent while the bot was being built
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
            // What waits for a disk to get well does so by this clock.
            while !work.is_finished() {
                w.pass(1);
                tokio::time::sleep(Duration::from_millis(15)).await;
            }
            work.await.unwrap();
        }
        w.hub.wait_for_webhooks().await; // the door closes on nobody
        let refused = w.hub.deliveries().iter().filter(|d| d.status == Some(503)).count();
        // An engine that was told to stop begins nothing more; what is left is for the next boot.
        let mut w = w.restart().await;
        matrix::played_on(&mut w, scenario).await;
        let (books, asked) = (Books::of(&w).await, models.calls(w.directory(), "broken"));
        let lost = books.lost;
        // Of a lost call the answer may be known; whether it could be written down depends on when.
        assert!(books.read <= READ * asked as u64, "{asked} calls asked, {books:?}");
        assert_eq!(books.differ(asked, books.read), None);
        let difference = expected.differs(&seen(&w, &[]).await, asked, lost);
        assert!(difference.is_none(), "{}", difference.unwrap());
        say(&format!("the disk failed {broken} times, {refused} deliveries were refused, {lost} calls lost"));
        assert!(broken >= 8 && refused >= 2);
        let answers: Vec<_> = w.hub.deliveries().iter().skip(before).map(|d| d.status).collect();
        // 408: by a clock that runs this fast a busy machine's bodies can be late.
        assert!(answers.iter().all(|status| matches!(status, Some(202 | 408 | 503))), "{answers:?}");
    });
}

/// A disk that is really full, under the server: a comment too long for what room is left in a page is not taken.
#[test]
fn a_full_disk_of_the_database_costs_nothing_but_time() {
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
        let said = w.app.store.inbox().accept_delivery(unkept(0)).await.unwrap_err().to_string();
        assert!(said.contains("make room on the server's disk"), "{said}");

        postgres::sql(&address, "DROP TABLE public.filler");
        matrix::played_on(&mut w, scenario).await;
        assert!(w.view().comments.iter().any(|c| c.body.contains(scenario.end)), "{}", w.thread());
        assert_eq!(refused(&w), 1);
        let asked = models.calls(w.directory(), "small");
        assert_eq!(Books::of(&w).await.differ(asked, READ * asked as u64), None);
    });
}

/// People act and time passes while the disk breaks now and then; says how often it did.
async fn live_through(w: &World, scenario: &scenarios::Scenario, commits: &AtomicUsize) -> usize {
    let thread = Thread { hub: &w.hub, repo: w.repo, issue: w.issue };
    let (mut broken, mut left, mut look) = (0, 0, 0);
    let until = Instant::now() + PATIENCE;
    while Instant::now() < until {
        look += 1;
        let due = (broken + 1) * COMMITS;
        if left == 0 && commits.load(Ordering::SeqCst) >= due {
            left = BROKEN;
            broken += 1;
            w.app.store.simulate_disk(if broken % 2 == 0 {
                SimulatedDisk::ReadOnly
            } else {
                SimulatedDisk::Full
            });
            refuses(w, look, broken % 2 == 0).await;
        } else if left > 0 {
            left -= 1;
            if left == 0 {
                sound(w);
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
        // Others work in real time.
        tokio::time::sleep(Duration::from_millis(15)).await;
    }
    panic!("it comes to no end:\n{}", w.thread());
}

/// Nothing is taken that cannot be kept, and the reason is said.
async fn refuses(w: &World, number: usize, read_only: bool) {
    let maya = w.user("maya");
    w.hub.label(w.repo, w.issue, maya, "question").unwrap();
    w.hub.unlabel(w.repo, w.issue, maya, "question").unwrap();
    w.hub.wait_for_webhooks().await; // told of it while the disk is broken
    let said = w.app.store.inbox().accept_delivery(unkept(number)).await.unwrap_err().to_string();
    let reason = if read_only { "may not be written" } else { "the disk is full" };
    assert!(said.contains("main.db") && said.contains(reason), "{said}");
}

/// Larger than any page that happens to be free, also when it is packed.
fn unkept(number: usize) -> NewDelivery {
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

/// Every database holds together while the disk is broken.
fn sound(w: &World) {
    let data = w.directory().join("bot/data");
    for file in ["main.db".to_owned(), format!("repos/{}/checkpoints.db", w.repo)] {
        let path = data.join(file);
        if path.exists() {
            let database = rusqlite::Connection::open(path).unwrap();
            let says: String = database.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
            assert_eq!(says, "ok");
        }
    }
}
