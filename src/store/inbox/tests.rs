use std::{
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures_util::future::BoxFuture;
use rusqlite::Connection;

use super::*;
use crate::clock::Clock;

/// A clock that tests set by hand.
struct InboxTestClock(Mutex<Timestamp>);

impl Clock for InboxTestClock {
    fn now(&self) -> Timestamp {
        *self.0.lock().unwrap()
    }

    fn sleep(&self, _: Duration) -> BoxFuture<'_, ()> {
        Box::pin(std::future::pending())
    }
}

const NOW: Timestamp = Timestamp(1_800_000_000_000);
const DAY: Duration = Duration::from_secs(24 * 3600);

struct InboxBench {
    root: tempfile::TempDir,
    clock: Arc<InboxTestClock>,
    store: Arc<Store>,
}

impl InboxBench {
    fn new() -> Self {
        Self::at(tempfile::tempdir().unwrap())
    }

    fn at(root: tempfile::TempDir) -> Self {
        let clock = Arc::new(InboxTestClock(Mutex::new(NOW)));
        let store = Store::open(root.path(), clock.clone()).unwrap();
        Self { root, clock, store }
    }

    fn reboot(self) -> Self {
        let Self { root, clock, store } = self;
        drop(store);
        let store = Store::open(root.path(), clock.clone()).unwrap();
        Self { root, clock, store }
    }

    fn advance_clock(&self, time: Duration) {
        let mut now = self.clock.0.lock().unwrap();
        *now = now.plus(time);
    }

    fn set_clock_back(&self, time: Duration) {
        let mut now = self.clock.0.lock().unwrap();
        *now = now.minus(time);
    }

    async fn accept(&self, id: &str, subject: DeliverySubject) {
        let new = NewDelivery {
            id: DeliveryId(id.into()),
            event: "issues".into(),
            subject,
            swept: false,
            body: id.as_bytes().to_vec(),
        };
        assert_eq!(self.store.inbox().accept_delivery(new).await.unwrap(), DeliveryReceipt::New);
    }

    /// Claims deliveries and returns their IDs as one string per lane.
    async fn claim(&self, lanes: usize) -> Vec<String> {
        self.claim_after(lanes, None).await
    }

    async fn claim_after(&self, lanes: usize, after: Option<RepoId>) -> Vec<String> {
        let lanes = self.store.inbox().claim_lanes(lanes, after).await.unwrap();
        let ids = lanes.iter().map(|lane| lane.iter().map(|taken| taken.id.0.as_str()).collect::<Vec<_>>());
        ids.map(|lane| lane.join(" ")).collect()
    }

    /// Inserts these deliveries as rows in the state of just being claimed.
    async fn mark_taken(&self, rows: &[(DeliveryId, DeliverySubject, DeliveryDisposition)]) {
        let rows: Vec<_> = rows.iter().map(|(id, subject, _)| (id.clone(), *subject)).collect();
        let epoch = self.store.epoch;
        let taken = move |tx: &Transaction<'_>| {
            for (id, subject) in &rows {
                insert_delivery(tx, NOW, id, "issues", subject, false, &PackedBody::pack(Vec::new()))?;
            }
            tx.execute("UPDATE inbox SET state = 'taken', epoch = ?1 WHERE id LIKE 'put-off-%'", [epoch])
        };
        assert!(self.store.main.write(taken).await.unwrap() > 0);
    }

    /// Returns the number of steps of SQLite's virtual machine for a claim and a query of the next due time. Both are
    /// rolled back.
    fn sqlite_steps(&self) -> u64 {
        let mut connection = Connection::open(self.root.path().join("main.db")).unwrap();
        let steps = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&steps);
        let count = move || counted.fetch_add(1, Ordering::Relaxed) == u64::MAX;
        connection.progress_handler(1, Some(count)).unwrap();
        let tx = connection.transaction().unwrap();
        let tx = Transaction::File(&tx);
        let (taken, _) =
            claim::claim_deliveries(&tx, self.clock.now(), 1, false, claim::ClaimLimit::Lanes(8), 0).unwrap();
        assert_eq!(taken.len(), 1);
        next_due(&tx).unwrap();
        steps.load(Ordering::Relaxed)
    }

    async fn finish(&self, id: &str, outcome: DeliveryDisposition) {
        self.store.inbox().record_dispositions(vec![(DeliveryId(id.into()), outcome)]).await.unwrap();
    }

    async fn finish_done(&self, id: &str) {
        self.finish(id, DeliveryDisposition::Done("dealt with".into())).await;
    }

    async fn put_off(&self, id: &str, by: Duration) {
        let now = self.clock.now();
        let holds = now.plus(limits::DELIVERY_HOLD_TIME);
        self.finish(
            id,
            DeliveryDisposition::PutOff { why: "GitHub is down".into(), at: now.plus(by), holds },
        )
        .await;
    }
}

