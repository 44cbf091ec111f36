//! Tests of repository databases: older schema versions, lost and damaged files, restarts.

use std::{
    collections::HashSet, ffi::OsStr, fs, os::unix::ffi::OsStrExt, path::Path, sync::Arc, time::Duration,
};

use rusqlite::Connection;

use crate::{
    clock::SystemClock,
    limits,
    store::{
        ActivePause, CallRow, CallStatus, Checkpoint, CommitRow, LedgerRecord, PauseScope, RepositoryRow,
        Reservation, ReservationOutcome, RetryDecision, RunFilter, RunLease, RunStatus, SharedCap,
        StartDecision, Store, StoreError, create_backup,
        tests::{claim_after_scans, new_run},
    },
    types::{Cause, Hash, InstallationId, IssueNo, MicroUsd, RepoId, RunId, Timestamp},
};

const REPO: RepoId = RepoId(3);

fn open(root: &Path) -> Arc<Store> {
    Store::open(root, Arc::new(SystemClock)).unwrap()
}

async fn claim(store: &Store) -> Option<RunLease> {
    claim_after_scans(store, Timestamp(i64::MAX)).await
}

fn go() -> Checkpoint {
    Checkpoint::Go { step: "\"Draft\"".into(), state: b"{}".to_vec(), moves: 1 }
}

