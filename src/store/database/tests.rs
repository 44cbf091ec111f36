use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::FutureExt;

use super::*;

const SCHEMA: DatabaseSchema = DatabaseSchema {
    application_id: 7,
    migrations: &["CREATE TABLE t (x TEXT NOT NULL UNIQUE)"],
    traffic: DatabaseTraffic::Quiet,
};

struct CommitQueueBench {
    _root: tempfile::TempDir,
    db: Database,
    commits: Arc<AtomicUsize>,
}

impl CommitQueueBench {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let watch = SharedCommitWatch::default();
        let db = Database::open(&root.path().join("t.db"), &SCHEMA, Arc::clone(&watch), None).unwrap();
        let commits = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&commits);
        let _ = watch.on_commit.set(Box::new(move |_| {
            counted.fetch_add(1, Ordering::SeqCst);
        }));
        Self { _root: root, db, commits }
    }

    fn commits(&self) -> usize {
        self.commits.load(Ordering::SeqCst)
    }

    async fn rows(&self) -> Vec<String> {
        let all = |tx: &Transaction<'_>| {
            let mut statement = tx.prepare("SELECT x FROM t ORDER BY x")?;
            let rows = statement.query_map([], |row| row.get(0))?;
            rows.collect::<Result<_, _>>()
        };
        self.db.read(all).await.unwrap()
    }
}

fn put(text: &str) -> impl FnOnce(&Transaction<'_>) -> Result<(), TransactionError> + Send + use<> {
    let text = text.to_owned();
    move |tx| {
        tx.execute("INSERT INTO t VALUES (?1)", [text])?;
        Ok(())
    }
}