fn issue(repository: u64, issue: u64) -> DeliverySubject {
    DeliverySubject { issue: Some(IssueNo(issue)), ..repo(repository) }
}

fn repo(repository: u64) -> DeliverySubject {
    DeliverySubject { repository: Some(RepoId(repository)), ..installation() }
}

fn installation() -> DeliverySubject {
    DeliverySubject { installation: Some(InstallationId(7)), ..DeliverySubject::default() }
}

fn as_fence(subject: DeliverySubject) -> DeliverySubject {
    DeliverySubject { fence: true, ..subject }
}

#[tokio::test]
async fn deliveries_run_in_parallel_across_issues_and_in_order_within_an_issue() {
    let b = InboxBench::new();
    for (id, on) in [("a1", issue(1, 1)), ("b1", issue(1, 2)), ("a2", issue(1, 1)), ("r", repo(1))] {
        b.accept(id, on).await;
    }
    assert_eq!(b.claim(8).await, ["a1 a2", "b1", "r"]);
    b.accept("a3", issue(1, 1)).await;
    b.accept("c1", issue(1, 3)).await;
    assert_eq!(b.claim(8).await, ["c1"], "its issue is in hand");
    b.finish_done("a1").await;
    assert!(b.claim(8).await.is_empty(), "and still is");
    b.finish_done("a2").await;
    assert_eq!(b.claim(8).await, ["a3"]);
}

#[tokio::test]
async fn postponed_delivery_delays_later_deliveries_of_its_issue_for_a_limited_time() {
    let b = InboxBench::new();
    for (id, on) in [("a1", issue(1, 1)), ("b1", issue(1, 2))] {
        b.accept(id, on).await;
    }
    assert_eq!(b.claim(1).await, ["a1"]);
    b.put_off("a1", Duration::from_secs(3600)).await;
    b.accept("a2", issue(1, 1)).await;
    assert_eq!(b.claim(8).await, ["b1"], "others do not wait for it");
    let free = b.clock.now().plus(limits::DELIVERY_HOLD_TIME);
    assert_eq!(b.store.inbox().next_due().await.unwrap(), Some(free));
    b.advance_clock(limits::DELIVERY_HOLD_TIME);
    assert_eq!(b.claim(8).await, ["a2"], "it does not silence its issue");
    b.advance_clock(Duration::from_secs(3600));
    assert!(b.claim(8).await.is_empty(), "and still they are not dealt with at once");
    b.finish_done("a2").await;
    assert_eq!(b.claim(8).await, ["a1"]);
}

#[tokio::test]
async fn released_delivery_is_claimed_again_without_counting_the_first_attempt() {
    let b = InboxBench::new();
    b.accept("a1", issue(1, 1)).await;
    b.accept("a2", issue(1, 1)).await;
    let lane = b.store.inbox().claim_lanes(8, None).await.unwrap().remove(0);
    let outcomes = vec![
        (lane[0].id.clone(), DeliveryDisposition::PutOff { why: "later".into(), at: NOW, holds: NOW }),
        (lane[1].id.clone(), DeliveryDisposition::Released),
    ];
    b.store.inbox().record_dispositions(outcomes).await.unwrap();
    let lane = b.store.inbox().claim_lanes(8, None).await.unwrap().remove(0);
    assert_eq!((lane[1].attempts, lane[0].taken_before, lane[1].taken_before), (1, true, false));
}