fn file(root: &Path, repo: RepoId) -> std::path::PathBuf {
    root.join(format!("repos/{repo}/checkpoints.db"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repository_database_of_schema_version_1_is_migrated_and_read() {
    let root = tempfile::tempdir().unwrap();
    let store = open(root.path());
    store.start_run(new_run(REPO, 9)).await.unwrap(); // for its hint
    drop(store);
    let file = file(root.path(), REPO);
    fs::remove_file(&file).unwrap();
    let old = Connection::open(&file).unwrap();
    old.pragma_update(None, "journal_mode", "WAL").unwrap();
    old.execute_batch(include_str!("../migrations/repository-1.sql")).unwrap();
    old.execute_batch("PRAGMA application_id = 0x43537231; PRAGMA user_version = 1").unwrap();
    let request = serde_json::to_string(&new_run(REPO, 42).trigger).unwrap();
    let (document, commit) = (Hash::digest(b"design"), "1".repeat(40));
    let proposed = format!(
        r#"{{"proposal": {{"branch": "countersign/issue-43", "path": "a.md", "commit": "{commit}", "document": "{document}"}}}}"#
    );
    old.execute_batch(&format!(
        "INSERT INTO run (workflow, version, issue, cause, request, status, step, state, visit, moves, attempts, due,
             taken, lease, started_at, updated_at)
         VALUES ('lld', 1, 42, 'a', '{request}', 'ready', '\"Draft\"', x'7b7d', 2, 1, 0, 5, 4, 7, 1, 2),
                ('lld', 1, 43, 'b', '{request}', 'done', '\"Done\"', CAST('{proposed}' AS BLOB), 9, 1, 0, NULL, NULL, 30, 1, 2);
         INSERT INTO trail (run, visit, step, state, entered_at) VALUES (1, 1, '\"Load\"', x'7b7d', 1),
             (1, 2, '\"Draft\"', x'7b7d', 2);
         INSERT INTO journal (run, visit, key, value, begun_at) VALUES (1, 2, 'now', x'31', 2);"
    ))
    .unwrap();
    drop(old);

    let store = open(root.path());
    let lease = claim(&store).await.unwrap();
    assert_eq!((lease.run.id.seq, lease.run.visit, lease.number, lease.run.calls.calls), (1, 2, 7, 0));
    let db = store.repository_database(REPO).await.unwrap();
    assert_eq!(
        db.journal_begin(&lease, "now").await.unwrap(),
        crate::store::JournalLookup::Done(b"1".to_vec())
    );
    lease.pending_writes.github_calls().count_call(true);
    lease.pending_writes.github_calls().count_call(false);
    store.save_step(&lease, go()).await.unwrap();
    let run = store.run_row(lease.run.id).await.unwrap().unwrap();
    assert_eq!((run.visit, run.calls.calls, run.calls.writes), (3, 2, 1));
    let done = store.run_row(RunId { repo: REPO, seq: 2 }).await.unwrap().unwrap();
    assert_eq!(done.status, RunStatus::Done);
    let ours = CommitRow {
        branch: "countersign/issue-43".into(),
        begins: false,
        files: vec![("a.md".into(), Some(document))],
        commit: Some(commit.parse().unwrap()),
    };
    assert_eq!(db.commits_of_issue(IssueNo(43)).await.unwrap(), [ours]);
    assert_eq!(db.commits_of_issue(IssueNo(42)).await.unwrap(), []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pending_ledger_records_are_stored_with_the_next_write() {
    let root = tempfile::tempdir().unwrap();
    let store = open(root.path());
    store.start_run(new_run(REPO, 1)).await.unwrap();
    let lease = claim(&store).await.unwrap();
    let db = store.repository_database(REPO).await.unwrap();
    let kept = async || db.ledger(lease.run.id).await.unwrap().calls;
    db.journal_begin(&lease, "draft/1").await.unwrap();
    db.record(&lease, "draft/1", LedgerRecord::Call(call(CallStatus::Reserved))).await.unwrap();
    lease.pending_writes.add_record(lease.run.visit, "draft/1", LedgerRecord::Call(call(CallStatus::Done)));
    assert_eq!(kept().await, [call(CallStatus::Reserved)]);
    db.journal_done(&lease, "draft/1", b"1".to_vec()).await.unwrap();
    assert_eq!(kept().await, [call(CallStatus::Done)]);
    assert_eq!(db.call_row(&lease, "draft/1").await.unwrap(), Some(call(CallStatus::Done)));
    assert_eq!(db.call_row(&lease, "draft/2").await.unwrap(), None);

    // Costs stay recorded even if the attempt fails.
    lease.pending_writes.add_record(lease.run.visit, "draft/2", LedgerRecord::Call(call(CallStatus::Failed)));
    let again = Checkpoint::Retry { attempts: 1, due: Timestamp(0), why: "a fault".into() };
    store.save_step(&lease, again).await.unwrap();
    assert_eq!(kept().await, [call(CallStatus::Done), call(CallStatus::Failed)]);
}

fn call(status: CallStatus) -> CallRow {
    CallRow {
        role: "drafter".into(),
        provider: "claude".into(),
        asked: "claude:opus".into(),
        served: None,
        accepted_by: None,
        family: None,
        prompt: Hash::digest(b"prompt"),
        cut: Vec::new(),
        status,
        input_tokens: 1000,
        output_tokens: 0,
        cache_read: 0,
        cache_written: 0,
        cost_microusd: Some(5),
        billed: true,
        held_microusd: None,
        likely_microusd: None,
        settled: None,
        elapsed_ms: 0,
        attempts: 1,
        error: None,
    }
}

#[test]
fn stored_call_without_a_truncation_field_deserializes() {
    let mut row = serde_json::to_value(call(CallStatus::Done)).unwrap();
    row.as_object_mut().unwrap().remove("cut").unwrap();
    assert_eq!(serde_json::from_value::<CallRow>(row).unwrap(), call(CallStatus::Done));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn database_with_a_newer_schema_blocks_only_its_own_repository() {
    let root = tempfile::tempdir().unwrap();
    let store = open(root.path());
    store.start_run(new_run(REPO, 1)).await.unwrap();
    store.start_run(new_run(RepoId(4), 1)).await.unwrap();
    drop(store);
    let newer = Connection::open(file(root.path(), REPO)).unwrap();
    newer.pragma_update(None, "user_version", 99).unwrap();
    drop(newer);
    let store = open(root.path());
    assert_eq!(claim(&store).await.unwrap().run.id.repo, RepoId(4));
    let refused = store.repository_database(REPO).await.err().unwrap();
    assert!(matches!(refused, StoreError::Newer { found: 99, .. }), "{refused}");
    assert!(refused.to_string().contains("repos/3/checkpoints.db"), "{refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_repository_database_is_an_error_and_is_not_recreated() {
    let root = tempfile::tempdir().unwrap();
    let store = open(root.path());
    store.start_run(new_run(REPO, 1)).await.unwrap();
    drop(store);
    fs::create_dir(root.path().join("repos/3/mirror.git")).unwrap();
    fs::remove_file(file(root.path(), REPO)).unwrap();
    let store = open(root.path());
    assert!(claim(&store).await.is_none());
    let refused = store.start_run(new_run(REPO, 2)).await.err().unwrap();
    assert!(matches!(refused, StoreError::Lost { .. }), "{refused}");
    assert!(!file(root.path(), REPO).exists());

    // If the whole folder is missing, it was removed on purpose.
    fs::remove_dir_all(root.path().join("repos/3")).unwrap();
    assert!(matches!(store.start_run(new_run(REPO, 2)).await.unwrap(), StartDecision::New(_)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn torn_write_ahead_log_loses_only_its_last_transaction() {
    let root = tempfile::tempdir().unwrap();
    let store = open(root.path());
    store.start_run(new_run(REPO, 1)).await.unwrap();
    let lease = claim(&store).await.unwrap();
    store.save_step(&lease, go()).await.unwrap();
    // Simulates a power loss: the log on disk lacks its last page.
    let (copy, log) = (tempfile::tempdir().unwrap(), "repos/3/checkpoints.db-wal");
    fs::create_dir_all(copy.path().join("repos/3")).unwrap();
    for name in ["main.db", "main.db-wal", "repos/3/checkpoints.db", log] {
        fs::copy(root.path().join(name), copy.path().join(name)).unwrap();
    }
    let torn = fs::OpenOptions::new().write(true).open(copy.path().join(log)).unwrap();
    torn.set_len(torn.metadata().unwrap().len() - 1000).unwrap();
    let store = open(copy.path());
    let lease = claim(&store).await.unwrap();
    assert_eq!((lease.run.visit, lease.run.step.as_str()), (1, "\"Load\""), "the previous step runs again");
    store.save_step(&lease, go()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn database_damage_found_after_opening_blocks_only_its_own_repository() {
    let root = tempfile::tempdir().unwrap();
    let store = open(root.path());
    for issue in 1..=200 {
        store.start_run(new_run(REPO, issue)).await.unwrap();
    }
    store.start_run(new_run(RepoId(4), 1)).await.unwrap();
    drop(store);
    let file = file(root.path(), REPO);
    let mut bytes = fs::read(&file).unwrap();
    // Closed cleanly, so opening does not scan it. The damage is in the middle pages, which hold the runs.
    let (from, to) = (bytes.len() / 4 / 4096 * 4096, bytes.len() / 4 * 3);
    bytes[from..to].fill(0xA5);
    fs::write(&file, &bytes).unwrap();

    let store = open(root.path());
    assert_eq!(claim(&store).await.unwrap().run.id.repo, RepoId(4));
    assert!(claim(&store).await.is_none());
    let refused = store.repository_database(REPO).await.err().unwrap();
    assert!(matches!(&refused, StoreError::Damaged { file: named, .. } if *named == file), "{refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runs_of_all_repositories_continue_when_the_open_database_limit_is_reached() {
    let root = tempfile::tempdir().unwrap();
    let store = open(root.path());
    let repos = limits::OPEN_REPOSITORIES as u64 + 5;
    let first = store.repository_database(RepoId(1)).await.unwrap();
    for repo in 1..=repos {
        store.start_run(new_run(RepoId(repo), 1)).await.unwrap();
    }
    assert!(
        Arc::ptr_eq(&first, &store.repository_database(RepoId(1)).await.unwrap()),
        "what is in use is not closed"
    );
    let log = |repo: &u64| fs::metadata(root.path().join(format!("repos/{repo}/checkpoints.db-wal")));
    let logs = (1..=repos).filter(|repo| log(repo).is_ok_and(|log| log.len() > 0));
    assert!(logs.count() <= limits::OPEN_REPOSITORIES, "the others are closed");
    let mut served = HashSet::new();
    while let Some(lease) = claim(&store).await {
        let done = Checkpoint::Ended { status: RunStatus::Failed, why: "seen".into() };
        store.save_step(&lease, done).await.unwrap();
        served.insert(lease.run.id.repo);
    }
    assert_eq!(served.len() as u64, repos);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_pause_and_installation_suspension_survive_a_restart() {
    let root = tempfile::tempdir().unwrap();
    let store = open(root.path());
    store.start_run(new_run(REPO, 1)).await.unwrap();
    let pause =
        ActivePause { scope: PauseScope::Server, by: "root".into(), why: "upgrade".into(), at: Timestamp(1) };
    store.set_pause(pause.clone()).await.unwrap();
    drop(store);
    let store = open(root.path());
    assert!(claim(&store).await.is_none());
    assert_eq!(store.pauses().await.unwrap(), [pause]);
    assert!(store.remove_pause(PauseScope::Server).await.unwrap());
    assert!(!store.remove_pause(PauseScope::Server).await.unwrap());

    store.installation_registry().record_installation(InstallationId(7), "acme", true).await.unwrap();
    assert!(claim(&store).await.is_none());
    drop(store);
    let store = open(root.path());
    assert!(claim(&store).await.is_none());
    store.installation_registry().record_installation(InstallationId(7), "acme", false).await.unwrap();
    assert!(claim(&store).await.is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retry_resumes_a_failed_run_at_the_step_that_failed() {
    let root = tempfile::tempdir().unwrap();
    let store = open(root.path());
    let StartDecision::New(run) = store.start_run(new_run(REPO, 1)).await.unwrap() else { panic!() };
    let retry = |cause: &str| store.retry_run(run, Cause(cause.into()), "root".into());
    assert!(matches!(retry("r1").await.unwrap(), RetryDecision::NotFailed(_)));
    let lease = claim(&store).await.unwrap();
    let failed = Checkpoint::Ended { status: RunStatus::Failed, why: "broken".into() };
    store.save_step(&lease, failed).await.unwrap();
    assert_eq!(store.next_due(), None);
    assert!(matches!(retry("r2").await.unwrap(), RetryDecision::Resumed));
    assert!(matches!(retry("r2").await.unwrap(), RetryDecision::Duplicate));
    drop(store);

    let store = open(root.path());
    let lease = claim(&store).await.expect("retry writes a new wake hint");
    assert_eq!((lease.run.id, lease.run.visit, lease.run.step.as_str()), (run, 2, "\"Load\""));
    let trail = store.repository_database(REPO).await.unwrap().trail(run).await.unwrap();
    assert_eq!(trail.len(), 2);
    let live =
        store.runs(RunFilter { repo: Some(REPO), live_only: true, ..RunFilter::default() }).await.unwrap();
    assert!(live[0].taken && live[0].updated_at.plus(Duration::from_secs(60)) > lease.run.started_at);
    assert!(matches!(store.get_document(&lease, Hash::digest(b"?")).await, Err(StoreError::Missing { .. })));
}

fn set_main_epoch_back(root: &Path, to: Option<&[u8]>) {
    for name in ["main.db", "main.db-wal", "main.db-shm"] {
        drop(fs::remove_file(root.join(name)));
    }
    if let Some(bytes) = to {
        fs::write(root.join("main.db"), bytes).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runs_resume_when_main_db_was_replaced_by_an_older_copy_or_recreated() {
    let root = tempfile::tempdir().unwrap();
    drop(open(root.path()));
    let old = fs::read(root.path().join("main.db")).unwrap();
    for older in [Some(old.as_slice()), None] {
        for _ in 0..3 {
            let store = open(root.path());
            for repo in [1, 2] {
                store.start_run(new_run(RepoId(repo), 1)).await.unwrap();
                store.save_step(&claim(&store).await.unwrap(), go()).await.unwrap();
            }
        }
        set_main_epoch_back(root.path(), older);
        let store = open(root.path());
        let mut served = HashSet::new();
        for _ in [1, 2] {
            let lease = claim(&store).await.expect("found without a wake hint");
            assert!(served.insert(lease.run.id.repo));
            // After closing and reopening, its epoch is known.
            store.save_step(&lease, Checkpoint::Park { why: "unreadable".into() }).await.unwrap();
        }
        assert!(claim(&store).await.is_none(), "parked for this boot");
        drop(store);
        assert_eq!(
            fs::read_to_string(root.path().join("lock")).unwrap().trim(),
            if older.is_some() { "2" } else { "1" }
        );
        // The hints are complete again.
        let store = open(root.path());
        let runs = [claim(&store).await.unwrap(), claim(&store).await.unwrap()];
        for lease in runs {
            store.save_step(&lease, go()).await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parked_runs_are_retried_after_a_boot_with_a_reused_boot_number() {
    let root = tempfile::tempdir().unwrap();
    let store = open(root.path());
    store.start_run(new_run(REPO, 1)).await.unwrap();
    store.save_step(&claim(&store).await.unwrap(), Checkpoint::Park { why: "old".into() }).await.unwrap();
    drop(store);
    set_main_epoch_back(root.path(), None);
    assert!(claim(&open(root.path())).await.is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forgetting_a_repository_can_be_repeated_after_an_interruption() {
    let root = tempfile::tempdir().unwrap();
    let store = open(root.path());
    let row = RepositoryRow { id: REPO, installation: InstallationId(7), name: "acme/shop".parse().unwrap() };
    store.installation_registry().record_repository(row).await.unwrap();
    store.start_run(new_run(REPO, 1)).await.unwrap();
    let gone = root.path().join("repos/.gone-3");
    fs::write(&gone, "in the way").unwrap();
    assert!(store.forget_repo(REPO).await.is_err());
    assert_eq!(store.repositories().await.unwrap(), [REPO], "nothing was done yet");
    fs::remove_file(&gone).unwrap();
    drop(store);

    // Simulates a crash after the first rename.
    fs::rename(root.path().join("repos/3"), &gone).unwrap();
    assert_eq!(super::super::repositories_in(root.path()).unwrap(), []);
    let store = open(root.path());
    assert!(!gone.exists() && claim(&store).await.is_none());
    assert!(store.installation_registry().repository(REPO).await.unwrap().is_some(), "it still can be named");
    for _ in 0..2 {
        store.forget_repo(REPO).await.unwrap();
        assert!(store.installation_registry().repository(REPO).await.unwrap().is_none());
    }
    assert!(
        matches!(store.start_run(new_run(REPO, 1)).await.unwrap(), StartDecision::New(run) if run.seq == 1)
    );
    assert!(claim(&store).await.is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn backup_skips_and_reports_damaged_databases() {
    let home = tempfile::tempdir().unwrap();
    // A path need not be UTF-8.
    let root = home.path().join(OsStr::from_bytes(b"data-\xff"));
    let store = open(&root);
    store.start_run(new_run(REPO, 1)).await.unwrap();
    store.start_run(new_run(RepoId(4), 1)).await.unwrap();
    drop(store);
    fs::write(file(&root, REPO), b"junk".repeat(4096)).unwrap();
    let _open = open(&root);
    let copy = root.join("copy");
    let made = create_backup(&root.as_path().into(), &copy, &Default::default()).unwrap();
    assert_eq!((made.repositories, made.missing.len()), (1, 1), "{made:?}");
    assert!(made.missing[0].contains("repos/3/checkpoints.db") && made.missing[0].contains("whole folder"));
    let store = open(&copy);
    assert_eq!(claim(&store).await.unwrap().run.id.repo, RepoId(4));
    assert!(claim(&store).await.is_none() && !copy.join("repos/3").exists());
    let left: Vec<_> = fs::read_dir(&root).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(left.iter().all(|name| !name.to_string_lossy().ends_with("half-done")), "{left:?}");
}

/// Creates a reservation of `dollars` for a run of `repo`. The limits are 2.5 dollars per day and per month.
fn reservation(repo: RepoId, seq: u64, dollars: u64) -> Reservation {
    Reservation {
        run: RunId { repo, seq },
        visit: 1,
        key: "draft/1".into(),
        installation: InstallationId(7),
        amount: MicroUsd(dollars * 1_000_000),
        repository_day: Some(MicroUsd(2_500_000)),
        installation_month: Some(MicroUsd(2_500_000)),
    }
}

/// Creates a run of `REPO` in the state after a server crash during a call for which two dollars were reserved.
async fn crash_during_call(root: &Path) {
    let store = open(root);
    store.start_run(new_run(REPO, 1)).await.unwrap();
    let lease = claim(&store).await.unwrap();
    let row = CallRow {
        cost_microusd: None,
        billed: false,
        held_microusd: Some(2_000_000),
        ..call(CallStatus::Reserved)
    };
    assert_eq!(
        store.reserve_budget(reservation(REPO, lease.run.id.seq, 2)).await.unwrap(),
        ReservationOutcome::Granted
    );
    store
        .repository_database(REPO)
        .await
        .unwrap()
        .record(&lease, "draft/1", LedgerRecord::Call(row))
        .await
        .unwrap();
}

const SPENT: MicroUsd = MicroUsd(2_000_000);

#[tokio::test]
async fn reserved_call_cost_is_read_from_the_call_ledger_after_a_crash() {
    let root = tempfile::tempdir().unwrap();
    crash_during_call(root.path()).await;
    let over = ReservationOutcome::OverCap { cap: SharedCap::RepositoryDay, spent: SPENT };
    let store = open(root.path());
    assert_eq!(store.reserve_budget(reservation(REPO, 99, 1)).await.unwrap(), over);
    drop(store);
    set_main_epoch_back(root.path(), None);
    let store = open(root.path());
    let caps = [SharedCap::RepositoryDay, SharedCap::InstallationMonth].map(|cap| (cap, SPENT));
    assert_eq!(store.shared_spend(REPO, InstallationId(7)).await.unwrap(), caps);
    assert_eq!(store.spent_this_month().await.unwrap(), SPENT);
    assert_eq!(
        store.reserve_budget(reservation(REPO, 99, 1)).await.unwrap(),
        over,
        "a new main.db knows nothing of its own"
    );

    let lease = claim(&store).await.unwrap();
    let db = store.repository_database(REPO).await.unwrap();
    let settled = LedgerRecord::Call(call(CallStatus::Done));
    db.record(&lease, "draft/1", settled).await.unwrap();
    store.sync_run_spend(lease.run.id).await.unwrap();
    assert_eq!(store.reserve_budget(reservation(REPO, 99, 2)).await.unwrap(), ReservationOutcome::Granted);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn spend_in_an_unreadable_ledger_counts_against_caps_and_blocks_new_calls() {
    let root = tempfile::tempdir().unwrap();
    crash_during_call(root.path()).await;
    fs::write(file(root.path(), REPO), b"junk".repeat(4096)).unwrap();
    let store = open(root.path());
    let refused = store.reserve_budget(reservation(REPO, 99, 1)).await.unwrap_err().to_string();
    assert!(refused.contains("restore it from a backup, or remove the whole folder"), "{refused}");
    let over = ReservationOutcome::OverCap { cap: SharedCap::InstallationMonth, spent: SPENT };
    assert_eq!(store.reserve_budget(reservation(RepoId(4), 1, 1)).await.unwrap(), over);
    // Removing the folder removes its runs; the spend stays counted.
    fs::remove_dir_all(root.path().join("repos/3")).unwrap();
    assert_eq!(store.reserve_budget(reservation(RepoId(4), 1, 1)).await.unwrap(), over);
}
