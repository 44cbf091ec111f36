//! Several processes on one Postgres, as far as the store alone decides: who gets which run, whose word counts, and what a
//! cut connection leaves.

use std::{
    collections::HashSet,
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};

use countersign::{
    engine::Opened,
    limits,
    store::{Checkpoint, Lease, NewRun, Server, Store, StoreError},
    types::{IssueNo, RunId},
};
use postgres::{Client, NoTls};

use super::world::{BEGINNING, Hands, REPO, World};
use crate::postgres::database;

/// Nodes with directories of their own.
struct Nodes {
    address: String,
    _homes: Vec<tempfile::TempDir>,
    stores: Vec<Arc<Store>>,
}

impl Nodes {
    /// None: there is no Postgres here, and that was said.
    fn new(many: usize) -> Option<Self> {
        let address = database()?;
        let homes: Vec<_> = (0..many).map(|_| tempfile::tempdir().unwrap()).collect();
        // So long that no lease is renewed before the test is over.
        let server = Server { address: address.clone().into(), lease: Duration::from_secs(3600) };
        let join = |home: &tempfile::TempDir| Store::join(&server, home.path(), Hands::new()).unwrap();
        let stores = homes.iter().map(join).collect();
        Some(Self { address, _homes: homes, stores })
    }

    /// Somebody else at the database.
    fn sql(&self, sql: &str) -> Vec<i64> {
        let (address, sql) = (self.address.clone(), sql.to_owned());
        let asked = thread::spawn(move || {
            let mut client = Client::connect(&address, NoTls).unwrap();
            client.batch_execute("SET search_path = countersign").unwrap();
            client.query(&sql, &[]).unwrap().iter().map(|row| row.get(0)).collect()
        });
        asked.join().unwrap()
    }

    /// As if this node had not been heard of for long.
    fn is_dead(&self, node: usize) {
        let id = self.stores[node].boot();
        self.sql(&format!(
            "UPDATE node SET until = now() - interval '1 second' WHERE id = {id} RETURNING id"
        ));
    }
}

fn new_run(issue: u64) -> NewRun {
    let trigger = World::trigger(REPO, IssueNo(issue), "walk", &format!("delivery-{issue}"));
    let (step, state) = ("\"Draft\"".to_owned(), b"{}".to_vec());
    NewRun { workflow: "toy".into(), version: 3, trigger, step, state }
}

/// What this node gets, after it has looked.
async fn claim(store: &Store) -> Option<Lease> {
    // A moment later, since whoever has the mirror goes first.
    let now = BEGINNING.plus(Duration::from_secs(1));
    futures_util::future::join_all(store.looks(now)).await;
    store.claim_run(now, &HashSet::new()).await.unwrap()
}

fn wait() -> Checkpoint {
    let until = BEGINNING.plus(Duration::from_secs(3600));
    Checkpoint::Wait { state: b"{}".to_vec(), until, why: "checks run".into() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_run_is_two_nodes_at_once() {
    let Some(nodes) = Nodes::new(2) else { return };
    for issue in 1..=2 * limits::REPOSITORY_STEPS as u64 {
        nodes.stores[0].start_run(new_run(issue)).await.unwrap();
    }
    let mut held = Vec::<RunId>::new();
    // Each takes as many of one repository as it may, once it has heard of them.
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
async fn whoever_lost_a_run_to_another_writes_nothing_more() {
    let Some(nodes) = Nodes::new(2) else { return };
    let [first, second] = [&nodes.stores[0], &nodes.stores[1]];
    let Opened::New(run) = first.start_run(new_run(1)).await.unwrap() else { panic!() };
    let lost = claim(first).await.unwrap();
    let db = first.repo(REPO).await.unwrap();
    db.journal_begin(&lost, "paid").await.unwrap();
    // It is not the other's while its holder lives, and then it is.
    let looked = async || {
        nodes.sql("SELECT 1::bigint FROM pg_notify('countersign', '0 runs 8123')");
        claim(second).await
    };
    assert!(looked().await.is_none());
    nodes.is_dead(0);
    let found = loop {
        if let Some(found) = looked().await {
            break found;
        }
        tokio::task::yield_now().await;
    };
    assert_eq!(found.run.id, run);
    // Its holder comes back and knows nothing of it.
    for refused in [
        db.journal_begin(&lost, "second").await.map(drop),
        db.journal_done(&lost, "paid", b"1".to_vec()).await,
        first.save_step(&lost, wait()).await,
    ] {
        assert!(matches!(refused, Err(StoreError::Fenced)), "{refused:?}");
    }
    let begun = second.repo(REPO).await.unwrap().journal_begin(&found, "paid").await.unwrap();
    assert!(matches!(begun, countersign::store::Begun::Fresh { interrupted: true }), "{begun:?}");
    second.save_step(&found, wait()).await.unwrap();
    assert_eq!(nodes.sql("SELECT COUNT(*) FROM all_journal WHERE value IS NOT NULL"), [0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cut_connection_leaves_nothing_half_done_and_nothing_twice() {
    const RUNS: u64 = 60;
    let Some(nodes) = Nodes::new(1) else { return };
    let store = &nodes.stores[0];
    let (address, (bell, rung)) = (nodes.address.clone(), mpsc::channel::<u64>());
    // Once for each run, each time a little later after it was asked for.
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
    for (sql, told) in [
        ("SELECT COUNT(*) FROM all_run", runs),
        ("SELECT COUNT(DISTINCT cause) FROM all_run", runs),
        ("SELECT COUNT(*) FROM all_trail", runs),
        ("SELECT COUNT(*) FROM all_audit WHERE what = 'a run was started'", runs),
    ] {
        assert_eq!(nodes.sql(sql), [told], "{sql}");
    }
}

#[test]
fn a_database_that_cannot_be_used_is_refused_in_a_sentence() {
    let Some(nodes) = Nodes::new(1) else { return };
    let home = tempfile::tempdir().unwrap();
    let refused = |address: &str| {
        let server = Server { address: address.into(), lease: Duration::from_secs(60) };
        Store::join(&server, home.path(), Hands::new()).err().unwrap().to_string()
    };
    nodes.sql("UPDATE meta SET value = '99' WHERE key = 'schema' RETURNING 1::bigint");
    assert!(refused(&nodes.address).contains("written by a newer countersign (schema 99"));
    nodes.sql("UPDATE meta SET value = '1' WHERE key = 'schema' RETURNING 1::bigint");
    let name = nodes.address.rsplit('/').next().unwrap();
    assert!(refused(&nodes.address.replace("countersign@", "nobody_here@")).contains("nobody_here"));
    assert!(refused(&nodes.address.replace(name, "no_such_database")).contains("no_such_database"));
    assert!(refused("postgres://127.0.0.1:1/x").contains("see to the server"));
    assert!(refused("mysql://x").contains("its address"));
    std::fs::write(home.path().join("main.db"), "").unwrap();
    assert!(refused(&nodes.address).contains("holds databases in files"));
}