#[tokio::test]
async fn repository_fence_waits_for_earlier_deliveries_and_blocks_later_ones() {
    let b = InboxBench::new();
    for (id, on) in [
        ("a1", issue(1, 1)),
        ("other", issue(2, 1)),
        ("renamed", as_fence(repo(1))),
        ("a2", issue(1, 1)),
        ("b1", issue(1, 2)),
    ] {
        b.accept(id, on).await;
    }
    assert_eq!(b.claim(8).await, ["a1", "other"]);
    assert!(b.claim(8).await.is_empty());
    b.finish_done("a1").await;
    assert_eq!(b.claim(8).await, ["renamed"]);
    assert!(b.claim(8).await.is_empty());
    b.finish_done("renamed").await;
    assert_eq!(b.claim(8).await, ["a2", "b1"]);
}

#[tokio::test]
async fn installation_fence_waits_for_deliveries_of_all_its_repositories() {
    let b = InboxBench::new();
    let stranger = DeliverySubject { installation: Some(InstallationId(8)), ..issue(3, 1) };
    for (id, on) in [
        ("a", issue(1, 1)),
        ("suspended", as_fence(installation())),
        ("late", issue(2, 1)),
        ("stranger", stranger),
        ("unsuspended", as_fence(installation())),
    ] {
        b.accept(id, on).await;
    }
    assert_eq!(b.claim(8).await, ["a", "stranger"]);
    b.finish_done("a").await;
    assert_eq!(b.claim(8).await, ["suspended"]);
    b.finish_done("suspended").await;
    assert_eq!(b.claim(8).await, ["late"]);
    // It sleeps while its installation is suspended, and must not block the delivery that ends the suspension.
    let now = b.clock.now();
    b.finish("late", DeliveryDisposition::PutOff { why: "suspended".into(), at: now.plus(DAY), holds: now })
        .await;
    assert_eq!(b.claim(8).await, ["unsuspended"]);
    b.store.inbox().resume_installation(InstallationId(7)).await.unwrap();
    b.finish_done("unsuspended").await;
    assert_eq!(b.claim(8).await, ["late"]);
}

#[tokio::test]
async fn delivery_flood_of_one_repository_does_not_delay_other_repositories() {
    let b = InboxBench::new();
    for n in 0..300 {
        b.accept(&format!("flood-{n}"), issue(5, n)).await;
    }
    b.accept("before", issue(4, 1)).await;
    b.accept("after", issue(6, 1)).await;
    assert_eq!(b.claim_after(3, Some(RepoId(5))).await, ["after", "before", "flood-0"]);
    assert_eq!(b.claim_after(2, Some(RepoId(5))).await, ["flood-1", "flood-2"], "and nobody idles for it");
    for n in 0..5 {
        b.accept(&format!("one-issue-{n}"), issue(7, 1)).await;
    }
    assert_eq!(
        b.claim_after(2, Some(RepoId(5))).await,
        ["one-issue-0 one-issue-1 one-issue-2 one-issue-3 one-issue-4", "flood-3"]
    );
}

