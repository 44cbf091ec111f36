//! Tests of the store with several processes on one Postgres: claims, leases, fencing and cut connections.

use std::{
    collections::HashSet,
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};

use countersign::{
    engine::StartDecision,
    limits,
    store::{
        CacheKey, CallRow, CallStatus, Checkpoint, ClusterEvent, DeliveryDisposition, DeliveryReceipt,
        DeliverySubject, LedgerRecord, NewDelivery, NewRun, PackedValue, PostgresServer, RunLease, RunQuery,
        RunStatus, Store, StoreError,
    },
    types::{DeliveryId, InstallationId, IssueNo, RunId, Timestamp},
};
use postgres::{Client, NoTls};

use super::world::{BEGINNING, ManualClock, REPO, World, bill};
use crate::postgres::database;

/// The nodes of one cluster. Each node has its own directory.
pub(super) struct Nodes {
    pub(super) address: String,
    homes: Vec<tempfile::TempDir>,
    pub(super) stores: Vec<Arc<Store>>,
}

impl Nodes {
    /// Starts `many` nodes. Prints a note and returns `None` if Postgres is not installed.
    pub(super) fn new(many: usize) -> Option<Self> {
        let mut nodes = Self { address: database()?, homes: Vec::new(), stores: Vec::new() };
        for _ in 0..many {
            nodes.join(&nodes.address.clone(), ManualClock::new());
        }
        nodes.wait_for_first_scan();
        Some(nodes)
    }

