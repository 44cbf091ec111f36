//! Failures of Postgres, of the network and of a node's clock. Each failure must be reported, and nothing may be lost
//! or done twice.

use std::{
    collections::HashSet,
    io::{Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

use countersign::{
    engine::StartDecision,
    store::{PostgresServer, Store, StoreError},
    types::RepoId,
};
use tokio::task::JoinSet;

use super::{
    cluster::{Nodes, claim, claim_at, new_run, wait},
    world::{BEGINNING, ManualClock, REPO},
};
use crate::postgres::{GUARDED, sql};

#[test]
fn unusable_postgres_database_is_refused_with_an_error_that_names_the_fix() {
    let Some(nodes) = Nodes::new(1) else { return };
    let home = tempfile::tempdir().unwrap();
    let join = |address: &str| {
        let server = PostgresServer { address: address.into(), lease: Duration::from_secs(60) };
        Store::join_postgres(&server, home.path(), ManualClock::new())
    };
    let refused = |address: &str, fix: &str| {
        let message = join(address).err().unwrap().to_string();
        assert!(message.contains(fix), "{message}");
        message
    };
    nodes.sql("UPDATE meta SET value = '99' WHERE key = 'schema' RETURNING 1::bigint");
    assert!(refused(&nodes.address, "; run that version").contains("a newer countersign (schema 99"));
    nodes.sql("UPDATE meta SET value = '1' WHERE key = 'schema' RETURNING 1::bigint");
    let (others, name) = nodes.address.rsplit_once('/').unwrap();
    let of = |who: &str| nodes.address.replace("countersign@", &format!("{who}@"));
    assert!(refused(&of("nobody_here"), "put a role and password").contains("nobody_here"));
    let absent = format!("{others}/no_such_database");
    assert!(refused(&absent, "create that database").contains("no_such_database"));
    refused("postgres://127.0.0.1:1/x", "check the server");
    refused("mysql://x", "its address");

    sql(&nodes.address, &format!("CREATE ROLE {GUARDED} LOGIN PASSWORD 'right'"));
    sql(&nodes.address, &format!("CREATE DATABASE {name}_bare"));
    let bare = |password: &str| format!("{}_bare", of(&format!("{GUARDED}:{password}")));
    let message = refused(&bare("wrong"), "put a role and password");
    assert!(message.contains("password authentication failed") && !message.contains("wrong"), "{message}");
    refused(&bare("right"), "GRANT CREATE ON DATABASE");
    sql(&nodes.address, &format!("GRANT CREATE ON DATABASE {name}_bare TO {GUARDED}"));
    join(&bare("right")).unwrap();
    sql(&nodes.address, &format!("ALTER ROLE {GUARDED} CONNECTION LIMIT 0"));
    refused(&bare("right"), "raise max_connections");

    std::fs::write(home.path().join("main.db"), "").unwrap();
    refused(&nodes.address, "holds databases in files");
}

/// Node ids are assigned by the database. So a copy of a machine, including its disk, joins the cluster as a new node.
#[test]
fn node_ids_are_unique() {
    let Some(nodes) = Nodes::new(1) else { return };
    let server = PostgresServer { address: nodes.address.clone().into(), lease: Duration::from_secs(60) };
    let join = |home: &tempfile::TempDir| Store::join_postgres(&server, home.path(), ManualClock::new());
    let homes: Vec<_> = (0..6).map(|_| tempfile::tempdir().unwrap()).collect();
    let stores: Vec<Arc<Store>> = thread::scope(|scope| {
        let joining: Vec<_> = homes.iter().map(|home| scope.spawn(move || join(home).unwrap())).collect();
        joining.into_iter().map(|joining| joining.join().unwrap()).collect()
    });
    let ids: HashSet<i64> = stores.iter().chain(&nodes.stores).map(|store| store.boot_epoch()).collect();
    assert_eq!(ids.len(), homes.len() + 1);
    assert!(matches!(join(&homes[0]), Err(StoreError::InUse { .. })), "a directory belongs to one node");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_are_refused_and_not_lost_when_connections_are_exhausted() {
    const REPOS: u64 = 5;
    let Some(mut nodes) = Nodes::new(0) else { return };
    let name = nodes.address.rsplit('/').next().unwrap().to_owned();
    sql(&nodes.address, &format!("CREATE ROLE few LOGIN; ALTER DATABASE {name} OWNER TO few"));
    nodes.join(&nodes.address.replace("countersign@", "few@"), ManualClock::new());
    // The node keeps its open connections. One listens, and the rest are too few for all repositories.
    sql(&nodes.address, "ALTER ROLE few CONNECTION LIMIT 1");
    let start = async |store: Arc<Store>, number: u64| {
        let mut new = new_run(number);
        new.trigger.repo = RepoId(number);
        store.start_run(new).await
    };
    // Locks each repository, as another writer would.
    let locks: String =
        (1..=REPOS).map(|repo| format!("SELECT pg_advisory_lock({LOCKS} | {repo});")).collect();
    let (busy, ended) = nodes.held(locks);
    let mut starting = JoinSet::new();
    for number in 1..=REPOS {
        let store = nodes.stores[0].clone();
        starting.spawn(async move { (number, start(store, number).await) });
    }
    let waiting = "SELECT COUNT(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND database =
                   (SELECT oid FROM pg_database WHERE datname = current_database())";
    let mut refused = Vec::new();
    while refused.len() as i64 + nodes.sql(waiting)[0] < REPOS as i64 {
        if let Some(Ok((number, ended))) = starting.try_join_next() {
            let message = ended.unwrap_err().to_string();
            assert!(
                message.contains("too many connections") && message.contains("raise max_connections"),
                "{message}"
            );
            refused.push(number);
        }
    }
    drop(busy);
    ended.join().unwrap();
    while let Some(Ok((_, ended))) = starting.join_next().await {
        assert!(matches!(ended, Ok(StartDecision::New(_))), "{ended:?}");
    }
    assert!(!refused.is_empty());
    for number in refused {
        let again = start(nodes.stores[0].clone(), number).await;
        assert!(matches!(again, Ok(StartDecision::New(_))), "{again:?}");
    }
    let runs = REPOS as i64;
    assert_eq!(nodes.sql("SELECT COUNT(*) FROM all_run"), [runs]);
    assert_eq!(nodes.sql("SELECT COUNT(*) FROM all_trail"), [runs]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_with_a_wrong_clock_does_not_take_runs_claimed_by_another_node() {
    const HOUR: Duration = Duration::from_secs(3600);
    let Some(mut nodes) = Nodes::new(1) else { return };
    let ahead = ManualClock::new();
    ahead.advance(HOUR);
    nodes.join(&nodes.address.clone(), ahead);
    let [right, ahead] = [&nodes.stores[0], &nodes.stores[1]];
    let (now, later) =
        (BEGINNING.plus(Duration::from_secs(1)), BEGINNING.plus(HOUR + Duration::from_secs(1)));
    let StartDecision::New(run) = right.start_run(new_run(1)).await.unwrap() else { panic!() };
    let held = claim_at(right, now).await.unwrap();
    assert_eq!(held.run.id, run);
    let notify = "SELECT 1::bigint FROM pg_notify('countersign', '0 runs 8123')";
    nodes.sql(notify);
    // Leases use the database's clock, so both nodes count as alive, and no lease lasts longer.
    assert!(claim_at(ahead, later).await.is_none());
    let living = "SELECT COUNT(*) FROM node WHERE until > now() AND until <= now() + interval '3600 s'";
    assert_eq!(nodes.sql(living), [2]);
    // The fast clock ends a wait too early, which the server warns of at its start. Only one node runs it.
    right.save_step(&held, wait()).await.unwrap();
    let early = loop {
        nodes.sql(notify);
        if let Some(early) = claim_at(ahead, later).await {
            break early;
        }
    };
    assert_eq!(early.run.id, run);
    assert!(claim_at(right, later).await.is_none());
    ahead.save_step(&early, wait()).await.unwrap();
    assert!(matches!(right.save_step(&held, wait()).await, Err(StoreError::Fenced)));
}

/// Proxy between a node and Postgres. The proxy can cut the connection at the commit of a transaction that concerns a
/// repository.
struct CuttingProxy {
    address: String,
    cut: Arc<AtomicUsize>,
}

/// Values for the moment at which [`CuttingProxy`] cuts the connection. `NEVER`: the connection is not cut. `BEFORE`:
/// it is cut before COMMIT reaches the server. `AFTER`: it is cut after COMMIT has reached the server, but before the
/// client gets the response.
const NEVER: usize = 0;
const BEFORE: usize = 1;
const AFTER: usize = 2;

impl CuttingProxy {
    fn to(address: &str) -> Self {
        let server = address.split('@').nth(1).unwrap().split('/').next().unwrap().to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = address.replace(&server, &listener.local_addr().unwrap().to_string());
        let cut = Arc::new(AtomicUsize::new(NEVER));
        let shared_cut = cut.clone();
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let (server, shared_cut) = (TcpStream::connect(&server).unwrap(), shared_cut.clone());
                thread::spawn(move || pass(client, server, &shared_cut));
            }
        });
        Self { address, cut }
    }

    /// Cuts the connection at the next commit: before it if `when` is `BEFORE`, after it if `when` is `AFTER`.
    fn cut_next(&self, when: usize) {
        self.cut.store(when, SeqCst);
    }

    fn has_cut(&self) -> bool {
        self.cut.load(SeqCst) == NEVER
    }
}

fn pass(mut client: TcpStream, mut server: TcpStream, cut: &AtomicUsize) {
    let swallow = Arc::new(AtomicBool::new(false));
    let (mut answers, mut back, swallowed) =
        (server.try_clone().unwrap(), client.try_clone().unwrap(), swallow.clone());
    thread::spawn(move || {
        let mut bytes = [0; 8192];
        while let Ok(many @ 1..) = answers.read(&mut bytes) {
            if swallowed.load(SeqCst) || back.write_all(&bytes[..many]).is_err() {
                break;
            }
        }
        let _ = (back.shutdown(Shutdown::Both), answers.shutdown(Shutdown::Both));
    });
    let (mut bytes, mut ours) = ([0; 8192], false);
    while let Ok(many @ 1..) = client.read(&mut bytes) {
        let contains = |word: &str| bytes[..many].windows(word.len()).any(|part| part == word.as_bytes());
        ours = (ours || contains("countersign.repo = ")) && !contains("ROLLBACK");
        if ours && contains("COMMIT") {
            ours = false;
            match cut.swap(NEVER, SeqCst) {
                BEFORE => break,
                AFTER => swallow.store(true, SeqCst),
                _ => {}
            }
        }
        if server.write_all(&bytes[..many]).is_err() {
            break;
        }
    }
    let _ = (client.shutdown(Shutdown::Both), server.shutdown(Shutdown::Both));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_commit_without_a_response_is_looked_up_and_not_repeated() {
    let Some(mut nodes) = Nodes::new(0) else { return };
    let proxy = CuttingProxy::to(&nodes.address);
    nodes.join(&proxy.address, ManualClock::new());
    let store = &nodes.stores[0];
    let counts = |runs: i64, done: i64, trail: i64| {
        let all =
            "SELECT COUNT(*) FROM all_run UNION ALL SELECT COUNT(*) FROM all_journal WHERE value IS NOT NULL
                   UNION ALL SELECT COUNT(*) FROM all_trail";
        assert_eq!(nodes.sql(all), [runs, done, trail]);
    };
    proxy.cut_next(BEFORE);
    let lost = store.start_run(new_run(1)).await;
    assert!(matches!(lost, Err(StoreError::Server { .. })) && proxy.has_cut(), "{lost:?}");
    counts(0, 0, 0);
    proxy.cut_next(AFTER);
    let kept = store.start_run(new_run(1)).await;
    assert!(matches!(kept, Ok(StartDecision::New(_))) && proxy.has_cut(), "{kept:?}");
    counts(1, 0, 1);

    // Postgres may take a moment to release the locks of the connection that was cut.
    let mut lease = claim(store).await;
    for _ in 0..100 {
        if lease.is_none() {
            tokio::time::sleep(Duration::from_millis(50)).await;
            lease = claim(store).await;
        }
    }
    let lease = lease.unwrap();
    let db = store.repository_database(REPO).await.unwrap();
    db.journal_begin(&lease, "paid").await.unwrap();
    proxy.cut_next(BEFORE);
    assert!(db.journal_done(&lease, "paid", b"1".to_vec()).await.is_err() && proxy.has_cut());
    counts(1, 0, 1);
    proxy.cut_next(AFTER);
    db.journal_done(&lease, "paid", b"1".to_vec()).await.unwrap();
    assert!(proxy.has_cut());
    counts(1, 1, 1);
    proxy.cut_next(BEFORE);
    assert!(store.save_step(&lease, wait()).await.is_err() && proxy.has_cut());
    proxy.cut_next(AFTER);
    store.save_step(&lease, wait()).await.unwrap();
    assert!(proxy.has_cut());
    // The stored step is final: its lease is over, and a second write is fenced.
    assert!(matches!(store.save_step(&lease, wait()).await, Err(StoreError::Fenced)));
    counts(1, 1, 1);
}

/// High bits that all ids of our advisory locks share.
const LOCKS: i64 = 0x4353_0000_0000_0000;