#[tokio::test]
async fn postponed_deliveries_do_not_slow_down_claiming_deliveries() {
    let b = InboxBench::new();
    b.accept("ready", issue(5, 1)).await;
    let alone = b.sqlite_steps();
    // One and many repositories, with and without issues, fences, a suspended installation, and a fault.
    let now = b.clock.now();
    let mut outcomes = Vec::new();
    for n in 0..3000 {
        let (id, repository) = (format!("put-off-{n}"), if n % 2 == 0 { 4 } else { 1000 + n });
        let subject = match n % 10 {
            0 => as_fence(installation()),
            1 => as_fence(repo(repository)),
            2 => repo(repository),
            _ => issue(repository, n),
        };
        let holds = if n % 3 == 0 { now.plus(limits::DELIVERY_HOLD_TIME) } else { now };
        outcomes.push((
            DeliveryId(id),
            subject,
            DeliveryDisposition::PutOff { why: "not now".into(), at: now.plus(DAY), holds },
        ));
    }
    b.mark_taken(&outcomes).await;
    b.store
        .inbox()
        .record_dispositions(outcomes.into_iter().map(|(id, _, outcome)| (id, outcome)).collect())
        .await
        .unwrap();
    assert_eq!(b.store.inbox().counts().await.unwrap().new, 3001);
    b.advance_clock(limits::DELIVERY_HOLD_TIME);
    let most = usize::try_from(limits::WAKE_ROWS).unwrap();
    for _ in 0..=1000 / most {
        assert!(b.claim(0).await.is_empty());
    }
    let among_them = b.sqlite_steps();
    assert!(among_them < alone + 50, "{among_them} steps instead of {alone}");
    assert_eq!(b.claim(8).await, ["ready"]);
    assert_eq!(b.store.inbox().next_due().await.unwrap(), Some(now.plus(DAY)));
    b.advance_clock(DAY);
    for _ in 0..=3000 / most {
        b.claim(0).await;
    }
    assert_eq!(b.store.inbox().next_due().await.unwrap(), None, "all of them are awake");
}

#[tokio::test]
async fn claim_of_one_delivery_takes_the_oldest() {
    let b = InboxBench::new();
    for (id, on) in
        [("1", issue(9, 1)), ("2", repo(1)), ("3", DeliverySubject::default()), ("4", issue(9, 1))]
    {
        b.accept(id, on).await;
    }
    for id in ["1", "2", "3", "4"] {
        assert_eq!(b.store.inbox().claim().await.unwrap().unwrap().id.0, id);
        b.finish_done(id).await;
    }
}

#[tokio::test]
async fn delivery_that_crashes_the_server_is_retried_alone_and_then_marked_dead() {
    let mut b = InboxBench::new();
    b.accept("poison", issue(1, 1)).await;
    b.accept("beside", issue(1, 2)).await;
    b.accept("behind", issue(1, 1)).await;
    assert_eq!(b.claim(8).await, ["poison behind", "beside"]);
    for _ in 1..limits::DELIVERY_CRASHES {
        b = b.reboot();
        b.accept("new", issue(3, 1)).await;
        assert_eq!(b.claim(8).await, ["poison"], "alone, so that each end counts against it");
        assert!(b.claim(8).await.is_empty());
        let forget = "DELETE FROM inbox WHERE id = 'new'";
        b.store.main.write(move |tx| tx.execute(forget, [])).await.unwrap();
    }
    b = b.reboot();
    assert_eq!(b.store.inbox().counts().await.unwrap().dead, 1);
    assert_eq!(b.claim(8).await, ["beside"]);
    b.finish_done("beside").await;
    assert_eq!(b.claim(8).await, ["behind"]);
    b.finish_done("behind").await;
    b.accept("x", issue(3, 1)).await;
    b.accept("y", issue(3, 2)).await;
    assert_eq!(b.claim(8).await, ["x", "y"], "with the suspects gone, side by side again");
}

#[tokio::test]
async fn clock_jump_does_not_delay_deliveries() {
    let b = InboxBench::new();
    b.accept("a", issue(1, 1)).await;
    b.set_clock_back(Duration::from_secs(3600));
    assert_eq!(b.claim(8).await, ["a"], "what came an hour from now is ready");
    b.put_off("a", Duration::from_secs(5)).await;
    b.set_clock_back(Duration::from_secs(3600));
    assert_eq!(b.claim(8).await, ["a"], "so is what was put off by a clock that was wrong");
    b.finish_done("a").await;
    b.advance_clock(365 * DAY);
    b.accept("b", issue(1, 1)).await;
    assert_eq!(b.claim(8).await, ["b"]);
}