    /// Waits until each node has renewed its lease and made its first scan. After that, no node scans again during the
    /// test.
    fn wait_for_first_scan(&self) {
        while self.stores.iter().any(|store| store.remote_changes() == 0) {
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Adds a node that uses this database address and this clock.
    pub(super) fn join(&mut self, address: &str, clock: Arc<ManualClock>) {
        // Lease long enough that none is renewed during the test.
        self.join_for(Duration::from_secs(3600), address, clock);
    }

    fn join_for(&mut self, lease: Duration, address: &str, clock: Arc<ManualClock>) {
        let home = tempfile::tempdir().unwrap();
        let server = PostgresServer { address: address.into(), lease };
        self.stores.push(Store::join_postgres(&server, home.path(), clock).unwrap());
        self.homes.push(home);
    }

    /// Runs SQL on a separate connection and returns the resulting numbers.
    pub(super) fn sql(&self, sql: &str) -> Vec<i64> {
        let (address, sql) = (self.address.clone(), sql.to_owned());
        let query = thread::spawn(move || {
            let mut client = Client::connect(&address, NoTls).unwrap();
            client.batch_execute("SET search_path = countersign").unwrap();
            client.query(&sql, &[]).unwrap().iter().map(|row| row.get(0)).collect()
        });
        query.join().unwrap()
    }

    /// Runs SQL on a separate connection, which stays open until the returned sender is dropped.
    pub(super) fn held(&self, sql: String) -> (mpsc::Sender<()>, thread::JoinHandle<()>) {
        let (address, (keep_open, go), (ready, started)) =
            (self.address.clone(), mpsc::channel(), mpsc::channel());
        let staying = thread::spawn(move || {
            let mut client = Client::connect(&address, NoTls).unwrap();
            client.batch_execute(&sql).unwrap();
            ready.send(()).unwrap();
            // Ends when the sender is dropped.
            let _ = go.recv();
        });
        started.recv().unwrap();
        (keep_open, staying)
    }

    /// Expires the lease of this node, as if the node were dead.
    pub(super) fn expire_lease(&self, node: usize) {
        // The first renewal would undo it.
        self.wait_for_first_scan();
        let id = self.stores[node].boot_epoch();
        self.sql(&format!(
            "UPDATE node SET until = now() - interval '1 second' WHERE id = {id} RETURNING id"
        ));
    }
}

pub(super) fn new_run(issue: u64) -> NewRun {
    let trigger = World::trigger(REPO, IssueNo(issue), "walk", &format!("delivery-{issue}"));
    let (step, state) = ("\"Draft\"".to_owned(), b"{}".to_vec());
    NewRun { workflow: "toy".into(), version: 3, trigger, step, state }
}

/// Scans the repositories with live runs, then claims a run for this node.
pub(super) async fn claim(store: &Store) -> Option<RunLease> {
    // One second later, because the node with the repository's mirror has priority.
    claim_at(store, BEGINNING.plus(Duration::from_secs(1))).await
}

pub(super) async fn claim_at(store: &Store, now: Timestamp) -> Option<RunLease> {
    futures_util::future::join_all(store.live_run_scans(now)).await;
    store.claim_run(now, &HashSet::new()).await.unwrap()
}

pub(super) fn wait() -> Checkpoint {
    let until = BEGINNING.plus(Duration::from_secs(3600));
    Checkpoint::Wait { state: b"{}".to_vec(), until, why: "checks run".into() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_is_claimed_by_one_node_at_a_time() {
    let Some(nodes) = Nodes::new(2) else { return };
    for issue in 1..=2 * limits::REPOSITORY_STEPS as u64 {
        nodes.stores[0].start_run(new_run(issue)).await.unwrap();
    }
    let mut held = Vec::<RunId>::new();
    // Each node claims as many runs of one repository as the limit allows, once it knows of them.
    while held.len() < 2 * limits::REPOSITORY_STEPS {
        for store in &nodes.stores {
            if let Some(lease) = claim(store).await {
                assert!(!held.contains(&lease.run.id), "{} has two holders", lease.run.id);
                held.push(lease.run.id);
            }
        }
    }
    let taken = nodes.sql("SELECT COUNT(DISTINCT seq) FROM all_run WHERE taken IS NOT NULL");
    assert_eq!(taken, [i64::try_from(held.len()).unwrap()]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_node_shows_the_runs_of_all_nodes() {
    let Some(nodes) = Nodes::new(2) else { return };
    let StartDecision::New(run) = nodes.stores[0].start_run(new_run(1)).await.unwrap() else { panic!() };
    let db = nodes.stores[1].repository_database(REPO).await.unwrap();
    assert!(!db.has_gate_about(IssueNo(1), "0123456789ab").await.unwrap());
    let ready = RunQuery { state: Some(RunStatus::Ready), most: 5, ..RunQuery::default() };
    let any = RunQuery { state: None, ..ready.clone() };
    // The run needs a person.
    nodes.sql("UPDATE all_run SET parked = 0 RETURNING 1::bigint");
    for (store, query) in nodes.stores.iter().flat_map(|store| [(store, &ready), (store, &any)]) {
        let page = store.run_page(query).await.unwrap();
        assert_eq!(page.runs.iter().map(|line| line.id).collect::<Vec<_>>(), [run], "{query:?}");
    }
    nodes.sql("UPDATE all_run SET parked = NULL RETURNING 1::bigint");
    claim(&nodes.stores[0]).await.unwrap();
    for store in &nodes.stores {
        let page = store.run_page(&any).await.unwrap();
        assert!(page.runs[0].running && store.run_row(run).await.unwrap().unwrap().taken);
    }
    // A run of a dead node does not count as running.
    nodes.expire_lease(0);
    let page = nodes.stores[1].run_page(&any).await.unwrap();
    assert!(!page.runs[0].running && !nodes.stores[1].run_row(run).await.unwrap().unwrap().taken);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_without_a_lease_claims_nothing() {
    let Some(nodes) = Nodes::new(1) else { return };
    let store = &nodes.stores[0];
    store.start_run(new_run(1)).await.unwrap();
    let (id, event) = (DeliveryId("one".into()), "issues".into());
    let new =
        NewDelivery { id, event, subject: DeliverySubject::default(), swept: false, body: b"{}".to_vec() };
    store.inbox().accept_delivery(new).await.unwrap();
    // Another node may claim both at any time.
    nodes.expire_lease(0);
    assert!(claim(store).await.is_none());
    assert!(store.inbox().claim_lanes(8, None).await.unwrap().is_empty());
    nodes.sql("UPDATE node SET until = now() + interval '1 hour' RETURNING id");
    assert_eq!(store.inbox().claim_lanes(8, None).await.unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn delivery_waits_for_a_node_that_serves_its_installation() {
    let Some(mut nodes) = Nodes::new(2) else { return };
    let accept = async |store: &Store, id: &str| {
        let subject = DeliverySubject { installation: Some(InstallationId(7)), ..DeliverySubject::default() };
        let (id, event) = (DeliveryId(id.into()), "issues".into());
        store
            .inbox()
            .accept_delivery(NewDelivery { id, event, subject, swept: false, body: b"{}".to_vec() })
            .await
            .unwrap()
    };
    let tell = async |store: &Store, fingerprint: &str, allows: &[InstallationId]| {
        let fingerprints = [("[budget]", "same".to_owned()), ("[installations]", fingerprint.to_owned())];
        store.publish_settings(&fingerprints.into(), allows).await.unwrap();
    };
    tell(&nodes.stores[0], "none", &[]).await;
    tell(&nodes.stores[1], "one", &[InstallationId(7)]).await;
    for store in &nodes.stores {
        let unlike = loop {
            match &store.differing_nodes()[..] {
                [] => tokio::task::yield_now().await,
                [unlike] => break unlike.clone(),
                more => panic!("{more:?}"),
            }
        };
        assert!(unlike.ends_with(" in [installations]"), "{unlike}");
    }
    assert!(
        nodes.stores[0].is_served_by_cluster(InstallationId(7))
            && !nodes.stores[0].is_served_by_cluster(InstallationId(8))
    );
    accept(&nodes.stores[0], "one").await;
    assert!(nodes.stores[0].inbox().claim_lanes(8, None).await.unwrap().is_empty());
    let taken = nodes.stores[1].inbox().claim().await.unwrap().unwrap();
    nodes.stores[1]
        .inbox()
        .record_dispositions(vec![(taken.id, DeliveryDisposition::Done("handled".into()))])
        .await
        .unwrap();
    // The other node may be restarting. After ten minutes waiting is pointless.
    accept(&nodes.stores[0], "two").await;
    drop(nodes.stores.pop());
    assert!(nodes.stores[0].inbox().claim().await.unwrap().is_none());
    nodes.sql(
        "UPDATE node SET until = until - interval '11 minutes' WHERE '7' = ANY(allows::text[]) RETURNING id",
    );
    assert!(nodes.stores[0].inbox().claim().await.unwrap().is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn index_cache_returns_the_stored_value() {
    let Some(nodes) = Nodes::new(1) else { return };
    let key = CacheKey::from_parts([b"blob".as_slice()]);
    nodes.stores[0].cache(REPO).await.unwrap().put([(key, PackedValue::pack(&key, b"answer"))]).unwrap();
    let kept = nodes.stores[0].cache(REPO).await.unwrap().get(&[key]).unwrap();
    assert_eq!(kept[0].as_ref().unwrap().unpack(&key).unwrap(), b"answer");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_that_lost_a_run_cannot_write_to_it() {
    let Some(nodes) = Nodes::new(2) else { return };
    let [first, second] = [&nodes.stores[0], &nodes.stores[1]];
    let StartDecision::New(run) = first.start_run(new_run(1)).await.unwrap() else { panic!() };
    let lost = claim(first).await.unwrap();
    let db = first.repository_database(REPO).await.unwrap();
    db.journal_begin(&lost, "paid").await.unwrap();
    // The run belongs to its holder while that node lives, and then to the other.
    let scan_and_claim = async || {
        nodes.sql("SELECT 1::bigint FROM pg_notify('countersign', '0 runs 8123')");
        claim(second).await
    };
    assert!(scan_and_claim().await.is_none());
    nodes.expire_lease(0);
    let found = loop {
        if let Some(found) = scan_and_claim().await {
            break found;
        }
        tokio::task::yield_now().await;
    };
    assert_eq!(found.run.id, run);
    // The old holder comes back without knowing that it lost the run.
    for refused in [
        db.journal_begin(&lost, "second").await.map(drop),
        db.journal_done(&lost, "paid", b"1".to_vec()).await,
        first.save_step(&lost, wait()).await,
    ] {
        assert!(matches!(refused, Err(StoreError::Fenced)), "{refused:?}");
    }
    let begun = second.repository_database(REPO).await.unwrap().journal_begin(&found, "paid").await.unwrap();
    assert!(matches!(begun, countersign::store::JournalLookup::Begun { interrupted: true }), "{begun:?}");
    second.save_step(&found, wait()).await.unwrap();
    assert_eq!(nodes.sql("SELECT COUNT(*) FROM all_journal WHERE value IS NOT NULL"), [0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claim_on_a_run_is_kept_in_a_short_wait_and_dropped_in_a_long_wait() {
    let Some(nodes) = Nodes::new(2) else { return };
    let store = &nodes.stores[0];
    store.start_run(new_run(1)).await.unwrap();
    // As while a job runs: the first wait is stored, and a repeated one is not.
    for _ in 0..2 {
        let held = claim(store).await.unwrap();
        let (until, why) = (BEGINNING, "tests run".to_owned());
        store.save_step(&held, Checkpoint::Wait { state: b"{}".to_vec(), until, why }).await.unwrap();
        assert_eq!(nodes.sql("SELECT taken FROM all_run"), [store.boot_epoch()]);
    }
    let held = claim(store).await.unwrap();
    store.save_step(&held, wait()).await.unwrap();
    assert_eq!(nodes.sql("SELECT COUNT(*) FROM all_run WHERE taken IS NULL"), [1]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_that_lost_a_run_cannot_record_a_model_call() {
    let Some(nodes) = Nodes::new(2) else { return };
    let [first, second] = [&nodes.stores[0], &nodes.stores[1]];
    first.start_run(new_run(1)).await.unwrap();
    let lost = claim(first).await.unwrap();
    nodes.expire_lease(0);
    let found = loop {
        if let Some(found) = claim(second).await {
            break found;
        }
        tokio::task::yield_now().await;
    };
    let call = |status| LedgerRecord::Call(CallRow { status, ..bill(1) });
    let [first, second] =
        [first.repository_database(REPO).await.unwrap(), second.repository_database(REPO).await.unwrap()];
    second.record(&found, "paid", call(CallStatus::Done)).await.unwrap();
    let refused = first.record(&lost, "paid", call(CallStatus::Reserved)).await;
    assert!(matches!(refused, Err(StoreError::Fenced)), "{refused:?}");
    // A finished call is recorded all the same, since it was paid for.
    first.record(&lost, "other", call(CallStatus::Done)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deliveries_of_a_failed_node_are_claimed_one_by_one() {
    let Some(mut nodes) = Nodes::new(2) else { return };
    let taken = async |node: usize, nodes: &Nodes| {
        let lanes = nodes.stores[node].inbox().claim_lanes(8, None).await.unwrap();
        lanes.into_iter().flatten().map(|taken| taken.id.0).collect::<Vec<_>>()
    };
    let come = async |id: &str, issue: u64, nodes: &Nodes| {
        let subject = DeliverySubject {
            repository: Some(REPO),
            issue: Some(IssueNo(issue)),
            ..DeliverySubject::default()
        };
        let (id, event) = (DeliveryId(id.into()), "issues".into());
        let new = NewDelivery { id, event, subject, swept: false, body: b"{}".to_vec() };
        assert_eq!(nodes.stores[1].inbox().accept_delivery(new).await.unwrap(), DeliveryReceipt::New);
    };
    for (id, issue) in [("poison", 1), ("beside", 2)] {
        come(id, issue, &nodes).await;
    }
    assert_eq!(taken(0, &nodes).await, ["poison", "beside"]);
    nodes.expire_lease(0);
    // A joining node frees the deliveries, and the others learn of them a moment later.
    nodes.join(&nodes.address.clone(), ManualClock::new());
    nodes.wait_for_first_scan();
    for (id, issue) in [("behind", 2), ("new", 3)] {
        come(id, issue, &nodes).await;
    }
    assert_eq!(taken(1, &nodes).await, ["new"], "a node that has not learnt of them claims none");
    for id in ["poison", "beside"] {
        let alone = loop {
            let alone = taken(2, &nodes).await;
            if !alone.is_empty() {
                break alone;
            }
            tokio::task::yield_now().await;
        };
        assert_eq!(alone, [id]);
        assert_eq!(taken(2, &nodes).await, [""; 0], "no other delivery is claimed with it");
        let done = vec![(DeliveryId(id.into()), DeliveryDisposition::Done(String::new()))];
        nodes.stores[2].inbox().record_dispositions(done).await.unwrap();
    }
    assert_eq!(taken(2, &nodes).await, ["behind"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lease_that_cannot_be_renewed_expires_and_is_regained_later() {
    let Some(mut nodes) = Nodes::new(0) else { return };
    nodes.join_for(Duration::from_secs(2), &nodes.address.clone(), ManualClock::new());
    let store = Arc::clone(&nodes.stores[0]);
    let until = async |holds: bool| {
        while store.lease_left().unwrap().is_zero() == holds {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    until(true).await;
    // The lease renewal waits for this lock, as for a database that does not answer.
    let (held, holder) = nodes.held("BEGIN; LOCK TABLE countersign.node".to_owned());
    while store.next_cluster_event().await != ClusterEvent::LeaseOver {}
    until(false).await;
    drop(held);
    holder.join().unwrap();
    until(true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rate_limits_are_shared_between_nodes() {
    let Some(nodes) = Nodes::new(2) else { return };
    let installation = InstallationId(7);
    // Repeats until the other node listens.
    while nodes.stores[1].rate_limited_until(installation, true).is_none() {
        nodes.stores[0].publish_rate_limit(installation, true, BEGINNING).await.unwrap();
    }
    assert_eq!(nodes.stores[1].rate_limited_until(installation, true), Some(BEGINNING));
    assert_eq!(nodes.stores[1].rate_limited_until(installation, false), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_connection_is_checked_before_reuse() {
    let Some(nodes) = Nodes::new(1) else { return };
    let store = &nodes.stores[0];
    store.start_run(new_run(1)).await.unwrap();
    let cut = "SELECT COUNT(pg_terminate_backend(pid, 10000)) FROM pg_stat_activity
               WHERE application_name = 'countersign' AND datname = current_database()";
    assert!(nodes.sql(cut)[0] > 0);
    // Longer than a pooled connection is reused without a check.
    tokio::time::sleep(Duration::from_millis(600)).await;
    store.start_run(new_run(2)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runs_are_stored_exactly_once_when_postgres_connections_are_cut() {
    const RUNS: u64 = 60;
    let Some(nodes) = Nodes::new(1) else { return };
    let store = &nodes.stores[0];
    let (address, (bell, rung)) = (nodes.address.clone(), mpsc::channel::<u64>());
    // Cuts connections once for each run, each time a little later after the request.
    let cutter = thread::spawn(move || {
        let mut client = Client::connect(&address, NoTls).unwrap();
        let mut cut = 0;
        while let Ok(asked) = rung.recv() {
            for _ in 0..asked % 12 {
                client.simple_query("SELECT 1").unwrap();
            }
            let sql = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                       WHERE application_name = 'countersign' AND datname = current_database()";
            cut += client.query(sql, &[]).unwrap().len();
        }
        cut
    });
    for issue in 1..=RUNS {
        bell.send(issue).unwrap();
        while store.start_run(new_run(issue)).await.is_err() {}
    }
    drop(bell);
    assert!(cutter.join().unwrap() > 0, "nothing was cut");
    let runs = i64::try_from(RUNS).unwrap();
    for (sql, expected) in [
        ("SELECT COUNT(*) FROM all_run", runs),
        ("SELECT COUNT(DISTINCT cause) FROM all_run", runs),
        ("SELECT COUNT(*) FROM all_trail", runs),
        ("SELECT COUNT(*) FROM all_audit WHERE what = 'a run was started'", runs),
    ] {
        assert_eq!(nodes.sql(sql), [expected], "{sql}");
    }
}