/// Runs `asked` while an earlier write blocks the queue, so that all writes of `asked` share one commit.
async fn run_in_one_commit<T>(bench: &CommitQueueBench, asked: impl Future<Output = T>) -> T {
    let (open, gate) = std::sync::mpsc::channel::<()>();
    let (begun, running) = oneshot::channel();
    let db = bench.db.clone();
    let first = tokio::spawn(async move {
        db.write(move |_| {
            let _ = begun.send(());
            let _ = gate.recv();
            Ok(())
        })
        .await
    });
    running.await.unwrap();
    // `join!` polls in order: `asked` has queued everything before the gate opens.
    let (answer, ()) = tokio::join!(asked, async { drop(open) });
    first.await.unwrap().unwrap();
    answer
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_writes_share_a_commit() {
    let bench = CommitQueueBench::new();
    let names: Vec<_> = (0..50).map(|n| format!("{n:02}")).collect();
    let answers =
        run_in_one_commit(&bench, poll_all(names.iter().map(|name| bench.db.write(put(name))))).await;
    assert!(answers.iter().all(Result::is_ok));
    assert_eq!(bench.rows().await, names);
    // One commit for the blocking write and one for the rest; a loaded machine may exceed the batch time.
    let commits = bench.commits();
    assert!((2..10).contains(&commits), "{commits}");
    bench.db.write(put("alone")).await.unwrap();
    assert_eq!(bench.commits(), commits + 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn database_file_is_closed_when_its_handle_is_dropped_after_all_results_are_read() {
    let root = tempfile::tempdir().unwrap();
    for n in 0..100 {
        let db =
            Database::open(&root.path().join("t.db"), &SCHEMA, SharedCommitWatch::default(), None).unwrap();
        db.write(put(&n.to_string())).await.unwrap();
        db.read(|_| Ok(())).await.unwrap();
        let open = Arc::downgrade(&db.shared);
        drop(db);
        assert_eq!(open.strong_count(), 0, "{n}");
    }
}

async fn poll_all<F: Future>(all: impl Iterator<Item = F>) -> Vec<F::Output> {
    use futures_util::{StreamExt, stream::FuturesOrdered};
    all.collect::<FuturesOrdered<_>>().collect().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn write_that_breaks_its_savepoint_fails_all_earlier_writes_of_its_commit() {
    let bench = CommitQueueBench::new();
    let breaks_out = |tx: &Transaction<'_>| -> Result<(), TransactionError> {
        tx.execute_batch("INSERT INTO t VALUES ('broken')")?;
        tx.execute_batch("RELEASE job")?;
        Ok(())
    };
    let (before, broken, after) = run_in_one_commit(&bench, async {
        tokio::join!(bench.db.write(put("a")), bench.db.write(breaks_out), bench.db.write(put("b")))
    })
    .await;
    assert!(matches!(before, Err(StoreError::Sql { .. })), "{before:?}");
    assert!(matches!(broken, Err(StoreError::Sql { .. })), "{broken:?}");
    after.unwrap();
    assert_eq!(bench.rows().await, ["b"], "what came after it has a transaction of its own");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_write_does_not_affect_other_writes_of_its_commit() {
    let bench = CommitQueueBench::new();
    let half_done = |tx: &Transaction<'_>| -> Result<(), TransactionError> {
        tx.execute("INSERT INTO t VALUES ('half done')", [])?;
        Err(TransactionError::Missing("the other half".into()))
    };
    let (before, failed, doubled, after) = run_in_one_commit(&bench, async {
        tokio::join!(
            bench.db.write(put("a")),
            bench.db.write(half_done),
            bench.db.write(put("a")),
            bench.db.write(put("b")),
        )
    })
    .await;
    before.unwrap();
    after.unwrap();
    assert!(matches!(failed, Err(StoreError::Missing { .. })), "{failed:?}");
    assert!(matches!(doubled, Err(StoreError::Sql { .. })), "{doubled:?}");
    assert_eq!(bench.rows().await, ["a", "b"]);
    assert!((2..=3).contains(&bench.commits()), "{}", bench.commits());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn panic_in_a_write_affects_only_its_caller() {
    let bench = CommitQueueBench::new();
    let db = bench.db.clone();
    let panics = |tx: &Transaction<'_>| -> Result<(), TransactionError> {
        tx.execute("INSERT INTO t VALUES ('panicked')", [])?;
        panic!("on purpose")
    };
    let panicked = std::panic::AssertUnwindSafe(async move { db.write(panics).await }).catch_unwind();
    let (before, panicked, after) = run_in_one_commit(&bench, async {
        tokio::join!(bench.db.write(put("a")), panicked, bench.db.write(put("b")))
    })
    .await;
    before.unwrap();
    after.unwrap();
    assert_eq!(panicked.unwrap_err().downcast_ref(), Some(&"on purpose"));
    assert_eq!(bench.rows().await, ["a", "b"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rolled_back_write_is_not_counted_as_a_commit() {
    let bench = CommitQueueBench::new();
    let failed = bench.db.write(|_| -> Result<(), TransactionError> { Err(TransactionError::Fenced) }).await;
    assert!(matches!(failed, Err(StoreError::Fenced)));
    assert_eq!(bench.commits(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn read_sees_committed_writes_and_discards_its_own_changes() {
    let bench = CommitQueueBench::new();
    bench.db.write(put("a")).await.unwrap();
    bench.db.read(put("b")).await.unwrap();
    assert_eq!(bench.rows().await, ["a"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn full_disk_is_reported_and_writes_resume_when_space_is_free() {
    let bench = CommitQueueBench::new();
    bench.db.write(put("before")).await.unwrap();
    let pages = |most: &'static str| bench.db.read(move |tx| pragma(tx, "max_page_count", most));
    pages("1").await.unwrap(); // no fewer than there are
    let (large, small) = run_in_one_commit(&bench, async {
        let large = "x".repeat(100_000);
        tokio::join!(bench.db.write(put(&large)), bench.db.write(put("small")))
    })
    .await;
    let refused = large.unwrap_err();
    assert!(matches!(refused, StoreError::Full { .. }), "{refused}");
    assert!(
        refused.to_string().contains("t.db") && refused.to_string().contains("free some space"),
        "{refused}"
    );
    // Writes that reported success are stored; the failed one is not.
    let kept = small.is_ok();
    assert_eq!(bench.rows().await.contains(&"small".to_owned()), kept);

    pages("1000000").await.unwrap();
    bench.db.write(put("after")).await.unwrap();
    let rows = bench.rows().await;
    assert!(rows.contains(&"before".to_owned()) && rows.contains(&"after".to_owned()), "{rows:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn write_to_a_read_only_database_fails_with_an_error_naming_its_file() {
    let bench = CommitQueueBench::new();
    let query_only = |on: bool| bench.db.read(move |tx| pragma(tx, "query_only", on));
    query_only(true).await.unwrap();
    let refused = bench.db.write(put("a")).await.unwrap_err();
    assert!(matches!(refused, StoreError::ReadOnly { .. }), "{refused}");
    assert!(refused.to_string().contains("t.db is not writable"), "{refused}");
    query_only(false).await.unwrap();
    bench.db.write(put("a")).await.unwrap();
    assert_eq!(bench.rows().await, ["a"]);
}

#[tokio::test]
async fn failed_commit_is_recorded_in_the_commit_duration_metric() {
    use prometheus_client::{encoding::text::encode, registry::Registry};
    let (root, watch) = (tempfile::tempdir().unwrap(), SharedCommitWatch::default());
    let db = Database::open(&root.path().join("t.db"), &SCHEMA, Arc::clone(&watch), None).unwrap();
    let mut registry = Registry::default();
    registry.register("commits", "", watch.commit_seconds.clone());
    let told = || {
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        text.lines().find(|line| line.starts_with("commits_count")).unwrap().to_owned()
    };
    let before = told();
    let dangling = |tx: &Transaction<'_>| {
        for sql in [
            "CREATE TABLE parent (x PRIMARY KEY)",
            "INSERT INTO t VALUES ('x')",
            "CREATE TABLE child (x REFERENCES parent DEFERRABLE INITIALLY DEFERRED)",
            "INSERT INTO child VALUES (1)",
        ] {
            tx.execute_batch(sql)?;
        }
        Ok(())
    };
    db.write(dangling).await.unwrap_err();
    assert_ne!(told(), before);
}

fn pragma(tx: &Transaction<'_>, name: &str, value: impl rusqlite::ToSql) -> Result<(), TransactionError> {
    let Transaction::File(connection) = tx else { unreachable!("these tests are about files") };
    Ok(connection.pragma_update(None, name, value)?)
}