#[tokio::test]
async fn event_received_in_two_deliveries_is_processed_for_only_one_of_them() {
    let b = InboxBench::new();
    for id in ["app-hook", "other-hook"] {
        b.accept(id, issue(1, 1)).await;
    }
    let cause = Cause("comment-5".into());
    let owns = |id: &str| {
        let id = DeliveryId(id.into());
        let (store, cause) = (b.store.clone(), cause.clone());
        async move { store.inbox().claim_cause(&id, &cause).await.unwrap() }
    };
    assert!(owns("app-hook").await);
    assert!(owns("app-hook").await, "also at a second try");
    assert!(!owns("other-hook").await);
    b.store.inbox().claim().await.unwrap();
    b.finish("app-hook", DeliveryDisposition::Dead("given up".into())).await;
    assert!(owns("other-hook").await, "what was given up is left to others");
}

#[tokio::test]
async fn delivery_bodies_expire_before_their_ids() {
    let b = InboxBench::new();
    for (id, on) in [("done", issue(1, 1)), ("dead", issue(1, 2)), ("waiting", issue(1, 3))] {
        b.accept(id, on).await;
    }
    for _ in 0..2 {
        b.store.inbox().claim().await.unwrap();
    }
    b.finish_done("done").await;
    b.finish("dead", DeliveryDisposition::Dead("unreadable".into())).await;
    let bodies = || async {
        while b.store.inbox().delete_expired().await.unwrap() > 0 {}
        let sql = "SELECT id FROM inbox WHERE length(body) > 0 ORDER BY seq";
        let ids = |tx: &Transaction<'_>| {
            let mut statement = tx.prepare(sql)?;
            statement.query_map([], |row| row.get(0))?.collect::<Result<Vec<String>, _>>()
        };
        b.store.main.read(ids).await.unwrap()
    };
    assert_eq!(bodies().await, ["done", "dead", "waiting"]);
    b.advance_clock(8 * DAY);
    assert_eq!(bodies().await, ["dead", "waiting"]);
    b.advance_clock(30 * DAY);
    assert_eq!(bodies().await, ["waiting"]);
    let counts = b.store.inbox().counts().await.unwrap();
    assert_eq!((counts.new, counts.done, counts.dead), (1, 1, 1), "the ids are known for longer");
    b.advance_clock(90 * DAY);
    assert_eq!(bodies().await, ["waiting"]);
    let counts = b.store.inbox().counts().await.unwrap();
    assert_eq!((counts.new, counts.done, counts.dead), (1, 0, 0));
    assert_eq!(b.claim(8).await, ["waiting"], "what is not done is never dropped");
}

#[tokio::test]
async fn inbox_database_of_schema_version_1_is_migrated() {
    let root = tempfile::tempdir().unwrap();
    write_first_version(&root.path().join("main.db"));
    let b = InboxBench::at(root);
    let counts = b.store.inbox().counts().await.unwrap();
    assert_eq!(counts, InboxCounts { new: 5, taken: 0, done: 1, dead: 1 });

    // Claimed when the old version stopped, so it is a suspect.
    let taken = b.store.inbox().claim_lanes(8, None).await.unwrap().remove(0).remove(0);
    assert_eq!(
        (taken.id.0.as_str(), taken.attempts, taken.taken_before, taken.swept),
        ("taken", 2, true, false)
    );
    assert_eq!(taken.subject, issue(9, 4));
    let body = String::from_utf8(taken.body().unwrap()).unwrap();
    assert!(body.starts_with("{\"repository\""), "{body}");
    b.finish_done("taken").await;
    assert_eq!(b.claim(8).await, ["new", "strange not json"]);
    for id in ["new", "strange", "not json"] {
        b.finish_done(id).await;
    }
    assert_eq!(b.claim(8).await, ["renamed"], "what came after a fence then still does");

    let again = |id: &str| NewDelivery {
        id: DeliveryId(id.into()),
        event: "issues".into(),
        subject: issue(9, 4),
        swept: false,
        body: b"{\"again\":true}".to_vec(),
    };
    assert_eq!(b.store.inbox().accept_delivery(again("done")).await.unwrap(), DeliveryReceipt::Duplicate);
    assert_eq!(b.store.inbox().accept_delivery(again("dead")).await.unwrap(), DeliveryReceipt::Rearmed);
}

#[tokio::test]
async fn inbox_database_of_schema_version_2_is_migrated() {
    let root = tempfile::tempdir().unwrap();
    let connection = Connection::open(root.path().join("main.db")).unwrap();
    for migration in [include_str!("../migrations/main-1.sql"), include_str!("../migrations/main-2.sql")] {
        connection.execute_batch(migration).unwrap();
    }
    connection.execute_batch("PRAGMA application_id = 0x43536d31; PRAGMA user_version = 2").unwrap();
    for (id, state, due, holds) in
        [("asleep", "new", NOW.0 + 9, NOW.0), ("holding", "new", NOW.0 + 9, NOW.0 + 5), ("new", "new", 0, 0)]
    {
        connection
            .execute(
                "INSERT INTO inbox (id, event, repository, issue, body, state, due, put_at, holds_until, received_at)
                 VALUES (?1, 'issues', 9, 4, x'', ?2, ?3, ?4, ?5, ?4)",
                params![id, state, due, NOW.0, holds],
            )
            .unwrap();
    }
    drop(connection);
    let b = InboxBench::at(root);
    assert_eq!(b.store.inbox().counts().await.unwrap().new, 3);
    assert_eq!(b.claim(8).await, ["asleep holding new"], "a boot tries all at once, in their order");
}

/// Creates an inbox with the first schema version. It contains a delivery in each state, and some unusual bodies.
fn write_first_version(file: &Path) {
    let connection = Connection::open(file).unwrap();
    connection.execute_batch(include_str!("../migrations/main-1.sql")).unwrap();
    connection.execute_batch("PRAGMA application_id = 0x43536d31; PRAGMA user_version = 1").unwrap();
    connection.execute_batch("INSERT INTO meta VALUES ('epoch', '3')").unwrap();
    connection
        .execute_batch(
            "INSERT INTO repository VALUES (9, 7, 'maya', 'tally', 1); INSERT INTO hint VALUES (9, 1, 5)",
        )
        .unwrap();
    let on = |number: u64| {
        format!(
            "{{\"repository\":{{\"id\":9}},\"issue\":{{\"number\":{number}}},\"installation\":{{\"id\":7}}}}"
        )
    };
    let rows = [
        ("done", "issues", "done", 1, on(4).into_bytes()),
        ("dead", "issues", "dead", 1, on(4).into_bytes()),
        ("taken", "issue_comment", "taken", 1, on(4).into_bytes()),
        ("new", "issues", "new", 0, on(5).into_bytes()),
        ("strange", "issues", "new", 0, b"{\"repository\":{\"id\":\"x\"},\"issue\":[]}".to_vec()),
        ("not json", "issues", "new", 0, vec![0xff, 0xfe]),
        ("renamed", "repository", "new", 0, b"{\"repository\":{\"id\":9}}".to_vec()),
    ];
    for (id, event, state, attempts, body) in rows {
        let ended = matches!(state, "done" | "dead").then_some(NOW.0 - 1);
        connection
            .execute(
                "INSERT INTO inbox (id, event, installation, body, state, attempts, due, epoch, received_at, ended_at)
                 VALUES (?1, ?2, 7, ?3, ?4, ?5, ?6, CASE ?4 WHEN 'taken' THEN 3 END, ?6, ?7)",
                params![id, event, body, state, attempts, NOW.0 - 60_000, ended],
            )
            .unwrap();
    }
}
